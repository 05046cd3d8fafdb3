// Migrator and server check, each on a database of its own.
#include "common/db/migrator.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/db/server_check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/barrier.h"
#include "tests/support/pg_cluster.h"
#include "tests/support/session.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace tenure::db {
namespace {

using ::tenure::test::Barrier;
using ::tenure::test::ExecOnce;
using ::tenure::test::IsOk;
using ::tenure::test::IsOkAndHolds;
using ::tenure::test::PgCluster;
using ::tenure::test::Session;
using ::tenure::test::StatusIs;
using ::tenure::test::TestDatabase;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr Migration kFirst{1, "first", "CREATE TABLE a (n int);"};
constexpr Migration kSecond{
    2, "second", "CREATE TABLE b (n int); INSERT INTO b VALUES (1), (2);"};
constexpr Migration kThird{3, "third", "ALTER TABLE b ADD COLUMN m int;"};
constexpr Migration kSteps[] = {kFirst, kSecond, kThird};

// A database that was never migrated.
class MigratorTest : public ::testing::Test {
 protected:
  void SetUp() override { CreateDatabase("ENCODING 'UTF8'"); }

  void TearDown() override { DropDatabase(); }

  void CreateDatabase(absl::string_view options) {
    ASSERT_OK_AND_ASSIGN(cluster_, PgCluster::Get());
    name_ =
        absl::StrCat("m_", absl::ToUnixNanos(SystemClock::Instance().Now()));
    ASSERT_OK(ExecOnce(cluster_->Conninfo("postgres"),
                       absl::StrCat("CREATE DATABASE ", name_,
                                    " TEMPLATE template0 LC_COLLATE 'C'"
                                    " LC_CTYPE 'C' ",
                                    options)));
    ASSERT_OK_AND_ASSIGN(control_, Session::Open(cluster_->Conninfo(name_)));
    ASSERT_OK_AND_ASSIGN(connection_, Open());
  }

  void DropDatabase() {
    connection_.reset();
    control_.reset();
    if (name_.empty()) return;
    EXPECT_OK(ExecOnce(cluster_->Conninfo("postgres"),
                       absl::StrCat("DROP DATABASE ", name_, " WITH (FORCE)")));
  }

  absl::StatusOr<std::unique_ptr<Connection>> Open() const {
    ConnectionOptions options;
    options.conninfo = cluster_->Conninfo(name_);
    options.lock_timeout = absl::Minutes(1);
    return Connection::Open(options);
  }

  std::string AppliedVersions() {
    const auto versions = control_->Scalar(
        "SELECT coalesce(string_agg(version::text, ',' ORDER BY version), '')"
        " FROM schema_migration");
    return versions.ok() ? *versions : versions.status().ToString();
  }

  std::string Tables() {
    const auto tables = control_->Scalar(
        "SELECT coalesce(string_agg(tablename, ',' ORDER BY tablename), '')"
        " FROM pg_tables WHERE schemaname = 'public'");
    return tables.ok() ? *tables : tables.status().ToString();
  }

  absl::Status PretendApplied(int version) {
    return control_
        ->Exec(
            "INSERT INTO schema_migration (version, name, checksum)"
            " VALUES ($1, 'future', 'x')",
            {absl::StrCat(version)})
        .status();
  }

  const PgCluster* cluster_ = nullptr;
  std::string name_;
  std::unique_ptr<Session> control_;
  std::unique_ptr<Connection> connection_;
};

TEST_F(MigratorTest, TheKnownStepsAreNumberedWithoutGaps) {
  int next = 1;
  for (const Migration& migration : KnownMigrations()) {
    EXPECT_EQ(migration.version, next++);
    EXPECT_THAT(Checksum(migration), SizeIs(64));
  }
  EXPECT_GE(next, 2);
}

TEST_F(MigratorTest, MigratesAnEmptyDatabaseAndThenFindsNothingToDo) {
  std::vector<int> all;
  for (const Migration& migration : KnownMigrations()) {
    all.push_back(migration.version);
  }
  EXPECT_THAT(MigrateUp(*connection_), IsOkAndHolds(all));
  EXPECT_OK(ValidateSchema(*connection_));
  EXPECT_OK(CheckServer(*connection_));
  ASSERT_OK_AND_ASSIGN(const auto status, GetMigrationStatus(*connection_));
  ASSERT_THAT(status, SizeIs(all.size()));
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(status[i].version, all[i]);
    EXPECT_EQ(status[i].name, KnownMigrations()[i].name);
    EXPECT_EQ(status[i].state, MigrationState::kApplied);
    EXPECT_TRUE(status[i].applied_at.has_value());
  }

  EXPECT_THAT(MigrateUp(*connection_), IsOkAndHolds(IsEmpty()));
  EXPECT_OK(ValidateSchema(*connection_));
}

TEST_F(MigratorTest, AppliesOnlyWhatIsMissing) {
  EXPECT_THAT(MigrateUp(*connection_, absl::MakeSpan(kSteps).first(1)),
              IsOkAndHolds(ElementsAre(1)));
  EXPECT_THAT(MigrateUp(*connection_, kSteps), IsOkAndHolds(ElementsAre(2, 3)));
  EXPECT_EQ(AppliedVersions(), "1,2,3");
  EXPECT_THAT(control_->Scalar("SELECT count(*) FROM b"), IsOkAndHolds("2"));
}

TEST_F(MigratorTest, OfSeveralMigratorsAtOnceEachStepIsAppliedByOne) {
  constexpr int kMigrators = 3;
  Barrier barrier(kMigrators);
  std::vector<absl::StatusOr<std::vector<int>>> outcomes(
      kMigrators, absl::UnknownError("not run"));
  std::vector<std::thread> threads;
  for (int i = 0; i < kMigrators; ++i) {
    threads.emplace_back([&, i] {
      const auto connection = Open();
      EXPECT_TRUE(barrier.ArriveAndWait());
      outcomes[i] = connection.ok()
                        ? MigrateUp(**connection, kSteps)
                        : absl::StatusOr<std::vector<int>>(connection.status());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<int> applied;
  for (const auto& outcome : outcomes) {
    ASSERT_THAT(outcome, IsOk());
    applied.insert(applied.end(), outcome->begin(), outcome->end());
  }
  EXPECT_THAT(applied, ::testing::UnorderedElementsAre(1, 2, 3));
  EXPECT_EQ(AppliedVersions(), "1,2,3");
  EXPECT_THAT(control_->Scalar("SELECT count(*) FROM b"), IsOkAndHolds("2"));
}

TEST_F(MigratorTest, RefusesAStepThatWasEditedAfterItWasApplied) {
  ASSERT_THAT(MigrateUp(*connection_, kSteps), IsOk());
  const Migration edited[] = {
      kFirst, {2, "second", "CREATE TABLE c (n int);"}, kThird};
  EXPECT_THAT(MigrateUp(*connection_, edited),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("migration 2 (second)"),
                             HasSubstr("must never be edited"))));
  EXPECT_EQ(Tables(), "a,b,schema_migration");
}

TEST_F(MigratorTest, AFailingStepLeavesNothingAndTheOnesBeforeItApplied) {
  const Migration broken[] = {
      kFirst, {2, "second", "CREATE TABLE c (n int); SELECT 1 / 0;"}, kThird};
  EXPECT_THAT(MigrateUp(*connection_, broken), Not(IsOk()));
  EXPECT_EQ(AppliedVersions(), "1");
  EXPECT_EQ(Tables(), "a,schema_migration");
  EXPECT_TRUE(connection_->usable());

  EXPECT_THAT(MigrateUp(*connection_, kSteps), IsOkAndHolds(ElementsAre(2, 3)));
}

TEST_F(MigratorTest, AStepWithAQuestionMarkOrDollarIsTakenAsItStands) {
  const Migration quoted[] = {
      {1, "quoted",
       "CREATE TABLE q (v text DEFAULT '$1 ? %s \\ ''');\n"
       "INSERT INTO q DEFAULT VALUES;"}};
  ASSERT_THAT(MigrateUp(*connection_, quoted), IsOk());
  EXPECT_THAT(control_->Scalar("SELECT v FROM q"),
              IsOkAndHolds("$1 ? %s \\ '"));
}

TEST_F(MigratorTest, ADatabaseBehindThisBinaryIsRefusedWithWhatToDo) {
  for (const absl::Status& status :
       {ValidateSchema(*connection_), CheckServer(*connection_)}) {
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("older than this binary"),
                               HasSubstr("migration 1"),
                               HasSubstr("run `tenurectl migrate up` first"))));
  }
  ASSERT_OK_AND_ASSIGN(const auto all, GetMigrationStatus(*connection_));
  for (const MigrationStatus& status : all) {
    EXPECT_EQ(status.state, MigrationState::kPending);
    EXPECT_FALSE(status.applied_at.has_value());
  }
  // Looking changes nothing.
  EXPECT_EQ(Tables(), "");
}

TEST_F(MigratorTest, ADatabaseOneStepAheadIsAcceptedAndTwoAreRefused) {
  ASSERT_THAT(MigrateUp(*connection_), IsOk());
  const int known = static_cast<int>(KnownMigrations().size());
  ASSERT_OK(PretendApplied(known + 1));
  EXPECT_OK(ValidateSchema(*connection_));
  EXPECT_OK(CheckServer(*connection_));
  EXPECT_THAT(MigrateUp(*connection_), IsOkAndHolds(IsEmpty()));
  ASSERT_OK_AND_ASSIGN(const auto all, GetMigrationStatus(*connection_));
  EXPECT_EQ(all.back().state, MigrationState::kUnknown);
  EXPECT_EQ(all.back().name, "future");

  ASSERT_OK(PretendApplied(known + 2));
  EXPECT_THAT(ValidateSchema(*connection_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("2 migrations newer than this binary")));
}

TEST_F(MigratorTest, ADatabaseWithAnotherTextOfAKnownStepIsRefused) {
  ASSERT_THAT(MigrateUp(*connection_), IsOk());
  ASSERT_OK(control_->Exec("UPDATE schema_migration SET checksum = 'x'"));
  EXPECT_THAT(ValidateSchema(*connection_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("another text than this binary knows")));
  EXPECT_THAT(MigrateUp(*connection_),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_OK_AND_ASSIGN(const auto all, GetMigrationStatus(*connection_));
  EXPECT_EQ(all[0].state, MigrationState::kChanged);
}

TEST_F(MigratorTest, S0_43_ADatabaseInAnotherEncodingIsRefused) {
  DropDatabase();
  CreateDatabase("ENCODING 'SQL_ASCII'");
  ASSERT_THAT(MigrateUp(*connection_), IsOk());
  EXPECT_THAT(
      CheckServer(*connection_),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("SQL_ASCII"), HasSubstr("ENCODING 'UTF8'"))));
}

TEST_F(MigratorTest, CheckServerReportsALostSessionAsThat) {
  ASSERT_THAT(MigrateUp(*connection_), IsOk());
  ASSERT_OK(control_->Exec("SELECT pg_terminate_backend($1::int, 30000)",
                           {absl::StrCat(connection_->backend_pid())}));
  EXPECT_THAT(CheckServer(*connection_),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST(ServerCheck, TheTestDatabaseIsAccepted) {
  ASSERT_OK_AND_ASSIGN(const auto database, TestDatabase::Create());
  ConnectionOptions options;
  options.conninfo = database->conninfo();
  ASSERT_OK_AND_ASSIGN(const auto connection, Connection::Open(options));
  EXPECT_OK(CheckServer(*connection));
}

ServerFacts GoodFacts() {
  ServerFacts facts;
  facts.version_num = kMinServerVersion;
  facts.version = "15.0";
  facts.encoding = "UTF8";
  facts.integer_datetimes = true;
  facts.utc_safe = true;
  facts.skip_locked = true;
  return facts;
}

TEST(ServerCheck, S0_43_RefusesAServerThatItWouldNotBeRightOn) {
  EXPECT_OK(CheckServerFacts(GoodFacts(), false));
  ServerFacts newer = GoodFacts();
  newer.version_num = 180001;
  EXPECT_OK(CheckServerFacts(newer, false));

  const struct {
    void (*spoil)(ServerFacts&);
    const char* sentence;
  } cases[] = {
      {[](ServerFacts& f) { f.skip_locked = false; }, "SKIP LOCKED"},
      {[](ServerFacts& f) {
         f.version_num = 140011;
         f.version = "14.11";
       },
       "PostgreSQL 14.11; Tenure needs 15 or newer"},
      {[](ServerFacts& f) { f.version_num = 0; }, "needs 15 or newer"},
      {[](ServerFacts& f) { f.encoding = "LATIN1"; },
       "encoding is LATIN1; create it with ENCODING 'UTF8'"},
      {[](ServerFacts& f) { f.encoding = ""; }, "ENCODING 'UTF8'"},
      {[](ServerFacts& f) { f.integer_datetimes = false; }, "instants in UTC"},
      {[](ServerFacts& f) { f.utc_safe = false; }, "instants in UTC"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.sentence);
    ServerFacts facts = GoodFacts();
    c.spoil(facts);
    for (const bool allow_clock_offset : {false, true}) {
      EXPECT_THAT(CheckServerFacts(facts, allow_clock_offset),
                  StatusIs(absl::StatusCode::kFailedPrecondition,
                           HasSubstr(c.sentence)));
    }
  }
}

TEST(ServerCheck, AMovedClockIsForTestBuildsOnly) {
  ServerFacts facts = GoodFacts();
  facts.clock_offset = "3600000000 microseconds";
  EXPECT_OK(CheckServerFacts(facts, /*allow_clock_offset=*/true));
  EXPECT_THAT(CheckServerFacts(facts, /*allow_clock_offset=*/false),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("3600000000 microseconds")));
}

}  // namespace
}  // namespace tenure::db
