#include "common/rpc/status.h"

#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace tenure::rpc {
namespace {

struct Outward {
  grpc::StatusCode code;
  std::string message;
  ErrorInfo info;
};

// absl's and gRPC's canonical codes are the same numbers.
grpc::StatusCode SameCode(absl::StatusCode code) {
  return static_cast<grpc::StatusCode>(static_cast<int>(code));
}

Outward WithReason(grpc::StatusCode code, ErrorReason reason,
                   std::string message,
                   std::map<std::string, std::string> metadata = {}) {
  return {code, std::move(message), {reason, std::move(metadata)}};
}

Outward Internal(absl::string_view request_id) {
  return WithReason(grpc::StatusCode::INTERNAL,
                    common::v1::ERROR_REASON_INTERNAL,
                    absl::StrCat("internal error; request id ", request_id),
                    {{"request_id", std::string(request_id)}});
}

Outward Translate(const absl::Status& status, absl::string_view request_id) {
  if (status.code() == absl::StatusCode::kInternal ||
      status.code() == absl::StatusCode::kUnknown) {
    return Internal(request_id);
  }
  if (std::optional<ErrorInfo> info = GetErrorInfo(status)) {
    return {SameCode(status.code()), std::string(status.message()),
            *std::move(info)};
  }
  switch (status.code()) {
    case absl::StatusCode::kDeadlineExceeded:
      return WithReason(grpc::StatusCode::DEADLINE_EXCEEDED,
                        common::v1::ERROR_REASON_DEADLINE_EXCEEDED,
                        "the deadline passed");
    case absl::StatusCode::kCancelled:
      return WithReason(grpc::StatusCode::CANCELLED,
                        common::v1::ERROR_REASON_CANCELLED,
                        "the call was cancelled");
    default:
      return Internal(request_id);
  }
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status,
                          absl::string_view request_id) {
  if (status.ok()) return grpc::Status::OK;
  const Outward outward = Translate(status, request_id);

  google::rpc::ErrorInfo info;
  info.set_reason(ReasonName(outward.info.reason));
  info.set_domain("tenure");
  for (const auto& [key, value] : outward.info.metadata) {
    (*info.mutable_metadata())[key] = value;
  }
  google::rpc::Status details;
  details.set_code(static_cast<int>(outward.code));
  details.set_message(outward.message);
  details.add_details()->PackFrom(info);
  const auto field = outward.info.metadata.find("field");
  if (outward.code == grpc::StatusCode::INVALID_ARGUMENT &&
      field != outward.info.metadata.end()) {
    google::rpc::BadRequest bad_request;
    auto* violation = bad_request.add_field_violations();
    violation->set_field(field->second);
    violation->set_description(outward.message);
    details.add_details()->PackFrom(bad_request);
  }
  return grpc::Status(outward.code, outward.message,
                      details.SerializeAsString());
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  if (details.ParseFromString(status.error_details())) {
    for (const auto& detail : details.details()) {
      if (!detail.UnpackTo(&info)) continue;
      ErrorReason reason = common::v1::ERROR_REASON_UNSPECIFIED;
      common::v1::ErrorReason_Parse(
          absl::StrCat("ERROR_REASON_", info.reason()), &reason);
      return MakeError(code, reason, status.error_message(),
                       {info.metadata().begin(), info.metadata().end()});
    }
  }
  return absl::Status(code, status.error_message());
}

std::string CodeName(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::OK:
      return "OK";
    case grpc::StatusCode::CANCELLED:
      return "Canceled";
    case grpc::StatusCode::INVALID_ARGUMENT:
      return "InvalidArgument";
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return "DeadlineExceeded";
    case grpc::StatusCode::NOT_FOUND:
      return "NotFound";
    case grpc::StatusCode::ALREADY_EXISTS:
      return "AlreadyExists";
    case grpc::StatusCode::PERMISSION_DENIED:
      return "PermissionDenied";
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return "ResourceExhausted";
    case grpc::StatusCode::FAILED_PRECONDITION:
      return "FailedPrecondition";
    case grpc::StatusCode::ABORTED:
      return "Aborted";
    case grpc::StatusCode::OUT_OF_RANGE:
      return "OutOfRange";
    case grpc::StatusCode::UNIMPLEMENTED:
      return "Unimplemented";
    case grpc::StatusCode::INTERNAL:
      return "Internal";
    case grpc::StatusCode::UNAVAILABLE:
      return "Unavailable";
    case grpc::StatusCode::DATA_LOSS:
      return "DataLoss";
    case grpc::StatusCode::UNAUTHENTICATED:
      return "Unauthenticated";
    default:
      return "Unknown";
  }
}

}  // namespace tenure::rpc
