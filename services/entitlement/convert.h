#ifndef TENURE_SERVICES_ENTITLEMENT_CONVERT_H_
#define TENURE_SERVICES_ENTITLEMENT_CONVERT_H_

#include "absl/status/statusor.h"
#include "services/entitlement/check_access.h"
#include "tenure/entitlement/v1/entitlement.pb.h"

namespace tenure::entitlement {

// INVALID_ARGUMENT naming the field.
absl::StatusOr<AccessQuestion> FromApi(const v1::CheckRequest& request);

void ToApi(const AccessAnswer& answer, v1::CheckResponse* response);

}  // namespace tenure::entitlement

#endif  // TENURE_SERVICES_ENTITLEMENT_CONVERT_H_
