#include "common/db/connection.h"

#include <poll.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/db/pqxx_result.h"
#include "common/db/sql_error.h"
#include "common/db/statements.h"

#if defined(__SANITIZE_ADDRESS__)
// libpqxx 6.4 does not free the result of a statement that ended its session: a
// few kilobytes for each lost session. Anything else that leaks is reported.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libpqxx-6\n";
}
#endif

namespace tenure::db {
namespace {

std::string Quoted(absl::string_view value) {
  return absl::StrCat(
      "'", absl::StrReplaceAll(value, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::string PercentEncoded(absl::string_view value) {
  std::string encoded;
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte)) {
      encoded.push_back(c);
    } else {
      absl::StrAppend(&encoded, "%", absl::Hex(byte, absl::kZeroPad2));
    }
  }
  return encoded;
}

std::string CompleteConninfo(const ConnectionOptions& options) {
  std::string text = options.conninfo;
  // Key and value pairs behind a URI would become part of the database's name,
  // and the server's answer would tell it, the password included.
  const bool uri = absl::StartsWith(text, "postgresql://") ||
                   absl::StartsWith(text, "postgres://");
  const auto add = [&text, uri](absl::string_view key,
                                absl::string_view value) {
    if (uri) {
      const char* const separator = absl::StrContains(text, "?") ? "&" : "?";
      absl::StrAppend(&text, separator, key, "=", PercentEncoded(value));
    } else {
      absl::StrAppend(&text, " ", key, "=", Quoted(value));
    }
  };
  const auto add_default = [&text, &add](absl::string_view key,
                                         absl::string_view value) {
    if (!absl::StrContains(text, absl::StrCat(key, "="))) add(key, value);
  };
  if (!options.password.empty()) add("password", options.password);
  add_default("application_name", options.application_name);
  add_default("connect_timeout",
              absl::StrCat(std::max<int64_t>(
                  2, absl::ToInt64Seconds(options.connect_timeout))));
  // A demoted primary accepts reads for ever; sessions go to the primary.
  add_default("target_session_attrs", "read-write");
  // A peer that vanished without a packet is noticed within about 15 s (F13).
  add_default("tcp_user_timeout", "15000");
  add_default("keepalives_idle", "10");
  add_default("keepalives_interval", "3");
  add_default("keepalives_count", "2");
  add_default("client_encoding", "UTF8");
  return text;
}

// The driver's text goes to the log only, once, here. Of what the server says
// the first line: the ones behind it show the row, and rows hold names (D14).
void LogSqlError(absl::string_view statement, absl::string_view sqlstate,
                 absl::string_view text) {
  if (!absl::StartsWith(sqlstate, "08")) text = text.substr(0, text.find('\n'));
  log::Warning(
      "sql error",
      {{"statement", statement}, {"sqlstate", sqlstate}, {"detail", text}});
}

struct TranslatedError {
  absl::Status status;
  bool discard_connection = false;
};

TranslatedError RolledBack(absl::string_view statement,
                           absl::string_view sqlstate, absl::string_view text) {
  LogSqlError(statement, sqlstate, text);
  return {SqlErrorStatus(sqlstate, statement), false};
}

// The one point at which libpqxx's exceptions end. Call it from a catch block.
TranslatedError TranslateCurrentException(absl::string_view statement) {
  try {
    throw;
  } catch (const pqxx::broken_connection& e) {
    LogSqlError(statement, "08006", e.what());
    return {SqlErrorStatus("08006", statement), true};
  } catch (const pqxx::serialization_failure& e) {
    // These four are no sql_error and have no SQLSTATE in 6.4.
    return RolledBack(statement, "40001", e.what());
  } catch (const pqxx::deadlock_detected& e) {
    return RolledBack(statement, "40P01", e.what());
  } catch (const pqxx::statement_completion_unknown& e) {
    return RolledBack(statement, "40003", e.what());
  } catch (const pqxx::transaction_rollback& e) {
    return RolledBack(statement, "40000", e.what());
  } catch (const pqxx::sql_error& e) {
    // A session that ends between statements answers without a SQLSTATE.
    const std::string state = e.sqlstate().empty() ? "08006" : e.sqlstate();
    LogSqlError(statement, state, e.what());
    return {SqlErrorStatus(state, statement), DiscardsConnection(state)};
  } catch (const std::exception& e) {
    LogSqlError(statement, "", e.what());
    return {InternalError(
                absl::StrCat("statement ", statement, " failed; see the log")),
            true};
  }
}

#if PQXX_VERSION_MAJOR >= 7
pqxx::params DriverParams(const Params& params) {
  pqxx::params out;
  for (const auto& value : params.values()) out.append(value);
  return out;
}
#else
auto DriverParams(const Params& params) {
  return pqxx::prepare::make_dynamic_params(params.values());
}
#endif

// The driver hands parameters on as C strings: text with a NUL, which no column
// can hold, would be stored cut off.
bool HoldsNul(const Params& params) {
  return std::any_of(params.values().begin(), params.values().end(),
                     [](const std::optional<std::string>& value) {
                       return value.has_value() &&
                              value->find('\0') != std::string::npos;
                     });
}

// character_not_in_repertoire, as the server answers to text it cannot hold.
constexpr char kNulInText[] = "22021";

}  // namespace

struct Connection::Rep {
  std::unique_ptr<pqxx::connection> driver;
  std::set<std::string> prepared;
  bool usable = true;

  void Prepare(const Statement& statement) {
    if (prepared.count(statement.name) != 0) return;
    driver->prepare(statement.name, statement.sql);
    prepared.insert(statement.name);
  }

  pqxx::result Run(pqxx::transaction_base& tx, const Statement& statement,
                   const Params& params) {
    Prepare(statement);
#if PQXX_VERSION_MAJOR > 7 || \
    (PQXX_VERSION_MAJOR == 7 && PQXX_VERSION_MINOR >= 10)
    return tx.exec(pqxx::prepped{statement.name}, DriverParams(params));
#else
    return tx.exec_prepared(statement.name, DriverParams(params));
#endif
  }

  bool HasUnexpectedInput() const {
    pollfd fd{driver->sock(), POLLIN, 0};
    return ::poll(&fd, 1, 0) != 0;
  }

  absl::Status Failed(absl::string_view statement) {
    TranslatedError error = TranslateCurrentException(statement);
    if (error.discard_connection || !driver->is_open()) usable = false;
    return std::move(error.status);
  }
};

Connection::Connection(std::unique_ptr<Rep> rep) : rep_(std::move(rep)) {}
Connection::~Connection() = default;

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(
    const ConnectionOptions& options) {
  auto rep = std::make_unique<Rep>();
  try {
    rep->driver = std::make_unique<pqxx::connection>(CompleteConninfo(options));
#if PQXX_VERSION_MAJOR < 7
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    // 6.4 would re-open a lost session behind our back, without its settings.
    rep->driver->inhibit_reactivation(true);
#pragma GCC diagnostic pop
#endif
  } catch (const std::exception& e) {
    log::Warning("cannot connect to the database", {{"detail", e.what()}});
    return DatabaseUnavailableError("cannot connect to the database");
  }
  std::unique_ptr<Connection> connection(new Connection(std::move(rep)));
  // set_config answers with the value in force, so one round trip both sets
  // and asserts. Milliseconds, because that is the unit of the settings.
  const auto milliseconds = [](absl::Duration d) {
    return absl::StrCat(absl::ToInt64Milliseconds(d), "ms");
  };
  ASSIGN_OR_RETURN(
      const Result result,
      connection->Execute(
          kConfigureSession,
          MakeParams(milliseconds(options.statement_timeout),
                     milliseconds(options.lock_timeout),
                     milliseconds(options.idle_in_transaction_timeout))));
  if (result.size() != 1 || !result[0].Bool("in_force") ||
      !result.status().ok()) {
    return DatabaseUnavailableError(
        "a database session did not take its settings (is a pooler between "
        "that drops them?)");
  }
  return connection;
}

absl::StatusOr<Result> Connection::Execute(const Statement& statement,
                                           const Params& params) {
  if (HoldsNul(params)) return SqlErrorStatus(kNulInText, statement.name);
  try {
    pqxx::nontransaction tx(*rep_->driver);
    return Result(
        std::make_shared<Result::Rep>(rep_->Run(tx, statement, params)));
  } catch (...) {
    return rep_->Failed(statement.name);
  }
}

absl::Status Connection::ExecuteScript(absl::string_view name,
                                       absl::string_view sql) {
  try {
    pqxx::nontransaction tx(*rep_->driver);
    tx.exec(std::string(sql));
    return absl::OkStatus();
  } catch (...) {
    return rep_->Failed(name);
  }
}

bool Connection::usable() const {
  return rep_->usable && rep_->driver->is_open();
}

bool Connection::HasUnexpectedInput() const {
  return rep_->HasUnexpectedInput();
}

int Connection::backend_pid() const { return rep_->driver->backendpid(); }

struct Transaction::Rep {
  Connection::Rep& connection;
  std::unique_ptr<pqxx::work> work;
  bool failed = false;
};

Transaction::Transaction(std::unique_ptr<Rep> rep) : rep_(std::move(rep)) {}

Transaction::~Transaction() {
  try {
    rep_->work.reset();
  } catch (...) {
    // An abort that fails leaves a session nobody may use again.
    rep_->connection.usable = false;
  }
}

absl::StatusOr<std::unique_ptr<Transaction>> Transaction::Begin(
    Connection& connection) {
  Connection::Rep& rep = *connection.rep_;
  try {
    auto work = std::make_unique<pqxx::work>(*rep.driver);
    return std::unique_ptr<Transaction>(
        new Transaction(std::unique_ptr<Rep>(new Rep{rep, std::move(work)})));
  } catch (...) {
    return rep.Failed("begin");
  }
}

absl::StatusOr<Result> Transaction::Execute(const Statement& statement,
                                            const Params& params) {
  if (rep_->failed) {
    return InternalError(
        absl::StrCat("statement ", statement.name, " in a failed transaction"));
  }
  if (HoldsNul(params)) {
    rep_->failed = true;
    return SqlErrorStatus(kNulInText, statement.name);
  }
  try {
    return Result(std::make_shared<Result::Rep>(
        rep_->connection.Run(*rep_->work, statement, params)));
  } catch (...) {
    rep_->failed = true;
    return rep_->connection.Failed(statement.name);
  }
}

absl::Status Transaction::ExecuteScript(absl::string_view name,
                                        absl::string_view sql) {
  if (rep_->failed) return InternalError("script in a failed transaction");
  try {
    rep_->work->exec(std::string(sql));
    return absl::OkStatus();
  } catch (...) {
    rep_->failed = true;
    return rep_->connection.Failed(name);
  }
}

absl::Status Transaction::Commit() {
  if (rep_->failed) return InternalError("commit of a failed transaction");
  rep_->failed = true;  // Whatever happens, nothing more runs in it.
  // A session that said goodbye before COMMIT was sent cannot have committed.
  if (rep_->connection.HasUnexpectedInput()) {
    rep_->connection.usable = false;
    return SqlErrorStatus("08006", "commit");
  }
  try {
    rep_->work->commit();
    return absl::OkStatus();
  } catch (const pqxx::in_doubt_error&) {
    rep_->connection.usable = false;
    return CommitUnknownError();
  } catch (...) {
    const absl::Status status = rep_->connection.Failed("commit");
    // A session that ended while COMMIT was under way may have committed; only
    // an ordinary error of a live session says that it did not.
    return rep_->connection.usable ? status : CommitUnknownError();
  }
}

}  // namespace tenure::db
