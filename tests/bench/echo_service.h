#ifndef TENURE_TESTS_BENCH_ECHO_SERVICE_H_
#define TENURE_TESTS_BENCH_ECHO_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <string>
#include <utility>

#include "tenure/bench/v1/echo.grpc.pb.h"

namespace tenure::bench {

// Gives the same answer to every call. Thread-safe.
class EchoService final : public v1::Echo::Service {
 public:
  explicit EchoService(entitlement::v1::CheckResponse answer)
      : answer_(std::move(answer)) {}

  grpc::Status CheckEcho(grpc::ServerContext*,
                         const entitlement::v1::CheckRequest*,
                         entitlement::v1::CheckResponse* response) override {
    *response = answer_;
    return grpc::Status::OK;
  }

 private:
  const entitlement::v1::CheckResponse answer_;
};

}  // namespace tenure::bench

#endif  // TENURE_TESTS_BENCH_ECHO_SERVICE_H_
