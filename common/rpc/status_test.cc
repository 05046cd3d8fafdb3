#include "common/rpc/status.h"

#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/error.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace tenure::rpc {
namespace {

using ::tenure::test::HasReason;
using ::tenure::test::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;

struct Row {
  ErrorReason reason;
  absl::StatusCode code;
  grpc::StatusCode grpc_code;
  // As error_reason.proto documents it.
  const char* documented;
};

constexpr Row kTable[] = {
    {common::v1::ERROR_REASON_FIELD_MISSING, absl::StatusCode::kInvalidArgument,
     grpc::StatusCode::INVALID_ARGUMENT, "INVALID_ARGUMENT"},
    {common::v1::ERROR_REASON_FIELD_INVALID, absl::StatusCode::kInvalidArgument,
     grpc::StatusCode::INVALID_ARGUMENT, "INVALID_ARGUMENT"},
    {common::v1::ERROR_REASON_PAGE_TOKEN_INVALID,
     absl::StatusCode::kInvalidArgument, grpc::StatusCode::INVALID_ARGUMENT,
     "INVALID_ARGUMENT"},
    {common::v1::ERROR_REASON_SUBSCRIPTION_NOT_FOUND,
     absl::StatusCode::kNotFound, grpc::StatusCode::NOT_FOUND, "NOT_FOUND"},
    {common::v1::ERROR_REASON_JOB_NOT_FOUND, absl::StatusCode::kNotFound,
     grpc::StatusCode::NOT_FOUND, "NOT_FOUND"},
    {common::v1::ERROR_REASON_ROUTE_NOT_FOUND, absl::StatusCode::kNotFound,
     grpc::StatusCode::NOT_FOUND, "NOT_FOUND"},
    {common::v1::ERROR_REASON_SIGNATURE_INVALID,
     absl::StatusCode::kUnauthenticated, grpc::StatusCode::UNAUTHENTICATED,
     "UNAUTHENTICATED"},
    {common::v1::ERROR_REASON_SIGNATURE_TIMESTAMP_OUT_OF_TOLERANCE,
     absl::StatusCode::kUnauthenticated, grpc::StatusCode::UNAUTHENTICATED,
     "UNAUTHENTICATED"},
    {common::v1::ERROR_REASON_SIGNATURE_HEADER_MALFORMED,
     absl::StatusCode::kInvalidArgument, grpc::StatusCode::INVALID_ARGUMENT,
     "INVALID_ARGUMENT"},
    {common::v1::ERROR_REASON_EVENT_MALFORMED,
     absl::StatusCode::kInvalidArgument, grpc::StatusCode::INVALID_ARGUMENT,
     "INVALID_ARGUMENT"},
    {common::v1::ERROR_REASON_EVENT_ID_MISSING,
     absl::StatusCode::kInvalidArgument, grpc::StatusCode::INVALID_ARGUMENT,
     "INVALID_ARGUMENT"},
    {common::v1::ERROR_REASON_BODY_TOO_LARGE,
     absl::StatusCode::kResourceExhausted, grpc::StatusCode::RESOURCE_EXHAUSTED,
     "RESOURCE_EXHAUSTED"},
    {common::v1::ERROR_REASON_DATABASE_UNAVAILABLE,
     absl::StatusCode::kUnavailable, grpc::StatusCode::UNAVAILABLE,
     "UNAVAILABLE"},
    {common::v1::ERROR_REASON_COMMIT_OUTCOME_UNKNOWN,
     absl::StatusCode::kUnavailable, grpc::StatusCode::UNAVAILABLE,
     "UNAVAILABLE"},
    {common::v1::ERROR_REASON_CONFLICT, absl::StatusCode::kAborted,
     grpc::StatusCode::ABORTED, "ABORTED"},
    {common::v1::ERROR_REASON_OVERLOADED, absl::StatusCode::kResourceExhausted,
     grpc::StatusCode::RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED"},
    {common::v1::ERROR_REASON_DEADLINE_EXCEEDED,
     absl::StatusCode::kDeadlineExceeded, grpc::StatusCode::DEADLINE_EXCEEDED,
     "DEADLINE_EXCEEDED"},
    {common::v1::ERROR_REASON_INTERNAL, absl::StatusCode::kInternal,
     grpc::StatusCode::INTERNAL, "INTERNAL"},
    {common::v1::ERROR_REASON_CANCELLED, absl::StatusCode::kCancelled,
     grpc::StatusCode::CANCELLED, "CANCELLED"},
    {common::v1::ERROR_REASON_FAILED_PRECONDITION,
     absl::StatusCode::kFailedPrecondition,
     grpc::StatusCode::FAILED_PRECONDITION, "FAILED_PRECONDITION"},
    {common::v1::ERROR_REASON_REQUEST_ID_REUSED,
     absl::StatusCode::kAlreadyExists, grpc::StatusCode::ALREADY_EXISTS,
     "ALREADY_EXISTS"},
    {common::v1::ERROR_REASON_PLAN_NOT_FOUND, absl::StatusCode::kNotFound,
     grpc::StatusCode::NOT_FOUND, "NOT_FOUND"},
    {common::v1::ERROR_REASON_PRODUCT_NOT_FOUND, absl::StatusCode::kNotFound,
     grpc::StatusCode::NOT_FOUND, "NOT_FOUND"},
    {common::v1::ERROR_REASON_SUBJECT_NOT_FOUND, absl::StatusCode::kNotFound,
     grpc::StatusCode::NOT_FOUND, "NOT_FOUND"},
    {common::v1::ERROR_REASON_SUBJECT_ERASED,
     absl::StatusCode::kFailedPrecondition,
     grpc::StatusCode::FAILED_PRECONDITION, "FAILED_PRECONDITION"},
    {common::v1::ERROR_REASON_ORDER_ALREADY_EXISTS,
     absl::StatusCode::kAlreadyExists, grpc::StatusCode::ALREADY_EXISTS,
     "ALREADY_EXISTS"},
    {common::v1::ERROR_REASON_SUBSCRIPTION_NOT_LIVE,
     absl::StatusCode::kFailedPrecondition,
     grpc::StatusCode::FAILED_PRECONDITION, "FAILED_PRECONDITION"},
    {common::v1::ERROR_REASON_LIFETIME_HAS_NO_END,
     absl::StatusCode::kFailedPrecondition,
     grpc::StatusCode::FAILED_PRECONDITION, "FAILED_PRECONDITION"},
    {common::v1::ERROR_REASON_END_NOT_LATER,
     absl::StatusCode::kFailedPrecondition,
     grpc::StatusCode::FAILED_PRECONDITION, "FAILED_PRECONDITION"},
    {common::v1::ERROR_REASON_NOTHING_TO_RESUME,
     absl::StatusCode::kFailedPrecondition,
     grpc::StatusCode::FAILED_PRECONDITION, "FAILED_PRECONDITION"},
    {common::v1::ERROR_REASON_ENDED_BY_PROVIDER,
     absl::StatusCode::kFailedPrecondition,
     grpc::StatusCode::FAILED_PRECONDITION, "FAILED_PRECONDITION"},
    {common::v1::ERROR_REASON_ALREADY_SO, absl::StatusCode::kFailedPrecondition,
     grpc::StatusCode::FAILED_PRECONDITION, "FAILED_PRECONDITION"},
    {common::v1::ERROR_REASON_PLAN_NOT_LIFETIME,
     absl::StatusCode::kFailedPrecondition,
     grpc::StatusCode::FAILED_PRECONDITION, "FAILED_PRECONDITION"},
    {common::v1::ERROR_REASON_EVENT_NOT_FOUND, absl::StatusCode::kNotFound,
     grpc::StatusCode::NOT_FOUND, "NOT_FOUND"},
    {common::v1::ERROR_REASON_EVENT_BODY_GONE,
     absl::StatusCode::kFailedPrecondition,
     grpc::StatusCode::FAILED_PRECONDITION, "FAILED_PRECONDITION"},
    {common::v1::ERROR_REASON_EVENT_NOT_SET_ASIDE,
     absl::StatusCode::kFailedPrecondition,
     grpc::StatusCode::FAILED_PRECONDITION, "FAILED_PRECONDITION"},
};

// The ErrorInfo, which must be the only one, of an error for the wire.
google::rpc::ErrorInfo OnlyErrorInfo(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), static_cast<int>(status.error_code()));
  EXPECT_EQ(details.message(), status.error_message());
  google::rpc::ErrorInfo info;
  int found = 0;
  for (const auto& detail : details.details()) {
    if (detail.Is<google::rpc::ErrorInfo>()) {
      EXPECT_TRUE(detail.UnpackTo(&info));
      ++found;
    }
  }
  EXPECT_EQ(found, 1);
  EXPECT_EQ(info.domain(), "tenure");
  return info;
}

std::vector<google::rpc::BadRequest> BadRequests(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  std::vector<google::rpc::BadRequest> all;
  for (const auto& detail : details.details()) {
    google::rpc::BadRequest bad_request;
    if (detail.UnpackTo(&bad_request)) all.push_back(bad_request);
  }
  return all;
}

TEST(ToGrpcStatus, OkIsOk) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus(), "id").ok());
}

TEST(ToGrpcStatus, EveryReasonHasItsCodeAndExactlyOneErrorInfo) {
  std::set<ErrorReason> covered = {common::v1::ERROR_REASON_UNSPECIFIED};
  for (const Row& row : kTable) {
    SCOPED_TRACE(ReasonName(row.reason));
    covered.insert(row.reason);
    const grpc::Status status = ToGrpcStatus(
        MakeError(row.code, row.reason, "what went wrong", {{"key", "value"}}),
        "request-1");
    EXPECT_EQ(status.error_code(), row.grpc_code);
    const google::rpc::ErrorInfo info = OnlyErrorInfo(status);
    EXPECT_EQ(info.reason(), ReasonName(row.reason));
    if (row.grpc_code != grpc::StatusCode::INTERNAL) {
      EXPECT_EQ(status.error_message(), "what went wrong");
      EXPECT_EQ(info.metadata().at("key"), "value");
    }
  }
  const auto* values = common::v1::ErrorReason_descriptor();
  for (int i = 0; i < values->value_count(); ++i) {
    EXPECT_EQ(
        covered.count(static_cast<ErrorReason>(values->value(i)->number())), 1u)
        << values->value(i)->name() << " is not in the table of this test";
  }
}

TEST(ToGrpcStatus, TheCodesAreTheDocumentedOnes) {
  std::ifstream file(TENURE_ERROR_REASON_PROTO);
  ASSERT_TRUE(file) << TENURE_ERROR_REASON_PROTO;
  std::set<std::string> grpc_code_names;
  for (const Row& row : kTable) grpc_code_names.insert(row.documented);
  // "  // CODE. Text" stands in front of "  ERROR_REASON_NAME = n;".
  std::map<std::string, std::string> documented;
  std::string code;
  for (std::string line; std::getline(file, line);) {
    absl::string_view rest = line;
    if (absl::ConsumePrefix(&rest, "  // ")) {
      const std::string word(rest.substr(0, rest.find('.')));
      if (grpc_code_names.count(word) != 0) code = word;
    } else if (absl::StartsWith(rest, "  ERROR_REASON_")) {
      rest.remove_prefix(2);
      documented[std::string(rest.substr(0, rest.find(' ')))] = code;
      code.clear();
    }
  }
  EXPECT_EQ(documented.size(), std::size(kTable) + 1);
  for (const Row& row : kTable) {
    EXPECT_EQ(documented[common::v1::ErrorReason_Name(row.reason)],
              row.documented)
        << ReasonName(row.reason);
  }
}

TEST(ToGrpcStatus, TheErrorsThatManyPlacesMakeHaveTheDocumentedCodes) {
  const struct {
    absl::Status status;
    ErrorReason reason;
  } cases[] = {
      {FieldMissingError("subject"), common::v1::ERROR_REASON_FIELD_MISSING},
      {FieldInvalidError("subject", "too long"),
       common::v1::ERROR_REASON_FIELD_INVALID},
      {DatabaseUnavailableError("away"),
       common::v1::ERROR_REASON_DATABASE_UNAVAILABLE},
      {CommitUnknownError(), common::v1::ERROR_REASON_COMMIT_OUTCOME_UNKNOWN},
      {OverloadedError("it"), common::v1::ERROR_REASON_OVERLOADED},
      {InternalError("detail"), common::v1::ERROR_REASON_INTERNAL}};
  for (const auto& c : cases) {
    const grpc::Status status = ToGrpcStatus(c.status, "id");
    EXPECT_EQ(OnlyErrorInfo(status).reason(), ReasonName(c.reason));
    for (const Row& row : kTable) {
      if (row.reason == c.reason) {
        EXPECT_EQ(status.error_code(), row.grpc_code) << ReasonName(c.reason);
      }
    }
  }
}

TEST(ToGrpcStatus, AFieldAtFaultIsAlsoABadRequest) {
  const grpc::Status status =
      ToGrpcStatus(FieldInvalidError("page_size", "must be positive"), "id");
  EXPECT_EQ(OnlyErrorInfo(status).metadata().at("field"), "page_size");
  const auto bad_requests = BadRequests(status);
  ASSERT_EQ(bad_requests.size(), 1u);
  ASSERT_EQ(bad_requests[0].field_violations_size(), 1);
  EXPECT_EQ(bad_requests[0].field_violations(0).field(), "page_size");
  EXPECT_EQ(bad_requests[0].field_violations(0).description(),
            "page_size: must be positive");
  EXPECT_TRUE(BadRequests(ToGrpcStatus(OverloadedError("it"), "id")).empty());
}

TEST(ToGrpcStatus, ADefectShowsAFixedTextAndTheRequestIdOnly) {
  const std::string secret = "relation \"subject\" of user postgres";
  for (const absl::Status& inner :
       {InternalError(secret), absl::InternalError(secret),
        absl::UnknownError(secret), absl::NotFoundError(secret),
        absl::InvalidArgumentError(secret), absl::UnavailableError(secret),
        absl::FailedPreconditionError(secret), absl::DataLossError(secret),
        absl::PermissionDeniedError(secret), absl::OutOfRangeError(secret),
        absl::UnimplementedError(secret), absl::AbortedError(secret),
        MakeError(absl::StatusCode::kUnknown, common::v1::ERROR_REASON_CONFLICT,
                  secret, {{"k", secret}}),
        MakeError(absl::StatusCode::kInternal,
                  common::v1::ERROR_REASON_INTERNAL, secret,
                  {{"k", secret}})}) {
    SCOPED_TRACE(inner.ToString());
    const grpc::Status status = ToGrpcStatus(inner, "request-7");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
    EXPECT_EQ(status.error_message(), "internal error; request id request-7");
    const google::rpc::ErrorInfo info = OnlyErrorInfo(status);
    EXPECT_EQ(info.reason(), "INTERNAL");
    EXPECT_EQ(info.metadata_size(), 1);
    EXPECT_EQ(info.metadata().at("request_id"), "request-7");
    EXPECT_THAT(status.error_details(), Not(HasSubstr("subject")));
  }
}

TEST(ToGrpcStatus, DeadlineAndCancellationKeepTheirCodeWithAFixedText) {
  const grpc::Status deadline =
      ToGrpcStatus(absl::DeadlineExceededError("inner text"), "id");
  EXPECT_EQ(deadline.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(deadline.error_message(), "the deadline passed");
  EXPECT_EQ(OnlyErrorInfo(deadline).reason(), "DEADLINE_EXCEEDED");
  const grpc::Status cancelled =
      ToGrpcStatus(absl::CancelledError("inner text"), "id");
  EXPECT_EQ(cancelled.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(cancelled.error_message(), "the call was cancelled");
  EXPECT_EQ(OnlyErrorInfo(cancelled).reason(), "CANCELLED");
}

TEST(ToGrpcStatus, OtherPayloadsStayInside) {
  absl::Status inner = DatabaseUnavailableError("the database is away");
  inner.SetPayload("tenure.internal/sqlstate", absl::Cord("57P01"));
  EXPECT_THAT(ToGrpcStatus(inner, "id").error_details(),
              Not(HasSubstr("57P01")));
}

TEST(FromGrpcStatus, CodeMessageReasonAndMetadataSurviveTheRoundTrip) {
  EXPECT_OK(FromGrpcStatus(grpc::Status::OK));
  for (const Row& row : kTable) {
    if (row.grpc_code == grpc::StatusCode::INTERNAL) continue;
    SCOPED_TRACE(ReasonName(row.reason));
    const absl::Status sent = MakeError(row.code, row.reason, "what went wrong",
                                        {{"field", "subject"}, {"empty", ""}});
    const absl::Status back = FromGrpcStatus(ToGrpcStatus(sent, "id"));
    EXPECT_THAT(back, StatusIs(row.code, "what went wrong"));
    EXPECT_THAT(back, HasReason(row.reason));
    EXPECT_EQ(GetErrorInfo(back)->metadata, GetErrorInfo(sent)->metadata);
  }
  EXPECT_TRUE(IsCommitUnknown(
      FromGrpcStatus(ToGrpcStatus(CommitUnknownError(), "id"))));
}

TEST(FromGrpcStatus, TakesWhatOthersSend) {
  // No details, unreadable details, and a reason from a newer server.
  EXPECT_THAT(
      FromGrpcStatus(grpc::Status(grpc::StatusCode::UNAVAILABLE, "no server")),
      StatusIs(absl::StatusCode::kUnavailable, "no server"));
  EXPECT_THAT(FromGrpcStatus(grpc::Status(grpc::StatusCode::NOT_FOUND, "gone",
                                          "\xff\xff\xff")),
              StatusIs(absl::StatusCode::kNotFound, "gone"));
  google::rpc::ErrorInfo info;
  info.set_reason("FROM_THE_FUTURE");
  google::rpc::Status details;
  details.add_details()->PackFrom(info);
  const absl::Status future = FromGrpcStatus(grpc::Status(
      grpc::StatusCode::ABORTED, "later", details.SerializeAsString()));
  EXPECT_THAT(future, StatusIs(absl::StatusCode::kAborted, "later"));
  EXPECT_THAT(future, HasReason(common::v1::ERROR_REASON_UNSPECIFIED));
}

TEST(CodeName, IsTheNameThatDashboardsExpect) {
  const std::vector<std::string> names = {"OK",
                                          "Canceled",
                                          "Unknown",
                                          "InvalidArgument",
                                          "DeadlineExceeded",
                                          "NotFound",
                                          "AlreadyExists",
                                          "PermissionDenied",
                                          "ResourceExhausted",
                                          "FailedPrecondition",
                                          "Aborted",
                                          "OutOfRange",
                                          "Unimplemented",
                                          "Internal",
                                          "Unavailable",
                                          "DataLoss",
                                          "Unauthenticated"};
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(CodeName(static_cast<grpc::StatusCode>(i)), names[i]);
  }
  EXPECT_EQ(CodeName(static_cast<grpc::StatusCode>(99)), "Unknown");
}

}  // namespace
}  // namespace tenure::rpc
