#ifndef TENURE_SERVICES_ENTITLEMENT_ENTITLEMENT_SERVICE_H_
#define TENURE_SERVICES_ENTITLEMENT_ENTITLEMENT_SERVICE_H_

#include "common/rpc/call_guard.h"
#include "services/entitlement/check_access.h"
#include "services/entitlement/quota_balances.h"
#include "tenure/entitlement/v1/entitlement.grpc.pb.h"

namespace tenure::entitlement {

// The gRPC edge of access checks and quota. Thread-safe.
class EntitlementService final : public v1::Entitlement::Service {
 public:
  EntitlementService(CheckAccess& check_access, QuotaBalances& quota,
                     rpc::CallGuard& guard)
      : check_access_(check_access), quota_(quota), guard_(guard) {}

  grpc::Status Check(grpc::ServerContext* context,
                     const v1::CheckRequest* request,
                     v1::CheckResponse* response) override;
  grpc::Status GetQuota(grpc::ServerContext* context,
                        const v1::GetQuotaRequest* request,
                        v1::GetQuotaResponse* response) override;

 private:
  CheckAccess& check_access_;
  QuotaBalances& quota_;
  rpc::CallGuard& guard_;
};

}  // namespace tenure::entitlement

#endif  // TENURE_SERVICES_ENTITLEMENT_ENTITLEMENT_SERVICE_H_
