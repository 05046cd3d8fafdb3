#ifndef TENURE_COMMON_STORE_SUBSCRIPTION_STORE_H_
#define TENURE_COMMON_STORE_SUBSCRIPTION_STORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/db/pool.h"
#include "common/domain/subscription.h"

namespace tenure::store {

// A subscription with the names behind its ids.
struct StoredSubscription {
  int64_t id = 0;
  std::string subject;
  std::string plan;
  std::string route;
  // "live" or "test".
  std::string environment;
  std::string provider_subscription_id;
  std::optional<absl::Time> access_until;
  domain::SubscriptionState state;
};

// Reads subscriptions. Thread-safe.
class SubscriptionStore {
 public:
  explicit SubscriptionStore(db::Pool& pool) : pool_(pool) {}

  // NOT_FOUND (SUBSCRIPTION_NOT_FOUND) when there is none.
  absl::StatusOr<StoredSubscription> Get(int64_t id);

  // Newest first; those with an id below `before_id` only, when set.
  absl::StatusOr<std::vector<StoredSubscription>> ListOfSubject(
      absl::string_view subject, std::optional<int64_t> before_id, int limit);

 private:
  db::Pool& pool_;
};

}  // namespace tenure::store

#endif  // TENURE_COMMON_STORE_SUBSCRIPTION_STORE_H_
