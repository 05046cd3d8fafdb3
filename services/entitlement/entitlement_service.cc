#include "services/entitlement/entitlement_service.h"

#include "common/base/error.h"
#include "common/base/proto_time.h"
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

grpc::Status EntitlementService::GetQuota(grpc::ServerContext* context,
                                          const v1::GetQuotaRequest* request,
                                          v1::GetQuotaResponse* response) {
  return guard_.Run(context, "GetQuota", [&]() -> absl::Status {
    RETURN_IF_ERROR(ValidateText("subject", request->subject(), 255));
    if (!request->meter().empty()) {
      RETURN_IF_ERROR(ValidateText("meter", request->meter(), 127));
    }
    ASSIGN_OR_RETURN(const QuotaAnswer answer,
                     quota_.Read(request->subject(), request->meter()));
    for (const QuotaBalance& balance : answer.balances) {
      v1::QuotaBalance& out = *response->add_balances();
      out.set_meter(balance.meter);
      out.set_remaining(balance.remaining);
      out.set_released(balance.released);
      if (balance.next_release_at) {
        *out.mutable_next_release_at() = ToProto(*balance.next_release_at);
        out.set_next_release_amount(balance.next_release_amount);
      }
    }
    *response->mutable_decided_at() = ToProto(answer.decided_at);
    return absl::OkStatus();
  });
}

}  // namespace tenure::entitlement
