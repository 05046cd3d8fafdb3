#include "services/webhook-ingest/webhook_http.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/error.h"
#include "common/base/log.h"

namespace tenure::webhook_ingest {
namespace {

constexpr absl::string_view kPrefix = "/v1/webhooks/";

// Providers retry by their own schedule; this is for gateways that listen.
constexpr int kRetryAfterSeconds = 5;

int HttpCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kResourceExhausted: {
      const std::optional<ErrorInfo> info = GetErrorInfo(status);
      return info.has_value() &&
                     info->reason == common::v1::ERROR_REASON_BODY_TOO_LARGE
                 ? 413
                 : 503;
    }
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
      return 503;
    default:
      return 500;
  }
}

std::string ErrorJson(absl::string_view reason, absl::string_view message,
                      absl::string_view request_id) {
  google::protobuf::Struct root;
  google::protobuf::Struct& error =
      *(*root.mutable_fields())["error"].mutable_struct_value();
  (*error.mutable_fields())["reason"].set_string_value(std::string(reason));
  (*error.mutable_fields())["message"].set_string_value(std::string(message));
  (*error.mutable_fields())["request_id"].set_string_value(
      std::string(request_id));
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(root, &json).ok()) {
    return "{}";
  }
  return json;
}

http::Response Refuse(int status, absl::string_view reason,
                      absl::string_view message) {
  return http::JsonResponse(status, ErrorJson(reason, message, ""));
}

// A missing type is taken as JSON; another one is not.
bool IsJson(const http::Headers& headers) {
  const std::string* type = headers.Find("Content-Type");
  if (type == nullptr) return true;
  const std::string media_type = http::MediaType(*type);
  return media_type == "application/json" ||
         absl::EndsWith(media_type, "+json");
}

std::string RequestIdOf(const http::Headers& headers) {
  const std::string* id = headers.Find("X-Request-Id");
  if (id != nullptr && id->size() <= 64 &&
      ValidateText("X-Request-Id", *id, 64).ok()) {
    return *id;
  }
  return log::NewRequestId();
}

http::Response Answer(const absl::StatusOr<store::RecordedEvent>& recorded,
                      const std::string& request_id) {
  if (!recorded.ok()) {
    const log::ScopedRequestId scope(request_id);
    log::Info("delivery refused",
              {{"code", static_cast<int64_t>(HttpCode(recorded.status()))},
               {"detail", std::string(recorded.status().message())}});
    return ErrorResponse(recorded.status(), request_id);
  }
  return http::JsonResponse(
      200,
      absl::StrCat("{\"state\":\"", store::EventStateName(recorded->state),
                   "\",\"duplicate\":", recorded->duplicate ? "true" : "false",
                   ",\"event_id\":\"", recorded->event_id, "\"}"));
}

}  // namespace

http::Response ErrorResponse(const absl::Status& status,
                             absl::string_view request_id) {
  const int code = HttpCode(status);
  std::string reason = "INTERNAL";
  std::string message = "internal error";
  if (code != 500) {
    const std::optional<ErrorInfo> info = GetErrorInfo(status);
    reason = info.has_value() ? ReasonName(info->reason) : "UNAVAILABLE";
    message = std::string(status.message());
  }
  http::Response response =
      http::JsonResponse(code, ErrorJson(reason, message, request_id));
  if (code == 503) {
    response.headers.Add("Retry-After", absl::StrCat(kRetryAfterSeconds));
  }
  return response;
}

std::optional<http::Response> WebhookHttp::Accept(
    const http::RequestHead& head) const {
  absl::string_view route = head.target;
  if (!absl::ConsumePrefix(&route, kPrefix)) {
    return Refuse(404, "PATH_NOT_FOUND",
                  "webhooks are posted to /v1/webhooks/{route}");
  }
  if (routes_.Find(route) == nullptr) {
    return Refuse(404, "ROUTE_NOT_FOUND",
                  "no webhook route of that name is configured");
  }
  if (head.method != "POST") return http::MethodNotAllowed("POST");
  if (!IsJson(head.headers)) {
    return Refuse(415, "CONTENT_TYPE", "the body must be application/json");
  }
  if (head.content_length.value_or(0) > ingest_.max_body_bytes()) {
    return Refuse(413, ReasonName(common::v1::ERROR_REASON_BODY_TOO_LARGE),
                  absl::StrCat("the body is larger than ",
                               ingest_.max_body_bytes(), " bytes"));
  }
  return std::nullopt;
}

void WebhookHttp::Handle(http::Request request, http::Responder responder) {
  const std::string request_id = RequestIdOf(request.headers);
  const log::ScopedRequestId scope(request_id);
  providers::Delivery delivery;
  delivery.headers = request.headers.fields();
  delivery.body = std::move(request.body);
  // std::function takes only what can be copied.
  auto answer = std::make_shared<http::Responder>(std::move(responder));
  ingest_.Start(absl::StripPrefix(request.target, kPrefix), std::move(delivery),
                [answer, request_id](
                    const absl::StatusOr<store::RecordedEvent>& recorded) {
                  answer->Send(Answer(recorded, request_id));
                });
}

}  // namespace tenure::webhook_ingest
