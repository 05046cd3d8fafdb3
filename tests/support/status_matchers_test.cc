#include "tests/support/status_matchers.h"

#include <memory>
#include <string>

#include "common/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"

namespace tenure::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

TEST(StatusMatchers, TellOkFromAnError) {
  const absl::StatusOr<int> three = 3;
  const absl::StatusOr<int> none = absl::NotFoundError("no three");

  EXPECT_OK(absl::OkStatus());
  EXPECT_THAT(three, IsOk());
  EXPECT_THAT(none, Not(IsOk()));
  EXPECT_THAT(three, IsOkAndHolds(3));
  EXPECT_THAT(three, Not(IsOkAndHolds(4)));
  EXPECT_THAT(none, Not(IsOkAndHolds(3)));
}

TEST(StatusMatchers, TellCodeMessageAndReason) {
  const absl::Status missing = FieldMissingError("subject_id");

  EXPECT_THAT(missing, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(missing, Not(StatusIs(absl::StatusCode::kNotFound)));
  EXPECT_THAT(missing, StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("subject_id")));
  EXPECT_THAT(missing, Not(StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("plan"))));
  EXPECT_THAT(missing, HasReason(common::v1::ERROR_REASON_FIELD_MISSING));
  EXPECT_THAT(missing, Not(HasReason(common::v1::ERROR_REASON_CONFLICT)));
  EXPECT_THAT(absl::InvalidArgumentError("x"),
              Not(HasReason(common::v1::ERROR_REASON_FIELD_MISSING)));
}

TEST(StatusMatchers, AssignMovesTheValueOut) {
  absl::StatusOr<std::unique_ptr<std::string>> source =
      std::make_unique<std::string>("abc");

  ASSERT_OK_AND_ASSIGN(const auto value, std::move(source));

  EXPECT_THAT(*value, SizeIs(3));
}

TEST(StatusMatchers, AFailureShowsTheStatus) {
  EXPECT_NONFATAL_FAILURE(EXPECT_OK(absl::NotFoundError("no such row")),
                          "no such row");
  EXPECT_FATAL_FAILURE(ASSERT_OK(absl::NotFoundError("no such row")),
                       "no such row");
}

}  // namespace
}  // namespace tenure::test
