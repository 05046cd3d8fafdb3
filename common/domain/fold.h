#ifndef TENURE_COMMON_DOMAIN_FOLD_H_
#define TENURE_COMMON_DOMAIN_FOLD_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/domain/subscription.h"
#include "tenure/subscription/v1/fact.pb.h"

namespace tenure::domain {

using Fact = ::tenure::subscription::v1::Fact;

// Which code wrote a row; raised whenever Fold would answer otherwise for the
// same facts (R5).
inline constexpr int kFoldRevision = 1;

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
// is absent, an instant lies outside the years 1..9999, or a paid period ends
// before it began.
absl::StatusOr<OrderedFact> MakeOrderedFact(absl::string_view event_id,
                                            const Fact& fact);

// The written rank of a kind: at one instant an end comes after a payment and
// a payment after the creation, so that a tie without read-back errs towards
// what the provider does last.
int RankOf(Fact::KindCase kind);

// Lower-case name of a kind ("paid"), stored with the fact.
std::string KindName(Fact::KindCase kind);

// The key under which money is counted once; empty for kinds without money.
std::string MoneyKey(const Fact& fact);

// What the facts add up to, whatever their order and however often each is
// repeated (R5). Never answers EXPIRED: that is Lapse's. UNIMPLEMENTED for a
// kind this revision cannot fold; nothing is guessed.
absl::StatusOr<Subscription> Fold(absl::Span<const OrderedFact> facts);

// Applies what time alone does: a live subscription whose access_until has
// come is EXPIRED.
Subscription Lapse(Subscription folded, absl::Time now);

// Something that became true of a subscription and is announced.
struct DomainEvent {
  // "subscription.activated" and so on.
  std::string type;
  int64_t seq = 0;
  int episode = 0;
  absl::Time effective_at;
  std::optional<absl::Time> access_until;
};

// A row's new state with the events that tell of it.
struct Transition {
  SubscriptionState state;
  std::vector<DomainEvent> events;
  // False when the facts changed nothing.
  bool changed = false;
};

// Moves a row (nullopt: a new one) to what its facts add up to at `now`. The
// events follow from the states before and after, not from the facts, so an
// intermediate state that a re-fold makes untrue is never announced twice.
Transition Advance(const std::optional<SubscriptionState>& before,
                   const Subscription& folded, absl::Time now);

}  // namespace tenure::domain

#endif  // TENURE_COMMON_DOMAIN_FOLD_H_
