#ifndef TENURE_TESTS_SUPPORT_BARRIER_H_
#define TENURE_TESTS_SUPPORT_BARRIER_H_

#include <cstdint>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "tests/support/test_signal.h"

namespace tenure::test {

// Holds each of N threads until all N have arrived, so that what they do next
// truly competes. May be used for any number of rounds. Thread-safe.
class Barrier {
 public:
  explicit Barrier(int threads) : threads_(threads) {}

  // Returns true once all threads have arrived, false when `timeout` passed
  // first; after that the barrier lets nobody wait any more, so that a failed
  // test ends.
  [[nodiscard]] bool ArriveAndWait(absl::Duration timeout = kPatience) {
    const absl::Duration end = SystemClock::Instance().Monotonic() + timeout;
    MutexLock lock(mutex_);
    if (broken_) return false;
    if (++arrived_ == threads_) {
      arrived_ = 0;
      ++round_;
      changed_.NotifyAll();
      return true;
    }
    const int64_t round = round_;
    while (round_ == round && !broken_) {
      const absl::Duration left = end - SystemClock::Instance().Monotonic();
      if (left <= absl::ZeroDuration()) {
        broken_ = true;
        changed_.NotifyAll();
        break;
      }
      changed_.WaitFor(mutex_, left);
    }
    return round_ != round;
  }

 private:
  const int threads_;
  Mutex mutex_;
  CondVar changed_;
  int arrived_ TENURE_GUARDED_BY(mutex_) = 0;
  int64_t round_ TENURE_GUARDED_BY(mutex_) = 0;
  bool broken_ TENURE_GUARDED_BY(mutex_) = false;
};

}  // namespace tenure::test

#endif  // TENURE_TESTS_SUPPORT_BARRIER_H_
