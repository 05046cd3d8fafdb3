#ifndef TENURE_COMMON_DOMAIN_CALENDAR_H_
#define TENURE_COMMON_DOMAIN_CALENDAR_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"

namespace tenure::domain {

// Calendar arithmetic in a named zone (R13). Every function is pure and depends
// on neither the process's TZ nor a session's TimeZone.
//
// DST: a local time that a zone skips becomes the first instant after the gap;
// one that it repeats becomes the first of the two.
//
// Instants are kept within the years 1..9999 of UTC, which every format we
// store or send can hold: one outside counts as the nearest inside.

enum class CalendarUnit { kDay, kWeek, kMonth, kYear };

// "day", "week", "month", "year".
absl::string_view CalendarUnitName(CalendarUnit unit);
std::optional<CalendarUnit> ParseCalendarUnit(absl::string_view name);

// Length of what is sold: `count` units, 1 or more.
struct Term {
  CalendarUnit unit = CalendarUnit::kMonth;
  int count = 1;

  friend bool operator==(const Term&, const Term&) = default;
};

// The zone of an IANA name, as written in the time zone database (case
// matters). INVALID_ARGUMENT naming it when there is none; names that mean
// another zone on another machine ("localtime") are none.
absl::StatusOr<absl::TimeZone> LoadZone(absl::string_view name);

// `anchor` plus `n` units in `zone`, at the anchor's local time of day; a day
// that the month lacks becomes its last (31 January plus one month is 28 or 29
// February, plus two 31 March). Always from the anchor, never from an earlier
// result (S4-5). Any sign of n; the anchor itself for n = 0.
absl::Time AddUnits(absl::Time anchor, CalendarUnit unit, int64_t n,
                    const absl::TimeZone& zone);

// The end of a term that begins where the terms before it ended, at
// `chain_end`. Counts from `anchor` when chain_end is a whole number of units
// from it (0 or more), so that the anchor's day survives short months (C046);
// else from chain_end, which then is an anchor of its own. Months and years are
// both whole in months, days and weeks in days.
absl::Time StackedEnd(absl::Time anchor, absl::Time chain_end, const Term& term,
                      const absl::TimeZone& zone);

// The day in `zone` on which `at` falls.
absl::CivilDay LocalDay(absl::Time at, const absl::TimeZone& zone);

// 00:00 of a day in `zone`, by the DST rule above.
absl::Time StartOfDay(absl::CivilDay day, const absl::TimeZone& zone);

// The same day of the month `n` months on, or that month's last.
absl::CivilDay AddMonths(absl::CivilDay day, int64_t n);

}  // namespace tenure::domain

#endif  // TENURE_COMMON_DOMAIN_CALENDAR_H_
