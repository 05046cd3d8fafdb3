#include "tests/support/fault_proxy.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace tenure::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Direction = FaultProxy::Direction;

class FaultProxyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    ASSERT_OK_AND_ASSIGN(proxy_, FaultProxy::Start(database_->conninfo()));
    ASSERT_OK_AND_ASSIGN(direct_, database_->OpenSession());
    ASSERT_OK(direct_->Exec("CREATE TABLE t (n int)"));
  }

  absl::StatusOr<std::unique_ptr<Session>> OpenThrough() {
    return Session::Open(proxy_->Through(database_->conninfo()));
  }

  // The rows of t, once no session that came through the proxy is left, so that
  // whatever it did is settled.
  std::string SettledRows() {
    const absl::Status settled = direct_->AwaitTrue(
        "SELECT count(*) = 0 FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'");
    if (!settled.ok()) return settled.ToString();
    const absl::StatusOr<std::string> rows = direct_->Scalar(
        "SELECT coalesce(string_agg(n::text, ',' ORDER BY n), '') FROM t");
    return rows.ok() ? *rows : rows.status().ToString();
  }

  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<FaultProxy> proxy_;
  std::unique_ptr<Session> direct_;
};

TEST_F(FaultProxyTest, ForwardsEverythingWithoutAFault) {
  ASSERT_OK_AND_ASSIGN(const auto session, OpenThrough());

  // 8 MB there and back: more than the proxy's buffers hold.
  const std::string big(8 << 20, 'x');
  EXPECT_THAT(session->Exec("SELECT $1::text", {big}),
              IsOkAndHolds(ElementsAre(ElementsAre(big))));
  EXPECT_THAT(session->Exec("SELECT count(*) FROM generate_series(1, 20000)"),
              IsOk());
  ASSERT_OK(session->Exec("BEGIN"));
  ASSERT_OK(session->Exec("INSERT INTO t VALUES (1)"));
  ASSERT_OK(session->Exec("COMMIT"));

  EXPECT_THAT(direct_->Scalar("SELECT n FROM t"), IsOkAndHolds("1"));
  const FaultProxy::Counters counters = proxy_->counters();
  EXPECT_EQ(counters.connections, 1);
  EXPECT_EQ(counters.open, 1);
  EXPECT_EQ(counters.statements, 5);
  EXPECT_EQ(counters.commits_seen, 1);
  EXPECT_EQ(counters.commits_answered, 1);
  EXPECT_EQ(counters.cuts, 0);
  EXPECT_GT(counters.bytes_to_client, 8 << 20);
}

TEST_F(FaultProxyTest, CutBeforeCommitLosesTheTransaction) {
  ASSERT_OK_AND_ASSIGN(const auto session, OpenThrough());
  ASSERT_OK(session->Exec("BEGIN; INSERT INTO t VALUES (1)"));
  proxy_->CutBeforeCommit();

  EXPECT_THAT(session->Exec("COMMIT"),
              StatusIs(absl::StatusCode::kUnavailable));

  EXPECT_EQ(SettledRows(), "");
  EXPECT_EQ(proxy_->counters().cuts, 1);
  EXPECT_EQ(proxy_->counters().commits_seen, 1);
  EXPECT_EQ(proxy_->counters().commits_answered, 0);
}

TEST_F(FaultProxyTest, CutAfterCommitKeepsTheTransactionThoughTheClientFails) {
  ASSERT_OK_AND_ASSIGN(const auto session, OpenThrough());
  ASSERT_OK(session->Exec("BEGIN; INSERT INTO t VALUES (1)"));
  proxy_->CutAfterCommit();

  EXPECT_THAT(session->Exec("COMMIT"),
              StatusIs(absl::StatusCode::kUnavailable));

  // No settling: the answer was read before the cut.
  EXPECT_THAT(direct_->Scalar("SELECT n FROM t"), IsOkAndHolds("1"));
  EXPECT_EQ(proxy_->counters().cuts, 1);
  EXPECT_EQ(proxy_->counters().commits_seen, 1);
  EXPECT_EQ(proxy_->counters().commits_answered, 1);
}

TEST_F(FaultProxyTest, HoldAfterCommitKeepsTheAnswerUntilItIsHealed) {
  ASSERT_OK_AND_ASSIGN(const auto session, OpenThrough());
  ASSERT_OK(session->Exec("BEGIN; INSERT INTO t VALUES (1)"));
  proxy_->HoldAfterCommit();

  ASSERT_OK(session->Send("COMMIT"));
  ASSERT_TRUE(proxy_->AwaitHeld(1));

  EXPECT_THAT(direct_->Scalar("SELECT n FROM t"), IsOkAndHolds("1"));
  EXPECT_THAT(session->Receive(absl::Milliseconds(1)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  proxy_->Heal();
  EXPECT_THAT(session->Receive(), IsOk());
  EXPECT_THAT(session->Exec("SELECT 1"), IsOk());
  EXPECT_EQ(proxy_->counters().cuts, 0);
}

TEST_F(FaultProxyTest, SeesACommitOfTheExtendedProtocol) {
  ASSERT_OK_AND_ASSIGN(const auto session, OpenThrough());
  PGconn* const connection = session->connection();
  PQclear(PQprepare(connection, "c", "commit ;", 0, nullptr));

  for (const bool after : {false, true}) {
    SCOPED_TRACE(after);
    ASSERT_OK_AND_ASSIGN(const auto victim, OpenThrough());
    PGconn* const connection = victim->connection();
    PQclear(PQprepare(connection, "c", "commit ;", 0, nullptr));
    ASSERT_OK(victim->Exec("BEGIN"));
    ASSERT_OK(victim->Exec("INSERT INTO t VALUES ($1)", {after ? "2" : "1"}));
    if (after) {
      proxy_->CutAfterCommit();
    } else {
      proxy_->CutBeforeCommit();
    }

    PGresult* const result =
        PQexecPrepared(connection, "c", 0, nullptr, nullptr, nullptr, 0);

    EXPECT_EQ(PQresultStatus(result), PGRES_FATAL_ERROR);
    PQclear(result);
  }
  EXPECT_EQ(proxy_->counters().cuts, 2);
  // The bystander was not touched.
  EXPECT_THAT(session->Scalar("SELECT string_agg(n::text, ',') FROM t"),
              IsOkAndHolds("2"));
}

TEST_F(FaultProxyTest, CutsAtAStatementThatCommitsByItself) {
  ASSERT_OK_AND_ASSIGN(const auto first, OpenThrough());
  ASSERT_OK_AND_ASSIGN(const auto second, OpenThrough());
  proxy_->CutBeforeStatement("INSERT INTO t");
  EXPECT_THAT(first->Exec("INSERT INTO t VALUES ($1)", {"1"}),
              StatusIs(absl::StatusCode::kUnavailable));

  proxy_->CutAfterStatement("INSERT INTO t");
  EXPECT_THAT(second->Exec("INSERT INTO t VALUES ($1)", {"2"}),
              StatusIs(absl::StatusCode::kUnavailable));

  EXPECT_EQ(SettledRows(), "2");
}

TEST_F(FaultProxyTest, AShotHitsTheChosenConnectionAndIsUsedUp) {
  ASSERT_OK_AND_ASSIGN(const auto first, OpenThrough());
  ASSERT_OK_AND_ASSIGN(const auto second, OpenThrough());
  proxy_->CutBeforeCommit(1, 2);

  EXPECT_OK(first->Exec("COMMIT"));
  EXPECT_THAT(second->Exec("COMMIT"), StatusIs(absl::StatusCode::kUnavailable));
  ASSERT_OK_AND_ASSIGN(const auto third, OpenThrough());
  EXPECT_OK(third->Exec("COMMIT"));
  EXPECT_OK(first->Exec("COMMIT"));
}

TEST_F(FaultProxyTest, ACommitThatFailsEndsTheConnectionToo) {
  ASSERT_OK(direct_->Exec(
      "ALTER TABLE t ADD UNIQUE (n) DEFERRABLE INITIALLY DEFERRED"));
  ASSERT_OK_AND_ASSIGN(const auto session, OpenThrough());
  ASSERT_OK(session->Exec("BEGIN; INSERT INTO t VALUES (1), (1)"));
  proxy_->CutAfterCommit();

  EXPECT_THAT(session->Exec("COMMIT"),
              StatusIs(absl::StatusCode::kUnavailable));

  EXPECT_EQ(SettledRows(), "");
  EXPECT_EQ(proxy_->counters().commits_answered, 0);
}

TEST_F(FaultProxyTest, RefusesAndHeals) {
  proxy_->Refuse(true);
  EXPECT_THAT(OpenThrough(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(proxy_->counters().refused, 1);

  proxy_->Heal();
  EXPECT_THAT(OpenThrough(), IsOk());
}

TEST_F(FaultProxyTest, CutNowEndsPresentConnectionsOnly) {
  ASSERT_OK_AND_ASSIGN(const auto reset, OpenThrough());
  proxy_->CutNow();
  EXPECT_THAT(reset->Exec("SELECT 1"),
              StatusIs(absl::StatusCode::kUnavailable));

  ASSERT_OK_AND_ASSIGN(const auto closed, OpenThrough());
  EXPECT_OK(closed->Exec("SELECT 1"));
  proxy_->CutNow(FaultProxy::CutKind::kClose);
  EXPECT_THAT(closed->Exec("SELECT 1"),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("server closed the connection")));
  EXPECT_EQ(proxy_->counters().cuts, 2);
  EXPECT_EQ(proxy_->counters().open, 0);
}

TEST_F(FaultProxyTest, CutsAfterTheGivenBytes) {
  ASSERT_OK_AND_ASSIGN(const auto session, OpenThrough());
  const int64_t before = proxy_->counters().bytes_to_client;
  proxy_->CutAfterBytes(Direction::kToClient, 1000);

  EXPECT_THAT(session->Exec("SELECT repeat('x', 100000)"),
              StatusIs(absl::StatusCode::kUnavailable));

  EXPECT_TRUE(proxy_->AwaitCuts(1));
  EXPECT_EQ(proxy_->counters().bytes_to_client - before, 1000);
  // The rule holds for later connections, counted from their start.
  proxy_->CutAfterBytes(Direction::kToServer, 5);
  EXPECT_THAT(OpenThrough(), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(FaultProxyTest, ABlackHoleSilencesUntilItIsLifted) {
  ASSERT_OK_AND_ASSIGN(const auto session, OpenThrough());
  const int64_t statements = proxy_->counters().statements;
  proxy_->BlackHole(true);
  ASSERT_OK(session->Send("INSERT INTO t VALUES (1)"));

  EXPECT_THAT(session->Receive(absl::Milliseconds(20)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(proxy_->counters().statements, statements);
  EXPECT_THAT(direct_->Scalar("SELECT count(*) FROM t"), IsOkAndHolds("0"));

  proxy_->BlackHole(false);
  EXPECT_OK(session->Receive());
  EXPECT_THAT(direct_->Scalar("SELECT count(*) FROM t"), IsOkAndHolds("1"));
}

TEST_F(FaultProxyTest, ANewConnectionIntoABlackHoleIsServedWhenItIsLifted) {
  proxy_->BlackHole(true);
  PGconn* const connection =
      PQconnectStart(proxy_->Through(database_->conninfo()).c_str());
  ASSERT_NE(PQstatus(connection), CONNECTION_BAD);
  EXPECT_TRUE(proxy_->AwaitConnections(1));

  proxy_->BlackHole(false);
  // Blocks until the connection is ready for a statement.
  while (PQconnectPoll(connection) != PGRES_POLLING_OK) {
    ASSERT_NE(PQstatus(connection), CONNECTION_BAD);
  }
  PQfinish(connection);
}

TEST_F(FaultProxyTest, DelaysBothDirections) {
  ASSERT_OK_AND_ASSIGN(const auto session, OpenThrough());
  proxy_->Delay(absl::Milliseconds(20), absl::Milliseconds(30));
  const absl::Duration start = SystemClock::Instance().Monotonic();

  EXPECT_OK(session->Exec("SELECT 1"));

  // A lower bound only: it holds on any machine.
  EXPECT_GE(SystemClock::Instance().Monotonic() - start,
            absl::Milliseconds(50));
}

TEST_F(FaultProxyTest, ThroughKeepsEverythingButTheServer) {
  const std::string through = proxy_->Through(
      "postgresql://u:it%27s@198.51.100.7:9/db?sslmode=require"
      "&application_name=a%20b&hostaddr=198.51.100.7");

  EXPECT_EQ(through,
            absl::StrCat("application_name='a b' dbname='db'"
                         " gssencmode='disable' host='127.0.0.1'"
                         " password='it\\'s' port='",
                         proxy_->port(), "' sslmode='disable' user='u'"));
}

TEST(FaultProxy, RejectsAServerThatIsNotOverTcp) {
  EXPECT_THAT(FaultProxy::Start("host=/tmp port=5432"),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(FaultProxy, ServesAPlainProtocolAndASilentUpstream) {
  // Nobody listens there: the client sees its connection end.
  ASSERT_OK_AND_ASSIGN(const auto proxy,
                       FaultProxy::StartPlain("127.0.0.1", 1));

  EXPECT_THAT(
      Session::Open(absl::StrCat("host=127.0.0.1 user=x port=", proxy->port())),
      StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace tenure::test
