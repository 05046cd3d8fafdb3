#include "services/scheduler/scheduler_admin_service.h"

#include "common/base/error.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"

namespace tenure::scheduler {
namespace {

void ToApi(const JobRun& run, v1::JobRun* out) {
  *out->mutable_started_at() = ToProto(run.started_at);
  *out->mutable_finished_at() = ToProto(run.finished_at);
  out->set_instance(run.instance);
  out->set_found_count(run.found_count);
  out->set_succeeded_count(run.succeeded_count);
  out->set_last_error(run.last_error);
}

void ToApi(const JobStatus& status, v1::Job* out) {
  out->set_name(status.name);
  *out->mutable_period() = ToProto(status.period);
  out->set_paused(status.paused);
  out->set_paused_by(status.paused_by);
  if (status.last_run) ToApi(*status.last_run, out->mutable_last_run());
}

}  // namespace

grpc::Status SchedulerAdminService::ListJobs(grpc::ServerContext* context,
                                             const v1::ListJobsRequest*,
                                             v1::ListJobsResponse* response) {
  return guard_.Run(context, "ListJobs", [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<JobStatus> jobs, store_.List());
    for (const JobStatus& job : jobs) ToApi(job, response->add_jobs());
    return absl::OkStatus();
  });
}

grpc::Status SchedulerAdminService::RunJob(grpc::ServerContext* context,
                                           const v1::RunJobRequest* request,
                                           v1::RunJobResponse* response) {
  return guard_.Run(context, "RunJob", [&]() -> absl::Status {
    RETURN_IF_ERROR(ValidateText("job", request->job(), 127));
    for (JobRunner* runner : runners_) {
      if (runner->name() != request->job()) continue;
      ASSIGN_OR_RETURN(const JobRun run, runner->RunNow([context] {
        return context->IsCancelled();
      }));
      ToApi(run, response->mutable_run());
      return absl::OkStatus();
    }
    return JobNotFoundError(request->job());
  });
}

grpc::Status SchedulerAdminService::PauseJob(grpc::ServerContext* context,
                                             const v1::PauseJobRequest* request,
                                             v1::PauseJobResponse* response) {
  return guard_.Run(context, "PauseJob", [&] {
    return SetPaused(request->job(), request->actor(), true,
                     response->mutable_job());
  });
}

grpc::Status SchedulerAdminService::ResumeJob(
    grpc::ServerContext* context, const v1::ResumeJobRequest* request,
    v1::ResumeJobResponse* response) {
  return guard_.Run(context, "ResumeJob", [&] {
    return SetPaused(request->job(), request->actor(), false,
                     response->mutable_job());
  });
}

absl::Status SchedulerAdminService::SetPaused(const std::string& job,
                                              const std::string& actor,
                                              bool paused, v1::Job* out) {
  RETURN_IF_ERROR(ValidateText("job", job, 127));
  RETURN_IF_ERROR(ValidateText("actor", actor, 255));
  RETURN_IF_ERROR(store_.SetPaused(job, paused, actor));
  ASSIGN_OR_RETURN(const JobStatus status, store_.Get(job));
  ToApi(status, out);
  return absl::OkStatus();
}

}  // namespace tenure::scheduler
