#include "common/store/inbox_store.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/crypto.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/db/sql_error.h"
#include "common/store/catalog_store.h"
#include "common/store/statements.h"

namespace tenure::store {
namespace {

// What an event needs is held by others for longer than a statement may wait.
constexpr char kBusyReason[] = "busy";

// How long a lock is waited for. Others wait behind: a batch is rather taken
// apart, and what still waits is stored as received and applied right after.
constexpr absl::Duration kLockWait = absl::Milliseconds(500);

// How long an event waits that was stored only.
constexpr absl::Duration kDeferredWait = absl::Minutes(1);

constexpr std::pair<EventState, absl::string_view> kStateNames[] = {
    {EventState::kReceived, "received"},
    {EventState::kApplied, "applied"},
    {EventState::kNoop, "noop"},
    {EventState::kIgnored, "ignored"},
    {EventState::kParked, "parked"},
    {EventState::kFailed, "failed"},
    {EventState::kQuarantined, "quarantined"},
    {EventState::kDead, "dead"},
};

absl::StatusOr<EventState> ParseEventState(absl::string_view name) {
  for (const auto& [state, text] : kStateNames) {
    if (text == name) return state;
  }
  return InternalError(absl::StrCat("unknown event status ", name));
}

bool Waits(EventState state) {
  return state == EventState::kReceived || state == EventState::kParked ||
         state == EventState::kFailed;
}

std::optional<int64_t> WaitMicroseconds(EventState state, int64_t attempts) {
  if (!Waits(state)) return std::nullopt;
  // A parked event waits for a fact that only the outside brings, and that is
  // often a second event of the same purchase, moments away: the first wait is
  // short. No randomness: the order of waiting events need not be spread, one
  // process takes one at a time.
  const absl::Duration wait =
      InboxStore::kFirstWait *
      static_cast<double>(1 << std::min<int64_t>(attempts, 11));
  return absl::ToInt64Microseconds(std::min(wait, InboxStore::kLongestWait));
}

// True for failures that another try of the same transaction does not cure and
// that say nothing about the database's health.
bool IsApplyFailure(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
      return true;
    default:
      return false;
  }
}

// True when the rows that an event needs were held by others for too long, or a
// statement took too long: the event waits, and those behind it need not.
bool IsBusy(const absl::Status& status) {
  const std::optional<std::string> sqlstate = db::SqlStateOf(status);
  if (!sqlstate.has_value()) return false;
  const db::SqlErrorClass error_class = db::ClassifySqlState(*sqlstate);
  return error_class == db::SqlErrorClass::kBusy ||
         error_class == db::SqlErrorClass::kRetryTransaction;
}

// What becomes of an event that could not be applied.
void SetFailure(const absl::Status& status, RecordedEvent* recorded) {
  if (IsBusy(status)) {
    // Nothing is wrong with it: what it needs was held by others.
    recorded->state = EventState::kReceived;
    recorded->reason = kBusyReason;
  } else if (status.code() == absl::StatusCode::kInvalidArgument) {
    // It says what cannot be, and will say so at every try.
    recorded->state = EventState::kQuarantined;
    recorded->reason = "content_invalid";
  } else {
    recorded->state = EventState::kFailed;
    recorded->reason = "apply_failed";
  }
}

FactBatch ToBatch(const Route& route, const providers::ProviderEvent& event,
                  const providers::SubscriptionFacts& facts,
                  int64_t provider_event_id) {
  FactBatch batch;
  batch.route = route;
  batch.account = event.account;
  batch.provider_subscription_id = facts.provider_subscription_id;
  batch.item_key = facts.item_key;
  batch.customer_id = facts.customer_id;
  batch.subject = facts.subject;
  batch.product_id = facts.product_id;
  batch.event_id = event.event_id;
  batch.provider_event_id = provider_event_id;
  batch.payment_names = facts.payment_names;
  batch.facts = facts.facts;
  return batch;
}

// Of several products with ends of their own, the first one that the catalogue
// knows is the one that counts (C069).
absl::Status ChooseProduct(db::Transaction& tx,
                           const providers::SubscriptionFacts& facts,
                           FactBatch* batch) {
  if (facts.alternatives.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::optional<domain::Plan> plan,
                   FindPlanOfProduct(tx, batch->route.name, facts.product_id));
  for (const providers::Alternative& alternative : facts.alternatives) {
    if (plan.has_value()) break;
    ASSIGN_OR_RETURN(
        plan, FindPlanOfProduct(tx, batch->route.name, alternative.product_id));
    if (!plan.has_value()) continue;
    batch->product_id = alternative.product_id;
    batch->facts = alternative.facts;
  }
  return absl::OkStatus();
}

// Stores what an event tells of names: whose a customer is, what else a payment
// is called. Whether any of it was new. An event that names a payment nobody
// knows is parked.
absl::StatusOr<bool> ApplyNames(db::Transaction& tx, const Route& route,
                                const providers::ProviderEvent& event,
                                RecordedEvent* recorded) {
  bool learned = false;
  recorded->state = EventState::kReceived;
  for (const providers::CustomerLink& link : event.links) {
    if (!ValidateText("subject", link.subject, 255).ok()) continue;
    ASSIGN_OR_RETURN(
        const bool added,
        LinkCustomer(tx, route, event.account, link.customer_id, link.subject));
    learned = learned || added;
  }
  for (const providers::PaymentAlias& name : event.payment_aliases) {
    ASSIGN_OR_RETURN(const std::optional<bool> added,
                     AddPaymentAlias(tx, route, event.account, name.payment_key,
                                     name.alias));
    if (!added.has_value()) {
      recorded->state = EventState::kParked;
      recorded->reason = "unknown_payment";
      return learned;
    }
    learned = learned || *added;
  }
  return learned;
}

// Why an event carries nothing for a subscription, whatever the database
// knows; nullopt when it does.
std::optional<std::pair<EventState, std::string>> SetAside(
    const Route& route, const providers::ProviderEvent& event) {
  if (event.livemode != (route.environment == "live")) {
    // Test money never touches live subscriptions, nor the other way (R15).
    return std::pair(EventState::kIgnored, std::string("livemode_mismatch"));
  }
  if (!event.quarantined.empty()) {
    return std::pair(EventState::kQuarantined, event.quarantined);
  }
  if (event.subscriptions.empty() && event.links.empty() &&
      event.payment_aliases.empty()) {
    return std::pair(EventState::kIgnored, event.ignored);
  }
  return std::nullopt;
}

// Applies all facts of an event, or none of them and says why: there are none
// to apply, or it waits.
absl::Status ApplyFacts(db::Transaction& tx, const Route& route,
                        const providers::ProviderEvent& event,
                        RecordedEvent* recorded) {
  if (const auto aside = SetAside(route, event)) {
    recorded->state = aside->first;
    recorded->reason = aside->second;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const bool learned, ApplyNames(tx, route, event, recorded));
  if (recorded->state == EventState::kParked) return absl::OkStatus();
  if (event.subscriptions.empty()) {
    recorded->state = learned ? EventState::kApplied : EventState::kNoop;
    recorded->reason = event.ignored;
    return absl::OkStatus();
  }
  std::vector<std::pair<FactBatch, Destination>> resolved;
  for (const providers::SubscriptionFacts& facts : event.subscriptions) {
    FactBatch batch = ToBatch(route, event, facts, recorded->event_id);
    RETURN_IF_ERROR(ChooseProduct(tx, facts, &batch));
    ASSIGN_OR_RETURN(Destination destination, Resolve(tx, batch));
    if (!destination.parked.empty()) {
      recorded->state = EventState::kParked;
      recorded->reason = destination.parked;
      return absl::OkStatus();
    }
    resolved.emplace_back(std::move(batch), std::move(destination));
  }
  recorded->state = EventState::kNoop;
  for (const auto& [batch, destination] : resolved) {
    ASSIGN_OR_RETURN(const AppliedFacts applied, Apply(tx, batch, destination));
    recorded->subscription_ids.push_back(applied.subscription_id);
    if (applied.changed) recorded->state = EventState::kApplied;
  }
  return absl::OkStatus();
}

// Rows of events to be brought to what became of them.
class Settlement {
 public:
  // `fresh`: inserted by this transaction, as if it had been applied.
  void Add(const RecordedEvent& recorded, int64_t attempt_count,
           absl::string_view error, bool fresh) {
    events_.AddRow(
        recorded.event_id, EventStateName(recorded.state), recorded.reason,
        WaitMicroseconds(recorded.state, attempt_count), error, fresh);
    for (const int64_t id : recorded.subscription_ids) {
      subscriptions_.AddRow(recorded.event_id, id);
    }
  }

  absl::Status Write(db::Transaction& tx) const {
    if (events_.empty()) return absl::OkStatus();
    db::Params params = events_.ToParams();
    subscriptions_.AppendTo(params);
    return tx.Execute(kSettleProviderEvents, params).status();
  }

 private:
  db::RowArrays events_{6};
  db::RowArrays subscriptions_{2};
};

// As what RecordTogether inserts an event. Nearly all are applied, so that is
// what the row says from the start; a second version of each row would be half
// of the work.
EventState StoredAs(const DeliveredEvent& delivered, std::string* reason) {
  if (!delivered.deferred.empty()) {
    *reason = delivered.deferred;
    return EventState::kReceived;
  }
  const auto aside = SetAside(delivered.route, delivered.event);
  if (!aside.has_value()) return EventState::kApplied;
  *reason = aside->second;
  return aside->first;
}

using EventKey = std::tuple<int64_t, std::string, bool, std::string>;

EventKey KeyOf(const DeliveredEvent& delivered) {
  const providers::ProviderEvent& event = delivered.event;
  return {delivered.route.id, event.account, event.livemode, event.event_id};
}

EventKey KeyOf(const db::Row& row) {
  return {row.Int64("route_id"), row.Text("account"), row.Bool("livemode"),
          row.Text("external_event_id")};
}

// What of several events is new.
struct Arrivals {
  std::vector<size_t> inserted;
  // Those whose customer is an erased person.
  std::set<size_t> erased;
  // Stored by an earlier delivery.
  std::map<EventKey, size_t> known;
  // The same event once more among these, and its first.
  std::vector<std::pair<size_t, size_t>> repeated;
};

absl::StatusOr<Arrivals> InsertEvents(
    db::Transaction& tx, absl::Span<const DeliveredEvent* const> events,
    const std::vector<std::string>& digests,
    std::vector<std::optional<RecordedEvent>>& recorded) {
  Arrivals arrivals;
  db::RowArrays rows(12);
  for (size_t i = 0; i < events.size(); ++i) {
    const providers::ProviderEvent& event = events[i]->event;
    const auto [first, is_first] = arrivals.known.emplace(KeyOf(*events[i]), i);
    if (!is_first) {
      arrivals.repeated.emplace_back(i, first->second);
      continue;
    }
    std::string reason;
    const EventState state = StoredAs(*events[i], &reason);
    rows.AddRow(events[i]->route.id, event.account, event.livemode,
                event.event_id, event.type, db::Bytes{events[i]->body},
                db::Bytes{digests[i]}, event.occurred_at, event.customer_id,
                EventStateName(state), reason,
                state == EventState::kReceived
                    ? std::optional(absl::ToInt64Microseconds(kDeferredWait))
                    : std::nullopt);
  }
  ASSIGN_OR_RETURN(const db::Result inserted,
                   tx.Execute(kInsertProviderEvents, rows.ToParams()));
  for (size_t k = 0; k < inserted.size(); ++k) {
    const auto key = arrivals.known.find(KeyOf(inserted[k]));
    if (key == arrivals.known.end()) {
      return InternalError("an event was stored that was not told");
    }
    const size_t i = key->second;
    arrivals.known.erase(key);
    arrivals.inserted.push_back(i);
    if (inserted[k].Bool("customer_erased")) arrivals.erased.insert(i);
    RecordedEvent& event = recorded[i].emplace();
    event.event_id = inserted[k].Int64("id");
    event.state = StoredAs(*events[i], &event.reason);
  }
  RETURN_IF_ERROR(inserted.status());
  std::sort(arrivals.inserted.begin(), arrivals.inserted.end());
  return arrivals;
}

// Answers those whose first delivery is settled or was received; the others are
// left.
absl::Status FindDuplicates(
    db::Transaction& tx, absl::Span<const DeliveredEvent* const> events,
    const std::vector<std::string>& digests,
    const std::map<EventKey, size_t>& known,
    std::vector<std::optional<RecordedEvent>>& recorded) {
  if (known.empty()) return absl::OkStatus();
  db::RowArrays keys(4);
  for (const auto& [key, i] : known) {
    keys.AddRow(std::get<0>(key), std::get<1>(key), std::get<2>(key),
                std::get<3>(key));
  }
  ASSIGN_OR_RETURN(const db::Result rows,
                   tx.Execute(kSelectProviderEvents, keys.ToParams()));
  for (size_t k = 0; k < rows.size(); ++k) {
    const size_t i = known.at(KeyOf(rows[k]));
    RecordedEvent event;
    event.event_id = rows[k].Int64("id");
    event.reason = rows[k].Text("reason");
    event.duplicate = true;
    ASSIGN_OR_RETURN(event.state, ParseEventState(rows[k].Text("status")));
    if (rows[k].Bytea("body_sha256") != digests[i]) continue;
    const bool deferred = !events[i]->deferred.empty();
    // One that was received is somebody's already. Trying it here would wait
    // for the lock that it waits for, and hold up others (F12).
    if (event.state == EventState::kReceived || !Waits(event.state) ||
        deferred) {
      // The thread that applies right after has given this one up.
      event.apply_next = event.state == EventState::kReceived && !deferred &&
                         event.reason == kBusyReason;
      recorded[i] = std::move(event);
    }
  }
  return rows.status();
}

// The event as an earlier delivery left it, if it was received: somebody acts
// on it already, and may hold its row while waiting for others (F12).
absl::StatusOr<std::optional<RecordedEvent>> FindReceived(
    db::Transaction& tx, const Route& route,
    const providers::ProviderEvent& event, const std::string& digest) {
  db::RowArrays key(4);
  key.AddRow(route.id, event.account, event.livemode, event.event_id);
  ASSIGN_OR_RETURN(const db::Result rows,
                   tx.Execute(kSelectProviderEvents, key.ToParams()));
  if (rows.empty() || rows[0].Text("status") != "received" ||
      rows[0].Bytea("body_sha256") != digest) {
    RETURN_IF_ERROR(rows.status());
    return std::nullopt;
  }
  RecordedEvent recorded;
  recorded.event_id = rows[0].Int64("id");
  recorded.reason = rows[0].Text("reason");
  recorded.duplicate = true;
  // The thread that applies right after has given this one up.
  recorded.apply_next = recorded.reason == kBusyReason;
  RETURN_IF_ERROR(rows.status());
  return recorded;
}

}  // namespace

absl::string_view EventStateName(EventState state) {
  for (const auto& [value, name] : kStateNames) {
    if (value == state) return name;
  }
  return "";
}

absl::StatusOr<RecordedEvent> InboxStore::Record(
    const Route& route, const providers::ProviderEvent& event,
    absl::string_view body) {
  RecordedEvent recorded;
  absl::Status status =
      pool_.RunTransaction([&](db::Transaction& tx) -> absl::Status {
        RETURN_IF_ERROR(
            tx.Execute(kBoundLockWait, db::MakeParams(kLockWait)).status());
        ASSIGN_OR_RETURN(recorded, RecordInTransaction(tx, route, event, body,
                                                       absl::OkStatus()));
        return absl::OkStatus();
      });
  if (status.ok()) return recorded;
  const bool busy = IsBusy(status);
  if (!busy && !IsApplyFailure(status)) return status;
  (busy ? log::Warning : log::Error)(
      "event could not be applied",
      {{"event_id", event.event_id},
       {"event_type", event.type},
       {"detail", std::string(status.message())}});
  RETURN_IF_ERROR(
      pool_.RunTransaction([&](db::Transaction& tx) -> absl::Status {
        ASSIGN_OR_RETURN(recorded,
                         RecordInTransaction(tx, route, event, body, status));
        return absl::OkStatus();
      }));
  recorded.apply_next |= busy && recorded.state == EventState::kReceived;
  return recorded;
}

absl::StatusOr<RecordedEvent> InboxStore::RecordInTransaction(
    db::Transaction& tx, const Route& route,
    const providers::ProviderEvent& event, absl::string_view body,
    const absl::Status& failure) {
  RecordedEvent recorded;
  const std::string sha256 = Sha256(body);
  ASSIGN_OR_RETURN(
      const db::Result inserted,
      tx.Execute(kInsertProviderEvent,
                 db::MakeParams(route.id, event.account, event.livemode,
                                event.event_id, event.type,
                                db::Bytes{std::string(body)}, db::Bytes{sha256},
                                event.occurred_at, event.customer_id)));
  if (!inserted.empty()) {
    recorded.event_id = inserted[0].Int64("id");
  } else {
    ASSIGN_OR_RETURN(const std::optional<RecordedEvent> received,
                     FindReceived(tx, route, event, sha256));
    if (received.has_value()) return *received;
    ASSIGN_OR_RETURN(
        const db::Result stored,
        tx.Execute(kLockProviderEvent,
                   db::MakeParams(route.id, event.account, event.livemode,
                                  event.event_id)));
    if (stored.empty()) return InternalError("a stored event vanished");
    recorded.event_id = stored[0].Int64("id");
    recorded.reason = stored[0].Text("reason");
    ASSIGN_OR_RETURN(recorded.state, ParseEventState(stored[0].Text("status")));
    if (stored[0].Bytea("body_sha256") != sha256) {
      RETURN_IF_ERROR(tx.Execute(kInsertEventConflict,
                                 db::MakeParams(recorded.event_id,
                                                db::Bytes{std::string(body)},
                                                db::Bytes{sha256}))
                          .status());
      recorded.state = EventState::kQuarantined;
      recorded.reason = "same_id_other_body";
      return recorded;
    }
    RETURN_IF_ERROR(stored.status());
    if (!Waits(recorded.state)) {
      recorded.duplicate = true;
      return recorded;
    }
  }

  recorded.reason.clear();
  if (!failure.ok()) {
    SetFailure(failure, &recorded);
  } else {
    RETURN_IF_ERROR(ApplyFacts(tx, route, event, &recorded));
  }
  RETURN_IF_ERROR(Settle(tx, recorded, /*attempt_count=*/0, failure.message()));
  return recorded;
}

absl::Status InboxStore::Settle(db::Transaction& tx,
                                const RecordedEvent& recorded,
                                int64_t attempt_count,
                                absl::string_view error) {
  Settlement settlement;
  settlement.Add(recorded, attempt_count, error, /*fresh=*/false);
  return settlement.Write(tx);
}

absl::StatusOr<std::vector<std::optional<RecordedEvent>>>
InboxStore::RecordTogether(absl::Span<const DeliveredEvent* const> events) {
  std::vector<std::string> digests;
  digests.reserve(events.size());
  for (const DeliveredEvent* event : events) {
    digests.push_back(Sha256(event->body));
  }
  std::vector<std::optional<RecordedEvent>> recorded;
  RETURN_IF_ERROR(
      pool_.RunTransaction([&](db::Transaction& tx) -> absl::Status {
        recorded.assign(events.size(), std::nullopt);
        RETURN_IF_ERROR(
            tx.Execute(kBoundLockWait, db::MakeParams(kLockWait)).status());
        return RecordInTransaction(tx, events, digests, recorded);
      }));
  return recorded;
}

bool InboxStore::MayGoTogether(const DeliveredEvent& delivered) {
  const providers::ProviderEvent& event = delivered.event;
  std::string reason;
  if (StoredAs(delivered, &reason) != EventState::kApplied) return true;
  return event.links.empty() && event.payment_aliases.empty() &&
         event.subscriptions.size() == 1 &&
         event.subscriptions[0].alternatives.empty() &&
         CanApplyTogether(ToBatch(delivered.route, event,
                                  event.subscriptions[0],
                                  /*provider_event_id=*/0));
}

bool InboxStore::ShouldRecordAlone(const absl::Status& status) {
  return IsBusy(status) || IsApplyFailure(status);
}

absl::Status InboxStore::RecordInTransaction(
    db::Transaction& tx, absl::Span<const DeliveredEvent* const> events,
    const std::vector<std::string>& digests,
    std::vector<std::optional<RecordedEvent>>& recorded) {
  ASSIGN_OR_RETURN(const Arrivals arrivals,
                   InsertEvents(tx, events, digests, recorded));
  RETURN_IF_ERROR(
      FindDuplicates(tx, events, digests, arrivals.known, recorded));

  std::vector<FactBatch> batches;
  std::vector<size_t> applied;
  for (const size_t i : arrivals.inserted) {
    if (recorded[i]->state != EventState::kApplied) continue;
    const providers::ProviderEvent& event = events[i]->event;
    batches.push_back(ToBatch(events[i]->route, event, event.subscriptions[0],
                              recorded[i]->event_id));
    applied.push_back(i);
  }
  ASSIGN_OR_RETURN(const std::vector<BatchOutcome> outcomes,
                   ApplyTogether(tx, batches));
  // The rows were written as if all had been applied.
  Settlement otherwise;
  for (size_t k = 0; k < outcomes.size(); ++k) {
    const BatchOutcome& outcome = outcomes[k];
    RecordedEvent& event = *recorded[applied[k]];
    event.state =
        outcome.applied.changed ? EventState::kApplied : EventState::kNoop;
    if (!outcome.parked.empty()) {
      event.state = EventState::kParked;
      event.reason = outcome.parked;
    } else {
      event.subscription_ids = {outcome.applied.subscription_id};
    }
    if (outcome.locked_elsewhere) {
      event.state = EventState::kReceived;
      event.reason = "subscription_locked";
      event.apply_next = true;
    }
    if (event.state != EventState::kApplied || outcome.subject_erased ||
        arrivals.erased.count(applied[k]) != 0) {
      otherwise.Add(event, /*attempt_count=*/0, "", /*fresh=*/true);
    }
  }
  RETURN_IF_ERROR(otherwise.Write(tx));
  for (const auto& [i, first] : arrivals.repeated) {
    if (!recorded[first].has_value() || digests[i] != digests[first]) continue;
    recorded[i] = recorded[first];
    recorded[i]->duplicate = true;
    recorded[i]->apply_next = false;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<RecordedEvent>> InboxStore::RetryNext(
    const std::vector<int64_t>& route_ids, const Parser& parse) {
  ASSIGN_OR_RETURN(const db::Result due,
                   pool_.Execute(kSelectEventIsDue, db::MakeParams(route_ids)));
  if (!due[0].Bool("due")) return std::nullopt;
  return Retry({kLockWaitingEvent, db::MakeParams(route_ids, parking_limit_)},
               parse);
}

absl::StatusOr<std::optional<RecordedEvent>> InboxStore::RetryEvent(
    int64_t event_id, const Parser& parse) {
  return Retry(
      {kLockWaitingEventById, db::MakeParams(event_id, parking_limit_)}, parse);
}

absl::StatusOr<std::optional<RecordedEvent>> InboxStore::Retry(
    const Take& take, const Parser& parse) {
  WaitingEvent taken;
  RecordedEvent recorded;
  const absl::Status status =
      pool_.RunTransaction([&](db::Transaction& tx) -> absl::Status {
        taken = WaitingEvent{};
        recorded = RecordedEvent{};
        return RetryInTransaction(tx, take, parse, &taken, &recorded);
      });
  if (status.ok()) {
    if (taken.event_id == 0) return std::nullopt;
    return recorded;
  }
  const bool busy = IsBusy(status);
  if (taken.event_id == 0 || !(busy || IsApplyFailure(status))) return status;
  log::Warning("waiting event could not be applied",
               {{"provider_event", taken.event_id},
                {"attempt", taken.attempt_count},
                {"detail", std::string(status.message())}});
  RecordedEvent failed;
  failed.event_id = taken.event_id;
  SetFailure(status, &failed);
  if (failed.state == EventState::kFailed && taken.too_old) {
    failed.state = EventState::kDead;
  }
  RETURN_IF_ERROR(pool_.RunTransaction([&](db::Transaction& tx) {
    return Settle(tx, failed, taken.attempt_count, status.message());
  }));
  return failed;
}

absl::Status InboxStore::RetryInTransaction(db::Transaction& tx,
                                            const Take& take,
                                            const Parser& parse,
                                            WaitingEvent* taken,
                                            RecordedEvent* recorded) {
  ASSIGN_OR_RETURN(const db::Result rows,
                   tx.Execute(take.statement, take.params));
  if (rows.empty()) return absl::OkStatus();
  taken->event_id = rows[0].Int64("id");
  taken->attempt_count = rows[0].Int64("attempt_count");
  taken->too_old = rows[0].Bool("too_old");
  recorded->event_id = taken->event_id;
  ASSIGN_OR_RETURN(recorded->state, ParseEventState(rows[0].Text("status")));
  ASSIGN_OR_RETURN(ParsedEvent parsed,
                   parse(rows[0].Int64("route_id"), rows[0].Bytea("body")));
  // Some providers have it in a header, and a stored body is read without them.
  parsed.event.event_id = rows[0].Text("external_event_id");
  RETURN_IF_ERROR(rows.status());
  RETURN_IF_ERROR(ApplyFacts(tx, parsed.route, parsed.event, recorded));
  if (taken->too_old && Waits(recorded->state)) {
    recorded->state = EventState::kDead;
  }
  return Settle(tx, *recorded, taken->attempt_count, "");
}

}  // namespace tenure::store
