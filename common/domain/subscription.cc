#include "common/domain/subscription.h"

#include <algorithm>
#include <utility>

namespace tenure::domain {
namespace {

constexpr std::pair<Status, absl::string_view> kNames[] = {
    {Status::kPending, "PENDING"}, {Status::kTrialing, "TRIALING"},
    {Status::kActive, "ACTIVE"},   {Status::kPastDue, "PAST_DUE"},
    {Status::kPaused, "PAUSED"},   {Status::kCanceled, "CANCELED"},
    {Status::kExpired, "EXPIRED"}, {Status::kRevoked, "REVOKED"},
};

}  // namespace

absl::string_view StatusName(Status status) {
  for (const auto& [value, name] : kNames) {
    if (value == status) return name;
  }
  return "";
}

std::optional<Status> ParseStatus(absl::string_view name) {
  for (const auto& [value, text] : kNames) {
    if (text == name) return value;
  }
  return std::nullopt;
}

bool IsLive(Status status) {
  return status == Status::kTrialing || status == Status::kActive ||
         status == Status::kPastDue;
}

std::optional<absl::Time> Subscription::AccessUntil() const {
  if (lifetime) return std::nullopt;
  // An unset instant is less than every set one.
  return std::max({expires_at, grace_period_ends_at, leeway_until});
}

}  // namespace tenure::domain
