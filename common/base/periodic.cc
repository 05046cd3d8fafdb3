#include "common/base/periodic.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/clock.h"

namespace tenure {

void SleepFor(absl::Duration duration) {
  std::this_thread::sleep_for(absl::ToChronoNanoseconds(duration));
}

Periodic::Periodic(absl::Duration period, Body body)
    : period_(period), body_(std::move(body)), thread_([this] { Loop(); }) {}

Periodic::~Periodic() { Stop(); }

void Periodic::Wake() {
  MutexLock lock(mutex_);
  woken_ = true;
  changed_.NotifyAll();
}

void Periodic::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void Periodic::Loop() {
  const Clock& clock = SystemClock::Instance();
  absl::Duration tick = clock.Monotonic();
  for (;;) {
    {
      MutexLock lock(mutex_);
      while (!stopping_ && !woken_ && clock.Monotonic() < tick) {
        changed_.WaitFor(mutex_, tick - clock.Monotonic());
      }
      if (stopping_) return;
      if (woken_) tick = std::min(tick, clock.Monotonic());
      woken_ = false;
    }
    body_(clock.Monotonic() - tick);
    tick = std::max(tick + period_, clock.Monotonic());
  }
}

}  // namespace tenure
