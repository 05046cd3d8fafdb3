#ifndef TENURE_SERVICES_SCHEDULER_EXPIRY_STORE_H_
#define TENURE_SERVICES_SCHEDULER_EXPIRY_STORE_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/db/pool.h"

namespace tenure::scheduler {

// Where a pass over the due rows stands: everything up to and including this
// (access_until, id) was seen in the pass.
struct ExpiryCursor {
  absl::Time access_until = absl::FromUnixSeconds(-62135596800);  // year 1
  int64_t id = 0;
};

struct ExpiredBatch {
  // Due rows that were claimed, and those of them that became EXPIRED.
  int64_t found = 0;
  int64_t expired = 0;
  ExpiryCursor last;
};

// The sweep's one statement. Thread-safe; several processes take disjoint
// batches.
class ExpiryStore {
 public:
  explicit ExpiryStore(db::Pool& pool) : pool_(pool) {}

  // Claims at most `limit` due rows behind `after` that nobody else holds, and
  // records their end with event, outbox and cancelled releases, in one
  // transaction.
  absl::StatusOr<ExpiredBatch> ExpireDue(const ExpiryCursor& after,
                                         int64_t limit);

  // The first due row behind `after`, held by somebody or not; nullopt when
  // there is none.
  absl::StatusOr<std::optional<ExpiryCursor>> NextDue(
      const ExpiryCursor& after);

 private:
  db::Pool& pool_;
};

}  // namespace tenure::scheduler

#endif  // TENURE_SERVICES_SCHEDULER_EXPIRY_STORE_H_
