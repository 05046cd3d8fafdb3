#include "common/domain/fold.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "common/domain/fold_testing.h"
#include "common/domain/lifecycle.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace tenure::domain {
namespace {

using test::HasReason;
using test::IsOk;
using test::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::Field;
using ::testing::Optional;

// ---- Fold ----

TEST(Fold, NothingIsPending) {
  const Subscription s = Folded(std::vector<Fact>{});
  EXPECT_EQ(s, Subscription{});
  EXPECT_EQ(s.status, Status::kPending);
}

TEST(Fold, APaymentMakesThePaidPeriodActive) {
  const Subscription s = Folded(std::vector<Fact>{
      Paid(Day(0), "in_1", Day(0), Day(30), Day(30) + absl::Hours(3))});
  EXPECT_EQ(s.status, Status::kActive);
  EXPECT_THAT(s.starts_at, Optional(Eq(Day(0))));
  EXPECT_THAT(s.anchor_at, Optional(Eq(Day(0))));
  EXPECT_THAT(s.expires_at, Optional(Eq(Day(30))));
  EXPECT_THAT(s.AccessUntil(), Optional(Eq(Day(30) + absl::Hours(3))));
  EXPECT_TRUE(s.will_renew);
  EXPECT_FALSE(s.lifetime);
  EXPECT_EQ(s.term_no, 1);
}

TEST(Fold, C001_TwoEventsOfOneInvoiceAreOneTerm) {
  const Fact paid = Paid(Day(0), "in_9", Day(0), Day(30));
  const Subscription once = Folded({Ordered("evt_a", paid)});
  EXPECT_EQ(once.term_no, 1);
  for (const absl::Duration later :
       {absl::ZeroDuration(), absl::Seconds(1), absl::Hours(24 * 40)}) {
    const Fact again = Paid(Day(0) + later, "in_9", Day(0), Day(30));
    EXPECT_EQ(Folded({Ordered("evt_a", paid), Ordered("evt_b", again),
                      Ordered("evt_a", paid)}),
              once);
  }
}

TEST(Fold, AnOlderCreationNeverOverwritesAnActiveState) {
  const std::vector<OrderedFact> sorted = {
      Ordered("evt_1", Created(Day(0), Day(0))),
      Ordered("evt_2",
              Paid(Day(0) + absl::Seconds(1), "in_1", Day(0), Day(30)))};
  EXPECT_EQ(Folded(sorted).status, Status::kActive);
  EXPECT_EQ(Folded({sorted[1], sorted[0]}), Folded(sorted));
}

TEST(Fold, InOneSecondTheWrittenRankDecides) {
  const OrderedFact created = Ordered("evt_z", Created(Day(0), Day(0)));
  const OrderedFact paid =
      Ordered("evt_m", Paid(Day(0), "in_1", Day(0), Day(30)));
  const OrderedFact ended = Ordered("evt_a", Ended(Day(0), Day(20)));
  const Subscription expected = Folded({created, paid, ended});
  EXPECT_THAT(expected.expires_at, Optional(Eq(Day(20))));
  EXPECT_EQ(Folded({ended, paid, created}), expected);
  EXPECT_EQ(Folded({paid, ended, created}), expected);
}

TEST(Fold, EventIdsBreakTiesBytewise) {
  const Fact first = Failed(Day(5), "in_2", Day(33));
  const Fact second = Failed(Day(5), "in_2", Day(40));
  const OrderedFact paid =
      Ordered("evt_0", Paid(Day(0), "in_1", Day(0), Day(30)));
  // "EVT" sorts before "evt", and a byte above 127 after both.
  EXPECT_THAT(Folded({Ordered("evt_1", second), Ordered("EVT_1", first), paid})
                  .grace_period_ends_at,
              Optional(Eq(Day(33))));
  EXPECT_THAT(
      Folded({Ordered("evt_\xc3\xa9", second), Ordered("evt_z", first), paid})
          .grace_period_ends_at,
      Optional(Eq(Day(33))));
}

TEST(Fold, ATrialGivesAccessToItsEnd) {
  const Subscription s =
      Folded(std::vector<Fact>{Created(Day(0), Day(0), Day(14))});
  EXPECT_EQ(s.status, Status::kTrialing);
  EXPECT_THAT(s.AccessUntil(), Optional(Eq(Day(14))));
  EXPECT_EQ(s.term_no, 0);
}

TEST(Fold, ACreationWithoutTrialGrantsNothing) {
  const Subscription s = Folded(std::vector<Fact>{Created(Day(0), Day(0))});
  EXPECT_EQ(s.status, Status::kPending);
  EXPECT_EQ(s.AccessUntil(), std::nullopt);
}

TEST(Fold, C051_GraceIsStampedOnceAndTheTermGoesOnFromTheOldEnd) {
  const std::vector<Fact> failing = {
      Paid(Day(0), "in_1", Day(0), Day(30)),
      Failed(Day(30), "in_2", Day(33)),
      Failed(Day(31), "in_2", Day(34)),
      Failed(Day(32), "in_2", Day(35)),
  };
  Subscription s = Folded(failing);
  EXPECT_EQ(s.status, Status::kPastDue);
  EXPECT_THAT(s.expires_at, Optional(Eq(Day(30))));
  EXPECT_THAT(s.grace_period_ends_at, Optional(Eq(Day(33))));

  std::vector<Fact> paid = failing;
  paid.push_back(Paid(Day(32), "in_2", Day(30), Day(60)));
  s = Folded(paid);
  EXPECT_EQ(s.status, Status::kActive);
  EXPECT_THAT(s.expires_at, Optional(Eq(Day(60))));
  EXPECT_EQ(s.grace_period_ends_at, std::nullopt);
  EXPECT_EQ(s.term_no, 2);

  // The next unpaid period has a grace of its own.
  paid.push_back(Failed(Day(60), "in_3", Day(63)));
  EXPECT_THAT(Folded(paid).grace_period_ends_at, Optional(Eq(Day(63))));
}

TEST(Fold, C051_AFailureWithoutGraceEndsTheLeeway) {
  const Subscription s = Folded(std::vector<Fact>{
      Paid(Day(0), "in_1", Day(0), Day(30), Day(30) + absl::Hours(3)),
      Failed(Day(30), "in_2")});
  EXPECT_EQ(s.status, Status::kPastDue);
  EXPECT_THAT(s.AccessUntil(), Optional(Eq(Day(30))));
}

TEST(Fold, C056_ALateFailureOfAPaidInvoiceIsAnEarlierAttempt) {
  std::vector<Fact> facts = {
      Paid(Day(0), "in_4", Day(0), Day(30)),
      Paid(Day(30) + absl::Seconds(20), "in_5", Day(30), Day(60)),
  };
  const Subscription paid = Folded(facts);
  for (const int second : {18, 20, 22}) {
    std::vector<Fact> late = facts;
    late.push_back(Failed(Day(30) + absl::Seconds(second), "in_5", Day(33)));
    EXPECT_EQ(Folded(late), paid) << second;
  }
  facts.push_back(Failed(Day(60), "in_6", Day(63)));
  EXPECT_EQ(Folded(facts).status, Status::kPastDue);
}

TEST(Fold, APaymentOfAnOlderPeriodDoesNotEndTheNeedForGrace) {
  const Subscription s = Folded(std::vector<Fact>{
      Paid(Day(30), "in_2", Day(30), Day(60)),
      Failed(Day(60), "in_3", Day(63)),
      Paid(Day(61), "in_1", Day(0), Day(30)),
  });
  EXPECT_EQ(s.status, Status::kPastDue);
  EXPECT_THAT(s.grace_period_ends_at, Optional(Eq(Day(63))));
  EXPECT_THAT(s.AccessUntil(), Optional(Eq(Day(63))));
}

TEST(Fold, C063_D3_CancellingAtTheEndKeepsAccessAndCanBeTakenBack) {
  const absl::Time leeway = Day(30) + absl::Hours(3);
  std::vector<Fact> facts = {Paid(Day(0), "in_1", Day(0), Day(30), leeway),
                             CancelScheduled(Day(10), Day(30))};
  Subscription s = Folded(facts);
  EXPECT_EQ(s.status, Status::kActive);
  EXPECT_THAT(s.AccessUntil(), Optional(Eq(Day(30))));
  EXPECT_THAT(s.cancel_at, Optional(Eq(Day(30))));
  EXPECT_FALSE(s.will_renew);

  facts.push_back(CancelReverted(Day(29)));
  s = Folded(facts);
  EXPECT_EQ(s.cancel_at, std::nullopt);
  EXPECT_TRUE(s.will_renew);
  EXPECT_THAT(s.AccessUntil(), Optional(Eq(leeway)));
}

TEST(Fold, C063_WithoutAnInstantItEndsWithWhatWasPaid) {
  const Subscription s =
      Folded(std::vector<Fact>{Paid(Day(0), "in_1", Day(0), Day(30), Day(31)),
                               CancelScheduled(Day(10))});
  EXPECT_THAT(s.cancel_at, Optional(Eq(Day(30))));
  EXPECT_THAT(s.AccessUntil(), Optional(Eq(Day(30))));
}

TEST(Fold, C063_AnEarlierCancelDateLowersTheEnd) {
  const Subscription s =
      Folded(std::vector<Fact>{Paid(Day(0), "in_1", Day(0), Day(30)),
                               CancelScheduled(Day(10), Day(20))});
  EXPECT_THAT(s.AccessUntil(), Optional(Eq(Day(20))));
}

TEST(Fold, C063_GraceDoesNotOutlastAScheduledEnd) {
  const Subscription s = Folded(std::vector<Fact>{
      Paid(Day(0), "in_1", Day(0), Day(30)), Failed(Day(30), "in_2", Day(33)),
      CancelScheduled(Day(31), Day(32))});
  EXPECT_THAT(s.AccessUntil(), Optional(Eq(Day(32))));
}

TEST(Fold, C063_AnEndAtOnceTakesAccessFromItsInstant) {
  const Subscription s = Folded(std::vector<Fact>{
      Paid(Day(0), "in_1", Day(0), Day(30), Day(31)), Ended(Day(10), Day(10))});
  EXPECT_THAT(s.AccessUntil(), Optional(Eq(Day(10))));
  EXPECT_FALSE(s.will_renew);
}

// Regression: a cancellation before a payment of a scheduled one left the
// leeway off for good, though it had been taken back.
TEST(Fold, LeewayOfAPaymentMadeWhileACancellationStoodReturnsWithIt) {
  const Subscription s = Folded(std::vector<Fact>{
      CancelScheduled(Day(1), Day(40)),
      Paid(Day(2), "in_1", Day(0), Day(30), Day(31)), CancelReverted(Day(3))});
  EXPECT_TRUE(s.will_renew);
  EXPECT_THAT(s.AccessUntil(), Optional(Eq(Day(31))));
}

TEST(Fold, AnEndedSubscriptionKeepsTheEarlierEnd) {
  const Subscription s = Folded(std::vector<Fact>{
      Paid(Day(0), "in_1", Day(0), Day(30)), Ended(Day(60), Day(60))});
  EXPECT_THAT(s.expires_at, Optional(Eq(Day(30))));
  const Subscription twice = Folded(
      std::vector<Fact>{Paid(Day(0), "in_1", Day(0), Day(30)),
                        Ended(Day(20), Day(20)), Ended(Day(25), Day(25))});
  EXPECT_THAT(twice.expires_at, Optional(Eq(Day(20))));
}

TEST(Fold, AnEndBeforeAnythingWasPaidIsCanceled) {
  for (const std::vector<Fact>& facts :
       {std::vector<Fact>{Ended(Day(1), Day(1))},
        std::vector<Fact>{Created(Day(0), Day(0)), Ended(Day(1), Day(1))},
        std::vector<Fact>{Created(Day(0), Day(5), Day(10)),
                          Ended(Day(1), Day(1))},
        std::vector<Fact>{Paid(Day(0), "in_1", Day(5), Day(10)),
                          Ended(Day(1), Day(1))}}) {
    const Subscription s = Folded(facts);
    EXPECT_EQ(s.status, Status::kCanceled) << s;
    EXPECT_EQ(s.AccessUntil(), std::nullopt) << s;
    EXPECT_EQ(BrokenCheck({s, {}}), "") << s;
  }
}

// Regression: the time that the end had cut off came back with the next
// purchase, and an old cancellation date swallowed it.
TEST(Fold, BuyingAgainAfterTheEndGivesWhatWasBoughtAndNoMore) {
  const Subscription s = Folded(std::vector<Fact>{
      Paid(Day(0), "in_1", Day(0), Day(365), Day(366)),
      CancelScheduled(Day(40), Day(50)),
      Ended(Day(50), Day(50)),
      Paid(Day(60), "in_2", Day(60), Day(90)),
  });
  EXPECT_EQ(s.status, Status::kActive);
  EXPECT_THAT(s.AccessUntil(), Optional(Eq(Day(90))));
  EXPECT_EQ(s.cancel_at, std::nullopt);
  EXPECT_TRUE(s.will_renew);
  EXPECT_EQ(s.term_no, 2);
}

// Regression: such rows broke a CHECK, so the event could never be applied.
TEST(Fold, ContradictoryDatesStillMakeARowThatCanBeStored) {
  const std::vector<std::vector<Fact>> kLists = {
      {Paid(Day(10), "in_1", Day(10), Day(20)),
       CancelScheduled(Day(11), Day(5))},
      {Paid(Day(10), "in_1", Day(10), Day(20)),
       CancelScheduled(Day(11), Day(10))},
      {CancelScheduled(Day(1), Day(5)),
       Paid(Day(10), "in_1", Day(10), Day(20))},
      {Created(Day(0), std::nullopt, Day(14))},
      {Created(Day(0), Day(10)), Created(Day(1), Day(2), Day(5))},
      {Created(Day(0), Day(10), Day(5))},
      {Created(Day(0), Day(10), Day(10))},
      {Created(Day(0), std::nullopt, Day(14)), Ended(Day(1), Day(1))},
  };
  for (size_t i = 0; i < kLists.size(); ++i) {
    const Subscription s = Folded(kLists[i]);
    EXPECT_EQ(BrokenCheck({s, {}}), "") << i << ": " << s;
  }
  // The payment of a period behind the scheduled end shows that it was bought.
  EXPECT_THAT(Folded(kLists[2]).AccessUntil(), Optional(Eq(Day(20))));
}

TEST(Fold, InstantsAreWholeMicroseconds) {
  Fact paid = Paid(Day(0), "in_1", Day(0), Day(30));
  paid.mutable_paid()->mutable_period_ends_at()->set_nanos(999'999'999);
  EXPECT_THAT(Folded(std::vector<Fact>{paid}).expires_at,
              Optional(Eq(Day(30) + absl::Microseconds(999'999))));
}

// ---- MakeOrderedFact ----

TEST(MakeOrderedFact, NeedsAnOrderAndAKind) {
  Fact no_order = Created(Day(0), Day(0));
  no_order.clear_order_at();
  EXPECT_THAT(MakeOrderedFact("evt_1", no_order),
              HasReason(common::v1::ERROR_REASON_FIELD_MISSING));
  EXPECT_THAT(MakeOrderedFact("evt_1", NewFact(Day(0))),
              HasReason(common::v1::ERROR_REASON_FIELD_MISSING));
}

// A fact is stored for ever; one that means nothing must not get that far.
TEST(MakeOrderedFact, C070_RefusesDegenerateFacts) {
  std::vector<Fact> bad;
  bad.push_back(Paid(Day(0), "", Day(0), Day(30)));
  bad.push_back(Paid(Day(0), "in_1", Day(30), Day(30)));
  bad.push_back(Paid(Day(0), "in_1", Day(30), Day(0)));
  bad.push_back(Paid(Day(0), "in_1", Day(0), Day(30)));
  bad.back().mutable_paid()->clear_period_starts_at();
  bad.push_back(Paid(Day(0), "in_1", Day(0), Day(30)));
  bad.back().mutable_paid()->clear_period_ends_at();
  bad.push_back(Paid(Day(0), "in_1", Day(0), Day(30)));
  bad.back().mutable_paid()->mutable_period_ends_at()->set_seconds(
      253'402'300'800);
  bad.push_back(Paid(Day(0), "in_1", Day(0), Day(30)));
  bad.back().mutable_paid()->mutable_leeway_until()->set_nanos(-1);
  bad.push_back(Failed(Day(0), ""));
  bad.push_back(Ended(Day(0), Day(0)));
  bad.back().mutable_ended()->clear_ended_at();
  bad.push_back(Ended(Day(0), Day(0)));
  bad.back().mutable_ended()->mutable_ended_at()->set_seconds(
      4'000'000'000'000'000);
  bad.push_back(CancelScheduled(Day(0), Day(0)));
  bad.back().mutable_cancel_scheduled()->mutable_cancel_at()->set_seconds(
      INT64_MIN);
  for (const Fact& fact : bad) {
    EXPECT_THAT(MakeOrderedFact("evt_1", fact),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << fact.DebugString();
  }
  // One tick is a term (C072).
  EXPECT_THAT(
      MakeOrderedFact("evt_1", Paid(Day(0), "in_1", Day(0), Day(0) + kTick)),
      IsOk());
}

TEST(MakeOrderedFact, TakesOrderFromTheFactAndTheEvent) {
  Fact fact = Ended(Day(3), Day(4));
  fact.set_ordinal(2);
  const OrderedFact ordered = Ordered("evt_7", fact);
  EXPECT_EQ(ordered.order.order_at, Day(3));
  EXPECT_EQ(ordered.order.rank, RankOf(Fact::kEnded));
  EXPECT_EQ(ordered.order.event_id, "evt_7");
  EXPECT_EQ(ordered.order.ordinal, 2);
}

TEST(MakeOrderedFact, MoneyIsCountedUnderTheKeyOfTheMoney) {
  EXPECT_EQ(MoneyKey(Paid(Day(0), "in_1", Day(0), Day(1))), "in_1");
  EXPECT_EQ(MoneyKey(Failed(Day(0), "in_2")), "in_2");
  EXPECT_EQ(MoneyKey(Ended(Day(0), Day(0))), "");
}

// ---- order and repetition ----

// C007: one life in every order of arrival, every fact twice. The row is moved
// fact by fact, as deliveries do it, and folded at once.
TEST(Fold, C007_AllOrdersOfOneLifeGiveOneRow) {
  const std::vector<std::vector<OrderedFact>> kLives = {
      Events({Created(Day(0), Day(0)),
              Paid(Day(0) + absl::Seconds(5), "in_1", Day(0), Day(30), Day(31)),
              Failed(Day(30), "in_2", Day(33)),
              Paid(Day(32), "in_2", Day(30), Day(60), Day(61)),
              CancelScheduled(Day(40), Day(60))}),
      Events({Created(Day(0), Day(0), Day(14)),
              Paid(Day(14), "in_1", Day(14), Day(44), Day(45)),
              CancelScheduled(Day(20)), CancelReverted(Day(21)),
              Ended(Day(30), Day(30)),
              Paid(Day(50), "in_2", Day(50), Day(80), Day(81))}),
      // All of one instant.
      Events({Created(Day(0), Day(0)), Paid(Day(0), "in_1", Day(0), Day(30)),
              Paid(Day(0), "in_1", Day(0), Day(30)),
              Failed(Day(0), "in_2", Day(33)), CancelScheduled(Day(0)),
              CancelReverted(Day(0))}),
  };
  const absl::Time now = Day(70);
  for (const std::vector<OrderedFact>& life : kLives) {
    const Subscription expected = Folded(life);
    std::vector<size_t> order(life.size());
    std::iota(order.begin(), order.end(), 0);
    do {
      // Twice in a row, and all once more at the end in the other direction.
      std::vector<OrderedFact> arrivals;
      for (const size_t i : order) {
        arrivals.insert(arrivals.end(), {life[i], life[i]});
      }
      const std::vector<OrderedFact> backwards(arrivals.rbegin(),
                                               arrivals.rend());
      arrivals.insert(arrivals.end(), backwards.begin(), backwards.end());
      ASSERT_EQ(Folded(arrivals), expected);

      Row row;
      std::vector<OrderedFact> arrived;
      for (const OrderedFact& fact : arrivals) {
        arrived.push_back(fact);
        row.Move(Projected(arrived), now);
      }
      ASSERT_EQ(row.state->subscription, Lapse(expected, now));
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

// ---- Lapse ----

TEST(Lapse, R2_ExpiresFromTheExactEndInstantOn) {
  for (const Status status :
       {Status::kTrialing, Status::kActive, Status::kPastDue}) {
    Subscription s;
    s.status = status;
    s.starts_at = Day(0);
    s.expires_at = Day(30);
    s.grace_period_ends_at = Day(33);
    EXPECT_EQ(Lapse(s, Day(33) - kTick), s);
    EXPECT_EQ(Lapse(s, Day(33)).status, Status::kExpired);
    EXPECT_EQ(Lapse(s, Day(33) + kTick).status, Status::kExpired);
    // Nothing but the status changes.
    Subscription lapsed = Lapse(s, Day(33));
    lapsed.status = status;
    EXPECT_EQ(lapsed, s);
  }
}

TEST(Lapse, LeavesWhatIsNotLiveOrHasNoEnd) {
  for (const Status status :
       {Status::kPending, Status::kPaused, Status::kCanceled, Status::kRevoked,
        Status::kExpired}) {
    Subscription s;
    s.status = status;
    s.starts_at = Day(0);
    s.expires_at = Day(30);
    EXPECT_EQ(Lapse(s, Day(31)), s);
  }
  Subscription lifetime;
  lifetime.status = Status::kActive;
  lifetime.lifetime = true;
  lifetime.starts_at = Day(0);
  lifetime.leeway_until = Day(1);
  EXPECT_EQ(Lapse(lifetime, Day(5000)), lifetime);
}

// ---- Advance ----

auto IsEvent(const std::string& type, int episode, absl::Time effective_at) {
  return AllOf(Field(&DomainEvent::type, "subscription." + type),
               Field(&DomainEvent::episode, episode),
               Field(&DomainEvent::effective_at, effective_at));
}

const Fact& FirstMonth() {
  static const Fact& fact = *new Fact(Paid(Day(0), "in_1", Day(0), Day(30)));
  return fact;
}

TEST(Advance, AnnouncesTheActivationOnce) {
  Row row;
  const Projection s = Projected(std::vector<Fact>{FirstMonth()});
  Transition transition = row.Move(s, Day(1));
  EXPECT_TRUE(transition.changed);
  EXPECT_THAT(transition.events, ElementsAre(IsEvent("created", 0, Day(0)),
                                             IsEvent("activated", 0, Day(0))));
  EXPECT_EQ(transition.events[1].old_access_until, std::nullopt);
  EXPECT_THAT(transition.events[1].access_until, Optional(Eq(Day(30))));
  EXPECT_EQ(transition.events[1].seq, 2);

  transition = row.Move(s, Day(2));
  EXPECT_FALSE(transition.changed);
  EXPECT_THAT(transition.events, ElementsAre());
}

TEST(Advance, AnnouncesTheEndOncePerEpisode) {
  Row row;
  const Projection s = Projected(std::vector<Fact>{FirstMonth()});
  row.Move(s, Day(1));
  EXPECT_THAT(row.Move(s, Day(30) - kTick).events, ElementsAre());
  EXPECT_THAT(row.Move(s, Day(30)).events,
              ElementsAre(IsEvent("expired", 0, Day(30))));
  EXPECT_THAT(row.state->lifecycle.expired_at, Optional(Eq(Day(30))));
  const Transition later = row.Move(s, Day(31));
  EXPECT_FALSE(later.changed);
  EXPECT_THAT(later.events, ElementsAre());
  EXPECT_THAT(row.state->lifecycle.expired_at, Optional(Eq(Day(30))));
}

TEST(Advance, ARenewalAfterTheEndStartsAnEpisodeWithAnEndOfItsOwn) {
  Row row;
  std::vector<Fact> facts = {FirstMonth()};
  row.Move(Projected(facts), Day(1));
  row.Move(Projected(facts), Day(30));
  facts.push_back(Paid(Day(31), "in_2", Day(30), Day(60)));
  EXPECT_THAT(row.Move(Projected(facts), Day(31)).events,
              ElementsAre(IsEvent("renewed", 1, Day(30))));
  EXPECT_EQ(row.state->subscription.status, Status::kActive);
  EXPECT_EQ(row.state->lifecycle.expired_at, std::nullopt);
  EXPECT_EQ(row.state->lifecycle.episode, 1);
  EXPECT_THAT(row.Move(Projected(facts), Day(61)).events,
              ElementsAre(IsEvent("expired", 1, Day(60))));
  EXPECT_THAT(row.Types(), ElementsAre("created", "activated", "expired",
                                       "renewed", "expired"));
}

TEST(Advance, ARenewalThatIsOverWhenItArrivesIsAnEpisodeToo) {
  Row row;
  std::vector<Fact> facts = {FirstMonth()};
  row.Move(Projected(facts), Day(1));
  row.Move(Projected(facts), Day(30));
  // The month after was paid, and is over by the time we hear of it.
  facts.push_back(Paid(Day(30), "in_2", Day(30), Day(60)));
  row.Move(Projected(facts), Day(100));
  EXPECT_EQ(row.state->lifecycle.episode, 1);
  EXPECT_THAT(row.state->lifecycle.expired_at, Optional(Eq(Day(100))));
  EXPECT_THAT(row.Types(), ElementsAre("created", "activated", "expired",
                                       "renewed", "expired"));
}

TEST(Advance, ARenewalInsideTheTermNeverAnnouncesAnEnd) {
  Row row;
  std::vector<Fact> facts = {FirstMonth()};
  row.Move(Projected(facts), Day(1));
  facts.push_back(Paid(Day(29), "in_2", Day(30), Day(60)));
  EXPECT_THAT(row.Move(Projected(facts), Day(29)).events,
              ElementsAre(IsEvent("renewed", 0, Day(30))));
  EXPECT_THAT(row.Move(Projected(facts), Day(31)).events, ElementsAre());
  EXPECT_EQ(row.state->lifecycle.episode, 0);
}

TEST(Advance, C056_NoReminderForAStaleFailure) {
  Row row;
  std::vector<Fact> facts = {FirstMonth(),
                             Paid(Day(30), "in_2", Day(30), Day(60))};
  row.Move(Projected(facts), Day(31));
  facts.push_back(Failed(Day(30) - absl::Seconds(2), "in_2", Day(33)));
  EXPECT_THAT(row.Move(Projected(facts), Day(32)).events, ElementsAre());
  facts.push_back(Failed(Day(60), "in_3", Day(63)));
  EXPECT_THAT(row.Move(Projected(facts), Day(60)).events,
              ElementsAre(IsEvent("past_due", 0, Day(60)),
                          IsEvent("entered_grace", 0, Day(60))));
}

TEST(Advance, C063_AnnouncesAScheduledEndAndItsWithdrawal) {
  Row row;
  std::vector<Fact> facts = {FirstMonth()};
  row.Move(Projected(facts), Day(1));
  facts.push_back(CancelScheduled(Day(2), Day(30)));
  EXPECT_THAT(row.Move(Projected(facts), Day(2)).events,
              ElementsAre(IsEvent("cancel_scheduled", 0, Day(30))));
  EXPECT_THAT(row.Move(Projected(facts), Day(2)).events, ElementsAre());
  facts.push_back(CancelReverted(Day(3)));
  EXPECT_THAT(row.Move(Projected(facts), Day(3)).events,
              ElementsAre(IsEvent("cancel_reverted", 0, Day(3))));
}

TEST(Advance, AnEndThatNeverGaveAccessIsCanceled) {
  Row row;
  std::vector<Fact> facts = {Created(Day(0), Day(0))};
  EXPECT_THAT(row.Move(Projected(facts), Day(0)).events,
              ElementsAre(IsEvent("created", 0, Day(0))));
  facts.push_back(Ended(Day(1), Day(1)));
  EXPECT_THAT(row.Move(Projected(facts), Day(1)).events,
              ElementsAre(IsEvent("canceled", 0, Day(1))));
}

// Regression: the row came back under the number of an episode whose end had
// been told, so its next end broke the unique key and failed for ever.
TEST(Advance, ARowThatComesBackFromCanceledStartsAnEpisode) {
  Row row;
  std::vector<Fact> facts = {FirstMonth()};
  row.Move(Projected(facts), Day(1));
  row.Move(Projected(facts), Day(30));
  // It turns out to have ended before it began; that is no second life.
  facts.push_back(Ended(Day(31), Day(0)));
  row.Move(Projected(facts), Day(31));
  EXPECT_EQ(row.state->subscription.status, Status::kCanceled);
  EXPECT_EQ(row.state->lifecycle.episode, 0);
  facts.push_back(Paid(Day(32), "in_2", Day(32), Day(62)));
  row.Move(Projected(facts), Day(32));
  EXPECT_EQ(row.state->lifecycle.episode, 1);
  row.Move(Projected(facts), Day(62));
  EXPECT_THAT(row.Types(), ElementsAre("created", "activated", "expired",
                                       "canceled", "activated", "expired"));
}

TEST(Advance, AFactThatArrivesAfterItsEndIsAnnouncedWithIt) {
  Row row;
  row.Move(Projected(std::vector<Fact>{FirstMonth()}), Day(40));
  EXPECT_THAT(row.Types(), ElementsAre("created", "activated", "expired"));
  EXPECT_THAT(row.state->lifecycle.expired_at, Optional(Eq(Day(40))));
}

}  // namespace
}  // namespace tenure::domain
