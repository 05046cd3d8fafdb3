#include "tests/integration/cluster.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"

namespace tenure::test {
namespace {

constexpr char kSecret[] = "whsec_integration_test";

// The same for webhook-ingest, which adds the secret, and the scheduler.
constexpr char kRoutes[] =
    "routes:\n  - name: stripe\n    type: stripe\n    environment: test\n"
    "    renewal_leeway: 0s\n";

const char* const kListeners[] = {
    "http",          "ingest_grpc",        "entitlement_grpc", "scheduler_grpc",
    "ingest_probes", "entitlement_probes", "scheduler_probes"};

// Where the programs of this build are (CMakeLists.txt).
std::string ProgramOf(absl::string_view service) {
  return absl::StrCat(TENURE_BUILD_DIR, "/services/", service, "/tenure-",
                      service);
}

std::string ShortName(absl::string_view service) {
  return service == "webhook-ingest" ? "ingest" : std::string(service);
}

// Not the product's HMAC, so that a fault there shows.
std::string Sign(absl::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  HMAC(EVP_sha256(), kSecret, sizeof(kSecret) - 1,
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest,
       &size);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<char*>(digest), size));
}

}  // namespace

absl::Status WriteFile(const std::string& path, absl::string_view text) {
  std::ofstream file(path);
  file << text;
  file.close();
  return file ? absl::OkStatus()
              : absl::InternalError(absl::StrCat("cannot write ", path));
}

absl::StatusOr<std::unique_ptr<Cluster>> Cluster::Make(std::string conninfo) {
  std::unique_ptr<Cluster> cluster(new Cluster);
  cluster->conninfo_ = std::move(conninfo);
  char pattern[] = "/tmp/tenure-cluster.XXXXXX";
  if (::mkdtemp(pattern) == nullptr) {
    return absl::InternalError("cannot make a directory under /tmp");
  }
  cluster->directory_ = pattern;
  for (const char* listener : kListeners) {
    cluster->ports_[listener] = FreePort();
  }
  RETURN_IF_ERROR(WriteFile(cluster->secret_file(), kSecret));
  RETURN_IF_ERROR(WriteFile(
      absl::StrCat(cluster->directory_, "/webhook-ingest.yaml"),
      absl::StrCat("environment: test\n", kRoutes, "    secret_files: [",
                   cluster->secret_file(), "]\n")));
  RETURN_IF_ERROR(
      WriteFile(absl::StrCat(cluster->directory_, "/entitlement.yaml"),
                "environment: test\n"));
  RETURN_IF_ERROR(
      WriteFile(absl::StrCat(cluster->directory_, "/scheduler.yaml"),
                absl::StrCat(kRoutes,
                             "subscription_maintenance:\n  period: 200ms\n"
                             "retry_events:\n  period: 200ms\n")));
  RETURN_IF_ERROR(
      WriteFile(absl::StrCat(cluster->directory_, "/catalog.yaml"),
                "plans:\n  - name: pro\n    features:\n      - name: api\n"
                "    provider_products:\n"
                "      - {route: stripe, product_id: price_pro}\n"
                "      - {route: stripe, product_id: price_demo_pro}\n"));
  return cluster;
}

Cluster::~Cluster() {
  scheduler_.reset();
  entitlement_.reset();
  ingest_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

std::string Cluster::Address(absl::string_view listener) const {
  return absl::StrCat("127.0.0.1:", ports_.at(std::string(listener)));
}

absl::StatusOr<std::unique_ptr<Process>> Cluster::Launch(
    absl::string_view service, const std::vector<std::string>& flags,
    std::string program) {
  const std::string name = ShortName(service);
  ProcessOptions options;
  options.args = {absl::StrCat("--config=", directory_, "/", service, ".yaml"),
                  absl::StrCat("--database_conninfo=", conninfo_),
                  absl::StrCat("--grpc_listen=", Address(name + "_grpc")),
                  absl::StrCat("--metrics_listen=", Address(name + "_probes"))};
  if (service == "webhook-ingest") {
    options.args.push_back(absl::StrCat("--http_listen=", Address("http")));
  }
  options.args.insert(options.args.end(), flags.begin(), flags.end());
  return Process::Start(program.empty() ? ProgramOf(service) : program,
                        std::move(options));
}

absl::Status Cluster::StartIngest(const std::vector<std::string>& flags) {
  ASSIGN_OR_RETURN(ingest_, Launch("webhook-ingest", flags));
  return ingest_->AwaitLine("\"started\"").status();
}

absl::Status Cluster::StartEntitlement(std::string program,
                                       const std::vector<std::string>& flags) {
  ASSIGN_OR_RETURN(entitlement_,
                   Launch("entitlement", flags, std::move(program)));
  return entitlement_->AwaitLine("\"started\"").status();
}

absl::Status Cluster::StartScheduler(const std::vector<std::string>& flags) {
  ASSIGN_OR_RETURN(scheduler_, Launch("scheduler", flags));
  return scheduler_->AwaitLine("\"started\"").status();
}

absl::StatusOr<std::string> Cluster::Post(const std::string& body) const {
  ASSIGN_OR_RETURN(const HttpReply reply,
                   HttpPost(Address("http"), "/v1/webhooks/stripe", body,
                            StripeHeaders(body)));
  return absl::StrCat(reply.status, " ", reply.body);
}

HttpHeaders Cluster::StripeHeaders(absl::string_view body) const {
  const int64_t now = absl::ToUnixSeconds(SystemClock::Instance().Now());
  return {
      {"Content-Type", "application/json"},
      {"Stripe-Signature",
       absl::StrCat("t=", now, ",v1=", Sign(absl::StrCat(now, ".", body)))}};
}

std::map<std::string, std::string> Cluster::DemoEnvironment() const {
  return {
      {"TENURE_DEMO_HTTP", absl::StrCat("http://", Address("http"))},
      {"TENURE_DEMO_ENTITLEMENT", Address("entitlement_grpc")},
      {"TENURE_DEMO_INGEST", Address("ingest_grpc")},
      {"TENURE_DEMO_SCHEDULER", Address("scheduler_grpc")},
      {"TENURE_DEMO_SCHEDULER_PID", absl::StrCat(scheduler_->pid())},
      {"TENURE_DEMO_CONNINFO", conninfo_},
      {"TENURE_DEMO_TENURECTL",
       absl::StrCat(TENURE_BUILD_DIR, "/tools/tenurectl/tenurectl")},
      {"TENURE_DEMO_SECRET_FILE", secret_file()},
      {"TENURE_DEMO_CATALOG", directory_ + "/catalog.yaml"},
  };
}

absl::StatusOr<Finished> RunToEnd(
    const std::string& program, const std::vector<std::string>& args,
    const std::map<std::string, std::string>& env) {
  ProcessOptions options;
  options.args = args;
  options.env = env;
  ASSIGN_OR_RETURN(const auto process, Process::Start(program, options));
  Finished finished;
  ASSIGN_OR_RETURN(finished.status, process->Wait(absl::Minutes(2)));
  finished.output = process->Output();
  return finished;
}

std::string InvoicePaidBody(absl::string_view key, absl::string_view subject,
                            int64_t start, int64_t end) {
  return absl::Substitute(
      R"({"id": "evt_$0", "object": "event", "type": "invoice.paid",
 "created": $2, "livemode": false, "data": {"object": {"id": "in_$0",
 "object": "invoice", "amount_paid": 2000, "currency": "usd",
 "customer": "cus_$0", "parent": {"type": "subscription_details",
 "subscription_details": {"subscription": "sub_$0",
 "metadata": {"tenure_subject": "$1"}}},
 "lines": {"data": [{"parent": {"type": "subscription_item_details"},
 "period": {"start": $2, "end": $3},
 "pricing": {"price_details": {"price": "price_pro"}}}]}}}})",
      key, subject, start, end);
}

}  // namespace tenure::test
