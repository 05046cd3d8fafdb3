#ifndef TENURE_COMMON_BASE_PROTO_TIME_H_
#define TENURE_COMMON_BASE_PROTO_TIME_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace tenure {

// Floors to nanoseconds. Instants outside the years 1..9999, the infinite ones
// included, become the nearest instant that a Timestamp can hold.
google::protobuf::Timestamp ToProto(absl::Time time);

// Truncates toward zero to nanoseconds; durations beyond ±10 000 years, the
// infinite ones included, become the nearest that a Duration can hold.
google::protobuf::Duration ToProto(absl::Duration duration);

// Reads a Timestamp from a caller: the years 1..9999 and nanos in
// [0, 999 999 999], otherwise FieldInvalidError(field). Truncated to whole
// microseconds, which is what PostgreSQL stores, so that a value read back
// equals the value decided on.
absl::StatusOr<absl::Time> FromProto(absl::string_view field,
                                     const google::protobuf::Timestamp& proto);

// Reads a Duration; the caller checks its range.
absl::Duration FromProto(const google::protobuf::Duration& proto);

}  // namespace tenure

#endif  // TENURE_COMMON_BASE_PROTO_TIME_H_
