#ifndef TENURE_SERVICES_WEBHOOK_INGEST_INBOX_STORE_H_
#define TENURE_SERVICES_WEBHOOK_INGEST_INBOX_STORE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/db/pool.h"
#include "common/providers/provider_adapter.h"
#include "common/store/fact_store.h"

namespace tenure::webhook_ingest {

// State of a stored event, the literal in provider_event.status.
enum class EventState {
  kReceived,
  kApplied,
  kNoop,
  kIgnored,
  kParked,
  kFailed,
  kQuarantined,
  kDead,
};
absl::string_view EventStateName(EventState state);

// What became of a delivery.
struct RecordedEvent {
  int64_t event_id = 0;
  EventState state = EventState::kReceived;
  // Snake case; why it is ignored, parked or quarantined.
  std::string reason;
  // An earlier delivery had stored it; this one changed nothing.
  bool duplicate = false;
};

// The inbox. Thread-safe.
class InboxStore {
 public:
  explicit InboxStore(db::Pool& pool) : pool_(pool) {}

  // Stores a verified event and applies its facts, in one transaction: inbox
  // row, facts, projection, history, outbox. OK only after the commit.
  //
  // The same event again changes nothing, unless the first delivery left it
  // waiting (parked, failed): then it is tried once more. The same id with
  // another body is set aside as quarantined. When applying fails for a reason
  // that repetition does not cure, the event is stored as failed with an
  // instant for the next try, so that nothing acknowledged is lost (R4, C003).
  //
  // Errors are those of the database: the caller must not acknowledge.
  absl::StatusOr<RecordedEvent> Record(const store::Route& route,
                                       const providers::ProviderEvent& event,
                                       absl::string_view body);

 private:
  // `failure` is empty, or why applying failed: then only the row is stored.
  absl::StatusOr<RecordedEvent> RecordInTransaction(
      db::Transaction& tx, const store::Route& route,
      const providers::ProviderEvent& event, absl::string_view body,
      absl::string_view failure);

  db::Pool& pool_;
};

}  // namespace tenure::webhook_ingest

#endif  // TENURE_SERVICES_WEBHOOK_INGEST_INBOX_STORE_H_
