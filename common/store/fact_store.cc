#include "common/store/fact_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"
#include "common/domain/lifecycle.h"
#include "common/store/catalog_store.h"
#include "common/store/quota_store.h"
#include "common/store/statements.h"
#include "common/store/subscription_row.h"

namespace tenure::store {
namespace {

using domain::Fact;

// Where facts came from, stored beside them and their events.
struct Source {
  // Whose names of payments the facts use.
  int64_t route_id = 0;
  std::string account;
  std::string event_id;
  int64_t provider_event_id = 0;
  std::string actor;
  std::string reason;
  std::string cause;
};

// ---- reading ----

absl::StatusOr<std::vector<domain::OrderedFact>> LoadFacts(
    db::Transaction& tx, int64_t subscription_id) {
  ASSIGN_OR_RETURN(
      const db::Result rows,
      tx.Execute(kSelectSubscriptionFacts, db::MakeParams(subscription_id)));
  std::vector<domain::OrderedFact> facts;
  facts.reserve(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    Fact fact;
    if (!fact.ParseFromString(rows[i].Bytea("body"))) {
      return InternalError(absl::StrCat("a stored fact of subscription ",
                                        subscription_id, " is unreadable"));
    }
    ASSIGN_OR_RETURN(domain::OrderedFact ordered,
                     domain::MakeOrderedFact(rows[i].Text("event_id"), fact));
    facts.push_back(std::move(ordered));
  }
  RETURN_IF_ERROR(rows.status());
  return facts;
}

// The row of a subscription whose lock is held. `new_row`: nothing was stored
// about it yet.
absl::StatusOr<LockedSubscription> ReadLocked(db::Transaction& tx, int64_t id,
                                              bool new_row = false) {
  ASSIGN_OR_RETURN(const db::Result rows,
                   tx.Execute(kSelectLockedSubscription, db::MakeParams(id)));
  if (rows.empty()) return InternalError("a locked subscription vanished");
  const db::Row row = rows[0];
  LockedSubscription locked;
  locked.id = id;
  locked.subject_id = row.Int64("subject_id");
  locked.route = {row.Int64("route_id"), row.Text("route"),
                  row.Text("environment")};
  locked.account = row.Text("account");
  locked.prepaid = row.Bool("prepaid");
  ASSIGN_OR_RETURN(locked.state, SubscriptionStateFromRow(row));
  domain::Subscription& s = locked.state.subscription;
  s.plan = row.Text("plan");
  s.plan_revision = row.Int64("plan_revision");
  s.next_plan = row.OptionalText("next_plan").value_or("");
  s.next_plan_revision = row.OptionalInt64("next_plan_revision").value_or(0);
  s.next_billing_at = row.OptionalTime("next_billing_at");
  s.needs_reconcile = row.Bool("needs_reconcile");
  if (domain::IsLive(s.status) && row.Bool("end_announced")) {
    // An operator brought the row back by hand: that is another life.
    ++locked.state.lifecycle.episode;
  }
  locked.now = row.Time("now");
  locked.fold_revision = row.Int64("fold_revision");
  const int64_t plan_id = row.Int64("plan_in_force_id");
  // A binary of another revision writes facts and row beside a sum that it does
  // not read.
  const bool has_fold =
      row.OptionalInt64("fold_state_revision") == domain::kFoldRevision &&
      locked.fold_revision == domain::kFoldRevision;
  const std::string fold = has_fold ? row.Bytea("fold_state") : "";
  RETURN_IF_ERROR(rows.status());
  ASSIGN_OR_RETURN(locked.plan, LoadPlan(tx, plan_id));
  if (!new_row && !(has_fold && locked.fold.ParseFromString(fold))) {
    // Another revision's sum, or none: the facts are the truth.
    ASSIGN_OR_RETURN(const std::vector<domain::OrderedFact> facts,
                     LoadFacts(tx, id));
    ASSIGN_OR_RETURN(locked.fold, domain::FoldFacts(facts));
  }
  // The row holds the subject's id itself; the fold says 0 for the first one.
  s.subject_id = locked.fold.subject_id();
  return locked;
}

absl::StatusOr<std::optional<int64_t>> LockByProviderKey(
    db::Transaction& tx, const FactBatch& batch) {
  ASSIGN_OR_RETURN(const db::Result rows,
                   tx.Execute(kLockSubscriptionByProviderKey,
                              db::MakeParams(batch.route.id, batch.account,
                                             batch.provider_subscription_id,
                                             batch.item_key)));
  if (rows.empty()) return std::nullopt;
  const int64_t id = rows[0].Int64("id");
  RETURN_IF_ERROR(rows.status());
  return id;
}

absl::Status LockById(db::Transaction& tx, int64_t id,
                      absl::string_view environment) {
  ASSIGN_OR_RETURN(
      const db::Result rows,
      tx.Execute(kLockSubscription, db::MakeParams(id, environment)));
  if (!rows.empty()) return rows.status();
  return MakeError(absl::StatusCode::kNotFound,
                   common::v1::ERROR_REASON_SUBSCRIPTION_NOT_FOUND,
                   "there is no subscription of this id",
                   {{"subscription_id", absl::StrCat(id)}});
}

// A payment as stored, found by its key or any other name of it.
struct KnownPayment {
  int64_t subscription_id = 0;
  std::string payment_key;
  absl::Time period_starts_at;
  std::optional<absl::Time> period_ends_at;
};

absl::StatusOr<std::optional<KnownPayment>> FindPayment(db::Transaction& tx,
                                                        const FactBatch& batch,
                                                        absl::string_view key) {
  ASSIGN_OR_RETURN(
      const db::Result rows,
      tx.Execute(kSelectPaymentSubscription,
                 db::MakeParams(batch.route.id, batch.account, key)));
  if (rows.empty()) return std::nullopt;
  KnownPayment payment;
  payment.subscription_id = rows[0].Int64("subscription_id");
  payment.payment_key = rows[0].Text("payment_key");
  payment.period_starts_at = rows[0].Time("period_starts_at");
  payment.period_ends_at = rows[0].OptionalTime("period_ends_at");
  RETURN_IF_ERROR(rows.status());
  return payment;
}

// ---- what a batch says ----

// The payment that a fact is about, by any of its names; empty for none.
std::string PaymentKeyOf(const Fact& fact) {
  switch (fact.kind_case()) {
    case Fact::kPaid:
      return fact.paid().payment_key();
    case Fact::kRefunded:
      return fact.refunded().payment_key();
    case Fact::kDisputeOpened:
      return fact.dispute_opened().payment_key();
    case Fact::kDisputeClosed:
      return fact.dispute_closed().payment_key();
    default:
      return "";
  }
}

void SetPaymentKey(const std::string& key, Fact& fact) {
  if (fact.has_refunded()) fact.mutable_refunded()->set_payment_key(key);
  if (fact.has_dispute_opened()) {
    fact.mutable_dispute_opened()->set_payment_key(key);
  }
  if (fact.has_dispute_closed()) {
    fact.mutable_dispute_closed()->set_payment_key(key);
  }
}

// Facts that say what was bought.
bool NamesPlan(const Fact& fact) {
  switch (fact.kind_case()) {
    case Fact::kCreated:
    case Fact::kPaid:
    case Fact::kPlanChanged:
    case Fact::kSnapshot:
      return true;
    default:
      return false;
  }
}

// By what names the payment of a batch may be known.
std::vector<std::string> PaymentNames(const FactBatch& batch) {
  if (!batch.payment_names.empty()) return batch.payment_names;
  std::vector<std::string> names;
  for (const Fact& fact : batch.facts) {
    std::string key = PaymentKeyOf(fact);
    if (!key.empty()) names.push_back(std::move(key));
  }
  return names;
}

// The payment that a fact of a batch is about, if it is known.
absl::StatusOr<std::optional<KnownPayment>> FindPaymentOf(
    db::Transaction& tx, const FactBatch& batch, const Fact& fact) {
  const std::string key = PaymentKeyOf(fact);
  std::vector<std::string> names = {key};
  if (!batch.payment_names.empty() && batch.payment_names.front() == key) {
    names = batch.payment_names;
  }
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(std::optional<KnownPayment> known,
                     FindPayment(tx, batch, name));
    if (known) return known;
  }
  return std::nullopt;
}

bool HasPaid(const FactBatch& batch) {
  return std::any_of(batch.facts.begin(), batch.facts.end(),
                     [](const Fact& fact) { return fact.has_paid(); });
}

// An explicit link wins; metadata that contradicts it is nobody's guess.
absl::StatusOr<std::string> FindSubject(db::Transaction& tx,
                                        const FactBatch& batch,
                                        std::string* parked) {
  if (!batch.customer_id.empty()) {
    ASSIGN_OR_RETURN(const db::Result linked,
                     tx.Execute(kSelectLinkedSubject,
                                db::MakeParams(batch.route.id, batch.account,
                                               batch.customer_id)));
    if (!linked.empty()) {
      const std::string subject = linked[0].Text("external_id");
      const bool erased = linked[0].Bool("erased");
      RETURN_IF_ERROR(linked.status());
      // Events go on naming an erased person as before; nobody is made anew.
      if (!erased && !batch.subject.empty() && batch.subject != subject) {
        *parked = "subject_conflict";
      }
      return subject;
    }
  }
  if (!ValidateText("subject", batch.subject, 255).ok()) *parked = "no_subject";
  return batch.subject;
}

absl::StatusOr<std::optional<domain::Plan>> BoughtPlan(db::Transaction& tx,
                                                       const FactBatch& batch) {
  if (batch.product_id.empty()) return std::nullopt;
  return FindPlanOfProduct(tx, batch.route.name, batch.product_id);
}

// ---- stamping ----

// Gives a fact what it needs from the catalogue and the policies in force, for
// ever (R5). `bought` is what the batch names, `in_force` the row's plan.
void StampPolicy(const std::optional<domain::Plan>& bought,
                 const domain::Plan& in_force, Fact& fact) {
  const domain::Plan& plan = bought ? *bought : in_force;
  if (bought && NamesPlan(fact)) {
    fact.set_plan(bought->name);
    fact.set_plan_revision(bought->revision);
  } else if (fact.plan().empty()) {
    fact.set_plan_revision(in_force.revision);
  }
  const auto grace_end = [&] {
    return ToProto(*FromProto("order_at", fact.order_at()) +
                   plan.policy.grace_period);
  };
  const bool has_grace = plan.policy.grace_period > absl::ZeroDuration();
  switch (fact.kind_case()) {
    case Fact::kPaymentFailed: {
      auto& failed = *fact.mutable_payment_failed();
      if (has_grace && !failed.grace_by_provider() &&
          !failed.has_grace_period_ends_at()) {
        *failed.mutable_grace_period_ends_at() = grace_end();
      }
      return;
    }
    case Fact::kSnapshot: {
      auto& snapshot = *fact.mutable_snapshot();
      if (has_grace && snapshot.provider_state() == "past_due" &&
          !snapshot.has_grace_period_ends_at()) {
        *snapshot.mutable_grace_period_ends_at() = grace_end();
      }
      return;
    }
    case Fact::kRefunded:
      fact.mutable_refunded()->set_keeps_access(
          plan.policy.refund_keeps_access);
      return;
    case Fact::kDisputeOpened:
      fact.mutable_dispute_opened()->set_suspends(plan.policy.dispute_suspends);
      return;
    default:
      return;
  }
}

// The facts of a batch, each with its place within the event.
absl::StatusOr<std::vector<Fact>> StampedFacts(
    db::Transaction& tx, const FactBatch& batch,
    const std::optional<domain::Plan>& bought, const domain::Plan& in_force) {
  std::vector<Fact> facts = batch.facts;
  for (size_t i = 0; i < facts.size(); ++i) {
    if (!facts[i].has_order_at()) return FieldMissingError("order_at");
    RETURN_IF_ERROR(FromProto("order_at", facts[i].order_at()).status());
    facts[i].set_ordinal(static_cast<int32_t>(i));
    StampPolicy(bought, in_force, facts[i]);
    if (facts[i].has_transferred() &&
        !facts[i].transferred().subject().empty()) {
      ASSIGN_OR_RETURN(const int64_t subject_id,
                       EnsureSubject(tx, facts[i].transferred().subject()));
      facts[i].mutable_transferred()->set_subject_id(subject_id);
      facts[i].mutable_transferred()->clear_subject();
    }
  }
  return facts;
}

// ---- writing ----

absl::StatusOr<std::vector<domain::OrderedFact>> StoreFacts(
    db::Transaction& tx, int64_t subscription_id,
    const std::vector<Fact>& facts, const Source& source) {
  std::vector<domain::OrderedFact> added;
  for (const Fact& fact : facts) {
    ASSIGN_OR_RETURN(domain::OrderedFact ordered,
                     domain::MakeOrderedFact(source.event_id, fact));
    ASSIGN_OR_RETURN(
        const db::Result inserted,
        tx.Execute(
            kInsertSubscriptionFact,
            db::MakeParams(
                subscription_id, static_cast<int>(fact.layer()),
                ordered.order.order_at, ordered.order.rank, source.event_id,
                ordered.order.ordinal, domain::KindName(fact.kind_case()),
                domain::MoneyKey(fact), ordered.order.order_at,
                fact.plan_revision(), db::Bytes{fact.SerializeAsString()},
                source.provider_event_id, source.actor, source.reason)));
    if (inserted.affected_rows() > 0) added.push_back(std::move(ordered));
  }
  std::sort(added.begin(), added.end(),
            [](const domain::OrderedFact& a, const domain::OrderedFact& b) {
              return a.order < b.order;
            });
  return added;
}

// Every name of a payment.
std::vector<std::string> NamesOf(const subscription::v1::FoldPayment& payment) {
  std::vector<std::string> names(payment.aliases().begin(),
                                 payment.aliases().end());
  names.push_back(payment.payment_key());
  return names;
}

// The payment that has a name; nullptr for none.
const subscription::v1::FoldPayment* FindInFold(const domain::FoldState& fold,
                                                const std::string& name) {
  for (const auto& payment : fold.payments()) {
    const std::vector<std::string> names = NamesOf(payment);
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      return &payment;
    }
  }
  return nullptr;
}

// Stores the money of new facts by the route and account that told of it; what
// operators give is no money. `fold` holds the facts.
absl::Status StorePayments(db::Transaction& tx,
                           const LockedSubscription& locked,
                           const std::vector<domain::OrderedFact>& added,
                           const Source& source,
                           const domain::FoldState& fold) {
  FactBatch names_of;
  names_of.route.id = source.route_id;
  names_of.account = source.account;
  std::vector<std::string> stored;
  for (const domain::OrderedFact& ordered : added) {
    if (!ordered.fact.has_paid() ||
        ordered.fact.layer() == subscription::v1::FACT_LAYER_INTERNAL) {
      continue;
    }
    const auto& paid = ordered.fact.paid();
    std::string key = paid.payment_key();
    // One payment is one row, under the name that it was first told by.
    bool known = false;
    const auto* payment = FindInFold(fold, key);
    if (payment != nullptr) {
      for (const std::string& name : NamesOf(*payment)) {
        if (FindInFold(locked.fold, name) == nullptr &&
            std::find(stored.begin(), stored.end(), name) == stored.end()) {
          continue;
        }
        ASSIGN_OR_RETURN(const std::optional<KnownPayment> before,
                         FindPayment(tx, names_of, name));
        if (!before || before->subscription_id != locked.id) continue;
        key = before->payment_key;
        known = true;
        break;
      }
    }
    if (!known) {
      absl::Time paid_at = ordered.order.order_at;
      if (paid.has_paid_at()) {
        ASSIGN_OR_RETURN(paid_at, FromProto("paid_at", paid.paid_at()));
      }
      ASSIGN_OR_RETURN(const absl::Time from,
                       FromProto("period_starts_at", paid.period_starts_at()));
      std::optional<absl::Time> to;
      if (paid.has_period_ends_at()) {
        ASSIGN_OR_RETURN(to,
                         FromProto("period_ends_at", paid.period_ends_at()));
      }
      RETURN_IF_ERROR(
          tx.Execute(
                kInsertPayment,
                db::MakeParams(source.route_id, source.account, key, locked.id,
                               fold.payments_size(), paid.amount_minor(),
                               paid.currency(), paid_at, from, to))
              .status());
      stored.push_back(key);
    }
    std::vector<std::string> aliases(paid.aliases().begin(),
                                     paid.aliases().end());
    if (key != paid.payment_key()) aliases.push_back(paid.payment_key());
    for (const std::string& alias : aliases) {
      // What no column takes, no refund can name either.
      if (alias == key || !ValidateText("alias", alias, 255).ok()) continue;
      RETURN_IF_ERROR(tx.Execute(kInsertPaymentAlias,
                                 db::MakeParams(source.route_id, source.account,
                                                alias, key))
                          .status());
    }
  }
  return absl::OkStatus();
}

// Brings the stored payments of a subscription to what its facts add up to.
absl::Status UpdatePayments(db::Transaction& tx, int64_t subscription_id,
                            const domain::FoldState& fold,
                            const domain::Projection& after) {
  std::vector<std::string> keys;
  std::vector<int64_t> numbers, amounts, refunded;
  for (const domain::PaidTerm& term : after.terms) {
    if (term.internal) continue;
    const auto* payment = FindInFold(fold, term.payment_key);
    if (payment == nullptr) continue;
    for (std::string& name : NamesOf(*payment)) {
      keys.push_back(std::move(name));
      numbers.push_back(term.term_no);
      amounts.push_back(term.amount_minor);
      refunded.push_back(term.refunded_minor);
    }
  }
  if (keys.empty()) return absl::OkStatus();
  return tx
      .Execute(kUpdatePayments, db::MakeParams(subscription_id, keys, numbers,
                                               amounts, refunded))
      .status();
}

absl::Status StoreEvents(db::Transaction& tx, int64_t subscription_id,
                         const Source& source, domain::Transition& transition) {
  if (transition.events.empty()) return absl::OkStatus();
  std::vector<std::string> keys;
  for (const domain::DomainEvent& event : transition.events) {
    keys.push_back(event.business_key);
  }
  ASSIGN_OR_RETURN(
      const db::Result rows,
      tx.Execute(kSelectAnnouncedKeys, db::MakeParams(subscription_id, keys)));
  std::vector<std::string> announced;
  for (size_t i = 0; i < rows.size(); ++i) {
    announced.push_back(rows[i].Text("business_key"));
  }
  RETURN_IF_ERROR(rows.status());
  domain::NumberEvents(announced, transition);
  for (const domain::DomainEvent& event : transition.events) {
    std::vector<std::string> names, values;
    for (const auto& [name, value] : event.data) {
      names.push_back(name);
      values.push_back(value);
    }
    RETURN_IF_ERROR(
        tx.Execute(kInsertSubscriptionEvent,
                   db::MakeParams(subscription_id, event.seq, event.type,
                                  event.business_key, event.episode,
                                  event.effective_at, event.old_access_until,
                                  event.access_until, names, values,
                                  source.actor, source.reason, source.cause))
            .status());
  }
  return absl::OkStatus();
}

// Moves the row from what `locked` saw to what `fold` means.
absl::StatusOr<bool> StoreOutcome(db::Transaction& tx,
                                  const LockedSubscription& locked,
                                  const domain::Projection& before,
                                  domain::Projection after,
                                  const Source& source, bool new_row) {
  domain::Subscription& s = after.subscription;
  if (s.plan.empty()) {
    // Its facts name no plan (they are older than plans in facts).
    s.plan = locked.state.subscription.plan;
    s.plan_revision = locked.state.subscription.plan_revision;
  }
  std::optional<domain::SubscriptionState> was;
  if (!new_row) was = locked.state;
  domain::Transition transition =
      domain::Advance(was, before.terms, after, locked.now);
  if (!transition.changed && locked.fold_revision == domain::kFoldRevision) {
    return false;
  }
  RETURN_IF_ERROR(StoreEvents(tx, locked.id, source, transition));
  RETURN_IF_ERROR(
      tx.Execute(kUpdateSubscription, ToParams(locked.id, transition.state))
          .status());
  RETURN_IF_ERROR(WriteQuotaSchedule(
      tx, locked.id, after, before.plans, locked.plan,
      domain::IsLive(transition.state.subscription.status), source.cause));
  if (transition.events.empty()) return transition.changed;
  RETURN_IF_ERROR(
      tx.Execute(
            kAdvanceSinkStreams,
            db::MakeParams(locked.id, transition.state.lifecycle.event_seq))
          .status());
  return true;
}

absl::Status StoreFold(db::Transaction& tx, int64_t subscription_id,
                       const domain::FoldState& fold) {
  return tx
      .Execute(kUpsertSubscriptionFold,
               db::MakeParams(subscription_id, domain::kFoldRevision,
                              db::Bytes{fold.SerializeAsString()}))
      .status();
}

absl::StatusOr<AppliedFacts> AddFacts(db::Transaction& tx,
                                      const LockedSubscription& locked,
                                      const std::vector<Fact>& facts,
                                      const Source& source, bool new_row) {
  AppliedFacts applied;
  applied.subscription_id = locked.id;
  ASSIGN_OR_RETURN(const std::vector<domain::OrderedFact> added,
                   StoreFacts(tx, locked.id, facts, source));
  if (added.empty()) return applied;

  domain::FoldState fold = locked.fold;
  if (domain::IsNewest(fold, added.front().order)) {
    for (const domain::OrderedFact& fact : added) {
      RETURN_IF_ERROR(domain::Step(fact, fold));
    }
  } else {
    ASSIGN_OR_RETURN(const std::vector<domain::OrderedFact> all,
                     LoadFacts(tx, locked.id));
    ASSIGN_OR_RETURN(fold, domain::FoldFacts(all));
  }
  RETURN_IF_ERROR(StoreFold(tx, locked.id, fold));
  const domain::Projection before = domain::Project(locked.fold);
  const domain::Projection after = domain::Project(fold);
  RETURN_IF_ERROR(StorePayments(tx, locked, added, source, fold));
  if (before.terms != after.terms) {
    RETURN_IF_ERROR(UpdatePayments(tx, locked.id, fold, after));
  }
  ASSIGN_OR_RETURN(applied.changed,
                   StoreOutcome(tx, locked, before, after, source, new_row));
  return applied;
}

// The id of the new row, or nullopt when there was one already.
absl::StatusOr<std::optional<int64_t>> InsertSubscription(
    db::Transaction& tx, int64_t subject_id, int64_t plan_id,
    const Route& route, absl::string_view account,
    absl::string_view provider_subscription_id, absl::string_view item_key,
    bool prepaid) {
  ASSIGN_OR_RETURN(
      const db::Result rows,
      tx.Execute(kInsertSubscription,
                 db::MakeParams(subject_id, plan_id, route.environment,
                                route.id, account, provider_subscription_id,
                                item_key, domain::kFoldRevision, prepaid)));
  if (rows.empty()) return std::nullopt;
  const int64_t id = rows[0].Int64("id");
  RETURN_IF_ERROR(rows.status());
  return id;
}

Source SourceOf(const FactBatch& batch) {
  Source source;
  source.route_id = batch.route.id;
  source.account = batch.account;
  source.event_id = batch.event_id;
  source.provider_event_id = batch.provider_event_id;
  source.cause = absl::StrCat("provider_event:", batch.provider_event_id);
  return source;
}

Source SourceOf(const Author& author) {
  Source source;
  source.event_id = author.request_id;
  source.actor = author.actor;
  source.reason = author.reason;
  source.cause = absl::StrCat("request:", author.request_id);
  return source;
}

// ---- prepaid orders ----

absl::Status LockPrepaidChain(db::Transaction& tx, int64_t subject_id,
                              const std::string& plan) {
  RETURN_IF_ERROR(
      tx.Execute(kInsertPrepaidChain, db::MakeParams(subject_id, plan))
          .status());
  return tx.Execute(kLockPrepaidChain, db::MakeParams(subject_id, plan))
      .status();
}

// Fixes where a payment's term lies: behind what was bought before it (S4-3).
absl::Status PlaceTerm(const domain::Plan& plan,
                       const std::optional<absl::Time>& anchor,
                       const std::optional<absl::Time>& chain_end, Fact& fact) {
  auto& paid = *fact.mutable_paid();
  ASSIGN_OR_RETURN(absl::Time paid_at, FromProto("order_at", fact.order_at()));
  if (paid.has_paid_at()) {
    ASSIGN_OR_RETURN(paid_at, FromProto("paid_at", paid.paid_at()));
  }
  paid.set_will_renew(false);
  if (plan.lifetime) {
    paid.set_lifetime(true);
    *paid.mutable_period_starts_at() = ToProto(paid_at);
    paid.clear_period_ends_at();
    return absl::OkStatus();
  }
  const bool behind = chain_end && *chain_end > paid_at;
  const absl::Time from = behind ? *chain_end : paid_at;
  ASSIGN_OR_RETURN(const absl::TimeZone zone,
                   domain::LoadZone(plan.billing_time_zone));
  *paid.mutable_period_starts_at() = ToProto(from);
  *paid.mutable_period_ends_at() = ToProto(domain::StackedEnd(
      behind && anchor ? *anchor : from, from, plan.term, zone));
  paid.set_stacked(true);
  return absl::OkStatus();
}

absl::StatusOr<AppliedFacts> ApplyPrepaid(db::Transaction& tx,
                                          const FactBatch& batch,
                                          const Destination& destination) {
  const domain::Plan& plan = *destination.plan;
  ASSIGN_OR_RETURN(const int64_t subject_id,
                   EnsureSubject(tx, destination.subject));
  RETURN_IF_ERROR(LockPrepaidChain(tx, subject_id, plan.name));

  // Looked for again under the lock: the same payment may be told by two
  // events at once.
  for (const Fact& fact : batch.facts) {
    if (!fact.has_paid()) continue;
    ASSIGN_OR_RETURN(const std::optional<KnownPayment> known,
                     FindPaymentOf(tx, batch, fact));
    if (!known) continue;
    Destination repeated;
    repeated.subscription_id = known->subscription_id;
    RETURN_IF_ERROR(
        LockById(tx, known->subscription_id, batch.route.environment));
    return Apply(tx, batch, repeated);
  }

  ASSIGN_OR_RETURN(
      const db::Result ids,
      tx.Execute(kLockPrepaidSubscriptions,
                 db::MakeParams(subject_id, batch.route.environment)));
  std::optional<LockedSubscription> valid;
  for (size_t i = 0; i < ids.size(); ++i) {
    ASSIGN_OR_RETURN(LockedSubscription row,
                     ReadLocked(tx, ids[i].Int64("id")));
    if (row.plan.name != plan.name) continue;
    const auto end = row.state.subscription.AccessUntil();
    if (!row.state.subscription.lifetime && (!end || *end <= row.now)) {
      // S4-2: expired on the spot, its pending releases cancelled.
      RETURN_IF_ERROR(LapseLocked(tx, row, SourceOf(batch).cause).status());
      continue;
    }
    valid = std::move(row);
  }
  RETURN_IF_ERROR(ids.status());
  ASSIGN_OR_RETURN(
      const db::Result chain,
      tx.Execute(
          kSelectPrepaidChainEnd,
          db::MakeParams(subject_id, batch.route.environment, plan.name)));
  std::optional<absl::Time> chain_end = chain[0].OptionalTime("chain_end");
  RETURN_IF_ERROR(chain.status());
  std::optional<absl::Time> anchor;
  const bool new_row = !valid.has_value();
  if (new_row) {
    ASSIGN_OR_RETURN(
        const std::optional<int64_t> id,
        InsertSubscription(tx, subject_id, plan.id, batch.route, batch.account,
                           "", "", /*prepaid=*/true));
    ASSIGN_OR_RETURN(valid, ReadLocked(tx, *id, /*new_row=*/true));
  } else {
    anchor = valid->state.subscription.anchor_at;
  }
  ASSIGN_OR_RETURN(std::vector<Fact> facts,
                   StampedFacts(tx, batch, plan, valid->plan));
  for (Fact& fact : facts) {
    if (!fact.has_paid()) continue;
    RETURN_IF_ERROR(PlaceTerm(plan, anchor, chain_end, fact));
    if (!batch.order_id.empty()) {
      RETURN_IF_ERROR(tx.Execute(kSettlePaymentOrder,
                                 db::MakeParams(batch.route.id, batch.order_id,
                                                fact.paid().payment_key()))
                          .status());
    }
  }
  return AddFacts(tx, *valid, facts, SourceOf(batch), new_row);
}

absl::Status ResolveOrder(db::Transaction& tx, const FactBatch& batch,
                          Destination& destination) {
  ASSIGN_OR_RETURN(const db::Result orders,
                   tx.Execute(kSelectPaymentOrder,
                              db::MakeParams(batch.route.id, batch.order_id)));
  if (orders.empty()) {
    destination.parked = "unknown_order";
    return absl::OkStatus();
  }
  destination.subject = orders[0].Text("subject");
  const std::string plan = orders[0].Text("plan_name");
  const std::optional<domain::CalendarUnit> unit =
      domain::ParseCalendarUnit(orders[0].Text("term_unit"));
  const domain::Term term{unit.value_or(domain::CalendarUnit::kMonth),
                          static_cast<int>(orders[0].Int64("term_count"))};
  const int64_t amount_minor = orders[0].Int64("amount_minor");
  const std::string currency = orders[0].Text("currency");
  RETURN_IF_ERROR(orders.status());
  for (const Fact& fact : batch.facts) {
    if (fact.has_paid() && (fact.paid().amount_minor() != amount_minor ||
                            fact.paid().currency() != currency)) {
      // Genuine, but not the price that was agreed on: somebody looks at it.
      destination.parked = "order_mismatch";
      return absl::OkStatus();
    }
  }
  ASSIGN_OR_RETURN(destination.plan, FindPlan(tx, plan));
  if (!destination.plan) {
    destination.parked = "unknown_plan";
    return absl::OkStatus();
  }
  destination.plan->term = term;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> EnsureSubject(db::Transaction& tx,
                                      const std::string& external_id) {
  // Second round: ours was inserted, or another transaction's is visible now.
  for (int round = 0; round < 2; ++round) {
    ASSIGN_OR_RETURN(const db::Result found,
                     tx.Execute(kSelectSubjectId, db::MakeParams(external_id)));
    if (!found.empty()) return found[0].Int64("id");
    RETURN_IF_ERROR(
        tx.Execute(kInsertSubject, db::MakeParams(external_id)).status());
  }
  ASSIGN_OR_RETURN(const db::Result found,
                   tx.Execute(kSelectSubjectId, db::MakeParams(external_id)));
  if (found.empty()) return InternalError("a subject vanished");
  return found[0].Int64("id");
}

absl::StatusOr<Destination> Resolve(db::Transaction& tx,
                                    const FactBatch& batch) {
  Destination destination;
  if (!batch.provider_subscription_id.empty()) {
    ASSIGN_OR_RETURN(destination.subscription_id, LockByProviderKey(tx, batch));
  } else {
    for (const std::string& name : PaymentNames(batch)) {
      ASSIGN_OR_RETURN(const std::optional<KnownPayment> payment,
                       FindPayment(tx, batch, name));
      if (!payment) continue;
      RETURN_IF_ERROR(
          LockById(tx, payment->subscription_id, batch.route.environment));
      destination.subscription_id = payment->subscription_id;
      break;
    }
  }
  if (destination.subscription_id) {
    const bool needs_plan =
        std::any_of(batch.facts.begin(), batch.facts.end(), NamesPlan) &&
        !batch.product_id.empty();
    if (!needs_plan) return destination;
    ASSIGN_OR_RETURN(destination.plan, BoughtPlan(tx, batch));
    // Bought, but what? Applied once the catalogue knows (C140).
    if (!destination.plan) destination.parked = "unknown_plan";
    return destination;
  }

  if (batch.provider_subscription_id.empty()) {
    if (!HasPaid(batch)) {
      destination.parked = "unknown_payment";
      return destination;
    }
    destination.prepaid = true;
    if (!batch.order_id.empty()) {
      RETURN_IF_ERROR(ResolveOrder(tx, batch, destination));
      return destination;
    }
  }
  ASSIGN_OR_RETURN(destination.subject,
                   FindSubject(tx, batch, &destination.parked));
  if (!destination.parked.empty()) return destination;
  if (batch.product_id.empty()) {
    destination.parked = "unknown_subscription";
    return destination;
  }
  ASSIGN_OR_RETURN(destination.plan, BoughtPlan(tx, batch));
  if (!destination.plan) destination.parked = "unknown_plan";
  return destination;
}

absl::StatusOr<AppliedFacts> Apply(db::Transaction& tx, const FactBatch& batch,
                                   const Destination& destination) {
  if (!destination.subscription_id && destination.prepaid) {
    return ApplyPrepaid(tx, batch, destination);
  }
  AppliedFacts nothing;
  nothing.subscription_id = destination.subscription_id.value_or(0);
  // A row is what its facts add up to: none, no row.
  if (batch.facts.empty()) return nothing;
  std::optional<int64_t> id = destination.subscription_id;
  bool new_row = false;
  if (!id) {
    ASSIGN_OR_RETURN(const int64_t subject_id,
                     EnsureSubject(tx, destination.subject));
    ASSIGN_OR_RETURN(
        id, InsertSubscription(tx, subject_id, destination.plan->id,
                               batch.route, batch.account,
                               batch.provider_subscription_id, batch.item_key,
                               /*prepaid=*/false));
    new_row = id.has_value();
    if (!id) {
      // A concurrent first event was faster.
      ASSIGN_OR_RETURN(id, LockByProviderKey(tx, batch));
      if (!id) return InternalError("a subscription vanished");
    }
  }
  // Read now even when Resolve locked it: an earlier batch of the same event
  // may have moved the row.
  ASSIGN_OR_RETURN(const LockedSubscription locked,
                   ReadLocked(tx, *id, new_row));
  ASSIGN_OR_RETURN(std::vector<Fact> facts,
                   StampedFacts(tx, batch, destination.plan, locked.plan));
  for (Fact& fact : facts) {
    const std::string key = PaymentKeyOf(fact);
    if (key.empty() ||
        (fact.has_paid() && fact.paid().has_period_starts_at())) {
      continue;
    }
    ASSIGN_OR_RETURN(const std::optional<KnownPayment> known,
                     FindPaymentOf(tx, batch, fact));
    if (!fact.has_paid()) {
      // Names that became known after the payment are not in its fact.
      if (known) SetPaymentKey(known->payment_key, fact);
      continue;
    }
    // A single payment told again: its term lies where it was first put.
    if (!known) return FieldMissingError("period_starts_at");
    auto& paid = *fact.mutable_paid();
    if (paid.payment_key() != known->payment_key) {
      paid.add_aliases(known->payment_key);
    }
    *paid.mutable_period_starts_at() = ToProto(known->period_starts_at);
    if (known->period_ends_at) {
      *paid.mutable_period_ends_at() = ToProto(*known->period_ends_at);
    } else {
      paid.set_lifetime(true);
    }
  }
  return AddFacts(tx, locked, facts, SourceOf(batch), new_row);
}

absl::StatusOr<bool> LinkCustomer(db::Transaction& tx, const Route& route,
                                  absl::string_view account,
                                  absl::string_view customer_id,
                                  const std::string& subject) {
  ASSIGN_OR_RETURN(const db::Result linked,
                   tx.Execute(kSelectLinkedSubject,
                              db::MakeParams(route.id, account, customer_id)));
  // Not even the subject is made: the customer may be an erased person.
  if (!linked.empty()) return false;
  ASSIGN_OR_RETURN(const int64_t subject_id, EnsureSubject(tx, subject));
  ASSIGN_OR_RETURN(
      const db::Result inserted,
      tx.Execute(kInsertCustomerLink,
                 db::MakeParams(route.id, account, customer_id, subject_id)));
  if (inserted.affected_rows() == 0) return false;
  RETURN_IF_ERROR(tx.Execute(kWakeLinkedEvents,
                             db::MakeParams(route.id, account, customer_id))
                      .status());
  return true;
}

absl::StatusOr<std::optional<bool>> AddPaymentAlias(
    db::Transaction& tx, const Route& route, absl::string_view account,
    absl::string_view payment_key, absl::string_view alias) {
  FactBatch batch;
  batch.route = route;
  batch.account = std::string(account);
  ASSIGN_OR_RETURN(const std::optional<KnownPayment> payment,
                   FindPayment(tx, batch, payment_key));
  if (!payment) return std::nullopt;
  ASSIGN_OR_RETURN(
      const db::Result inserted,
      tx.Execute(kInsertPaymentAlias, db::MakeParams(route.id, account, alias,
                                                     payment->payment_key)));
  return inserted.affected_rows() > 0;
}

absl::StatusOr<LockedSubscription> LockSubscription(
    db::Transaction& tx, int64_t subscription_id,
    absl::string_view environment) {
  RETURN_IF_ERROR(LockById(tx, subscription_id, environment));
  return ReadLocked(tx, subscription_id);
}

absl::StatusOr<AppliedFacts> ApplyInternal(db::Transaction& tx,
                                           const LockedSubscription& locked,
                                           std::vector<Fact> facts,
                                           const Author& author) {
  ASSIGN_OR_RETURN(
      const db::Result last,
      tx.Execute(kSelectLastInternalOrder, db::MakeParams(locked.id)));
  absl::Time order_at = locked.now;
  if (const auto before = last[0].OptionalTime("order_at")) {
    order_at = std::max(order_at, *before + absl::Microseconds(1));
  }
  RETURN_IF_ERROR(last.status());
  FactBatch batch;
  for (Fact& fact : facts) {
    fact.set_layer(subscription::v1::FACT_LAYER_INTERNAL);
    *fact.mutable_order_at() = ToProto(order_at);
    if (fact.has_plan_changed() && fact.plan().empty()) {
      ASSIGN_OR_RETURN(const std::optional<domain::Plan> plan,
                       FindPlan(tx, fact.plan_changed().plan()));
      if (!plan) return FieldInvalidError("plan", "is not in the catalogue");
      fact.set_plan(plan->name);
      fact.set_plan_revision(plan->revision);
    }
  }
  batch.facts = std::move(facts);
  ASSIGN_OR_RETURN(const std::vector<Fact> stamped,
                   StampedFacts(tx, batch, std::nullopt, locked.plan));
  return AddFacts(tx, locked, stamped, SourceOf(author), /*new_row=*/false);
}

absl::StatusOr<AppliedFacts> Grant(db::Transaction& tx, const NewGrant& grant,
                                   const Author& author) {
  ASSIGN_OR_RETURN(
      const Route route,
      RegisterRoute(tx,
                    grant.environment == "live" ? "internal" : "internal-test",
                    "internal", grant.environment));
  if (!grant.expires_at && !grant.plan.lifetime) {
    return FieldMissingError("expires_at");
  }
  ASSIGN_OR_RETURN(const int64_t subject_id, EnsureSubject(tx, grant.subject));
  ASSIGN_OR_RETURN(
      const std::optional<int64_t> id,
      InsertSubscription(tx, subject_id, grant.plan.id, route, "",
                         grant.external_key, "", /*prepaid=*/false));
  AppliedFacts applied;
  if (!id) {
    FactBatch batch;
    batch.route = route;
    batch.provider_subscription_id = grant.external_key;
    ASSIGN_OR_RETURN(const std::optional<int64_t> known,
                     LockByProviderKey(tx, batch));
    if (!known) return InternalError("a subscription vanished");
    applied.subscription_id = *known;
    return applied;
  }
  ASSIGN_OR_RETURN(const LockedSubscription locked,
                   ReadLocked(tx, *id, /*new_row=*/true));
  Fact fact;
  fact.set_layer(subscription::v1::FACT_LAYER_INTERNAL);
  *fact.mutable_order_at() = ToProto(locked.now);
  fact.set_plan(grant.plan.name);
  fact.set_plan_revision(grant.plan.revision);
  auto& paid = *fact.mutable_paid();
  paid.set_payment_key(absl::StrCat("grant/", author.request_id));
  *paid.mutable_period_starts_at() =
      ToProto(grant.starts_at.value_or(locked.now));
  if (grant.expires_at) {
    *paid.mutable_period_ends_at() = ToProto(*grant.expires_at);
  } else {
    paid.set_lifetime(true);
  }
  return AddFacts(tx, locked, {fact}, SourceOf(author), /*new_row=*/true);
}

absl::StatusOr<AppliedFacts> LapseLocked(db::Transaction& tx,
                                         const LockedSubscription& locked,
                                         absl::string_view cause) {
  AppliedFacts applied;
  applied.subscription_id = locked.id;
  Source source;
  source.cause = std::string(cause);
  const domain::Projection folded = domain::Project(locked.fold);
  domain::Projection as_it_stands = folded;
  as_it_stands.subscription = locked.state.subscription;
  ASSIGN_OR_RETURN(applied.changed,
                   StoreOutcome(tx, locked, folded, as_it_stands, source,
                                /*new_row=*/false));
  return applied;
}

absl::StatusOr<bool> RefoldLocked(db::Transaction& tx,
                                  const LockedSubscription& locked,
                                  const Author& author) {
  ASSIGN_OR_RETURN(const std::vector<domain::OrderedFact> facts,
                   LoadFacts(tx, locked.id));
  if (facts.empty()) return true;
  ASSIGN_OR_RETURN(const domain::FoldState fold, domain::FoldFacts(facts));
  RETURN_IF_ERROR(StoreFold(tx, locked.id, fold));
  const domain::Projection after = domain::Project(fold);
  RETURN_IF_ERROR(UpdatePayments(tx, locked.id, fold, after));
  RETURN_IF_ERROR(StoreOutcome(tx, locked, domain::Project(locked.fold), after,
                               SourceOf(author), /*new_row=*/false)
                      .status());
  ASSIGN_OR_RETURN(const LockedSubscription folded, ReadLocked(tx, locked.id));
  std::vector<Fact> moves;
  ASSIGN_OR_RETURN(const std::optional<domain::Plan> latest,
                   FindPlan(tx, folded.plan.name));
  // What has ended grants nothing; it keeps the revision it ended under.
  const domain::Status status = folded.state.subscription.status;
  const bool over = status == domain::Status::kExpired ||
                    status == domain::Status::kCanceled ||
                    status == domain::Status::kRevoked;
  if (over) return false;
  if (latest && latest->revision != folded.plan.revision) {
    moves.emplace_back().mutable_plan_changed()->set_plan(latest->name);
  }
  // The plan to come, which a change of the present one would replace.
  if (!after.plans.empty() && after.plans.back().from > folded.now) {
    const domain::PlanInForce& next = after.plans.back();
    ASSIGN_OR_RETURN(const std::optional<domain::Plan> next_latest,
                     FindPlan(tx, next.name));
    if (next_latest &&
        (!moves.empty() || next_latest->revision != next.revision)) {
      auto& change = *moves.emplace_back().mutable_plan_changed();
      change.set_plan(next.name);
      *change.mutable_effective_at() = ToProto(next.from);
    }
  }
  if (moves.empty()) return false;
  RETURN_IF_ERROR(ApplyInternal(tx, folded, moves, author).status());
  return false;
}

absl::StatusOr<Route> RegisterRoute(db::Transaction& tx, absl::string_view name,
                                    absl::string_view kind,
                                    absl::string_view environment) {
  ASSIGN_OR_RETURN(
      const db::Result rows,
      tx.Execute(kUpsertRoute, db::MakeParams(name, kind, environment)));
  Route route;
  route.id = rows[0].Int64("id");
  route.name = std::string(name);
  route.environment = rows[0].Text("environment");
  const std::string stored_kind = rows[0].Text("kind");
  RETURN_IF_ERROR(rows.status());
  if (stored_kind != kind || route.environment != environment) {
    return absl::FailedPreconditionError(absl::StrCat(
        "route ", name, " is stored as ", stored_kind, "/", route.environment,
        " and configured as ", kind, "/", environment,
        "; a route keeps its type and environment, use another name"));
  }
  return route;
}

}  // namespace tenure::store
