#ifndef TENURE_COMMON_STORE_SUBSCRIPTION_STORE_H_
#define TENURE_COMMON_STORE_SUBSCRIPTION_STORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/db/pool.h"
#include "common/domain/subscription.h"

namespace tenure::store {

// A subscription with the names behind its ids.
struct StoredSubscription {
  int64_t id = 0;
  int64_t subject_id = 0;
  std::string subject;
  bool subject_erased = false;
  std::string plan;
  // Empty when no change is scheduled.
  std::string next_plan;
  std::string route;
  // "live" or "test".
  std::string environment;
  std::string provider_subscription_id;
  std::optional<absl::Time> access_until;
  bool prepaid = false;
  bool needs_reconcile = false;
  int64_t version = 0;
  domain::SubscriptionState state;
};

// Reads the columns of select_subscription.sql, which other queries repeat.
absl::StatusOr<StoredSubscription> StoredSubscriptionFromRow(
    const db::Row& row);

// As it is inside a transaction. NOT_FOUND (SUBSCRIPTION_NOT_FOUND) when there
// is none in this environment.
absl::StatusOr<StoredSubscription> LoadSubscription(
    db::Transaction& tx, int64_t id, absl::string_view environment);

// Which of a subject's subscriptions, and where the page begins.
struct SubscriptionFilter {
  std::string subject;
  // Below this id only, when set.
  std::optional<int64_t> before_id = std::nullopt;
  // Only rows that are live and whose end is not reached (S4-19).
  bool active_only = false;
  // Empty for all.
  std::string plan = {};
};

// Reads subscriptions of one environment (R15). Thread-safe.
class SubscriptionStore {
 public:
  SubscriptionStore(db::Pool& pool, std::string environment)
      : pool_(pool), environment_(std::move(environment)) {}

  // NOT_FOUND (SUBSCRIPTION_NOT_FOUND) when there is none.
  absl::StatusOr<StoredSubscription> Get(int64_t id);

  // Newest first, at most `limit`.
  absl::StatusOr<std::vector<StoredSubscription>> ListOfSubject(
      const SubscriptionFilter& filter, int limit);

 private:
  db::Pool& pool_;
  const std::string environment_;
};

}  // namespace tenure::store

#endif  // TENURE_COMMON_STORE_SUBSCRIPTION_STORE_H_
