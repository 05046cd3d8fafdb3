#ifndef TENURE_COMMON_DOMAIN_FOLD_TESTING_H_
#define TENURE_COMMON_DOMAIN_FOLD_TESTING_H_

#include <algorithm>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/proto_time.h"
#include "common/domain/fold.h"
#include "common/domain/lifecycle.h"
#include "gtest/gtest.h"

// What the tests of the fold share: facts by the dozen, a row that is moved as
// the store moves it, and the CHECK constraints said again.
namespace tenure::domain {

// For failure messages.
inline std::ostream& operator<<(std::ostream& out, const Subscription& s) {
  const auto show = [](const std::optional<absl::Time>& time) {
    return time ? absl::FormatTime(*time, absl::UTCTimeZone())
                : std::string("none");
  };
  return out << StatusName(s.status) << (s.lifetime ? " lifetime" : "")
             << " starts " << show(s.starts_at) << " anchor "
             << show(s.anchor_at) << " expires " << show(s.expires_at)
             << " grace " << show(s.grace_period_ends_at) << " leeway "
             << show(s.leeway_until) << " cancel " << show(s.cancel_at)
             << " pause " << show(s.pause_at) << " next plan "
             << show(s.next_plan_at) << " term " << s.term_no
             << (s.will_renew ? " renews" : "");
}

inline constexpr absl::Duration kTick = absl::Microseconds(1);

inline absl::Time Day(double n) {
  return absl::FromUnixSeconds(1'800'000'000) + absl::Hours(24) * n;
}

// ---- facts; the first argument of each is its order_at ----

inline Fact NewFact(absl::Time order_at) {
  Fact fact;
  fact.set_layer(subscription::v1::FACT_LAYER_PROVIDER);
  *fact.mutable_order_at() = ToProto(order_at);
  return fact;
}

inline Fact Created(absl::Time order_at, std::optional<absl::Time> starts_at,
                    std::optional<absl::Time> trial_ends_at = std::nullopt) {
  Fact fact = NewFact(order_at);
  auto& created = *fact.mutable_created();
  if (starts_at) *created.mutable_starts_at() = ToProto(*starts_at);
  if (trial_ends_at) *created.mutable_trial_ends_at() = ToProto(*trial_ends_at);
  return fact;
}

inline Fact Paid(absl::Time order_at, const std::string& key, absl::Time from,
                 absl::Time to, std::optional<absl::Time> leeway = std::nullopt,
                 bool will_renew = true) {
  Fact fact = NewFact(order_at);
  auto& paid = *fact.mutable_paid();
  paid.set_payment_key(key);
  *paid.mutable_period_starts_at() = ToProto(from);
  *paid.mutable_period_ends_at() = ToProto(to);
  paid.set_amount_minor(900);
  paid.set_currency("EUR");
  paid.set_will_renew(will_renew);
  if (leeway) *paid.mutable_leeway_until() = ToProto(*leeway);
  return fact;
}

inline Fact Failed(absl::Time order_at, const std::string& key,
                   std::optional<absl::Time> grace = std::nullopt) {
  Fact fact = NewFact(order_at);
  auto& failed = *fact.mutable_payment_failed();
  failed.set_payment_key(key);
  if (grace) *failed.mutable_grace_period_ends_at() = ToProto(*grace);
  return fact;
}

inline Fact CancelScheduled(
    absl::Time order_at, std::optional<absl::Time> cancel_at = std::nullopt) {
  Fact fact = NewFact(order_at);
  auto& cancel = *fact.mutable_cancel_scheduled();
  if (cancel_at) *cancel.mutable_cancel_at() = ToProto(*cancel_at);
  return fact;
}

inline Fact CancelReverted(absl::Time order_at) {
  Fact fact = NewFact(order_at);
  fact.mutable_cancel_reverted();
  return fact;
}

inline Fact Ended(absl::Time order_at, absl::Time ended_at) {
  Fact fact = NewFact(order_at);
  *fact.mutable_ended()->mutable_ended_at() = ToProto(ended_at);
  return fact;
}

// ---- the other kinds ----

inline Fact ByOperator(Fact fact) {
  fact.set_layer(subscription::v1::FACT_LAYER_INTERNAL);
  return fact;
}

inline Fact Stacked(Fact fact) {
  fact.mutable_paid()->set_stacked(true);
  return fact;
}

// As the payment that takes over what is left of the one named.
inline Fact Replacing(Fact fact, const std::string& payment) {
  fact.mutable_paid()->set_replaces(payment);
  return fact;
}

inline Fact LifetimePaid(absl::Time order_at, const std::string& key,
                         absl::Time from) {
  Fact fact = Paid(order_at, key, from, from + absl::Hours(1));
  fact.mutable_paid()->clear_period_ends_at();
  fact.mutable_paid()->set_lifetime(true);
  fact.mutable_paid()->set_will_renew(false);
  return fact;
}

// The fact as bought on, or told of, a plan.
inline Fact OnPlan(Fact fact, const std::string& plan, int64_t revision = 1) {
  fact.set_plan(plan);
  fact.set_plan_revision(revision);
  return fact;
}

inline Fact Aliased(Fact fact, const std::string& alias) {
  fact.mutable_paid()->add_aliases(alias);
  return fact;
}

// A refund of a part; 0: of all.
inline Fact Refunded(absl::Time order_at, const std::string& key,
                     const std::string& refund_key, int64_t amount_minor = 0) {
  Fact fact = NewFact(order_at);
  fact.set_layer(subscription::v1::FACT_LAYER_MONEY);
  auto& refunded = *fact.mutable_refunded();
  refunded.set_payment_key(key);
  refunded.set_refund_key(refund_key);
  refunded.set_amount_minor(amount_minor);
  refunded.set_full(amount_minor == 0);
  return fact;
}

inline Fact RefundReversed(absl::Time order_at, const std::string& refund_key) {
  Fact fact = NewFact(order_at);
  fact.set_layer(subscription::v1::FACT_LAYER_MONEY);
  fact.mutable_refund_reversed()->set_refund_key(refund_key);
  return fact;
}

inline Fact Revoked(absl::Time order_at,
                    std::optional<absl::Time> revoked_at = std::nullopt) {
  Fact fact = NewFact(order_at);
  auto& revoked = *fact.mutable_revoked();
  if (revoked_at) *revoked.mutable_revoked_at() = ToProto(*revoked_at);
  return fact;
}

inline Fact Paused(absl::Time order_at,
                   std::optional<absl::Time> pause_at = std::nullopt) {
  Fact fact = NewFact(order_at);
  auto& paused = *fact.mutable_paused();
  if (pause_at) *paused.mutable_pause_at() = ToProto(*pause_at);
  return fact;
}

inline Fact Resumed(absl::Time order_at,
                    std::optional<absl::Time> expires_at = std::nullopt) {
  Fact fact = NewFact(order_at);
  auto& resumed = *fact.mutable_resumed();
  if (expires_at) *resumed.mutable_expires_at() = ToProto(*expires_at);
  return fact;
}

inline Fact PlanChanged(absl::Time order_at, const std::string& plan,
                        std::optional<absl::Time> effective_at = std::nullopt) {
  Fact fact = OnPlan(NewFact(order_at), plan);
  auto& changed = *fact.mutable_plan_changed();
  if (effective_at) *changed.mutable_effective_at() = ToProto(*effective_at);
  return fact;
}

inline Fact Extended(absl::Time order_at, absl::Time expires_at) {
  Fact fact = ByOperator(NewFact(order_at));
  *fact.mutable_extended()->mutable_expires_at() = ToProto(expires_at);
  return fact;
}

inline Fact Transferred(absl::Time order_at, int64_t subject_id) {
  Fact fact = ByOperator(NewFact(order_at));
  fact.mutable_transferred()->set_subject_id(subject_id);
  return fact;
}

inline Fact DisputeOpened(absl::Time order_at, const std::string& key,
                          bool suspends) {
  Fact fact = NewFact(order_at);
  fact.set_layer(subscription::v1::FACT_LAYER_MONEY);
  fact.mutable_dispute_opened()->set_payment_key(key);
  fact.mutable_dispute_opened()->set_suspends(suspends);
  return fact;
}

inline Fact DisputeClosed(absl::Time order_at, const std::string& key,
                          bool lost) {
  Fact fact = NewFact(order_at);
  fact.set_layer(subscription::v1::FACT_LAYER_MONEY);
  fact.mutable_dispute_closed()->set_payment_key(key);
  fact.mutable_dispute_closed()->set_lost(lost);
  return fact;
}

inline Fact Snapshot(absl::Time order_at, const std::string& state,
                     bool read_back = true) {
  Fact fact = NewFact(order_at);
  auto& snapshot = *fact.mutable_snapshot();
  snapshot.set_provider_state(state);
  snapshot.set_will_renew(state == "active" || state == "trialing");
  snapshot.set_read_back(read_back);
  return fact;
}

inline OrderedFact Ordered(const std::string& event_id, const Fact& fact) {
  const absl::StatusOr<OrderedFact> ordered = MakeOrderedFact(event_id, fact);
  EXPECT_TRUE(ordered.ok()) << ordered.status();
  return ordered.ok() ? *ordered : OrderedFact{};
}

// Each fact from an event of its own, named by its place in the list.
inline std::vector<OrderedFact> Events(const std::vector<Fact>& facts) {
  std::vector<OrderedFact> ordered;
  for (size_t i = 0; i < facts.size(); ++i) {
    ordered.push_back(Ordered(absl::StrCat("evt_", i), facts[i]));
  }
  return ordered;
}

inline Projection Projected(const std::vector<OrderedFact>& facts) {
  const absl::StatusOr<Projection> folded = Fold(facts);
  EXPECT_TRUE(folded.ok()) << folded.status();
  return folded.ok() ? *folded : Projection{};
}

inline Projection Projected(const std::vector<Fact>& facts) {
  return Projected(Events(facts));
}

inline Subscription Folded(const std::vector<OrderedFact>& facts) {
  return Projected(facts).subscription;
}

inline Subscription Folded(const std::vector<Fact>& facts) {
  return Folded(Events(facts));
}

// The CHECK constraints of table subscription (common/migrations), said again:
// empty when the row may be stored, else the first one it breaks.
inline std::string BrokenCheck(const SubscriptionState& state) {
  const Subscription& s = state.subscription;
  const Lifecycle& l = state.lifecycle;
  const bool expired = s.status == Status::kExpired;
  if (s.lifetime && s.expires_at) return "lifetime has no expires_at";
  if (!s.lifetime && !s.expires_at && s.status != Status::kPending &&
      s.status != Status::kCanceled && s.status != Status::kRevoked) {
    return "a live row has an end";
  }
  if (s.status != Status::kPending && !s.starts_at) return "it has a start";
  if (s.starts_at && s.expires_at && !(*s.starts_at < *s.expires_at)) {
    return "starts_at < expires_at";
  }
  if (expired != l.expired_at.has_value()) return "EXPIRED <=> expired_at";
  const auto end =
      std::max({s.expires_at, s.grace_period_ends_at, s.leeway_until});
  if (expired && end && *l.expired_at < *end) return "expired_at >= the end";
  if (s.next_plan.empty() == s.next_plan_at.has_value()) {
    return "next_plan <=> next_plan_at";
  }
  if (s.term_no < 0 || l.episode < 0 || l.event_seq < 0) return "counters";
  for (const auto& instant :
       {s.anchor_at, s.starts_at, s.expires_at, s.grace_period_ends_at,
        s.leeway_until, s.cancel_at, s.pause_at, s.next_plan_at,
        s.next_billing_at, l.expired_at}) {
    if (instant && (*instant == absl::InfiniteFuture() ||
                    *instant == absl::InfinitePast())) {
      return "instants are finite";
    }
    // PostgreSQL stores microseconds; more would read back as another value.
    if (instant &&
        *instant != absl::FromUnixMicros(absl::ToUnixMicros(*instant))) {
      return "instants are whole microseconds";
    }
  }
  return "";
}

// A row that is moved on by Advance, as the store does it.
struct Row {
  std::optional<SubscriptionState> state;
  std::vector<PaidTerm> terms;
  std::vector<DomainEvent> events;
  std::vector<std::string> keys;

  Transition Move(const Projection& folded, absl::Time now) {
    Transition transition = Advance(state, terms, folded, now);
    NumberEvents(keys, transition);
    for (const DomainEvent& event : transition.events) {
      keys.push_back(event.business_key);
    }
    terms = folded.terms;
    EXPECT_EQ(BrokenCheck(transition.state), "")
        << transition.state.subscription;
    state = transition.state;
    events.insert(events.end(), transition.events.begin(),
                  transition.events.end());
    return transition;
  }
  std::vector<std::string> Types() const {
    std::vector<std::string> types;
    for (const DomainEvent& event : events) {
      types.push_back(event.type.substr(std::string("subscription.").size()));
    }
    return types;
  }
};

}  // namespace tenure::domain

#endif  // TENURE_COMMON_DOMAIN_FOLD_TESTING_H_
