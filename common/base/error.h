#ifndef TENURE_COMMON_BASE_ERROR_H_
#define TENURE_COMMON_BASE_ERROR_H_

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tenure/common/v1/error_reason.pb.h"

namespace tenure {

using common::v1::ErrorReason;

// What a caller may know of an error besides its code and message. Carried as
// a payload of absl::Status and turned into google.rpc.ErrorInfo at the edge
// (common/rpc/status.h).
struct ErrorInfo {
  ErrorReason reason = common::v1::ERROR_REASON_UNSPECIFIED;
  std::map<std::string, std::string> metadata;
};

// Makes an error with a reason. `message` goes to callers: it must name the
// field or thing at fault and hold no driver text and no secret.
absl::Status MakeError(absl::StatusCode code, ErrorReason reason,
                       absl::string_view message,
                       std::map<std::string, std::string> metadata = {});

// The reason of an error made by MakeError, if it has one.
std::optional<ErrorInfo> GetErrorInfo(const absl::Status& status);

// The stable text of a reason: its enum name without "ERROR_REASON_".
std::string ReasonName(ErrorReason reason);

// The errors that more than one place makes; wording, code and reason are
// decided here.
absl::Status FieldMissingError(absl::string_view field);
absl::Status FieldInvalidError(absl::string_view field,
                               absl::string_view expectation);
absl::Status DatabaseUnavailableError(absl::string_view message);
absl::Status CommitUnknownError();
absl::Status OverloadedError(absl::string_view what);
absl::Status InternalError(absl::string_view detail);

// True for an error that says the outcome of a COMMIT is unknown.
bool IsCommitUnknown(const absl::Status& status);

// Limits on caller-supplied text, shared by all edges: 1..max_bytes of valid
// UTF-8 without control characters.
absl::Status ValidateText(absl::string_view field, absl::string_view value,
                          size_t max_bytes);

}  // namespace tenure

#endif  // TENURE_COMMON_BASE_ERROR_H_
