#ifndef TENURE_TESTS_SUPPORT_PG_CLUSTER_H_
#define TENURE_TESTS_SUPPORT_PG_CLUSTER_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/support/process.h"

namespace tenure::test {

// The private PostgreSQL of this test run (tests/support/pg/cluster.sh).
class PgCluster {
 public:
  // The cluster that the environment variable TENURE_TEST_PG_DIR names, which
  // is ctest's fixture; without the variable (a test started by hand) a cluster
  // of this process, started at the first call and stopped when the process
  // ends. Thread-safe. The result lives as long as the process.
  static absl::StatusOr<const PgCluster*> Get();

  // Superuser connection strings for `database`, without TLS and GSS.
  std::string Conninfo(absl::string_view database) const;        // TCP
  std::string SocketConninfo(absl::string_view database) const;  // unix socket

  int port() const { return port_; }
  // The directory of the unix socket.
  const std::string& socket_dir() const { return socket_dir_; }
  // What TENURE_TEST_PG_DIR has to be for another process to use it.
  const std::string& env_dir() const { return env_dir_; }
  // The server's log file.
  const std::string& log_path() const { return log_path_; }

  // Reads the file `dir`/env that cluster.sh wrote.
  static absl::StatusOr<PgCluster> Read(absl::string_view dir);

 private:
  PgCluster() = default;

  std::string env_dir_;
  std::string host_;
  int port_ = 0;
  std::string user_;
  std::string socket_dir_;
  std::string log_path_;
};

// A PostgreSQL of one owner, for tests that do to it what no other test of the
// run would survive. It ends with its owner, even when that is killed.
// Thread-safe as far as one fault at a time is made.
class OwnPgCluster {
 public:
  static absl::StatusOr<std::unique_ptr<OwnPgCluster>> Start();
  ~OwnPgCluster();

  const PgCluster& cluster() const { return cluster_; }

  // Ends every process of the server at once; what was committed is in its log.
  absl::Status Crash() const { return Disturb("crash"); }
  // Stops it in order; sessions are ended.
  absl::Status Shutdown() const { return Disturb("shutdown"); }
  // Starts it again, at the same address; returns when it takes connections.
  absl::Status Restart() const { return Disturb("restart"); }
  // Stops every process of the server where it stands: sessions stay open and
  // nothing answers.
  absl::Status Freeze() const { return Disturb("freeze"); }
  absl::Status Thaw() const { return Disturb("thaw"); }

 private:
  OwnPgCluster(PgCluster cluster, std::unique_ptr<Process> script)
      : cluster_(std::move(cluster)), script_(std::move(script)) {}

  absl::Status Disturb(const std::string& command) const;

  const PgCluster cluster_;
  // Stops the server when its standard input ends.
  const std::unique_ptr<Process> script_;
};

}  // namespace tenure::test

#endif  // TENURE_TESTS_SUPPORT_PG_CLUSTER_H_
