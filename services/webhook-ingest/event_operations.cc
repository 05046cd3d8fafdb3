#include "services/webhook-ingest/event_operations.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"
#include "common/store/request_log.h"
#include "services/webhook-ingest/request_key.h"
#include "services/webhook-ingest/statements.h"
#include "services/webhook-ingest/subscription_history.h"

namespace tenure::webhook_ingest {
namespace {

namespace pb = ::tenure::webhook::v1;

// What the columns take, and what people write.
constexpr size_t kMaxName = 255;
constexpr size_t kMaxRoute = 64;
constexpr size_t kMaxRequestId = 128;
constexpr size_t kMaxActor = 255;
constexpr size_t kMaxReason = 1000;
constexpr int kDefaultPage = 50;

// received_at follows the ids but for the length of a transaction.
constexpr absl::Duration kIdSlack = absl::Minutes(10);

// ---- values ----

constexpr char kStatePrefix[] = "EVENT_STATE_";

// The API's state has the name of the stored one in upper case behind a prefix.
pb::EventState StateToApi(const std::string& status) {
  pb::EventState state = pb::EVENT_STATE_UNSPECIFIED;
  pb::EventState_Parse(
      absl::StrCat(kStatePrefix, absl::AsciiStrToUpper(status)), &state);
  return state;
}

std::string StateFromApi(pb::EventState state) {
  return absl::AsciiStrToLower(
      absl::StripPrefix(pb::EventState_Name(state), kStatePrefix));
}

// The states in which an event needs somebody.
bool IsSetAside(absl::string_view status) {
  return status == "parked" || status == "failed" || status == "quarantined" ||
         status == "dead";
}

const std::vector<std::string>& SetAsideStates() {
  static const auto* const kStates =
      new std::vector<std::string>{"parked", "failed", "quarantined", "dead"};
  return *kStates;
}

void SetOutcome(const db::Row& row, pb::EventOutcome* outcome) {
  outcome->set_event_id(row.Int64("id"));
  outcome->set_state(StateToApi(row.Text("status")));
  outcome->set_reason(row.Text("reason"));
}

void ToApi(const db::Row& row, pb::Event* event) {
  event->set_id(row.Int64("id"));
  event->set_route(row.Text("route"));
  event->set_account(row.Text("account"));
  event->set_livemode(row.Bool("livemode"));
  event->set_external_event_id(row.Text("external_event_id"));
  event->set_event_type(row.Text("event_type"));
  event->set_customer_id(row.Text("customer_id"));
  event->set_state(StateToApi(row.Text("status")));
  event->set_reason(row.Text("reason"));
  event->set_last_error(row.Text("last_error"));
  event->set_attempt_count(static_cast<int>(row.Int64("attempt_count")));
  *event->mutable_occurred_at() = ToProto(row.Time("occurred_at"));
  *event->mutable_received_at() = ToProto(row.Time("received_at"));
  if (const auto at = row.OptionalTime("processed_at")) {
    *event->mutable_processed_at() = ToProto(*at);
  }
  if (const auto at = row.OptionalTime("next_attempt_at")) {
    *event->mutable_next_attempt_at() = ToProto(*at);
  }
  event->set_body_sha256(row.Bytea("body_sha256"));
  event->set_body_size(row.Int64("body_size"));
  event->set_conflict_count(static_cast<int>(row.Int64("conflict_count")));
}

// ---- errors ----

absl::Status EventNotFoundError(absl::string_view event_id) {
  return MakeError(absl::StatusCode::kNotFound,
                   common::v1::ERROR_REASON_EVENT_NOT_FOUND,
                   absl::StrCat("there is no event ", event_id),
                   {{"event_id", std::string(event_id)}});
}

absl::Status EventBodyGoneError(int64_t event_id) {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   common::v1::ERROR_REASON_EVENT_BODY_GONE,
                   "the body of the event was erased or has outlived its "
                   "retention",
                   {{"event_id", absl::StrCat(event_id)}});
}

absl::Status EventNotSetAsideError(int64_t event_id,
                                   const std::string& status) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition,
      common::v1::ERROR_REASON_EVENT_NOT_SET_ASIDE,
      absl::StrCat("the event is ", status,
                   "; only parked, failed, dead and quarantined ones are "
                   "discarded"),
      {{"event_id", absl::StrCat(event_id)}, {"state", status}});
}

absl::Status ValidateContext(const pb::OperatorContext& context) {
  RETURN_IF_ERROR(
      ValidateText("context.request_id", context.request_id(), kMaxRequestId));
  RETURN_IF_ERROR(ValidateText("context.actor", context.actor(), kMaxActor));
  return ValidateText("context.reason", context.reason(), kMaxReason);
}

absl::Status ValidateEventNumber(absl::string_view field, int64_t id) {
  if (id == 0) return FieldMissingError(field);
  if (id < 0) return FieldInvalidError(field, "must be positive");
  return absl::OkStatus();
}

// ---- filters ----

// A checked EventFilter, and which part of its events is wanted.
struct Query {
  std::vector<int64_t> routes;
  std::vector<std::string> states;
  std::optional<std::string> event_type;
  std::optional<std::string> reason;
  std::optional<std::string> account;
  std::optional<absl::Time> received_after;
  std::optional<absl::Time> received_before;
  pb::EventFilter::AboutCase about = pb::EventFilter::ABOUT_NOT_SET;
  std::string about_name;
  int64_t about_subscription = 0;
  // Ids in [first, end).
  int64_t first = 1;
  int64_t end = std::numeric_limits<int64_t>::max();
  // The oldest first.
  bool upwards = false;
  int limit = 0;
};

struct Page {
  std::vector<int64_t> ids;
  // The last id that was looked at, unless it was the last of all.
  std::optional<int64_t> next;
};

absl::Status OptionalText(absl::string_view field, const std::string& text,
                          size_t max_bytes, std::optional<std::string>* out) {
  if (text.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(ValidateText(field, text, max_bytes));
  *out = text;
  return absl::OkStatus();
}

absl::Status ParseAbout(const pb::EventFilter& filter, Query* query) {
  query->about = filter.about_case();
  switch (query->about) {
    case pb::EventFilter::kCustomerId:
      query->about_name = filter.customer_id();
      return ValidateText("filter.customer_id", query->about_name, kMaxName);
    case pb::EventFilter::kExternalEventId:
      query->about_name = filter.external_event_id();
      return ValidateText("filter.external_event_id", query->about_name,
                          kMaxName);
    case pb::EventFilter::kSubscriptionId:
      query->about_subscription = filter.subscription_id();
      return ValidateEventNumber("filter.subscription_id",
                                 query->about_subscription);
    case pb::EventFilter::ABOUT_NOT_SET:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

// All of it but the routes.
absl::StatusOr<Query> ParseFilter(const pb::EventFilter& filter) {
  Query query;
  for (const int value : filter.states()) {
    const auto state = static_cast<pb::EventState>(value);
    if (!pb::EventState_IsValid(value) ||
        state == pb::EVENT_STATE_UNSPECIFIED) {
      return FieldInvalidError("filter.states", "must be states of events");
    }
    std::string name = StateFromApi(state);
    if (std::count(query.states.begin(), query.states.end(), name) == 0) {
      query.states.push_back(std::move(name));
    }
  }
  if (!filter.route().empty()) {
    RETURN_IF_ERROR(ValidateText("filter.route", filter.route(), kMaxRoute));
  }
  RETURN_IF_ERROR(OptionalText("filter.event_type", filter.event_type(),
                               kMaxName, &query.event_type));
  RETURN_IF_ERROR(
      OptionalText("filter.reason", filter.reason(), kMaxName, &query.reason));
  if (filter.has_account()) {
    query.account = filter.account();
    if (!query.account->empty()) {
      RETURN_IF_ERROR(ValidateText("filter.account", *query.account, kMaxName));
    }
  }
  RETURN_IF_ERROR(ParseAbout(filter, &query));
  if (query.about == pb::EventFilter::kCustomerId ||
      query.about == pb::EventFilter::kExternalEventId) {
    query.account = query.account.value_or("");
  }
  if (filter.has_received_after()) {
    ASSIGN_OR_RETURN(query.received_after, FromProto("filter.received_after",
                                                     filter.received_after()));
  }
  if (filter.has_received_before()) {
    ASSIGN_OR_RETURN(
        query.received_before,
        FromProto("filter.received_before", filter.received_before()));
  }
  return query;
}

// The route of that name, or all of the environment without one.
absl::StatusOr<std::vector<int64_t>> FindRoutes(db::Transaction& tx,
                                                const std::string& environment,
                                                const std::string& name) {
  ASSIGN_OR_RETURN(const db::Result rows,
                   tx.Execute(kSelectRoutes, db::MakeParams(environment)));
  std::vector<int64_t> ids;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (name.empty() || rows[i].Text("name") == name) {
      ids.push_back(rows[i].Int64("id"));
    }
  }
  RETURN_IF_ERROR(rows.status());
  if (ids.empty() && !name.empty()) {
    return MakeError(
        absl::StatusCode::kNotFound, common::v1::ERROR_REASON_ROUTE_NOT_FOUND,
        absl::StrCat("there is no ", environment, " route '", name, "'"),
        {{"route", name}});
  }
  return ids;
}

absl::Status AppendIds(db::Transaction& tx, const db::Statement& statement,
                       const db::Params& params, std::vector<int64_t>* ids) {
  ASSIGN_OR_RETURN(const db::Result rows, tx.Execute(statement, params));
  for (size_t i = 0; i < rows.size(); ++i) ids->push_back(rows[i].Int64("id"));
  return rows.status();
}

// The ids of a query, up to `limit` of them, in its order, where an index holds
// them; nullopt where none does.
absl::StatusOr<std::optional<std::vector<int64_t>>> SelectIndexed(
    db::Transaction& tx, const Query& q, int limit) {
  const auto params = [&](const std::vector<std::string>& states) {
    return db::MakeParams(q.routes, q.event_type, q.reason, q.account,
                          q.received_after, q.received_before, q.first, q.end,
                          limit, states);
  };
  const int64_t direction = q.upwards ? 1 : -1;
  std::vector<int64_t> ids;
  switch (q.about) {
    case pb::EventFilter::kCustomerId:
      RETURN_IF_ERROR(
          AppendIds(tx, kListEventsOfCustomer,
                    params(q.states).Add(q.about_name).Add(direction), &ids));
      return ids;
    case pb::EventFilter::kExternalEventId:
      RETURN_IF_ERROR(
          AppendIds(tx, kListEventsByExternalId,
                    params(q.states).Add(q.about_name).Add(direction), &ids));
      return ids;
    case pb::EventFilter::kSubscriptionId:
      RETURN_IF_ERROR(AppendIds(
          tx, kListEventsOfSubscription,
          params(q.states).Add(q.about_subscription).Add(direction), &ids));
      return ids;
    case pb::EventFilter::ABOUT_NOT_SET:
      break;
  }
  std::vector<std::string> set_aside;
  bool received = false;
  for (const std::string& state : q.states) {
    if (IsSetAside(state)) {
      set_aside.push_back(state);
    } else if (state == "received" && !q.upwards) {
      received = true;
    } else {
      return std::nullopt;
    }
  }
  if (q.states.empty()) return std::nullopt;
  if (!set_aside.empty()) {
    RETURN_IF_ERROR(AppendIds(
        tx, q.upwards ? kListEventsSetAsideUpwards : kListEventsSetAside,
        params(set_aside), &ids));
  }
  if (received) {
    RETURN_IF_ERROR(
        AppendIds(tx, kListEventsReceived, params({"received"}), &ids));
    // Only newest first.
    std::sort(ids.begin(), ids.end(), std::greater<>());
  }
  return ids;
}

// The first id from which on events were received at `instant` or later, to
// within kIdSlack of what the caller adds; by halving.
absl::StatusOr<int64_t> FirstIdFrom(db::Transaction& tx, absl::Time instant,
                                    int64_t newest) {
  int64_t low = 1;
  int64_t high = newest + 1;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    ASSIGN_OR_RETURN(const db::Result rows, tx.Execute(kSelectEventReceivedAt,
                                                       db::MakeParams(middle)));
    if (rows.empty() || rows[0].Time("received_at") >= instant) {
      high = middle;
    } else {
      low = middle + 1;
    }
    RETURN_IF_ERROR(rows.status());
  }
  return low;
}

// Looks at the next kWindow events of the query's order.
absl::StatusOr<Page> FindInWindow(db::Transaction& tx, Query q) {
  ASSIGN_OR_RETURN(const db::Result newest_row,
                   tx.Execute(kSelectNewestEventId));
  const int64_t newest = newest_row[0].Int64("id");
  RETURN_IF_ERROR(newest_row.status());
  q.end = std::min(q.end, newest + 1);
  if (q.received_after) {
    ASSIGN_OR_RETURN(const int64_t first,
                     FirstIdFrom(tx, *q.received_after - kIdSlack, newest));
    q.first = std::max(q.first, first);
  }
  if (q.received_before) {
    ASSIGN_OR_RETURN(const int64_t end,
                     FirstIdFrom(tx, *q.received_before + kIdSlack, newest));
    q.end = std::min(q.end, end);
  }
  Page page;
  if (q.first >= q.end) return page;
  const bool is_last = q.end - q.first <= EventOperations::kWindow;
  if (!is_last && q.upwards) q.end = q.first + EventOperations::kWindow;
  if (!is_last && !q.upwards) q.first = q.end - EventOperations::kWindow;
  RETURN_IF_ERROR(
      AppendIds(tx, q.upwards ? kListEventsUpwards : kListEvents,
                db::MakeParams(q.routes, q.event_type, q.reason, q.account,
                               q.received_after, q.received_before, q.first,
                               q.end, q.limit + 1, q.states),
                &page.ids));
  if (!is_last) page.next = q.upwards ? q.end - 1 : q.first;
  return page;
}

absl::StatusOr<Page> Find(db::Transaction& tx, const Query& query) {
  Page page;
  if (query.routes.empty() || query.first >= query.end) return page;
  // One more than asked for says whether there is a further page.
  ASSIGN_OR_RETURN(std::optional<std::vector<int64_t>> ids,
                   SelectIndexed(tx, query, query.limit + 1));
  if (ids) {
    page.ids = *std::move(ids);
  } else {
    ASSIGN_OR_RETURN(page, FindInWindow(tx, query));
  }
  if (page.ids.size() > static_cast<size_t>(query.limit)) {
    page.ids.resize(static_cast<size_t>(query.limit));
    page.next = page.ids.back();
  }
  return page;
}

// A page token is the last id that was looked at.
std::string ToToken(int64_t id) {
  return absl::WebSafeBase64Escape(absl::StrCat("event ", id));
}

absl::StatusOr<int64_t> FromToken(const std::string& token) {
  std::string text;
  int64_t id = 0;
  absl::string_view number;
  if (!absl::WebSafeBase64Unescape(token, &text)) return PageTokenError();
  number = text;
  if (!absl::ConsumePrefix(&number, "event ") ||
      !absl::SimpleAtoi(number, &id) || id <= 0) {
    return PageTokenError();
  }
  return id;
}

// ---- writes ----

// Has locked events tried at once, with their audit rows.
absl::Status ReplayLocked(db::Transaction& tx, const std::vector<int64_t>& ids,
                          const pb::OperatorContext& context) {
  ASSIGN_OR_RETURN(
      const db::Result replayed,
      tx.Execute(kReplayEvents,
                 db::MakeParams(ids, context.actor(), context.reason(),
                                context.request_id())));
  if (replayed.affected_rows() == ids.size()) return absl::OkStatus();
  return InternalError("a locked event was not replayed");
}

std::vector<int64_t> IdsOf(const std::vector<pb::EventOutcome*>& outcomes) {
  std::vector<int64_t> ids;
  for (const pb::EventOutcome* outcome : outcomes) {
    ids.push_back(outcome->event_id());
  }
  return ids;
}

struct LockedEvent {
  std::string status;
  bool body_gone = false;
};

absl::StatusOr<LockedEvent> LockEvent(db::Transaction& tx, int64_t event_id,
                                      const std::string& environment) {
  ASSIGN_OR_RETURN(
      const db::Result rows,
      tx.Execute(kLockEvent, db::MakeParams(event_id, environment)));
  if (rows.empty()) return EventNotFoundError(absl::StrCat(event_id));
  LockedEvent event{rows[0].Text("status"), rows[0].Bool("body_gone")};
  RETURN_IF_ERROR(rows.status());
  return event;
}

}  // namespace

absl::Status EventOperations::List(const pb::ListEventsRequest& request,
                                   pb::ListEventsResponse* response) {
  ASSIGN_OR_RETURN(Query query, ParseFilter(request.filter()));
  if (request.page_size() < 0) {
    return FieldInvalidError("page_size", "must not be negative");
  }
  query.limit = request.page_size() == 0
                    ? kDefaultPage
                    : std::min(request.page_size(), kMaxPage);
  if (!request.page_token().empty()) {
    ASSIGN_OR_RETURN(query.end, FromToken(request.page_token()));
  }
  return pool_.RunTransaction([&](db::Transaction& tx) -> absl::Status {
    response->Clear();
    ASSIGN_OR_RETURN(query.routes,
                     FindRoutes(tx, environment_, request.filter().route()));
    ASSIGN_OR_RETURN(const Page page, Find(tx, query));
    if (page.next) response->set_next_page_token(ToToken(*page.next));
    if (page.ids.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(
        const db::Result rows,
        tx.Execute(kSelectEvents, db::MakeParams(page.ids, environment_)));
    for (size_t i = 0; i < rows.size(); ++i) {
      ToApi(rows[i], response->add_events());
    }
    return rows.status();
  });
}

namespace {

// Under which names its subscriptions and payments may be found.
void AddNames(const providers::ProviderEvent& event,
              std::vector<std::string>* subscriptions,
              std::vector<std::string>* payments) {
  for (const providers::SubscriptionFacts& facts : event.subscriptions) {
    if (!facts.provider_subscription_id.empty()) {
      subscriptions->push_back(facts.provider_subscription_id);
    }
    payments->insert(payments->end(), facts.payment_names.begin(),
                     facts.payment_names.end());
    for (const providers::Fact& fact : facts.facts) {
      if (fact.has_paid()) payments->push_back(fact.paid().payment_key());
    }
  }
}

}  // namespace

absl::Status EventOperations::AddFacts(db::Transaction& tx, int64_t event_id,
                                       int64_t route_id,
                                       pb::GetEventResponse* response) {
  ASSIGN_OR_RETURN(const db::Result rows,
                   tx.Execute(kSelectEventBody, db::MakeParams(event_id)));
  std::vector<std::string> subscriptions;
  std::vector<std::string> payments;
  const host::ConfiguredRoute* route = routes_.FindById(route_id);
  if (route != nullptr && !rows.empty() && !rows[0].IsNull("body")) {
    // What cannot be read now gave no fact that its body would lead to.
    const absl::StatusOr<providers::ProviderEvent> event =
        route->adapter()->Parse(rows[0].Bytea("body"));
    if (event.ok()) AddNames(*event, &subscriptions, &payments);
  }
  RETURN_IF_ERROR(rows.status());
  ASSIGN_OR_RETURN(
      const db::Result found,
      tx.Execute(kSelectEventFacts,
                 db::MakeParams(event_id, route_id, response->event().account(),
                                subscriptions, payments,
                                response->event().customer_id())));
  for (size_t i = 0; i < found.size(); ++i) {
    pb::EventFact& fact = *response->add_facts();
    fact.set_subscription_id(found[i].Int64("subscription_id"));
    fact.set_kind(found[i].Text("kind"));
    fact.set_money_key(found[i].Text("money_key"));
  }
  return found.status();
}

namespace {

absl::StatusOr<int64_t> FindEvent(db::Transaction& tx,
                                  const std::string& environment,
                                  const pb::GetEventRequest& request) {
  if (request.has_event_id()) return request.event_id();
  const pb::EventKey& key = request.key();
  ASSIGN_OR_RETURN(const std::vector<int64_t> routes,
                   FindRoutes(tx, environment, key.route()));
  ASSIGN_OR_RETURN(
      const db::Result rows,
      tx.Execute(kSelectEventId,
                 db::MakeParams(routes[0], key.account(), key.livemode(),
                                key.external_event_id())));
  if (rows.empty()) return EventNotFoundError(key.external_event_id());
  const int64_t id = rows[0].Int64("id");
  RETURN_IF_ERROR(rows.status());
  return id;
}

absl::Status ValidateGet(const pb::GetEventRequest& request) {
  switch (request.name_case()) {
    case pb::GetEventRequest::kEventId:
      RETURN_IF_ERROR(ValidateEventNumber("event_id", request.event_id()));
      break;
    case pb::GetEventRequest::kKey:
      RETURN_IF_ERROR(
          ValidateText("key.route", request.key().route(), kMaxRoute));
      if (!request.key().account().empty()) {
        RETURN_IF_ERROR(
            ValidateText("key.account", request.key().account(), kMaxName));
      }
      RETURN_IF_ERROR(ValidateText("key.external_event_id",
                                   request.key().external_event_id(),
                                   kMaxName));
      break;
    case pb::GetEventRequest::NAME_NOT_SET:
      return FieldMissingError("event_id");
  }
  if (request.conflict_id() < 0) {
    return FieldInvalidError("conflict_id", "must not be negative");
  }
  if (!request.include_body()) {
    if (request.conflict_id() == 0) return absl::OkStatus();
    return FieldInvalidError("conflict_id", "is only for include_body");
  }
  RETURN_IF_ERROR(ValidateText("actor", request.actor(), kMaxActor));
  return ValidateText("reason", request.reason(), kMaxReason);
}

// The body that was asked for, and the note of who has seen it.
absl::Status AddBody(db::Transaction& tx, const pb::GetEventRequest& request,
                     pb::GetEventResponse* response) {
  const int64_t event_id = response->event().id();
  if (request.conflict_id() == 0) {
    ASSIGN_OR_RETURN(const db::Result rows,
                     tx.Execute(kSelectEventBody, db::MakeParams(event_id)));
    if (rows.empty() || rows[0].IsNull("body")) {
      return EventBodyGoneError(event_id);
    }
    response->set_body(rows[0].Bytea("body"));
    RETURN_IF_ERROR(rows.status());
  } else {
    ASSIGN_OR_RETURN(
        const db::Result rows,
        tx.Execute(kSelectConflictBody,
                   db::MakeParams(request.conflict_id(), event_id)));
    if (rows.empty()) {
      return FieldInvalidError("conflict_id", "is no conflict of this event");
    }
    response->set_body(rows[0].Bytea("body"));
    RETURN_IF_ERROR(rows.status());
    // No delivery is empty: this is how an erasure leaves it.
    if (response->body().empty()) return EventBodyGoneError(event_id);
  }
  return tx
      .Execute(kInsertLookAudit,
               db::MakeParams(request.actor(), event_id, request.reason()))
      .status();
}

absl::Status AddConflictsAndAudit(db::Transaction& tx,
                                  pb::GetEventResponse* response) {
  const int64_t event_id = response->event().id();
  ASSIGN_OR_RETURN(const db::Result conflicts,
                   tx.Execute(kSelectEventConflicts, db::MakeParams(event_id)));
  for (size_t i = 0; i < conflicts.size(); ++i) {
    pb::EventConflict& conflict = *response->add_conflicts();
    conflict.set_id(conflicts[i].Int64("id"));
    *conflict.mutable_received_at() = ToProto(conflicts[i].Time("received_at"));
    conflict.set_body_sha256(conflicts[i].Bytea("body_sha256"));
    conflict.set_body_size(conflicts[i].Int64("body_size"));
  }
  RETURN_IF_ERROR(conflicts.status());
  ASSIGN_OR_RETURN(const db::Result audit,
                   tx.Execute(kSelectEventAudit, db::MakeParams(event_id)));
  for (size_t i = 0; i < audit.size(); ++i) {
    pb::AuditEntry& entry = *response->add_audit();
    *entry.mutable_at() = ToProto(audit[i].Time("at"));
    entry.set_actor(audit[i].Text("actor"));
    entry.set_action(audit[i].Text("action"));
    entry.set_reason(audit[i].Text("reason"));
    entry.set_request_id(audit[i].Text("request_id"));
    entry.set_before_json(audit[i].Text("before"));
    entry.set_after_json(audit[i].Text("after"));
  }
  return audit.status();
}

}  // namespace

absl::Status EventOperations::Get(const pb::GetEventRequest& request,
                                  pb::GetEventResponse* response) {
  RETURN_IF_ERROR(ValidateGet(request));
  RETURN_IF_ERROR(
      pool_.RunTransaction([&](db::Transaction& tx) -> absl::Status {
        response->Clear();
        ASSIGN_OR_RETURN(const int64_t id,
                         FindEvent(tx, environment_, request));
        ASSIGN_OR_RETURN(
            const db::Result rows,
            tx.Execute(kSelectEvents,
                       db::MakeParams(std::vector<int64_t>{id}, environment_)));
        if (rows.empty()) return EventNotFoundError(absl::StrCat(id));
        ToApi(rows[0], response->mutable_event());
        const int64_t route_id = rows[0].Int64("route_id");
        RETURN_IF_ERROR(rows.status());
        if (request.include_body()) {
          RETURN_IF_ERROR(AddBody(tx, request, response));
        }
        RETURN_IF_ERROR(AddConflictsAndAudit(tx, response));
        return AddFacts(tx, id, route_id, response);
      }));
  if (request.include_body()) {
    log::Info("body of an event read",
              {{"provider_event", response->event().id()},
               {"actor", request.actor()}});
  }
  return absl::OkStatus();
}

template <typename Request, typename Response>
absl::Status EventOperations::Once(
    absl::string_view method, const Request& request, Response* response,
    absl::FunctionRef<absl::Status(db::Transaction&)> write,
    absl::FunctionRef<Outcomes(Response*)> outcomes) {
  const store::RequestKey key = RequestKeyOf(environment_, method, request);
  bool repeated = false;
  std::string answer;
  RETURN_IF_ERROR(
      pool_.RunTransaction([&](db::Transaction& tx) -> absl::Status {
        response->Clear();
        ASSIGN_OR_RETURN(const std::optional<std::string> first,
                         store::BeginRequest(tx, key));
        repeated = first.has_value();
        if (repeated) {
          answer = *first;
          if (response->ParseFromString(answer)) return absl::OkStatus();
          return InternalError("a stored answer is unreadable");
        }
        RETURN_IF_ERROR(write(tx));
        answer = response->SerializeAsString();
        return store::FinishRequest(tx, key, answer,
                                    /*subject_id=*/std::nullopt);
      }));
  log::Info("event operation", {{"method", method},
                                {"write_request_id", key.author.request_id},
                                {"actor", key.author.actor},
                                {"repeated", repeated}});

  Outcomes waiting;
  for (pb::EventOutcome* outcome : outcomes(response)) {
    if (outcome->state() == pb::EVENT_STATE_RECEIVED) {
      waiting.push_back(outcome);
    }
  }
  if (waiting.empty()) return absl::OkStatus();
  // From here on the answer stands, with RECEIVED at worst.
  const absl::Status looked = [&]() -> absl::Status {
    if (!repeated) {
      RETURN_IF_ERROR(Try(waiting));
    }
    RETURN_IF_ERROR(Refresh(waiting));
    const std::string renewed = response->SerializeAsString();
    if (renewed == answer) return absl::OkStatus();
    ASSIGN_OR_RETURN(
        const db::Result rows,
        pool_.Execute(kRenewRequestAnswer,
                      db::MakeParams(key.method, key.author.request_id,
                                     db::Bytes{answer}, db::Bytes{renewed})));
    if (rows.empty() || !response->ParseFromString(rows[0].Bytea("response"))) {
      return InternalError("a stored answer is unreadable");
    }
    return rows.status();
  }();
  if (!looked.ok()) {
    log::Warning("replayed events not looked at",
                 {{"detail", std::string(looked.message())}});
  }
  return absl::OkStatus();
}

absl::Status EventOperations::Try(const Outcomes& waiting) {
  ASSIGN_OR_RETURN(
      const db::Result rows,
      pool_.Execute(kSelectEventOutcomes, db::MakeParams(IdsOf(waiting))));
  const auto parse = [this](int64_t route_id, absl::string_view body) {
    return routes_.ReadStored(route_id, body);
  };
  const absl::Duration end = clock_.Monotonic() + kTryBudget;
  for (size_t i = 0; i < rows.size() && clock_.Monotonic() < end; ++i) {
    const int64_t id = rows[i].Int64("id");
    // Somebody else was faster, or has to do it.
    if (rows[i].Text("status") != "received" ||
        routes_.FindById(rows[i].Int64("route_id")) == nullptr) {
      continue;
    }
    const absl::Status tried = inbox_.RetryEvent(id, parse).status();
    if (!tried.ok()) {
      log::Warning(
          "replayed event not tried",
          {{"provider_event", id}, {"detail", std::string(tried.message())}});
    }
  }
  return rows.status();
}

absl::Status EventOperations::Refresh(const Outcomes& waiting) {
  ASSIGN_OR_RETURN(
      const db::Result rows,
      pool_.Execute(kSelectEventOutcomes, db::MakeParams(IdsOf(waiting))));
  std::map<int64_t, pb::EventOutcome*> by_id;
  for (pb::EventOutcome* outcome : waiting) {
    by_id[outcome->event_id()] = outcome;
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto it = by_id.find(rows[i].Int64("id"));
    if (it != by_id.end()) SetOutcome(rows[i], it->second);
  }
  return rows.status();
}

absl::Status EventOperations::Replay(const pb::ReplayEventRequest& request,
                                     pb::ReplayEventResponse* response) {
  RETURN_IF_ERROR(ValidateContext(request.context()));
  const int64_t id = request.event_id();
  RETURN_IF_ERROR(ValidateEventNumber("event_id", id));
  return Once<pb::ReplayEventRequest, pb::ReplayEventResponse>(
      "ReplayEvent", request, response,
      [&](db::Transaction& tx) -> absl::Status {
        ASSIGN_OR_RETURN(const LockedEvent event,
                         LockEvent(tx, id, environment_));
        if (event.body_gone) return EventBodyGoneError(id);
        RETURN_IF_ERROR(ReplayLocked(tx, {id}, request.context()));
        response->mutable_outcome()->set_event_id(id);
        response->mutable_outcome()->set_state(pb::EVENT_STATE_RECEIVED);
        return absl::OkStatus();
      },
      [](pb::ReplayEventResponse* answer) {
        return Outcomes{answer->mutable_outcome()};
      });
}

absl::Status EventOperations::ReplayMany(const pb::ReplayEventsRequest& request,
                                         pb::ReplayEventsResponse* response) {
  RETURN_IF_ERROR(ValidateContext(request.context()));
  ASSIGN_OR_RETURN(Query query, ParseFilter(request.filter()));
  if (query.states.empty()) query.states = SetAsideStates();
  if (std::count(query.states.begin(), query.states.end(), "received") != 0) {
    return FieldInvalidError("filter.states",
                             "must not be RECEIVED: those are tried already");
  }
  if (request.limit() == 0) return FieldMissingError("limit");
  if (request.limit() < 0 || request.limit() > kMaxReplays) {
    return FieldInvalidError("limit",
                             absl::StrCat("must be 1 to ", kMaxReplays));
  }
  if (request.after_event_id() < 0 ||
      request.after_event_id() == std::numeric_limits<int64_t>::max()) {
    return FieldInvalidError("after_event_id", "must be the id of an event");
  }
  query.limit = request.limit();
  query.first = request.after_event_id() + 1;
  query.upwards = true;
  return Once<pb::ReplayEventsRequest, pb::ReplayEventsResponse>(
      "ReplayEvents", request, response,
      [&](db::Transaction& tx) -> absl::Status {
        ASSIGN_OR_RETURN(query.routes, FindRoutes(tx, environment_,
                                                  request.filter().route()));
        ASSIGN_OR_RETURN(const Page page, Find(tx, query));
        response->set_next_after_event_id(page.next.value_or(0));
        std::vector<int64_t> ids;
        RETURN_IF_ERROR(AppendIds(tx, kLockEventsForReplay,
                                  db::MakeParams(page.ids), &ids));
        for (const int64_t id : ids) {
          pb::EventOutcome& outcome = *response->add_outcomes();
          outcome.set_event_id(id);
          outcome.set_state(pb::EVENT_STATE_RECEIVED);
        }
        return ReplayLocked(tx, ids, request.context());
      },
      [](pb::ReplayEventsResponse* answer) {
        Outcomes outcomes;
        for (pb::EventOutcome& outcome : *answer->mutable_outcomes()) {
          outcomes.push_back(&outcome);
        }
        return outcomes;
      });
}

absl::Status EventOperations::Discard(const pb::DiscardEventRequest& request,
                                      pb::DiscardEventResponse* response) {
  RETURN_IF_ERROR(ValidateContext(request.context()));
  const int64_t id = request.event_id();
  RETURN_IF_ERROR(ValidateEventNumber("event_id", id));
  return Once<pb::DiscardEventRequest, pb::DiscardEventResponse>(
      "DiscardEvent", request, response,
      [&](db::Transaction& tx) -> absl::Status {
        ASSIGN_OR_RETURN(const LockedEvent event,
                         LockEvent(tx, id, environment_));
        if (!IsSetAside(event.status)) {
          return EventNotSetAsideError(id, event.status);
        }
        const pb::OperatorContext& context = request.context();
        ASSIGN_OR_RETURN(
            const db::Result discarded,
            tx.Execute(kDiscardEvent,
                       db::MakeParams(id, context.actor(), context.reason(),
                                      context.request_id())));
        if (discarded.affected_rows() != 1) {
          return InternalError("a locked event was not discarded");
        }
        pb::EventOutcome& outcome = *response->mutable_outcome();
        outcome.set_event_id(id);
        outcome.set_state(pb::EVENT_STATE_IGNORED);
        outcome.set_reason("discarded");
        return absl::OkStatus();
      },
      [](pb::DiscardEventResponse*) { return Outcomes{}; });
}

}  // namespace tenure::webhook_ingest
