#include "services/webhook-ingest/webhook_ingest_service.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/http/server.h"

namespace tenure::webhook_ingest {
namespace {

// The API's state has the same names in upper case behind a prefix.
webhook::v1::EventState ToApi(store::EventState state) {
  webhook::v1::EventState out = webhook::v1::EVENT_STATE_UNSPECIFIED;
  webhook::v1::EventState_Parse(
      absl::StrCat("EVENT_STATE_",
                   absl::AsciiStrToUpper(store::EventStateName(state))),
      &out);
  return out;
}

}  // namespace

grpc::Status WebhookIngestService::Ingest(
    grpc::ServerContext* context, const webhook::v1::IngestRequest* request,
    webhook::v1::IngestResponse* response) {
  return guard_.Run(context, "Ingest", [&]() -> absl::Status {
    RETURN_IF_ERROR(ValidateText("route", request->route(), 64));
    providers::Delivery delivery;
    size_t header_bytes = 0;
    for (const webhook::v1::Header& header : request->headers()) {
      // As a line of HTTP, with its colon, space and line end.
      header_bytes += header.name().size() + header.value().size() + 4;
      if (header_bytes > http::kMaxHeaderBytes) {
        return FieldInvalidError(
            "headers", absl::StrCat("must be at most ", http::kMaxHeaderBytes,
                                    " bytes together"));
      }
      delivery.headers.emplace_back(header.name(), header.value());
    }
    delivery.body = request->body();
    ASSIGN_OR_RETURN(const store::RecordedEvent recorded,
                     ingest_.Run(request->route(), delivery));
    response->set_duplicate(recorded.duplicate);
    response->set_state(ToApi(recorded.state));
    response->set_event_id(recorded.event_id);
    return absl::OkStatus();
  });
}

}  // namespace tenure::webhook_ingest
