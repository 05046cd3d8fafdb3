#include "services/webhook-ingest/subscription_convert.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/proto_time.h"

namespace tenure::webhook_ingest {
namespace {

namespace pb = ::tenure::subscription::v1;
namespace api = ::tenure::entitlement::v1;

// As the schema's CHECK.
constexpr int kLongestTerm = 1200;

pb::SubscriptionState ToApi(domain::Status status) {
  pb::SubscriptionState state = pb::SUBSCRIPTION_STATE_UNSPECIFIED;
  pb::SubscriptionState_Parse(
      absl::StrCat("SUBSCRIPTION_STATE_", domain::StatusName(status)), &state);
  return state;
}

api::AccessReason ToApi(domain::AccessReason reason) {
  switch (reason) {
    case domain::AccessReason::kPaid:
      return api::ACCESS_REASON_PAID;
    case domain::AccessReason::kTrial:
      return api::ACCESS_REASON_TRIAL;
    case domain::AccessReason::kGrace:
      return api::ACCESS_REASON_GRACE;
    case domain::AccessReason::kLifetime:
      return api::ACCESS_REASON_LIFETIME;
    case domain::AccessReason::kDefaultPlan:
      return api::ACCESS_REASON_DEFAULT_PLAN;
    case domain::AccessReason::kNoSubscription:
      return api::ACCESS_REASON_NO_SUBSCRIPTION;
    case domain::AccessReason::kFeatureNotInPlan:
      return api::ACCESS_REASON_FEATURE_NOT_IN_PLAN;
    case domain::AccessReason::kNotStarted:
      return api::ACCESS_REASON_NOT_STARTED;
    case domain::AccessReason::kEnded:
      return api::ACCESS_REASON_ENDED;
    case domain::AccessReason::kPending:
      return api::ACCESS_REASON_PENDING;
    case domain::AccessReason::kPaused:
      return api::ACCESS_REASON_PAUSED;
    case domain::AccessReason::kCanceled:
      return api::ACCESS_REASON_CANCELED;
    case domain::AccessReason::kRevoked:
      return api::ACCESS_REASON_REVOKED;
  }
  return api::ACCESS_REASON_UNSPECIFIED;
}

constexpr std::pair<pb::TermUnit, domain::CalendarUnit> kUnits[] = {
    {pb::TERM_UNIT_DAY, domain::CalendarUnit::kDay},
    {pb::TERM_UNIT_WEEK, domain::CalendarUnit::kWeek},
    {pb::TERM_UNIT_MONTH, domain::CalendarUnit::kMonth},
    {pb::TERM_UNIT_YEAR, domain::CalendarUnit::kYear},
};

}  // namespace

void ToApi(const store::StoredSubscription& stored, pb::Subscription* out) {
  const domain::Subscription& s = stored.state.subscription;
  out->set_id(stored.id);
  out->set_subject(stored.subject);
  out->set_plan(stored.plan);
  out->set_state(ToApi(s.status));
  out->set_route(stored.route);
  out->set_environment(stored.environment);
  out->set_provider_subscription_id(stored.provider_subscription_id);
  if (s.starts_at) *out->mutable_starts_at() = ToProto(*s.starts_at);
  if (s.expires_at) *out->mutable_expires_at() = ToProto(*s.expires_at);
  if (stored.access_until) {
    *out->mutable_access_until() = ToProto(*stored.access_until);
  }
  out->set_lifetime(s.lifetime);
  if (s.cancel_at) *out->mutable_cancel_at() = ToProto(*s.cancel_at);
  out->set_will_renew(s.will_renew);
  if (stored.state.lifecycle.expired_at) {
    *out->mutable_expired_at() = ToProto(*stored.state.lifecycle.expired_at);
  }
  out->set_episode(stored.state.lifecycle.episode);
  if (s.pause_at) *out->mutable_pause_at() = ToProto(*s.pause_at);
  out->set_next_plan(stored.next_plan);
  if (s.next_plan_at) *out->mutable_next_plan_at() = ToProto(*s.next_plan_at);
  if (s.grace_period_ends_at) {
    *out->mutable_grace_period_ends_at() = ToProto(*s.grace_period_ends_at);
  }
  if (s.leeway_until) *out->mutable_leeway_until() = ToProto(*s.leeway_until);
  out->set_needs_reconcile(stored.needs_reconcile);
  out->set_term_no(s.term_no);
  out->set_version(stored.version);
  out->set_prepaid(stored.prepaid);
}

void ToApi(const domain::Verdict& verdict, absl::Time decided_at,
           api::CheckResponse* out) {
  out->set_has_access(verdict.has_access);
  out->set_reason(ToApi(verdict.reason));
  if (verdict.access_until) {
    *out->mutable_access_until() = ToProto(*verdict.access_until);
  }
  if (verdict.next_transition_at) {
    *out->mutable_next_transition_at() = ToProto(*verdict.next_transition_at);
  }
  *out->mutable_decided_at() = ToProto(decided_at);
  if (verdict.value.limit) out->set_limit(*verdict.value.limit);
  if (verdict.value.quantity) out->set_quantity(*verdict.value.quantity);
  if (verdict.subscription_id != 0 ||
      verdict.reason == domain::AccessReason::kDefaultPlan) {
    api::Grantor& grantor = *out->mutable_grantor();
    grantor.set_subscription_id(verdict.subscription_id);
    grantor.set_plan(verdict.plan);
    grantor.set_in_grace(verdict.in_grace);
    grantor.set_will_renew(verdict.will_renew);
  }
}

void ToApi(const domain::Term& term, pb::Term* out) {
  for (const auto& [outer, inner] : kUnits) {
    if (inner == term.unit) out->set_unit(outer);
  }
  out->set_count(term.count);
}

absl::StatusOr<domain::Term> FromApi(absl::string_view field,
                                     const pb::Term& term) {
  std::optional<domain::CalendarUnit> unit;
  for (const auto& [outer, inner] : kUnits) {
    if (outer == term.unit()) unit = inner;
  }
  if (!unit) {
    return FieldInvalidError(absl::StrCat(field, ".unit"), "is no known unit");
  }
  if (term.count() < 1 || term.count() > kLongestTerm) {
    return FieldInvalidError(absl::StrCat(field, ".count"),
                             absl::StrCat("must be 1 to ", kLongestTerm));
  }
  return domain::Term{*unit, term.count()};
}

absl::Status ValidateSubscriptionId(int64_t id) {
  if (id == 0) return FieldMissingError("subscription_id");
  if (id < 0) return FieldInvalidError("subscription_id", "must be positive");
  return absl::OkStatus();
}

}  // namespace tenure::webhook_ingest
