#ifndef TENURE_COMMON_OBS_PROBES_H_
#define TENURE_COMMON_OBS_PROBES_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/http/server.h"
#include "common/obs/metrics.h"

namespace tenure::obs {

// Whether the process should get traffic: ready when every named condition is
// OK. Messages are shown on the probe port: no secret, no driver text.
// Thread-safe.
class Readiness {
 public:
  // A condition that its owner sets when it changes, e.g. "database" or
  // "draining". Replaces the condition of that name.
  void Set(absl::string_view name, absl::Status status) TENURE_EXCLUDES(mutex_);

  // A condition that is asked on every probe. `check` may be called by two
  // threads at once and should answer within the probe's timeout; an exception
  // counts as not ready. What it refers to must live until Remove has returned.
  // Replaces the condition of that name.
  void AddCheck(absl::string_view name, std::function<absl::Status()> check)
      TENURE_EXCLUDES(mutex_);

  // Forgets a condition; waits for a check that is running.
  void Remove(absl::string_view name) TENURE_EXCLUDES(mutex_);

  // The state of every condition, by name; checks are asked now.
  std::map<std::string, absl::Status> Evaluate() const TENURE_EXCLUDES(mutex_);

  // True when all of them are OK (or there is none).
  bool ready() const;

 private:
  struct Condition {
    absl::Status status;
    std::function<absl::Status()> check;  // empty: `status` counts
  };

  mutable Mutex mutex_;
  mutable CondVar idle_;
  mutable int evaluating_ TENURE_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Condition> conditions_ TENURE_GUARDED_BY(mutex_);
};

// The probe and metrics port:
//   GET /livez    200 while the process can answer at all; asks nothing, so a
//                 database that is away never restarts a process (C136)
//   GET /readyz   200 or 503, with every condition by name as JSON
//   GET /metrics  Prometheus' text format
// Everything else is 404, other methods 405. /livez is answered by the thread
// that reads the connections: a slow readiness check does not delay it.
// Thread-safe.
class ProbeServer {
 public:
  // "host:port"; port 0 takes a free one. `readiness` and `registry` must
  // outlive the server.
  static absl::StatusOr<std::unique_ptr<ProbeServer>> Start(
      absl::string_view listen_address, const Readiness& readiness,
      Registry& registry);

  int port() const { return server_->port(); }
  const std::string& address() const { return server_->address(); }

  // Stop it last: while a service drains, its readiness is still asked.
  bool Drain(absl::Duration limit) { return server_->Drain(limit); }

 private:
  explicit ProbeServer(std::unique_ptr<http::Server> server)
      : server_(std::move(server)) {}

  std::unique_ptr<http::Server> server_;
};

}  // namespace tenure::obs

#endif  // TENURE_COMMON_OBS_PROBES_H_
