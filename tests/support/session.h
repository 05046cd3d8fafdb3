#ifndef TENURE_TESTS_SUPPORT_SESSION_H_
#define TENURE_TESTS_SUPPORT_SESSION_H_

#include <libpq-fe.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tests/support/test_signal.h"

namespace tenure::test {

// A value in PostgreSQL's text form; nullopt is NULL.
using SqlValue = std::optional<std::string>;
using SqlRow = std::vector<SqlValue>;
using SqlRows = std::vector<SqlRow>;

// One connection on which a test runs SQL from outside the code it tests. Not
// thread-safe: one thread at a time.
//
// Errors: UNAVAILABLE for a broken or refused connection, UNKNOWN with the
// server's message for an error of the server (SqlState() tells which),
// DEADLINE_EXCEEDED when the answer did not come in time.
class Session {
 public:
  static absl::StatusOr<std::unique_ptr<Session>> Open(
      absl::string_view conninfo);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Runs `sql` and returns its rows. Without params it may hold several
  // statements (one implicit transaction); the rows are the last one's. After
  // DEADLINE_EXCEEDED the statement is still under way: Receive it, or destroy
  // the session.
  absl::StatusOr<SqlRows> Exec(absl::string_view sql,
                               const std::vector<SqlValue>& params = {},
                               absl::Duration timeout = kPatience);

  // The single value of a statement that returns one row of one column, which
  // must not be NULL.
  absl::StatusOr<std::string> Scalar(absl::string_view sql,
                                     const std::vector<SqlValue>& params = {});

  // Sends `sql` without waiting: for a statement that is expected to block.
  // A Receive has to follow.
  absl::Status Send(absl::string_view sql,
                    const std::vector<SqlValue>& params = {});
  // The outcome of Send. May be repeated after DEADLINE_EXCEEDED.
  absl::StatusOr<SqlRows> Receive(absl::Duration timeout = kPatience);
  // Asks the server to cancel the statement under way; Receive tells whether it
  // came in time. A request that comes before the server has begun the
  // statement is lost: see it run first.
  absl::Status Cancel();

  // Runs a query of one boolean again and again until it is true. For a state
  // that another process brings about.
  absl::Status AwaitTrue(absl::string_view sql,
                         const std::vector<SqlValue>& params = {},
                         absl::Duration timeout = kPatience);

  // Waits until the server process `pid` waits for a lock that another one
  // holds. NOT_FOUND when there is no such process (any more).
  absl::Status WaitUntilBlocked(int pid, absl::Duration timeout = kPatience);

  // The server process behind this connection.
  int backend_pid() const { return PQbackendPID(connection_); }

  // For what libpq can do and this class does not.
  PGconn* connection() { return connection_; }

 private:
  explicit Session(PGconn* connection) : connection_(connection) {}

  PGconn* const connection_;
  // Of the statement under way, as far as it was received.
  SqlRows rows_;
  absl::Status error_;
};

// The SQLSTATE of an error from a Session; empty when it has none.
std::string SqlState(const absl::Status& status);

// Opens a session, runs `sql` on it and closes it.
absl::StatusOr<SqlRows> ExecOnce(absl::string_view conninfo,
                                 absl::string_view sql,
                                 const std::vector<SqlValue>& params = {});

}  // namespace tenure::test

#endif  // TENURE_TESTS_SUPPORT_SESSION_H_
