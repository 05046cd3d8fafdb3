#ifndef TENURE_COMMON_STORE_FACT_STORE_H_
#define TENURE_COMMON_STORE_FACT_STORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/db/connection.h"
#include "common/domain/fold.h"
#include "common/domain/plan.h"
#include "common/domain/subscription.h"
#include "tenure/subscription/v1/fact.pb.h"

namespace tenure::store {

// Stores facts and moves the projection to what they add up to (R5). All
// functions work inside the caller's transaction and keep the lock order of
// R8: subject, prepaid chain, creation of the subscription, locks of
// subscriptions by ascending id, quota schedule, sink streams.

// A configured route as the database knows it.
struct Route {
  int64_t id = 0;
  std::string name;
  // "live" or "test".
  std::string environment;
};

// Facts of one event about one subscription, and how to find the subscription.
struct FactBatch {
  Route route;
  std::string account;
  std::string provider_subscription_id;
  std::string item_key;
  std::string customer_id;
  // As the event names it; empty when it does not.
  std::string subject;
  // What was bought; empty when the event does not say.
  std::string product_id;
  // The names that the payment may be known by, best first, when the facts are
  // about one and no provider_subscription_id is given; without any it is the
  // payment key of the facts.
  std::vector<std::string> payment_names;
  // The payment_order that the event settles; empty for none.
  std::string order_id;
  // The provider's id of the event (part of the facts' order), and the inbox
  // row.
  std::string event_id;
  int64_t provider_event_id = 0;
  std::vector<domain::Fact> facts;
};

// Where a batch goes.
struct Destination {
  // Set when the subscription exists; its row is then locked.
  std::optional<int64_t> subscription_id;
  // Set when it is to be created, or chosen from the prepaid chain.
  std::string subject;
  // Set when that is whom the customer is linked to.
  std::optional<int64_t> linked_subject_id;
  std::optional<domain::Plan> plan;
  // A single payment that stacks onto the subject's prepaid chain of the plan.
  bool prepaid = false;
  // Set when the facts cannot be applied yet; snake case, stored as the
  // event's reason: "no_subject", "unknown_plan", "unknown_subscription",
  // "unknown_payment", "unknown_order", "order_mismatch", "subject_conflict".
  std::string parked;
};

struct AppliedFacts {
  int64_t subscription_id = 0;
  // False when every fact was known already or changed nothing.
  bool changed = false;
};

// Finds the subscription (and locks it) or what is needed to create it.
absl::StatusOr<Destination> Resolve(db::Transaction& tx,
                                    const FactBatch& batch);

// Stores the facts of a resolved batch, adds them up, and writes row, history,
// outbox, payments and quota schedule; a period that is due is released with
// it. `destination.parked` is empty.
//
// What a fact needs from the catalogue (plan and revision, grace, the outcome
// of policies) is stamped here, when it is first stored, and never again.
absl::StatusOr<AppliedFacts> Apply(db::Transaction& tx, const FactBatch& batch,
                                   const Destination& destination);

// What became of one of several batches applied together.
struct BatchOutcome {
  AppliedFacts applied;
  // As Destination::parked; nothing was applied then.
  std::string parked;
  // Another transaction holds the subscription; nothing was applied.
  bool locked_elsewhere = false;
  bool subject_erased = false;
};

// True for what ApplyTogether takes: facts of a provider's own subscription
// that need no other row found by the name of a payment. The rest goes through
// Resolve and Apply.
bool CanApplyTogether(const FactBatch& batch);

// Resolve and Apply of several events in one transaction, in their order, with
// a few statements for all. A subscription that is locked elsewhere is passed
// by, so that it does not hold up the others. The outcomes are in the order of
// the batches.
absl::StatusOr<std::vector<BatchOutcome>> ApplyTogether(
    db::Transaction& tx, absl::Span<const FactBatch> batches);

// Says that a provider's customer is a subject, unless he is somebody already,
// and lets events look again that waited for it (C011). False when the link was
// there.
absl::StatusOr<bool> LinkCustomer(db::Transaction& tx, const Route& route,
                                  absl::string_view account,
                                  absl::string_view customer_id,
                                  const std::string& subject);

// Adds another name to a payment. False when it had it; nullopt when the
// payment is not known.
absl::StatusOr<std::optional<bool>> AddPaymentAlias(
    db::Transaction& tx, const Route& route, absl::string_view account,
    absl::string_view payment_key, absl::string_view alias);

// A subscription under its row lock.
struct LockedSubscription {
  int64_t id = 0;
  int64_t subject_id = 0;
  // Nothing that a provider says about an erased person is kept (D14).
  bool subject_erased = false;
  Route route;
  std::string account;
  bool prepaid = false;
  // The plan revision in force, also when no job has recorded its change yet.
  domain::Plan plan;
  domain::SubscriptionState state;
  // What its facts added up to before; folded anew when the stored sum is
  // another revision's.
  domain::FoldState fold;
  // Which fold's code wrote the row.
  int64_t fold_revision = 0;
  // The database's time, at which the row is judged.
  absl::Time now;
};

// NOT_FOUND (SUBSCRIPTION_NOT_FOUND) when there is none in this environment.
absl::StatusOr<LockedSubscription> LockSubscription(
    db::Transaction& tx, int64_t subscription_id,
    absl::string_view environment);

// Who asks for a change, and why; stored with every fact and event of it.
struct Author {
  // Idempotency key of the request; the facts' event id.
  std::string request_id;
  std::string actor;
  std::string reason;
};

// Adds facts of the internal layer to a locked subscription. Layer, order_at
// (the database's time, later than every internal fact before), ordinals and
// what the catalogue says are stamped here.
absl::StatusOr<AppliedFacts> ApplyInternal(db::Transaction& tx,
                                           const LockedSubscription& locked,
                                           std::vector<domain::Fact> facts,
                                           const Author& author);

// A subscription that an operator or another service gives.
struct NewGrant {
  std::string subject;
  domain::Plan plan;
  // "live" or "test".
  std::string environment;
  // The database's time when absent.
  std::optional<absl::Time> starts_at;
  // nullopt for lifetime, which the plan must allow.
  std::optional<absl::Time> expires_at;
  // Unique among grants of the environment when set: a second grant of the
  // same key is the first one's subscription (bulk import). Up to 255 bytes.
  std::string external_key;
};

// Creates the subscription on the route "internal" of the environment and adds
// its first term. `author.request_id` names the term.
absl::StatusOr<AppliedFacts> Grant(db::Transaction& tx, const NewGrant& grant,
                                   const Author& author);

// Applies to a locked row, as it stands, what time alone does (Lapse), with its
// events. What an operator changed by hand stays.
absl::StatusOr<AppliedFacts> LapseLocked(db::Transaction& tx,
                                         const LockedSubscription& locked,
                                         absl::string_view cause);

// Folds a locked row anew from all its facts and, when its plan has a later
// revision, moves it there by an internal PLAN_CHANGED; a plan that is still to
// come as well. True for a row without facts, which is left alone.
absl::StatusOr<bool> RefoldLocked(db::Transaction& tx,
                                  const LockedSubscription& locked,
                                  const Author& author);

// The id of a subject, made when it is new.
absl::StatusOr<int64_t> EnsureSubject(db::Transaction& tx,
                                      const std::string& external_id);

// Registers a route by name and returns it. FAILED_PRECONDITION when the name
// is already used with another kind or environment.
absl::StatusOr<Route> RegisterRoute(db::Transaction& tx, absl::string_view name,
                                    absl::string_view kind,
                                    absl::string_view environment);

}  // namespace tenure::store

#endif  // TENURE_COMMON_STORE_FACT_STORE_H_
