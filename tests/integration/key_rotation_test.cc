// Signing keys that are exchanged while webhook-ingest runs: the routes alone,
// and the process.
#include <signal.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/proto_time.h"
#include "common/obs/metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/host/routes.h"
#include "tests/integration/cluster.h"
#include "tests/integration/stripe_event.h"
#include "tests/support/http_client.h"
#include "tests/support/session.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace tenure::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kOld[] = "whsec_the_key_that_was";
constexpr char kNew[] = "whsec_the_key_that_will_be";
constexpr char kNewer[] = "whsec_the_key_after_that";
constexpr char kBody[] = R"({"id":"evt_1","object":"event"})";

class Directory {
 public:
  Directory() {
    char pattern[] = "/tmp/tenure-keys.XXXXXX";
    path_ = ::mkdtemp(pattern);
  }
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string File(absl::string_view name) const {
    return absl::StrCat(path_, "/", name);
  }

 private:
  std::string path_;
};

// The header of a delivery of kBody, signed with each of `keys`.
providers::Delivery Signed(const std::vector<std::string>& keys) {
  std::string header;
  for (const std::string& key : keys) {
    const std::string one =
        StripeSignature(key, kBody, SystemClock::Instance().Now());
    absl::StrAppend(&header, header.empty() ? one : one.substr(one.find(',')));
  }
  providers::Delivery delivery;
  delivery.headers = {{"Stripe-Signature", header}};
  delivery.body = kBody;
  return delivery;
}

auto IsRefused() { return StatusIs(absl::StatusCode::kUnauthenticated); }

class RouteKeys : public ::testing::Test {
 protected:
  config::v1::RouteConfig& AddRoute(const std::string& name,
                                    const std::vector<std::string>& files,
                                    const std::string& type = "stripe") {
    config::v1::RouteConfig& route = *routes_.add_routes();
    route.set_name(name);
    route.set_type(type);
    route.set_environment(config::v1::ENVIRONMENT_LIVE);
    for (const std::string& file : files) {
      route.add_secret_files(directory_.File(file));
    }
    return route;
  }

  void Write(const std::string& file, absl::string_view text) {
    ASSERT_OK(WriteFile(directory_.File(file), text));
  }

  absl::StatusOr<host::Routes> Make() {
    return host::Routes::Make(routes_.routes(), absl::Minutes(5), registry_);
  }

  // The name of the key that vouches for a delivery to a route.
  static absl::StatusOr<std::string> Verify(
      const host::Routes& routes, const std::vector<std::string>& keys,
      const std::string& route = "stripe") {
    return routes.Find(route)->adapter()->Verify(Signed(keys),
                                                 SystemClock::Instance().Now());
  }

  // Both looks that a change needs.
  static void Reload(host::Routes& routes) {
    routes.ReloadKeys();
    EXPECT_FALSE(routes.ReloadKeys());
  }

  double Reloads(const std::string& outcome,
                 const std::string& route = "stripe") {
    return registry_
        .Counter("secret_reloads_total",
                 "looks at the secret files of a route after the start, by "
                 "what came of them",
                 {{"route", route}, {"outcome", outcome}})
        .Value();
  }

  Directory directory_;
  config::v1::WebhookIngestConfig routes_;
  obs::Registry registry_{"webhook-ingest"};
};

TEST_F(RouteKeys, C022_S04_BothKeysCountWhileTheyRotateAndTheNewOneAloneAfter) {
  Write("current", kNew);
  Write("previous", kOld);
  AddRoute("stripe", {"current", "previous"});
  ASSERT_OK_AND_ASSIGN(host::Routes routes, Make());

  EXPECT_THAT(Verify(routes, {kOld}), IsOkAndHolds("previous"));
  EXPECT_THAT(Verify(routes, {kNew}), IsOkAndHolds("current"));
  EXPECT_THAT(Verify(routes, {kOld, kNew}), IsOkAndHolds("current"));
  EXPECT_THAT(Verify(routes, {kNewer}), IsRefused());

  // Retired by the text of its file; the list of files is the same.
  Write("previous", kNew);
  Reload(routes);

  EXPECT_THAT(Verify(routes, {kOld}), IsRefused());
  EXPECT_THAT(Verify(routes, {kOld, kOld}), IsRefused());
  EXPECT_THAT(Verify(routes, {kOld, kNew}), IsOkAndHolds("current"));
  EXPECT_EQ(Reloads("replaced"), 1);
}

TEST_F(RouteKeys, S04_ADeliveryKeepsTheKeysItBeganWith) {
  Write("key", kOld);
  AddRoute("stripe", {"key"});
  ASSERT_OK_AND_ASSIGN(host::Routes routes, Make());
  const auto under_way = routes.Find("stripe")->adapter();

  Write("key", kNew);
  Reload(routes);

  EXPECT_THAT(under_way->Verify(Signed({kOld}), SystemClock::Instance().Now()),
              IsOkAndHolds("key"));
  EXPECT_THAT(Verify(routes, {kOld}), IsRefused());
  EXPECT_THAT(Verify(routes, {kNew}), IsOkAndHolds("key"));
}

TEST_F(RouteKeys, F32_AFileThatCannotBeUsedChangesNothing) {
  Write("key", kOld);
  Write("other", kNewer);
  AddRoute("stripe", {"key"});
  AddRoute("stripe-eu", {"other"});
  ASSERT_OK_AND_ASSIGN(host::Routes routes, Make());
  const std::string file = directory_.File("key");

  double failed = 0;
  const std::vector<std::pair<std::string, std::function<void()>>> kBroken = {
      {"empty", [&] { Write("key", ""); }},
      {"an empty line", [&] { Write("key", "\n"); }},
      {"a NUL", [&] { Write("key", absl::string_view("whsec_\0x", 8)); }},
      {"too long", [&] { Write("key", std::string(100'000, 'x')); }},
      {"missing", [&] { std::filesystem::remove(file); }},
      {"a folder", [&] { std::filesystem::create_directory(file); }}};
  for (const auto& [what, breaks] : kBroken) {
    SCOPED_TRACE(what);
    breaks();
    Reload(routes);
    EXPECT_THAT(Verify(routes, {kOld}), IsOkAndHolds("key"));
    EXPECT_EQ(Reloads("failed"), failed += 2);
    EXPECT_EQ(Reloads("failed", "stripe-eu"), 0);
  }
  EXPECT_EQ(Reloads("replaced"), 0);

  // A neighbour's keys are exchanged all the same, and so are its own once the
  // file is good again.
  Write("other", kNew);
  Reload(routes);
  EXPECT_THAT(Verify(routes, {kNew}, "stripe-eu"), IsOkAndHolds("other"));
  std::filesystem::remove(file);
  Write("key", kNew);
  Reload(routes);
  EXPECT_THAT(Verify(routes, {kNew}), IsOkAndHolds("key"));
  EXPECT_THAT(Verify(routes, {kOld}), IsRefused());
}

TEST_F(RouteKeys, F32_OfTwoFilesOneBrokenKeepsBothKeys) {
  Write("current", kNew);
  Write("previous", kOld);
  AddRoute("stripe", {"current", "previous"});
  ASSERT_OK_AND_ASSIGN(host::Routes routes, Make());

  Write("current", kNewer);
  Write("previous", "");
  Reload(routes);

  EXPECT_THAT(Verify(routes, {kNew}), IsOkAndHolds("current"));
  EXPECT_THAT(Verify(routes, {kOld}), IsOkAndHolds("previous"));
  EXPECT_THAT(Verify(routes, {kNewer}), IsRefused());
}

TEST_F(RouteKeys, F32_AFileCaughtHalfWrittenIsNoKey) {
  Write("key", kOld);
  AddRoute("stripe", {"key"});
  ASSERT_OK_AND_ASSIGN(host::Routes routes, Make());

  const std::string half = std::string(kNew).substr(0, 9);
  Write("key", half);
  EXPECT_TRUE(routes.ReloadKeys());
  Write("key", kNew);
  EXPECT_TRUE(routes.ReloadKeys());
  EXPECT_THAT(Verify(routes, {half}), IsRefused());
  EXPECT_THAT(Verify(routes, {kOld}), IsOkAndHolds("key"));

  EXPECT_FALSE(routes.ReloadKeys());
  EXPECT_THAT(Verify(routes, {kNew}), IsOkAndHolds("key"));
  EXPECT_FALSE(routes.ReloadKeys());
  EXPECT_EQ(Reloads("replaced"), 1);
  EXPECT_EQ(Reloads("unchanged"), 1);
}

TEST_F(RouteKeys, S04_DeliveriesBesideReloadsAlwaysFindAKey) {
  Write("key", kOld);
  AddRoute("stripe", {"key"});
  ASSERT_OK_AND_ASSIGN(host::Routes routes, Make());
  const providers::Delivery both = Signed({kOld, kNew});
  const absl::Time now = SystemClock::Instance().Now();
  std::atomic<bool> stop{false};
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        const host::ConfiguredRoute* route = routes.Find("stripe");
        const auto key = route->adapter()->Verify(both, now);
        if (!key.ok()) {
          ++refused;
        } else {
          route->NoteKeyUse(*key, now);
        }
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    Write("key", i % 2 == 0 ? kNew : kOld);
    Reload(routes);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(refused, 0);
  EXPECT_EQ(Reloads("replaced"), 50);
}

TEST_F(RouteKeys, R12_WithoutKeysNothingVerifiesAndNoFileIsOpened) {
  AddRoute("stripe", {"no-such-file"});
  AddRoute("hooks", {}, "standard_webhooks");
  ASSERT_OK_AND_ASSIGN(const host::Routes routes,
                       host::Routes::MakeWithoutKeys(routes_.routes()));

  EXPECT_THAT(Verify(routes, {kOld}), IsRefused());
  EXPECT_THAT(Verify(routes, {""}), IsRefused());
  EXPECT_THAT(routes.Find("hooks")->adapter()->Verify(
                  Signed({kOld}), SystemClock::Instance().Now()),
              IsRefused());
  EXPECT_THAT(
      routes.Find("stripe")->adapter()->Parse(
          R"({"id":"evt_1","type":"x","created":1,"data":{"object":{}}})"),
      IsOk());
}

TEST_F(RouteKeys, C023_AConfigurationWithoutUsableKeysIsRefused) {
  const auto refuses = [this](const std::string& what) {
    EXPECT_THAT(std::string(Make().status().message()), HasSubstr(what));
    routes_.Clear();
  };
  AddRoute("stripe", {});
  refuses("routes: stripe: secret_files: at least one is needed");

  std::filesystem::create_directory(directory_.File("a"));
  std::filesystem::create_directory(directory_.File("b"));
  Write("a/key", kOld);
  Write("b/key", kNew);
  AddRoute("stripe", {"a/key", "b/key"});
  refuses("routes: stripe: secret_files: two files are called 'key'");

  AddRoute("stripe", {"missing"});
  refuses(directory_.File("missing"));

  Write("short", "whsec_c2hvcnQ=");
  AddRoute("hooks", {"short"}, "standard_webhooks");
  refuses("routes: hooks: ");

  AddRoute("pay", {"a/key"}, "paypal");
  refuses("known are: stripe, standard_webhooks");

  // The same name in two routes is two keys.
  AddRoute("stripe", {"a/key"});
  AddRoute("stripe-eu", {"b/key"});
  EXPECT_THAT(Make(), IsOk());
}

TEST_F(RouteKeys, ARouteIsStoredWithItsOwnType) {
  ASSERT_OK_AND_ASSIGN(const auto database, TestDatabase::Create());
  ASSERT_OK_AND_ASSIGN(const auto session, database->OpenSession());
  db::PoolOptions options;
  options.connection.conninfo = database->conninfo();
  db::Pool pool(options);
  AddRoute("stripe", {});
  AddRoute("hooks", {}, "standard_webhooks");
  ASSERT_OK_AND_ASSIGN(host::Routes routes,
                       host::Routes::MakeWithoutKeys(routes_.routes()));
  ASSERT_OK(routes.Register(pool));

  EXPECT_THAT(session->Scalar("SELECT string_agg(name || '/' || kind, ' ' "
                              "ORDER BY name) FROM route"),
              IsOkAndHolds("hooks/standard_webhooks stripe/stripe"));
  // Its facts were read by another adapter.
  routes_.mutable_routes(1)->set_type("stripe");
  ASSERT_OK_AND_ASSIGN(host::Routes changed,
                       host::Routes::MakeWithoutKeys(routes_.routes()));
  EXPECT_THAT(changed.Register(pool),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

// A running process whose files are links into a folder that is exchanged as a
// whole, as Kubernetes does it.
class KeyRotation : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    ASSERT_OK_AND_ASSIGN(cluster_, Cluster::Make(database_->conninfo()));
    for (const char* name : {"current", "previous"}) {
      std::filesystem::create_symlink(absl::StrCat("..data/", name),
                                      directory_.File(name));
    }
    SwapIn(kOld, kOld);
    ASSERT_OK(
        WriteFile(absl::StrCat(cluster_->directory(), "/webhook-ingest.yaml"),
                  absl::StrCat("environment: test\nroutes:\n  - name: stripe\n"
                               "    type: stripe\n    environment: test\n"
                               "    secret_files: [",
                               directory_.File("current"), ", ",
                               directory_.File("previous"), "]\n")));
  }

  void SwapIn(const std::string& current, const std::string& previous) {
    const std::string version = absl::StrCat("..", ++version_);
    std::filesystem::create_directory(directory_.File(version));
    ASSERT_OK(WriteFile(directory_.File(version + "/current"), current));
    ASSERT_OK(WriteFile(directory_.File(version + "/previous"), previous));
    std::filesystem::create_symlink(version, directory_.File("..tmp"));
    std::filesystem::rename(directory_.File("..tmp"),
                            directory_.File("..data"));
  }

  // The HTTP status of an event that nobody has seen, signed with `keys`.
  int Post(const std::vector<std::string>& keys) {
    const absl::Time now = SystemClock::Instance().Now();
    const int64_t seconds = absl::ToUnixSeconds(now);
    const std::string body = InvoicePaidBody(absl::StrCat("r", ++event_),
                                             "user-1", seconds, seconds + 60);
    std::string header;
    for (const std::string& key : keys) {
      const std::string one = StripeSignature(key, body, now);
      absl::StrAppend(&header,
                      header.empty() ? one : one.substr(one.find(',')));
    }
    const auto reply = HttpPost(
        cluster_->Address("http"), "/v1/webhooks/stripe", body,
        {{"Content-Type", "application/json"}, {"Stripe-Signature", header}});
    EXPECT_OK(reply.status());
    return reply.ok() ? reply->status : 0;
  }

  // The value of a line of /metrics; -1 when there is none.
  double Metric(const std::string& series) {
    const auto reply = HttpGet(cluster_->Address("ingest_probes"), "/metrics");
    EXPECT_OK(reply.status());
    if (!reply.ok()) return -1;
    const std::string start =
        absl::StrCat("\ntenure_webhook_ingest_", series, " ");
    const size_t at = reply->body.find(start);
    return at == std::string::npos
               ? -1
               : std::stod(reply->body.substr(at + start.size()));
  }

  double LastUse(const std::string& key) {
    return Metric(absl::StrCat("signing_key_last_used_seconds{key=\"", key,
                               "\",route=\"stripe\"}"));
  }

  Directory directory_;
  int version_ = 0;
  int event_ = 0;
  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<Cluster> cluster_;
};

TEST_F(KeyRotation, S04_C022_ARunningProcessTakesTheNewKeyAndDropsTheOld) {
  // Only told, never by itself within this test.
  ASSERT_OK(cluster_->StartIngest({"--secret_check_period=1h"}));
  EXPECT_EQ(Post({kOld}), 200);
  EXPECT_EQ(Post({kNew}), 401);
  const double first_use = LastUse("current");
  EXPECT_NEAR(
      first_use,
      absl::ToDoubleSeconds(SystemClock::Instance().Now() - absl::UnixEpoch()),
      60);
  EXPECT_EQ(LastUse("previous"), 0);

  SwapIn(kNew, kOld);
  ASSERT_OK(cluster_->ingest().Signal(SIGHUP));
  ASSERT_OK(cluster_->ingest().AwaitLine("\"replaced\":\"current\"").status());
  EXPECT_EQ(Post({kNew}), 200);
  EXPECT_EQ(Post({kOld}), 200);
  EXPECT_EQ(Post({kOld, kNew}), 200);
  EXPECT_EQ(Post({kNewer}), 401);
  const double last_use = LastUse("previous");
  EXPECT_GE(last_use, first_use);

  SwapIn(kNew, kNew);
  ASSERT_OK(cluster_->ingest().Signal(SIGHUP));
  ASSERT_OK(cluster_->ingest().AwaitLine("\"replaced\":\"previous\"").status());
  EXPECT_EQ(Post({kOld}), 401);
  EXPECT_EQ(Post({kOld, kNew}), 200);
  // A refused delivery is no use of a key.
  EXPECT_EQ(LastUse("previous"), last_use);
  EXPECT_GE(LastUse("current"), last_use);

  ASSERT_OK_AND_ASSIGN(const ExitStatus status, cluster_->ingest().Stop());
  EXPECT_TRUE(status.ok());
  const std::string log = cluster_->ingest().Output();
  EXPECT_THAT(log, HasSubstr("\"keys\":\"current, previous\""));
  EXPECT_THAT(log, AllOf(Not(HasSubstr(kOld)), Not(HasSubstr(kNew))));
}

TEST_F(KeyRotation, F32_S04_FilesAreLookedAtWithoutASignalAndBrokenOnesAreNot) {
  ASSERT_OK(cluster_->StartIngest({"--secret_check_period=100ms"}));
  SwapIn(kNew, kOld);
  ASSERT_OK(cluster_->ingest().AwaitLine("\"replaced\":\"current\"").status());
  EXPECT_EQ(Post({kNew}), 200);

  SwapIn("", kOld);
  ASSERT_OK(
      cluster_->ingest().AwaitLine("signing keys cannot be read").status());
  EXPECT_THAT(cluster_->ingest().Output(),
              HasSubstr(directory_.File("current") + ": is empty"));
  EXPECT_GT(Metric("secret_reloads_total{outcome=\"failed\",route=\"stripe\"}"),
            0);
  EXPECT_EQ(Post({kNew}), 200);
  EXPECT_EQ(Post({kOld}), 200);

  SwapIn(kNewer, kNew);
  ASSERT_OK(cluster_->ingest()
                .AwaitLine("\"replaced\":\"current, previous\"")
                .status());
  EXPECT_EQ(Post({kNewer}), 200);
  EXPECT_EQ(Post({kNew}), 200);
  EXPECT_EQ(Post({kOld}), 401);
}

TEST_F(KeyRotation, SighupEndsNoService) {
  ASSERT_OK(cluster_->StartScheduler());
  ASSERT_OK(cluster_->scheduler().Signal(SIGHUP));
  ASSERT_OK(cluster_->scheduler().AwaitLine("nothing to read again").status());
  EXPECT_THAT(cluster_->scheduler().Stop(), IsOkAndHolds(ExitStatus{0, 0}));
}

}  // namespace
}  // namespace tenure::test
