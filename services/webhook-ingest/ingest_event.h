#ifndef TENURE_SERVICES_WEBHOOK_INGEST_INGEST_EVENT_H_
#define TENURE_SERVICES_WEBHOOK_INGEST_INGEST_EVENT_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/obs/metrics.h"
#include "common/providers/provider_adapter.h"
#include "common/store/inbox_store.h"
#include "services/host/routes.h"

namespace tenure::webhook_ingest {

// The one path of an event, whether it came over HTTP or gRPC: route, size,
// signature over the raw bytes, envelope, inbox and facts in one transaction.
// Thread-safe.
class IngestEvent {
 public:
  IngestEvent(const host::Routes& routes, store::InboxStore& inbox,
              const Clock& clock, size_t max_body_bytes,
              obs::Registry& registry);

  // OK only when the event is durably stored. Errors carry the reason the
  // provider's answer is made of.
  absl::StatusOr<store::RecordedEvent> Run(absl::string_view route,
                                           const providers::Delivery& delivery);

  size_t max_body_bytes() const { return max_body_bytes_; }

 private:
  absl::StatusOr<store::RecordedEvent> Ingest(
      const host::ConfiguredRoute& configured,
      const providers::Delivery& delivery);
  void Count(absl::string_view route, absl::string_view outcome);

  const host::Routes& routes_;
  store::InboxStore& inbox_;
  const Clock& clock_;
  const size_t max_body_bytes_;
  // By route, then outcome; all made at start.
  std::map<std::string,
           std::map<std::string, prometheus::Counter*, std::less<>>,
           std::less<>>
      counters_;
  prometheus::Histogram& seconds_;
};

}  // namespace tenure::webhook_ingest

#endif  // TENURE_SERVICES_WEBHOOK_INGEST_INGEST_EVENT_H_
