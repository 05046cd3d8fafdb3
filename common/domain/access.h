#ifndef TENURE_COMMON_DOMAIN_ACCESS_H_
#define TENURE_COMMON_DOMAIN_ACCESS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/domain/subscription.h"

namespace tenure::domain {

// Why access was given or refused.
enum class AccessReason {
  kPaid,
  kTrial,
  kGrace,
  kLifetime,
  kDefaultPlan,
  kNoSubscription,
  kFeatureNotInPlan,
  kNotStarted,
  kEnded,
  kPending,
  kPaused,
  kCanceled,
  kRevoked,
};

// How much of a feature a plan grants; neither for one that is only on.
struct FeatureValue {
  std::optional<int64_t> limit;
  std::optional<int64_t> quantity;

  friend bool operator==(const FeatureValue&, const FeatureValue&) = default;
};

// One subscription of the subject, with what its plans say about the feature
// asked for; or the default plan, which every subject has beneath its
// subscriptions.
struct AccessCandidate {
  // The default plan: only `plan`, `plan_grants` and `value` count. It never
  // ends, grants when no subscription does, and refuses nothing by itself.
  bool is_default_plan = false;
  int64_t subscription_id = 0;
  Subscription subscription;
  std::string plan;
  bool plan_grants = false;
  FeatureValue value;
  // The plan from subscription.next_plan_at on; unused without that instant.
  std::string next_plan;
  bool next_plan_grants = false;
  FeatureValue next_value;
};

// An answer and how long it holds.
struct Verdict {
  bool has_access = false;
  AccessReason reason = AccessReason::kNoSubscription;
  // The first instant at which the grantor no longer grants; nullopt when
  // refused or without end.
  std::optional<absl::Time> access_until;
  // The first instant after `now` at which this verdict could differ without a
  // new fact; nullopt when time alone changes nothing.
  std::optional<absl::Time> next_transition_at;
  // The candidate that decided: the grantor that grants longest, or on a
  // refusal the one that came closest. 0 for none and for the default plan.
  int64_t subscription_id = 0;
  std::string plan;
  // What the plan of the grantor says; empty when refused.
  FeatureValue value;
  bool in_grace = false;
  bool will_renew = false;

  friend bool operator==(const Verdict&, const Verdict&) = default;
};

// Decides access at `now` from the stored instants alone. Half-open: at
// now == access_until the answer is no. EXPIRED is bookkeeping and neither
// grants nor denies by itself, so a late sweep extends nobody's access and an
// early one cuts nobody's (R1, R2).
Verdict DecideAccess(absl::Span<const AccessCandidate> candidates,
                     absl::Time now);

}  // namespace tenure::domain

#endif  // TENURE_COMMON_DOMAIN_ACCESS_H_
