#include "common/base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/utf8.h"

namespace tenure {
namespace {

using ::testing::HasSubstr;

TEST(Error, KeepsReasonAndMetadata) {
  const absl::Status status =
      FieldInvalidError("page_size", "must be positive");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("page_size"));
  const auto info = GetErrorInfo(status);
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->reason, common::v1::ERROR_REASON_FIELD_INVALID);
  EXPECT_EQ(info->metadata.at("field"), "page_size");
  EXPECT_EQ(ReasonName(info->reason), "FIELD_INVALID");
}

TEST(Error, AStatusMadeElsewhereHasNoReason) {
  EXPECT_FALSE(GetErrorInfo(absl::InternalError("x")).has_value());
  EXPECT_FALSE(IsCommitUnknown(absl::UnavailableError("x")));
  EXPECT_FALSE(IsCommitUnknown(DatabaseUnavailableError("x")));
  EXPECT_TRUE(IsCommitUnknown(CommitUnknownError()));
}

TEST(ValidateText, AcceptsWhatIsTextAndNamesTheFieldOtherwise) {
  EXPECT_TRUE(ValidateText("subject", "user-1", 255).ok());
  EXPECT_TRUE(ValidateText("subject", "用户", 255).ok());
  EXPECT_TRUE(ValidateText("subject", std::string(255, 'x'), 255).ok());
  for (const std::string& bad :
       {std::string(), std::string(256, 'x'), std::string("a\0b", 3),
        std::string("a\nb"), std::string("a\x7f"), std::string("\xff\xfe")}) {
    const absl::Status status = ValidateText("subject", bad, 255);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("subject"));
  }
}

TEST(IsValidUtf8, RefusesOverlongSurrogatesAndTooLarge) {
  EXPECT_TRUE(IsValidUtf8(""));
  EXPECT_TRUE(IsValidUtf8("a\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80"));
  for (const char* bad :
       {"\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80",
        "\xf4\x90\x80\x80", "\xf8", "\xe4\xb8"}) {
    EXPECT_FALSE(IsValidUtf8(bad));
  }
}

}  // namespace
}  // namespace tenure
