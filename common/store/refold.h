#ifndef TENURE_COMMON_STORE_REFOLD_H_
#define TENURE_COMMON_STORE_REFOLD_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/db/pool.h"
#include "common/store/fact_store.h"

namespace tenure::store {

// Folds subscriptions anew from their facts, with the present code, and moves
// them to the latest revision of their plan: the only way in which a change of
// fold code or catalogue touches rows that nothing else touches (R5).

// One column of a row, before and after, as PostgreSQL prints it in JSON.
struct RefoldDifference {
  std::string column;
  std::string before;
  std::string after;
};

struct RefoldedSubscription {
  int64_t id = 0;
  std::string subject;
  // Empty when the row is what its facts say.
  std::vector<RefoldDifference> differences;
  // It has no facts: it was written by hand, and is left alone.
  bool without_facts = false;
  // Why it could not be folded; OK otherwise. It is left as it is.
  absl::Status status;
};

enum class RefoldMode {
  // Says what would change, and writes nothing.
  kDiff,
  kWrite,
};

struct RefoldScope {
  // Empty for all plans.
  std::string plan;
  // "live" or "test".
  std::string environment;
  // Only ids above this: where an earlier run ended.
  int64_t after_id = 0;
};

struct RefoldTotals {
  int64_t examined = 0;
  int64_t different = 0;
  int64_t without_facts = 0;
  int64_t failed = 0;
  // The last id that was examined.
  int64_t last_id = 0;
};

// Goes through the scope by ascending id, one transaction a subscription, and
// tells `report` of each that differs, has no facts or failed. Ends early with
// what `report` returns when that is an error. Safe beside running services and
// may be repeated. NOT_FOUND for a plan that the catalogue does not have.
absl::StatusOr<RefoldTotals> Refold(
    db::Pool& pool, const RefoldScope& scope, RefoldMode mode,
    const Author& author,
    const std::function<absl::Status(const RefoldedSubscription&)>& report);

}  // namespace tenure::store

#endif  // TENURE_COMMON_STORE_REFOLD_H_
