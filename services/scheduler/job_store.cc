#include "services/scheduler/job_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "services/scheduler/statements.h"

namespace tenure::scheduler {

absl::Status JobNotFoundError(absl::string_view job) {
  return MakeError(
      absl::StatusCode::kNotFound, common::v1::ERROR_REASON_JOB_NOT_FOUND,
      absl::StrCat("there is no job ", job), {{"job", std::string(job)}});
}

absl::Status JobStore::Register(absl::string_view job, absl::Duration period) {
  return pool_.RunTransaction([&](db::Transaction& tx) {
    return tx.Execute(kUpsertJob, db::MakeParams(job, period)).status();
  });
}

absl::StatusOr<std::vector<JobStatus>> JobStore::List() {
  ASSIGN_OR_RETURN(const db::Result rows, pool_.Execute(kSelectJobs));
  std::vector<JobStatus> jobs;
  for (size_t i = 0; i < rows.size(); ++i) {
    const db::Row row = rows[i];
    JobStatus status;
    status.name = row.Text("name");
    status.period = row.Interval("period_us");
    status.paused = row.Bool("paused");
    status.paused_by = row.Text("paused_by");
    if (!row.IsNull("started_at")) {
      JobRun run;
      run.job = status.name;
      run.instance = row.Text("instance");
      run.started_at = row.Time("started_at");
      run.finished_at = row.Time("finished_at");
      run.found_count = row.Int64("found_count");
      run.succeeded_count = row.Int64("succeeded_count");
      run.last_error = row.Text("last_error");
      status.last_run = std::move(run);
    }
    jobs.push_back(std::move(status));
  }
  RETURN_IF_ERROR(rows.status());
  return jobs;
}

absl::StatusOr<JobStatus> JobStore::Get(absl::string_view job) {
  ASSIGN_OR_RETURN(const std::vector<JobStatus> jobs, List());
  for (const JobStatus& status : jobs) {
    if (status.name == job) return status;
  }
  return JobNotFoundError(job);
}

absl::StatusOr<bool> JobStore::IsPaused(absl::string_view job) {
  ASSIGN_OR_RETURN(const db::Result rows,
                   pool_.Execute(kSelectJobPaused, db::MakeParams(job)));
  if (rows.empty()) return JobNotFoundError(job);
  return rows[0].Bool("paused");
}

absl::Status JobStore::SetPaused(absl::string_view job, bool paused,
                                 absl::string_view actor) {
  return pool_.RunTransaction([&](db::Transaction& tx) -> absl::Status {
    ASSIGN_OR_RETURN(
        const db::Result written,
        tx.Execute(kSetJobPaused, db::MakeParams(job, paused, actor)));
    if (written.affected_rows() == 0) return JobNotFoundError(job);
    return absl::OkStatus();
  });
}

absl::Status JobStore::RecordRun(const JobRun& run) {
  const bool idle = run.found_count == 0 && run.last_error.empty();
  db::Params params =
      db::MakeParams(run.job, run.instance, run.scheduled_at, run.started_at,
                     run.finished_at, run.batch_count);
  if (!idle) {
    params.Add(run.found_count)
        .Add(run.succeeded_count)
        .Add(run.failed_count)
        .Add(run.last_error);
  }
  return pool_.RunTransaction([&](db::Transaction& tx) {
    return tx.Execute(idle ? kUpsertIdleJobRun : kInsertJobRun, params)
        .status();
  });
}

}  // namespace tenure::scheduler
