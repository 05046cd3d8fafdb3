#ifndef TENURE_COMMON_STORE_FACT_STORE_H_
#define TENURE_COMMON_STORE_FACT_STORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/db/connection.h"
#include "common/domain/fold.h"
#include "tenure/subscription/v1/fact.pb.h"

namespace tenure::store {

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
  // Set when it is to be created.
  std::string subject;
  int64_t plan_id = 0;
  // Set when the facts cannot be applied yet; snake case, stored as the
  // event's reason: "no_subject", "unknown_plan", "subject_conflict".
  std::string parked;
  // What the facts contradict without being wrong, stored as the applied
  // event's reason: "plan_differs", when the money was for another plan than
  // the subscription has. The plan stays: changing it is a fact of its own.
  std::string remark;
};

struct AppliedFacts {
  int64_t subscription_id = 0;
  // False when every fact was known already or changed nothing.
  bool changed = false;
};

// Stores facts and moves the projection to what they add up to. All functions
// work inside the caller's transaction and keep the lock order of R8: subject,
// creation of the subscription, lock of the subscription.

// Finds the subscription (and locks it) or what is needed to create it.
absl::StatusOr<Destination> Resolve(db::Transaction& tx,
                                    const FactBatch& batch);

// Stores the facts of a resolved batch, folds all facts of the subscription,
// and writes row, history, outbox and payments. `destination.parked` is empty.
absl::StatusOr<AppliedFacts> Apply(db::Transaction& tx, const FactBatch& batch,
                                   const Destination& destination);

// Registers a route by name and returns it. FAILED_PRECONDITION when the name
// is already used with another kind or environment.
absl::StatusOr<Route> RegisterRoute(db::Transaction& tx, absl::string_view name,
                                    absl::string_view kind,
                                    absl::string_view environment);

}  // namespace tenure::store

#endif  // TENURE_COMMON_STORE_FACT_STORE_H_
