#ifndef TENURE_SERVICES_ENTITLEMENT_ACCESS_STORE_H_
#define TENURE_SERVICES_ENTITLEMENT_ACCESS_STORE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/db/pool.h"
#include "common/domain/access.h"

namespace tenure::entitlement {

// What one statement saw, and the database's clock at that moment.
struct AccessSnapshot {
  absl::Time now;
  std::vector<domain::AccessCandidate> candidates;
};

// Reads what a decision needs. Thread-safe.
class AccessStore {
 public:
  // `environment` is "live" or "test": rows of the other are not seen (R15).
  AccessStore(db::Pool& pool, std::string environment)
      : pool_(pool), environment_(std::move(environment)) {}

  absl::StatusOr<AccessSnapshot> Read(absl::string_view subject,
                                      absl::string_view feature);

 private:
  db::Pool& pool_;
  const std::string environment_;
};

}  // namespace tenure::entitlement

#endif  // TENURE_SERVICES_ENTITLEMENT_ACCESS_STORE_H_
