#ifndef TENURE_COMMON_STORE_SUBSCRIPTION_ROW_H_
#define TENURE_COMMON_STORE_SUBSCRIPTION_ROW_H_

#include "absl/status/statusor.h"
#include "common/db/params.h"
#include "common/db/result.h"
#include "common/domain/subscription.h"

namespace tenure::store {

// Reads the columns of table subscription that make up its state. INTERNAL for
// a status this binary does not know.
absl::StatusOr<domain::SubscriptionState> SubscriptionStateFromRow(
    const db::Row& row);

// A row of the parameters of update_subscriptions.sql.
db::Params ToParams(int64_t subscription_id,
                    const domain::SubscriptionState& state);

}  // namespace tenure::store

#endif  // TENURE_COMMON_STORE_SUBSCRIPTION_ROW_H_
