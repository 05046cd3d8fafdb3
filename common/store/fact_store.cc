#include "common/store/fact_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"
#include "common/store/statements.h"
#include "common/store/subscription_row.h"

namespace tenure::store {
namespace {

// A locked subscription row.
struct LockedRow {
  int64_t id = 0;
  domain::SubscriptionState state;
  std::string plan;
  int64_t plan_revision = 0;
  absl::Time now;
};

absl::StatusOr<std::optional<LockedRow>> LockByProviderKey(
    db::Transaction& tx, const FactBatch& batch) {
  ASSIGN_OR_RETURN(const db::Result rows,
                   tx.Execute(kLockSubscriptionByProviderKey,
                              db::MakeParams(batch.route.id, batch.account,
                                             batch.provider_subscription_id,
                                             batch.item_key)));
  if (rows.empty()) return std::nullopt;
  LockedRow locked;
  locked.id = rows[0].Int64("id");
  ASSIGN_OR_RETURN(locked.state, SubscriptionStateFromRow(rows[0]));
  locked.plan = rows[0].Text("plan");
  locked.plan_revision = rows[0].Int64("plan_revision");
  if (domain::IsLive(locked.state.subscription.status) &&
      rows[0].Bool("end_announced")) {
    // An operator brought the row back by hand: that is another life.
    ++locked.state.lifecycle.episode;
  }
  locked.now = rows[0].Time("now");
  RETURN_IF_ERROR(rows.status());
  return locked;
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
      RETURN_IF_ERROR(linked.status());
      if (!batch.subject.empty() && batch.subject != subject) {
        *parked = "subject_conflict";
      }
      return subject;
    }
  }
  if (!ValidateText("subject", batch.subject, 255).ok()) *parked = "no_subject";
  return batch.subject;
}

absl::StatusOr<int64_t> SubjectId(db::Transaction& tx,
                                  const std::string& subject) {
  // Second round: ours was inserted, or another transaction's is visible now.
  for (int round = 0; round < 2; ++round) {
    ASSIGN_OR_RETURN(const db::Result found,
                     tx.Execute(kSelectSubjectId, db::MakeParams(subject)));
    if (!found.empty()) return found[0].Int64("id");
    RETURN_IF_ERROR(
        tx.Execute(kInsertSubject, db::MakeParams(subject)).status());
  }
  ASSIGN_OR_RETURN(const db::Result found,
                   tx.Execute(kSelectSubjectId, db::MakeParams(subject)));
  if (found.empty()) return InternalError("a subject vanished");
  return found[0].Int64("id");
}

absl::Status Create(db::Transaction& tx, const FactBatch& batch,
                    const Destination& destination) {
  ASSIGN_OR_RETURN(const int64_t subject_id,
                   SubjectId(tx, destination.subject));
  return tx
      .Execute(kInsertSubscription,
               db::MakeParams(subject_id, destination.plan_id,
                              batch.route.environment, batch.route.id,
                              batch.account, batch.provider_subscription_id,
                              batch.item_key, domain::kFoldRevision))
      .status();
}

absl::StatusOr<size_t> StoreFacts(db::Transaction& tx, const FactBatch& batch,
                                  const LockedRow& row) {
  size_t stored = 0;
  for (size_t i = 0; i < batch.facts.size(); ++i) {
    domain::Fact fact = batch.facts[i];
    fact.set_ordinal(static_cast<int32_t>(i));
    fact.set_plan_revision(row.plan_revision);
    ASSIGN_OR_RETURN(const domain::OrderedFact ordered,
                     domain::MakeOrderedFact(batch.event_id, fact));
    ASSIGN_OR_RETURN(
        const db::Result inserted,
        tx.Execute(kInsertSubscriptionFact,
                   db::MakeParams(row.id, static_cast<int>(fact.layer()),
                                  ordered.order.order_at, ordered.order.rank,
                                  batch.event_id, ordered.order.ordinal,
                                  domain::KindName(fact.kind_case()),
                                  domain::MoneyKey(fact), row.plan_revision,
                                  db::Bytes{fact.SerializeAsString()},
                                  batch.provider_event_id)));
    stored += inserted.affected_rows();
  }
  return stored;
}

absl::StatusOr<std::vector<domain::OrderedFact>> LoadFacts(
    db::Transaction& tx, int64_t subscription_id) {
  ASSIGN_OR_RETURN(
      const db::Result rows,
      tx.Execute(kSelectSubscriptionFacts, db::MakeParams(subscription_id)));
  std::vector<domain::OrderedFact> facts;
  facts.reserve(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    domain::Fact fact;
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

absl::Status StorePayments(db::Transaction& tx, const FactBatch& batch,
                           int64_t subscription_id, int term_no) {
  for (const domain::Fact& fact : batch.facts) {
    if (!fact.has_paid()) continue;
    const auto& paid = fact.paid();
    ASSIGN_OR_RETURN(const absl::Time paid_at,
                     FromProto("paid_at", paid.paid_at()));
    ASSIGN_OR_RETURN(const absl::Time from,
                     FromProto("period_starts_at", paid.period_starts_at()));
    ASSIGN_OR_RETURN(const absl::Time to,
                     FromProto("period_ends_at", paid.period_ends_at()));
    RETURN_IF_ERROR(
        tx.Execute(
              kInsertPayment,
              db::MakeParams(batch.route.id, batch.account, paid.payment_key(),
                             subscription_id, term_no, paid.amount_minor(),
                             paid.currency(), paid_at, from, to))
            .status());
    for (const std::string& alias : paid.aliases()) {
      RETURN_IF_ERROR(tx.Execute(kInsertPaymentAlias,
                                 db::MakeParams(batch.route.id, batch.account,
                                                alias, paid.payment_key()))
                          .status());
    }
  }
  return absl::OkStatus();
}

absl::Status StoreTransition(db::Transaction& tx, const FactBatch& batch,
                             int64_t subscription_id,
                             const domain::Transition& transition) {
  RETURN_IF_ERROR(tx.Execute(kUpdateSubscription,
                             ToParams(subscription_id, transition.state))
                      .status());
  for (const domain::DomainEvent& event : transition.events) {
    RETURN_IF_ERROR(
        tx.Execute(
              kInsertSubscriptionEvent,
              db::MakeParams(
                  subscription_id, event.seq, event.type, event.episode,
                  event.effective_at, event.access_until,
                  absl::StrCat("provider_event:", batch.provider_event_id)))
            .status());
  }
  if (!domain::IsLive(transition.state.subscription.status)) {
    RETURN_IF_ERROR(
        tx.Execute(kCancelPendingReleases, db::MakeParams(subscription_id))
            .status());
  }
  if (transition.events.empty()) return absl::OkStatus();
  return tx
      .Execute(
          kAdvanceSinkStreams,
          db::MakeParams(subscription_id, transition.state.lifecycle.event_seq))
      .status();
}

}  // namespace

absl::StatusOr<Destination> Resolve(db::Transaction& tx,
                                    const FactBatch& batch) {
  Destination destination;
  ASSIGN_OR_RETURN(const std::optional<LockedRow> row,
                   LockByProviderKey(tx, batch));
  if (row.has_value()) {
    destination.subscription_id = row->id;
    if (batch.product_id.empty()) return destination;
    ASSIGN_OR_RETURN(
        const db::Result bought,
        tx.Execute(kSelectPlanOfProduct,
                   db::MakeParams(batch.route.name, batch.product_id)));
    if (bought.empty() || bought[0].Text("name") != row->plan) {
      destination.remark = "plan_differs";
    }
    RETURN_IF_ERROR(bought.status());
    return destination;
  }
  ASSIGN_OR_RETURN(destination.subject,
                   FindSubject(tx, batch, &destination.parked));
  if (!destination.parked.empty()) return destination;
  ASSIGN_OR_RETURN(
      const db::Result plan,
      tx.Execute(kSelectPlanOfProduct,
                 db::MakeParams(batch.route.name, batch.product_id)));
  if (plan.empty()) {
    destination.parked = "unknown_plan";
    return destination;
  }
  destination.plan_id = plan[0].Int64("id");
  RETURN_IF_ERROR(plan.status());
  return destination;
}

absl::StatusOr<AppliedFacts> Apply(db::Transaction& tx, const FactBatch& batch,
                                   const Destination& destination) {
  if (!destination.subscription_id.has_value()) {
    RETURN_IF_ERROR(Create(tx, batch, destination));
  }
  // Once more even when Resolve locked it: an earlier batch of the same event
  // may have moved the row.
  ASSIGN_OR_RETURN(const std::optional<LockedRow> row,
                   LockByProviderKey(tx, batch));
  if (!row.has_value()) return InternalError("a subscription vanished");

  AppliedFacts applied;
  applied.subscription_id = row->id;
  ASSIGN_OR_RETURN(const size_t stored, StoreFacts(tx, batch, *row));
  if (stored == 0) return applied;
  ASSIGN_OR_RETURN(const std::vector<domain::OrderedFact> facts,
                   LoadFacts(tx, row->id));
  ASSIGN_OR_RETURN(const domain::Subscription folded, domain::Fold(facts));
  RETURN_IF_ERROR(StorePayments(tx, batch, row->id, folded.term_no));
  const domain::Transition transition =
      domain::Advance(row->state, folded, row->now);
  if (!transition.changed) return applied;
  RETURN_IF_ERROR(StoreTransition(tx, batch, row->id, transition));
  applied.changed = true;
  return applied;
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
