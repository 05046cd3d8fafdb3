#include "services/scheduler/expire_sweep.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace tenure::scheduler {
namespace {

// True for an error about the values of the rows themselves: another try of the
// same rows fails again. Everything else is about the database, the schema or
// the moment, and would be the same for every row.
bool IsAboutTheRows(const absl::Status& status) {
  return status.code() == absl::StatusCode::kFailedPrecondition;
}

void Count(const ExpiredBatch& batch, ExpiryCursor* cursor, SweepStats* stats) {
  ++stats->batches;
  stats->found += batch.found;
  stats->expired += batch.expired;
  *cursor = batch.last;
}

}  // namespace

absl::Status ExpireSweep::Run(const std::function<bool()>& stop,
                              SweepStats* stats) {
  ExpiryCursor cursor;
  int64_t limit = batch_size_;
  absl::Status last_failure;
  while (!stop()) {
    const absl::StatusOr<ExpiredBatch> batch = store_.ExpireDue(cursor, limit);
    if (batch.status().code() == absl::StatusCode::kDeadlineExceeded &&
        limit > 1) {
      limit /= 2;
      continue;
    }
    if (IsAboutTheRows(batch.status())) {
      ASSIGN_OR_RETURN(const bool more,
                       OneByOne(limit, &cursor, stats, &last_failure));
      if (!more) break;
      continue;
    }
    RETURN_IF_ERROR(batch.status());
    Count(*batch, &cursor, stats);
    if (batch->found < limit) break;
  }
  return last_failure;
}

absl::StatusOr<bool> ExpireSweep::OneByOne(int64_t limit, ExpiryCursor* cursor,
                                           SweepStats* stats,
                                           absl::Status* last_failure) {
  for (int64_t i = 0; i < limit; ++i) {
    const absl::StatusOr<ExpiredBatch> one = store_.ExpireDue(*cursor, 1);
    if (one.ok()) {
      Count(*one, cursor, stats);
      if (one->found == 0) return false;
      continue;
    }
    if (!IsAboutTheRows(one.status())) return one.status();
    // If somebody holds a row before the failing one, that is the one passed by
    // here, and the failing one meets the next try: each try moves on by one.
    ASSIGN_OR_RETURN(const std::optional<ExpiryCursor> next,
                     store_.NextDue(*cursor));
    if (!next.has_value()) return false;
    *cursor = *next;
    ++stats->found;
    ++stats->failed;
    *last_failure = absl::Status(
        one.status().code(),
        absl::StrCat("subscription ", next->id,
                     " could not be expired: ", one.status().message()));
    log::Error("subscription could not be expired",
               {{"subscription_id", next->id},
                {"detail", std::string(one.status().message())}});
  }
  return true;
}

}  // namespace tenure::scheduler
