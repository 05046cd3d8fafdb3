#ifndef TENURE_COMMON_DOMAIN_QUOTA_PLAN_H_
#define TENURE_COMMON_DOMAIN_QUOTA_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/domain/plan.h"

namespace tenure::domain {

// A paid stretch of a subscription, as the fold sees it. The payment is its
// identity: the term's number and its instants can change, the payment cannot.
struct QuotaTerm {
  std::string term_key;
  // 1 for the first; for people.
  int term_no = 0;
  absl::Time starts_at;
  // Exclusive. Not later than starts_at for a term that was taken back before
  // it began: it has no periods.
  absl::Time ends_at;
  // Behind an earlier term: its first period is due at 00:00 of its first day
  // and not with the payment (K5).
  bool stacked = false;
  // What the ends of its chain are counted from: the subscription's anchor. A
  // term that starts a whole number of months from it releases on its day, so
  // that a year that starts on 28 February behind a month that started on 31
  // January keeps the 31st (S4-5). Unset, or no whole number: its own start.
  std::optional<absl::Time> anchor_at = std::nullopt;
};

// One planned release: period `period_no` (from 0) of a term.
struct Release {
  std::string meter;
  std::string term_key;
  int term_no = 0;
  int period_no = 0;
  int64_t amount = 0;
  absl::Time scheduled_at;

  friend bool operator==(const Release&, const Release&) = default;
};

enum class ReleaseStatus { kPending, kReleased, kCancelled };

// A row of the schedule.
struct StoredRelease {
  int64_t id = 0;
  Release release;
  ReleaseStatus status = ReleaseStatus::kPending;
  // When it left PENDING.
  std::optional<absl::Time> settled_at = std::nullopt;
};

// What turns the stored schedule into the planned one.
struct ReleaseChanges {
  // PENDING rows that are no longer planned, or not at that instant or amount.
  std::vector<int64_t> cancel_ids;
  std::vector<Release> insert;

  friend bool operator==(const ReleaseChanges&,
                         const ReleaseChanges&) = default;
};

// No term has more periods: a hundred years of them.
inline constexpr int kMaxPeriods = 1200;

// The periods of the terms, in the order of `terms`, then of `rules`, then of
// the periods. Period 0 of a term is due when the term starts (at 00:00 of that
// day in `zone` when it is stacked); period k at 00:00 in `zone` of the
// anchor's day in the k-th month after it, clamped to the month (anniversary),
// or of the 1st of the k-th month after the term's first. `zone` is the plan's
// release_time_zone.
//
// A term has one period for each month begun, by the anchor's day, but a rest
// of less than a week is none. So n months have n periods under either policy:
// what a clamped day (28 February to 31 March is one month) or a billing zone
// with another date (the end is on the next day here) leaves over releases
// nothing, nor does an extension by a few days.
std::vector<Release> PlanReleases(absl::Span<const QuotaTerm> terms,
                                  absl::Span<const QuotaRule> rules,
                                  const absl::TimeZone& zone);

// Compares the plan with what is stored. A released period is never planned
// again. A period that was cancelled before it was due comes back (a new row
// under the same key); one that was cancelled when it was already due was lost
// to the end of its subscription and stays so (D13). `valid` is whether the
// subscription gives access; without it everything pending is cancelled.
//
// Rows are the same period when meter, term_key and period_no are; the number
// of a term can change with its order and is no difference. Of several planned
// releases of one period the first counts. O(n log n).
ReleaseChanges ReconcileReleases(absl::Span<const Release> planned,
                                 absl::Span<const StoredRelease> stored,
                                 bool valid);

}  // namespace tenure::domain

#endif  // TENURE_COMMON_DOMAIN_QUOTA_PLAN_H_
