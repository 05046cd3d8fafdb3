#ifndef TENURE_SERVICES_ENTITLEMENT_QUOTA_BALANCES_H_
#define TENURE_SERVICES_ENTITLEMENT_QUOTA_BALANCES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/db/pool.h"

namespace tenure::entitlement {

// What is left of one meter.
struct QuotaBalance {
  std::string meter;
  int64_t remaining = 0;
  int64_t released = 0;
  std::optional<absl::Time> next_release_at;
  int64_t next_release_amount = 0;
};

struct QuotaAnswer {
  std::vector<QuotaBalance> balances;
  absl::Time decided_at;
};

// Reads what subjects have left. Grants count while their subscription gives
// access by its instants, whatever any job has recorded (S4-20). Thread-safe.
class QuotaBalances {
 public:
  QuotaBalances(db::Pool& pool, std::string environment)
      : pool_(pool), environment_(std::move(environment)) {}

  // An empty `meter` asks for all that the subject has.
  absl::StatusOr<QuotaAnswer> Read(absl::string_view subject,
                                   absl::string_view meter);

 private:
  db::Pool& pool_;
  const std::string environment_;
};

}  // namespace tenure::entitlement

#endif  // TENURE_SERVICES_ENTITLEMENT_QUOTA_BALANCES_H_
