#include "services/webhook-ingest/subscription_history.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/error.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"
#include "common/domain/access.h"
#include "common/store/subscription_store.h"
#include "services/webhook-ingest/statements.h"
#include "services/webhook-ingest/subscription_convert.h"

namespace tenure::webhook_ingest {
namespace {

namespace pb = ::tenure::subscription::v1;

constexpr int kDefaultPageSize = 50;
constexpr int kMaxPageSize = 1000;

// Where a row stands in the chain.
struct ChainKey {
  absl::Time recorded_at;
  int64_t source = 0;
  absl::Time order_at;
  int64_t rank = 0;
  std::string event_id;
  int64_t ordinal = 0;
  int64_t seq = 0;
};

std::string ToToken(const ChainKey& key) {
  // The event's id last: it may hold anything.
  return absl::WebSafeBase64Escape(
      absl::StrCat(absl::ToUnixMicros(key.recorded_at), "|", key.source, "|",
                   absl::ToUnixMicros(key.order_at), "|", key.rank, "|",
                   key.ordinal, "|", key.seq, "|", key.event_id));
}

absl::StatusOr<std::optional<ChainKey>> FromToken(const std::string& token) {
  if (token.empty()) return std::nullopt;
  std::string text;
  if (!absl::WebSafeBase64Unescape(token, &text)) return PageTokenError();
  const std::vector<std::string> parts =
      absl::StrSplit(text, absl::MaxSplits('|', 6));
  ChainKey key;
  int64_t recorded = 0;
  int64_t order = 0;
  constexpr int64_t kSmall = 1'000'000'000;
  if (parts.size() != 7 || !absl::SimpleAtoi(parts[0], &recorded) ||
      !absl::SimpleAtoi(parts[1], &key.source) ||
      !absl::SimpleAtoi(parts[2], &order) ||
      !absl::SimpleAtoi(parts[3], &key.rank) ||
      !absl::SimpleAtoi(parts[4], &key.ordinal) ||
      !absl::SimpleAtoi(parts[5], &key.seq) || key.source < 0 ||
      key.source > 1 || std::abs(key.rank) > kSmall ||
      std::abs(key.ordinal) > kSmall ||
      (!parts[6].empty() && !ValidateText("event_id", parts[6], 255).ok())) {
    return PageTokenError();
  }
  // Instants that a Timestamp, and PostgreSQL, can hold.
  key.recorded_at = absl::FromUnixMicros(recorded);
  key.order_at = absl::FromUnixMicros(order);
  for (const absl::Time time : {key.recorded_at, key.order_at}) {
    if (!FromProto("page_token", ToProto(time)).ok() ||
        *FromProto("page_token", ToProto(time)) != time) {
      return PageTokenError();
    }
  }
  key.event_id = parts[6];
  return key;
}

ChainKey KeyOfRow(const db::Row& row) {
  return {row.Time("recorded_at"),   row.Int64("source"),
          row.Time("order_at"),      row.Int64("rank"),
          row.Text("fact_event_id"), row.Int64("ordinal"),
          row.Int64("seq")};
}

absl::Status FactToApi(const db::Row& row, const std::string& event_id,
                       pb::HistoryEntry* entry) {
  entry->set_actor(row.Text("actor"));
  entry->set_reason(row.Text("reason"));
  pb::StoredFact& fact = *entry->mutable_fact();
  fact.set_kind(row.Text("kind"));
  fact.set_event_id(event_id);
  fact.set_provider_event_id(
      row.OptionalInt64("provider_event_id").value_or(0));
  fact.set_money_key(row.Text("money_key"));
  if (!fact.mutable_fact()->ParseFromString(row.Bytea("body"))) {
    return InternalError("a stored fact is unreadable");
  }
  return absl::OkStatus();
}

void EventToApi(const db::Row& row, pb::HistoryEntry* entry) {
  entry->set_actor(row.Text("actor"));
  entry->set_reason(row.Text("reason"));
  pb::StoredEvent& event = *entry->mutable_event();
  event.set_seq(row.Int64("seq"));
  event.set_event_id(row.Text("event_id"));
  event.set_type(row.Text("event_type"));
  event.set_business_key(row.Text("business_key"));
  event.set_cause(row.Text("cause"));
  *event.mutable_effective_at() = ToProto(row.Time("effective_at"));
  if (const auto until = row.OptionalTime("old_access_until")) {
    *event.mutable_old_access_until() = ToProto(*until);
  }
  if (const auto until = row.OptionalTime("access_until")) {
    *event.mutable_access_until() = ToProto(*until);
  }
  event.set_episode(static_cast<int>(row.Int64("episode")));
  event.set_data_json(row.Text("data"));
}

domain::FeatureValue Value(const db::Row& row, const std::string& prefix) {
  return {row.OptionalInt64(prefix + "_limit"),
          row.OptionalInt64(prefix + "_quantity")};
}

}  // namespace

absl::StatusOr<int> PageLimit(int page_size) {
  if (page_size < 0) {
    return FieldInvalidError("page_size", "must not be negative");
  }
  return page_size == 0 ? kDefaultPageSize : std::min(page_size, kMaxPageSize);
}

absl::Status PageTokenError() {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   common::v1::ERROR_REASON_PAGE_TOKEN_INVALID,
                   "page_token: was not made by this method",
                   {{"field", "page_token"}});
}

absl::Status SubscriptionHistory::History(const pb::HistoryRequest& request,
                                          pb::HistoryResponse* response) {
  RETURN_IF_ERROR(ValidateSubscriptionId(request.subscription_id()));
  ASSIGN_OR_RETURN(const int limit, PageLimit(request.page_size()));
  ASSIGN_OR_RETURN(const std::optional<ChainKey> after,
                   FromToken(request.page_token()));
  // Says that it exists, in this environment.
  RETURN_IF_ERROR(store::SubscriptionStore(pool_, environment_)
                      .Get(request.subscription_id())
                      .status());
  const ChainKey key = after.value_or(ChainKey{});
  // One more than asked for says whether there is a further page.
  ASSIGN_OR_RETURN(
      const db::Result rows,
      pool_.Execute(
          kSelectSubscriptionHistory,
          db::MakeParams(request.subscription_id(),
                         after ? std::optional<absl::Time>(after->recorded_at)
                               : std::nullopt,
                         key.source, key.order_at, key.rank, key.event_id,
                         key.ordinal, key.seq, limit + 1)));
  const size_t count = std::min(rows.size(), static_cast<size_t>(limit));
  for (size_t i = 0; i < count; ++i) {
    pb::HistoryEntry* entry = response->add_entries();
    *entry->mutable_recorded_at() = ToProto(rows[i].Time("recorded_at"));
    if (rows[i].Int64("source") == 0) {
      RETURN_IF_ERROR(FactToApi(rows[i], rows[i].Text("fact_event_id"), entry));
    } else {
      EventToApi(rows[i], entry);
    }
  }
  if (rows.size() > count) {
    response->set_next_page_token(ToToken(KeyOfRow(rows[count - 1])));
  }
  return rows.status();
}

absl::Status SubscriptionHistory::Explain(const pb::ExplainRequest& request,
                                          pb::ExplainResponse* response) {
  RETURN_IF_ERROR(ValidateText("subject", request.subject(), 255));
  RETURN_IF_ERROR(ValidateText("feature", request.feature(), 127));
  std::optional<absl::Time> at;
  if (request.has_at()) {
    ASSIGN_OR_RETURN(at, FromProto("at", request.at()));
  }
  ASSIGN_OR_RETURN(const db::Result rows,
                   pool_.Execute(kSelectExplainedCandidates,
                                 db::MakeParams(request.subject(), environment_,
                                                request.feature())));
  const absl::Time seen_at = rows[0].Time("now");
  const absl::Time decided_at = at.value_or(seen_at);

  std::vector<domain::AccessCandidate> candidates;
  std::vector<int64_t> ids;
  std::map<int64_t, pb::ExplainedCandidate*> by_id;
  for (size_t i = 0; i < rows.size(); ++i) {
    const db::Row row = rows[i];
    // The row that only carries the clock.
    if (row.IsNull("id")) continue;
    ASSIGN_OR_RETURN(const store::StoredSubscription stored,
                     store::StoredSubscriptionFromRow(row));
    domain::AccessCandidate candidate;
    candidate.subscription_id = stored.id;
    candidate.subscription = stored.state.subscription;
    candidate.plan = stored.plan;
    candidate.plan_grants = row.Bool("plan_grants");
    candidate.value = Value(row, "plan");
    candidate.next_plan = stored.next_plan;
    candidate.next_plan_grants = row.Bool("next_plan_grants");
    candidate.next_value = Value(row, "next_plan");
    const bool next = candidate.subscription.next_plan_at &&
                      *candidate.subscription.next_plan_at <= decided_at;
    pb::ExplainedCandidate& out = *response->add_candidates();
    ToApi(stored, out.mutable_subscription());
    out.set_plan(next ? candidate.next_plan : candidate.plan);
    out.set_plan_has_feature(next ? candidate.next_plan_grants
                                  : candidate.plan_grants);
    ids.push_back(stored.id);
    candidates.push_back(std::move(candidate));
  }
  if (const auto plan = rows[0].OptionalText("default_plan")) {
    domain::AccessCandidate candidate;
    candidate.is_default_plan = true;
    candidate.plan = *plan;
    candidate.plan_grants = rows[0].Bool("default_grants");
    candidate.value = Value(rows[0], "default");
    pb::ExplainedCandidate& out = *response->add_candidates();
    out.set_default_plan(true);
    out.set_plan(*plan);
    out.set_plan_has_feature(candidate.plan_grants);
    candidates.push_back(std::move(candidate));
  }
  RETURN_IF_ERROR(rows.status());

  ToApi(domain::DecideAccess(candidates, decided_at), decided_at,
        response->mutable_verdict());
  for (size_t i = 0; i < candidates.size(); ++i) {
    pb::ExplainedCandidate* out =
        response->mutable_candidates(static_cast<int>(i));
    ToApi(domain::DecideAccess({candidates[i]}, decided_at), decided_at,
          out->mutable_alone());
    if (!candidates[i].is_default_plan) {
      by_id[candidates[i].subscription_id] = out;
    }
  }
  if (ids.empty()) return absl::OkStatus();

  ASSIGN_OR_RETURN(const db::Result facts,
                   pool_.Execute(kSelectExplainedFacts,
                                 db::MakeParams(ids, seen_at, kMaxFacts + 1)));
  std::map<int64_t, int> counts;
  for (size_t i = 0; i < facts.size(); ++i) {
    ++counts[facts[i].Int64("subscription_id")];
  }
  for (size_t i = 0; i < facts.size(); ++i) {
    const int64_t id = facts[i].Int64("subscription_id");
    pb::ExplainedCandidate* out = by_id[id];
    if (counts[id] > kMaxFacts && !out->facts_truncated()) {
      // The oldest one is there only to tell that there are more.
      out->set_facts_truncated(true);
      continue;
    }
    pb::HistoryEntry* entry = out->add_facts();
    *entry->mutable_recorded_at() = ToProto(facts[i].Time("stored_at"));
    RETURN_IF_ERROR(FactToApi(facts[i], facts[i].Text("event_id"), entry));
  }
  return facts.status();
}

}  // namespace tenure::webhook_ingest
