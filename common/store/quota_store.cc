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

absl::StatusOr<domain::Plan> LoadRevision(db::Transaction& tx,
                                          const domain::PlanInForce& plan) {
  ASSIGN_OR_RETURN(
      const db::Result rows,
      tx.Execute(kSelectPlanId, db::MakeParams(plan.name, plan.revision)));
  if (rows.empty()) {
    return InternalError(
        absl::StrCat("plan ", plan.name, " has no revision ", plan.revision));
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

// Gives stored rows the present numbers of their terms.
absl::Status Renumber(db::Transaction& tx, int64_t subscription_id,
                      const std::vector<domain::QuotaTerm>& terms,
                      const std::vector<domain::StoredRelease>& stored) {
  std::map<std::string, int64_t> number_of_term;
  for (const domain::QuotaTerm& term : terms) {
    number_of_term[term.term_key] = term.term_no;
  }
  std::vector<std::string> keys;
  std::vector<int64_t> numbers;
  for (const domain::StoredRelease& row : stored) {
    const auto number = number_of_term.find(row.release.term_key);
    if (number == number_of_term.end() ||
        number->second == row.release.term_no) {
      continue;
    }
    keys.push_back(number->first);
    numbers.push_back(number->second);
    number_of_term.erase(number);
  }
  if (keys.empty()) return absl::OkStatus();
  return tx
      .Execute(kRenumberQuotaTerms,
               db::MakeParams(subscription_id, keys, numbers))
      .status();
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

// Whether a plan that was in force turned out never to have been.
bool AnyGone(const std::vector<domain::PlanInForce>& before,
             const std::vector<domain::PlanInForce>& after) {
  return std::any_of(
      before.begin(), before.end(), [&](const domain::PlanInForce& old) {
        return std::none_of(
            after.begin(), after.end(), [&](const domain::PlanInForce& plan) {
              return plan.name == old.name && plan.revision == old.revision;
            });
      });
}

}  // namespace

absl::Status WriteQuotaSchedule(db::Transaction& tx, int64_t subscription_id,
                                const domain::Projection& projection,
                                const std::vector<domain::PlanInForce>& before,
                                const domain::Plan& known, bool valid,
                                absl::string_view cause) {
  const std::vector<domain::QuotaTerm> terms = domain::QuotaTerms(projection);
  std::vector<domain::Release> planned;
  bool any_quota = false;
  for (size_t i = 0; i < projection.plans.size(); ++i) {
    const domain::PlanInForce& in_force = projection.plans[i];
    const absl::Time until = i + 1 < projection.plans.size()
                                 ? projection.plans[i + 1].from
                                 : absl::InfiniteFuture();
    domain::Plan plan = known;
    if (in_force.name != known.name || in_force.revision != known.revision) {
      ASSIGN_OR_RETURN(plan, LoadRevision(tx, in_force));
    }
    if (plan.quotas.empty()) continue;
    any_quota = true;
    ASSIGN_OR_RETURN(const absl::TimeZone zone,
                     domain::LoadZone(plan.release_time_zone));
    for (domain::Release& release :
         domain::PlanReleases(terms, plan.quotas, zone)) {
      if (release.scheduled_at < in_force.from ||
          release.scheduled_at >= until) {
        continue;
      }
      planned.push_back(std::move(release));
    }
  }
  // Where no plan ever brought quota there is no schedule either.
  if (!any_quota && !AnyGone(before, projection.plans)) return absl::OkStatus();

  ASSIGN_OR_RETURN(const std::vector<domain::StoredRelease> stored,
                   LoadSchedule(tx, subscription_id));
  RETURN_IF_ERROR(Renumber(tx, subscription_id, terms, stored));
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
