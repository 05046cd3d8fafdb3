#ifndef TENURE_TESTS_BENCH_BENCH_STACK_H_
#define TENURE_TESTS_BENCH_BENCH_STACK_H_

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/support/process.h"
#include "tests/support/session.h"

// What benches measure with: a private database, the built binaries, a
// directory for their files.
namespace tenure::bench {

// `given`, or the path `relative` to this program in the build tree.
std::filesystem::path BuildPath(const std::string& given, const char* relative);

// The database of a bench: a private PostgreSQL with the product's schema,
// durable as in production. Ends with this process, however that ends.
class BenchDatabase {
 public:
  // `tenurectl` migrates it. `settings` of the server, e.g. shared_buffers,
  // take a restart.
  static absl::StatusOr<std::unique_ptr<BenchDatabase>> Start(
      const std::filesystem::path& tenurectl,
      const std::map<std::string, std::string>& settings = {});
  ~BenchDatabase();
  BenchDatabase(const BenchDatabase&) = delete;
  BenchDatabase& operator=(const BenchDatabase&) = delete;

  const std::string& conninfo() const { return conninfo_; }
  test::Session& session() { return *session_; }
  pid_t server_pid() const { return server_pid_; }
  // Spent so far by the server and its connections, ended ones too.
  double CpuSeconds() const;

 private:
  BenchDatabase() = default;
  absl::Status Connect(const std::string& directory);

  std::unique_ptr<test::Process> cluster_process_;
  std::string conninfo_;
  std::unique_ptr<test::Session> session_;
  pid_t server_pid_ = 0;
};

// Starts a server, on `core` alone unless it is negative.
absl::StatusOr<std::unique_ptr<test::Process>> StartServer(
    const std::filesystem::path& binary, std::vector<std::string> args,
    int core, const std::filesystem::path& log);

// A new directory. Goes at destruction if the bench succeeded; otherwise it
// stays, and the reader is told where.
class BenchDirectory {
 public:
  static absl::StatusOr<std::unique_ptr<BenchDirectory>> Make();
  ~BenchDirectory();
  BenchDirectory(const BenchDirectory&) = delete;
  BenchDirectory& operator=(const BenchDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Whether the servers' logs are worth reading: until this is called, yes.
  void Succeeded() { failed_ = false; }

 private:
  explicit BenchDirectory(std::filesystem::path path)
      : path_(std::move(path)) {}

  const std::filesystem::path path_;
  bool failed_ = true;
};

}  // namespace tenure::bench

#endif  // TENURE_TESTS_BENCH_BENCH_STACK_H_
