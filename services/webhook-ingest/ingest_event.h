#ifndef TENURE_SERVICES_WEBHOOK_INGEST_INGEST_EVENT_H_
#define TENURE_SERVICES_WEBHOOK_INGEST_INGEST_EVENT_H_

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/obs/metrics.h"
#include "common/providers/provider_adapter.h"
#include "common/store/inbox_store.h"
#include "services/host/routes.h"
#include "services/webhook-ingest/flood_guard.h"
#include "services/webhook-ingest/ingest_queue.h"

namespace tenure::webhook_ingest {

// The one path of an event, whether it came over HTTP or gRPC: route, size,
// signature over the raw bytes, envelope, and the queue into the inbox.
// Thread-safe.
class IngestEvent {
 public:
  // Called once, by the caller's thread or another; must not block. OK only
  // when the event is durably stored. Errors carry the reason the provider's
  // answer is made of.
  using Done = std::function<void(absl::StatusOr<store::RecordedEvent>)>;

  IngestEvent(const host::Routes& routes, IngestQueue& queue,
              FloodGuard& floods, const Clock& clock, size_t max_body_bytes,
              obs::Registry& registry);

  // Stops the queue: what waits in it tells of its end here.
  ~IngestEvent() { queue_.Stop(); }
  IngestEvent(const IngestEvent&) = delete;
  IngestEvent& operator=(const IngestEvent&) = delete;

  void Start(absl::string_view route, providers::Delivery delivery, Done done);

  // Start, waited for.
  absl::StatusOr<store::RecordedEvent> Run(absl::string_view route,
                                           providers::Delivery delivery);

  size_t max_body_bytes() const { return max_body_bytes_; }

 private:
  // Those of one route, by class and outcome.
  using Counters =
      std::map<std::pair<std::string, std::string>, prometheus::Counter*>;

  absl::StatusOr<store::DeliveredEvent> Read(
      const host::ConfiguredRoute& configured, providers::Delivery delivery);
  static void Count(const Counters& counters, absl::string_view event_class,
                    absl::string_view outcome);

  const host::Routes& routes_;
  IngestQueue& queue_;
  FloodGuard& floods_;
  const Clock& clock_;
  const size_t max_body_bytes_;
  // By route; all made at start.
  std::map<std::string, Counters, std::less<>> counters_;
  prometheus::Histogram& seconds_;
  prometheus::Histogram& verify_seconds_;
  prometheus::Histogram& read_seconds_;
};

}  // namespace tenure::webhook_ingest

#endif  // TENURE_SERVICES_WEBHOOK_INGEST_INGEST_EVENT_H_
