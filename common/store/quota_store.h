#ifndef TENURE_COMMON_STORE_QUOTA_STORE_H_
#define TENURE_COMMON_STORE_QUOTA_STORE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/db/connection.h"
#include "common/domain/fold.h"
#include "common/domain/plan.h"

namespace tenure::store {

// Writes the schedule of a locked subscription to what its terms bring, and
// releases what is due. `before`: the plans in force as they were known until
// now. `known` is any plan already at hand; others that were in force are
// loaded. `valid` is whether the subscription gives access now; without it
// everything pending is cancelled. `cause` is stored with the events.
absl::Status WriteQuotaSchedule(db::Transaction& tx, int64_t subscription_id,
                                const domain::Projection& projection,
                                const std::vector<domain::PlanInForce>& before,
                                const domain::Plan& known, bool valid,
                                absl::string_view cause);

struct ReleasedQuota {
  // PENDING rows that were due.
  int64_t due = 0;
  // Ledger rows written.
  int64_t released = 0;
};

// Releases what is due of the subscriptions that give access now; one that is
// locked elsewhere is passed by.
absl::StatusOr<ReleasedQuota> ReleaseDueQuota(
    db::Transaction& tx, const std::vector<int64_t>& subscription_ids,
    absl::string_view cause);

}  // namespace tenure::store

#endif  // TENURE_COMMON_STORE_QUOTA_STORE_H_
