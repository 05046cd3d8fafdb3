#ifndef TENURE_COMMON_BASE_PERIODIC_H_
#define TENURE_COMMON_BASE_PERIODIC_H_

#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace tenure {

// Blocks the thread. The only sleep of the code base besides Periodic's wait.
void SleepFor(absl::Duration duration);

// Runs `body` at once and then every `period`, on a thread of its own, until
// stopped. Runs never overlap; a run longer than the period is followed by the
// next at once, missed ticks are not made up for. The wait is on the monotonic
// clock, so a stepped wall clock neither shortens nor stretches it (C094).
// Thread-safe.
class Periodic {
 public:
  // `late` tells the body by how much its start was late: the span
  // between the tick it was meant for and the call.
  using Body = std::function<void(absl::Duration late)>;

  Periodic(absl::Duration period, Body body);
  // Stops.
  ~Periodic();

  // Starts the next run now instead of at its tick.
  void Wake();

  // Starts no further run and waits for one under way.
  void Stop();

 private:
  void Loop();

  const absl::Duration period_;
  const Body body_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ TENURE_GUARDED_BY(mutex_) = false;
  bool woken_ TENURE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tenure

#endif  // TENURE_COMMON_BASE_PERIODIC_H_
