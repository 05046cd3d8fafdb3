#include "common/base/proto_time.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace tenure {
namespace {

using test::HasReason;
using test::IsOkAndHolds;
using test::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

google::protobuf::Timestamp Stamp(int64_t seconds, int32_t nanos) {
  google::protobuf::Timestamp proto;
  proto.set_seconds(seconds);
  proto.set_nanos(nanos);
  return proto;
}

TEST(ProtoTime, ReadsInstantsTruncatedToMicroseconds) {
  EXPECT_THAT(FromProto("at", Stamp(0, 0)), IsOkAndHolds(absl::UnixEpoch()));
  EXPECT_THAT(FromProto("at", Stamp(1, 999)),
              IsOkAndHolds(absl::FromUnixSeconds(1)));
  EXPECT_THAT(FromProto("at", Stamp(1, 999'999'999)),
              IsOkAndHolds(absl::FromUnixMicros(1'999'999)));
  // Before the epoch nanos still count forward.
  EXPECT_THAT(FromProto("at", Stamp(-1, 500'000'999)),
              IsOkAndHolds(absl::FromUnixMicros(-500'000)));
}

TEST(ProtoTime, AcceptsTheYears1To9999Alone) {
  EXPECT_THAT(
      FromProto("at", Stamp(-62135596800, 0)),
      IsOkAndHolds(absl::FromCivil(absl::CivilYear(1), absl::UTCTimeZone())));
  EXPECT_TRUE(FromProto("at", Stamp(253402300799, 999'999'999)).ok());

  for (const auto& bad :
       {Stamp(-62135596801, 0), Stamp(253402300800, 0), Stamp(INT64_MAX, 0),
        Stamp(INT64_MIN, 0), Stamp(0, -1), Stamp(0, 1'000'000'000),
        Stamp(0, INT32_MIN), Stamp(0, INT32_MAX)}) {
    EXPECT_THAT(FromProto("period_end_at", bad),
                AllOf(StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("period_end_at")),
                      HasReason(common::v1::ERROR_REASON_FIELD_INVALID)));
  }
}

TEST(ProtoTime, WritesInstantsFlooredToNanoseconds) {
  const google::protobuf::Timestamp after =
      ToProto(absl::FromUnixMicros(1'500'000));
  EXPECT_EQ(after.seconds(), 1);
  EXPECT_EQ(after.nanos(), 500'000'000);

  const google::protobuf::Timestamp before =
      ToProto(absl::UnixEpoch() - absl::Nanoseconds(1));
  EXPECT_EQ(before.seconds(), -1);
  EXPECT_EQ(before.nanos(), 999'999'999);
}

TEST(ProtoTime, ClampsInstantsNoTimestampCanHold) {
  EXPECT_EQ(ToProto(absl::InfiniteFuture()).seconds(), 253402300799);
  EXPECT_EQ(ToProto(absl::InfiniteFuture()).nanos(), 999'999'999);
  EXPECT_EQ(ToProto(absl::InfinitePast()).seconds(), -62135596800);
  EXPECT_EQ(ToProto(absl::InfinitePast()).nanos(), 0);
}

TEST(ProtoTime, RoundTripsDurations) {
  for (const absl::Duration duration :
       {absl::ZeroDuration(), absl::Milliseconds(250), -absl::Milliseconds(250),
        absl::Hours(168), absl::Nanoseconds(1), -absl::Seconds(1)}) {
    EXPECT_EQ(FromProto(ToProto(duration)), duration);
  }
  const google::protobuf::Duration negative =
      ToProto(-absl::Milliseconds(1500));
  EXPECT_EQ(negative.seconds(), -1);
  EXPECT_EQ(negative.nanos(), -500'000'000);
  EXPECT_EQ(ToProto(absl::InfiniteDuration()).seconds(), 315576000000);
  EXPECT_EQ(ToProto(-absl::InfiniteDuration()).seconds(), -315576000000);
}

}  // namespace
}  // namespace tenure
