#ifndef TENURE_SERVICES_SCHEDULER_SCHEDULER_ADMIN_SERVICE_H_
#define TENURE_SERVICES_SCHEDULER_SCHEDULER_ADMIN_SERVICE_H_

#include <vector>

#include "common/rpc/call_guard.h"
#include "services/scheduler/job_runner.h"
#include "services/scheduler/job_store.h"
#include "tenure/scheduler/v1/scheduler_admin.grpc.pb.h"

namespace tenure::scheduler {

// The gRPC edge of the jobs. Thread-safe.
class SchedulerAdminService final : public v1::SchedulerAdmin::Service {
 public:
  SchedulerAdminService(std::vector<JobRunner*> runners, JobStore& store,
                        rpc::CallGuard& guard)
      : runners_(std::move(runners)), store_(store), guard_(guard) {}

  grpc::Status ListJobs(grpc::ServerContext* context,
                        const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status RunJob(grpc::ServerContext* context,
                      const v1::RunJobRequest* request,
                      v1::RunJobResponse* response) override;
  grpc::Status PauseJob(grpc::ServerContext* context,
                        const v1::PauseJobRequest* request,
                        v1::PauseJobResponse* response) override;
  grpc::Status ResumeJob(grpc::ServerContext* context,
                         const v1::ResumeJobRequest* request,
                         v1::ResumeJobResponse* response) override;

 private:
  absl::Status SetPaused(const std::string& job, const std::string& actor,
                         bool paused, v1::Job* out);

  const std::vector<JobRunner*> runners_;
  JobStore& store_;
  rpc::CallGuard& guard_;
};

}  // namespace tenure::scheduler

#endif  // TENURE_SERVICES_SCHEDULER_SCHEDULER_ADMIN_SERVICE_H_
