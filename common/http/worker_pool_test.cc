#include "common/http/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>

namespace tenure::http {
namespace {

TEST(WorkerPool, RunsEveryJob) {
  std::atomic<int> ran{0};
  std::promise<void> all;
  WorkerPool pool(3, 1000);

  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(pool.Submit([&] {
      if (++ran == 500) all.set_value();
    }));
  }

  all.get_future().wait();
  EXPECT_EQ(ran, 500);
}

TEST(WorkerPool, RefusesOnceItsQueueIsFull) {
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  WorkerPool pool(1, 2);

  EXPECT_TRUE(pool.Submit([open] { open.wait(); }));
  EXPECT_TRUE(pool.Submit([] {}));
  EXPECT_TRUE(pool.Submit([] {}));
  EXPECT_FALSE(pool.Submit([] {}));
  EXPECT_EQ(pool.queued(), 2);

  gate.set_value();
}

TEST(WorkerPool, TakesAJobWithoutAQueueWhileAThreadIsFree) {
  std::promise<void> done;
  WorkerPool pool(1, 0);

  EXPECT_TRUE(pool.Submit([&] { done.set_value(); }));

  done.get_future().wait();
}

TEST(WorkerPool, StopDestroysWaitingJobsAndFinishesRunningOnes) {
  std::promise<void> started;
  std::promise<void> gate;
  std::atomic<bool> finished{false};
  std::atomic<bool> second_ran{false};
  auto token = std::make_shared<int>(1);
  WorkerPool pool(1, 4);
  ASSERT_TRUE(pool.Submit([&] {
    started.set_value();
    gate.get_future().wait();
    finished = true;
  }));
  started.get_future().wait();
  ASSERT_TRUE(pool.Submit([&second_ran, token] { second_ran = true; }));

  std::thread stopper([&] { pool.Stop(); });
  gate.set_value();
  stopper.join();

  EXPECT_TRUE(finished);
  EXPECT_EQ(token.use_count(), 1);
  EXPECT_FALSE(pool.Submit([] {}));
}

}  // namespace
}  // namespace tenure::http
