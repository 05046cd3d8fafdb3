#include "tests/support/session.h"

#include <poll.h>

#include <cstring>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"

namespace tenure::test {
namespace {

constexpr char kSqlStatePayload[] = "tenure.test/sqlstate";

absl::Duration Monotonic() { return SystemClock::Instance().Monotonic(); }

absl::Status ConnectionError(PGconn* connection) {
  return absl::UnavailableError(
      absl::StripSuffix(PQerrorMessage(connection), "\n"));
}

absl::Status ResultError(PGconn* connection, const PGresult* result) {
  const char* state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  // An error without SQLSTATE is libpq's own: the connection broke. With FATAL
  // and PANIC the server ends it.
  const char* severity =
      PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
  const bool lost = state == nullptr || severity == nullptr ||
                    std::strcmp(severity, "ERROR") != 0 ||
                    PQstatus(connection) == CONNECTION_BAD;
  absl::Status error(
      lost ? absl::StatusCode::kUnavailable : absl::StatusCode::kUnknown,
      absl::StripSuffix(PQresultErrorMessage(result), "\n"));
  if (state != nullptr) error.SetPayload(kSqlStatePayload, absl::Cord(state));
  return error;
}

SqlRows ToRows(const PGresult* result) {
  SqlRows rows(PQntuples(result));
  for (int row = 0; row < PQntuples(result); ++row) {
    for (int column = 0; column < PQnfields(result); ++column) {
      if (PQgetisnull(result, row, column)) {
        rows[row].push_back(std::nullopt);
      } else {
        rows[row].emplace_back(std::string(PQgetvalue(result, row, column),
                                           PQgetlength(result, row, column)));
      }
    }
  }
  return rows;
}

struct FreeResult {
  void operator()(PGresult* result) const { PQclear(result); }
};
using Result = std::unique_ptr<PGresult, FreeResult>;

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Session::Open(
    absl::string_view conninfo) {
  PGconn* connection = PQconnectdb(std::string(conninfo).c_str());
  if (connection == nullptr) {
    return absl::ResourceExhaustedError("libpq is out of memory");
  }
  std::unique_ptr<Session> session(new Session(connection));
  if (PQstatus(connection) != CONNECTION_OK) return ConnectionError(connection);
  // Notices would go to standard error and hide a test's own output.
  PQsetNoticeReceiver(
      connection, [](void*, const PGresult*) {}, nullptr);
  return session;
}

Session::~Session() { PQfinish(connection_); }

absl::StatusOr<SqlRows> Session::Exec(absl::string_view sql,
                                      const std::vector<SqlValue>& params,
                                      absl::Duration timeout) {
  RETURN_IF_ERROR(Send(sql, params));
  return Receive(timeout);
}

absl::StatusOr<std::string> Session::Scalar(
    absl::string_view sql, const std::vector<SqlValue>& params) {
  ASSIGN_OR_RETURN(SqlRows rows, Exec(sql, params));
  if (rows.size() != 1 || rows[0].size() != 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("expected one row of one column, got ", rows.size(),
                     " rows from: ", sql));
  }
  if (!rows[0][0].has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the value is NULL: ", sql));
  }
  return *std::move(rows[0][0]);
}

absl::Status Session::Send(absl::string_view sql,
                           const std::vector<SqlValue>& params) {
  const std::string text(sql);
  rows_.clear();
  error_ = absl::OkStatus();
  int sent = 0;
  if (params.empty()) {
    sent = PQsendQuery(connection_, text.c_str());
  } else {
    std::vector<const char*> values;
    for (const SqlValue& param : params) {
      values.push_back(param.has_value() ? param->c_str() : nullptr);
    }
    sent = PQsendQueryParams(connection_, text.c_str(),
                             static_cast<int>(values.size()), nullptr,
                             values.data(), nullptr, nullptr, 0);
  }
  if (sent == 0) return ConnectionError(connection_);
  return absl::OkStatus();
}

absl::StatusOr<SqlRows> Session::Receive(absl::Duration timeout) {
  const absl::Duration end = Monotonic() + timeout;
  for (;;) {
    while (PQisBusy(connection_)) {
      const absl::Duration left = end - Monotonic();
      if (left <= absl::ZeroDuration()) {
        return absl::DeadlineExceededError(
            absl::StrCat("no answer within ", absl::FormatDuration(timeout)));
      }
      pollfd readable = {PQsocket(connection_), POLLIN, 0};
      poll(&readable, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
      if (PQconsumeInput(connection_) == 0) break;
    }
    const Result result(PQgetResult(connection_));
    if (result == nullptr) break;
    switch (PQresultStatus(result.get())) {
      case PGRES_COMMAND_OK:
      case PGRES_TUPLES_OK:
      case PGRES_EMPTY_QUERY:
        rows_ = ToRows(result.get());
        break;
      case PGRES_COPY_IN:
      case PGRES_COPY_OUT:
      case PGRES_COPY_BOTH:
        return absl::UnimplementedError("COPY is not supported by Session");
      default:
        error_.Update(ResultError(connection_, result.get()));
    }
  }
  if (!error_.ok()) return error_;
  if (PQstatus(connection_) == CONNECTION_BAD) {
    return ConnectionError(connection_);
  }
  return std::move(rows_);
}

absl::Status Session::Cancel() {
  PGcancel* cancel = PQgetCancel(connection_);
  char message[256] = "the connection is broken";
  const bool sent =
      cancel != nullptr && PQcancel(cancel, message, sizeof(message)) == 1;
  PQfreeCancel(cancel);
  if (!sent) return absl::UnavailableError(message);
  return absl::OkStatus();
}

absl::Status Session::AwaitTrue(absl::string_view sql,
                                const std::vector<SqlValue>& params,
                                absl::Duration timeout) {
  const absl::Duration end = Monotonic() + timeout;
  for (;;) {
    ASSIGN_OR_RETURN(const std::string value, Scalar(sql, params));
    if (value == "t") return absl::OkStatus();
    if (Monotonic() >= end) {
      return absl::DeadlineExceededError(absl::StrCat(
          "not true within ", absl::FormatDuration(timeout), ": ", sql));
    }
    // The pause is the server's, so that a busy loop does not slow down what
    // it waits for.
    RETURN_IF_ERROR(Exec("SELECT pg_sleep(0.002)").status());
  }
}

absl::Status Session::WaitUntilBlocked(int pid, absl::Duration timeout) {
  const std::vector<SqlValue> params = {absl::StrCat(pid)};
  const absl::Duration end = Monotonic() + timeout;
  for (;;) {
    ASSIGN_OR_RETURN(
        const SqlRows rows,
        Exec("SELECT coalesce(wait_event_type = 'Lock' AND state = 'active',"
             " false), coalesce(query, '') FROM pg_stat_activity"
             " WHERE pid = $1",
             params));
    if (rows.empty()) {
      return absl::NotFoundError(
          absl::StrCat("there is no server process ", pid));
    }
    if (rows[0][0] == "t") return absl::OkStatus();
    if (Monotonic() >= end) {
      return absl::DeadlineExceededError(absl::StrCat(
          "server process ", pid, " did not wait for a lock within ",
          absl::FormatDuration(timeout),
          "; its last statement: ", rows[0][1].value_or("")));
    }
    RETURN_IF_ERROR(Exec("SELECT pg_sleep(0.002)").status());
  }
}

std::string SqlState(const absl::Status& status) {
  const auto payload = status.GetPayload(kSqlStatePayload);
  return payload.has_value() ? std::string(*payload) : std::string();
}

absl::StatusOr<SqlRows> ExecOnce(absl::string_view conninfo,
                                 absl::string_view sql,
                                 const std::vector<SqlValue>& params) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                   Session::Open(conninfo));
  return session->Exec(sql, params);
}

}  // namespace tenure::test
