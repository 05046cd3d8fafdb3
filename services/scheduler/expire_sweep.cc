#include "services/scheduler/expire_sweep.h"

namespace tenure::scheduler {

absl::Status ExpireSweep::Run(const std::function<bool()>& stop,
                              SweepStats* stats) {
  ExpiryCursor cursor;
  int64_t limit = batch_size_;
  while (!stop()) {
    const absl::StatusOr<ExpiredBatch> batch = store_.ExpireDue(cursor, limit);
    if (batch.status().code() == absl::StatusCode::kDeadlineExceeded &&
        limit > 1) {
      limit /= 2;
      continue;
    }
    if (!batch.ok()) return batch.status();
    ++stats->batches;
    stats->found += batch->found;
    stats->expired += batch->expired;
    cursor = batch->last;
    if (batch->found < limit) break;
  }
  return absl::OkStatus();
}

}  // namespace tenure::scheduler
