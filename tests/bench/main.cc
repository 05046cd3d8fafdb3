// tenure-bench NAME [options]: runs one benchmark and prints its report.
#include <cstdio>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/bench/bench.h"
#include "tests/bench/harness.h"

namespace tenure::bench {

void Progress(absl::string_view line) {
  absl::FPrintF(stderr, "%s\n", line);
  fflush(stderr);
}

namespace {

struct Bench {
  const char* name;
  const char* about;
  absl::Status (*run)(const Options& options, Report& report);
};

constexpr Bench kBenches[] = {
    {"check", "Entitlement.Check against a bare echo: P1, P2, P3, P3_idle",
     &RunCheckBench},
    {"ingest",
     "signed webhooks against the same rows by pgbench: P9, P10, P11, C034",
     &RunIngestBench},
};

constexpr char kUsage[] =
    "usage: tenure-bench NAME [options]\n"
    "\n"
    "Measures the built binaries against the baselines in the tree. The "
    "results are\nratios of interleaved rounds; nothing passes or fails on an "
    "absolute time.\n";

constexpr char kOptions[] =
    "\noptions\n"
    "  --quick                 3 shorter rounds: shows that it works, not how "
    "fast\n"
    "  --json FILE             also write the report as JSON\n"
    "  --rounds N              rounds (5 or more for numbers to quote)\n"
    "  --subscriptions N       rows in the database\n"
    "  --channels N            connections of the client (4)\n"
    "  --outstanding N         calls in flight per connection (8)\n"
    "  --rate N                calls per second for latency (40 % of the "
    "slower "
    "side)\n"
    "  --changes_per_second N  changes of subscriptions while measuring (100)\n"
    "  --foreign_bound X       cores used by others that mark a round (0.25)\n"
    "  --setting NAME=VALUE    of PostgreSQL, for the ingest bench; may be "
    "repeated\n"
    "  --entitlement PATH, --ingest PATH, --echo PATH, --tenurectl PATH\n"
    "                          other binaries than those of this build\n";

std::string Help() {
  std::string text = absl::StrCat(kUsage, "\nbenches\n");
  for (const Bench& bench : kBenches) {
    absl::StrAppendFormat(&text, "  %-22s  %s\n", bench.name, bench.about);
  }
  return text + kOptions;
}

int UsageError(absl::string_view message) {
  absl::FPrintF(stderr, "tenure-bench: %s\n\n%s", message, Help());
  return 2;
}

int Main(int argc, char** argv) {
  Options options;
  std::string name;
  std::string json;
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      fputs(Help().c_str(), stdout);
      return 0;
    }
    if (argument == "--quick") {
      options.quick = true;
      continue;
    }
    if (!absl::StartsWith(argument, "--")) {
      if (!name.empty()) return UsageError("one bench at a time");
      name = std::string(argument);
      continue;
    }
    // --flag=value or --flag value.
    const size_t equals = argument.find('=');
    const absl::string_view flag = argument.substr(0, equals);
    std::string value;
    if (equals != absl::string_view::npos) {
      value = std::string(argument.substr(equals + 1));
    } else if (i + 1 < argc) {
      value = argv[++i];
    } else {
      return UsageError(absl::StrCat(flag, " needs a value"));
    }
    bool ok = true;
    if (flag == "--json") {
      json = value;
    } else if (flag == "--rounds") {
      ok = absl::SimpleAtoi(value, &options.rounds) && options.rounds > 0;
    } else if (flag == "--subscriptions") {
      ok = absl::SimpleAtoi(value, &options.subscriptions) &&
           options.subscriptions > 0;
    } else if (flag == "--channels") {
      ok = absl::SimpleAtoi(value, &options.channels) && options.channels > 0;
    } else if (flag == "--outstanding") {
      ok = absl::SimpleAtoi(value, &options.outstanding) &&
           options.outstanding > 0;
    } else if (flag == "--rate") {
      ok = absl::SimpleAtod(value, &options.rate) && options.rate > 0;
    } else if (flag == "--changes_per_second") {
      ok = absl::SimpleAtoi(value, &options.changes_per_second) &&
           options.changes_per_second >= 0;
    } else if (flag == "--foreign_bound") {
      ok = absl::SimpleAtod(value, &options.foreign_bound) &&
           options.foreign_bound > 0;
    } else if (flag == "--setting") {
      const std::pair<std::string, std::string> setting =
          absl::StrSplit(value, absl::MaxSplits('=', 1));
      ok = !setting.first.empty() && !setting.second.empty();
      options.settings.insert(setting);
    } else if (flag == "--entitlement") {
      options.entitlement = value;
    } else if (flag == "--ingest") {
      options.ingest = value;
    } else if (flag == "--echo") {
      options.echo = value;
    } else if (flag == "--tenurectl") {
      options.tenurectl = value;
    } else {
      return UsageError(absl::StrCat("unknown option ", flag));
    }
    if (!ok) return UsageError(absl::StrCat(flag, " cannot be ", value));
  }
  if (name.empty()) {
    fputs(Help().c_str(), stdout);
    return 0;
  }
  for (const Bench& bench : kBenches) {
    if (name != bench.name) continue;
    Report report(name, options.quick);
    absl::Status status = bench.run(options, report);
    if (status.ok()) {
      fputs(report.ToTable().c_str(), stdout);
      if (!json.empty()) status = report.WriteJson(json);
    }
    if (!status.ok()) {
      absl::FPrintF(stderr, "tenure-bench %s: %s\n", name, status.message());
      return 1;
    }
    return 0;
  }
  return UsageError(absl::StrCat("there is no bench ", name));
}

}  // namespace
}  // namespace tenure::bench

int main(int argc, char** argv) { return tenure::bench::Main(argc, argv); }
