#include "common/base/clock.h"

#include <gtest/gtest.h>

namespace tenure {
namespace {

TEST(SimulatedClock, AdvancesBothClocks) {
  const absl::Time start = absl::FromUnixSeconds(1'800'000'000);
  SimulatedClock clock(start);
  const absl::Duration began = clock.Monotonic();
  clock.Advance(absl::Seconds(5));
  EXPECT_EQ(clock.Now(), start + absl::Seconds(5));
  EXPECT_EQ(clock.Monotonic() - began, absl::Seconds(5));
}

TEST(SimulatedClock, AStepMovesTheWallClockAlone) {
  const absl::Time start = absl::FromUnixSeconds(1'800'000'000);
  SimulatedClock clock(start);
  const absl::Duration began = clock.Monotonic();
  clock.StepWallClock(start - absl::Hours(2));
  EXPECT_EQ(clock.Now(), start - absl::Hours(2));
  EXPECT_EQ(clock.Monotonic(), began);
}

TEST(SystemClock, MonotonicTimeDoesNotStepBack) {
  const Clock& clock = SystemClock::Instance();
  absl::Duration last = clock.Monotonic();
  for (int i = 0; i < 1000; ++i) {
    const absl::Duration now = clock.Monotonic();
    EXPECT_GE(now, last);
    last = now;
  }
}

}  // namespace
}  // namespace tenure
