#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/bench/statements.h"
#include "tests/support/process.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace tenure::bench {
namespace {

using ::testing::ElementsAre;

// One subscription with all that is stored about it, as after its first
// payment.
constexpr char kOneSubscription[] = R"sql(
INSERT INTO sink (name) VALUES ('bench');
INSERT INTO route (name, kind, environment) VALUES ('stripe', 'stripe', 'live');
INSERT INTO plan (name, revision) VALUES ('professional', 1);
INSERT INTO subject (external_id) VALUES ('user_000000000000_');
INSERT INTO subscription (subject_id, plan_id, environment, route_id, provider_subscription_id, status, starts_at,
                          expires_at, leeway_until, term_no, event_seq, fold_revision)
VALUES (1, 1, 'live', 1, 'sub_000000000000_', 'ACTIVE', '2026-01-01', '2026-02-01', '2026-02-01', 1, 2, 2);
INSERT INTO provider_event (route_id, account, livemode, external_event_id, event_type, body_sha256, occurred_at, status,
                            processed_at, customer_id)
VALUES (1, '', true, 'evt_000000000000_0', 'invoice.paid', sha256(''), '2026-01-01', 'applied', '2026-01-01',
        'cus_000000000000_');
INSERT INTO subscription_fact (subscription_id, layer, order_at, rank, event_id, ordinal, kind, plan_revision, body,
                               provider_event_id)
VALUES (1, 2, '2026-01-01', 40, 'evt_000000000000_0', 0, 'paid', 1, 'in_000000000000_0', 1);
INSERT INTO subscription_fold VALUES (1, 2, 'in_000000000000_0');
INSERT INTO payment (route_id, account, payment_key, subscription_id, term_no, amount_minor, currency, paid_at,
                     period_starts_at)
VALUES (1, '', 'in_000000000000_0', 1, 1, 900, 'USD', '2026-01-01', '2026-01-01');
INSERT INTO payment_alias VALUES (1, '', 'ch_000000000000_0', 'in_000000000000_0'),
                                 (1, '', 'pi_000000000000_0', 'in_000000000000_0');
INSERT INTO subscription_event (subscription_id, seq, event_type, episode, effective_at)
VALUES (1, 1, 'subscription.created', 0, '2026-01-01'), (1, 2, 'subscription.activated', 0, '2026-01-01');
INSERT INTO sink_stream (sink_id, subscription_id, head_seq) VALUES (1, 1, 2);
)sql";

class IngestSqlTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, test::TestDatabase::Create());
    ASSERT_OK_AND_ASSIGN(session_, database_->OpenSession());
    ASSERT_OK(session_->Exec(kOneSubscription).status());
    ASSERT_OK(
        session_->Exec(sql::kCloneSubscription.sql, {"stripe", "9"}).status());
  }

  // What the bench compares: events, unapplied ones, facts, payments, aliases,
  // terms, history, event_seq, heads.
  std::vector<std::string> Rows() {
    const auto rows = session_->Exec(sql::kSelectIngestedRows.sql, {"stripe"});
    EXPECT_OK(rows.status());
    std::vector<std::string> counts;
    if (!rows.ok() || rows->size() != 1) return counts;
    for (const auto& value : rows->front()) {
      counts.push_back(value.value_or("NULL"));
    }
    return counts;
  }

  std::unique_ptr<test::TestDatabase> database_;
  std::unique_ptr<test::Session> session_;
};

TEST_F(IngestSqlTest, CopiesASubscriptionWithAllThatIsStoredAboutIt) {
  EXPECT_THAT(Rows(),
              ElementsAre("10", "0", "10", "10", "20", "10", "20", "20", "20"));
  ASSERT_OK_AND_ASSIGN(
      const std::string strangers,
      session_->Scalar(
          "SELECT count(*) FROM subscription s "
          "JOIN subscription_fold f ON f.subscription_id = s.id "
          "JOIN subscription_fact a ON a.subscription_id = s.id "
          "WHERE 'sub' || substr(convert_from(f.state, 'UTF8'), 3, 14) <> "
          "s.provider_subscription_id OR f.state <> a.body"));
  EXPECT_EQ(strangers, "0");
  // New rows come behind the copies.
  EXPECT_OK(session_->Exec("INSERT INTO subject (external_id) VALUES ('x')")
                .status());
}

TEST_F(IngestSqlTest, TheBaselineWritesWhatOneRenewalWrites) {
  for (const char* script :
       {"ingest_transaction.sql", "ingest_statement.sql"}) {
    ASSERT_OK_AND_ASSIGN(
        const auto pgbench,
        test::Process::Start(
            "pgbench",
            {.args = {"-n",
                      "-M",
                      "prepared",
                      "-c",
                      "2",
                      "-t",
                      "10",
                      "-D",
                      "subscriptions=9",
                      "-D",
                      "route=1",
                      "-D",
                      "body=\\x7b7d",
                      "-D",
                      absl::StrCat("sha256=\\x", std::string(64, '0')),
                      "-D",
                      "fact=\\x00",
                      "-D",
                      "added=\\x00",
                      "-f",
                      absl::StrCat(TENURE_BENCH_SOURCE_DIR "/pgbench/", script),
                      database_->conninfo()}}));
    ASSERT_OK_AND_ASSIGN(const test::ExitStatus status, pgbench->Wait());
    ASSERT_TRUE(status.ok()) << pgbench->Output();
  }

  EXPECT_THAT(Rows(), ElementsAre("50", "0", "50", "50", "100", "50", "60",
                                  "60", "60"));
}

}  // namespace
}  // namespace tenure::bench
