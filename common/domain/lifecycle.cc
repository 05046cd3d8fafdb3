#include "common/domain/lifecycle.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tenure::domain {
namespace {

bool GivesAccessByState(Status status) {
  return IsLive(status) || status == Status::kExpired;
}

bool IsOver(Status status) {
  return status == Status::kExpired || status == Status::kCanceled ||
         status == Status::kRevoked;
}

std::string Key(absl::string_view type, absl::Time occurrence) {
  return absl::StrCat(type, "/", absl::ToUnixMicros(occurrence));
}

// Terms that still count, for telling a renewal from an extension.
int CountTerms(absl::Span<const PaidTerm> terms) {
  return static_cast<int>(
      std::count_if(terms.begin(), terms.end(),
                    [](const PaidTerm& term) { return !term.taken_back; }));
}

int64_t RefundedBefore(absl::Span<const PaidTerm> terms,
                       const std::string& payment_key) {
  for (const PaidTerm& term : terms) {
    if (term.payment_key == payment_key) return term.refunded_minor;
  }
  return 0;
}

// Collects the events of one transition.
class Announcer {
 public:
  Announcer(const std::optional<absl::Time>& old_access_until,
            Transition& transition)
      : old_access_until_(old_access_until), transition_(transition) {}

  DomainEvent& Announce(absl::string_view type, std::string key,
                        absl::Time effective_at) {
    DomainEvent event;
    event.type = absl::StrCat("subscription.", type);
    event.business_key = std::move(key);
    event.episode = transition_.state.lifecycle.episode;
    event.effective_at = effective_at;
    event.old_access_until = old_access_until_;
    event.access_until = transition_.state.subscription.AccessUntil();
    transition_.events.push_back(std::move(event));
    return transition_.events.back();
  }

  bool HasTold(std::initializer_list<absl::string_view> types) const {
    return std::any_of(
        transition_.events.begin(), transition_.events.end(),
        [&](const DomainEvent& event) {
          return std::any_of(
              types.begin(), types.end(), [&](absl::string_view type) {
                return event.type == absl::StrCat("subscription.", type);
              });
        });
  }

 private:
  const std::optional<absl::Time> old_access_until_;
  Transition& transition_;
};

// Not every state has a fact that names its instant.
absl::Time Or(absl::Time occurrence, absl::Time now) {
  return occurrence == absl::Time() ? now : occurrence;
}

std::string Text(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone());
}

}  // namespace

Subscription Lapse(Subscription folded, absl::Time now) {
  if (folded.next_plan_at && *folded.next_plan_at <= now) {
    folded.plan = std::exchange(folded.next_plan, "");
    folded.plan_revision = std::exchange(folded.next_plan_revision, 0);
    folded.next_plan_at.reset();
  }
  if (!IsLive(folded.status)) return folded;
  const std::optional<absl::Time> end = folded.AccessUntil();
  if (folded.pause_at && *folded.pause_at <= now &&
      (!end || *folded.pause_at <= *end)) {
    folded.status = Status::kPaused;
    return folded;
  }
  if (!folded.lifetime && end && *end <= now) {
    folded.status = Status::kExpired;
  }
  return folded;
}

Transition Advance(const std::optional<SubscriptionState>& before,
                   absl::Span<const PaidTerm> terms_before,
                   const Projection& projection, absl::Time now) {
  Transition transition;
  const SubscriptionState old = before.value_or(SubscriptionState{});
  SubscriptionState& state = transition.state;
  state.subscription = Lapse(projection.subscription, now);
  state.lifecycle = old.lifecycle;
  const Subscription& was = old.subscription;
  const Subscription& is = state.subscription;
  const Occurrences& when = projection.occurrences;
  const std::optional<absl::Time> end = is.AccessUntil();

  const bool was_expired = was.status == Status::kExpired;
  const bool is_expired = is.status == Status::kExpired;
  // A new end later than the recorded one means it lived on in between. An end
  // that is taken back or revoked afterwards is no second life.
  const bool revived =
      was_expired &&
      (!IsOver(is.status) || (is_expired && end > old.lifecycle.expired_at));
  // Nor is it before it comes back: its end may have been told by then, and an
  // episode has one.
  const bool came_back =
      (was.status == Status::kCanceled || was.status == Status::kRevoked) &&
      (!IsOver(is.status) || is_expired);
  if (revived || came_back) ++state.lifecycle.episode;
  if (!is_expired) {
    state.lifecycle.expired_at.reset();
  } else if (!was_expired || revived) {
    state.lifecycle.expired_at = now;
  }

  Announcer announcer(was.AccessUntil(), transition);
  const auto episode = [&](absl::string_view type) {
    return absl::StrCat(type, "/", state.lifecycle.episode);
  };
  // The same instant in another life of the row is another occurrence.
  const auto key = [&](absl::string_view type, absl::Time occurrence) {
    return absl::StrCat(Key(type, occurrence), "/", state.lifecycle.episode);
  };
  // What stands again after a resumption is another one too.
  const auto again = [&](absl::string_view type, absl::Time occurrence) {
    return absl::StrCat(key(type, occurrence), "/",
                        absl::ToUnixMicros(when.resumed));
  };
  if (!before.has_value()) {
    announcer.Announce("created", "created", is.starts_at.value_or(now));
  }
  const bool gave = GivesAccessByState(was.status);
  const bool gives = GivesAccessByState(is.status);
  if (!gave && was.status != Status::kPaused && gives) {
    announcer.Announce("activated", episode("activated"),
                       is.starts_at.value_or(now));
  } else if (was.status == Status::kPaused && IsLive(is.status)) {
    announcer.Announce("resumed", key("resumed", when.resumed),
                       Or(when.resumed, now));
  }
  if ((gave || was.status == Status::kPaused) &&
      (gives || is.status == Status::kPaused)) {
    if (is.lifetime != was.lifetime && is.lifetime) {
      announcer.Announce("renewed", episode("renewed/lifetime"), now);
    } else if (was.expires_at && is.expires_at &&
               *is.expires_at > *was.expires_at) {
      const bool renewed =
          CountTerms(projection.terms) > CountTerms(terms_before);
      const absl::string_view type = renewed ? "renewed" : "extended";
      announcer.Announce(type, key(type, *is.expires_at), *was.expires_at);
    } else if (revived && end && IsLive(is.status)) {
      // By grace or leeway alone.
      announcer.Announce("extended", key("extended", *end),
                         was.AccessUntil().value_or(now));
    }
  }
  if (is.status == Status::kPastDue && was.status != Status::kPastDue) {
    const absl::Time due = is.expires_at.value_or(now);
    // Of one second several can be told.
    announcer.Announce(
        "past_due",
        absl::StrCat(again("past_due", when.past_due), "/",
                     absl::ToUnixMicros(when.recovered), "/", when.facts),
        due);
  }
  if (IsLive(is.status) && is.grace_period_ends_at &&
      !was.grace_period_ends_at) {
    announcer
        .Announce("entered_grace",
                  key("entered_grace", is.expires_at.value_or(now)),
                  is.expires_at.value_or(now))
        .data.emplace_back("ends_at", Text(*is.grace_period_ends_at));
  }
  if (was.status == Status::kPastDue &&
      (is.status == Status::kActive || is.status == Status::kTrialing)) {
    announcer.Announce(
        "recovered",
        absl::StrCat(key("recovered", when.recovered), "/",
                     absl::ToUnixMicros(when.past_due), "/", when.facts),
        now);
  }
  if (IsLive(is.status) && is.cancel_at && is.cancel_at != was.cancel_at) {
    announcer
        .Announce(
            "cancel_scheduled",
            absl::StrCat(Key("cancel_scheduled", when.cancel_scheduled), "/",
                         absl::ToUnixMicros(*is.cancel_at), "/", when.facts),
            *is.cancel_at)
        .data.emplace_back("ends_at", Text(*is.cancel_at));
  }
  if (IsLive(is.status) && was.cancel_at && !is.cancel_at) {
    announcer.Announce("cancel_reverted",
                       Key("cancel_reverted", when.cancel_reverted),
                       Or(when.cancel_reverted, now));
  }
  if (before.has_value() && !was.plan.empty() &&
      (is.plan != was.plan || is.plan_revision != was.plan_revision)) {
    DomainEvent& event = announcer.Announce(
        "plan_changed",
        absl::StrCat(
            Key("plan_changed", was.next_plan_at.value_or(when.plan_changed)),
            "/", is.plan, "/", is.plan_revision),
        was.next_plan_at && *was.next_plan_at <= now
            ? *was.next_plan_at
            : Or(when.plan_changed, now));
    event.data = {{"old_plan", was.plan}, {"plan", is.plan}};
  }
  if (is.status == Status::kPaused && was.status != Status::kPaused) {
    const absl::Time at = is.pause_at.value_or(now);
    announcer.Announce("paused", again("paused", at), at);
  }
  if (IsLive(was.status) && IsLive(is.status) && end &&
      (was.lifetime || was.AccessUntil() > end) &&
      !announcer.HasTold({"past_due", "cancel_scheduled"})) {
    // Whoever keeps the end that was told before has to hear of this one.
    const std::string old_end =
        was.lifetime ? "never"
                     : absl::StrCat(absl::ToUnixMicros(*was.AccessUntil()));
    announcer.Announce(
        "shortened",
        absl::StrCat(key("shortened", *end), "/", old_end, "/", when.facts),
        now);
  }
  for (const PaidTerm& term : projection.terms) {
    const int64_t refunded = RefundedBefore(terms_before, term.payment_key);
    if (term.refunded_minor == refunded) continue;
    const absl::string_view type =
        term.refunded_minor > refunded ? "refunded" : "refund_reversed";
    DomainEvent& event = announcer.Announce(
        type,
        absl::StrCat(type, "/", term.payment_key, "/", refunded, "-",
                     term.refunded_minor, "/", term.refund_changes),
        now);
    event.data = {{"payment", term.payment_key},
                  {"refunded_minor", absl::StrCat(term.refunded_minor)},
                  {"amount_minor", absl::StrCat(term.amount_minor)}};
  }
  if (is.subject_id != was.subject_id && before.has_value()) {
    announcer.Announce("transferred", Key("transferred", when.transferred),
                       Or(when.transferred, now));
  }
  if (is.status == Status::kRevoked && was.status != Status::kRevoked) {
    announcer.Announce("revoked", key("revoked", when.revoked),
                       Or(when.revoked, now));
  }
  if (is.status == Status::kCanceled && was.status != Status::kCanceled) {
    announcer.Announce("canceled", key("canceled", when.ended),
                       Or(when.ended, now));
  }
  if (is_expired && (!was_expired || revived)) {
    announcer.Announce("expired", episode("expired"), *end);
  }

  transition.changed = !before.has_value() || was != is ||
                       old.lifecycle != state.lifecycle ||
                       !transition.events.empty();
  return transition;
}

void NumberEvents(absl::Span<const std::string> announced,
                  Transition& transition) {
  auto& events = transition.events;
  events.erase(
      std::remove_if(events.begin(), events.end(),
                     [&](const DomainEvent& event) {
                       return std::find(announced.begin(), announced.end(),
                                        event.business_key) != announced.end();
                     }),
      events.end());
  for (DomainEvent& event : events) {
    event.seq = ++transition.state.lifecycle.event_seq;
  }
}

}  // namespace tenure::domain
