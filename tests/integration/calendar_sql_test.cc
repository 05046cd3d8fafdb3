// The calendar against PostgreSQL's own, which knows the same zones and was
// written by others.

#include <time.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "common/domain/calendar.h"
#include "common/domain/quota_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/session.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace tenure::test {
namespace {

using ::tenure::domain::AddUnits;
using ::tenure::domain::CalendarUnit;
using ::tenure::domain::CalendarUnitName;
using ::tenure::domain::LoadZone;
using ::tenure::domain::PlanReleases;
using ::tenure::domain::QuotaRule;
using ::tenure::domain::QuotaTerm;
using ::tenure::domain::Release;
using ::tenure::domain::ReleaseDay;
using ::tenure::domain::StackedEnd;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kSums = 100'000;

constexpr const char* kZones[] = {
    "UTC",
    "Asia/Shanghai",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Asia/Tehran",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Tokyo",
    "Europe/Berlin",
    "Europe/London",
    "Europe/Dublin",
    "Europe/Istanbul",
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/New_York",
    "America/Los_Angeles",
    "America/St_Johns",
    "America/Sao_Paulo",
    "America/Santiago",
    "America/Havana",
    "America/Argentina/Buenos_Aires",
    "Australia/Lord_Howe",
    "Australia/Sydney",
    "Pacific/Apia",
    "Pacific/Kiritimati",
    "Pacific/Chatham",
    "Antarctica/Troll",
};

// One addition and what AddUnits made of it.
struct Sum {
  const char* zone;
  CalendarUnit unit;
  int n = 0;
  absl::Time anchor = {};
  absl::Time result = {};
};

// A PostgreSQL array of what `format` makes of each sum.
template <typename Format>
std::string Array(const std::vector<Sum>& sums, Format format) {
  return absl::StrCat("{",
                      absl::StrJoin(sums, ",",
                                    [&](std::string* out, const Sum& sum) {
                                      absl::StrAppend(out, format(sum));
                                    }),
                      "}");
}

// Instants of 1970..2200 at any microsecond. Every fourth sum aims at a change
// of the clock: by chance alone one in some thousands would meet one.
std::vector<Sum> RandomSums() {
  std::mt19937_64 random(20'260'045);
  const auto below = [&](int64_t end) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
  };
  constexpr CalendarUnit kUnits[] = {CalendarUnit::kDay, CalendarUnit::kWeek,
                                     CalendarUnit::kMonth, CalendarUnit::kYear};
  // By unit: up to three years of days, ten of weeks, fifty of the others.
  constexpr int kMost[] = {1000, 520, 600, 50};
  const absl::Time end =
      absl::FromCivil(absl::CivilYear(2200), absl::UTCTimeZone());
  std::vector<Sum> sums;
  sums.reserve(kSums);
  while (sums.size() < kSums) {
    const char* const name = kZones[below(std::size(kZones))];
    const absl::StatusOr<absl::TimeZone> zone = LoadZone(name);
    EXPECT_THAT(zone, IsOk());
    if (!zone.ok()) return {};
    const auto unit = static_cast<size_t>(below(4));
    Sum sum{.zone = name,
            .unit = kUnits[unit],
            .n = static_cast<int>(below(2 * kMost[unit] + 1)) - kMost[unit]};
    sum.anchor = absl::FromUnixMicros(below(absl::ToUnixMicros(end)));
    absl::TimeZone::CivilTransition change;
    if (sums.size() % 4 == 0 && zone->NextTransition(sum.anchor, &change)) {
      // Around both ends of what is skipped or repeated, and within.
      const absl::CivilSecond near =
          (below(2) == 0 ? change.from : change.to) + (below(14'400) - 7'200);
      // Counted back in UTC, which skips nothing.
      const absl::TimeZone utc = absl::UTCTimeZone();
      const absl::CivilSecond local =
          utc.At(AddUnits(absl::FromCivil(near, utc), sum.unit, -sum.n, utc))
              .cs;
      const absl::Time anchor = zone->At(local).pre;
      if (anchor >= absl::UnixEpoch() && anchor < end)
        sum.anchor = anchor + absl::Microseconds(below(1'000'000));
    }
    sum.result = AddUnits(sum.anchor, sum.unit, sum.n, *zone);
    sums.push_back(sum);
  }
  return sums;
}

// PostgreSQL's sum, with its answer where the clock changes turned into ours.
// It reads a skipped local time by the offset before the gap, and a repeated
// one as the second of the two:
//   skipped:  `pg` reads back as another local time. Ours is the one instant
//             that is past the wanted time while the microsecond before it is
//             not yet.
//   repeated: an instant before `pg`, by the difference of the offsets around
//             the change, has the same local time. Ours is that one.
//   otherwise the two are equal.
constexpr char kCompare[] = R"sql(
  WITH given AS (
    SELECT i, zone,
           timestamptz 'epoch' + anchor * interval '1 microsecond' AS anchor,
           n * ('1 ' || unit)::interval AS step,
           timestamptz 'epoch' + result * interval '1 microsecond' AS ours
    FROM unnest($1::text[], $2::text[], $3::int[], $4::bigint[], $5::bigint[])
      WITH ORDINALITY AS t (zone, unit, n, anchor, result, i)
  ), wanted AS (
    SELECT *, (anchor AT TIME ZONE zone) + step AS local
    FROM given
  ), summed AS (
    SELECT *, local AT TIME ZONE zone AS pg
    FROM wanted
  ), classed AS (
    SELECT *, (pg AT TIME ZONE zone) <> local AS skipped,
           (SELECT min(earlier.at)
            FROM unnest(ARRAY[interval '3 hours', interval '1 day']) AS ago,
                 LATERAL (SELECT ((pg - ago) AT TIME ZONE zone)
                                 - ((pg - ago) AT TIME ZONE 'UTC')
                                 - ((pg AT TIME ZONE zone)
                                    - (pg AT TIME ZONE 'UTC'))) AS d (shift),
                 LATERAL (SELECT pg - d.shift) AS earlier (at)
            WHERE d.shift > interval '0'
              AND earlier.at AT TIME ZONE zone = local) AS first
    FROM summed
  ), judged AS (
    SELECT *,
           CASE
             WHEN step = interval '0' THEN ours = anchor
             WHEN skipped THEN
               (ours AT TIME ZONE zone) > local
               AND ((ours - interval '1 microsecond') AT TIME ZONE zone) < local
             ELSE ours = coalesce(first, pg)
           END AS agrees
    FROM classed
  )
  SELECT count(*), count(*) FILTER (WHERE agrees),
         count(*) FILTER (WHERE skipped),
         count(*) FILTER (WHERE first IS NOT NULL),
         count(*) FILTER (WHERE ours = pg),
         (SELECT string_agg(line, E'\n')
          FROM (SELECT concat_ws(' ', zone, anchor, '+', step, 'is', ours,
                                 'and in PostgreSQL', pg) AS line
                FROM judged
                WHERE agrees IS NOT TRUE
                ORDER BY i
                LIMIT 10) AS l)
  FROM judged
)sql";

TEST(CalendarInSql, AddsAsPostgreSqlDoesInEveryZone) {
  ASSERT_OK_AND_ASSIGN(const auto database, TestDatabase::Create());
  ASSERT_OK_AND_ASSIGN(const auto session, database->OpenSession());
  const std::vector<Sum> sums = RandomSums();
  ASSERT_THAT(sums, SizeIs(kSums));

  ASSERT_OK_AND_ASSIGN(
      const SqlRows rows,
      session->Exec(
          kCompare,
          {Array(sums, [](const Sum& s) { return s.zone; }),
           Array(sums, [](const Sum& s) { return CalendarUnitName(s.unit); }),
           Array(sums, [](const Sum& s) { return s.n; }),
           Array(sums,
                 [](const Sum& s) { return absl::ToUnixMicros(s.anchor); }),
           Array(sums,
                 [](const Sum& s) { return absl::ToUnixMicros(s.result); })}));

  ASSERT_THAT(rows, SizeIs(1));
  const SqlRow& row = rows[0];
  EXPECT_EQ(row[0], std::to_string(kSums));
  EXPECT_EQ(row[1], std::to_string(kSums)) << row[5].value_or("");
  // The comparison means something at the clock changes too.
  const int skipped = std::stoi(*row[2]);
  const int repeated = std::stoi(*row[3]);
  EXPECT_GT(skipped, 1000);
  EXPECT_GT(repeated, 1000);
  // And is nothing but PostgreSQL's own answer everywhere else.
  EXPECT_GE(std::stoi(*row[4]), kSums - skipped - repeated);
  RecordProperty("skipped", skipped);
  RecordProperty("repeated", repeated);
}

// Sets the process's TZ; what it was comes back at the end.
class ProcessZone {
 public:
  explicit ProcessZone(const char* name) {
    if (const char* before = getenv("TZ")) before_ = before;
    setenv("TZ", name, /*overwrite=*/1);
    tzset();
  }
  ~ProcessZone() {
    if (before_) {
      setenv("TZ", before_->c_str(), /*overwrite=*/1);
    } else {
      unsetenv("TZ");
    }
    tzset();
  }
  ProcessZone(const ProcessZone&) = delete;
  ProcessZone& operator=(const ProcessZone&) = delete;

 private:
  std::optional<std::string> before_;
};

// A month from 31 March 00:00 in Shanghai, which is the 30th in UTC, and then a
// year; written into a table and read back in `session`.
absl::StatusOr<std::vector<std::string>> ScheduleThrough(Session& session) {
  ASSIGN_OR_RETURN(const absl::TimeZone zone, LoadZone("Asia/Shanghai"));
  const absl::Time anchor = absl::FromUnixSeconds(1'711'814'400);
  const absl::Time month_end = StackedEnd(anchor, anchor, {.count = 1}, zone);
  const absl::Time year_end =
      StackedEnd(anchor, month_end, {.unit = CalendarUnit::kYear}, zone);
  const QuotaTerm month{.term_key = "pay_1",
                        .term_no = 1,
                        .starts_at = anchor,
                        .ends_at = month_end};
  const QuotaTerm year{.term_key = "pay_2",
                       .term_no = 2,
                       .starts_at = month_end,
                       .ends_at = year_end,
                       .stacked = true,
                       .anchor_at = anchor};
  const QuotaRule anniversary{.meter = "a", .amount = 1};
  const QuotaRule first{
      .meter = "f", .amount = 1, .release_day = ReleaseDay::kFirstOfMonth};

  RETURN_IF_ERROR(
      session.Exec("CREATE TEMPORARY TABLE due (n serial, at timestamptz)")
          .status());
  const auto add = [&](absl::Time at) {
    return session
        .Exec("INSERT INTO due (at) VALUES ($1)",
              {absl::FormatTime("%E4Y-%m-%d %H:%M:%E6S+00", at,
                                absl::UTCTimeZone())})
        .status();
  };
  RETURN_IF_ERROR(add(month_end));
  RETURN_IF_ERROR(add(year_end));
  for (const Release& release :
       PlanReleases({month, year}, {anniversary, first}, zone)) {
    RETURN_IF_ERROR(add(release.scheduled_at));
  }
  ASSIGN_OR_RETURN(
      const SqlRows rows,
      session.Exec("SELECT to_char(at AT TIME ZONE 'UTC',"
                   " 'YYYY-MM-DD HH24:MI:SS.US') FROM due ORDER BY n"));
  std::vector<std::string> due;
  for (const SqlRow& row : rows) due.push_back(row[0].value_or("NULL"));
  return due;
}

TEST(CalendarInSql, C045_SchedulesAreTheSameInEveryZoneOfSessionAndProcess) {
  constexpr const char* kPlaces[] = {"UTC", "Asia/Shanghai",
                                     "America/New_York"};
  ASSERT_OK_AND_ASSIGN(const auto database, TestDatabase::Create());
  std::vector<std::vector<std::string>> schedules;
  for (const char* process : kPlaces) {
    const ProcessZone process_zone(process);
    // The zone has arrived where a careless call would find it.
    ASSERT_EQ(absl::LocalTimeZone().At(absl::CivilHour(2024, 7, 1, 0)).pre,
              LoadZone(process)->At(absl::CivilHour(2024, 7, 1, 0)).pre);
    for (const char* place : kPlaces) {
      ASSERT_OK_AND_ASSIGN(const auto session, database->OpenSession());
      ASSERT_OK(session->Exec(absl::StrCat("SET TIME ZONE '", place, "'")));
      ASSERT_OK_AND_ASSIGN(const std::string shown,
                           session->Scalar("SHOW TimeZone"));
      ASSERT_EQ(shown, place);
      ASSERT_OK_AND_ASSIGN(std::vector<std::string> schedule,
                           ScheduleThrough(*session));
      schedules.push_back(std::move(schedule));
    }
  }

  ASSERT_THAT(schedules, SizeIs(9));
  for (const std::vector<std::string>& schedule : schedules) {
    EXPECT_EQ(schedule, schedules[0]);
  }
  ASSERT_THAT(schedules[0], SizeIs(2 + 2 + 24));
  EXPECT_THAT(
      std::vector<std::string>(schedules[0].begin(), schedules[0].begin() + 8),
      // The ends of both terms; the month's period under both rules;
      // the year's.
      ElementsAre("2024-04-29 16:00:00.000000", "2025-04-29 16:00:00.000000",
                  "2024-03-30 16:00:00.000000", "2024-03-30 16:00:00.000000",
                  "2024-04-29 16:00:00.000000", "2024-05-30 16:00:00.000000",
                  "2024-06-29 16:00:00.000000", "2024-07-30 16:00:00.000000"));
}

}  // namespace
}  // namespace tenure::test
