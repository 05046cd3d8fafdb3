#ifndef TENURE_COMMON_OBS_METRICS_H_
#define TENURE_COMMON_OBS_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"

namespace tenure::obs {

enum class MetricKind { kCounter, kGauge, kHistogram };

// Label names to values. Values come from sets known at build time or from
// configuration (routes, jobs, statements, codes), never from a caller.
using Labels = std::map<std::string, std::string>;

// Upper bounds in seconds for what a client waits for: 0.5 ms to 10 s.
const std::vector<double>& LatencyBuckets();
// For delays of background work: 10 ms to one day.
const std::vector<double>& DelayBuckets();
// For counts per batch: 1 to 10 000.
const std::vector<double>& SizeBuckets();

// Checks a full name, tenure_<service>_<thing>_<unit>: lower-case words; a
// counter ends with _total, a histogram with its unit (_seconds, _bytes, _rows,
// _events, _requests, _items), a gauge with neither _total nor a suffix that a
// histogram's series use.
absl::Status ValidateMetricName(MetricKind kind, absl::string_view service,
                                absl::string_view name);

// The metrics of one process. Handles are references that stay valid as long as
// the Registry; they are looked up once, at start-up, and kept, so that nothing
// on a hot path takes the registry's lock. The same name and labels give the
// same handle.
//
// A wrong name, or one name with two kinds, label sets or bucket lists, is a
// mistake in the program: the process ends with a message that says which.
// Thread-safe.
class Registry {
 public:
  // Series of one name. The label sets beyond them share one series whose label
  // values are all "other", so that no mistake in a label can grow the process
  // or its scraper without bound.
  static constexpr size_t kMaxSeriesPerName = 1024;

  // `service` is "webhook-ingest" or "webhook_ingest".
  explicit Registry(absl::string_view service);
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // `name` with or without the leading "tenure_<service>_"; shared layers leave
  // it out.
  prometheus::Counter& Counter(absl::string_view name, absl::string_view help,
                               const Labels& labels = {});
  prometheus::Gauge& Gauge(absl::string_view name, absl::string_view help,
                           const Labels& labels = {});
  // `buckets` are strictly ascending upper bounds, in the unit of the name.
  prometheus::Histogram& Histogram(
      absl::string_view name, absl::string_view help, const Labels& labels = {},
      const std::vector<double>& buckets = LatencyBuckets());

  // Runs `refresh` before every Render, for gauges that are read, not kept
  // (queue lengths, ages). Must be quick and must not call the Registry; an
  // exception is logged and ends nothing. What it refers to must outlive the
  // last Render.
  void OnRender(std::function<void()> refresh) TENURE_EXCLUDES(mutex_);

  // Everything in Prometheus' text format 0.0.4.
  std::string Render() TENURE_EXCLUDES(mutex_);

  // Full names registered so far, sorted: for the golden list in tests.
  std::vector<std::string> Names() const TENURE_EXCLUDES(mutex_);

  // "tenure_webhook_ingest_".
  const std::string& prefix() const { return prefix_; }

 private:
  struct Shape {
    MetricKind kind;
    std::string help;
    std::set<std::string> label_names;
    std::vector<double> buckets;
    std::set<Labels> series;
  };

  // Checks against what is known and gives the full name and the labels to use.
  std::string Admit(MetricKind kind, absl::string_view name,
                    absl::string_view help, const std::vector<double>& buckets,
                    Labels* labels) TENURE_EXCLUDES(mutex_);

  const std::string service_;  // with underscores
  const std::string prefix_;
  prometheus::Registry registry_;
  mutable Mutex mutex_;
  std::map<std::string, Shape> shapes_ TENURE_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> refreshes_ TENURE_GUARDED_BY(mutex_);
};

}  // namespace tenure::obs

#endif  // TENURE_COMMON_OBS_METRICS_H_
