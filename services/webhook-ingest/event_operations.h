#ifndef TENURE_SERVICES_WEBHOOK_INGEST_EVENT_OPERATIONS_H_
#define TENURE_SERVICES_WEBHOOK_INGEST_EVENT_OPERATIONS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/db/pool.h"
#include "common/store/inbox_store.h"
#include "services/host/routes.h"
#include "tenure/webhook/v1/provider_events.pb.h"

namespace tenure::webhook_ingest {

// What operators see of the inbox and do to it. A write is one transaction with
// its request_log and audit rows. Trying the event comes after the commit: a
// process that dies in between leaves it to the retries. Errors are those that
// provider_events.proto names. Thread-safe.
class EventOperations {
 public:
  // `environment` is "live" or "test": events of the other's routes are not
  // seen (R15). `routes` are those of this process: what came by others is
  // left to the processes that have them.
  EventOperations(db::Pool& pool, store::InboxStore& inbox,
                  const host::Routes& routes, std::string environment,
                  const Clock& clock = SystemClock::Instance())
      : pool_(pool),
        inbox_(inbox),
        routes_(routes),
        environment_(std::move(environment)),
        clock_(clock) {}

  absl::Status List(const webhook::v1::ListEventsRequest& request,
                    webhook::v1::ListEventsResponse* response);
  absl::Status Get(const webhook::v1::GetEventRequest& request,
                   webhook::v1::GetEventResponse* response);
  absl::Status Replay(const webhook::v1::ReplayEventRequest& request,
                      webhook::v1::ReplayEventResponse* response);
  absl::Status ReplayMany(const webhook::v1::ReplayEventsRequest& request,
                          webhook::v1::ReplayEventsResponse* response);
  absl::Status Discard(const webhook::v1::DiscardEventRequest& request,
                       webhook::v1::DiscardEventResponse* response);

  static constexpr int kMaxPage = 500;
  static constexpr int kMaxReplays = 500;
  // Events that one call looks at where no index holds what it asks for.
  static constexpr int64_t kWindow = 100'000;
  // How long the events of a batch are tried before the rest is left to the
  // retries.
  static constexpr absl::Duration kTryBudget = absl::Seconds(5);

 private:
  using Outcomes = std::vector<webhook::v1::EventOutcome*>;

  // Runs `write` once for a request_id, and tries afterwards what `outcomes`
  // of the answer calls RECEIVED. A repeat only looks what has become of it.
  template <typename Request, typename Response>
  absl::Status Once(absl::string_view method, const Request& request,
                    Response* response,
                    absl::FunctionRef<absl::Status(db::Transaction&)> write,
                    absl::FunctionRef<Outcomes(Response*)> outcomes);
  absl::Status Try(const Outcomes& waiting);
  absl::Status Refresh(const Outcomes& waiting);
  absl::Status AddFacts(db::Transaction& tx, int64_t event_id, int64_t route_id,
                        webhook::v1::GetEventResponse* response);
  // nullptr when it is another process's.

  db::Pool& pool_;
  store::InboxStore& inbox_;
  const host::Routes& routes_;
  const std::string environment_;
  const Clock& clock_;
};

}  // namespace tenure::webhook_ingest

#endif  // TENURE_SERVICES_WEBHOOK_INGEST_EVENT_OPERATIONS_H_
