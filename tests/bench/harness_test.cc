#include "tests/bench/harness.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace tenure::bench {
namespace {

Sample MakeSample(const std::string& variant, int64_t ops, double seconds,
                  double server_cpu_seconds) {
  Sample sample;
  sample.variant = variant;
  sample.measured.ops = ops;
  sample.measured.seconds = seconds;
  sample.server_cpu_seconds = server_cpu_seconds;
  return sample;
}

Round MakeRound(int64_t echo_ops, int64_t check_ops, bool marked = false) {
  Round round;
  round.samples.push_back(MakeSample("echo", echo_ops, 2, 1));
  round.samples.push_back(MakeSample("check", check_ops, 2, 1));
  round.samples.back().marked = marked;
  return round;
}

double Qps(const Sample& sample) { return sample.OpsPerSecond(); }

TEST(Median, IsTheMiddleValueOrTheMeanOfTheTwoMiddleOnes) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({7}), 7);
  EXPECT_EQ(Median({9, 1, 5}), 5);
  EXPECT_EQ(Median({4, 1, 3, 2}), 2.5);
}

TEST(Summary, SpreadIsTheRangeOverTheMedian) {
  const Summary summary = Summarize({10, 8, 12});

  EXPECT_EQ(summary.median, 10);
  EXPECT_EQ(summary.min, 8);
  EXPECT_EQ(summary.max, 12);
  EXPECT_DOUBLE_EQ(summary.Spread(), 0.4);
  EXPECT_EQ(Summarize({}).Spread(), 0);
}

TEST(LatencyHistogram, IsEmptyAtFirst) {
  const LatencyHistogram histogram;

  EXPECT_EQ(histogram.count(), 0);
  EXPECT_EQ(histogram.PercentileNanos(50), 0);
  EXPECT_EQ(histogram.MaxNanos(), 0);
  EXPECT_EQ(histogram.MeanNanos(), 0);
}

TEST(LatencyHistogram, IsExactForSmallValues) {
  LatencyHistogram histogram;
  for (int i = 1; i <= 200; ++i) histogram.RecordNanos(i);

  EXPECT_EQ(histogram.PercentileNanos(0), 1);
  EXPECT_EQ(histogram.PercentileNanos(50), 100);
  EXPECT_EQ(histogram.PercentileNanos(99), 198);
  EXPECT_EQ(histogram.PercentileNanos(99.5), 199);
  EXPECT_EQ(histogram.PercentileNanos(100), 200);
  EXPECT_DOUBLE_EQ(histogram.MeanNanos(), 100.5);
}

TEST(LatencyHistogram, ErrsByLessThanOnePercentUpwards) {
  for (int64_t value = 1; value < int64_t{1} << 41; value += value / 3 + 1) {
    LatencyHistogram histogram;
    histogram.RecordNanos(value);
    histogram.RecordNanos(int64_t{1} << 41);

    const int64_t seen = histogram.PercentileNanos(50);

    EXPECT_GE(seen, value);
    EXPECT_LE(seen, value + value / 128);
  }
}

TEST(LatencyHistogram, BucketsHaveNoGapAtPowersOfTwo) {
  for (int64_t power = 128; power < int64_t{1} << 41; power *= 2) {
    LatencyHistogram histogram;
    histogram.RecordNanos(power - 1);
    histogram.RecordNanos(power);
    histogram.RecordNanos(4 * power);

    EXPECT_EQ(histogram.PercentileNanos(33), power - 1);
    EXPECT_GE(histogram.PercentileNanos(66), power);
    EXPECT_LE(histogram.PercentileNanos(66), power + power / 128);
  }
}

TEST(LatencyHistogram, AStallOfOnePercentShowsAtP99AndNotAtP50) {
  LatencyHistogram histogram;
  for (int i = 0; i < 980; ++i) histogram.RecordNanos(100);
  for (int i = 0; i < 20; ++i) histogram.RecordNanos(5'000'000);

  EXPECT_EQ(histogram.PercentileNanos(50), 100);
  EXPECT_EQ(histogram.PercentileNanos(99), 5'000'000);
}

TEST(LatencyHistogram, ClampsWhatIsOutOfRange) {
  LatencyHistogram histogram;
  histogram.RecordNanos(-5);
  histogram.RecordNanos(std::numeric_limits<int64_t>::max());

  EXPECT_EQ(histogram.PercentileNanos(50), 0);
  EXPECT_GT(histogram.PercentileNanos(100), int64_t{3600} * 1'000'000'000);
}

TEST(LatencyHistogram, MergeAddsUp) {
  LatencyHistogram a;
  LatencyHistogram b;
  a.RecordNanos(10);
  b.RecordNanos(30);
  b.RecordNanos(20);

  a.Merge(b);

  EXPECT_EQ(a.count(), 3);
  EXPECT_EQ(a.PercentileNanos(50), 20);
  EXPECT_EQ(a.MaxNanos(), 30);
}

TEST(Sample, GivesRatesAndCostsPerCall) {
  Sample sample = MakeSample("echo", 50'000, 2, 1);
  sample.client_cpu_seconds = 0.5;

  EXPECT_DOUBLE_EQ(sample.OpsPerSecond(), 25'000);
  EXPECT_DOUBLE_EQ(sample.ServerCpuPerOp(), 20e-6);
  EXPECT_DOUBLE_EQ(sample.ClientCpuPerOp(), 10e-6);
  EXPECT_DOUBLE_EQ(sample.ServerCores(), 0.5);
  EXPECT_EQ(Sample().OpsPerSecond(), 0);
}

TEST(CompareRounds, TakesTheMedianOfTheRoundsRatiosNotTheRatioOfMedians) {
  // A slow round slows both sides; its ratio still counts as one.
  const std::vector<Round> rounds = {MakeRound(1000, 900), MakeRound(500, 400),
                                     MakeRound(100, 95)};

  const Result result =
      CompareRounds("P1", rounds, "check", "echo", Better::kHigher, Qps);

  EXPECT_DOUBLE_EQ(result.value, 0.9);
  EXPECT_DOUBLE_EQ(result.min, 0.8);
  EXPECT_DOUBLE_EQ(result.max, 0.95);
  EXPECT_DOUBLE_EQ(*result.best, 0.9);
  EXPECT_EQ(result.unit, "ratio");
}

TEST(CompareRounds, TheBestCostIsTheLowest) {
  std::vector<Round> rounds = {MakeRound(1000, 1000), MakeRound(1000, 1000)};
  rounds[0].samples[0].server_cpu_seconds = 2;
  rounds[1].samples[1].server_cpu_seconds = 1.5;

  const Result result =
      CompareRounds("P2", rounds, "check", "echo", Better::kLower,
                    [](const Sample& s) { return s.ServerCpuPerOp(); });

  EXPECT_DOUBLE_EQ(*result.best, 1.0);
  EXPECT_DOUBLE_EQ(result.value, (0.5 + 1.5) / 2);
}

TEST(CompareRounds, LeavesMarkedRoundsOutWhileEnoughOthersRemain) {
  const std::vector<Round> rounds = {
      MakeRound(1000, 900), MakeRound(1000, 900), MakeRound(1000, 900),
      MakeRound(1000, 100, true), MakeRound(1000, 100, true)};

  const Result result =
      CompareRounds("P1", rounds, "check", "echo", Better::kHigher, Qps);

  EXPECT_DOUBLE_EQ(result.min, 0.9);
  EXPECT_EQ(result.counted_rounds, 3);
  EXPECT_EQ(result.marked_rounds, 2);
  EXPECT_EQ(result.note, "");
}

TEST(CompareRounds, CountsAllAndSaysSoWhenTooFewAreUnmarked) {
  const std::vector<Round> rounds = {MakeRound(1000, 900),
                                     MakeRound(1000, 500, true),
                                     MakeRound(1000, 600, true)};

  const Result result =
      CompareRounds("P1", rounds, "check", "echo", Better::kHigher, Qps);

  EXPECT_DOUBLE_EQ(result.value, 0.6);
  EXPECT_EQ(result.counted_rounds, 3);
  EXPECT_NE(result.note, "");
}

TEST(ParseBusyCpuSeconds, LeavesIdleIoWaitAndGuestOut) {
  const auto busy = ParseBusyCpuSeconds(
      "cpu  100 20 30 99999 88888 4 5 6 100 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n",
      100);

  ASSERT_TRUE(busy.ok());
  EXPECT_DOUBLE_EQ(*busy, 1.65);
  EXPECT_FALSE(ParseBusyCpuSeconds("intr 1 2 3", 100).ok());
}

TEST(ReadProcessCpuSeconds, GrowsWithTheWorkOfTheProcess) {
  const auto before = ReadProcessCpuSeconds(getpid());
  LatencyHistogram histogram;
  for (int i = 0; i < 100'000; ++i) histogram.RecordNanos(i);
  const auto after = ReadProcessCpuSeconds(getpid());

  ASSERT_TRUE(before.ok());
  ASSERT_TRUE(after.ok());
  EXPECT_GT(*after, *before);
  EXPECT_EQ(histogram.count(), 100'000);
}

TEST(RunRounds, InterleavesTheVariants) {
  std::vector<std::string> order;
  const auto variant = [&](const std::string& name) {
    return Variant{.name = name,
                   .server_pid = getpid(),
                   .run = [&order, name]() -> absl::StatusOr<Measurement> {
                     order.push_back(name);
                     Measurement measured;
                     measured.ops = 1;
                     measured.seconds = 1;
                     return measured;
                   }};
  };

  const auto rounds =
      RunRounds({variant("A"), variant("B")},
                {.rounds = 3, .watch = absl::ZeroDuration()}, nullptr);

  ASSERT_TRUE(rounds.ok()) << rounds.status();
  EXPECT_EQ(order, (std::vector<std::string>{"A", "B", "A", "B", "A", "B"}));
  ASSERT_EQ(rounds->size(), 3u);
  EXPECT_NE((*rounds)[2].Find("B"), nullptr);
  EXPECT_EQ((*rounds)[2].Find("C"), nullptr);
}

TEST(RunRounds, FailsWhenNothingSucceeded) {
  const Variant variant{.name = "check",
                        .server_pid = getpid(),
                        .run = []() -> absl::StatusOr<Measurement> {
                          Measurement measured;
                          measured.errors = 5;
                          measured.first_error = "code 14: refused";
                          return measured;
                        }};

  const auto rounds = RunRounds(
      {variant}, {.rounds = 1, .watch = absl::ZeroDuration()}, nullptr);

  ASSERT_FALSE(rounds.ok());
  EXPECT_NE(rounds.status().message().find("code 14: refused"),
            absl::string_view::npos);
}

TEST(Report, JsonHasResultsRoundsAndTheMachine) {
  const std::vector<Round> rounds = {MakeRound(1000, 900),
                                     MakeRound(1000, 900)};
  Report report("check", /*quick=*/true);
  report.AddResult(
      CompareRounds("P1", rounds, "check", "echo", Better::kHigher, Qps));
  report.AddBaseline("echo_qps", 500, "ops/s");
  report.AddRounds("throughput", rounds);
  report.AddNote("one core only");

  const nlohmann::json json = nlohmann::json::parse(report.ToJson().dump());

  ASSERT_EQ(json["results"].size(), 1u);
  EXPECT_EQ(json["results"][0]["id"], "P1");
  EXPECT_EQ(json["results"][0]["value"], 0.9);
  EXPECT_EQ(json["results"][0]["unit"], "ratio");
  EXPECT_EQ(json["results"][0]["best"], 0.9);
  ASSERT_EQ(json["rounds"].size(), 4u);
  EXPECT_EQ(json["rounds"][1]["phase"], "throughput");
  EXPECT_EQ(json["rounds"][1]["round"], 1);
  EXPECT_EQ(json["rounds"][1]["variant"], "check");
  EXPECT_EQ(json["rounds"][1]["ops_per_second"], 450);
  EXPECT_TRUE(json["rounds"][1]["latency_us"].contains("p99.9"));
  EXPECT_EQ(json["baselines"][0]["name"], "echo_qps");
  EXPECT_GE(json["machine"]["nproc"].get<int>(), 1);
  EXPECT_EQ(json["machine"]["loadavg"].size(), 3u);
  EXPECT_TRUE(json["machine"].contains("build_type"));
  EXPECT_EQ(json["quick"], true);
}

TEST(Report, TableShowsEveryResultAndNote) {
  Report report("check", /*quick=*/false);
  report.AddResult({.id = "P3_idle", .value = 1.25, .unit = "ratio"});
  report.AddNote("one core only");

  const std::string table = report.ToTable();

  EXPECT_NE(table.find("P3_idle"), std::string::npos);
  EXPECT_NE(table.find("1.25"), std::string::npos);
  EXPECT_NE(table.find("one core only"), std::string::npos);
}

}  // namespace
}  // namespace tenure::bench
