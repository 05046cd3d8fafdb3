#include "common/domain/access.h"

#include <tuple>

namespace tenure::domain {
namespace {

// What one candidate says at an instant.
struct Finding {
  bool grants = false;
  AccessReason reason = AccessReason::kNoSubscription;
  // Of a grant: its end, InfiniteFuture for none. Of an ended one: when.
  absl::Time until = absl::InfiniteFuture();
  std::string plan;
  FeatureValue value;
  bool in_grace = false;
};

// The states that refuse whatever the instants say.
std::optional<AccessReason> RefusingState(Status status) {
  switch (status) {
    case Status::kPending:
      return AccessReason::kPending;
    case Status::kPaused:
      return AccessReason::kPaused;
    case Status::kCanceled:
      return AccessReason::kCanceled;
    case Status::kRevoked:
      return AccessReason::kRevoked;
    case Status::kTrialing:
    case Status::kActive:
    case Status::kPastDue:
    case Status::kExpired:
      return std::nullopt;
  }
  return AccessReason::kRevoked;
}

Finding Refuse(AccessReason reason, const std::string& plan) {
  Finding finding;
  finding.reason = reason;
  finding.plan = plan;
  return finding;
}

Finding Examine(const AccessCandidate& candidate, absl::Time now) {
  if (candidate.is_default_plan) {
    Finding grant;
    grant.grants = true;
    grant.reason = AccessReason::kDefaultPlan;
    grant.plan = candidate.plan;
    grant.value = candidate.value;
    return grant;
  }
  const Subscription& s = candidate.subscription;
  const bool next_plan_in_force = s.next_plan_at && *s.next_plan_at <= now;
  const std::string& plan =
      next_plan_in_force ? candidate.next_plan : candidate.plan;
  if (!(next_plan_in_force ? candidate.next_plan_grants
                           : candidate.plan_grants)) {
    return Refuse(AccessReason::kFeatureNotInPlan, plan);
  }
  if (const auto reason = RefusingState(s.status)) {
    return Refuse(*reason, plan);
  }
  // Before the start too, as the row says once the sweep has come.
  if (s.pause_at && *s.pause_at <= now) {
    return Refuse(AccessReason::kPaused, plan);
  }
  if (!s.starts_at || now < *s.starts_at) {
    return Refuse(AccessReason::kNotStarted, plan);
  }
  // A missing end without the flag never grants (R2).
  const absl::Time end = s.lifetime
                             ? absl::InfiniteFuture()
                             : s.AccessUntil().value_or(absl::InfinitePast());
  if (end <= now) {
    Finding ended = Refuse(AccessReason::kEnded, plan);
    ended.until = end;
    return ended;
  }
  Finding grant;
  grant.grants = true;
  grant.plan = plan;
  grant.value = next_plan_in_force ? candidate.next_value : candidate.value;
  grant.until = end;
  if (s.pause_at) grant.until = std::min(grant.until, *s.pause_at);
  if (s.next_plan_at && !next_plan_in_force && !candidate.next_plan_grants) {
    grant.until = std::min(grant.until, *s.next_plan_at);
  }
  if (s.lifetime) {
    grant.reason = AccessReason::kLifetime;
  } else if (s.expires_at && now < *s.expires_at) {
    grant.reason = s.status == Status::kTrialing ? AccessReason::kTrial
                                                 : AccessReason::kPaid;
  } else {
    grant.reason = AccessReason::kGrace;
    grant.in_grace = true;
  }
  return grant;
}

// How near a refusal was to a grant; the nearest one explains it best.
int Nearness(AccessReason reason) {
  switch (reason) {
    case AccessReason::kEnded:
      return 7;
    case AccessReason::kNotStarted:
      return 6;
    case AccessReason::kPaused:
      return 5;
    case AccessReason::kPending:
      return 4;
    case AccessReason::kCanceled:
      return 3;
    case AccessReason::kRevoked:
      return 2;
    case AccessReason::kFeatureNotInPlan:
      return 1;
    default:
      return 0;
  }
}

// Total order over findings, so that the answer does not depend on the order
// of the candidates.
auto Preference(const Finding& finding, int64_t subscription_id) {
  // Whatever a subscription grants comes before the default plan.
  return std::make_tuple(
      finding.grants, finding.reason != AccessReason::kDefaultPlan,
      Nearness(finding.reason), finding.until, -subscription_id);
}

// The instants after `now` at which Examine could answer otherwise.
void CollectTransitions(const AccessCandidate& candidate, absl::Time now,
                        std::optional<absl::Time>* next) {
  if (candidate.is_default_plan) return;
  const Subscription& s = candidate.subscription;
  for (const std::optional<absl::Time>& instant :
       {s.starts_at, s.expires_at, s.lifetime ? std::nullopt : s.AccessUntil(),
        s.pause_at, s.next_plan_at}) {
    if (instant && *instant > now && (!*next || *instant < **next)) {
      *next = instant;
    }
  }
}

}  // namespace

Verdict DecideAccess(absl::Span<const AccessCandidate> candidates,
                     absl::Time now) {
  Verdict verdict;
  const AccessCandidate* best = nullptr;
  Finding best_finding;
  for (const AccessCandidate& candidate : candidates) {
    if (candidate.is_default_plan && !candidate.plan_grants) continue;
    CollectTransitions(candidate, now, &verdict.next_transition_at);
    Finding finding = Examine(candidate, now);
    if (best == nullptr ||
        Preference(finding, candidate.subscription_id) >
            Preference(best_finding, best->subscription_id)) {
      best = &candidate;
      best_finding = std::move(finding);
    }
  }
  if (best == nullptr) return verdict;
  verdict.has_access = best_finding.grants;
  verdict.reason = best_finding.reason;
  if (best_finding.grants && best_finding.until != absl::InfiniteFuture()) {
    verdict.access_until = best_finding.until;
  }
  verdict.subscription_id = best->subscription_id;
  verdict.plan = best_finding.plan;
  verdict.value = best_finding.value;
  verdict.in_grace = best_finding.in_grace;
  verdict.will_renew = !best->is_default_plan && best->subscription.will_renew;
  return verdict;
}

}  // namespace tenure::domain
