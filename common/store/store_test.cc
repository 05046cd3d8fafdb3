#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/store/catalog_store.h"
#include "common/store/fact_store.h"
#include "common/store/subscription_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/barrier.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace tenure::store {
namespace {

using ::tenure::test::Barrier;
using ::tenure::test::HasReason;
using ::tenure::test::IsOk;
using ::tenure::test::IsOkAndHolds;
using ::tenure::test::Session;
using ::tenure::test::StatusIs;
using ::tenure::test::TestDatabase;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Adds a plan to the catalogue.
catalog::v1::Plan& AddPlan(catalog::v1::Catalog& catalog,
                           absl::string_view name,
                           const std::vector<std::string>& features) {
  catalog::v1::Plan& plan = *catalog.add_plans();
  plan.set_name(std::string(name));
  for (const std::string& feature : features) {
    plan.add_features()->set_name(feature);
  }
  return plan;
}

void AddProduct(catalog::v1::Plan& plan, absl::string_view route,
                absl::string_view product_id) {
  auto& product = *plan.add_provider_products();
  product.set_route(std::string(route));
  product.set_product_id(std::string(product_id));
}

class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    ASSERT_OK_AND_ASSIGN(control_, database_->OpenSession());
    db::PoolOptions options;
    options.connection.conninfo = database_->conninfo();
    pool_ = std::make_unique<db::Pool>(options);
  }

  void TearDown() override { pool_.reset(); }

  // "basic/1: a b, pro/1: c"
  std::string Plans() {
    const auto plans = control_->Scalar(
        "SELECT coalesce(string_agg(line, ', ' ORDER BY line), '') FROM ("
        " SELECT p.name || '/' || p.revision || ':' || coalesce("
        "   string_agg(' ' || f.feature, '' ORDER BY f.feature), '') AS line"
        "  FROM plan p LEFT JOIN plan_feature f ON f.plan_id = p.id"
        " GROUP BY p.id) x");
    return plans.ok() ? *plans : plans.status().ToString();
  }

  std::string Products() {
    const auto products = control_->Scalar(
        "SELECT coalesce(string_agg(route_name || '/' || product_id || '='"
        " || plan_name, ', ' ORDER BY route_name, product_id), '')"
        " FROM provider_product");
    return products.ok() ? *products : products.status().ToString();
  }

  absl::StatusOr<Route> Register(absl::string_view name, absl::string_view kind,
                                 absl::string_view environment) {
    Route route;
    RETURN_IF_ERROR(
        pool_->RunTransaction([&](db::Transaction& tx) -> absl::Status {
          ASSIGN_OR_RETURN(route, RegisterRoute(tx, name, kind, environment));
          return absl::OkStatus();
        }));
    return route;
  }

  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<Session> control_;
  std::unique_ptr<db::Pool> pool_;
};

// The catalogue.

TEST_F(StoreTest, ApplyingTheSameCatalogueAgainChangesNothing) {
  catalog::v1::Catalog catalog;
  AddProduct(AddPlan(catalog, "basic", {"export", "a \"b\", {c}\\ ü"}),
             "stripe-eu", "price_1");
  AddPlan(catalog, "nothing", {});
  ASSERT_OK_AND_ASSIGN(const CatalogChanges first,
                       ApplyCatalog(*pool_, catalog));
  EXPECT_THAT(first.revised_plans, ElementsAre("basic", "nothing"));
  EXPECT_EQ(first.changed_products, 1);
  const std::string plans = Plans();
  EXPECT_EQ(plans, "basic/1: a \"b\", {c}\\ ü export, nothing/1:");
  EXPECT_EQ(Products(), "stripe-eu/price_1=basic");

  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(const CatalogChanges again,
                         ApplyCatalog(*pool_, catalog));
    EXPECT_THAT(again.revised_plans, IsEmpty());
    EXPECT_EQ(again.changed_products, 0);
  }
  EXPECT_EQ(Plans(), plans);
}

TEST_F(StoreTest, ChangedFeaturesAreANewRevisionAndTheOldOneStays) {
  catalog::v1::Catalog catalog;
  AddPlan(catalog, "basic", {"a", "b"});
  AddPlan(catalog, "pro", {"c"});
  ASSERT_THAT(ApplyCatalog(*pool_, catalog), IsOk());

  catalog::v1::Catalog reordered;
  AddPlan(reordered, "basic", {"b", "a"});
  ASSERT_OK_AND_ASSIGN(const CatalogChanges same,
                       ApplyCatalog(*pool_, reordered));
  EXPECT_THAT(same.revised_plans, IsEmpty());

  catalog::v1::Catalog changed;
  AddPlan(changed, "basic", {"a"});
  ASSERT_OK_AND_ASSIGN(const CatalogChanges changes,
                       ApplyCatalog(*pool_, changed));
  EXPECT_THAT(changes.revised_plans, ElementsAre("basic"));
  // "pro" was not named and stays.
  EXPECT_EQ(Plans(), "basic/1: a b, basic/2: a, pro/1: c");

  // Back again: a third revision, compared with the latest one only.
  ASSERT_OK_AND_ASSIGN(const CatalogChanges back,
                       ApplyCatalog(*pool_, reordered));
  EXPECT_THAT(back.revised_plans, ElementsAre("basic"));
  EXPECT_EQ(Plans(), "basic/1: a b, basic/2: a, basic/3: a b, pro/1: c");
}

TEST_F(StoreTest, AProductCanMoveToAnotherPlan) {
  catalog::v1::Catalog catalog;
  AddProduct(AddPlan(catalog, "basic", {}), "eu", "price_1");
  catalog::v1::Plan& pro = AddPlan(catalog, "pro", {});
  AddProduct(pro, "eu", "price_2");
  // The same id under another route is another product.
  AddProduct(pro, "us", "price_1");
  ASSERT_OK_AND_ASSIGN(const CatalogChanges first,
                       ApplyCatalog(*pool_, catalog));
  EXPECT_EQ(first.changed_products, 3);

  catalog::v1::Catalog moved;
  AddProduct(AddPlan(moved, "pro", {}), "eu", "price_1");
  ASSERT_OK_AND_ASSIGN(const CatalogChanges changes,
                       ApplyCatalog(*pool_, moved));
  EXPECT_EQ(changes.changed_products, 1);
  EXPECT_THAT(changes.revised_plans, IsEmpty());
  EXPECT_EQ(Products(), "eu/price_1=pro, eu/price_2=pro, us/price_1=pro");
}

TEST_F(StoreTest, AnUnacceptableEntryIsNamedAndNothingIsChanged) {
  const struct {
    const char* field;
    ErrorReason reason;
    void (*fill)(catalog::v1::Catalog&);
  } cases[] = {
      {"plans[1].name", common::v1::ERROR_REASON_FIELD_MISSING,
       [](catalog::v1::Catalog& c) { AddPlan(c, "", {}); }},
      {"plans[1].name", common::v1::ERROR_REASON_FIELD_INVALID,
       [](catalog::v1::Catalog& c) { AddPlan(c, "good", {}); }},
      {"plans[1].name", common::v1::ERROR_REASON_FIELD_INVALID,
       [](catalog::v1::Catalog& c) { AddPlan(c, std::string(128, 'x'), {}); }},
      {"plans[1].name", common::v1::ERROR_REASON_FIELD_INVALID,
       [](catalog::v1::Catalog& c) { AddPlan(c, "line\nbreak", {}); }},
      {"plans[1].features[1].name", common::v1::ERROR_REASON_FIELD_MISSING,
       [](catalog::v1::Catalog& c) {
         AddPlan(c, "p", {"a", ""});
       }},
      {"plans[1].features[2].name", common::v1::ERROR_REASON_FIELD_INVALID,
       [](catalog::v1::Catalog& c) {
         AddPlan(c, "p", {"a", "b", "a"});
       }},
      {"plans[1].provider_products[0].route",
       common::v1::ERROR_REASON_FIELD_MISSING,
       [](catalog::v1::Catalog& c) {
         AddProduct(AddPlan(c, "p", {}), "", "x");
       }},
      {"plans[1].provider_products[0].product_id",
       common::v1::ERROR_REASON_FIELD_MISSING,
       [](catalog::v1::Catalog& c) {
         AddProduct(AddPlan(c, "p", {}), "r", "");
       }},
      {"plans[1].provider_products[0].product_id",
       common::v1::ERROR_REASON_FIELD_INVALID,
       [](catalog::v1::Catalog& c) {
         AddProduct(AddPlan(c, "p", {}), "r", std::string(256, 'x'));
       }},
      {"plans[1].provider_products[0]", common::v1::ERROR_REASON_FIELD_INVALID,
       [](catalog::v1::Catalog& c) {
         AddProduct(AddPlan(c, "p", {}), "eu", "price_1");
       }},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.field);
    catalog::v1::Catalog catalog;
    AddProduct(AddPlan(catalog, "good", {"a"}), "eu", "price_1");
    c.fill(catalog);
    for (const absl::Status& status :
         {ValidateCatalog(catalog), ApplyCatalog(*pool_, catalog).status()}) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr(c.field)));
      EXPECT_THAT(status, HasReason(c.reason));
      EXPECT_EQ(GetErrorInfo(status)->metadata["field"], c.field);
    }
  }
  EXPECT_EQ(Plans(), "");
  EXPECT_EQ(Products(), "");
}

TEST_F(StoreTest, TwoAppliesAtOnceMakeOneRevision) {
  catalog::v1::Catalog catalog;
  AddPlan(catalog, "basic", {"a"});
  constexpr int kThreads = 4;
  Barrier barrier(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      EXPECT_TRUE(barrier.ArriveAndWait());
      EXPECT_THAT(ApplyCatalog(*pool_, catalog), IsOk());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Plans(), "basic/1: a");
}

// Routes.

TEST_F(StoreTest, ARouteKeepsItsIdItsKindAndItsEnvironment) {
  ASSERT_OK_AND_ASSIGN(const Route route, Register("eu", "stripe", "live"));
  EXPECT_GT(route.id, 0);
  EXPECT_EQ(route.name, "eu");
  EXPECT_EQ(route.environment, "live");
  ASSERT_OK_AND_ASSIGN(const Route again, Register("eu", "stripe", "live"));
  EXPECT_EQ(again.id, route.id);

  EXPECT_THAT(Register("eu", "paddle", "live"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("route eu"), HasSubstr("stripe/live"),
                             HasSubstr("paddle/live"))));
  EXPECT_THAT(Register("eu", "stripe", "test"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("stripe/test")));
  EXPECT_THAT(control_->Scalar("SELECT kind || '/' || environment FROM route"),
              IsOkAndHolds("stripe/live"));
}

TEST_F(StoreTest, ARouteWithAnImpossibleNameIsRefused) {
  for (const char* name : {"", "UPPER", "-dash", "a b"}) {
    EXPECT_THAT(Register(name, "stripe", "live"),
                StatusIs(absl::StatusCode::kFailedPrecondition))
        << name;
  }
  EXPECT_THAT(Register("eu", "stripe", "production"),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(StoreTest, C113_RegisteringARouteAgainUsesUpNoId) {
  // Every start of every replica does it, and a route's id has 16 bits.
  ASSERT_THAT(Register("eu", "stripe", "live"), IsOk());
  ASSERT_OK_AND_ASSIGN(const std::string before,
                       control_->Scalar("SELECT last_value FROM route_id_seq"));
  for (int i = 0; i < 20; ++i) {
    ASSERT_THAT(Register("eu", "stripe", "live"), IsOk());
  }
  EXPECT_THAT(control_->Scalar("SELECT last_value FROM route_id_seq"),
              IsOkAndHolds(before));
}

TEST_F(StoreTest, ReplicasThatRegisterARouteAtOnceAgree) {
  constexpr int kThreads = 4;
  Barrier barrier(kThreads);
  std::vector<int64_t> ids(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_TRUE(barrier.ArriveAndWait());
      const absl::StatusOr<Route> route = Register("eu", "stripe", "live");
      EXPECT_THAT(route, IsOk());
      if (route.ok()) ids[i] = route->id;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(ids[0], 0);
  EXPECT_THAT(ids, ::testing::Each(ids[0]));
}

// Subscriptions.

class SubscriptionStoreTest : public StoreTest {
 protected:
  void SetUp() override {
    StoreTest::SetUp();
    ASSERT_OK(control_->Exec(
        "INSERT INTO route (name, kind, environment)"
        " VALUES ('eu', 'stripe', 'test');"
        "INSERT INTO plan (name, revision) VALUES ('basic', 1);"
        "INSERT INTO subject (external_id) VALUES ('ann'), ('bob');"
        "INSERT INTO subscription (subject_id, plan_id, environment, route_id,"
        "  provider_subscription_id, status, starts_at, expires_at,"
        "  leeway_until, term_no, event_seq, fold_revision)"
        " SELECT u.id, p.id, 'test', r.id, u.external_id || i, 'ACTIVE',"
        "  timestamptz '2026-01-01 00:00:00+00',"
        "  timestamptz '2026-02-01 00:00:00.000001+00',"
        "  timestamptz '2026-02-03 00:00:00+00', 1, 3, 1"
        "  FROM generate_series(1, 5) i, subject u, plan p, route r"
        " ORDER BY i, u.external_id"));
    store_ = std::make_unique<SubscriptionStore>(*pool_, "test");
  }

  static std::vector<std::string> ProviderIds(
      const std::vector<StoredSubscription>& all) {
    std::vector<std::string> ids;
    for (const auto& s : all) ids.push_back(s.provider_subscription_id);
    return ids;
  }

  std::unique_ptr<SubscriptionStore> store_;
};

TEST_F(SubscriptionStoreTest, PagesNewestFirstWithoutGapOrRepeat) {
  std::vector<std::string> seen;
  std::optional<int64_t> before;
  for (const size_t size : {2, 2, 1, 0}) {
    ASSERT_OK_AND_ASSIGN(
        const auto page,
        store_->ListOfSubject({.subject = "ann", .before_id = before}, 2));
    ASSERT_THAT(page, SizeIs(size));
    for (const std::string& id : ProviderIds(page)) seen.push_back(id);
    if (!page.empty()) before = page.back().id;
    // One that appears meanwhile belongs to the first page and moves none.
    ASSERT_OK(control_->Exec(
        "INSERT INTO subscription (subject_id, plan_id, environment, route_id,"
        "  provider_subscription_id, status, fold_revision)"
        " SELECT subject_id, plan_id, environment, route_id,"
        "  'later' || max(id), 'PENDING', 1 FROM subscription"
        "  WHERE subject_id = (SELECT id FROM subject"
        "                       WHERE external_id = 'ann')"
        " GROUP BY 1, 2, 3, 4"));
  }
  EXPECT_THAT(seen, ElementsAre("ann5", "ann4", "ann3", "ann2", "ann1"));
}

TEST_F(SubscriptionStoreTest, R15_ReadsOneEnvironmentOnly) {
  SubscriptionStore live(*pool_, "live");
  EXPECT_THAT(live.ListOfSubject({.subject = "ann"}, 10),
              IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(live.Get(1),
              HasReason(common::v1::ERROR_REASON_SUBSCRIPTION_NOT_FOUND));
  EXPECT_THAT(store_->Get(1), IsOk());
}

TEST_F(SubscriptionStoreTest, ListsNothingForAStranger) {
  EXPECT_THAT(store_->ListOfSubject({.subject = "nobody"}, 10),
              IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(store_->ListOfSubject({.subject = "ann' OR 'a'='a"}, 10),
              IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(store_->ListOfSubject({.subject = "ann", .before_id = 0}, 10),
              IsOkAndHolds(IsEmpty()));
}

TEST_F(SubscriptionStoreTest, ReadsARowAsItIs) {
  ASSERT_OK_AND_ASSIGN(const auto page,
                       store_->ListOfSubject({.subject = "bob"}, 1));
  ASSERT_THAT(page, SizeIs(1));
  ASSERT_OK_AND_ASSIGN(const StoredSubscription stored,
                       store_->Get(page[0].id));
  EXPECT_EQ(stored.id, page[0].id);
  EXPECT_EQ(stored.subject, "bob");
  EXPECT_EQ(stored.plan, "basic");
  EXPECT_EQ(stored.route, "eu");
  EXPECT_EQ(stored.provider_subscription_id, "bob5");
  const domain::Subscription& s = stored.state.subscription;
  EXPECT_EQ(s.status, domain::Status::kActive);
  EXPECT_FALSE(s.lifetime);
  EXPECT_EQ(s.expires_at,
            absl::FromCivil(absl::CivilDay(2026, 2, 1), absl::UTCTimeZone()) +
                absl::Microseconds(1));
  EXPECT_EQ(s.grace_period_ends_at, std::nullopt);
  EXPECT_EQ(s.term_no, 1);
  EXPECT_EQ(stored.state.lifecycle.event_seq, 3);
  EXPECT_EQ(stored.state.lifecycle.expired_at, std::nullopt);
}

TEST_F(SubscriptionStoreTest, R3_TheColumnAndTheDomainAgreeOnAccessUntil) {
  ASSERT_OK(control_->Exec(
      "UPDATE subscription SET grace_period_ends_at = expires_at"
      "  + (id - 5) * interval '1 day' WHERE id % 2 = 0;"
      "UPDATE subscription SET leeway_until = NULL WHERE id % 3 = 0;"
      "UPDATE subscription SET lifetime = true, expires_at = NULL"
      " WHERE id = 9;"
      "UPDATE subscription SET status = 'PENDING', expires_at = NULL,"
      "  leeway_until = NULL, grace_period_ends_at = NULL WHERE id = 10"));
  for (const char* subject : {"ann", "bob"}) {
    ASSERT_OK_AND_ASSIGN(const auto all,
                         store_->ListOfSubject({.subject = subject}, 100));
    ASSERT_THAT(all, SizeIs(5));
    for (const StoredSubscription& stored : all) {
      EXPECT_EQ(stored.access_until, stored.state.subscription.AccessUntil())
          << stored.id;
    }
  }
}

TEST_F(SubscriptionStoreTest, SaysWhichSubscriptionThereIsNot) {
  const absl::Status status = store_->Get(123456789).status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("123456789")));
  EXPECT_THAT(status,
              HasReason(common::v1::ERROR_REASON_SUBSCRIPTION_NOT_FOUND));
  EXPECT_EQ(GetErrorInfo(status)->metadata["subscription_id"], "123456789");
  EXPECT_THAT(store_->Get(-1), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(SubscriptionStoreTest, AMissingProviderIdIsEmpty) {
  ASSERT_OK(control_->Exec(
      "UPDATE subscription SET provider_subscription_id = NULL"));
  ASSERT_OK_AND_ASSIGN(const auto all,
                       store_->ListOfSubject({.subject = "ann"}, 100));
  EXPECT_THAT(ProviderIds(all), ::testing::Each(""));
}

}  // namespace
}  // namespace tenure::store
