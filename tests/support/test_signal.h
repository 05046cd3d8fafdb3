#ifndef TENURE_TESTS_SUPPORT_TEST_SIGNAL_H_
#define TENURE_TESTS_SUPPORT_TEST_SIGNAL_H_

#include <cstdint>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace tenure::test {

// How long a wait lasts before it is a failure. Far above what any step takes
// on a loaded machine: it bounds a hang and is never a pass mark.
inline constexpr absl::Duration kPatience = absl::Seconds(60);

// Counts events and lets a test wait for them. Thread-safe. A notification
// before the wait is not lost.
class TestSignal {
 public:
  void Notify(int64_t times = 1) {
    MutexLock lock(mutex_);
    count_ += times;
    changed_.NotifyAll();
  }

  // Events so far.
  int64_t count() const {
    MutexLock lock(mutex_);
    return count_;
  }

  // Waits until there were at least `count` events since the start; false when
  // `timeout` passed first.
  [[nodiscard]] bool AwaitCount(int64_t count,
                                absl::Duration timeout = kPatience) const {
    const absl::Duration end = SystemClock::Instance().Monotonic() + timeout;
    MutexLock lock(mutex_);
    while (count_ < count) {
      const absl::Duration left = end - SystemClock::Instance().Monotonic();
      if (left <= absl::ZeroDuration()) return false;
      changed_.WaitFor(mutex_, left);
    }
    return true;
  }

  // Waits for the first event.
  [[nodiscard]] bool Await(absl::Duration timeout = kPatience) const {
    return AwaitCount(1, timeout);
  }

 private:
  mutable Mutex mutex_;
  mutable CondVar changed_;
  int64_t count_ TENURE_GUARDED_BY(mutex_) = 0;
};

}  // namespace tenure::test

#endif  // TENURE_TESTS_SUPPORT_TEST_SIGNAL_H_
