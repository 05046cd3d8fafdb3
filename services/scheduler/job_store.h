#ifndef TENURE_SERVICES_SCHEDULER_JOB_STORE_H_
#define TENURE_SERVICES_SCHEDULER_JOB_STORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/db/pool.h"

namespace tenure::scheduler {

// One run of a job. From it one can tell "nothing found", "found and done" and
// "found, then failed" (S3-33).
struct JobRun {
  std::string job;
  std::string instance;
  absl::Time scheduled_at;
  absl::Time started_at;
  absl::Time finished_at;
  int batch_count = 0;
  int64_t found_count = 0;
  int64_t succeeded_count = 0;
  int64_t failed_count = 0;
  std::string last_error;
};

struct JobStatus {
  std::string name;
  absl::Duration period;
  bool paused = false;
  std::string paused_by;
  std::optional<JobRun> last_run;
};

// Jobs and their runs. Thread-safe.
class JobStore {
 public:
  explicit JobStore(db::Pool& pool) : pool_(pool) {}

  // Makes the job known with its period; keeps whether it is paused.
  absl::Status Register(absl::string_view job, absl::Duration period);

  absl::StatusOr<std::vector<JobStatus>> List();
  // NOT_FOUND (JOB_NOT_FOUND).
  absl::StatusOr<JobStatus> Get(absl::string_view job);
  absl::StatusOr<bool> IsPaused(absl::string_view job);
  // NOT_FOUND (JOB_NOT_FOUND).
  absl::Status SetPaused(absl::string_view job, bool paused,
                         absl::string_view actor);
  absl::Status RecordRun(const JobRun& run);

 private:
  db::Pool& pool_;
};

// NOT_FOUND (JOB_NOT_FOUND) naming the job.
absl::Status JobNotFoundError(absl::string_view job);

}  // namespace tenure::scheduler

#endif  // TENURE_SERVICES_SCHEDULER_JOB_STORE_H_
