#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "tenure/bench/v1/echo.pb.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_stack.h"
#include "tests/bench/harness.h"
#include "tests/bench/load_client.h"
#include "tests/bench/statements.h"
#include "tests/support/process.h"
#include "tests/support/session.h"

namespace tenure::bench {
namespace {

namespace fs = std::filesystem;
using entitlement::v1::CheckRequest;
using entitlement::v1::CheckResponse;

constexpr char kCheckMethod[] = "/tenure.entitlement.v1.Entitlement/Check";
constexpr char kEchoMethod[] = "/tenure.bench.v1.Echo/CheckEcho";
constexpr char kFeature[] = "export";
// Distinct requests held ready: more than any processor cache holds, and few
// enough to make at once.
constexpr int64_t kMostRequests = 200'000;

// Updates a subscription `per_second` times a second until it is destroyed.
class ChangeWriter {
 public:
  static absl::StatusOr<std::unique_ptr<ChangeWriter>> Start(
      const std::string& conninfo, int per_second, int64_t subscriptions) {
    std::unique_ptr<ChangeWriter> writer(new ChangeWriter);
    if (per_second == 0) return writer;
    ASSIGN_OR_RETURN(writer->session_, test::Session::Open(conninfo));
    writer->thread_ =
        std::thread([w = writer.get(), per_second, subscriptions] {
          const int64_t start = MonotonicNanos();
          for (int64_t i = 0; !w->stop_; ++i) {
            WaitUntilNanos(start + i * 1'000'000'000 / per_second);
            // A stride that shares no factor with round numbers visits all.
            const int64_t id = i * 7919 % subscriptions + 1;
            const auto done = w->session_->Exec(sql::kTouchSubscription.sql,
                                                {absl::StrCat(id)});
            if (done.ok()) {
              ++w->changes_;
            } else {
              ++w->failures_;
            }
          }
        });
    return writer;
  }

  ~ChangeWriter() { Stop(); }

  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  int64_t changes() const { return changes_; }
  int64_t failures() const { return failures_; }

 private:
  ChangeWriter() = default;

  std::unique_ptr<test::Session> session_;
  std::atomic<bool> stop_ = false;
  std::atomic<int64_t> changes_ = 0;
  std::atomic<int64_t> failures_ = 0;
  std::thread thread_;
};

std::vector<grpc::ByteBuffer> MakeRequests(int64_t subscriptions) {
  std::vector<grpc::ByteBuffer> requests;
  const int64_t count = std::min(subscriptions, kMostRequests);
  requests.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    CheckRequest request;
    // Spread over all subjects; the form is that of fill_check.sql.
    request.set_subject(
        absl::StrFormat("bench-user-%013d", i * subscriptions / count + 1));
    request.set_feature(kFeature);
    requests.push_back(ToByteBuffer(request.SerializeAsString()));
  }
  return requests;
}

bool GrantsAccess(const grpc::ByteBuffer& reply) {
  const auto bytes = FromByteBuffer(reply);
  CheckResponse response;
  return bytes.ok() && response.ParseFromString(*bytes) &&
         response.has_access() && response.grantor().subscription_id() > 0;
}

// Calls until an answer comes: a server that listens may not be ready yet.
absl::StatusOr<std::string> AwaitAnswer(LoadClient& client,
                                        const test::Process& server,
                                        absl::string_view name) {
  const int64_t deadline = MonotonicNanos() + 30'000'000'000;
  for (;;) {
    auto reply = client.Fetch();
    if (reply.ok()) return reply;
    if (MonotonicNanos() > deadline) {
      return absl::UnavailableError(
          absl::StrCat(name, " gives no answer: ", reply.status().ToString(),
                       "\n", server.Output()));
    }
    WaitUntilNanos(MonotonicNanos() + 100'000'000);
  }
}

absl::StatusOr<std::unique_ptr<LoadClient>> ConnectTo(
    const std::string& address, const char* method,
    const std::vector<grpc::ByteBuffer>& requests, const Options& options,
    const test::Process& server, absl::string_view name) {
  auto client = LoadClient::Connect(
      {.address = address,
       .method = method,
       .requests = requests,
       .check_reply = &GrantsAccess},
      {.channels = options.channels, .outstanding = options.outstanding},
      absl::Seconds(30));
  if (!client.ok()) {
    return absl::UnavailableError(absl::StrCat(
        name, ": ", client.status().message(), "\n", server.Output()));
  }
  return client;
}

Variant MakeVariant(const std::string& name, pid_t pid,
                    std::function<absl::StatusOr<Measurement>()> run) {
  return {.name = name, .server_pid = pid, .run = std::move(run)};
}

double MedianOf(const std::vector<Round>& rounds, absl::string_view variant,
                const std::function<double(const Sample&)>& metric) {
  std::vector<double> values;
  for (const Round* round : CountedRounds(rounds)) {
    values.push_back(metric(*round->Find(variant)));
  }
  return Median(values);
}

double Percentile(const Sample& sample, double percent) {
  return static_cast<double>(sample.measured.latency.PercentileNanos(percent));
}

// A client or server that is not the one to wait for hides the other's cost.
void NoteTheBottleneck(const std::vector<Round>& rounds, Report& report) {
  for (const char* variant : {"echo", "check"}) {
    const double server = MedianOf(
        rounds, variant, [](const Sample& s) { return s.ServerCores(); });
    const double client = MedianOf(
        rounds, variant, [](const Sample& s) { return s.ClientCores(); });
    if (server < 0.9) {
      report.AddNote(absl::StrFormat(
          "%s: the server used %.2f of its core and the client %.2f of its "
          "own: "
          "the rate is bound by something else (the database, foreign load)",
          variant, server, client));
    }
  }
}

}  // namespace

absl::Status RunCheckBench(const Options& options, Report& report) {
  const bool quick = options.quick;
  const int64_t subscriptions = options.subscriptions > 0
                                    ? options.subscriptions
                                    : (quick ? 10'000 : 100'000);
  const int rounds = options.rounds > 0 ? options.rounds : (quick ? 3 : 7);
  const absl::Duration throughput_time =
      quick ? absl::Milliseconds(500) : absl::Seconds(2);
  const absl::Duration latency_time =
      quick ? absl::Seconds(1) : absl::Seconds(4);
  const int idle_calls = quick ? 10 : 120;
  const absl::Duration idle_gap = absl::Milliseconds(1060);

  const fs::path entitlement = BuildPath(
      options.entitlement, "../../services/entitlement/tenure-entitlement");
  const fs::path echo = BuildPath(options.echo, "tenure-bench-echo");
  const fs::path tenurectl =
      BuildPath(options.tenurectl, "../../tools/tenurectl/tenurectl");

  ASSIGN_OR_RETURN(const auto directory, BenchDirectory::Make());

  // Before this thread is pinned: PostgreSQL may use every core.
  Progress("starting PostgreSQL and migrating");
  ASSIGN_OR_RETURN(const auto database, BenchDatabase::Start(tenurectl));
  Progress(absl::StrCat("inserting ", subscriptions, " subscriptions"));
  RETURN_IF_ERROR(database->session()
                      .Exec(sql::kFillCheck.sql, {absl::StrCat(subscriptions)},
                            absl::Minutes(10))
                      .status());
  RETURN_IF_ERROR(database->session()
                      .Exec("VACUUM ANALYZE", {}, absl::Minutes(10))
                      .status());
  RETURN_IF_ERROR(
      database->session().Exec("CHECKPOINT", {}, absl::Minutes(10)).status());

  const std::vector<int> cores = AllowedCores();
  int server_core = -1;
  if (cores.size() >= 2) {
    server_core = cores[0];
    RETURN_IF_ERROR(PinThisThread(cores[1]));
    report.AddNote(absl::StrFormat(
        "servers on core %d, client on core %d, PostgreSQL on any", cores[0],
        cores[1]));
  } else {
    report.AddNote(
        "one core only: servers and client share it, nothing is pinned");
  }

  Progress("starting the servers");
  const std::string check_address =
      absl::StrCat("127.0.0.1:", test::FreePort());
  ASSIGN_OR_RETURN(
      const auto check_server,
      StartServer(
          entitlement,
          {absl::StrCat("--grpc_listen=", check_address),
           absl::StrCat("--metrics_listen=127.0.0.1:", test::FreePort()),
           absl::StrCat("--database_conninfo=", database->conninfo())},
          server_core, directory->path() / "entitlement.log"));
  const std::vector<grpc::ByteBuffer> requests = MakeRequests(subscriptions);
  ASSIGN_OR_RETURN(const auto check,
                   ConnectTo(check_address, kCheckMethod, requests, options,
                             *check_server, "tenure-entitlement"));
  ASSIGN_OR_RETURN(const std::string answer,
                   AwaitAnswer(*check, *check_server, "tenure-entitlement"));
  if (!GrantsAccess(ToByteBuffer(answer))) {
    return absl::InternalError(
        "tenure-entitlement refuses access to a paid subscription of the "
        "bench's own database");
  }

  // The echo gives back an answer of Check: same shape, same size.
  const fs::path answer_file = directory->path() / "answer.bin";
  std::ofstream(answer_file, std::ios::binary) << answer;
  const std::string echo_address = absl::StrCat("127.0.0.1:", test::FreePort());
  ASSIGN_OR_RETURN(
      const auto echo_server,
      StartServer(echo,
                  {absl::StrCat("--listen=", echo_address),
                   absl::StrCat("--response_file=", answer_file.string())},
                  server_core, directory->path() / "echo.log"));
  ASSIGN_OR_RETURN(const auto bare,
                   ConnectTo(echo_address, kEchoMethod, requests, options,
                             *echo_server, "tenure-bench-echo"));
  RETURN_IF_ERROR(
      AwaitAnswer(*bare, *echo_server, "tenure-bench-echo").status());

  ASSIGN_OR_RETURN(
      const auto writer,
      ChangeWriter::Start(database->conninfo(), options.changes_per_second,
                          subscriptions));
  RoundOptions round_options;
  round_options.rounds = rounds;
  round_options.foreign_bound = options.foreign_bound;
  round_options.expected_cpu_seconds = [&] { return database->CpuSeconds(); };

  Progress(absl::StrFormat("throughput: %d channels x %d in flight",
                           options.channels, options.outstanding));
  for (LoadClient* client : {bare.get(), check.get()}) {
    RETURN_IF_ERROR(client->ClosedLoop(throughput_time / 2).status());
  }
  ASSIGN_OR_RETURN(
      const std::vector<Round> throughput,
      RunRounds(
          {MakeVariant("echo", echo_server->pid(),
                       [&] { return bare->ClosedLoop(throughput_time); }),
           MakeVariant("check", check_server->pid(),
                       [&] { return check->ClosedLoop(throughput_time); })},
          round_options, &Progress));

  const auto qps = [](const Sample& s) { return s.OpsPerSecond(); };
  const double echo_qps = MedianOf(throughput, "echo", qps);
  const double check_qps = MedianOf(throughput, "check", qps);
  const double rate =
      options.rate > 0 ? options.rate : 0.4 * std::min(echo_qps, check_qps);
  if (rate > 0.5 * std::min(echo_qps, check_qps)) {
    report.AddNote(absl::StrFormat(
        "the latency rate of %.0f/s is above half of what the slower side can "
        "do: P3 shows queueing",
        rate));
  }
  Progress(absl::StrFormat("latency: open loop, %.0f calls/s", rate));
  ASSIGN_OR_RETURN(
      const std::vector<Round> latency,
      RunRounds(
          {MakeVariant("echo", echo_server->pid(),
                       [&] { return bare->OpenLoop(rate, latency_time); }),
           MakeVariant("check", check_server->pid(),
                       [&] { return check->OpenLoop(rate, latency_time); })},
          round_options, &Progress));

  Progress(absl::StrFormat("idle: %d calls to each, %s apart", idle_calls,
                           absl::FormatDuration(idle_gap)));
  const auto expected_cpu = [&] {
    double seconds = database->CpuSeconds();
    for (const pid_t pid :
         {getpid(), check_server->pid(), echo_server->pid()}) {
      seconds += ReadProcessCpuSeconds(pid).value_or(0);
    }
    return seconds;
  };
  ASSIGN_OR_RETURN(const LoadAverage load_before_idle, ReadLoadAverage());
  ASSIGN_OR_RETURN(const double busy_start, ReadBusyCpuSeconds());
  const double expected_start = expected_cpu();
  const int64_t idle_start = MonotonicNanos();
  std::vector<Measurement> idle =
      CallIdle({bare.get(), check.get()}, idle_calls, idle_gap);
  const double idle_seconds =
      static_cast<double>(MonotonicNanos() - idle_start) * 1e-9;
  ASSIGN_OR_RETURN(const double busy_end, ReadBusyCpuSeconds());
  const double foreign_cores =
      std::max(0.0, busy_end - busy_start - (expected_cpu() - expected_start)) /
      idle_seconds;
  writer->Stop();
  Round idle_round;
  for (size_t i = 0; i < idle.size(); ++i) {
    Sample sample;
    sample.variant = i == 0 ? "echo" : "check";
    sample.measured = std::move(idle[i]);
    // The two took turns, so that both saw the same machine.
    sample.load_average_before = load_before_idle.one;
    sample.foreign_cores_during = foreign_cores;
    sample.marked = foreign_cores > options.foreign_bound;
    if (sample.measured.ops == 0) {
      return absl::UnavailableError(absl::StrCat("no idle call succeeded: ",
                                                 sample.measured.first_error));
    }
    idle_round.samples.push_back(std::move(sample));
  }
  const std::vector<Round> idle_rounds = {std::move(idle_round)};

  Result p1 =
      CompareRounds("P1", throughput, "check", "echo", Better::kHigher, qps);
  p1.mark = 0.90;
  p1.aim = 0.95;
  report.AddResult(std::move(p1));

  Result p2 = CompareRounds("P2", throughput, "check", "echo", Better::kLower,
                            [](const Sample& s) { return s.ServerCpuPerOp(); });
  p2.mark = 1.10;
  p2.aim = 1.05;
  report.AddResult(std::move(p2));

  Result p3 = FromRounds("P3", latency, Better::kLower, [](const Round& r) {
    const Sample& e = *r.Find("echo");
    return (Percentile(*r.Find("check"), 99) - Percentile(e, 99)) /
           Percentile(e, 50);
  });
  p3.mark = 1.0;
  p3.aim = 0.3;
  report.AddResult(std::move(p3));

  Result p3_idle =
      CompareRounds("P3_idle", idle_rounds, "check", "echo", Better::kLower,
                    [](const Sample& s) { return Percentile(s, 90); });
  p3_idle.best.reset();  // There is one round.
  p3_idle.mark = 1.5;
  p3_idle.aim = 1.1;
  report.AddResult(std::move(p3_idle));

  const auto cpu_us = [](const Sample& s) { return s.ServerCpuPerOp() * 1e6; };
  const auto helper_us = [](const Sample& s) {
    return s.HelperCpuPerOp() * 1e6;
  };
  const auto p50_us = [](const Sample& s) { return Percentile(s, 50) / 1e3; };
  const auto p99_us = [](const Sample& s) { return Percentile(s, 99) / 1e3; };
  report.AddBaseline("echo throughput", echo_qps, "calls/s");
  report.AddBaseline("Check throughput", check_qps, "calls/s");
  report.AddBaseline("echo server CPU", MedianOf(throughput, "echo", cpu_us),
                     "us/call");
  report.AddBaseline("Check server CPU", MedianOf(throughput, "check", cpu_us),
                     "us/call");
  report.AddBaseline("PostgreSQL CPU beside Check",
                     MedianOf(throughput, "check", helper_us), "us/call");
  report.AddBaseline("rate of the latency rounds", rate, "calls/s");
  report.AddBaseline("echo p50 at that rate", MedianOf(latency, "echo", p50_us),
                     "us");
  report.AddBaseline("echo p99 at that rate", MedianOf(latency, "echo", p99_us),
                     "us");
  report.AddBaseline("Check p99 at that rate",
                     MedianOf(latency, "check", p99_us), "us");
  const Measurement& echo_bytes = throughput[0].Find("echo")->measured;
  const Measurement& check_bytes = throughput[0].Find("check")->measured;
  const auto per_op = [](int64_t bytes, const Measurement& m) {
    return static_cast<double>(bytes) / static_cast<double>(m.ops);
  };
  report.AddBaseline("request of both",
                     per_op(check_bytes.request_bytes, check_bytes), "bytes");
  report.AddBaseline("echo reply", per_op(echo_bytes.reply_bytes, echo_bytes),
                     "bytes");
  report.AddBaseline("Check reply",
                     per_op(check_bytes.reply_bytes, check_bytes), "bytes");
  report.AddBaseline("subscriptions", static_cast<double>(subscriptions),
                     "rows");
  report.AddBaseline("changes while measuring",
                     static_cast<double>(writer->changes()), "updates");
  NoteTheBottleneck(throughput, report);
  if (writer->failures() > 0) {
    report.AddNote(absl::StrCat(writer->failures(), " updates failed"));
  }
  int64_t errors = 0;
  for (const std::vector<Round>* phase : {&throughput, &latency}) {
    for (const Round& round : *phase) {
      for (const Sample& sample : round.samples) {
        errors += sample.measured.errors;
      }
    }
  }
  if (errors > 0) {
    report.AddNote(absl::StrCat(
        errors, " calls failed; they are not counted as done, see the table"));
  }
  if (quick) {
    report.AddNote("--quick shows that the bench works; quote full runs only");
  }
  report.AddRounds("throughput, closed loop", throughput);
  report.AddRounds("latency, open loop", latency);
  report.AddRounds("latency, idle", idle_rounds);

  for (const auto* server : {check_server.get(), echo_server.get()}) {
    if (kill(server->pid(), 0) != 0) {
      return absl::InternalError("a server ended during the measurement");
    }
  }
  RETURN_IF_ERROR(echo_server->Stop(absl::Seconds(30)).status());
  RETURN_IF_ERROR(check_server->Stop(absl::Seconds(30)).status());
  directory->Succeeded();
  return absl::OkStatus();
}

}  // namespace tenure::bench
