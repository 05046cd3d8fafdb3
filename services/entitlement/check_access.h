#ifndef TENURE_SERVICES_ENTITLEMENT_CHECK_ACCESS_H_
#define TENURE_SERVICES_ENTITLEMENT_CHECK_ACCESS_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/domain/access.h"
#include "services/entitlement/access_store.h"

namespace tenure::entitlement {

struct AccessQuestion {
  std::string subject;
  std::string feature;
  // nullopt: now.
  std::optional<absl::Time> at;
};

struct AccessAnswer {
  domain::Verdict verdict;
  absl::Time decided_at;
};

// Decides access from stored instants at one instant: the one asked about, or
// the database's present, read by the very statement that read the rows.
class CheckAccess {
 public:
  explicit CheckAccess(AccessStore& store) : store_(store) {}

  absl::StatusOr<AccessAnswer> Run(const AccessQuestion& question);

 private:
  AccessStore& store_;
};

}  // namespace tenure::entitlement

#endif  // TENURE_SERVICES_ENTITLEMENT_CHECK_ACCESS_H_
