#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/clock.h"
#include "common/base/crypto.h"
#include "common/base/status_macros.h"
#include "tenure/webhook/v1/webhook_ingest.pb.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_stack.h"
#include "tests/bench/harness.h"
#include "tests/bench/http_load.h"
#include "tests/bench/load_client.h"
#include "tests/bench/statements.h"
#include "tests/support/http_client.h"
#include "tests/support/process.h"
#include "tests/support/session.h"

namespace tenure::bench {
namespace {

namespace fs = std::filesystem;

constexpr char kIngestMethod[] = "/tenure.webhook.v1.WebhookIngest/Ingest";
constexpr char kSecret[] = "whsec_of_the_ingest_bench";
// The product's subscriptions, and those that pgbench renews: of the same
// tables, so that both sides meet the same indexes.
constexpr char kRoute[] = "stripe";
constexpr char kBaselineRoute[] = "baseline";
constexpr int64_t kPeriodSeconds = 30 * 24 * 3600;
constexpr int kSlowClients = 500;
constexpr int64_t kSlowBodyBytes = 20'000;
// Of the events that P11 sends, one in this many is new.
constexpr size_t kOneNewIn = 10;

absl::StatusOr<std::string> ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file)
    return absl::NotFoundError(absl::StrCat("cannot read ", path.string()));
  return text.str();
}

// The source directory's files that other programs read.
fs::path DataPath(const char* relative) {
  return fs::path(TENURE_BENCH_SOURCE_DIR) / relative;
}

// Stripe's events of the bench. Event i renews a subscription by a month; all
// subscriptions are renewed once, in random order, before any is again.
class Events {
 public:
  static absl::StatusOr<std::unique_ptr<Events>> Make(int64_t subscriptions) {
    std::unique_ptr<Events> events(new Events);
    ASSIGN_OR_RETURN(events->form_,
                     ReadAll(DataPath("payloads/invoice_paid.json")));
    events->order_.resize(static_cast<size_t>(subscriptions));
    std::iota(events->order_.begin(), events->order_.end(), 0);
    std::shuffle(events->order_.begin(), events->order_.end(),
                 std::minstd_rand(7));
    // The first month is under way.
    events->begin_ =
        absl::ToUnixSeconds(SystemClock::Instance().Now()) - 24 * 3600;
    return events;
  }

  // The purchase of subscription 0, of which all others are copies.
  std::string FirstBody() const { return Body(0, 0); }

  std::string RenewalBody(size_t i) const {
    return Body(order_[i % order_.size()],
                static_cast<int64_t>(1 + i / order_.size()));
  }

 private:
  std::string Body(uint32_t subscription, int64_t month) const {
    const std::string number = absl::StrFormat("_%012d_", subscription);
    const std::string id = absl::StrFormat("%012d_%04d", subscription, month);
    const int64_t start = begin_ + month * kPeriodSeconds;
    return absl::StrReplaceAll(
        form_, {{"_{number}", number},
                {"{number}", number},
                // The number between two underscores, as everywhere.
                {"_{id}", absl::StrCat("_", id)},
                {"-{id}", absl::StrCat("_", id)},
                // Told in their order.
                {"{created}", absl::StrCat(begin_ + month)},
                {"{period_start}", absl::StrCat(start)},
                {"{period_end}", absl::StrCat(start + kPeriodSeconds)}});
  }

  std::string form_;
  std::vector<uint32_t> order_;
  int64_t begin_ = 0;
};

// "t=...,v1=..." as Stripe signs, now.
std::string Sign(absl::string_view body) {
  const std::string timestamp =
      absl::StrCat(absl::ToUnixSeconds(SystemClock::Instance().Now()));
  return absl::StrCat("t=", timestamp, ",v1=",
                      HexEncode(*HmacSha256(kSecret, {timestamp, ".", body})));
}

// ---- the baseline ----

// Runs pgbench on the subscriptions of the baseline's route.
class Pgbench {
 public:
  // What it stores per event has the size of what the product stored of one.
  static absl::StatusOr<std::unique_ptr<Pgbench>> Make(
      BenchDatabase& database, const fs::path& directory, int64_t subscriptions,
      absl::string_view body) {
    std::unique_ptr<Pgbench> pgbench(new Pgbench);
    pgbench->conninfo_ = database.conninfo();
    pgbench->directory_ = directory;
    ASSIGN_OR_RETURN(
        const std::string route,
        database.session().Scalar("SELECT id FROM route WHERE name = $1",
                                  {kBaselineRoute}));
    ASSIGN_OR_RETURN(const std::string fact,
                     database.session().Scalar(
                         "SELECT body FROM subscription_fact LIMIT 1"));
    // A payment within the sum of facts takes what its fact takes, about.
    pgbench->arguments_ = {
        "-n",
        "-M",
        "prepared",
        "-j",
        "1",
        "-D",
        absl::StrCat("subscriptions=", subscriptions - 1),
        "-D",
        absl::StrCat("route=", route),
        "-D",
        absl::StrCat("body=\\x", HexEncode(body)),
        "-D",
        absl::StrCat("sha256=\\x", HexEncode(Sha256(body))),
        "-D",
        absl::StrCat("fact=", fact),
        "-D",
        absl::StrCat("added=\\x", HexEncode(std::string(109, 'x')))};
    return pgbench;
  }

  absl::StatusOr<Measurement> Run(const char* script, int clients,
                                  absl::Duration duration) {
    const fs::path log = directory_ / "pgbench-latency";
    std::vector<std::string> arguments = arguments_;
    for (const std::string& more :
         {std::string("-c"), absl::StrCat(clients), std::string("-T"),
          absl::StrCat(std::max<int64_t>(1, absl::ToInt64Seconds(duration))),
          std::string("-f"), DataPath(script).string(), std::string("--log"),
          absl::StrCat("--log-prefix=", log.string()), conninfo_}) {
      arguments.push_back(more);
    }
    ASSIGN_OR_RETURN(const auto process,
                     test::Process::Start("pgbench", {.args = arguments}));
    ASSIGN_OR_RETURN(const test::ExitStatus status,
                     process->Wait(duration + absl::Minutes(1)));
    if (!status.ok()) {
      return absl::UnavailableError(
          absl::StrCat("pgbench failed: ", process->Output()));
    }
    Measurement measured;
    double rate = 0;
    for (const std::string& line : process->Lines()) {
      absl::string_view rest = line;
      if (absl::ConsumePrefix(&rest,
                              "number of transactions actually processed: ")) {
        (void)absl::SimpleAtoi(rest, &measured.ops);
      } else if (absl::ConsumePrefix(&rest, "tps = ")) {
        (void)absl::SimpleAtod(rest.substr(0, rest.find(' ')), &rate);
      } else if (absl::ConsumePrefix(&rest,
                                     "number of failed transactions: ")) {
        (void)absl::SimpleAtoi(rest.substr(0, rest.find(' ')),
                               &measured.errors);
      }
    }
    if (measured.ops == 0 || rate <= 0 || measured.errors > 0) {
      return absl::UnavailableError(
          absl::StrCat("pgbench did not work: ", process->Output()));
    }
    measured.seconds = static_cast<double>(measured.ops) / rate;
    RETURN_IF_ERROR(ReadLatencies(
        absl::StrCat(log.string(), ".", process->pid()), measured));
    transactions_ += measured.ops;
    return measured;
  }

  // All that were ever committed.
  int64_t transactions() const { return transactions_; }

 private:
  Pgbench() = default;

  // Lines of client, transaction, microseconds, ...
  static absl::Status ReadLatencies(const fs::path& path,
                                    Measurement& measured) {
    ASSIGN_OR_RETURN(const std::string text, ReadAll(path));
    fs::remove(path);
    for (const absl::string_view line :
         absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
      int64_t micros = 0;
      if (fields.size() < 3 || !absl::SimpleAtoi(fields[2], &micros)) {
        return absl::InternalError(
            absl::StrCat("pgbench's log is not as expected: ", line));
      }
      measured.latency.RecordNanos(micros * 1000);
    }
    return absl::OkStatus();
  }

  std::string conninfo_;
  fs::path directory_;
  std::vector<std::string> arguments_;
  int64_t transactions_ = 0;
};

// A form of the baseline at one number of clients.
struct BaselineForm {
  const char* name;
  const char* script;
};
constexpr BaselineForm kForms[] = {
    {"tx", "pgbench/ingest_transaction.sql"},
    {"stmt", "pgbench/ingest_statement.sql"},
};

// ---- the product ----

struct Ports {
  int http = test::FreePort();
  int grpc = test::FreePort();
  int metrics = test::FreePort();
};

absl::Status RunToSuccess(const fs::path& program,
                          const std::vector<std::string>& args) {
  ASSIGN_OR_RETURN(const auto process,
                   test::Process::Start(program.string(), {.args = args}));
  ASSIGN_OR_RETURN(const test::ExitStatus status,
                   process->Wait(absl::Minutes(2)));
  if (status.ok()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(program.string(), " failed: ", process->Output()));
}

// Starts webhook-ingest with its settings as they come, but for what the bench
// needs. It writes its log to a file itself: a log of a line per event that
// this process had to carry would count as the product's.
absl::StatusOr<std::unique_ptr<test::Process>> StartIngest(
    const fs::path& binary, const fs::path& tenurectl,
    const fs::path& directory, const std::string& conninfo,
    const Ports& ports) {
  for (const fs::path& program : {binary, tenurectl}) {
    if (!fs::exists(program)) {
      return absl::NotFoundError(
          absl::StrCat(program.string(), " is not built: ./dev build release"));
    }
  }
  const fs::path secret = directory / "secret";
  const fs::path config = directory / "webhook-ingest.yaml";
  const fs::path catalog = directory / "catalog.yaml";
  std::ofstream(secret) << kSecret << "\n";
  std::ofstream config_file(config);
  std::ofstream catalog_file(catalog);
  // Rounds sign beforehand.
  config_file << "signature_tolerance: 1h\nroutes:\n";
  catalog_file << "plans:\n  - name: professional\n    features:\n"
                  "      - name: api\n      - name: export\n"
                  "    provider_products:\n";
  for (const char* route : {kRoute, kBaselineRoute}) {
    config_file << "  - name: " << route
                << "\n    type: stripe\n    environment: live\n"
                   "    secret_files:\n      - "
                << secret.string() << "\n";
    catalog_file << "      - route: " << route
                 << "\n        product_id: price_bench\n";
  }
  config_file.close();
  catalog_file.close();
  RETURN_IF_ERROR(
      RunToSuccess(tenurectl, {"catalog", "apply", catalog.string(),
                               absl::StrCat("--conninfo=", conninfo)}));
  const auto listen = [](const char* flag, int port) {
    return absl::StrCat("--", flag, "=127.0.0.1:", port);
  };
  return test::Process::Start(
      "sh",
      {.args = {"-c", "exec \"$@\" >\"$0\" 2>&1",
                (directory / "webhook-ingest.log").string(), binary.string(),
                absl::StrCat("--config=", config.string()),
                absl::StrCat("--database_conninfo=", conninfo),
                listen("http_listen", ports.http),
                listen("grpc_listen", ports.grpc),
                listen("metrics_listen", ports.metrics),
                // 64 calls at once are asked for below.
                "--grpc_max_threads=80"}});
}

absl::StatusOr<int64_t> ResidentBytes(pid_t pid) {
  ASSIGN_OR_RETURN(const std::string status,
                   ReadAll(absl::StrCat("/proc/", pid, "/status")));
  for (absl::string_view line : absl::StrSplit(status, '\n')) {
    int64_t kilobytes = 0;
    if (absl::ConsumePrefix(&line, "VmRSS:") &&
        absl::SimpleAtoi(absl::StripSuffix(line, " kB"), &kilobytes)) {
      return kilobytes * 1024;
    }
  }
  return absl::InternalError("/proc/PID/status is not as expected");
}

// The largest resident size of a process while this lives.
class ResidentWatch {
 public:
  explicit ResidentWatch(pid_t pid)
      : thread_([this, pid] {
          while (!stop_) {
            most_ = std::max(most_.load(), ResidentBytes(pid).value_or(0));
            WaitUntilNanos(MonotonicNanos() + 100'000'000);
          }
        }) {}
  ~ResidentWatch() {
    stop_ = true;
    thread_.join();
  }
  int64_t most() const { return most_; }

 private:
  std::atomic<bool> stop_ = false;
  std::atomic<int64_t> most_ = 0;
  std::thread thread_;
};

double ChildrenCpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) +
           static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double Percentile(const Sample& sample, double percent) {
  return static_cast<double>(sample.measured.latency.PercentileNanos(percent));
}

double Rate(const Sample& sample) { return sample.OpsPerSecond(); }

double MedianOf(const std::vector<Round>& rounds, absl::string_view variant,
                const std::function<double(const Sample&)>& metric) {
  std::vector<double> values;
  for (const Round* round : CountedRounds(rounds)) {
    if (const Sample* sample = round->Find(variant)) {
      values.push_back(metric(*sample));
    }
  }
  return Median(values);
}

class IngestBench {
 public:
  IngestBench(const Options& options, Report& report)
      : options_(options),
        report_(report),
        quick_(options.quick),
        subscriptions_(options.subscriptions > 0 ? options.subscriptions
                                                 : (quick_ ? 20'000 : 100'000)),
        rounds_(options.rounds > 0 ? options.rounds : (quick_ ? 3 : 5)),
        round_time_(quick_ ? absl::Seconds(1) : absl::Seconds(4)) {}

  absl::Status Run() {
    RETURN_IF_ERROR(Prepare());
    RETURN_IF_ERROR(WarmUp());
    RETURN_IF_ERROR(MeasureThroughput());
    RETURN_IF_ERROR(MeasureLatency());
    RETURN_IF_ERROR(MeasureSlowClients());
    RETURN_IF_ERROR(ReportMetrics());
    RETURN_IF_ERROR(VerifyRows(kRoute, new_events_));
    RETURN_IF_ERROR(VerifyRows(kBaselineRoute, pgbench_->transactions()));
    report_.AddNote(absl::StrFormat(
        "counted in the tables afterwards: each of the %d new events that were "
        "answered 200 has its rows, and each of the %d transactions of the "
        "baseline",
        new_events_, pgbench_->transactions()));
    if (quick_) {
      report_.AddNote(
          "--quick shows that the bench works; quote full runs only");
    }
    if (kill(ingest_->pid(), 0) != 0) {
      return absl::InternalError("webhook-ingest ended while it was measured");
    }
    RETURN_IF_ERROR(ingest_->Stop(absl::Seconds(30)).status());
    directory_->Succeeded();
    return absl::OkStatus();
  }

 private:
  // What an answer says became of an event.
  enum class Answer { kNew, kDuplicate, kOther };

  absl::Status Prepare();
  absl::Status WarmUp();
  absl::Status MeasureThroughput();
  absl::Status MeasureLatency();
  absl::Status MeasureSlowClients();
  absl::Status ReportMetrics();
  // Compares the rows of a route with what was answered.
  absl::Status VerifyRows(const char* route, int64_t new_events);

  // The bodies to send next: all new, or one new in kOneNewIn.
  std::vector<std::string> NextBodies(size_t count, bool duplicates);
  // New events were sent.
  void Advance(size_t sent, bool duplicates);
  HttpRequests NextRequests(size_t count, bool duplicates);
  bool Count(Answer answer);

  absl::StatusOr<Measurement> Http(int connections, absl::Duration duration,
                                   bool duplicates = false);
  absl::StatusOr<Measurement> HttpAtRate(double per_second,
                                         absl::Duration duration);
  absl::StatusOr<Measurement> Grpc(int in_flight, absl::Duration duration);
  absl::StatusOr<std::unique_ptr<HttpLoad>> ConnectHttp(int connections);

  Variant BaselineVariant(const BaselineForm& form, int clients,
                          absl::Duration duration);
  Variant ProductVariant(const std::string& name,
                         std::function<absl::StatusOr<Measurement>()> run);
  RoundOptions Rounds(int rounds) const;
  // The better of the baseline's two forms in a round.
  static double BestBaseline(
      const Round& round, const std::vector<std::string>& names, Better better,
      const std::function<double(const Sample&)>& metric);
  Result Against(absl::string_view id, const std::vector<Round>& rounds,
                 const std::string& product,
                 const std::vector<std::string>& baselines, Better better,
                 const std::function<double(const Sample&)>& of_product,
                 const std::function<double(const Sample&)>& of_baseline);
  void NoteErrors(const std::vector<Round>& rounds);

  const Options& options_;
  Report& report_;
  const bool quick_;
  const int64_t subscriptions_;
  const int rounds_;
  const absl::Duration round_time_;

  std::unique_ptr<BenchDirectory> directory_;
  std::unique_ptr<BenchDatabase> database_;
  const Ports ports_;
  std::unique_ptr<test::Process> ingest_;
  std::unique_ptr<Events> events_;
  std::unique_ptr<Pgbench> pgbench_;
  std::mt19937_64 random_{11};
  // Events that were sent.
  size_t cursor_ = 0;
  int64_t new_events_ = 0;
  int64_t duplicate_events_ = 0;
  // New events that may or may not be stored: no answer came.
  int64_t lost_answers_ = 0;
  // Of the last run, for the number of requests to prepare.
  double last_rate_ = 2'000;
  // Of each form, the number of clients it is best with.
  std::vector<int> best_clients_;
  double capacity_ = 0;
};

absl::Status IngestBench::Prepare() {
  ASSIGN_OR_RETURN(directory_, BenchDirectory::Make());
  const fs::path tenurectl =
      BuildPath(options_.tenurectl, "../../tools/tenurectl/tenurectl");
  const fs::path ingest = BuildPath(
      options_.ingest, "../../services/webhook-ingest/tenure-webhook-ingest");
  std::map<std::string, std::string> settings = {
      {"shared_buffers", "1GB"},
      // No checkpoint falls into a round.
      {"checkpoint_timeout", "1h"},
      {"max_wal_size", "32GB"}};
  for (const auto& [name, value] : options_.settings) settings[name] = value;
  Progress("starting PostgreSQL and migrating");
  ASSIGN_OR_RETURN(database_, BenchDatabase::Start(tenurectl, settings));
  test::Session& session = database_->session();
  RETURN_IF_ERROR(
      session.Exec("INSERT INTO sink (name) VALUES ('bench')").status());
  ASSIGN_OR_RETURN(ingest_, StartIngest(ingest, tenurectl, directory_->path(),
                                        database_->conninfo(), ports_));
  ASSIGN_OR_RETURN(events_, Events::Make(subscriptions_));

  for (const char* route : {kRoute, kBaselineRoute}) {
    // Two people, as each is stored once.
    const std::string first = absl::StrReplaceAll(
        events_->FirstBody(),
        {{"bench-user", route == kRoute ? "bench-user" : "bench-peer"}});
    const int64_t deadline = MonotonicNanos() + 30'000'000'000;
    for (;;) {
      const auto reply =
          test::HttpPost(absl::StrCat("127.0.0.1:", ports_.http),
                         absl::StrCat("/v1/webhooks/", route), first,
                         {{"Content-Type", "application/json"},
                          {"Stripe-Signature", Sign(first)}});
      if (reply.ok() && reply->status == 200 &&
          absl::StrContains(reply->body, "applied")) {
        break;
      }
      if (reply.ok() || MonotonicNanos() > deadline) {
        return absl::UnavailableError(
            absl::StrCat("webhook-ingest does not take the first event: ",
                         reply.ok() ? reply->body : reply.status().ToString()));
      }
      WaitUntilNanos(MonotonicNanos() + 100'000'000);
    }
    Progress(
        absl::StrCat("route ", route, ": ", subscriptions_, " subscriptions"));
    RETURN_IF_ERROR(session
                        .Exec(sql::kCloneSubscription.sql,
                              {route, absl::StrCat(subscriptions_ - 1)},
                              absl::Minutes(10))
                        .status());
  }
  ASSIGN_OR_RETURN(pgbench_,
                   Pgbench::Make(*database_, directory_->path(), subscriptions_,
                                 events_->RenewalBody(0)));
  for (const char* statement : {"VACUUM ANALYZE", "CHECKPOINT"}) {
    RETURN_IF_ERROR(session.Exec(statement, {}, absl::Minutes(10)).status());
  }
  std::vector<std::string> words;
  for (const char* name :
       {"fsync", "synchronous_commit", "full_page_writes", "shared_buffers",
        "wal_level", "autovacuum", "checkpoint_timeout", "max_wal_size"}) {
    ASSIGN_OR_RETURN(const std::string value,
                     session.Scalar("SELECT current_setting($1)", {name}));
    words.push_back(absl::StrCat(name, " ", value));
  }
  report_.AddNote(absl::StrCat("PostgreSQL: ", absl::StrJoin(words, ", ")));
  report_.AddNote(
      "nothing is pinned: service, load and PostgreSQL share all cores, as "
      "pgbench and PostgreSQL do");
  report_.AddBaseline("subscriptions of either side",
                      static_cast<double>(subscriptions_), "rows");
  return absl::OkStatus();
}

std::vector<std::string> IngestBench::NextBodies(size_t count,
                                                 bool duplicates) {
  std::vector<std::string> bodies;
  bodies.reserve(count);
  size_t next = cursor_;
  for (size_t i = 0; i < count; ++i) {
    const bool is_new = !duplicates || i % kOneNewIn == 0;
    bodies.push_back(
        events_->RenewalBody(is_new ? next++ : random_() % cursor_));
  }
  return bodies;
}

void IngestBench::Advance(size_t sent, bool duplicates) {
  cursor_ += duplicates ? (sent + kOneNewIn - 1) / kOneNewIn : sent;
}

HttpRequests IngestBench::NextRequests(size_t count, bool duplicates) {
  HttpRequests requests;
  requests.wire.reserve(count);
  const std::string target = absl::StrCat("/v1/webhooks/", kRoute);
  for (const std::string& body : NextBodies(count, duplicates)) {
    requests.wire.push_back(HttpPostText(
        target, absl::StrCat("Stripe-Signature: ", Sign(body), "\r\n"), body));
  }
  return requests;
}

bool IngestBench::Count(Answer answer) {
  switch (answer) {
    case Answer::kNew:
      ++new_events_;
      return true;
    case Answer::kDuplicate:
      ++duplicate_events_;
      return true;
    case Answer::kOther:
      return false;
  }
  return false;
}

absl::StatusOr<std::unique_ptr<HttpLoad>> IngestBench::ConnectHttp(
    int connections) {
  return HttpLoad::Connect(
      ports_.http, connections, [this](int status, absl::string_view body) {
        if (status != 200 || !absl::StrContains(body, "\"applied\"")) {
          return Count(Answer::kOther);
        }
        return Count(absl::StrContains(body, "\"duplicate\":true")
                         ? Answer::kDuplicate
                         : Answer::kNew);
      });
}

// More than will be sent, so that a round ends by its time.
size_t EnoughFor(double rate, absl::Duration duration) {
  return 1'000 +
         static_cast<size_t>(rate * 1.5 * absl::ToDoubleSeconds(duration));
}

absl::StatusOr<Measurement> IngestBench::Http(int connections,
                                              absl::Duration duration,
                                              bool duplicates) {
  HttpRequests requests = NextRequests(
      EnoughFor(last_rate_ * (duplicates ? 3 : 1), duration), duplicates);
  ASSIGN_OR_RETURN(const auto load, ConnectHttp(connections));
  ASSIGN_OR_RETURN(Measurement measured, load->ClosedLoop(requests, duration));
  Advance(requests.sent, duplicates);
  lost_answers_ += measured.errors;
  if (!duplicates && connections >= 32) {
    last_rate_ = static_cast<double>(measured.ops) / measured.seconds;
  }
  return measured;
}

absl::StatusOr<Measurement> IngestBench::HttpAtRate(double per_second,
                                                    absl::Duration duration) {
  HttpRequests requests = NextRequests(
      static_cast<size_t>(per_second * absl::ToDoubleSeconds(duration)) + 1,
      /*duplicates=*/false);
  ASSIGN_OR_RETURN(const auto load, ConnectHttp(64));
  ASSIGN_OR_RETURN(Measurement measured,
                   load->OpenLoop(requests, per_second, duration));
  Advance(requests.sent, /*duplicates=*/false);
  lost_answers_ += measured.errors;
  return measured;
}

absl::StatusOr<Measurement> IngestBench::Grpc(int in_flight,
                                              absl::Duration duration) {
  Target target;
  target.address = absl::StrCat("127.0.0.1:", ports_.grpc);
  target.method = kIngestMethod;
  target.each_once = true;
  for (std::string& body :
       NextBodies(EnoughFor(last_rate_, duration), /*duplicates=*/false)) {
    webhook::v1::IngestRequest request;
    request.set_route(kRoute);
    webhook::v1::Header& signature = *request.add_headers();
    signature.set_name("Stripe-Signature");
    signature.set_value(Sign(body));
    request.set_body(std::move(body));
    target.requests.push_back(ToByteBuffer(request.SerializeAsString()));
  }
  target.check_reply = [this](const grpc::ByteBuffer& reply) {
    const auto bytes = FromByteBuffer(reply);
    webhook::v1::IngestResponse response;
    const bool applied = bytes.ok() && response.ParseFromString(*bytes) &&
                         response.state() == webhook::v1::EVENT_STATE_APPLIED;
    if (!applied) return Count(Answer::kOther);
    return Count(response.duplicate() ? Answer::kDuplicate : Answer::kNew);
  };
  constexpr int kChannels = 4;
  ASSIGN_OR_RETURN(const auto client,
                   LoadClient::Connect(std::move(target),
                                       {.channels = kChannels,
                                        .outstanding = in_flight / kChannels,
                                        .sample_every = 1},
                                       absl::Seconds(10)));
  ASSIGN_OR_RETURN(Measurement measured, client->ClosedLoop(duration));
  Advance(client->sent(), /*duplicates=*/false);
  lost_answers_ += measured.errors;
  return measured;
}

Variant IngestBench::BaselineVariant(const BaselineForm& form, int clients,
                                     absl::Duration duration) {
  return {.name = absl::StrCat(form.name, "-", clients),
          .server_pid = database_->server_pid(),
          .run = [this, &form, clients, duration] {
            return pgbench_->Run(form.script, clients, duration);
          }};
}

Variant IngestBench::ProductVariant(
    const std::string& name, std::function<absl::StatusOr<Measurement>()> run) {
  return {.name = name, .server_pid = ingest_->pid(), .run = std::move(run)};
}

RoundOptions IngestBench::Rounds(int rounds) const {
  RoundOptions options;
  options.rounds = rounds;
  options.foreign_bound = options_.foreign_bound;
  options.expected_cpu_seconds = [this] {
    return database_->CpuSeconds() + ChildrenCpuSeconds();
  };
  return options;
}

absl::Status IngestBench::WarmUp() {
  // At least a minute behind the CHECKPOINT: until a page was written once, a
  // change of it logs the whole page. Meanwhile each form of the baseline shows
  // what number of clients suits it.
  const absl::Duration least = quick_ ? absl::ZeroDuration() : absl::Minutes(1);
  const absl::Duration time = quick_ ? absl::Seconds(1) : absl::Seconds(3);
  const int64_t begin = MonotonicNanos();
  Progress("warming up; looking for the baseline's best number of clients");
  std::vector<Variant> variants;
  for (const BaselineForm& form : kForms) {
    for (const int clients : {4, 8, 16}) {
      variants.push_back(BaselineVariant(form, clients, time));
    }
  }
  variants.push_back(
      ProductVariant("http-64", [this, time] { return Http(64, time); }));
  std::vector<Round> rounds;
  do {
    ASSIGN_OR_RETURN(std::vector<Round> more,
                     RunRounds(variants, Rounds(quick_ ? 1 : 2), &Progress));
    rounds = std::move(more);
  } while (absl::Nanoseconds(MonotonicNanos() - begin) < least);
  for (const BaselineForm& form : kForms) {
    int best = 0;
    double best_rate = -1;
    for (const int clients : {4, 8, 16}) {
      const std::string name = absl::StrCat(form.name, "-", clients);
      const double rate = MedianOf(rounds, name, &Rate);
      report_.AddBaseline(absl::StrCat("pgbench ", name, ", warming up"), rate,
                          "events/s");
      if (rate > best_rate) {
        best = clients;
        best_rate = rate;
      }
    }
    best_clients_.push_back(best);
  }
  return absl::OkStatus();
}

double IngestBench::BestBaseline(
    const Round& round, const std::vector<std::string>& names, Better better,
    const std::function<double(const Sample&)>& metric) {
  double best =
      better == Better::kHigher ? 0 : std::numeric_limits<double>::infinity();
  for (const std::string& name : names) {
    const Sample* sample = round.Find(name);
    if (sample == nullptr) continue;
    best = better == Better::kHigher ? std::max(best, metric(*sample))
                                     : std::min(best, metric(*sample));
  }
  return best;
}

Result IngestBench::Against(
    absl::string_view id, const std::vector<Round>& rounds,
    const std::string& product, const std::vector<std::string>& baselines,
    Better better, const std::function<double(const Sample&)>& of_product,
    const std::function<double(const Sample&)>& of_baseline) {
  const auto ratio = [](double a, double b) { return b > 0 ? a / b : 0; };
  Result result = FromRounds(id, rounds, better, [&](const Round& round) {
    return ratio(of_product(*round.Find(product)),
                 BestBaseline(round, baselines, better, of_baseline));
  });
  double best_product =
      better == Better::kHigher ? 0 : std::numeric_limits<double>::infinity();
  double best_baseline = best_product;
  for (const Round& round : rounds) {
    const double p = of_product(*round.Find(product));
    const double b = BestBaseline(round, baselines, better, of_baseline);
    best_product = better == Better::kHigher ? std::max(best_product, p)
                                             : std::min(best_product, p);
    best_baseline = better == Better::kHigher ? std::max(best_baseline, b)
                                              : std::min(best_baseline, b);
  }
  result.best = ratio(best_product, best_baseline);
  return result;
}

void IngestBench::NoteErrors(const std::vector<Round>& rounds) {
  int64_t errors = 0;
  std::string first;
  for (const Round& round : rounds) {
    for (const Sample& sample : round.samples) {
      errors += sample.measured.errors;
      if (first.empty()) first = sample.measured.first_error;
    }
  }
  if (errors > 0) {
    report_.AddNote(
        absl::StrCat(errors, " deliveries failed, the first with: ", first));
  }
}

absl::Status IngestBench::MeasureThroughput() {
  Progress("throughput: events/s, closed loop");
  std::vector<Variant> variants;
  std::vector<std::string> baselines;
  for (size_t i = 0; i < std::size(kForms); ++i) {
    variants.push_back(
        BaselineVariant(kForms[i], best_clients_[i], round_time_));
    baselines.push_back(variants.back().name);
  }
  variants.push_back(
      ProductVariant("http-32", [this] { return Http(32, round_time_); }));
  variants.push_back(
      ProductVariant("http-64", [this] { return Http(64, round_time_); }));
  variants.push_back(ProductVariant(
      "dup-64", [this] { return Http(64, round_time_, /*duplicates=*/true); }));
  variants.push_back(
      ProductVariant("grpc-32", [this] { return Grpc(32, round_time_); }));
  variants.push_back(
      ProductVariant("grpc-64", [this] { return Grpc(64, round_time_); }));
  ASSIGN_OR_RETURN(std::vector<Round> rounds,
                   RunRounds(variants, Rounds(rounds_), &Progress));
  NoteErrors(rounds);
  for (const char* product : {"http-32", "http-64", "grpc-32", "grpc-64"}) {
    const std::string suffix = absl::StrReplaceAll(product, {{"-", ""}});
    Result p9 = Against(absl::StrCat("P9_", suffix), rounds, product, baselines,
                        Better::kHigher, &Rate, &Rate);
    p9.mark = 3.0;
    p9.aim = 4.5;
    report_.AddResult(std::move(p9));
  }
  Result p11 =
      CompareRounds("P11", rounds, "dup-64", "http-64", Better::kHigher, &Rate);
  p11.mark = 1.5;
  p11.aim = 3.0;
  report_.AddResult(std::move(p11));
  capacity_ = MedianOf(rounds, "http-64", &Rate);
  for (const Variant& variant : variants) {
    const std::string& name = variant.name;
    report_.AddBaseline(name, MedianOf(rounds, name, &Rate), "events/s");
    const bool is_baseline =
        std::find(baselines.begin(), baselines.end(), name) != baselines.end();
    if (!is_baseline) {
      report_.AddBaseline(
          absl::StrCat(name, ", CPU of the service"),
          MedianOf(rounds, name,
                   [](const Sample& s) { return s.ServerCpuPerOp() * 1e6; }),
          "us/event");
    }
    report_.AddBaseline(
        absl::StrCat(name, is_baseline ? ", CPU of PostgreSQL and pgbench"
                                       : ", CPU of PostgreSQL"),
        MedianOf(rounds, name,
                 [](const Sample& s) { return s.HelperCpuPerOp() * 1e6; }),
        "us/event");
    if (!is_baseline) {
      report_.AddBaseline(
          absl::StrCat(name, ", CPU of the load"),
          MedianOf(rounds, name,
                   [](const Sample& s) { return s.ClientCpuPerOp() * 1e6; }),
          "us/event");
    }
  }
  report_.AddRounds("throughput, closed loop", std::move(rounds));
  return absl::OkStatus();
}

absl::Status IngestBench::MeasureLatency() {
  const double rate = options_.rate > 0 ? options_.rate : 0.5 * capacity_;
  Progress(absl::StrFormat(
      "latency: %.0f events/s, half of what http-64 took; a lone client",
      rate));
  std::vector<Variant> variants;
  std::vector<std::string> at_8, at_1;
  for (const BaselineForm& form : kForms) {
    variants.push_back(BaselineVariant(form, 8, round_time_));
    at_8.push_back(variants.back().name);
  }
  variants.push_back(ProductVariant(
      "half", [this, rate] { return HttpAtRate(rate, round_time_); }));
  for (const BaselineForm& form : kForms) {
    variants.push_back(BaselineVariant(form, 1, round_time_));
    at_1.push_back(variants.back().name);
  }
  variants.push_back(
      ProductVariant("lone", [this] { return Http(1, round_time_); }));
  ASSIGN_OR_RETURN(std::vector<Round> rounds,
                   RunRounds(variants, Rounds(rounds_), &Progress));
  NoteErrors(rounds);
  const auto p50 = [](const Sample& s) { return Percentile(s, 50); };
  const auto p99 = [](const Sample& s) { return Percentile(s, 99); };
  Result p10 = Against("P10", rounds, "half", at_8, Better::kLower, p99, p99);
  p10.mark = 2.0;
  p10.aim = 1.3;
  report_.AddResult(std::move(p10));
  Result lone =
      Against("P10_lone", rounds, "lone", {at_1[0]}, Better::kLower, p50, p50);
  lone.mark = 1.5;
  lone.aim = 1.2;
  lone.note = "against one transaction per event";
  report_.AddResult(std::move(lone));
  Result against_statement =
      Against("P10_stmt", rounds, "lone", {at_1[1]}, Better::kLower, p50, p50);
  against_statement.note =
      "the lone client against one statement, which has no room for a fold";
  report_.AddResult(std::move(against_statement));
  report_.AddBaseline("rate of \"half\"", rate, "events/s");
  for (const Variant& variant : variants) {
    report_.AddBaseline(absl::StrCat(variant.name, ", p50"),
                        MedianOf(rounds, variant.name, p50) / 1e3, "us");
    report_.AddBaseline(absl::StrCat(variant.name, ", p99"),
                        MedianOf(rounds, variant.name, p99) / 1e3, "us");
  }
  report_.AddRounds("latency, half load and lone client", std::move(rounds));
  return absl::OkStatus();
}

absl::Status IngestBench::MeasureSlowClients() {
  const double rate = 0.5 * capacity_;
  // Longer than the server waits for a request.
  const absl::Duration time = quick_ ? absl::Seconds(3) : absl::Seconds(15);
  Progress(absl::StrFormat("memory: %d slow clients, %.0f events/s beside them",
                           kSlowClients, rate));
  ASSIGN_OR_RETURN(
      const Measurement before,
      HttpAtRate(rate, quick_ ? absl::Seconds(1) : absl::Seconds(5)));
  ASSIGN_OR_RETURN(const int64_t resident, ResidentBytes(ingest_->pid()));
  Measurement beside;
  int64_t most = 0;
  int64_t turned_away = 0;
  {
    const ResidentWatch watch(ingest_->pid());
    ASSIGN_OR_RETURN(
        const auto slow,
        SlowClients::Start(
            ports_.http, kSlowClients, absl::StrCat("/v1/webhooks/", kRoute),
            absl::StrCat("Stripe-Signature: ", Sign("{"), "\r\n"),
            kSlowBodyBytes));
    ASSIGN_OR_RETURN(beside, HttpAtRate(rate, time));
    most = watch.most();
    turned_away = slow->turned_away();
  }
  const auto megabytes = [](int64_t bytes) {
    return static_cast<double>(bytes) / (1024 * 1024);
  };
  Result growth;
  growth.id = "C034_rss";
  growth.unit = "MiB";
  growth.value = growth.min = growth.max = megabytes(most - resident);
  growth.counted_rounds = 1;
  growth.mark = 64;
  growth.better = Better::kLower;
  report_.AddResult(std::move(growth));
  Result p99;
  p99.id = "C034_p99";
  p99.unit = "ms";
  p99.value = p99.min = p99.max =
      static_cast<double>(beside.latency.PercentileNanos(99)) / 1e6;
  p99.counted_rounds = 1;
  p99.mark = 250;
  p99.better = Better::kLower;
  report_.AddResult(std::move(p99));
  report_.AddBaseline("resident size before slow clients", megabytes(resident),
                      "MiB");
  report_.AddBaseline(
      "p99 before slow clients",
      static_cast<double>(before.latency.PercentileNanos(99)) / 1e3, "us");
  report_.AddBaseline("slow clients turned away",
                      static_cast<double>(turned_away), "connections");
  if (beside.errors > 0) {
    report_.AddNote(absl::StrCat(
        beside.errors,
        " deliveries beside slow clients failed: ", beside.first_error));
  }
  return absl::OkStatus();
}

absl::Status IngestBench::ReportMetrics() {
  ASSIGN_OR_RETURN(
      const test::HttpReply reply,
      test::HttpGet(absl::StrCat("127.0.0.1:", ports_.metrics), "/metrics"));
  for (const absl::string_view line :
       absl::StrSplit(reply.body, '\n', absl::SkipEmpty())) {
    if (absl::StrContains(line, "batch") && !absl::StartsWith(line, "#") &&
        !absl::StrContains(line, "_bucket{")) {
      report_.AddNote(line);
    }
  }
  return absl::OkStatus();
}

absl::Status IngestBench::VerifyRows(const char* route, int64_t new_events) {
  ASSIGN_OR_RETURN(const test::SqlRows rows,
                   database_->session().Exec(sql::kSelectIngestedRows.sql,
                                             {route}, absl::Minutes(5)));
  if (rows.size() != 1 || rows[0].size() != 9) {
    return absl::InternalError("the rows of a route are not as expected");
  }
  std::vector<int64_t> counts;
  for (const test::SqlValue& value : rows[0]) {
    int64_t count = 0;
    if (!value || !absl::SimpleAtoi(*value, &count)) {
      return absl::InternalError("a count is not a number");
    }
    counts.push_back(count);
  }
  // The first event of a subscription brings two rows of history.
  const int64_t events = subscriptions_ + new_events;
  const int64_t history = 2 * subscriptions_ + new_events;
  const std::vector<int64_t> expected = {
      events, 0, events, events, 2 * events, events, history, history, history};
  if (counts == expected) return absl::OkStatus();
  // Without an answer nobody knows; the rest must fit all the same.
  const int64_t more = counts[0] - events;
  const bool may_be_lost_answers =
      route == kRoute && more > 0 && more <= lost_answers_;
  if (may_be_lost_answers) {
    report_.AddNote(absl::StrCat(more,
                                 " events are stored whose answer was "
                                 "not 200 or never came"));
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      "route ", route,
      ": events, unapplied, facts, payments, aliases, terms, "
      "history, event_seq, heads are ",
      absl::StrJoin(counts, " "), " and not ", absl::StrJoin(expected, " ")));
}

}  // namespace

absl::Status RunIngestBench(const Options& options, Report& report) {
  return IngestBench(options, report).Run();
}

}  // namespace tenure::bench
