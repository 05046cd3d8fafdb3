#ifndef TENURE_COMMON_DB_CONNECTION_H_
#define TENURE_COMMON_DB_CONNECTION_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/db/params.h"
#include "common/db/result.h"
#include "common/db/statement.h"

namespace tenure::db {

// Settings of every session. The timeouts are asserted by a query when a
// connection is opened; a session that did not take them is not used.
struct ConnectionOptions {
  // libpq connection string. target_session_attrs=read-write and TCP time
  // limits are added where absent.
  std::string conninfo;
  // Empty for none. Never logged.
  std::string password;
  std::string application_name;
  absl::Duration connect_timeout = absl::Seconds(3);
  absl::Duration statement_timeout = absl::Seconds(10);
  absl::Duration lock_timeout = absl::Seconds(3);
  absl::Duration idle_in_transaction_timeout = absl::Seconds(10);
};

// One session. It never reconnects by itself: the driver's own re-opening,
// which silently loses the session's settings, is switched off (C104). Not
// thread-safe.
class Connection {
 public:
  static absl::StatusOr<std::unique_ptr<Connection>> Open(
      const ConnectionOptions& options);
  ~Connection();

  // Runs one prepared statement in its own implicit transaction. Only for
  // statements that may be repeated: an error leaves open whether a write was
  // done.
  absl::StatusOr<Result> Execute(const Statement& statement,
                                 const Params& params = {});

  // Runs SQL text (possibly several statements) without parameters, for
  // migrations and session settings.
  absl::Status ExecuteScript(absl::string_view name, absl::string_view sql);

  // False once the session was lost or answered with an error that forbids
  // using it again (sql_error.h).
  bool usable() const;

  // True when the idle session's socket has something to read: the server said
  // goodbye. Costs one poll(), no round trip.
  bool HasUnexpectedInput() const;

  int backend_pid() const;

 private:
  friend class Transaction;
  struct Rep;
  explicit Connection(std::unique_ptr<Rep> rep);
  std::unique_ptr<Rep> rep_;
};

// A transaction at READ COMMITTED. Rolled back when destroyed uncommitted.
class Transaction {
 public:
  // Begins. `connection` must outlive the transaction and have no other.
  static absl::StatusOr<std::unique_ptr<Transaction>> Begin(
      Connection& connection);
  ~Transaction();

  absl::StatusOr<Result> Execute(const Statement& statement,
                                 const Params& params = {});

  // Runs SQL text without parameters, for migrations.
  absl::Status ExecuteScript(absl::string_view name, absl::string_view sql);

  // OK: durably committed. CommitUnknown (common/base/error.h): the connection
  // broke while COMMIT was under way. Any other error: not committed. After a
  // failed statement it refuses, because PostgreSQL would answer COMMIT with a
  // silent ROLLBACK.
  absl::Status Commit();

 private:
  struct Rep;
  explicit Transaction(std::unique_ptr<Rep> rep);
  std::unique_ptr<Rep> rep_;
};

}  // namespace tenure::db

#endif  // TENURE_COMMON_DB_CONNECTION_H_
