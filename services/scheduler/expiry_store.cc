#include "services/scheduler/expiry_store.h"

#include "common/base/status_macros.h"
#include "services/scheduler/statements.h"

namespace tenure::scheduler {

absl::StatusOr<ExpiredBatch> ExpiryStore::ExpireDue(const ExpiryCursor& after,
                                                    int64_t limit) {
  ExpiredBatch batch;
  batch.last = after;
  RETURN_IF_ERROR(
      pool_.RunTransaction([&](db::Transaction& tx) -> absl::Status {
        ASSIGN_OR_RETURN(
            const db::Result rows,
            tx.Execute(kExpireDueSubscriptions,
                       db::MakeParams(after.access_until, after.id, limit)));
        batch.found = rows[0].Int64("found");
        batch.expired = rows[0].Int64("expired");
        if (batch.found > 0) {
          batch.last.access_until = rows[0].Time("last_access_until");
          batch.last.id = rows[0].Int64("last_id");
        }
        return rows.status();
      }));
  return batch;
}

absl::StatusOr<std::optional<ExpiryCursor>> ExpiryStore::NextDue(
    const ExpiryCursor& after) {
  ASSIGN_OR_RETURN(const db::Result rows,
                   pool_.Execute(kSelectNextDueSubscription,
                                 db::MakeParams(after.access_until, after.id)));
  if (rows.empty()) return std::nullopt;
  ExpiryCursor next;
  next.access_until = rows[0].Time("access_until");
  next.id = rows[0].Int64("id");
  RETURN_IF_ERROR(rows.status());
  return next;
}

}  // namespace tenure::scheduler
