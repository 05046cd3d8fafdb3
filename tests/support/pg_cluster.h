#ifndef TENURE_TESTS_SUPPORT_PG_CLUSTER_H_
#define TENURE_TESTS_SUPPORT_PG_CLUSTER_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

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

}  // namespace tenure::test

#endif  // TENURE_TESTS_SUPPORT_PG_CLUSTER_H_
