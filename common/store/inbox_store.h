#ifndef TENURE_COMMON_STORE_INBOX_STORE_H_
#define TENURE_COMMON_STORE_INBOX_STORE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/db/params.h"
#include "common/db/pool.h"
#include "common/db/statement.h"
#include "common/providers/provider_adapter.h"
#include "common/store/fact_store.h"

namespace tenure::store {

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
  // Those its facts are about, when it was applied.
  std::vector<int64_t> subscription_ids;
  // An earlier delivery had stored it; this one changed nothing.
  bool duplicate = false;
  // Its subscription was locked elsewhere: to be applied right after, by
  // RetryEvent.
  bool apply_next = false;
};

// A verified event on its way into the inbox.
struct DeliveredEvent {
  Route route;
  providers::ProviderEvent event;
  std::string body;
  // Stored only, and left to the retry job; why, in snake case.
  std::string deferred;
};

// The inbox. Thread-safe.
class InboxStore {
 public:
  // `parking_limit`: how long after its arrival an event is tried again.
  explicit InboxStore(db::Pool& pool,
                      absl::Duration parking_limit = kParkingLimit)
      : pool_(pool), parking_limit_(parking_limit) {}

  // Stores a verified event and applies its facts, in one transaction: inbox
  // row, facts, projection, history, outbox. OK only after the commit.
  //
  // The same event again changes nothing, unless the first delivery left it
  // waiting (parked, failed): then it is tried once more. The same id with
  // another body is set aside as quarantined, and so is an event whose content
  // cannot be (C070, C072). When applying fails for another reason that
  // repetition does not cure, the event is stored as failed with an instant for
  // the next try, so that nothing acknowledged is lost (R4, C003); when what it
  // needs stays locked for half a second, as received with apply_next.
  //
  // Errors are those of the database: the caller must not acknowledge.
  absl::StatusOr<RecordedEvent> Record(const Route& route,
                                       const providers::ProviderEvent& event,
                                       absl::string_view body);

  // Record of several events in one transaction, with a few statements for all.
  // An event that cannot go with the others (it waits from an earlier delivery,
  // its id came with another body, it names other payments or customers) is
  // nullopt in the answer, and nothing is stored of it: record it alone. A
  // deferred one is only stored, as received.
  //
  // Any error says that nothing is stored; one event's failure is all's.
  // Repeat them alone when ShouldRecordAlone says so.
  absl::StatusOr<std::vector<std::optional<RecordedEvent>>> RecordTogether(
      absl::Span<const DeliveredEvent* const> events);

  // Whether RecordTogether may take it.
  static bool MayGoTogether(const DeliveredEvent& event);
  // Whether an error of RecordTogether may be that of one of them alone.
  static bool ShouldRecordAlone(const absl::Status& status);

  // A stored body, read again by the adapter of its route.
  struct ParsedEvent {
    Route route;
    providers::ProviderEvent event;
  };
  using Parser = std::function<absl::StatusOr<ParsedEvent>(
      int64_t route_id, absl::string_view body)>;

  // Takes the next waiting event of `route_ids` that is due, tries to apply it
  // and tells what became of it; nullopt when nothing is due. What still cannot
  // be applied waits longer, at most kLongestWait; past the parking limit it is
  // dead and listed for an operator (C012). Several processes take different
  // events.
  absl::StatusOr<std::optional<RecordedEvent>> RetryNext(
      const std::vector<int64_t>& route_ids, const Parser& parse);

  // The same of one event, due or not; waits for its lock. nullopt when it does
  // not wait (any more).
  absl::StatusOr<std::optional<RecordedEvent>> RetryEvent(int64_t event_id,
                                                          const Parser& parse);

  // The table of waits: the first one, doubled by every attempt up to the
  // longest.
  static constexpr absl::Duration kFirstWait = absl::Seconds(2);
  static constexpr absl::Duration kLongestWait = absl::Hours(1);
  static constexpr absl::Duration kParkingLimit = absl::Hours(7 * 24);

 private:
  // `failure` is OK, or why applying failed: then only the row is stored.
  absl::StatusOr<RecordedEvent> RecordInTransaction(
      db::Transaction& tx, const Route& route,
      const providers::ProviderEvent& event, absl::string_view body,
      const absl::Status& failure);

  absl::Status RecordInTransaction(
      db::Transaction& tx, absl::Span<const DeliveredEvent* const> events,
      const std::vector<std::string>& digests,
      std::vector<std::optional<RecordedEvent>>& recorded);

  // What Retry took, for the second transaction after a failure.
  struct WaitingEvent {
    int64_t event_id = 0;
    int64_t attempt_count = 0;
    bool too_old = false;
  };
  // The statement that takes the event, with its parameters.
  struct Take {
    db::Statement statement;
    db::Params params;
  };
  absl::StatusOr<std::optional<RecordedEvent>> Retry(const Take& take,
                                                     const Parser& parse);
  absl::Status RetryInTransaction(db::Transaction& tx, const Take& take,
                                  const Parser& parse, WaitingEvent* taken,
                                  RecordedEvent* recorded);
  absl::Status Settle(db::Transaction& tx, const RecordedEvent& recorded,
                      int64_t attempt_count, absl::string_view error);

  db::Pool& pool_;
  const absl::Duration parking_limit_;
};

}  // namespace tenure::store

#endif  // TENURE_COMMON_STORE_INBOX_STORE_H_
