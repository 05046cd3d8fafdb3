#ifndef TENURE_SERVICES_SCHEDULER_RETRY_EVENTS_H_
#define TENURE_SERVICES_SCHEDULER_RETRY_EVENTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "common/obs/metrics.h"
#include "common/store/inbox_store.h"
#include "services/host/routes.h"
#include "services/scheduler/job_runner.h"

namespace tenure::scheduler {

// The job of that name: applies events that were acknowledged and could not be
// applied at once, when their time has come: nothing that got a 2xx is left
// without somebody who acts on it (R4). How long an event waits and when it is
// given up is the inbox's (InboxStore). Safe to run late, twice, and beside
// itself: processes take different events. Thread-safe.
class RetryEvents {
 public:
  // Of the events of `routes`; those of other routes are left to processes that
  // have them. `batch_size`: events that a run tries at most.
  RetryEvents(const host::Routes& routes, store::InboxStore& inbox,
              int64_t batch_size, obs::Registry& registry);

  // Tries what is due until nothing is, `batch_size` is reached or `stop`
  // answers true. Each try is a transaction, logged and counted; what is
  // settled counts as succeeded, what is dead, quarantined or failed again as
  // failed. An error is the database's.
  absl::Status Run(const std::function<bool()>& stop, JobOutcome* outcome);

 private:
  const host::Routes& routes_;
  store::InboxStore& inbox_;
  const int64_t batch_size_;
  std::vector<int64_t> route_ids_;
  std::map<store::EventState, prometheus::Counter*> counters_;
};

}  // namespace tenure::scheduler

#endif  // TENURE_SERVICES_SCHEDULER_RETRY_EVENTS_H_
