#include "common/domain/quota_plan.h"

#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/domain/calendar.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace tenure::domain {

// For failure messages.
std::ostream& operator<<(std::ostream& out, const Release& release) {
  return out << release.term_key << "/" << release.period_no << " "
             << release.amount << " " << release.meter << " at "
             << absl::FormatTime(absl::RFC3339_full, release.scheduled_at,
                                 absl::UTCTimeZone())
             << " (term " << release.term_no << ")";
}

namespace {

using test::IsOk;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

absl::TimeZone Zone(absl::string_view name) {
  const absl::StatusOr<absl::TimeZone> zone = LoadZone(name);
  EXPECT_THAT(zone, IsOk());
  return zone.value_or(absl::UTCTimeZone());
}

absl::TimeZone Shanghai() { return Zone("Asia/Shanghai"); }

// "2027-01-31T10:00:00+08:00".
absl::Time At(absl::string_view text) {
  absl::Time time;
  std::string error;
  EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, text, &time, &error))
      << text << ": " << error;
  return time;
}

QuotaRule Characters(ReleaseDay day = ReleaseDay::kAnniversary) {
  return {.meter = "characters", .amount = 100, .release_day = day};
}

// A term of `months` from `starts_at`, sold in `zone`.
QuotaTerm MonthsFrom(absl::Time starts_at, int months,
                     const absl::TimeZone& zone) {
  return {.term_key = "pay_1",
          .term_no = 1,
          .starts_at = starts_at,
          .ends_at = AddUnits(starts_at, CalendarUnit::kMonth, months, zone)};
}

std::vector<std::string> DueAt(const std::vector<Release>& releases,
                               const absl::TimeZone& zone) {
  std::vector<std::string> due;
  for (const Release& release : releases) {
    due.push_back(
        absl::FormatTime("%Y-%m-%dT%H:%M:%E*S%Ez", release.scheduled_at, zone));
  }
  return due;
}

std::vector<std::string> DueInUtc(const std::vector<Release>& releases) {
  std::vector<std::string> due;
  for (const Release& release : releases) {
    due.push_back(absl::FormatTime("%Y-%m-%dT%H:%MZ", release.scheduled_at,
                                   absl::UTCTimeZone()));
  }
  return due;
}

// ---- PlanReleases ----

TEST(PlanReleases, C043_S4_5_TheThirtyFirstComesBackBehindEveryShortMonth) {
  const QuotaTerm term =
      MonthsFrom(At("2027-01-31T10:00:00+08:00"), 12, Shanghai());

  EXPECT_THAT(
      DueInUtc(PlanReleases({term}, {Characters()}, Shanghai())),
      ElementsAre("2027-01-31T02:00Z", "2027-02-27T16:00Z", "2027-03-30T16:00Z",
                  "2027-04-29T16:00Z", "2027-05-30T16:00Z", "2027-06-29T16:00Z",
                  "2027-07-30T16:00Z", "2027-08-30T16:00Z", "2027-09-29T16:00Z",
                  "2027-10-30T16:00Z", "2027-11-29T16:00Z",
                  "2027-12-30T16:00Z"));
}

TEST(PlanReleases, C043_ALeapYearMovesItsFebruaryOnly) {
  const QuotaTerm term =
      MonthsFrom(At("2028-01-31T10:00:00+08:00"), 12, Shanghai());

  EXPECT_THAT(
      DueInUtc(PlanReleases({term}, {Characters()}, Shanghai())),
      ElementsAre("2028-01-31T02:00Z", "2028-02-28T16:00Z", "2028-03-30T16:00Z",
                  "2028-04-29T16:00Z", "2028-05-30T16:00Z", "2028-06-29T16:00Z",
                  "2028-07-30T16:00Z", "2028-08-30T16:00Z", "2028-09-29T16:00Z",
                  "2028-10-30T16:00Z", "2028-11-29T16:00Z",
                  "2028-12-30T16:00Z"));
}

TEST(PlanReleases, C044_TheDayIsTheReleaseZones) {
  const struct {
    const char* paid_at;
    const char* k1;
    const char* k2;
  } kCases[] = {
      // 31 January, 07:30 in Shanghai.
      {"2027-01-30T23:30:00Z", "2027-02-27T16:00Z", "2027-03-30T16:00Z"},
      // The last second of the 30th, the first of the 31st.
      {"2027-03-30T15:59:59Z", "2027-04-29T16:00Z", "2027-05-29T16:00Z"},
      {"2027-03-30T16:00:00Z", "2027-04-29T16:00Z", "2027-05-30T16:00Z"},
  };
  for (const auto& c : kCases) {
    for (const char* billing : {"UTC", "Asia/Shanghai"}) {
      const QuotaTerm term = MonthsFrom(At(c.paid_at), 12, Zone(billing));
      const std::vector<std::string> due =
          DueInUtc(PlanReleases({term}, {Characters()}, Shanghai()));
      ASSERT_THAT(due, SizeIs(12)) << c.paid_at << " " << billing;
      EXPECT_EQ(due[1], c.k1) << c.paid_at;
      EXPECT_EQ(due[2], c.k2) << c.paid_at;
    }
  }
}

TEST(PlanReleases, S4_4_TheFirstPeriodIsDueAtThePurchaseItself) {
  const absl::Time paid_at = At("2027-01-31T10:11:12.345678+08:00");
  for (const ReleaseDay day :
       {ReleaseDay::kAnniversary, ReleaseDay::kFirstOfMonth}) {
    const std::vector<Release> releases = PlanReleases(
        {MonthsFrom(paid_at, 12, Shanghai())}, {Characters(day)}, Shanghai());
    ASSERT_THAT(releases, SizeIs(12));
    EXPECT_EQ(releases[0], (Release{.meter = "characters",
                                    .term_key = "pay_1",
                                    .term_no = 1,
                                    .period_no = 0,
                                    .amount = 100,
                                    .scheduled_at = paid_at}));
  }
}

TEST(PlanReleases, S4_26_D4_LaterPeriodsAreDueOnTheFirstWhereThePlanSaysSo) {
  const QuotaRule rule = Characters(ReleaseDay::kFirstOfMonth);
  EXPECT_THAT(
      DueAt(PlanReleases(
                {MonthsFrom(At("2027-01-31T10:00:00+08:00"), 12, Shanghai())},
                {rule}, Shanghai()),
            Shanghai()),
      ElementsAre("2027-01-31T10:00:00+08:00", "2027-02-01T00:00:00+08:00",
                  "2027-03-01T00:00:00+08:00", "2027-04-01T00:00:00+08:00",
                  "2027-05-01T00:00:00+08:00", "2027-06-01T00:00:00+08:00",
                  "2027-07-01T00:00:00+08:00", "2027-08-01T00:00:00+08:00",
                  "2027-09-01T00:00:00+08:00", "2027-10-01T00:00:00+08:00",
                  "2027-11-01T00:00:00+08:00", "2027-12-01T00:00:00+08:00"));
  // Bought on a first: the next one is a month away, not the same day.
  EXPECT_THAT(
      DueAt(PlanReleases(
                {MonthsFrom(At("2027-03-01T00:00:00+08:00"), 3, Shanghai())},
                {rule}, Shanghai()),
            Shanghai()),
      ElementsAre("2027-03-01T00:00:00+08:00", "2027-04-01T00:00:00+08:00",
                  "2027-05-01T00:00:00+08:00"));
  // A month over a first is one month.
  EXPECT_THAT(
      PlanReleases({MonthsFrom(At("2027-01-31T10:00:00+08:00"), 1, Shanghai())},
                   {rule}, Shanghai()),
      SizeIs(1));
}

TEST(PlanReleases, AStackedTermBeginsAtMidnightOfItsFirstDay) {
  QuotaTerm term = MonthsFrom(At("2027-06-15T10:00:00+08:00"), 2, Shanghai());
  term.stacked = true;
  EXPECT_THAT(
      DueAt(PlanReleases({term}, {Characters()}, Shanghai()), Shanghai()),
      ElementsAre("2027-06-15T00:00:00+08:00", "2027-07-15T00:00:00+08:00"));
  EXPECT_THAT(
      DueAt(PlanReleases({term}, {Characters(ReleaseDay::kFirstOfMonth)},
                         Shanghai()),
            Shanghai()),
      ElementsAre("2027-06-15T00:00:00+08:00", "2027-07-01T00:00:00+08:00"));
}

// What users would see: two quotas in February for one paid month. The end is
// on 31 March, the 28th of February plus one month is not.
TEST(PlanReleases, AMonthThatEndsBehindItsClampedDayIsOneMonth) {
  const QuotaTerm term{.term_key = "pay_2",
                       .term_no = 2,
                       .starts_at = At("2027-02-28T10:00:00+08:00"),
                       .ends_at = At("2027-03-31T10:00:00+08:00"),
                       .stacked = true};
  EXPECT_THAT(
      DueAt(PlanReleases({term}, {Characters()}, Shanghai()), Shanghai()),
      ElementsAre("2027-02-28T00:00:00+08:00"));
}

// What users would see: the same, wherever a plan bills in UTC and the order
// came in the small hours of a 31st in Shanghai.
TEST(PlanReleases, AMonthBilledInAnotherZoneIsOneMonth) {
  // 31 January to 1 March, in Shanghai.
  const QuotaTerm term =
      MonthsFrom(At("2027-01-30T20:00:00Z"), 1, absl::UTCTimeZone());
  EXPECT_EQ(term.ends_at, At("2027-03-01T04:00:00+08:00"));
  EXPECT_THAT(PlanReleases({term}, {Characters()}, Shanghai()), SizeIs(1));
}

TEST(PlanReleases, S4_5_AStackedYearKeepsTheDayOfItsAnchor) {
  QuotaTerm term{.term_key = "pay_2",
                 .term_no = 2,
                 .starts_at = At("2027-02-28T10:00:00+08:00"),
                 .ends_at = At("2027-06-30T10:00:00+08:00"),
                 .stacked = true};
  term.anchor_at = At("2027-01-31T10:00:00+08:00");
  EXPECT_THAT(
      DueAt(PlanReleases({term}, {Characters()}, Shanghai()), Shanghai()),
      ElementsAre("2027-02-28T00:00:00+08:00", "2027-03-31T00:00:00+08:00",
                  "2027-04-30T00:00:00+08:00", "2027-05-31T00:00:00+08:00"));
  // Sold in UTC, the term starts on 1 March here; its day is still the 31st.
  term.anchor_at = At("2027-01-30T23:30:00Z");
  term.starts_at = At("2027-02-28T23:30:00Z");
  term.ends_at = At("2027-06-30T23:30:00Z");
  EXPECT_THAT(
      DueAt(PlanReleases({term}, {Characters()}, Shanghai()), Shanghai()),
      ElementsAre("2027-03-01T00:00:00+08:00", "2027-03-31T00:00:00+08:00",
                  "2027-04-30T00:00:00+08:00", "2027-05-31T00:00:00+08:00"));
}

TEST(PlanReleases, ATermThatIsNoWholeMonthsFromItsAnchorHasItsOwnDay) {
  QuotaTerm term = MonthsFrom(At("2027-03-14T10:00:00+08:00"), 3, Shanghai());
  term.anchor_at = At("2027-01-31T10:00:00+08:00");
  EXPECT_THAT(
      DueAt(PlanReleases({term}, {Characters()}, Shanghai()), Shanghai()),
      ElementsAre("2027-03-14T10:00:00+08:00", "2027-04-14T00:00:00+08:00",
                  "2027-05-14T00:00:00+08:00"));
}

TEST(PlanReleases, ARestOfLessThanAWeekIsNoPeriod) {
  const absl::Time start = At("2027-04-10T10:00:00+08:00");
  const struct {
    const char* ends_at;
    size_t periods;
  } kCases[] = {
      {"2027-04-10T10:00:00+08:00", 0},   {"2027-04-09T10:00:00+08:00", 0},
      {"2027-04-10T10:00:00.1+08:00", 1}, {"2027-04-17T10:00:00+08:00", 1},
      {"2027-05-10T10:00:00+08:00", 1},   {"2027-05-16T23:59:59+08:00", 1},
      {"2027-05-17T00:00:00+08:00", 2},   {"2027-06-16T10:00:00+08:00", 2},
      {"2027-06-17T10:00:00+08:00", 3},
  };
  for (const auto& c : kCases) {
    const QuotaTerm term{.term_key = "pay_1",
                         .term_no = 1,
                         .starts_at = start,
                         .ends_at = At(c.ends_at)};
    for (const ReleaseDay day :
         {ReleaseDay::kAnniversary, ReleaseDay::kFirstOfMonth}) {
      EXPECT_THAT(PlanReleases({term}, {Characters(day)}, Shanghai()),
                  SizeIs(c.periods))
          << c.ends_at;
    }
  }
}

TEST(PlanReleases, FindsMidnightWhereTheZoneSkipsIt) {
  const absl::TimeZone beirut = Zone("Asia/Beirut");
  const QuotaTerm term = MonthsFrom(At("2027-02-28T12:00:00+02:00"), 3, beirut);
  EXPECT_THAT(
      DueAt(PlanReleases({term}, {Characters()}, beirut), beirut),
      ElementsAre("2027-02-28T12:00:00+02:00", "2027-03-28T01:00:00+03:00",
                  "2027-04-28T00:00:00+03:00"));
}

TEST(PlanReleases, PlansEachMeterOfEachTerm) {
  QuotaTerm first = MonthsFrom(At("2027-01-15T10:00:00+08:00"), 1, Shanghai());
  QuotaTerm second = MonthsFrom(first.ends_at, 1, Shanghai());
  second.term_key = "pay_2";
  second.term_no = 2;
  second.stacked = true;
  const QuotaRule images{.meter = "images", .amount = 7};

  const std::vector<Release> releases =
      PlanReleases({first, second}, {Characters(), images}, Shanghai());

  const absl::Time start = At("2027-01-15T10:00:00+08:00");
  const absl::Time midnight = At("2027-02-15T00:00:00+08:00");
  EXPECT_THAT(releases,
              ElementsAre(Release{"characters", "pay_1", 1, 0, 100, start},
                          Release{"images", "pay_1", 1, 0, 7, start},
                          Release{"characters", "pay_2", 2, 0, 100, midnight},
                          Release{"images", "pay_2", 2, 0, 7, midnight}));
  EXPECT_THAT(PlanReleases({first}, {}, Shanghai()), IsEmpty());
  EXPECT_THAT(PlanReleases({}, {images}, Shanghai()), IsEmpty());
}

TEST(PlanReleases, ATermWithoutAnEndInSightHasAHundredYears) {
  QuotaTerm term = MonthsFrom(At("2027-01-15T10:00:00+08:00"), 1, Shanghai());
  term.ends_at = absl::InfiniteFuture();
  EXPECT_THAT(PlanReleases({term}, {Characters()}, Shanghai()),
              SizeIs(kMaxPeriods));
  term.starts_at = At("9999-11-15T10:00:00Z");
  EXPECT_THAT(PlanReleases({term}, {Characters()}, Shanghai()), SizeIs(2));
  term.starts_at = absl::InfinitePast();
  EXPECT_THAT(PlanReleases({term}, {Characters()}, Shanghai()),
              SizeIs(kMaxPeriods));
}

// ---- ReconcileReleases ----

// The schedule of one subscription, changed as a store would change it.
class Schedule {
 public:
  // Brings the schedule to the plan at `now`, and says what changed.
  ReleaseChanges Apply(const std::vector<Release>& planned, bool valid,
                       absl::Time now) {
    const ReleaseChanges changes = ReconcileReleases(planned, rows_, valid);
    for (const int64_t id : changes.cancel_ids) {
      Settle(id, ReleaseStatus::kCancelled, now);
    }
    for (const Release& release : changes.insert) {
      rows_.push_back(
          {.id = static_cast<int64_t>(rows_.size()) + 1, .release = release});
    }
    return changes;
  }

  void ReleaseDue(absl::Time now) {
    for (const StoredRelease& row : rows_) {
      if (row.status == ReleaseStatus::kPending &&
          row.release.scheduled_at <= now)
        Settle(row.id, ReleaseStatus::kReleased, now);
    }
  }

  void CancelAll(absl::Time now) { Apply({}, /*valid=*/false, now); }

  std::vector<Release> In(ReleaseStatus status) const {
    std::vector<Release> releases;
    for (const StoredRelease& row : rows_) {
      if (row.status == status) releases.push_back(row.release);
    }
    std::sort(releases.begin(), releases.end(),
              [](const Release& a, const Release& b) {
                return std::tie(a.scheduled_at, a.meter, a.term_key) <
                       std::tie(b.scheduled_at, b.meter, b.term_key);
              });
    return releases;
  }

  const std::vector<StoredRelease>& rows() const { return rows_; }

 private:
  void Settle(int64_t id, ReleaseStatus status, absl::Time now) {
    StoredRelease& row = rows_.at(static_cast<size_t>(id) - 1);
    ASSERT_EQ(row.status, ReleaseStatus::kPending) << row.release;
    row.status = status;
    row.settled_at = now;
  }

  std::vector<StoredRelease> rows_;
};

class Reconcile : public ::testing::Test {
 protected:
  const absl::Time paid_at_ = At("2027-01-31T10:00:00+08:00");
  const std::vector<Release> year_ = PlanReleases(
      {MonthsFrom(paid_at_, 12, Shanghai())}, {Characters()}, Shanghai());
  const ReleaseChanges kNothing{};
};

TEST_F(Reconcile, InsertsThePlanOnceAndThenNothing) {
  Schedule schedule;
  EXPECT_EQ(schedule.Apply(year_, true, paid_at_).insert, year_);
  EXPECT_EQ(schedule.Apply(year_, true, paid_at_), kNothing);
  EXPECT_EQ(schedule.In(ReleaseStatus::kPending), year_);
}

TEST_F(Reconcile, WithoutAccessNothingIsPending) {
  Schedule schedule;
  EXPECT_EQ(schedule.Apply(year_, false, paid_at_), kNothing);
  schedule.Apply(year_, true, paid_at_);
  EXPECT_THAT(schedule.Apply(year_, false, paid_at_).cancel_ids, SizeIs(12));
  EXPECT_EQ(schedule.Apply(year_, false, paid_at_), kNothing);
}

TEST_F(Reconcile, C063_ResumingBringsFuturePeriodsBackOnce) {
  Schedule schedule;
  schedule.Apply(year_, true, paid_at_);
  schedule.ReleaseDue(paid_at_);
  const absl::Time cancelled_at = At("2027-02-10T00:00:00Z");
  schedule.CancelAll(cancelled_at);
  ASSERT_THAT(schedule.In(ReleaseStatus::kPending), IsEmpty());

  schedule.Apply(year_, true, cancelled_at + absl::Hours(24));

  const std::vector<Release> later(year_.begin() + 1, year_.end());
  EXPECT_EQ(schedule.In(ReleaseStatus::kPending), later);
  EXPECT_THAT(schedule.In(ReleaseStatus::kReleased), ElementsAre(year_[0]));
  EXPECT_EQ(schedule.Apply(year_, true, cancelled_at + absl::Hours(48)),
            kNothing);
}

TEST_F(Reconcile, D13_C075_WhatWasDueWhenTheSubscriptionEndedIsLost) {
  Schedule schedule;
  schedule.Apply(year_, true, paid_at_);
  schedule.ReleaseDue(paid_at_);
  // The workers were down over periods 1 to 3; the end finds them due.
  schedule.CancelAll(year_[3].scheduled_at);

  schedule.Apply(year_, true, year_[3].scheduled_at + absl::Hours(1));

  const std::vector<Release> later(year_.begin() + 4, year_.end());
  EXPECT_EQ(schedule.In(ReleaseStatus::kPending), later);
}

TEST_F(Reconcile, C075_WhileValidEveryMissedPeriodStaysDue) {
  Schedule schedule;
  schedule.Apply(year_, true, paid_at_);
  EXPECT_EQ(schedule.Apply(year_, true, year_[4].scheduled_at), kNothing);
  schedule.ReleaseDue(year_[4].scheduled_at);
  EXPECT_EQ(schedule.In(ReleaseStatus::kReleased),
            std::vector<Release>(year_.begin(), year_.begin() + 5));
}

TEST_F(Reconcile, CancelledAtItsDueInstantIsLostAndATickBeforeIsNot) {
  const std::vector<Release> plan{year_[1]};
  const absl::Time due = year_[1].scheduled_at;
  for (const absl::Duration ahead :
       {absl::Microseconds(1), absl::ZeroDuration(), -absl::Microseconds(1)}) {
    const StoredRelease row{.id = 1,
                            .release = year_[1],
                            .status = ReleaseStatus::kCancelled,
                            .settled_at = due - ahead};
    EXPECT_EQ(ReconcileReleases(plan, {row}, true).insert.size(),
              ahead > absl::ZeroDuration() ? 1u : 0u)
        << ahead;
  }
}

TEST_F(Reconcile, TheNewestOfSeveralCancelledRowsDecides) {
  StoredRelease early{.id = 3,
                      .release = year_[1],
                      .status = ReleaseStatus::kCancelled,
                      .settled_at = paid_at_};
  StoredRelease late = early;
  late.id = 7;
  late.settled_at = year_[1].scheduled_at;
  const std::vector<Release> plan{year_[1]};
  EXPECT_EQ(ReconcileReleases(plan, {early, late}, true), kNothing);
  EXPECT_EQ(ReconcileReleases(plan, {late, early}, true), kNothing);
  std::swap(early.id, late.id);
  EXPECT_EQ(ReconcileReleases(plan, {early, late}, true).insert, plan);
  EXPECT_EQ(ReconcileReleases(plan, {late, early}, true).insert, plan);
}

TEST_F(Reconcile, AReleasedPeriodIsNotPlannedAgainHoweverItMoves) {
  std::vector<Release> plan = year_;
  Schedule schedule;
  schedule.Apply(plan, true, paid_at_);
  schedule.ReleaseDue(paid_at_);
  plan[0].scheduled_at += absl::Hours(24);
  plan[0].amount = 999;
  plan[0].term_no = 5;
  EXPECT_EQ(schedule.Apply(plan, true, paid_at_), kNothing);
}

TEST_F(Reconcile, AnotherInstantOrAmountReplacesThePendingRow) {
  Schedule schedule;
  schedule.Apply(year_, true, paid_at_);
  std::vector<Release> moved = year_;
  moved[2].scheduled_at -= absl::Hours(24);
  moved[3].amount = 50;

  const ReleaseChanges changes = schedule.Apply(moved, true, paid_at_);

  EXPECT_THAT(changes.cancel_ids, ElementsAre(3, 4));
  EXPECT_THAT(changes.insert, ElementsAre(moved[2], moved[3]));
  EXPECT_EQ(schedule.In(ReleaseStatus::kPending), moved);
}

// A row that is due and moved at once is not lost: only the end of its
// subscription loses a period.
TEST_F(Reconcile, ADuePeriodThatMovesStaysPending) {
  Schedule schedule;
  schedule.Apply(year_, true, paid_at_);
  std::vector<Release> moved = year_;
  moved[1].scheduled_at += absl::Hours(24);
  schedule.Apply(moved, true, year_[1].scheduled_at);
  EXPECT_EQ(schedule.In(ReleaseStatus::kPending), moved);
}

TEST_F(Reconcile, TheNumberOfATermIsNoDifference) {
  Schedule schedule;
  schedule.Apply(year_, true, paid_at_);
  std::vector<Release> renumbered = year_;
  for (Release& release : renumbered) release.term_no = 2;
  EXPECT_EQ(schedule.Apply(renumbered, true, paid_at_), kNothing);
}

TEST_F(Reconcile, AnotherMeterTermOrPeriodIsAnotherRow) {
  Release meter = year_[1];
  meter.meter = "images";
  Release term = year_[1];
  term.term_key = "pay_2";
  const std::vector<Release> plan{year_[1], year_[2], meter, term};
  const StoredRelease stored{.id = 1,
                             .release = year_[1],
                             .status = ReleaseStatus::kReleased,
                             .settled_at = paid_at_};
  EXPECT_THAT(ReconcileReleases(plan, {stored}, true).insert,
              ElementsAre(year_[2], meter, term));
}

TEST_F(Reconcile, APeriodPlannedTwiceIsInsertedOnce) {
  Release other = year_[0];
  other.amount = 1;
  EXPECT_THAT(ReconcileReleases({year_[0], other}, {}, true).insert,
              ElementsAre(year_[0]));
}

TEST_F(Reconcile, ATermTakenBackCancelsItsPeriodsOnly) {
  QuotaTerm first = MonthsFrom(paid_at_, 2, Shanghai());
  QuotaTerm second = MonthsFrom(first.ends_at, 2, Shanghai());
  second.term_key = "pay_2";
  Schedule schedule;
  schedule.Apply(PlanReleases({first, second}, {Characters()}, Shanghai()),
                 true, paid_at_);
  first.ends_at = first.starts_at;
  EXPECT_THAT(
      schedule
          .Apply(PlanReleases({first, second}, {Characters()}, Shanghai()),
                 true, paid_at_)
          .cancel_ids,
      ElementsAre(1, 2));
}

// ---- properties ----

absl::TimeZone AnyZone() {
  return Zone(*rc::gen::elementOf(std::vector<std::string>{
      "UTC", "Asia/Shanghai", "America/New_York", "Europe/London",
      "America/Sao_Paulo", "Asia/Beirut", "Australia/Lord_Howe", "Pacific/Apia",
      "Pacific/Kiritimati", "Pacific/Pago_Pago", "America/Havana",
      "Asia/Kolkata", "Africa/Casablanca"}));
}

// Any instant from 1990 to 2190; often within a day of the end of a month,
// where all that can go wrong does.
absl::Time AnyInstant() {
  if (*rc::gen::arbitrary<bool>()) {
    return absl::FromUnixMicros(
        *rc::gen::inRange<int64_t>(631'152'000'000'000, 6'942'585'600'000'000));
  }
  const absl::CivilMonth month =
      absl::CivilMonth(1990, 1) + *rc::gen::inRange(0, 2400);
  return absl::FromCivil(
      absl::CivilSecond(month) + *rc::gen::inRange(-5 * 86'400, 2 * 86'400),
      absl::UTCTimeZone());
}

ReleaseDay AnyReleaseDay() {
  return *rc::gen::element(ReleaseDay::kAnniversary, ReleaseDay::kFirstOfMonth);
}

// Terms behind each other, as an order book makes them.
std::vector<QuotaTerm> Chain(absl::Time anchor, const std::vector<int>& months,
                             const absl::TimeZone& billing) {
  std::vector<QuotaTerm> terms;
  absl::Time end = anchor;
  for (const int count : months) {
    const absl::Time start = end;
    end = StackedEnd(anchor, start,
                     {.unit = CalendarUnit::kMonth, .count = count}, billing);
    const int term_no = static_cast<int>(terms.size()) + 1;
    terms.push_back({.term_key = absl::StrCat("pay_", term_no),
                     .term_no = term_no,
                     .starts_at = start,
                     .ends_at = end,
                     .stacked = !terms.empty(),
                     .anchor_at = anchor});
  }
  return terms;
}

std::vector<int> AnyMonths() {
  const auto count = *rc::gen::inRange<size_t>(1, 6);
  return *rc::gen::container<std::vector<int>>(count, rc::gen::inRange(1, 15));
}

TEST(PlanReleases, NMonthsHaveNPeriodsForEveryAnchorAndPairOfZones) {
  EXPECT_TRUE(rc::check([] {
    const absl::TimeZone billing = AnyZone();
    const absl::TimeZone zone = AnyZone();
    const std::vector<int> months = AnyMonths();
    std::vector<QuotaTerm> terms = Chain(AnyInstant(), months, billing);
    const bool anchored = *rc::gen::arbitrary<bool>();
    const QuotaRule rule = Characters(AnyReleaseDay());
    for (size_t i = 0; i < terms.size(); ++i) {
      if (!anchored) terms[i].anchor_at.reset();
      RC_ASSERT(PlanReleases({terms[i]}, {rule}, zone).size() ==
                static_cast<size_t>(months[i]));
    }
  }));
}

TEST(PlanReleases, PeriodsIncreaseWithinTheirTermAndAlongTheChain) {
  EXPECT_TRUE(rc::check([] {
    const absl::TimeZone zone = AnyZone();
    const std::vector<QuotaTerm> terms =
        Chain(AnyInstant(), AnyMonths(), AnyZone());
    const std::vector<Release> releases =
        PlanReleases(terms, {Characters(AnyReleaseDay())}, zone);
    for (size_t i = 0; i < releases.size(); ++i) {
      const QuotaTerm& term = terms[releases[i].term_no - 1];
      RC_ASSERT(releases[i].scheduled_at < term.ends_at);
      RC_ASSERT(LocalDay(releases[i].scheduled_at, zone) >=
                LocalDay(term.starts_at, zone));
      if (i > 0) {
        RC_ASSERT(releases[i - 1].scheduled_at < releases[i].scheduled_at);
      }
    }
  }));
}

TEST(PlanReleases, StackingAddsPeriodsAndMovesNone) {
  EXPECT_TRUE(rc::check([] {
    const absl::TimeZone zone = AnyZone();
    const absl::TimeZone billing = AnyZone();
    const absl::Time anchor = AnyInstant();
    std::vector<int> months = AnyMonths();
    const std::vector<QuotaRule> rules{Characters(AnyReleaseDay())};
    const std::vector<Release> before =
        PlanReleases(Chain(anchor, months, billing), rules, zone);
    Schedule schedule;
    schedule.Apply(before, true, anchor);

    months.push_back(*rc::gen::inRange(1, 15));
    const ReleaseChanges changes = schedule.Apply(
        PlanReleases(Chain(anchor, months, billing), rules, zone), true,
        anchor);

    RC_ASSERT(changes.cancel_ids.empty());
    RC_ASSERT(changes.insert.size() == static_cast<size_t>(months.back()));
  }));
}

TEST(Reconciling, C063_CancelThenResumeRestoresTheSameSet) {
  EXPECT_TRUE(rc::check([] {
    const absl::TimeZone zone = AnyZone();
    const absl::Time anchor = AnyInstant();
    const std::vector<Release> plan =
        PlanReleases(Chain(anchor, AnyMonths(), zone), {Characters()}, zone);
    const absl::Time now = anchor + absl::Hours(*rc::gen::inRange(0, 24 * 400));
    Schedule schedule;
    schedule.Apply(plan, true, anchor);
    schedule.ReleaseDue(now);
    const std::vector<Release> pending = schedule.In(ReleaseStatus::kPending);
    const std::vector<Release> released = schedule.In(ReleaseStatus::kReleased);
    const int times = *rc::gen::inRange(1, 4);
    for (int i = 0; i < times; ++i) {
      schedule.CancelAll(now);
      schedule.Apply(plan, true, now);
    }
    RC_ASSERT(schedule.In(ReleaseStatus::kPending) == pending);
    RC_ASSERT(schedule.In(ReleaseStatus::kReleased) == released);
  }));
}

// Whatever happens to a subscription, in whatever order: the schedule settles
// at once, and no period is released twice or planned beside its release.
TEST(Reconciling, AnySequenceSettlesAtOnceAndReleasesAPeriodOnce) {
  EXPECT_TRUE(rc::check([] {
    const absl::TimeZone zone = AnyZone();
    const absl::Time anchor = AnyInstant();
    const std::vector<QuotaRule> all{Characters(AnyReleaseDay()),
                                     {.meter = "images", .amount = 7}};
    absl::Time now = anchor;
    Schedule schedule;
    const int steps = *rc::gen::inRange(1, 15);
    for (int step = 0; step < steps; ++step) {
      now += absl::Hours(*rc::gen::inRange(0, 24 * 70));
      if (*rc::gen::inRange(0, 3) == 0) schedule.ReleaseDue(now);
      std::vector<QuotaTerm> terms = Chain(anchor, AnyMonths(), AnyZone());
      for (QuotaTerm& term : terms) {
        // Taken back, wholly or in part.
        if (*rc::gen::inRange(0, 4) == 0) {
          term.ends_at =
              term.starts_at + absl::Hours(*rc::gen::inRange(-24, 24 * 60));
        }
        term.term_no = *rc::gen::inRange(1, 9);
      }
      std::vector<QuotaRule> rules(all.begin(),
                                   all.begin() + *rc::gen::inRange(0, 3));
      for (QuotaRule& rule : rules) rule.amount += *rc::gen::inRange(0, 2);
      const std::vector<Release> plan = PlanReleases(terms, rules, zone);
      const bool valid = *rc::gen::inRange(0, 4) != 0;

      schedule.Apply(plan, valid, now);

      RC_ASSERT(ReconcileReleases(plan, schedule.rows(), valid) ==
                ReleaseChanges{});
      std::set<std::tuple<std::string, std::string, int>> standing;
      for (const StoredRelease& row : schedule.rows()) {
        if (row.status == ReleaseStatus::kCancelled) continue;
        RC_ASSERT(standing
                      .insert({row.release.meter, row.release.term_key,
                               row.release.period_no})
                      .second);
      }
      for (const Release& pending : schedule.In(ReleaseStatus::kPending)) {
        RC_ASSERT(std::any_of(plan.begin(), plan.end(), [&](const Release& r) {
          return r.meter == pending.meter && r.term_key == pending.term_key &&
                 r.period_no == pending.period_no &&
                 r.amount == pending.amount &&
                 r.scheduled_at == pending.scheduled_at;
        }));
      }
      RC_ASSERT(valid || schedule.In(ReleaseStatus::kPending).empty());
    }
  }));
}

}  // namespace
}  // namespace tenure::domain
