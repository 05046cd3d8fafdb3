#include "services/host/service_host.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/base/log.h"
#include "common/base/proto_time.h"
#include "common/base/secret_file.h"
#include "common/base/status_macros.h"
#include "common/db/server_check.h"
#include "common/rpc/status.h"
#include "services/host/statements.h"

namespace tenure::host {
namespace {

// Between two attempts to reach a database that is away, and between two looks
// at one that is there.
constexpr absl::Duration kDatabaseInterval = absl::Seconds(1);
// A drain that overruns its bound is cut off this much later.
constexpr absl::Duration kDrainSlack = absl::Seconds(3);

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

// True when one of `set` came within `timeout`.
bool SignalWithin(absl::Duration timeout, const sigset_t& set) {
  const Clock& clock = SystemClock::Instance();
  const absl::Duration deadline = clock.Monotonic() + timeout;
  for (;;) {
    const absl::Duration left = deadline - clock.Monotonic();
    if (left <= absl::ZeroDuration()) return false;
    const timespec limit = absl::ToTimespec(left);
    // A debugger or sanitizer that stops the thread interrupts the wait.
    if (sigtimedwait(&set, nullptr, &limit) > 0) return true;
    if (errno != EINTR) return false;
  }
}

}  // namespace

ServiceHost::ServiceHost(absl::string_view name, absl::Duration drain_timeout)
    : name_(name), drain_timeout_(drain_timeout), registry_(name) {
  readiness_.Set("startup", absl::UnavailableError("starting"));
}

ServiceHost::~ServiceHost() {
  database_watch_.reset();
  if (probes_ != nullptr) probes_->Drain(absl::Seconds(1));
}

absl::Status ServiceHost::StartProbes(const config::v1::MetricsConfig& config) {
  ASSIGN_OR_RETURN(
      probes_, obs::ProbeServer::Start(config.listen(), readiness_, registry_));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<db::Pool>> ServiceHost::ConnectDatabase(
    const config::v1::DatabaseConfig& config) {
  db::PoolOptions options;
  options.size = config.pool_size();
  options.acquire_timeout = FromProto(config.acquire_timeout());
  options.connection.conninfo = config.conninfo();
  options.connection.application_name = absl::StrCat("tenure-", name_);
  options.connection.connect_timeout = FromProto(config.connect_timeout());
  options.connection.statement_timeout = FromProto(config.statement_timeout());
  options.connection.lock_timeout = FromProto(config.lock_timeout());
  options.connection.idle_in_transaction_timeout =
      FromProto(config.idle_in_transaction_timeout());
  if (!config.password_file().empty()) {
    ASSIGN_OR_RETURN(options.connection.password,
                     ReadSecretFile(config.password_file()));
  }
  auto pool = std::make_shared<db::Pool>(std::move(options));
  for (;;) {
    absl::Status status;
    if (auto lease = pool->Acquire(); lease.ok()) {
      status = db::CheckServer(**lease);
    } else {
      status = lease.status();
    }
    if (status.ok()) break;
    if (status.code() == absl::StatusCode::kFailedPrecondition) return status;
    readiness_.Set("database", status);
    log::Warning("waiting for the database",
                 {{"detail", std::string(status.message())}});
    if (SignalWithin(kDatabaseInterval, StopSignals())) {
      return absl::CancelledError("stopped while waiting for the database");
    }
  }
  WatchDatabase(pool);
  return pool;
}

void ServiceHost::WatchDatabase(std::shared_ptr<db::Pool> pool) {
  auto& oldest_due = registry_.Gauge(
      "oldest_due_age_seconds",
      "age of the oldest subscription that is past its end and not swept; "
      "exported by every service, so that a dead scheduler is seen");
  auto& open = registry_.Gauge("database_connections", "open sessions");
  auto& discarded = registry_.Gauge("database_connections_discarded",
                                    "sessions dropped because they were lost");
  database_watch_ = std::make_unique<Periodic>(
      kDatabaseInterval, [this, pool = std::move(pool), &oldest_due, &open,
                          &discarded](absl::Duration) {
        const auto result = pool->Execute(kSelectOldestDueAge);
        if (result.ok()) {
          oldest_due.Set(
              absl::ToDoubleSeconds((*result)[0].Interval("age_us")));
        }
        const db::Pool::Stats stats = pool->stats();
        open.Set(stats.open);
        discarded.Set(static_cast<double>(stats.discarded_total));
        // A busy pool is not an absent database.
        const bool away =
            !result.ok() &&
            result.status().code() != absl::StatusCode::kResourceExhausted;
        readiness_.Set("database", away ? result.status() : absl::OkStatus());
      });
}

rpc::CallGuard::Observer ServiceHost::MakeCallObserver(
    const std::vector<std::string>& methods) {
  struct Series {
    prometheus::Histogram* seconds;
    std::vector<prometheus::Counter*> handled;  // by gRPC code
  };
  auto all = std::make_shared<std::map<std::string, Series, std::less<>>>();
  for (const std::string& method : methods) {
    Series series;
    series.seconds = &registry_.Histogram(
        "grpc_handling_seconds", "time from a call's start to its answer",
        {{"method", method}});
    for (int code = 0; code <= grpc::StatusCode::UNAUTHENTICATED; ++code) {
      series.handled.push_back(&registry_.Counter(
          "grpc_handled_total", "calls answered",
          {{"method", method},
           {"code", rpc::CodeName(static_cast<grpc::StatusCode>(code))}}));
    }
    (*all)[method] = std::move(series);
  }
  return [all](absl::string_view method, grpc::StatusCode code,
               double seconds) {
    const auto it = all->find(std::string_view(method.data(), method.size()));
    if (it == all->end()) return;
    it->second.seconds->Observe(seconds);
    it->second.handled[static_cast<size_t>(code)]->Increment();
  };
}

void ServiceHost::SetStarted() {
  readiness_.Set("startup", absl::OkStatus());
  log::Info("started", {{"probes", probes_ ? probes_->address() : ""}});
}

void ServiceHost::AwaitShutdown() {
  sigset_t set = StopSignals();
  sigaddset(&set, SIGHUP);
  int signal = 0;
  for (;;) {
    if (sigwait(&set, &signal) != 0) continue;
    if (signal != SIGHUP) break;
    log::Info(reload_ == nullptr ? "SIGHUP: nothing to read again"
                                 : "SIGHUP: reading files again");
    if (reload_ != nullptr) reload_();
  }
  shutdown_at_ = SystemClock::Instance().Monotonic();
  readiness_.Set("draining", absl::UnavailableError("the service is ending"));
  log::Info("ending", {{"signal", signal}});
  // Outlives the orderly end by design: it only matters when that hangs.
  // A supervisor may say SIGTERM twice and means the same (F05); only a person
  // at a terminal who is impatient ends it at once.
  std::thread([limit = drain_timeout_ + kDrainSlack] {
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    const bool again = SignalWithin(limit, interrupt);
    std::fprintf(stderr, "tenure: %s\n",
                 again ? "interrupted while ending, ending at once"
                       : "the drain took too long, ending at once");
    std::_Exit(1);
  }).detach();
}

absl::Duration ServiceHost::DrainTimeLeft() const {
  if (shutdown_at_ == absl::InfiniteDuration()) return drain_timeout_;
  const absl::Duration spent =
      SystemClock::Instance().Monotonic() - shutdown_at_;
  return std::max(absl::ZeroDuration(), drain_timeout_ - spent);
}

int RunService(int argc, char** argv, absl::string_view name,
               absl::string_view description, google::protobuf::Message* config,
               const config::v1::LogConfig& (*log_config)(
                   const google::protobuf::Message&),
               const std::function<absl::Status()>& run) {
  // Before any thread: they inherit the mask, and only sigwait sees them.
  sigset_t set = StopSignals();
  sigaddset(&set, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);

  const std::string program = absl::StrCat("tenure-", name);
  LoadedFrom how;
  absl::Status status =
      LoadConfig(argc, argv, program, description, config, &how);
  log::Level level = log::Level::kInfo;
  if (status.ok() && !how.print_and_exit &&
      !log::ParseLevel(log_config(*config).level(), &level)) {
    status = absl::InvalidArgumentError(
        "log.level: must be debug, info, warning or error");
  }
  if (!status.ok()) {
    std::fprintf(stderr, "%s: %s\n", program.c_str(),
                 std::string(status.message()).c_str());
    return 2;
  }
  if (how.print_and_exit) {
    std::fputs(how.output.c_str(), stdout);
    return 0;
  }
  log::Configure(name, level);
  for (const std::string& warning : how.warnings) log::Warning(warning);
  status = run();
  if (status.ok() || status.code() == absl::StatusCode::kCancelled) {
    log::Info("ended");
    return 0;
  }
  log::Error("cannot run", {{"detail", std::string(status.message())}});
  std::fprintf(stderr, "%s: %s\n", program.c_str(),
               std::string(status.message()).c_str());
  return 1;
}

std::string EnvironmentName(config::v1::Environment environment) {
  return absl::AsciiStrToLower(absl::StripPrefix(
      config::v1::Environment_Name(environment), "ENVIRONMENT_"));
}

}  // namespace tenure::host
