#ifndef TENURE_SERVICES_SCHEDULER_SUBSCRIPTION_MAINTENANCE_H_
#define TENURE_SERVICES_SCHEDULER_SUBSCRIPTION_MAINTENANCE_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "common/db/pool.h"
#include "services/scheduler/expire_sweep.h"
#include "services/scheduler/job_runner.h"

namespace tenure::scheduler {

// The job of that name: expires what has ended, records scheduled changes that
// have come, then releases quota that is due to what is still valid, in this
// order and never as jobs of their own (S4-9). No access depends on it (R1).
// Safe to run late, twice, and beside itself. Thread-safe.
class SubscriptionMaintenance {
 public:
  // `batch_size`: rows per transaction at most (S0-12).
  SubscriptionMaintenance(db::Pool& pool, ExpireSweep& sweep,
                          int64_t batch_size)
      : pool_(pool), sweep_(sweep), batch_size_(batch_size) {}

  // The three steps. A step that fails does not keep the next from running;
  // the first error is returned at the end. Stops early once `stop` answers
  // true.
  absl::Status Run(const std::function<bool()>& stop, JobOutcome* outcome);

  // Records pauses and plan changes whose instant has come.
  absl::Status ApplyScheduledChanges(const std::function<bool()>& stop,
                                     JobOutcome* outcome);

  // Releases what is due, oldest first (S4-10, S4-11).
  absl::Status ReleaseQuota(const std::function<bool()>& stop,
                            JobOutcome* outcome);

 private:
  absl::Status Expire(const std::function<bool()>& stop, JobOutcome* outcome);

  db::Pool& pool_;
  ExpireSweep& sweep_;
  const int64_t batch_size_;
};

}  // namespace tenure::scheduler

#endif  // TENURE_SERVICES_SCHEDULER_SUBSCRIPTION_MAINTENANCE_H_
