#ifndef TENURE_COMMON_DOMAIN_SUBSCRIPTION_H_
#define TENURE_COMMON_DOMAIN_SUBSCRIPTION_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tenure::domain {

// State of a subscription row. It only ever narrows access; the instants
// decide (R1).
enum class Status {
  kPending,
  kTrialing,
  kActive,
  kPastDue,
  kPaused,
  kCanceled,
  kExpired,
  kRevoked,
};

// The literal stored in PostgreSQL, "PAST_DUE" for kPastDue.
absl::string_view StatusName(Status status);
std::optional<Status> ParseStatus(absl::string_view name);

// True for the states that the sweep turns into EXPIRED (D1).
bool IsLive(Status status);

// What the facts of one subscription add up to. A value without identity; the
// store pairs it with its row.
struct Subscription {
  Status status = Status::kPending;
  // No end. Only ever set by an explicit flag, never by a missing date (D5).
  bool lifetime = false;
  std::optional<absl::Time> anchor_at;
  // First instant of access.
  std::optional<absl::Time> starts_at;
  // End of what was paid, exclusive.
  std::optional<absl::Time> expires_at;
  std::optional<absl::Time> grace_period_ends_at;
  std::optional<absl::Time> leeway_until;
  std::optional<absl::Time> cancel_at;
  std::optional<absl::Time> pause_at;
  std::optional<absl::Time> next_plan_at;
  bool will_renew = false;
  // When the next period is to be paid; nullopt when it will not renew.
  std::optional<absl::Time> next_billing_at;
  // Number of terms so far, those that were taken back included.
  int term_no = 0;
  // Names and revisions in the catalogue; empty and 0 when no fact named one.
  // next_plan is in force from next_plan_at on.
  std::string plan;
  int64_t plan_revision = 0;
  std::string next_plan;
  int64_t next_plan_revision = 0;
  // The subject it was transferred to; 0 for the one it began with.
  int64_t subject_id = 0;
  // Two provider facts of one instant contradict each other and no read-back
  // has settled it.
  bool needs_reconcile = false;

  // greatest(expires_at, grace, leeway), exclusive (R3); nullopt when lifetime
  // or when nothing was ever paid. Must agree with the generated column of the
  // same name.
  std::optional<absl::Time> AccessUntil() const;

  friend bool operator==(const Subscription&, const Subscription&) = default;
};

// Bookkeeping of a row beside its fold; outside the fold's invariant (R5).
struct Lifecycle {
  // When the end was recorded; set exactly while EXPIRED.
  std::optional<absl::Time> expired_at;
  // How often it ended and came back.
  int episode = 0;
  // Number of events announced so far.
  int64_t event_seq = 0;

  friend bool operator==(const Lifecycle&, const Lifecycle&) = default;
};

// A projection as stored.
struct SubscriptionState {
  Subscription subscription;
  Lifecycle lifecycle;
};

}  // namespace tenure::domain

#endif  // TENURE_COMMON_DOMAIN_SUBSCRIPTION_H_
