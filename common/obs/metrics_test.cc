#include "common/obs/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tenure::obs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

TEST(MetricName, FollowsTheScheme) {
  struct Row {
    MetricKind kind;
    std::string name;
    bool valid;
  };
  const MetricKind counter = MetricKind::kCounter;
  const MetricKind gauge = MetricKind::kGauge;
  const MetricKind histogram = MetricKind::kHistogram;
  const std::vector<Row> rows = {
      {counter, "tenure_scheduler_claims_total", true},
      {counter, "tenure_scheduler_claims", false},
      {counter, "tenure_entitlement_claims_total", false},
      {counter, "scheduler_claims_total", false},
      {counter, "tenure_scheduler_Claims_total", false},
      {counter, "tenure_scheduler_claims-x_total", false},
      {counter, "tenure_scheduler__claims_total", false},
      {counter, "tenure_scheduler_", false},
      {gauge, "tenure_scheduler_oldest_due_seconds", true},
      {gauge, "tenure_scheduler_pending_accounts", true},
      {gauge, "tenure_scheduler_pending_total", false},
      {gauge, "tenure_scheduler_pending_count", false},
      {histogram, "tenure_scheduler_queue_delay_seconds", true},
      {histogram, "tenure_scheduler_batch_rows", true},
      {histogram, "tenure_scheduler_queue_delay_ms", false},
      {histogram, "tenure_scheduler_queue_delay", false},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(ValidateMetricName(row.kind, "scheduler", row.name).ok(),
              row.valid)
        << row.name;
  }
}

TEST(Registry, PrefixesNamesWithTheService) {
  Registry registry("webhook-ingest");

  registry.Counter("events_total", "Events.").Increment();
  registry.Counter("tenure_webhook_ingest_events_total", "Events.").Increment();

  EXPECT_THAT(registry.Names(),
              ElementsAre("tenure_webhook_ingest_events_total"));
  EXPECT_THAT(registry.Render(),
              HasSubstr("\ntenure_webhook_ingest_events_total 2\n"));
}

TEST(Registry, GivesTheSameHandleForTheSameNameAndLabels) {
  Registry registry("scheduler");

  prometheus::Counter& a =
      registry.Counter("runs_total", "Runs.", {{"job", "a"}});
  prometheus::Counter& b =
      registry.Counter("runs_total", "Runs.", {{"job", "b"}});

  EXPECT_EQ(&a, &registry.Counter("runs_total", "Runs.", {{"job", "a"}}));
  EXPECT_NE(&a, &b);
}

TEST(Registry, BoundsTheSeriesOfOneName) {
  Registry registry("scheduler");

  for (int i = 0; i < 5000; ++i) {
    registry.Counter("runs_total", "Runs.", {{"job", absl::StrCat(i)}})
        .Increment();
  }

  EXPECT_DOUBLE_EQ(
      registry.Counter("runs_total", "Runs.", {{"job", "other"}}).Value(),
      5000 - static_cast<double>(Registry::kMaxSeriesPerName - 1));
  const std::string text = registry.Render();
  size_t series = 0;
  for (size_t at = text.find("runs_total{"); at != std::string::npos;
       at = text.find("runs_total{", at + 1)) {
    ++series;
  }
  EXPECT_EQ(series, Registry::kMaxSeriesPerName);
  // Those known stay themselves.
  EXPECT_DOUBLE_EQ(
      registry.Counter("runs_total", "Runs.", {{"job", "0"}}).Value(), 1);
}

TEST(Registry, RefreshesBeforeItRenders) {
  Registry registry("scheduler");
  prometheus::Gauge& length = registry.Gauge("queue_tasks", "Waiting tasks.");
  int tasks = 3;
  registry.OnRender([] { throw std::runtime_error("broken"); });
  registry.OnRender([&] { length.Set(tasks); });

  EXPECT_THAT(registry.Render(), HasSubstr("tenure_scheduler_queue_tasks 3\n"));
  tasks = 4;
  EXPECT_THAT(registry.Render(), HasSubstr("tenure_scheduler_queue_tasks 4\n"));
}

// Each line is a comment or `name{labels} value`; each name has its HELP and
// TYPE; label values are escaped.
TEST(Registry, RendersWellFormedText) {
  Registry registry("entitlement");
  registry.Counter("checks_total", "Checks answered.", {{"result", "yes"}})
      .Increment(12);
  registry
      .Counter("checks_total", "Checks answered.",
               {{"result", "q\"uote\\back\nline"}})
      .Increment();
  registry.Gauge("replica_lag_seconds", "Age of the replica.").Set(0.25);
  prometheus::Histogram& latency =
      registry.Histogram("check_seconds", "Time of a check.");
  latency.Observe(0.0007);
  latency.Observe(3);
  latency.Observe(99);

  const std::string text = registry.Render();

  // POSIX expressions: a backslash in brackets stands for itself.
  const std::string comment = R"(# (HELP|TYPE) [a-z_0-9]+ .+)";
  const std::string sample =
      R"re([a-z_0-9]+(\{([a-z_]+="([^"\]|\\["\n])*",?)+\})? (-?[0-9.e+-]+|\+Inf))re";
  std::istringstream lines(text);
  std::string line;
  std::set<std::string> types;
  int samples = 0;
  while (std::getline(lines, line)) {
    if (line[0] == '#') {
      EXPECT_THAT(line, MatchesRegex(comment));
      if (line.find("# TYPE ") == 0) types.insert(line.substr(7));
    } else {
      EXPECT_THAT(line, MatchesRegex(sample));
      ++samples;
    }
  }
  EXPECT_EQ(text.back(), '\n');
  EXPECT_THAT(types,
              ElementsAre("tenure_entitlement_check_seconds histogram",
                          "tenure_entitlement_checks_total counter",
                          "tenure_entitlement_replica_lag_seconds gauge"));
  EXPECT_EQ(samples, 2 + 1 + static_cast<int>(LatencyBuckets().size()) + 1 + 2);
  EXPECT_THAT(text, HasSubstr("check_seconds_bucket{le=\"0.001\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("check_seconds_bucket{le=\"+Inf\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("check_seconds_count 3\n"));
}

TEST(Registry, CountsFromManyThreadsWhileItRenders) {
  Registry registry("scheduler");
  prometheus::Counter& counter = registry.Counter("runs_total", "Runs.");
  std::atomic<bool> done{false};
  std::thread scraper([&] {
    while (!done)
      EXPECT_THAT(registry.Render(), Not(HasSubstr("runs_total -")));
  });

  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10000; ++i) counter.Increment();
    });
  }
  for (std::thread& thread : threads) thread.join();
  done = true;
  scraper.join();

  EXPECT_DOUBLE_EQ(counter.Value(), 40000);
}

using RegistryDeathTest = ::testing::Test;

TEST(RegistryDeathTest, EndsTheProcessOnAProgrammersMistake) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Registry registry("scheduler");
  registry.Counter("runs_total", "Runs.", {{"job", "a"}});
  registry.Histogram("run_seconds", "Time of a run.");

  EXPECT_DEATH(registry.Counter("runs", "Runs."), "ends with _total");
  EXPECT_DEATH(registry.Counter("x_total", ""), "no help text");
  EXPECT_DEATH(registry.Counter("runs_total", "Runs.", {{"task", "a"}}),
               "two sets of label names");
  EXPECT_DEATH(registry.Counter("runs_total", "Walks.", {{"job", "a"}}),
               "two help texts");
  EXPECT_DEATH(registry.Counter("x_total", "X.", {{"a-b", "a"}}),
               "bad label name");
  EXPECT_DEATH(registry.Gauge("run_seconds", "Time of a run."), "two kinds");
  EXPECT_DEATH(
      registry.Histogram("run_seconds", "Time of a run.", {}, SizeBuckets()),
      "two bucket lists");
  EXPECT_DEATH(registry.Histogram("x_seconds", "X.", {}, {1, 1}),
               "strictly ascending");
}

}  // namespace
}  // namespace tenure::obs
