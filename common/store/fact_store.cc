#include "common/store/fact_store.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"
#include "common/store/catalog_store.h"
#include "common/store/quota_store.h"
#include "common/store/statements.h"
#include "common/store/subscription_changes.h"

namespace tenure::store {
namespace {

using domain::Fact;

// The row of a subscription whose lock is held. `new_row`: nothing was stored
// about it yet.
absl::StatusOr<LockedSubscription> ReadLocked(db::Transaction& tx, int64_t id,
                                              bool new_row = false) {
  using Rows = std::map<int64_t, LockedSubscription>;
  ASSIGN_OR_RETURN(Rows rows,
                   store::ReadLocked(
                       tx, {id}, new_row ? std::set{id} : std::set<int64_t>{}));
  return std::move(rows.at(id));
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

// Whom a customer is linked to.
struct LinkedSubject {
  int64_t id = 0;
  std::string external_id;
  bool erased = false;
};

// An explicit link wins; metadata that contradicts it is nobody's guess.
std::string ChooseSubject(const FactBatch& batch,
                          const std::optional<LinkedSubject>& linked,
                          std::string* parked) {
  if (linked.has_value()) {
    // Events go on naming an erased person as before; nobody is made anew.
    if (!linked->erased && !batch.subject.empty() &&
        batch.subject != linked->external_id) {
      *parked = "subject_conflict";
    }
    return linked->external_id;
  }
  if (!ValidateText("subject", batch.subject, 255).ok()) *parked = "no_subject";
  return batch.subject;
}

absl::Status FindSubject(db::Transaction& tx, const FactBatch& batch,
                         Destination* destination) {
  std::optional<LinkedSubject> linked;
  if (!batch.customer_id.empty()) {
    ASSIGN_OR_RETURN(const db::Result rows,
                     tx.Execute(kSelectLinkedSubject,
                                db::MakeParams(batch.route.id, batch.account,
                                               batch.customer_id)));
    if (!rows.empty()) {
      linked = LinkedSubject{rows[0].Int64("id"), rows[0].Text("external_id"),
                             rows[0].Bool("erased")};
      RETURN_IF_ERROR(rows.status());
      destination->linked_subject_id = linked->id;
    }
  }
  destination->subject = ChooseSubject(batch, linked, &destination->parked);
  return absl::OkStatus();
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

absl::StatusOr<AppliedFacts> AddFacts(db::Transaction& tx,
                                      const LockedSubscription& locked,
                                      std::vector<Fact> facts, Source source,
                                      bool new_row) {
  SubscriptionChange change;
  change.locked = &locked;
  change.new_row = new_row;
  change.facts = std::move(facts);
  change.source = std::move(source);
  RETURN_IF_ERROR(store::AddFacts(tx, absl::MakeSpan(&change, 1)));
  AppliedFacts applied;
  applied.subscription_id = locked.id;
  applied.changed = change.changed;
  return applied;
}

// A subscription by its provider's names.
using ProviderKey = std::tuple<int64_t, std::string, std::string, std::string>;

ProviderKey ProviderKeyOf(const FactBatch& batch) {
  return {batch.route.id, batch.account, batch.provider_subscription_id,
          batch.item_key};
}

// Rows to be created, PENDING until their facts are added.
class NewSubscriptions {
 public:
  void Add(int64_t subject_id, int64_t plan_id, const Route& route,
           absl::string_view account,
           absl::string_view provider_subscription_id,
           absl::string_view item_key) {
    rows_.AddRow(subject_id, plan_id, route.environment, route.id, account,
                 provider_subscription_id, item_key);
  }

  // The ids of the new rows; those that are there already have none.
  absl::StatusOr<std::map<ProviderKey, int64_t>> Insert(db::Transaction& tx,
                                                        bool prepaid) const {
    std::map<ProviderKey, int64_t> ids;
    if (rows_.empty()) return ids;
    db::Params params = rows_.ToParams();
    params.Add(domain::kFoldRevision).Add(prepaid);
    ASSIGN_OR_RETURN(const db::Result rows,
                     tx.Execute(kInsertSubscriptions, params));
    for (size_t i = 0; i < rows.size(); ++i) {
      ids[{rows[i].Int64("route_id"), rows[i].Text("account"),
           rows[i].OptionalText("provider_subscription_id").value_or(""),
           rows[i].Text("item_key")}] = rows[i].Int64("id");
    }
    RETURN_IF_ERROR(rows.status());
    return ids;
  }

 private:
  db::RowArrays rows_{7};
};

// The id of the new row, or nullopt when there was one already.
absl::StatusOr<std::optional<int64_t>> InsertSubscription(
    db::Transaction& tx, int64_t subject_id, int64_t plan_id,
    const Route& route, absl::string_view account,
    absl::string_view provider_subscription_id, absl::string_view item_key,
    bool prepaid) {
  NewSubscriptions row;
  row.Add(subject_id, plan_id, route, account, provider_subscription_id,
          item_key);
  using Ids = std::map<ProviderKey, int64_t>;
  ASSIGN_OR_RETURN(const Ids ids, row.Insert(tx, prepaid));
  if (ids.empty()) return std::nullopt;
  return ids.begin()->second;
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

// Locks the subjects of links against erasure; one whose erasure was waited for
// is locked as well.
absl::Status ShareSubjects(db::Transaction& tx, const std::set<int64_t>& ids) {
  if (ids.empty()) return absl::OkStatus();
  return tx
      .Execute(kShareSubjectsById,
               db::MakeParams(std::vector<int64_t>(ids.begin(), ids.end())))
      .status();
}

// The subject of a destination that has no subscription yet.
absl::StatusOr<int64_t> SubjectOf(db::Transaction& tx,
                                  const Destination& destination) {
  if (!destination.linked_subject_id.has_value()) {
    return EnsureSubject(tx, destination.subject);
  }
  RETURN_IF_ERROR(ShareSubjects(tx, {*destination.linked_subject_id}));
  return *destination.linked_subject_id;
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
  ASSIGN_OR_RETURN(const int64_t subject_id, SubjectOf(tx, destination));
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

// The ids of subjects, made where they are new.
absl::StatusOr<std::map<std::string, int64_t>> EnsureSubjects(
    db::Transaction& tx, const std::set<std::string>& external_ids) {
  std::map<std::string, int64_t> ids;
  // In the second round ours were inserted, or another transaction's are
  // visible now; in the third they must be there.
  for (int round = 0; round < 3; ++round) {
    std::vector<std::string> missing;
    for (const std::string& external_id : external_ids) {
      if (ids.count(external_id) == 0) missing.push_back(external_id);
    }
    if (missing.empty()) return ids;
    if (round > 0) {
      RETURN_IF_ERROR(
          tx.Execute(kInsertSubjects, db::MakeParams(missing)).status());
    }
    ASSIGN_OR_RETURN(const db::Result rows,
                     tx.Execute(kShareSubjects, db::MakeParams(missing)));
    for (size_t i = 0; i < rows.size(); ++i) {
      ids[rows[i].Text("external_id")] = rows[i].Int64("id");
    }
    RETURN_IF_ERROR(rows.status());
  }
  if (ids.size() < external_ids.size()) {
    return InternalError("a subject vanished");
  }
  return ids;
}

// ---- several events together ----

// One of several batches on its way.
struct Routed {
  const FactBatch* batch = nullptr;
  BatchOutcome* outcome = nullptr;
  std::optional<int64_t> subscription_id;
  std::optional<LinkedSubject> linked;
  std::string subject;
  std::optional<domain::Plan> plan;
};

absl::Status FindPlans(db::Transaction& tx, std::vector<Routed>& all) {
  const auto key = [](const Routed& routed) {
    return ProductKey(routed.batch->route.name, routed.batch->product_id);
  };
  std::set<ProductKey> products;
  for (const Routed& routed : all) {
    if (!routed.batch->product_id.empty()) products.insert(key(routed));
  }
  using Plans = std::map<ProductKey, domain::Plan>;
  ASSIGN_OR_RETURN(const Plans plans, FindPlansOfProducts(tx, products));
  for (Routed& routed : all) {
    const auto plan = plans.find(key(routed));
    if (plan != plans.end()) routed.plan = plan->second;
  }
  return absl::OkStatus();
}

absl::Status FindDestinations(db::Transaction& tx,
                              std::vector<Routed*> routed) {
  db::RowArrays keys(6);
  for (size_t i = 0; i < routed.size(); ++i) {
    const FactBatch& batch = *routed[i]->batch;
    keys.AddRow(static_cast<int64_t>(i), batch.route.id, batch.account,
                batch.provider_subscription_id, batch.item_key,
                batch.customer_id);
  }
  ASSIGN_OR_RETURN(const db::Result rows,
                   tx.Execute(kSelectDestinations, keys.ToParams()));
  for (size_t i = 0; i < rows.size(); ++i) {
    Routed& to = *routed[static_cast<size_t>(rows[i].Int64("n"))];
    to.subscription_id = rows[i].OptionalInt64("subscription_id");
    const auto linked = rows[i].OptionalText("linked_subject");
    if (linked.has_value()) {
      to.linked = LinkedSubject{rows[i].Int64("linked_subject_id"), *linked,
                                rows[i].Bool("erased")};
    }
  }
  return rows.status();
}

// As Resolve decides for one.
void Park(Routed& routed) {
  const FactBatch& batch = *routed.batch;
  std::string& parked = routed.outcome->parked;
  if (routed.subscription_id.has_value()) {
    const bool needs_plan =
        std::any_of(batch.facts.begin(), batch.facts.end(), NamesPlan) &&
        !batch.product_id.empty();
    if (!needs_plan) {
      routed.plan.reset();
    } else if (!routed.plan.has_value()) {
      parked = "unknown_plan";
    }
    return;
  }
  routed.subject = ChooseSubject(batch, routed.linked, &parked);
  if (!parked.empty()) return;
  if (batch.product_id.empty()) {
    parked = "unknown_subscription";
  } else if (!routed.plan.has_value()) {
    parked = "unknown_plan";
  }
}

// Creates the subscriptions that are not there yet; `created` gets their ids.
absl::Status Create(db::Transaction& tx, std::vector<Routed>& all,
                    std::set<int64_t>* created) {
  std::vector<Routed*> to_create;
  std::set<std::string> subjects;
  std::set<int64_t> linked;
  for (Routed& routed : all) {
    // A row is what its facts add up to: none, no row.
    if (routed.subscription_id.has_value() || !routed.outcome->parked.empty() ||
        routed.batch->facts.empty()) {
      continue;
    }
    to_create.push_back(&routed);
    if (routed.linked.has_value()) {
      linked.insert(routed.linked->id);
    } else {
      subjects.insert(routed.subject);
    }
  }
  if (to_create.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(ShareSubjects(tx, linked));
  using SubjectIds = std::map<std::string, int64_t>;
  ASSIGN_OR_RETURN(const SubjectIds ids, EnsureSubjects(tx, subjects));
  NewSubscriptions rows;
  std::set<ProviderKey> keys;
  for (const Routed* routed : to_create) {
    const FactBatch& batch = *routed->batch;
    if (!keys.insert(ProviderKeyOf(batch)).second) continue;
    rows.Add(routed->linked.has_value() ? routed->linked->id
                                        : ids.at(routed->subject),
             routed->plan->id, batch.route, batch.account,
             batch.provider_subscription_id, batch.item_key);
  }
  using SubscriptionIds = std::map<ProviderKey, int64_t>;
  ASSIGN_OR_RETURN(const SubscriptionIds made,
                   rows.Insert(tx, /*prepaid=*/false));
  std::vector<Routed*> known;
  for (Routed* routed : to_create) {
    const auto id = made.find(ProviderKeyOf(*routed->batch));
    if (id == made.end()) {
      // A concurrent first event was faster.
      known.push_back(routed);
      continue;
    }
    routed->subscription_id = id->second;
    created->insert(id->second);
  }
  if (!known.empty()) {
    RETURN_IF_ERROR(FindDestinations(tx, known));
    for (const Routed* routed : known) {
      if (!routed->subscription_id) {
        return InternalError("a subscription vanished");
      }
    }
  }
  // Events of one purchase come together: what had no subscription before may
  // have one now.
  std::map<ProviderKey, int64_t> now_there;
  for (const Routed* routed : to_create) {
    now_there[ProviderKeyOf(*routed->batch)] = *routed->subscription_id;
  }
  for (Routed& routed : all) {
    if (routed.outcome->parked.empty() || routed.subscription_id) continue;
    const auto id = now_there.find(ProviderKeyOf(*routed.batch));
    if (id == now_there.end()) continue;
    routed.subscription_id = id->second;
    routed.outcome->parked.clear();
    Park(routed);
  }
  return absl::OkStatus();
}

// Locks what is to be written, and leaves those out that others hold.
absl::StatusOr<std::vector<Routed*>> LockDestinations(
    db::Transaction& tx, std::vector<Routed>& all,
    const std::set<int64_t>& created) {
  std::set<int64_t> wanted;
  for (const Routed& routed : all) {
    if (routed.outcome->parked.empty() && routed.subscription_id.has_value() &&
        created.count(*routed.subscription_id) == 0) {
      wanted.insert(*routed.subscription_id);
    }
  }
  std::set<int64_t> held = created;
  if (!wanted.empty()) {
    ASSIGN_OR_RETURN(
        const db::Result rows,
        tx.Execute(kLockSubscriptions, db::MakeParams(std::vector<int64_t>(
                                           wanted.begin(), wanted.end()))));
    for (size_t i = 0; i < rows.size(); ++i) held.insert(rows[i].Int64("id"));
    RETURN_IF_ERROR(rows.status());
  }
  std::vector<Routed*> locked;
  for (Routed& routed : all) {
    if (!routed.outcome->parked.empty() || !routed.subscription_id) continue;
    routed.outcome->applied.subscription_id = *routed.subscription_id;
    if (held.count(*routed.subscription_id) == 0) {
      routed.outcome->locked_elsewhere = true;
    } else {
      locked.push_back(&routed);
    }
  }
  return locked;
}

// Applies the first batch of each subscription and leaves the others.
absl::Status ApplyFirstOfEach(db::Transaction& tx,
                              const std::set<int64_t>& new_rows,
                              std::vector<Routed*>& left) {
  std::vector<Routed*> now, later;
  std::vector<int64_t> ids;
  std::set<int64_t> seen;
  for (Routed* routed : left) {
    if (seen.insert(*routed->subscription_id).second) {
      now.push_back(routed);
      ids.push_back(*routed->subscription_id);
    } else {
      later.push_back(routed);
    }
  }
  using Rows = std::map<int64_t, LockedSubscription>;
  ASSIGN_OR_RETURN(const Rows rows, store::ReadLocked(tx, ids, new_rows));
  std::vector<SubscriptionChange> changes;
  changes.reserve(now.size());
  for (const Routed* routed : now) {
    const LockedSubscription& locked = rows.at(*routed->subscription_id);
    SubscriptionChange& change = changes.emplace_back();
    change.locked = &locked;
    change.new_row = new_rows.count(locked.id) != 0;
    change.source = SourceOf(*routed->batch);
    ASSIGN_OR_RETURN(change.facts, StampedFacts(tx, *routed->batch,
                                                routed->plan, locked.plan));
    routed->outcome->subject_erased = locked.subject_erased;
  }
  RETURN_IF_ERROR(store::AddFacts(tx, absl::MakeSpan(changes)));
  for (size_t i = 0; i < now.size(); ++i) {
    now[i]->outcome->applied.changed = changes[i].changed;
  }
  left = std::move(later);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> EnsureSubject(db::Transaction& tx,
                                      const std::string& external_id) {
  using Ids = std::map<std::string, int64_t>;
  ASSIGN_OR_RETURN(const Ids ids, EnsureSubjects(tx, {external_id}));
  return ids.at(external_id);
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
  RETURN_IF_ERROR(FindSubject(tx, batch, &destination));
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
    ASSIGN_OR_RETURN(const int64_t subject_id, SubjectOf(tx, destination));
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

bool CanApplyTogether(const FactBatch& batch) {
  const auto stands_alone = [](const Fact& fact) {
    switch (fact.kind_case()) {
      case Fact::kPaid:
        // A single payment's term lies where the chain puts it.
        return fact.paid().has_period_starts_at();
      case Fact::kRefunded:
      case Fact::kDisputeOpened:
      case Fact::kDisputeClosed:
        // Their payment is found by any of its names.
        return false;
      case Fact::kTransferred:
        // Locks another subject.
        return false;
      default:
        return true;
    }
  };
  return !batch.provider_subscription_id.empty() && batch.order_id.empty() &&
         batch.payment_names.empty() &&
         std::all_of(batch.facts.begin(), batch.facts.end(), stands_alone);
}

absl::StatusOr<std::vector<BatchOutcome>> ApplyTogether(
    db::Transaction& tx, absl::Span<const FactBatch> batches) {
  std::vector<BatchOutcome> outcomes(batches.size());
  if (batches.empty()) return outcomes;
  std::vector<Routed> all(batches.size());
  std::vector<Routed*> pointers;
  for (size_t i = 0; i < batches.size(); ++i) {
    all[i].batch = &batches[i];
    all[i].outcome = &outcomes[i];
    pointers.push_back(&all[i]);
  }
  RETURN_IF_ERROR(FindPlans(tx, all));
  RETURN_IF_ERROR(FindDestinations(tx, pointers));
  for (Routed& routed : all) Park(routed);
  std::set<int64_t> created;
  RETURN_IF_ERROR(Create(tx, all, &created));
  ASSIGN_OR_RETURN(std::vector<Routed*> left,
                   LockDestinations(tx, all, created));
  while (!left.empty()) {
    RETURN_IF_ERROR(ApplyFirstOfEach(tx, created, left));
    created.clear();
  }
  return outcomes;
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
  db::RowArrays names(4);
  names.AddRow(route.id, account, alias, payment->payment_key);
  ASSIGN_OR_RETURN(const db::Result inserted,
                   tx.Execute(kInsertPaymentAliases, names.ToParams()));
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
                   StoreOutcome(tx, locked, folded, as_it_stands, source));
  return applied;
}

absl::StatusOr<bool> RefoldLocked(db::Transaction& tx,
                                  const LockedSubscription& locked,
                                  const Author& author) {
  ASSIGN_OR_RETURN(const std::vector<domain::OrderedFact> facts,
                   LoadFacts(tx, locked.id));
  if (facts.empty()) return true;
  ASSIGN_OR_RETURN(const domain::FoldState fold, domain::FoldFacts(facts));
  const domain::Projection after = domain::Project(fold);
  RETURN_IF_ERROR(ReplaceFold(tx, locked.id, fold, after));
  RETURN_IF_ERROR(StoreOutcome(tx, locked, domain::Project(locked.fold), after,
                               SourceOf(author))
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
