#include "services/entitlement/access_store.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/store/subscription_row.h"
#include "services/entitlement/statements.h"

namespace tenure::entitlement {

absl::StatusOr<AccessSnapshot> AccessStore::Read(absl::string_view subject,
                                                 absl::string_view feature) {
  ASSIGN_OR_RETURN(
      const db::Result rows,
      pool_.Execute(kSelectAccessCandidates,
                    db::MakeParams(subject, environment_, feature)));
  AccessSnapshot snapshot;
  snapshot.now = rows[0].Time("now");
  if (const auto plan = rows[0].OptionalText("default_plan")) {
    domain::AccessCandidate candidate;
    candidate.is_default_plan = true;
    candidate.plan = *plan;
    candidate.plan_grants = rows[0].Bool("default_grants");
    candidate.value = {rows[0].OptionalInt64("default_limit"),
                       rows[0].OptionalInt64("default_quantity")};
    snapshot.candidates.push_back(std::move(candidate));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const db::Row row = rows[i];
    // The row that only carries the clock.
    if (row.IsNull("id")) continue;
    domain::AccessCandidate candidate;
    candidate.subscription_id = row.Int64("id");
    ASSIGN_OR_RETURN(const domain::SubscriptionState state,
                     store::SubscriptionStateFromRow(row));
    candidate.subscription = state.subscription;
    candidate.plan = row.Text("plan");
    candidate.plan_grants = row.Bool("plan_grants");
    candidate.value = {row.OptionalInt64("plan_limit"),
                       row.OptionalInt64("plan_quantity")};
    candidate.next_plan = row.OptionalText("next_plan").value_or("");
    candidate.next_plan_grants = row.Bool("next_plan_grants");
    candidate.next_value = {row.OptionalInt64("next_plan_limit"),
                            row.OptionalInt64("next_plan_quantity")};
    snapshot.candidates.push_back(std::move(candidate));
  }
  RETURN_IF_ERROR(rows.status());
  return snapshot;
}

}  // namespace tenure::entitlement
