#include "common/store/subscription_row.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/domain/fold.h"

namespace tenure::store {

absl::StatusOr<domain::SubscriptionState> SubscriptionStateFromRow(
    const db::Row& row) {
  domain::SubscriptionState state;
  domain::Subscription& s = state.subscription;
  const std::optional<domain::Status> status =
      domain::ParseStatus(row.Text("status"));
  if (!status.has_value()) {
    return InternalError(
        absl::StrCat("unknown subscription status ", row.Text("status")));
  }
  s.status = *status;
  s.lifetime = row.Bool("lifetime");
  s.anchor_at = row.OptionalTime("anchor_at");
  s.starts_at = row.OptionalTime("starts_at");
  s.expires_at = row.OptionalTime("expires_at");
  s.grace_period_ends_at = row.OptionalTime("grace_period_ends_at");
  s.leeway_until = row.OptionalTime("leeway_until");
  s.cancel_at = row.OptionalTime("cancel_at");
  s.pause_at = row.OptionalTime("pause_at");
  s.next_plan_at = row.OptionalTime("next_plan_at");
  s.will_renew = row.Bool("will_renew");
  s.term_no = static_cast<int>(row.Int64("term_no"));
  state.lifecycle.expired_at = row.OptionalTime("expired_at");
  state.lifecycle.episode = static_cast<int>(row.Int64("episode"));
  state.lifecycle.event_seq = row.Int64("event_seq");
  return state;
}

db::Params ToParams(int64_t subscription_id,
                    const domain::SubscriptionState& state) {
  const domain::Subscription& s = state.subscription;
  return db::MakeParams(
      subscription_id, domain::StatusName(s.status), s.lifetime, s.anchor_at,
      s.starts_at, s.expires_at, s.grace_period_ends_at, s.leeway_until,
      s.cancel_at, s.pause_at, s.will_renew, s.next_billing_at, s.term_no,
      s.needs_reconcile, s.subject_id, s.plan, s.plan_revision, s.next_plan,
      s.next_plan_revision, s.next_plan_at, state.lifecycle.expired_at,
      state.lifecycle.episode, state.lifecycle.event_seq,
      domain::kFoldRevision);
}

}  // namespace tenure::store
