// Prepaid orders and their monthly quota, from the payment to the end, over a
// real PostgreSQL: the chapter S4. Facts stand in for the notice of a provider
// whose adapter is not here; everything behind them is the product.

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"
#include "common/db/pool.h"
#include "common/store/catalog_store.h"
#include "common/store/fact_store.h"
#include "common/store/quota_store.h"
#include "services/entitlement/quota_balances.h"
#include "services/scheduler/expire_sweep.h"
#include "services/scheduler/expiry_store.h"
#include "services/scheduler/subscription_maintenance.h"
#include "tests/support/barrier.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace tenure::test {
namespace {

using ::tenure::scheduler::ExpireSweep;
using ::tenure::scheduler::ExpiryStore;
using ::tenure::scheduler::JobOutcome;
using ::tenure::scheduler::SubscriptionMaintenance;
using ::testing::ElementsAre;

namespace pb = ::tenure::subscription::v1;

absl::TimeZone Shanghai() { return *domain::LoadZone("Asia/Shanghai"); }

// A Shanghai wall clock time.
absl::Time Local(int year, int month, int day, int hour = 0, int minute = 0) {
  return absl::FromCivil(absl::CivilSecond(year, month, day, hour, minute),
                         Shanghai());
}

constexpr int64_t kAmount = 100;

class Orders : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    Travel(Local(2027, 1, 31, 10));
    ASSERT_OK(store::ApplyCatalog(*pool_, Catalog()));
    ASSERT_OK(pool_->RunTransaction([&](db::Transaction& tx) -> absl::Status {
      ASSIGN_OR_RETURN(route_,
                       store::RegisterRoute(tx, "orders", "test", "live"));
      return absl::OkStatus();
    }));
  }

  static catalog::v1::Catalog Catalog() {
    catalog::v1::Catalog catalog;
    const auto add = [&](const std::string& name, catalog::v1::TermUnit unit,
                         catalog::v1::QuotaSchedule schedule) {
      auto& plan = *catalog.add_plans();
      plan.set_name(name);
      plan.add_features()->set_name("export");
      plan.mutable_term()->set_unit(unit);
      plan.mutable_term()->set_count(1);
      plan.set_billing_time_zone("Asia/Shanghai");
      auto& quota = *plan.add_quotas();
      quota.set_meter("characters");
      quota.set_amount(kAmount);
      quota.set_schedule(schedule);
      auto& product = *plan.add_provider_products();
      product.set_route("orders");
      product.set_product_id("sku_" + name);
    };
    add("annual", catalog::v1::TERM_UNIT_YEAR,
        catalog::v1::QUOTA_SCHEDULE_ANNIVERSARY);
    add("annual-first", catalog::v1::TERM_UNIT_YEAR,
        catalog::v1::QUOTA_SCHEDULE_FIRST_OF_MONTH);
    add("monthly", catalog::v1::TERM_UNIT_MONTH,
        catalog::v1::QUOTA_SCHEDULE_ANNIVERSARY);
    auto& forever = *catalog.add_plans();
    forever.set_name("forever");
    forever.set_lifetime(true);
    forever.add_features()->set_name("export");
    auto& product = *forever.add_provider_products();
    product.set_route("orders");
    product.set_product_id("sku_forever");
    return catalog;
  }

  // The database's clock shows `now` from here on.
  void Travel(absl::Time now) {
    now_ = now;
    ASSERT_OK(database_->SetClockOffset(now - SystemClock::Instance().Now()));
    pool_ = MakePool();
    ASSERT_OK_AND_ASSIGN(session_, database_->OpenSession());
  }

  std::unique_ptr<db::Pool> MakePool() const {
    db::PoolOptions options;
    options.connection.conninfo = database_->conninfo();
    options.connection.lock_timeout = absl::Seconds(30);
    options.connection.statement_timeout = absl::Seconds(60);
    return std::make_unique<db::Pool>(options);
  }

  store::FactBatch Batch(const std::string& event_id,
                         const std::string& subject,
                         const std::string& plan) const {
    store::FactBatch batch;
    batch.route = route_;
    batch.subject = subject;
    batch.product_id = plan.empty() ? "" : "sku_" + plan;
    batch.event_id = event_id;
    return batch;
  }

  pb::Fact MoneyFact(absl::Time at) const {
    pb::Fact fact;
    fact.set_layer(pb::FACT_LAYER_MONEY);
    *fact.mutable_order_at() = ToProto(at);
    return fact;
  }

  absl::StatusOr<store::AppliedFacts> Send(db::Pool& pool,
                                           const store::FactBatch& batch) {
    store::AppliedFacts applied;
    RETURN_IF_ERROR(
        pool.RunTransaction([&](db::Transaction& tx) -> absl::Status {
          ASSIGN_OR_RETURN(const store::Destination destination,
                           store::Resolve(tx, batch));
          if (!destination.parked.empty()) {
            return absl::NotFoundError(destination.parked);
          }
          ASSIGN_OR_RETURN(applied, store::Apply(tx, batch, destination));
          return absl::OkStatus();
        }));
    return applied;
  }

  // A paid order, told by an event of its own.
  absl::StatusOr<store::AppliedFacts> Pay(
      const std::string& subject, const std::string& plan,
      const std::string& payment_key,
      std::optional<absl::Time> paid_at = std::nullopt,
      db::Pool* pool = nullptr, const std::string& event_prefix = "evt_") {
    store::FactBatch batch = Batch(event_prefix + payment_key, subject, plan);
    pb::Fact fact = MoneyFact(paid_at.value_or(now_));
    auto& paid = *fact.mutable_paid();
    paid.set_payment_key(payment_key);
    paid.set_amount_minor(12000);
    paid.set_currency("CNY");
    *paid.mutable_paid_at() = ToProto(paid_at.value_or(now_));
    paid.add_aliases("order_" + payment_key);
    batch.facts.push_back(fact);
    return Send(pool ? *pool : *pool_, batch);
  }

  absl::StatusOr<store::AppliedFacts> Refund(const std::string& payment,
                                             const std::string& refund_key,
                                             int64_t amount) {
    store::FactBatch batch = Batch("evt_" + refund_key, "", "");
    pb::Fact fact = MoneyFact(now_);
    auto& refunded = *fact.mutable_refunded();
    refunded.set_payment_key(payment);
    refunded.set_refund_key(refund_key);
    refunded.set_amount_minor(amount);
    batch.facts.push_back(fact);
    return Send(*pool_, batch);
  }

  JobOutcome Maintain(db::Pool* pool = nullptr) {
    db::Pool& on = pool ? *pool : *pool_;
    ExpiryStore store(on);
    ExpireSweep sweep(store, 500);
    SubscriptionMaintenance maintenance(on, sweep, 500);
    JobOutcome outcome;
    EXPECT_OK(maintenance.Run([] { return false; }, &outcome));
    return outcome;
  }

  std::string Scalar(const std::string& sql) {
    absl::StatusOr<std::string> value = session_->Scalar(sql);
    return value.ok() ? *value : value.status().ToString();
  }

  std::string Subscriptions() {
    return Scalar(
        "SELECT coalesce(string_agg(format('%s %s %s to %s', s.id, s.status,"
        " to_char(s.starts_at AT TIME ZONE 'Asia/Shanghai', 'YYYY-MM-DD HH24'),"
        " to_char(s.expires_at AT TIME ZONE 'Asia/Shanghai',"
        " 'YYYY-MM-DD HH24')), E'\\n' ORDER BY s.id), '') FROM subscription s");
  }

  // "PENDING 11, RELEASED 1".
  std::string Schedule(const std::string& where = "true") {
    return Scalar(absl::StrCat(
        "SELECT coalesce(string_agg(status || ' ' || n, ', ' ORDER BY status),"
        " '') FROM (SELECT status, count(*) n FROM quota_schedule WHERE ",
        where, " GROUP BY status) x"));
  }

  std::string PendingDays(const std::string& where = "true") {
    return Scalar(absl::StrCat(
        "SELECT coalesce(string_agg(to_char(scheduled_at AT TIME ZONE"
        " 'Asia/Shanghai', 'YYYY-MM-DD HH24:MI:SS'), ', ' ORDER BY"
        " scheduled_at), '') FROM quota_schedule WHERE status = 'PENDING'"
        " AND ",
        where));
  }

  std::string Balance() {
    return Scalar("SELECT coalesce(sum(remaining), 0) FROM quota_grant");
  }
  std::string LedgerRows() {
    return Scalar(
        "SELECT count(*) FROM quota_transaction"
        " WHERE biz_type = 'monthly_release'");
  }

  absl::Time now_;
  store::Route route_;
  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<db::Pool> pool_;
};

TEST_F(Orders, S4_4_S4_6_S4_25_C043_TheFirstMonthAtOnceTheOthersPlanned) {
  EXPECT_OK(Pay("u1", "annual", "p1"));
  EXPECT_EQ(Subscriptions(), "1 ACTIVE 2027-01-31 10 to 2028-01-31 10");
  EXPECT_EQ(Schedule(), "PENDING 11, RELEASED 1");
  EXPECT_EQ(PendingDays(),
            "2027-02-28 00:00:00, 2027-03-31 00:00:00, 2027-04-30 00:00:00, "
            "2027-05-31 00:00:00, 2027-06-30 00:00:00, 2027-07-31 00:00:00, "
            "2027-08-31 00:00:00, 2027-09-30 00:00:00, 2027-10-31 00:00:00, "
            "2027-11-30 00:00:00, 2027-12-31 00:00:00");
  EXPECT_EQ(Balance(), "100");
  EXPECT_EQ(LedgerRows(), "1");
  EXPECT_EQ(Scalar("SELECT string_agg(event_type, ', ' ORDER BY seq)"
                   " FROM subscription_event"),
            "subscription.created, subscription.activated, "
            "subscription.quota_released");
}

TEST_F(Orders, S4_26_D4_OrOnTheFirstOfTheMonth) {
  EXPECT_OK(Pay("u1", "annual-first", "p1"));
  EXPECT_EQ(Schedule(), "PENDING 11, RELEASED 1");
  EXPECT_EQ(PendingDays("scheduled_at <= '2027-05-01+08'"),
            "2027-02-01 00:00:00, 2027-03-01 00:00:00, 2027-04-01 00:00:00, "
            "2027-05-01 00:00:00");
}

TEST_F(Orders, C001_OnePaymentUnderTwoEventsIsOneTerm) {
  EXPECT_OK(Pay("u1", "annual", "p1"));
  EXPECT_OK(Pay("u1", "annual", "p1"));
  EXPECT_OK(
      Pay("u1", "annual", "p1", now_ + absl::Hours(1), nullptr, "again_"));
  EXPECT_EQ(Subscriptions(), "1 ACTIVE 2027-01-31 10 to 2028-01-31 10");
  EXPECT_EQ(Scalar("SELECT count(*) FROM payment"), "1");
  EXPECT_EQ(LedgerRows(), "1");
  EXPECT_EQ(Balance(), "100");
}

TEST_F(Orders, S4_3_StacksOntoAStillValidOneAndMovesNothing) {
  EXPECT_OK(Pay("u1", "annual", "p1"));
  const std::string before = PendingDays();
  Travel(Local(2027, 6, 15, 12));
  EXPECT_OK(Pay("u1", "annual", "p2"));
  EXPECT_EQ(Subscriptions(), "1 ACTIVE 2027-01-31 10 to 2029-01-31 10");
  EXPECT_EQ(PendingDays("term_no = 1 AND scheduled_at > '2027-06-15+08'"),
            before.substr(before.find("2027-06-30")));
  // A stacked term's period 0 is a schedule at 00:00 of its first day (K5).
  EXPECT_EQ(PendingDays("term_no = 2 AND period_no < 3"),
            "2028-01-31 00:00:00, 2028-02-29 00:00:00, 2028-03-31 00:00:00");
  EXPECT_EQ(Schedule("term_no = 2"), "PENDING 12");
  // What was due between the two was released with the payment, in order.
  EXPECT_EQ(Schedule("term_no = 1"), "PENDING 7, RELEASED 5");
}

TEST_F(Orders, C046_S4_5_TheAnchorDaySurvivesShortMonths) {
  EXPECT_OK(Pay("u1", "monthly", "p1"));
  for (int i = 2; i <= 4; ++i) {
    EXPECT_OK(Pay("u1", "monthly", absl::StrCat("p", i)));
  }
  EXPECT_EQ(Scalar("SELECT string_agg(to_char(period_ends_at AT TIME ZONE"
                   " 'Asia/Shanghai', 'MM-DD HH24'), ', ' ORDER BY term_no)"
                   " FROM payment"),
            "02-28 10, 03-31 10, 04-30 10, 05-31 10");
}

TEST_F(Orders, S4_2_S4_17_ExpiresOnTheSpotAndBeginsANewRow) {
  EXPECT_OK(Pay("u1", "monthly", "p1"));
  Travel(Local(2027, 2, 28, 10, 1));  // nobody has swept
  EXPECT_EQ(Scalar("SELECT status FROM subscription"), "ACTIVE");
  EXPECT_OK(Pay("u1", "monthly", "p2"));
  EXPECT_EQ(Subscriptions(),
            "1 EXPIRED 2027-01-31 10 to 2027-02-28 10\n"
            "2 ACTIVE 2027-02-28 10 to 2027-03-28 10");
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription_event"
                   " WHERE event_type = 'subscription.expired'"),
            "1");
  EXPECT_EQ(Schedule("subscription_id = 2"), "RELEASED 1");
}

TEST_F(Orders, S4_3_APaymentMadeBeforeTheEndButHeardAfterItLosesNoTime) {
  EXPECT_OK(Pay("u1", "monthly", "p1"));
  Travel(Local(2027, 3, 1, 9));
  // Paid an hour before the end.
  EXPECT_OK(Pay("u1", "monthly", "p2", Local(2027, 2, 28, 9)));
  EXPECT_EQ(Scalar("SELECT string_agg(to_char(period_starts_at AT TIME ZONE"
                   " 'Asia/Shanghai', 'MM-DD HH24'), ', ' ORDER BY paid_at)"
                   " FROM payment"),
            "01-31 10, 02-28 10");
}

TEST_F(Orders, S4_2_TwoFirstOrdersAtOnceMakeOneRow) {
  for (int round = 0; round < 10; ++round) {
    const std::string subject = absl::StrCat("both", round);
    Barrier barrier(2);
    std::vector<std::thread> threads;
    std::vector<absl::Status> statuses(2);
    std::vector<std::unique_ptr<db::Pool>> pools;
    for (int i = 0; i < 2; ++i) pools.push_back(MakePool());
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        if (!barrier.ArriveAndWait()) return;
        statuses[i] = Pay(subject, "monthly", absl::StrCat(subject, "_", i),
                          std::nullopt, pools[i].get())
                          .status();
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_OK(statuses[0]);
    EXPECT_OK(statuses[1]);
  }
  // Two months bought, two months of access.
  EXPECT_EQ(Scalar("SELECT count(*) || ' ' || count(DISTINCT subject_id) ||"
                   " ' ' || string_agg(DISTINCT to_char(expires_at AT TIME ZONE"
                   " 'Asia/Shanghai', 'MM-DD HH24'), ', ') FROM subscription"),
            "10 10 03-31 10");
}

TEST_F(Orders, S4_7_S4_8_S4_28_ExpiryCancelsWhatWasNotReleased) {
  EXPECT_OK(Pay("u1", "annual", "p1"));
  Travel(Local(2028, 1, 31, 10, 1));
  Maintain();
  EXPECT_EQ(Scalar("SELECT status FROM subscription"), "EXPIRED");
  // Nobody worked for a year: what fell due meanwhile is lost with the end
  // (D13), not paid after it.
  EXPECT_EQ(Schedule(), "CANCELLED 11, RELEASED 1");
  EXPECT_EQ(Balance(), "100");
}

TEST_F(Orders, C075_D13_WhatWasMissedWhileStillValidIsReleasedInOrder) {
  EXPECT_OK(Pay("u1", "annual", "p1"));
  Travel(Local(2027, 5, 5));
  const JobOutcome outcome = Maintain();
  EXPECT_EQ(outcome.succeeded_count, 3);
  EXPECT_EQ(Schedule(), "PENDING 8, RELEASED 4");
  EXPECT_EQ(Scalar("SELECT string_agg(to_char(due_at AT TIME ZONE"
                   " 'Asia/Shanghai', 'MM-DD'), ', ' ORDER BY id)"
                   " FROM quota_transaction WHERE biz_id NOT LIKE '%/0'"),
            "02-28, 03-31, 04-30");
  EXPECT_EQ(Scalar("SELECT string_agg(to_char(effective_at AT TIME ZONE"
                   " 'Asia/Shanghai', 'MM-DD'), ', ' ORDER BY seq)"
                   " FROM subscription_event"
                   " WHERE event_type = 'subscription.quota_released'"),
            "01-31, 02-28, 03-31, 04-30");
  EXPECT_EQ(Maintain().found_count, 0);
  EXPECT_EQ(Balance(), "400");
}

TEST_F(Orders, S4_10_C044_NeverBeforeTheInstantAndOnceFromItOn) {
  EXPECT_OK(Pay("u1", "annual", "p1"));
  Travel(Local(2027, 2, 28) - absl::Minutes(2));
  EXPECT_EQ(Maintain().succeeded_count, 0);
  Travel(Local(2027, 2, 28));
  EXPECT_EQ(Maintain().succeeded_count, 1);
  Travel(Local(2027, 2, 28) + absl::Seconds(1));
  EXPECT_EQ(Maintain().succeeded_count, 0);
  EXPECT_EQ(LedgerRows(), "2");
}

TEST_F(Orders, S4_11_S4_18_S4_27_DoubledWorkersReleaseOnce) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_OK(Pay(absl::StrCat("u", i), "annual", absl::StrCat("p", i)));
  }
  Travel(Local(2027, 3, 31, 1));
  Barrier barrier(3);
  std::vector<std::unique_ptr<db::Pool>> pools;
  for (int i = 0; i < 3; ++i) pools.push_back(MakePool());
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      if (barrier.ArriveAndWait()) Maintain(pools[i].get());
    });
  }
  for (std::thread& thread : threads) thread.join();
  Maintain();  // what one held while another passed
  EXPECT_EQ(Schedule(), "PENDING 180, RELEASED 60");
  EXPECT_EQ(LedgerRows(), "60");
  EXPECT_EQ(Balance(), "6000");
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription s WHERE event_seq <>"
                   " (SELECT max(seq) FROM subscription_event e"
                   "   WHERE e.subscription_id = s.id)"),
            "0");
}

TEST_F(Orders, C057_AFullRefundTakesTheTermAndMovesTheLaterOnesLeft) {
  EXPECT_OK(Pay("u1", "annual", "p1"));
  EXPECT_OK(Pay("u1", "annual", "p2"));
  Travel(Local(2027, 4, 10, 10));
  EXPECT_OK(Refund("order_p1", "r1", 2000));  // by another name of it
  EXPECT_EQ(Subscriptions(), "1 ACTIVE 2027-01-31 10 to 2029-01-31 10");
  EXPECT_OK(Refund("p1", "r2", 10000));
  // The first term ends now; the second, a year of 366 days, begins now.
  EXPECT_EQ(Subscriptions(), "1 ACTIVE 2027-01-31 10 to 2028-04-10 10");
  EXPECT_EQ(
      Scalar("SELECT string_agg(payment_key || ' ' || refunded_minor, ', '"
             " ORDER BY term_no) FROM payment"),
      "p1 12000, p2 0");
  EXPECT_EQ(PendingDays("term_no = 1"), "");
  EXPECT_EQ(PendingDays("term_no = 2 AND period_no < 3"),
            "2027-05-10 00:00:00, 2027-06-10 00:00:00");
  EXPECT_EQ(Scalar("SELECT count(*) FROM quota_transaction"), "4");

  EXPECT_OK(Refund("p2", "r3", 12000));
  EXPECT_EQ(Scalar("SELECT status FROM subscription"), "REVOKED");
  EXPECT_EQ(PendingDays(), "");
}

TEST_F(Orders, C058_ALifetimeIsRefundedAndBoughtAgain) {
  EXPECT_OK(Pay("u1", "forever", "p1"));
  EXPECT_EQ(Scalar("SELECT status || lifetime FROM subscription"),
            "ACTIVEtrue");
  Travel(Local(2027, 4, 10, 10));
  EXPECT_OK(Refund("p1", "r1", 12000));
  EXPECT_EQ(Scalar("SELECT status || lifetime FROM subscription"),
            "REVOKEDfalse");
  EXPECT_OK(Pay("u1", "forever", "p2"));
  EXPECT_EQ(Scalar("SELECT string_agg(status || lifetime, ', ' ORDER BY id)"
                   " FROM subscription"),
            "REVOKEDfalse, ACTIVEtrue");
}

TEST_F(Orders, ARefundOfAPaymentNobodyKnowsIsParked) {
  EXPECT_THAT(Refund("p9", "r1", 100),
              StatusIs(absl::StatusCode::kNotFound, "unknown_payment"));
}

TEST_F(Orders, S4_1_TheOrderKnowsSubjectPlanAndTerm) {
  ASSERT_OK(session_->Exec(
      "INSERT INTO subject (external_id) VALUES ('u7');"
      "INSERT INTO payment_order (route_id, order_id, subject_id, plan_name,"
      " term_unit, term_count, amount_minor, currency)"
      " SELECT r.id, 'ord_1', u.id, 'annual', 'month', 3, 4000, 'CNY'"
      " FROM route r, subject u WHERE r.name = 'orders' AND"
      " u.external_id = 'u7'"));
  store::FactBatch batch = Batch("evt_1", "", "");
  batch.order_id = "ord_1";
  pb::Fact fact = MoneyFact(now_);
  fact.mutable_paid()->set_payment_key("tx_1");
  fact.mutable_paid()->set_amount_minor(4000);
  fact.mutable_paid()->set_currency("CNY");
  batch.facts.push_back(fact);
  // Another sum or currency than was agreed on grants nothing.
  for (const auto& [amount, currency] :
       std::vector<std::pair<int64_t, std::string>>{
           {3999, "CNY"}, {4001, "CNY"}, {4000, "JPY"}}) {
    store::FactBatch wrong = batch;
    wrong.facts[0].mutable_paid()->set_amount_minor(amount);
    wrong.facts[0].mutable_paid()->set_currency(currency);
    EXPECT_THAT(Send(*pool_, wrong),
                StatusIs(absl::StatusCode::kNotFound, "order_mismatch"));
  }
  EXPECT_OK(Send(*pool_, batch));
  EXPECT_EQ(Subscriptions(), "1 ACTIVE 2027-01-31 10 to 2027-04-30 10");
  EXPECT_EQ(Schedule(), "PENDING 2, RELEASED 1");
  EXPECT_EQ(Scalar("SELECT status || payment_key FROM payment_order"),
            "PAIDtx_1");
  batch.event_id = "evt_2";
  batch.order_id = "ord_2";
  batch.facts[0].mutable_paid()->set_payment_key("tx_2");
  EXPECT_THAT(Send(*pool_, batch),
              StatusIs(absl::StatusCode::kNotFound, "unknown_order"));
}

TEST_F(Orders, S4_15_C074_TheDatabaseRefusesASecondLedgerRowAndNulls) {
  EXPECT_OK(Pay("u1", "annual", "p1"));
  const std::string again =
      "INSERT INTO quota_transaction (subject_id, subscription_id, meter,"
      " biz_type, biz_id, delta, due_at) SELECT subject_id, subscription_id,"
      " meter, biz_type, biz_id, delta, due_at FROM quota_transaction";
  EXPECT_EQ(SqlState(session_->Exec(again).status()), "23505");
  for (const std::string column :
       {"quota_transaction.biz_id", "quota_transaction.subject_id",
        "quota_schedule.term_key", "quota_schedule.period_no",
        "quota_schedule.meter", "quota_schedule.subscription_id"}) {
    const size_t dot = column.find('.');
    EXPECT_EQ(Scalar(absl::StrCat(
                  "SELECT attnotnull FROM pg_attribute WHERE attrelid = '",
                  column.substr(0, dot), "'::regclass AND attname = '",
                  column.substr(dot + 1), "'")),
              "t")
        << column;
  }
}

TEST_F(Orders, S4_16_AScheduleMovesOnlyForward) {
  EXPECT_OK(Pay("u1", "annual", "p1"));
  for (const std::string status : {"PENDING", "CANCELLED"}) {
    EXPECT_EQ(SqlState(session_
                           ->Exec("UPDATE quota_schedule SET status = '" +
                                  status + "' WHERE status = 'RELEASED'")
                           .status()),
              "23514");
  }
}

TEST_F(Orders, C063_CancelledPeriodsComeBackWithoutDoubling) {
  ASSERT_OK_AND_ASSIGN(const store::AppliedFacts paid,
                       Pay("u1", "annual", "p1"));
  const auto internal = [&](pb::Fact fact, const std::string& id) {
    EXPECT_OK(pool_->RunTransaction([&](db::Transaction& tx) -> absl::Status {
      ASSIGN_OR_RETURN(
          const store::LockedSubscription locked,
          store::LockSubscription(tx, paid.subscription_id, "live"));
      return store::ApplyInternal(tx, locked, {fact}, {id, "ops", "test"})
          .status();
    }));
  };
  pb::Fact cancel;
  *cancel.mutable_cancel_scheduled()->mutable_cancel_at() =
      ToProto(Local(2027, 6, 15));
  pb::Fact revert;
  revert.mutable_cancel_reverted();
  const std::string before = PendingDays();
  for (int round = 0; round < 3; ++round) {
    internal(cancel, absl::StrCat("c", round));
    EXPECT_EQ(PendingDays(),
              "2027-02-28 00:00:00, 2027-03-31 00:00:00, 2027-04-30 00:00:00, "
              "2027-05-31 00:00:00");
    internal(revert, absl::StrCat("r", round));
    EXPECT_EQ(PendingDays(), before);
  }
  // The same with a pause that outlasts a release.
  pb::Fact pause;
  pause.mutable_paused();
  pb::Fact resume;
  resume.mutable_resumed();
  internal(pause, "p");
  EXPECT_EQ(Scalar("SELECT status FROM subscription"), "PAUSED");
  EXPECT_EQ(PendingDays(), "");
  Travel(Local(2027, 3, 1));
  EXPECT_EQ(Maintain().succeeded_count, 0);
  internal(resume, "q");
  EXPECT_EQ(Schedule("period_no < 3"), "CANCELLED 2, PENDING 1, RELEASED 2");
  EXPECT_EQ(LedgerRows(), "2");
}

TEST_F(Orders, S4_9_S4_29_OneJobExpiresAndThenReleases) {
  EXPECT_OK(Pay("u1", "monthly", "p1"));
  EXPECT_OK(Pay("u2", "annual", "p2"));
  ASSERT_OK(session_->Exec(R"sql(
CREATE TABLE step (n bigserial, what text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO step (what) VALUES (tg_table_name || ' ' || new.status);
  RETURN new;
END $$;
CREATE TRIGGER note AFTER UPDATE ON subscription FOR EACH ROW
  WHEN (old.status <> new.status) EXECUTE FUNCTION note();
CREATE TRIGGER note AFTER UPDATE ON quota_schedule FOR EACH ROW
  WHEN (old.status <> new.status) EXECUTE FUNCTION note())sql"));
  Travel(Local(2027, 2, 28, 10));
  Maintain();
  EXPECT_EQ(Scalar("SELECT string_agg(what, ', ' ORDER BY n) FROM step"),
            "subscription EXPIRED, quota_schedule RELEASED");
}

TEST_F(Orders, S4_24_S4_29_D16_DueReleasesAreFoundByAnIndexOfAMigration) {
  EXPECT_EQ(Scalar("SELECT string_agg(indexdef, '; ') FROM pg_indexes WHERE"
                   " indexname IN ('quota_schedule_due')"),
            "CREATE INDEX quota_schedule_due ON public.quota_schedule USING"
            " btree (scheduled_at, id) WHERE (status = 'PENDING'::text)");
  ASSERT_OK(session_->Exec(
      "INSERT INTO subject (external_id) VALUES ('many');"
      "INSERT INTO subscription (subject_id, plan_id, environment, route_id,"
      " status, starts_at, expires_at, fold_revision) SELECT u.id, p.id,"
      " 'live', r.id, 'ACTIVE', tenure_now(), tenure_now() + interval '1 year',"
      " 2 FROM subject u, plan p, route r, generate_series(1, 200) WHERE p.name"
      " = 'annual' AND r.name = 'orders';"
      "INSERT INTO quota_schedule (subscription_id, meter, term_key, term_no,"
      " period_no, amount, scheduled_at) SELECT id, 'm', 't', 1, k, 1,"
      " tenure_now() + k * interval '1 day' FROM subscription,"
      " generate_series(0, 49) k;"
      "ANALYZE"));
  ASSERT_OK_AND_ASSIGN(
      const SqlRows plan,
      session_->Exec("EXPLAIN SELECT id FROM quota_schedule WHERE status ="
                     " 'PENDING' AND scheduled_at <= tenure_now() ORDER BY"
                     " scheduled_at, id LIMIT 10"));
  std::string text;
  for (const SqlRow& row : plan) absl::StrAppend(&text, *row[0], "\n");
  EXPECT_THAT(text, ::testing::HasSubstr("quota_schedule_due"));
}

// "characters 100 of 100, next 100 at 02-28".
std::string Show(const entitlement::QuotaAnswer& answer) {
  std::string text;
  for (const entitlement::QuotaBalance& balance : answer.balances) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", balance.meter, " ",
                    balance.remaining, " of ", balance.released);
    if (balance.next_release_at) {
      absl::StrAppend(
          &text, ", next ", balance.next_release_amount, " at ",
          absl::FormatTime("%m-%d", *balance.next_release_at, Shanghai()));
    }
  }
  return text;
}

TEST_F(Orders, S4_20_S4_28_QuotaCountsWhileItsSubscriptionIsValid) {
  const auto quota = [&](const std::string& meter = "") {
    entitlement::QuotaBalances balances(*pool_, "live");
    const auto answer = balances.Read("u1", meter);
    EXPECT_OK(answer);
    return answer.ok() ? Show(*answer) : "";
  };
  EXPECT_EQ(quota(), "");
  EXPECT_EQ(quota("characters"), "characters 0 of 0");
  EXPECT_OK(Pay("u1", "annual", "p1"));
  EXPECT_OK(Pay("u1", "monthly", "p2"));
  EXPECT_EQ(quota(), "characters 200 of 200, next 100 at 02-28");
  EXPECT_EQ(quota("pages"), "pages 0 of 0");

  // The month is over and nobody has swept.
  Travel(Local(2027, 2, 28, 10));
  EXPECT_EQ(quota(), "characters 100 of 100, next 100 at 02-28");
  Maintain();
  EXPECT_EQ(quota(), "characters 200 of 200, next 100 at 03-31");
  EXPECT_OK(Refund("p1", "r1", 12000));
  EXPECT_EQ(quota(), "");
  entitlement::QuotaBalances test_money(*pool_, "test");
  ASSERT_OK_AND_ASSIGN(const auto answer, test_money.Read("u1", ""));
  EXPECT_EQ(Show(answer), "");
}

// The lock order of payments and of the job is the same, so neither ever waits
// for the other in a circle.
TEST_F(Orders, S4_13_S4_14_PaymentsAgainstMaintenanceNeverDeadlock) {
  constexpr int kSubjects = 8;
  constexpr int kPayers = 4;
  constexpr int kPayments = 60;
  // Half of them have something to expire, half something to release.
  for (int i = 0; i < kSubjects; ++i) {
    EXPECT_OK(Pay(absl::StrCat("u", i), i % 2 ? "monthly" : "annual",
                  absl::StrCat("first_", i)));
  }
  Travel(Local(2027, 4, 1));
  std::vector<std::unique_ptr<db::Pool>> pools;
  for (int i = 0; i < kPayers + 2; ++i) pools.push_back(MakePool());
  Barrier barrier(kPayers + 2);
  std::atomic<int> paying{kPayers};
  std::vector<std::thread> threads;
  std::vector<absl::Status> failures(kPayers);
  for (int p = 0; p < kPayers; ++p) {
    threads.emplace_back([&, p] {
      if (!barrier.ArriveAndWait()) return;
      for (int n = 0; n < kPayments; ++n) {
        const int i = (p + n) % kSubjects;
        const std::string key = absl::StrCat("t", p, "_", n);
        absl::Status status =
            Pay(absl::StrCat("u", i), i % 2 ? "monthly" : "annual", key,
                std::nullopt, pools[p].get())
                .status();
        if (status.ok() && n % 5 == 4) {
          store::FactBatch batch = Batch("evt_r" + key, "", "");
          pb::Fact fact = MoneyFact(now_);
          fact.mutable_refunded()->set_payment_key(key);
          fact.mutable_refunded()->set_refund_key("r" + key);
          fact.mutable_refunded()->set_full(true);
          batch.facts.push_back(fact);
          status = Send(*pools[p], batch).status();
        }
        failures[p].Update(status);
      }
      --paying;
    });
  }
  for (int w = 0; w < 2; ++w) {
    threads.emplace_back([&, w] {
      if (!barrier.ArriveAndWait()) return;
      while (paying > 0) Maintain(pools[kPayers + w].get());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& failure : failures) EXPECT_OK(failure);
  Maintain();
  EXPECT_EQ(Scalar("SELECT pg_stat_force_next_flush() IS NOT NULL"), "t");
  EXPECT_EQ(Scalar("SELECT deadlocks FROM pg_stat_database"
                   " WHERE datname = current_database()"),
            "0");
  EXPECT_EQ(Scalar("SELECT count(*) FROM payment"),
            absl::StrCat(kSubjects + kPayers * kPayments));
  // One ledger row per released period, the balance is their sum.
  EXPECT_EQ(Scalar("SELECT count(*) FROM quota_schedule q WHERE status ="
                   " 'RELEASED' AND NOT EXISTS (SELECT 1 FROM quota_grant g"
                   " WHERE g.schedule_id = q.id)"),
            "0");
  EXPECT_EQ(Scalar("SELECT (SELECT sum(delta) FROM quota_transaction)"
                   " = (SELECT sum(remaining) FROM quota_grant)"),
            "t");
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription s WHERE event_seq <>"
                   " (SELECT max(seq) FROM subscription_event e"
                   "   WHERE e.subscription_id = s.id)"),
            "0");
}

}  // namespace
}  // namespace tenure::test
