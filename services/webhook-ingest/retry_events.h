#ifndef TENURE_SERVICES_WEBHOOK_INGEST_RETRY_EVENTS_H_
#define TENURE_SERVICES_WEBHOOK_INGEST_RETRY_EVENTS_H_

#include "absl/status/statusor.h"
#include "services/webhook-ingest/inbox_store.h"
#include "services/webhook-ingest/routes.h"

namespace tenure::webhook_ingest {

// Applies events that were acknowledged and could not be applied at once, when
// their time has come: nothing that got a 2xx is left without somebody who
// acts on it (R4).
class RetryEvents {
 public:
  RetryEvents(const Routes& routes, InboxStore& inbox)
      : routes_(routes), inbox_(inbox) {}

  // Tries what is due, at most `limit` events. The number tried.
  absl::StatusOr<int> Run(int limit);

 private:
  const Routes& routes_;
  InboxStore& inbox_;
};

}  // namespace tenure::webhook_ingest

#endif  // TENURE_SERVICES_WEBHOOK_INGEST_RETRY_EVENTS_H_
