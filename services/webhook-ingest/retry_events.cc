#include "services/webhook-ingest/retry_events.h"

#include "common/base/status_macros.h"

namespace tenure::webhook_ingest {

absl::StatusOr<int> RetryEvents::Run(int limit) {
  const auto parse = [this](int64_t route_id, absl::string_view body)
      -> absl::StatusOr<InboxStore::ParsedEvent> {
    InboxStore::ParsedEvent parsed;
    for (const auto& [name, configured] : routes_.all()) {
      if (configured.route.id != route_id) continue;
      parsed.route = &configured.route;
      ASSIGN_OR_RETURN(parsed.event, configured.adapter->Parse(body));
    }
    return parsed;
  };
  int tried = 0;
  while (tried < limit) {
    ASSIGN_OR_RETURN(const bool found, inbox_.RetryNext(parse));
    if (!found) break;
    ++tried;
  }
  return tried;
}

}  // namespace tenure::webhook_ingest
