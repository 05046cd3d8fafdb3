// The expiry sweep and the job around it, over a real PostgreSQL.

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/clock.h"
#include "common/base/proto_time.h"
#include "common/db/connection.h"
#include "common/db/pool.h"
#include "common/obs/metrics.h"
#include "common/store/fact_store.h"
#include "services/scheduler/expire_sweep.h"
#include "services/scheduler/expiry_store.h"
#include "services/scheduler/job_runner.h"
#include "services/scheduler/job_store.h"
#include "services/scheduler/statements.h"
#include "tests/integration/rows.h"
#include "tests/support/barrier.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"
#include "tests/support/test_signal.h"

namespace tenure::test {
namespace {

using ::tenure::scheduler::ExpiredBatch;
using ::tenure::scheduler::ExpireSweep;
using ::tenure::scheduler::ExpiryCursor;
using ::tenure::scheduler::ExpiryStore;
using ::tenure::scheduler::JobOutcome;
using ::tenure::scheduler::JobRun;
using ::tenure::scheduler::JobRunner;
using ::tenure::scheduler::JobStatus;
using ::tenure::scheduler::JobStore;
using ::tenure::scheduler::SweepStats;
using ::testing::HasSubstr;
using ::testing::Not;

// status and instants of a live row whose access ended an hour ago.
constexpr char kColumns[] = "status, starts_at, expires_at";
constexpr char kDue[] =
    "'ACTIVE', tenure_now() - interval '30 days', "
    "tenure_now() - interval '1 hour'";

bool Never() { return false; }

class Sweep : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    ASSERT_OK_AND_ASSIGN(session_, database_->OpenSession());
    ASSERT_OK(AddCatalog(*session_));
    ASSERT_OK(AddRoutes(*session_));
    pool_ = MakePool();
    store_ = std::make_unique<ExpiryStore>(*pool_);
  }

  std::unique_ptr<db::Pool> MakePool(
      absl::Duration statement_timeout = absl::Seconds(60)) const {
    db::PoolOptions options;
    options.connection.conninfo = database_->conninfo();
    options.connection.statement_timeout = statement_timeout;
    options.connection.lock_timeout = absl::Seconds(30);
    return std::make_unique<db::Pool>(options);
  }

  void AddDue(int count) {
    ASSERT_OK(AddSubscriptions(*session_, count, kColumns, kDue));
  }

  // One pass.
  SweepStats Pass(int64_t batch_size = 500) {
    SweepStats stats;
    EXPECT_OK(ExpireSweep(*store_, batch_size).Run(Never, &stats));
    return stats;
  }

  std::string Scalar(const std::string& sql,
                     const std::vector<SqlValue>& params = {}) {
    absl::StatusOr<std::string> value = session_->Scalar(sql, params);
    return value.ok() ? *value : value.status().ToString();
  }

  void Exec(const std::string& sql) { ASSERT_OK(session_->Exec(sql)); }

  // "sub_1 ACTIVE, sub_2 EXPIRED".
  std::string Statuses() {
    return Scalar(
        "SELECT string_agg(provider_subscription_id || ' ' || status, ', ' "
        "ORDER BY id) FROM subscription");
  }

  std::string CountExpired() {
    return Scalar(
        "SELECT count(*)::text FROM subscription WHERE status = 'EXPIRED'");
  }

  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<db::Pool> pool_;
  std::unique_ptr<ExpiryStore> store_;
};

TEST_F(Sweep, D1_S0_13_TakesEveryLiveStatusAtItsAccessUntil) {
  // By row: status, end, grace, leeway, each in minutes from now.
  Exec(R"sql(
CREATE TABLE shape (i integer PRIMARY KEY, status text, ends integer,
                    grace integer, leeway integer, due boolean);
INSERT INTO shape VALUES
  (1, 'TRIALING', -1, NULL, NULL, true),
  (2, 'ACTIVE',   -1, NULL, NULL, true),
  (3, 'PAST_DUE', -1, NULL, NULL, true),
  (4, 'ACTIVE',    1, NULL, NULL, false),
  (5, 'PAST_DUE', -9,    1, NULL, false),
  (6, 'PAST_DUE', -9,   -1, NULL, true),
  (7, 'ACTIVE',   -9, NULL,    1, false),
  (8, 'ACTIVE',   -9, NULL,   -1, true),
  (9, 'ACTIVE',   -1,   -9,   -5, true),
  (10, 'PAUSED',  -1, NULL, NULL, false),
  (11, 'CANCELED', -1, NULL, NULL, false),
  (12, 'REVOKED', -1, NULL, NULL, false),
  (13, 'PENDING', -1, NULL, NULL, false))sql");
  const auto minutes = [](const std::string& column) {
    return absl::StrCat(
        "tenure_now() + (SELECT ", column,
        " FROM shape WHERE shape.i = n.i) * interval '1 minute'");
  };
  ASSERT_OK(AddSubscriptions(
      *session_, 13,
      "status, starts_at, expires_at, grace_period_ends_at, leeway_until",
      absl::StrCat("(SELECT shape.status FROM shape WHERE shape.i = n.i), "
                   "tenure_now() - interval '1 day', ",
                   minutes("ends"), ", ", minutes("grace"), ", ",
                   minutes("leeway"))));
  // A lifetime row has no end to come.
  Exec(
      "INSERT INTO subscription (subject_id, plan_id, environment, route_id, "
      "provider_subscription_id, fold_revision, status, lifetime, starts_at) "
      "SELECT subject_id, plan_id, environment, route_id, 'forever', 1, "
      "'ACTIVE', true, starts_at FROM subscription LIMIT 1");

  const SweepStats stats = Pass();

  EXPECT_EQ(stats.expired, 6);
  EXPECT_EQ(stats.found, 6);
  EXPECT_EQ(Scalar("SELECT bool_and((s.status = 'EXPIRED') = x.due AND "
                   "(x.due OR s.status = x.status))::text FROM subscription s "
                   "JOIN shape x ON s.provider_subscription_id = 'sub_' || "
                   "x.i"),
            "true");
  EXPECT_EQ(Scalar("SELECT status FROM subscription WHERE "
                   "provider_subscription_id = 'forever'"),
            "ACTIVE");
  EXPECT_EQ(Scalar("SELECT bool_and(expired_at BETWEEN access_until AND "
                   "tenure_now() AND event_seq = 1 AND version = 2)::text "
                   "FROM subscription WHERE status = 'EXPIRED'"),
            "true");
}

TEST_F(Sweep, S0_18_AnswersHowManyExpiredAndNoneWithoutDueRows) {
  EXPECT_EQ(Pass().expired, 0);
  AddDue(7);

  EXPECT_EQ(Pass().expired, 7);
  const std::string after = *Snapshot(*session_);
  EXPECT_EQ(Pass().expired, 0);
  EXPECT_EQ(*Snapshot(*session_), after);
}

TEST_F(Sweep,
       S0_23_S4_8_EndHistoryOutboxAndCancelledReleasesAreOneTransaction) {
  AddDue(2);
  Exec("INSERT INTO sink (name) VALUES ('orders')");
  Exec("INSERT INTO sink (name, enabled) VALUES ('retired', false)");
  Exec(
      "INSERT INTO quota_schedule (subscription_id, meter, term_key, term_no, "
      "period_no, amount, scheduled_at, status, settled_at) SELECT id, "
      "'calls', 'in_1', 1, k, 10, tenure_now() + k * interval '30 days', CASE "
      "k WHEN "
      "0 THEN 'RELEASED' ELSE 'PENDING' END, CASE k WHEN 0 THEN tenure_now() "
      "END FROM subscription, generate_series(0, 2) k");

  ASSERT_EQ(Pass().expired, 2);

  EXPECT_EQ(Scalar("SELECT string_agg(event_type || ' ' || (e.effective_at = "
                   "s.access_until) || ' ' || (e.access_until = "
                   "s.access_until) || ' ' || cause || ' ' || (e.seq = "
                   "s.event_seq), ', ') FROM subscription_event e JOIN "
                   "subscription s ON s.id = e.subscription_id"),
            "subscription.expired true true job:subscription_maintenance true, "
            "subscription.expired true true job:subscription_maintenance true");
  EXPECT_EQ(Scalar("SELECT string_agg(sent_seq || '-' || head_seq, ', ') FROM "
                   "sink_stream"),
            "0-1, 0-1, 0-1, 0-1")
      << "a disabled sink's rows wait for it (C127)";
  EXPECT_EQ(Scalar("SELECT string_agg(period_no || ' ' || q.status || ' ' || "
                   "(settled_at IS NOT NULL), ', ' ORDER BY period_no) FROM "
                   "quota_schedule q JOIN subscription s ON s.id = "
                   "subscription_id WHERE provider_subscription_id = 'sub_1'"),
            "0 RELEASED true, 1 CANCELLED true, 2 CANCELLED true");
  EXPECT_EQ(Scalar("SELECT count(DISTINCT x)::text FROM (SELECT xmin::text x "
                   "FROM subscription UNION ALL SELECT xmin::text FROM "
                   "subscription_event UNION ALL SELECT xmin::text FROM "
                   "sink_stream UNION ALL SELECT xmin::text FROM "
                   "quota_schedule WHERE status = 'CANCELLED') w"),
            "1");
}

TEST_F(Sweep, S0_23_NothingOfABatchRemainsWhenAPartOfItFails) {
  AddDue(3);
  Exec("INSERT INTO sink (name) VALUES ('orders')");
  Exec(R"sql(
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'refused by the test'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON sink_stream
  FOR EACH ROW EXECUTE FUNCTION refuse())sql");
  const std::string before = *Snapshot(*session_);

  SweepStats stats;
  EXPECT_FALSE(ExpireSweep(*store_, 500).Run(Never, &stats).ok());

  EXPECT_EQ(stats.expired, 0);
  EXPECT_EQ(*Snapshot(*session_), before);
}

TEST_F(Sweep, R6_S0_21_ARowBroughtBackByHandEndsOnceMore) {
  AddDue(1);
  ASSERT_EQ(Pass().expired, 1);
  Exec(
      "UPDATE subscription SET status = 'ACTIVE', expired_at = NULL, "
      "expires_at = tenure_now() - interval '1 second'");

  EXPECT_EQ(Pass().expired, 1);

  EXPECT_EQ(Scalar("SELECT string_agg(event_type || ' ' || episode, ', ' ORDER "
                   "BY seq) FROM subscription_event"),
            "subscription.expired 0, subscription.expired 1");
}

TEST_F(Sweep, ARowThatCannotBeSweptKeepsNoOtherWaiting) {
  AddDue(20);
  Exec(R"sql(
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'refused by the test' USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON subscription FOR EACH ROW
  WHEN (old.provider_subscription_id IN ('sub_3', 'sub_12', 'sub_20'))
  EXECUTE FUNCTION refuse())sql");

  SweepStats stats;
  const absl::Status status = ExpireSweep(*store_, 8).Run(Never, &stats);

  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_EQ(stats.expired, 17);
  EXPECT_EQ(stats.failed, 3);
  EXPECT_EQ(CountExpired(), "17");
  EXPECT_EQ(Scalar("SELECT string_agg(provider_subscription_id, ',' ORDER BY "
                   "id) FROM subscription WHERE status = 'ACTIVE'"),
            "sub_3,sub_12,sub_20");
}

TEST_F(Sweep, S0_17_WritesNothingButRowsAndTheirOutbox) {
  AddDue(3);
  Exec("INSERT INTO sink (name) VALUES ('orders')");
  // What PostgreSQL counted as written, by table.
  const std::string written =
      "SELECT coalesce(string_agg(relname, ' ' ORDER BY relname), '') FROM "
      "pg_stat_user_tables WHERE n_tup_ins + n_tup_upd + n_tup_del > 0";
  Exec("SELECT pg_stat_force_next_flush()");
  Exec("SELECT pg_stat_reset()");
  ASSERT_EQ(Scalar(written), "");

  ASSERT_EQ(Pass().expired, 3);
  pool_ = MakePool();
  store_ = std::make_unique<ExpiryStore>(*pool_);
  ASSERT_OK(session_->AwaitTrue(
      "SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = "
      "current_database() AND backend_type = 'client backend'"));

  EXPECT_EQ(Scalar(written), "sink_stream subscription subscription_event");
}

TEST_F(Sweep, S0_1_SubscriptionsAddNoRowsOfTheSchedulersOwn) {
  JobStore jobs(*pool_);
  ASSERT_OK(jobs.Register("subscription_maintenance", absl::Seconds(10)));
  const std::string scheduler_rows =
      "SELECT (SELECT count(*) FROM job) || ' ' || (SELECT count(*) FROM "
      "job_run) || ' ' || (SELECT count(*) FROM sink_stream)";
  const std::string before = Scalar(scheduler_rows);

  ASSERT_OK(AddSubscriptions(*session_, 2000, kColumns,
                             "'ACTIVE', tenure_now() - interval '1 day', "
                             "tenure_now() + i * interval '1 minute'"));
  EXPECT_EQ(Pass().found, 0);

  EXPECT_EQ(Scalar(scheduler_rows), before);
}

TEST_F(Sweep, D17_S0_12_ABatchIsBounded) {
  AddDue(25);

  ASSERT_OK_AND_ASSIGN(const ExpiredBatch batch,
                       store_->ExpireDue(ExpiryCursor(), 10));
  EXPECT_EQ(batch.found, 10);
  EXPECT_EQ(batch.expired, 10);
  EXPECT_EQ(CountExpired(), "10");
  EXPECT_EQ(Scalar("SELECT count(DISTINCT xmin::text)::text FROM subscription "
                   "WHERE status = 'EXPIRED'"),
            "1");

  const SweepStats rest = Pass(10);
  EXPECT_EQ(rest.expired, 15);
  EXPECT_EQ(rest.batches, 2);
}

TEST_F(Sweep, S0_13_TakesTheLongestDueFirst) {
  ASSERT_OK(AddSubscriptions(
      *session_, 20, kColumns,
      "'ACTIVE', tenure_now() - interval '30 days', tenure_now() - i * "
      "interval '1 minute'"));

  ASSERT_OK_AND_ASSIGN(const ExpiredBatch batch,
                       store_->ExpireDue(ExpiryCursor(), 3));

  EXPECT_EQ(batch.expired, 3);
  EXPECT_EQ(Scalar("SELECT string_agg(provider_subscription_id, ' ' ORDER BY "
                   "id) FROM subscription WHERE status = 'EXPIRED'"),
            "sub_18 sub_19 sub_20");
}

TEST_F(Sweep, StopsBetweenBatchesWhenTold) {
  AddDue(30);
  int asked = 0;
  SweepStats stats;

  EXPECT_OK(ExpireSweep(*store_, 10).Run([&] { return ++asked > 2; }, &stats));

  EXPECT_EQ(stats.batches, 2);
  EXPECT_EQ(CountExpired(), "20");
}

TEST_F(Sweep, OnePassTakesAllRowsOfOneInstantWhateverTheirIds) {
  // Ids fall while the instants rise, and half of the rows share an instant.
  ASSERT_OK(AddSubscriptions(
      *session_, 400, kColumns,
      "'ACTIVE', tenure_now() - interval '30 days', "
      "date_trunc('day', tenure_now()) - interval '1 day' - "
      "CASE WHEN i % 2 = 0 THEN i ELSE 201 END * interval '1 second'"));
  Exec("ANALYZE subscription");

  const SweepStats stats = Pass(7);

  EXPECT_EQ(stats.expired, 400);
  EXPECT_EQ(stats.found, 400);
  EXPECT_EQ(stats.batches, 400 / 7 + 1);
  EXPECT_EQ(CountExpired(), "400");
}

TEST_F(Sweep, S0_16_S3_2_S3_3_FourWorkersTakeDisjointBatches) {
  constexpr int kWorkers = 4;
  constexpr int kRows = 2000;
  AddDue(kRows);
  Exec("INSERT INTO sink (name) VALUES ('orders')");
  Exec("ANALYZE subscription");
  Barrier barrier(kWorkers);
  std::vector<std::unique_ptr<db::Pool>> pools;
  std::vector<SweepStats> stats(kWorkers);
  std::vector<absl::Status> outcomes(kWorkers);
  for (int w = 0; w < kWorkers; ++w) pools.push_back(MakePool());
  std::vector<std::thread> threads;
  for (int w = 0; w < kWorkers; ++w) {
    threads.emplace_back([&, w] {
      ExpiryStore store(*pools[w]);
      ExpireSweep sweep(store, 20);
      if (!barrier.ArriveAndWait()) return;
      outcomes[w] = sweep.Run(Never, &stats[w]);
    });
  }
  for (std::thread& thread : threads) thread.join();

  int64_t expired = 0;
  int64_t found = 0;
  for (int w = 0; w < kWorkers; ++w) {
    EXPECT_OK(outcomes[w]);
    expired += stats[w].expired;
    found += stats[w].found;
  }
  EXPECT_EQ(expired, kRows);
  EXPECT_EQ(found, kRows);
  EXPECT_EQ(Scalar("SELECT count(*) || ' ' || count(DISTINCT subscription_id) "
                   "FROM subscription_event WHERE event_type = "
                   "'subscription.expired'"),
            "2000 2000");
  EXPECT_EQ(Scalar("SELECT min(event_seq) || ' ' || max(event_seq) FROM "
                   "subscription WHERE status = 'EXPIRED'"),
            "1 1");
}

TEST_F(Sweep, S0_16_S3_17_S4_12_ARowThatSomebodyHoldsIsLeftAndNotWaitedFor) {
  AddDue(5);
  ASSERT_OK_AND_ASSIGN(const auto holder, database_->OpenSession());
  ASSERT_OK(
      holder->Exec("BEGIN; SELECT id FROM subscription WHERE "
                   "provider_subscription_id = 'sub_3' FOR UPDATE"));

  // It would not come back while the row is held, if it waited.
  EXPECT_EQ(Pass(2).expired, 4);
  EXPECT_EQ(Statuses(),
            "sub_1 EXPIRED, sub_2 EXPIRED, sub_3 ACTIVE, sub_4 EXPIRED, "
            "sub_5 EXPIRED");

  ASSERT_OK(holder->Exec("ROLLBACK"));
  EXPECT_EQ(Pass(2).expired, 1);
}

TEST_F(Sweep, HalvesItsBatchWhenAStatementRunsOutOfTime) {
  AddDue(64);
  // A batch above ten rows takes for ever.
  Exec(R"sql(
CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (SELECT count(*) FROM changed) > 10 THEN PERFORM pg_sleep(600); END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER dawdle AFTER UPDATE ON subscription
  REFERENCING NEW TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION dawdle())sql");
  const auto pool = MakePool(/*statement_timeout=*/absl::Seconds(1));
  ExpiryStore store(*pool);
  SweepStats stats;

  EXPECT_OK(ExpireSweep(store, 64).Run(Never, &stats));

  EXPECT_EQ(stats.expired, 64);
  EXPECT_GE(stats.batches, 64 / 8);
  EXPECT_EQ(CountExpired(), "64");
}

// A renewal and the sweep on one row. The renewal is the product's own: a PAID
// fact through the fact store.
class SweepAgainstRenewal : public Sweep {
 protected:
  void SetUp() override {
    Sweep::SetUp();
    Exec(
        "INSERT INTO provider_product (route_name, product_id, plan_name) "
        "VALUES ('direct', 'price_pro', 'pro')");
    route_.id =
        std::stoll(Scalar("SELECT id::text FROM route WHERE name = 'direct'"));
    route_.name = "direct";
    route_.environment = "live";
    db::ConnectionOptions options;
    options.conninfo = database_->conninfo();
    options.lock_timeout = absl::Seconds(60);
    options.statement_timeout = absl::Seconds(120);
    ASSERT_OK_AND_ASSIGN(renewer_, db::Connection::Open(options));
  }

  // Term number `term` of the subscription: the first is over since a second,
  // the next one is not.
  absl::Status Pay(db::Transaction& tx, const std::string& subscription,
                   int term) {
    const absl::Time now = SystemClock::Instance().Now();
    const absl::Time turn = now - absl::Seconds(1);
    const absl::Duration month = absl::Hours(30 * 24);
    store::FactBatch batch;
    batch.route = route_;
    batch.provider_subscription_id = subscription;
    batch.subject = "u";
    batch.product_id = "price_pro";
    batch.event_id = absl::StrCat(subscription, "_", term);
    // There is no inbox row behind it.
    batch.provider_event_id = std::stoll(event_id_);
    domain::Fact fact;
    fact.set_layer(subscription::v1::FACT_LAYER_MONEY);
    const absl::Time start = turn + (term - 1) * month;
    *fact.mutable_order_at() = ToProto(start);
    auto& paid = *fact.mutable_paid();
    paid.set_payment_key(batch.event_id);
    *paid.mutable_period_starts_at() = ToProto(start);
    *paid.mutable_period_ends_at() = ToProto(start + month);
    *paid.mutable_paid_at() = ToProto(start);
    paid.set_amount_minor(100);
    paid.set_currency("USD");
    batch.facts.push_back(std::move(fact));
    ASSIGN_OR_RETURN(const store::Destination destination,
                     store::Resolve(tx, batch));
    if (!destination.parked.empty()) {
      return absl::InternalError(destination.parked);
    }
    return store::Apply(tx, batch, destination).status();
  }

  // A row that is due: live, its end just past.
  void AddDueByFact(const std::string& subscription) {
    ASSERT_OK(pool_->RunTransaction(
        [&](db::Transaction& tx) { return Pay(tx, subscription, 0); }));
    // It arrived late, so it was EXPIRED at once; make it the row that the
    // sweep has not seen.
    ASSERT_OK(session_->Exec(
        "WITH s AS (UPDATE subscription SET status = 'ACTIVE', expired_at = "
        "NULL, event_seq = 2 WHERE provider_subscription_id = $1 RETURNING id) "
        "DELETE FROM subscription_event WHERE event_type = "
        "'subscription.expired' AND subscription_id IN (SELECT id FROM s)",
        {subscription}));
  }

  std::string RowOf(const std::string& subscription) {
    return Scalar(
        "SELECT status || ' ' || episode || ' ' || (expires_at > tenure_now())"
        " || ' ' || (SELECT string_agg(replace(event_type, 'subscription.', "
        "''), ' ' ORDER BY seq) FROM subscription_event WHERE subscription_id "
        "= s.id) FROM subscription s WHERE provider_subscription_id = $1",
        {subscription});
  }

  store::Route route_;
  std::string event_id_;
  std::unique_ptr<db::Connection> renewer_;
};

TEST_F(SweepAgainstRenewal, C038_S0_15_TheRenewalWinsInEveryOrder) {
  Exec(
      "INSERT INTO provider_event (route_id, account, livemode, "
      "external_event_id, event_type, body_sha256, occurred_at, status, "
      "processed_at) SELECT id, '', true, 'evt', 'x', sha256('x'), "
      "tenure_now(), 'applied', tenure_now() FROM route WHERE name = "
      "'direct'");
  event_id_ = Scalar("SELECT id::text FROM provider_event");
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    const std::string subscription = absl::StrCat("sub_", round);
    AddDueByFact(subscription);
    ASSERT_EQ(RowOf(subscription), "ACTIVE 0 false created activated");
    ASSERT_OK_AND_ASSIGN(auto tx, db::Transaction::Begin(*renewer_));
    if (round % 2 == 0) {
      // The renewal holds the row: the sweep passes it over, twice.
      ASSERT_OK(Pay(*tx, subscription, 1));
      EXPECT_EQ(Pass().found, 0);
      ASSERT_OK(tx->Commit());
      EXPECT_EQ(Pass().found, 0);
      EXPECT_EQ(RowOf(subscription), "ACTIVE 0 true created activated renewed");
    } else {
      // The sweep was first: the renewal revives.
      EXPECT_EQ(Pass().expired, 1);
      EXPECT_EQ(RowOf(subscription),
                "EXPIRED 0 false created activated expired");
      ASSERT_OK(Pay(*tx, subscription, 1));
      ASSERT_OK(tx->Commit());
      EXPECT_EQ(Pass().found, 0);
      EXPECT_EQ(RowOf(subscription),
                "ACTIVE 1 true created activated expired renewed");
    }
  }
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM subscription WHERE status = "
                   "'EXPIRED'"),
            "0");
}

TEST_F(SweepAgainstRenewal, C038_ARenewalThatMeetsTheSweepWaitsAndRevives) {
  Exec(
      "INSERT INTO provider_event (route_id, account, livemode, "
      "external_event_id, event_type, body_sha256, occurred_at, status, "
      "processed_at) SELECT id, '', true, 'evt', 'x', sha256('x'), "
      "tenure_now(), 'applied', tenure_now() FROM route WHERE name = "
      "'direct'");
  event_id_ = Scalar("SELECT id::text FROM provider_event");
  AddDueByFact("sub_1");
  ASSERT_OK_AND_ASSIGN(const auto sweeper, database_->OpenSession());
  ASSERT_OK(sweeper->Exec("BEGIN"));
  ASSERT_OK_AND_ASSIGN(const SqlRows swept,
                       sweeper->Exec(scheduler::kExpireDueSubscriptions.sql,
                                     {"0001-01-01T00:00:00Z", "0", "500"}));
  ASSERT_EQ(swept[0][1], "1");

  absl::Status renewed = absl::UnknownError("not run");
  std::thread renewal([&] {
    auto tx = db::Transaction::Begin(*renewer_);
    if (!tx.ok()) {
      renewed = tx.status();
      return;
    }
    renewed = Pay(**tx, "sub_1", 1);
    if (renewed.ok()) renewed = (*tx)->Commit();
  });
  EXPECT_OK(database_->WaitUntilBlocked(renewer_->backend_pid()));
  EXPECT_OK(sweeper->Exec("COMMIT"));
  renewal.join();

  EXPECT_OK(renewed);
  EXPECT_EQ(RowOf("sub_1"), "ACTIVE 1 true created activated expired renewed");
}

TEST_F(Sweep, C038_S0_14_AWaitingUpdateLooksAgain) {
  // The update alone, without the claim before it: its own condition decides
  // when the row changed while it waited.
  AddDue(1);
  ASSERT_OK_AND_ASSIGN(const auto renewer, database_->OpenSession());
  ASSERT_OK_AND_ASSIGN(const auto sweeper, database_->OpenSession());
  ASSERT_OK(
      renewer->Exec("BEGIN; UPDATE subscription SET expires_at = "
                    "tenure_now() + interval '30 days'"));
  std::string update = scheduler::kExpireDueSubscriptions.sql;
  const size_t from = update.find("UPDATE subscription s");
  const size_t to = update.find("RETURNING", from);
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  update = absl::StrCat("WITH c AS (SELECT id FROM subscription) ",
                        update.substr(from, to - from), "RETURNING s.id");

  ASSERT_OK(sweeper->Send(update));
  ASSERT_OK(database_->WaitUntilBlocked(sweeper->backend_pid()));
  ASSERT_OK(renewer->Exec("COMMIT"));
  ASSERT_OK_AND_ASSIGN(const SqlRows updated, sweeper->Receive());

  EXPECT_TRUE(updated.empty());
  EXPECT_EQ(Statuses(), "sub_1 ACTIVE");
}

TEST_F(Sweep, C098_ClaimsNoMoreThanItsLimitUnderAnyPlan) {
  static constexpr const char* kSettings[] = {
      "enable_hashjoin", "enable_mergejoin", "enable_hashagg",
      "enable_sort",     "enable_material",  "enable_nestloop",
      "enable_seqscan",  "enable_indexscan"};
  constexpr int kRows = 2000;
  Exec("ALTER TABLE subscription SET (autovacuum_enabled = off)");
  ASSERT_OK_AND_ASSIGN(const auto planner, database_->OpenSession());
  // The price of a forbidden plan would have each one compiled first.
  ASSERT_OK(planner->Exec("SET jit = off"));
  const std::string count_expired =
      "SELECT count(*)::text FROM subscription WHERE status = 'EXPIRED'";
  // The form of the claim that is known to go wrong, to show that these plans
  // would tell.
  const std::string careless =
      "UPDATE subscription SET status = 'EXPIRED', expired_at = tenure_now() "
      "WHERE id IN (SELECT id FROM subscription WHERE status IN ('TRIALING', "
      "'ACTIVE', 'PAST_DUE') AND access_until <= tenure_now() ORDER BY "
      "access_until, id LIMIT 5 FOR NO KEY UPDATE SKIP LOCKED)";
  int careless_overclaims = 0;
  // The planner's picture: an empty table, then none at all, then the truth.
  for (const absl::string_view statistics : {"empty", "none", "true"}) {
    SCOPED_TRACE(statistics);
    if (statistics == "empty") {
      Exec("ANALYZE subscription");
      AddDue(kRows);
    } else if (statistics == "none") {
      Exec(
          "DELETE FROM pg_statistic WHERE starelid = "
          "'subscription'::regclass");
    } else {
      Exec("ANALYZE subscription");
    }
    for (int off = 0; off < 1 << std::size(kSettings); ++off) {
      std::string settings;
      for (size_t i = 0; i < std::size(kSettings); ++i) {
        absl::StrAppend(&settings, "SET LOCAL ", kSettings[i], " = ",
                        (off >> i & 1) != 0 ? "off" : "on", ";");
      }
      absl::StrAppend(&settings, "SET LOCAL plan_cache_mode = ",
                      off % 2 == 0 ? "force_generic_plan" : "force_custom_plan",
                      ";");
      // Every combination with one limit, and each limit in turn.
      const std::string limit = off % 3 == 0 ? "1" : off % 3 == 1 ? "5" : "100";
      ASSERT_OK(planner->Exec(absl::StrCat("BEGIN;", settings)));
      ASSERT_OK_AND_ASSIGN(const SqlRows claimed,
                           planner->Exec(scheduler::kExpireDueSubscriptions.sql,
                                         {"0001-01-01T00:00:00Z", "0", limit}));
      ASSERT_OK_AND_ASSIGN(const std::string expired,
                           planner->Scalar(count_expired));
      ASSERT_OK(planner->Exec("ROLLBACK"));
      ASSERT_EQ(claimed[0][0], limit) << settings;
      ASSERT_EQ(claimed[0][1], limit) << settings;
      ASSERT_EQ(expired, limit) << settings;

      if (careless_overclaims > 0) continue;
      ASSERT_OK(planner->Exec(absl::StrCat("BEGIN;", settings)));
      ASSERT_OK(planner->Exec(careless));
      ASSERT_OK_AND_ASSIGN(const std::string carelessly_expired,
                           planner->Scalar(count_expired));
      ASSERT_OK(planner->Exec("ROLLBACK"));
      if (carelessly_expired != "5") ++careless_overclaims;
    }
  }
  EXPECT_GT(careless_overclaims, 0);
}

// The plan below "CTE c" of EXPLAIN's text: the lines that stand deeper.
std::string PlanOfClaim(const SqlRows& explained) {
  std::string plan;
  std::optional<size_t> depth;
  for (const SqlRow& row : explained) {
    const std::string& line = *row[0];
    const size_t indent = line.find_first_not_of(' ');
    if (depth.has_value()) {
      if (indent <= *depth) break;
      absl::StrAppend(&plan, line, "\n");
    } else if (absl::EndsWith(line, "CTE c")) {
      depth = indent;
    }
  }
  return plan;
}

TEST_F(Sweep, D16_S0_11_TheClaimReadsThePartialIndexInOrder) {
  // Most rows are not due, as in production.
  ASSERT_OK(AddSubscriptions(
      *session_, 20000, kColumns,
      "CASE i % 3 WHEN 0 THEN 'TRIALING' WHEN 1 THEN 'ACTIVE' ELSE 'PAST_DUE' "
      "END, tenure_now() - interval '300 days', tenure_now() + (i - 2000) * "
      "interval '1 minute'"));
  Exec("ANALYZE subscription");
  Exec("SET plan_cache_mode = force_generic_plan");
  Exec(absl::StrCat("PREPARE claim (timestamptz, bigint, bigint) AS ",
                    scheduler::kExpireDueSubscriptions.sql));

  for (const char* cursor :
       {"'0001-01-01T00:00:00Z', 0", "'2020-01-01T00:00:00Z', 77"}) {
    ASSERT_OK_AND_ASSIGN(
        const SqlRows explained,
        session_->Exec(absl::StrCat("EXPLAIN (COSTS OFF) EXECUTE claim (",
                                    cursor, ", 500)")));
    const std::string plan = PlanOfClaim(explained);
    EXPECT_THAT(plan, HasSubstr("Index Scan using subscription_due"));
    EXPECT_THAT(plan, Not(HasSubstr("Sort")));
    EXPECT_THAT(plan, Not(HasSubstr("Seq Scan")));
    EXPECT_THAT(plan, HasSubstr("LockRows"));
  }
}

class Job : public Sweep {
 protected:
  static constexpr char kName[] = "subscription_maintenance";

  void SetUp() override {
    Sweep::SetUp();
    jobs_ = std::make_unique<JobStore>(*pool_);
    sweep_ = std::make_unique<ExpireSweep>(*store_, 500);
  }

  // The job as the scheduler's main() makes it.
  std::unique_ptr<JobRunner> MakeRunner(absl::Duration period,
                                        const std::string& instance = "a") {
    return std::make_unique<JobRunner>(
        kName, period, instance,
        [this](const std::function<bool()>& stop, JobOutcome* outcome) {
          SweepStats stats;
          const absl::Status status = sweep_->Run(stop, &stats);
          outcome->batch_count = stats.batches;
          outcome->found_count = stats.found;
          outcome->succeeded_count = stats.expired;
          ran_.Notify();
          return status;
        },
        *jobs_, SystemClock::Instance(), registry_);
  }

  std::unique_ptr<JobStore> jobs_;
  std::unique_ptr<ExpireSweep> sweep_;
  obs::Registry registry_{"scheduler"};
  TestSignal ran_;
};

TEST_F(Job, S4_21_RunsAtItsStartByItself) {
  AddDue(3);
  const auto runner = MakeRunner(absl::Hours(1));

  ASSERT_OK(runner->Start());

  EXPECT_TRUE(ran_.Await());
  EXPECT_OK(session_->AwaitTrue("SELECT count(*) = 1 FROM job_run"));
  EXPECT_EQ(CountExpired(), "3");
  EXPECT_EQ(Scalar("SELECT job || ' ' || instance || ' ' || found_count || ' '"
                   " || succeeded_count || ' ' || batch_count || ' ' || "
                   "last_error || ' ' || idle FROM job_run"),
            "subscription_maintenance a 3 3 1  false");
}

TEST_F(Job, AnIdleRunIsOneRowHoweverOftenItIsRepeated) {
  ASSERT_OK(jobs_->Register(kName, absl::Hours(1)));
  const auto first = MakeRunner(absl::Hours(1), "a");
  const auto second = MakeRunner(absl::Hours(1), "b");

  absl::Time last;
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(const JobRun run, first->RunNow(Never));
    EXPECT_EQ(run.found_count, 0);
    last = run.finished_at;
  }
  ASSERT_OK(second->RunNow(Never));

  EXPECT_EQ(Scalar("SELECT count(*) || ' ' || bool_and(idle) FROM job_run"),
            "2 true");
  EXPECT_EQ(Scalar("SELECT (extract(epoch FROM finished_at) * "
                   "1000000)::bigint::text FROM job_run WHERE instance = 'a'"),
            absl::StrCat(absl::ToUnixMicros(last)));
}

TEST_F(Job, AFailedRunIsRecordedWithItsError) {
  AddDue(3);
  ASSERT_OK(jobs_->Register(kName, absl::Hours(1)));
  Exec(R"sql(
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'refused by the test'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON subscription_event
  FOR EACH ROW EXECUTE FUNCTION refuse())sql");
  const auto runner = MakeRunner(absl::Hours(1));

  ASSERT_OK_AND_ASSIGN(const JobRun run, runner->RunNow(Never));

  EXPECT_NE(run.last_error, "");
  EXPECT_EQ(Scalar("SELECT (last_error <> '' AND NOT idle)::text || ' ' || "
                   "succeeded_count FROM job_run"),
            "true 0");
  ASSERT_OK_AND_ASSIGN(const JobStatus status, jobs_->Get(kName));
  ASSERT_TRUE(status.last_run.has_value());
  EXPECT_EQ(status.last_run->last_error, run.last_error);

  // The next one does the work.
  Exec("DROP TRIGGER refuse ON subscription_event");
  ASSERT_OK_AND_ASSIGN(const JobRun next, runner->RunNow(Never));
  EXPECT_EQ(next.last_error, "");
  EXPECT_EQ(next.succeeded_count, 3);
}

TEST_F(Job, PausedItStartsNoRunUntilItIsResumed) {
  AddDue(3);
  ASSERT_OK(jobs_->Register(kName, absl::Milliseconds(5)));
  ASSERT_OK(jobs_->SetPaused(kName, true, "ada"));
  const auto runner = MakeRunner(absl::Milliseconds(5));
  ASSERT_OK(runner->Start());

  // The job looked at the pause several times.
  prometheus::Histogram& delay = registry_.Histogram(
      "scheduler_delay_seconds",
      "time from the instant a run was planned for to its start (S0-32)",
      {{"job", kName}}, obs::DelayBuckets());
  const absl::Duration end = SystemClock::Instance().Monotonic() + kPatience;
  while (delay.Collect().histogram.sample_count < 5 &&
         SystemClock::Instance().Monotonic() < end) {
    ASSERT_OK(session_->Exec("SELECT 1"));
  }
  ASSERT_GE(delay.Collect().histogram.sample_count, 5u);
  EXPECT_EQ(ran_.count(), 0);
  EXPECT_EQ(CountExpired(), "0");
  ASSERT_OK_AND_ASSIGN(const JobStatus paused, jobs_->Get(kName));
  EXPECT_TRUE(paused.paused);
  EXPECT_EQ(paused.paused_by, "ada");
  // A replica that starts now does not resume it.
  ASSERT_OK(jobs_->Register(kName, absl::Milliseconds(5)));
  EXPECT_THAT(jobs_->IsPaused(kName), IsOkAndHolds(true));

  ASSERT_OK(jobs_->SetPaused(kName, false, "ada"));
  EXPECT_TRUE(ran_.Await());
  runner->Stop();
  EXPECT_EQ(CountExpired(), "3");
}

TEST_F(Job, PausedItStillRunsWhenToldTo) {
  AddDue(3);
  ASSERT_OK(jobs_->Register(kName, absl::Hours(1)));
  ASSERT_OK(jobs_->SetPaused(kName, true, "ada"));
  const auto runner = MakeRunner(absl::Hours(1));

  ASSERT_OK_AND_ASSIGN(const JobRun run, runner->RunNow(Never));

  EXPECT_EQ(run.succeeded_count, 3);
}

TEST_F(Job, OneThatNobodyRegisteredIsNamedInTheError) {
  EXPECT_THAT(jobs_->Get("nightly"),
              HasReason(common::v1::ERROR_REASON_JOB_NOT_FOUND));
  EXPECT_THAT(jobs_->IsPaused("nightly"),
              HasReason(common::v1::ERROR_REASON_JOB_NOT_FOUND));
  EXPECT_THAT(jobs_->SetPaused("nightly", true, "ada"),
              HasReason(common::v1::ERROR_REASON_JOB_NOT_FOUND));
}

}  // namespace
}  // namespace tenure::test
