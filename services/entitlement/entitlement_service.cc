#include "services/entitlement/entitlement_service.h"

#include "common/base/status_macros.h"
#include "services/entitlement/convert.h"

namespace tenure::entitlement {

grpc::Status EntitlementService::Check(grpc::ServerContext* context,
                                       const v1::CheckRequest* request,
                                       v1::CheckResponse* response) {
  return guard_.Run(context, "Check", [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const AccessQuestion question, FromApi(*request));
    ASSIGN_OR_RETURN(const AccessAnswer answer, check_access_.Run(question));
    ToApi(answer, response);
    return absl::OkStatus();
  });
}

}  // namespace tenure::entitlement
