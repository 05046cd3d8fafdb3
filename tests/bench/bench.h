#ifndef TENURE_TESTS_BENCH_BENCH_H_
#define TENURE_TESTS_BENCH_BENCH_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tests/bench/harness.h"

namespace tenure::bench {

// What the command line says. 0 and "" mean "the bench's own default".
struct Options {
  bool quick = false;
  int rounds = 0;
  int64_t subscriptions = 0;
  // Connections, and calls in flight on each, for throughput.
  int channels = 4;
  int outstanding = 8;
  // Calls per second for latency.
  double rate = 0;
  // Changes of subscriptions per second while measuring.
  int changes_per_second = 100;
  double foreign_bound = 0.25;
  // Settings of PostgreSQL over the bench's own, for looking into it.
  std::map<std::string, std::string> settings;
  // Binaries; by default those of the same build.
  std::string entitlement;
  std::string echo;
  std::string ingest;
  std::string tenurectl;
};

// Shows the reader that something goes on; on standard error.
void Progress(absl::string_view line);

// Check against a bare echo: P1, P2, P3, P3_idle.
absl::Status RunCheckBench(const Options& options, Report& report);

// Webhook deliveries against the same rows written by pgbench: P9, P10, P11,
// and C034.
absl::Status RunIngestBench(const Options& options, Report& report);

}  // namespace tenure::bench

#endif  // TENURE_TESTS_BENCH_BENCH_H_
