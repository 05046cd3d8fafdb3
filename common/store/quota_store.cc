#include "common/store/quota_store.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/domain/quota_plan.h"
#include "common/store/catalog_store.h"
#include "common/store/statements.h"

namespace tenure::store {
namespace {

using PlanKey = std::pair<std::string, int64_t>;

absl::StatusOr<domain::Plan> LoadRevision(db::Transaction& tx,
                                          const PlanKey& key) {
  ASSIGN_OR_RETURN(
      const db::Result rows,
      tx.Execute(kSelectPlanId, db::MakeParams(key.first, key.second)));
  if (rows.empty()) {
    return InternalError(
        absl::StrCat("plan ", key.first, " has no revision ", key.second));
  }
  return LoadPlan(tx, rows[0].Int64("id"));
}

absl::StatusOr<domain::ReleaseStatus> ParseReleaseStatus(
    absl::string_view name) {
  if (name == "PENDING") return domain::ReleaseStatus::kPending;
  if (name == "RELEASED") return domain::ReleaseStatus::kReleased;
  if (name == "CANCELLED") return domain::ReleaseStatus::kCancelled;
  return InternalError(absl::StrCat("unknown status of a release: ", name));
}

absl::StatusOr<std::vector<domain::StoredRelease>> LoadSchedule(
    db::Transaction& tx, int64_t subscription_id) {
  ASSIGN_OR_RETURN(
      const db::Result rows,
      tx.Execute(kSelectQuotaSchedule, db::MakeParams(subscription_id)));
  std::vector<domain::StoredRelease> stored;
  stored.reserve(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    domain::StoredRelease row;
    row.id = rows[i].Int64("id");
    row.release.meter = rows[i].Text("meter");
    row.release.term_key = rows[i].Text("term_key");
    row.release.term_no = static_cast<int>(rows[i].Int64("term_no"));
    row.release.period_no = static_cast<int>(rows[i].Int64("period_no"));
    row.release.amount = rows[i].Int64("amount");
    row.release.scheduled_at = rows[i].Time("scheduled_at");
    ASSIGN_OR_RETURN(row.status, ParseReleaseStatus(rows[i].Text("status")));
    row.settled_at = rows[i].OptionalTime("settled_at");
    stored.push_back(std::move(row));
  }
  RETURN_IF_ERROR(rows.status());
  return stored;
}

absl::Status Insert(db::Transaction& tx, int64_t subscription_id,
                    const std::vector<domain::Release>& releases) {
  std::vector<std::string> meters, term_keys, scheduled;
  std::vector<int64_t> term_nos, period_nos, amounts;
  for (const domain::Release& release : releases) {
    meters.push_back(release.meter);
    term_keys.push_back(release.term_key);
    term_nos.push_back(release.term_no);
    period_nos.push_back(release.period_no);
    amounts.push_back(release.amount);
    scheduled.push_back(absl::FormatTime(
        "%Y-%m-%d %H:%M:%E6S+00", release.scheduled_at, absl::UTCTimeZone()));
  }
  return tx
      .Execute(kInsertQuotaSchedule,
               db::MakeParams(subscription_id, meters, term_keys, term_nos,
                              period_nos, amounts, scheduled))
      .status();
}

}  // namespace

absl::Status WriteQuotaSchedule(db::Transaction& tx, int64_t subscription_id,
                                const domain::Projection& projection,
                                const domain::Plan& known, bool valid,
                                absl::string_view cause) {
  std::map<PlanKey, std::vector<domain::QuotaTerm>> terms_of_plan;
  for (domain::QuotaTerm& term : domain::QuotaTerms(projection)) {
    if (term.plan.empty()) continue;
    terms_of_plan[{term.plan, term.plan_revision}].push_back(std::move(term));
  }
  std::vector<domain::Release> planned;
  bool any_quota = false;
  for (const auto& [key, terms] : terms_of_plan) {
    domain::Plan plan = known;
    if (key != PlanKey{known.name, known.revision}) {
      ASSIGN_OR_RETURN(plan, LoadRevision(tx, key));
    }
    if (plan.quotas.empty()) continue;
    any_quota = true;
    ASSIGN_OR_RETURN(const absl::TimeZone zone,
                     domain::LoadZone(plan.release_time_zone));
    std::vector<domain::Release> releases =
        domain::PlanReleases(terms, plan.quotas, zone);
    planned.insert(planned.end(), releases.begin(), releases.end());
  }
  // A term keeps the plan it was bought under, so where no plan brings quota
  // there is no schedule either.
  if (!any_quota) return absl::OkStatus();

  ASSIGN_OR_RETURN(const std::vector<domain::StoredRelease> stored,
                   LoadSchedule(tx, subscription_id));
  const domain::ReleaseChanges changes =
      domain::ReconcileReleases(planned, stored, valid);
  if (!changes.cancel_ids.empty()) {
    RETURN_IF_ERROR(
        tx.Execute(kCancelQuotaSchedule, db::MakeParams(changes.cancel_ids))
            .status());
  }
  if (!changes.insert.empty()) {
    RETURN_IF_ERROR(Insert(tx, subscription_id, changes.insert));
  }
  if (!valid) return absl::OkStatus();
  return ReleaseDueQuota(tx, {subscription_id}, cause).status();
}

absl::StatusOr<ReleasedQuota> ReleaseDueQuota(
    db::Transaction& tx, const std::vector<int64_t>& subscription_ids,
    absl::string_view cause) {
  ASSIGN_OR_RETURN(
      const db::Result rows,
      tx.Execute(kReleaseDueQuota, db::MakeParams(subscription_ids, cause)));
  ReleasedQuota released;
  released.due = rows[0].Int64("due");
  released.released = rows[0].Int64("released");
  RETURN_IF_ERROR(rows.status());
  return released;
}

}  // namespace tenure::store
