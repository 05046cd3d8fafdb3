#ifndef TENURE_COMMON_DOMAIN_PLAN_H_
#define TENURE_COMMON_DOMAIN_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/domain/calendar.h"

namespace tenure::domain {

// When a plan's monthly quota is released within a month (D4).
enum class ReleaseDay {
  // On the day of the month on which the term began, clamped.
  kAnniversary,
  kFirstOfMonth,
};

// `amount` units of `meter` each month of a paid term.
struct QuotaRule {
  std::string meter;
  int64_t amount = 0;
  ReleaseDay release_day = ReleaseDay::kAnniversary;

  friend bool operator==(const QuotaRule&, const QuotaRule&) = default;
};

// How a plan treats what happens to its money. The store writes the outcome
// into each fact when it is first stored, so a later change of policy moves no
// existing row (R5).
struct PlanPolicy {
  // How long access goes on after the first failed payment of a period; zero
  // for none.
  absl::Duration grace_period = absl::ZeroDuration();
  // A full refund leaves the access that was paid for.
  bool refund_keeps_access = false;
  // No access while a dispute is open.
  bool dispute_suspends = false;
  // How long before the period's end the next one is charged (D8).
  absl::Duration charge_lead = absl::Hours(24);

  friend bool operator==(const PlanPolicy&, const PlanPolicy&) = default;
};

// One revision of a plan, as the catalogue defines it.
struct Plan {
  int64_t id = 0;
  std::string name;
  int64_t revision = 0;
  // Sold for ever: the only plans whose payments may have no end (D5).
  bool lifetime = false;
  // What one prepaid order buys when its product does not say otherwise.
  Term term;
  // IANA names; calendar arithmetic of terms and of releases.
  std::string billing_time_zone = "UTC";
  std::string release_time_zone = "Asia/Shanghai";
  PlanPolicy policy;
  std::vector<QuotaRule> quotas;

  friend bool operator==(const Plan&, const Plan&) = default;
};

}  // namespace tenure::domain

#endif  // TENURE_COMMON_DOMAIN_PLAN_H_
