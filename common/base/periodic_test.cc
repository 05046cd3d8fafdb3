#include "common/base/periodic.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/support/test_signal.h"

namespace tenure {
namespace {

TEST(Periodic, RunsAtOnceAtItsStart) {
  test::TestSignal ran;
  Periodic periodic(absl::Hours(1), [&](absl::Duration) { ran.Notify(); });
  EXPECT_TRUE(ran.Await());
}

TEST(Periodic, RunsAgainAfterEveryPeriod) {
  test::TestSignal ran;
  Periodic periodic(absl::Milliseconds(1),
                    [&](absl::Duration) { ran.Notify(); });
  EXPECT_TRUE(ran.AwaitCount(3));
}

TEST(Periodic, RunsAtOnceWhenWoken) {
  test::TestSignal ran;
  Periodic periodic(absl::Hours(1), [&](absl::Duration) { ran.Notify(); });
  ASSERT_TRUE(ran.AwaitCount(1));
  periodic.Wake();
  EXPECT_TRUE(ran.AwaitCount(2));
}

TEST(Periodic, NeverOverlapsItself) {
  std::atomic<int> inside{0};
  std::atomic<bool> overlapped{false};
  test::TestSignal ran;
  Periodic periodic(absl::ZeroDuration(), [&](absl::Duration) {
    if (++inside > 1) overlapped = true;
    ran.Notify();
    --inside;
  });
  for (int i = 0; i < 100; ++i) periodic.Wake();
  ASSERT_TRUE(ran.AwaitCount(100));
  periodic.Stop();
  EXPECT_FALSE(overlapped);
}

TEST(Periodic, StopWaitsForTheRunUnderWayAndStartsNoOther) {
  test::TestSignal started;
  test::TestSignal release;
  std::atomic<int> finished{0};
  Periodic periodic(absl::ZeroDuration(), [&](absl::Duration) {
    started.Notify();
    EXPECT_TRUE(release.Await());
    ++finished;
  });
  ASSERT_TRUE(started.Await());
  release.Notify();
  periodic.Stop();
  const int at_stop = finished;
  EXPECT_GE(at_stop, 1);
  periodic.Wake();
  EXPECT_EQ(finished, at_stop);
}

}  // namespace
}  // namespace tenure
