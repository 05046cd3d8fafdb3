#include "services/webhook-ingest/flood_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/obs/metrics.h"
#include "common/providers/provider_adapter.h"

namespace tenure::webhook_ingest {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kLimit = 3;

class FloodGuardTest : public ::testing::Test {
 protected:
  FloodGuardTest() : guard_(kLimit, {"stripe", "eu"}, clock_, registry_, 4) {}

  // How many of `events` of one subject are allowed.
  int Allowed(const std::string& subject, int events,
              const std::string& route = "stripe") {
    int allowed = 0;
    for (int i = 0; i < events; ++i) allowed += guard_.Allow(route, subject);
    return allowed;
  }

  SimulatedClock clock_{absl::FromUnixSeconds(1'800'000'000)};
  obs::Registry registry_{"webhook-ingest"};
  FloodGuard guard_;
};

TEST_F(FloodGuardTest, S22_AllowsUpToTheCapAndNotOneMore) {
  EXPECT_EQ(Allowed("customer a", kLimit - 1), kLimit - 1);
  EXPECT_TRUE(guard_.Allow("stripe", "customer a"));
  EXPECT_FALSE(guard_.Allow("stripe", "customer a"));
  EXPECT_EQ(Allowed("customer a", 100), 0);
}

TEST_F(FloodGuardTest, S22_OneSubjectsFloodLeavesOthersAlone) {
  Allowed("customer a", 100);
  EXPECT_EQ(Allowed("customer b", kLimit), kLimit);
  EXPECT_EQ(Allowed("customer a", kLimit, "eu"), kLimit);
  // Whom it is about is not known.
  EXPECT_EQ(Allowed("", 100), 100);
}

TEST_F(FloodGuardTest, S22_TheMinuteBeginsWithTheFirstEventOfASubject) {
  EXPECT_EQ(Allowed("customer a", 100), kLimit);
  clock_.Advance(FloodGuard::kWindow - absl::Nanoseconds(1));
  EXPECT_FALSE(guard_.Allow("stripe", "customer a"));
  EXPECT_TRUE(guard_.Allow("stripe", "customer b"));
  clock_.Advance(absl::Nanoseconds(1));
  EXPECT_EQ(Allowed("customer a", 100), kLimit);
  // b's minute is another one.
  EXPECT_EQ(Allowed("customer b", 100), kLimit - 1);
}

TEST_F(FloodGuardTest, S22_AStepOfTheWallClockChangesNothing) {
  EXPECT_EQ(Allowed("customer a", 100), kLimit);
  clock_.StepWallClock(clock_.Now() - absl::Hours(1));
  EXPECT_FALSE(guard_.Allow("stripe", "customer a"));
  clock_.StepWallClock(clock_.Now() + absl::Hours(2));
  EXPECT_FALSE(guard_.Allow("stripe", "customer a"));
}

TEST_F(FloodGuardTest, S22_ForgetsTheSubjectThatWasQuietTheLongest) {
  for (const char* subject : {"a", "b", "c", "d"}) Allowed(subject, 100);
  EXPECT_EQ(guard_.subjects(), 4u);
  EXPECT_FALSE(guard_.Allow("stripe", "a"));  // b is now the quietest
  EXPECT_TRUE(guard_.Allow("stripe", "e"));
  EXPECT_EQ(guard_.subjects(), 4u);
  for (const char* subject : {"a", "c", "d"}) {
    EXPECT_FALSE(guard_.Allow("stripe", subject)) << subject;
  }
  EXPECT_EQ(Allowed("b", 100), kLimit);
}

TEST_F(FloodGuardTest, S22_AFloodIsNotForgottenAmongManySubjects) {
  Allowed("flood", kLimit);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(guard_.Allow("stripe", absl::StrCat("customer ", i)));
    if (i % 3 == 2) {
      EXPECT_FALSE(guard_.Allow("stripe", "flood")) << i;
    }
    EXPECT_LE(guard_.subjects(), 4u);
  }
}

TEST_F(FloodGuardTest, S22_CountsWhatIsBeyondByRoute) {
  Allowed("customer a", kLimit + 2);
  Allowed("customer b", kLimit + 3);
  Allowed("customer a", kLimit, "eu");
  const std::string metrics = registry_.Render();
  EXPECT_THAT(metrics,
              AllOf(HasSubstr("tenure_webhook_ingest_flooded_events_total"
                              "{route=\"stripe\"} 5\n"),
                    HasSubstr("tenure_webhook_ingest_flooded_events_total"
                              "{route=\"eu\"} 0\n")));
}

TEST_F(FloodGuardTest, S22_WarnsOnceAMinuteAndSubject) {
  const auto warnings = [&](const std::string& subject, int events) {
    ::testing::internal::CaptureStderr();
    Allowed(subject, events);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(warnings("customer a", kLimit), IsEmpty());
  EXPECT_THAT(warnings("customer a", 1),
              AllOf(HasSubstr("\"level\":\"warning\""),
                    HasSubstr("\"route\":\"stripe\""),
                    HasSubstr("\"subject\":\"customer a\""),
                    HasSubstr("\"limit_per_minute\":3")));
  EXPECT_THAT(warnings("customer a", 100), IsEmpty());
  EXPECT_THAT(warnings("customer b", 100), HasSubstr("customer b"));
  clock_.Advance(FloodGuard::kWindow);
  EXPECT_THAT(warnings("customer a", 100), HasSubstr("customer a"));
}

TEST_F(FloodGuardTest, S22_ZeroSwitchesItOff) {
  FloodGuard off(0, {"stripe"}, clock_, registry_);
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_TRUE(off.Allow("stripe", "customer a"));
  }
  EXPECT_EQ(off.subjects(), 0u);
}

TEST_F(FloodGuardTest, S22_AllowsExactlyTheCapAmongThreads) {
  FloodGuard guard(500, {"stripe"}, clock_, registry_);
  std::atomic<int> allowed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 400; ++i) {
        if (guard.Allow("stripe", "customer a")) ++allowed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(allowed, 500);
}

TEST(FloodSubject, S22_IsTheCustomerElseTheFirstNamedSubscription) {
  providers::ProviderEvent event;
  EXPECT_EQ(FloodSubject(event), "");
  event.subscriptions.resize(2);
  EXPECT_EQ(FloodSubject(event), "");
  event.subscriptions[1].provider_subscription_id = "x";
  EXPECT_EQ(FloodSubject(event), "subscription x");
  event.customer_id = "x";
  EXPECT_EQ(FloodSubject(event), "customer x");
  event.account = "acct_1";
  EXPECT_EQ(FloodSubject(event), "acct_1 customer x");
}

}  // namespace
}  // namespace tenure::webhook_ingest
