#include "services/webhook-ingest/subscription_writes.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/crypto.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"
#include "common/domain/lifecycle.h"
#include "common/store/catalog_store.h"
#include "common/store/request_log.h"
#include "services/webhook-ingest/request_key.h"
#include "services/webhook-ingest/statements.h"
#include "services/webhook-ingest/subscription_convert.h"

namespace tenure::webhook_ingest {
namespace {

namespace pb = ::tenure::subscription::v1;

// What the columns take, and what people write.
constexpr size_t kMaxSubject = 255;
constexpr size_t kMaxPlan = 127;
constexpr size_t kMaxRequestId = 128;
constexpr size_t kMaxActor = 255;
constexpr size_t kMaxReason = 1000;

absl::Status ValidateContext(const pb::WriteContext& context) {
  RETURN_IF_ERROR(
      ValidateText("context.request_id", context.request_id(), kMaxRequestId));
  RETURN_IF_ERROR(ValidateText("context.actor", context.actor(), kMaxActor));
  return ValidateText("context.reason", context.reason(), kMaxReason);
}

absl::StatusOr<std::optional<absl::Time>> OptionalInstant(
    absl::string_view field, bool present,
    const google::protobuf::Timestamp& proto) {
  if (!present) return std::nullopt;
  ASSIGN_OR_RETURN(const absl::Time time, FromProto(field, proto));
  return time;
}

// ---- errors that state brings about ----

absl::Status StateError(ErrorReason reason, absl::string_view message,
                        int64_t subscription_id) {
  return MakeError(absl::StatusCode::kFailedPrecondition, reason, message,
                   {{"subscription_id", absl::StrCat(subscription_id)}});
}

absl::Status NotLiveError(int64_t subscription_id, domain::Status status) {
  const std::string state(domain::StatusName(status));
  return MakeError(
      absl::StatusCode::kFailedPrecondition,
      common::v1::ERROR_REASON_SUBSCRIPTION_NOT_LIVE,
      absl::StrCat("the subscription is ", state),
      {{"subscription_id", absl::StrCat(subscription_id)}, {"state", state}});
}

absl::Status LifetimeError(int64_t subscription_id) {
  return StateError(common::v1::ERROR_REASON_LIFETIME_HAS_NO_END,
                    "a lifetime subscription has no end", subscription_id);
}

absl::Status EndNotLaterError(absl::string_view field, absl::string_view than) {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   common::v1::ERROR_REASON_END_NOT_LATER,
                   absl::StrCat(field, ": must be later than ", than),
                   {{"field", std::string(field)}});
}

absl::Status EndedByProviderError(int64_t subscription_id) {
  return StateError(common::v1::ERROR_REASON_ENDED_BY_PROVIDER,
                    "the provider has ended it or is about to; a new purchase "
                    "or a Grant goes on",
                    subscription_id);
}

absl::Status AlreadySoError(absl::string_view message,
                            int64_t subscription_id) {
  return StateError(common::v1::ERROR_REASON_ALREADY_SO, message,
                    subscription_id);
}

absl::Status SubjectErasedError() {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   common::v1::ERROR_REASON_SUBJECT_ERASED,
                   "the subject was erased");
}

absl::Status PlanNotFoundError(const std::string& plan) {
  return MakeError(
      absl::StatusCode::kNotFound, common::v1::ERROR_REASON_PLAN_NOT_FOUND,
      absl::StrCat("the catalogue has no plan '", plan, "'"), {{"plan", plan}});
}

// ---- shared steps inside a transaction ----

absl::StatusOr<domain::Plan> RequirePlan(db::Transaction& tx,
                                         const std::string& name) {
  ASSIGN_OR_RETURN(std::optional<domain::Plan> plan, store::FindPlan(tx, name));
  if (!plan) return PlanNotFoundError(name);
  return *std::move(plan);
}

absl::StatusOr<absl::Time> Present(db::Transaction& tx) {
  ASSIGN_OR_RETURN(const db::Result rows, tx.Execute(kSelectPresent));
  const absl::Time now = rows[0].Time("now");
  RETURN_IF_ERROR(rows.status());
  return now;
}

// The subject's id, made when new, with its name held against erasure.
absl::StatusOr<int64_t> HoldSubject(db::Transaction& tx,
                                    const std::string& subject) {
  // Second round: the name was erased between the two statements, and means
  // somebody new now.
  for (int round = 0; round < 2; ++round) {
    ASSIGN_OR_RETURN(const int64_t id, store::EnsureSubject(tx, subject));
    ASSIGN_OR_RETURN(const db::Result held,
                     tx.Execute(kShareSubject, db::MakeParams(id, subject)));
    if (held.empty()) continue;
    if (!held[0].IsNull("erased_at")) return SubjectErasedError();
    return id;
  }
  return InternalError("a subject vanished twice");
}

// ---- grants ----

// A checked GrantRequest.
struct ParsedGrant {
  std::string subject;
  std::string plan;
  std::optional<absl::Time> starts_at;
  std::optional<absl::Time> expires_at;
  std::optional<domain::Term> term;
  bool lifetime = false;
  std::string external_key;
};

absl::StatusOr<ParsedGrant> ParseGrant(const pb::GrantRequest& request) {
  RETURN_IF_ERROR(ValidateContext(request.context()));
  RETURN_IF_ERROR(ValidateText("subject", request.subject(), kMaxSubject));
  RETURN_IF_ERROR(ValidateText("plan", request.plan(), kMaxPlan));
  if (!request.external_key().empty()) {
    RETURN_IF_ERROR(ValidateText("external_key", request.external_key(), 255));
  }
  ParsedGrant grant;
  grant.subject = request.subject();
  grant.plan = request.plan();
  grant.external_key = request.external_key();
  ASSIGN_OR_RETURN(grant.starts_at,
                   OptionalInstant("starts_at", request.has_starts_at(),
                                   request.starts_at()));
  switch (request.end_case()) {
    case pb::GrantRequest::kExpiresAt: {
      ASSIGN_OR_RETURN(grant.expires_at,
                       FromProto("expires_at", request.expires_at()));
      if (grant.starts_at && *grant.expires_at <= *grant.starts_at) {
        return FieldInvalidError("expires_at", "must be later than starts_at");
      }
      return grant;
    }
    case pb::GrantRequest::kTerm: {
      ASSIGN_OR_RETURN(grant.term, FromApi("term", request.term()));
      return grant;
    }
    case pb::GrantRequest::kLifetime:
      if (!request.lifetime()) {
        return FieldInvalidError("lifetime", "may only be true");
      }
      grant.lifetime = true;
      return grant;
    case pb::GrantRequest::END_NOT_SET:
      return FieldMissingError("expires_at");
  }
  return FieldMissingError("expires_at");
}

// What a grant means under its plan, at the present.
absl::StatusOr<store::NewGrant> ToNewGrant(const ParsedGrant& parsed,
                                           const domain::Plan& plan,
                                           const std::string& environment,
                                           absl::Time now) {
  store::NewGrant grant;
  grant.subject = parsed.subject;
  grant.plan = plan;
  grant.environment = environment;
  grant.starts_at = parsed.starts_at.value_or(now);
  grant.external_key = parsed.external_key;
  if (parsed.lifetime) {
    if (!plan.lifetime) {
      return MakeError(
          absl::StatusCode::kFailedPrecondition,
          common::v1::ERROR_REASON_PLAN_NOT_LIFETIME,
          absl::StrCat("plan '", plan.name, "' is not sold for ever"),
          {{"plan", plan.name}});
    }
    return grant;
  }
  grant.expires_at = parsed.expires_at;
  if (parsed.term) {
    ASSIGN_OR_RETURN(const absl::TimeZone zone,
                     domain::LoadZone(plan.billing_time_zone));
    grant.expires_at = domain::AddUnits(*grant.starts_at, parsed.term->unit,
                                        parsed.term->count, zone);
  }
  if (*grant.expires_at <= *grant.starts_at) {
    return FieldInvalidError(
        "expires_at", "must be later than starts_at, which is now when absent");
  }
  return grant;
}

// True for errors that say nothing about the row: the whole batch is tried
// again by the caller.
bool IsTransient(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
      return true;
    default:
      return false;
  }
}

void SetFailure(const absl::Status& status, pb::GrantResult* result) {
  result->Clear();
  pb::GrantFailure& failure = *result->mutable_failure();
  failure.set_code(static_cast<int>(status.code()));
  const std::optional<ErrorInfo> info = GetErrorInfo(status);
  if (status.code() == absl::StatusCode::kInternal || !info) {
    log::Error("row of a batch failed",
               {{"detail", std::string(status.message())}});
    failure.set_code(static_cast<int>(absl::StatusCode::kInternal));
    failure.set_error_reason(ReasonName(common::v1::ERROR_REASON_INTERNAL));
    failure.set_message("internal error");
    return;
  }
  failure.set_error_reason(ReasonName(info->reason));
  failure.set_message(std::string(status.message()));
  const auto field = info->metadata.find("field");
  if (field != info->metadata.end()) {
    failure.set_field(field->second);
  } else if (info->metadata.count("plan") != 0) {
    failure.set_field("plan");
  }
}

bool IsOrderId(absl::string_view text) {
  return text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '_';
         });
}

bool IsCurrency(absl::string_view text) {
  return text.size() == 3 && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isupper(c);
         });
}

}  // namespace

template <typename Request, typename Response>
absl::Status SubscriptionWrites::Once(absl::string_view method,
                                      const Request& request,
                                      Response* response, Body body) {
  const store::RequestKey key = RequestKeyOf(environment_, method, request);
  bool repeated = false;
  RETURN_IF_ERROR(
      pool_.RunTransaction([&](db::Transaction& tx) -> absl::Status {
        response->Clear();
        ASSIGN_OR_RETURN(const std::optional<std::string> first,
                         store::BeginRequest(tx, key));
        repeated = first.has_value();
        if (repeated) {
          if (response->ParseFromString(*first)) return absl::OkStatus();
          return InternalError("a stored answer is unreadable");
        }
        ASSIGN_OR_RETURN(const std::optional<int64_t> subject_id,
                         body(tx, key.author));
        return store::FinishRequest(tx, key, response->SerializeAsString(),
                                    subject_id);
      }));
  log::Info("write", {{"method", method},
                      {"write_request_id", key.author.request_id},
                      {"actor", key.author.actor},
                      {"repeated", repeated}});
  return absl::OkStatus();
}

absl::StatusOr<SubscriptionWrites::Held> SubscriptionWrites::Hold(
    db::Transaction& tx, int64_t subscription_id) {
  // Storing the answer refers to the subject, so it comes first.
  ASSIGN_OR_RETURN(const db::Result subject,
                   tx.Execute(kShareSubjectOfSubscription,
                              db::MakeParams(subscription_id, environment_)));
  if (!subject.empty() && !subject[0].IsNull("erased_at")) {
    return SubjectErasedError();
  }
  Held held;
  ASSIGN_OR_RETURN(held.locked,
                   store::LockSubscription(tx, subscription_id, environment_));
  held.present = domain::Lapse(domain::Project(held.locked.fold).subscription,
                               held.locked.now);
  return held;
}

absl::StatusOr<store::StoredSubscription> SubscriptionWrites::Say(
    db::Transaction& tx, const Held& held, Said said,
    const store::Author& author) {
  RETURN_IF_ERROR(
      store::ApplyInternal(tx, held.locked, {std::move(said.fact)}, author)
          .status());
  ASSIGN_OR_RETURN(const store::StoredSubscription stored,
                   store::LoadSubscription(tx, held.locked.id, environment_));
  const std::optional<absl::Time>& end = stored.state.subscription.expires_at;
  if (said.reaches && (!end || *end < *said.reaches)) {
    // Something that Extended cannot move cuts it off earlier.
    return EndedByProviderError(held.locked.id);
  }
  return stored;
}

template <typename Request, typename Response>
absl::Status SubscriptionWrites::Change(absl::string_view method,
                                        const Request& request,
                                        Response* response, Decide decide) {
  return Once(method, request, response,
              [&](db::Transaction& tx, const store::Author& author)
                  -> absl::StatusOr<std::optional<int64_t>> {
                ASSIGN_OR_RETURN(const Held held,
                                 Hold(tx, request.subscription_id()));
                ASSIGN_OR_RETURN(Said said, decide(tx, held));
                ASSIGN_OR_RETURN(const store::StoredSubscription stored,
                                 Say(tx, held, std::move(said), author));
                ToApi(stored, response->mutable_subscription());
                return stored.subject_id;
              });
}

absl::StatusOr<store::Route> SubscriptionWrites::FindRoute(
    db::Transaction& tx, const std::string& name) {
  ASSIGN_OR_RETURN(
      const db::Result rows,
      tx.Execute(kSelectRoute, db::MakeParams(name, environment_)));
  if (rows.empty()) {
    return MakeError(
        absl::StatusCode::kNotFound, common::v1::ERROR_REASON_ROUTE_NOT_FOUND,
        absl::StrCat("there is no ", environment_, " route '", name, "'"),
        {{"route", name}});
  }
  store::Route route;
  route.id = rows[0].Int64("id");
  route.name = rows[0].Text("name");
  route.environment = rows[0].Text("environment");
  RETURN_IF_ERROR(rows.status());
  return route;
}

absl::Status SubscriptionWrites::Grant(const pb::GrantRequest& request,
                                       pb::GrantResponse* response) {
  ASSIGN_OR_RETURN(const ParsedGrant parsed, ParseGrant(request));
  return Once(
      "Grant", request, response,
      [&](db::Transaction& tx, const store::Author& author)
          -> absl::StatusOr<std::optional<int64_t>> {
        ASSIGN_OR_RETURN(const domain::Plan plan, RequirePlan(tx, parsed.plan));
        RETURN_IF_ERROR(HoldSubject(tx, parsed.subject).status());
        ASSIGN_OR_RETURN(const absl::Time now, Present(tx));
        ASSIGN_OR_RETURN(const store::NewGrant grant,
                         ToNewGrant(parsed, plan, environment_, now));
        ASSIGN_OR_RETURN(const store::AppliedFacts applied,
                         store::Grant(tx, grant, author));
        ASSIGN_OR_RETURN(
            const store::StoredSubscription stored,
            store::LoadSubscription(tx, applied.subscription_id, environment_));
        ToApi(stored, response->mutable_subscription());
        return stored.subject_id;
      });
}

absl::Status SubscriptionWrites::BatchGrant(
    const pb::BatchGrantRequest& request, pb::BatchGrantResponse* response) {
  if (request.grants().empty()) return FieldMissingError("grants");
  if (request.grants_size() > kMaxBatch) {
    return FieldInvalidError("grants",
                             absl::StrCat("must be at most ", kMaxBatch));
  }
  struct Row {
    int index = 0;
    store::RequestKey key;
    ParsedGrant parsed;
  };
  for (int i = 0; i < request.grants_size(); ++i) response->add_results();
  const auto result = [&](int index) {
    return response->mutable_results(index);
  };

  // What can be said of each row by itself.
  std::vector<Row> rows;
  std::map<std::string, size_t> first_of_id;
  std::vector<std::pair<int, int>> repeats;  // row, row whose request it is
  std::set<std::string> plan_names;
  for (int i = 0; i < request.grants_size(); ++i) {
    absl::StatusOr<ParsedGrant> parsed = ParseGrant(request.grants(i));
    if (!parsed.ok()) {
      SetFailure(parsed.status(), result(i));
      continue;
    }
    Row row{i, RequestKeyOf(environment_, "Grant", request.grants(i)),
            *std::move(parsed)};
    const auto [it, is_new] =
        first_of_id.emplace(row.key.author.request_id, rows.size());
    if (!is_new) {
      const Row& first = rows[it->second];
      if (first.key.sha256 == row.key.sha256) {
        repeats.emplace_back(i, first.index);
      } else {
        SetFailure(MakeError(absl::StatusCode::kAlreadyExists,
                             common::v1::ERROR_REASON_REQUEST_ID_REUSED,
                             "the request_id was used for another request",
                             {{"request_id", row.key.author.request_id}}),
                   result(i));
      }
      continue;
    }
    plan_names.insert(row.parsed.plan);
    rows.push_back(std::move(row));
  }

  // What the catalogue says.
  std::map<std::string, domain::Plan> plans;
  absl::Time now;
  RETURN_IF_ERROR(
      pool_.RunTransaction([&](db::Transaction& tx) -> absl::Status {
        plans.clear();
        for (const std::string& name : plan_names) {
          ASSIGN_OR_RETURN(std::optional<domain::Plan> plan,
                           store::FindPlan(tx, name));
          if (plan) plans.emplace(name, *std::move(plan));
        }
        ASSIGN_OR_RETURN(now, Present(tx));
        return absl::OkStatus();
      }));

  // Passed over before they are checked further: what they meant then stands.
  if (!request.dry_run()) {
    std::vector<store::RequestKey> keys;
    for (const Row& row : rows) keys.push_back(row.key);
    ASSIGN_OR_RETURN(const auto answers, store::FindAnswers(pool_, keys));
    std::vector<Row> left;
    for (Row& row : rows) {
      const auto answer = answers.find(row.key.author.request_id);
      if (answer == answers.end()) {
        left.push_back(std::move(row));
        continue;
      }
      pb::GrantResponse first;
      if (!answer->second.ok()) {
        SetFailure(answer->second.status(), result(row.index));
      } else if (!first.ParseFromString(*answer->second)) {
        return InternalError("a stored answer is unreadable");
      } else {
        result(row.index)->set_subscription_id(first.subscription().id());
        result(row.index)->set_repeated_request(true);
      }
    }
    rows = std::move(left);
  }

  struct Work {
    const Row* row;
    store::NewGrant grant;
  };
  std::vector<Work> work;
  for (const Row& row : rows) {
    const auto plan = plans.find(row.parsed.plan);
    absl::StatusOr<store::NewGrant> grant =
        plan == plans.end()
            ? absl::StatusOr<store::NewGrant>(
                  PlanNotFoundError(row.parsed.plan))
            : ToNewGrant(row.parsed, plan->second, environment_, now);
    if (!grant.ok()) {
      SetFailure(grant.status(), result(row.index));
    } else {
      work.push_back({&row, *std::move(grant)});
    }
  }
  if (!request.dry_run() && !work.empty()) {
    // One order of locks for all batches: requests, then subjects, then rows.
    std::sort(work.begin(), work.end(), [](const Work& a, const Work& b) {
      return a.row->key.author.request_id < b.row->key.author.request_id;
    });
    using Span = std::pair<size_t, size_t>;  // [first, last) of `work`
    std::map<int, pb::GrantResult> done;
    const auto grant_span = [&](db::Transaction& tx,
                                Span span) -> absl::Status {
      done.clear();
      std::vector<const Work*> fresh;
      std::set<std::string> subjects;
      for (size_t i = span.first; i < span.second; ++i) {
        ASSIGN_OR_RETURN(const std::optional<std::string> first,
                         store::BeginRequest(tx, work[i].row->key));
        if (!first) {
          fresh.push_back(&work[i]);
          subjects.insert(work[i].grant.subject);
          continue;
        }
        pb::GrantResponse answer;
        if (!answer.ParseFromString(*first)) {
          return InternalError("a stored answer is unreadable");
        }
        pb::GrantResult& repeated = done[work[i].row->index];
        repeated.set_subscription_id(answer.subscription().id());
        repeated.set_repeated_request(true);
      }
      for (const std::string& subject : subjects) {
        RETURN_IF_ERROR(HoldSubject(tx, subject).status());
      }
      // Creation in the order of the keys that two batches could share (R8).
      std::stable_sort(fresh.begin(), fresh.end(),
                       [](const Work* a, const Work* b) {
                         return a->grant.external_key < b->grant.external_key;
                       });
      for (const Work* one : fresh) {
        const store::RequestKey& key = one->row->key;
        ASSIGN_OR_RETURN(const store::AppliedFacts applied,
                         store::Grant(tx, one->grant, key.author));
        ASSIGN_OR_RETURN(
            const store::StoredSubscription stored,
            store::LoadSubscription(tx, applied.subscription_id, environment_));
        if (stored.subject_erased) return SubjectErasedError();
        pb::GrantResponse answer;
        ToApi(stored, answer.mutable_subscription());
        RETURN_IF_ERROR(store::FinishRequest(
            tx, key, answer.SerializeAsString(), stored.subject_id));
        done[one->row->index].set_subscription_id(stored.id);
      }
      return absl::OkStatus();
    };
    const auto run = [&](Span span) {
      return pool_.RunTransaction(
          [&](db::Transaction& tx) { return grant_span(tx, span); });
    };
    const auto take = [&] {
      for (auto& [index, one] : done) *result(index) = std::move(one);
    };
    const absl::Status together = run({0, work.size()});
    if (together.ok()) {
      take();
    } else if (IsTransient(together)) {
      return together;
    } else {
      // One of them spoiled the transaction: each alone tells which.
      for (size_t i = 0; i < work.size(); ++i) {
        const absl::Status alone = run({i, i + 1});
        if (IsTransient(alone)) return alone;
        if (alone.ok()) {
          take();
        } else {
          SetFailure(alone, result(work[i].row->index));
        }
      }
    }
  }
  for (const auto& [index, first] : repeats) {
    *result(index) = response->results(first);
    if (!result(index)->has_failure()) {
      result(index)->set_repeated_request(true);
    }
  }
  return absl::OkStatus();
}

absl::Status SubscriptionWrites::Extend(const pb::ExtendRequest& request,
                                        pb::ExtendResponse* response) {
  RETURN_IF_ERROR(ValidateContext(request.context()));
  RETURN_IF_ERROR(ValidateSubscriptionId(request.subscription_id()));
  std::optional<absl::Time> until;
  std::optional<domain::Term> term;
  switch (request.end_case()) {
    case pb::ExtendRequest::kExpiresAt: {
      ASSIGN_OR_RETURN(until, FromProto("expires_at", request.expires_at()));
      break;
    }
    case pb::ExtendRequest::kTerm: {
      ASSIGN_OR_RETURN(term, FromApi("term", request.term()));
      break;
    }
    case pb::ExtendRequest::END_NOT_SET:
      return FieldMissingError("expires_at");
  }
  return Change(
      "Extend", request, response,
      [&](db::Transaction&, const Held& held) -> absl::StatusOr<Said> {
        const domain::Subscription& s = held.present;
        const int64_t id = held.locked.id;
        if (s.lifetime) return LifetimeError(id);
        if (s.status == domain::Status::kCanceled ||
            s.status == domain::Status::kRevoked) {
          return NotLiveError(id, s.status);
        }
        const auto& fold = held.locked.fold;
        if (fold.has_ended_at() || fold.provider_cancel().has_cancel_at()) {
          return EndedByProviderError(id);
        }
        absl::Time to = until.value_or(absl::InfiniteFuture());
        if (term) {
          ASSIGN_OR_RETURN(
              const absl::TimeZone zone,
              domain::LoadZone(held.locked.plan.billing_time_zone));
          const absl::Time end =
              std::max(s.expires_at.value_or(held.locked.now), held.locked.now);
          to = domain::StackedEnd(s.anchor_at.value_or(end), end, *term, zone);
        }
        if (to <= held.locked.now) {
          return EndNotLaterError("expires_at", "the present instant");
        }
        if (s.expires_at && to <= *s.expires_at) {
          return EndNotLaterError("expires_at", "the present end");
        }
        Said said;
        *said.fact.mutable_extended()->mutable_expires_at() = ToProto(to);
        said.reaches = to;
        return said;
      });
}

absl::Status SubscriptionWrites::Cancel(const pb::CancelRequest& request,
                                        pb::CancelResponse* response) {
  RETURN_IF_ERROR(ValidateContext(request.context()));
  RETURN_IF_ERROR(ValidateSubscriptionId(request.subscription_id()));
  if (request.mode() == pb::CANCEL_MODE_UNSPECIFIED) {
    return FieldMissingError("mode");
  }
  if (request.mode() != pb::CANCEL_MODE_NOW &&
      request.mode() != pb::CANCEL_MODE_AT_END) {
    return FieldInvalidError("mode", "is no known mode");
  }
  return Change(
      "Cancel", request, response,
      [&](db::Transaction&, const Held& held) -> absl::StatusOr<Said> {
        const domain::Subscription& s = held.present;
        const int64_t id = held.locked.id;
        const bool ends =
            domain::IsLive(s.status) || s.status == domain::Status::kPaused;
        Said said;
        if (request.mode() == pb::CANCEL_MODE_NOW) {
          if (!ends && s.status != domain::Status::kPending) {
            return NotLiveError(id, s.status);
          }
          *said.fact.mutable_ended()->mutable_ended_at() =
              ToProto(held.locked.now);
          return said;
        }
        if (!ends) return NotLiveError(id, s.status);
        if (s.lifetime) return LifetimeError(id);
        if (held.locked.fold.has_internal_cancel()) {
          return AlreadySoError("its cancellation is scheduled already", id);
        }
        said.fact.mutable_cancel_scheduled();
        return said;
      });
}

absl::Status SubscriptionWrites::ResumeCancel(
    const pb::ResumeCancelRequest& request,
    pb::ResumeCancelResponse* response) {
  RETURN_IF_ERROR(ValidateContext(request.context()));
  RETURN_IF_ERROR(ValidateSubscriptionId(request.subscription_id()));
  return Change(
      "ResumeCancel", request, response,
      [](db::Transaction&, const Held& held) -> absl::StatusOr<Said> {
        const auto& fold = held.locked.fold;
        const int64_t id = held.locked.id;
        const domain::Status status = held.present.status;
        if (!fold.has_internal_cancel()) {
          return StateError(common::v1::ERROR_REASON_NOTHING_TO_RESUME,
                            "no cancellation of ours is scheduled", id);
        }
        // Nobody would bill it (C068).
        if (fold.has_ended_at() || fold.has_provider_cancel()) {
          return EndedByProviderError(id);
        }
        if (!domain::IsLive(status) && status != domain::Status::kPaused) {
          return NotLiveError(id, status);
        }
        Said said;
        said.fact.mutable_cancel_reverted();
        return said;
      });
}

absl::Status SubscriptionWrites::Revoke(const pb::RevokeRequest& request,
                                        pb::RevokeResponse* response) {
  RETURN_IF_ERROR(ValidateContext(request.context()));
  RETURN_IF_ERROR(ValidateSubscriptionId(request.subscription_id()));
  return Change(
      "Revoke", request, response,
      [&](db::Transaction&, const Held& held) -> absl::StatusOr<Said> {
        if (held.locked.fold.row_revoked()) {
          return AlreadySoError("it is revoked already", held.locked.id);
        }
        Said said;
        said.fact.mutable_revoked()->set_reason(request.context().reason());
        return said;
      });
}

absl::Status SubscriptionWrites::Pause(const pb::PauseRequest& request,
                                       pb::PauseResponse* response) {
  RETURN_IF_ERROR(ValidateContext(request.context()));
  RETURN_IF_ERROR(ValidateSubscriptionId(request.subscription_id()));
  ASSIGN_OR_RETURN(const std::optional<absl::Time> at,
                   OptionalInstant("at", request.has_at(), request.at()));
  return Change(
      "Pause", request, response,
      [&](db::Transaction&, const Held& held) -> absl::StatusOr<Said> {
        const domain::Subscription& s = held.present;
        const int64_t id = held.locked.id;
        if (held.locked.fold.has_internal_pause_at()) {
          return AlreadySoError("it is paused already, or will be", id);
        }
        if (!domain::IsLive(s.status)) return NotLiveError(id, s.status);
        if (at && *at < held.locked.now) {
          return FieldInvalidError("at", "must not lie in the past");
        }
        const absl::Time from = at.value_or(held.locked.now);
        const std::optional<absl::Time> end = s.AccessUntil();
        if (!s.lifetime && end && *end <= from) {
          return FieldInvalidError("at", "must be before the end of access");
        }
        Said said;
        *said.fact.mutable_paused()->mutable_pause_at() = ToProto(from);
        return said;
      });
}

absl::Status SubscriptionWrites::Resume(const pb::ResumeRequest& request,
                                        pb::ResumeResponse* response) {
  RETURN_IF_ERROR(ValidateContext(request.context()));
  RETURN_IF_ERROR(ValidateSubscriptionId(request.subscription_id()));
  ASSIGN_OR_RETURN(const std::optional<absl::Time> until,
                   OptionalInstant("expires_at", request.has_expires_at(),
                                   request.expires_at()));
  return Change(
      "Resume", request, response,
      [&](db::Transaction&, const Held& held) -> absl::StatusOr<Said> {
        const auto& fold = held.locked.fold;
        const int64_t id = held.locked.id;
        if (!fold.has_internal_pause_at() && !fold.has_internal_ended_at() &&
            !fold.row_revoked()) {
          return StateError(common::v1::ERROR_REASON_NOTHING_TO_RESUME,
                            "no pause, end or revocation of ours is there to "
                            "lift",
                            id);
        }
        Said said;
        pb::Resumed& resumed = *said.fact.mutable_resumed();
        if (!until) return said;
        if (held.present.lifetime) return LifetimeError(id);
        if (*until <= held.locked.now) {
          return EndNotLaterError("expires_at", "the present instant");
        }
        *resumed.mutable_expires_at() = ToProto(*until);
        said.reaches = *until;
        return said;
      });
}

absl::Status SubscriptionWrites::ChangePlan(
    const pb::ChangePlanRequest& request, pb::ChangePlanResponse* response) {
  RETURN_IF_ERROR(ValidateContext(request.context()));
  RETURN_IF_ERROR(ValidateSubscriptionId(request.subscription_id()));
  RETURN_IF_ERROR(ValidateText("plan", request.plan(), kMaxPlan));
  ASSIGN_OR_RETURN(const std::optional<absl::Time> effective_at,
                   OptionalInstant("effective_at", request.has_effective_at(),
                                   request.effective_at()));
  if (request.has_at_end() && !request.at_end()) {
    return FieldInvalidError("at_end", "may only be true");
  }
  return Change(
      "ChangePlan", request, response,
      [&](db::Transaction& tx, const Held& held) -> absl::StatusOr<Said> {
        const domain::Subscription& s = held.present;
        const int64_t id = held.locked.id;
        const domain::Plan& now_plan = held.locked.plan;
        ASSIGN_OR_RETURN(const domain::Plan plan,
                         RequirePlan(tx, request.plan()));
        if (!domain::IsLive(s.status) && s.status != domain::Status::kPaused &&
            s.status != domain::Status::kPending) {
          return NotLiveError(id, s.status);
        }
        std::optional<absl::Time> when = effective_at;
        if (request.at_end()) {
          if (s.lifetime) return LifetimeError(id);
          if (!s.expires_at) return NotLiveError(id, s.status);
          when = s.expires_at;
        }
        if (effective_at && *effective_at < held.locked.now) {
          return FieldInvalidError("effective_at", "must not lie in the past");
        }
        const bool as_scheduled = s.next_plan_at && when == s.next_plan_at &&
                                  s.next_plan == plan.name &&
                                  s.next_plan_revision == plan.revision;
        const bool as_now = !s.next_plan_at && now_plan.name == plan.name &&
                            now_plan.revision == plan.revision;
        if (as_scheduled || as_now) {
          return AlreadySoError("it has that plan already, or will have", id);
        }
        Said said;
        pb::PlanChanged& change = *said.fact.mutable_plan_changed();
        change.set_plan(plan.name);
        if (when) *change.mutable_effective_at() = ToProto(*when);
        return said;
      });
}

absl::Status SubscriptionWrites::Transfer(const pb::TransferRequest& request,
                                          pb::TransferResponse* response) {
  RETURN_IF_ERROR(ValidateContext(request.context()));
  RETURN_IF_ERROR(ValidateSubscriptionId(request.subscription_id()));
  RETURN_IF_ERROR(
      ValidateText("to_subject", request.to_subject(), kMaxSubject));
  return Once(
      "Transfer", request, response,
      [&](db::Transaction& tx, const store::Author& author)
          -> absl::StatusOr<std::optional<int64_t>> {
        // The subject before the subscription (R8).
        ASSIGN_OR_RETURN(const int64_t subject_id,
                         HoldSubject(tx, request.to_subject()));
        ASSIGN_OR_RETURN(const Held held, Hold(tx, request.subscription_id()));
        if (held.locked.subject_id == subject_id) {
          return AlreadySoError("it is that subject's already", held.locked.id);
        }
        Said said;
        said.fact.mutable_transferred()->set_subject_id(subject_id);
        ASSIGN_OR_RETURN(const store::StoredSubscription stored,
                         Say(tx, held, std::move(said), author));
        ToApi(stored, response->mutable_subscription());
        return stored.subject_id;
      });
}

absl::Status SubscriptionWrites::CreateOrder(
    const pb::CreateOrderRequest& request, pb::CreateOrderResponse* response) {
  RETURN_IF_ERROR(ValidateContext(request.context()));
  RETURN_IF_ERROR(ValidateText("route", request.route(), 64));
  if (!IsOrderId(request.order_id())) {
    return FieldInvalidError("order_id",
                             "must be at most 64 letters, digits, '-' and '_'");
  }
  RETURN_IF_ERROR(ValidateText("subject", request.subject(), kMaxSubject));
  switch (request.item_case()) {
    case pb::CreateOrderRequest::kPlan:
      RETURN_IF_ERROR(ValidateText("plan", request.plan(), kMaxPlan));
      break;
    case pb::CreateOrderRequest::kProductId:
      RETURN_IF_ERROR(ValidateText("product_id", request.product_id(), 255));
      break;
    case pb::CreateOrderRequest::ITEM_NOT_SET:
      return FieldMissingError("plan");
  }
  if (request.amount_minor() < 0) {
    return FieldInvalidError("amount_minor", "must not be negative");
  }
  if (request.currency().empty()) return FieldMissingError("currency");
  if (!IsCurrency(request.currency())) {
    return FieldInvalidError("currency", "must be three capital letters");
  }
  return Once(
      "CreateOrder", request, response,
      [&](db::Transaction& tx,
          const store::Author&) -> absl::StatusOr<std::optional<int64_t>> {
        ASSIGN_OR_RETURN(const store::Route route,
                         FindRoute(tx, request.route()));
        domain::Plan plan;
        if (request.has_plan()) {
          ASSIGN_OR_RETURN(plan, RequirePlan(tx, request.plan()));
        } else {
          ASSIGN_OR_RETURN(
              const std::optional<domain::Plan> found,
              store::FindPlanOfProduct(tx, route.name, request.product_id()));
          if (!found) {
            return MakeError(
                absl::StatusCode::kNotFound,
                common::v1::ERROR_REASON_PRODUCT_NOT_FOUND,
                "the catalogue has no plan for that product on that route",
                {{"route", route.name}, {"product_id", request.product_id()}});
          }
          plan = *found;
        }
        ASSIGN_OR_RETURN(const int64_t subject_id,
                         HoldSubject(tx, request.subject()));
        // 32 characters, which every provider takes.
        const std::string order_id = request.order_id().empty()
                                         ? HexEncode(RandomBytes(16))
                                         : request.order_id();
        ASSIGN_OR_RETURN(
            const db::Result inserted,
            tx.Execute(kInsertPaymentOrder,
                       db::MakeParams(route.id, order_id, subject_id, plan.name,
                                      domain::CalendarUnitName(plan.term.unit),
                                      plan.term.count, request.amount_minor(),
                                      request.currency())));
        if (inserted.empty()) {
          return MakeError(absl::StatusCode::kAlreadyExists,
                           common::v1::ERROR_REASON_ORDER_ALREADY_EXISTS,
                           absl::StrCat("the route has an order ", order_id),
                           {{"route", route.name}, {"order_id", order_id}});
        }
        pb::Order& order = *response->mutable_order();
        order.set_route(route.name);
        order.set_order_id(order_id);
        order.set_subject(request.subject());
        order.set_plan(plan.name);
        ToApi(plan.term, order.mutable_term());
        order.set_amount_minor(request.amount_minor());
        order.set_currency(request.currency());
        *order.mutable_created_at() = ToProto(inserted[0].Time("created_at"));
        RETURN_IF_ERROR(inserted.status());
        return subject_id;
      });
}

absl::Status SubscriptionWrites::LinkCustomer(
    const pb::LinkCustomerRequest& request,
    pb::LinkCustomerResponse* response) {
  RETURN_IF_ERROR(ValidateContext(request.context()));
  RETURN_IF_ERROR(ValidateText("route", request.route(), 64));
  if (!request.account().empty()) {
    RETURN_IF_ERROR(ValidateText("account", request.account(), 255));
  }
  RETURN_IF_ERROR(ValidateText("customer_id", request.customer_id(), 255));
  RETURN_IF_ERROR(ValidateText("subject", request.subject(), kMaxSubject));
  return Once(
      "LinkCustomer", request, response,
      [&](db::Transaction& tx,
          const store::Author&) -> absl::StatusOr<std::optional<int64_t>> {
        ASSIGN_OR_RETURN(const store::Route route,
                         FindRoute(tx, request.route()));
        // Inbox rows before the subject (R8). A try that is under way is waited
        // for; the next one comes after our commit and sees the link.
        ASSIGN_OR_RETURN(const db::Result woken,
                         tx.Execute(kWakeEventsOfCustomer,
                                    db::MakeParams(route.id, request.account(),
                                                   request.customer_id())));
        ASSIGN_OR_RETURN(const int64_t subject_id,
                         HoldSubject(tx, request.subject()));
        ASSIGN_OR_RETURN(
            const db::Result linked,
            tx.Execute(kUpsertCustomerLink,
                       db::MakeParams(route.id, request.account(),
                                      request.customer_id(), subject_id)));
        if (linked.empty()) return SubjectErasedError();
        response->set_woken_events(static_cast<int64_t>(woken.affected_rows()));
        return subject_id;
      });
}

absl::Status SubscriptionWrites::EraseSubject(
    const pb::EraseSubjectRequest& request,
    pb::EraseSubjectResponse* response) {
  RETURN_IF_ERROR(ValidateContext(request.context()));
  RETURN_IF_ERROR(ValidateText("subject", request.subject(), kMaxSubject));
  return Once(
      "EraseSubject", request, response,
      [&](db::Transaction& tx, const store::Author& author)
          -> absl::StatusOr<std::optional<int64_t>> {
        ASSIGN_OR_RETURN(const db::Result subject,
                         tx.Execute(kLockSubjectForErasure,
                                    db::MakeParams(request.subject())));
        if (subject.empty()) {
          return MakeError(absl::StatusCode::kNotFound,
                           common::v1::ERROR_REASON_SUBJECT_NOT_FOUND,
                           "there is no subject of that name");
        }
        if (!subject[0].IsNull("erased_at")) return SubjectErasedError();
        const int64_t subject_id = subject[0].Int64("id");
        RETURN_IF_ERROR(subject.status());
        ASSIGN_OR_RETURN(const db::Result ids,
                         tx.Execute(kListSubscriptionIdsOfSubject,
                                    db::MakeParams(subject_id)));
        for (size_t i = 0; i < ids.size(); ++i) {
          ASSIGN_OR_RETURN(const store::LockedSubscription locked,
                           store::LockSubscription(tx, ids[i].Int64("id"),
                                                   ids[i].Text("environment")));
          // Moved to somebody else while we waited.
          if (locked.subject_id != subject_id) continue;
          // Also where it has ended: a late payment must not bring it back.
          domain::Fact fact;
          *fact.mutable_ended()->mutable_ended_at() = ToProto(locked.now);
          RETURN_IF_ERROR(
              store::ApplyInternal(tx, locked, {std::move(fact)}, author)
                  .status());
        }
        RETURN_IF_ERROR(ids.status());
        // Inbox rows after the subscriptions, against R8's order: these events
        // are settled, and nobody who holds one of them waits for us.
        ASSIGN_OR_RETURN(
            const db::Result events,
            tx.Execute(kEraseEventBodies, db::MakeParams(subject_id)));
        std::vector<int64_t> event_ids;
        int64_t emptied = 0;
        for (size_t i = 0; i < events.size(); ++i) {
          event_ids.push_back(events[i].Int64("id"));
          emptied += events[i].Bool("emptied") ? 1 : 0;
        }
        RETURN_IF_ERROR(events.status());
        RETURN_IF_ERROR(
            tx.Execute(kEraseConflictBodies, db::MakeParams(event_ids))
                .status());
        RETURN_IF_ERROR(
            tx.Execute(kEraseRequestAnswers, db::MakeParams(subject_id))
                .status());
        // Nobody can have used it: it is random.
        const std::string pseudonym = absl::StrCat("erased:", RandomUuid());
        ASSIGN_OR_RETURN(
            const db::Result erased,
            tx.Execute(kEraseSubject, db::MakeParams(subject_id, pseudonym)));
        response->set_pseudonym(pseudonym);
        *response->mutable_erased_at() = ToProto(erased[0].Time("erased_at"));
        RETURN_IF_ERROR(erased.status());
        response->set_subscription_count(static_cast<int>(ids.size()));
        response->set_emptied_events(emptied);
        // The answer names nobody, and has to outlive the erasure.
        return std::nullopt;
      });
}

}  // namespace tenure::webhook_ingest
