#include "common/obs/http_metrics.h"

#include <vector>

#include "common/base/mutex.h"

namespace tenure::obs {
namespace {

// Both read a member of ServerStats.
struct ReadGauge {
  prometheus::Gauge* gauge;
  int64_t http::ServerStats::*value;
};
struct ReadCounter {
  prometheus::Counter* counter;
  int64_t http::ServerStats::*value;
};

}  // namespace

class HttpServerMetrics::Reader {
 public:
  Reader(Registry& registry, const http::Server& server)
      : gauges_({
            {&registry.Gauge("http_open_connections",
                             "connections that are open"),
             &http::ServerStats::open_connections},
            {&registry.Gauge("http_queued_requests",
                             "requests that wait for a worker"),
             &http::ServerStats::queued_requests},
            {&registry.Gauge("http_buffered_body_bytes",
                             "bytes of bodies that are being received"),
             &http::ServerStats::buffered_body_bytes},
        }),
        counters_({
            {&registry.Counter("http_connections_total",
                               "connections that were accepted"),
             &http::ServerStats::accepted_connections_total},
            {&registry.Counter("http_accept_errors_total",
                               "failed accepts: out of file descriptors"),
             &http::ServerStats::accept_errors_total},
            {&registry.Counter("http_requests_total",
                               "requests that reached the service"),
             &http::ServerStats::requests_total},
            {&registry.Counter("http_refused_requests_total",
                               "requests that the server itself answered 4xx"),
             &http::ServerStats::refused_total},
            {&registry.Counter("http_overloaded_requests_total",
                               "requests answered 503: too many wait, or too "
                               "much is being received"),
             &http::ServerStats::overloaded_total},
            {&registry.Counter("http_timed_out_requests_total",
                               "requests that were not over in time"),
             &http::ServerStats::timed_out_total},
        }),
        server_(&server) {}

  void Refresh() TENURE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (server_ == nullptr) return;
    // Read under the lock: of two renders the later one has the newer values.
    const http::ServerStats stats = server_->stats();
    for (const ReadGauge& read : gauges_) {
      read.gauge->Set(static_cast<double>(stats.*read.value));
    }
    for (const ReadCounter& read : counters_) {
      read.counter->Increment(
          static_cast<double>(stats.*read.value - last_.*read.value));
    }
    last_ = stats;
  }

  void Detach() TENURE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    server_ = nullptr;
    for (const ReadGauge& read : gauges_) read.gauge->Set(0);
  }

 private:
  const std::vector<ReadGauge> gauges_;
  const std::vector<ReadCounter> counters_;
  Mutex mutex_;
  const http::Server* server_ TENURE_GUARDED_BY(mutex_);
  http::ServerStats last_ TENURE_GUARDED_BY(mutex_);
};

HttpServerMetrics::HttpServerMetrics(Registry& registry,
                                     const http::Server& server)
    : reader_(std::make_shared<Reader>(registry, server)) {
  registry.OnRender([reader = reader_] { reader->Refresh(); });
}

HttpServerMetrics::~HttpServerMetrics() { reader_->Detach(); }

}  // namespace tenure::obs
