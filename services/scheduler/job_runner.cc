#include "services/scheduler/job_runner.h"

#include <utility>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace tenure::scheduler {

JobRunner::JobRunner(std::string name, absl::Duration period,
                     std::string instance, Work work, JobStore& store,
                     const Clock& clock, obs::Registry& registry)
    : name_(std::move(name)),
      period_(period),
      instance_(std::move(instance)),
      work_(std::move(work)),
      store_(store),
      clock_(clock),
      runs_(registry.Counter("job_runs_total", "runs that ended",
                             {{"job", name_}})),
      failures_(registry.Counter("job_failures_total",
                                 "runs that ended with an error",
                                 {{"job", name_}})),
      rows_(registry.Counter("job_rows_total", "rows that runs changed",
                             {{"job", name_}})),
      seconds_(registry.Histogram("job_run_seconds", "time a run took",
                                  {{"job", name_}}, obs::DelayBuckets())),
      delay_(registry.Histogram(
          "scheduler_delay_seconds",
          "time from the instant a run was planned for to its start (S0-32)",
          {{"job", name_}}, obs::DelayBuckets())) {}

JobRunner::~JobRunner() { Stop(); }

absl::Status JobRunner::Start() {
  RETURN_IF_ERROR(store_.Register(name_, period_));
  periodic_ = std::make_unique<Periodic>(
      period_, [this](absl::Duration late) { Tick(late); });
  return absl::OkStatus();
}

void JobRunner::Stop() {
  stopping_ = true;
  periodic_.reset();
}

void JobRunner::Tick(absl::Duration late) {
  const log::ScopedRequestId scope(log::NewRequestId());
  delay_.Observe(absl::ToDoubleSeconds(late));
  const absl::StatusOr<bool> paused = store_.IsPaused(name_);
  if (!paused.ok()) {
    log::Warning(
        "job not started",
        {{"job", name_}, {"detail", std::string(paused.status().message())}});
    return;
  }
  if (*paused) return;
  const JobRun run =
      Execute(clock_.Now() - late, [this] { return stopping_.load(); });
  if (absl::Status status = store_.RecordRun(run); !status.ok()) {
    log::Warning("run not recorded",
                 {{"job", name_}, {"detail", std::string(status.message())}});
  }
}

absl::StatusOr<JobRun> JobRunner::RunNow(const std::function<bool()>& stop) {
  if (stopping_) return absl::CancelledError("the scheduler is ending");
  JobRun run =
      Execute(clock_.Now(), [&] { return stopping_.load() || stop(); });
  RETURN_IF_ERROR(store_.RecordRun(run));
  return run;
}

JobRun JobRunner::Execute(absl::Time scheduled_at,
                          const std::function<bool()>& stop) {
  const MutexLock lock(running_);
  JobRun run;
  run.job = name_;
  run.instance = instance_;
  run.scheduled_at = scheduled_at;
  run.started_at = clock_.Now();
  const absl::Duration started = clock_.Monotonic();
  JobOutcome outcome;
  const absl::Status status = work_(stop, &outcome);
  const absl::Duration took = clock_.Monotonic() - started;
  run.finished_at = run.started_at + took;
  run.batch_count = outcome.batch_count;
  run.found_count = outcome.found_count;
  run.succeeded_count = outcome.succeeded_count;
  run.failed_count = outcome.failed_count;
  runs_.Increment();
  rows_.Increment(static_cast<double>(outcome.succeeded_count));
  seconds_.Observe(absl::ToDoubleSeconds(took));
  if (!status.ok()) {
    failures_.Increment();
    run.last_error = std::string(status.message());
    log::Warning("job failed", {{"job", name_}, {"detail", run.last_error}});
  } else if (outcome.found_count > 0) {
    log::Info("job ran", {{"job", name_},
                          {"found", outcome.found_count},
                          {"succeeded", outcome.succeeded_count},
                          {"batches", outcome.batch_count},
                          {"seconds", took}});
  }
  return run;
}

}  // namespace tenure::scheduler
