#ifndef TENURE_TESTS_SUPPORT_STATUS_MATCHERS_H_
#define TENURE_TESTS_SUPPORT_STATUS_MATCHERS_H_

#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

// GoogleMock matchers for absl::Status and absl::StatusOr<T>:
//   EXPECT_THAT(status, IsOk());
//   EXPECT_THAT(status_or, IsOkAndHolds(Eq(3)));
//   EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, HasSubstr("x")));
//   EXPECT_THAT(status, HasReason(common::v1::ERROR_REASON_CONFLICT));
//   ASSERT_OK(status);
//   ASSERT_OK_AND_ASSIGN(const int n, status_or);
namespace tenure::test {

inline const absl::Status& StatusOf(const absl::Status& status) {
  return status;
}
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& value) {
  return value.status();
}

// An absl::Status or absl::StatusOr that is OK.
MATCHER(IsOk, negation ? "is an error" : "is OK") {
  const absl::Status& status = StatusOf(arg);
  if (!status.ok()) *result_listener << "which is " << status.ToString();
  return status.ok();
}

// An absl::StatusOr that is OK and whose value matches `inner`.
MATCHER_P(
    IsOkAndHolds, inner,
    "is OK and has a value that " +
        ::testing::DescribeMatcher<typename std::decay_t<arg_type>::value_type>(
            inner)) {
  if (!arg.ok()) {
    *result_listener << "which is " << arg.status().ToString();
    return false;
  }
  return ::testing::ExplainMatchResult(inner, *arg, result_listener);
}

// An error (or OK) of that code.
MATCHER_P(StatusIs, code,
          std::string(negation ? "has not" : "has") + " the code " +
              absl::StatusCodeToString(code)) {
  const absl::Status& status = StatusOf(arg);
  *result_listener << "which is " << status.ToString();
  return status.code() == code;
}

// An error of that code whose message matches `message`.
MATCHER_P2(StatusIs, code, message,
           std::string(negation ? "has not" : "has") + " the code " +
               absl::StatusCodeToString(code) + " and a message that " +
               ::testing::DescribeMatcher<std::string>(message)) {
  const absl::Status& status = StatusOf(arg);
  *result_listener << "which is " << status.ToString() << " ";
  return status.code() == code &&
         ::testing::ExplainMatchResult(message, std::string(status.message()),
                                       result_listener);
}

// An error made by MakeError (common/base/error.h) with that ErrorReason.
MATCHER_P(HasReason, reason,
          std::string(negation ? "has not" : "has") + " the reason " +
              ReasonName(reason)) {
  const absl::Status& status = StatusOf(arg);
  const std::optional<ErrorInfo> info = GetErrorInfo(status);
  *result_listener << "which is " << status.ToString() << " with "
                   << (info.has_value()
                           ? "the reason " + ReasonName(info->reason)
                           : std::string("no reason"));
  return info.has_value() && info->reason == reason;
}

}  // namespace tenure::test

#define EXPECT_OK(expr) EXPECT_THAT((expr), ::tenure::test::IsOk())
#define ASSERT_OK(expr) ASSERT_THAT((expr), ::tenure::test::IsOk())

// Declares or assigns `lhs` from `expr`, an absl::StatusOr, or fails the test
// with its error.
#define ASSERT_OK_AND_ASSIGN(lhs, expr) \
  TENURE_ASSERT_OK_AND_ASSIGN(          \
      TENURE_MACRO_CONCAT(tenure_status_or_, __LINE__), lhs, expr)
#define TENURE_ASSERT_OK_AND_ASSIGN(tmp, lhs, expr) \
  auto tmp = (expr);                                \
  ASSERT_THAT(tmp, ::tenure::test::IsOk());         \
  lhs = *std::move(tmp)

#endif  // TENURE_TESTS_SUPPORT_STATUS_MATCHERS_H_
