#include "tests/bench/bench_stack.h"

#include <cstdlib>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "tests/bench/bench.h"
#include "tests/bench/harness.h"
#include "tests/support/pg_cluster.h"

namespace tenure::bench {
namespace {

namespace fs = std::filesystem;

// Runs a command of the cluster's script on the server of `directory`.
absl::Status ClusterScript(const char* command, const std::string& directory) {
  ASSIGN_OR_RETURN(const auto script,
                   test::Process::Start(TENURE_BENCH_PG_SCRIPT,
                                        {.args = {command, directory}}));
  ASSIGN_OR_RETURN(const test::ExitStatus status,
                   script->Wait(absl::Minutes(1)));
  if (status.ok()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cluster.sh ", command, " failed: ", script->Output()));
}

}  // namespace

fs::path BuildPath(const std::string& given, const char* relative) {
  if (!given.empty()) return fs::absolute(given);
  return (fs::read_symlink("/proc/self/exe").parent_path() / relative)
      .lexically_normal();
}

absl::StatusOr<std::unique_ptr<BenchDatabase>> BenchDatabase::Start(
    const fs::path& tenurectl,
    const std::map<std::string, std::string>& settings) {
  std::unique_ptr<BenchDatabase> database(new BenchDatabase);
  // Outlives this process by the moment that the script needs to stop the
  // server: it ends when its standard input does, however this one ends.
  ASSIGN_OR_RETURN(
      database->cluster_process_,
      test::Process::Start(
          TENURE_BENCH_PG_SCRIPT,
          {.args = {"run", absl::StrCat("--migrator=", tenurectl.string())},

           .pipe_stdin = true,
           .outlives_parent = true}));
  ASSIGN_OR_RETURN(
      const std::string ready,
      database->cluster_process_->AwaitLine("ready ", absl::Minutes(2)));
  const std::string directory(absl::StripPrefix(ready, "ready "));
  ASSIGN_OR_RETURN(const test::PgCluster cluster,
                   test::PgCluster::Read(directory));
  RETURN_IF_ERROR(test::ExecOnce(cluster.Conninfo("postgres"),
                                 "CREATE DATABASE tenure TEMPLATE "
                                 "tenure_template")
                      .status());
  database->conninfo_ = cluster.Conninfo("tenure");
  RETURN_IF_ERROR(database->Connect(directory));
  // Tests run without it; a measurement must not.
  RETURN_IF_ERROR(
      database->session_->Exec("ALTER SYSTEM SET fsync = on").status());
  if (settings.empty()) {
    RETURN_IF_ERROR(
        database->session_->Exec("SELECT pg_reload_conf()").status());
    return database;
  }
  for (const auto& [name, value] : settings) {
    RETURN_IF_ERROR(
        database->session_
            ->Exec(absl::StrCat("ALTER SYSTEM SET ", name, " = '", value, "'"))
            .status());
  }
  database->session_.reset();
  RETURN_IF_ERROR(ClusterScript("shutdown", directory));
  RETURN_IF_ERROR(ClusterScript("restart", directory));
  RETURN_IF_ERROR(database->Connect(directory));
  return database;
}

absl::Status BenchDatabase::Connect(const std::string& directory) {
  auto session = test::Session::Open(conninfo_);
  if (!session.ok()) {
    return absl::UnavailableError(
        absl::StrCat("no connection to the server of ", directory, ": ",
                     session.status().message()));
  }
  session_ = *std::move(session);
  ASSIGN_OR_RETURN(server_pid_, ParentOf(session_->backend_pid()));
  return absl::OkStatus();
}

BenchDatabase::~BenchDatabase() {
  session_.reset();
  if (cluster_process_ == nullptr) return;
  cluster_process_->CloseStdin();
  // The script stops the server on its way out.
  (void)cluster_process_->Wait(absl::Minutes(1));
}

double BenchDatabase::CpuSeconds() const {
  return ReadFamilyCpuSeconds(server_pid_);
}

absl::StatusOr<std::unique_ptr<test::Process>> StartServer(
    const fs::path& binary, std::vector<std::string> args, int core,
    const fs::path& log) {
  if (!fs::exists(binary)) {
    return absl::NotFoundError(
        absl::StrCat(binary.string(), " is not built: ./dev build release"));
  }
  test::ProcessOptions options;
  options.output_path = log.string();
  if (core < 0) {
    options.args = std::move(args);
    return test::Process::Start(binary.string(), std::move(options));
  }
  // taskset becomes the program, so that its pid is the server's.
  options.args = {"-c", absl::StrCat(core), binary.string()};
  options.args.insert(options.args.end(), args.begin(), args.end());
  return test::Process::Start("taskset", std::move(options));
}

absl::StatusOr<std::unique_ptr<BenchDirectory>> BenchDirectory::Make() {
  std::string path = fs::temp_directory_path() / "tenure-bench.XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    return absl::UnavailableError("cannot make a temporary directory");
  }
  return std::unique_ptr<BenchDirectory>(new BenchDirectory(path));
}

BenchDirectory::~BenchDirectory() {
  if (failed_ && !fs::is_empty(path_)) {
    Progress(absl::StrCat("logs of the servers: ", path_.string()));
    return;
  }
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace tenure::bench
