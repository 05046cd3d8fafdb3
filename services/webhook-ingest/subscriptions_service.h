#ifndef TENURE_SERVICES_WEBHOOK_INGEST_SUBSCRIPTIONS_SERVICE_H_
#define TENURE_SERVICES_WEBHOOK_INGEST_SUBSCRIPTIONS_SERVICE_H_

#include "common/rpc/call_guard.h"
#include "common/store/subscription_store.h"
#include "tenure/subscription/v1/subscriptions.grpc.pb.h"

namespace tenure::webhook_ingest {

// The gRPC edge of subscriptions: reads. Thread-safe.
class SubscriptionsService final
    : public subscription::v1::Subscriptions::Service {
 public:
  SubscriptionsService(store::SubscriptionStore& store, rpc::CallGuard& guard)
      : store_(store), guard_(guard) {}

  grpc::Status Get(grpc::ServerContext* context,
                   const subscription::v1::GetRequest* request,
                   subscription::v1::GetResponse* response) override;
  grpc::Status List(grpc::ServerContext* context,
                    const subscription::v1::ListRequest* request,
                    subscription::v1::ListResponse* response) override;

 private:
  store::SubscriptionStore& store_;
  rpc::CallGuard& guard_;
};

}  // namespace tenure::webhook_ingest

#endif  // TENURE_SERVICES_WEBHOOK_INGEST_SUBSCRIPTIONS_SERVICE_H_
