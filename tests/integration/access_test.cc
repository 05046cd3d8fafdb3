// Access from stored instants alone, over a real PostgreSQL. No scheduler runs
// in any of these tests.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/db/pool.h"
#include "services/entitlement/access_store.h"
#include "services/entitlement/check_access.h"
#include "services/entitlement/convert.h"
#include "services/entitlement/quota_balances.h"
#include "tests/integration/rows.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace tenure::test {
namespace {

using ::tenure::domain::AccessReason;
using ::tenure::entitlement::AccessAnswer;
using ::tenure::entitlement::AccessStore;
using ::tenure::entitlement::CheckAccess;

constexpr char kColumns[] = "status, starts_at, expires_at";

// An entitlement process of one environment, as far as it decides.
class Reader {
 public:
  Reader(const TestDatabase& database, std::string environment)
      : pool_(Options(database)),
        store_(pool_, std::move(environment)),
        check_(store_) {}

  absl::StatusOr<AccessAnswer> Check(
      const std::string& subject, std::optional<absl::Time> at = std::nullopt,
      const std::string& feature = "export") {
    return check_.Run({subject, feature, at});
  }

 private:
  static db::PoolOptions Options(const TestDatabase& database) {
    db::PoolOptions options;
    options.size = 1;
    options.connection.conninfo = database.conninfo();
    return options;
  }

  db::Pool pool_;
  AccessStore store_;
  CheckAccess check_;
};

class Access : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    ASSERT_OK_AND_ASSIGN(session_, database_->OpenSession());
    ASSERT_OK(AddCatalog(*session_));
    ASSERT_OK(AddRoutes(*session_));
    live_ = std::make_unique<Reader>(*database_, "live");
  }

  void Exec(const std::string& sql) { ASSERT_OK(session_->Exec(sql)); }

  // SQLSTATE of a statement that is to be refused.
  std::string Refusal(const std::string& sql) {
    return SqlState(session_->Exec(sql).status());
  }

  // Microseconds since 1970 of a column of the row of a subject.
  absl::Time Instant(const std::string& subject, const std::string& column) {
    const absl::StatusOr<std::string> value = session_->Scalar(
        absl::StrCat("SELECT (extract(epoch FROM s.", column,
                     ") * 1000000)::bigint::text FROM subscription s JOIN "
                     "subject u ON u.id = s.subject_id WHERE u.external_id = "
                     "$1"),
        {subject});
    EXPECT_OK(value);
    return absl::FromUnixMicros(std::stoll(value.value_or("0")));
  }

  // The verdict as "yes PAID" or "no ENDED" would read; the error otherwise.
  static std::string Say(const absl::StatusOr<AccessAnswer>& answer) {
    if (!answer.ok()) return answer.status().ToString();
    return absl::StrCat(answer->verdict.has_access ? "yes " : "no ",
                        ReasonText(answer->verdict.reason));
  }

  static std::string ReasonText(AccessReason reason) {
    switch (reason) {
      case AccessReason::kPaid:
        return "paid";
      case AccessReason::kTrial:
        return "trial";
      case AccessReason::kGrace:
        return "grace";
      case AccessReason::kLifetime:
        return "lifetime";
      case AccessReason::kDefaultPlan:
        return "default plan";
      case AccessReason::kNoSubscription:
        return "no subscription";
      case AccessReason::kFeatureNotInPlan:
        return "feature not in plan";
      case AccessReason::kNotStarted:
        return "not started";
      case AccessReason::kEnded:
        return "ended";
      case AccessReason::kPending:
        return "pending";
      case AccessReason::kPaused:
        return "paused";
      case AccessReason::kCanceled:
        return "canceled";
      case AccessReason::kRevoked:
        return "revoked";
    }
    return "?";
  }

  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Reader> live_;
};

constexpr absl::Duration kTick = absl::Microseconds(1);

TEST_F(Access, C039_S0_3_R1_R2_WithoutASchedulerEveryEndIsExact) {
  constexpr int kRows = 300;
  // Ends from ten days ago to five days ahead, each at its own microsecond; one
  // in three with grace, one in three with leeway.
  ASSERT_OK(AddSubscriptions(
      *session_, kRows,
      "status, starts_at, expires_at, grace_period_ends_at, leeway_until",
      "CASE i % 3 WHEN 1 THEN 'PAST_DUE' ELSE 'ACTIVE' END, "
      "tenure_now() - interval '40 days', "
      "tenure_now() + (i - 200) * (interval '72 minutes' + interval '7 "
      "microseconds'), "
      "CASE i % 3 WHEN 1 THEN tenure_now() + (i - 190) * interval '73 minutes' "
      "END, "
      "CASE i % 3 WHEN 2 THEN tenure_now() + (i - 198) * interval '72 minutes' "
      "END"));

  for (int i = 1; i <= kRows; ++i) {
    const std::string subject = absl::StrCat("u", i);
    SCOPED_TRACE(subject);
    const absl::Time end = Instant(subject, "access_until");

    ASSERT_OK_AND_ASSIGN(const AccessAnswer before,
                         live_->Check(subject, end - kTick));
    EXPECT_TRUE(before.verdict.has_access);
    EXPECT_EQ(before.verdict.access_until, end);
    EXPECT_EQ(before.verdict.next_transition_at, end);
    EXPECT_EQ(before.decided_at, end - kTick);
    EXPECT_EQ(Say(live_->Check(subject, end)), "no ended");
    EXPECT_EQ(Say(live_->Check(subject, end + kTick)), "no ended");

    // And at the database's present, long after the end or before it.
    ASSERT_OK_AND_ASSIGN(const AccessAnswer now, live_->Check(subject));
    EXPECT_EQ(now.verdict.has_access, now.decided_at < end);
  }
  // Nobody has touched a row.
  EXPECT_THAT(session_->Scalar("SELECT count(*)::text FROM subscription WHERE "
                               "status = 'EXPIRED' OR version > 1"),
              IsOkAndHolds("0"));
}

TEST_F(Access, C039_S0_3_TheDatabasesClockEndsAccessByItself) {
  ASSERT_OK(AddSubscriptions(
      *session_, 5, kColumns,
      "'ACTIVE', tenure_now() - interval '1 day', tenure_now() + i * interval "
      "'1 hour'"));

  // An entitlement whose clock stands half an hour before and after each end.
  for (int half_hours = 1; half_hours <= 11; half_hours += 2) {
    ASSERT_OK(database_->SetClockOffset(half_hours * absl::Minutes(30)));
    Reader later(*database_, "live");
    for (int i = 1; i <= 5; ++i) {
      const std::string subject = absl::StrCat("u", i);
      EXPECT_EQ(Say(later.Check(subject)),
                half_hours < 2 * i ? "yes paid" : "no ended")
          << subject << " after " << half_hours << " half hours";
    }
  }
}

TEST_F(Access, S0_7_ASweepThatIsLateChangesNoAnswer) {
  // Two rows with the same instants; the sweep has come to one of them.
  ASSERT_OK(AddSubscriptions(
      *session_, 2, kColumns,
      "'ACTIVE', date_trunc('hour', tenure_now()) - interval '1 day', "
      "date_trunc('hour', tenure_now()) - interval '1 hour'"));
  Exec(
      "UPDATE subscription SET status = 'EXPIRED', expired_at = expires_at + "
      "interval '150 seconds' WHERE provider_subscription_id = 'sub_2'");
  const absl::Time end = Instant("u1", "access_until");

  for (const absl::Duration d :
       {-kTick, absl::ZeroDuration(), kTick, absl::Seconds(60),
        absl::Seconds(149), absl::Seconds(150), absl::Minutes(10)}) {
    const std::string answer = Say(live_->Check("u1", end + d));
    EXPECT_EQ(answer, d < absl::ZeroDuration() ? "yes paid" : "no ended");
    EXPECT_EQ(Say(live_->Check("u2", end + d)), answer);
  }
}

TEST_F(Access, S0_7_R1_NobodyCanExpireARowEarly) {
  ASSERT_OK(AddSubscriptions(
      *session_, 1, "status, starts_at, expires_at, grace_period_ends_at",
      "'PAST_DUE', tenure_now() - interval '30 days', tenure_now() - interval "
      "'1 day', tenure_now() + interval '1 hour'"));

  EXPECT_EQ(Refusal("UPDATE subscription SET status = 'EXPIRED', expired_at = "
                    "tenure_now()"),
            "23514");
  EXPECT_EQ(Refusal("UPDATE subscription SET status = 'EXPIRED'"), "23514");

  EXPECT_EQ(Say(live_->Check("u1")), "yes grace");
}

TEST_F(Access, R15_EachEnvironmentSeesItsOwnRowsOnly) {
  const std::string values =
      "'ACTIVE', tenure_now() - interval '1 day', tenure_now() + interval '1 "
      "day'";
  ASSERT_OK(AddSubscriptions(*session_, 1, kColumns, values, "direct-test"));
  Reader test(*database_, "test");

  EXPECT_EQ(Say(test.Check("u1")), "yes paid");
  EXPECT_EQ(Say(live_->Check("u1")), "no no subscription");

  ASSERT_OK(AddSubscriptions(*session_, 2, kColumns, values, "direct"));
  EXPECT_EQ(Say(live_->Check("u2")), "yes paid");
  EXPECT_EQ(Say(test.Check("u2")), "no no subscription");
}

TEST_F(Access, WhoIsUnknownHasNone) {
  ASSERT_OK(AddSubscriptions(
      *session_, 1, kColumns,
      "'ACTIVE', tenure_now() - interval '1 day', tenure_now() + interval '1 "
      "day'"));

  EXPECT_EQ(Say(live_->Check("nobody")), "no no subscription");
  EXPECT_EQ(Say(live_->Check("U1")), "no no subscription");
  EXPECT_EQ(Say(live_->Check("u1' OR true --")), "no no subscription");
  EXPECT_EQ(Say(live_->Check("u1", std::nullopt, "import")),
            "no feature not in plan");
  EXPECT_EQ(Say(live_->Check("u1", std::nullopt, "EXPORT")),
            "no feature not in plan");
}

TEST_F(Access, TheDefaultPlanServesWhoeverNothingElseServes) {
  ASSERT_OK(AddSubscriptions(
      *session_, 2, kColumns,
      "'ACTIVE', tenure_now() - interval '2 days', tenure_now() + (3 - 2 * i) "
      "* interval '1 day'"));
  Exec(
      "WITH p AS (INSERT INTO plan (name, revision)"
      "  VALUES ('free', 1), ('free', 2) RETURNING id, revision)"
      "INSERT INTO plan_feature (plan_id, feature, limit_value)"
      " SELECT id, 'export', revision FROM p;"
      "INSERT INTO plan_feature (plan_id, feature, quantity_value)"
      " SELECT id, 'seats', 4 FROM plan WHERE name = 'pro'");
  // It is only a plan until it is the default.
  EXPECT_EQ(Say(live_->Check("u2")), "no ended");
  Exec("INSERT INTO default_plan (plan_name) VALUES ('free')");

  // u1 has paid for a feature without a value, u2 did once, u3 never.
  EXPECT_EQ(Say(live_->Check("u1")), "yes paid");
  EXPECT_EQ(live_->Check("u1")->verdict.value, domain::FeatureValue{});
  for (const char* subject : {"u2", "u3"}) {
    ASSERT_OK_AND_ASSIGN(const AccessAnswer answer, live_->Check(subject));
    EXPECT_EQ(Say(answer), "yes default plan");
    EXPECT_EQ(answer.verdict.plan, "free");
    EXPECT_EQ(answer.verdict.subscription_id, 0);
    // The latest revision's.
    EXPECT_EQ(answer.verdict.value.limit, 2);
    EXPECT_EQ(answer.verdict.access_until, std::nullopt);
    EXPECT_EQ(answer.verdict.next_transition_at, std::nullopt);
  }
  // From the very end on, in one answer after the other.
  const absl::Time end = Instant("u1", "access_until");
  EXPECT_EQ(Say(live_->Check("u1", end - kTick)), "yes paid");
  EXPECT_EQ(live_->Check("u1", end - kTick)->verdict.next_transition_at, end);
  EXPECT_EQ(Say(live_->Check("u1", end)), "yes default plan");

  // A feature of the subscription alone, with its value.
  EXPECT_EQ(live_->Check("u1", std::nullopt, "seats")->verdict.value.quantity,
            4);
  EXPECT_EQ(Say(live_->Check("u2", std::nullopt, "seats")), "no ended");
  EXPECT_EQ(Say(live_->Check("u3", std::nullopt, "seats")),
            "no no subscription");

  // A default plan that is not in the catalogue is none.
  Exec("UPDATE default_plan SET plan_name = 'gone'");
  EXPECT_EQ(Say(live_->Check("u3")), "no no subscription");
}

TEST_F(Access, TheAnswerCarriesTheValueAndTheDefaultPlan) {
  Exec(
      "INSERT INTO plan (name, revision) VALUES ('free', 1);"
      "INSERT INTO plan_feature (plan_id, feature, limit_value)"
      " SELECT id, 'export', 0 FROM plan WHERE name = 'free';"
      "INSERT INTO default_plan (plan_name) VALUES ('free')");
  ASSERT_OK_AND_ASSIGN(const AccessAnswer answer, live_->Check("u1"));
  entitlement::v1::CheckResponse response;
  entitlement::ToApi(answer, &response);
  EXPECT_TRUE(response.has_access());
  EXPECT_EQ(response.reason(), entitlement::v1::ACCESS_REASON_DEFAULT_PLAN);
  EXPECT_EQ(response.grantor().plan(), "free");
  EXPECT_EQ(response.grantor().subscription_id(), 0);
  EXPECT_FALSE(response.has_access_until());
  // 0 is a value.
  EXPECT_TRUE(response.has_limit());
  EXPECT_EQ(response.limit(), 0);
  EXPECT_FALSE(response.has_quantity());
}

TEST_F(Access, EveryStateSaysWhatItMeans) {
  ASSERT_OK(AddSubscriptions(
      *session_, 1, kColumns,
      "'ACTIVE', tenure_now() - interval '1 day', tenure_now() + interval '1 "
      "day'"));
  struct Case {
    const char* change;
    const char* answer;
  };
  for (const Case& c : std::vector<Case>{
           {"status = 'REVOKED'", "no revoked"},
           {"status = 'CANCELED'", "no canceled"},
           {"status = 'PAUSED'", "no paused"},
           {"status = 'PENDING'", "no pending"},
           {"status = 'TRIALING'", "yes trial"},
           {"status = 'PAST_DUE'", "yes paid"},
           {"status = 'ACTIVE'", "yes paid"},
           {"starts_at = tenure_now() + interval '1 hour'", "no not started"},
           {"starts_at = tenure_now() - interval '9 days'", "yes paid"},
           {"pause_at = tenure_now() - interval '1 hour'", "no paused"},
           {"pause_at = NULL", "yes paid"},
           {"expires_at = tenure_now() - interval '1 day'", "no ended"},
           {"leeway_until = tenure_now() + interval '1 hour'", "yes grace"},
           {"lifetime = true, expires_at = NULL", "yes lifetime"},
           {"status = 'REVOKED'", "no revoked"},
       }) {
    Exec(absl::StrCat("UPDATE subscription SET ", c.change));
    EXPECT_EQ(Say(live_->Check("u1")), c.answer) << c.change;
  }
}

TEST_F(Access, AnotherSubscriptionStillGrantsWhenOneIsRevoked) {
  const std::string values =
      "'ACTIVE', tenure_now() - interval '1 day', tenure_now() + interval '1 "
      "day'";
  ASSERT_OK(AddSubscriptions(*session_, 1, kColumns, values));
  Exec(
      "INSERT INTO subscription (subject_id, plan_id, environment, route_id, "
      "provider_subscription_id, fold_revision, status, starts_at, expires_at)"
      " SELECT subject_id, plan_id, environment, route_id, 'second', 1, "
      "'REVOKED', starts_at, expires_at + interval '1 year' FROM "
      "subscription");

  EXPECT_EQ(Say(live_->Check("u1")), "yes paid");
}

TEST_F(Access, AnOperatorsUpdateIsSeenAtOnce) {
  ASSERT_OK(AddSubscriptions(
      *session_, 1, kColumns,
      "'ACTIVE', tenure_now() - interval '9 days', tenure_now() - interval '1 "
      "day'"));
  ASSERT_EQ(Say(live_->Check("u1")), "no ended");

  Exec("UPDATE subscription SET expires_at = tenure_now() + interval '1 hour'");
  EXPECT_EQ(Say(live_->Check("u1")), "yes paid");
  EXPECT_EQ(live_->Check("u1")->verdict.access_until,
            Instant("u1", "expires_at"));

  Exec(
      "UPDATE subscription SET expires_at = tenure_now() - interval '1 "
      "second'");
  EXPECT_EQ(Say(live_->Check("u1")), "no ended");
}

// Regression: an error, because no bigint holds the sum.
TEST_F(Access, QuotaBeyondTheLargestNumberIsTheLargestNumber) {
  ASSERT_OK(AddSubscriptions(
      *session_, 1, kColumns,
      "'ACTIVE', tenure_now() - interval '1 day', tenure_now() + interval '1 "
      "day'"));
  Exec(
      "WITH q AS (INSERT INTO quota_schedule (subscription_id, meter, term_no, "
      "term_key, period_no, amount, scheduled_at, status, settled_at) SELECT "
      "s.id, 'tokens', 0, 'in_1', i, 9223372036854775807, tenure_now(), "
      "'RELEASED', tenure_now() FROM subscription s, generate_series(1, 2) i "
      "RETURNING *) INSERT INTO quota_grant (subscription_id, meter, "
      "schedule_id, amount, remaining) SELECT subscription_id, meter, id, "
      "amount, amount FROM q");
  db::PoolOptions options;
  options.size = 1;
  options.connection.conninfo = database_->conninfo();
  db::Pool pool(options);
  entitlement::QuotaBalances balances(pool, "live");

  ASSERT_OK_AND_ASSIGN(const entitlement::QuotaAnswer answer,
                       balances.Read("u1", "tokens"));

  ASSERT_EQ(answer.balances.size(), 1u);
  EXPECT_EQ(answer.balances[0].remaining, 9223372036854775807);
  EXPECT_EQ(answer.balances[0].released, 9223372036854775807);
}

TEST_F(Access, C069_R2_D5_AMissingEndIsRefusedWithoutTheLifetimeFlag) {
  ASSERT_OK(AddSubscriptions(
      *session_, 1, kColumns,
      "'ACTIVE', tenure_now() - interval '1 day', tenure_now() + interval '1 "
      "day'"));

  EXPECT_EQ(Refusal("UPDATE subscription SET expires_at = NULL"), "23514");
  EXPECT_EQ(Refusal("UPDATE subscription SET lifetime = true"), "23514");
  EXPECT_EQ(Refusal("UPDATE subscription SET expires_at = NULL, "
                    "grace_period_ends_at = tenure_now() + interval '1 day'"),
            "23514");

  // Where an end may be missing, the state refuses.
  Exec("UPDATE subscription SET status = 'CANCELED', expires_at = NULL");
  EXPECT_EQ(Say(live_->Check("u1")), "no canceled");
}

TEST_F(Access, C070_R13_NoInfiniteInstantIsStored) {
  ASSERT_OK(AddSubscriptions(
      *session_, 1, kColumns,
      "'ACTIVE', tenure_now() - interval '1 day', tenure_now() + interval '1 "
      "day'"));

  for (const char* column :
       {"anchor_at", "starts_at", "expires_at", "grace_period_ends_at",
        "leeway_until", "next_plan_at", "pause_at", "cancel_at",
        "next_billing_at", "expired_at"}) {
    for (const char* value : {"infinity", "-infinity"}) {
      EXPECT_EQ(Refusal(absl::StrCat("UPDATE subscription SET ", column, " = '",
                                     value, "'")),
                "23514")
          << column << " " << value;
    }
  }
  // The far end of what a Timestamp holds is an instant like any other.
  Exec("UPDATE subscription SET expires_at = '9999-12-31T23:59:59.999999Z'");
  const absl::Time end = Instant("u1", "access_until");
  EXPECT_EQ(Say(live_->Check("u1", end - kTick)), "yes paid");
  EXPECT_EQ(Say(live_->Check("u1", end)), "no ended");
}

}  // namespace
}  // namespace tenure::test
