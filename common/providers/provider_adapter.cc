#include "common/providers/provider_adapter.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "common/base/error.h"

namespace tenure::providers {

std::optional<absl::string_view> Delivery::Header(
    absl::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (absl::EqualsIgnoreCase(key, name)) return absl::string_view(value);
  }
  return std::nullopt;
}

absl::Status ValidateEventId(absl::string_view id) {
  if (absl::StripAsciiWhitespace(id).empty()) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     common::v1::ERROR_REASON_EVENT_ID_MISSING,
                     "the event has no id");
  }
  absl::Status text = ValidateText("id", id, 255);
  if (text.ok()) return text;
  return MakeError(absl::StatusCode::kInvalidArgument,
                   common::v1::ERROR_REASON_EVENT_MALFORMED, text.message(),
                   {{"field", "id"}});
}

}  // namespace tenure::providers
