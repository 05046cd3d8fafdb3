#include "services/webhook-ingest/retry_events.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace tenure::webhook_ingest {

RetryEvents::RetryEvents(const Routes& routes, store::InboxStore& inbox,
                         obs::Registry& registry)
    : routes_(routes), inbox_(inbox) {
  for (const store::EventState state :
       {store::EventState::kApplied, store::EventState::kNoop,
        store::EventState::kIgnored, store::EventState::kParked,
        store::EventState::kFailed, store::EventState::kQuarantined,
        store::EventState::kDead}) {
    counters_[state] = &registry.Counter(
        "event_retries_total", "waiting events tried, by what became of them",
        {{"outcome", std::string(store::EventStateName(state))}});
  }
}

absl::StatusOr<int> RetryEvents::Run(const std::function<bool()>& stop) {
  std::vector<int64_t> route_ids;
  for (const auto& [name, configured] : routes_.all()) {
    route_ids.push_back(configured.route.id);
  }
  const auto parse = [this](int64_t route_id, absl::string_view body)
      -> absl::StatusOr<store::InboxStore::ParsedEvent> {
    for (const auto& [name, configured] : routes_.all()) {
      if (configured.route.id != route_id) continue;
      store::InboxStore::ParsedEvent parsed;
      parsed.route = configured.route;
      ASSIGN_OR_RETURN(parsed.event, configured.adapter->Parse(body));
      return parsed;
    }
    return InternalError(absl::StrCat("route ", route_id, " is not known"));
  };
  int tried = 0;
  while (!stop()) {
    const log::ScopedRequestId scope(log::NewRequestId());
    ASSIGN_OR_RETURN(const std::optional<store::RecordedEvent> recorded,
                     inbox_.RetryNext(route_ids, parse));
    if (!recorded.has_value()) break;
    ++tried;
    if (const auto counter = counters_.find(recorded->state);
        counter != counters_.end()) {
      counter->second->Increment();
    }
    log::Info("waiting event",
              {{"provider_event", recorded->event_id},
               {"state", store::EventStateName(recorded->state)},
               {"reason", recorded->reason}});
  }
  return tried;
}

}  // namespace tenure::webhook_ingest
