#include "tests/support/pg_cluster.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "tests/support/test_signal.h"

namespace tenure::test {
namespace {

absl::StatusOr<PgCluster> Find(std::unique_ptr<OwnPgCluster>* own) {
  const char* dir = std::getenv("TENURE_TEST_PG_DIR");
  if (dir != nullptr && *dir != '\0') return PgCluster::Read(dir);
  ASSIGN_OR_RETURN(*own, OwnPgCluster::Start());
  return (*own)->cluster();
}

std::string WithHost(absl::string_view host, int port, absl::string_view user,
                     absl::string_view database) {
  return absl::StrCat("host=", host, " port=", port, " user=", user,
                      " dbname=", database,
                      " sslmode=disable gssencmode=disable");
}

}  // namespace

absl::StatusOr<const PgCluster*> PgCluster::Get() {
  // Made first so that it still is there when the cluster is stopped.
  (void)SystemClock::Instance();
  static std::unique_ptr<OwnPgCluster> own;
  static const absl::StatusOr<PgCluster> cluster = Find(&own);
  if (!cluster.ok()) return cluster.status();
  return &*cluster;
}

absl::StatusOr<PgCluster> PgCluster::Read(absl::string_view dir) {
  const std::string path = absl::StrCat(dir, "/env");
  std::ifstream file(path);
  if (!file.is_open()) {
    return absl::FailedPreconditionError(absl::StrCat(
        path,
        " is missing: the test run's PostgreSQL is not running. ctest "
        "starts it (postgres_fixture_start); unset TENURE_TEST_PG_DIR to let "
        "the test start its own."));
  }
  std::map<std::string, std::string> values;
  for (std::string line; std::getline(file, line);) {
    const size_t equals = line.find("='");
    if (equals == std::string::npos || line.back() != '\'') continue;
    values[line.substr(0, equals)] =
        line.substr(equals + 2, line.size() - equals - 3);
  }
  PgCluster cluster;
  cluster.env_dir_ = std::string(dir);
  cluster.host_ = values["TENURE_PG_HOST"];
  cluster.user_ = values["TENURE_PG_USER"];
  cluster.socket_dir_ = values["TENURE_PG_SOCKET_DIR"];
  cluster.log_path_ = values["TENURE_PG_LOG"];
  if (!absl::SimpleAtoi(values["TENURE_PG_PORT"], &cluster.port_)) {
    return absl::InternalError(absl::StrCat(path, " names no port"));
  }
  return cluster;
}

std::string PgCluster::Conninfo(absl::string_view database) const {
  return WithHost(host_, port_, user_, database);
}

std::string PgCluster::SocketConninfo(absl::string_view database) const {
  return WithHost(socket_dir_, port_, user_, database);
}

absl::StatusOr<std::unique_ptr<OwnPgCluster>> OwnPgCluster::Start() {
  ProcessOptions options;
  options.args = {"run", "--migrator=" TENURE_TEST_PG_MIGRATOR,
                  "--sql=" TENURE_TEST_PG_SQL};
  options.pipe_stdin = true;
  options.outlives_parent = true;
  ASSIGN_OR_RETURN(std::unique_ptr<Process> script,
                   Process::Start(TENURE_TEST_PG_SCRIPT, options));
  const absl::StatusOr<std::string> ready =
      script->AwaitLine("ready ", absl::Minutes(5));
  if (!ready.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no PostgreSQL for the test: ", script->Output()));
  }
  ASSIGN_OR_RETURN(PgCluster cluster,
                   PgCluster::Read(absl::StripPrefix(*ready, "ready ")));
  return std::unique_ptr<OwnPgCluster>(
      new OwnPgCluster(std::move(cluster), std::move(script)));
}

OwnPgCluster::~OwnPgCluster() {
  script_->CloseStdin();
  (void)script_->Wait(kPatience);
}

absl::Status OwnPgCluster::Disturb(const std::string& command) const {
  ProcessOptions options;
  options.args = {command, cluster_.env_dir()};
  ASSIGN_OR_RETURN(const std::unique_ptr<Process> script,
                   Process::Start(TENURE_TEST_PG_SCRIPT, options));
  ASSIGN_OR_RETURN(const ExitStatus status, script->Wait(absl::Minutes(2)));
  if (status.ok()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("cluster.sh ", command, ": ", script->Output()));
}

}  // namespace tenure::test
