#ifndef TENURE_COMMON_DOMAIN_LIFECYCLE_H_
#define TENURE_COMMON_DOMAIN_LIFECYCLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/domain/fold.h"
#include "common/domain/subscription.h"

namespace tenure::domain {

// Applies what time alone does: a plan change, a pause or an end whose instant
// has come. Only ever narrows access, and never earlier than the instants do.
Subscription Lapse(Subscription folded, absl::Time now);

// Something that became true of a subscription and is announced.
struct DomainEvent {
  // "subscription.activated" and so on.
  std::string type;
  // Names the occurrence; one subscription announces each once (R6).
  std::string business_key;
  // Assigned by NumberEvents.
  int64_t seq = 0;
  int episode = 0;
  absl::Time effective_at;
  std::optional<absl::Time> old_access_until;
  std::optional<absl::Time> access_until;
  // What else the type tells; names and values for the event's data.
  std::vector<std::pair<std::string, std::string>> data;
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
// `terms_before` are the terms of the state before. Events have no seq yet.
Transition Advance(const std::optional<SubscriptionState>& before,
                   absl::Span<const PaidTerm> terms_before,
                   const Projection& projection, absl::Time now);

// Drops the events whose business_key is in `announced` and numbers the rest
// behind state.lifecycle.event_seq.
void NumberEvents(absl::Span<const std::string> announced,
                  Transition& transition);

}  // namespace tenure::domain

#endif  // TENURE_COMMON_DOMAIN_LIFECYCLE_H_
