#include "common/store/subscription_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/store/statements.h"
#include "common/store/subscription_row.h"

namespace tenure::store {
namespace {

absl::StatusOr<StoredSubscription> OnlyRow(const db::Result& rows, int64_t id) {
  if (rows.empty()) {
    return MakeError(absl::StatusCode::kNotFound,
                     common::v1::ERROR_REASON_SUBSCRIPTION_NOT_FOUND,
                     absl::StrCat("there is no subscription ", id),
                     {{"subscription_id", absl::StrCat(id)}});
  }
  ASSIGN_OR_RETURN(StoredSubscription stored,
                   StoredSubscriptionFromRow(rows[0]));
  RETURN_IF_ERROR(rows.status());
  return stored;
}

}  // namespace

absl::StatusOr<StoredSubscription> StoredSubscriptionFromRow(
    const db::Row& row) {
  StoredSubscription stored;
  stored.id = row.Int64("id");
  stored.subject_id = row.Int64("subject_id");
  stored.subject = row.Text("subject");
  stored.subject_erased = !row.IsNull("erased_at");
  stored.plan = row.Text("plan");
  stored.next_plan = row.OptionalText("next_plan").value_or("");
  stored.route = row.Text("route");
  stored.environment = row.Text("environment");
  stored.provider_subscription_id =
      row.OptionalText("provider_subscription_id").value_or("");
  stored.access_until = row.OptionalTime("access_until");
  stored.prepaid = row.Bool("prepaid");
  stored.needs_reconcile = row.Bool("needs_reconcile");
  stored.version = row.Int64("version");
  ASSIGN_OR_RETURN(stored.state, SubscriptionStateFromRow(row));
  return stored;
}

absl::StatusOr<StoredSubscription> LoadSubscription(
    db::Transaction& tx, int64_t id, absl::string_view environment) {
  ASSIGN_OR_RETURN(
      const db::Result rows,
      tx.Execute(kSelectSubscription, db::MakeParams(id, environment)));
  return OnlyRow(rows, id);
}

absl::StatusOr<StoredSubscription> SubscriptionStore::Get(int64_t id) {
  ASSIGN_OR_RETURN(
      const db::Result rows,
      pool_.Execute(kSelectSubscription, db::MakeParams(id, environment_)));
  return OnlyRow(rows, id);
}

absl::StatusOr<std::vector<StoredSubscription>>
SubscriptionStore::ListOfSubject(const SubscriptionFilter& filter, int limit) {
  ASSIGN_OR_RETURN(
      const db::Result rows,
      pool_.Execute(
          kListSubscriptionsOfSubject,
          db::MakeParams(filter.subject, environment_, filter.before_id, limit,
                         filter.active_only, filter.plan)));
  std::vector<StoredSubscription> all;
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSIGN_OR_RETURN(StoredSubscription stored,
                     StoredSubscriptionFromRow(rows[i]));
    all.push_back(std::move(stored));
  }
  RETURN_IF_ERROR(rows.status());
  return all;
}

}  // namespace tenure::store
