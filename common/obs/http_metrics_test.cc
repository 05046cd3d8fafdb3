#include "common/obs/http_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/http/test_client.h"

namespace tenure::obs {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(HttpServerMetrics, S12_TellsWhatTheServerRefusesByItself) {
  Registry registry("webhook-ingest");
  http::ServerOptions options;
  options.listen_address = "127.0.0.1:0";
  auto started = http::Server::Start(
      options, [](http::Request, http::Responder responder) {
        responder.Send(http::TextResponse(200, "ok"));
      });
  ASSERT_TRUE(started.ok()) << started.status();
  std::unique_ptr<http::Server> server = *std::move(started);
  auto metrics = std::make_unique<HttpServerMetrics>(registry, *server);
  const auto line = [](const char* name, int value) {
    return HasSubstr(
        absl::StrCat("\ntenure_webhook_ingest_", name, " ", value, "\n"));
  };
  EXPECT_THAT(registry.Render(), AllOf(line("http_connections_total", 0),
                                       line("http_open_connections", 0)));

  http::TestClient client(server->port());
  for (int i = 1; i <= 2; ++i) {
    client.Send(http::MakeRequest("GET", "/"));
    ASSERT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 200"));
    // Counters grow by what is new, however often they are read.
    registry.Render();
    EXPECT_THAT(registry.Render(), AllOf(line("http_connections_total", 1),
                                         line("http_open_connections", 1),
                                         line("http_requests_total", i),
                                         line("http_refused_requests_total", 0),
                                         line("http_queued_requests", 0)));
  }
  http::TestClient bad(server->port());
  bad.Send("nonsense\r\n\r\n");
  ASSERT_THAT(bad.ReadResponse(), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(
      registry.Render(),
      AllOf(line("http_connections_total", 2), line("http_requests_total", 2),
            line("http_refused_requests_total", 1),
            line("http_overloaded_requests_total", 0),
            line("http_timed_out_requests_total", 0),
            line("http_accept_errors_total", 0),
            line("http_buffered_body_bytes", 0)));

  metrics.reset();
  server.reset();
  EXPECT_THAT(registry.Render(), AllOf(line("http_connections_total", 2),
                                       line("http_open_connections", 0)));
}

}  // namespace
}  // namespace tenure::obs
