#ifndef TENURE_COMMON_DOMAIN_FOLD_H_
#define TENURE_COMMON_DOMAIN_FOLD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/domain/quota_plan.h"
#include "common/domain/subscription.h"
#include "tenure/subscription/v1/fact.pb.h"
#include "tenure/subscription/v1/fold_state.pb.h"

namespace tenure::domain {

using Fact = ::tenure::subscription::v1::Fact;
// What facts have added up to so far. A value; see fold_state.proto.
using FoldState = ::tenure::subscription::v1::FoldState;

// Which code wrote a row; raised whenever Fold would answer otherwise for the
// same facts, or a stored FoldState could not be continued (R5).
inline constexpr int kFoldRevision = 2;

// The order of facts. It is the speaker's, never the order of arrival.
struct OrderKey {
  absl::Time order_at;
  // Written rank of the kind, for facts of one instant.
  int rank = 0;
  // The provider's id of the event, compared bytewise.
  std::string event_id;
  // Place within the event.
  int ordinal = 0;

  friend bool operator==(const OrderKey&, const OrderKey&) = default;
  friend bool operator<(const OrderKey& a, const OrderKey& b);
};

// A fact with its place in the order.
struct OrderedFact {
  OrderKey order;
  Fact fact;
};

// Pairs a fact with its order key. `event_id` is the event it came from.
// INVALID_ARGUMENT for a fact that Fold could make nothing of: a required field
// is absent, an instant lies outside the years 1..9999, a paid period ends
// before it began, or a word is unknown.
absl::StatusOr<OrderedFact> MakeOrderedFact(absl::string_view event_id,
                                            const Fact& fact);

// The written rank of a kind: at one instant an end comes after a payment and
// a payment after the creation, so that a tie without read-back errs towards
// what the provider does last. A read-back comes before the events of its
// second, because it cannot be told whether it saw them.
int RankOf(Fact::KindCase kind);

// Lower-case name of a kind ("paid"), stored with the fact.
std::string KindName(Fact::KindCase kind);

// The key under which money is counted once; empty for kinds without money.
std::string MoneyKey(const Fact& fact);

// Something bought, and what is left of it.
struct PaidTerm {
  std::string payment_key;
  // By the start of the terms, from 1; moves when an older one becomes known.
  int term_no = 0;
  absl::Time starts_at;
  // Exclusive; after refunds, revocations and moves. InfiniteFuture for
  // lifetime. Equal to starts_at when nothing is left.
  absl::Time ends_at;
  bool lifetime = false;
  bool stacked = false;
  // Refunded in full or revoked.
  bool taken_back = false;
  // Another payment took over what was left of it. No money went back.
  bool replaced = false;
  // Granted by an operator: no money moved.
  bool internal = false;
  int64_t amount_minor = 0;
  int64_t refunded_minor = 0;
  // How many refunds were made and taken back.
  int refund_changes = 0;

  friend bool operator==(const PaidTerm&, const PaidTerm&) = default;
};

// A plan revision and since when; the first has always been, unless something
// was bought before any fact named a plan.
struct PlanInForce {
  std::string name;
  int64_t revision = 0;
  absl::Time from;

  friend bool operator==(const PlanInForce&, const PlanInForce&) = default;
};

// Names of occurrences, from the facts that brought them about, so that the
// same occurrence is announced once however often it is folded, and another
// one of the same kind is announced again.
struct Occurrences {
  absl::Time cancel_scheduled;
  absl::Time cancel_reverted;
  absl::Time ended;
  absl::Time revoked;
  absl::Time resumed;
  absl::Time plan_changed;
  absl::Time transferred;
  absl::Time past_due;
  absl::Time recovered;
  // How many facts are known. Tells apart what a late fact makes true again
  // from what was told when it was true for the first time.
  int64_t facts = 0;

  friend bool operator==(const Occurrences&, const Occurrences&) = default;
};

// What facts add up to.
struct Projection {
  // Never EXPIRED, and never PAUSED by a pause_at alone: that is Lapse's.
  Subscription subscription;
  // Sorted by term_no.
  std::vector<PaidTerm> terms;
  std::optional<absl::Time> trial_ends_at;
  // The plans in force, one after the other; the last may be still to come.
  // Empty when no fact named one.
  std::vector<PlanInForce> plans;
  Occurrences occurrences;

  friend bool operator==(const Projection&, const Projection&) = default;
};

// Whether `order` lies behind everything that `state` has seen, so that Step
// may add it.
bool IsNewest(const FoldState& state, const OrderKey& order);

// Adds the newest fact. FAILED_PRECONDITION when IsNewest is false (fold all
// facts anew instead).
absl::Status Step(const OrderedFact& fact, FoldState& state);

// Adds up all facts, whatever their order here and however often each is
// repeated (R5).
absl::StatusOr<FoldState> FoldFacts(absl::Span<const OrderedFact> facts);

// What a state means. Pure and without a clock.
Projection Project(const FoldState& state);

// Project of FoldFacts.
absl::StatusOr<Projection> Fold(absl::Span<const OrderedFact> facts);

// The paid stretches that bring quota: each term, and the trial, cut at the end
// of access. Each of their periods is the quota of the plan that is in force at
// the period's instant.
std::vector<QuotaTerm> QuotaTerms(const Projection& projection);

}  // namespace tenure::domain

#endif  // TENURE_COMMON_DOMAIN_FOLD_H_
