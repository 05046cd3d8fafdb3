// `tenurectl import`: existing subscriptions from a file.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/backoff.h"
#include "common/base/crypto.h"
#include "common/base/mutex.h"
#include "common/base/periodic.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"
#include "tenure/subscription/v1/subscriptions.grpc.pb.h"
#include "tools/tenurectl/commands.h"
#include "tools/tenurectl/import_reader.h"
#include "tools/tenurectl/service_call.h"

namespace tenure::tenurectl {
namespace {

namespace pb = ::tenure::subscription::v1;

// The exit code when some rows failed and the others were imported.
constexpr int kSomeRowsFailed = 3;

constexpr absl::Duration kBatchDeadline = absl::Minutes(1);
// A service that restarts is waited for about a minute.
constexpr int kMaxTries = 12;
constexpr absl::Duration kFirstWait = absl::Milliseconds(200);
constexpr absl::Duration kLongestWait = absl::Seconds(10);
// Of a value that is wrong.
constexpr size_t kLongestShown = 80;
// Between two lines of progress, on a terminal and elsewhere.
constexpr absl::Duration kBarPeriod = absl::Milliseconds(200);
constexpr absl::Duration kLinePeriod = absl::Seconds(5);

struct ImportOptions {
  std::string address;
  std::string file;
  std::string format;
  std::string source = "import";
  std::string errors_file;
  std::string actor;
  std::string reason = "import";
  int concurrency = 4;
  int batch_size = 100;
  bool dry_run = false;
};

struct Totals {
  int64_t rows = 0;
  int64_t imported = 0;
  // Imported by an earlier run.
  int64_t known = 0;
  int64_t failed = 0;
};

// A row on its way: the request, and where it stands for errors.
struct PendingRow {
  int64_t line = 0;
  pb::GrantRequest request;
};

// The request of a row, or what is wrong with it. The request_id follows from
// the source and the row's key, or the whole row without one, so that the same
// row is the same request in every run.
std::optional<RowError> ToRequest(const ImportOptions& options,
                                  const ImportRow& row,
                                  pb::GrantRequest* request) {
  const auto instant =
      [](const std::string& text,
         google::protobuf::Timestamp* out) -> std::optional<std::string> {
    const std::optional<absl::Time> time = ReadInstant(text);
    if (!time) {
      return absl::StrCat("'", text.substr(0, kLongestShown),
                          "' is not RFC 3339 (2027-01-31T10:00:00Z)");
    }
    *out = ToProto(*time);
    return std::nullopt;
  };
  // The service refuses longer ones too; here, so that a batch of them is not
  // larger than a message may be.
  for (const auto& [column, text, most] :
       {std::tuple("subject", &row.subject, size_t{255}),
        std::tuple("plan", &row.plan, size_t{127}),
        std::tuple("external_key", &row.external_key, size_t{255})}) {
    if (text->size() > most) {
      return RowError{column, absl::StrCat("must be at most ", most, " bytes")};
    }
  }
  request->set_subject(row.subject);
  request->set_plan(row.plan);
  if (!row.starts_at.empty()) {
    if (auto error = instant(row.starts_at, request->mutable_starts_at())) {
      return RowError{"starts_at", *error};
    }
  }
  if (row.lifetime) {
    if (!row.expires_at.empty()) {
      return RowError{"expires_at", "a lifetime has no end"};
    }
    request->set_lifetime(true);
  } else if (row.expires_at.empty()) {
    return RowError{"expires_at", "is required where lifetime is not true"};
  } else if (auto error =
                 instant(row.expires_at, request->mutable_expires_at())) {
    return RowError{"expires_at", *error};
  }
  std::string identity = request->SerializeAsString();
  if (!row.external_key.empty()) {
    request->set_external_key(
        absl::StrCat(options.source, "/", row.external_key));
    identity = request->external_key();
  }
  pb::WriteContext& context = *request->mutable_context();
  context.set_request_id(absl::StrCat(
      "import-",
      HexEncode(Sha256(absl::StrCat(options.source, std::string(1, '\0'),
                                    row.external_key.empty() ? "row" : "key",
                                    std::string(1, '\0'), identity)))
          .substr(0, 48)));
  context.set_actor(options.actor.empty() ? "operator" : options.actor);
  context.set_reason(options.reason);
  return std::nullopt;
}

// Looks for a service that is away as often as a batch is tried again; gRPC's
// own waits grow to two minutes.
std::shared_ptr<grpc::Channel> PatientChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  for (const char* name :
       {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
        GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, GRPC_ARG_MAX_RECONNECT_BACKOFF_MS}) {
    arguments.SetInt(name,
                     static_cast<int>(absl::ToInt64Milliseconds(kFirstWait)));
  }
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

// Imports a file with several batches under way at once. Only what is under way
// is in memory.
class Import {
 public:
  Import(const ImportOptions& options, RowReader& rows, std::FILE* errors)
      : options_(options),
        rows_(rows),
        errors_(errors),
        stub_(pb::Subscriptions::NewStub(PatientChannel(options.address))) {}

  absl::StatusOr<Totals> Run() {
    std::vector<std::thread> workers;
    {
      MutexLock lock(mutex_);
      running_ = options_.concurrency;
    }
    for (int i = 0; i < options_.concurrency; ++i) {
      workers.emplace_back([this] { Work(); });
    }
    ShowProgress();
    for (std::thread& worker : workers) worker.join();
    MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    return totals_;
  }

 private:
  void Work() {
    absl::BitGen random;
    for (;;) {
      absl::StatusOr<std::vector<PendingRow>> batch = NextBatch();
      absl::Status status = batch.status();
      if (status.ok() && batch->empty()) break;
      if (status.ok()) status = Send(*batch, random);
      if (!status.ok()) {
        MutexLock lock(mutex_);
        if (failure_.ok()) failure_ = status;
        break;
      }
    }
    MutexLock lock(mutex_);
    --running_;
    ended_.NotifyAll();
  }

  // Empty at the end, and once another worker has failed.
  absl::StatusOr<std::vector<PendingRow>> NextBatch() {
    std::vector<PendingRow> batch;
    MutexLock lock(mutex_);
    while (failure_.ok() &&
           batch.size() < static_cast<size_t>(options_.batch_size)) {
      ImportRow row;
      ASSIGN_OR_RETURN(const bool any, rows_.Next(&row));
      if (!any) break;
      ++totals_.rows;
      PendingRow pending;
      pending.line = row.line;
      std::optional<RowError> error = row.error;
      if (!error) error = ToRequest(options_, row, &pending.request);
      if (error) {
        Report(row.line, *error);
      } else {
        batch.push_back(std::move(pending));
      }
    }
    return batch;
  }

  absl::Status Send(const std::vector<PendingRow>& batch,
                    absl::BitGenRef random) {
    pb::BatchGrantRequest request;
    request.set_dry_run(options_.dry_run);
    for (const PendingRow& row : batch) *request.add_grants() = row.request;
    pb::BatchGrantResponse response;
    const Backoff backoff(kFirstWait, kLongestWait);
    for (int attempt = 0;; ++attempt) {
      grpc::ClientContext context;
      SetDeadline(&context, kBatchDeadline);
      const grpc::Status status =
          stub_->BatchGrant(&context, request, &response);
      if (status.ok()) break;
      // Whatever became of it: a repeat grants nothing twice.
      const bool passes =
          status.error_code() == grpc::StatusCode::UNAVAILABLE ||
          status.error_code() == grpc::StatusCode::ABORTED ||
          status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED ||
          status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
      if (!passes || attempt + 1 == kMaxTries || Failed()) {
        return Outcome(options_.address, status);
      }
      tenure::SleepFor(backoff.Delay(attempt, random));
    }
    if (response.results_size() != request.grants_size()) {
      return absl::InternalError(
          absl::StrCat(options_.address, ": answered not every row"));
    }
    MutexLock lock(mutex_);
    for (int i = 0; i < response.results_size(); ++i) {
      const pb::GrantResult& result = response.results(i);
      if (result.has_failure()) {
        Report(batch[i].line,
               {result.failure().field(), result.failure().message()});
      } else if (result.repeated_request()) {
        ++totals_.known;
      } else {
        ++totals_.imported;
      }
    }
    return absl::OkStatus();
  }

  bool Failed() {
    MutexLock lock(mutex_);
    return !failure_.ok();
  }

  void Report(int64_t line, const RowError& error) TENURE_REQUIRES(mutex_) {
    ++totals_.failed;
    std::string message = error.message;
    // The service names the field in its message as well.
    const std::string prefix = error.column + ": ";
    if (!error.column.empty() && message.rfind(prefix, 0) == 0) {
      message = message.substr(prefix.size());
    }
    const std::string text =
        absl::StrCat(options_.file, ":", line, ": ",
                     error.column.empty() ? "" : prefix, message, "\n");
    if (bar_shown_) std::fputs("\r\033[K", stderr);
    bar_shown_ = false;
    std::fputs(text.c_str(), stderr);
    if (errors_ != nullptr) std::fputs(text.c_str(), errors_);
  }

  // Until the workers have ended.
  void ShowProgress() {
    const bool terminal = ::isatty(STDERR_FILENO) == 1;
    const Clock& clock = SystemClock::Instance();
    const absl::Duration started = clock.Monotonic();
    MutexLock lock(mutex_);
    absl::Duration next = started + (terminal ? kBarPeriod : kLinePeriod);
    while (running_ > 0) {
      const absl::Duration left = next - clock.Monotonic();
      if (left > absl::ZeroDuration()) {
        ended_.WaitFor(mutex_, left);
        continue;
      }
      next += terminal ? kBarPeriod : kLinePeriod;
      const double seconds =
          std::max(absl::ToDoubleSeconds(clock.Monotonic() - started), 0.001);
      std::string text;
      if (rows_.bytes_total() > 0) {
        const double part =
            std::min(1.0, static_cast<double>(rows_.bytes_read()) /
                              static_cast<double>(rows_.bytes_total()));
        const int filled = static_cast<int>(part * 30);
        if (terminal) {
          absl::StrAppend(&text, "[", std::string(filled, '#'),
                          std::string(30 - filled, '.'), "] ");
        }
        absl::StrAppendFormat(&text, "%3.0f%%  ", part * 100);
      }
      absl::StrAppendFormat(&text, "%d rows  %.0f/s  %d errors", totals_.rows,
                            static_cast<double>(totals_.rows) / seconds,
                            totals_.failed);
      if (terminal) {
        std::fprintf(stderr, "\r\033[K%s", text.c_str());
        bar_shown_ = true;
      } else {
        std::fprintf(stderr, "%s\n", text.c_str());
      }
      std::fflush(stderr);
    }
    if (bar_shown_) std::fputs("\r\033[K", stderr);
    bar_shown_ = false;
  }

  const ImportOptions& options_;
  RowReader& rows_ TENURE_GUARDED_BY(mutex_);
  std::FILE* const errors_;
  const std::unique_ptr<pb::Subscriptions::Stub> stub_;

  Mutex mutex_;
  CondVar ended_;
  Totals totals_ TENURE_GUARDED_BY(mutex_);
  absl::Status failure_ TENURE_GUARDED_BY(mutex_);
  int running_ TENURE_GUARDED_BY(mutex_) = 0;
  bool bar_shown_ TENURE_GUARDED_BY(mutex_) = false;
};

absl::StatusOr<Totals> RunImport(const ImportOptions& options) {
  ASSIGN_OR_RETURN(
      const std::unique_ptr<RowReader> rows,
      OpenRows(options.file, options.format == "csv" ? ImportFormat::kCsv
                                                     : ImportFormat::kNdjson));
  std::FILE* errors = nullptr;
  if (!options.errors_file.empty()) {
    std::error_code unknown;
    if (std::filesystem::equivalent(options.errors_file, options.file,
                                    unknown)) {
      return absl::InvalidArgumentError(absl::StrCat(
          options.errors_file, ": is the file to import; name another one"));
    }
    errors = std::fopen(options.errors_file.c_str(), "w");
    if (errors == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(options.errors_file, ": cannot be written"));
    }
  }
  absl::StatusOr<Totals> totals = Import(options, *rows, errors).Run();
  if (errors != nullptr && std::fclose(errors) != 0 && totals.ok()) {
    return absl::UnavailableError(
        absl::StrCat(options.errors_file, ": cannot be written further"));
  }
  if (!totals.ok()) {
    return absl::Status(
        totals.status().code(),
        absl::StrCat(totals.status().message(),
                     " (run the same command again: what was imported is "
                     "passed over)"));
  }
  return totals;
}

}  // namespace

void AddImportCommand(CLI::App* root, Command* chosen, ExitCodes* codes) {
  static ImportOptions options;
  CLI::App* command = root->add_subcommand(
      "import",
      "grants the subscriptions of a file; exits with 0 when all rows are "
      "imported, 3 when some failed, 1 when it could not go on, 2 for wrong "
      "usage. Running it again imports nothing twice.");
  command->add_option("FILE", options.file, "the file, - for standard input")
      ->required();
  command
      ->add_option("--format", options.format,
                   "csv (RFC 4180 with a header line) or ndjson (one object a "
                   "line), with subject, plan, starts_at, expires_at, lifetime "
                   "and external_key")
      ->required()
      ->check(CLI::IsMember({"csv", "ndjson"}));
  command->add_flag("--dry-run", options.dry_run,
                    "checks every row, against the service's catalogue too, "
                    "and writes nothing");
  command
      ->add_option("--source", options.source,
                   "where the rows come from: keys and rows of one source are "
                   "imported once")
      ->capture_default_str();
  command->add_option("--errors", options.errors_file,
                      "also writes the errors of rows to this file");
  command->add_option("--reason", options.reason, "why, for the record")
      ->capture_default_str();
  TakeFromEnvironment(
      command
          ->add_option("--actor", options.actor, "who does it, for the record")
          ->default_str("operator"),
      "USER", &options.actor);
  command
      ->add_option("--concurrency", options.concurrency,
                   "batches under way at once")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command
      ->add_option("--batch-size", options.batch_size,
                   "rows in one call and transaction")
      ->check(CLI::Range(1, 500))
      ->capture_default_str();
  command
      ->add_option("--address,--endpoint", options.address,
                   "gRPC address of webhook-ingest")
      ->default_str("127.0.0.1:50052");
  options.address = "127.0.0.1:50052";
  command->callback([chosen, codes] {
    *chosen = [codes]() -> absl::Status {
      ASSIGN_OR_RETURN(const Totals totals, RunImport(options));
      std::printf("%lld rows read: %lld %s, %lld known already, %lld failed\n",
                  static_cast<long long>(totals.rows),
                  static_cast<long long>(totals.imported),
                  options.dry_run ? "in order (dry run: nothing was written)"
                                  : "imported",
                  static_cast<long long>(totals.known),
                  static_cast<long long>(totals.failed));
      if (totals.failed > 0) codes->done = kSomeRowsFailed;
      return absl::OkStatus();
    };
  });
}

}  // namespace tenure::tenurectl
