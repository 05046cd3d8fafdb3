#include "common/base/error.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/utf8.h"
#include "google/rpc/error_details.pb.h"

namespace tenure {
namespace {

constexpr char kPayloadUrl[] = "type.googleapis.com/google.rpc.ErrorInfo";

}  // namespace

absl::Status MakeError(absl::StatusCode code, ErrorReason reason,
                       absl::string_view message,
                       std::map<std::string, std::string> metadata) {
  google::rpc::ErrorInfo info;
  info.set_reason(ReasonName(reason));
  info.set_domain("tenure");
  for (auto& [key, value] : metadata) {
    (*info.mutable_metadata())[key] = value;
  }
  absl::Status status(code, message);
  status.SetPayload(kPayloadUrl, absl::Cord(info.SerializeAsString()));
  return status;
}

std::optional<ErrorInfo> GetErrorInfo(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayloadUrl);
  if (!payload.has_value()) return std::nullopt;
  google::rpc::ErrorInfo parsed;
  if (!parsed.ParseFromString(std::string(*payload))) return std::nullopt;
  ErrorInfo info;
  common::v1::ErrorReason_Parse("ERROR_REASON_" + parsed.reason(),
                                &info.reason);
  info.metadata.insert(parsed.metadata().begin(), parsed.metadata().end());
  return info;
}

std::string ReasonName(ErrorReason reason) {
  return std::string(
      absl::StripPrefix(common::v1::ErrorReason_Name(reason), "ERROR_REASON_"));
}

absl::Status FieldMissingError(absl::string_view field) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   common::v1::ERROR_REASON_FIELD_MISSING,
                   absl::StrCat(field, " is required"),
                   {{"field", std::string(field)}});
}

absl::Status FieldInvalidError(absl::string_view field,
                               absl::string_view expectation) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   common::v1::ERROR_REASON_FIELD_INVALID,
                   absl::StrCat(field, ": ", expectation),
                   {{"field", std::string(field)}});
}

absl::Status DatabaseUnavailableError(absl::string_view message) {
  return MakeError(absl::StatusCode::kUnavailable,
                   common::v1::ERROR_REASON_DATABASE_UNAVAILABLE, message);
}

absl::Status CommitUnknownError() {
  return MakeError(absl::StatusCode::kUnavailable,
                   common::v1::ERROR_REASON_COMMIT_OUTCOME_UNKNOWN,
                   "the connection broke while the commit was under way; "
                   "repeating the request is safe");
}

absl::Status OverloadedError(absl::string_view what) {
  return MakeError(absl::StatusCode::kResourceExhausted,
                   common::v1::ERROR_REASON_OVERLOADED,
                   absl::StrCat(what, " is at its limit; retry later"));
}

absl::Status InternalError(absl::string_view detail) {
  return MakeError(absl::StatusCode::kInternal,
                   common::v1::ERROR_REASON_INTERNAL, detail);
}

bool IsCommitUnknown(const absl::Status& status) {
  const std::optional<ErrorInfo> info = GetErrorInfo(status);
  return info.has_value() &&
         info->reason == common::v1::ERROR_REASON_COMMIT_OUTCOME_UNKNOWN;
}

absl::Status ValidateText(absl::string_view field, absl::string_view value,
                          size_t max_bytes) {
  if (value.empty()) return FieldMissingError(field);
  if (value.size() > max_bytes) {
    return FieldInvalidError(
        field, absl::StrCat("must be at most ", max_bytes, " bytes"));
  }
  if (!IsValidUtf8(value)) {
    return FieldInvalidError(field, "must be valid UTF-8");
  }
  for (const char c : value) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      return FieldInvalidError(field, "must not contain control characters");
    }
  }
  return absl::OkStatus();
}

}  // namespace tenure
