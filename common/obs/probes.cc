#include "common/obs/probes.h"

#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"

namespace tenure::obs {
namespace {

absl::Status Ask(const std::string& name,
                 const std::function<absl::Status()>& check) {
  try {
    return check();
  } catch (const std::exception& e) {
    // The text may be a driver's: it goes to the log alone.
    log::Error("exception in a readiness check",
               {{"check", name}, {"what", e.what()}});
  } catch (...) {
    log::Error("exception in a readiness check", {{"check", name}});
  }
  return absl::InternalError("the check failed");
}

// A JSON string literal. Bytes that are not UTF-8 become '?', because a message
// may hold anything and the report must stay readable.
std::string Quote(absl::string_view text) {
  const bool utf8 = IsValidUtf8(text);
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppend(&quoted, "\\u", absl::Hex(byte, absl::kZeroPad4));
    } else if (byte >= 0x80 && !utf8) {
      quoted += '?';
    } else {
      quoted += c;
    }
  }
  quoted += '"';
  return quoted;
}

http::Response ReadyResponse(const Readiness& readiness) {
  std::vector<std::string> checks;
  bool ready = true;
  for (const auto& [name, status] : readiness.Evaluate()) {
    if (status.ok()) {
      checks.push_back(absl::StrCat(Quote(name), ":{\"ok\":true}"));
      continue;
    }
    ready = false;
    checks.push_back(
        absl::StrCat(Quote(name), ":{\"ok\":false,\"code\":",
                     Quote(absl::StatusCodeToString(status.code())),
                     ",\"message\":", Quote(status.message()), "}"));
  }
  return http::JsonResponse(
      ready ? 200 : 503,
      absl::StrCat("{\"status\":", ready ? "\"ready\"" : "\"not ready\"",
                   ",\"checks\":{", absl::StrJoin(checks, ","), "}}\n"));
}

// Answers what needs no worker.
std::optional<http::Response> AnswerAtOnce(const http::RequestHead& head) {
  const bool known = head.target == "/livez" || head.target == "/readyz" ||
                     head.target == "/metrics";
  if (!known) {
    return http::TextResponse(404, "try /livez, /readyz or /metrics");
  }
  if (head.method != "GET" && head.method != "HEAD") {
    return http::MethodNotAllowed("GET, HEAD");
  }
  if (head.target == "/livez") return http::TextResponse(200, "ok");
  return std::nullopt;
}

}  // namespace

void Readiness::Set(absl::string_view name, absl::Status status) {
  MutexLock lock(mutex_);
  conditions_[std::string(name)] = Condition{std::move(status), nullptr};
}

void Readiness::AddCheck(absl::string_view name,
                         std::function<absl::Status()> check) {
  MutexLock lock(mutex_);
  conditions_[std::string(name)] =
      Condition{absl::OkStatus(), std::move(check)};
}

void Readiness::Remove(absl::string_view name) {
  MutexLock lock(mutex_);
  conditions_.erase(std::string(name));
  while (evaluating_ > 0) idle_.Wait(mutex_);
}

std::map<std::string, absl::Status> Readiness::Evaluate() const {
  std::map<std::string, Condition> conditions;
  {
    MutexLock lock(mutex_);
    conditions = conditions_;
    ++evaluating_;
  }
  // Outside the lock: a check that hangs must not stop Set.
  std::map<std::string, absl::Status> states;
  for (const auto& [name, condition] : conditions) {
    states[name] =
        condition.check ? Ask(name, condition.check) : condition.status;
  }
  // The copies of the checks go before Remove may return.
  conditions.clear();
  MutexLock lock(mutex_);
  if (--evaluating_ == 0) idle_.NotifyAll();
  return states;
}

bool Readiness::ready() const {
  for (const auto& [name, status] : Evaluate()) {
    if (!status.ok()) return false;
  }
  return true;
}

absl::StatusOr<std::unique_ptr<ProbeServer>> ProbeServer::Start(
    absl::string_view listen_address, const Readiness& readiness,
    Registry& registry) {
  http::ServerOptions options;
  options.listen_address = std::string(listen_address);
  // Two, so that a hanging readiness check leaves one for the metrics.
  options.worker_threads = 2;
  options.max_queued = 16;
  options.max_connections = 64;
  options.max_body_bytes = 0;
  options.accept = AnswerAtOnce;
  ASSIGN_OR_RETURN(
      std::unique_ptr<http::Server> server,
      http::Server::Start(std::move(options), [&readiness, &registry](
                                                  http::Request request,
                                                  http::Responder responder) {
        if (request.target == "/readyz") {
          responder.Send(ReadyResponse(readiness));
        } else {
          responder.Send(http::MakeResponse(
              200, "text/plain; version=0.0.4; charset=utf-8",
              registry.Render()));
        }
      }));
  return std::unique_ptr<ProbeServer>(new ProbeServer(std::move(server)));
}

}  // namespace tenure::obs
