#include "services/webhook-ingest/ingest_event.h"

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace tenure::webhook_ingest {
namespace {

// The label values of events_total: a duplicate, a stored state, or why a
// delivery was refused.
constexpr const char* kOutcomes[] = {
    "duplicate", "applied",     "noop",        "ignored", "parked",
    "failed",    "received",    "quarantined", "dead",    "unauthenticated",
    "malformed", "unavailable", "error"};

absl::string_view RefusalOutcome(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnauthenticated:
      return "unauthenticated";
    case absl::StatusCode::kInvalidArgument:
      return "malformed";
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kDeadlineExceeded:
      return "unavailable";
    default:
      return "error";
  }
}

// Adds the route to what an error tells callers.
absl::Status WithRoute(const absl::Status& status, absl::string_view route) {
  std::optional<ErrorInfo> info = GetErrorInfo(status);
  // Over HTTP the name is any text of a path.
  if (!info.has_value() || !ValidateText("route", route, 64).ok()) {
    return status;
  }
  info->metadata["route"] = std::string(route);
  return MakeError(status.code(), info->reason, status.message(),
                   std::move(info->metadata));
}

}  // namespace

IngestEvent::IngestEvent(const host::Routes& routes, store::InboxStore& inbox,
                         const Clock& clock, size_t max_body_bytes,
                         obs::Registry& registry)
    : routes_(routes),
      inbox_(inbox),
      clock_(clock),
      max_body_bytes_(max_body_bytes),
      seconds_(registry.Histogram(
          "ingest_seconds", "time from the whole request to the commit")) {
  for (const auto& [name, configured] : routes_.all()) {
    for (const char* outcome : kOutcomes) {
      counters_[name][outcome] =
          &registry.Counter("events_total", "deliveries by what became of them",
                            {{"route", name}, {"outcome", outcome}});
    }
  }
}

absl::StatusOr<store::RecordedEvent> IngestEvent::Run(
    absl::string_view route, const providers::Delivery& delivery) {
  const host::ConfiguredRoute* configured = routes_.Find(route);
  if (configured == nullptr) {
    return WithRoute(MakeError(absl::StatusCode::kNotFound,
                               common::v1::ERROR_REASON_ROUTE_NOT_FOUND,
                               "no webhook route of that name is configured"),
                     route);
  }
  if (delivery.body.size() > max_body_bytes_) {
    return MakeError(
        absl::StatusCode::kResourceExhausted,
        common::v1::ERROR_REASON_BODY_TOO_LARGE,
        absl::StrCat("the body is larger than ", max_body_bytes_, " bytes"),
        {{"limit_bytes", absl::StrCat(max_body_bytes_)}});
  }
  const absl::Duration started = clock_.Monotonic();
  absl::StatusOr<store::RecordedEvent> recorded = Ingest(*configured, delivery);
  seconds_.Observe(absl::ToDoubleSeconds(clock_.Monotonic() - started));
  if (recorded.ok()) {
    Count(route, recorded->duplicate ? "duplicate"
                                     : store::EventStateName(recorded->state));
    return recorded;
  }
  Count(route, RefusalOutcome(recorded.status()));
  return WithRoute(recorded.status(), route);
}

absl::StatusOr<store::RecordedEvent> IngestEvent::Ingest(
    const host::ConfiguredRoute& configured,
    const providers::Delivery& delivery) {
  const std::shared_ptr<const providers::ProviderAdapter> adapter =
      configured.adapter();
  const absl::Time now = clock_.Now();
  ASSIGN_OR_RETURN(const std::string key, adapter->Verify(delivery, now));
  configured.NoteKeyUse(key, now);
  ASSIGN_OR_RETURN(const providers::ProviderEvent event,
                   adapter->Read(delivery));
  ASSIGN_OR_RETURN(const store::RecordedEvent recorded,
                   inbox_.Record(configured.route(), event, delivery.body));
  // Nothing looks at it again but a person.
  const bool set_aside =
      recorded.state == store::EventState::kQuarantined && !recorded.duplicate;
  (set_aside ? log::Warning : log::Info)(
      "event", {{"route", configured.route().name},
                {"event_id", event.event_id},
                {"event_type", event.type},
                {"state", store::EventStateName(recorded.state)},
                {"reason", recorded.reason},
                {"duplicate", recorded.duplicate},
                {"bytes", static_cast<int64_t>(delivery.body.size())}});
  return recorded;
}

void IngestEvent::Count(absl::string_view route, absl::string_view outcome) {
  const auto by_route =
      counters_.find(std::string_view(route.data(), route.size()));
  if (by_route == counters_.end()) return;
  const auto counter =
      by_route->second.find(std::string_view(outcome.data(), outcome.size()));
  if (counter != by_route->second.end()) counter->second->Increment();
}

}  // namespace tenure::webhook_ingest
