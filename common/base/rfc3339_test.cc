#include "common/base/rfc3339.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tenure {
namespace {

using ::testing::Eq;
using ::testing::Optional;

absl::Time Seconds(int64_t seconds) { return absl::FromUnixSeconds(seconds); }

TEST(Rfc3339, ReadsInstantsOfAnyOffset) {
  const absl::Time instant = Seconds(1'767'225'600);
  for (const absl::string_view text :
       {"2026-01-01T00:00:00Z", "2026-01-01T00:00:00+00:00",
        "2026-01-01T00:00:00-00:00", "2026-01-01T08:00:00+08:00",
        "2025-12-31T18:30:00-05:30", "2026-01-01T00:00:00.0Z",
        "2026-01-01T00:00:00.000000000Z"}) {
    EXPECT_THAT(ParseRfc3339(text), Optional(Eq(instant))) << text;
  }
  EXPECT_THAT(ParseRfc3339("1970-01-01T00:00:00Z"), Optional(Eq(Seconds(0))));
  EXPECT_THAT(ParseRfc3339("1969-12-31T23:59:59Z"), Optional(Eq(Seconds(-1))));
}

TEST(Rfc3339, FloorsToWholeMicroseconds) {
  const absl::Time second = Seconds(1'767'225'600);
  for (const auto& [digits, microseconds] :
       {std::pair("1", 100'000), std::pair("12", 120'000),
        std::pair("123", 123'000), std::pair("123456", 123'456),
        std::pair("1234567", 123'456), std::pair("999999999", 999'999),
        std::pair("000000999", 0), std::pair("000001", 1)}) {
    EXPECT_THAT(ParseRfc3339(absl::StrCat("2026-01-01T00:00:00.", digits, "Z")),
                Optional(Eq(second + absl::Microseconds(microseconds))))
        << digits;
    // Before 1970 as well: towards the past, not towards zero.
    EXPECT_THAT(ParseRfc3339(absl::StrCat("1969-12-31T23:59:59.", digits, "Z")),
                Optional(Eq(Seconds(-1) + absl::Microseconds(microseconds))))
        << digits;
  }
}

TEST(Rfc3339, KnowsTheCalendar) {
  EXPECT_THAT(ParseRfc3339("2024-02-29T00:00:00Z"),
              Optional(Eq(Seconds(1'709'164'800))));
  EXPECT_THAT(ParseRfc3339("2016-12-31T23:59:60.5Z"),
              Optional(Eq(Seconds(1'483'228'800))));
  for (const absl::string_view text :
       {"2026-02-29T00:00:00Z", "2026-04-31T00:00:00Z", "2026-00-01T00:00:00Z",
        "2026-13-01T00:00:00Z", "2026-01-00T00:00:00Z", "2026-01-32T00:00:00Z",
        "2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z", "2026-01-01T00:00:61Z",
        "2026-01-01T00:00:00+24:00", "2026-01-01T00:00:00+00:60"}) {
    EXPECT_EQ(ParseRfc3339(text), std::nullopt) << text;
  }
}

TEST(Rfc3339, C070_KnowsTheYears1To9999AndNoInfinity) {
  EXPECT_THAT(ParseRfc3339("0001-01-01T00:00:00Z"),
              Optional(Eq(Seconds(-62'135'596'800))));
  EXPECT_THAT(ParseRfc3339("9999-12-31T23:59:59.999999Z"),
              Optional(Eq(Seconds(253'402'300'800) - absl::Microseconds(1))));
  EXPECT_THAT(ParseRfc3339("2038-01-19T03:14:08Z"),
              Optional(Eq(Seconds(2'147'483'648))));
  for (const absl::string_view text :
       {"infinite-future", "infinite-past", "infinity", "-infinity",
        "0000-12-31T23:59:59Z", "0001-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01", "9999-12-31T23:59:60Z",
        "10000-01-01T00:00:00Z", "294276-12-31T00:00:00Z",
        "-0001-01-01T00:00:00Z", "+2026-01-01T00:00:00Z"}) {
    EXPECT_EQ(ParseRfc3339(text), std::nullopt) << text;
  }
}

TEST(Rfc3339, RefusesWhatIsNearlyOne) {
  const std::string good = "2026-01-01T00:00:00.5+08:00";
  ASSERT_NE(ParseRfc3339(good), std::nullopt);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(ParseRfc3339(good.substr(0, size)), std::nullopt) << size;
  }
  for (const absl::string_view text : {"2026-01-01T00:00:00",
                                       "2026-01-01",
                                       "2026-01-01 00:00:00Z",
                                       "2026-01-01t00:00:00Z",
                                       "2026-01-01T00:00:00z",
                                       "2026-01-01T00:00Z",
                                       "2026-01-01T00:00:00.Z",
                                       "2026-01-01T00:00:00,5Z",
                                       "2026-01-01T00:00:00.1234567890Z",
                                       "2026-01-01T00:00:00+0800",
                                       "2026-01-01T00:00:00+08",
                                       "2026-01-01T00:00:00 +08:00",
                                       "2026-01-01T00:00:00ZZ",
                                       "2026-01-01T00:00:00Z\n",
                                       " 2026-01-01T00:00:00Z",
                                       "2026-1-01T00:00:00Z",
                                       "20260101T000000Z",
                                       "2026-01-01T00:00:00UTC",
                                       "1767225600",
                                       "2026-01-01T00:00:-1Z",
                                       "2026-01-01T00:00:00.-5Z",
                                       "2026-01-01T0x:00:00Z"}) {
    EXPECT_EQ(ParseRfc3339(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace tenure
