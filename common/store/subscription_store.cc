#include "common/store/subscription_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/store/statements.h"
#include "common/store/subscription_row.h"

namespace tenure::store {
namespace {

absl::StatusOr<StoredSubscription> FromRow(const db::Row& row) {
  StoredSubscription stored;
  stored.id = row.Int64("id");
  stored.subject = row.Text("subject");
  stored.plan = row.Text("plan");
  stored.route = row.Text("route");
  stored.environment = row.Text("environment");
  stored.provider_subscription_id =
      row.OptionalText("provider_subscription_id").value_or("");
  stored.access_until = row.OptionalTime("access_until");
  ASSIGN_OR_RETURN(stored.state, SubscriptionStateFromRow(row));
  return stored;
}

}  // namespace

absl::StatusOr<StoredSubscription> SubscriptionStore::Get(int64_t id) {
  ASSIGN_OR_RETURN(const db::Result rows,
                   pool_.Execute(kSelectSubscription, db::MakeParams(id)));
  if (rows.empty()) {
    return MakeError(absl::StatusCode::kNotFound,
                     common::v1::ERROR_REASON_SUBSCRIPTION_NOT_FOUND,
                     absl::StrCat("there is no subscription ", id),
                     {{"subscription_id", absl::StrCat(id)}});
  }
  ASSIGN_OR_RETURN(StoredSubscription stored, FromRow(rows[0]));
  RETURN_IF_ERROR(rows.status());
  return stored;
}

absl::StatusOr<std::vector<StoredSubscription>>
SubscriptionStore::ListOfSubject(absl::string_view subject,
                                 std::optional<int64_t> before_id, int limit) {
  ASSIGN_OR_RETURN(const db::Result rows,
                   pool_.Execute(kListSubscriptionsOfSubject,
                                 db::MakeParams(subject, before_id, limit)));
  std::vector<StoredSubscription> all;
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSIGN_OR_RETURN(StoredSubscription stored, FromRow(rows[i]));
    all.push_back(std::move(stored));
  }
  RETURN_IF_ERROR(rows.status());
  return all;
}

}  // namespace tenure::store
