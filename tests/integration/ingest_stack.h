#ifndef TENURE_TESTS_INTEGRATION_INGEST_STACK_H_
#define TENURE_TESTS_INTEGRATION_INGEST_STACK_H_

#include <unistd.h>

#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"
#include "common/db/pool.h"
#include "common/http/message.h"
#include "common/http/server.h"
#include "common/obs/metrics.h"
#include "common/store/inbox_store.h"
#include "gtest/gtest.h"
#include "services/host/routes.h"
#include "services/scheduler/retry_events.h"
#include "services/webhook-ingest/ingest_event.h"
#include "services/webhook-ingest/webhook_http.h"
#include "tenure/config/v1/config.pb.h"
#include "tests/integration/stripe_event.h"

namespace tenure::test {

// The classes of webhook-ingest and the scheduler's retry_events wired as their
// main()s wire them, without a listener, over a database of the test. Routes:
// "stripe" and "stripe-eu" (live), "stripe-sandbox" (test). Thread-safe as they
// are.
class IngestStack {
 public:
  static constexpr char kSecret[] = "whsec_a_secret_of_the_integration_tests";
  static constexpr size_t kMaxBodyBytes = 64 * 1024;

  struct Options {
    int pool_size = 8;
    absl::Duration lock_timeout = absl::Seconds(30);
    // Where the routes are registered, when not through `conninfo`.
    std::string registration_conninfo;
    // The live secrets of every route. Deliver signs with kSecret.
    std::vector<std::string> secrets = {kSecret};
    // The keys of a further route "house" of type standard_webhooks (live);
    // none, and there is no such route.
    std::vector<std::string> house_keys = {};
    // What signed timestamps are compared with.
    const Clock* clock = &SystemClock::Instance();
  };

  static absl::StatusOr<std::unique_ptr<IngestStack>> Make(
      const std::string& conninfo) {
    return Make(conninfo, Options());
  }

  static absl::StatusOr<std::unique_ptr<IngestStack>> Make(
      const std::string& conninfo, const Options& options) {
    std::vector<std::string> secret_files;
    for (const std::string& secret : options.secrets) {
      secret_files.push_back(absl::StrCat(::testing::TempDir(),
                                          "/ingest_secret_", ::getpid(), "_",
                                          secret_files.size()));
      std::ofstream(secret_files.back()) << secret << "\n";
    }
    config::v1::WebhookIngestConfig config;
    *config.mutable_signature_tolerance() = ToProto(absl::Minutes(5));
    for (const auto& [name, environment] :
         {std::pair("stripe", config::v1::ENVIRONMENT_LIVE),
          std::pair("stripe-eu", config::v1::ENVIRONMENT_LIVE),
          std::pair("stripe-sandbox", config::v1::ENVIRONMENT_TEST)}) {
      config::v1::RouteConfig& route = *config.add_routes();
      route.set_name(name);
      route.set_type("stripe");
      route.set_environment(environment);
      for (const std::string& file : secret_files) {
        route.add_secret_files(file);
      }
      *route.mutable_renewal_leeway() = ToProto(absl::ZeroDuration());
      route.set_subject_metadata_key("tenure_subject");
    }
    if (!options.house_keys.empty()) {
      config::v1::RouteConfig& route = *config.add_routes();
      route.set_name("house");
      route.set_type("standard_webhooks");
      route.set_environment(config::v1::ENVIRONMENT_LIVE);
      *route.mutable_renewal_leeway() = ToProto(absl::ZeroDuration());
      for (const std::string& key : options.house_keys) {
        secret_files.push_back(absl::StrCat(::testing::TempDir(),
                                            "/ingest_house_", ::getpid(), "_",
                                            secret_files.size()));
        std::ofstream(secret_files.back()) << key << "\n";
        route.add_secret_files(secret_files.back());
      }
    }
    auto registry = std::make_unique<obs::Registry>("webhook-ingest");
    absl::StatusOr<host::Routes> routes = host::Routes::Make(
        config.routes(), FromProto(config.signature_tolerance()), *registry);
    for (const std::string& file : secret_files) ::unlink(file.c_str());
    RETURN_IF_ERROR(routes.status());
    db::PoolOptions pool;
    pool.connection.conninfo = options.registration_conninfo.empty()
                                   ? conninfo
                                   : options.registration_conninfo;
    {
      db::Pool registration(pool);
      RETURN_IF_ERROR(routes->Register(registration));
    }
    pool.size = options.pool_size;
    pool.connection.lock_timeout = options.lock_timeout;
    pool.connection.conninfo = conninfo;
    return std::unique_ptr<IngestStack>(new IngestStack(
        std::move(registry), *std::move(routes), pool, *options.clock));
  }

  // What the HTTP edge answers to a POST, its early refusals included.
  http::Response Post(http::Request request) {
    if (std::optional<http::Response> refused = edge_.Accept(request)) {
      return *refused;
    }
    std::promise<http::Response> answer;
    std::future<http::Response> answered = answer.get_future();
    edge_.Handle(std::move(request), http::Responder([&](http::Response r) {
                   answer.set_value(std::move(r));
                 }));
    return answered.get();
  }

  // A signed delivery.
  http::Response Deliver(const std::string& body,
                         const std::string& route = "stripe") {
    return Post(SignedRequest(body, route));
  }

  static http::Request SignedRequest(const std::string& body,
                                     const std::string& route = "stripe") {
    http::Request request;
    request.method = "POST";
    request.target = absl::StrCat("/v1/webhooks/", route);
    request.headers.Add("Content-Type", "application/json");
    request.headers.Add(
        "Stripe-Signature",
        StripeSignature(kSecret, body, SystemClock::Instance().Now()));
    request.body = body;
    return request;
  }

  // The inbox alone: verification and reading of the body done.
  absl::StatusOr<store::RecordedEvent> Record(
      const std::string& body, const std::string& route = "stripe") {
    const host::ConfiguredRoute* configured = routes_.Find(route);
    ASSIGN_OR_RETURN(const providers::ProviderEvent event,
                     configured->adapter()->Parse(body));
    return inbox_.Record(configured->route(), event, body);
  }

  absl::StatusOr<store::RecordedEvent> RecordEvent(
      const providers::ProviderEvent& event, const std::string& body,
      const std::string& route = "stripe") {
    return inbox_.Record(routes_.Find(route)->route(), event, body);
  }

  // One run of the scheduler's job: waiting events that are due are tried
  // again. The number tried.
  absl::StatusOr<int64_t> RetryWaiting() {
    scheduler::JobOutcome outcome;
    RETURN_IF_ERROR(retry_.Run([] { return false; }, &outcome));
    return outcome.found_count;
  }

  webhook_ingest::WebhookHttp& edge() { return edge_; }
  db::Pool& pool() { return pool_; }
  const host::Routes& routes() const { return routes_; }
  store::InboxStore& inbox() { return inbox_; }
  obs::Registry& registry() { return *registry_; }

 private:
  static std::vector<std::string> RouteNames(const host::Routes& routes) {
    std::vector<std::string> names;
    for (const auto& [name, route] : routes.all()) names.push_back(name);
    return names;
  }

  IngestStack(std::unique_ptr<obs::Registry> registry, host::Routes routes,
              const db::PoolOptions& pool, const Clock& clock)
      : registry_(std::move(registry)),
        routes_(std::move(routes)),
        pool_(pool),
        inbox_(pool_),
        queue_(inbox_, webhook_ingest::IngestQueue::Options(), clock,
               *registry_),
        floods_(/*limit_per_minute=*/600, RouteNames(routes_), clock,
                *registry_),
        ingest_(routes_, queue_, floods_, clock, kMaxBodyBytes, *registry_),
        edge_(routes_, ingest_),
        retry_(routes_, inbox_, /*batch_size=*/1000, *registry_) {}

  std::unique_ptr<obs::Registry> registry_;
  host::Routes routes_;
  db::Pool pool_;
  store::InboxStore inbox_;
  webhook_ingest::IngestQueue queue_;
  webhook_ingest::FloodGuard floods_;
  webhook_ingest::IngestEvent ingest_;
  webhook_ingest::WebhookHttp edge_;
  scheduler::RetryEvents retry_;
};

}  // namespace tenure::test

#endif  // TENURE_TESTS_INTEGRATION_INGEST_STACK_H_
