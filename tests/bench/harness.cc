#include "tests/bench/harness.h"

#include <sched.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"

namespace tenure::bench {
namespace {

// 128 parts per power of two.
constexpr int kPartBits = 7;
constexpr int64_t kParts = int64_t{1} << kPartBits;
constexpr int64_t kLargest = (int64_t{1} << 42) - 1;

// Values below 2 * kParts have a bucket each; above, the highest 8 bits of the
// value choose the bucket.
size_t BucketOf(int64_t nanos) {
  const int width = std::bit_width(static_cast<uint64_t>(nanos));
  const int shift = std::max(0, width - (kPartBits + 1));
  return static_cast<size_t>(shift * kParts + (nanos >> shift));
}

int64_t BucketEnd(size_t bucket) {
  const auto index = static_cast<int64_t>(bucket);
  if (index < 2 * kParts) return index;
  const int64_t shift = index / kParts - 1;
  const int64_t top = index - shift * kParts;
  return ((top + 1) << shift) - 1;
}

absl::StatusOr<std::string> ReadFile(const char* path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return absl::UnavailableError(absl::StrCat("cannot read ", path));
  return text.str();
}

double Ratio(double over, double under) { return under > 0 ? over / under : 0; }

double Round4(double value) {
  // JSON for people too: nobody needs 17 digits of a noisy number.
  if (!std::isfinite(value) || value == 0) return 0;
  const double scale =
      std::pow(10, 4 - 1 - std::floor(std::log10(std::abs(value))));
  return std::round(value * scale) / scale;
}

std::string CpuModel() {
  const auto text = ReadFile("/proc/cpuinfo");
  if (!text.ok()) return "";
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::vector<absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (parts.size() == 2 && absl::StartsWith(parts[0], "model name")) {
      return std::string(absl::StripAsciiWhitespace(parts[1]));
    }
  }
  return "";
}

}  // namespace

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

double Summary::Spread() const { return Ratio(max - min, median); }

Summary Summarize(const std::vector<double>& values) {
  if (values.empty()) return {};
  const auto [min, max] = std::minmax_element(values.begin(), values.end());
  return {.median = Median(values), .min = *min, .max = *max};
}

LatencyHistogram::LatencyHistogram() : buckets_(BucketOf(kLargest) + 1, 0) {}

void LatencyHistogram::RecordNanos(int64_t nanos) {
  nanos = std::clamp<int64_t>(nanos, 0, kLargest);
  ++buckets_[BucketOf(nanos)];
  ++count_;
  max_ = std::max(max_, nanos);
  sum_ += static_cast<double>(nanos);
}

void LatencyHistogram::Merge(const LatencyHistogram& other) {
  for (size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
}

double LatencyHistogram::MeanNanos() const {
  return Ratio(sum_, static_cast<double>(count_));
}

int64_t LatencyHistogram::PercentileNanos(double percent) const {
  if (count_ == 0) return 0;
  // The tiny slack keeps 99.9 % of 1000 at 999 although 0.999 has no exact
  // binary form.
  const double exact = percent / 100 * static_cast<double>(count_);
  const auto rank = std::clamp<int64_t>(
      static_cast<int64_t>(std::ceil(exact - 1e-6)), 1, count_);
  int64_t seen = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen >= rank) return std::min(BucketEnd(i), max_);
  }
  return max_;
}

int64_t MonotonicNanos() {
  return absl::ToInt64Nanoseconds(SystemClock::Instance().Monotonic());
}

void WaitUntilNanos(int64_t nanos) {
  Mutex mutex;
  CondVar never;
  MutexLock lock(mutex);
  for (int64_t left = nanos - MonotonicNanos(); left > 0;
       left = nanos - MonotonicNanos()) {
    never.WaitFor(mutex, absl::Nanoseconds(left));
  }
}

absl::StatusOr<LoadAverage> ReadLoadAverage() {
  ASSIGN_OR_RETURN(const std::string text, ReadFile("/proc/loadavg"));
  const std::vector<std::string> parts = absl::StrSplit(text, ' ');
  LoadAverage load;
  if (parts.size() < 3 || !absl::SimpleAtod(parts[0], &load.one) ||
      !absl::SimpleAtod(parts[1], &load.five) ||
      !absl::SimpleAtod(parts[2], &load.fifteen)) {
    return absl::InternalError("/proc/loadavg is not as expected");
  }
  return load;
}

absl::StatusOr<double> ParseBusyCpuSeconds(absl::string_view proc_stat,
                                           double ticks_per_second) {
  // cpu user nice system idle iowait irq softirq steal …; guest time is
  // contained in user.
  const std::vector<absl::string_view> lines = absl::StrSplit(proc_stat, '\n');
  const std::vector<absl::string_view> parts =
      absl::StrSplit(lines.front(), ' ', absl::SkipEmpty());
  if (parts.size() < 9 || parts[0] != "cpu") {
    return absl::InternalError("/proc/stat is not as expected");
  }
  double ticks = 0;
  for (const size_t i : {1, 2, 3, 6, 7, 8}) {
    double value = 0;
    if (!absl::SimpleAtod(parts[i], &value)) {
      return absl::InternalError("/proc/stat is not as expected");
    }
    ticks += value;
  }
  return ticks / ticks_per_second;
}

absl::StatusOr<double> ReadBusyCpuSeconds() {
  ASSIGN_OR_RETURN(const std::string text, ReadFile("/proc/stat"));
  return ParseBusyCpuSeconds(text, static_cast<double>(sysconf(_SC_CLK_TCK)));
}

absl::StatusOr<double> ReadProcessCpuSeconds(pid_t pid) {
  clockid_t clock;
  timespec spent;
  if (clock_getcpuclockid(pid, &clock) != 0 ||
      clock_gettime(clock, &spent) != 0) {
    return absl::NotFoundError(
        absl::StrCat("process ", pid, " is gone: no CPU time to read"));
  }
  return static_cast<double>(spent.tv_sec) +
         static_cast<double>(spent.tv_nsec) * 1e-9;
}

absl::Status PinThisThread(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot pin to core ", core, ": ", strerror(errno)));
  }
  return absl::OkStatus();
}

int ProcessorCount() { return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)); }

std::vector<int> AllowedCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    }
  }
  return cores;
}

namespace {

// A number of /proc/PID/stat, counted from the one behind the name.
absl::StatusOr<int64_t> ReadStatNumber(pid_t pid, size_t index) {
  ASSIGN_OR_RETURN(const std::string stat,
                   ReadFile(absl::StrCat("/proc/", pid, "/stat").c_str()));
  // The name stands in parentheses and may hold anything, even ") ".
  const size_t end = stat.rfind(')');
  if (end == std::string::npos) {
    return absl::InternalError("/proc/PID/stat is not as expected");
  }
  const std::vector<std::string> parts =
      absl::StrSplit(stat.substr(end + 1), ' ', absl::SkipEmpty());
  int64_t value = 0;
  if (parts.size() <= index || !absl::SimpleAtoi(parts[index], &value)) {
    return absl::InternalError("/proc/PID/stat is not as expected");
  }
  return value;
}

}  // namespace

absl::StatusOr<pid_t> ParentOf(pid_t pid) {
  ASSIGN_OR_RETURN(const int64_t parent, ReadStatNumber(pid, 1));
  return static_cast<pid_t>(parent);
}

double ReadFamilyCpuSeconds(pid_t parent) {
  double seconds = ReadProcessCpuSeconds(parent).value_or(0);
  // cutime and cstime: children that have ended.
  for (const size_t index : {13, 14}) {
    seconds += static_cast<double>(ReadStatNumber(parent, index).value_or(0)) /
               static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc", error)) {
    int pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    // A process may end at any moment; then it has no parent and no time.
    const auto its_parent = ParentOf(pid);
    if (!its_parent.ok() || *its_parent != parent) continue;
    seconds += ReadProcessCpuSeconds(pid).value_or(0);
  }
  return seconds;
}

double Sample::OpsPerSecond() const {
  return Ratio(static_cast<double>(measured.ops), measured.seconds);
}

double Sample::ServerCpuPerOp() const {
  return Ratio(server_cpu_seconds, static_cast<double>(measured.ops));
}

double Sample::ClientCpuPerOp() const {
  return Ratio(client_cpu_seconds, static_cast<double>(measured.ops));
}

double Sample::HelperCpuPerOp() const {
  return Ratio(helper_cpu_seconds, static_cast<double>(measured.ops));
}

double Sample::ServerCores() const {
  return Ratio(server_cpu_seconds, measured.seconds);
}

double Sample::ClientCores() const {
  return Ratio(client_cpu_seconds, measured.seconds);
}

bool Round::Marked() const {
  return std::any_of(samples.begin(), samples.end(),
                     [](const Sample& sample) { return sample.marked; });
}

const Sample* Round::Find(absl::string_view variant) const {
  for (const Sample& sample : samples) {
    if (sample.variant == variant) return &sample;
  }
  return nullptr;
}

absl::StatusOr<std::vector<Round>> RunRounds(
    const std::vector<Variant>& variants, const RoundOptions& options,
    const std::function<void(const std::string&)>& progress) {
  const auto expected = [&] {
    return options.expected_cpu_seconds ? options.expected_cpu_seconds() : 0.0;
  };
  std::vector<Round> rounds;
  for (int i = 0; i < options.rounds; ++i) {
    Round round;
    for (const Variant& variant : variants) {
      Sample sample;
      sample.variant = variant.name;

      // What is busy while we are idle is somebody else's work.
      ASSIGN_OR_RETURN(const LoadAverage load, ReadLoadAverage());
      sample.load_average_before = load.one;
      ASSIGN_OR_RETURN(const double watch_start, ReadBusyCpuSeconds());
      const double watch_expected = expected();
      const int64_t watch_from = MonotonicNanos();
      WaitUntilNanos(watch_from + absl::ToInt64Nanoseconds(options.watch));
      ASSIGN_OR_RETURN(const double watch_end, ReadBusyCpuSeconds());
      const double watched =
          static_cast<double>(MonotonicNanos() - watch_from) * 1e-9;
      sample.foreign_cores_before = std::max(
          0.0, Ratio(watch_end - watch_start - (expected() - watch_expected),
                     watched));

      const double expected_start = expected();
      ASSIGN_OR_RETURN(const double server_start,
                       ReadProcessCpuSeconds(variant.server_pid));
      ASSIGN_OR_RETURN(const double client_start,
                       ReadProcessCpuSeconds(getpid()));
      ASSIGN_OR_RETURN(const double busy_start, ReadBusyCpuSeconds());
      const int64_t from = MonotonicNanos();
      ASSIGN_OR_RETURN(sample.measured, variant.run());
      const double elapsed =
          static_cast<double>(MonotonicNanos() - from) * 1e-9;
      ASSIGN_OR_RETURN(const double server_end,
                       ReadProcessCpuSeconds(variant.server_pid));
      ASSIGN_OR_RETURN(const double client_end,
                       ReadProcessCpuSeconds(getpid()));
      ASSIGN_OR_RETURN(const double busy_end, ReadBusyCpuSeconds());
      sample.server_cpu_seconds = server_end - server_start;
      sample.client_cpu_seconds = client_end - client_start;
      sample.helper_cpu_seconds = expected() - expected_start;
      sample.foreign_cores_during = std::max(
          0.0, Ratio(busy_end - busy_start - sample.server_cpu_seconds -
                         (variant.server_pid == getpid()
                              ? 0.0
                              : sample.client_cpu_seconds) -
                         sample.helper_cpu_seconds,
                     elapsed));
      sample.marked = sample.foreign_cores_before > options.foreign_bound ||
                      sample.foreign_cores_during > options.foreign_bound;
      if (sample.measured.ops == 0) {
        return absl::UnavailableError(absl::StrCat(
            variant.name, ": no call succeeded, ", sample.measured.errors,
            " failed; the first with: ", sample.measured.first_error));
      }
      if (progress) {
        progress(absl::StrFormat(
            "round %d/%d %-8s %9.0f ops/s  p99 %8.1f us  server %6.2f us/op%s",
            i + 1, options.rounds, variant.name, sample.OpsPerSecond(),
            static_cast<double>(sample.measured.latency.PercentileNanos(99)) /
                1e3,
            sample.ServerCpuPerOp() * 1e6,
            sample.marked ? "  (foreign load)" : ""));
      }
      round.samples.push_back(std::move(sample));
    }
    rounds.push_back(std::move(round));
  }
  return rounds;
}

std::vector<const Round*> CountedRounds(const std::vector<Round>& rounds) {
  std::vector<const Round*> all;
  std::vector<const Round*> clean;
  for (const Round& round : rounds) {
    all.push_back(&round);
    if (!round.Marked()) clean.push_back(&round);
  }
  const size_t enough =
      std::max<size_t>((all.size() + 1) / 2, std::min<size_t>(3, all.size()));
  return clean.size() >= enough ? clean : all;
}

bool Result::Reached() const {
  if (!mark.has_value()) return true;
  const auto reaches = [&](double x) {
    return better == Better::kHigher ? x >= *mark : x <= *mark;
  };
  return reaches(value) || (best.has_value() && reaches(*best));
}

Result FromRounds(absl::string_view id, const std::vector<Round>& rounds,
                  Better better,
                  const std::function<double(const Round&)>& value) {
  Result result;
  result.id = std::string(id);
  result.better = better;
  result.unit = "ratio";
  std::vector<double> values;
  for (const Round* round : CountedRounds(rounds)) {
    values.push_back(value(*round));
  }
  const Summary summary = Summarize(values);
  result.value = summary.median;
  result.min = summary.min;
  result.max = summary.max;
  result.spread = summary.Spread();
  result.counted_rounds = static_cast<int>(values.size());
  result.marked_rounds = static_cast<int>(
      std::count_if(rounds.begin(), rounds.end(),
                    [](const Round& round) { return round.Marked(); }));
  if (result.marked_rounds > 0 && values.size() == rounds.size()) {
    result.note =
        "too few rounds without foreign load: marked rounds are counted";
  }
  return result;
}

Result CompareRounds(absl::string_view id, const std::vector<Round>& rounds,
                     absl::string_view product, absl::string_view baseline,
                     Better better,
                     const std::function<double(const Sample&)>& metric) {
  const auto of = [&](const Round& round, absl::string_view variant) {
    const Sample* sample = round.Find(variant);
    return sample == nullptr ? 0.0 : metric(*sample);
  };
  Result result = FromRounds(id, rounds, better, [&](const Round& round) {
    return Ratio(of(round, product), of(round, baseline));
  });
  // Over all rounds: the best one of a side is its least disturbed one.
  const auto best = [&](absl::string_view variant) {
    std::vector<double> values;
    for (const Round& round : rounds) values.push_back(of(round, variant));
    const Summary summary = Summarize(values);
    return better == Better::kHigher ? summary.max : summary.min;
  };
  result.best = Ratio(best(product), best(baseline));
  return result;
}

Report::Report(absl::string_view bench, bool quick)
    : bench_(bench), quick_(quick) {
  const auto load = ReadLoadAverage();
  if (load.ok()) load_at_start_ = *load;
#ifdef TENURE_BENCH_BUILD_TYPE
  if (absl::string_view(TENURE_BENCH_BUILD_TYPE) != "Release" ||
      !absl::string_view(TENURE_BENCH_SANITIZE).empty()) {
    AddNote("not a release build: the numbers say nothing about the product");
  }
#endif
}

void Report::AddResult(Result result) { results_.push_back(std::move(result)); }

void Report::AddBaseline(absl::string_view name, double value,
                         absl::string_view unit) {
  baselines_.push_back({std::string(name), value, std::string(unit)});
}

void Report::AddRounds(absl::string_view phase, std::vector<Round> rounds) {
  phases_.push_back({std::string(phase), std::move(rounds)});
}

void Report::AddNote(absl::string_view note) { notes_.emplace_back(note); }

nlohmann::json Report::ToJson() const {
  nlohmann::json json;
  json["bench"] = bench_;
  json["quick"] = quick_;
  json["results"] = nlohmann::json::array();
  for (const Result& result : results_) {
    nlohmann::json entry = {{"id", result.id},
                            {"value", Round4(result.value)},
                            {"unit", result.unit},
                            {"min", Round4(result.min)},
                            {"max", Round4(result.max)},
                            {"spread", Round4(result.spread)},
                            {"counted_rounds", result.counted_rounds},
                            {"marked_rounds", result.marked_rounds}};
    if (result.best.has_value()) entry["best"] = Round4(*result.best);
    if (result.mark.has_value()) {
      entry["mark"] = *result.mark;
      entry["reached"] = result.Reached();
    }
    if (result.aim.has_value()) entry["aim"] = *result.aim;
    if (!result.note.empty()) entry["note"] = result.note;
    json["results"].push_back(std::move(entry));
  }
  json["baselines"] = nlohmann::json::array();
  for (const Baseline& baseline : baselines_) {
    json["baselines"].push_back({{"name", baseline.name},
                                 {"value", Round4(baseline.value)},
                                 {"unit", baseline.unit}});
  }
  json["rounds"] = nlohmann::json::array();
  for (const Phase& phase : phases_) {
    for (size_t i = 0; i < phase.rounds.size(); ++i) {
      for (const Sample& sample : phase.rounds[i].samples) {
        const Measurement& measured = sample.measured;
        const auto micros = [&](double percent) {
          return Round4(
              static_cast<double>(measured.latency.PercentileNanos(percent)) /
              1e3);
        };
        nlohmann::json entry = {
            {"phase", phase.name},
            {"round", i + 1},
            {"variant", sample.variant},
            {"ops", measured.ops},
            {"errors", measured.errors},
            {"seconds", Round4(measured.seconds)},
            {"ops_per_second", Round4(sample.OpsPerSecond())},
            {"server_cpu_us_per_op", Round4(sample.ServerCpuPerOp() * 1e6)},
            {"client_cpu_us_per_op", Round4(sample.ClientCpuPerOp() * 1e6)},
            {"helper_cpu_us_per_op", Round4(sample.HelperCpuPerOp() * 1e6)},
            {"server_cores", Round4(sample.ServerCores())},
            {"client_cores", Round4(sample.ClientCores())},
            {"request_bytes",
             Round4(Ratio(static_cast<double>(measured.request_bytes),
                          static_cast<double>(measured.ops)))},
            {"reply_bytes",
             Round4(Ratio(static_cast<double>(measured.reply_bytes),
                          static_cast<double>(measured.ops)))},
            {"latency_us",
             {{"p50", micros(50)},
              {"p90", micros(90)},
              {"p99", micros(99)},
              {"p99.9", micros(99.9)},
              {"max", micros(100)}}},
            {"load_average_before", Round4(sample.load_average_before)},
            {"foreign_cores_before", Round4(sample.foreign_cores_before)},
            {"foreign_cores_during", Round4(sample.foreign_cores_during)},
            {"marked", sample.marked}};
        if (!measured.first_error.empty()) {
          entry["first_error"] = measured.first_error;
        }
        json["rounds"].push_back(std::move(entry));
      }
    }
  }
  utsname system{};
  uname(&system);
  json["machine"] = {
      {"nproc", ProcessorCount()},
      {"loadavg",
       {load_at_start_.one, load_at_start_.five, load_at_start_.fifteen}},
      {"cpu", CpuModel()},
      {"kernel", system.release},
#ifdef TENURE_BENCH_BUILD_TYPE
      {"build_type", TENURE_BENCH_BUILD_TYPE},
      {"sanitize", TENURE_BENCH_SANITIZE},
#endif
      {"compiler", __VERSION__}};
  json["notes"] = notes_;
  return json;
}

std::string Report::ToTable() const {
  std::string out;
  for (const Phase& phase : phases_) {
    absl::StrAppendFormat(&out, "\n%s\n", phase.name);
    absl::StrAppendFormat(
        &out, "  %5s  %-8s %9s %7s %8s %8s %8s %8s %9s %9s %5s %5s %6s %8s\n",
        "round", "variant", "ops/s", "errors", "p50 us", "p90 us", "p99 us",
        "p99.9 us", "server us", "client us", "srv", "cli", "load", "foreign");
    for (size_t i = 0; i < phase.rounds.size(); ++i) {
      for (const Sample& sample : phase.rounds[i].samples) {
        const auto micros = [&](double percent) {
          return static_cast<double>(
                     sample.measured.latency.PercentileNanos(percent)) /
                 1e3;
        };
        absl::StrAppendFormat(
            &out,
            "  %5d  %-8s %9.0f %7d %8.1f %8.1f %8.1f %8.1f %9.2f %9.2f %5.2f "
            "%5.2f %6.2f %3.2f/%3.2f%s\n",
            i + 1, sample.variant, sample.OpsPerSecond(),
            sample.measured.errors, micros(50), micros(90), micros(99),
            micros(99.9), sample.ServerCpuPerOp() * 1e6,
            sample.ClientCpuPerOp() * 1e6, sample.ServerCores(),
            sample.ClientCores(), sample.load_average_before,
            sample.foreign_cores_before, sample.foreign_cores_during,
            sample.marked ? " marked" : "");
      }
    }
  }
  if (!phases_.empty()) {
    absl::StrAppend(
        &out,
        "  (server, client us: CPU per call; srv, cli: cores used; foreign: "
        "cores others used before/during)\n");
  }
  if (!baselines_.empty()) {
    absl::StrAppend(&out, "\nbaselines\n");
    for (const Baseline& baseline : baselines_) {
      absl::StrAppendFormat(&out, "  %-36s %12.6g %s\n", baseline.name,
                            baseline.value, baseline.unit);
    }
  }
  absl::StrAppend(&out, "\nresults\n");
  absl::StrAppendFormat(&out, "  %-8s %9s %9s  %-6s %19s %7s  %-15s  %s\n",
                        "id", "median", "best", "unit", "min .. max", "spread",
                        "rounds", "mark");
  for (const Result& result : results_) {
    std::string mark = "-";
    if (result.mark.has_value()) {
      mark = absl::StrFormat(
          "%s %.4g: %s",
          result.better == Better::kHigher ? ">=" : "<=", *result.mark,
          result.Reached() ? "reached" : "missed");
    }
    absl::StrAppendFormat(
        &out, "  %-8s %9.4g %9s  %-6s %8.4g .. %7.4g %6.0f%%  %-15s  %s\n",
        result.id, result.value,
        result.best.has_value() ? absl::StrFormat("%.4g", *result.best) : "-",
        result.unit, result.min, result.max, result.spread * 100,
        absl::StrFormat("%d (%d marked)", result.counted_rounds,
                        result.marked_rounds),
        mark);
  }
  for (const Result& result : results_) {
    if (!result.note.empty()) {
      absl::StrAppend(&out, "  note on ", result.id, ": ", result.note, "\n");
    }
  }
  for (const std::string& note : notes_) {
    absl::StrAppend(&out, "  note: ", note, "\n");
  }
  return out;
}

absl::Status Report::WriteJson(const std::string& path) const {
  std::ofstream file(path);
  file << ToJson().dump(2) << "\n";
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

}  // namespace tenure::bench
