#ifndef TENURE_SERVICES_ENTITLEMENT_ENTITLEMENT_SERVICE_H_
#define TENURE_SERVICES_ENTITLEMENT_ENTITLEMENT_SERVICE_H_

#include "common/rpc/call_guard.h"
#include "services/entitlement/check_access.h"
#include "tenure/entitlement/v1/entitlement.grpc.pb.h"

namespace tenure::entitlement {

// The gRPC edge of access checks. Thread-safe.
class EntitlementService final : public v1::Entitlement::Service {
 public:
  EntitlementService(CheckAccess& check_access, rpc::CallGuard& guard)
      : check_access_(check_access), guard_(guard) {}

  grpc::Status Check(grpc::ServerContext* context,
                     const v1::CheckRequest* request,
                     v1::CheckResponse* response) override;

 private:
  CheckAccess& check_access_;
  rpc::CallGuard& guard_;
};

}  // namespace tenure::entitlement

#endif  // TENURE_SERVICES_ENTITLEMENT_ENTITLEMENT_SERVICE_H_
