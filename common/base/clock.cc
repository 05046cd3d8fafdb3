#include "common/base/clock.h"

#include <chrono>

namespace tenure {

absl::Time SystemClock::Now() const { return absl::Now(); }

absl::Duration SystemClock::Monotonic() const {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

const SystemClock& SystemClock::Instance() {
  // Never destroyed: statics that outlive main still ask for the time.
  static const auto& clock = *new SystemClock;
  return clock;
}

absl::Time SimulatedClock::Now() const {
  MutexLock lock(mutex_);
  return now_;
}

absl::Duration SimulatedClock::Monotonic() const {
  MutexLock lock(mutex_);
  return monotonic_;
}

void SimulatedClock::Advance(absl::Duration by) {
  MutexLock lock(mutex_);
  now_ += by;
  monotonic_ += by;
}

void SimulatedClock::StepWallClock(absl::Time to) {
  MutexLock lock(mutex_);
  now_ = to;
}

}  // namespace tenure
