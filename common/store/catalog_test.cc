// The catalogue: from its file to the database and back.

#include <rapidcheck.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"
#include "common/db/migrator.h"
#include "common/store/catalog_file.h"
#include "common/store/catalog_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/barrier.h"
#include "tests/support/pg_cluster.h"
#include "tests/support/process.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace tenure::store {
namespace {

using ::tenure::test::Barrier;
using ::tenure::test::IsOk;
using ::tenure::test::IsOkAndHolds;
using ::tenure::test::Process;
using ::tenure::test::Session;
using ::tenure::test::StatusIs;
using ::tenure::test::TestDatabase;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kFull[] = R"(default_plan: free
plans:
  - name: free
    features:
      - {name: export, limit: 3}
  - name: pro
    features:
      - name: api
      - {name: export, limit: 100}
      - {name: seats, quantity: 5}
      - {name: beta, enabled: false}
    provider_products:
      - {route: stripe, product_id: price_month}
      - {route: stripe, product_id: price_quarter, term: {count: 3}}
      - {route: wechat, product_id: pro-30d, term: {unit: day, count: 30}}
    term: {unit: month, count: 1}
    billing_time_zone: Europe/Berlin
    release_time_zone: America/New_York
    grace_period: 72h
    refund_policy: keep_access
    dispute_policy: suspend
    charge_lead: 48h
    quotas:
      - {meter: tokens, amount: 1000000}
      - {meter: credits, amount: 10, schedule: first_of_month}
  - name: forever
    lifetime: true
    features:
      - name: api
)";

class CatalogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/catalog_test_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  // Writes catalog.yaml and returns its path.
  std::string File(absl::string_view yaml) const {
    const std::string path = directory_ + "/catalog.yaml";
    std::ofstream(path, std::ios::binary) << yaml;
    return path;
  }

  absl::StatusOr<catalog::v1::Catalog> Load(absl::string_view yaml) const {
    return LoadCatalogFile(File(yaml));
  }

  // The errors of a file, one a line, without the directory.
  std::string Errors(absl::string_view yaml) const {
    const auto catalog = Load(yaml);
    if (catalog.ok()) return "none";
    return absl::StrReplaceAll(catalog.status().message(),
                               {{directory_ + "/", ""}});
  }

  std::string directory_;
};

// -- The file ----------------------------------------------------------------

TEST_F(CatalogTest, AFileSaysEverythingAPlanCanHave) {
  ASSERT_OK_AND_ASSIGN(const catalog::v1::Catalog catalog, Load(kFull));
  const catalog::v1::Catalog normal = NormalizeCatalog(catalog);
  EXPECT_EQ(normal.default_plan(), "free");
  ASSERT_EQ(normal.plans_size(), 3);
  // In order of their names.
  EXPECT_EQ(normal.plans(0).name(), "forever");
  EXPECT_FALSE(normal.plans(0).has_term());
  const domain::Plan pro = ToDomain(normal.plans(2));
  EXPECT_EQ(pro.name, "pro");
  EXPECT_EQ(pro.term, (domain::Term{domain::CalendarUnit::kMonth, 1}));
  EXPECT_EQ(pro.billing_time_zone, "Europe/Berlin");
  EXPECT_EQ(pro.release_time_zone, "America/New_York");
  EXPECT_EQ(pro.policy.grace_period, absl::Hours(72));
  EXPECT_TRUE(pro.policy.refund_keeps_access);
  EXPECT_TRUE(pro.policy.dispute_suspends);
  EXPECT_EQ(pro.policy.charge_lead, absl::Hours(48));
  EXPECT_THAT(pro.quotas,
              ElementsAre(domain::QuotaRule{"credits", 10,
                                            domain::ReleaseDay::kFirstOfMonth},
                          domain::QuotaRule{"tokens", 1'000'000,
                                            domain::ReleaseDay::kAnniversary}));
  EXPECT_TRUE(ToDomain(normal.plans(0)).lifetime);
}

TEST_F(CatalogTest, AnUnsaidValueIsTheDefaultOfTheRules) {
  ASSERT_OK_AND_ASSIGN(const catalog::v1::Catalog catalog,
                       Load("plans: [{name: p, features: [{name: f}]}]"));
  const catalog::v1::Catalog normal = NormalizeCatalog(catalog);
  domain::Plan expected;
  expected.name = "p";
  EXPECT_EQ(ToDomain(normal.plans(0)), expected);
  EXPECT_TRUE(normal.plans(0).features(0).enabled());
  EXPECT_EQ(normal.plans(0).refund_policy(), catalog::v1::REFUND_POLICY_REVOKE);
  EXPECT_EQ(normal.plans(0).dispute_policy(),
            catalog::v1::DISPUTE_POLICY_KEEP_ACCESS);
}

TEST_F(CatalogTest, EveryErrorNamesItsLineAndItsKey) {
  const struct {
    const char* plan;
    const char* error;
  } cases[] = {
      {"- nmae: p", "2: plans[0].nmae: unknown key; did you mean name?"},
      {"- nmae: p", "2: plans[0].name: is required"},
      {"- name: \"\"", "2: plans[0].name: is required"},
      {"- name: \"a\\nb\"",
       "2: plans[0].name: must not contain control characters"},
      {"- name: p\n  - name: p", "3: plans[1].name: p is given twice"},
      {"- name: p\n    lifetime: yes",
       "3: plans[0].lifetime: must be true or false, found \"yes\""},
      {"- name: p\n    lifetime: \"true\"",
       "3: plans[0].lifetime: must be a true|false, found a quoted text"},
      {"- just text",
       "2: plans[0]: must be a mapping of settings, found a single value"},
      {"- name: p\n    features:\n      - name: a\n      - name: a",
       "5: plans[0].features[1].name: a is given twice"},
      {"- name: p\n    features:\n      - limit: 1",
       "4: plans[0].features[0].name: is required"},
      {"- name: p\n    features:\n      - name: a\n        limit: -1",
       "5: plans[0].features[0].limit: must not be negative"},
      {"- name: p\n    features:\n      - name: a\n        quantity: -1",
       "5: plans[0].features[0].quantity: must not be negative"},
      {"- name: p\n    features:\n      - name: a\n        quantity: 1.5",
       "5: plans[0].features[0].quantity: must be a whole number"},
      {"- name: p\n    features:\n      - name: a\n        limit: 1\n"
       "        enabled: true",
       "6: plans[0].features[0].enabled: cannot be given together with limit"},
      {"- name: p\n    features: a", "3: plans[0].features: must be a list"},
      {"- name: p\n    provider_products:\n      - route: r",
       "4: plans[0].provider_products[0].product_id: is required"},
      {"- name: p\n    provider_products:\n      - product_id: r",
       "4: plans[0].provider_products[0].route: is required"},
      {"- name: p\n    provider_products:\n"
       "      - {route: r, product_id: x}\n"
       "      - {route: r, product_id: x}",
       "5: plans[0].provider_products[1]: x of route r is given twice"},
      {"- name: p\n    provider_products:\n"
       "      - {route: r, product_id: x}\n"
       "  - name: q\n    provider_products:\n"
       "      - {route: r, product_id: x}",
       "7: plans[1].provider_products[0]: x of route r is given twice"},
      {"- name: p\n    provider_products:\n"
       "      - route: r\n        product_id: x\n        term:\n"
       "          count: 0",
       "7: plans[0].provider_products[0].term.count: must be from 1 to 1200"},
      {"- name: p\n    term:\n      unit: fortnight",
       "4: plans[0].term.unit: must be day or week or month or year, found "
       "\"fortnight\""},
      {"- name: p\n    term:\n      count: 0",
       "4: plans[0].term.count: must be from 1 to 1200"},
      {"- name: p\n    term:\n      count: -1",
       "4: plans[0].term.count: must be from 1 to 1200"},
      {"- name: p\n    term:\n      count: 1201",
       "4: plans[0].term.count: must be from 1 to 1200"},
      {"- name: p\n    term:\n      cuont: 1",
       "4: plans[0].term.cuont: unknown key; did you mean count?"},
      {"- name: p\n    billing_time_zone: Europe/Berln",
       "3: plans[0].billing_time_zone: must be the IANA name of a time zone, "
       "found \"Europe/Berln\""},
      {"- name: p\n    release_time_zone: \"\"",
       "3: plans[0].release_time_zone: must be the IANA name"},
      {"- name: p\n    grace_period: -1h",
       "3: plans[0].grace_period: must not be negative"},
      {"- name: p\n    charge_lead: -1s",
       "3: plans[0].charge_lead: must not be negative"},
      {"- name: p\n    charge_lead: 1000000h",
       "3: plans[0].charge_lead: must be at most"},
      {"- name: p\n    grace_period: 3",
       "3: plans[0].grace_period: must be a duration"},
      {"- name: p\n    refund_policy: keep",
       "3: plans[0].refund_policy: must be revoke or keep_access"},
      {"- name: p\n    dispute_policy: revoke",
       "3: plans[0].dispute_policy: must be keep_access or suspend"},
      {"- name: p\n    quotas:\n      - meter: m\n        amount: 0",
       "5: plans[0].quotas[0].amount: must be positive"},
      {"- name: p\n    quotas:\n      - meter: m",
       "4: plans[0].quotas[0].amount: must be positive"},
      {"- name: p\n    quotas:\n      - amount: 1",
       "4: plans[0].quotas[0].meter: is required"},
      {"- name: p\n    quotas:\n      - {meter: m, amount: 1}\n"
       "      - {meter: m, amount: 2}",
       "5: plans[0].quotas[1].meter: m is given twice"},
      {"- name: p\n    quotas:\n      - meter: m\n        amount: 1\n"
       "        schedule: daily",
       "6: plans[0].quotas[0].schedule: must be anniversary or "
       "first_of_month"},
      {"- name: p\n    lifetime: true\n    term:\n      count: 1",
       "4: plans[0].term: a lifetime plan has no term"},
      {"- name: p\n    lifetime: true\n    quotas:\n"
       "      - {meter: m, amount: 1}",
       "4: plans[0].quotas: a lifetime plan has no quotas: a monthly quota "
       "needs an end"},
      {"- name: p\n    lifetime: true\n    provider_products:\n"
       "      - {route: r, product_id: x, term: {count: 1}}",
       "5: plans[0].provider_products[0].term: a lifetime plan has no term"},
      {"- name: p\ndefault_plan: q",
       "3: default_plan: no plan of this catalogue has the name q"},
      {"- name: p\nplans: []", "3: plans: is set twice in the file"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(Errors(absl::StrCat("plans:\n  ", c.plan, "\n")),
                HasSubstr(absl::StrCat("\ncatalog.yaml:", c.error)));
  }
}

TEST_F(CatalogTest, AllErrorsOfAFileAreGivenAtOnceInOrderOfTheirLines) {
  EXPECT_EQ(Errors("default_plan: none\n"
                   "plans:\n"
                   "  - name: p\n"
                   "    term: {unit: century, count: 0}\n"
                   "    quotas:\n"
                   "      - meter: m\n"
                   "        amount: -5\n"
                   "    colour: red\n"
                   "  - name: p\n"
                   "    billing_time_zone: Mars\n"),
            "catalog.yaml has 7 errors:\n"
            "catalog.yaml:1: default_plan: no plan of this catalogue has the "
            "name none\n"
            "catalog.yaml:4: plans[0].term.unit: must be day or week or month "
            "or year, found \"century\"\n"
            "catalog.yaml:4: plans[0].term.count: must be from 1 to 1200\n"
            "catalog.yaml:7: plans[0].quotas[0].amount: must be positive\n"
            "catalog.yaml:8: plans[0].colour: unknown key\n"
            "catalog.yaml:9: plans[1].name: p is given twice\n"
            "catalog.yaml:10: plans[1].billing_time_zone: must be the IANA "
            "name of a time zone, found \"Mars\"");
  // A value that cannot be read is one error.
  EXPECT_EQ(Errors("plans:\n  - name: [p]\n"),
            "catalog.yaml has an error:\n"
            "catalog.yaml:2: plans[0].name: must be a text, found a list");
}

TEST_F(CatalogTest, AFileThatCannotBeReadIsOneError) {
  EXPECT_THAT(Errors("plans: [\n"),
              AllOf(HasSubstr("catalog.yaml:"), HasSubstr(": is not YAML: ")));
  EXPECT_EQ(Errors("a: 1\n---\nb: 2\n"),
            "catalog.yaml has an error:\n"
            "catalog.yaml: must hold one YAML document");
  const auto missing = LoadCatalogFile(directory_ + "/none.yaml");
  EXPECT_THAT(missing, StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("No such file")));
  EXPECT_EQ(Errors("plans: 5\n"),
            "catalog.yaml has an error:\n"
            "catalog.yaml:1: plans: must be a list, found a single value");
}

TEST_F(CatalogTest, TheCataloguesOfTheTreeAreFreeOfErrors) {
  for (const char* name : {"catalog.yaml", "catalog-example.yaml"}) {
    ASSERT_OK_AND_ASSIGN(
        const catalog::v1::Catalog catalog,
        LoadCatalogFile(absl::StrCat(TENURE_SOURCE_DIR, "/deploy/dev/", name)));
    EXPECT_GT(catalog.plans_size(), 0) << name;
  }
}

TEST_F(CatalogTest, AnEmptyFileIsACatalogueWithoutPlans) {
  for (const char* yaml : {"", "{}\n", "plans: []\n", "plans:\n"}) {
    ASSERT_OK_AND_ASSIGN(const catalog::v1::Catalog catalog, Load(yaml));
    EXPECT_EQ(catalog.plans_size(), 0);
    EXPECT_EQ(CatalogYaml(catalog), "{}\n");
  }
}

// -- The database ------------------------------------------------------------

class StoredCatalogTest : public CatalogTest {
 protected:
  void SetUp() override {
    CatalogTest::SetUp();
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    ASSERT_OK_AND_ASSIGN(control_, database_->OpenSession());
    db::PoolOptions options;
    options.connection.conninfo = database_->conninfo();
    pool_ = std::make_unique<db::Pool>(options);
  }
  void TearDown() override {
    pool_.reset();
    CatalogTest::TearDown();
  }

  absl::StatusOr<CatalogChanges> Apply(absl::string_view yaml) {
    ASSIGN_OR_RETURN(const catalog::v1::Catalog catalog, Load(yaml));
    return ApplyCatalog(*pool_, catalog);
  }

  // Stored revisions: "basic/1 pro/2".
  std::string Revisions() {
    const auto text = control_->Scalar(
        "SELECT coalesce(string_agg(name || '/' || revision, ' '"
        " ORDER BY name, revision), '') FROM plan");
    return text.ok() ? *text : text.status().ToString();
  }

  std::string ExportedYaml() {
    const auto catalog = ExportCatalog(*pool_);
    return catalog.ok() ? CatalogYaml(*catalog) : catalog.status().ToString();
  }

  // Runs a finder in a transaction of its own.
  template <typename Value, typename Find>
  absl::StatusOr<Value> InTransaction(Find find) {
    std::optional<Value> found;
    RETURN_IF_ERROR(
        pool_->RunTransaction([&](db::Transaction& tx) -> absl::Status {
          ASSIGN_OR_RETURN(found, find(tx));
          return absl::OkStatus();
        }));
    return *std::move(found);
  }
  absl::StatusOr<std::optional<domain::Plan>> Product(
      absl::string_view route, absl::string_view product) {
    return InTransaction<std::optional<domain::Plan>>([&](db::Transaction& tx) {
      return FindPlanOfProduct(tx, route, product);
    });
  }
  absl::StatusOr<std::optional<domain::Plan>> Named(absl::string_view name) {
    return InTransaction<std::optional<domain::Plan>>(
        [&](db::Transaction& tx) { return FindPlan(tx, name); });
  }

  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<Session> control_;
  std::unique_ptr<db::Pool> pool_;
};

TEST_F(StoredCatalogTest, AnExportAppliesToNoChange) {
  ASSERT_THAT(Apply(kFull), IsOk());
  const std::string exported = ExportedYaml();
  ASSERT_OK_AND_ASSIGN(const CatalogChanges again, Apply(exported));
  EXPECT_THAT(again.revised_plans, IsEmpty());
  EXPECT_THAT(again.differences, IsEmpty());
  EXPECT_EQ(again.changed_products, 0);
  EXPECT_FALSE(again.changed_default_plan);
  EXPECT_EQ(Revisions(), "forever/1 free/1 pro/1");
  EXPECT_EQ(ExportedYaml(), exported);
  // The file it came from means the same.
  ASSERT_OK_AND_ASSIGN(const CatalogChanges first, Apply(kFull));
  EXPECT_THAT(first.differences, IsEmpty());
}

TEST_F(StoredCatalogTest, FindsWhatAProductANameAndAnIdMean) {
  ASSERT_THAT(Apply(kFull), IsOk());
  ASSERT_OK_AND_ASSIGN(const std::optional<domain::Plan> pro, Named("pro"));
  ASSERT_TRUE(pro.has_value());
  EXPECT_EQ(pro->revision, 1);
  EXPECT_EQ(pro->policy.grace_period, absl::Hours(72));
  EXPECT_THAT(pro->quotas, ::testing::SizeIs(2));

  // The plan's own term, the product's, and nothing else of the plan differs.
  EXPECT_THAT(Product("stripe", "price_month"), IsOkAndHolds(pro));
  domain::Plan expected = *pro;
  expected.term = {domain::CalendarUnit::kMonth, 3};
  EXPECT_THAT(Product("stripe", "price_quarter"),
              IsOkAndHolds(std::optional(expected)));
  expected.term = {domain::CalendarUnit::kDay, 30};
  EXPECT_THAT(Product("wechat", "pro-30d"),
              IsOkAndHolds(std::optional(expected)));
  EXPECT_THAT(Product("wechat", "price_month"), IsOkAndHolds(std::nullopt));
  EXPECT_THAT(Named("PRO"), IsOkAndHolds(std::nullopt));

  // Plans that are defined alike are still two.
  ASSERT_THAT(Apply("plans: [{name: twin}, {name: other}]"), IsOk());
  ASSERT_OK_AND_ASSIGN(const std::optional<domain::Plan> twin, Named("twin"));
  ASSERT_OK_AND_ASSIGN(const std::optional<domain::Plan> other, Named("other"));
  EXPECT_EQ(twin->name, "twin");
  EXPECT_EQ(other->name, "other");
  EXPECT_NE(twin->id, other->id);

  // A later revision is found by product and name, an earlier one by its id.
  ASSERT_THAT(Apply("plans: [{name: pro, grace_period: 1h}]"), IsOk());
  ASSERT_OK_AND_ASSIGN(const std::optional<domain::Plan> second,
                       Product("stripe", "price_month"));
  EXPECT_EQ(second->revision, 2);
  EXPECT_EQ(second->policy.grace_period, absl::Hours(1));
  EXPECT_NE(second->id, pro->id);
  EXPECT_THAT(InTransaction<domain::Plan>(
                  [&](db::Transaction& tx) { return LoadPlan(tx, pro->id); }),
              IsOkAndHolds(*pro));
  EXPECT_THAT(InTransaction<domain::Plan>(
                  [&](db::Transaction& tx) { return LoadPlan(tx, 999'999); }),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(StoredCatalogTest, R5_ARevisionRisesWithAnyChangeButThatOfAProduct) {
  const std::string plain = "name: p, features: [{name: f}]";
  ASSERT_THAT(Apply("plans: [{" + plain + "}]"), IsOk());
  int revision = 1;
  // Each is a change against the plain plan, and so is the way back.
  for (const char* change :
       {"name: p, features: [{name: f, limit: 1}]",
        "name: p, features: [{name: f, quantity: 1}]",
        "name: p, features: [{name: f, enabled: false}]",
        "name: p, features: [{name: f}, {name: g}]", "name: p",
        "name: p, features: [{name: f}], term: {count: 2}",
        "name: p, features: [{name: f}], term: {unit: year}",
        "name: p, features: [{name: f}], billing_time_zone: Asia/Tokyo",
        "name: p, features: [{name: f}], release_time_zone: Asia/Tokyo",
        "name: p, features: [{name: f}], grace_period: 1s",
        "name: p, features: [{name: f}], refund_policy: keep_access",
        "name: p, features: [{name: f}], dispute_policy: suspend",
        "name: p, features: [{name: f}], charge_lead: 25h",
        "name: p, features: [{name: f}], lifetime: true",
        "name: p, features: [{name: f}], quotas: [{meter: m, amount: 1}]"}) {
    SCOPED_TRACE(change);
    for (const std::string& plan : {std::string(change), plain}) {
      ASSERT_OK_AND_ASSIGN(const CatalogChanges changes,
                           Apply("plans: [{" + plan + "}]"));
      EXPECT_THAT(changes.revised_plans, ElementsAre("p"));
      EXPECT_TRUE(HasChanges(changes.differences));
      EXPECT_THAT(control_->Scalar("SELECT max(revision) FROM plan"),
                  IsOkAndHolds(absl::StrCat(++revision)));
    }
  }
  // None of these: the default said aloud, and products with their terms.
  for (const char* same :
       {"name: p, features: [{name: f, enabled: true}]",
        "name: p, features: [{name: f}], term: {unit: month, count: 1}",
        "name: p, features: [{name: f}], charge_lead: 1440m",
        "name: p, features: [{name: f}], billing_time_zone: UTC",
        "name: p, features: [{name: f}], quotas: []",
        "name: p, features: [{name: f}],"
        " provider_products: [{route: r, product_id: x}]",
        "name: p, features: [{name: f}],"
        " provider_products: [{route: r, product_id: x, term: {count: 6}}]"}) {
    ASSERT_OK_AND_ASSIGN(const CatalogChanges changes,
                         Apply(absl::StrCat("plans: [{", same, "}]")));
    EXPECT_THAT(changes.revised_plans, IsEmpty()) << same;
  }
  EXPECT_THAT(control_->Scalar("SELECT max(revision) FROM plan"),
              IsOkAndHolds(absl::StrCat(revision)));
  EXPECT_THAT(Product("r", "x"), IsOk());
}

TEST_F(StoredCatalogTest, OnlyGrantedFeaturesAreReadByDecisions) {
  ASSERT_THAT(Apply(kFull), IsOk());
  EXPECT_THAT(
      control_->Scalar(
          "SELECT string_agg(f.feature || coalesce(' limit ' || limit_value,"
          " '') || coalesce(' quantity ' || quantity_value, ''), ', '"
          " ORDER BY f.feature) FROM plan_feature f JOIN plan p"
          " ON p.id = f.plan_id WHERE p.name = 'pro'"),
      IsOkAndHolds("api, export limit 100, seats quantity 5"));
}

TEST_F(StoredCatalogTest, TheDefaultPlanIsSetKeptChangedAndTakenAway) {
  const auto stored = [&] {
    const auto name = control_->Scalar(
        "SELECT coalesce(max(plan_name), '-') FROM "
        "default_plan");
    return name.ok() ? *name : name.status().ToString();
  };
  ASSERT_OK_AND_ASSIGN(CatalogChanges changes,
                       Apply("default_plan: a\nplans: [{name: a}]"));
  EXPECT_TRUE(changes.changed_default_plan);
  EXPECT_EQ(stored(), "a");
  // Not named: stays, and is said to.
  ASSERT_OK_AND_ASSIGN(changes, Apply("plans: [{name: b}]"));
  EXPECT_FALSE(changes.changed_default_plan);
  EXPECT_EQ(FormatDifferences(changes.differences).substr(0, 44),
            "plan a: only in the database, stays\nplan b: ");
  EXPECT_THAT(FormatDifferences(changes.differences),
              HasSubstr("default_plan: only in the database, stays\n"));
  EXPECT_EQ(stored(), "a");
  ASSERT_OK_AND_ASSIGN(changes, Apply("default_plan: b\nplans: [{name: b}]"));
  EXPECT_TRUE(changes.changed_default_plan);
  EXPECT_THAT(FormatDifferences(changes.differences),
              HasSubstr("default_plan: a -> b\n"));
  EXPECT_EQ(stored(), "b");
  ASSERT_OK_AND_ASSIGN(changes, Apply("default_plan: \"\""));
  EXPECT_THAT(FormatDifferences(changes.differences),
              HasSubstr("default_plan: b -> (none)\n"));
  EXPECT_EQ(stored(), "-");
  ASSERT_OK_AND_ASSIGN(changes, Apply("default_plan: \"\""));
  EXPECT_FALSE(HasChanges(changes.differences));
}

TEST_F(StoredCatalogTest, ADryRunSaysAllAndWritesNothing) {
  ASSERT_THAT(Apply("plans: [{name: pro, features: [{name: api}]}]"), IsOk());
  const auto dump = [&] {
    return control_->Scalar(
        "SELECT (SELECT string_agg(p::text, ',' ORDER BY id) FROM plan p) ||"
        " coalesce((SELECT string_agg(f::text, ',' ORDER BY f::text)"
        " FROM plan_feature f), '') ||"
        " (SELECT count(*) FROM provider_product) ||"
        " (SELECT count(*) FROM default_plan)");
  };
  ASSERT_OK_AND_ASSIGN(const std::string before, dump());
  ASSERT_OK_AND_ASSIGN(const catalog::v1::Catalog catalog, Load(kFull));
  ASSERT_OK_AND_ASSIGN(const CatalogChanges dry,
                       ApplyCatalog(*pool_, catalog, ApplyMode::kDryRun));
  EXPECT_THAT(dump(), IsOkAndHolds(before));
  ASSERT_OK_AND_ASSIGN(const CatalogChanges wet, ApplyCatalog(*pool_, catalog));
  EXPECT_EQ(dry.revised_plans, wet.revised_plans);
  EXPECT_EQ(dry.changed_products, wet.changed_products);
  EXPECT_EQ(dry.changed_default_plan, wet.changed_default_plan);
  EXPECT_EQ(dry.differences, wet.differences);
  EXPECT_THAT(wet.revised_plans, ElementsAre("forever", "free", "pro"));
  EXPECT_EQ(wet.changed_products, 3);
  EXPECT_TRUE(wet.changed_default_plan);
}

TEST_F(StoredCatalogTest, C140_AnEventOfAnUnknownPlanWakesWhenTheNameAppears) {
  ASSERT_OK(control_->Exec(
      "INSERT INTO route (name, kind, environment)"
      " VALUES ('r', 'stripe', 'test');"
      "INSERT INTO provider_event (route_id, account, livemode,"
      "  external_event_id, event_type, body_sha256, occurred_at, status,"
      "  reason, next_attempt_at)"
      " SELECT id, '', false, e, 't', sha256('x'), now(), 'parked', e,"
      "  now() + interval '1 hour' FROM route,"
      "  unnest(ARRAY['unknown_plan', 'no_subject']) e"));
  const auto due = [&] {
    const auto text = control_->Scalar(
        "SELECT coalesce(string_agg(reason, ','), '') FROM provider_event"
        " WHERE next_attempt_at <= now()");
    return text.ok() ? *text : text.status().ToString();
  };
  // Nothing appears.
  ASSERT_THAT(Apply("plans: []"), IsOk());
  EXPECT_EQ(due(), "");
  ASSERT_THAT(Apply("plans: [{name: p}]"), IsOk());
  EXPECT_EQ(due(), "unknown_plan");

  // A revision of a known plan helps no event; a product of it does.
  ASSERT_OK(control_->Exec(
      "UPDATE provider_event SET next_attempt_at = now() + interval '1 hour'"));
  ASSERT_THAT(Apply("plans: [{name: p, grace_period: 1h}]"), IsOk());
  EXPECT_EQ(due(), "");
  ASSERT_THAT(Apply("plans: [{name: p, grace_period: 1h, provider_products: "
                    "[{route: r, product_id: x}]}]"),
              IsOk());
  EXPECT_EQ(due(), "unknown_plan");
}

TEST_F(StoredCatalogTest, OneApplyWaitsForAnotherAndSeesWhatItDid) {
  // A first apply is under way: it has the lock and has written its revision.
  ASSERT_OK_AND_ASSIGN(const auto first, database_->OpenSession());
  ASSERT_OK(
      first->Exec("BEGIN; LOCK TABLE plan IN SHARE ROW EXCLUSIVE MODE;"
                  "INSERT INTO plan (name, revision, definition)"
                  " VALUES ('p', 1, '{\"grace_period\": \"3600s\"}')"));
  std::thread second([&] {
    ASSERT_OK_AND_ASSIGN(
        const CatalogChanges changes,
        ApplyCatalog(*pool_, *LoadCatalogFile(File(
                                 "plans: [{name: p, grace_period: 2h}]"))));
    EXPECT_THAT(changes.revised_plans, ElementsAre("p"));
    EXPECT_THAT(FormatDifferences(changes.differences),
                HasSubstr("grace_period: 1h -> 2h"));
  });
  EXPECT_OK(
      control_->AwaitTrue("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted"
                          " AND relation = 'plan'::regclass"));
  EXPECT_OK(first->Exec("COMMIT"));
  second.join();
  EXPECT_EQ(Revisions(), "p/1 p/2");
}

TEST_F(StoredCatalogTest, TwoAppliesAtOnceMakeEachRevisionOnce) {
  constexpr int kThreads = 4;
  ASSERT_OK_AND_ASSIGN(const catalog::v1::Catalog catalog, Load(kFull));
  Barrier barrier(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      EXPECT_TRUE(barrier.ArriveAndWait());
      EXPECT_THAT(ApplyCatalog(*pool_, catalog), IsOk());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Revisions(), "forever/1 free/1 pro/1");
}

TEST(CatalogMigration, PlansFromBeforeKeepTheirFeaturesAndGetTheDefaults) {
  ASSERT_OK_AND_ASSIGN(const test::PgCluster* cluster, test::PgCluster::Get());
  const std::string name = absl::StrCat("before_catalog_", ::getpid());
  ASSERT_OK(test::ExecOnce(cluster->Conninfo("postgres"),
                           absl::StrCat("CREATE DATABASE ", name,
                                        " TEMPLATE template0 ENCODING 'UTF8'"
                                        " LC_COLLATE 'C' LC_CTYPE 'C'")));
  db::PoolOptions options;
  options.connection.conninfo = cluster->Conninfo(name);
  {
    ASSERT_OK_AND_ASSIGN(const auto connection,
                         db::Connection::Open(options.connection));
    ASSERT_OK(db::MigrateUp(*connection, db::KnownMigrations().first(1)));
    ASSERT_OK(test::ExecOnce(
        options.connection.conninfo,
        "INSERT INTO plan (name, revision) VALUES ('p', 1), ('p', 2);"
        "INSERT INTO plan_feature SELECT id, 'f' || revision FROM plan;"
        "INSERT INTO provider_product VALUES ('r', 'x', 'p')"));
    ASSERT_OK(db::MigrateUp(*connection));
    db::Pool pool(options);
    ASSERT_OK_AND_ASSIGN(const catalog::v1::Catalog catalog,
                         ExportCatalog(pool));
    catalog::v1::Catalog expected;
    catalog::v1::Plan& plan = *expected.add_plans();
    plan.set_name("p");
    plan.add_features()->set_name("f2");
    plan.add_provider_products()->set_route("r");
    plan.mutable_provider_products(0)->set_product_id("x");
    EXPECT_EQ(catalog.DebugString(), NormalizeCatalog(expected).DebugString());
    ASSERT_OK_AND_ASSIGN(const CatalogChanges changes,
                         ApplyCatalog(pool, catalog));
    EXPECT_THAT(changes.differences, IsEmpty());
  }
  EXPECT_OK(
      test::ExecOnce(cluster->Conninfo("postgres"),
                     absl::StrCat("DROP DATABASE ", name, " WITH (FORCE)")));
}

// The statements of the binary before, word for word.
TEST_F(StoredCatalogTest, TheStatementsOfThePreviousBinaryStillWork) {
  ASSERT_OK(control_->Exec("INSERT INTO plan (name, revision) VALUES ($1, $2)",
                           {"old", "1"}));
  ASSERT_OK(
      control_->Exec("INSERT INTO plan_feature (plan_id, feature)"
                     " SELECT id, unnest($1::text[]) FROM plan",
                     {"{b,a}"}));
  ASSERT_OK(control_->Exec(
      "INSERT INTO provider_product (route_name, product_id, plan_name)"
      " VALUES ($1, $2, $3)"
      " ON CONFLICT (route_name, product_id) DO UPDATE"
      " SET plan_name = excluded.plan_name"
      " WHERE provider_product.plan_name <> excluded.plan_name",
      {"r", "x", "old"}));

  // Such a revision has its features and is otherwise the default.
  domain::Plan expected;
  expected.name = "old";
  expected.revision = 1;
  ASSERT_OK_AND_ASSIGN(const std::optional<domain::Plan> found,
                       Product("r", "x"));
  ASSERT_TRUE(found.has_value());
  expected.id = found->id;
  EXPECT_EQ(*found, expected);
  EXPECT_THAT(Named("old"), IsOkAndHolds(std::optional(expected)));

  // It is exported, applies to no change, and is revised like any other.
  const std::string exported = ExportedYaml();
  EXPECT_THAT(exported, AllOf(HasSubstr("name: \"old\""),
                              HasSubstr("- name: \"a\"\n        enabled: "
                                        "true\n      - name: \"b\"")));
  ASSERT_OK_AND_ASSIGN(const CatalogChanges none, Apply(exported));
  EXPECT_THAT(none.differences, IsEmpty());
  ASSERT_OK_AND_ASSIGN(
      const CatalogChanges same,
      Apply("plans: [{name: old, features: [{name: a}, {name: b}]}]"));
  EXPECT_THAT(same.revised_plans, IsEmpty());
  ASSERT_OK_AND_ASSIGN(
      const CatalogChanges changed,
      Apply("plans: [{name: old, features: [{name: a, limit: 1}, {name: "
            "b}]}]"));
  EXPECT_THAT(changed.revised_plans, ElementsAre("old"));

  // And what this binary wrote is still read by the previous one's statement.
  EXPECT_THAT(control_->Scalar(
                  "SELECT p.name || '/' || p.revision FROM provider_product d"
                  "  JOIN plan p ON p.name = d.plan_name"
                  " WHERE d.route_name = 'r' AND d.product_id = 'x'"
                  " ORDER BY p.revision DESC LIMIT 1"),
              IsOkAndHolds("old/2"));
}

TEST_F(StoredCatalogTest, ADefinitionOfANewerBinaryIsReadAsFarAsItIsKnown) {
  ASSERT_OK(control_->Exec(
      "INSERT INTO plan (name, revision, definition) VALUES ('p', 1,"
      " '{\"grace_period\": \"60s\", \"colour\": {\"of\": \"tomorrow\"}}');"
      "INSERT INTO plan (name, revision, definition) VALUES ('q', 1,"
      " '{\"grace_period\": 60}')"));
  ASSERT_OK_AND_ASSIGN(const std::optional<domain::Plan> plan, Named("p"));
  EXPECT_EQ(plan->policy.grace_period, absl::Seconds(60));
  // Never a guess.
  EXPECT_THAT(Named("q"), StatusIs(absl::StatusCode::kInternal));
}

// -- Properties --------------------------------------------------------------

template <typename T>
T OneOf(std::initializer_list<T> values) {
  return *rc::gen::elementOf(std::vector<T>(values));
}

bool Maybe() { return *rc::gen::arbitrary<bool>(); }

// Names that are hard to write down.
std::string AnyName() {
  return OneOf<std::string>(
      {"a",        "b",           "c",  "pro",  "a.b",
       "a[0]",     "a: b",        "#",  "- x",  "\"q\"",
       "\\",       "'",           "ü",  "套餐", "true",
       "null",     "1",           "~",  " ",    "a ",
       "{}",       "%",           "&x", "*",    "\xe2\x80\xa8",
       "\xc2\x85", "\xef\xbb\xbf"});
}

google::protobuf::Duration AnySpan() {
  return ToProto(OneOf<absl::Duration>(
      {absl::ZeroDuration(), absl::Nanoseconds(1), absl::Milliseconds(1500),
       absl::Hours(24), absl::Hours(72), absl::Hours(24 * 3660)}));
}

catalog::v1::Term AnyTerm() {
  catalog::v1::Term term;
  term.set_unit(static_cast<catalog::v1::TermUnit>(*rc::gen::inRange(0, 5)));
  if (Maybe()) term.set_count(OneOf({1, 2, 12, 1200}));
  return term;
}

catalog::v1::Plan AnyPlan(const std::string& name, bool* product_used) {
  catalog::v1::Plan plan;
  plan.set_name(name);
  std::set<std::string> names;
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) names.insert(AnyName());
  for (const std::string& feature_name : names) {
    catalog::v1::Feature& feature = *plan.add_features();
    feature.set_name(feature_name);
    switch (*rc::gen::inRange(0, 4)) {
      case 1:
        feature.set_enabled(Maybe());
        break;
      case 2:
        feature.set_limit(OneOf<int64_t>({0, 1, INT64_MAX}));
        break;
      case 3:
        feature.set_quantity(OneOf<int64_t>({0, 7, INT64_MAX}));
        break;
    }
  }
  plan.set_lifetime(*rc::gen::inRange(0, 4) == 0);
  if (!plan.lifetime() && Maybe()) *plan.mutable_term() = AnyTerm();
  if (Maybe()) {
    plan.set_billing_time_zone(
        OneOf<std::string>({"UTC", "Europe/Berlin", "Asia/Kathmandu"}));
  }
  if (Maybe()) plan.set_release_time_zone("Asia/Shanghai");
  if (Maybe()) *plan.mutable_grace_period() = AnySpan();
  if (Maybe()) *plan.mutable_charge_lead() = AnySpan();
  plan.set_refund_policy(
      static_cast<catalog::v1::RefundPolicy>(*rc::gen::inRange(0, 3)));
  plan.set_dispute_policy(
      static_cast<catalog::v1::DisputePolicy>(*rc::gen::inRange(0, 3)));
  names.clear();
  if (!plan.lifetime()) {
    for (int i = *rc::gen::inRange(0, 3); i > 0; --i) names.insert(AnyName());
  }
  for (const std::string& meter : names) {
    catalog::v1::Quota& quota = *plan.add_quotas();
    quota.set_meter(meter);
    quota.set_amount(OneOf<int64_t>({1, 1000, INT64_MAX}));
    quota.set_schedule(
        static_cast<catalog::v1::QuotaSchedule>(*rc::gen::inRange(0, 3)));
  }
  if (!*product_used && Maybe()) {
    *product_used = true;
    catalog::v1::ProviderProduct& product = *plan.add_provider_products();
    product.set_route("r");
    product.set_product_id("moves");
    if (!plan.lifetime() && Maybe()) *product.mutable_term() = AnyTerm();
  }
  catalog::v1::ProviderProduct& own = *plan.add_provider_products();
  own.set_route(name);
  own.set_product_id(AnyName());
  return plan;
}

catalog::v1::Catalog AnyCatalog() {
  catalog::v1::Catalog catalog;
  bool product_used = false;
  std::set<std::string> names;
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) names.insert(AnyName());
  for (const std::string& name : names) {
    *catalog.add_plans() = AnyPlan(name, &product_used);
    if (Maybe()) catalog.set_default_plan(name);
  }
  if (names.empty() && Maybe()) catalog.set_default_plan("");
  return catalog;
}

// What is stored after `wanted` was applied to `stored`, said again.
catalog::v1::Catalog Merge(const catalog::v1::Catalog& stored,
                           const catalog::v1::Catalog& wanted) {
  std::map<std::string, catalog::v1::Plan> plans;
  using Product = std::pair<std::string, std::string>;
  std::map<Product, std::pair<std::string, catalog::v1::ProviderProduct>>
      products;
  for (const auto* side : {&stored, &wanted}) {
    for (catalog::v1::Plan plan : side->plans()) {
      for (const auto& product : plan.provider_products()) {
        products[{product.route(), product.product_id()}] = {plan.name(),
                                                             product};
      }
      plan.clear_provider_products();
      plans[plan.name()] = plan;
    }
  }
  for (const auto& [key, product] : products) {
    *plans[product.first].add_provider_products() = product.second;
  }
  catalog::v1::Catalog merged;
  for (const auto& [name, plan] : plans) *merged.add_plans() = plan;
  merged.set_default_plan(wanted.has_default_plan() ? wanted.default_plan()
                                                    : stored.default_plan());
  if (merged.default_plan().empty()) merged.clear_default_plan();
  return NormalizeCatalog(merged);
}

std::string Text(const catalog::v1::Catalog& catalog) {
  return catalog.DebugString();
}

TEST_F(StoredCatalogTest, WhatWasAppliedIsExportedInNormalForm) {
  EXPECT_TRUE(rc::check("export == merge of what was applied", [&] {
    RC_ASSERT(control_
                  ->Exec("TRUNCATE plan, plan_feature, provider_product,"
                         " default_plan CASCADE")
                  .ok());
    catalog::v1::Catalog expected;
    for (int step = 0; step < 2; ++step) {
      const catalog::v1::Catalog catalog = AnyCatalog();
      RC_ASSERT(FindCatalogErrors(catalog).empty());
      const auto changes = ApplyCatalog(*pool_, catalog);
      RC_ASSERT(changes.ok());
      const catalog::v1::Catalog before = expected;
      expected = Merge(before, catalog);
      // Something is said to change exactly when it does.
      RC_ASSERT(HasChanges(changes->differences) ==
                (Text(before) != Text(expected)));
      const auto exported = ExportCatalog(*pool_);
      RC_ASSERT(exported.ok());
      RC_ASSERT(Text(*exported) == Text(expected));
      // By its file, too.
      const auto read = LoadCatalogFile(File(CatalogYaml(*exported)));
      RC_ASSERT(read.ok());
      RC_ASSERT(Text(NormalizeCatalog(*read)) == Text(expected));
      const auto again = ApplyCatalog(*pool_, *read);
      RC_ASSERT(again.ok());
      RC_ASSERT(again->differences.empty());
      RC_ASSERT(again->revised_plans.empty());
    }
  }));
}

// -- The command -------------------------------------------------------------

class CatalogCommandTest : public StoredCatalogTest {
 protected:
  struct Outcome {
    int code = -1;
    std::string output;
  };

  Outcome Run(std::vector<std::string> args) {
    Outcome outcome;
    test::ProcessOptions options;
    options.args = {"catalog"};
    for (std::string& arg : args) options.args.push_back(std::move(arg));
    options.args.push_back("--conninfo=" + database_->conninfo());
    const auto process = Process::Start(TENURECTL_PATH, std::move(options));
    if (!process.ok()) return {-1, process.status().ToString()};
    const auto exit = (*process)->Wait();
    if (exit.ok()) outcome.code = exit->code;
    outcome.output =
        absl::StrReplaceAll((*process)->Output(), {{directory_ + "/", ""}});
    return outcome;
  }
};

TEST_F(CatalogCommandTest, DiffExitsWithZeroForSameOneForDifferentTwoForError) {
  const std::string path = File(
      "plans:\n  - name: pro\n    features: [{name: api}]\n"
      "    provider_products: [{route: stripe, product_id: price_1}]\n");
  Outcome outcome = Run({"diff", path});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("plan pro: new\n"),
                    HasSubstr("product stripe/price_1: (none) -> plan pro\n")));
  EXPECT_EQ(Revisions(), "");

  outcome = Run({"apply", path});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.output,
            "1 plans read; revised: pro; provider products changed: 1\n");
  outcome = Run({"diff", path});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.output, "");

  File(
      "plans:\n  - name: pro\n    features: [{name: api, limit: 5}]\n"
      "    grace_period: 72h\n    term: {unit: year}\n"
      "    provider_products: [{route: stripe, product_id: price_1,"
      " term: {count: 3}}]\n  - name: extra\n");
  outcome = Run({"diff", path});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("plan extra: new\n"),
                    HasSubstr("plan pro:\n"
                              "  features.api.enabled: true -> (none)\n"
                              "  features.api.limit: (none) -> 5\n"
                              "  grace_period: 0 -> 72h\n"
                              "  term.unit: month -> year\n"
                              "product stripe/price_1: plan pro -> plan pro, "
                              "3 month\n")));
  outcome = Run({"apply", path, "--dry-run"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(
      outcome.output,
      AllOf(HasSubstr("  term.unit: month -> year\n"),
            HasSubstr("2 plans read; revised: extra, pro; provider products "
                      "changed: 1 (dry run: nothing was written)\n")));
  EXPECT_EQ(Revisions(), "pro/1");

  // What the file does not name stays and is no difference.
  File("plans: []\n");
  outcome = Run({"diff", path});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.output,
            "plan pro: only in the database, stays\n"
            "product stripe/price_1: only in the database, stays\n");

  File("plans:\n  - name: pro\n    terms: 1\n");
  for (const char* verb : {"diff", "apply"}) {
    outcome = Run({verb, path});
    EXPECT_EQ(outcome.code, verb == std::string("diff") ? 2 : 1);
    EXPECT_EQ(outcome.output,
              "tenurectl: catalog.yaml has an error:\ncatalog.yaml:3: "
              "plans[0].terms: unknown key; did you mean term?\n");
  }
  EXPECT_EQ(Run({"diff", directory_ + "/none.yaml"}).code, 2);
  EXPECT_EQ(Run({"diff"}).code, 2);
}

TEST_F(CatalogCommandTest, AnExportIsAFileThatAppliesToNoChange) {
  const std::string path = File(kFull);
  ASSERT_EQ(Run({"apply", path}).code, 0);
  const Outcome exported = Run({"export"});
  ASSERT_EQ(exported.code, 0) << exported.output;
  File(exported.output);
  EXPECT_EQ(Run({"diff", path}).code, 0);
  EXPECT_EQ(Run({"diff", path}).output, "");
  EXPECT_EQ(Run({"apply", path}).output,
            "3 plans read; revised: none; provider products changed: 0\n");
  EXPECT_EQ(Run({"export"}).output, exported.output);
}

}  // namespace
}  // namespace tenure::store
