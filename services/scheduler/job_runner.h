#ifndef TENURE_SERVICES_SCHEDULER_JOB_RUNNER_H_
#define TENURE_SERVICES_SCHEDULER_JOB_RUNNER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/periodic.h"
#include "common/obs/metrics.h"
#include "services/scheduler/job_store.h"

namespace tenure::scheduler {

// What a job's work reports; filled even when it fails.
struct JobOutcome {
  int batch_count = 0;
  int64_t found_count = 0;
  int64_t succeeded_count = 0;
  int64_t failed_count = 0;
};

// Runs one job: at start at once and then every period, unless it is paused,
// and whenever it is told to. Runs within this process never overlap; beside
// other replicas they may, and the work must stand that. Thread-safe.
class JobRunner {
 public:
  // The work ends soon after `stop` answers true.
  using Work = std::function<absl::Status(const std::function<bool()>& stop,
                                          JobOutcome* outcome)>;

  JobRunner(std::string name, absl::Duration period, std::string instance,
            Work work, JobStore& store, const Clock& clock,
            obs::Registry& registry);
  ~JobRunner();

  const std::string& name() const { return name_; }

  // Registers the job and starts its period.
  absl::Status Start();

  // Runs once, now, paused or not, after a run under way; stops early when
  // `stop` answers true. The run is also returned when its work failed
  // (last_error); an error means it could not be recorded, CANCELLED that the
  // process is ending.
  absl::StatusOr<JobRun> RunNow(const std::function<bool()>& stop);

  // Starts no further run and waits for one under way, which is told to stop.
  void Stop();

 private:
  void Tick(absl::Duration late);
  JobRun Execute(absl::Time scheduled_at, const std::function<bool()>& stop)
      TENURE_EXCLUDES(running_);

  const std::string name_;
  const absl::Duration period_;
  const std::string instance_;
  const Work work_;
  JobStore& store_;
  const Clock& clock_;
  prometheus::Counter& runs_;
  prometheus::Counter& failures_;
  prometheus::Counter& rows_;
  prometheus::Histogram& seconds_;
  prometheus::Histogram& delay_;
  std::atomic<bool> stopping_{false};
  Mutex running_;
  std::unique_ptr<Periodic> periodic_;
};

}  // namespace tenure::scheduler

#endif  // TENURE_SERVICES_SCHEDULER_JOB_RUNNER_H_
