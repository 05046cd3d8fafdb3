#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/barrier.h"
#include "tests/support/test_signal.h"

namespace tenure::test {
namespace {

TEST(TestSignal, KeepsNotificationsThatCameBeforeTheWait) {
  TestSignal signal;
  signal.Notify();
  signal.Notify(2);

  EXPECT_TRUE(signal.Await());
  EXPECT_TRUE(signal.AwaitCount(3));
  EXPECT_EQ(signal.count(), 3);
}

TEST(TestSignal, WakesAWaitingThread) {
  TestSignal ready;
  TestSignal signal;
  std::thread notifier([&] {
    EXPECT_TRUE(ready.Await());
    for (int i = 0; i < 100; ++i) signal.Notify();
  });

  ready.Notify();
  EXPECT_TRUE(signal.AwaitCount(100));
  notifier.join();
}

TEST(TestSignal, GivesUpAtTheDeadline) {
  TestSignal signal;
  signal.Notify();

  EXPECT_FALSE(signal.AwaitCount(2, absl::Milliseconds(1)));
}

TEST(Barrier, LetsNobodyThroughBeforeAllHaveArrivedInEveryRound) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 50;
  Barrier barrier(kThreads);
  std::atomic<int> arrived = 0;
  std::atomic<int> early = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 1; round <= kRounds; ++round) {
        ++arrived;
        if (!barrier.ArriveAndWait()) ++early;
        if (arrived < round * kThreads) ++early;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(early, 0);
  EXPECT_EQ(arrived, kThreads * kRounds);
}

TEST(Barrier, BreaksForAllWhenOneDoesNotCome) {
  Barrier barrier(2);

  EXPECT_FALSE(barrier.ArriveAndWait(absl::Milliseconds(1)));
  EXPECT_FALSE(barrier.ArriveAndWait());
}

}  // namespace
}  // namespace tenure::test
