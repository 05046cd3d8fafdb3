#include "common/base/backoff.h"

#include <algorithm>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tenure {
namespace {

TEST(Backoff, DoublesTheCeilingUpToTheCap) {
  const Backoff backoff(absl::Milliseconds(100), absl::Seconds(1));

  EXPECT_EQ(backoff.Ceiling(0), absl::Milliseconds(100));
  EXPECT_EQ(backoff.Ceiling(1), absl::Milliseconds(200));
  EXPECT_EQ(backoff.Ceiling(3), absl::Milliseconds(800));
  EXPECT_EQ(backoff.Ceiling(4), absl::Seconds(1));
  EXPECT_EQ(backoff.Ceiling(63), absl::Seconds(1));
  EXPECT_EQ(backoff.Ceiling(INT64_MAX), absl::Seconds(1));
  EXPECT_EQ(backoff.Ceiling(-1), absl::Milliseconds(100));
  EXPECT_EQ(backoff.Ceiling(INT64_MIN), absl::Milliseconds(100));
}

TEST(Backoff, BringsOddSettingsIntoRange) {
  EXPECT_EQ(Backoff(absl::Seconds(2), absl::Seconds(1)).Ceiling(9),
            absl::Seconds(2));
  EXPECT_GT(Backoff(absl::ZeroDuration(), absl::ZeroDuration()).Ceiling(0),
            absl::ZeroDuration());
  const Backoff endless(absl::Seconds(1), absl::InfiniteDuration());
  EXPECT_EQ(endless.Ceiling(1000), absl::Hours(24 * 365));
  EXPECT_LE(endless.Delay(1000, uint64_t{1}), absl::Hours(24 * 365));
}

TEST(Backoff, DrawsTheDelayEvenlyFromZeroToTheCeiling) {
  const Backoff backoff(absl::Milliseconds(100), absl::Seconds(10));
  std::mt19937_64 random(20261130);

  for (const bool seeded : {false, true}) {
    absl::Duration least = absl::InfiniteDuration();
    absl::Duration most;
    absl::Duration sum;
    for (uint64_t i = 0; i < 10'000; ++i) {
      const absl::Duration delay =
          seeded ? backoff.Delay(3, i) : backoff.Delay(3, random);
      ASSERT_GE(delay, absl::ZeroDuration());
      ASSERT_LE(delay, absl::Milliseconds(800));
      least = std::min(least, delay);
      most = std::max(most, delay);
      sum += delay;
    }
    EXPECT_LT(least, absl::Milliseconds(8)) << seeded;
    EXPECT_GT(most, absl::Milliseconds(792)) << seeded;
    // Standard error of the mean: 2.3 ms.
    EXPECT_NEAR(absl::ToDoubleMilliseconds(sum / 10'000), 400, 15) << seeded;
  }
}

TEST(Backoff, IsAPureFunctionOfAttemptAndSeed) {
  const Backoff backoff(absl::Milliseconds(100), absl::Seconds(10));

  EXPECT_EQ(backoff.Delay(2, uint64_t{7}), backoff.Delay(2, uint64_t{7}));
  EXPECT_NE(backoff.Delay(2, uint64_t{7}), backoff.Delay(2, uint64_t{8}));
  EXPECT_NE(backoff.Delay(20, uint64_t{7}), backoff.Delay(21, uint64_t{7}));
}

}  // namespace
}  // namespace tenure
