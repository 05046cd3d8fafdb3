#ifndef TENURE_SERVICES_WEBHOOK_INGEST_SUBSCRIPTIONS_SERVICE_H_
#define TENURE_SERVICES_WEBHOOK_INGEST_SUBSCRIPTIONS_SERVICE_H_

#include <string>
#include <vector>

#include "common/db/pool.h"
#include "common/rpc/call_guard.h"
#include "common/store/subscription_store.h"
#include "services/webhook-ingest/subscription_history.h"
#include "services/webhook-ingest/subscription_writes.h"
#include "tenure/subscription/v1/subscriptions.grpc.pb.h"

namespace tenure::webhook_ingest {

// The gRPC edge of subscriptions, for one environment. Thread-safe.
class SubscriptionsService final
    : public subscription::v1::Subscriptions::Service {
 public:
  SubscriptionsService(db::Pool& pool, const std::string& environment,
                       rpc::CallGuard& guard)
      : store_(pool, environment),
        history_(pool, environment),
        writes_(pool, environment),
        guard_(guard) {}

  // The names under which its calls are measured.
  static std::vector<std::string> MethodNames();

  grpc::Status Get(grpc::ServerContext* context,
                   const subscription::v1::GetRequest* request,
                   subscription::v1::GetResponse* response) override;
  grpc::Status List(grpc::ServerContext* context,
                    const subscription::v1::ListRequest* request,
                    subscription::v1::ListResponse* response) override;
  grpc::Status History(grpc::ServerContext* context,
                       const subscription::v1::HistoryRequest* request,
                       subscription::v1::HistoryResponse* response) override;
  grpc::Status Explain(grpc::ServerContext* context,
                       const subscription::v1::ExplainRequest* request,
                       subscription::v1::ExplainResponse* response) override;
  grpc::Status Grant(grpc::ServerContext* context,
                     const subscription::v1::GrantRequest* request,
                     subscription::v1::GrantResponse* response) override;
  grpc::Status BatchGrant(
      grpc::ServerContext* context,
      const subscription::v1::BatchGrantRequest* request,
      subscription::v1::BatchGrantResponse* response) override;
  grpc::Status Extend(grpc::ServerContext* context,
                      const subscription::v1::ExtendRequest* request,
                      subscription::v1::ExtendResponse* response) override;
  grpc::Status Cancel(grpc::ServerContext* context,
                      const subscription::v1::CancelRequest* request,
                      subscription::v1::CancelResponse* response) override;
  grpc::Status ResumeCancel(
      grpc::ServerContext* context,
      const subscription::v1::ResumeCancelRequest* request,
      subscription::v1::ResumeCancelResponse* response) override;
  grpc::Status Revoke(grpc::ServerContext* context,
                      const subscription::v1::RevokeRequest* request,
                      subscription::v1::RevokeResponse* response) override;
  grpc::Status Pause(grpc::ServerContext* context,
                     const subscription::v1::PauseRequest* request,
                     subscription::v1::PauseResponse* response) override;
  grpc::Status Resume(grpc::ServerContext* context,
                      const subscription::v1::ResumeRequest* request,
                      subscription::v1::ResumeResponse* response) override;
  grpc::Status ChangePlan(
      grpc::ServerContext* context,
      const subscription::v1::ChangePlanRequest* request,
      subscription::v1::ChangePlanResponse* response) override;
  grpc::Status Transfer(grpc::ServerContext* context,
                        const subscription::v1::TransferRequest* request,
                        subscription::v1::TransferResponse* response) override;
  grpc::Status CreateOrder(
      grpc::ServerContext* context,
      const subscription::v1::CreateOrderRequest* request,
      subscription::v1::CreateOrderResponse* response) override;
  grpc::Status LinkCustomer(
      grpc::ServerContext* context,
      const subscription::v1::LinkCustomerRequest* request,
      subscription::v1::LinkCustomerResponse* response) override;
  grpc::Status EraseSubject(
      grpc::ServerContext* context,
      const subscription::v1::EraseSubjectRequest* request,
      subscription::v1::EraseSubjectResponse* response) override;

 private:
  store::SubscriptionStore store_;
  SubscriptionHistory history_;
  SubscriptionWrites writes_;
  rpc::CallGuard& guard_;
};

}  // namespace tenure::webhook_ingest

#endif  // TENURE_SERVICES_WEBHOOK_INGEST_SUBSCRIPTIONS_SERVICE_H_
