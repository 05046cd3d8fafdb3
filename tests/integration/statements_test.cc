// Every embedded statement against the migrated schema, and what the schema
// promises of its columns.
#include "common/db/statements.h"

#include <libpq-fe.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/db/statement.h"
#include "common/store/statements.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/entitlement/statements.h"
#include "services/host/statements.h"
#include "services/scheduler/statements.h"
#include "services/webhook-ingest/statements.h"
#include "tests/support/session.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace tenure::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

struct LayerStatement {
  const char* layer;
  const db::Statement* statement;
};

std::vector<LayerStatement> AllStatements() {
  std::vector<LayerStatement> all;
  const auto add = [&all](const char* layer, const auto& statements) {
    for (const db::Statement* statement : statements) {
      all.push_back({layer, statement});
    }
  };
  add("common/db", db::kAll);
  add("common/store", store::kAll);
  add("services/entitlement", entitlement::kAll);
  add("services/host", host::kAll);
  add("services/scheduler", scheduler::kAll);
  add("services/webhook-ingest", webhook_ingest::kAll);
  return all;
}

class SchemaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    ASSERT_OK_AND_ASSIGN(session_, database_->OpenSession());
  }

  // The first column of a query, as a list.
  std::vector<std::string> List(absl::string_view sql) {
    const absl::StatusOr<SqlRows> rows = session_->Exec(sql);
    EXPECT_THAT(rows, IsOk());
    std::vector<std::string> list;
    if (!rows.ok()) return list;
    for (const SqlRow& row : *rows) list.push_back(row[0].value_or("NULL"));
    return list;
  }

  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<Session> session_;
};

TEST_F(SchemaTest, EveryEmbeddedStatementCanBePrepared) {
  int prepared = 0;
  for (const LayerStatement& s : AllStatements()) {
    PGresult* result =
        PQprepare(session_->connection(), "", s.statement->sql, 0, nullptr);
    EXPECT_EQ(PQresultStatus(result), PGRES_COMMAND_OK)
        << s.layer << "/sql/" << s.statement->name
        << ".sql: " << PQresultErrorMessage(result);
    PQclear(result);
    ++prepared;
  }
  EXPECT_GE(prepared, 40);
}

TEST_F(SchemaTest, NoTwoStatementsShareTheNameTheyArePreparedUnder) {
  // Layers share sessions: the second of two would run the first one's text.
  std::map<std::string, std::string> layers;
  for (const LayerStatement& s : AllStatements()) {
    const auto [it, is_new] = layers.emplace(s.statement->name, s.layer);
    EXPECT_TRUE(is_new) << s.statement->name << " is in " << it->second
                        << " and in " << s.layer;
  }
}

TEST_F(SchemaTest, TheMigrationTableIsMadeOnlyOnce) {
  EXPECT_OK(session_->Exec(db::kCreateSchemaMigration.sql));
  EXPECT_THAT(session_->Scalar("SELECT count(*) FROM schema_migration"),
              IsOkAndHolds(Not("0")));
}

TEST_F(SchemaTest, S0_8_R13_EveryInstantHasItsTimeZone) {
  EXPECT_THAT(List("SELECT format('%s.%s', attrelid::regclass, attname)"
                   "  FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid"
                   " WHERE c.relnamespace = 'public'::regnamespace"
                   "   AND c.relkind = 'r' AND attnum > 0"
                   "   AND atttypid IN ('timestamp'::regtype, 'time'::regtype,"
                   "                    'timetz'::regtype, 'date'::regtype)"),
              IsEmpty());
}

TEST_F(SchemaTest, C070_EveryInstantFromOutsideIsCheckedToBeFinite) {
  // Exactly these are written by the database's own clock, are computed from
  // checked ones, or come from this process's clock.
  EXPECT_THAT(
      List("SELECT format('%s.%s', attrelid::regclass, attname)"
           "  FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid"
           " WHERE c.relnamespace = 'public'::regnamespace"
           "   AND c.relkind = 'r' AND attnum > 0"
           "   AND atttypid = 'timestamptz'::regtype"
           "   AND NOT EXISTS ("
           "     SELECT 1 FROM pg_constraint k"
           "      WHERE k.conrelid = a.attrelid AND k.contype = 'c'"
           "        AND pg_get_constraintdef(k.oid)"
           "            = format('CHECK (isfinite(%I))', a.attname))"),
      UnorderedElementsAre(
          "customer_link.created_at", "event_conflict.received_at",
          "job.changed_at", "job_run.finished_at", "job_run.scheduled_at",
          "job_run.started_at", "payment_order.created_at", "plan.created_at",
          "provider_event.processed_at", "provider_event.received_at",
          "quota_grant.granted_at", "quota_transaction.created_at",
          "request_log.created_at", "schema_migration.applied_at",
          "subject.created_at", "subscription.access_until",
          "subscription.created_at", "subscription_event.created_at",
          "subscription_fact.stored_at"));
}

TEST_F(SchemaTest, C074_UniqueKeysHaveNoNullablePartButTheProvidersId) {
  // A subscription that no provider knows has none.
  EXPECT_THAT(List("SELECT format('%s.%s', i.indrelid::regclass, a.attname)"
                   "  FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid"
                   "  JOIN pg_attribute a ON a.attrelid = i.indrelid"
                   "                     AND a.attnum = ANY (i.indkey)"
                   " WHERE c.relnamespace = 'public'::regnamespace"
                   "   AND i.indisunique AND NOT a.attnotnull"
                   "   AND NOT i.indnullsnotdistinct"),
              ElementsAre("subscription.provider_subscription_id"));
}

TEST_F(SchemaTest, C113_NoIdHas32Bits) {
  EXPECT_THAT(List("SELECT format('%s.%s', attrelid::regclass, attname)"
                   "  FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid"
                   " WHERE c.relnamespace = 'public'::regnamespace"
                   "   AND c.relkind = 'r' AND attnum > 0"
                   "   AND atttypid = 'int4'::regtype"
                   "   AND (attidentity <> '' OR attname = 'id'"
                   "        OR attname LIKE '%\\_id' OR EXISTS ("
                   "          SELECT 1 FROM pg_constraint k"
                   "           WHERE k.contype = 'f'"
                   "             AND k.conrelid = a.attrelid"
                   "             AND a.attnum = ANY (k.conkey)))"),
              IsEmpty());
  // 16 bits only for what operators configure and no traffic adds.
  EXPECT_THAT(List("SELECT attrelid::regclass::text"
                   "  FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid"
                   " WHERE c.relnamespace = 'public'::regnamespace"
                   "   AND c.relkind = 'r' AND attidentity <> ''"
                   "   AND atttypid <> 'int8'::regtype"),
              UnorderedElementsAre("route", "sink"));
}

TEST_F(SchemaTest, C113_IdsBeyond32And53BitsAreTakenEverywhere) {
  ASSERT_OK(session_->Exec(
      "INSERT INTO route (name, kind, environment)"
      " VALUES ('r', 'stripe', 'test');"
      "INSERT INTO job (name, period) VALUES ('j', '1 minute')"));
  for (const char* start : {"2147483647", "9007199254740992"}) {
    SCOPED_TRACE(start);
    ASSERT_OK(session_->Exec(
        "SELECT setval(pg_get_serial_sequence(c.oid::regclass::text,"
        "                                     attname)::regclass, $1::bigint)"
        "  FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid"
        " WHERE c.relnamespace = 'public'::regnamespace"
        "   AND c.relkind = 'r' AND attidentity <> ''"
        "   AND atttypid = 'int8'::regtype",
        {start}));
    ASSERT_OK(session_->Exec(
        "INSERT INTO subject (external_id) VALUES ('s' || $1);", {start}));
    ASSERT_OK(session_->Exec(
        "INSERT INTO plan (name, revision) VALUES ('p', $1::bigint)", {start}));
    ASSERT_OK(session_->Exec(
        "INSERT INTO plan_feature SELECT max(id), 'f' FROM plan;"
        "INSERT INTO customer_link (route_id, account, customer_id, subject_id)"
        " SELECT (SELECT id FROM route), '', max(id)::text, max(id)"
        "  FROM subject;"
        "INSERT INTO provider_event (route_id, account, livemode,"
        "  external_event_id, event_type, body_sha256, occurred_at, status,"
        "  processed_at)"
        " SELECT (SELECT id FROM route), '', false, 'e' || max(id), 't',"
        "  sha256('x'), now(), 'applied', now() FROM subject;"
        "INSERT INTO event_conflict (event_id, body, body_sha256)"
        " SELECT max(id), 'y', sha256('y') FROM provider_event;"
        "INSERT INTO subscription (subject_id, plan_id, environment, route_id,"
        "  provider_subscription_id, status, starts_at, expires_at,"
        "  fold_revision, event_seq)"
        " SELECT max(id), (SELECT max(id) FROM plan), 'test',"
        "  (SELECT id FROM route), 's' || max(id), 'ACTIVE', now(),"
        "  now() + interval '1 day', 1, max(id) FROM subject;"
        "INSERT INTO subscription_fact (subscription_id, layer, order_at, rank,"
        "  event_id, ordinal, kind, plan_revision, body, provider_event_id)"
        " SELECT max(id), 1, now(), 1, 'e', 0, 'paid', max(id), '',"
        "  (SELECT max(id) FROM provider_event) FROM subscription;"
        "INSERT INTO payment (route_id, account, payment_key, subscription_id,"
        "  term_no, amount_minor, currency, paid_at, period_starts_at,"
        "  period_ends_at)"
        " SELECT (SELECT id FROM route), '', 'k' || max(id), max(id), 1,"
        "  max(id), 'EUR', now(), now(), now() + interval '1 day'"
        "  FROM subscription;"
        "INSERT INTO subscription_event (subscription_id, seq, event_type,"
        "  episode, effective_at)"
        " SELECT max(id), max(id), 'subscription.started', 0, now()"
        "  FROM subscription;"
        "INSERT INTO quota_schedule (subscription_id, meter, term_key,"
        "  term_no, period_no, amount, scheduled_at)"
        " SELECT max(id), 'm', 't', 1, 1, max(id), now() FROM subscription;"
        "INSERT INTO job_run (job, instance, scheduled_at, started_at,"
        "  finished_at, batch_count, found_count, succeeded_count,"
        "  failed_count, idle)"
        " SELECT 'j', 'i', now(), now(), now(), 1, max(id), max(id), 0, false"
        "  FROM subscription"));
    for (const char* table :
         {"subject", "plan", "provider_event", "event_conflict", "subscription",
          "quota_schedule", "job_run"}) {
      EXPECT_THAT(session_->Scalar(absl::StrCat("SELECT max(id) > $1::bigint"
                                                " FROM ",
                                                table),
                                   {start}),
                  IsOkAndHolds("t"))
          << table;
    }
  }
}

}  // namespace
}  // namespace tenure::test
