// Pool, Connection and Transaction against a real server and broken networks.
#include "common/db/pool.h"

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/db/sql_error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/barrier.h"
#include "tests/support/fault_proxy.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"
#include "tests/support/test_signal.h"

namespace tenure::db {
namespace {

using ::tenure::test::Barrier;
using ::tenure::test::FaultProxy;
using ::tenure::test::HasReason;
using ::tenure::test::IsOk;
using ::tenure::test::IsOkAndHolds;
using ::tenure::test::kPatience;
using ::tenure::test::Session;
using ::tenure::test::StatusIs;
using ::tenure::test::TestDatabase;
using ::tenure::test::TestSignal;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Statement kOne{"one", "SELECT 1 AS n"};
constexpr Statement kInsert{"insert_row", "INSERT INTO t VALUES ($1)"};
constexpr Statement kDivide{"divide", "SELECT 1 / $1::int AS n"};
constexpr Statement kSleep{"sleep", "SELECT pg_sleep(60)"};
// Fails with the SQLSTATE $2 in its first $1 executions.
constexpr Statement kFailTimes{"fail_times", "SELECT fail_times($1, $2, $3)"};
// Ends its own session in the middle of its first execution.
constexpr Statement kDieOnce{
    "die_once",
    "SELECT CASE WHEN nextval('runs') = 1"
    " THEN pg_terminate_backend(pg_backend_pid())::text || pg_sleep(60)::text"
    " ELSE 'alive' END AS v"};
constexpr Statement kSettings{
    "settings",
    "SELECT current_setting('statement_timeout') AS statement_timeout,"
    " current_setting('lock_timeout') AS lock_timeout,"
    " current_setting('idle_in_transaction_session_timeout') AS idle_timeout,"
    " current_setting('TimeZone') AS time_zone,"
    " current_setting('DateStyle') AS date_style,"
    " current_setting('bytea_output') AS bytea_output,"
    " current_setting('transaction_isolation') AS isolation,"
    " pg_backend_pid() AS pid"};

constexpr char kSetup[] = R"(
CREATE TABLE t (n int PRIMARY KEY);
CREATE TABLE pair (id int PRIMARY KEY, hits int NOT NULL);
INSERT INTO pair VALUES (1, 0), (2, 0);
CREATE SEQUENCE runs;
CREATE FUNCTION fail_times(times int, state text, message text) RETURNS int
  LANGUAGE plpgsql AS $$
BEGIN
  IF nextval('runs') <= times THEN
    RAISE EXCEPTION '%', message USING ERRCODE = state;
  END IF;
  RETURN 1;
END $$;
)";

class PoolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    ASSERT_OK_AND_ASSIGN(control_, database_->OpenSession());
    ASSERT_OK(control_->Exec(kSetup));
  }

  PoolOptions Options(int size) const {
    PoolOptions options;
    options.connection.conninfo = database_->conninfo();
    options.connection.application_name = "pool test";
    options.connection.statement_timeout = absl::Milliseconds(20500);
    options.connection.lock_timeout = absl::Seconds(4);
    options.connection.idle_in_transaction_timeout = absl::Seconds(30);
    options.size = size;
    options.acquire_timeout = kPatience;
    return options;
  }

  PoolOptions OptionsThrough(const FaultProxy& proxy, int size) const {
    PoolOptions options = Options(size);
    options.connection.conninfo = proxy.Through(database_->conninfo());
    return options;
  }

  // Ends every session of the pool under test, and returns once they are gone.
  absl::Status TerminatePoolSessions() {
    return control_
        ->Exec(
            "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity"
            " WHERE datname = current_database()"
            " AND application_name = 'pool test'")
        .status();
  }

  absl::Status Terminate(int pid) {
    return control_
        ->Exec("SELECT pg_terminate_backend($1::int, 30000)",
               {absl::StrCat(pid)})
        .status();
  }

  // The rows of t once nobody but this test is connected: whatever a broken
  // session did is settled then.
  std::string SettledRows() {
    const absl::Status settled = control_->AwaitTrue(
        "SELECT count(*) = 0 FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend' AND state <> 'idle'");
    if (!settled.ok()) return settled.ToString();
    return Rows();
  }

  std::string Rows() {
    const absl::StatusOr<std::string> rows = control_->Scalar(
        "SELECT coalesce(string_agg(n::text, ',' ORDER BY n), '') FROM t");
    return rows.ok() ? *rows : rows.status().ToString();
  }

  static void ExpectConfigured(Connection& connection) {
    ASSERT_OK_AND_ASSIGN(const Result result, connection.Execute(kSettings));
    const Row row = result[0];
    EXPECT_EQ(row.Text("statement_timeout"), "20500ms");
    EXPECT_EQ(row.Text("lock_timeout"), "4s");
    EXPECT_EQ(row.Text("idle_timeout"), "30s");
    EXPECT_EQ(row.Text("time_zone"), "UTC");
    EXPECT_EQ(row.Text("date_style"), "ISO, YMD");
    EXPECT_EQ(row.Text("bytea_output"), "hex");
    EXPECT_EQ(row.Text("isolation"), "read committed");
    EXPECT_EQ(row.Int64("pid"), connection.backend_pid());
    EXPECT_OK(result.status());
  }

  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<Session> control_;
};

TEST_F(PoolTest, D14_TheLogShowsNoRow) {
  Pool pool(Options(1));
  ASSERT_OK(pool.Execute(kInsert, MakeParams(424242)));
  ::testing::internal::CaptureStderr();
  const absl::Status again = pool.Execute(kInsert, MakeParams(424242)).status();
  const std::string text = ::testing::internal::GetCapturedStderr();

  EXPECT_EQ(SqlStateOf(again), "23505");
  EXPECT_THAT(text, HasSubstr("duplicate key value violates"));
  EXPECT_THAT(text, Not(HasSubstr("424242")));
}

TEST_F(PoolTest, ReusesASessionAndItsPreparedStatements) {
  Pool pool(Options(4));
  for (int i = 0; i < 3; ++i) EXPECT_THAT(pool.Execute(kOne), IsOk());
  EXPECT_EQ(pool.stats().opened_total, 1);
  EXPECT_EQ(pool.stats().open, 1);
  EXPECT_EQ(pool.stats().in_use, 0);
  EXPECT_EQ(pool.stats().discarded_total, 0);
}

TEST_F(PoolTest, C104_SessionsTerminatedWhileIdleAreReplacedWithTheirSettings) {
  constexpr int kSize = 3;
  Pool pool(Options(kSize));
  std::set<int> old_pids;
  const auto hold_all = [&pool](auto each) {
    std::vector<Pool::Lease> leases;
    for (int i = 0; i < kSize; ++i) {
      auto lease = pool.Acquire();
      ASSERT_THAT(lease, IsOk());
      leases.push_back(*std::move(lease));
    }
    for (Pool::Lease& lease : leases) each(*lease);
  };
  hold_all([&](Connection& connection) {
    ExpectConfigured(connection);
    old_pids.insert(connection.backend_pid());
  });
  ASSERT_EQ(old_pids.size(), size_t{kSize});
  ASSERT_OK(TerminatePoolSessions());

  hold_all([&](Connection& connection) {
    EXPECT_EQ(old_pids.count(connection.backend_pid()), 0u);
    ExpectConfigured(connection);
  });
  EXPECT_EQ(pool.stats().opened_total, 2 * kSize);
  EXPECT_EQ(pool.stats().discarded_total, kSize);
  EXPECT_EQ(pool.stats().open, kSize);
}

TEST_F(PoolTest, C104_ASessionTerminatedOnLoanIsNeverRepaired) {
  Pool pool(Options(1));
  int pid = 0;
  {
    ASSERT_OK_AND_ASSIGN(Pool::Lease lease, pool.Acquire());
    ASSERT_THAT(lease->Execute(kOne), IsOk());
    pid = lease->backend_pid();
    ASSERT_OK(Terminate(pid));
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(lease->Execute(kOne),
                  StatusIs(absl::StatusCode::kUnavailable));
      EXPECT_FALSE(lease->usable());
    }
  }
  ASSERT_OK_AND_ASSIGN(Pool::Lease lease, pool.Acquire());
  EXPECT_NE(lease->backend_pid(), pid);
  ExpectConfigured(*lease);
}

TEST_F(PoolTest, C104_ARepeatableStatementSurvivesTheEndOfItsSession) {
  Pool pool(Options(2));
  ASSERT_OK_AND_ASSIGN(const Result result, pool.Execute(kDieOnce));
  EXPECT_EQ(result[0].Text("v"), "alive");
  EXPECT_EQ(pool.stats().opened_total, 2);
  EXPECT_EQ(pool.stats().discarded_total, 1);
}

TEST_F(PoolTest, C104_ATransactionSurvivesTheEndOfItsSessionMidStatement) {
  Pool pool(Options(2));
  int runs = 0;
  std::vector<absl::Status> seen;
  EXPECT_OK(pool.RunTransaction([&](Transaction& tx) -> absl::Status {
    ++runs;
    RETURN_IF_ERROR(tx.Execute(kInsert, MakeParams(runs)).status());
    seen.push_back(tx.Execute(kDieOnce).status());
    return seen.back();
  }));
  EXPECT_EQ(runs, 2);
  EXPECT_THAT(seen[0], StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(seen[0],
              HasReason(common::v1::ERROR_REASON_DATABASE_UNAVAILABLE));
  EXPECT_EQ(Rows(), "2");
}

TEST_F(PoolTest, C104_DefaultsOfRoleAndDatabaseHaveNoEffect) {
  for (const char* target :
       {"DATABASE %s", "ROLE CURRENT_USER IN DATABASE %s"}) {
    const std::string alter = absl::StrCat(
        "ALTER ", absl::StrReplaceAll(target, {{"%s", database_->name()}}),
        " SET ");
    ASSERT_OK(control_->Exec(absl::StrCat(alter, "TimeZone='Asia/Shanghai'")));
    ASSERT_OK(control_->Exec(absl::StrCat(alter, "DateStyle='German'")));
    ASSERT_OK(control_->Exec(absl::StrCat(alter, "statement_timeout=0")));
    ASSERT_OK(control_->Exec(absl::StrCat(alter, "lock_timeout='7d'")));
    ASSERT_OK(control_->Exec(absl::StrCat(alter, "bytea_output='escape'")));
    ASSERT_OK(control_->Exec(
        absl::StrCat(alter, "default_transaction_isolation='serializable'")));
    Pool pool(Options(1));
    ASSERT_OK_AND_ASSIGN(Pool::Lease lease, pool.Acquire());
    ExpectConfigured(*lease);
  }
}

TEST_F(PoolTest, C104_ASessionThatDoesNotTakeItsSettingsIsRefused) {
  // A set_config that only says what is in force, as behind a pooler that
  // drops what it does not know.
  ASSERT_OK(control_->Exec(
      "CREATE SCHEMA dropping;"
      "CREATE FUNCTION dropping.set_config(text, text, boolean) RETURNS text"
      " LANGUAGE sql AS $$ SELECT current_setting($1) $$"));
  ASSERT_OK(control_->Exec(
      absl::StrCat("ALTER DATABASE ", database_->name(),
                   " SET search_path = dropping, pg_catalog, public")));
  Pool pool(Options(1));
  EXPECT_THAT(pool.Execute(kOne),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("did not take its settings")));
  EXPECT_EQ(pool.stats().open, 0);

  ASSERT_OK(control_->Exec(absl::StrCat("ALTER DATABASE ", database_->name(),
                                        " RESET search_path")));
  EXPECT_THAT(pool.Execute(kOne), IsOk());
}

TEST_F(PoolTest, RefusesAboveItsLimit) {
  PoolOptions options = Options(2);
  options.acquire_timeout = absl::Milliseconds(20);
  Pool pool(options);
  {
    ASSERT_OK_AND_ASSIGN(const Pool::Lease first, pool.Acquire());
    ASSERT_OK_AND_ASSIGN(const Pool::Lease second, pool.Acquire());
    const absl::Status third = pool.Acquire().status();
    EXPECT_THAT(third, StatusIs(absl::StatusCode::kResourceExhausted));
    EXPECT_THAT(third, HasReason(common::v1::ERROR_REASON_OVERLOADED));
    EXPECT_THAT(pool.Execute(kOne),
                StatusIs(absl::StatusCode::kResourceExhausted));
    EXPECT_THAT(pool.RunTransaction([](Transaction&) {
      ADD_FAILURE() << "ran without a session";
      return absl::OkStatus();
    }),
                StatusIs(absl::StatusCode::kResourceExhausted));
    EXPECT_EQ(pool.stats().in_use, 2);
  }
  EXPECT_EQ(pool.stats().in_use, 0);
  EXPECT_THAT(pool.Execute(kOne), IsOk());
  EXPECT_EQ(pool.stats().opened_total, 2);
}

TEST_F(PoolTest, WaitsForAReturnedSession) {
  Pool pool(Options(1));
  std::optional<Pool::Lease> held;
  {
    ASSERT_OK_AND_ASSIGN(Pool::Lease lease, pool.Acquire());
    held.emplace(std::move(lease));
  }
  TestSignal about_to_wait;
  absl::Status outcome = absl::UnknownError("not run");
  std::thread waiter([&] {
    about_to_wait.Notify();
    outcome = pool.Execute(kOne).status();
  });
  EXPECT_TRUE(about_to_wait.Await());
  held.reset();
  waiter.join();
  EXPECT_OK(outcome);
  EXPECT_EQ(pool.stats().opened_total, 1);
}

TEST_F(PoolTest, ManyThreadsShareFewSessions) {
  constexpr int kThreads = 8;
  constexpr int kEach = 25;
  Pool pool(Options(3));
  Barrier barrier(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_TRUE(barrier.ArriveAndWait());
      for (int k = 0; k < kEach; ++k) {
        EXPECT_OK(pool.RunTransaction([&](Transaction& tx) {
          return tx.Execute(kInsert, MakeParams(i * kEach + k)).status();
        }));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(control_->Scalar("SELECT count(*) FROM t"),
              IsOkAndHolds(absl::StrCat(kThreads * kEach)));
  EXPECT_LE(pool.stats().opened_total, 3);
  EXPECT_EQ(pool.stats().in_use, 0);
}

TEST_F(PoolTest, AnswersUnavailableWhileTheDatabaseIsAwayAndRecovers) {
  ASSERT_OK_AND_ASSIGN(const auto proxy,
                       FaultProxy::Start(database_->conninfo()));
  Pool pool(OptionsThrough(*proxy, 2));
  ASSERT_THAT(pool.Execute(kOne), IsOk());

  proxy->Refuse(true);
  proxy->CutNow();
  for (int i = 0; i < 5; ++i) {
    const absl::Status status = pool.Execute(kOne).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_THAT(status,
                HasReason(common::v1::ERROR_REASON_DATABASE_UNAVAILABLE));
    EXPECT_THAT(
        pool.RunTransaction([](Transaction&) { return absl::OkStatus(); }),
        StatusIs(absl::StatusCode::kUnavailable));
  }
  // Failed attempts hold no place.
  EXPECT_EQ(pool.stats().in_use, 0);
  EXPECT_EQ(pool.stats().open, 0);

  proxy->Heal();
  EXPECT_THAT(pool.Execute(kOne), IsOk());
}

TEST_F(PoolTest, AnswersUnavailableWhenTheDatabaseIsSilent) {
  ASSERT_OK_AND_ASSIGN(const auto proxy,
                       FaultProxy::Start(database_->conninfo()));
  PoolOptions options = OptionsThrough(*proxy, 1);
  options.connection.connect_timeout = absl::Seconds(1);
  Pool pool(options);
  proxy->BlackHole(true);
  EXPECT_THAT(pool.Execute(kOne), StatusIs(absl::StatusCode::kUnavailable));
  proxy->Heal();
  EXPECT_THAT(pool.Execute(kOne), IsOk());
}

TEST_F(PoolTest, ConnectionErrorsGiveNothingAway) {
  PoolOptions options = Options(1);
  options.connection.conninfo =
      "host=127.0.0.1 port=1 user=somebody dbname=private";
  options.connection.password = "it's a \\ secret";
  const absl::Status status = Pool(options).Execute(kOne).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                               "cannot connect to the database"));
}

TEST_F(PoolTest, StatementTimeoutLeavesTheSessionUsable) {
  PoolOptions options = Options(1);
  options.connection.statement_timeout = absl::Milliseconds(50);
  Pool pool(options);
  ASSERT_OK_AND_ASSIGN(Pool::Lease lease, pool.Acquire());
  const absl::Status status = lease->Execute(kSleep).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(status, HasReason(common::v1::ERROR_REASON_DEADLINE_EXCEEDED));
  EXPECT_TRUE(lease->usable());
  EXPECT_THAT(lease->Execute(kOne), IsOk());
}

TEST_F(PoolTest, LockTimeoutLeavesTheSessionUsable) {
  PoolOptions options = Options(1);
  options.connection.lock_timeout = absl::Milliseconds(50);
  Pool pool(options);
  ASSERT_OK(control_->Exec("BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE"));
  int runs = 0;
  const absl::Status status = pool.RunTransaction([&](Transaction& tx) {
    ++runs;
    return tx.Execute(kInsert, MakeParams(1)).status();
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(SqlStateOf(status), "55P03");
  EXPECT_EQ(runs, 1);
  ASSERT_OK(control_->Exec("ROLLBACK"));
  // Also the statement whose preparing was what failed.
  EXPECT_THAT(pool.Execute(kInsert, MakeParams(1)), IsOk());
  EXPECT_EQ(pool.stats().opened_total, 1);
}

TEST_F(PoolTest, AForgottenTransactionIsEndedByTheServer) {
  PoolOptions options = Options(1);
  options.connection.idle_in_transaction_timeout = absl::Milliseconds(50);
  Pool pool(options);
  {
    ASSERT_OK_AND_ASSIGN(Pool::Lease lease, pool.Acquire());
    ASSERT_OK_AND_ASSIGN(const auto tx, Transaction::Begin(*lease));
    ASSERT_THAT(tx->Execute(kInsert, MakeParams(1)), IsOk());
    ASSERT_OK(control_->AwaitTrue(
        "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $1",
        {absl::StrCat(lease->backend_pid())}));
    EXPECT_THAT(tx->Execute(kOne), StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_THAT(tx->Commit(), Not(IsOk()));
    EXPECT_FALSE(lease->usable());
  }
  EXPECT_EQ(Rows(), "");
  EXPECT_THAT(pool.Execute(kInsert, MakeParams(2)), IsOk());
}

TEST_F(PoolTest, C105_AReadOnlyServerTakesNoSession) {
  ASSERT_OK(
      control_->Exec(absl::StrCat("ALTER DATABASE ", database_->name(),
                                  " SET default_transaction_read_only = on")));
  Pool pool(Options(1));
  EXPECT_THAT(pool.Execute(kOne), StatusIs(absl::StatusCode::kUnavailable));
  ASSERT_OK(
      control_->Exec(absl::StrCat("ALTER DATABASE ", database_->name(),
                                  " RESET default_transaction_read_only")));
  EXPECT_THAT(pool.Execute(kOne), IsOk());
}

TEST_F(PoolTest, C105_ASessionThatBecameReadOnlyIsReplaced) {
  Pool pool(Options(1));
  {
    ASSERT_OK_AND_ASSIGN(Pool::Lease lease, pool.Acquire());
    ASSERT_OK(lease->ExecuteScript("demote",
                                   "SET default_transaction_read_only = on"));
    // Reads still work, so no probe would notice.
    ASSERT_THAT(lease->Execute(kOne), IsOk());
  }
  int runs = 0;
  EXPECT_OK(pool.RunTransaction([&](Transaction& tx) {
    ++runs;
    return tx.Execute(kInsert, MakeParams(runs)).status();
  }));
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(Rows(), "2");
  EXPECT_EQ(pool.stats().discarded_total, 1);
}

// Transactions.

TEST_F(PoolTest, C102_SerializationFailuresRepeatTheWholeBody) {
  Pool pool(Options(1));
  struct {
    const char* sqlstate;
    const char* message;
  } const cases[] = {
      {"40001", "could not serialize access due to concurrent update"},
      {"40001",
       "tuple to be locked was already moved to another partition due to"
       " concurrent update"},
      {"40P01", "deadlock detected"}};
  int row = 0;
  for (const auto& c : cases) {
    SCOPED_TRACE(c.message);
    ASSERT_OK(control_->Exec("SELECT setval('runs', 1, false)"));
    int runs = 0;
    ++row;
    EXPECT_OK(pool.RunTransaction([&](Transaction& tx) -> absl::Status {
      ++runs;
      RETURN_IF_ERROR(tx.Execute(kInsert, MakeParams(row)).status());
      return tx.Execute(kFailTimes, MakeParams(2, c.sqlstate, c.message))
          .status();
    }));
    EXPECT_EQ(runs, 3);
  }
  EXPECT_EQ(Rows(), "1,2,3");
  EXPECT_EQ(pool.stats().opened_total, 1);
}

TEST_F(PoolTest, GivesUpAfterItsAttempts) {
  Pool pool(Options(1));
  int runs = 0;
  const absl::Status status = pool.RunTransaction([&](Transaction& tx)
                                                      -> absl::Status {
    ++runs;
    RETURN_IF_ERROR(tx.Execute(kInsert, MakeParams(1)).status());
    return tx.Execute(kFailTimes, MakeParams(1000, "40001", "again")).status();
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(status, HasReason(common::v1::ERROR_REASON_CONFLICT));
  EXPECT_EQ(runs, Pool::kMaxAttempts);
  EXPECT_EQ(Rows(), "");
}

TEST_F(PoolTest, OtherErrorsAreNotRepeated) {
  Pool pool(Options(1));
  for (const char* sqlstate :
       {"23505", "22003", "55P03", "57014", "42601", "53200", "P0001"}) {
    SCOPED_TRACE(sqlstate);
    int runs = 0;
    const absl::Status status = pool.RunTransaction([&](Transaction& tx) {
      ++runs;
      return tx.Execute(kFailTimes, MakeParams(1000, sqlstate, "no")).status();
    });
    EXPECT_EQ(SqlStateOf(status), sqlstate);
    EXPECT_EQ(runs, 1);
  }
  // Nor is a refusal of the body's own.
  int runs = 0;
  EXPECT_THAT(pool.RunTransaction([&](Transaction& tx) -> absl::Status {
    ++runs;
    RETURN_IF_ERROR(tx.Execute(kInsert, MakeParams(1)).status());
    return absl::FailedPreconditionError("not allowed");
  }),
              StatusIs(absl::StatusCode::kFailedPrecondition, "not allowed"));
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(Rows(), "");
  EXPECT_EQ(pool.stats().opened_total, 1);
}

TEST_F(PoolTest, BothSidesOfARealDeadlockFinish) {
  static constexpr Statement kHit{
      "hit", "UPDATE pair SET hits = hits + 1 WHERE id = $1"};
  Pool pool(Options(2));
  Barrier both_hold_one(2);
  std::atomic<int> runs{0};
  const auto cross = [&](int first, int second) {
    bool met = false;
    EXPECT_OK(pool.RunTransaction([&](Transaction& tx) -> absl::Status {
      ++runs;
      RETURN_IF_ERROR(tx.Execute(kHit, MakeParams(first)).status());
      if (!std::exchange(met, true)) {
        EXPECT_TRUE(both_hold_one.ArriveAndWait());
      }
      return tx.Execute(kHit, MakeParams(second)).status();
    }));
  };
  std::thread other([&] { cross(2, 1); });
  cross(1, 2);
  other.join();
  // At least one was a victim; its second try may meet the other one again.
  EXPECT_GE(runs.load(), 3);
  EXPECT_THAT(control_->Scalar("SELECT string_agg(hits::text, ',') FROM pair"),
              IsOkAndHolds("2,2"));
}

TEST_F(PoolTest, C100_AFailedTransactionTakesNoFurtherStatement) {
  Pool pool(Options(1));
  for (const char* sqlstate : {"40001", "40P01", "55P03", "57014", "23505"}) {
    SCOPED_TRACE(sqlstate);
    ASSERT_OK_AND_ASSIGN(Pool::Lease lease, pool.Acquire());
    {
      ASSERT_OK_AND_ASSIGN(const auto tx, Transaction::Begin(*lease));
      ASSERT_THAT(tx->Execute(kInsert, MakeParams(1)), IsOk());
      ASSERT_THAT(tx->Execute(kFailTimes, MakeParams(1000, sqlstate, "no")),
                  Not(IsOk()));
      // Refused here: the server would answer 25P02, or a silent ROLLBACK.
      for (const absl::Status& status :
           {tx->Execute(kOne).status(), tx->ExecuteScript("script", "SELECT 1"),
            tx->Commit(), tx->Commit()}) {
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal));
        EXPECT_EQ(SqlStateOf(status), std::nullopt);
      }
    }
    EXPECT_TRUE(lease->usable());
    EXPECT_THAT(lease->Execute(kOne), IsOk());
  }
  EXPECT_EQ(Rows(), "");
}

TEST_F(PoolTest, C100_ASwallowedErrorDoesNotPassForACommit) {
  Pool pool(Options(1));
  int runs = 0;
  const absl::Status status =
      pool.RunTransaction([&](Transaction& tx) -> absl::Status {
        ++runs;
        RETURN_IF_ERROR(tx.Execute(kInsert, MakeParams(1)).status());
        EXPECT_THAT(tx.Execute(kDivide, MakeParams(0)), Not(IsOk()));
        return absl::OkStatus();
      });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal));
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(Rows(), "");
}

TEST_F(PoolTest, AFinishedTransactionTakesNothingMore) {
  Pool pool(Options(1));
  ASSERT_OK_AND_ASSIGN(Pool::Lease lease, pool.Acquire());
  ASSERT_OK_AND_ASSIGN(const auto tx, Transaction::Begin(*lease));
  ASSERT_THAT(tx->Execute(kInsert, MakeParams(1)), IsOk());
  ASSERT_OK(tx->Commit());
  EXPECT_THAT(tx->Execute(kInsert, MakeParams(2)), Not(IsOk()));
  EXPECT_THAT(tx->Commit(), Not(IsOk()));
  EXPECT_EQ(Rows(), "1");
}

TEST_F(PoolTest, ATransactionThatIsDroppedIsRolledBack) {
  Pool pool(Options(1));
  ASSERT_OK_AND_ASSIGN(Pool::Lease lease, pool.Acquire());
  {
    ASSERT_OK_AND_ASSIGN(const auto tx, Transaction::Begin(*lease));
    ASSERT_THAT(tx->Execute(kInsert, MakeParams(1)), IsOk());
  }
  EXPECT_TRUE(lease->usable());
  EXPECT_EQ(SettledRows(), "");
}

TEST_F(PoolTest, AnErrorOfCommitItselfIsAnOrdinaryError) {
  ASSERT_OK(
      control_->Exec("ALTER TABLE t DROP CONSTRAINT t_pkey,"
                     " ADD UNIQUE (n) DEFERRABLE INITIALLY DEFERRED"));
  Pool pool(Options(1));
  ASSERT_THAT(pool.Execute(kInsert, MakeParams(1)), IsOk());
  const absl::Status status = pool.RunTransaction([&](Transaction& tx) {
    return tx.Execute(kInsert, MakeParams(1)).status();
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(SqlStateOf(status), "23505");
  EXPECT_EQ(pool.stats().opened_total, 1);
  EXPECT_EQ(Rows(), "1");
}

// The outcome of COMMIT.

TEST_F(PoolTest, C103_ACutBeforeTheCommitIsUnknownAndNothingIsStored) {
  ASSERT_OK_AND_ASSIGN(const auto proxy,
                       FaultProxy::Start(database_->conninfo()));
  Pool pool(OptionsThrough(*proxy, 1));
  proxy->CutBeforeCommit();
  int runs = 0;
  const absl::Status status = pool.RunTransaction([&](Transaction& tx) {
    ++runs;
    return tx.Execute(kInsert, MakeParams(1)).status();
  });
  EXPECT_TRUE(IsCommitUnknown(status)) << status;
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(SettledRows(), "");
  EXPECT_THAT(pool.Execute(kInsert, MakeParams(2)), IsOk());
}

TEST_F(PoolTest, C103_ACutAfterTheCommitIsUnknownAndEverythingIsStored) {
  ASSERT_OK_AND_ASSIGN(const auto proxy,
                       FaultProxy::Start(database_->conninfo()));
  Pool pool(OptionsThrough(*proxy, 1));
  proxy->CutAfterCommit();
  int runs = 0;
  const absl::Status status = pool.RunTransaction([&](Transaction& tx) {
    ++runs;
    return tx.Execute(kInsert, MakeParams(1)).status();
  });
  EXPECT_TRUE(IsCommitUnknown(status)) << status;
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(SettledRows(), "1");
  EXPECT_THAT(pool.Execute(kInsert, MakeParams(2)), IsOk());
}

TEST_F(PoolTest, C103_AnOrderlyCloseAroundTheCommitIsUnknownToo) {
  ASSERT_OK_AND_ASSIGN(const auto proxy,
                       FaultProxy::Start(database_->conninfo()));
  Pool pool(OptionsThrough(*proxy, 1));
  const absl::Status status = pool.RunTransaction([&](Transaction& tx) {
    const absl::Status inserted = tx.Execute(kInsert, MakeParams(1)).status();
    // Nothing of the server's answer to COMMIT gets back.
    proxy->CutAfterBytes(FaultProxy::Direction::kToClient, 1);
    return inserted;
  });
  EXPECT_TRUE(IsCommitUnknown(status)) << status;
  proxy->Heal();
  EXPECT_EQ(SettledRows(), "1");
}

TEST_F(PoolTest, C103_ASessionThatEndedBeforeTheCommitWasSentIsRepeated) {
  Pool pool(Options(2));
  int runs = 0;
  EXPECT_OK(pool.RunTransaction([&](Transaction& tx) -> absl::Status {
    ++runs;
    RETURN_IF_ERROR(tx.Execute(kInsert, MakeParams(runs)).status());
    if (runs == 1) {
      EXPECT_OK(TerminatePoolSessions());
    }
    return absl::OkStatus();
  }));
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(SettledRows(), "2");
}

TEST_F(PoolTest, C103_EveryCommitSaysWhatIsStored) {
  // Whatever breaks, OK means stored, and an ordinary error means not stored.
  ASSERT_OK_AND_ASSIGN(const auto proxy,
                       FaultProxy::Start(database_->conninfo()));
  Pool pool(OptionsThrough(*proxy, 1));
  for (int n = 1; n <= 60; ++n) {
    switch (n % 4) {
      case 0:
        proxy->CutBeforeCommit();
        break;
      case 1:
        proxy->CutAfterCommit();
        break;
      case 2:
        proxy->CutBeforeStatement("INSERT INTO t");
        break;
      default:
        proxy->CutAfterStatement("INSERT INTO t");
    }
    const absl::Status status = pool.RunTransaction([&](Transaction& tx) {
      return tx.Execute(kInsert, MakeParams(n)).status();
    });
    ASSERT_OK(control_->AwaitTrue(
        "SELECT count(*) = 0 FROM pg_stat_activity"
        " WHERE application_name = 'pool test'"
        " AND datname = current_database() AND state <> 'idle'"));
    ASSERT_OK_AND_ASSIGN(const std::string stored,
                         control_->Scalar("SELECT count(*) FROM t WHERE n = $1",
                                          {absl::StrCat(n)}));
    EXPECT_EQ(IsCommitUnknown(status), n % 4 < 2) << n << ": " << status;
    EXPECT_EQ(status.ok(), n % 4 >= 2) << n << ": " << status;
    EXPECT_EQ(stored, n % 4 == 0 ? "0" : "1") << n << ": " << status;
    proxy->Heal();
  }
}

}  // namespace
}  // namespace tenure::db
