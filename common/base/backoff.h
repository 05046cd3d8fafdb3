#ifndef TENURE_COMMON_BASE_BACKOFF_H_
#define TENURE_COMMON_BASE_BACKOFF_H_

#include <cstdint>

#include "absl/random/bit_gen_ref.h"
#include "absl/time/time.h"

namespace tenure {

// Exponential backoff with full jitter: the wait before attempt n is drawn
// evenly from [0, min(cap, base * 2^n)], so that callers that failed together
// do not come back together.
//
// Holds no state besides its two settings; thread-safe as long as each thread
// brings its own random source.
class Backoff {
 public:
  // `base` must be positive and at most `cap`; other values are brought there.
  Backoff(absl::Duration base, absl::Duration cap);

  // min(cap, base * 2^attempt), the longest wait after failure number
  // `attempt`, counted from 0. Never overflows; below 0 counts as 0.
  absl::Duration Ceiling(int64_t attempt) const;

  // The wait after failure number `attempt`: even over [0, Ceiling(attempt)],
  // by one draw from `random`.
  absl::Duration Delay(int64_t attempt, absl::BitGenRef random) const;

  // The same from a seed, equal on every machine and at every call: for waits
  // that must be recomputed instead of stored.
  absl::Duration Delay(int64_t attempt, uint64_t seed) const;

 private:
  absl::Duration base_;
  absl::Duration cap_;
};

}  // namespace tenure

#endif  // TENURE_COMMON_BASE_BACKOFF_H_
