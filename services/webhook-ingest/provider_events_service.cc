#include "services/webhook-ingest/provider_events_service.h"

#include "google/protobuf/descriptor.h"

namespace tenure::webhook_ingest {

namespace pb = ::tenure::webhook::v1;

std::vector<std::string> ProviderEventsService::MethodNames() {
  const auto* service =
      pb::ListEventsRequest::descriptor()->file()->FindServiceByName(
          "ProviderEvents");
  std::vector<std::string> names;
  for (int i = 0; i < service->method_count(); ++i) {
    names.push_back(service->method(i)->name());
  }
  return names;
}

grpc::Status ProviderEventsService::ListEvents(
    grpc::ServerContext* context, const pb::ListEventsRequest* request,
    pb::ListEventsResponse* response) {
  return guard_.Run(context, "ListEvents",
                    [&] { return operations_.List(*request, response); });
}

grpc::Status ProviderEventsService::GetEvent(grpc::ServerContext* context,
                                             const pb::GetEventRequest* request,
                                             pb::GetEventResponse* response) {
  return guard_.Run(context, "GetEvent",
                    [&] { return operations_.Get(*request, response); });
}

grpc::Status ProviderEventsService::ReplayEvent(
    grpc::ServerContext* context, const pb::ReplayEventRequest* request,
    pb::ReplayEventResponse* response) {
  return guard_.Run(context, "ReplayEvent",
                    [&] { return operations_.Replay(*request, response); });
}

grpc::Status ProviderEventsService::ReplayEvents(
    grpc::ServerContext* context, const pb::ReplayEventsRequest* request,
    pb::ReplayEventsResponse* response) {
  return guard_.Run(context, "ReplayEvents",
                    [&] { return operations_.ReplayMany(*request, response); });
}

grpc::Status ProviderEventsService::DiscardEvent(
    grpc::ServerContext* context, const pb::DiscardEventRequest* request,
    pb::DiscardEventResponse* response) {
  return guard_.Run(context, "DiscardEvent",
                    [&] { return operations_.Discard(*request, response); });
}

}  // namespace tenure::webhook_ingest
