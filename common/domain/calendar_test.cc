#include "common/domain/calendar.h"

#include <rapidcheck.h>

#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace tenure::domain {
namespace {

using test::IsOk;
using test::IsOkAndHolds;
using test::StatusIs;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Optional;

using Day = absl::CivilDay;

// Ten times what RapidCheck tries by itself, for all properties of this
// program. RC_PARAMS from outside wins.
[[maybe_unused]] const int kMoreTries =
    setenv("RC_PARAMS", "max_success=1000", /*overwrite=*/0);

constexpr CalendarUnit kDay = CalendarUnit::kDay;
constexpr CalendarUnit kWeek = CalendarUnit::kWeek;
constexpr CalendarUnit kMonth = CalendarUnit::kMonth;
constexpr CalendarUnit kYear = CalendarUnit::kYear;

absl::TimeZone Zone(absl::string_view name) {
  const absl::StatusOr<absl::TimeZone> zone = LoadZone(name);
  EXPECT_THAT(zone, IsOk());
  return zone.value_or(absl::UTCTimeZone());
}

// "2027-01-31T10:00:00+08:00".
absl::Time At(absl::string_view text) {
  absl::Time time;
  std::string error;
  EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, text, &time, &error))
      << text << ": " << error;
  return time;
}

std::string Utc(absl::Time time) {
  return absl::FormatTime(absl::RFC3339_full, time, absl::UTCTimeZone());
}

// ---- names ----

TEST(CalendarUnit, HasOneNameForEachUnit) {
  EXPECT_EQ(CalendarUnitName(kDay), "day");
  EXPECT_EQ(CalendarUnitName(kWeek), "week");
  EXPECT_EQ(CalendarUnitName(kMonth), "month");
  EXPECT_EQ(CalendarUnitName(kYear), "year");
  for (const CalendarUnit unit : {kDay, kWeek, kMonth, kYear}) {
    EXPECT_THAT(ParseCalendarUnit(CalendarUnitName(unit)), Optional(Eq(unit)));
  }
  for (const char* other : {"", "Month", "months", "MONTH", "quarter"}) {
    EXPECT_THAT(ParseCalendarUnit(other), Eq(std::nullopt)) << other;
  }
}

TEST(LoadZone, KnowsTheNamesOfTheDatabase) {
  for (const char* name :
       {"UTC", "Asia/Shanghai", "America/Argentina/Buenos_Aires", "Etc/GMT+8",
        "America/Port-au-Prince"}) {
    EXPECT_THAT(LoadZone(name), IsOk()) << name;
  }
}

TEST(LoadZone, RefusesWhatIsNoZoneAndNamesIt) {
  for (const char* name :
       {"Asia/Nowhere", "Nowhere", "Asia/shanghai", "Fixed/UTC+08:00:00",
        "UTC+08:00", "Asia/", "Asia", "Europe//Berlin", "Etc/../UTC"}) {
    EXPECT_THAT(LoadZone(name), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(LoadZone(name).status().message(), HasSubstr(name));
  }
  EXPECT_THAT(LoadZone(""), StatusIs(absl::StatusCode::kInvalidArgument));
}

// Each of these is a zone to the library beneath, or a file it would read.
TEST(LoadZone, RefusesNamesThatMeanAnotherZoneElsewhere) {
  for (const char* name :
       {"localtime", "libc:localtime", "posixrules", "right/UTC",
        "posix/Asia/Shanghai", "/usr/share/zoneinfo/Asia/Shanghai",
        "../zoneinfo/Asia/Shanghai", "zone.tab"}) {
    EXPECT_THAT(LoadZone(name), StatusIs(absl::StatusCode::kInvalidArgument))
        << name;
  }
}

TEST(LoadZone, PrintsNothingOfABadNameRaw) {
  EXPECT_THAT(LoadZone("A\nb\x01").status().message(),
              HasSubstr("\"A\\nb\\x01\""));
}

// ---- AddUnits ----

struct Sum {
  const char* zone;
  const char* anchor;
  CalendarUnit unit;
  int64_t n;
  const char* expected;
};

void ExpectSums(const std::vector<Sum>& sums) {
  for (const Sum& sum : sums) {
    EXPECT_EQ(Utc(AddUnits(At(sum.anchor), sum.unit, sum.n, Zone(sum.zone))),
              Utc(At(sum.expected)))
        << sum.anchor << " + " << sum.n << " " << CalendarUnitName(sum.unit)
        << " in " << sum.zone;
  }
}

TEST(AddUnits, S4_5_KeepsTheAnchorsDayBehindAShortMonth) {
  constexpr char kAnchor[] = "2027-01-31T10:00:00+08:00";
  ExpectSums({
      {"Asia/Shanghai", kAnchor, kMonth, 0, kAnchor},
      {"Asia/Shanghai", kAnchor, kMonth, 1, "2027-02-28T10:00:00+08:00"},
      {"Asia/Shanghai", kAnchor, kMonth, 2, "2027-03-31T10:00:00+08:00"},
      {"Asia/Shanghai", kAnchor, kMonth, 3, "2027-04-30T10:00:00+08:00"},
      {"Asia/Shanghai", kAnchor, kMonth, 11, "2027-12-31T10:00:00+08:00"},
      {"Asia/Shanghai", kAnchor, kMonth, 12, "2028-01-31T10:00:00+08:00"},
      {"Asia/Shanghai", kAnchor, kMonth, 13, "2028-02-29T10:00:00+08:00"},
      {"Asia/Shanghai", kAnchor, kYear, 1, "2028-01-31T10:00:00+08:00"},
  });
}

TEST(AddUnits, C046_ALeapDayComesBackInLeapYearsOnly) {
  constexpr char kAnchor[] = "2028-02-29T12:00:00+08:00";
  ExpectSums({
      {"Asia/Shanghai", kAnchor, kYear, 1, "2029-02-28T12:00:00+08:00"},
      {"Asia/Shanghai", kAnchor, kYear, 2, "2030-02-28T12:00:00+08:00"},
      {"Asia/Shanghai", kAnchor, kYear, 3, "2031-02-28T12:00:00+08:00"},
      {"Asia/Shanghai", kAnchor, kYear, 4, "2032-02-29T12:00:00+08:00"},
      {"Asia/Shanghai", kAnchor, kYear, 5, "2033-02-28T12:00:00+08:00"},
      {"UTC", "2096-02-29T00:00:00Z", kYear, 4, "2100-02-28T00:00:00Z"},
      {"UTC", "2096-02-29T00:00:00Z", kYear, 8, "2104-02-29T00:00:00Z"},
  });
}

TEST(AddUnits, C044_TakesTheDayFromTheNamedZone) {
  ExpectSums({
      // 31 January in Shanghai, 30 January in UTC.
      {"Asia/Shanghai", "2027-01-30T23:30:00Z", kMonth, 1,
       "2027-02-28T07:30:00+08:00"},
      {"Asia/Shanghai", "2027-01-30T23:30:00Z", kMonth, 2,
       "2027-03-31T07:30:00+08:00"},
      {"UTC", "2027-01-30T23:30:00Z", kMonth, 2, "2027-03-30T23:30:00Z"},
      // The last second of the 30th and the first of the 31st.
      {"Asia/Shanghai", "2027-03-30T15:59:59Z", kMonth, 1,
       "2027-04-30T23:59:59+08:00"},
      {"Asia/Shanghai", "2027-03-30T15:59:59Z", kMonth, 2,
       "2027-05-30T23:59:59+08:00"},
      {"Asia/Shanghai", "2027-03-30T16:00:00Z", kMonth, 1,
       "2027-04-30T00:00:00+08:00"},
      {"Asia/Shanghai", "2027-03-30T16:00:00Z", kMonth, 2,
       "2027-05-31T00:00:00+08:00"},
      // Measured on PostgreSQL: a day apart.
      {"UTC", "2024-03-30T16:00:00Z", kMonth, 1, "2024-04-30T16:00:00Z"},
      {"Asia/Shanghai", "2024-03-30T16:00:00Z", kMonth, 1,
       "2024-04-29T16:00:00Z"},
  });
}

TEST(AddUnits, CountsBackwardsToo) {
  ExpectSums({
      {"UTC", "2027-03-31T10:00:00Z", kMonth, -1, "2027-02-28T10:00:00Z"},
      {"UTC", "2027-03-31T10:00:00Z", kMonth, -3, "2026-12-31T10:00:00Z"},
      {"UTC", "2028-02-29T10:00:00Z", kYear, -1, "2027-02-28T10:00:00Z"},
      {"UTC", "2027-03-01T10:00:00Z", kDay, -1, "2027-02-28T10:00:00Z"},
      {"UTC", "2027-03-01T10:00:00Z", kWeek, -1, "2027-02-22T10:00:00Z"},
      {"Europe/Berlin", "2027-03-29T10:00:00+02:00", kDay, -1,
       "2027-03-28T10:00:00+02:00"},
      {"Europe/Berlin", "2027-03-29T10:00:00+02:00", kDay, -2,
       "2027-03-27T10:00:00+01:00"},
  });
}

TEST(AddUnits, KeepsTheTimeOfDayOverAChangeOfTheClock) {
  ExpectSums({
      // 23 and 25 hours.
      {"Europe/Berlin", "2027-03-27T12:00:00+01:00", kDay, 1,
       "2027-03-28T12:00:00+02:00"},
      {"Europe/Berlin", "2027-10-30T12:00:00+02:00", kDay, 1,
       "2027-10-31T12:00:00+01:00"},
      {"America/New_York", "2027-03-10T09:00:00-05:00", kWeek, 1,
       "2027-03-17T09:00:00-04:00"},
      {"America/New_York", "2027-01-15T09:00:00-05:00", kMonth, 6,
       "2027-07-15T09:00:00-04:00"},
      {"Australia/Lord_Howe", "2027-01-15T09:00:00+11:00", kMonth, 6,
       "2027-07-15T09:00:00+10:30"},
  });
}

TEST(AddUnits, KeepsWhatIsBelowTheSecond) {
  ExpectSums({
      {"Asia/Shanghai", "2027-01-31T10:00:00.123456+08:00", kMonth, 1,
       "2027-02-28T10:00:00.123456+08:00"},
      {"America/New_York", "1969-12-31T23:59:59.999999-05:00", kMonth, -10,
       "1969-02-28T23:59:59.999999-05:00"},
      {"America/New_York", "2027-10-07T01:30:00.5-04:00", kMonth, 1,
       "2027-11-07T01:30:00.5-04:00"},
  });
}

TEST(AddUnits, ASkippedLocalTimeIsTheFirstInstantAfterTheGap) {
  ExpectSums({
      {"America/New_York", "2027-02-14T01:59:59.999999-05:00", kMonth, 1,
       "2027-03-14T01:59:59.999999-05:00"},
      {"America/New_York", "2027-02-14T02:00:00-05:00", kMonth, 1,
       "2027-03-14T03:00:00-04:00"},
      {"America/New_York", "2027-02-14T02:30:00.25-05:00", kMonth, 1,
       "2027-03-14T03:00:00-04:00"},
      {"America/New_York", "2027-02-14T03:00:00-05:00", kMonth, 1,
       "2027-03-14T03:00:00-04:00"},
      // Half an hour.
      {"Australia/Lord_Howe", "2027-10-02T02:15:00+10:30", kDay, 1,
       "2027-10-03T02:30:00+11:00"},
      // A whole day: there was no 30 December 2011 in Samoa.
      {"Pacific/Apia", "2011-11-30T10:00:00-10:00", kMonth, 1,
       "2011-12-31T00:00:00+14:00"},
      {"Pacific/Apia", "2011-12-29T10:00:00-10:00", kDay, 2,
       "2011-12-31T10:00:00+14:00"},
  });
}

TEST(AddUnits, ARepeatedLocalTimeIsTheFirstOfTheTwo) {
  ExpectSums({
      {"America/New_York", "2027-10-07T00:59:59-04:00", kMonth, 1,
       "2027-11-07T00:59:59-04:00"},
      {"America/New_York", "2027-10-07T01:00:00-04:00", kMonth, 1,
       "2027-11-07T01:00:00-04:00"},
      {"America/New_York", "2027-10-07T01:59:59-04:00", kMonth, 1,
       "2027-11-07T01:59:59-04:00"},
      {"America/New_York", "2027-10-07T02:00:00-04:00", kMonth, 1,
       "2027-11-07T02:00:00-05:00"},
      // An anchor in the second run keeps its local time; nothing moves it.
      {"America/New_York", "2027-11-07T01:30:00-05:00", kMonth, 1,
       "2027-12-07T01:30:00-05:00"},
      {"America/New_York", "2027-11-07T01:30:00-05:00", kMonth, 0,
       "2027-11-07T01:30:00-05:00"},
      {"Europe/Dublin", "2027-09-30T01:30:00+01:00", kMonth, 1,
       "2027-10-30T01:30:00+01:00"},
      {"Europe/Dublin", "2027-10-30T01:30:00+01:00", kDay, 1,
       "2027-10-31T01:30:00+01:00"},
  });
}

TEST(AddUnits, StaysWithinTheYears1To9999) {
  constexpr char kFirst[] = "0001-01-01T00:00:00Z";
  constexpr char kLast[] = "9999-12-31T23:59:59.999999Z";
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  ExpectSums({
      {"UTC", "9998-12-31T10:00:00Z", kYear, 1, "9999-12-31T10:00:00Z"},
      {"UTC", "9998-12-31T10:00:00Z", kYear, 2, kLast},
      {"UTC", "9999-12-31T23:59:59.999999Z", kDay, 1, kLast},
      {"UTC", "0002-01-01T00:00:00Z", kYear, -1, kFirst},
      {"UTC", "0002-01-01T00:00:00Z", kYear, -2, kFirst},
      {"UTC", "0001-01-01T00:00:00Z", kYear, 9998, "9999-01-01T00:00:00Z"},
      // The local year is not UTC's.
      {"Pacific/Kiritimati", "9999-11-30T20:00:00Z", kMonth, 1,
       "9999-12-31T20:00:00Z"},
      {"Pacific/Kiritimati", "9999-12-31T20:00:00Z", kMonth, 0,
       "9999-12-31T20:00:00Z"},
      {"America/New_York", "9999-12-31T10:00:00Z", kDay, 1, kLast},
  });
  for (const CalendarUnit unit : {kDay, kWeek, kMonth, kYear}) {
    ExpectSums({
        {"Asia/Shanghai", "2027-01-31T10:00:00Z", unit, kMost, kLast},
        {"Asia/Shanghai", "2027-01-31T10:00:00Z", unit, kLeast, kFirst},
        {"Europe/Berlin", kLast, unit, kLeast, kFirst},
        {"Europe/Berlin", kFirst, unit, kMost, kLast},
    });
    for (const int64_t n : {kLeast, int64_t{-1}, int64_t{0}}) {
      EXPECT_EQ(Utc(AddUnits(absl::InfinitePast(), unit, n, Zone("UTC"))),
                Utc(At(kFirst)));
    }
    for (const int64_t n : {kMost, int64_t{1}, int64_t{0}}) {
      EXPECT_EQ(Utc(AddUnits(absl::InfiniteFuture(), unit, n, Zone("UTC"))),
                Utc(At(kLast)));
    }
  }
}

// ---- StackedEnd ----

// Ends of terms that stand behind each other.
std::vector<std::string> Chain(absl::string_view anchor,
                               const std::vector<Term>& terms,
                               const absl::TimeZone& zone) {
  std::vector<std::string> ends;
  absl::Time end = At(anchor);
  for (const Term& term : terms) {
    end = StackedEnd(At(anchor), end, term, zone);
    ends.push_back(absl::FormatTime("%Y-%m-%d %H:%M", end, zone));
  }
  return ends;
}

TEST(StackedEnd, C046_FiveYearlyRenewalsOfALeapDay) {
  const Term year{.unit = kYear, .count = 1};
  EXPECT_THAT(
      Chain("2028-02-29T12:00:00+08:00", {year, year, year, year, year},
            Zone("Asia/Shanghai")),
      ElementsAre("2029-02-28 12:00", "2030-02-28 12:00", "2031-02-28 12:00",
                  "2032-02-29 12:00", "2033-02-28 12:00"));
}

TEST(StackedEnd, S4_5_MonthsYearsAndQuartersShareAnAnchor) {
  const Term month{.unit = kMonth, .count = 1};
  const Term quarter{.unit = kMonth, .count = 3};
  const Term year{.unit = kYear, .count = 1};
  EXPECT_THAT(
      Chain("2027-01-31T10:00:00+08:00", {month, month, year, quarter, month},
            Zone("Asia/Shanghai")),
      ElementsAre("2027-02-28 10:00", "2027-03-31 10:00", "2028-03-31 10:00",
                  "2028-06-30 10:00", "2028-07-31 10:00"));
}

TEST(StackedEnd, DaysAndWeeksShareAnAnchorOverAGap) {
  const Term day{.unit = kDay, .count = 1};
  const Term week{.unit = kWeek, .count = 1};
  // 02:30 does not exist on 14 March; the day after it is 02:30 again.
  EXPECT_THAT(
      Chain("2027-03-13T02:30:00-05:00", {day, day, week},
            Zone("America/New_York")),
      ElementsAre("2027-03-14 03:00", "2027-03-15 02:30", "2027-03-22 02:30"));
}

TEST(StackedEnd, CountsFromAnEndThatIsNoWholeNumberOfUnits) {
  const absl::TimeZone utc = Zone("UTC");
  const absl::Time anchor = At("2027-01-31T10:00:00Z");
  const Term month{.unit = kMonth, .count = 1};
  const struct {
    const char* chain_end;
    const char* expected;
  } kCases[] = {
      {"2027-02-28T10:00:00Z", "2027-03-31T10:00:00Z"},
      {"2027-02-28T10:00:00.000001Z", "2027-03-28T10:00:00.000001Z"},
      {"2027-02-28T09:59:59.999999Z", "2027-03-28T09:59:59.999999Z"},
      {"2027-02-27T10:00:00Z", "2027-03-27T10:00:00Z"},
      {"2027-01-31T10:00:00Z", "2027-02-28T10:00:00Z"},
      // Before the anchor, though a whole month from it.
      {"2026-12-31T10:00:00Z", "2027-01-31T10:00:00Z"},
      {"2026-11-30T10:00:00Z", "2026-12-30T10:00:00Z"},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(Utc(StackedEnd(anchor, At(c.chain_end), month, utc)),
              Utc(At(c.expected)))
        << c.chain_end;
  }
}

// Two whole numbers of days from the anchor are one instant where a zone skips
// a day; a term behind it must not be empty.
TEST(StackedEnd, HasALengthBehindASkippedDay) {
  const absl::TimeZone apia = Zone("Pacific/Apia");
  const absl::Time anchor = At("2011-12-28T00:00:00-10:00");
  const Term day{.unit = kDay, .count = 1};
  const absl::Time skipped =
      StackedEnd(anchor, StackedEnd(anchor, anchor, day, apia), day, apia);
  EXPECT_EQ(Utc(skipped), Utc(At("2011-12-31T00:00:00+14:00")));
  EXPECT_EQ(Utc(StackedEnd(anchor, skipped, day, apia)),
            Utc(At("2012-01-01T00:00:00+14:00")));
}

// The skipped day is the last of its month and year: the end has left both.
TEST(StackedEnd, FindsItsAnchorBehindASkippedEndOfAMonth) {
  const absl::TimeZone manila = Zone("Asia/Manila");
  const absl::Time anchor =
      manila.At(absl::CivilSecond(1844, 10, 31, 9, 0, 0)).pre;
  const Term month{.unit = kMonth, .count = 1};
  const absl::Time skipped = AddUnits(anchor, kMonth, 2, manila);
  ASSERT_EQ(absl::FormatTime("%Y-%m-%d %H:%M", skipped, manila),
            "1845-01-01 00:00");
  EXPECT_EQ(
      absl::FormatTime("%Y-%m-%d %H:%M",
                       StackedEnd(anchor, skipped, month, manila), manila),
      "1845-01-31 09:00");
}

// ---- days ----

TEST(StartOfDay, IsMidnightByTheRuleForGapsAndOverlaps) {
  const struct {
    const char* zone;
    Day day;
    const char* expected;
  } kCases[] = {
      {"Asia/Shanghai", Day{2027, 2, 28}, "2027-02-27T16:00:00Z"},
      {"UTC", Day{2027, 2, 28}, "2027-02-28T00:00:00Z"},
      // The day begins at 01:00.
      {"America/Sao_Paulo", Day{2018, 11, 4}, "2018-11-04T01:00:00-02:00"},
      {"Asia/Beirut", Day{2027, 3, 28}, "2027-03-28T01:00:00+03:00"},
      {"America/Havana", Day{2027, 3, 14}, "2027-03-14T01:00:00-04:00"},
      // The clock goes from 24:00 back to 23:00: the day has one beginning.
      {"America/Sao_Paulo", Day{2019, 2, 17}, "2019-02-17T00:00:00-03:00"},
      {"Asia/Beirut", Day{2027, 10, 31}, "2027-10-31T00:00:00+02:00"},
      // From 01:00 back to 00:00: it has two, the first counts.
      {"America/Havana", Day{2027, 11, 7}, "2027-11-07T00:00:00-04:00"},
      // There was no such day.
      {"Pacific/Apia", Day{2011, 12, 30}, "2011-12-31T00:00:00+14:00"},
      {"UTC", Day{10000, 1, 1}, "9999-12-31T23:59:59.999999Z"},
      {"UTC", Day{-5, 1, 1}, "0001-01-01T00:00:00Z"},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(Utc(StartOfDay(c.day, Zone(c.zone))), Utc(At(c.expected)))
        << c.zone << " " << absl::FormatCivilTime(c.day);
  }
}

TEST(LocalDay, C044_ChangesAtLocalMidnight) {
  const absl::TimeZone shanghai = Zone("Asia/Shanghai");
  EXPECT_EQ(LocalDay(At("2027-03-30T15:59:59.999999Z"), shanghai),
            Day(2027, 3, 30));
  EXPECT_EQ(LocalDay(At("2027-03-30T16:00:00Z"), shanghai), Day(2027, 3, 31));
  EXPECT_EQ(LocalDay(absl::InfiniteFuture(), Zone("UTC")), Day(9999, 12, 31));
  EXPECT_EQ(LocalDay(absl::InfinitePast(), Zone("UTC")), Day(1, 1, 1));
}

TEST(AddMonths, ClampsToTheMonth) {
  EXPECT_EQ(AddMonths(Day{2027, 1, 31}, 1), Day(2027, 2, 28));
  EXPECT_EQ(AddMonths(Day{2028, 1, 31}, 1), Day(2028, 2, 29));
  EXPECT_EQ(AddMonths(Day{2027, 1, 31}, 11), Day(2027, 12, 31));
  EXPECT_EQ(AddMonths(Day{2027, 1, 28}, 1), Day(2027, 2, 28));
  EXPECT_EQ(AddMonths(Day{2027, 1, 31}, -2), Day(2026, 11, 30));
}

// ---- properties ----

absl::TimeZone AnyZone() {
  return Zone(*rc::gen::elementOf(std::vector<std::string>{
      "UTC", "Asia/Shanghai", "America/New_York", "Europe/Dublin",
      "America/Sao_Paulo", "Asia/Beirut", "Australia/Lord_Howe", "Pacific/Apia",
      "Pacific/Kiritimati", "America/Havana", "Asia/Kolkata",
      "Africa/Casablanca"}));
}

absl::Time AnyInstant() {
  // 1970 to 2200, to the microsecond.
  return absl::FromUnixMicros(
      *rc::gen::inRange<int64_t>(0, 7'258'118'400'000'000));
}

TEST(AddUnits, MoreUnitsAreNeverEarlier) {
  EXPECT_TRUE(rc::check([] {
    const absl::TimeZone zone = AnyZone();
    const absl::Time anchor = AnyInstant();
    const auto unit = *rc::gen::element(kDay, kWeek, kMonth, kYear);
    const int n = *rc::gen::inRange(-300, 300);
    const absl::Time at = AddUnits(anchor, unit, n, zone);
    const absl::Time next = AddUnits(anchor, unit, n + 1, zone);
    // Equal only where the zone skips the day.
    RC_ASSERT(at < next || (unit == kDay && at == next));
  }));
}

TEST(StackedEnd, S4_5_AChainOfTermsEndsWhereTheirSumDoes) {
  EXPECT_TRUE(rc::check([] {
    const absl::TimeZone zone = AnyZone();
    const absl::Time anchor = AnyInstant();
    const bool months = *rc::gen::arbitrary<bool>();
    absl::Time end = anchor;
    int64_t units = 0;
    const int terms = *rc::gen::inRange(1, 12);
    for (int i = 0; i < terms; ++i) {
      Term term;
      term.count = *rc::gen::inRange(1, 5);
      const bool large = *rc::gen::arbitrary<bool>();
      term.unit = months ? (large ? kYear : kMonth) : (large ? kWeek : kDay);
      const absl::Time before = end;
      end = StackedEnd(anchor, end, term, zone);
      RC_ASSERT(end > before);
      units += term.count * (large ? (months ? 12 : 7) : 1);
    }
    RC_ASSERT(end == AddUnits(anchor, months ? kMonth : kDay, units, zone));
  }));
}

}  // namespace
}  // namespace tenure::domain
