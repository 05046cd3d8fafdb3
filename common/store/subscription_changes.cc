#include "common/store/subscription_changes.h"

#include <algorithm>
#include <optional>
#include <tuple>
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
using subscription::v1::FoldPayment;

// ---- reading ----

using FactsById = std::map<int64_t, std::vector<domain::OrderedFact>>;

absl::StatusOr<FactsById> LoadFactsOf(db::Transaction& tx,
                                      const std::vector<int64_t>& ids) {
  FactsById facts;
  if (ids.empty()) return facts;
  ASSIGN_OR_RETURN(const db::Result rows,
                   tx.Execute(kSelectSubscriptionFacts, db::MakeParams(ids)));
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t id = rows[i].Int64("subscription_id");
    Fact fact;
    if (!fact.ParseFromString(rows[i].Bytea("body"))) {
      return InternalError(
          absl::StrCat("a stored fact of subscription ", id, " is unreadable"));
    }
    ASSIGN_OR_RETURN(domain::OrderedFact ordered,
                     domain::MakeOrderedFact(rows[i].Text("event_id"), fact));
    facts[id].push_back(std::move(ordered));
  }
  RETURN_IF_ERROR(rows.status());
  return facts;
}

// All of a row but its plan and its fold.
absl::StatusOr<LockedSubscription> LockedFromRow(const db::Row& row) {
  LockedSubscription locked;
  locked.id = row.Int64("id");
  locked.subject_id = row.Int64("subject_id");
  locked.subject_erased = row.Bool("subject_erased");
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
  return locked;
}

// ---- facts ----

// A change under way.
struct Pending {
  SubscriptionChange* change = nullptr;
  // Those that were not stored before, in their order.
  std::vector<domain::OrderedFact> added;
  domain::FoldState fold;
  domain::Projection before;
  domain::Projection after;
};

// Leaves the changes of which anything is new.
absl::StatusOr<std::vector<Pending>> InsertFacts(
    db::Transaction& tx, absl::Span<SubscriptionChange> changes) {
  db::RowArrays rows(13);
  std::map<std::pair<int64_t, int64_t>, domain::OrderedFact> told;
  for (const SubscriptionChange& change : changes) {
    for (const Fact& fact : change.facts) {
      ASSIGN_OR_RETURN(domain::OrderedFact ordered,
                       domain::MakeOrderedFact(change.source.event_id, fact));
      rows.AddRow(change.locked->id, static_cast<int>(fact.layer()),
                  ordered.order.order_at, ordered.order.rank,
                  change.source.event_id, ordered.order.ordinal,
                  domain::KindName(fact.kind_case()), domain::MoneyKey(fact),
                  fact.plan_revision(), db::Bytes{fact.SerializeAsString()},
                  change.source.provider_event_id, change.source.actor,
                  change.source.reason);
      told.emplace(std::make_pair(change.locked->id, ordered.order.ordinal),
                   std::move(ordered));
    }
  }
  std::vector<Pending> pending;
  if (rows.empty()) return pending;
  ASSIGN_OR_RETURN(const db::Result inserted,
                   tx.Execute(kInsertSubscriptionFacts, rows.ToParams()));
  std::map<int64_t, std::vector<domain::OrderedFact>> added;
  for (size_t i = 0; i < inserted.size(); ++i) {
    const int64_t id = inserted[i].Int64("subscription_id");
    const auto fact = told.find({id, inserted[i].Int64("ordinal")});
    if (fact == told.end()) return InternalError("a stored fact was not told");
    added[id].push_back(std::move(fact->second));
  }
  RETURN_IF_ERROR(inserted.status());
  for (SubscriptionChange& change : changes) {
    const auto facts = added.find(change.locked->id);
    if (facts == added.end()) continue;
    Pending& added_facts = pending.emplace_back();
    added_facts.change = &change;
    added_facts.added = std::move(facts->second);
    std::sort(added_facts.added.begin(), added_facts.added.end(),
              [](const domain::OrderedFact& a, const domain::OrderedFact& b) {
                return a.order < b.order;
              });
  }
  return pending;
}

absl::Status UpsertFolds(db::Transaction& tx, const db::RowArrays& folds) {
  return tx.Execute(kUpsertSubscriptionFolds, folds.ToParams()).status();
}

// Adds the new facts up: onto the sum where they are the newest, else all anew.
absl::Status AddUp(db::Transaction& tx, std::vector<Pending>& pending) {
  std::vector<int64_t> late;
  for (const Pending& p : pending) {
    if (!domain::IsNewest(p.change->locked->fold, p.added.front().order)) {
      late.push_back(p.change->locked->id);
    }
  }
  ASSIGN_OR_RETURN(const FactsById all, LoadFactsOf(tx, late));
  db::RowArrays folds(3);
  for (Pending& p : pending) {
    const LockedSubscription& locked = *p.change->locked;
    const auto facts = all.find(locked.id);
    if (facts != all.end()) {
      ASSIGN_OR_RETURN(p.fold, domain::FoldFacts(facts->second));
    } else {
      p.fold = locked.fold;
      for (const domain::OrderedFact& fact : p.added) {
        RETURN_IF_ERROR(domain::Step(fact, p.fold));
      }
    }
    p.before = domain::Project(locked.fold);
    p.after = domain::Project(p.fold);
    folds.AddRow(locked.id, domain::kFoldRevision,
                 db::Bytes{p.fold.SerializeAsString()});
  }
  return UpsertFolds(tx, folds);
}

// ---- payments ----

// Every name of a payment.
std::vector<std::string> NamesOf(const FoldPayment& payment) {
  std::vector<std::string> names(payment.aliases().begin(),
                                 payment.aliases().end());
  names.push_back(payment.payment_key());
  return names;
}

// The payment that has a name; nullptr for none.
const FoldPayment* FindInFold(const domain::FoldState& fold,
                              const std::string& name) {
  for (const FoldPayment& payment : fold.payments()) {
    if (payment.payment_key() == name ||
        std::find(payment.aliases().begin(), payment.aliases().end(), name) !=
            payment.aliases().end()) {
      return &payment;
    }
  }
  return nullptr;
}

// The payments that facts tell of by a name that was known before.
class StoredPayments {
 public:
  void LookFor(const Pending& p, const std::string& name) {
    const Source& source = p.change->source;
    if (wanted_.insert({source.route_id, source.account, name}).second) {
      rows_.AddRow(source.route_id, source.account, name);
    }
  }

  absl::Status Load(db::Transaction& tx) {
    if (rows_.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const db::Result rows,
                     tx.Execute(kSelectKnownPayments, rows_.ToParams()));
    for (size_t i = 0; i < rows.size(); ++i) {
      stored_[{rows[i].Int64("route_id"), rows[i].Text("account"),
               rows[i].Text("name")}] = {rows[i].Int64("subscription_id"),
                                         rows[i].Text("payment_key")};
    }
    return rows.status();
  }

  // The key under which the change's subscription has it.
  std::optional<std::string> Find(const Pending& p,
                                  const std::string& name) const {
    const Source& source = p.change->source;
    const auto it = stored_.find({source.route_id, source.account, name});
    if (it == stored_.end() || it->second.first != p.change->locked->id) {
      return std::nullopt;
    }
    return it->second.second;
  }

 private:
  using Name = std::tuple<int64_t, std::string, std::string>;
  db::RowArrays rows_{3};
  std::set<Name> wanted_;
  std::map<Name, std::pair<int64_t, std::string>> stored_;
};

// What operators give is no money.
bool IsMoney(const domain::OrderedFact& ordered) {
  return ordered.fact.has_paid() &&
         ordered.fact.layer() != subscription::v1::FACT_LAYER_INTERNAL;
}

// Rows that money is stored in.
struct PaymentRows {
  db::RowArrays payments{10};
  db::RowArrays aliases{4};
  // By subscription, what the new rows say: key, number, amount.
  std::set<std::tuple<int64_t, std::string, int64_t, int64_t>> inserted;
};

absl::Status AddPaymentRows(const Pending& p, const StoredPayments& known,
                            PaymentRows& rows) {
  const LockedSubscription& locked = *p.change->locked;
  const Source& source = p.change->source;
  std::set<std::string> new_keys;
  for (const domain::OrderedFact& ordered : p.added) {
    if (!IsMoney(ordered)) continue;
    const auto& paid = ordered.fact.paid();
    // One payment is one row, under the name that it was first told by.
    std::optional<std::string> key;
    if (const FoldPayment* payment = FindInFold(p.fold, paid.payment_key())) {
      for (const std::string& name : NamesOf(*payment)) {
        if (key.has_value()) break;
        if (new_keys.count(name) != 0) {
          key = name;
        } else if (FindInFold(locked.fold, name) != nullptr) {
          key = known.Find(p, name);
        }
      }
    }
    if (!key.has_value()) {
      key = paid.payment_key();
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
      rows.payments.AddRow(source.route_id, source.account, *key, locked.id,
                           p.fold.payments_size(), paid.amount_minor(),
                           paid.currency(), paid_at, from, to);
      rows.inserted.insert(
          {locked.id, *key, p.fold.payments_size(), paid.amount_minor()});
      new_keys.insert(*key);
    }
    std::vector<std::string> aliases(paid.aliases().begin(),
                                     paid.aliases().end());
    if (*key != paid.payment_key()) aliases.push_back(paid.payment_key());
    for (const std::string& alias : aliases) {
      // What no column takes, no refund can name either.
      if (alias == *key || !ValidateText("alias", alias, 255).ok()) continue;
      rows.aliases.AddRow(source.route_id, source.account, alias, *key);
    }
  }
  return absl::OkStatus();
}

// What stored payments are to say of the terms in `after` that are not as in
// `before`; by every name of each.
void AddPaymentUpdates(int64_t subscription_id, const domain::FoldState& fold,
                       absl::Span<const domain::PaidTerm> before,
                       absl::Span<const domain::PaidTerm> after,
                       const PaymentRows& rows, db::RowArrays& updates) {
  for (const domain::PaidTerm& term : after) {
    if (term.internal ||
        std::find(before.begin(), before.end(), term) != before.end() ||
        (term.refunded_minor == 0 &&
         rows.inserted.count({subscription_id, term.payment_key, term.term_no,
                              term.amount_minor}) != 0)) {
      continue;
    }
    const FoldPayment* payment = FindInFold(fold, term.payment_key);
    if (payment == nullptr) continue;
    for (const std::string& name : NamesOf(*payment)) {
      updates.AddRow(subscription_id, name, term.term_no, term.amount_minor,
                     term.refunded_minor);
    }
  }
}

absl::Status UpdatePayments(db::Transaction& tx, const db::RowArrays& updates) {
  if (updates.empty()) return absl::OkStatus();
  return tx.Execute(kUpdatePayments, updates.ToParams()).status();
}

// Stores the money of new facts by the route and account that told of it, and
// brings the payments known before to what the facts add up to.
absl::Status StorePayments(db::Transaction& tx,
                           const std::vector<Pending>& pending) {
  StoredPayments known;
  for (const Pending& p : pending) {
    for (const domain::OrderedFact& ordered : p.added) {
      if (!IsMoney(ordered)) continue;
      const FoldPayment* payment =
          FindInFold(p.fold, ordered.fact.paid().payment_key());
      if (payment == nullptr) continue;
      for (const std::string& name : NamesOf(*payment)) {
        if (FindInFold(p.change->locked->fold, name) != nullptr) {
          known.LookFor(p, name);
        }
      }
    }
  }
  RETURN_IF_ERROR(known.Load(tx));
  PaymentRows rows;
  db::RowArrays updates(5);
  for (const Pending& p : pending) {
    RETURN_IF_ERROR(AddPaymentRows(p, known, rows));
    AddPaymentUpdates(p.change->locked->id, p.fold, p.before.terms,
                      p.after.terms, rows, updates);
  }
  if (!rows.payments.empty()) {
    RETURN_IF_ERROR(
        tx.Execute(kInsertPayments, rows.payments.ToParams()).status());
  }
  if (!rows.aliases.empty()) {
    RETURN_IF_ERROR(
        tx.Execute(kInsertPaymentAliases, rows.aliases.ToParams()).status());
  }
  return UpdatePayments(tx, updates);
}

// ---- outcomes ----

// What a row is moved to.
struct Outcome {
  const LockedSubscription* locked = nullptr;
  const domain::Projection* before = nullptr;
  domain::Projection after;
  const Source* source = nullptr;
  bool new_row = false;
  domain::Transition transition;
};

// Drops the events that were told before and gives the rest their numbers.
absl::Status NumberEvents(db::Transaction& tx, std::vector<Outcome>& outcomes) {
  db::RowArrays keys(2);
  for (const Outcome& outcome : outcomes) {
    // Nothing was told of a row that was not there.
    if (outcome.new_row) continue;
    for (const domain::DomainEvent& event : outcome.transition.events) {
      keys.AddRow(outcome.locked->id, event.business_key);
    }
  }
  std::map<int64_t, std::vector<std::string>> announced;
  if (!keys.empty()) {
    ASSIGN_OR_RETURN(const db::Result rows,
                     tx.Execute(kSelectAnnouncedKeys, keys.ToParams()));
    for (size_t i = 0; i < rows.size(); ++i) {
      announced[rows[i].Int64("subscription_id")].push_back(
          rows[i].Text("business_key"));
    }
    RETURN_IF_ERROR(rows.status());
  }
  for (Outcome& outcome : outcomes) {
    domain::NumberEvents(announced[outcome.locked->id], outcome.transition);
  }
  return absl::OkStatus();
}

absl::Status InsertEvents(db::Transaction& tx,
                          const std::vector<Outcome>& outcomes) {
  db::RowArrays events(11);
  db::RowArrays data(4);
  for (const Outcome& outcome : outcomes) {
    for (const domain::DomainEvent& event : outcome.transition.events) {
      events.AddRow(outcome.locked->id, event.seq, event.type,
                    event.business_key, event.episode, event.effective_at,
                    event.old_access_until, event.access_until,
                    outcome.source->actor, outcome.source->reason,
                    outcome.source->cause);
      for (const auto& [name, value] : event.data) {
        data.AddRow(outcome.locked->id, event.seq, name, value);
      }
    }
  }
  if (events.empty()) return absl::OkStatus();
  db::Params params = events.ToParams();
  data.AppendTo(params);
  return tx.Execute(kInsertSubscriptionEvents, params).status();
}

// Moves the rows; leaves in `outcomes` those that changed.
absl::Status StoreOutcomes(db::Transaction& tx,
                           std::vector<Outcome>& outcomes) {
  for (Outcome& outcome : outcomes) {
    const LockedSubscription& locked = *outcome.locked;
    domain::Subscription& s = outcome.after.subscription;
    if (s.plan.empty()) {
      // Its facts name no plan (they are older than plans in facts).
      s.plan = locked.state.subscription.plan;
      s.plan_revision = locked.state.subscription.plan_revision;
    }
    std::optional<domain::SubscriptionState> was;
    if (!outcome.new_row) was = locked.state;
    outcome.transition =
        domain::Advance(was, outcome.before->terms, outcome.after, locked.now);
  }
  const auto unchanged = [](const Outcome& outcome) {
    return !outcome.transition.changed &&
           outcome.locked->fold_revision == domain::kFoldRevision;
  };
  outcomes.erase(std::remove_if(outcomes.begin(), outcomes.end(), unchanged),
                 outcomes.end());
  if (outcomes.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(NumberEvents(tx, outcomes));
  RETURN_IF_ERROR(InsertEvents(tx, outcomes));
  db::RowArrays rows(24);
  db::RowArrays heads(2);
  for (const Outcome& outcome : outcomes) {
    rows.AddValues(ToParams(outcome.locked->id, outcome.transition.state));
    if (!outcome.transition.events.empty()) {
      heads.AddRow(outcome.locked->id,
                   outcome.transition.state.lifecycle.event_seq);
    }
  }
  RETURN_IF_ERROR(tx.Execute(kUpdateSubscriptions, rows.ToParams()).status());
  for (const Outcome& outcome : outcomes) {
    RETURN_IF_ERROR(WriteQuotaSchedule(
        tx, outcome.locked->id, outcome.after, outcome.before->plans,
        outcome.locked->plan,
        domain::IsLive(outcome.transition.state.subscription.status),
        outcome.source->cause));
  }
  if (heads.empty()) return absl::OkStatus();
  return tx.Execute(kAdvanceSinkStreams, heads.ToParams()).status();
}

bool Changed(const Outcome& outcome) {
  return outcome.transition.changed || !outcome.transition.events.empty();
}

}  // namespace

absl::StatusOr<std::vector<domain::OrderedFact>> LoadFacts(
    db::Transaction& tx, int64_t subscription_id) {
  ASSIGN_OR_RETURN(FactsById facts, LoadFactsOf(tx, {subscription_id}));
  return std::move(facts[subscription_id]);
}

absl::StatusOr<std::map<int64_t, LockedSubscription>> ReadLocked(
    db::Transaction& tx, const std::vector<int64_t>& ids,
    const std::set<int64_t>& new_rows) {
  std::map<int64_t, LockedSubscription> all;
  if (ids.empty()) return all;
  ASSIGN_OR_RETURN(const db::Result rows,
                   tx.Execute(kSelectLockedSubscriptions, db::MakeParams(ids)));
  // A plan's definition comes with the first of its rows.
  std::map<int64_t, domain::Plan> plans;
  std::vector<int64_t> unfolded;
  for (size_t i = 0; i < rows.size(); ++i) {
    const db::Row row = rows[i];
    const std::optional<std::string> definition =
        row.OptionalText("plan_in_force_definition");
    if (definition.has_value()) {
      const int64_t plan_id = row.Int64("plan_in_force_id");
      ASSIGN_OR_RETURN(
          plans[plan_id],
          MakePlan(plan_id, row.Text("plan_in_force"),
                   row.Int64("plan_in_force_revision"), *definition));
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const db::Row row = rows[i];
    ASSIGN_OR_RETURN(LockedSubscription locked, LockedFromRow(row));
    locked.plan = plans[row.Int64("plan_in_force_id")];
    if (new_rows.count(locked.id) == 0) {
      // A binary of another revision writes facts and row beside a sum that it
      // does not read; then, or without one, the facts are the truth.
      const bool has_fold =
          row.OptionalInt64("fold_state_revision") == domain::kFoldRevision &&
          locked.fold_revision == domain::kFoldRevision;
      if (!has_fold || !locked.fold.ParseFromString(row.Bytea("fold_state"))) {
        unfolded.push_back(locked.id);
      }
    }
    all.emplace(locked.id, std::move(locked));
  }
  RETURN_IF_ERROR(rows.status());
  if (all.size() < ids.size()) {
    return InternalError("a locked subscription vanished");
  }
  ASSIGN_OR_RETURN(FactsById facts, LoadFactsOf(tx, unfolded));
  for (const int64_t id : unfolded) {
    ASSIGN_OR_RETURN(all.at(id).fold, domain::FoldFacts(facts[id]));
  }
  for (auto& [id, locked] : all) {
    // The row holds the subject's id itself; the fold says 0 for the first one.
    locked.state.subscription.subject_id = locked.fold.subject_id();
  }
  return all;
}

absl::Status AddFacts(db::Transaction& tx,
                      absl::Span<SubscriptionChange> changes) {
  ASSIGN_OR_RETURN(std::vector<Pending> pending, InsertFacts(tx, changes));
  if (pending.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(AddUp(tx, pending));
  RETURN_IF_ERROR(StorePayments(tx, pending));
  std::vector<Outcome> outcomes;
  for (Pending& p : pending) {
    Outcome& outcome = outcomes.emplace_back();
    outcome.locked = p.change->locked;
    outcome.before = &p.before;
    outcome.after = std::move(p.after);
    outcome.source = &p.change->source;
    outcome.new_row = p.change->new_row;
  }
  RETURN_IF_ERROR(StoreOutcomes(tx, outcomes));
  std::set<int64_t> changed;
  for (const Outcome& outcome : outcomes) {
    if (Changed(outcome)) changed.insert(outcome.locked->id);
  }
  for (Pending& p : pending) {
    p.change->changed = changed.count(p.change->locked->id) != 0;
  }
  return absl::OkStatus();
}

absl::Status ReplaceFold(db::Transaction& tx, int64_t subscription_id,
                         const domain::FoldState& fold,
                         const domain::Projection& after) {
  db::RowArrays folds(3);
  folds.AddRow(subscription_id, domain::kFoldRevision,
               db::Bytes{fold.SerializeAsString()});
  RETURN_IF_ERROR(UpsertFolds(tx, folds));
  db::RowArrays updates(5);
  AddPaymentUpdates(subscription_id, fold, {}, after.terms, PaymentRows(),
                    updates);
  return UpdatePayments(tx, updates);
}

absl::StatusOr<bool> StoreOutcome(db::Transaction& tx,
                                  const LockedSubscription& locked,
                                  const domain::Projection& before,
                                  domain::Projection after,
                                  const Source& source) {
  std::vector<Outcome> outcomes(1);
  outcomes[0].locked = &locked;
  outcomes[0].before = &before;
  outcomes[0].after = std::move(after);
  outcomes[0].source = &source;
  RETURN_IF_ERROR(StoreOutcomes(tx, outcomes));
  return !outcomes.empty() && Changed(outcomes[0]);
}

}  // namespace tenure::store
