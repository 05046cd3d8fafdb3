#ifndef TENURE_TESTS_INTEGRATION_CLUSTER_H_
#define TENURE_TESTS_INTEGRATION_CLUSTER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/support/http_client.h"
#include "tests/support/process.h"

namespace tenure::test {

// The three services as processes over one database, for tests that see only
// HTTP, gRPC and SQL. Ports are free ones; the files of a cluster lie in a
// directory of its own that goes with it. Not thread-safe.
class Cluster {
 public:
  // Nothing runs yet. `conninfo` is the database's.
  static absl::StatusOr<std::unique_ptr<Cluster>> Make(std::string conninfo);
  ~Cluster();

  // Each starts one service and waits until it says that it has started.
  // `program` replaces the built one; `flags` are added.
  absl::Status StartIngest(const std::vector<std::string>& flags = {});
  absl::Status StartEntitlement(std::string program = "",
                                const std::vector<std::string>& flags = {});
  absl::Status StartScheduler(const std::vector<std::string>& flags = {});

  // Starts a service without waiting for anything.
  absl::StatusOr<std::unique_ptr<Process>> Launch(
      absl::string_view service, const std::vector<std::string>& flags = {},
      std::string program = "");

  Process& ingest() { return *ingest_; }
  Process& entitlement() { return *entitlement_; }
  Process& scheduler() { return *scheduler_; }
  void DropIngest() { ingest_.reset(); }

  // "127.0.0.1:PORT" of a listener: "http", "<service>_grpc" or
  // "<service>_probes", where <service> is ingest, entitlement or scheduler.
  std::string Address(absl::string_view listener) const;

  // Posts a body to the route "stripe", signed with the cluster's secret.
  // HTTP status and body, joined by a space: "200 {...}".
  absl::StatusOr<std::string> Post(const std::string& body) const;

  // The headers of a delivery of `body` to the route "stripe", signed now.
  HttpHeaders StripeHeaders(absl::string_view body) const;

  // What scripts/demo.py needs to know (TENURE_DEMO_*).
  std::map<std::string, std::string> DemoEnvironment() const;

  const std::string& directory() const { return directory_; }
  const std::string& conninfo() const { return conninfo_; }
  std::string secret_file() const { return directory_ + "/secret"; }

 private:
  Cluster() = default;

  std::string conninfo_;
  std::string directory_;
  std::map<std::string, int> ports_;
  std::unique_ptr<Process> ingest_;
  std::unique_ptr<Process> entitlement_;
  std::unique_ptr<Process> scheduler_;
};

// Runs a program to its end: exit status and output.
struct Finished {
  ExitStatus status;
  std::string output;
};
absl::StatusOr<Finished> RunToEnd(
    const std::string& program, const std::vector<std::string>& args,
    const std::map<std::string, std::string>& env = {});

// Writes `text` to `path`.
absl::Status WriteFile(const std::string& path, absl::string_view text);

// A Stripe invoice.paid of the 2025 API for subject and subscription
// "sub_<key>" of price_pro, paid from `start` to `end` (Unix seconds), in test
// mode.
std::string InvoicePaidBody(absl::string_view key, absl::string_view subject,
                            int64_t start, int64_t end);

}  // namespace tenure::test

#endif  // TENURE_TESTS_INTEGRATION_CLUSTER_H_
