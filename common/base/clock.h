#ifndef TENURE_COMMON_BASE_CLOCK_H_
#define TENURE_COMMON_BASE_CLOCK_H_

#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace tenure {

// The source of the present instant. Everything that needs "now" takes a
// Clock; the domain takes an absl::Time. Decisions about due rows, leases and
// sweeps use the database's tenure_now() instead (R16).
//
// Implementations are thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;

  // The present instant on the wall clock. May step back when the machine's
  // clock is set.
  virtual absl::Time Now() const = 0;

  // Time since an arbitrary start, never stepping back. For measuring spans
  // and for waiting.
  virtual absl::Duration Monotonic() const = 0;
};

// The machine's clocks.
class SystemClock : public Clock {
 public:
  absl::Time Now() const override;
  absl::Duration Monotonic() const override;

  // A process-wide instance.
  static const SystemClock& Instance();
};

// A clock that moves only when told to.
class SimulatedClock : public Clock {
 public:
  explicit SimulatedClock(absl::Time start) : now_(start) {}

  absl::Time Now() const override;
  absl::Duration Monotonic() const override;

  // Moves both clocks forward. `by` must not be negative.
  void Advance(absl::Duration by);
  // Sets the wall clock alone, as an operator or NTP would; may step back.
  void StepWallClock(absl::Time to);

 private:
  mutable Mutex mutex_;
  absl::Time now_ TENURE_GUARDED_BY(mutex_);
  absl::Duration monotonic_ TENURE_GUARDED_BY(mutex_) = absl::ZeroDuration();
};

}  // namespace tenure

#endif  // TENURE_COMMON_BASE_CLOCK_H_
