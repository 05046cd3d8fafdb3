#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "common/base/proto_time.h"
#include "common/domain/access.h"
#include "common/domain/fold.h"
#include "common/domain/fold_testing.h"
#include "common/domain/lifecycle.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

// Lives that went wrong elsewhere, folded. Each test carries the number of its
// case.
namespace tenure::domain {
namespace {

using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::Optional;

using Facts = std::vector<Fact>;

AccessCandidate Grantor(int64_t id, const Subscription& s) {
  AccessCandidate candidate;
  candidate.subscription_id = id;
  candidate.subscription = s;
  candidate.plan = s.plan;
  candidate.plan_grants = true;
  candidate.next_plan = s.next_plan;
  candidate.next_plan_grants = true;
  return candidate;
}

bool HasAccess(const Subscription& s, absl::Time at) {
  return DecideAccess({Grantor(1, s)}, at).has_access;
}

bool HasAccess(const Facts& facts, absl::Time at) {
  return HasAccess(Folded(facts), at);
}

// Gone from `end` on, and there until then.
testing::AssertionResult EndsAt(const Subscription& s, absl::Time end) {
  if (!HasAccess(s, end - kTick)) {
    return testing::AssertionFailure() << "no access before it: " << s;
  }
  if (HasAccess(s, end)) {
    return testing::AssertionFailure() << "access at it: " << s;
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult EndsAt(const Facts& facts, absl::Time end) {
  return EndsAt(Folded(facts), end);
}

// The facts in all orders, each told twice, give what they give in theirs.
void ExpectOneRowInAllOrders(const Facts& facts) {
  const std::vector<OrderedFact> events = Events(facts);
  const Projection expected = Projected(events);
  std::vector<size_t> order(events.size());
  std::iota(order.begin(), order.end(), 0);
  do {
    std::vector<OrderedFact> arrivals;
    for (const size_t i : order) arrivals.push_back(events[i]);
    for (const size_t i : order) arrivals.push_back(events[i]);
    ASSERT_EQ(Projected(arrivals), expected);
  } while (std::next_permutation(order.begin(), order.end()));
}

Fact CanceledByOperator(absl::Time order_at,
                        std::optional<absl::Time> cancel_at = std::nullopt) {
  return ByOperator(CancelScheduled(order_at, cancel_at));
}

TEST(FoldCases, C006_ACreationThatComesSecondDoesNotUndoTheUpdate) {
  const OrderedFact updated =
      Ordered("evt_2", OnPlan(Snapshot(Day(0) + absl::Seconds(1), "active",
                                       /*read_back=*/false),
                              "basic"));
  const OrderedFact paid = Ordered("evt_2", [] {
    Fact fact = Paid(Day(0) + absl::Seconds(1), "in_1", Day(0), Day(30));
    fact.set_ordinal(1);
    return fact;
  }());
  const OrderedFact created = Ordered("evt_1", Created(Day(0), Day(0)));
  const OrderedFact incomplete =
      Ordered("evt_1", Snapshot(Day(0), "pending", /*read_back=*/false));
  const Subscription s = Folded({updated, paid, created, incomplete});
  EXPECT_EQ(s.status, Status::kActive);
  EXPECT_EQ(s, Folded({created, incomplete, updated, paid}));
  EXPECT_TRUE(EndsAt(s, Day(30)));
}

TEST(FoldCases, C007_AllOrdersGiveOneRowAndTheSameTermsOfQuota) {
  const Facts life = {
      Created(Day(0), Day(0)),
      Paid(Day(0) + absl::Seconds(5), "in_1", Day(0), Day(30), Day(31)),
      PlanChanged(Day(10), "pro"),
      Paid(Day(30), "in_2", Day(30), Day(60), Day(61)),
      CancelScheduled(Day(40), Day(60))};
  ExpectOneRowInAllOrders(life);
  const Projection folded = Projected(life);
  EXPECT_EQ(QuotaTerms(folded).size(), 2u);
  EXPECT_TRUE(EndsAt(folded.subscription, Day(60)));
}

TEST(FoldCases, C009_TwoPlansInOneSecondAreFlaggedUntilTheReadBack) {
  const OrderedFact a = Ordered("evt_1", PlanChanged(Day(7), "a"));
  const OrderedFact b = Ordered("evt_2", PlanChanged(Day(7), "b"));
  const OrderedFact paid =
      Ordered("evt_0", OnPlan(Paid(Day(0), "in_1", Day(0), Day(30)), "start"));
  for (const std::vector<OrderedFact>& order :
       {std::vector<OrderedFact>{paid, a, b}, {b, a, paid}, {a, paid, b}}) {
    EXPECT_TRUE(Folded(order).needs_reconcile);
    EXPECT_EQ(Folded(order).plan, "b");
  }
  // The same event twice, and two events that say the same, are no tie.
  EXPECT_FALSE(Folded({paid, a, a}).needs_reconcile);
  EXPECT_FALSE(Folded({paid, a, Ordered("evt_9", PlanChanged(Day(7), "a"))})
                   .needs_reconcile);
  // A read-back of the same second cannot have settled it; a later one has.
  const auto read_back = [](absl::Time at) {
    return Ordered("read", OnPlan(Snapshot(at, "active"), "a"));
  };
  EXPECT_TRUE(Folded({paid, a, b, read_back(Day(7))}).needs_reconcile);
  const Subscription settled =
      Folded({read_back(Day(7) + absl::Seconds(1)), b, paid, a});
  EXPECT_FALSE(settled.needs_reconcile);
  EXPECT_EQ(settled.plan, "a");
}

// Regression: facts of one second are taken by their rank, so that an event
// that was sent again under another id met only half of the first one.
TEST(FoldCases, C009_AnEventWithTwoFactsSentAgainIsNoTie) {
  const auto event = [](const std::string& id, const std::string& plan,
                        bool also_canceled) {
    std::vector<OrderedFact> facts = {Ordered(id, PlanChanged(Day(7), plan))};
    Fact cancel = CancelScheduled(Day(7), Day(30));
    cancel.set_ordinal(1);
    if (also_canceled) facts.push_back(Ordered(id, cancel));
    return facts;
  };
  const auto folded = [](const std::vector<std::vector<OrderedFact>>& events,
                         std::optional<Fact> then = std::nullopt) {
    std::vector<OrderedFact> facts = {
        Ordered("evt_0", Paid(Day(0), "in_1", Day(0), Day(30)))};
    for (const auto& each : events) {
      facts.insert(facts.end(), each.begin(), each.end());
    }
    if (then) facts.push_back(Ordered("then", *then));
    const Subscription s = Folded(facts);
    // Step by step, as the facts of one event come after the other.
    std::reverse(facts.begin(), facts.end());
    EXPECT_EQ(Folded(facts), s);
    return s.needs_reconcile;
  };
  EXPECT_FALSE(folded({event("a", "pro", true), event("b", "pro", true)}));
  EXPECT_FALSE(folded({event("b", "pro", true), event("a", "pro", true),
                       event("c", "pro", true)}));
  // One says more than the other, or something else.
  EXPECT_TRUE(folded({event("a", "pro", true), event("b", "pro", false)}));
  EXPECT_TRUE(folded({event("a", "pro", true), event("b", "max", true)}));
  // It stays a tie in the next second, until somebody reads back.
  const auto tied = [&](const Fact& then) {
    return folded({event("a", "pro", true), event("b", "max", true)}, then);
  };
  EXPECT_TRUE(tied(CancelReverted(Day(8))));
  EXPECT_TRUE(tied(Snapshot(Day(7), "active")));
  EXPECT_FALSE(tied(Snapshot(Day(8), "active")));
}

TEST(FoldCases, C051_AccessThroughGraceToItsExactEnd) {
  Facts facts = {Paid(Day(0), "in_1", Day(0), Day(30)),
                 Failed(Day(30), "in_2", Day(33)),
                 Failed(Day(31), "in_2", Day(34))};
  // The retry does not move it.
  EXPECT_TRUE(EndsAt(facts, Day(33)));
  facts.push_back(Paid(Day(32), "in_2", Day(30), Day(60)));
  EXPECT_TRUE(EndsAt(facts, Day(60)));
}

TEST(FoldCases, C052_TheGraceOfAPastMonthHidesNoLaterEnd) {
  EXPECT_TRUE(EndsAt(Facts{Paid(Day(0), "in_1", Day(0), Day(30)),
                           Failed(Day(30), "in_2", Day(31)),
                           Paid(Day(32), "in_2", Day(30), Day(60))},
                     Day(60)));
  // Grace that was longer than the month that is paid then goes with it.
  EXPECT_TRUE(EndsAt(Facts{Paid(Day(0), "in_1", Day(0), Day(30)),
                           Failed(Day(30), "in_2", Day(70)),
                           Paid(Day(32), "in_2", Day(30), Day(60))},
                     Day(60)));
  // Grace that the provider keeps telling does not shorten a paid end either.
  Fact failed = Failed(Day(20), "in_2", Day(21));
  failed.mutable_payment_failed()->set_grace_by_provider(true);
  EXPECT_TRUE(
      EndsAt(Facts{Paid(Day(0), "in_1", Day(0), Day(30)), failed}, Day(30)));
}

TEST(FoldCases, C053_AFinishedCheckoutGivesNothingBeforeTheMoney) {
  Facts facts = {Created(Day(0), Day(0)),
                 Snapshot(Day(0), "pending", /*read_back=*/false)};
  EXPECT_EQ(Folded(facts).status, Status::kPending);
  EXPECT_FALSE(HasAccess(facts, Day(1)));
  EXPECT_THAT(QuotaTerms(Projected(facts)), ElementsAre());
  Facts failed = facts;
  failed.push_back(Failed(Day(2), "in_1", Day(5)));
  for (const int day : {0, 2, 3, 100}) {
    EXPECT_FALSE(HasAccess(failed, Day(day))) << day;
  }
  facts.push_back(Paid(Day(2), "in_1", Day(2), Day(32)));
  EXPECT_TRUE(EndsAt(facts, Day(32)));
  ExpectOneRowInAllOrders(facts);
  // Active by the provider's word alone is not money.
  EXPECT_FALSE(HasAccess(
      Facts{Created(Day(0), Day(0)), Snapshot(Day(1), "active")}, Day(2)));
}

TEST(FoldCases, C056_AFailureAfterTheSuccessOfOneInvoiceIsStale) {
  Facts facts = {Paid(Day(0), "in_4", Day(0), Day(30)),
                 Failed(Day(30), "in_5", Day(33)),
                 Paid(Day(30) + absl::Seconds(20), "in_5", Day(30), Day(60))};
  ExpectOneRowInAllOrders(facts);
  EXPECT_EQ(Folded(facts).status, Status::kActive);
  facts.push_back(Failed(Day(60), "in_6", Day(63)));
  EXPECT_EQ(Folded(facts).status, Status::kPastDue);
  ExpectOneRowInAllOrders(facts);
}

TEST(FoldCases, C057_PartsKeepTheTermUntilTheirSumIsThePaidSum) {
  Fact year = Paid(Day(0), "in_1", Day(0), Day(365));
  year.mutable_paid()->set_amount_minor(12000);
  year.mutable_paid()->add_aliases("ch_1");
  Facts facts = {year, Refunded(Day(10), "ch_1", "re_1", 2000),
                 Refunded(Day(20), "ch_1", "re_2", 5000)};
  EXPECT_TRUE(EndsAt(facts, Day(365)));
  EXPECT_EQ(Projected(facts).terms[0].refunded_minor, 7000);
  facts.push_back(Refunded(Day(30), "ch_1", "re_3", 5000));
  Projection folded = Projected(facts);
  EXPECT_EQ(folded.subscription.status, Status::kRevoked);
  EXPECT_THAT(folded.subscription.expires_at, Optional(Eq(Day(30))));
  EXPECT_FALSE(HasAccess(folded.subscription, Day(30)));
  EXPECT_EQ(folded.terms[0].refunded_minor, 12000);
  EXPECT_EQ(QuotaTerms(folded)[0].ends_at, Day(30));
  ExpectOneRowInAllOrders(facts);
  // The same refund under two events counts once.
  facts.pop_back();
  facts.push_back(Refunded(Day(31), "ch_1", "re_2", 5000));
  EXPECT_TRUE(EndsAt(facts, Day(365)));
  // A provider that states the sum so far.
  const auto total = [](int day, const std::string& key, int64_t minor) {
    Fact fact = Refunded(Day(day), "in_1", key, 1);
    fact.mutable_refunded()->set_amount_minor(0);
    fact.mutable_refunded()->set_refunded_total_minor(minor);
    return fact;
  };
  EXPECT_TRUE(EndsAt(
      Facts{year, total(5, "re_1", 6000), total(6, "re_2", 11999)}, Day(365)));
  folded =
      Projected(Facts{year, total(5, "re_1", 6000), total(6, "re_2", 12000)});
  EXPECT_THAT(folded.subscription.expires_at, Optional(Eq(Day(6))));
}

TEST(FoldCases, C057_OneRefundOfAllOnACanceledSubscription) {
  const Facts facts = {Paid(Day(0), "in_1", Day(0), Day(365)),
                       CancelScheduled(Day(5), Day(365)),
                       Refunded(Day(10), "in_1", "re_1", 900)};
  EXPECT_EQ(Folded(facts).status, Status::kRevoked);
  EXPECT_FALSE(HasAccess(facts, Day(10)));
  ExpectOneRowInAllOrders(facts);
}

TEST(FoldCases, C057_APolicyMayReturnTheMoneyAndLeaveTheAccess) {
  Fact refund = Refunded(Day(10), "in_1", "re_1");
  refund.mutable_refunded()->set_keeps_access(true);
  const Facts facts = {Paid(Day(0), "in_1", Day(0), Day(30)), refund};
  EXPECT_TRUE(EndsAt(facts, Day(30)));
  EXPECT_EQ(Projected(facts).terms[0].refunded_minor, 900);
}

// Regression: a refund that had waited for its payment counted behind the
// newer ones, so the term ended before the sum was complete.
TEST(FoldCases, C057_ARefundThatWaitedForItsPaymentKeepsItsPlace) {
  Fact with_alias = Paid(Day(5), "in_1", Day(0), Day(30));
  with_alias.mutable_paid()->add_aliases("ch_1");
  const Facts facts = {Paid(Day(0), "in_1", Day(0), Day(30)),
                       Refunded(Day(3), "ch_1", "re_1", 450),
                       Refunded(Day(4), "in_1", "re_2", 450), with_alias};
  // The alias came with the second telling; until then one half had no payment.
  EXPECT_THAT(Folded(facts).expires_at, Optional(Eq(Day(4))));
  EXPECT_EQ(Folded(facts).status, Status::kRevoked);
  ExpectOneRowInAllOrders(facts);
}

TEST(FoldCases, C001_OnePaymentUnderTwoKeysThatNameEachOtherCountsOnce) {
  Fact invoice = Paid(Day(0), "in_1", Day(0), Day(30));
  invoice.mutable_paid()->add_aliases("pi_1");
  const Fact intent = Paid(Day(0) + absl::Seconds(1), "pi_1", Day(0), Day(30));
  EXPECT_EQ(Folded(Facts{invoice, intent}).term_no, 1);
  Fact late_invoice = invoice;
  *late_invoice.mutable_order_at() = ToProto(Day(0) + absl::Seconds(2));
  const Facts other = {intent, late_invoice};
  EXPECT_EQ(Folded(other).term_no, 1);
  // And a refund finds it under either.
  for (const std::string key : {"in_1", "pi_1"}) {
    Facts refunded = other;
    refunded.push_back(Refunded(Day(1), key, "re_1"));
    EXPECT_EQ(Folded(refunded).status, Status::kRevoked) << key;
  }
}

TEST(FoldCases, C058_ARefundedLifetimeEndsAndCanBeBoughtAgain) {
  Facts facts = {LifetimePaid(Day(0), "in_1", Day(0))};
  EXPECT_TRUE(Folded(facts).lifetime);
  EXPECT_TRUE(HasAccess(facts, Day(5000)));
  facts.push_back(Refunded(Day(10), "in_1", "re_1"));
  EXPECT_EQ(Folded(facts).status, Status::kRevoked);
  EXPECT_FALSE(Folded(facts).lifetime);
  EXPECT_FALSE(HasAccess(facts, Day(10)));
  facts.push_back(LifetimePaid(Day(20), "in_2", Day(20)));
  EXPECT_EQ(Folded(facts).status, Status::kActive);
  EXPECT_TRUE(HasAccess(facts, Day(5000)));
  ExpectOneRowInAllOrders(facts);
}

TEST(FoldCases, C059_EitherGrantorCarriesTheRightAlone) {
  Facts x = {OnPlan(LifetimePaid(Day(0), "in_1", Day(0)), "x")};
  const Facts y = {OnPlan(Paid(Day(0), "in_2", Day(0), Day(30)), "y")};
  const auto decide = [&](absl::Time at) {
    return DecideAccess({Grantor(1, Folded(x)), Grantor(2, Folded(y))}, at);
  };
  EXPECT_EQ(decide(Day(5)).subscription_id, 1);
  x.push_back(Refunded(Day(10), "in_1", "re_1"));
  Verdict verdict = decide(Day(11));
  EXPECT_TRUE(verdict.has_access);
  EXPECT_EQ(verdict.subscription_id, 2);
  EXPECT_EQ(verdict.plan, "y");
  EXPECT_THAT(verdict.access_until, Optional(Eq(Day(30))));
  EXPECT_THAT(verdict.next_transition_at, Optional(Eq(Day(30))));
  EXPECT_FALSE(decide(Day(30)).has_access);
  // The other way round: the monthly ends, the lifetime stays.
  x.pop_back();
  verdict = decide(Day(40));
  EXPECT_TRUE(verdict.has_access);
  EXPECT_EQ(verdict.subscription_id, 1);
  EXPECT_EQ(verdict.reason, AccessReason::kLifetime);
}

TEST(FoldCases, C062_ARefundAloneRevokesAndNoReadBackUndoesIt) {
  const Facts facts = {
      Created(Day(0), Day(0)), Paid(Day(0), "in_1", Day(0), Day(30)),
      Refunded(Day(10), "in_1", "re_1"), Snapshot(Day(11), "active")};
  EXPECT_EQ(Folded(facts).status, Status::kRevoked);
  EXPECT_FALSE(HasAccess(facts, Day(12)));
  ExpectOneRowInAllOrders(facts);
  // Nor a dispute, nor an operator's word.
  for (const Fact& taken :
       {DisputeClosed(Day(10), "in_1", /*lost=*/true),
        ByOperator(Revoked(Day(10))), ByOperator(Ended(Day(10), Day(10))),
        ByOperator(Paused(Day(10)))}) {
    EXPECT_FALSE(HasAccess(Facts{Paid(Day(0), "in_1", Day(0), Day(30)), taken,
                                 Snapshot(Day(11), "active")},
                           Day(12)))
        << taken.ShortDebugString();
  }
}

TEST(FoldCases, C063_AResumeOneDayBeforeTheEndTakesTheMarkAway) {
  Facts facts = {Paid(Day(0), "in_1", Day(0), Day(30)),
                 CancelScheduled(Day(5), Day(30))};
  EXPECT_TRUE(EndsAt(facts, Day(30)));
  facts.push_back(CancelReverted(Day(29)));
  EXPECT_EQ(Folded(facts).cancel_at, std::nullopt);
  EXPECT_TRUE(Folded(facts).will_renew);
  EXPECT_THAT(Folded(facts).next_billing_at, Optional(Eq(Day(30))));
  facts.push_back(Paid(Day(30), "in_2", Day(30), Day(60)));
  EXPECT_TRUE(EndsAt(facts, Day(60)));
}

TEST(FoldCases, C064_TheOldSubscriptionsEndSparesTheNewOne) {
  const Facts a = {OnPlan(Paid(Day(0), "in_1", Day(0), Day(30)), "basic"),
                   CancelScheduled(Day(5), Day(30)), Ended(Day(30), Day(30))};
  const Facts b = {OnPlan(Paid(Day(20), "in_2", Day(20), Day(50)), "basic")};
  const std::vector<AccessCandidate> both = {Grantor(1, Folded(a)),
                                             Grantor(2, Folded(b))};
  for (const int day : {25, 30, 31, 49}) {
    const Verdict verdict = DecideAccess(both, Day(day));
    EXPECT_TRUE(verdict.has_access) << day;
    EXPECT_EQ(verdict.subscription_id, 2) << day;
  }
  EXPECT_FALSE(DecideAccess(both, Day(50)).has_access);
}

TEST(FoldCases, C064_BuyingAgainBringsBackNothingThatTheEndHadCut) {
  const Facts facts = {Paid(Day(0), "in_1", Day(0), Day(365)),
                       Ended(Day(50), Day(50)),
                       Paid(Day(60), "in_2", Day(60), Day(90))};
  EXPECT_TRUE(EndsAt(facts, Day(90)));
  EXPECT_EQ(Projected(facts).terms[0].ends_at, Day(50));
  ExpectOneRowInAllOrders(facts);
}

TEST(FoldCases, C065_TheProvidersLaterDateDoesNotReopenAnEndAtOnce) {
  const Facts ended = {Paid(Day(0), "in_1", Day(0), Day(30)),
                       ByOperator(Ended(Day(5), Day(5))),
                       Ended(Day(6), Day(25))};
  EXPECT_EQ(Folded(ended).status, Status::kCanceled);
  EXPECT_FALSE(HasAccess(ended, Day(5)));
  EXPECT_FALSE(HasAccess(ended, Day(20)));
  EXPECT_THAT(Folded(ended).expires_at, Optional(Eq(Day(5))));
  ExpectOneRowInAllOrders(ended);
  // The same with a state that still calls it alive.
  EXPECT_FALSE(HasAccess(Facts{ended[0], ended[1], Snapshot(Day(6), "active")},
                         Day(20)));
  // Paused without any date.
  const Facts paused = {Paid(Day(0), "in_1", Day(0), Day(30)), Paused(Day(5))};
  EXPECT_TRUE(EndsAt(paused, Day(5)));
  EXPECT_EQ(Lapse(Folded(paused), Day(5)).status, Status::kPaused);
  // An operator lifts it.
  Facts lifted = ended;
  lifted.pop_back();
  lifted.push_back(ByOperator(Resumed(Day(7))));
  EXPECT_TRUE(EndsAt(lifted, Day(30)));
}

TEST(FoldCases, C068_AProvidersEndDuringAnOperatorsNoticeKeepsThePaidTime) {
  const Facts facts = {Paid(Day(0), "in_1", Day(0), Day(30), Day(31)),
                       CanceledByOperator(Day(5), Day(30)),
                       Ended(Day(6), Day(6))};
  EXPECT_TRUE(EndsAt(facts, Day(30)));
  EXPECT_FALSE(Folded(facts).will_renew);
  ExpectOneRowInAllOrders(facts);
  // Without the notice the end counts.
  EXPECT_TRUE(EndsAt(Facts{facts[0], facts[2]}, Day(6)));
}

TEST(FoldCases, C068_AnOperatorsExtensionHoldsWhateverTheProviderSays) {
  const Fact paid = Paid(Day(0), "in_1", Day(0), Day(30));
  const Fact extended = Extended(Day(12), Day(20));
  for (const Fact& end : {Ended(Day(10), Day(10)), Snapshot(Day(10), "ended"),
                          CancelScheduled(Day(10), Day(10))}) {
    const Facts before = {paid, end, extended};
    EXPECT_TRUE(EndsAt(before, Day(20)));
    EXPECT_EQ(Lapse(Folded(before), Day(12)).status, Status::kActive);
    ExpectOneRowInAllOrders(before);
    // Told once more, it ends no earlier.
    Fact again = end;
    *again.mutable_order_at() = ToProto(Day(15));
    EXPECT_TRUE(EndsAt(Facts{paid, end, extended, again}, Day(20)));
    // First told after the extension.
    EXPECT_TRUE(EndsAt(Facts{paid, Extended(Day(5), Day(40)), again}, Day(40)));
  }
  // A trial and what never began.
  EXPECT_TRUE(EndsAt(Facts{Created(Day(0), Day(0), Day(14)),
                           Ended(Day(10), Day(10)), extended},
                     Day(20)));
  EXPECT_TRUE(
      EndsAt(Facts{Created(Day(0), Day(0)), Ended(Day(1), Day(1)), extended},
             Day(20)));
  // The row says when it really ends.
  EXPECT_THAT(Folded(Facts{paid, CancelScheduled(Day(10), Day(10)), extended})
                  .cancel_at,
              Optional(Eq(Day(20))));
  // What is bought behind the provider's end does not cut it either.
  EXPECT_TRUE(
      EndsAt(Facts{paid, Ended(Day(10), Day(10)), Extended(Day(12), Day(40)),
                   Paid(Day(15), "in_2", Day(15), Day(18))},
             Day(40)));
  // Nor what the provider takes back from a later instant on.
  EXPECT_TRUE(EndsAt(Facts{paid, Revoked(Day(3), Day(15)),
                           Ended(Day(4), Day(5)), Extended(Day(6), Day(10))},
                     Day(10)));
  // Nor is an earlier end than the present one any news.
  EXPECT_EQ(Folded(Facts{paid, Extended(Day(12), Day(30))}), Folded({paid}));
  // A provider's own word of more time is worth what its end is.
  Fact by_provider = Extended(Day(5), Day(40));
  by_provider.set_layer(subscription::v1::FACT_LAYER_PROVIDER);
  EXPECT_TRUE(
      EndsAt(Facts{paid, by_provider, Ended(Day(10), Day(10))}, Day(10)));
}

// Found by the property: an extension of a trial stood before a term that had
// moved left of its own beginning, and the term moved back.
TEST(FoldCases, S4_3_AnExtensionOfATrialDoesNotMoveATermBack) {
  Fact first = Paid(Day(0), "in_1", Day(1), Day(5), std::nullopt, false);
  first.mutable_paid()->set_stacked(true);
  Fact second = Paid(Day(0.1), "in_2", Day(5), Day(8), std::nullopt, false);
  second.mutable_paid()->set_stacked(true);
  Facts facts = {first, second, Refunded(Day(0.2), "in_1", "re_1", 900),
                 Created(Day(0.3), Day(0), Day(4) + absl::Seconds(2))};
  ASSERT_TRUE(EndsAt(facts, Day(4) + absl::Seconds(2))) << Folded(facts);
  facts.push_back(Extended(Day(0.4), Day(5.5)));
  EXPECT_TRUE(EndsAt(facts, Day(5.5))) << Folded(facts);
}

// Found by the property, once in some hundred thousand histories: a trial that
// was revoked for a later instant reached beyond the extension and, ended,
// took it along.
TEST(FoldCases, C068_AnOperatorsExtensionHoldsInsideWhatWasTakenBackBefore) {
  Fact snapshot = Snapshot(Day(0), "past_due");
  *snapshot.mutable_snapshot()->mutable_cancel_at() = ToProto(Day(0));
  const Facts facts = {
      snapshot,
      Created(Day(6), Day(6), Day(12)),
      Revoked(Day(6) + absl::Seconds(1), Day(9)),
      Extended(Day(6) + absl::Seconds(2), Day(7)),
      CancelScheduled(Day(6.5), Day(20)),
  };
  const Subscription s = Folded(facts);
  EXPECT_EQ(s.status, Status::kActive) << s;
  EXPECT_THAT(s.AccessUntil(), Optional(Eq(Day(7)))) << s;
  // What is taken back after it takes it along.
  Facts later = facts;
  later.push_back(Revoked(Day(6.6), Day(6.6)));
  EXPECT_EQ(Folded(later).status, Status::kRevoked) << Folded(later);
}

TEST(FoldCases, C068_AnOperatorCanCutAnExtension) {
  const Fact paid = Paid(Day(0), "in_1", Day(0), Day(30));
  const Fact extended = Extended(Day(5), Day(40));
  EXPECT_TRUE(EndsAt(Facts{paid, extended, CanceledByOperator(Day(6), Day(35))},
                     Day(35)));
  EXPECT_TRUE(EndsAt(Facts{paid, CanceledByOperator(Day(4), Day(20)), extended},
                     Day(40)));
  // Said in one second: the cancellation has the later rank.
  EXPECT_TRUE(EndsAt(Facts{paid, CanceledByOperator(Day(5), Day(35)), extended},
                     Day(35)));
  EXPECT_TRUE(EndsAt(Facts{paid, extended, CanceledByOperator(Day(6), Day(35)),
                           Extended(Day(7), Day(37))},
                     Day(37)));
  EXPECT_TRUE(EndsAt(Facts{paid, extended, CanceledByOperator(Day(6), Day(35)),
                           ByOperator(CancelReverted(Day(7)))},
                     Day(40)));
  // At the end of what there is.
  EXPECT_TRUE(
      EndsAt(Facts{paid, extended, CanceledByOperator(Day(6))}, Day(40)));
  const Facts ended = {paid, extended, ByOperator(Ended(Day(6), Day(6)))};
  EXPECT_FALSE(HasAccess(ended, Day(6)));
  EXPECT_EQ(Folded(ended).expires_at, Day(6));
  EXPECT_FALSE(
      HasAccess(Facts{paid, extended, ByOperator(Revoked(Day(6)))}, Day(6)));
  // What cut it goes on to do so when something is bought behind it.
  EXPECT_TRUE(EndsAt(
      Facts{paid, extended, CanceledByOperator(Day(6), Day(35)),
            Ended(Day(8), Day(8)), Paid(Day(9), "in_2", Day(9), Day(12))},
      Day(35)));
}

TEST(FoldCases, C057_AnExtensionAfterTheRefundGivesAccessAgain) {
  const Facts refunded = {Paid(Day(0), "in_1", Day(0), Day(30)),
                          Refunded(Day(10), "in_1", "re_1"),
                          Extended(Day(12), Day(20))};
  EXPECT_TRUE(EndsAt(refunded, Day(20)));
  EXPECT_EQ(Folded(refunded).status, Status::kActive);
  EXPECT_EQ(Projected(refunded).terms[0].refunded_minor, 900);
  ExpectOneRowInAllOrders(refunded);
  // One that was given before goes with what it lengthened.
  EXPECT_EQ(
      Folded(Facts{refunded[0], refunded[1], Extended(Day(5), Day(40))}).status,
      Status::kRevoked);
}

TEST(FoldCases, C069_NoDateIsNoLifetime) {
  for (const Facts& facts :
       {Facts{Created(Day(0), Day(0)), Snapshot(Day(1), "active")},
        Facts{Snapshot(Day(1), "active")},
        Facts{Created(Day(0), std::nullopt), Snapshot(Day(1), "trialing")}}) {
    EXPECT_FALSE(Folded(facts).lifetime);
    EXPECT_FALSE(HasAccess(facts, Day(2)));
  }
  // A read-back without a period keeps the stored end.
  EXPECT_TRUE(EndsAt(
      Facts{Paid(Day(0), "in_1", Day(0), Day(30)), Snapshot(Day(1), "active")},
      Day(30)));
}

TEST(FoldCases, C072_ATermOfOneMillisecondWorksAndKeepsTheOneBefore) {
  const absl::Time end = Day(40) + absl::Milliseconds(1);
  EXPECT_TRUE(EndsAt(Facts{Paid(Day(40), "in_1", Day(40), end)}, end));
  // A term that ends before the previous one.
  EXPECT_TRUE(EndsAt(Facts{Paid(Day(0), "in_1", Day(0), Day(30)),
                           Paid(Day(1), "in_2", Day(0), Day(10))},
                     Day(30)));
}

TEST(FoldCases, D2_ALeewayIsReplacedByACancellationAFailureOrTheNextPayment) {
  const absl::Time leeway = Day(30) + absl::Hours(3);
  const Fact paid = Paid(Day(0), "in_1", Day(0), Day(30), leeway);
  EXPECT_TRUE(EndsAt(Facts{paid}, leeway));
  EXPECT_TRUE(EndsAt(Facts{paid, CancelScheduled(Day(29))}, Day(30)));
  EXPECT_TRUE(EndsAt(Facts{paid, Failed(Day(30), "in_2")}, Day(30)));
  EXPECT_TRUE(EndsAt(Facts{paid, Snapshot(Day(30), "past_due")}, Day(30)));
  EXPECT_TRUE(
      EndsAt(Facts{paid, Paid(Day(30), "in_2", Day(30), Day(60))}, Day(60)));
}

TEST(FoldCases, C057_ARefundTakenBackRestoresTheTerm) {
  Facts facts = {Paid(Day(0), "in_1", Day(0), Day(30)),
                 Extended(Day(2), Day(35)), Refunded(Day(10), "in_1", "re_1")};
  // The extension belongs to the term and falls with it.
  EXPECT_EQ(Folded(facts).status, Status::kRevoked);
  EXPECT_FALSE(HasAccess(facts, Day(10)));
  facts.push_back(RefundReversed(Day(12), "re_1"));
  EXPECT_TRUE(EndsAt(facts, Day(35)));
  EXPECT_EQ(Projected(facts).terms[0].refunded_minor, 0);
  ExpectOneRowInAllOrders(facts);
}

TEST(FoldCases, C057_ARevocationByTheProviderLastsUntilItIsBoughtAgain) {
  Facts facts = {Paid(Day(0), "in_1", Day(0), Day(30)), Revoked(Day(10))};
  EXPECT_EQ(Folded(facts).status, Status::kRevoked);
  EXPECT_FALSE(HasAccess(facts, Day(10)));
  facts.push_back(Paid(Day(12), "in_2", Day(12), Day(42)));
  EXPECT_EQ(Folded(facts).status, Status::kActive);
  EXPECT_TRUE(EndsAt(facts, Day(42)));
  ExpectOneRowInAllOrders(facts);
  // What an operator gave is not the provider's to take.
  EXPECT_TRUE(
      EndsAt(Facts{ByOperator(Paid(Day(0), "gift", Day(0), Day(30))),
                   Paid(Day(1), "in_1", Day(1), Day(31)), Revoked(Day(10))},
             Day(30)));
  // An operator's revocation stands against a purchase.
  EXPECT_EQ(
      Folded(Facts{facts[0], ByOperator(Revoked(Day(10))), facts[2]}).status,
      Status::kRevoked);
}

TEST(FoldCases, C062_ADisputeSuspendsAndIsWonLostOrLifted) {
  const Fact paid = Paid(Day(0), "in_1", Day(0), Day(30));
  const Fact opened = DisputeOpened(Day(5), "in_1", /*suspends=*/true);
  EXPECT_TRUE(EndsAt(Facts{paid, opened}, Day(5)));
  EXPECT_TRUE(EndsAt(
      Facts{paid, DisputeOpened(Day(5), "in_1", /*suspends=*/false)}, Day(30)));
  EXPECT_TRUE(
      EndsAt(Facts{paid, opened, DisputeClosed(Day(8), "in_1", /*lost=*/false)},
             Day(30)));
  Facts lost = {paid, opened, DisputeClosed(Day(8), "in_1", /*lost=*/true)};
  EXPECT_EQ(Folded(lost).status, Status::kRevoked);
  EXPECT_FALSE(HasAccess(lost, Day(9)));
  ExpectOneRowInAllOrders(lost);
  EXPECT_EQ(Projected(lost).terms[0].refunded_minor, 900);
  EXPECT_FALSE(Projected(lost).terms[0].taken_back);
  lost.push_back(ByOperator(Resumed(Day(10))));
  EXPECT_TRUE(EndsAt(lost, Day(30)));
  // The access came back and the money did not.
  EXPECT_EQ(Projected(lost).terms[0].refunded_minor, 900);
  // Told twice and by another name, it is lost once; with a part refunded
  // before, nothing more than was paid is.
  EXPECT_EQ(Projected(Facts{Aliased(paid, "ch_1"),
                            Refunded(Day(2), "in_1", "re_1", 300), opened,
                            DisputeClosed(Day(8), "in_1", /*lost=*/true),
                            DisputeClosed(Day(9), "ch_1", /*lost=*/true)})
                .terms[0]
                .refunded_minor,
            900);
  // Of a payment that nobody told of, there is nothing to count.
  const Facts unknown = {paid, DisputeClosed(Day(8), "in_9", /*lost=*/true),
                         ByOperator(Resumed(Day(10)))};
  EXPECT_TRUE(EndsAt(unknown, Day(30)));
  EXPECT_EQ(Projected(unknown).terms[0].refunded_minor, 0);
  // Regression: an inquiry that grew into a dispute suspended nothing.
  EXPECT_TRUE(EndsAt(
      Facts{paid, DisputeOpened(Day(4), "in_1", /*suspends=*/false), opened},
      Day(5)));
}

// ---- an upgrade in mid-period ----

TEST(FoldCases, C063_APaymentThatReplacesAnotherTakesOverItsRest) {
  const Fact year =
      Aliased(Paid(Day(0), "tx_1", Day(0), Day(365), Day(366)), "order_1");
  const Fact month = Replacing(
      OnPlan(Paid(Day(10), "tx_2", Day(10), Day(40), Day(41)), "max"), "tx_1");
  Facts facts = {year, month};
  EXPECT_TRUE(EndsAt(facts, Day(41)));
  Projection folded = Projected(facts);
  EXPECT_EQ(folded.subscription.expires_at, Day(40));
  EXPECT_EQ(folded.subscription.status, Status::kActive);
  EXPECT_EQ(folded.subscription.plan, "max");
  ASSERT_EQ(folded.terms.size(), 2u);
  EXPECT_EQ(folded.terms[0].ends_at, Day(10));
  EXPECT_TRUE(folded.terms[0].replaced);
  EXPECT_FALSE(folded.terms[0].taken_back);
  EXPECT_EQ(folded.terms[0].refunded_minor, 0);
  EXPECT_EQ(folded.terms[1].starts_at, Day(10));
  EXPECT_FALSE(folded.terms[1].replaced);
  // By another of its names, and told again, it is the same.
  EXPECT_EQ(Projected(Facts{year, Replacing(month, "order_1")}).terms,
            folded.terms);
  Facts by_alias = {year, Replacing(month, "order_1"), month,
                    Failed(Day(39), "tx_3")};
  EXPECT_EQ(Projected(by_alias).terms, folded.terms);
  ExpectOneRowInAllOrders(by_alias);
  // The replacement is told of before the payment that it replaces.
  Fact late = year;
  *late.mutable_order_at() = ToProto(Day(11));
  EXPECT_EQ(Projected(Facts{late, month}).terms, folded.terms);
  // It replaces nothing, or itself.
  EXPECT_FALSE(
      Projected(Facts{year, Replacing(month, "tx_9")}).terms[0].replaced);
  EXPECT_TRUE(EndsAt(Facts{Replacing(year, "order_1")}, Day(366)));
  // Its leeway waited for a renewal that never comes.
  EXPECT_TRUE(EndsAt(
      Facts{year, Replacing(Paid(Day(9), "tx_2", Day(365), Day(395)), "tx_1"),
            Refunded(Day(10), "tx_2", "re_1")},
      Day(365)));
  // A need for grace ends with it, though the end is no later than before.
  EXPECT_EQ(Folded(Facts{year, Failed(Day(5), "tx_3", Day(8)), month}).status,
            Status::kActive);
  // The money of the first is given back afterwards: nothing else changes.
  Facts refunded = facts;
  refunded.push_back(Refunded(Day(11), "tx_1", "re_1"));
  EXPECT_TRUE(EndsAt(refunded, Day(41)));
  // Nor does it come back when the second is refunded.
  refunded = facts;
  refunded.push_back(Refunded(Day(20), "tx_2", "re_1"));
  EXPECT_FALSE(HasAccess(refunded, Day(20)));
  EXPECT_EQ(Folded(refunded).status, Status::kRevoked);
}

TEST(FoldCases, C063_AReplacedPaymentMovesNothingAndTakesOnlyTheProvidersTime) {
  Fact by_provider = Extended(Day(2), Day(37));
  by_provider.set_layer(subscription::v1::FACT_LAYER_PROVIDER);
  const Fact paid = Paid(Day(0), "tx_1", Day(0), Day(30));
  const Fact upgrade =
      Replacing(Paid(Day(10), "tx_2", Day(10), Day(35)), "tx_1");
  EXPECT_TRUE(EndsAt(Facts{paid, by_provider, upgrade}, Day(35)));
  EXPECT_TRUE(EndsAt(Facts{paid, Extended(Day(2), Day(37)), upgrade}, Day(37)));
  // Terms behind it stay where they were bought.
  const Facts stacked = {
      Stacked(paid), Stacked(Paid(Day(1), "tx_3", Day(30), Day(60))),
      Replacing(Paid(Day(10), "tx_2", Day(10), Day(20)), "tx_1")};
  EXPECT_EQ(Projected(stacked).terms[2].starts_at, Day(30));
  EXPECT_TRUE(EndsAt(stacked, Day(60)));
  ExpectOneRowInAllOrders(stacked);
  // A lifetime can be replaced too.
  EXPECT_TRUE(
      EndsAt(Facts{LifetimePaid(Day(0), "tx_1", Day(0)), upgrade}, Day(35)));
}

// Prepaid orders: one, two and three stacked months.
Facts ThreeMonths() {
  return {Stacked(Paid(Day(0), "o_1", Day(0), Day(30))),
          Stacked(Paid(Day(1), "o_2", Day(30), Day(60))),
          Stacked(Paid(Day(2), "o_3", Day(60), Day(90)))};
}

TEST(FoldCases, S4_3_ARefundedTermMovesTheLaterOnesLeft) {
  Facts facts = ThreeMonths();
  facts.push_back(Refunded(Day(40), "o_2", "re_1"));
  Projection folded = Projected(facts);
  EXPECT_TRUE(EndsAt(folded.subscription, Day(70)));
  ASSERT_EQ(folded.terms.size(), 3u);
  EXPECT_TRUE(folded.terms[1].taken_back);
  EXPECT_EQ(folded.terms[1].ends_at, Day(40));
  EXPECT_EQ(folded.terms[2].payment_key, "o_3");
  EXPECT_EQ(folded.terms[2].term_no, 3);
  EXPECT_EQ(folded.terms[2].starts_at, Day(40));
  EXPECT_EQ(folded.terms[2].ends_at, Day(70));
  ExpectOneRowInAllOrders(facts);
  // Of a term that has not begun nothing is left.
  facts.back() = Refunded(Day(5), "o_2", "re_1");
  folded = Projected(facts);
  EXPECT_EQ(folded.terms[1].ends_at, Day(30));
  EXPECT_EQ(folded.terms[1].starts_at, Day(30));
  EXPECT_EQ(folded.terms[2].starts_at, Day(30));
  EXPECT_TRUE(EndsAt(folded.subscription, Day(60)));
  // Two of them, in either order.
  for (const auto& [first, second] :
       {std::pair("o_1", "o_2"), std::pair("o_2", "o_1")}) {
    Facts two = ThreeMonths();
    two.push_back(Refunded(Day(5), first, "re_1"));
    two.push_back(Refunded(Day(6), second, "re_2"));
    folded = Projected(two);
    EXPECT_EQ(folded.terms[2].starts_at, Day(6)) << first;
    EXPECT_EQ(folded.terms[2].ends_at, Day(36)) << first;
  }
}

// Regression: an order behind a refund was moved left by what the refund had
// cut, though it had been put behind what was left.
TEST(FoldCases, S4_3_AnOrderAfterTheRefundKeepsItsWholeTime) {
  Projection folded =
      Projected(Facts{Stacked(Paid(Day(0), "o_1", Day(0), Day(30))),
                      Refunded(Day(10), "o_1", "re_1"),
                      Stacked(Paid(Day(12), "o_2", Day(12), Day(42)))});
  EXPECT_EQ(folded.terms[1].starts_at, Day(12));
  EXPECT_TRUE(EndsAt(folded.subscription, Day(42)));
  // Bought long after the first had ended, which is refunded afterwards.
  folded = Projected(Facts{Stacked(Paid(Day(0), "o_1", Day(0), Day(30))),
                           Stacked(Paid(Day(50), "o_2", Day(50), Day(80))),
                           Refunded(Day(20), "o_1", "re_1")});
  EXPECT_EQ(folded.terms[1].starts_at, Day(50));
  EXPECT_TRUE(EndsAt(folded.subscription, Day(80)));
  // Put behind the whole first term, but bought after its refund.
  folded = Projected(Facts{Stacked(Paid(Day(0), "o_1", Day(0), Day(30))),
                           Stacked(Paid(Day(12), "o_2", Day(30), Day(60))),
                           Refunded(Day(10), "o_1", "re_1")});
  EXPECT_EQ(folded.terms[1].starts_at, Day(12));
  EXPECT_TRUE(EndsAt(folded.subscription, Day(42)));
}

// Regression: an extension given after terms had moved lost the time that they
// had moved by.
TEST(FoldCases, S4_3_AnExtensionOfMovedTermsAddsAllItsTime) {
  Facts facts = ThreeMonths();
  facts.push_back(Refunded(Day(10), "o_1", "re_1"));
  ASSERT_TRUE(EndsAt(facts, Day(70)));
  facts.push_back(Extended(Day(11), Day(75)));
  EXPECT_TRUE(EndsAt(facts, Day(75)));
  // One that was given before moves with what it lengthens, and what was bought
  // behind it follows.
  EXPECT_TRUE(EndsAt(Facts{Stacked(Paid(Day(0), "o_1", Day(0), Day(30))),
                           Stacked(Paid(Day(1), "o_2", Day(30), Day(60))),
                           Extended(Day(2), Day(65)),
                           Stacked(Paid(Day(3), "o_3", Day(65), Day(95))),
                           Refunded(Day(10), "o_1", "re_1")},
                     Day(75)));
  // Taken back with its term, it goes too.
  EXPECT_TRUE(EndsAt(Facts{Stacked(Paid(Day(0), "o_1", Day(0), Day(30))),
                           Extended(Day(2), Day(35)),
                           Stacked(Paid(Day(3), "o_2", Day(35), Day(65))),
                           Refunded(Day(10), "o_1", "re_1")},
                     Day(40)));
}

// Regression: a term taken back before it began made the row REVOKED and ended
// there, over a term that was paid and a gap that was not.
// Regression: an extension of a term that had moved left moved once more.
TEST(FoldCases, S4_3_AnExtensionGivenAfterTheMoveStaysWhereItWasGiven) {
  EXPECT_TRUE(EndsAt(Facts{Paid(Day(0), "in_1", Day(0), Day(30)),
                           Refunded(Day(2), "in_1", "re_1"),
                           Stacked(Paid(Day(1), "o_2", Day(35), Day(37))),
                           Extended(Day(4), Day(20))},
                     Day(20)));
  // Nor does one move that another end decided, here that of a lifetime.
  EXPECT_TRUE(EndsAt(
      Facts{Paid(Day(0), "in_1", Day(9), Day(11)),
            Refunded(Day(1), "in_1", "re_1"),
            LifetimePaid(Day(12), "in_2", Day(5)), Ended(Day(12), Day(12)),
            Stacked(Paid(Day(13), "in_3", Day(5), Day(6))),
            Extended(Day(14), Day(15))},
      Day(15)));
}

TEST(FoldCases, C059_ATermTakenBackBeforeItBeganLeavesTheOthers) {
  const Fact month = Paid(Day(0), "in_1", Day(0), Day(30));
  const Fact ahead = Paid(Day(1), "in_2", Day(40), Day(70));
  EXPECT_TRUE(
      EndsAt(Facts{month, ahead, Refunded(Day(6), "in_2", "re_1")}, Day(30)));
  // So during a trial, which goes on.
  const Facts trial = {Created(Day(0), Day(0), Day(7)),
                       Paid(Day(1), "in_1", Day(7), Day(37)),
                       Refunded(Day(3), "in_1", "re_1")};
  EXPECT_EQ(Folded(trial).status, Status::kTrialing);
  EXPECT_TRUE(EndsAt(trial, Day(7)));
  // Alone it leaves nothing.
  const Subscription s = Folded(Facts{ahead, Refunded(Day(6), "in_2", "re_1")});
  EXPECT_EQ(s.status, Status::kRevoked);
  EXPECT_EQ(s.expires_at, std::nullopt);
}

TEST(FoldCases, C063_APlanChangeAtTheBoundaryYieldsToWhatIsPaidThere) {
  const Fact first = OnPlan(Paid(Day(0), "in_1", Day(0), Day(30)), "basic");
  const Fact change = PlanChanged(Day(5), "pro", Day(30));
  Subscription s = Folded(Facts{first, change});
  EXPECT_EQ(s.plan, "basic");
  EXPECT_EQ(s.next_plan, "pro");
  EXPECT_THAT(s.next_plan_at, Optional(Eq(Day(30))));
  EXPECT_EQ(Lapse(s, Day(30) - kTick).plan, "basic");
  EXPECT_EQ(Lapse(s, Day(30)).plan, "pro");
  // Paid for the new plan: it stays.
  s = Lapse(
      Folded(Facts{first, change,
                   OnPlan(Paid(Day(30), "in_2", Day(30), Day(60)), "pro")}),
      Day(31));
  EXPECT_EQ(s.plan, "pro");
  EXPECT_EQ(s.next_plan_at, std::nullopt);
  // Paid for the old plan at that boundary: that was bought.
  for (const absl::Duration early : {absl::ZeroDuration(), absl::Hours(24)}) {
    s = Lapse(
        Folded(Facts{
            first, change,
            OnPlan(Paid(Day(30) - early, "in_2", Day(30), Day(60)), "basic")}),
        Day(31));
    EXPECT_EQ(s.plan, "basic") << early;
  }
  // At the boundary it is in force, and the next change is another one.
  s = Folded(Facts{first, change, PlanChanged(Day(30), "max", Day(60))});
  EXPECT_EQ(s.plan, "pro");
  EXPECT_EQ(s.next_plan, "max");
  // A newer word replaces what was scheduled.
  s = Folded(Facts{first, change, PlanChanged(Day(6), "max")});
  EXPECT_EQ(s.plan, "max");
  EXPECT_EQ(s.next_plan, "");
}

TEST(FoldCases, ATransferNamesTheNewSubjectAndKeepsTheTime) {
  const Facts facts = {Paid(Day(0), "in_1", Day(0), Day(30)),
                       Transferred(Day(3), 7), Transferred(Day(5), 9)};
  EXPECT_EQ(Folded(facts).subject_id, 9);
  EXPECT_TRUE(EndsAt(facts, Day(30)));
  ExpectOneRowInAllOrders(facts);
}

// Regression: a read-back of a paused subscription left a later pause standing.
TEST(FoldCases, C065_PausedByTheProvidersStateIsPausedNow) {
  EXPECT_TRUE(EndsAt(Facts{Paid(Day(0), "in_1", Day(0), Day(30)),
                           Paused(Day(3), Day(20)), Snapshot(Day(5), "paused")},
                     Day(5)));
}

// Providers pause at the end of a period or of a trial.
TEST(FoldCases, C065_APauseAtTheVeryEndIsAPause) {
  for (const Fact& begun : {Paid(Day(0), "in_1", Day(0), Day(30)),
                            Created(Day(0), Day(0), Day(30))}) {
    const Facts facts = {begun, Paused(Day(5), Day(30))};
    EXPECT_TRUE(EndsAt(facts, Day(30)));
    EXPECT_TRUE(IsLive(Lapse(Folded(facts), Day(30) - kTick).status));
    EXPECT_EQ(Lapse(Folded(facts), Day(30)).status, Status::kPaused);
    EXPECT_EQ(Lapse(Folded(facts), Day(400)).status, Status::kPaused);
    // One tick later it has ended before.
    EXPECT_EQ(
        Lapse(Folded(Facts{begun, Paused(Day(5), Day(30) + kTick)}), Day(31))
            .status,
        Status::kExpired);
    // Until it is ended for good, which no resumption precedes.
    Row row;
    row.Move(Projected(facts), Day(29));
    row.Move(Projected(facts), Day(30));
    Facts ended = facts;
    ended.push_back(Ended(Day(35), Day(35)));
    row.Move(Projected(ended), Day(35));
    EXPECT_EQ(row.state->subscription.status, Status::kExpired);
    EXPECT_THAT(row.Types(),
                ElementsAre("created", "activated", "paused", "expired"));
  }
}

// ---- what is announced ----

std::vector<std::string> Told(const Facts& facts) {
  Row row;
  Facts arrived;
  for (const Fact& fact : facts) {
    arrived.push_back(fact);
    row.Move(Projected(arrived), *FromProto("order_at", fact.order_at()));
  }
  return row.Types();
}

// Regression: the second of two occurrences had the key of the first, so that
// nobody heard of it.
TEST(FoldCases, R6_WhatHappensAgainIsToldAgain) {
  const Fact paid = Paid(Day(0), "in_1", Day(0), Day(30));
  EXPECT_THAT(
      Told({paid, Failed(Day(30) - kTick, "in_2", Day(33)),
            Snapshot(Day(31), "active"), Snapshot(Day(32), "past_due")}),
      ElementsAre("created", "activated", "past_due", "entered_grace",
                  "recovered", "past_due"));
  EXPECT_THAT(
      Told({paid, Refunded(Day(5), "in_1", "re_1"),
            RefundReversed(Day(5), "re_1"), Refunded(Day(5), "in_1", "re_2")}),
      ElementsAre("created", "activated", "refunded", "revoked", "activated",
                  "refund_reversed", "refunded", "revoked"));
  // The same pause stands again after an operator's revocation was lifted.
  EXPECT_THAT(
      Told({paid, Paused(Day(3)), ByOperator(Revoked(Day(4))),
            ByOperator(Resumed(Day(5)))}),
      ElementsAre("created", "activated", "paused", "revoked", "paused"));
}

// The payment that had ended the need turns out not to have been the one.
TEST(FoldCases, R6_ARecoveryThatALateFactUndoesIsTold) {
  Row row;
  Facts facts = {Paid(Day(0), "in_1", Day(0), Day(30)),
                 Failed(Day(30), "in_2", Day(33))};
  const std::vector<OrderedFact> first = Events(facts);
  row.Move(Projected(first), Day(30));
  std::vector<OrderedFact> all = first;
  all.push_back(Ordered("c", Paid(Day(31), "in_3", Day(30), Day(60))));
  row.Move(Projected(all), Day(31));
  EXPECT_EQ(row.state->subscription.status, Status::kActive);
  all.push_back(Ordered("d", Paid(Day(29), "in_4", Day(30), Day(90))));
  row.Move(Projected(all), Day(32));
  EXPECT_EQ(row.state->subscription.status, Status::kPastDue);
  EXPECT_THAT(row.Types(), ElementsAre("created", "activated", "past_due",
                                       "entered_grace", "renewed", "recovered",
                                       "renewed", "past_due", "entered_grace"));
  EXPECT_TRUE(row.Move(Projected(all), Day(32)).events.empty());
}

TEST(FoldCases, R6_ALowerEndIsToldToWhoeverKeepsTheOldOne) {
  const Fact paid = Paid(Day(0), "in_1", Day(0), Day(30));
  const auto last = [](const Facts& facts) {
    Row row;
    Facts arrived;
    for (const Fact& fact : facts) {
      arrived.push_back(fact);
      row.Move(Projected(arrived), *FromProto("order_at", fact.order_at()));
    }
    return row.events.back();
  };
  // Ended for an instant to come, twice.
  DomainEvent event = last({paid, Ended(Day(5), Day(20))});
  EXPECT_EQ(event.type, "subscription.shortened");
  EXPECT_EQ(event.old_access_until, Day(30));
  EXPECT_EQ(event.access_until, Day(20));
  EXPECT_THAT(Told({paid, Ended(Day(5), Day(20)), Snapshot(Day(6), "active"),
                    Ended(Day(7), Day(20))}),
              ElementsAre("created", "activated", "shortened", "extended",
                          "shortened"));
  // Replaced by a shorter period.
  event = last({Paid(Day(0), "tx_1", Day(0), Day(365)),
                Replacing(Paid(Day(10), "tx_2", Day(10), Day(40)), "tx_1")});
  EXPECT_EQ(event.type, "subscription.shortened");
  EXPECT_EQ(event.old_access_until, Day(365));
  EXPECT_EQ(event.access_until, Day(40));
  // No more than a monthly is left of a lifetime.
  EXPECT_THAT(
      Told({paid, LifetimePaid(Day(1), "in_2", Day(1)),
            Refunded(Day(2), "in_2", "re_1")}),
      ElementsAre("created", "activated", "renewed", "shortened", "refunded"));
  // What is told by its own event is told once.
  EXPECT_THAT(Told({paid, CancelScheduled(Day(5), Day(20))}),
              ElementsAre("created", "activated", "cancel_scheduled"));
  EXPECT_THAT(Told({paid, Ended(Day(5), Day(5))}),
              ElementsAre("created", "activated", "expired"));
}

// Regression: a lost dispute revoked, and its money was counted as ours.
TEST(FoldCases, R6_ALostDisputeIsARefundAndARevocation) {
  EXPECT_THAT(
      Told({Paid(Day(0), "in_1", Day(0), Day(30)),
            DisputeClosed(Day(5), "in_1", /*lost=*/true),
            ByOperator(Resumed(Day(6)))}),
      ElementsAre("created", "activated", "refunded", "revoked", "activated"));
}

// Regression: a row that was paused when it came back kept the number of an
// episode whose end had been told.
TEST(FoldCases, R6_EachLifeHasAnEndOfItsOwn) {
  Row row;
  Facts facts = {Paid(Day(0), "in_1", Day(0), Day(30))};
  row.Move(Projected(facts), Day(1));
  row.Move(Projected(facts), Day(30));
  // It turns out to have been paused before its end, and goes on.
  facts.push_back(Paused(Day(20)));
  row.Move(Projected(facts), Day(31));
  facts.push_back(Resumed(Day(32), Day(40)));
  row.Move(Projected(facts), Day(32));
  row.Move(Projected(facts), Day(40));
  EXPECT_THAT(row.Types(),
              ElementsAre("created", "activated", "expired", "paused",
                          "resumed", "extended", "expired"));
  EXPECT_EQ(row.events.back().episode, 1);
}

// Regression: leeway alone brought it back, and nobody heard of it.
TEST(FoldCases, C063_ACancellationTakenBackInTheLeewayIsTold) {
  const absl::Time leeway = Day(30) + absl::Hours(3);
  Row row;
  Facts facts = {Paid(Day(0), "in_1", Day(0), Day(30), leeway),
                 CancelScheduled(Day(5), Day(30))};
  row.Move(Projected(facts), Day(30));
  EXPECT_EQ(row.state->subscription.status, Status::kExpired);
  facts.push_back(CancelReverted(Day(30) + absl::Hours(1)));
  row.Move(Projected(facts), Day(30) + absl::Hours(1));
  EXPECT_EQ(row.state->subscription.status, Status::kActive);
  EXPECT_THAT(row.Types(), ElementsAre("created", "activated", "expired",
                                       "extended", "cancel_reverted"));
  EXPECT_THAT(row.events.back().access_until, Optional(Eq(leeway)));
}

}  // namespace
}  // namespace tenure::domain
