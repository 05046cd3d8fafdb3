#include "common/domain/fold.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"

namespace tenure::domain {
namespace {

namespace pb = ::tenure::subscription::v1;

// Instants of stored facts were validated when they were stored.
std::optional<absl::Time> Instant(bool present,
                                  const google::protobuf::Timestamp& proto) {
  if (!present) return std::nullopt;
  // Whole microseconds, which is what PostgreSQL stores.
  return absl::FromUnixSeconds(proto.seconds()) +
         absl::Microseconds(proto.nanos() / 1000);
}

absl::Status ValidateInstant(absl::string_view field, bool present,
                             const google::protobuf::Timestamp& proto) {
  if (!present) return absl::OkStatus();
  return FromProto(field, proto).status();
}

absl::Status Validate(const pb::Paid& paid) {
  if (paid.payment_key().empty()) return FieldMissingError("payment_key");
  if (!paid.has_period_starts_at())
    return FieldMissingError("period_starts_at");
  if (!paid.has_period_ends_at()) return FieldMissingError("period_ends_at");
  ASSIGN_OR_RETURN(const absl::Time from,
                   FromProto("period_starts_at", paid.period_starts_at()));
  ASSIGN_OR_RETURN(const absl::Time to,
                   FromProto("period_ends_at", paid.period_ends_at()));
  if (to <= from) {
    return FieldInvalidError("period_ends_at",
                             "must be later than period_starts_at");
  }
  return ValidateInstant("leeway_until", paid.has_leeway_until(),
                         paid.leeway_until());
}

// What Apply below relies on. A fact is stored for ever, so one that means
// nothing must not get that far (C072).
absl::Status Validate(const Fact& fact) {
  switch (fact.kind_case()) {
    case Fact::kCreated:
      RETURN_IF_ERROR(ValidateInstant("starts_at",
                                      fact.created().has_starts_at(),
                                      fact.created().starts_at()));
      return ValidateInstant("trial_ends_at",
                             fact.created().has_trial_ends_at(),
                             fact.created().trial_ends_at());
    case Fact::kPaid:
      return Validate(fact.paid());
    case Fact::kPaymentFailed:
      if (fact.payment_failed().payment_key().empty()) {
        return FieldMissingError("payment_key");
      }
      return ValidateInstant("grace_period_ends_at",
                             fact.payment_failed().has_grace_period_ends_at(),
                             fact.payment_failed().grace_period_ends_at());
    case Fact::kCancelScheduled:
      return ValidateInstant("cancel_at",
                             fact.cancel_scheduled().has_cancel_at(),
                             fact.cancel_scheduled().cancel_at());
    case Fact::kEnded:
      if (!fact.ended().has_ended_at()) return FieldMissingError("ended_at");
      return FromProto("ended_at", fact.ended().ended_at()).status();
    default:
      return absl::OkStatus();
  }
}

// Walks facts in order. Money counts once per key; the end of what was paid
// only grows by payments and is cut by the end of the subscription.
class Folding {
 public:
  absl::Status Apply(const Fact& fact) {
    switch (fact.kind_case()) {
      case Fact::kCreated:
        Apply(fact.created());
        return absl::OkStatus();
      case Fact::kPaid:
        Apply(fact.paid());
        return absl::OkStatus();
      case Fact::kPaymentFailed:
        Apply(fact.payment_failed());
        return absl::OkStatus();
      case Fact::kCancelScheduled:
        Apply(fact.cancel_scheduled());
        return absl::OkStatus();
      case Fact::kCancelReverted:
        cancel_scheduled_ = false;
        cancel_at_.reset();
        out_.will_renew = true;
        return absl::OkStatus();
      case Fact::kEnded:
        Apply(fact.ended());
        return absl::OkStatus();
      default:
        return absl::UnimplementedError(
            absl::StrCat("facts of kind ", KindName(fact.kind_case()),
                         " are not folded by revision ", kFoldRevision));
    }
  }

  Subscription Finish() && {
    out_.term_no = static_cast<int>(paid_keys_.size());
    std::optional<absl::Time> end = std::max(trial_end_, paid_end_);
    if (cancel_scheduled_) {
      // Without an instant it ends with what was paid.
      out_.cancel_at = cancel_at_ ? cancel_at_ : end;
      out_.leeway_until.reset();
      if (cancel_at_ && end) end = std::min(*end, *cancel_at_);
      // Grace waits for a renewal; none comes after the cancellation.
      if (cancel_at_ && out_.grace_period_ends_at > cancel_at_) {
        out_.grace_period_ends_at = cancel_at_;
      }
    }
    if (ended_at_) {
      out_.will_renew = false;
      out_.grace_period_ends_at.reset();
      out_.leeway_until.reset();
      if (end) end = std::min(*end, *ended_at_);
      if (!out_.starts_at) out_.starts_at = ended_at_;
    }
    if (end ? *end <= *out_.starts_at : ended_at_.has_value()) {
      // It never gave access, or was to end before it could.
      out_.status = Status::kCanceled;
      out_.will_renew = false;
      out_.grace_period_ends_at.reset();
      out_.leeway_until.reset();
      return std::move(out_);
    }
    out_.expires_at = end;
    return std::move(out_);
  }

 private:
  void Apply(const pb::Created& created) {
    const auto starts_at =
        Instant(created.has_starts_at(), created.starts_at());
    if (!out_.starts_at) out_.starts_at = starts_at;
    const auto trial_end =
        Instant(created.has_trial_ends_at(), created.trial_ends_at());
    // Without a start, or with an end before it, there was no trial.
    if (!starts_at || !trial_end || *trial_end <= *starts_at) return;
    out_.starts_at = std::min(out_.starts_at, starts_at);
    trial_end_ = std::max(trial_end_, trial_end);
    if (out_.status == Status::kPending) out_.status = Status::kTrialing;
  }

  void Apply(const pb::Paid& paid) {
    if (!paid_keys_.insert(paid.payment_key()).second) return;
    const auto from =
        Instant(paid.has_period_starts_at(), paid.period_starts_at());
    const auto to = Instant(paid.has_period_ends_at(), paid.period_ends_at());
    if (ended_at_ && *from >= *ended_at_) {
      // Bought again under the same id after it had ended.
      BeginAnew(*ended_at_);
    } else if (cancel_at_ && *from >= *cancel_at_) {
      // Money for a period behind the scheduled end: it was not cancelled.
      BeginAnew(*cancel_at_);
    }
    if (!out_.starts_at || *from < *out_.starts_at) out_.starts_at = from;
    if (!out_.anchor_at || *from < *out_.anchor_at) out_.anchor_at = from;
    out_.will_renew = paid.will_renew() && !cancel_scheduled_;
    const bool extends = !paid_end_ || *paid_end_ < *to;
    // A payment of an older period leaves the need for grace as it was.
    if (extends || paid.payment_key() == unpaid_key_) {
      out_.grace_period_ends_at.reset();
      unpaid_key_.clear();
    }
    if (unpaid_key_.empty()) out_.status = Status::kActive;
    if (extends) {
      paid_end_ = to;
      // Finish drops it while a cancellation stands.
      out_.leeway_until = paid.will_renew() ? Instant(paid.has_leeway_until(),
                                                      paid.leeway_until())
                                            : std::nullopt;
    }
  }

  // Forgets the end at `end`, and with it the time that it had cut off.
  void BeginAnew(absl::Time end) {
    paid_end_ = std::min<std::optional<absl::Time>>(paid_end_, end);
    trial_end_ = std::min<std::optional<absl::Time>>(trial_end_, end);
    ended_at_.reset();
    cancel_scheduled_ = false;
    cancel_at_.reset();
  }

  void Apply(const pb::PaymentFailed& failed) {
    // A failure of an invoice that was paid is an earlier attempt's (C056).
    if (paid_keys_.count(failed.payment_key()) != 0) return;
    if (out_.status == Status::kPending || ended_at_) return;
    out_.status = Status::kPastDue;
    out_.leeway_until.reset();
    if (unpaid_key_.empty()) unpaid_key_ = failed.payment_key();
    // Stamped once per unpaid period: retries do not move it.
    if (!out_.grace_period_ends_at) {
      out_.grace_period_ends_at = Instant(failed.has_grace_period_ends_at(),
                                          failed.grace_period_ends_at());
    }
  }

  void Apply(const pb::CancelScheduled& cancel) {
    cancel_scheduled_ = true;
    cancel_at_ = Instant(cancel.has_cancel_at(), cancel.cancel_at());
    out_.will_renew = false;
  }

  void Apply(const pb::Ended& ended) {
    const auto at = Instant(ended.has_ended_at(), ended.ended_at());
    ended_at_ = ended_at_ ? std::min(ended_at_, at) : at;
  }

  Subscription out_;
  std::set<std::string> paid_keys_;
  std::optional<absl::Time> trial_end_;
  std::optional<absl::Time> paid_end_;
  std::optional<absl::Time> ended_at_;
  // The first invoice whose failure no payment has made good yet.
  std::string unpaid_key_;
  bool cancel_scheduled_ = false;
  std::optional<absl::Time> cancel_at_;
};

bool GivesAccessByState(Status status) {
  return IsLive(status) || status == Status::kExpired;
}

}  // namespace

bool operator<(const OrderKey& a, const OrderKey& b) {
  return std::tie(a.order_at, a.rank, a.event_id, a.ordinal) <
         std::tie(b.order_at, b.rank, b.event_id, b.ordinal);
}

absl::StatusOr<OrderedFact> MakeOrderedFact(absl::string_view event_id,
                                            const Fact& fact) {
  if (!fact.has_order_at()) return FieldMissingError("order_at");
  if (fact.kind_case() == Fact::KIND_NOT_SET) return FieldMissingError("kind");
  RETURN_IF_ERROR(Validate(fact));
  OrderedFact ordered;
  ASSIGN_OR_RETURN(ordered.order.order_at,
                   FromProto("order_at", fact.order_at()));
  ordered.order.rank = RankOf(fact.kind_case());
  ordered.order.event_id = std::string(event_id);
  ordered.order.ordinal = fact.ordinal();
  ordered.fact = fact;
  return ordered;
}

int RankOf(Fact::KindCase kind) {
  switch (kind) {
    case Fact::kCreated:
      return 10;
    case Fact::kSnapshot:
      return 20;
    case Fact::kPaymentFailed:
      return 30;
    case Fact::kPaid:
      return 40;
    case Fact::kExtended:
    case Fact::kPlanChanged:
    case Fact::kTransferred:
      return 50;
    case Fact::kResumed:
    case Fact::kCancelReverted:
      return 60;
    case Fact::kPaused:
    case Fact::kCancelScheduled:
      return 70;
    case Fact::kEnded:
      return 80;
    case Fact::kDisputeOpened:
    case Fact::kDisputeClosed:
    case Fact::kRefundReversed:
    case Fact::kRefunded:
    case Fact::kRevoked:
      return 90;
    case Fact::KIND_NOT_SET:
      return 0;
  }
  return 0;
}

std::string KindName(Fact::KindCase kind) {
  const auto* field = Fact::descriptor()->FindFieldByNumber(kind);
  return field == nullptr ? "none" : field->name();
}

std::string MoneyKey(const Fact& fact) {
  switch (fact.kind_case()) {
    case Fact::kPaid:
      return fact.paid().payment_key();
    case Fact::kPaymentFailed:
      return fact.payment_failed().payment_key();
    case Fact::kRefunded:
      return fact.refunded().refund_key();
    default:
      return "";
  }
}

absl::StatusOr<Subscription> Fold(absl::Span<const OrderedFact> facts) {
  std::vector<const OrderedFact*> ordered;
  ordered.reserve(facts.size());
  for (const OrderedFact& fact : facts) ordered.push_back(&fact);
  std::sort(ordered.begin(), ordered.end(),
            [](const OrderedFact* a, const OrderedFact* b) {
              return a->order < b->order;
            });
  Folding folding;
  const OrderKey* previous = nullptr;
  for (const OrderedFact* fact : ordered) {
    // The same fact told twice is one fact.
    if (previous != nullptr && *previous == fact->order) continue;
    previous = &fact->order;
    RETURN_IF_ERROR(folding.Apply(fact->fact));
  }
  return std::move(folding).Finish();
}

Subscription Lapse(Subscription folded, absl::Time now) {
  if (!IsLive(folded.status) || folded.lifetime) return folded;
  const std::optional<absl::Time> end = folded.AccessUntil();
  if (end && *end <= now) folded.status = Status::kExpired;
  return folded;
}

Transition Advance(const std::optional<SubscriptionState>& before,
                   const Subscription& folded, absl::Time now) {
  Transition transition;
  const SubscriptionState old = before.value_or(SubscriptionState{});
  SubscriptionState& state = transition.state;
  state.subscription = Lapse(folded, now);
  state.lifecycle = old.lifecycle;
  const Subscription& was = old.subscription;
  const Subscription& is = state.subscription;
  const std::optional<absl::Time> end = is.AccessUntil();

  const bool was_expired = was.status == Status::kExpired;
  const bool is_expired = is.status == Status::kExpired;
  // A new end later than the recorded one means it lived on in between. An end
  // that is taken back or revoked afterwards is no second life.
  const bool revived =
      was_expired &&
      (IsLive(is.status) || (is_expired && end > old.lifecycle.expired_at));
  // Nor is it before it comes back: its end may have been told by then, and an
  // episode has one.
  const bool came_back =
      (was.status == Status::kCanceled || was.status == Status::kRevoked) &&
      GivesAccessByState(is.status);
  if (revived || came_back) ++state.lifecycle.episode;
  if (!is_expired) {
    state.lifecycle.expired_at.reset();
  } else if (!was_expired || revived) {
    state.lifecycle.expired_at = now;
  }

  const auto announce = [&](absl::string_view type, absl::Time effective_at) {
    DomainEvent event;
    event.type = absl::StrCat("subscription.", type);
    event.seq = ++state.lifecycle.event_seq;
    event.episode = state.lifecycle.episode;
    event.effective_at = effective_at;
    event.access_until = end;
    transition.events.push_back(std::move(event));
  };

  if (!GivesAccessByState(was.status) && GivesAccessByState(is.status)) {
    announce("activated", is.starts_at.value_or(now));
  } else if (GivesAccessByState(was.status) && GivesAccessByState(is.status) &&
             was.expires_at && is.expires_at &&
             *is.expires_at > *was.expires_at) {
    announce("renewed", *was.expires_at);
  }
  if (is.status == Status::kPastDue && was.status != Status::kPastDue) {
    announce("past_due", was.expires_at.value_or(now));
  }
  if (IsLive(is.status) && is.cancel_at && is.cancel_at != was.cancel_at) {
    announce("cancel_scheduled", *is.cancel_at);
  }
  if (IsLive(is.status) && was.cancel_at && !is.cancel_at) {
    announce("cancel_reverted", now);
  }
  if (is.status == Status::kCanceled && was.status != Status::kCanceled) {
    announce("canceled", now);
  }
  if (is_expired && (!was_expired || revived)) announce("expired", *end);

  transition.changed =
      !before.has_value() || was != is || old.lifecycle != state.lifecycle;
  return transition;
}

}  // namespace tenure::domain
