#include "common/db/sql_error.h"

#include <string>
#include <vector>

#include "common/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace tenure::db {
namespace {

using ::tenure::test::HasReason;
using ::tenure::test::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;

// One row of the table from SQLSTATE to what callers see.
struct Row {
  const char* sqlstate;
  SqlErrorClass error_class;
  bool discards_connection;
  absl::StatusCode code;
  ErrorReason reason;
};

constexpr Row kTable[] = {
    // Two transactions met; C102: also "tuple to be locked was already moved to
    // another partition", which is 40001 with another text.
    {"40001", SqlErrorClass::kRetryTransaction, false,
     absl::StatusCode::kAborted, common::v1::ERROR_REASON_CONFLICT},
    {"40P01", SqlErrorClass::kRetryTransaction, false,
     absl::StatusCode::kAborted, common::v1::ERROR_REASON_CONFLICT},
    // Other members of class 40 are not worth a second try.
    {"40002", SqlErrorClass::kDefect, false, absl::StatusCode::kInternal,
     common::v1::ERROR_REASON_INTERNAL},
    {"40003", SqlErrorClass::kDefect, false, absl::StatusCode::kInternal,
     common::v1::ERROR_REASON_INTERNAL},
    // Locks and time limits.
    {"55P03", SqlErrorClass::kBusy, false, absl::StatusCode::kUnavailable,
     common::v1::ERROR_REASON_DATABASE_UNAVAILABLE},
    {"57014", SqlErrorClass::kBusy, false, absl::StatusCode::kDeadlineExceeded,
     common::v1::ERROR_REASON_DEADLINE_EXCEEDED},
    // The server or the session is going away.
    {"08000", SqlErrorClass::kUnavailable, true, absl::StatusCode::kUnavailable,
     common::v1::ERROR_REASON_DATABASE_UNAVAILABLE},
    {"08006", SqlErrorClass::kUnavailable, true, absl::StatusCode::kUnavailable,
     common::v1::ERROR_REASON_DATABASE_UNAVAILABLE},
    {"57P01", SqlErrorClass::kUnavailable, true, absl::StatusCode::kUnavailable,
     common::v1::ERROR_REASON_DATABASE_UNAVAILABLE},
    {"57P02", SqlErrorClass::kUnavailable, true, absl::StatusCode::kUnavailable,
     common::v1::ERROR_REASON_DATABASE_UNAVAILABLE},
    {"57P03", SqlErrorClass::kUnavailable, true, absl::StatusCode::kUnavailable,
     common::v1::ERROR_REASON_DATABASE_UNAVAILABLE},
    {"57P04", SqlErrorClass::kUnavailable, true, absl::StatusCode::kUnavailable,
     common::v1::ERROR_REASON_DATABASE_UNAVAILABLE},
    {"57P05", SqlErrorClass::kUnavailable, true, absl::StatusCode::kUnavailable,
     common::v1::ERROR_REASON_DATABASE_UNAVAILABLE},
    {"25P03", SqlErrorClass::kUnavailable, true, absl::StatusCode::kUnavailable,
     common::v1::ERROR_REASON_DATABASE_UNAVAILABLE},
    {"XX000", SqlErrorClass::kUnavailable, true, absl::StatusCode::kUnavailable,
     common::v1::ERROR_REASON_DATABASE_UNAVAILABLE},
    // C105: a write on a standby; reads would go on working there for ever.
    {"25006", SqlErrorClass::kUnavailable, true, absl::StatusCode::kUnavailable,
     common::v1::ERROR_REASON_DATABASE_UNAVAILABLE},
    // Out of something: the session itself is well.
    {"53100", SqlErrorClass::kUnavailable, false,
     absl::StatusCode::kUnavailable,
     common::v1::ERROR_REASON_DATABASE_UNAVAILABLE},
    {"53200", SqlErrorClass::kUnavailable, false,
     absl::StatusCode::kUnavailable,
     common::v1::ERROR_REASON_DATABASE_UNAVAILABLE},
    {"53300", SqlErrorClass::kUnavailable, false,
     absl::StatusCode::kUnavailable,
     common::v1::ERROR_REASON_DATABASE_UNAVAILABLE},
    // Values that will not be stored.
    {"22001", SqlErrorClass::kData, false,
     absl::StatusCode::kFailedPrecondition,
     common::v1::ERROR_REASON_FAILED_PRECONDITION},
    {"22008", SqlErrorClass::kData, false,
     absl::StatusCode::kFailedPrecondition,
     common::v1::ERROR_REASON_FAILED_PRECONDITION},
    {"22P02", SqlErrorClass::kData, false,
     absl::StatusCode::kFailedPrecondition,
     common::v1::ERROR_REASON_FAILED_PRECONDITION},
    {"23502", SqlErrorClass::kData, false,
     absl::StatusCode::kFailedPrecondition,
     common::v1::ERROR_REASON_FAILED_PRECONDITION},
    {"23503", SqlErrorClass::kData, false,
     absl::StatusCode::kFailedPrecondition,
     common::v1::ERROR_REASON_FAILED_PRECONDITION},
    {"23505", SqlErrorClass::kData, false,
     absl::StatusCode::kFailedPrecondition,
     common::v1::ERROR_REASON_FAILED_PRECONDITION},
    {"23514", SqlErrorClass::kData, false,
     absl::StatusCode::kFailedPrecondition,
     common::v1::ERROR_REASON_FAILED_PRECONDITION},
    // Defects of a statement, a role or the schema.
    {"42601", SqlErrorClass::kDefect, false, absl::StatusCode::kInternal,
     common::v1::ERROR_REASON_INTERNAL},
    {"42501", SqlErrorClass::kDefect, false, absl::StatusCode::kInternal,
     common::v1::ERROR_REASON_INTERNAL},
    {"42P01", SqlErrorClass::kDefect, false, absl::StatusCode::kInternal,
     common::v1::ERROR_REASON_INTERNAL},
    {"25P02", SqlErrorClass::kDefect, false, absl::StatusCode::kInternal,
     common::v1::ERROR_REASON_INTERNAL},
    {"0A000", SqlErrorClass::kDefect, false, absl::StatusCode::kInternal,
     common::v1::ERROR_REASON_INTERNAL},
    {"P0001", SqlErrorClass::kDefect, false, absl::StatusCode::kInternal,
     common::v1::ERROR_REASON_INTERNAL},
    {"XX001", SqlErrorClass::kDefect, false, absl::StatusCode::kInternal,
     common::v1::ERROR_REASON_INTERNAL},
    {"", SqlErrorClass::kDefect, false, absl::StatusCode::kInternal,
     common::v1::ERROR_REASON_INTERNAL},
};

TEST(SqlError, C102_C105_EverySqlStateHasItsMeaning) {
  for (const Row& row : kTable) {
    SCOPED_TRACE(row.sqlstate);
    EXPECT_EQ(ClassifySqlState(row.sqlstate), row.error_class);
    EXPECT_EQ(DiscardsConnection(row.sqlstate), row.discards_connection);
    const absl::Status status = SqlErrorStatus(row.sqlstate, "insert_thing");
    EXPECT_THAT(status, StatusIs(row.code));
    EXPECT_THAT(status, HasReason(row.reason));
  }
}

TEST(SqlError, TheSqlStateStaysInsideAndOutOfTheMessage) {
  for (const Row& row : kTable) {
    SCOPED_TRACE(row.sqlstate);
    const absl::Status status = SqlErrorStatus(row.sqlstate, "insert_thing");
    EXPECT_THAT(SqlStateOf(status), Optional(std::string(row.sqlstate)));
    if (*row.sqlstate == '\0') continue;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr(row.sqlstate)));
  }
}

TEST(SqlError, OtherStatusesHaveNoSqlState) {
  EXPECT_EQ(SqlStateOf(absl::OkStatus()), std::nullopt);
  EXPECT_EQ(SqlStateOf(CommitUnknownError()), std::nullopt);
  EXPECT_EQ(SqlStateOf(DatabaseUnavailableError("away")), std::nullopt);
}

}  // namespace
}  // namespace tenure::db
