#ifndef TENURE_COMMON_DB_SQL_ERROR_H_
#define TENURE_COMMON_DB_SQL_ERROR_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tenure::db {

// What is to be done about a SQLSTATE.
enum class SqlErrorClass {
  // 40001, 40P01: the whole transaction is run again.
  kRetryTransaction,
  // 55P03, 57014: another time; the row's or job's own backoff decides when.
  kBusy,
  // 08xxx, 57Pxx, 53xxx, 25006: this server or connection cannot serve now.
  kUnavailable,
  // 22xxx, 23xxx: these values will not be stored, however often they are sent.
  kData,
  // Everything else: a defect in the statement or the schema.
  kDefect,
};

// The one table from SQLSTATE to meaning; tests list every row.
SqlErrorClass ClassifySqlState(absl::string_view sqlstate);

// True when the connection that answered `sqlstate` must not be used again:
// the server is going away, or became a standby and refuses writes (C105).
bool DiscardsConnection(absl::string_view sqlstate);

// The status callers see: no driver text, no SQLSTATE in the message. The
// SQLSTATE stays readable inside through SqlStateOf.
absl::Status SqlErrorStatus(absl::string_view sqlstate,
                            absl::string_view statement);

// The SQLSTATE behind a status made by SqlErrorStatus.
std::optional<std::string> SqlStateOf(const absl::Status& status);

}  // namespace tenure::db

#endif  // TENURE_COMMON_DB_SQL_ERROR_H_
