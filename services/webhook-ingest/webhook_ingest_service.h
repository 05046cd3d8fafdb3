#ifndef TENURE_SERVICES_WEBHOOK_INGEST_WEBHOOK_INGEST_SERVICE_H_
#define TENURE_SERVICES_WEBHOOK_INGEST_WEBHOOK_INGEST_SERVICE_H_

#include "common/rpc/call_guard.h"
#include "services/webhook-ingest/ingest_event.h"
#include "tenure/webhook/v1/webhook_ingest.grpc.pb.h"

namespace tenure::webhook_ingest {

// The gRPC edge of event intake. Thread-safe.
class WebhookIngestService final : public webhook::v1::WebhookIngest::Service {
 public:
  WebhookIngestService(IngestEvent& ingest, rpc::CallGuard& guard)
      : ingest_(ingest), guard_(guard) {}

  grpc::Status Ingest(grpc::ServerContext* context,
                      const webhook::v1::IngestRequest* request,
                      webhook::v1::IngestResponse* response) override;

 private:
  IngestEvent& ingest_;
  rpc::CallGuard& guard_;
};

}  // namespace tenure::webhook_ingest

#endif  // TENURE_SERVICES_WEBHOOK_INGEST_WEBHOOK_INGEST_SERVICE_H_
