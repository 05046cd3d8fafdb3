#ifndef TENURE_SERVICES_WEBHOOK_INGEST_RETRY_EVENTS_H_
#define TENURE_SERVICES_WEBHOOK_INGEST_RETRY_EVENTS_H_

#include <functional>
#include <map>

#include "absl/status/statusor.h"
#include "common/obs/metrics.h"
#include "common/store/inbox_store.h"
#include "services/webhook-ingest/routes.h"

namespace tenure::webhook_ingest {

// Applies events that were acknowledged and could not be applied at once, when
// their time has come: nothing that got a 2xx is left without somebody who
// acts on it (R4).
class RetryEvents {
 public:
  RetryEvents(const Routes& routes, store::InboxStore& inbox,
              obs::Registry& registry);

  // Tries what is due of the configured routes until nothing is or `stop`
  // answers true. The number tried. Each try is logged and counted.
  absl::StatusOr<int> Run(const std::function<bool()>& stop);

 private:
  const Routes& routes_;
  store::InboxStore& inbox_;
  std::map<store::EventState, prometheus::Counter*> counters_;
};

}  // namespace tenure::webhook_ingest

#endif  // TENURE_SERVICES_WEBHOOK_INGEST_RETRY_EVENTS_H_
