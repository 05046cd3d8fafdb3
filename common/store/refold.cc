#include "common/store/refold.h"

#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/store/catalog_store.h"
#include "common/store/statements.h"

namespace tenure::store {
namespace {

// Ids per page; the rows themselves are taken one by one.
constexpr int64_t kPage = 1000;

struct Columns {
  std::string subject;
  std::map<std::string, std::string> values;
};

absl::StatusOr<Columns> ReadColumns(db::Transaction& tx, int64_t id) {
  ASSIGN_OR_RETURN(const db::Result rows,
                   tx.Execute(kSelectSubscriptionColumns, db::MakeParams(id)));
  Columns columns;
  for (size_t i = 0; i < rows.size(); ++i) {
    columns.subject = rows[i].Text("subject");
    columns.values[rows[i].Text("column_name")] = rows[i].Text("value");
  }
  RETURN_IF_ERROR(rows.status());
  return columns;
}

// Says that the transaction did what it was asked to and is not to be kept.
absl::Status NotKept() { return absl::CancelledError("diff only"); }

absl::Status RefoldOne(db::Transaction& tx, int64_t id,
                       const RefoldScope& scope, const Author& author,
                       RefoldedSubscription* out) {
  ASSIGN_OR_RETURN(const LockedSubscription locked,
                   LockSubscription(tx, id, scope.environment));
  ASSIGN_OR_RETURN(const Columns before, ReadColumns(tx, id));
  out->subject = before.subject;
  ASSIGN_OR_RETURN(out->without_facts, RefoldLocked(tx, locked, author));
  if (out->without_facts) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Columns after, ReadColumns(tx, id));
  for (const auto& [column, value] : after.values) {
    const auto old = before.values.find(column);
    if (old != before.values.end() && old->second != value) {
      out->differences.push_back({column, old->second, value});
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RefoldTotals> Refold(
    db::Pool& pool, const RefoldScope& scope, RefoldMode mode,
    const Author& author,
    const std::function<absl::Status(const RefoldedSubscription&)>& report) {
  if (!scope.plan.empty()) {
    std::optional<domain::Plan> plan;
    RETURN_IF_ERROR(
        pool.RunTransaction([&](db::Transaction& tx) -> absl::Status {
          ASSIGN_OR_RETURN(plan, FindPlan(tx, scope.plan));
          return absl::OkStatus();
        }));
    if (!plan) {
      return absl::NotFoundError(
          absl::StrCat("the catalogue has no plan ", scope.plan));
    }
  }
  RefoldTotals totals;
  totals.last_id = scope.after_id;
  for (;;) {
    ASSIGN_OR_RETURN(const db::Result ids,
                     pool.Execute(kSelectSubscriptionIds,
                                  db::MakeParams(scope.environment, scope.plan,
                                                 totals.last_id, kPage)));
    for (size_t i = 0; i < ids.size(); ++i) {
      RefoldedSubscription one;
      const absl::Status status =
          pool.RunTransaction([&](db::Transaction& tx) -> absl::Status {
            one = RefoldedSubscription{};
            one.id = ids[i].Int64("id");
            RETURN_IF_ERROR(RefoldOne(tx, one.id, scope, author, &one));
            return mode == RefoldMode::kDiff ? NotKept() : absl::OkStatus();
          });
      RETURN_IF_ERROR(ids.status());
      if (!status.ok() && status != NotKept()) {
        if (absl::IsUnavailable(status)) return status;
        one.differences.clear();
        one.status = status;
        ++totals.failed;
      }
      ++totals.examined;
      totals.last_id = one.id;
      totals.different += one.differences.empty() ? 0 : 1;
      totals.without_facts += one.without_facts ? 1 : 0;
      if (!one.status.ok() || one.without_facts || !one.differences.empty()) {
        RETURN_IF_ERROR(report(one));
      }
    }
    if (static_cast<int64_t>(ids.size()) < kPage) return totals;
  }
}

}  // namespace tenure::store
