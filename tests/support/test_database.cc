#include "tests/support/test_database.h"

#include <cstdint>
#include <iostream>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"

namespace tenure::test {
namespace {

constexpr char kMaintenanceDatabase[] = "postgres";
constexpr char kObjectInUse[] = "55006";

// An arbitrary number that only CREATE DATABASE here takes: two at once would
// find the template in use by each other.
constexpr char kCloneLock[] = "7283640012";

std::string RandomName() {
  std::random_device random;
  return absl::StrCat("t_", absl::Hex(random(), absl::kZeroPad8),
                      absl::Hex(random(), absl::kZeroPad8));
}

absl::Status CloneTemplate(Session& session, const std::string& name) {
  RETURN_IF_ERROR(
      session.Exec(absl::StrCat("SELECT pg_advisory_lock(", kCloneLock, ")"))
          .status());
  const absl::Duration end = SystemClock::Instance().Monotonic() + kPatience;
  for (;;) {
    // The lock goes with the session, so an error need not release it.
    const absl::Status created =
        session
            .Exec(absl::StrCat("CREATE DATABASE ", name,
                               " TEMPLATE tenure_template"))
            .status();
    if (created.ok() || SqlState(created) != kObjectInUse ||
        SystemClock::Instance().Monotonic() >= end) {
      return created;
    }
    RETURN_IF_ERROR(session.Exec("SELECT pg_sleep(0.05)").status());
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<TestDatabase>> TestDatabase::Create() {
  ASSIGN_OR_RETURN(const PgCluster* cluster, PgCluster::Get());
  return Create(*cluster);
}

absl::StatusOr<std::unique_ptr<TestDatabase>> TestDatabase::Create(
    const PgCluster& cluster) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                   Session::Open(cluster.Conninfo(kMaintenanceDatabase)));
  const std::string name = RandomName();
  RETURN_IF_ERROR(CloneTemplate(*session, name));
  return std::unique_ptr<TestDatabase>(new TestDatabase(cluster, name));
}

TestDatabase::~TestDatabase() {
  const absl::Status dropped =
      ExecOnce(cluster_.Conninfo(kMaintenanceDatabase),
               absl::StrCat("DROP DATABASE ", name_, " WITH (FORCE)"))
          .status();
  // Not a failure of the test: the whole cluster goes away after the run.
  if (!dropped.ok()) {
    std::cerr << "test database " << name_
              << " was not dropped: " << dropped.ToString() << "\n";
  }
}

std::string TestDatabase::conninfo() const { return cluster_.Conninfo(name_); }

std::string TestDatabase::socket_conninfo() const {
  return cluster_.SocketConninfo(name_);
}

absl::StatusOr<std::unique_ptr<Session>> TestDatabase::OpenSession() const {
  return Session::Open(conninfo());
}

absl::Status TestDatabase::SetClockOffset(absl::Duration offset) {
  return ExecOnce(cluster_.Conninfo(kMaintenanceDatabase),
                  absl::StrCat(
                      "ALTER DATABASE ", name_, " SET tenure.clock_offset = '",
                      absl::ToInt64Microseconds(offset), " microseconds'"))
      .status();
}

absl::Status TestDatabase::WaitUntilBlocked(int pid,
                                            absl::Duration timeout) const {
  ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                   Session::Open(cluster_.Conninfo(kMaintenanceDatabase)));
  return session->WaitUntilBlocked(pid, timeout);
}

absl::Status TestDatabase::TerminateSessions() {
  // With a timeout pg_terminate_backend waits until the process is gone.
  return ExecOnce(cluster_.Conninfo(kMaintenanceDatabase),
                  "SELECT pg_terminate_backend(pid, 30000) FROM"
                  " pg_stat_activity WHERE datname = $1",
                  {name_})
      .status();
}

}  // namespace tenure::test
