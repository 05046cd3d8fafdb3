#ifndef TENURE_TOOLS_TENURECTL_SERVICE_CALL_H_
#define TENURE_TOOLS_TENURECTL_SERVICE_CALL_H_

#include <google/protobuf/util/json_util.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"

namespace tenure::tenurectl {

// An operator waits this long for an answer.
inline constexpr absl::Duration kDeadline = absl::Seconds(10);

inline std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address) {
  return grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
}

inline void SetDeadline(grpc::ClientContext* context, absl::Duration deadline) {
  context->set_deadline(
      absl::ToChronoTime(SystemClock::Instance().Now() + deadline));
}

// An error with the service's address before its message.
inline absl::Status Outcome(const std::string& address,
                            const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const absl::Status error = rpc::FromGrpcStatus(status);
  return absl::Status(error.code(),
                      absl::StrCat(address, ": ", error.message()));
}

// Prints a message as proto JSON on one line.
inline void Print(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  // Fails only for an Any of an unknown type, and no answer has one.
  if (google::protobuf::util::MessageToJsonString(message, &json, options)
          .ok()) {
    std::printf("%s\n", json.c_str());
  }
}

// Calls one method.
template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> CallService(
    const std::string& address, Stub& stub,
    grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                 Response*),
    const Request& request, absl::Duration deadline = kDeadline) {
  grpc::ClientContext context;
  SetDeadline(&context, deadline);
  Response response;
  RETURN_IF_ERROR(
      Outcome(address, (stub.*method)(&context, request, &response)));
  return response;
}

// Calls one method and prints its answer.
template <typename Stub, typename Request, typename Response>
absl::Status CallAndPrint(const std::string& address,
                          std::unique_ptr<Stub> stub,
                          grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                       const Request&,
                                                       Response*),
                          const Request& request,
                          absl::Duration deadline = kDeadline) {
  ASSIGN_OR_RETURN(const Response response,
                   CallService(address, *stub, method, request, deadline));
  Print(response);
  return absl::OkStatus();
}

// Reads an instant as people write it: RFC 3339, in the years 1 to 9999.
// nullopt for anything else: the library also takes "infinite-future", years of
// two digits and of five, which would become other instants on their way
// (C070).
inline std::optional<absl::Time> ReadInstant(const std::string& text) {
  const auto is_digit = [](unsigned char c) { return absl::ascii_isdigit(c); };
  if (text.size() < 20 ||
      !std::all_of(text.begin(), text.begin() + 4, is_digit) ||
      text[4] != '-') {
    return std::nullopt;
  }
  absl::Time time;
  if (!absl::ParseTime(absl::RFC3339_full, text, &time, nullptr)) {
    return std::nullopt;
  }
  const int64_t year = absl::ToCivilYear(time, absl::UTCTimeZone()).year();
  if (year < 1 || year > 9999) return std::nullopt;
  return time;
}

// ReadInstant, `what` naming it in the error.
inline absl::StatusOr<absl::Time> ParseInstant(absl::string_view what,
                                               const std::string& text) {
  const std::optional<absl::Time> time = ReadInstant(text);
  if (!time) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": ", text, " is not RFC 3339 in the years 1 to ",
                     "9999 (2027-01-31T10:00:00Z)"));
  }
  return *time;
}

}  // namespace tenure::tenurectl

#endif  // TENURE_TOOLS_TENURECTL_SERVICE_CALL_H_
