#include "common/providers/provider_adapter.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tenure::providers {

std::optional<absl::string_view> Delivery::Header(
    absl::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (absl::EqualsIgnoreCase(key, name)) return absl::string_view(value);
  }
  return std::nullopt;
}

absl::StatusOr<std::string> ProviderAdapter::EventId(
    const Delivery& /*delivery*/, const ProviderEvent& event) const {
  RETURN_IF_ERROR(ValidateEventId(event.event_id));
  return event.event_id;
}

absl::StatusOr<ProviderEvent> ProviderAdapter::Read(
    const Delivery& delivery) const {
  ASSIGN_OR_RETURN(ProviderEvent event, Parse(delivery.body));
  ASSIGN_OR_RETURN(event.event_id, EventId(delivery, event));
  return event;
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
