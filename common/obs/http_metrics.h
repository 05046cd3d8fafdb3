#ifndef TENURE_COMMON_OBS_HTTP_METRICS_H_
#define TENURE_COMMON_OBS_HTTP_METRICS_H_

#include <memory>

#include "common/http/server.h"
#include "common/obs/metrics.h"

namespace tenure::obs {

// Exports what an HTTP server does as http_* metrics, read at every Render:
// what it refuses by itself is seen by no handler. Ends before the server does;
// the registry keeps the series, with gauges of 0. Thread-safe.
class HttpServerMetrics {
 public:
  HttpServerMetrics(Registry& registry, const http::Server& server);
  ~HttpServerMetrics();
  HttpServerMetrics(const HttpServerMetrics&) = delete;
  HttpServerMetrics& operator=(const HttpServerMetrics&) = delete;

 private:
  class Reader;
  const std::shared_ptr<Reader> reader_;
};

}  // namespace tenure::obs

#endif  // TENURE_COMMON_OBS_HTTP_METRICS_H_
