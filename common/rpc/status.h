#ifndef TENURE_COMMON_RPC_STATUS_H_
#define TENURE_COMMON_RPC_STATUS_H_

#include <grpcpp/grpcpp.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tenure::rpc {

// The one table from inner errors to gRPC. Every error carries exactly one
// google.rpc.ErrorInfo (domain "tenure") and, where a field is at fault, a
// google.rpc.BadRequest. An error without a reason is a defect: callers get
// INTERNAL with a fixed text and the request id, the log gets the rest.
grpc::Status ToGrpcStatus(const absl::Status& status,
                          absl::string_view request_id);

// The way back, for clients in this tree (tenurectl, tests): code, message and
// reason survive.
absl::Status FromGrpcStatus(const grpc::Status& status);

// "InvalidArgument" for INVALID_ARGUMENT, as dashboards expect it.
std::string CodeName(grpc::StatusCode code);

}  // namespace tenure::rpc

#endif  // TENURE_COMMON_RPC_STATUS_H_
