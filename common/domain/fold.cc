#include "common/domain/fold.h"

#include <algorithm>
#include <map>
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

// ---- instants: whole microseconds, which is what PostgreSQL stores ----

int64_t Micros(absl::Time time) { return absl::ToUnixMicros(time); }

absl::Time At(int64_t micros) { return absl::FromUnixMicros(micros); }

// Instants of stored facts were validated when they were stored.
int64_t Micros(const google::protobuf::Timestamp& proto) {
  return proto.seconds() * 1'000'000 + proto.nanos() / 1000;
}

std::optional<int64_t> Micros(bool present,
                              const google::protobuf::Timestamp& proto) {
  if (!present) return std::nullopt;
  return Micros(proto);
}

std::optional<absl::Time> At(bool present, int64_t micros) {
  if (!present) return std::nullopt;
  return At(micros);
}

// An unset instant is later than every set one.
std::optional<absl::Time> Earlier(const std::optional<absl::Time>& a,
                                  const std::optional<absl::Time>& b) {
  if (!a) return b;
  if (!b) return a;
  return std::min(*a, *b);
}

// ---- validation ----

absl::Status ValidateInstant(absl::string_view field, bool present,
                             const google::protobuf::Timestamp& proto) {
  if (!present) return absl::OkStatus();
  return FromProto(field, proto).status();
}

absl::Status Validate(const pb::Paid& paid) {
  if (paid.payment_key().empty()) return FieldMissingError("payment_key");
  if (!paid.has_period_starts_at())
    return FieldMissingError("period_starts_at");
  ASSIGN_OR_RETURN(const absl::Time from,
                   FromProto("period_starts_at", paid.period_starts_at()));
  if (paid.amount_minor() < 0) {
    return FieldInvalidError("amount_minor", "must not be negative");
  }
  if (paid.lifetime()) {
    if (paid.has_period_ends_at()) {
      return FieldInvalidError("period_ends_at", "a lifetime has no end");
    }
  } else {
    if (!paid.has_period_ends_at()) return FieldMissingError("period_ends_at");
    ASSIGN_OR_RETURN(const absl::Time to,
                     FromProto("period_ends_at", paid.period_ends_at()));
    if (to <= from) {
      return FieldInvalidError("period_ends_at",
                               "must be later than period_starts_at");
    }
  }
  return ValidateInstant("leeway_until", paid.has_leeway_until(),
                         paid.leeway_until());
}

absl::Status Validate(const pb::Refunded& refunded) {
  if (refunded.payment_key().empty()) return FieldMissingError("payment_key");
  if (refunded.refund_key().empty()) return FieldMissingError("refund_key");
  if (refunded.amount_minor() < 0) {
    return FieldInvalidError("amount_minor", "must not be negative");
  }
  if (refunded.refunded_total_minor() < 0) {
    return FieldInvalidError("refunded_total_minor", "must not be negative");
  }
  if (refunded.amount_minor() == 0 && refunded.refunded_total_minor() == 0 &&
      !refunded.full()) {
    return FieldMissingError("amount_minor");
  }
  return absl::OkStatus();
}

absl::Status Validate(const pb::Snapshot& snapshot) {
  constexpr absl::string_view kStates[] = {"pending",  "trialing", "active",
                                           "past_due", "paused",   "ended"};
  if (std::find(std::begin(kStates), std::end(kStates),
                snapshot.provider_state()) == std::end(kStates)) {
    return FieldInvalidError("provider_state", "is no known state");
  }
  RETURN_IF_ERROR(ValidateInstant("period_ends_at",
                                  snapshot.has_period_ends_at(),
                                  snapshot.period_ends_at()));
  RETURN_IF_ERROR(ValidateInstant("starts_at", snapshot.has_starts_at(),
                                  snapshot.starts_at()));
  RETURN_IF_ERROR(ValidateInstant("trial_ends_at", snapshot.has_trial_ends_at(),
                                  snapshot.trial_ends_at()));
  RETURN_IF_ERROR(ValidateInstant("cancel_at", snapshot.has_cancel_at(),
                                  snapshot.cancel_at()));
  RETURN_IF_ERROR(ValidateInstant("ended_at", snapshot.has_ended_at(),
                                  snapshot.ended_at()));
  return ValidateInstant("grace_period_ends_at",
                         snapshot.has_grace_period_ends_at(),
                         snapshot.grace_period_ends_at());
}

// What Step below relies on. A fact is stored for ever, so one that means
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
    case Fact::kCancelReverted:
      return absl::OkStatus();
    case Fact::kEnded:
      if (!fact.ended().has_ended_at()) return FieldMissingError("ended_at");
      return FromProto("ended_at", fact.ended().ended_at()).status();
    case Fact::kPaused:
      return ValidateInstant("pause_at", fact.paused().has_pause_at(),
                             fact.paused().pause_at());
    case Fact::kResumed:
      RETURN_IF_ERROR(ValidateInstant("resumed_at",
                                      fact.resumed().has_resumed_at(),
                                      fact.resumed().resumed_at()));
      return ValidateInstant("expires_at", fact.resumed().has_expires_at(),
                             fact.resumed().expires_at());
    case Fact::kRefunded:
      return Validate(fact.refunded());
    case Fact::kRefundReversed:
      if (fact.refund_reversed().refund_key().empty()) {
        return FieldMissingError("refund_key");
      }
      return absl::OkStatus();
    case Fact::kRevoked:
      return ValidateInstant("revoked_at", fact.revoked().has_revoked_at(),
                             fact.revoked().revoked_at());
    case Fact::kPlanChanged:
      if (fact.plan().empty() && fact.plan_changed().plan().empty()) {
        return FieldMissingError("plan");
      }
      return ValidateInstant("effective_at",
                             fact.plan_changed().has_effective_at(),
                             fact.plan_changed().effective_at());
    case Fact::kExtended:
      if (!fact.extended().has_expires_at()) {
        return FieldMissingError("expires_at");
      }
      return FromProto("expires_at", fact.extended().expires_at()).status();
    case Fact::kTransferred:
      if (fact.transferred().subject_id() <= 0) {
        return FieldMissingError("subject");
      }
      return absl::OkStatus();
    case Fact::kDisputeOpened:
      if (fact.dispute_opened().payment_key().empty()) {
        return FieldMissingError("payment_key");
      }
      return absl::OkStatus();
    case Fact::kDisputeClosed:
      if (fact.dispute_closed().payment_key().empty()) {
        return FieldMissingError("payment_key");
      }
      return absl::OkStatus();
    case Fact::kSnapshot:
      return Validate(fact.snapshot());
    case Fact::KIND_NOT_SET:
      return FieldMissingError("kind");
  }
  return FieldMissingError("kind");
}

// ---- money ----

bool Names(const pb::FoldPayment& payment, absl::string_view key) {
  if (payment.payment_key() == key) return true;
  return std::any_of(payment.aliases().begin(), payment.aliases().end(),
                     [&](const std::string& alias) { return alias == key; });
}

pb::FoldPayment* FindPayment(FoldState& state, absl::string_view key) {
  for (pb::FoldPayment& payment : *state.mutable_payments()) {
    if (Names(payment, key)) return &payment;
  }
  return nullptr;
}

// `sum` plus `amount`, at most `limit`, which `sum` does not exceed.
int64_t AddUpTo(int64_t limit, int64_t sum, int64_t amount) {
  return amount >= limit - sum ? limit : sum + amount;
}

// The sum that was given back, never more than was paid.
int64_t RefundedMinor(const pb::FoldPayment& payment) {
  int64_t sum = 0;
  int64_t total = 0;
  for (const pb::FoldRefund& refund : payment.refunds()) {
    if (refund.reversed()) continue;
    if (refund.full()) return payment.amount_minor();
    sum = AddUpTo(payment.amount_minor(), sum, refund.amount_minor());
    total = std::max(total, refund.refunded_total_minor());
  }
  return std::min(std::max(sum, total), payment.amount_minor());
}

// When the refunds reached the paid sum: the term is taken back from then on.
std::optional<int64_t> RefundedAt(const pb::FoldPayment& payment) {
  int64_t sum = 0;
  for (const pb::FoldRefund& refund : payment.refunds()) {
    if (refund.reversed() || refund.keeps_access()) continue;
    sum = AddUpTo(payment.amount_minor(), sum, refund.amount_minor());
    const bool whole =
        payment.amount_minor() > 0 &&
        std::max(sum, refund.refunded_total_minor()) >= payment.amount_minor();
    if (refund.full() || whole) return refund.order_at();
  }
  return std::nullopt;
}

std::optional<int64_t> TakenBackAt(const pb::FoldPayment& payment) {
  std::optional<int64_t> at = RefundedAt(payment);
  if (payment.has_revoked_at()) {
    at = at ? std::min(*at, payment.revoked_at()) : payment.revoked_at();
  }
  return at;
}

// ---- layout: where what was bought lies in time ----

// Where a later payment took over what was left of this one.
std::optional<absl::Time> ReplacedAt(const FoldState& state,
                                     const pb::FoldPayment& payment) {
  std::optional<absl::Time> at;
  for (const pb::FoldReplacement& replacement : state.replacements()) {
    if (replacement.by() == payment.payment_key()) continue;
    if (!Names(payment, replacement.payment_key())) continue;
    at = Earlier(at, At(replacement.at()));
  }
  return at;
}

// An operator who cancels for an instant takes back what was given before.
bool CutsExtension(const FoldState& state, const pb::FoldExtension& extension) {
  return state.has_internal_cancel() &&
         state.internal_cancel().has_cancel_at() &&
         state.internal_cancel().order_at() >= extension.order_at();
}

// What was bought, with the terms behind a taken-back one moved left.
struct Layout {
  std::vector<PaidTerm> terms;
  // The last instant of anything that was bought or added.
  std::optional<absl::Time> end;
  // The last instant of anything that was bought.
  std::optional<absl::Time> paid_end;
  // The payment that `end` belongs to (for an extension: that it lengthens).
  std::string end_key;
  // `end` is where something was taken back, and nothing reaches further.
  bool end_taken_back = false;
  absl::Time taken_back_at;
  // The last term of which nothing is left began here and was taken back then.
  // It reaches nowhere: what else was bought keeps its own end.
  std::optional<absl::Time> nothing_left_at;
  absl::Time nothing_left_since;
  bool lifetime = false;
  // Anything is left that was not taken back.
  bool any = false;
  std::optional<absl::Time> leeway_until;
  // Until when an operator has given access, whatever the provider says.
  std::optional<absl::Time> promised;
  // When he said so.
  absl::Time promised_at;
  // The last instant of what was not taken back.
  std::optional<absl::Time> standing_end;
};

// A payment or an extension, in the order in which they stand.
struct Element {
  int64_t from = 0;
  const pb::FoldPayment* payment = nullptr;
  const pb::FoldExtension* extension = nullptr;
};

const pb::FoldPayment* FindByKey(const FoldState& state,
                                 absl::string_view key) {
  for (const pb::FoldPayment& payment : state.payments()) {
    if (payment.payment_key() == key) return &payment;
  }
  return nullptr;
}

std::vector<Element> Elements(const FoldState& state) {
  std::vector<Element> elements;
  for (const pb::FoldPayment& payment : state.payments()) {
    elements.push_back({payment.starts_at(), &payment, nullptr});
  }
  for (const pb::FoldExtension& extension : state.extensions()) {
    // Behind what it lengthens, also when that had moved left by then.
    const pb::FoldPayment* lengthened =
        FindByKey(state, extension.payment_key());
    const int64_t from = std::max(
        extension.from(),
        lengthened == nullptr ? extension.behind() : lengthened->starts_at());
    elements.push_back({from, nullptr, &extension});
  }
  std::stable_sort(
      elements.begin(), elements.end(), [](const Element& a, const Element& b) {
        const auto key = [](const Element& e) {
          return std::make_tuple(e.from, e.payment == nullptr,
                                 e.payment ? e.payment->payment_key()
                                           : e.extension->payment_key());
        };
        return key(a) < key(b);
      });
  return elements;
}

Layout LayOut(const FoldState& state) {
  Layout layout;
  // The end of what stands before an element: as it was when the element was
  // put behind it, and as it is now. The difference is how far it moves left.
  std::optional<absl::Time> was_end;
  std::optional<absl::Time> now_end;
  const auto stand = [&](absl::Time was, std::optional<absl::Time> now) {
    was_end = std::max(was_end, std::optional<absl::Time>(was));
    now_end = std::max(now_end, now);
  };
  // Something that began before that end was never put behind it: it was
  // bought when the end had moved already.
  const auto shift_of = [&](absl::Time from) {
    if (!was_end || !now_end || from < *was_end) return absl::ZeroDuration();
    return std::max(*was_end - *now_end, absl::ZeroDuration());
  };
  const auto reach = [&](absl::Time end, const std::string& key,
                         bool taken_back, absl::Time taken_back_at) {
    if (!taken_back) {
      layout.standing_end =
          std::max(layout.standing_end, std::optional<absl::Time>(end));
    }
    if (layout.end &&
        (*layout.end > end || (*layout.end == end && !layout.end_taken_back))) {
      return;
    }
    if (layout.end && *layout.end == end && taken_back) return;
    layout.end = end;
    layout.end_key = key;
    layout.end_taken_back = taken_back;
    layout.taken_back_at = taken_back_at;
  };
  std::optional<absl::Time> leeway_end;
  for (const Element& element : Elements(state)) {
    if (element.extension != nullptr) {
      const pb::FoldExtension& extension = *element.extension;
      const pb::FoldPayment* lengthened =
          FindByKey(state, extension.payment_key());
      const bool stacked =
          lengthened != nullptr && lengthened->stacked() && !extension.stays();
      // With the rest of what it lengthens, time that the provider added is
      // taken over; what an operator gave stays.
      std::optional<absl::Time> replaced_at;
      if (lengthened != nullptr && !extension.by_operator()) {
        replaced_at = ReplacedAt(state, *lengthened);
      }
      const auto cut = [&](absl::Time end) {
        if (replaced_at) end = std::min(end, *replaced_at);
        return extension.has_truncated_at()
                   ? std::min(end, At(extension.truncated_at()))
                   : end;
      };
      const absl::Time was = cut(At(extension.to()));
      if (extension.dropped()) {
        stand(was, std::nullopt);
        continue;
      }
      const absl::Time to =
          cut(At(extension.to()) -
              (stacked ? shift_of(At(extension.from())) : absl::Duration()));
      stand(was, to);
      if (replaced_at && *replaced_at <= At(extension.from())) continue;
      layout.any = true;
      reach(to, extension.payment_key(), false, absl::Time());
      if (extension.by_operator()) {
        absl::Time until = to;
        if (CutsExtension(state, extension)) {
          until = std::min(until, At(state.internal_cancel().cancel_at()));
        }
        if (!layout.promised || *layout.promised < until) {
          layout.promised = until;
          layout.promised_at = At(extension.order_at());
        }
      }
      continue;
    }
    const pb::FoldPayment& payment = *element.payment;
    PaidTerm term;
    term.payment_key = payment.payment_key();
    term.term_no = static_cast<int>(layout.terms.size()) + 1;
    term.stacked = payment.stacked();
    term.lifetime = payment.lifetime();
    term.internal = payment.internal();
    term.amount_minor = payment.amount_minor();
    term.refunded_minor = RefundedMinor(payment);
    for (const pb::FoldRefund& refund : payment.refunds()) {
      term.refund_changes += refund.reversed() ? 2 : 1;
    }
    absl::Duration shift;
    if (payment.stacked()) {
      // Nor does it move to before it was bought.
      const absl::Time from = At(payment.starts_at());
      shift = std::min(shift_of(from), std::max(from - At(payment.paid_at()),
                                                absl::ZeroDuration()));
    }
    const std::optional<absl::Time> replaced_at = ReplacedAt(state, payment);
    const auto cut = [&](absl::Time end) {
      if (replaced_at) end = std::min(end, *replaced_at);
      return payment.has_truncated_at()
                 ? std::min(end, At(payment.truncated_at()))
                 : end;
    };
    term.starts_at = At(payment.starts_at()) - shift;
    term.ends_at = payment.lifetime() ? absl::InfiniteFuture()
                                      : At(payment.ends_at()) - shift;
    const absl::Time whole_end = term.ends_at;
    term.replaced = replaced_at && *replaced_at < whole_end;
    if (const auto at = TakenBackAt(payment)) {
      term.taken_back = true;
      term.ends_at = std::min(term.ends_at, At(*at));
    }
    term.ends_at = std::max(cut(term.ends_at), term.starts_at);
    if (!payment.lifetime()) stand(cut(At(payment.ends_at())), term.ends_at);
    if (term.ends_at == absl::InfiniteFuture()) {
      if (!term.taken_back) layout.lifetime = layout.any = true;
    } else if (term.ends_at <= term.starts_at) {
      if (term.taken_back && (!layout.nothing_left_at ||
                              *layout.nothing_left_at < term.starts_at)) {
        layout.nothing_left_at = term.starts_at;
        layout.nothing_left_since = At(*TakenBackAt(payment));
      }
    } else {
      if (!layout.paid_end || term.ends_at > *layout.paid_end) {
        layout.paid_end = term.ends_at;
      }
      if (term.taken_back) {
        reach(term.ends_at, term.payment_key, true, At(*TakenBackAt(payment)));
      } else {
        layout.any = true;
        reach(term.ends_at, term.payment_key, false, absl::Time());
        if (!leeway_end || term.ends_at > *leeway_end) {
          leeway_end = term.ends_at;
          // It waits behind the whole period only, and for no renewal once
          // another payment has taken over.
          layout.leeway_until =
              At(payment.has_leeway_until() && term.ends_at == whole_end,
                 payment.leeway_until());
          if (layout.leeway_until && replaced_at &&
              *replaced_at < *layout.leeway_until) {
            layout.leeway_until.reset();
          }
        }
      }
    }
    layout.terms.push_back(std::move(term));
  }
  return layout;
}

// ---- step ----

bool IsInternal(const Fact& fact) {
  return fact.layer() == pb::FACT_LAYER_INTERNAL;
}

// Facts that state how the provider sees the subscription now: of two of one
// instant the later one counts, and nobody can tell which that is. A creation
// or an end is the first or last by its nature.
bool CarriesState(const Fact& fact) {
  if (fact.layer() != pb::FACT_LAYER_PROVIDER) return false;
  switch (fact.kind_case()) {
    case Fact::kCancelScheduled:
    case Fact::kCancelReverted:
    case Fact::kPaused:
    case Fact::kResumed:
    case Fact::kPlanChanged:
      return true;
    case Fact::kSnapshot:
      return !fact.snapshot().read_back();
    default:
      return false;
  }
}

// Whether two events of the newest instant say different things. Each is
// judged by all it says: the same object sent again says the same.
bool IsTie(const FoldState& state) {
  if (state.state_facts_size() < 2) return false;
  std::map<std::string, std::set<std::string>> said;
  for (const pb::FoldStateFact& fact : state.state_facts()) {
    said[fact.event_id()].insert(fact.content().SerializeAsString());
  }
  return std::any_of(said.begin(), said.end(), [&](const auto& event) {
    return event.second != said.begin()->second;
  });
}

class Stepping {
 public:
  Stepping(FoldState& state, const OrderedFact& fact)
      : s_(state),
        fact_(fact.fact),
        event_id_(fact.order.event_id),
        at_(Micros(fact.order.order_at)),
        internal_(IsInternal(fact.fact)) {}

  void Run() {
    NoteTie();
    SettlePlan();
    switch (fact_.kind_case()) {
      case Fact::kCreated:
        return Apply(fact_.created());
      case Fact::kPaid:
        return Apply(fact_.paid());
      case Fact::kPaymentFailed:
        return Apply(fact_.payment_failed());
      case Fact::kCancelScheduled:
        return Apply(fact_.cancel_scheduled());
      case Fact::kCancelReverted:
        return RevertCancel();
      case Fact::kEnded:
        return End(Micros(fact_.ended().ended_at()));
      case Fact::kPaused:
        return Pause(
            Micros(fact_.paused().has_pause_at(), fact_.paused().pause_at())
                .value_or(at_));
      case Fact::kResumed:
        return Apply(fact_.resumed());
      case Fact::kRefunded:
        return Apply(fact_.refunded());
      case Fact::kRefundReversed:
        return Apply(fact_.refund_reversed());
      case Fact::kRevoked:
        return Apply(fact_.revoked());
      case Fact::kPlanChanged:
        return Apply(fact_.plan_changed());
      case Fact::kExtended:
        return Extend(Micros(fact_.extended().expires_at()), internal_);
      case Fact::kTransferred:
        s_.set_subject_id(fact_.transferred().subject_id());
        s_.set_transferred_order_at(at_);
        return;
      case Fact::kDisputeOpened:
        return Apply(fact_.dispute_opened());
      case Fact::kDisputeClosed:
        return Apply(fact_.dispute_closed());
      case Fact::kSnapshot:
        return Apply(fact_.snapshot());
      case Fact::KIND_NOT_SET:
        return;
    }
  }

 private:
  // ---- the provider's word ----

  void NoteTie() {
    if (!CarriesState(fact_)) return;
    if (s_.state_facts().empty() || s_.state_order_at() != at_) {
      // The instant before is complete.
      if (IsTie(s_)) s_.set_needs_reconcile(true);
      s_.set_state_order_at(at_);
      s_.clear_state_facts();
    }
    pb::FoldStateFact& noted = *s_.add_state_facts();
    noted.set_event_id(event_id_);
    *noted.mutable_content() = fact_;
    noted.mutable_content()->clear_ordinal();
    noted.mutable_content()->clear_order_at();
  }

  // It has seen all that was said before its second, but perhaps nothing of
  // its second.
  void SettleTies() {
    s_.set_needs_reconcile(false);
    if (at_ > s_.state_order_at()) s_.clear_state_facts();
  }

  void Apply(const pb::Created& created) {
    NameFirstPlan(at_, !s_.payments().empty());
    Begin(Micros(created.has_starts_at(), created.starts_at()),
          Micros(created.has_trial_ends_at(), created.trial_ends_at()));
  }

  void Begin(std::optional<int64_t> starts_at,
             std::optional<int64_t> trial_end) {
    if (starts_at && !s_.has_starts_at()) s_.set_starts_at(*starts_at);
    // Without a start, or with an end before it, there was no trial.
    if (!starts_at || !trial_end || *trial_end <= *starts_at) return;
    s_.set_starts_at(std::min(s_.starts_at(), *starts_at));
    if (s_.trial_revoked()) return;
    if (!s_.has_trial_ends_at() || s_.trial_ends_at() < *trial_end) {
      s_.set_trial_ends_at(*trial_end);
    }
  }

  void Apply(const pb::Snapshot& snapshot) {
    if (snapshot.read_back()) SettleTies();
    const std::string& state = snapshot.provider_state();
    if (s_.plan().name().empty()) {
      NameFirstPlan(at_, !s_.payments().empty());
    } else if (!fact_.plan().empty()) {
      ChangePlan(at_);
    }
    Begin(Micros(snapshot.has_starts_at(), snapshot.starts_at()),
          Micros(snapshot.has_trial_ends_at(), snapshot.trial_ends_at()));
    if (snapshot.has_period_ends_at()) {
      s_.set_provider_period_ends_at(Micros(snapshot.period_ends_at()));
    }
    if (state == "ended") {
      return End(
          Micros(snapshot.has_ended_at(), snapshot.ended_at()).value_or(at_));
    }
    if (state == "pending") return;
    // Alive, whatever was said before.
    s_.clear_ended_at();
    SnapshotCancel(snapshot);
    s_.set_will_renew(snapshot.will_renew() && !s_.has_internal_cancel() &&
                      !s_.has_provider_cancel());
    if (state == "paused") {
      // By now, also when it was to be later.
      if (!s_.has_provider_pause_at() || at_ < s_.provider_pause_at()) {
        s_.set_provider_pause_at(at_);
      }
      return;
    }
    if (s_.has_provider_pause_at()) {
      s_.clear_provider_pause_at();
      s_.set_resumed_order_at(at_);
    }
    if (state == "past_due") {
      Fail("", Micros(snapshot.has_grace_period_ends_at(),
                      snapshot.grace_period_ends_at()));
      return;
    }
    // Only a payment clears grace: the end has not moved yet.
    Recover();
  }

  void SnapshotCancel(const pb::Snapshot& snapshot) {
    if (snapshot.has_cancel_at()) {
      const int64_t cancel_at = Micros(snapshot.cancel_at());
      if (s_.has_provider_cancel() &&
          s_.provider_cancel().cancel_at() == cancel_at) {
        return;
      }
      s_.mutable_provider_cancel()->set_cancel_at(cancel_at);
      s_.mutable_provider_cancel()->set_order_at(at_);
    } else if (snapshot.will_renew() && s_.has_provider_cancel()) {
      s_.clear_provider_cancel();
      s_.set_cancel_reverted_at(at_);
    }
  }

  void Apply(const pb::CancelScheduled& cancel) {
    pb::FoldCancel& scheduled = internal_ ? *s_.mutable_internal_cancel()
                                          : *s_.mutable_provider_cancel();
    scheduled.Clear();
    scheduled.set_order_at(at_);
    scheduled.set_renewed_before(s_.will_renew());
    if (cancel.has_cancel_at()) {
      scheduled.set_cancel_at(Micros(cancel.cancel_at()));
    }
    s_.set_will_renew(false);
  }

  void RevertCancel() {
    bool renews = true;
    if (internal_) {
      if (!s_.has_internal_cancel()) return;
      renews = s_.internal_cancel().renewed_before();
      s_.clear_internal_cancel();
    } else {
      s_.clear_provider_cancel();
    }
    s_.set_cancel_reverted_at(at_);
    s_.set_will_renew(renews && !s_.has_internal_cancel() &&
                      !s_.has_provider_cancel());
  }

  void End(int64_t ended_at) {
    if (internal_) {
      if (!s_.has_internal_ended_at() || ended_at < s_.internal_ended_at()) {
        s_.set_internal_ended_at(ended_at);
      }
    } else if (!s_.has_ended_at() || ended_at < s_.ended_at()) {
      s_.set_ended_at(ended_at);
    }
    s_.set_will_renew(false);
  }

  void Pause(int64_t pause_at) {
    const bool paused =
        internal_ ? s_.has_internal_pause_at() && s_.internal_pause_at() <= at_
                  : s_.has_provider_pause_at() && s_.provider_pause_at() <= at_;
    // It is to be paused later only, so it goes on until then.
    if (paused && pause_at > at_) s_.set_resumed_order_at(at_);
    if (internal_) {
      s_.set_internal_pause_at(pause_at);
    } else {
      s_.set_provider_pause_at(pause_at);
    }
  }

  void Apply(const pb::Resumed& resumed) {
    if (internal_) {
      s_.clear_internal_pause_at();
      s_.clear_internal_ended_at();
      s_.set_row_revoked(false);
    } else {
      s_.clear_provider_pause_at();
    }
    s_.set_resumed_order_at(at_);
    if (resumed.has_expires_at()) {
      Extend(Micros(resumed.expires_at()), /*by_operator=*/false);
    }
  }

  void Apply(const pb::Revoked& revoked) {
    s_.set_revoked_order_at(at_);
    if (internal_) {
      s_.set_row_revoked(true);
      return;
    }
    const int64_t from =
        Micros(revoked.has_revoked_at(), revoked.revoked_at()).value_or(at_);
    for (pb::FoldPayment& payment : *s_.mutable_payments()) {
      if (payment.internal()) continue;
      if (!payment.has_revoked_at() || from < payment.revoked_at()) {
        payment.set_revoked_at(from);
      }
      DropExtensions(payment.payment_key());
    }
    if (s_.has_trial_ends_at()) {
      s_.set_trial_ends_at(std::min(s_.trial_ends_at(), from));
      s_.set_trial_revoked(true);
    }
    DropExtensions("");
    s_.set_provider_revoked(true);
    s_.set_will_renew(false);
    ClearUnpaid();
  }

  // ---- money ----

  void Apply(const pb::Paid& paid) {
    if (pb::FoldPayment* known = FindSame(paid)) {
      // The same payment told again: it counts once, under all its names.
      AddAliases(paid, *known);
      ClaimStrayRefunds(*known);
      Replace(paid, known->payment_key(), known->starts_at());
      return;
    }
    const int64_t from = Micros(paid.period_starts_at());
    const int64_t to = paid.lifetime() ? 0 : Micros(paid.period_ends_at());
    if (s_.has_ended_at() && from >= s_.ended_at()) {
      // Bought again under the same id after it had ended.
      BeginAnew(s_.ended_at());
    }
    for (const pb::FoldCancel* cancel :
         {s_.has_provider_cancel() ? &s_.provider_cancel() : nullptr,
          s_.has_internal_cancel() ? &s_.internal_cancel() : nullptr}) {
      if (cancel != nullptr && cancel->has_cancel_at() &&
          from >= cancel->cancel_at()) {
        // Money for a period behind the scheduled end: it was not cancelled.
        BeginAnew(cancel->cancel_at());
        break;
      }
    }
    if (s_.has_provider_pause_at() && from >= s_.provider_pause_at()) {
      s_.clear_provider_pause_at();
      s_.set_resumed_order_at(at_);
    }
    s_.set_provider_revoked(false);
    if (!s_.has_starts_at() || from < s_.starts_at()) s_.set_starts_at(from);
    if (!s_.has_anchor_at() || from < s_.anchor_at()) s_.set_anchor_at(from);

    Replace(paid, paid.payment_key(), from);
    const std::optional<absl::Time> end_before = LayOut(s_).paid_end;
    pb::FoldPayment& payment = *s_.add_payments();
    payment.set_payment_key(paid.payment_key());
    payment.set_starts_at(from);
    payment.set_ends_at(to);
    payment.set_lifetime(paid.lifetime());
    payment.set_stacked(paid.stacked());
    payment.set_amount_minor(paid.amount_minor());
    payment.set_currency(paid.currency());
    payment.set_internal(internal_);
    payment.set_paid_at(
        Micros(paid.has_paid_at(), paid.paid_at()).value_or(at_));
    AddAliases(paid, payment);
    if (paid.will_renew() && paid.has_leeway_until()) {
      payment.set_leeway_until(Micros(paid.leeway_until()));
    }
    ClaimStrayRefunds(payment);

    s_.set_will_renew(paid.will_renew() && !s_.has_provider_cancel() &&
                      !s_.has_internal_cancel() && !s_.has_ended_at());
    const bool extends = paid.lifetime() || !end_before || At(to) > *end_before;
    // A payment of an older period leaves the need for grace as it was.
    if (extends || (s_.unpaid() && Names(payment, s_.unpaid_key()))) {
      ClearUnpaid();
    }
    if (s_.plan().name().empty()) {
      NameFirstPlan(from, /*bought_before=*/s_.payments_size() > 1);
    } else {
      ChangePlan(from);
    }
  }

  // The payment told before under either's key.
  pb::FoldPayment* FindSame(const pb::Paid& paid) {
    if (pb::FoldPayment* known = FindPayment(s_, paid.payment_key())) {
      return known;
    }
    for (const std::string& alias : paid.aliases()) {
      for (pb::FoldPayment& payment : *s_.mutable_payments()) {
        if (payment.payment_key() == alias) return &payment;
      }
    }
    return nullptr;
  }

  static void AddAliases(const pb::Paid& paid, pb::FoldPayment& payment) {
    if (!Names(payment, paid.payment_key())) {
      payment.add_aliases(paid.payment_key());
    }
    for (const std::string& alias : paid.aliases()) {
      if (!Names(payment, alias)) payment.add_aliases(alias);
    }
  }

  // `by` is the key under which the payment is known. The replaced one may
  // still be to come.
  void Replace(const pb::Paid& paid, const std::string& by, int64_t at) {
    if (paid.replaces().empty()) return;
    for (const pb::FoldReplacement& known : s_.replacements()) {
      if (known.by() == by && known.payment_key() == paid.replaces()) return;
    }
    pb::FoldReplacement& replacement = *s_.add_replacements();
    replacement.set_payment_key(paid.replaces());
    replacement.set_at(at);
    replacement.set_by(by);
  }

  // Forgets the end at `end`, and with it the time that it had cut off.
  void BeginAnew(int64_t end) {
    for (pb::FoldPayment& payment : *s_.mutable_payments()) {
      if (!payment.has_truncated_at() || end < payment.truncated_at()) {
        payment.set_truncated_at(end);
      }
    }
    for (pb::FoldExtension& extension : *s_.mutable_extensions()) {
      int64_t extension_end = end;
      if (extension.by_operator()) {
        // Only an operator's own end had cut it.
        if (!CutsExtension(s_, extension)) continue;
        extension_end = s_.internal_cancel().cancel_at();
      }
      if (!extension.has_truncated_at() ||
          extension_end < extension.truncated_at()) {
        extension.set_truncated_at(extension_end);
      }
    }
    if (s_.has_trial_ends_at()) {
      s_.set_trial_ends_at(std::min(s_.trial_ends_at(), end));
    }
    s_.clear_ended_at();
    if (s_.has_provider_cancel() || s_.has_internal_cancel()) {
      s_.set_cancel_reverted_at(at_);
    }
    s_.clear_provider_cancel();
    s_.clear_internal_cancel();
  }

  bool AnythingBought() const {
    return !s_.payments().empty() || !s_.extensions().empty() ||
           s_.has_trial_ends_at();
  }

  void Apply(const pb::PaymentFailed& failed) {
    // A failure of an invoice that was paid is an earlier attempt's (C056).
    if (FindPayment(s_, failed.payment_key()) != nullptr) return;
    const auto grace = Micros(failed.has_grace_period_ends_at(),
                              failed.grace_period_ends_at());
    Fail(failed.payment_key(), grace);
    if (!failed.grace_by_provider() || !s_.past_due()) return;
    if (grace) {
      s_.set_grace_period_ends_at(*grace);
    } else {
      s_.clear_grace_period_ends_at();
    }
  }

  void Fail(const std::string& key, std::optional<int64_t> grace) {
    if (!AnythingBought() || s_.has_ended_at() || s_.has_internal_ended_at()) {
      return;
    }
    if (!s_.past_due()) s_.set_past_due_order_at(at_);
    s_.set_past_due(true);
    for (pb::FoldPayment& payment : *s_.mutable_payments()) {
      payment.clear_leeway_until();
    }
    if (!s_.unpaid()) {
      s_.set_unpaid(true);
      s_.set_unpaid_key(key);
    } else if (s_.unpaid_key().empty()) {
      s_.set_unpaid_key(key);
    }
    // Stamped once per unpaid period: retries do not move it.
    if (grace && !s_.has_grace_period_ends_at()) {
      s_.set_grace_period_ends_at(*grace);
    }
  }

  void Recover() {
    if (s_.past_due()) s_.set_recovered_order_at(at_);
    s_.set_past_due(false);
  }

  void ClearUnpaid() {
    s_.set_unpaid(false);
    s_.clear_unpaid_key();
    Recover();
    s_.clear_grace_period_ends_at();
  }

  pb::FoldRefund* FindRefund(absl::string_view refund_key) {
    for (pb::FoldPayment& payment : *s_.mutable_payments()) {
      for (pb::FoldRefund& refund : *payment.mutable_refunds()) {
        if (refund.refund_key() == refund_key) return &refund;
      }
    }
    for (pb::FoldRefund& refund : *s_.mutable_stray_refunds()) {
      if (refund.refund_key() == refund_key) return &refund;
    }
    return nullptr;
  }

  void Apply(const pb::Refunded& refunded) {
    pb::FoldPayment* payment = FindPayment(s_, refunded.payment_key());
    pb::FoldRefund* refund = FindRefund(refunded.refund_key());
    if (refund == nullptr) {
      refund = payment ? payment->add_refunds() : s_.add_stray_refunds();
      refund->set_refund_key(refunded.refund_key());
      refund->set_payment_key(refunded.payment_key());
      refund->set_order_at(at_);
      refund->set_reversed(std::any_of(s_.reversed_refunds().begin(),
                                       s_.reversed_refunds().end(),
                                       [&](const std::string& key) {
                                         return key == refunded.refund_key();
                                       }));
    }
    // The same refund told again can only say more of it.
    refund->set_amount_minor(
        std::max(refund->amount_minor(), refunded.amount_minor()));
    refund->set_refunded_total_minor(std::max(refund->refunded_total_minor(),
                                              refunded.refunded_total_minor()));
    refund->set_full(refund->full() || refunded.full());
    refund->set_keeps_access(refunded.keeps_access());
    if (payment != nullptr && TakenBackAt(*payment)) {
      DropExtensions(payment->payment_key());
    }
  }

  void ClaimStrayRefunds(pb::FoldPayment& payment) {
    auto& stray = *s_.mutable_stray_refunds();
    for (int i = 0; i < stray.size();) {
      if (!Names(payment, stray[i].payment_key())) {
        ++i;
        continue;
      }
      *payment.add_refunds() = stray[i];
      stray.DeleteSubrange(i, 1);
    }
    // A refund may be older than those that found the payment at once, and the
    // one that completes the sum says since when.
    std::stable_sort(payment.mutable_refunds()->begin(),
                     payment.mutable_refunds()->end(),
                     [](const pb::FoldRefund& a, const pb::FoldRefund& b) {
                       return a.order_at() < b.order_at();
                     });
    if (TakenBackAt(payment)) DropExtensions(payment.payment_key());
  }

  void Apply(const pb::RefundReversed& reversed) {
    s_.add_reversed_refunds(reversed.refund_key());
    for (pb::FoldPayment& payment : *s_.mutable_payments()) {
      const bool taken_back = TakenBackAt(payment).has_value();
      for (pb::FoldRefund& refund : *payment.mutable_refunds()) {
        if (refund.refund_key() == reversed.refund_key()) {
          refund.set_reversed(true);
        }
      }
      if (!taken_back || TakenBackAt(payment)) continue;
      for (pb::FoldExtension& extension : *s_.mutable_extensions()) {
        if (extension.payment_key() == payment.payment_key()) {
          extension.set_dropped(false);
        }
      }
    }
    for (pb::FoldRefund& refund : *s_.mutable_stray_refunds()) {
      if (refund.refund_key() == reversed.refund_key()) {
        refund.set_reversed(true);
      }
    }
  }

  void DropExtensions(const std::string& payment_key) {
    for (pb::FoldExtension& extension : *s_.mutable_extensions()) {
      if (extension.payment_key() == payment_key) extension.set_dropped(true);
    }
  }

  // The name under which the payment is known, if it is.
  std::string CanonicalKey(const std::string& key) {
    const pb::FoldPayment* payment = FindPayment(s_, key);
    return payment ? payment->payment_key() : key;
  }

  void Apply(const pb::DisputeOpened& opened) {
    for (pb::FoldDispute& dispute : *s_.mutable_disputes()) {
      if (CanonicalKey(dispute.payment_key()) !=
          CanonicalKey(opened.payment_key())) {
        continue;
      }
      // An inquiry that grows into a dispute.
      if (opened.suspends() && !dispute.suspends()) {
        dispute.set_suspends(true);
        dispute.set_order_at(at_);
      }
      return;
    }
    pb::FoldDispute& dispute = *s_.add_disputes();
    dispute.set_payment_key(opened.payment_key());
    dispute.set_suspends(opened.suspends());
    dispute.set_order_at(at_);
  }

  void Apply(const pb::DisputeClosed& closed) {
    auto& disputes = *s_.mutable_disputes();
    for (int i = 0; i < disputes.size();) {
      if (CanonicalKey(disputes[i].payment_key()) ==
          CanonicalKey(closed.payment_key())) {
        if (disputes[i].suspends()) s_.set_resumed_order_at(at_);
        disputes.DeleteSubrange(i, 1);
      } else {
        ++i;
      }
    }
    if (!closed.lost()) return;
    s_.set_row_revoked(true);
    s_.set_revoked_order_at(at_);
    // The money is gone. The access is the row's revocation to take, so that an
    // operator can give it back.
    pb::Refunded refunded;
    refunded.set_payment_key(closed.payment_key());
    refunded.set_refund_key(
        absl::StrCat("dispute/", CanonicalKey(closed.payment_key())));
    refunded.set_full(true);
    refunded.set_keeps_access(true);
    Apply(refunded);
  }

  // ---- time added, plan ----

  void Extend(int64_t to, bool by_operator) {
    const Layout layout = LayOut(s_);
    if (layout.lifetime && !by_operator) return;
    std::optional<int64_t> end;
    if (layout.end) end = Micros(*layout.end);
    bool stays = false;
    std::string key = layout.end_taken_back ? "" : layout.end_key;
    if (s_.has_trial_ends_at() && (!end || *end < s_.trial_ends_at())) {
      end = s_.trial_ends_at();
      key.clear();
    }
    if (by_operator) {
      // From where it ends as things are, whoever has said so.
      const Subscription row = Project(s_).subscription;
      if (row.lifetime) return;
      stays = row.expires_at != layout.end;
      end.reset();
      if (row.expires_at) end = Micros(*row.expires_at);
    }
    if (end && to <= *end) return;
    if (!s_.has_starts_at()) s_.set_starts_at(std::min(at_, to - 1));
    const int64_t from = end.value_or(s_.starts_at());
    if (to <= from) return;
    pb::FoldExtension& extension = *s_.add_extensions();
    extension.set_from(from);
    extension.set_to(to);
    extension.set_payment_key(key);
    extension.set_by_operator(by_operator);
    for (const pb::FoldPayment& payment : s_.payments()) {
      extension.set_behind(std::max(extension.behind(), payment.starts_at()));
    }
    extension.set_stays(stays);
    extension.set_order_at(at_);
  }

  // A scheduled plan whose instant lies before this fact is in force.
  void SettlePlan() {
    if (!s_.has_next_plan() || s_.next_plan().effective_at() > at_) return;
    ReplacePlan(s_.next_plan());
    s_.clear_next_plan();
  }

  const std::string& PlanName() const {
    return fact_.plan().empty() ? fact_.plan_changed().plan() : fact_.plan();
  }

  void NamePlan(pb::FoldPlan& plan, int64_t effective_at) {
    plan.set_name(PlanName());
    plan.set_revision(fact_.plan_revision());
    plan.set_effective_at(effective_at);
    plan.set_order_at(at_);
  }

  // What was in force from the same instant on, or later, never was.
  void ReplacePlan(const pb::FoldPlan& plan) {
    if (s_.has_plan()) *s_.add_earlier_plans() = s_.plan();
    auto& earlier = *s_.mutable_earlier_plans();
    while (!earlier.empty() &&
           earlier.rbegin()->effective_at() >= plan.effective_at()) {
      earlier.RemoveLast();
    }
    *s_.mutable_plan() = plan;
  }

  // Facts of earlier versions named no plan: what was bought before this one
  // brings nothing of it.
  void NameFirstPlan(int64_t effective_at, bool bought_before) {
    if (PlanName().empty() || !s_.plan().name().empty()) return;
    s_.set_bought_before_plan(bought_before);
    NamePlan(*s_.mutable_plan(), effective_at);
  }

  // The fact's plan is in force from `effective_at` on: what is bought decides.
  void ChangePlan(int64_t effective_at) {
    if (PlanName().empty()) return;
    const bool next_by_then =
        s_.has_next_plan() && s_.next_plan().effective_at() <= effective_at;
    const pb::FoldPlan& then = next_by_then ? s_.next_plan() : s_.plan();
    if (then.name() == PlanName() && then.revision() == fact_.plan_revision()) {
      return;
    }
    if (effective_at <= at_) {
      pb::FoldPlan plan;
      NamePlan(plan, effective_at);
      ReplacePlan(plan);
      if (next_by_then) s_.clear_next_plan();
    } else {
      NamePlan(*s_.mutable_next_plan(), effective_at);
    }
  }

  void Apply(const pb::PlanChanged& change) {
    const int64_t effective_at =
        Micros(change.has_effective_at(), change.effective_at()).value_or(at_);
    // A newer word replaces what was scheduled before it, whenever that was.
    s_.clear_next_plan();
    ChangePlan(effective_at);
  }

  FoldState& s_;
  const Fact& fact_;
  const std::string& event_id_;
  const int64_t at_;
  const bool internal_;
};

}  // namespace

bool operator<(const OrderKey& a, const OrderKey& b) {
  return std::tie(a.order_at, a.rank, a.event_id, a.ordinal) <
         std::tie(b.order_at, b.rank, b.event_id, b.ordinal);
}

absl::StatusOr<OrderedFact> MakeOrderedFact(absl::string_view event_id,
                                            const Fact& fact) {
  if (!fact.has_order_at()) return FieldMissingError("order_at");
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
      return 85;
    case Fact::kRefunded:
    case Fact::kRevoked:
      return 90;
    case Fact::kDisputeClosed:
    case Fact::kRefundReversed:
      return 95;
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
    case Fact::kRefundReversed:
      return fact.refund_reversed().refund_key();
    case Fact::kDisputeOpened:
      return fact.dispute_opened().payment_key();
    case Fact::kDisputeClosed:
      return fact.dispute_closed().payment_key();
    default:
      return "";
  }
}

bool IsNewest(const FoldState& state, const OrderKey& order) {
  if (!state.has_last()) return true;
  const auto& last = state.last();
  return std::make_tuple(last.order_at(), static_cast<int>(last.rank()),
                         std::cref(last.event_id()),
                         static_cast<int>(last.ordinal())) <
         std::make_tuple(Micros(order.order_at), order.rank,
                         std::cref(order.event_id), order.ordinal);
}

absl::Status Step(const OrderedFact& fact, FoldState& state) {
  if (!IsNewest(state, fact.order)) {
    return absl::FailedPreconditionError(
        "a fact is older than what was folded; fold all facts anew");
  }
  Stepping(state, fact).Run();
  state.set_revision(kFoldRevision);
  state.mutable_last()->set_order_at(Micros(fact.order.order_at));
  state.mutable_last()->set_rank(fact.order.rank);
  state.mutable_last()->set_event_id(fact.order.event_id);
  state.mutable_last()->set_ordinal(fact.order.ordinal);
  state.set_fact_count(state.fact_count() + 1);
  return absl::OkStatus();
}

absl::StatusOr<FoldState> FoldFacts(absl::Span<const OrderedFact> facts) {
  std::vector<const OrderedFact*> ordered;
  ordered.reserve(facts.size());
  for (const OrderedFact& fact : facts) ordered.push_back(&fact);
  std::sort(ordered.begin(), ordered.end(),
            [](const OrderedFact* a, const OrderedFact* b) {
              return a->order < b->order;
            });
  FoldState state;
  const OrderKey* previous = nullptr;
  for (const OrderedFact* fact : ordered) {
    // The same fact told twice is one fact.
    if (previous != nullptr && *previous == fact->order) continue;
    previous = &fact->order;
    RETURN_IF_ERROR(Step(*fact, state));
  }
  return state;
}

Projection Project(const FoldState& s) {
  Projection projection;
  Layout layout = LayOut(s);
  projection.terms = std::move(layout.terms);
  projection.trial_ends_at = At(s.has_trial_ends_at(), s.trial_ends_at());
  Occurrences& when = projection.occurrences;
  when.cancel_reverted = At(s.cancel_reverted_at());
  when.revoked = At(s.revoked_order_at());
  if (layout.end_taken_back) {
    when.revoked = std::max(when.revoked, layout.taken_back_at);
  }
  when.resumed = At(s.resumed_order_at());
  when.plan_changed = At(s.plan().order_at());
  when.transferred = At(s.transferred_order_at());
  when.past_due = At(s.past_due_order_at());
  when.recovered = At(s.recovered_order_at());
  when.facts = s.fact_count();

  Subscription& out = projection.subscription;
  out.starts_at = At(s.has_starts_at(), s.starts_at());
  out.anchor_at = At(s.has_anchor_at(), s.anchor_at());
  out.term_no = s.payments_size();
  out.will_renew = s.will_renew();
  out.plan = s.plan().name();
  out.plan_revision = s.plan().revision();
  out.subject_id = s.subject_id();
  for (const pb::FoldPlan& plan : s.earlier_plans()) {
    projection.plans.push_back(
        {plan.name(), plan.revision(), At(plan.effective_at())});
  }
  if (s.has_plan()) {
    projection.plans.push_back(
        {out.plan, out.plan_revision, At(s.plan().effective_at())});
  }
  if (s.has_next_plan()) {
    projection.plans.push_back({s.next_plan().name(), s.next_plan().revision(),
                                At(s.next_plan().effective_at())});
  }
  if (!projection.plans.empty() && !s.bought_before_plan()) {
    projection.plans.front().from = absl::InfinitePast();
  }
  out.needs_reconcile = s.needs_reconcile() || IsTie(s);
  out.grace_period_ends_at =
      At(s.has_grace_period_ends_at(), s.grace_period_ends_at());
  out.leeway_until = layout.leeway_until;
  out.lifetime = layout.lifetime;

  std::optional<absl::Time> end = layout.end;
  bool taken_back = layout.end_taken_back;
  if (projection.trial_ends_at && (!end || *end < *projection.trial_ends_at)) {
    end = projection.trial_ends_at;
    taken_back = s.trial_revoked();
  }
  if (!end && layout.nothing_left_at) {
    end = layout.nothing_left_at;
    taken_back = true;
    when.revoked = std::max(when.revoked, layout.nothing_left_since);
  }
  const bool anything = layout.any || s.has_trial_ends_at() || end.has_value();
  const std::optional<absl::Time> bought_end = end;

  // The scheduled end, by whoever scheduled it first. Without an instant it
  // ends with what was paid.
  std::optional<absl::Time> cut;
  for (const pb::FoldCancel* cancel :
       {s.has_provider_cancel() ? &s.provider_cancel() : nullptr,
        s.has_internal_cancel() ? &s.internal_cancel() : nullptr}) {
    if (cancel == nullptr) continue;
    const auto at = At(cancel->has_cancel_at(), cancel->cancel_at());
    const std::optional<absl::Time> effective = at ? at : bought_end;
    if (effective && (!out.cancel_at || *effective < *out.cancel_at)) {
      out.cancel_at = effective;
      when.cancel_scheduled = At(cancel->order_at());
    }
    cut = Earlier(cut, at);
    out.leeway_until.reset();
  }
  // Grace waits for a renewal; none comes after the cancellation.
  if (cut) {
    out.grace_period_ends_at = out.grace_period_ends_at
                                   ? Earlier(out.grace_period_ends_at, cut)
                                   : std::nullopt;
  }
  std::optional<absl::Time> ended = At(s.has_ended_at(), s.ended_at());
  if (ended) {
    out.will_renew = false;
    out.grace_period_ends_at.reset();
    out.leeway_until.reset();
    when.ended = *ended;
    // An operator's cancellation at the end has promised the time up to it,
    // and the provider's end is how it comes about (C068).
    if (!s.has_internal_cancel()) cut = Earlier(cut, ended);
    if (!out.starts_at) out.starts_at = ended;
  }
  const auto internal_ended =
      At(s.has_internal_ended_at(), s.internal_ended_at());
  if (internal_ended) {
    cut = Earlier(cut, internal_ended);
    when.ended = *internal_ended;
    if (!out.starts_at) out.starts_at = internal_ended;
  }
  if (out.lifetime && cut) out.lifetime = false;
  if (layout.lifetime && cut) end = cut;
  if (end && cut) end = std::min(*end, *cut);
  if (layout.promised) {
    const auto promised = Earlier(layout.promised, internal_ended);
    // What was taken back before it was promised is not what ends it, even
    // where that was said to end later.
    absl::Time taken_back_since =
        layout.end_taken_back ? layout.taken_back_at : absl::InfiniteFuture();
    if (s.revoked_order_at() != 0) {
      taken_back_since = std::min(taken_back_since, At(s.revoked_order_at()));
    }
    if (taken_back && layout.promised_at > taken_back_since) {
      end = std::max(layout.standing_end ? Earlier(layout.standing_end, cut)
                                         : std::nullopt,
                     promised);
      taken_back = false;
    }
    if (end <= promised) taken_back = false;
    end = std::max(end, promised);
    if (out.cancel_at) out.cancel_at = std::max(out.cancel_at, promised);
  }
  if (out.lifetime) end.reset();

  std::optional<absl::Time> pause;
  if (s.has_provider_pause_at()) pause = At(s.provider_pause_at());
  if (s.has_internal_pause_at()) {
    pause = Earlier(pause, At(s.internal_pause_at()));
  }
  for (const pb::FoldDispute& dispute : s.disputes()) {
    if (dispute.suspends()) pause = Earlier(pause, At(dispute.order_at()));
  }

  // What has ended is no longer paused from its end on.
  if (ended && pause && end && *pause >= *end) pause.reset();

  const bool never =
      end ? *end <= *out.starts_at : !out.lifetime && (ended || internal_ended);
  if (s.row_revoked()) {
    out.status = Status::kRevoked;
  } else if (internal_ended) {
    out.status = Status::kCanceled;
  } else if (!out.lifetime &&
             (taken_back || (s.provider_revoked() && !layout.any))) {
    out.status = Status::kRevoked;
  } else if (never) {
    // It never gave access, or was to end before it could.
    out.status = Status::kCanceled;
  } else if (!anything && !out.lifetime) {
    out.status = Status::kPending;
  } else if (s.past_due()) {
    out.status = Status::kPastDue;
  } else if (layout.any) {
    out.status = Status::kActive;
  } else {
    out.status = Status::kTrialing;
  }

  if (!never && !out.lifetime) out.expires_at = end;
  if (IsLive(out.status)) {
    out.pause_at = pause;
    if (s.has_next_plan()) {
      out.next_plan = s.next_plan().name();
      out.next_plan_revision = s.next_plan().revision();
      out.next_plan_at = At(s.next_plan().effective_at());
      when.plan_changed = At(s.next_plan().order_at());
    }
    if (out.lifetime) {
      out.grace_period_ends_at.reset();
      out.leeway_until.reset();
      out.will_renew = false;
    }
    if (out.will_renew) {
      out.next_billing_at = out.expires_at;
      if (s.has_provider_period_ends_at()) {
        out.next_billing_at = std::max(
            out.next_billing_at,
            std::optional<absl::Time>(At(s.provider_period_ends_at())));
      }
    }
  } else {
    out.grace_period_ends_at.reset();
    out.leeway_until.reset();
    if (out.status != Status::kPending) {
      out.will_renew = false;
      if (!out.starts_at) out.starts_at = when.revoked;
    }
  }
  return projection;
}

absl::StatusOr<Projection> Fold(absl::Span<const OrderedFact> facts) {
  ASSIGN_OR_RETURN(const FoldState state, FoldFacts(facts));
  return Project(state);
}

std::vector<QuotaTerm> QuotaTerms(const Projection& projection) {
  const Subscription& s = projection.subscription;
  std::vector<QuotaTerm> terms;
  const auto add = [&](std::string key, int term_no, absl::Time from,
                       absl::Time to, bool stacked) {
    if (s.expires_at) to = std::min(to, *s.expires_at);
    terms.push_back({std::move(key), term_no, from, std::max(from, to), stacked,
                     s.anchor_at});
  };
  if (projection.trial_ends_at && s.starts_at) {
    add("trial", 0, *s.starts_at, *projection.trial_ends_at, false);
  }
  for (const PaidTerm& term : projection.terms) {
    // Without an end there is no number of months.
    if (term.ends_at == absl::InfiniteFuture()) continue;
    // The first term of a row brings its first period with the payment.
    add(term.payment_key, term.term_no, term.starts_at, term.ends_at,
        term.stacked && term.term_no > 1);
  }
  return terms;
}

}  // namespace tenure::domain
