#include "services/scheduler/subscription_maintenance.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/store/fact_store.h"
#include "common/store/quota_store.h"
#include "services/scheduler/statements.h"

namespace tenure::scheduler {
namespace {

constexpr char kCause[] = "job:subscription_maintenance";

// An error about the values of the rows themselves: each is tried alone, so
// that one keeps no other waiting (C086).
bool IsAboutTheRows(const absl::Status& status) {
  return status.code() == absl::StatusCode::kFailedPrecondition ||
         status.code() == absl::StatusCode::kInternal ||
         status.code() == absl::StatusCode::kInvalidArgument;
}

absl::Status Failed(int64_t subscription_id, absl::string_view what,
                    const absl::Status& status) {
  log::Error("subscription could not be tidied",
             {{"subscription_id", subscription_id},
              {"step", std::string(what)},
              {"detail", std::string(status.message())}});
  return absl::Status(status.code(),
                      absl::StrCat("subscription ", subscription_id, ": ", what,
                                   ": ", status.message()));
}

absl::StatusOr<store::ReleasedQuota> Release(
    db::Pool& pool, const std::vector<int64_t>& subscription_ids) {
  store::ReleasedQuota released;
  RETURN_IF_ERROR(pool.RunTransaction([&](db::Transaction& tx) -> absl::Status {
    ASSIGN_OR_RETURN(released,
                     store::ReleaseDueQuota(tx, subscription_ids, kCause));
    return absl::OkStatus();
  }));
  return released;
}

}  // namespace

absl::Status SubscriptionMaintenance::Run(const std::function<bool()>& stop,
                                          JobOutcome* outcome) {
  absl::Status first = Expire(stop, outcome);
  first.Update(ApplyScheduledChanges(stop, outcome));
  first.Update(ReleaseQuota(stop, outcome));
  return first;
}

absl::Status SubscriptionMaintenance::Expire(const std::function<bool()>& stop,
                                             JobOutcome* outcome) {
  SweepStats stats;
  const absl::Status status = sweep_.Run(stop, &stats);
  outcome->batch_count += stats.batches;
  outcome->found_count += stats.found;
  outcome->succeeded_count += stats.expired;
  outcome->failed_count += stats.failed;
  return status;
}

absl::Status SubscriptionMaintenance::ApplyScheduledChanges(
    const std::function<bool()>& stop, JobOutcome* outcome) {
  absl::Status last_failure;
  int64_t cursor = 0;
  while (!stop()) {
    ASSIGN_OR_RETURN(const db::Result due,
                     pool_.Execute(kSelectDueScheduledChanges,
                                   db::MakeParams(cursor, batch_size_)));
    for (size_t i = 0; i < due.size() && !stop(); ++i) {
      const int64_t id = due[i].Int64("id");
      const std::string environment = due[i].Text("environment");
      RETURN_IF_ERROR(due.status());
      cursor = id;
      ++outcome->found_count;
      bool changed = false;
      const absl::Status status =
          pool_.RunTransaction([&](db::Transaction& tx) -> absl::Status {
            ASSIGN_OR_RETURN(const store::LockedSubscription locked,
                             store::LockSubscription(tx, id, environment));
            ASSIGN_OR_RETURN(const store::AppliedFacts applied,
                             store::LapseLocked(tx, locked, kCause));
            changed = applied.changed;
            return absl::OkStatus();
          });
      if (status.ok()) {
        outcome->succeeded_count += changed ? 1 : 0;
        continue;
      }
      if (!IsAboutTheRows(status)) return status;
      ++outcome->failed_count;
      last_failure = Failed(id, "scheduled change", status);
    }
    if (static_cast<int64_t>(due.size()) < batch_size_) break;
  }
  return last_failure;
}

absl::Status SubscriptionMaintenance::ReleaseQuota(
    const std::function<bool()>& stop, JobOutcome* outcome) {
  absl::Status last_failure;
  absl::Time scheduled_at = ExpiryCursor{}.access_until;
  int64_t id = 0;
  while (!stop()) {
    ASSIGN_OR_RETURN(
        const db::Result due,
        pool_.Execute(kSelectDueReleases,
                      db::MakeParams(scheduled_at, id, batch_size_)));
    std::vector<int64_t> subscription_ids;
    for (size_t i = 0; i < due.size(); ++i) {
      subscription_ids.push_back(due[i].Int64("subscription_id"));
      scheduled_at = due[i].Time("scheduled_at");
      id = due[i].Int64("id");
    }
    RETURN_IF_ERROR(due.status());
    if (subscription_ids.empty()) break;
    std::sort(subscription_ids.begin(), subscription_ids.end());
    subscription_ids.erase(
        std::unique(subscription_ids.begin(), subscription_ids.end()),
        subscription_ids.end());

    ++outcome->batch_count;
    absl::StatusOr<store::ReleasedQuota> released =
        Release(pool_, subscription_ids);
    if (released.ok()) {
      outcome->found_count += released->due;
      outcome->succeeded_count += released->released;
    } else if (!IsAboutTheRows(released.status())) {
      return released.status();
    } else {
      for (const int64_t subscription_id : subscription_ids) {
        released = Release(pool_, {subscription_id});
        if (released.ok()) {
          outcome->found_count += released->due;
          outcome->succeeded_count += released->released;
          continue;
        }
        if (!IsAboutTheRows(released.status())) return released.status();
        ++outcome->found_count;
        ++outcome->failed_count;
        last_failure =
            Failed(subscription_id, "quota release", released.status());
      }
    }
    if (static_cast<int64_t>(due.size()) < batch_size_) break;
  }
  return last_failure;
}

}  // namespace tenure::scheduler
