// The default plan beneath a subject's subscriptions, and the values of
// features.

#include <rapidcheck.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/domain/access.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tenure::domain {
namespace {

using ::testing::Eq;
using ::testing::Optional;

constexpr absl::Duration kTick = absl::Microseconds(1);

absl::Time Day(int n) {
  return absl::FromUnixSeconds(1'800'000'000) + absl::Hours(24 * n);
}

// Active from Day(0) to Day(30), with 10 of the feature.
AccessCandidate Month(int64_t id = 1) {
  AccessCandidate candidate;
  candidate.subscription_id = id;
  candidate.subscription.status = Status::kActive;
  candidate.subscription.starts_at = Day(0);
  candidate.subscription.expires_at = Day(30);
  candidate.subscription.will_renew = true;
  candidate.plan = "pro";
  candidate.plan_grants = true;
  candidate.value.limit = 10;
  return candidate;
}

// Grants 1 of the feature.
AccessCandidate Free() {
  AccessCandidate candidate;
  candidate.is_default_plan = true;
  candidate.plan = "free";
  candidate.plan_grants = true;
  candidate.value.limit = 1;
  return candidate;
}

TEST(DefaultPlan, ServesASubjectWithoutASubscriptionWithoutEnd) {
  const Verdict verdict = DecideAccess({Free()}, Day(3));
  EXPECT_TRUE(verdict.has_access);
  EXPECT_EQ(verdict.reason, AccessReason::kDefaultPlan);
  EXPECT_EQ(verdict.plan, "free");
  EXPECT_EQ(verdict.subscription_id, 0);
  EXPECT_EQ(verdict.value.limit, 1);
  EXPECT_EQ(verdict.access_until, std::nullopt);
  EXPECT_EQ(verdict.next_transition_at, std::nullopt);
  EXPECT_FALSE(verdict.will_renew);
  EXPECT_FALSE(verdict.in_grace);
}

TEST(DefaultPlan, R2_TakesOverAtTheExactEndAndNotATickBefore) {
  const std::vector<AccessCandidate> candidates = {Free(), Month()};
  for (const absl::Time before : {Day(0), Day(30) - kTick}) {
    const Verdict verdict = DecideAccess(candidates, before);
    EXPECT_EQ(verdict.reason, AccessReason::kPaid);
    EXPECT_EQ(verdict.value.limit, 10);
    EXPECT_EQ(verdict.subscription_id, 1);
    EXPECT_THAT(verdict.access_until, Optional(Eq(Day(30))));
    EXPECT_THAT(verdict.next_transition_at, Optional(Eq(Day(30))));
  }
  for (const absl::Time after : {Day(30), Day(30) + kTick}) {
    const Verdict verdict = DecideAccess(candidates, after);
    EXPECT_EQ(verdict.reason, AccessReason::kDefaultPlan);
    EXPECT_EQ(verdict.value.limit, 1);
    EXPECT_EQ(verdict.access_until, std::nullopt);
    EXPECT_EQ(verdict.next_transition_at, std::nullopt);
  }
}

TEST(DefaultPlan, AnswersUntilASubscriptionStarts) {
  const std::vector<AccessCandidate> candidates = {Month(), Free()};
  const Verdict before = DecideAccess(candidates, Day(0) - kTick);
  EXPECT_EQ(before.reason, AccessReason::kDefaultPlan);
  EXPECT_THAT(before.next_transition_at, Optional(Eq(Day(0))));
  EXPECT_EQ(DecideAccess(candidates, Day(0)).reason, AccessReason::kPaid);
}

TEST(DefaultPlan, ServesWhoseSubscriptionRefusesWhateverTheReason) {
  for (const Status status : {Status::kPending, Status::kPaused,
                              Status::kCanceled, Status::kRevoked}) {
    AccessCandidate refused = Month();
    refused.subscription.status = status;
    EXPECT_EQ(DecideAccess({refused, Free()}, Day(1)).reason,
              AccessReason::kDefaultPlan)
        << StatusName(status);
  }
  AccessCandidate other_feature = Month();
  other_feature.plan_grants = false;
  EXPECT_EQ(DecideAccess({other_feature, Free()}, Day(1)).reason,
            AccessReason::kDefaultPlan);
}

TEST(DefaultPlan, WithoutTheFeatureChangesNoAnswer) {
  AccessCandidate free = Free();
  free.plan_grants = false;
  EXPECT_EQ(DecideAccess({free}, Day(1)), Verdict{});
  AccessCandidate revoked = Month();
  revoked.subscription.status = Status::kRevoked;
  for (const AccessCandidate& candidate : {Month(), revoked}) {
    for (const absl::Time now : {Day(-1), Day(0), Day(29), Day(30)}) {
      EXPECT_EQ(DecideAccess({free, candidate}, now),
                DecideAccess({candidate}, now));
    }
  }
}

TEST(FeatureValues, AreThoseOfThePlanInForce) {
  AccessCandidate candidate = Month();
  candidate.subscription.next_plan_at = Day(10);
  candidate.next_plan = "team";
  candidate.next_plan_grants = true;
  candidate.next_value.quantity = 5;
  Verdict verdict = DecideAccess({candidate}, Day(10) - kTick);
  EXPECT_EQ(verdict.value, (FeatureValue{10, std::nullopt}));
  EXPECT_THAT(verdict.next_transition_at, Optional(Eq(Day(10))));
  verdict = DecideAccess({candidate}, Day(10));
  EXPECT_EQ(verdict.value, (FeatureValue{std::nullopt, 5}));
  // None with a refusal.
  EXPECT_EQ(DecideAccess({candidate}, Day(30)).value, FeatureValue{});
}

TEST(FeatureValues, TheGrantorThatGrantsLongestDecidesNotTheLargestValue) {
  AccessCandidate longer = Month(2);
  longer.subscription.expires_at = Day(60);
  longer.value.limit = 3;
  EXPECT_EQ(DecideAccess({Month(1), longer}, Day(1)).value.limit, 3);
}

// ---- properties ----

absl::Time Grid(int n) { return Day(0) + absl::Minutes(n); }
constexpr int kGrid = 8;

std::optional<absl::Time> AnyInstant() {
  const int n = *rc::gen::inRange(-kGrid / 2, kGrid);
  if (n < 0) return std::nullopt;
  return Grid(n);
}

std::vector<AccessCandidate> AnySubscriptions() {
  std::vector<AccessCandidate> candidates;
  const int count = *rc::gen::inRange(0, 4);
  for (int i = 1; i <= count; ++i) {
    AccessCandidate c;
    c.subscription_id = i;
    Subscription& s = c.subscription;
    s.status = static_cast<Status>(*rc::gen::inRange(0, 8));
    s.lifetime = *rc::gen::inRange(0, 6) == 0;
    s.starts_at = AnyInstant();
    s.expires_at = s.lifetime ? std::nullopt : AnyInstant();
    s.grace_period_ends_at = AnyInstant();
    s.pause_at = AnyInstant();
    s.next_plan_at = AnyInstant();
    s.will_renew = *rc::gen::arbitrary<bool>();
    c.plan = absl::StrCat("plan-", i);
    c.plan_grants = *rc::gen::inRange(0, 4) != 0;
    c.value.limit = i;
    c.next_plan = absl::StrCat("next-", i);
    c.next_plan_grants = *rc::gen::arbitrary<bool>();
    c.next_value.quantity = i;
    candidates.push_back(c);
  }
  return candidates;
}

std::vector<absl::Time> Instants() {
  std::vector<absl::Time> instants;
  for (int n = -1; n <= kGrid; ++n) {
    for (const absl::Duration d : {-kTick, absl::ZeroDuration(), kTick}) {
      instants.push_back(Grid(n) + d);
    }
  }
  return instants;
}

TEST(DefaultPlanProperty, GrantsExactlyWhereNoSubscriptionDoes) {
  EXPECT_TRUE(rc::check("default plan fills the gaps", [] {
    const std::vector<AccessCandidate> alone = AnySubscriptions();
    std::vector<AccessCandidate> with = alone;
    // Its place among the candidates does not matter.
    const int place =
        *rc::gen::inRange<int>(0, static_cast<int>(alone.size()) + 1);
    with.insert(with.begin() + place, Free());
    for (const absl::Time now : Instants()) {
      const Verdict bare = DecideAccess(alone, now);
      const Verdict verdict = DecideAccess(with, now);
      RC_ASSERT(verdict.next_transition_at == bare.next_transition_at);
      if (bare.has_access) {
        RC_ASSERT(verdict == bare);
      } else {
        RC_ASSERT(verdict.has_access);
        RC_ASSERT((verdict.reason == AccessReason::kDefaultPlan));
        RC_ASSERT(verdict.plan == "free");
        RC_ASSERT(!verdict.access_until.has_value());
      }
    }
  }));
}

TEST(DefaultPlanProperty, AnAnswerWithItsValueHoldsUntilItsNextTransition) {
  EXPECT_TRUE(rc::check("kept answer == fresh answer", [] {
    std::vector<AccessCandidate> candidates = AnySubscriptions();
    AccessCandidate free = Free();
    free.plan_grants = *rc::gen::arbitrary<bool>();
    candidates.push_back(free);
    const std::vector<absl::Time> instants = Instants();
    for (const absl::Time asked : instants) {
      const Verdict kept = DecideAccess(candidates, asked);
      for (const absl::Time now : instants) {
        if (now < asked) continue;
        if (kept.next_transition_at && now >= *kept.next_transition_at) break;
        RC_ASSERT((DecideAccess(candidates, now) == kept));
      }
    }
  }));
}

}  // namespace
}  // namespace tenure::domain
