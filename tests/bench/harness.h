#ifndef TENURE_TESTS_BENCH_HARNESS_H_
#define TENURE_TESTS_BENCH_HARNESS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

// What every benchmark shares: interleaved rounds of a baseline and the
// product, what each round cost, and the report. Machines that run benchmarks
// are noisy: only ratios of rounds that ran side by side are results, and
// nothing here passes or fails on an absolute time.
namespace tenure::bench {

// The value in the middle; the mean of the two middle ones for an even count;
// 0 for none.
double Median(std::vector<double> values);

// A set of values in short.
struct Summary {
  double median = 0;
  double min = 0;
  double max = 0;

  // (max - min) / median: 0.1 means that the values lie within 10 % of each
  // other. 0 when the median is 0.
  double Spread() const;
};
Summary Summarize(const std::vector<double>& values);

// Counts of latencies in log-linear buckets: every power of two is cut into
// 128 equal parts, so that a percentile is at most 1/128 above the recorded
// value, from 1 ns to 73 minutes. Not thread-safe.
class LatencyHistogram {
 public:
  LatencyHistogram();

  // Negative values count as 0; larger ones than the range as its end.
  void RecordNanos(int64_t nanos);
  void Merge(const LatencyHistogram& other);

  int64_t count() const { return count_; }
  int64_t MaxNanos() const { return max_; }
  double MeanNanos() const;

  // The smallest value that at least `percent` (0 to 100) of the recorded ones
  // do not exceed, rounded up to the end of its bucket but never above the
  // largest recorded value; 0 when nothing was recorded.
  int64_t PercentileNanos(double percent) const;

 private:
  std::vector<int64_t> buckets_;
  int64_t count_ = 0;
  int64_t max_ = 0;
  double sum_ = 0;
};

// Nanoseconds on a clock that never steps back.
int64_t MonotonicNanos();

// Returns when MonotonicNanos() has reached `nanos`.
void WaitUntilNanos(int64_t nanos);

// The machine's load averages over 1, 5 and 15 minutes.
struct LoadAverage {
  double one = 0;
  double five = 0;
  double fifteen = 0;
};
absl::StatusOr<LoadAverage> ReadLoadAverage();

// CPU seconds that all processors were not idle since the machine started,
// including what the hypervisor took. In steps of a clock tick (10 ms).
absl::StatusOr<double> ReadBusyCpuSeconds();

// The same from the text of /proc/stat with `ticks_per_second`.
absl::StatusOr<double> ParseBusyCpuSeconds(absl::string_view proc_stat,
                                           double ticks_per_second);

// User and system time of a process with all its threads, ended ones too:
// utime + stime of /proc/PID/stat, read from its CPU clock because that counts
// nanoseconds instead of ticks. Its children are not counted.
absl::StatusOr<double> ReadProcessCpuSeconds(pid_t pid);

// Pins the calling thread, and the threads it starts later, to one core.
absl::Status PinThisThread(int core);

int ProcessorCount();

// The cores this process may use, ascending.
std::vector<int> AllowedCores();

// CPU seconds of a process and its children, ended ones too.
double ReadFamilyCpuSeconds(pid_t parent);

// The parent of a process.
absl::StatusOr<pid_t> ParentOf(pid_t pid);

// What one run of a load gave.
struct Measurement {
  int64_t ops = 0;
  // Calls that failed; not among ops.
  int64_t errors = 0;
  // The first failure's text, for the report.
  std::string first_error;
  double seconds = 0;
  // Sums over all ops.
  int64_t request_bytes = 0;
  int64_t reply_bytes = 0;
  LatencyHistogram latency;
};

// One side of a comparison.
struct Variant {
  std::string name;
  // The process whose CPU time counts as the server's.
  pid_t server_pid = 0;
  std::function<absl::StatusOr<Measurement>()> run;
};

// A variant's part of a round.
struct Sample {
  std::string variant;
  Measurement measured;
  double server_cpu_seconds = 0;
  // The whole load process, i.e. the caller of RunRounds.
  double client_cpu_seconds = 0;
  // RoundOptions::expected_cpu_seconds over the sample.
  double helper_cpu_seconds = 0;
  double load_average_before = 0;
  // Cores that somebody else used just before the sample, and on average
  // during it.
  double foreign_cores_before = 0;
  double foreign_cores_during = 0;
  // Foreign load was above the bound: shown, and left out of the medians as
  // long as enough other rounds remain.
  bool marked = false;

  double OpsPerSecond() const;
  double ServerCpuPerOp() const;
  double ClientCpuPerOp() const;
  double HelperCpuPerOp() const;
  // Share of one core, 1.0 = a core was busy all the time.
  double ServerCores() const;
  double ClientCores() const;
};

// One pass over all variants, in order.
struct Round {
  std::vector<Sample> samples;

  bool Marked() const;
  const Sample* Find(absl::string_view variant) const;
};

struct RoundOptions {
  int rounds = 5;
  // Cores used by others above which a sample is marked.
  double foreign_bound = 0.25;
  // How long the machine is watched before each sample.
  absl::Duration watch = absl::Milliseconds(200);
  // CPU seconds spent so far by further processes that work for the
  // measurement, e.g. the database. Their time is not foreign.
  std::function<double()> expected_cpu_seconds = nullptr;
};

// Runs A, B, A, B, … Fails when a run fails or when every call of a sample
// failed.
absl::StatusOr<std::vector<Round>> RunRounds(
    const std::vector<Variant>& variants, const RoundOptions& options,
    const std::function<void(const std::string&)>& progress);

// The rounds that count: those without a mark if at least half of all (and at
// least 3, or all of fewer) have none, otherwise all.
std::vector<const Round*> CountedRounds(const std::vector<Round>& rounds);

enum class Better { kHigher, kLower };

// A result of PERFORMANCE section D.
struct Result {
  std::string id;
  // Median over the counted rounds.
  double value = 0;
  std::string unit;
  // Ratio of the best of each side, where that makes sense.
  std::optional<double> best = std::nullopt;
  // Over the counted rounds' values.
  double min = 0;
  double max = 0;
  double spread = 0;
  int counted_rounds = 0;
  int marked_rounds = 0;
  std::string note = {};
  // What must be reached, and what the design allows: shown beside the value.
  std::optional<double> mark = std::nullopt;
  std::optional<double> aim = std::nullopt;
  Better better = Better::kHigher;

  // Whether the median or the ratio of the best reaches the mark.
  bool Reached() const;
};

// The result of comparing `product` with `baseline`: the median of the rounds'
// ratios of `metric`, and the ratio of the best values of each side.
Result CompareRounds(absl::string_view id, const std::vector<Round>& rounds,
                     absl::string_view product, absl::string_view baseline,
                     Better better,
                     const std::function<double(const Sample&)>& metric);

// The result of any function of a round.
Result FromRounds(absl::string_view id, const std::vector<Round>& rounds,
                  Better better,
                  const std::function<double(const Round&)>& value);

// Everything a bench has to tell, as a table for people and as JSON:
//   {"bench": "check", "results": [{"id", "value", "unit", …}, …],
//    "baselines": [{"name", "value", "unit"}, …], "rounds": [{"phase", …}, …],
//    "machine": {"nproc", "loadavg", "build_type", …}, "notes": […]}
class Report {
 public:
  explicit Report(absl::string_view bench, bool quick);

  void AddResult(Result result);
  void AddBaseline(absl::string_view name, double value,
                   absl::string_view unit);
  void AddRounds(absl::string_view phase, std::vector<Round> rounds);
  // Something the reader of the numbers must know.
  void AddNote(absl::string_view note);

  nlohmann::json ToJson() const;
  std::string ToTable() const;
  // Writes ToJson to `path`.
  absl::Status WriteJson(const std::string& path) const;

 private:
  struct Baseline {
    std::string name;
    double value;
    std::string unit;
  };
  struct Phase {
    std::string name;
    std::vector<Round> rounds;
  };

  std::string bench_;
  bool quick_;
  LoadAverage load_at_start_;
  std::vector<Result> results_;
  std::vector<Baseline> baselines_;
  std::vector<Phase> phases_;
  std::vector<std::string> notes_;
};

}  // namespace tenure::bench

#endif  // TENURE_TESTS_BENCH_HARNESS_H_
