#ifndef TENURE_TESTS_SUPPORT_TEST_DATABASE_H_
#define TENURE_TESTS_SUPPORT_TEST_DATABASE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/support/pg_cluster.h"
#include "tests/support/session.h"

namespace tenure::test {

// A database of its own for one test: a clone of the migrated template, on the
// private PostgreSQL of the test run, dropped at destruction even while
// somebody is still connected. Its tenure_now() can be moved. Thread-safe.
//
//   ASSERT_OK_AND_ASSIGN(const auto database, TestDatabase::Create());
class TestDatabase {
 public:
  static absl::StatusOr<std::unique_ptr<TestDatabase>> Create();
  // The same on another server, which has to outlive it.
  static absl::StatusOr<std::unique_ptr<TestDatabase>> Create(
      const PgCluster& cluster);
  ~TestDatabase();
  TestDatabase(const TestDatabase&) = delete;
  TestDatabase& operator=(const TestDatabase&) = delete;

  const std::string& name() const { return name_; }

  // Superuser connection strings, over TCP and over the unix socket.
  std::string conninfo() const;
  std::string socket_conninfo() const;

  // A new session on this database.
  absl::StatusOr<std::unique_ptr<Session>> OpenSession() const;

  // Moves tenure_now() by `offset`, to the microsecond, in sessions that
  // connect from now on; present ones keep what they have.
  absl::Status SetClockOffset(absl::Duration offset);

  // Session::WaitUntilBlocked over a connection of its own.
  absl::Status WaitUntilBlocked(int pid,
                                absl::Duration timeout = kPatience) const;

  // Ends every session on this database, as a restart of the server would.
  absl::Status TerminateSessions();

 private:
  TestDatabase(const PgCluster& cluster, std::string name)
      : cluster_(cluster), name_(std::move(name)) {}

  const PgCluster& cluster_;
  const std::string name_;
};

}  // namespace tenure::test

#endif  // TENURE_TESTS_SUPPORT_TEST_DATABASE_H_
