#include "tests/support/test_database.h"

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/barrier.h"
#include "tests/support/process.h"
#include "tests/support/status_matchers.h"

namespace tenure::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TestDatabase, IsAnIsolatedCloneThatIsDroppedWhileInUse) {
  ASSERT_OK_AND_ASSIGN(const PgCluster* cluster, PgCluster::Get());
  std::unique_ptr<Session> session;
  std::string name;
  {
    ASSERT_OK_AND_ASSIGN(const auto database, TestDatabase::Create());
    ASSERT_OK_AND_ASSIGN(const auto other, TestDatabase::Create());
    name = database->name();
    ASSERT_OK_AND_ASSIGN(session, database->OpenSession());
    ASSERT_OK(session->Exec("CREATE TABLE only_here (n int)"));

    EXPECT_THAT(ExecOnce(other->conninfo(), "SELECT * FROM only_here"),
                StatusIs(absl::StatusCode::kUnknown));
    EXPECT_THAT(session->Scalar("SELECT current_database()"),
                IsOkAndHolds(name));
  }

  EXPECT_THAT(session->Exec("SELECT 1"),
              StatusIs(absl::StatusCode::kUnavailable));
  ASSERT_OK_AND_ASSIGN(
      const SqlRows rows,
      ExecOnce(cluster->Conninfo("postgres"),
               "SELECT count(*) FROM pg_database WHERE datname = $1", {name}));
  EXPECT_EQ(rows[0][0], "0");
}

TEST(TestDatabase, IsReachedOverTheUnixSocketToo) {
  ASSERT_OK_AND_ASSIGN(const auto database, TestDatabase::Create());

  EXPECT_THAT(ExecOnce(database->socket_conninfo(),
                       "SELECT inet_server_addr() IS NULL"),
              IsOkAndHolds(ElementsAre(ElementsAre("t"))));
  EXPECT_THAT(ExecOnce(database->conninfo(), "SELECT host(inet_server_addr())"),
              IsOkAndHolds(ElementsAre(ElementsAre("127.0.0.1"))));
}

TEST(TestDatabase, MovesTheSqlClockOfNewSessionsOnly) {
  ASSERT_OK_AND_ASSIGN(const auto database, TestDatabase::Create());
  ASSERT_OK_AND_ASSIGN(const auto before, database->OpenSession());
  const std::string offset =
      "SELECT extract(epoch FROM tenure_now() - statement_timestamp())";

  ASSERT_OK(
      database->SetClockOffset(-absl::Hours(24 * 40) - absl::Microseconds(1)));
  ASSERT_OK_AND_ASSIGN(const auto after, database->OpenSession());

  EXPECT_THAT(before->Scalar(offset), IsOkAndHolds("0.000000"));
  EXPECT_THAT(after->Scalar(offset), IsOkAndHolds("-3456000.000001"));
}

// The other side of ClonesInSeveralProcessesAtOnce; alone it proves little.
TEST(TestDatabase, ClonesInSeveralThreadsAtOnce) {
  constexpr int kThreads = 4;
  Barrier barrier(kThreads);
  std::vector<absl::Status> results(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&barrier, &result = results[i]] {
      if (!barrier.ArriveAndWait()) return;
      for (int round = 0; round < 2; ++round) {
        result.Update(TestDatabase::Create().status());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  for (const absl::Status& result : results) EXPECT_OK(result);
}

TEST(TestDatabase, ClonesInSeveralProcessesAtOnce) {
  ASSERT_OK_AND_ASSIGN(const PgCluster* cluster, PgCluster::Get());
  std::vector<std::unique_ptr<Process>> children;
  for (int i = 0; i < 3; ++i) {
    ProcessOptions options;
    options.args = {"--gtest_filter=TestDatabase.ClonesInSeveralThreadsAtOnce"};
    options.env = {{"TENURE_TEST_PG_DIR", cluster->env_dir()}};
    ASSERT_OK_AND_ASSIGN(auto child, Process::Start("/proc/self/exe", options));
    children.push_back(std::move(child));
  }

  for (const auto& child : children) {
    EXPECT_THAT(child->Wait(), IsOkAndHolds(ExitStatus{})) << child->Output();
    EXPECT_THAT(child->Output(), HasSubstr("[  PASSED  ] 1 test"));
  }
}

TEST(TestDatabase, WaitUntilBlockedSeesALockWait) {
  ASSERT_OK_AND_ASSIGN(const auto database, TestDatabase::Create());
  ASSERT_OK_AND_ASSIGN(const auto holder, database->OpenSession());
  ASSERT_OK_AND_ASSIGN(const auto waiter, database->OpenSession());
  ASSERT_OK(holder->Exec("CREATE TABLE t AS SELECT 1 AS n"));
  ASSERT_OK(holder->Exec("BEGIN; UPDATE t SET n = 2"));

  ASSERT_OK(waiter->Send("UPDATE t SET n = n + 10 RETURNING n"));
  EXPECT_OK(database->WaitUntilBlocked(waiter->backend_pid()));
  // A lock held is not a lock waited for.
  EXPECT_THAT(
      database->WaitUntilBlocked(holder->backend_pid(), absl::ZeroDuration()),
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("UPDATE t")));

  ASSERT_OK(holder->Exec("COMMIT"));
  EXPECT_THAT(waiter->Receive(), IsOkAndHolds(ElementsAre(ElementsAre("12"))));
  EXPECT_THAT(database->WaitUntilBlocked(1),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST(TestDatabase, TerminateSessionsEndsThemAll) {
  ASSERT_OK_AND_ASSIGN(const auto database, TestDatabase::Create());
  ASSERT_OK_AND_ASSIGN(const auto session, database->OpenSession());

  ASSERT_OK(database->TerminateSessions());

  const absl::Status status = session->Exec("SELECT 1").status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(SqlState(status), "57P01");
}

TEST(Session, ReturnsRowsWithNullsAndTakesParameters) {
  ASSERT_OK_AND_ASSIGN(const auto database, TestDatabase::Create());
  ASSERT_OK_AND_ASSIGN(const auto session, database->OpenSession());

  EXPECT_THAT(
      session->Exec("SELECT $1::int + 1, $2::text, ''", {"41", std::nullopt}),
      IsOkAndHolds(ElementsAre(ElementsAre("42", std::nullopt, ""))));
  EXPECT_THAT(session->Scalar("SELECT 1 WHERE false"),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(session->Scalar("SELECT NULL"),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(Session, CarriesTheSqlStateAndGoesOnAfterAnError) {
  ASSERT_OK_AND_ASSIGN(const auto database, TestDatabase::Create());
  ASSERT_OK_AND_ASSIGN(const auto session, database->OpenSession());

  const absl::Status error = session->Exec("SELECT 1/0").status();

  EXPECT_EQ(SqlState(error), "22012");
  EXPECT_THAT(session->Scalar("SELECT 7"), IsOkAndHolds("7"));
}

TEST(Session, LeavesAStatementUnderWayAfterItsDeadlineAndCancelsItOnDemand) {
  ASSERT_OK_AND_ASSIGN(const auto database, TestDatabase::Create());
  ASSERT_OK_AND_ASSIGN(const auto session, database->OpenSession());
  ASSERT_OK_AND_ASSIGN(const auto observer, database->OpenSession());

  EXPECT_THAT(session->Exec("SELECT pg_sleep(600)", {}, absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(session->Receive(absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  ASSERT_OK(
      observer->AwaitTrue("SELECT EXISTS (SELECT FROM pg_stat_activity"
                          " WHERE pid = $1 AND wait_event = 'PgSleep')",
                          {absl::StrCat(session->backend_pid())}));

  ASSERT_OK(session->Cancel());
  EXPECT_EQ(SqlState(session->Receive().status()), "57014");
  EXPECT_THAT(session->Scalar("SELECT 7"), IsOkAndHolds("7"));
}

TEST(Session, AwaitTrueSeesWhatAnotherSessionBringsAbout) {
  ASSERT_OK_AND_ASSIGN(const auto database, TestDatabase::Create());
  ASSERT_OK_AND_ASSIGN(const auto writer, database->OpenSession());
  ASSERT_OK_AND_ASSIGN(const auto reader, database->OpenSession());
  ASSERT_OK(writer->Exec("CREATE TABLE t (n int)"));

  ASSERT_OK(writer->Send("SELECT pg_sleep(0.02); INSERT INTO t VALUES (1)"));
  EXPECT_OK(reader->AwaitTrue("SELECT count(*) = 1 FROM t"));

  EXPECT_OK(writer->Receive());
  EXPECT_THAT(reader->AwaitTrue("SELECT false", {}, absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

}  // namespace
}  // namespace tenure::test
