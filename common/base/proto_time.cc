#include "common/base/proto_time.h"

#include <algorithm>
#include <cstdint>

#include "common/base/error.h"

namespace tenure {
namespace {

// 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z.
constexpr int64_t kMinTimestampSeconds = -62135596800;
constexpr int64_t kMaxTimestampSeconds = 253402300799;
constexpr int64_t kMaxDurationSeconds = 315576000000;
constexpr int32_t kMaxNanos = 999999999;

}  // namespace

google::protobuf::Timestamp ToProto(absl::Time time) {
  const absl::Time earliest = absl::FromUnixSeconds(kMinTimestampSeconds);
  const absl::Time latest = absl::FromUnixSeconds(kMaxTimestampSeconds) +
                            absl::Nanoseconds(kMaxNanos);
  time = std::clamp(time, earliest, latest);
  const int64_t seconds = absl::ToUnixSeconds(time);
  google::protobuf::Timestamp proto;
  proto.set_seconds(seconds);
  proto.set_nanos(static_cast<int32_t>(
      absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
  return proto;
}

google::protobuf::Duration ToProto(absl::Duration duration) {
  const absl::Duration longest = absl::Seconds(kMaxDurationSeconds);
  duration = std::clamp(duration, -longest, longest);
  google::protobuf::Duration proto;
  proto.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &duration));
  proto.set_nanos(static_cast<int32_t>(
      absl::IDivDuration(duration, absl::Nanoseconds(1), &duration)));
  return proto;
}

absl::StatusOr<absl::Time> FromProto(absl::string_view field,
                                     const google::protobuf::Timestamp& proto) {
  if (proto.seconds() < kMinTimestampSeconds ||
      proto.seconds() > kMaxTimestampSeconds) {
    return FieldInvalidError(field, "must lie in the years 1 to 9999");
  }
  if (proto.nanos() < 0 || proto.nanos() > kMaxNanos) {
    return FieldInvalidError(field, "nanos must be from 0 to 999999999");
  }
  return absl::FromUnixSeconds(proto.seconds()) +
         absl::Microseconds(proto.nanos() / 1000);
}

absl::Duration FromProto(const google::protobuf::Duration& proto) {
  return absl::Seconds(proto.seconds()) + absl::Nanoseconds(proto.nanos());
}

}  // namespace tenure
