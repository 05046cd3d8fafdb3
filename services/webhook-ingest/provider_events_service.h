#ifndef TENURE_SERVICES_WEBHOOK_INGEST_PROVIDER_EVENTS_SERVICE_H_
#define TENURE_SERVICES_WEBHOOK_INGEST_PROVIDER_EVENTS_SERVICE_H_

#include <string>
#include <vector>

#include "common/rpc/call_guard.h"
#include "services/webhook-ingest/event_operations.h"
#include "tenure/webhook/v1/provider_events.grpc.pb.h"

namespace tenure::webhook_ingest {

// The gRPC edge of the inbox for operators. Thread-safe.
class ProviderEventsService final
    : public webhook::v1::ProviderEvents::Service {
 public:
  ProviderEventsService(EventOperations& operations, rpc::CallGuard& guard)
      : operations_(operations), guard_(guard) {}

  // The names under which its calls are measured.
  static std::vector<std::string> MethodNames();

  grpc::Status ListEvents(grpc::ServerContext* context,
                          const webhook::v1::ListEventsRequest* request,
                          webhook::v1::ListEventsResponse* response) override;
  grpc::Status GetEvent(grpc::ServerContext* context,
                        const webhook::v1::GetEventRequest* request,
                        webhook::v1::GetEventResponse* response) override;
  grpc::Status ReplayEvent(grpc::ServerContext* context,
                           const webhook::v1::ReplayEventRequest* request,
                           webhook::v1::ReplayEventResponse* response) override;
  grpc::Status ReplayEvents(
      grpc::ServerContext* context,
      const webhook::v1::ReplayEventsRequest* request,
      webhook::v1::ReplayEventsResponse* response) override;
  grpc::Status DiscardEvent(
      grpc::ServerContext* context,
      const webhook::v1::DiscardEventRequest* request,
      webhook::v1::DiscardEventResponse* response) override;

 private:
  EventOperations& operations_;
  rpc::CallGuard& guard_;
};

}  // namespace tenure::webhook_ingest

#endif  // TENURE_SERVICES_WEBHOOK_INGEST_PROVIDER_EVENTS_SERVICE_H_
