#include "common/domain/access.h"

#include <rapidcheck.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tenure::domain {

// For failure messages.
void PrintTo(const Verdict& verdict, std::ostream* out) {
  const auto show = [](const std::optional<absl::Time>& time) {
    return time ? absl::FormatTime(*time, absl::UTCTimeZone())
                : std::string("none");
  };
  *out << (verdict.has_access ? "yes" : "no") << " reason "
       << static_cast<int>(verdict.reason) << " until "
       << show(verdict.access_until) << " next "
       << show(verdict.next_transition_at) << " by " << verdict.subscription_id
       << " plan " << verdict.plan << (verdict.in_grace ? " in grace" : "")
       << (verdict.will_renew ? " renews" : "");
}

namespace {

using ::testing::Eq;
using ::testing::Optional;

constexpr absl::Duration kTick = absl::Microseconds(1);

// The anchor of all instants below.
absl::Time Start() { return absl::FromUnixSeconds(1'800'000'000); }
absl::Time Day(double n) { return Start() + absl::Hours(24) * n; }

// An active month from Day(0) to Day(30).
Subscription Month() {
  Subscription s;
  s.status = Status::kActive;
  s.starts_at = Day(0);
  s.expires_at = Day(30);
  return s;
}

Subscription Lifetime() {
  Subscription s;
  s.status = Status::kActive;
  s.lifetime = true;
  s.starts_at = Day(0);
  return s;
}

AccessCandidate Granting(Subscription s, int64_t id = 1) {
  AccessCandidate candidate;
  candidate.subscription_id = id;
  candidate.subscription = std::move(s);
  candidate.plan = absl::StrCat("plan-", id);
  candidate.plan_grants = true;
  return candidate;
}

bool HasAccess(const Subscription& s, absl::Time now) {
  return DecideAccess({Granting(s)}, now).has_access;
}

AccessReason Reason(const Subscription& s, absl::Time now) {
  return DecideAccess({Granting(s)}, now).reason;
}

// Access is there until just before `end` and gone from `end` on.
void ExpectEndsAt(const Subscription& s, absl::Time end) {
  EXPECT_TRUE(HasAccess(s, end - kTick)) << end;
  EXPECT_FALSE(HasAccess(s, end)) << end;
  EXPECT_FALSE(HasAccess(s, end + kTick)) << end;
}

void ExpectStartsAt(const Subscription& s, absl::Time start) {
  EXPECT_FALSE(HasAccess(s, start - kTick)) << start;
  EXPECT_TRUE(HasAccess(s, start)) << start;
  EXPECT_TRUE(HasAccess(s, start + kTick)) << start;
}

TEST(DecideAccess, S0_4_R2_DeniesActiveFromTheExactEndInstantOn) {
  ExpectEndsAt(Month(), Day(30));
  const Verdict last = DecideAccess({Granting(Month())}, Day(30) - kTick);
  EXPECT_THAT(last.access_until, Optional(Eq(Day(30))));
  EXPECT_THAT(last.next_transition_at, Optional(Eq(Day(30))));
  const Verdict after = DecideAccess({Granting(Month())}, Day(30));
  EXPECT_EQ(after.reason, AccessReason::kEnded);
  EXPECT_EQ(after.access_until, std::nullopt);
  EXPECT_EQ(after.next_transition_at, std::nullopt);
}

TEST(DecideAccess, GrantsFromTheExactStartInstantOn) {
  ExpectStartsAt(Month(), Day(0));
  const Verdict before = DecideAccess({Granting(Month())}, Day(0) - kTick);
  EXPECT_EQ(before.reason, AccessReason::kNotStarted);
  EXPECT_THAT(before.next_transition_at, Optional(Eq(Day(0))));
}

TEST(DecideAccess, ShortestPossibleTermGrantsForOneTick) {
  Subscription s = Month();
  s.expires_at = Day(0) + kTick;
  EXPECT_FALSE(HasAccess(s, Day(0) - kTick));
  EXPECT_TRUE(HasAccess(s, Day(0)));
  EXPECT_FALSE(HasAccess(s, Day(0) + kTick));
}

// The seed lets a grace date replace expires_at; decided (D2): the latest of
// the three, whichever it is and whatever is unset.
TEST(DecideAccess, S0_5_D2_EndsAtTheLatestOfExpiryGraceAndLeeway) {
  std::vector<double> days = {10, 20, 30};
  do {
    for (const Status status : {Status::kActive, Status::kPastDue}) {
      Subscription s = Month();
      s.status = status;
      s.expires_at = Day(days[0]);
      s.grace_period_ends_at = Day(days[1]);
      s.leeway_until = Day(days[2]);
      ExpectEndsAt(s, Day(30));

      s.grace_period_ends_at.reset();
      ExpectEndsAt(s, Day(std::max(days[0], days[2])));
      s.leeway_until.reset();
      ExpectEndsAt(s, Day(days[0]));
      s.grace_period_ends_at = Day(days[1]);
      ExpectEndsAt(s, Day(std::max(days[0], days[1])));
    }
  } while (std::next_permutation(days.begin(), days.end()));
}

TEST(DecideAccess, S0_5_PastDueWithoutGraceEndsAtExpiry) {
  Subscription s = Month();
  s.status = Status::kPastDue;
  ExpectEndsAt(s, Day(30));
}

TEST(DecideAccess, S0_6_EveryStateButTheLiveOnesAndExpiredDenies) {
  const struct {
    Status status;
    bool has_access;
    AccessReason reason;
  } kTable[] = {
      {Status::kPending, false, AccessReason::kPending},
      {Status::kTrialing, true, AccessReason::kTrial},
      {Status::kActive, true, AccessReason::kPaid},
      {Status::kPastDue, true, AccessReason::kPaid},
      {Status::kPaused, false, AccessReason::kPaused},
      {Status::kCanceled, false, AccessReason::kCanceled},
      {Status::kExpired, true, AccessReason::kPaid},
      {Status::kRevoked, false, AccessReason::kRevoked},
  };
  for (const auto& row : kTable) {
    SCOPED_TRACE(std::string(StatusName(row.status)));
    Subscription s = Month();
    s.status = row.status;
    EXPECT_EQ(HasAccess(s, Day(1)), row.has_access);
    EXPECT_EQ(Reason(s, Day(1)), row.reason);
    EXPECT_FALSE(HasAccess(s, Day(30)));

    // A refusing state refuses a lifetime as well.
    Subscription lifetime = Lifetime();
    lifetime.status = row.status;
    EXPECT_EQ(HasAccess(lifetime, Day(10'000)), row.has_access);
  }
}

TEST(DecideAccess, S0_6_D3_CancellingAtPeriodEndKeepsThePaidTime) {
  Subscription s = Month();
  s.cancel_at = Day(30);
  s.will_renew = false;
  ExpectEndsAt(s, Day(30));
  // When it ended at once the state denies, though paid time is left.
  s.status = Status::kCanceled;
  EXPECT_FALSE(HasAccess(s, Day(1)));
}

TEST(DecideAccess, C051_PastDueKeepsAccessThroughGraceAndNoLonger) {
  Subscription s = Month();
  s.status = Status::kPastDue;
  s.grace_period_ends_at = Day(33);
  ExpectEndsAt(s, Day(33));
  EXPECT_EQ(Reason(s, Day(30) - kTick), AccessReason::kPaid);
  EXPECT_EQ(Reason(s, Day(30)), AccessReason::kGrace);
  const Verdict in_grace = DecideAccess({Granting(s)}, Day(30));
  EXPECT_TRUE(in_grace.in_grace);
  EXPECT_THAT(in_grace.access_until, Optional(Eq(Day(33))));
  // The payment at D+2 d counts from D, not from the day it came.
  s.status = Status::kActive;
  s.expires_at = Day(60);
  s.grace_period_ends_at.reset();
  ExpectEndsAt(s, Day(60));
}

TEST(DecideAccess, C052_AnOldGraceDateNeverShortensAccess) {
  Subscription s = Month();
  s.grace_period_ends_at = Day(3);
  EXPECT_TRUE(HasAccess(s, Day(10)));
  ExpectEndsAt(s, Day(30));
  // Active, grace ahead, expiry past: until the grace date.
  s.grace_period_ends_at = Day(35);
  EXPECT_TRUE(HasAccess(s, Day(31)));
  ExpectEndsAt(s, Day(35));
}

TEST(DecideAccess, R2_C069_AMissingEndGrantsOnlyWithTheLifetimeFlag) {
  for (const Status status : {Status::kTrialing, Status::kActive,
                              Status::kPastDue, Status::kExpired}) {
    Subscription s = Month();
    s.status = status;
    s.expires_at.reset();
    for (const absl::Time now : {Day(0), Day(0) + kTick, Day(15), Day(4000)}) {
      EXPECT_FALSE(HasAccess(s, now));
      EXPECT_EQ(Reason(s, now), AccessReason::kEnded);
    }
  }
  // No start is no lifetime from ever either.
  Subscription no_start = Lifetime();
  no_start.starts_at.reset();
  EXPECT_FALSE(HasAccess(no_start, Day(1)));
  EXPECT_EQ(Reason(no_start, Day(1)), AccessReason::kNotStarted);
}

TEST(DecideAccess, D5_LifetimeByFlagHasNoEnd) {
  ExpectStartsAt(Lifetime(), Day(0));
  const Verdict verdict =
      DecideAccess({Granting(Lifetime())}, Day(365.0 * 5000));
  EXPECT_TRUE(verdict.has_access);
  EXPECT_EQ(verdict.reason, AccessReason::kLifetime);
  EXPECT_EQ(verdict.access_until, std::nullopt);
  EXPECT_EQ(verdict.next_transition_at, std::nullopt);
  // Left-over dates do not end it.
  Subscription s = Lifetime();
  s.grace_period_ends_at = Day(3);
  s.leeway_until = Day(4);
  EXPECT_TRUE(HasAccess(s, Day(5)));
}

TEST(DecideAccess, C070_TheYears2038And9999AreOrdinaryInstants) {
  const absl::Time after_int32 = absl::FromUnixSeconds(2'147'483'648);
  const absl::Time last = absl::FromUnixSeconds(253'402'300'800) - kTick;
  for (const absl::Time end : {after_int32, last}) {
    Subscription s = Month();
    s.expires_at = end;
    ExpectEndsAt(s, end);
    EXPECT_THAT(DecideAccess({Granting(s)}, Day(1)).access_until,
                Optional(Eq(end)));
  }
  // Before 1970 too.
  Subscription old = Month();
  old.starts_at = absl::FromUnixSeconds(-10);
  old.expires_at = absl::FromUnixSeconds(-1);
  ExpectStartsAt(old, absl::FromUnixSeconds(-10));
  ExpectEndsAt(old, absl::FromUnixSeconds(-1));
}

TEST(DecideAccess, S0_7_R1_ALateSweepChangesNoAnswer) {
  Subscription unswept = Month();
  unswept.grace_period_ends_at = Day(33);
  Subscription swept = unswept;
  swept.status = Status::kExpired;
  for (int seconds = -5; seconds <= 150; ++seconds) {
    const absl::Time now = Day(33) + absl::Seconds(seconds);
    EXPECT_EQ(DecideAccess({Granting(unswept)}, now),
              DecideAccess({Granting(swept)}, now))
        << seconds;
    EXPECT_EQ(HasAccess(unswept, now), seconds < 0) << seconds;
  }
}

TEST(DecideAccess, R1_ExpiredNeitherGrantsNorDeniesByItself) {
  Subscription s = Month();
  s.status = Status::kExpired;
  ExpectStartsAt(s, Day(0));
  ExpectEndsAt(s, Day(30));
}

TEST(DecideAccess, AnswersAreRightAMillisecondAroundTheEnd) {
  EXPECT_TRUE(HasAccess(Month(), Day(30) - absl::Milliseconds(1)));
  EXPECT_FALSE(HasAccess(Month(), Day(30)));
  EXPECT_FALSE(HasAccess(Month(), Day(30) + absl::Milliseconds(1)));
}

TEST(DecideAccess, APauseTakesEffectAtItsInstant) {
  for (Subscription s : {Month(), Lifetime()}) {
    s.pause_at = Day(10);
    ExpectEndsAt(s, Day(10));
    EXPECT_EQ(Reason(s, Day(10)), AccessReason::kPaused);
    const Verdict before = DecideAccess({Granting(s)}, Day(10) - kTick);
    EXPECT_THAT(before.access_until, Optional(Eq(Day(10))));
    EXPECT_THAT(before.next_transition_at, Optional(Eq(Day(10))));
  }
  // A pause after the end changes nothing.
  Subscription s = Month();
  s.pause_at = Day(40);
  ExpectEndsAt(s, Day(30));
}

TEST(DecideAccess, APlanChangeTakesEffectAtItsInstant) {
  AccessCandidate loses = Granting(Month());
  loses.subscription.next_plan_at = Day(10);
  loses.next_plan = "basic";
  loses.next_plan_grants = false;
  Verdict verdict = DecideAccess({loses}, Day(10) - kTick);
  EXPECT_TRUE(verdict.has_access);
  EXPECT_EQ(verdict.plan, "plan-1");
  EXPECT_THAT(verdict.access_until, Optional(Eq(Day(10))));
  EXPECT_THAT(verdict.next_transition_at, Optional(Eq(Day(10))));
  for (const absl::Time now : {Day(10), Day(10) + kTick}) {
    verdict = DecideAccess({loses}, now);
    EXPECT_FALSE(verdict.has_access);
    EXPECT_EQ(verdict.reason, AccessReason::kFeatureNotInPlan);
    EXPECT_EQ(verdict.plan, "basic");
  }

  AccessCandidate gains = Granting(Month());
  gains.plan_grants = false;
  gains.subscription.next_plan_at = Day(10);
  gains.next_plan = "pro";
  gains.next_plan_grants = true;
  verdict = DecideAccess({gains}, Day(10) - kTick);
  EXPECT_FALSE(verdict.has_access);
  EXPECT_THAT(verdict.next_transition_at, Optional(Eq(Day(10))));
  for (const absl::Time now : {Day(10), Day(10) + kTick}) {
    verdict = DecideAccess({gains}, now);
    EXPECT_TRUE(verdict.has_access);
    EXPECT_EQ(verdict.plan, "pro");
    EXPECT_THAT(verdict.access_until, Optional(Eq(Day(30))));
  }

  AccessCandidate keeps = Granting(Month());
  keeps.subscription.next_plan_at = Day(10);
  keeps.next_plan = "pro";
  keeps.next_plan_grants = true;
  EXPECT_THAT(DecideAccess({keeps}, Day(1)).access_until,
              Optional(Eq(Day(30))));
}

TEST(DecideAccess, NoCandidateIsNoSubscription) {
  const Verdict verdict = DecideAccess({}, Day(0));
  EXPECT_EQ(verdict, Verdict{});
  EXPECT_EQ(verdict.reason, AccessReason::kNoSubscription);
}

TEST(DecideAccess, APlanWithoutTheFeatureNeverGrants) {
  for (Subscription s : {Month(), Lifetime()}) {
    AccessCandidate candidate = Granting(s);
    candidate.plan_grants = false;
    const Verdict verdict = DecideAccess({candidate}, Day(1));
    EXPECT_FALSE(verdict.has_access);
    EXPECT_EQ(verdict.reason, AccessReason::kFeatureNotInPlan);
  }
}

TEST(DecideAccess, ARefusalNamesTheSubscriptionThatCameClosest) {
  Subscription revoked = Month();
  revoked.status = Status::kRevoked;
  Subscription pending;
  AccessCandidate other_plan = Granting(Month(), 4);
  other_plan.plan_grants = false;
  std::vector<AccessCandidate> candidates = {Granting(revoked, 2),
                                             Granting(pending, 3), other_plan};
  Verdict verdict = DecideAccess(candidates, Day(31));
  EXPECT_EQ(verdict.reason, AccessReason::kPending);
  EXPECT_EQ(verdict.subscription_id, 3);

  candidates.push_back(Granting(Month(), 5));
  verdict = DecideAccess(candidates, Day(31));
  EXPECT_EQ(verdict.reason, AccessReason::kEnded);
  EXPECT_EQ(verdict.subscription_id, 5);
  EXPECT_EQ(verdict.plan, "plan-5");
}

TEST(DecideAccess, C059_AccessLastsUntilTheLastGrantorEnds) {
  const AccessCandidate lifetime = Granting(Lifetime(), 1);
  const AccessCandidate monthly = Granting(Month(), 2);
  AccessCandidate refunded_lifetime = lifetime;
  refunded_lifetime.subscription.status = Status::kRevoked;
  AccessCandidate refunded_monthly = monthly;
  refunded_monthly.subscription.status = Status::kRevoked;

  Verdict verdict = DecideAccess({lifetime, monthly}, Day(1));
  EXPECT_EQ(verdict.subscription_id, 1);
  EXPECT_EQ(verdict.access_until, std::nullopt);

  // X refunded, Y goes on to its end.
  verdict = DecideAccess({refunded_lifetime, monthly}, Day(1));
  EXPECT_TRUE(verdict.has_access);
  EXPECT_EQ(verdict.subscription_id, 2);
  EXPECT_EQ(verdict.plan, "plan-2");
  EXPECT_THAT(verdict.access_until, Optional(Eq(Day(30))));
  EXPECT_FALSE(DecideAccess({refunded_lifetime, monthly}, Day(30)).has_access);

  // Y refunded or over, X goes on.
  verdict = DecideAccess({lifetime, refunded_monthly}, Day(1));
  EXPECT_TRUE(verdict.has_access);
  EXPECT_EQ(verdict.subscription_id, 1);
  verdict = DecideAccess({lifetime, monthly}, Day(31));
  EXPECT_TRUE(verdict.has_access);
  EXPECT_EQ(verdict.subscription_id, 1);
}

TEST(DecideAccess, TheEndOfAnOldSubscriptionLeavesTheNewOneAlone) {
  AccessCandidate old_one = Granting(Month(), 1);
  old_one.subscription.status = Status::kCanceled;
  old_one.subscription.expires_at.reset();
  const Verdict verdict = DecideAccess({old_one, Granting(Month(), 2)}, Day(3));
  EXPECT_TRUE(verdict.has_access);
  EXPECT_EQ(verdict.subscription_id, 2);
}

TEST(DecideAccess, TheGrantorThatGrantsLongestDecides) {
  Subscription longer = Month();
  longer.expires_at = Day(60);
  longer.will_renew = true;
  const Verdict verdict = DecideAccess(
      {Granting(Month(), 1), Granting(longer, 2), Granting(Month(), 3)},
      Day(1));
  EXPECT_EQ(verdict.subscription_id, 2);
  EXPECT_TRUE(verdict.will_renew);
  EXPECT_THAT(verdict.access_until, Optional(Eq(Day(60))));
  // Of equals the one with the lower id, so that the answer does not flap.
  EXPECT_EQ(DecideAccess({Granting(Month(), 3), Granting(Month(), 1)}, Day(1))
                .subscription_id,
            1);
}

// ---- properties over arbitrary candidates; the seed is printed on failure
// ----

// Instants lie on a grid of minutes, so that edges coincide often.
absl::Time Grid(int n) { return Start() + absl::Minutes(n); }
constexpr int kGrid = 10;

std::optional<absl::Time> AnyInstant() {
  const int n = *rc::gen::inRange(-kGrid / 2, kGrid);
  if (n < 0) return std::nullopt;
  return Grid(n);
}

AccessCandidate AnyCandidate(int64_t id) {
  AccessCandidate candidate;
  candidate.subscription_id = id;
  Subscription& s = candidate.subscription;
  s.status = static_cast<Status>(*rc::gen::inRange(0, 8));
  s.lifetime = *rc::gen::inRange(0, 6) == 0;
  s.starts_at = AnyInstant();
  s.expires_at = s.lifetime ? std::nullopt : AnyInstant();
  s.grace_period_ends_at = AnyInstant();
  s.leeway_until = AnyInstant();
  s.cancel_at = AnyInstant();
  s.pause_at = AnyInstant();
  s.next_plan_at = AnyInstant();
  s.will_renew = *rc::gen::arbitrary<bool>();
  candidate.plan = absl::StrCat("plan-", id);
  candidate.plan_grants = *rc::gen::inRange(0, 4) != 0;
  candidate.next_plan = absl::StrCat("next-", id);
  candidate.next_plan_grants = *rc::gen::arbitrary<bool>();
  return candidate;
}

std::vector<AccessCandidate> AnyCandidates() {
  std::vector<AccessCandidate> candidates;
  const int count = *rc::gen::inRange(0, 5);
  for (int i = 0; i < count; ++i) candidates.push_back(AnyCandidate(i + 1));
  return candidates;
}

// All instants of the grid, each with its neighbours, and some in between.
std::vector<absl::Time> Instants() {
  std::vector<absl::Time> instants;
  for (int n = -1; n <= kGrid; ++n) {
    for (const absl::Duration d : {-kTick, absl::ZeroDuration(), kTick}) {
      instants.push_back(Grid(n) + d);
    }
    instants.push_back(Grid(n) +
                       absl::Microseconds(*rc::gen::inRange(2, 59'999'998)));
  }
  return instants;
}

// The rule of access, said again from the text and from nothing else.
bool ReferenceGrants(const AccessCandidate& c, absl::Time now) {
  const Subscription& s = c.subscription;
  const auto ahead = [&](const auto& t) { return t.has_value() && now < *t; };
  const auto come = [&](const auto& t) { return t.has_value() && *t <= now; };
  const bool state_allows =
      s.status != Status::kPending && s.status != Status::kPaused &&
      s.status != Status::kCanceled && s.status != Status::kRevoked;
  const bool in_time = s.lifetime || ahead(s.expires_at) ||
                       ahead(s.grace_period_ends_at) || ahead(s.leeway_until);
  return state_allows && come(s.starts_at) && !come(s.pause_at) && in_time &&
         (come(s.next_plan_at) ? c.next_plan_grants : c.plan_grants);
}

TEST(DecideAccessProperty, EqualsTheRuleSaidAgain) {
  EXPECT_TRUE(rc::check("verdict == rule", [] {
    const std::vector<AccessCandidate> candidates = AnyCandidates();
    for (const absl::Time now : Instants()) {
      const bool expected = std::any_of(
          candidates.begin(), candidates.end(),
          [&](const AccessCandidate& c) { return ReferenceGrants(c, now); });
      RC_ASSERT(DecideAccess(candidates, now).has_access == expected);
    }
  }));
}

TEST(DecideAccessProperty, AnAnswerHoldsUntilItsNextTransition) {
  EXPECT_TRUE(rc::check("kept answer == fresh answer", [] {
    const std::vector<AccessCandidate> candidates = AnyCandidates();
    const std::vector<absl::Time> instants = Instants();
    for (const absl::Time asked : instants) {
      const Verdict kept = DecideAccess(candidates, asked);
      RC_ASSERT((!kept.next_transition_at || *kept.next_transition_at > asked));
      for (const absl::Time now : instants) {
        if (now < asked) continue;
        if (kept.next_transition_at && now >= *kept.next_transition_at) break;
        RC_ASSERT(DecideAccess(candidates, now) == kept);
      }
    }
  }));
}

TEST(DecideAccessProperty, TheGrantorGrantsUntilAccessUntilAndNoOtherLonger) {
  EXPECT_TRUE(rc::check("access_until is the grantor's end", [] {
    const std::vector<AccessCandidate> candidates = AnyCandidates();
    for (const absl::Time now : Instants()) {
      const Verdict verdict = DecideAccess(candidates, now);
      if (!verdict.has_access) {
        RC_ASSERT(!verdict.access_until.has_value());
        RC_ASSERT(candidates.empty() == (verdict.subscription_id == 0));
        continue;
      }
      const auto grantor = std::find_if(
          candidates.begin(), candidates.end(), [&](const AccessCandidate& c) {
            return c.subscription_id == verdict.subscription_id;
          });
      RC_ASSERT(grantor != candidates.end());
      const absl::Time end = verdict.access_until.value_or(Grid(10 * kGrid));
      RC_ASSERT(end > now);
      RC_ASSERT(ReferenceGrants(*grantor, end - kTick));
      if (verdict.access_until) RC_ASSERT(!ReferenceGrants(*grantor, end));
      // Whoever grants now stops by then.
      for (const AccessCandidate& c : candidates) {
        if (!ReferenceGrants(c, now) || !verdict.access_until) continue;
        bool stopped = false;
        for (int n = -1; n <= kGrid; ++n) {
          if (Grid(n) > now && Grid(n) <= end) {
            stopped |= !ReferenceGrants(c, Grid(n));
          }
        }
        RC_ASSERT(stopped);
      }
    }
  }));
}

TEST(DecideAccessProperty, OnceRefusedByTimeAloneItStaysRefused) {
  EXPECT_TRUE(rc::check("no stays no", [] {
    std::vector<AccessCandidate> candidates = AnyCandidates();
    for (AccessCandidate& c : candidates) {
      // What may turn a no into a yes by time alone: a start or a plan ahead.
      c.subscription.starts_at = Grid(-2);
      c.subscription.next_plan_at.reset();
    }
    bool refused = false;
    for (const absl::Time now : Instants()) {
      const bool has_access = DecideAccess(candidates, now).has_access;
      RC_ASSERT((!(refused && has_access)));
      refused = refused || !has_access;
    }
  }));
}

TEST(DecideAccessProperty, TheOrderOfCandidatesDoesNotMatter) {
  EXPECT_TRUE(rc::check("permuted == sorted", [] {
    const std::vector<AccessCandidate> candidates = AnyCandidates();
    std::vector<size_t> order(candidates.size());
    std::iota(order.begin(), order.end(), 0);
    const absl::Time now =
        Grid(*rc::gen::inRange(-1, kGrid)) + kTick * *rc::gen::inRange(-1, 2);
    const Verdict expected = DecideAccess(candidates, now);
    do {
      std::vector<AccessCandidate> permuted;
      for (const size_t i : order) permuted.push_back(candidates[i]);
      RC_ASSERT(DecideAccess(permuted, now) == expected);
    } while (std::next_permutation(order.begin(), order.end()));
  }));
}

}  // namespace
}  // namespace tenure::domain
