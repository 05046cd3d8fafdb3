#ifndef TENURE_SERVICES_HOST_SERVICE_HOST_H_
#define TENURE_SERVICES_HOST_SERVICE_HOST_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/periodic.h"
#include "common/db/pool.h"
#include "common/obs/metrics.h"
#include "common/obs/probes.h"
#include "common/rpc/call_guard.h"
#include "google/protobuf/message.h"
#include "tenure/config/v1/config.pb.h"

namespace tenure::host {

// What the three services share around their own work: configuration, log,
// probes, the database, signals and the end. One per process, used by main's
// thread.
class ServiceHost {
 public:
  // `name` is "webhook-ingest"; `drain_timeout` is the time for what is under
  // way at the first SIGTERM; a process that hangs is cut 3 s later.
  ServiceHost(absl::string_view name, absl::Duration drain_timeout);
  ~ServiceHost();

  obs::Registry& registry() { return registry_; }
  obs::Readiness& readiness() { return readiness_; }

  // Serves /livez, /readyz and /metrics. Not ready until SetStarted().
  absl::Status StartProbes(const config::v1::MetricsConfig& config);

  // Opens the pool and checks server and schema (db/server_check.h). While the
  // database is away it goes on trying, not ready, until it is there or a
  // signal asks to stop (CANCELLED). A server or schema that Tenure cannot
  // work on is FAILED_PRECONDITION: the process must not start. The host
  // watches the database through the pool until its own end and shares it for
  // that long.
  absl::StatusOr<std::shared_ptr<db::Pool>> ConnectDatabase(
      const config::v1::DatabaseConfig& config);

  // Metrics of gRPC calls, one series per method and code, made at once.
  rpc::CallGuard::Observer MakeCallObserver(
      const std::vector<std::string>& methods);

  // Everything is up: the process becomes ready.
  void SetStarted();

  // What AwaitShutdown calls at each SIGHUP. Must be quick.
  void OnReload(std::function<void()> reload) { reload_ = std::move(reload); }

  // Blocks until SIGTERM or SIGINT, then turns the process not ready. A second
  // one, or a drain longer than drain_timeout, ends the process at once. SIGHUP
  // never ends the process.
  void AwaitShutdown();

  // What is left of drain_timeout; the whole of it before a signal came.
  absl::Duration DrainTimeLeft() const;

 private:
  void WatchDatabase(std::shared_ptr<db::Pool> pool);

  const std::string name_;
  const absl::Duration drain_timeout_;
  obs::Registry registry_;
  obs::Readiness readiness_;
  std::unique_ptr<obs::ProbeServer> probes_;
  std::unique_ptr<Periodic> database_watch_;
  std::function<void()> reload_;
  absl::Duration shutdown_at_ = absl::InfiniteDuration();
};

// The whole of a service's main: blocks signals before any thread exists,
// loads `config`, answers --help, --version and --print-config, and calls
// `run`. Returns the exit code: 0 after an orderly end, 1 when `run` failed, 2
// for a configuration that is refused; errors are printed to standard error.
int RunService(int argc, char** argv, absl::string_view name,
               absl::string_view description, google::protobuf::Message* config,
               const config::v1::LogConfig& (*log_config)(
                   const google::protobuf::Message&),
               const std::function<absl::Status()>& run);

// "live" or "test".
std::string EnvironmentName(config::v1::Environment environment);

}  // namespace tenure::host

#endif  // TENURE_SERVICES_HOST_SERVICE_HOST_H_
