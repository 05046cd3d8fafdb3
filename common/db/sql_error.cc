#include "common/db/sql_error.h"

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tenure::db {
namespace {

constexpr char kSqlStateUrl[] = "tenure.internal/sqlstate";

absl::Status WithoutSqlState(SqlErrorClass error_class,
                             absl::string_view sqlstate,
                             absl::string_view statement) {
  switch (error_class) {
    case SqlErrorClass::kRetryTransaction:
      return MakeError(absl::StatusCode::kAborted,
                       common::v1::ERROR_REASON_CONFLICT,
                       "concurrent changes kept this one from finishing");
    case SqlErrorClass::kBusy:
      if (sqlstate == "55P03") {
        return DatabaseUnavailableError("a row stayed locked for too long");
      }
      return MakeError(absl::StatusCode::kDeadlineExceeded,
                       common::v1::ERROR_REASON_DEADLINE_EXCEEDED,
                       "the database did not answer in time");
    case SqlErrorClass::kUnavailable:
      return DatabaseUnavailableError("the database is not available");
    case SqlErrorClass::kData:
      return MakeError(absl::StatusCode::kFailedPrecondition,
                       common::v1::ERROR_REASON_FAILED_PRECONDITION,
                       "the stored state does not allow this change");
    case SqlErrorClass::kDefect:
      break;
  }
  return InternalError(
      absl::StrCat("statement ", statement, " failed; see the log"));
}

}  // namespace

SqlErrorClass ClassifySqlState(absl::string_view sqlstate) {
  if (sqlstate == "40001" || sqlstate == "40P01") {
    return SqlErrorClass::kRetryTransaction;
  }
  // Only a query ended by its timeout, by pg_cancel_backend or waiting on a
  // lock; 57P0x ends the session.
  if (sqlstate == "57014" || sqlstate == "55P03") return SqlErrorClass::kBusy;
  if (DiscardsConnection(sqlstate) || absl::StartsWith(sqlstate, "53")) {
    return SqlErrorClass::kUnavailable;
  }
  if (absl::StartsWith(sqlstate, "22") || absl::StartsWith(sqlstate, "23")) {
    return SqlErrorClass::kData;
  }
  return SqlErrorClass::kDefect;
}

bool DiscardsConnection(absl::string_view sqlstate) {
  // 25P03 and 57P05 are the idle timeouts; 25006 is a write on a standby.
  return absl::StartsWith(sqlstate, "08") ||
         absl::StartsWith(sqlstate, "57P") || sqlstate == "25006" ||
         sqlstate == "25P03" || sqlstate == "XX000";
}

absl::Status SqlErrorStatus(absl::string_view sqlstate,
                            absl::string_view statement) {
  absl::Status status =
      WithoutSqlState(ClassifySqlState(sqlstate), sqlstate, statement);
  status.SetPayload(kSqlStateUrl, absl::Cord(sqlstate));
  return status;
}

std::optional<std::string> SqlStateOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kSqlStateUrl);
  if (!payload.has_value()) return std::nullopt;
  return std::string(*payload);
}

}  // namespace tenure::db
