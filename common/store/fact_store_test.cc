// Facts through the store: the stored sum, late facts, policies, money by its
// other names, and folding anew.

#include "common/store/fact_store.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"
#include "common/store/catalog_store.h"
#include "common/store/refold.h"
#include "common/store/statements.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/barrier.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace tenure::store {
namespace {

using ::tenure::test::Barrier;
using ::tenure::test::IsOk;
using ::tenure::test::IsOkAndHolds;
using ::tenure::test::Session;
using ::tenure::test::StatusIs;
using ::tenure::test::TestDatabase;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

namespace pb = ::tenure::subscription::v1;
using domain::Fact;

class FactStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    ASSERT_OK_AND_ASSIGN(session_, database_->OpenSession());
    pool_ = MakePool();
    ASSERT_OK_AND_ASSIGN(const std::string now,
                         session_->Scalar("SELECT extract(epoch FROM "
                                          "date_trunc('day', now()))::bigint"));
    int64_t seconds = 0;
    ASSERT_TRUE(absl::SimpleAtoi(now, &seconds));
    day0_ = absl::FromUnixSeconds(seconds) - absl::Hours(24 * 10);
    ASSERT_OK(ApplyCatalog(*pool_, Catalog()));
    ASSERT_OK(pool_->RunTransaction([&](db::Transaction& tx) -> absl::Status {
      ASSIGN_OR_RETURN(route_, RegisterRoute(tx, "stripe", "stripe", "live"));
      return absl::OkStatus();
    }));
  }

  std::unique_ptr<db::Pool> MakePool() const {
    db::PoolOptions options;
    options.connection.conninfo = database_->conninfo();
    options.connection.lock_timeout = absl::Seconds(30);
    return std::make_unique<db::Pool>(options);
  }

  static catalog::v1::Catalog Catalog() {
    catalog::v1::Catalog catalog;
    for (const std::string name : {"basic", "pro"}) {
      auto& plan = *catalog.add_plans();
      plan.set_name(name);
      plan.add_features()->set_name("export");
      plan.mutable_grace_period()->set_seconds(3 * 24 * 3600);
      plan.set_dispute_policy(catalog::v1::DISPUTE_POLICY_SUSPEND);
      auto& product = *plan.add_provider_products();
      product.set_route("stripe");
      product.set_product_id("price_" + name);
    }
    auto& quota = *catalog.mutable_plans(1)->add_quotas();
    quota.set_meter("tokens");
    quota.set_amount(50);
    return catalog;
  }

  absl::Time Day(double n) const { return day0_ + absl::Hours(24) * n; }

  Fact NewFact(double day) const {
    Fact fact;
    fact.set_layer(pb::FACT_LAYER_PROVIDER);
    *fact.mutable_order_at() = ToProto(Day(day));
    return fact;
  }
  Fact Created(double day) const {
    Fact fact = NewFact(day);
    *fact.mutable_created()->mutable_starts_at() = ToProto(Day(day));
    return fact;
  }
  Fact Paid(double day, const std::string& key, double from, double to) const {
    Fact fact = NewFact(day);
    fact.set_layer(pb::FACT_LAYER_MONEY);
    auto& paid = *fact.mutable_paid();
    paid.set_payment_key(key);
    *paid.mutable_period_starts_at() = ToProto(Day(from));
    *paid.mutable_period_ends_at() = ToProto(Day(to));
    paid.set_amount_minor(1200);
    paid.set_currency("EUR");
    paid.set_will_renew(true);
    paid.add_aliases("ch_" + key);
    return fact;
  }
  Fact Failed(double day, const std::string& key) const {
    Fact fact = NewFact(day);
    fact.set_layer(pb::FACT_LAYER_MONEY);
    fact.mutable_payment_failed()->set_payment_key(key);
    return fact;
  }
  Fact Refunded(double day, const std::string& payment, const std::string& key,
                int64_t amount) const {
    Fact fact = NewFact(day);
    fact.set_layer(pb::FACT_LAYER_MONEY);
    fact.mutable_refunded()->set_payment_key(payment);
    fact.mutable_refunded()->set_refund_key(key);
    fact.mutable_refunded()->set_amount_minor(amount);
    return fact;
  }
  Fact CancelScheduled(double day, double at) const {
    Fact fact = NewFact(day);
    *fact.mutable_cancel_scheduled()->mutable_cancel_at() = ToProto(Day(at));
    return fact;
  }
  Fact Snapshot(double day, const std::string& state) const {
    Fact fact = NewFact(day);
    fact.mutable_snapshot()->set_provider_state(state);
    fact.mutable_snapshot()->set_will_renew(true);
    return fact;
  }

  FactBatch Batch(const std::string& event_id, const std::string& subscription,
                  const std::string& product, std::vector<Fact> facts) const {
    FactBatch batch;
    batch.route = route_;
    batch.provider_subscription_id = subscription;
    batch.subject = subscription.empty() ? "" : "user_of_" + subscription;
    batch.product_id = product;
    batch.event_id = event_id;
    batch.facts = std::move(facts);
    return batch;
  }

  // The reason when it is parked, else "".
  absl::StatusOr<std::string> Send(const FactBatch& batch,
                                   db::Pool* pool = nullptr) {
    std::string parked;
    RETURN_IF_ERROR(
        (pool ? *pool : *pool_)
            .RunTransaction([&](db::Transaction& tx) -> absl::Status {
              ASSIGN_OR_RETURN(const Destination destination,
                               Resolve(tx, batch));
              parked = destination.parked;
              if (!parked.empty()) return absl::OkStatus();
              return Apply(tx, batch, destination).status();
            }));
    return parked;
  }

  void Tell(const std::string& event_id, const std::string& subscription,
            const std::string& product, std::vector<Fact> facts) {
    EXPECT_THAT(Send(Batch(event_id, subscription, product, std::move(facts))),
                IsOkAndHolds(""));
  }

  std::string Scalar(const std::string& sql) {
    absl::StatusOr<std::string> value = session_->Scalar(sql);
    return value.ok() ? *value : value.status().ToString();
  }

  // What a subscription has become, without ids and bookkeeping.
  std::string Everything(const std::string& provider_subscription_id) {
    const std::string of = absl::StrCat(
        "(SELECT id FROM subscription WHERE provider_subscription_id = '",
        provider_subscription_id, "')");
    return Scalar(absl::StrCat(
        "SELECT (SELECT (to_jsonb(s) - ARRAY['id', 'subject_id',"
        " 'provider_subscription_id', 'created_at', 'version', 'event_seq',"
        " 'expired_at', 'episode'])::text FROM subscription s WHERE id = ",
        of,
        ") || E'\\n' || (SELECT coalesce(string_agg(term_no || ' ' ||"
        " split_part(payment_key, '@', 1) || ' ' || refunded_minor, ', '"
        " ORDER BY term_no), '') FROM payment WHERE subscription_id = ",
        of,
        ") || E'\\n' || (SELECT coalesce(string_agg(q.meter || ' ' || term_no"
        " || '.' || period_no || ' ' || scheduled_at || ' ' || status, ', '"
        " ORDER BY scheduled_at, q.meter, q.id), '') FROM quota_schedule q"
        " WHERE status <> 'CANCELLED' AND subscription_id = ",
        of, ")"));
  }

  RefoldTotals RefoldAll(const std::string& plan, RefoldMode mode,
                         std::vector<RefoldedSubscription>* seen = nullptr) {
    RefoldScope scope;
    scope.plan = plan;
    scope.environment = "live";
    const absl::StatusOr<RefoldTotals> totals =
        Refold(*pool_, scope, mode, {"refold/1", "ops", "test"},
               [&](const RefoldedSubscription& one) {
                 if (seen != nullptr) seen->push_back(one);
                 return absl::OkStatus();
               });
    EXPECT_THAT(totals, IsOk());
    return totals.value_or(RefoldTotals{});
  }

  absl::Time day0_;
  Route route_;
  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<db::Pool> pool_;
};

TEST_F(FactStoreTest, C007_R5_AllOrdersOfOneLifeEndInTheSameRows) {
  std::vector<size_t> order(5);
  std::iota(order.begin(), order.end(), 0);
  std::string expected;
  int n = 0;
  do {
    const std::string sub = absl::StrCat("sub_", n++);
    const auto key = [&](const std::string& name) {
      return absl::StrCat(name, "@", sub);
    };
    Fact change = NewFact(3);
    change.mutable_plan_changed();
    const std::vector<FactBatch> life = {
        Batch("evt_1", sub, "price_basic", {Created(0)}),
        Batch("evt_2", sub, "price_basic", {Paid(0.1, key("in_1"), 0, 5)}),
        Batch("evt_3", sub, "price_pro", {Snapshot(4, "active")}),
        Batch("evt_4", sub, "price_pro", {Paid(5, key("in_2"), 5, 35)}),
        Batch("evt_5", sub, "price_pro", {CancelScheduled(6, 35)}),
    };
    for (const size_t i : order) {
      ASSERT_THAT(Send(life[i]), IsOkAndHolds(""));
      ASSERT_THAT(Send(life[i]), IsOkAndHolds(""));  // each once more
    }
    const std::string got = Everything(sub);
    if (expected.empty()) expected = got;
    ASSERT_EQ(got, expected) << absl::StrJoin(order, " ");
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(n, 120);
  EXPECT_THAT(expected, HasSubstr("\"status\": \"ACTIVE\""));
  EXPECT_THAT(expected, HasSubstr("1 in_1 0, 2 in_2 0"));
  EXPECT_THAT(expected, HasSubstr("RELEASED"));
  // The stored sum is what all facts add up to.
  std::vector<RefoldedSubscription> seen;
  EXPECT_EQ(RefoldAll("", RefoldMode::kDiff, &seen).different, 0);
  EXPECT_THAT(seen, IsEmpty());
}

TEST_F(FactStoreTest, TheNewestFactIsAddedToTheStoredSum) {
  Tell("evt_1", "sub_1", "price_basic", {Created(0), Paid(0, "in_1", 0, 30)});
  // With the facts away, only the sum can answer.
  ASSERT_OK(session_->Exec("DELETE FROM subscription_fact"));
  Tell("evt_2", "sub_1", "", {CancelScheduled(2, 30)});
  EXPECT_EQ(Scalar("SELECT term_no || ' ' || (cancel_at = expires_at)"
                   " FROM subscription"),
            "1 true");
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription_fact"), "1");
}

TEST_F(FactStoreTest, ASumOfAnotherRevisionIsFoldedAnew) {
  Tell("evt_1", "sub_1", "price_basic", {Paid(0, "in_1", 0, 30)});
  ASSERT_OK(session_->Exec(
      "UPDATE subscription_fold SET revision = revision - 1, state = ''"));
  Tell("evt_2", "sub_1", "price_basic", {Paid(1, "in_2", 30, 60)});
  EXPECT_EQ(Scalar("SELECT term_no FROM subscription"), "2");
}

TEST_F(FactStoreTest, C011_FactsOfOneSubscriptionAtOnceAllCount) {
  Tell("evt_0", "sub_1", "price_basic", {Paid(0, "in_0", 0, 1)});
  constexpr int kThreads = 4;
  constexpr int kEach = 10;
  Barrier barrier(kThreads);
  std::vector<std::unique_ptr<db::Pool>> pools;
  for (int i = 0; i < kThreads; ++i) pools.push_back(MakePool());
  std::vector<std::thread> threads;
  std::vector<absl::Status> statuses(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      if (!barrier.ArriveAndWait()) return;
      for (int i = 0; i < kEach; ++i) {
        const int n = 1 + i * kThreads + t;
        statuses[t].Update(
            Send(Batch(absl::StrCat("evt_", n), "sub_1",
                       n % 2 ? "price_basic" : "price_pro",
                       {Paid(0.01 * n, absl::StrCat("in_", n), n, n + 1)}),
                 pools[t].get())
                .status());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) EXPECT_THAT(status, IsOk());
  EXPECT_EQ(Scalar("SELECT term_no || ' ' || (expires_at - starts_at)"
                   " FROM subscription"),
            "41 41 days");
  EXPECT_EQ(RefoldAll("", RefoldMode::kDiff).different, 0);
}

TEST_F(FactStoreTest, C051_GraceIsThePolicyOfTheFirstFailure) {
  Tell("evt_1", "sub_1", "price_basic", {Paid(0, "in_1", 0, 12)});
  Tell("evt_2", "sub_1", "", {Failed(9.5, "in_2")});
  // A later policy moves nothing that was stored (R5).
  catalog::v1::Catalog catalog = Catalog();
  catalog.mutable_plans(0)->mutable_grace_period()->set_seconds(30 * 86400);
  ASSERT_OK(ApplyCatalog(*pool_, catalog));
  Tell("evt_3", "sub_1", "", {Failed(9.7, "in_2")});
  EXPECT_EQ(Scalar("SELECT status || ' ' || (grace_period_ends_at - expires_at)"
                   " FROM subscription"),
            "PAST_DUE 12:00:00");
  Tell("evt_4", "sub_1", "price_basic", {Paid(9.8, "in_2", 12, 42)});
  EXPECT_EQ(Scalar("SELECT status || ' ' || (grace_period_ends_at IS NULL)"
                   " FROM subscription"),
            "ACTIVE true");
  EXPECT_EQ(Scalar("SELECT string_agg(split_part(event_type, '.', 2), ' '"
                   " ORDER BY seq) FROM subscription_event"),
            "created activated past_due entered_grace renewed recovered");
}

TEST_F(FactStoreTest, C057_ARefundFindsItsPaymentByItsCharge) {
  Tell("evt_1", "sub_1", "price_pro", {Paid(0, "in_1", 0, 30)});
  EXPECT_THAT(Send(Batch("evt_2", "", "", {Refunded(1, "ch_9", "re_1", 100)})),
              IsOkAndHolds("unknown_payment"));
  EXPECT_THAT(
      Send(Batch("evt_3", "", "", {Refunded(1, "ch_in_1", "re_1", 500)})),
      IsOkAndHolds(""));
  EXPECT_EQ(Scalar("SELECT status FROM subscription"), "ACTIVE");
  EXPECT_THAT(Send(Batch("evt_4", "", "", {Refunded(2, "in_1", "re_2", 700)})),
              IsOkAndHolds(""));
  EXPECT_EQ(Scalar("SELECT status || ' ' || refunded_minor FROM subscription,"
                   " payment"),
            "REVOKED 1200");
  EXPECT_EQ(Scalar("SELECT string_agg(event_type || ' ' || (data->>"
                   "'refunded_minor'), ', ' ORDER BY seq) FROM"
                   " subscription_event WHERE event_type LIKE '%refund%'"),
            "subscription.refunded 500, subscription.refunded 1200");
  // Taken back after all.
  Fact reversed = NewFact(3);
  reversed.mutable_refund_reversed()->set_refund_key("re_2");
  Tell("evt_5", "sub_1", "", {reversed});
  EXPECT_EQ(Scalar("SELECT status || ' ' || refunded_minor FROM subscription,"
                   " payment"),
            "ACTIVE 500");
}

TEST_F(FactStoreTest, ADisputeSuspendsByThePlansPolicy) {
  Tell("evt_1", "sub_1", "price_pro", {Paid(0, "in_1", 0, 30)});
  Fact opened = NewFact(1);
  opened.mutable_dispute_opened()->set_payment_key("ch_in_1");
  EXPECT_THAT(Send(Batch("evt_2", "", "", {opened})), IsOkAndHolds(""));
  EXPECT_EQ(Scalar("SELECT status FROM subscription"), "PAUSED");
  Fact closed = NewFact(2);
  closed.mutable_dispute_closed()->set_payment_key("in_1");
  EXPECT_THAT(Send(Batch("evt_3", "", "", {closed})), IsOkAndHolds(""));
  EXPECT_EQ(Scalar("SELECT status FROM subscription"), "ACTIVE");
  closed.mutable_dispute_closed()->set_lost(true);
  EXPECT_THAT(Send(Batch("evt_4", "", "", {closed})), IsOkAndHolds(""));
  EXPECT_EQ(Scalar("SELECT status FROM subscription"), "REVOKED");
}

TEST_F(FactStoreTest, WhatIsPaidForIsThePlanFromThatPeriodOn) {
  Tell("evt_1", "sub_1", "price_basic", {Paid(0, "in_1", 0, 5)});
  EXPECT_EQ(Scalar("SELECT count(*) FROM quota_schedule"), "0");
  Tell("evt_2", "sub_1", "price_pro", {Paid(5, "in_2", 5, 35)});
  EXPECT_EQ(Scalar("SELECT p.name FROM subscription s JOIN plan p"
                   " ON p.id = s.plan_id"),
            "pro");
  // Only the term under the new plan brings its quota.
  EXPECT_EQ(Scalar("SELECT string_agg(term_no || ' ' || status, ', ')"
                   " FROM quota_schedule"),
            "2 RELEASED");
  // Paid in advance, it is the plan to come.
  Tell("evt_3", "sub_1", "price_basic", {Paid(6, "in_3", 35, 65)});
  EXPECT_EQ(Scalar("SELECT p.name || ' ' || q.name || ' ' ||"
                   " (s.next_plan_at - s.starts_at) FROM subscription s"
                   " JOIN plan p ON p.id = s.plan_id"
                   " JOIN plan q ON q.id = s.next_plan_id"),
            "pro basic 35 days");
}

TEST_F(FactStoreTest, C140_MoneyForAnUnknownProductWaitsForTheCatalogue) {
  Tell("evt_1", "sub_1", "price_basic", {Paid(0, "in_1", 0, 5)});
  const FactBatch batch =
      Batch("evt_2", "sub_1", "price_new", {Paid(5, "in_2", 5, 35)});
  EXPECT_THAT(Send(batch), IsOkAndHolds("unknown_plan"));
  // What says nothing of a plan does not wait for one.
  Tell("evt_3", "sub_1", "price_new", {Failed(5.5, "in_3")});
  catalog::v1::Catalog catalog = Catalog();
  auto& product = *catalog.mutable_plans(1)->add_provider_products();
  product.set_route("stripe");
  product.set_product_id("price_new");
  ASSERT_OK(ApplyCatalog(*pool_, catalog));
  EXPECT_THAT(Send(batch), IsOkAndHolds(""));
  EXPECT_EQ(Scalar("SELECT p.name FROM subscription s JOIN plan p"
                   " ON p.id = s.plan_id"),
            "pro");
}

TEST_F(FactStoreTest, C009_TwoStatesOfOneSecondAreMarkedUntilAReadBack) {
  Tell("evt_1", "sub_1", "price_basic", {Paid(0, "in_1", 0, 30)});
  Tell("evt_a", "sub_1", "price_basic", {Snapshot(2, "active")});
  Tell("evt_b", "sub_1", "price_pro", {Snapshot(2, "active")});
  EXPECT_EQ(Scalar("SELECT needs_reconcile FROM subscription"), "t");
  Fact read_back = Snapshot(3, "active");
  read_back.mutable_snapshot()->set_read_back(true);
  Tell("evt_c", "sub_1", "price_pro", {read_back});
  EXPECT_EQ(Scalar("SELECT needs_reconcile || ' ' || p.name FROM subscription s"
                   " JOIN plan p ON p.id = s.plan_id"),
            "false pro");
}

TEST_F(FactStoreTest, AnIntermediateStateIsNotAnnouncedTwice) {
  Tell("evt_1", "sub_1", "price_basic", {Paid(0, "in_1", 0, 30)});
  Tell("evt_4", "sub_1", "", {CancelScheduled(4, 30)});
  // Older facts that change nothing of it re-fold the whole.
  Tell("evt_2", "sub_1", "price_basic", {Created(0)});
  Tell("evt_3", "sub_1", "price_basic", {Snapshot(2, "active")});
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription_event"
                   " WHERE event_type = 'subscription.cancel_scheduled'"),
            "1");
  EXPECT_EQ(Scalar("SELECT count(*) = count(DISTINCT business_key) AND"
                   " max(seq) = count(*) FROM subscription_event"),
            "t");
}

TEST_F(FactStoreTest, ATransferMovesTheRowAndStoresNoName) {
  Tell("evt_1", "sub_1", "price_pro", {Paid(0, "in_1", 0, 30)});
  ASSERT_OK(pool_->RunTransaction([&](db::Transaction& tx) -> absl::Status {
    ASSIGN_OR_RETURN(const LockedSubscription locked,
                     LockSubscription(tx, 1, "live"));
    Fact fact;
    fact.mutable_transferred()->set_subject("somebody-else");
    return ApplyInternal(tx, locked, {fact}, {"req_1", "ops", "moved"})
        .status();
  }));
  EXPECT_EQ(Scalar("SELECT u.external_id FROM subscription s JOIN subject u"
                   " ON u.id = s.subject_id"),
            "somebody-else");
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription_fact"
                   " WHERE position('somebody'::bytea IN body) > 0"),
            "0");
  EXPECT_EQ(Scalar("SELECT actor || ' ' || reason || ' ' || layer"
                   " FROM subscription_fact WHERE kind = 'transferred'"),
            "ops moved 3");
  EXPECT_EQ(Scalar("SELECT actor || ' ' || reason || ' ' || cause FROM"
                   " subscription_event WHERE event_type ="
                   " 'subscription.transferred'"),
            "ops moved request:req_1");
  // A later fact of the provider does not move it back.
  Tell("evt_2", "sub_1", "price_pro", {Paid(1, "in_2", 30, 60)});
  EXPECT_EQ(Scalar("SELECT u.external_id FROM subscription s JOIN subject u"
                   " ON u.id = s.subject_id"),
            "somebody-else");
}

TEST_F(FactStoreTest, InternalFactsAreOrderedBehindEachOther) {
  Tell("evt_1", "sub_1", "price_pro", {Paid(0, "in_1", 0, 30)});
  ASSERT_OK(pool_->RunTransaction([&](db::Transaction& tx) -> absl::Status {
    ASSIGN_OR_RETURN(LockedSubscription locked,
                     LockSubscription(tx, 1, "live"));
    Fact pause;
    pause.mutable_paused();
    RETURN_IF_ERROR(
        ApplyInternal(tx, locked, {pause}, {"b", "ops", "x"}).status());
    const absl::Time now = locked.now;
    ASSIGN_OR_RETURN(locked, LockSubscription(tx, 1, "live"));
    locked.now = now;  // the clock stood still
    Fact resume;
    resume.mutable_resumed();
    return ApplyInternal(tx, locked, {resume}, {"a", "ops", "x"}).status();
  }));
  EXPECT_EQ(Scalar("SELECT status FROM subscription"), "ACTIVE");
}

TEST_F(FactStoreTest, C078_AGrantGivesATermOfItsPlanAndItsKeyOnlyOnce) {
  domain::Plan pro;
  ASSERT_OK(pool_->RunTransaction([&](db::Transaction& tx) -> absl::Status {
    ASSIGN_OR_RETURN(const auto plan, FindPlan(tx, "pro"));
    pro = *plan;
    return absl::OkStatus();
  }));
  const auto grant = [&](const std::string& request_id) {
    AppliedFacts applied;
    EXPECT_THAT(pool_->RunTransaction([&](db::Transaction& tx) -> absl::Status {
      NewGrant wanted;
      wanted.subject = "u1";
      wanted.plan = pro;
      wanted.environment = "live";
      wanted.expires_at = Day(40);
      wanted.external_key = "old-system/7";
      ASSIGN_OR_RETURN(applied,
                       Grant(tx, wanted, {request_id, "importer", "moved in"}));
      return absl::OkStatus();
    }),
                IsOk());
    return applied;
  };
  const AppliedFacts first = grant("r1");
  EXPECT_TRUE(first.changed);
  const AppliedFacts second = grant("r2");
  EXPECT_FALSE(second.changed);
  EXPECT_EQ(second.subscription_id, first.subscription_id);
  EXPECT_EQ(Scalar("SELECT s.status || ' ' || p.name || ' ' || r.name FROM"
                   " subscription s JOIN plan p ON p.id = s.plan_id"
                   " JOIN route r ON r.id = s.route_id"),
            "ACTIVE pro internal");
  EXPECT_EQ(Scalar("SELECT count(*) FROM payment"), "0");
  EXPECT_EQ(Scalar("SELECT sum(remaining) FROM quota_grant"), "50");
}

// ---- What several writers, routes and binaries do to one row ----

TEST_F(FactStoreTest, R6_TheStreamsReachTheReleaseOfAPaymentToo) {
  ASSERT_OK(session_->Exec("INSERT INTO sink (name) VALUES ('s')"));
  Tell("evt_1", "sub_1", "price_pro", {Paid(0, "in_1", 0, 400)});
  EXPECT_EQ(Scalar("SELECT head_seq = event_seq FROM sink_stream, subscription"
                   " WHERE event_seq = (SELECT max(seq) FROM"
                   " subscription_event WHERE event_type ="
                   " 'subscription.quota_released')"),
            "t");
}

TEST_F(FactStoreTest, C001_AnOrderOfAnotherRouteStacksAndKeepsItsOwnNames) {
  catalog::v1::Catalog catalog = Catalog();
  for (auto& plan : *catalog.mutable_plans()) {
    auto& product = *plan.add_provider_products();
    product.set_route("alipay");
    product.set_product_id("price_" + plan.name());
  }
  ASSERT_OK(ApplyCatalog(*pool_, catalog));
  Route alipay;
  ASSERT_OK(pool_->RunTransaction([&](db::Transaction& tx) -> absl::Status {
    ASSIGN_OR_RETURN(alipay, RegisterRoute(tx, "alipay", "alipay", "live"));
    return absl::OkStatus();
  }));
  const auto order = [&](const std::string& event_id, const Route& route,
                         const std::string& key) {
    Fact fact = Paid(9, key, 9, 10);
    fact.mutable_paid()->clear_period_starts_at();
    fact.mutable_paid()->clear_period_ends_at();
    FactBatch batch = Batch(event_id, "", "price_basic", {fact});
    batch.route = route;
    batch.subject = "u1";
    return batch;
  };
  EXPECT_THAT(Send(order("evt_1", route_, "order_1")), IsOkAndHolds(""));
  EXPECT_THAT(Send(order("evt_2", alipay, "order_2")), IsOkAndHolds(""));
  // Told again by another event: the same term.
  EXPECT_THAT(Send(order("evt_3", alipay, "order_2")), IsOkAndHolds(""));
  EXPECT_EQ(Scalar("SELECT count(*) || ' ' || max(term_no) FROM subscription"),
            "1 2");
  EXPECT_EQ(Scalar("SELECT string_agg(r.name || ' ' || payment_key, ', '"
                   " ORDER BY payment_key) FROM payment p JOIN route r"
                   " ON r.id = p.route_id"),
            "stripe order_1, alipay order_2");
  FactBatch refund =
      Batch("evt_4", "", "", {Refunded(9.5, "order_2", "re_1", 1200)});
  refund.route = alipay;
  EXPECT_THAT(Send(refund), IsOkAndHolds(""));
  EXPECT_EQ(Scalar("SELECT string_agg(refunded_minor::text, ', '"
                   " ORDER BY payment_key) FROM payment"),
            "0, 1200");
}

TEST_F(FactStoreTest, C001_C073_OnePaymentUnderTwoNamesAtOnceIsOneTerm) {
  const auto order = [&](const std::string& event_id,
                         const std::vector<std::string>& names) {
    Fact fact = Paid(9, names.front(), 9, 10);
    fact.mutable_paid()->clear_aliases();
    fact.mutable_paid()->clear_period_starts_at();
    fact.mutable_paid()->clear_period_ends_at();
    FactBatch batch = Batch(event_id, "", "price_basic", {fact});
    batch.subject = "u1";
    batch.payment_names = names;
    return batch;
  };
  // Both looked for the payment before either had stored it.
  const FactBatch second = order("evt_2", {"ch_1", "pi_1"});
  Destination destination;
  ASSERT_OK(pool_->RunTransaction([&](db::Transaction& tx) -> absl::Status {
    ASSIGN_OR_RETURN(destination, Resolve(tx, second));
    return absl::OkStatus();
  }));
  EXPECT_TRUE(destination.prepaid);
  EXPECT_THAT(Send(order("evt_1", {"pi_1"})), IsOkAndHolds(""));
  ASSERT_OK(pool_->RunTransaction([&](db::Transaction& tx) {
    return Apply(tx, second, destination).status();
  }));
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription"), "1");
  EXPECT_EQ(Scalar("SELECT term_no FROM subscription"), "1");
  EXPECT_EQ(Scalar("SELECT count(*) FROM payment"), "1");
  EXPECT_EQ(RefoldAll("", RefoldMode::kDiff).different, 0);
  // Known by either name from now on.
  EXPECT_THAT(
      Send(Batch("evt_3", "", "", {Refunded(9.5, "ch_1", "re_1", 1200)})),
      IsOkAndHolds(""));
  EXPECT_EQ(Scalar("SELECT status FROM subscription"), "REVOKED");
}

TEST_F(FactStoreTest, D16_TheScheduleOfOneSubscriptionIsReadByItsIndex) {
  Tell("evt_1", "sub_1", "price_pro", {Paid(0, "in_1", 0, 30)});
  ASSERT_OK(session_->Exec(
      "INSERT INTO subscription (subject_id, plan_id, environment, route_id,"
      "  status, fold_revision) SELECT subject_id, plan_id, environment,"
      "  route_id, 'PENDING', 1 FROM subscription, generate_series(1, 5000);"
      "INSERT INTO quota_schedule (subscription_id, meter, term_key, term_no,"
      "  period_no, amount, scheduled_at) SELECT id, 'm', 't', 1, g, 1,"
      "  now() + interval '1 day' FROM subscription, generate_series(1, 4) g;"
      "ANALYZE quota_schedule; SET plan_cache_mode = force_generic_plan"));
  for (const auto& [statement, arguments] :
       std::vector<std::pair<const db::Statement*, std::string>>{
           {&kSelectQuotaSchedule, "(7)"},
           {&kRenumberQuotaTerms, "(7, '{a}', '{1}')"},
           {&kCancelQuotaSchedule, "('{7}')"}}) {
    ASSERT_OK_AND_ASSIGN(
        const test::SqlRows plan,
        session_->Exec(absl::StrCat("PREPARE st AS ", statement->sql,
                                    "; EXPLAIN EXECUTE st ", arguments)));
    for (const test::SqlRow& line : plan) {
      EXPECT_THAT(*line[0], Not(HasSubstr("Seq Scan on quota_schedule")))
          << statement->name;
    }
    ASSERT_OK(session_->Exec("DEALLOCATE st"));
  }
}

TEST_F(FactStoreTest, R8_APaymentDoesNotWaitForAnErasureThatWaitsForIt) {
  Tell("evt_1", "sub_1", "price_basic", {Paid(0, "in_1", 0, 9)});
  ASSERT_OK(session_->Exec("BEGIN; SELECT id FROM subject FOR UPDATE"));
  // Its release is left to the job.
  Tell("evt_2", "sub_1", "price_pro", {Paid(9, "in_2", 9, 39)});
  ASSERT_OK(session_->Exec("SELECT id FROM subscription FOR NO KEY UPDATE"));
  ASSERT_OK(session_->Exec("COMMIT"));
  EXPECT_EQ(Scalar("SELECT count(*) FROM quota_schedule"
                   " WHERE status = 'PENDING' AND scheduled_at <= now()"),
            "1");
  Tell("evt_3", "sub_1", "price_pro", {Paid(9.5, "in_3", 39, 69)});
  EXPECT_EQ(Scalar("SELECT sum(remaining) FROM quota_grant"), "50");
}

TEST_F(FactStoreTest, AFactOfTheBinaryBeforeIsInTheSum) {
  Tell("evt_1", "sub_1", "price_basic", {Paid(0, "in_1", 0, 30)});
  // What it does: the fact and the row, but not the sum, which it does not
  // know.
  Tell("evt_2", "sub_2", "price_basic", {Paid(1, "in_2", 30, 60)});
  ASSERT_OK(session_->Exec(
      "INSERT INTO subscription_fact SELECT (jsonb_populate_record(f,"
      "  '{\"subscription_id\": 1}')).* FROM subscription_fact f"
      " WHERE subscription_id = 2;"
      "UPDATE subscription SET term_no = 2, fold_revision = 1,"
      "  expires_at = expires_at + interval '30 days' WHERE id = 1"));
  Tell("evt_3", "sub_1", "", {CancelScheduled(2, 60)});
  EXPECT_EQ(Scalar("SELECT term_no || ' ' || (expires_at - starts_at)"
                   " FROM subscription WHERE id = 1"),
            "2 60 days");
}

TEST_F(FactStoreTest, AnEndThatTheBinaryBeforeToldIsNotToldAgain) {
  Tell("evt_1", "sub_1", "price_basic", {Paid(0, "in_1", 0, 5)});
  EXPECT_EQ(Scalar("SELECT status FROM subscription"), "EXPIRED");
  ASSERT_OK(session_->Exec(
      "UPDATE subscription_event SET business_key = gen_random_uuid()::text;"
      "UPDATE subscription SET status = 'PAUSED', expired_at = NULL"));
  Tell("evt_2", "sub_1", "", {Failed(6, "in_2")});
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription_event"
                   " WHERE event_type = 'subscription.expired'"),
            "1");
}

TEST_F(FactStoreTest, LapseIsWhatTimeDoesToTheRowAsItStands) {
  Tell("evt_1", "sub_1", "price_basic", {Paid(0, "in_1", 0, 30)});
  Tell("evt_2", "sub_2", "price_basic", {Paid(0, "in_2", 0, 30)});
  ASSERT_OK(session_->Exec(
      // Lengthened and paused by hand; and a row that nobody told anything of.
      "UPDATE subscription SET expires_at = expires_at + interval '1 year',"
      "  pause_at = now() - interval '1 minute' WHERE id = 1;"
      "DELETE FROM subscription_fact WHERE subscription_id = 2;"
      "DELETE FROM subscription_fold WHERE subscription_id = 2;"
      "UPDATE subscription SET pause_at = now() - interval '1 minute'"
      " WHERE id = 2"));
  for (const int64_t id : {1, 2}) {
    ASSERT_OK(pool_->RunTransaction([&](db::Transaction& tx) -> absl::Status {
      ASSIGN_OR_RETURN(const LockedSubscription locked,
                       LockSubscription(tx, id, "live"));
      return LapseLocked(tx, locked, "job:test").status();
    }));
  }
  EXPECT_EQ(Scalar("SELECT string_agg(status || ' ' || (expires_at - starts_at)"
                   " || ' ' || (pause_at IS NULL), ', ' ORDER BY id)"
                   " FROM subscription"),
            "PAUSED 395 days false, PAUSED 30 days false");
}

TEST_F(FactStoreTest, D2_OnePaymentUnderEitherOfItsNamesIsOneRow) {
  Tell("evt_1", "sub_1", "price_basic", {Paid(0, "in_1", 0, 30)});
  Fact again = Paid(1, "ch_in_1", 0, 30);
  again.mutable_paid()->clear_aliases();
  again.mutable_paid()->add_aliases("pi_1");
  Tell("evt_2", "sub_1", "price_basic", {again});
  EXPECT_EQ(Scalar("SELECT string_agg(payment_key, ', ') FROM payment"),
            "in_1");
  // And has the names that it was told by later.
  EXPECT_THAT(Send(Batch("evt_3", "", "", {Refunded(2, "pi_1", "re_1", 1200)})),
              IsOkAndHolds(""));
  EXPECT_EQ(Scalar("SELECT s.status || ' ' || refunded_minor FROM payment p"
                   " JOIN subscription s ON s.id = p.subscription_id"),
            "REVOKED 1200");
}

TEST_F(FactStoreTest, TheOldestWordOnAPaymentsSumIsTheOneThatIsRefunded) {
  Fact later = Paid(1, "in_1", 0, 30);
  later.mutable_paid()->set_amount_minor(500);
  Tell("evt_2", "sub_1", "price_basic", {later});
  Tell("evt_1", "sub_1", "price_basic", {Paid(0, "in_1", 0, 30)});
  Tell("evt_3", "sub_1", "", {Refunded(2, "in_1", "re_1", 1200)});
  EXPECT_EQ(Scalar("SELECT amount_minor || ' ' || refunded_minor FROM payment"),
            "1200 1200");
}

TEST_F(FactStoreTest, D13_QuotaOfAPlanThatNeverWasInForceIsCancelled) {
  Tell("evt_1", "sub_1", "price_pro", {Paid(0, "in_1", 0, 400)});
  EXPECT_NE(Scalar("SELECT count(*) FROM quota_schedule"
                   " WHERE status = 'PENDING'"),
            "0");
  Tell("evt_2", "sub_1", "price_basic", {Paid(1, "in_2", 0, 401)});
  EXPECT_EQ(Scalar("SELECT p.name FROM subscription s JOIN plan p"
                   " ON p.id = s.plan_id"),
            "basic");
  EXPECT_EQ(Scalar("SELECT count(*) FROM quota_schedule"
                   " WHERE status = 'PENDING'"),
            "0");
}

TEST_F(FactStoreTest, AnEventWithoutFactsMakesNoRow) {
  Tell("evt_1", "sub_1", "price_basic", {});
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription"), "0");
}

TEST_F(FactStoreTest, APlanChangeThatHasComeIsThePolicyInForce) {
  catalog::v1::Catalog catalog = Catalog();
  catalog.mutable_plans(1)->mutable_grace_period()->set_seconds(5 * 86400);
  ASSERT_OK(ApplyCatalog(*pool_, catalog));
  Tell("evt_1", "sub_1", "price_basic", {Paid(0, "in_1", 0, 30)});
  Tell("evt_2", "sub_1", "price_pro", {Paid(1, "in_2", 30, 60)});
  // The instant comes; no job has recorded it.
  ASSERT_OK(
      session_->Exec("UPDATE subscription SET next_plan_at ="
                     " now() - interval '1 minute'"));
  Tell("evt_3", "sub_1", "", {Failed(9, "in_3")});
  EXPECT_EQ(
      Scalar(absl::StrCat("SELECT grace_period_ends_at - to_timestamp(",
                          absl::ToUnixSeconds(Day(9)), ") FROM subscription")),
      "5 days");
}

TEST_F(FactStoreTest, R5_RefoldKeepsAScheduledPlanChange) {
  Tell("evt_1", "sub_1", "price_pro", {Paid(0, "in_1", 0, 30)});
  Tell("evt_2", "sub_1", "price_basic", {Paid(1, "in_2", 30, 60)});
  const std::string next =
      "SELECT p.name || ' ' || p.revision || ' ' || q.name || ' ' ||"
      " q.revision || ' ' || (s.next_plan_at - s.starts_at)"
      " FROM subscription s JOIN plan p ON p.id = s.plan_id"
      " JOIN plan q ON q.id = s.next_plan_id";
  EXPECT_EQ(Scalar(next), "pro 1 basic 1 30 days");
  catalog::v1::Catalog catalog = Catalog();
  catalog.mutable_plans(1)->add_features()->set_name("api");
  ASSERT_OK(ApplyCatalog(*pool_, catalog));
  EXPECT_EQ(RefoldAll("", RefoldMode::kWrite).different, 1);
  EXPECT_EQ(Scalar(next), "pro 2 basic 1 30 days");
  // A new revision of the plan to come as well.
  catalog.mutable_plans(0)->add_features()->set_name("api");
  ASSERT_OK(ApplyCatalog(*pool_, catalog));
  EXPECT_EQ(RefoldAll("", RefoldMode::kWrite).different, 1);
  EXPECT_EQ(Scalar(next), "pro 2 basic 2 30 days");
  EXPECT_EQ(RefoldAll("", RefoldMode::kDiff).different, 0);
}

TEST_F(FactStoreTest, RefoldRightsThePaymentsToo) {
  Tell("evt_1", "sub_1", "price_basic", {Paid(0, "in_1", 0, 30)});
  Tell("evt_2", "sub_1", "", {Refunded(2, "in_1", "re_1", 700)});
  ASSERT_OK(session_->Exec("UPDATE payment SET refunded_minor = 0"));
  RefoldAll("", RefoldMode::kWrite);
  EXPECT_EQ(Scalar("SELECT refunded_minor FROM payment"), "700");
}

TEST_F(FactStoreTest, AnEmptyNameOfAPaymentIsNone) {
  Fact paid = Paid(0, "in_1", 0, 30);
  paid.mutable_paid()->add_aliases("");
  Tell("evt_1", "sub_1", "price_basic", {paid});
  EXPECT_EQ(Scalar("SELECT status FROM subscription"), "ACTIVE");
}

// A row of the binary before, whose facts name no plan.
TEST_F(FactStoreTest, AFirstNamedPlanBringsNothingToWhatWasBoughtBefore) {
  Tell("evt_1", "sub_1", "price_basic",
       {Paid(0, "in_1", -60, -30), Paid(0.1, "in_2", -30, 9)});
  ASSERT_OK(
      session_->Exec("UPDATE subscription SET fold_revision = 1;"
                     "DELETE FROM subscription_fold"));
  for (const std::string key : {"in_1", "in_2"}) {
    ASSERT_OK_AND_ASSIGN(
        const std::string hex,
        session_->Scalar("SELECT encode(body, 'hex') FROM subscription_fact"
                         " WHERE money_key = '" +
                         key + "'"));
    Fact fact;
    ASSERT_TRUE(fact.ParseFromString(absl::HexStringToBytes(hex)));
    fact.clear_plan();
    ASSERT_OK(session_->Exec(
        "UPDATE subscription_fact SET body ="
        " decode($1, 'hex') WHERE money_key = $2",
        {absl::BytesToHexString(fact.SerializeAsString()), key}));
  }
  Tell("evt_3", "sub_1", "price_pro", {Paid(9, "in_3", 9, 39)});
  EXPECT_EQ(Scalar("SELECT string_agg(term_no || ' ' || status, ', ')"
                   " FROM quota_schedule"),
            "3 RELEASED");
}

TEST_F(FactStoreTest, R5_RefoldLeavesWhatHasEndedOnItsRevision) {
  Tell("evt_1", "sub_1", "price_pro", {Paid(0, "in_1", 0, 5)});
  catalog::v1::Catalog catalog = Catalog();
  catalog.mutable_plans(1)->add_features()->set_name("api");
  ASSERT_OK(ApplyCatalog(*pool_, catalog));
  EXPECT_EQ(RefoldAll("pro", RefoldMode::kDiff).different, 0);
}

// ---- Refold ----

TEST_F(FactStoreTest, R5_RefoldShowsThenWritesANewRevisionOfAPlan) {
  Tell("evt_1", "sub_1", "price_pro", {Paid(0, "in_1", 0, 400)});
  Tell("evt_2", "sub_2", "price_basic", {Paid(0, "in_2", 0, 400)});
  catalog::v1::Catalog catalog = Catalog();
  catalog.mutable_plans(1)->add_features()->set_name("api");
  catalog.mutable_plans(1)->mutable_quotas(0)->set_amount(80);
  ASSERT_OK(ApplyCatalog(*pool_, catalog));
  const std::string before = Everything("sub_1");

  std::vector<RefoldedSubscription> seen;
  RefoldTotals totals = RefoldAll("pro", RefoldMode::kDiff, &seen);
  EXPECT_EQ(totals.examined, 1);
  EXPECT_EQ(totals.different, 1);
  EXPECT_EQ(Everything("sub_1"), before);
  ASSERT_EQ(seen.size(), 1u);
  std::vector<std::string> columns;
  for (const RefoldDifference& difference : seen[0].differences) {
    columns.push_back(difference.column);
    if (difference.column == "plan") {
      EXPECT_EQ(difference.before, "\"pro revision 1\"");
      EXPECT_EQ(difference.after, "\"pro revision 2\"");
    }
  }
  EXPECT_THAT(columns, ElementsAre("pending_releases", "plan"));

  EXPECT_EQ(RefoldAll("pro", RefoldMode::kWrite).different, 1);
  EXPECT_EQ(Scalar("SELECT string_agg(DISTINCT amount || ' ' || status, ', ')"
                   " FROM quota_schedule WHERE status <> 'CANCELLED'"),
            "50 RELEASED, 80 PENDING");
  EXPECT_EQ(RefoldAll("pro", RefoldMode::kDiff).different, 0);
  EXPECT_EQ(RefoldAll("", RefoldMode::kDiff).different, 0);
}

TEST_F(FactStoreTest, R5_RefoldFindsRowsThatWereChangedByHand) {
  Tell("evt_1", "sub_1", "price_basic", {Paid(0, "in_1", 0, 30)});
  ASSERT_OK(
      session_->Exec("UPDATE subscription SET expires_at = expires_at +"
                     " interval '1 year', will_renew = false"));
  std::vector<RefoldedSubscription> seen;
  EXPECT_EQ(RefoldAll("", RefoldMode::kDiff, &seen).different, 1);
  ASSERT_EQ(seen.size(), 1u);
  std::vector<std::string> columns;
  for (const auto& difference : seen[0].differences) {
    columns.push_back(difference.column);
  }
  EXPECT_THAT(columns, ElementsAre("access_until", "expires_at", "will_renew"));
}

TEST_F(FactStoreTest, RefoldLeavesARowWithoutFactsAlone) {
  Tell("evt_1", "sub_1", "price_basic", {Paid(0, "in_1", 0, 30)});
  ASSERT_OK(session_->Exec("DELETE FROM subscription_fact"));
  const std::string before = Everything("sub_1");
  const RefoldTotals totals = RefoldAll("", RefoldMode::kWrite);
  EXPECT_EQ(totals.without_facts, 1);
  EXPECT_EQ(totals.different, 0);
  EXPECT_EQ(Everything("sub_1"), before);
}

TEST_F(FactStoreTest, RefoldOfAPlanThatIsNotThereIsAnError) {
  EXPECT_THAT(
      Refold(*pool_, {"none", "live", 0}, RefoldMode::kDiff, {},
             [](const RefoldedSubscription&) { return absl::OkStatus(); }),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
}

}  // namespace
}  // namespace tenure::store
