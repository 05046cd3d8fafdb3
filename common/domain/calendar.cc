#include "common/domain/calendar.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace tenure::domain {
namespace {

// More of any unit than the years 1..9999 hold, and few enough that no civil
// arithmetic below can overflow.
constexpr int64_t kManyUnits = 4'000'000;

absl::Time WithinYears(absl::Time at) {
  static const absl::Time kFirst =
      absl::FromCivil(absl::CivilYear(1), absl::UTCTimeZone());
  static const absl::Time kLast =
      absl::FromCivil(absl::CivilYear(10000), absl::UTCTimeZone()) -
      absl::Microseconds(1);
  return std::clamp(at, kFirst, kLast);
}

// The instant of a local time, by the DST rule of the header.
absl::Time InstantOf(absl::CivilSecond local, absl::Duration subsecond,
                     const absl::TimeZone& zone) {
  const absl::TimeZone::TimeInfo info = zone.At(local);
  switch (info.kind) {
    case absl::TimeZone::TimeInfo::SKIPPED:
      return WithinYears(info.trans);
    case absl::TimeZone::TimeInfo::UNIQUE:
    case absl::TimeZone::TimeInfo::REPEATED:
      break;
  }
  return WithinYears(info.pre + subsecond);
}

absl::CivilSecond OnDay(absl::CivilDay day, absl::CivilSecond time_of_day) {
  return absl::CivilSecond(day.year(), day.month(), day.day(),
                           time_of_day.hour(), time_of_day.minute(),
                           time_of_day.second());
}

// The names of the time zone database: segments that begin with a capital. This
// leaves out its other files, absolute paths, "..", the leap second zones below
// "right/", and "localtime", which is whatever the machine says.
bool IsZoneName(absl::string_view name) {
  bool at_start = true;
  for (const char c : name) {
    if (at_start && !absl::ascii_isupper(c)) return false;
    if (!absl::ascii_isalnum(c) && c != '/' && c != '_' && c != '+' && c != '-')
      return false;
    at_start = c == '/';
  }
  return !at_start;
}

}  // namespace

absl::string_view CalendarUnitName(CalendarUnit unit) {
  switch (unit) {
    case CalendarUnit::kDay:
      return "day";
    case CalendarUnit::kWeek:
      return "week";
    case CalendarUnit::kMonth:
      return "month";
    case CalendarUnit::kYear:
      return "year";
  }
  return "";
}

std::optional<CalendarUnit> ParseCalendarUnit(absl::string_view name) {
  for (const CalendarUnit unit : {CalendarUnit::kDay, CalendarUnit::kWeek,
                                  CalendarUnit::kMonth, CalendarUnit::kYear}) {
    if (name == CalendarUnitName(unit)) return unit;
  }
  return std::nullopt;
}

absl::StatusOr<absl::TimeZone> LoadZone(absl::string_view name) {
  absl::TimeZone zone;
  if (!IsZoneName(name) || !absl::LoadTimeZone(name, &zone)) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown time zone \"", absl::CHexEscape(name), "\""));
  }
  return zone;
}

absl::Time AddUnits(absl::Time anchor, CalendarUnit unit, int64_t n,
                    const absl::TimeZone& zone) {
  anchor = WithinYears(anchor);
  // Through the local time it would lose an anchor in the second run of a
  // repeated hour.
  if (n == 0) return anchor;
  n = std::clamp(n, -kManyUnits, kManyUnits);
  const absl::TimeZone::CivilInfo local = zone.At(anchor);
  absl::CivilDay day(local.cs);
  switch (unit) {
    case CalendarUnit::kDay:
      day += n;
      break;
    case CalendarUnit::kWeek:
      day += 7 * n;
      break;
    case CalendarUnit::kMonth:
      day = AddMonths(day, n);
      break;
    case CalendarUnit::kYear:
      day = AddMonths(day, 12 * n);
      break;
  }
  return InstantOf(OnDay(day, local.cs), local.subsecond, zone);
}

absl::Time StackedEnd(absl::Time anchor, absl::Time chain_end, const Term& term,
                      const absl::TimeZone& zone) {
  anchor = WithinYears(anchor);
  chain_end = WithinYears(chain_end);
  CalendarUnit unit = term.unit;
  int64_t count = term.count;
  if (unit == CalendarUnit::kYear) {
    unit = CalendarUnit::kMonth;
    count *= 12;
  } else if (unit == CalendarUnit::kWeek) {
    unit = CalendarUnit::kDay;
    count *= 7;
  }
  const absl::CivilDay first = LocalDay(anchor, zone);
  const absl::CivilDay last = LocalDay(chain_end, zone);
  const int64_t apart = unit == CalendarUnit::kMonth
                            ? absl::CivilMonth(last) - absl::CivilMonth(first)
                            : last - first;
  // One unit fewer: what the zone skips can push an end over a midnight, and
  // with it over a month's end. The larger number first, so that two units
  // that fall onto one instant do not give a term without length.
  for (const int64_t units : {apart, apart - 1}) {
    if (units >= 0 && AddUnits(anchor, unit, units, zone) == chain_end)
      return AddUnits(anchor, unit, units + count, zone);
  }
  return AddUnits(chain_end, unit, count, zone);
}

absl::CivilDay LocalDay(absl::Time at, const absl::TimeZone& zone) {
  return absl::CivilDay(zone.At(WithinYears(at)).cs);
}

absl::Time StartOfDay(absl::CivilDay day, const absl::TimeZone& zone) {
  return InstantOf(absl::CivilSecond(day), absl::ZeroDuration(), zone);
}

absl::CivilDay AddMonths(absl::CivilDay day, int64_t n) {
  const absl::CivilMonth month = absl::CivilMonth(day) + n;
  const absl::CivilDay last = absl::CivilDay(month + 1) - 1;
  return std::min(absl::CivilDay(month) + (day.day() - 1), last);
}

}  // namespace tenure::domain
