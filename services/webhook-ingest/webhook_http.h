#ifndef TENURE_SERVICES_WEBHOOK_INGEST_WEBHOOK_HTTP_H_
#define TENURE_SERVICES_WEBHOOK_INGEST_WEBHOOK_HTTP_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/http/message.h"
#include "common/http/server.h"
#include "services/webhook-ingest/ingest_event.h"

namespace tenure::webhook_ingest {

// The HTTP edge: POST /v1/webhooks/{route}.
//
//   200  stored, also a duplicate; {"state", "duplicate", "event_id"}
//   400  malformed   401  signature   404  route or path   405  not POST
//   413  too large   415  not JSON
//   503  with Retry-After: the database is away, or the outcome of the commit
//        is unknown; sending again is safe
// Errors are {"error": {"reason", "message", "request_id"}}. What the server
// below refuses by itself (a chunked body that grows too large, bad framing) is
// answered in plain text.
class WebhookHttp {
 public:
  WebhookHttp(const host::Routes& routes, IngestEvent& ingest)
      : routes_(routes), ingest_(ingest) {}

  // Refuses what needs no body: path, method, route, content type, length.
  std::optional<http::Response> Accept(const http::RequestHead& head) const;

  // Answers when the event is stored, by whatever thread stored it.
  void Handle(http::Request request, http::Responder responder);

 private:
  const host::Routes& routes_;
  IngestEvent& ingest_;
};

// The answer for a refused delivery.
http::Response ErrorResponse(const absl::Status& status,
                             absl::string_view request_id);

}  // namespace tenure::webhook_ingest

#endif  // TENURE_SERVICES_WEBHOOK_INGEST_WEBHOOK_HTTP_H_
