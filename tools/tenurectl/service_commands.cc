#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tenure/entitlement/v1/entitlement.grpc.pb.h"
#include "tenure/scheduler/v1/scheduler_admin.grpc.pb.h"
#include "tools/tenurectl/commands.h"
#include "tools/tenurectl/service_call.h"

namespace tenure::tenurectl {
namespace {

// A job's run may take longer than any other answer.
constexpr absl::Duration kRunDeadline = absl::Minutes(10);

}  // namespace

absl::Status Check(const CheckOptions& options) {
  using entitlement::v1::Entitlement;
  entitlement::v1::CheckRequest request;
  request.set_subject(options.subject);
  request.set_feature(options.feature);
  if (!options.at.empty()) {
    ASSIGN_OR_RETURN(const absl::Time at, ParseInstant("--at", options.at));
    *request.mutable_at() = ToProto(at);
  }
  return CallAndPrint(options.address,
                      Entitlement::NewStub(ChannelTo(options.address)),
                      &Entitlement::Stub::Check, request);
}

absl::Status GetQuota(const std::string& address, const std::string& subject,
                      const std::string& meter) {
  using entitlement::v1::Entitlement;
  entitlement::v1::GetQuotaRequest request;
  request.set_subject(subject);
  request.set_meter(meter);
  return CallAndPrint(address, Entitlement::NewStub(ChannelTo(address)),
                      &Entitlement::Stub::GetQuota, request);
}

absl::Status ListJobs(const std::string& address) {
  using scheduler::v1::SchedulerAdmin;
  return CallAndPrint(address, SchedulerAdmin::NewStub(ChannelTo(address)),
                      &SchedulerAdmin::Stub::ListJobs,
                      scheduler::v1::ListJobsRequest());
}

absl::Status RunJob(const std::string& address, const std::string& job,
                    const std::string&) {
  using scheduler::v1::SchedulerAdmin;
  scheduler::v1::RunJobRequest request;
  request.set_job(job);
  return CallAndPrint(address, SchedulerAdmin::NewStub(ChannelTo(address)),
                      &SchedulerAdmin::Stub::RunJob, request, kRunDeadline);
}

absl::Status PauseJob(const std::string& address, const std::string& job,
                      const std::string& actor) {
  using scheduler::v1::SchedulerAdmin;
  scheduler::v1::PauseJobRequest request;
  request.set_job(job);
  request.set_actor(actor);
  return CallAndPrint(address, SchedulerAdmin::NewStub(ChannelTo(address)),
                      &SchedulerAdmin::Stub::PauseJob, request);
}

absl::Status ResumeJob(const std::string& address, const std::string& job,
                       const std::string& actor) {
  using scheduler::v1::SchedulerAdmin;
  scheduler::v1::ResumeJobRequest request;
  request.set_job(job);
  request.set_actor(actor);
  return CallAndPrint(address, SchedulerAdmin::NewStub(ChannelTo(address)),
                      &SchedulerAdmin::Stub::ResumeJob, request);
}

absl::Status Health(const std::string& address) {
  const auto stub = grpc::health::v1::Health::NewStub(ChannelTo(address));
  grpc::ClientContext context;
  SetDeadline(&context, kDeadline);
  grpc::health::v1::HealthCheckResponse response;
  RETURN_IF_ERROR(Outcome(
      address, stub->Check(&context, grpc::health::v1::HealthCheckRequest(),
                           &response)));
  Print(response);
  if (response.status() != grpc::health::v1::HealthCheckResponse::SERVING) {
    return absl::UnavailableError(absl::StrCat(address, " is not serving"));
  }
  return absl::OkStatus();
}

}  // namespace tenure::tenurectl
