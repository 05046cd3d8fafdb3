#include "common/rpc/call_guard.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/rpc/status.h"

namespace tenure::rpc {
namespace {

bool IsPlainId(absl::string_view text) {
  return !text.empty() && text.size() <= 64 &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
         });
}

// Counts a call in and out.
class Admission {
 public:
  Admission(std::atomic<int>& in_flight, int limit)
      : in_flight_(in_flight), admitted_(++in_flight <= limit) {}
  ~Admission() { --in_flight_; }
  bool admitted() const { return admitted_; }

 private:
  std::atomic<int>& in_flight_;
  const bool admitted_;
};

absl::Status RunAdmitted(grpc::ServerContext* context,
                         absl::FunctionRef<absl::Status()> body) {
  if (context->IsCancelled()) {
    return absl::CancelledError("cancelled before it was started");
  }
  return body();
}

}  // namespace

std::string RequestIdOf(const grpc::ServerContext& context) {
  const auto& metadata = context.client_metadata();
  if (const auto it = metadata.find("x-request-id"); it != metadata.end()) {
    const absl::string_view id(it->second.data(), it->second.size());
    if (IsPlainId(id)) return std::string(id);
  }
  // "00-<32 hex trace id>-<16 hex span id>-<flags>"
  if (const auto it = metadata.find("traceparent"); it != metadata.end()) {
    const absl::string_view value(it->second.data(), it->second.size());
    if (value.size() >= 55 && IsPlainId(value.substr(3, 32))) {
      return std::string(value.substr(3, 32));
    }
  }
  return "";
}

grpc::Status CallGuard::Run(grpc::ServerContext* context,
                            absl::string_view method,
                            absl::FunctionRef<absl::Status()> body) {
  const Clock& clock = SystemClock::Instance();
  const absl::Duration started = clock.Monotonic();
  std::string request_id = RequestIdOf(*context);
  if (request_id.empty()) request_id = log::NewRequestId();
  const log::ScopedRequestId scope(request_id);
  context->AddTrailingMetadata("x-request-id", request_id);

  const Admission admission(in_flight_, max_in_flight_);
  const absl::Status status = admission.admitted()
                                  ? RunAdmitted(context, body)
                                  : OverloadedError("the server");
  const grpc::Status answer = ToGrpcStatus(status, request_id);
  if (answer.error_code() == grpc::StatusCode::INTERNAL) {
    log::Error("call failed",
               {{"method", method}, {"detail", std::string(status.message())}});
  } else if (!answer.ok()) {
    log::Debug("call refused", {{"method", method},
                                {"code", CodeName(answer.error_code())},
                                {"detail", std::string(status.message())}});
  }
  if (observer_) {
    observer_(method, answer.error_code(),
              absl::ToDoubleSeconds(clock.Monotonic() - started));
  }
  return answer;
}

}  // namespace tenure::rpc
