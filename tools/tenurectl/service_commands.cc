#include <google/protobuf/util/json_util.h>
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tenure/entitlement/v1/entitlement.grpc.pb.h"
#include "tenure/scheduler/v1/scheduler_admin.grpc.pb.h"
#include "tenure/subscription/v1/subscriptions.grpc.pb.h"
#include "tools/tenurectl/commands.h"

namespace tenure::tenurectl {
namespace {

// An operator waits this long for an answer; a job's run may take longer.
constexpr absl::Duration kDeadline = absl::Seconds(10);
constexpr absl::Duration kRunDeadline = absl::Minutes(10);

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address) {
  return grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
}

void SetDeadline(grpc::ClientContext* context, absl::Duration deadline) {
  context->set_deadline(
      absl::ToChronoTime(SystemClock::Instance().Now() + deadline));
}

absl::Status Outcome(const std::string& address, const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const absl::Status error = rpc::FromGrpcStatus(status);
  return absl::Status(error.code(),
                      absl::StrCat(address, ": ", error.message()));
}

void Print(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  // Fails only for an Any of an unknown type, and no answer has one.
  if (google::protobuf::util::MessageToJsonString(message, &json, options)
          .ok()) {
    std::printf("%s\n", json.c_str());
  }
}

// Calls one method and prints its answer.
template <typename Stub, typename Request, typename Response>
absl::Status CallAndPrint(const std::string& address,
                          std::unique_ptr<Stub> stub,
                          grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                       const Request&,
                                                       Response*),
                          const Request& request,
                          absl::Duration deadline = kDeadline) {
  grpc::ClientContext context;
  SetDeadline(&context, deadline);
  Response response;
  RETURN_IF_ERROR(
      Outcome(address, ((*stub).*method)(&context, request, &response)));
  Print(response);
  return absl::OkStatus();
}

}  // namespace

absl::Status Check(const CheckOptions& options) {
  using entitlement::v1::Entitlement;
  entitlement::v1::CheckRequest request;
  request.set_subject(options.subject);
  request.set_feature(options.feature);
  if (!options.at.empty()) {
    absl::Time at;
    std::string error;
    if (!absl::ParseTime(absl::RFC3339_full, options.at, &at, &error)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--at: ", options.at, " is not RFC 3339: ", error));
    }
    *request.mutable_at() = ToProto(at);
  }
  return CallAndPrint(options.address,
                      Entitlement::NewStub(ChannelTo(options.address)),
                      &Entitlement::Stub::Check, request);
}

absl::Status GetSubscription(const std::string& address, int64_t id) {
  using subscription::v1::Subscriptions;
  subscription::v1::GetRequest request;
  request.set_subscription_id(id);
  return CallAndPrint(address, Subscriptions::NewStub(ChannelTo(address)),
                      &Subscriptions::Stub::Get, request);
}

absl::Status ListSubscriptions(const std::string& address,
                               const std::string& subject) {
  using subscription::v1::Subscriptions;
  subscription::v1::ListRequest request;
  request.set_subject(subject);
  request.set_page_size(1000);
  return CallAndPrint(address, Subscriptions::NewStub(ChannelTo(address)),
                      &Subscriptions::Stub::List, request);
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
