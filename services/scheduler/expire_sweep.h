#ifndef TENURE_SERVICES_SCHEDULER_EXPIRE_SWEEP_H_
#define TENURE_SERVICES_SCHEDULER_EXPIRE_SWEEP_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "services/scheduler/expiry_store.h"

namespace tenure::scheduler {

// What one pass did.
struct SweepStats {
  int batches = 0;
  int64_t found = 0;
  int64_t expired = 0;
  // Rows that could not be swept and were passed by.
  int64_t failed = 0;
};

// One pass over everything due: bounded batches, oldest first, until a batch
// comes back short. It tidies up; no access depends on it (R1). Safe to run
// late, twice, and beside itself.
class ExpireSweep {
 public:
  // `batch_size`: rows per transaction at most (S0-12).
  ExpireSweep(ExpiryStore& store, int64_t batch_size)
      : store_(store), batch_size_(batch_size) {}

  // Stops early, without an error, once `stop` answers true. After a statement
  // that ran out of time the batch is halved for the rest of the pass. When the
  // database refuses a batch for its content, the batch is taken row by row;
  // the rows that fail alone are passed by and counted, so that no row keeps
  // the others waiting. `stats` tells what was done even when an error ends the
  // pass; the error of rows passed by is returned at its end.
  absl::Status Run(const std::function<bool()>& stop, SweepStats* stats);

 private:
  // Sweeps up to `limit` rows behind `cursor` one by one and moves it past
  // them, failing ones included. False when nothing is left.
  absl::StatusOr<bool> OneByOne(int64_t limit, ExpiryCursor* cursor,
                                SweepStats* stats, absl::Status* last_failure);

  ExpiryStore& store_;
  const int64_t batch_size_;
};

}  // namespace tenure::scheduler

#endif  // TENURE_SERVICES_SCHEDULER_EXPIRE_SWEEP_H_
