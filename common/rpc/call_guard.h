#ifndef TENURE_COMMON_RPC_CALL_GUARD_H_
#define TENURE_COMMON_RPC_CALL_GUARD_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tenure::rpc {

// What every unary handler is wrapped in: admission, request id, translation
// of errors, measurement. Thread-safe.
class CallGuard {
 public:
  // Told of every finished call: method ("Check"), gRPC code, seconds.
  using Observer =
      std::function<void(absl::string_view, grpc::StatusCode, double)>;

  // More than `max_in_flight` calls at once are refused at once as OVERLOADED:
  // the limit of gRPC itself misfires below its number (grpc#32680, C131).
  CallGuard(int max_in_flight, Observer observer)
      : max_in_flight_(max_in_flight), observer_(std::move(observer)) {}

  // Runs `body` under the request id of the caller's x-request-id or
  // traceparent metadata, or a fresh one; the id is in every log line of the
  // call and goes back as x-request-id. A call whose deadline has passed or
  // whose caller went away is not started.
  grpc::Status Run(grpc::ServerContext* context, absl::string_view method,
                   absl::FunctionRef<absl::Status()> body);

  int in_flight() const { return in_flight_.load(); }

 private:
  const int max_in_flight_;
  const Observer observer_;
  std::atomic<int> in_flight_{0};
};

// The request id a caller sent, empty for none or an unusable one: of
// x-request-id up to 64 printable characters, of traceparent the trace id.
std::string RequestIdOf(const grpc::ServerContext& context);

}  // namespace tenure::rpc

#endif  // TENURE_COMMON_RPC_CALL_GUARD_H_
