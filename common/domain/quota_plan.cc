#include "common/domain/quota_plan.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/string_view.h"
#include "absl/time/civil_time.h"
#include "common/domain/calendar.h"

namespace tenure::domain {
namespace {

// A rest this short is no period. Clamping shortens a month by up to three
// days, a zone with another date moves either end by one or two; the rest of a
// whole month is never shorter than three weeks.
constexpr int kShortestRestDays = 7;

// The days from which a term's months are counted: month k begins on
// `anchor` + (first + k) months.
struct Months {
  absl::CivilDay anchor;
  int64_t first = 0;

  absl::CivilDay Start(int k) const { return AddMonths(anchor, first + k); }
};

Months CountMonths(const QuotaTerm& term, absl::CivilDay first_day,
                   const absl::TimeZone& zone) {
  if (term.anchor_at) {
    const absl::CivilDay anchor = LocalDay(*term.anchor_at, zone);
    const int64_t apart =
        absl::CivilMonth(first_day) - absl::CivilMonth(anchor);
    for (const int64_t months : {apart, apart - 1, apart + 1}) {
      // The same tolerance as at the end: the whole number was made in the
      // billing zone.
      if (std::abs(AddMonths(anchor, months) - first_day) < kShortestRestDays)
        return {.anchor = anchor, .first = months};
    }
  }
  return {.anchor = first_day};
}

// When the periods of a term are due, under either policy.
struct DueTimes {
  std::vector<absl::Time> anniversary;
  std::vector<absl::Time> first_of_month;
};

DueTimes PlanTerm(const QuotaTerm& term, const absl::TimeZone& zone) {
  DueTimes due;
  if (term.ends_at <= term.starts_at) return due;
  const absl::CivilDay first_day = LocalDay(term.starts_at, zone);
  const absl::CivilDay end_day = LocalDay(term.ends_at, zone);
  const absl::Time first_due =
      term.stacked ? StartOfDay(first_day, zone) : term.starts_at;
  due.anniversary.push_back(first_due);
  due.first_of_month.push_back(first_due);
  const Months months = CountMonths(term, first_day, zone);
  for (int k = 1; k < kMaxPeriods; ++k) {
    const absl::CivilDay day = months.Start(k);
    if (end_day - day < kShortestRestDays) break;
    due.anniversary.push_back(StartOfDay(day, zone));
    const absl::CivilDay first_of_month(absl::CivilMonth(first_day) + k);
    due.first_of_month.push_back(StartOfDay(first_of_month, zone));
  }
  return due;
}

// The identity of a period within its subscription. Refers to the release.
using PeriodKey = std::tuple<absl::string_view, absl::string_view, int>;

PeriodKey KeyOf(const Release& release) {
  return {release.meter, release.term_key, release.period_no};
}

// What the schedule says of one period.
struct StoredPeriod {
  bool released = false;
  // Several only if the schedule's unique key was circumvented.
  std::vector<const StoredRelease*> pending;
  const StoredRelease* newest_cancelled = nullptr;
};

bool WasLost(const StoredRelease& cancelled) {
  return !cancelled.settled_at ||
         *cancelled.settled_at >= cancelled.release.scheduled_at;
}

}  // namespace

std::vector<Release> PlanReleases(absl::Span<const QuotaTerm> terms,
                                  absl::Span<const QuotaRule> rules,
                                  const absl::TimeZone& zone) {
  std::vector<Release> releases;
  if (rules.empty()) return releases;
  for (const QuotaTerm& term : terms) {
    const DueTimes due = PlanTerm(term, zone);
    for (const QuotaRule& rule : rules) {
      const std::vector<absl::Time>& times =
          rule.release_day == ReleaseDay::kFirstOfMonth ? due.first_of_month
                                                        : due.anniversary;
      for (size_t k = 0; k < times.size(); ++k) {
        releases.push_back({.meter = rule.meter,
                            .term_key = term.term_key,
                            .term_no = term.term_no,
                            .period_no = static_cast<int>(k),
                            .amount = rule.amount,
                            .scheduled_at = times[k]});
      }
    }
  }
  return releases;
}

ReleaseChanges ReconcileReleases(absl::Span<const Release> planned,
                                 absl::Span<const StoredRelease> stored,
                                 bool valid) {
  std::map<PeriodKey, StoredPeriod> periods;
  for (const StoredRelease& row : stored) {
    StoredPeriod& period = periods[KeyOf(row.release)];
    switch (row.status) {
      case ReleaseStatus::kReleased:
        period.released = true;
        break;
      case ReleaseStatus::kPending:
        period.pending.push_back(&row);
        break;
      case ReleaseStatus::kCancelled:
        if (period.newest_cancelled == nullptr ||
            period.newest_cancelled->id < row.id)
          period.newest_cancelled = &row;
        break;
    }
  }

  ReleaseChanges changes;
  std::set<int64_t> kept;
  std::set<PeriodKey> seen;
  if (valid) {
    for (const Release& release : planned) {
      const PeriodKey key = KeyOf(release);
      if (!seen.insert(key).second) continue;
      const auto found = periods.find(key);
      if (found == periods.end()) {
        changes.insert.push_back(release);
        continue;
      }
      const StoredPeriod& period = found->second;
      if (period.released) continue;
      const auto match = std::find_if(
          period.pending.begin(), period.pending.end(),
          [&](const StoredRelease* row) {
            return row->release.amount == release.amount &&
                   row->release.scheduled_at == release.scheduled_at;
          });
      if (match != period.pending.end()) {
        kept.insert((*match)->id);
      } else if (!period.pending.empty() ||
                 !WasLost(*period.newest_cancelled)) {
        changes.insert.push_back(release);
      }
    }
  }
  for (const StoredRelease& row : stored) {
    if (row.status == ReleaseStatus::kPending && kept.count(row.id) == 0)
      changes.cancel_ids.push_back(row.id);
  }
  return changes;
}

}  // namespace tenure::domain
