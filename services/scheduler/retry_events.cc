#include "services/scheduler/retry_events.h"

#include <optional>
#include <string>

#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace tenure::scheduler {
namespace {

using store::EventState;

bool IsSettled(EventState state) {
  return state == EventState::kApplied || state == EventState::kNoop ||
         state == EventState::kIgnored;
}

bool IsFailure(EventState state) {
  return state == EventState::kFailed || state == EventState::kQuarantined ||
         state == EventState::kDead;
}

}  // namespace

RetryEvents::RetryEvents(const host::Routes& routes, store::InboxStore& inbox,
                         int64_t batch_size, obs::Registry& registry)
    : routes_(routes), inbox_(inbox), batch_size_(batch_size) {
  for (const auto& [name, configured] : routes.all()) {
    route_ids_.push_back(configured->route().id);
  }
  for (const EventState state :
       {EventState::kReceived, EventState::kApplied, EventState::kNoop,
        EventState::kIgnored, EventState::kParked, EventState::kFailed,
        EventState::kQuarantined, EventState::kDead}) {
    counters_[state] = &registry.Counter(
        "event_retries_total", "waiting events tried, by what became of them",
        {{"outcome", std::string(store::EventStateName(state))}});
  }
}

absl::Status RetryEvents::Run(const std::function<bool()>& stop,
                              JobOutcome* outcome) {
  for (int64_t tried = 0; tried < batch_size_ && !stop(); ++tried) {
    const log::ScopedRequestId scope(log::NewRequestId());
    ASSIGN_OR_RETURN(const std::optional<store::RecordedEvent> recorded,
                     inbox_.RetryNext(route_ids_, [this](int64_t route_id,
                                                         absl::string_view b) {
                       return routes_.ReadStored(route_id, b);
                     }));
    if (!recorded.has_value()) break;
    ++outcome->batch_count;
    ++outcome->found_count;
    outcome->succeeded_count += IsSettled(recorded->state) ? 1 : 0;
    outcome->failed_count += IsFailure(recorded->state) ? 1 : 0;
    counters_.at(recorded->state)->Increment();
    // Nothing looks at it again but a person.
    const bool given_up = recorded->state == EventState::kDead ||
                          recorded->state == EventState::kQuarantined;
    (given_up ? log::Warning : log::Info)(
        "waiting event", {{"provider_event", recorded->event_id},
                          {"state", store::EventStateName(recorded->state)},
                          {"reason", recorded->reason}});
  }
  return absl::OkStatus();
}

}  // namespace tenure::scheduler
