#include "services/webhook-ingest/ingest_event.h"

#include <future>
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

// What an event is about; types are the provider's, and too many for a label.
// The last one is that of a delivery which was refused before it was read.
constexpr const char* kClasses[] = {"payment", "reversal", "lifecycle",
                                    "name",    "none",     "unread"};

absl::string_view ClassOf(const providers::ProviderEvent& event) {
  for (const providers::SubscriptionFacts& facts : event.subscriptions) {
    for (const providers::Fact& fact : facts.facts) {
      switch (fact.kind_case()) {
        case providers::Fact::kPaid:
        case providers::Fact::kPaymentFailed:
          return "payment";
        case providers::Fact::kRefunded:
        case providers::Fact::kRefundReversed:
        case providers::Fact::kDisputeOpened:
        case providers::Fact::kDisputeClosed:
          return "reversal";
        default:
          return "lifecycle";
      }
    }
  }
  const bool names = !event.links.empty() || !event.payment_aliases.empty();
  return names ? "name" : "none";
}

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

// What is told of an event once it is stored.
struct Told {
  std::string route;
  std::string event_id;
  std::string type;
  absl::string_view event_class = "unread";
  int64_t bytes = 0;
  std::string request_id;
};

void LogRecorded(const Told& told, const store::RecordedEvent& recorded) {
  const log::ScopedRequestId scope(told.request_id);
  // Nothing looks at it again but a person.
  const bool set_aside =
      recorded.state == store::EventState::kQuarantined && !recorded.duplicate;
  (set_aside ? log::Warning : log::Info)(
      "event", {{"route", told.route},
                {"event_id", told.event_id},
                {"event_type", told.type},
                {"state", store::EventStateName(recorded.state)},
                {"reason", recorded.reason},
                {"duplicate", recorded.duplicate},
                {"bytes", told.bytes}});
}

prometheus::Histogram& StageSeconds(obs::Registry& registry,
                                    const std::string& stage) {
  return registry.Histogram("ingest_stage_seconds",
                            "time of a delivery by what it was spent on",
                            {{"stage", stage}});
}

}  // namespace

IngestEvent::IngestEvent(const host::Routes& routes, IngestQueue& queue,
                         FloodGuard& floods, const Clock& clock,
                         size_t max_body_bytes, obs::Registry& registry)
    : routes_(routes),
      queue_(queue),
      floods_(floods),
      clock_(clock),
      max_body_bytes_(max_body_bytes),
      seconds_(registry.Histogram("ingest_seconds",
                                  "time from the whole request to the commit")),
      verify_seconds_(StageSeconds(registry, "verify")),
      read_seconds_(StageSeconds(registry, "read")) {
  for (const auto& [name, configured] : routes_.all()) {
    for (const char* event_class : kClasses) {
      for (const char* outcome : kOutcomes) {
        counters_[name][{event_class, outcome}] = &registry.Counter(
            "events_total", "deliveries by what became of them",
            {{"route", name}, {"class", event_class}, {"outcome", outcome}});
      }
    }
  }
}

void IngestEvent::Start(absl::string_view route, providers::Delivery delivery,
                        Done done) {
  const host::ConfiguredRoute* configured = routes_.Find(route);
  if (configured == nullptr) {
    done(WithRoute(MakeError(absl::StatusCode::kNotFound,
                             common::v1::ERROR_REASON_ROUTE_NOT_FOUND,
                             "no webhook route of that name is configured"),
                   route));
    return;
  }
  if (delivery.body.size() > max_body_bytes_) {
    done(MakeError(
        absl::StatusCode::kResourceExhausted,
        common::v1::ERROR_REASON_BODY_TOO_LARGE,
        absl::StrCat("the body is larger than ", max_body_bytes_, " bytes"),
        {{"limit_bytes", absl::StrCat(max_body_bytes_)}}));
    return;
  }
  const absl::Duration started = clock_.Monotonic();
  const Counters& counters = counters_.at(configured->route().name);
  Told told;
  told.route = configured->route().name;
  told.bytes = static_cast<int64_t>(delivery.body.size());
  told.request_id = log::ScopedRequestId::Current();
  absl::StatusOr<store::DeliveredEvent> delivered =
      Read(*configured, std::move(delivery));
  if (delivered.ok()) {
    told.event_id = delivered->event.event_id;
    told.type = delivered->event.type;
    told.event_class = ClassOf(delivered->event);
  }
  Done finish =
      [this, started, &counters, told = std::move(told),
       done = std::move(done)](absl::StatusOr<store::RecordedEvent> recorded) {
        seconds_.Observe(absl::ToDoubleSeconds(clock_.Monotonic() - started));
        if (!recorded.ok()) {
          Count(counters, told.event_class, RefusalOutcome(recorded.status()));
          done(WithRoute(recorded.status(), told.route));
          return;
        }
        Count(counters, told.event_class,
              recorded->duplicate ? "duplicate"
                                  : store::EventStateName(recorded->state));
        LogRecorded(told, *recorded);
        done(std::move(recorded));
      };
  if (!delivered.ok()) {
    finish(delivered.status());
    return;
  }
  queue_.Submit(*std::move(delivered), std::move(finish));
}

absl::StatusOr<store::RecordedEvent> IngestEvent::Run(
    absl::string_view route, providers::Delivery delivery) {
  auto promise =
      std::make_shared<std::promise<absl::StatusOr<store::RecordedEvent>>>();
  auto future = promise->get_future();
  Start(route, std::move(delivery),
        [promise](absl::StatusOr<store::RecordedEvent> recorded) {
          promise->set_value(std::move(recorded));
        });
  return future.get();
}

absl::StatusOr<store::DeliveredEvent> IngestEvent::Read(
    const host::ConfiguredRoute& configured, providers::Delivery delivery) {
  const std::shared_ptr<const providers::ProviderAdapter> adapter =
      configured.adapter();
  const absl::Time now = clock_.Now();
  const absl::Duration started = clock_.Monotonic();
  ASSIGN_OR_RETURN(const std::string key, adapter->Verify(delivery, now));
  const absl::Duration verified = clock_.Monotonic();
  verify_seconds_.Observe(absl::ToDoubleSeconds(verified - started));
  configured.NoteKeyUse(key, now);
  store::DeliveredEvent delivered;
  delivered.route = configured.route();
  ASSIGN_OR_RETURN(delivered.event, adapter->Read(delivery));
  read_seconds_.Observe(absl::ToDoubleSeconds(clock_.Monotonic() - verified));
  delivered.body = std::move(delivery.body);
  if (!floods_.Allow(delivered.route.name, FloodSubject(delivered.event))) {
    delivered.deferred = "flood";
  }
  return delivered;
}

void IngestEvent::Count(const Counters& counters, absl::string_view event_class,
                        absl::string_view outcome) {
  const auto counter =
      counters.find(std::pair(std::string(event_class), std::string(outcome)));
  if (counter != counters.end()) counter->second->Increment();
}

}  // namespace tenure::webhook_ingest
