#include "tests/bench/http_load.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/http/server.h"

namespace tenure::bench {
namespace {

HttpRequests SomeRequests(size_t count) {
  HttpRequests requests;
  for (size_t i = 0; i < count; ++i) {
    requests.wire.push_back(
        HttpPostText("/x", absl::StrCat("Number: ", i, "\r\n"), "{}"));
  }
  return requests;
}

class HttpLoadTest : public ::testing::Test {
 protected:
  void Serve(std::function<http::Response(const http::Request&)> answer) {
    http::ServerOptions options;
    options.listen_address = "127.0.0.1:0";
    options.worker_threads = 0;
    auto server = http::Server::Start(
        options, [this, answer = std::move(answer)](http::Request request,
                                                    http::Responder responder) {
          ++served_;
          responder.Send(answer(request));
        });
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  std::unique_ptr<HttpLoad> Connect(int connections) {
    auto load = HttpLoad::Connect(server_->port(), connections,
                                  [](int status, absl::string_view body) {
                                    return status == 200 && body == "[]";
                                  });
    EXPECT_TRUE(load.ok()) << load.status();
    return load.ok() ? *std::move(load) : nullptr;
  }

  std::atomic<int64_t> served_ = 0;
  std::unique_ptr<http::Server> server_;
};

TEST(ParseAnswer, WaitsForTheWholeBody) {
  const std::string whole =
      "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 3\r\n"
      "Connection: close\r\n\r\nabc";
  HttpAnswer answer;
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto part = ParseAnswer(whole.substr(0, size), &answer);
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_FALSE(*part) << size;
  }

  const std::string and_more = whole + "HTTP/1.1";
  const auto parsed = ParseAnswer(and_more, &answer);

  ASSERT_TRUE(parsed.ok() && *parsed);
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.body, "abc");
  EXPECT_EQ(answer.size, whole.size());
  EXPECT_TRUE(answer.closes);
}

TEST(ParseAnswer, RefusesWhatHasNoLength) {
  HttpAnswer answer;
  EXPECT_FALSE(ParseAnswer("HTTP/1.1 200 OK\r\n\r\n", &answer).ok());
  EXPECT_FALSE(ParseAnswer("SSH-2.0-x\r\n\r\n", &answer).ok());
}

TEST_F(HttpLoadTest, ClosedLoopSendsEachRequestOnce) {
  Serve([](const http::Request&) { return http::JsonResponse(200, "[]"); });
  const auto load = Connect(3);
  ASSERT_NE(load, nullptr);
  HttpRequests requests = SomeRequests(100);

  const auto measured = load->ClosedLoop(requests, absl::Minutes(1));

  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(measured->ops, 100);
  EXPECT_EQ(measured->errors, 0) << measured->first_error;
  EXPECT_EQ(measured->latency.count(), 100);
  EXPECT_EQ(requests.sent, 100u);
  EXPECT_EQ(served_, 100);
}

TEST_F(HttpLoadTest, ClosedLoopLeavesWhatItHasNoTimeFor) {
  Serve([](const http::Request&) { return http::JsonResponse(200, "[]"); });
  const auto load = Connect(2);
  ASSERT_NE(load, nullptr);
  HttpRequests requests = SomeRequests(50'000);

  const auto measured = load->ClosedLoop(requests, absl::Milliseconds(20));

  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(static_cast<size_t>(measured->ops), requests.sent);
  EXPECT_EQ(served_, measured->ops);
  EXPECT_LT(requests.sent, requests.wire.size());
}

TEST_F(HttpLoadTest, OpenLoopSendsTheWholeTimetable) {
  Serve([](const http::Request&) { return http::JsonResponse(200, "[]"); });
  const auto load = Connect(2);
  ASSERT_NE(load, nullptr);
  HttpRequests requests = SomeRequests(60);

  const auto measured = load->OpenLoop(requests, 1000, absl::Milliseconds(50));

  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(measured->ops, 50);
  EXPECT_EQ(requests.sent, 50u);
  EXPECT_FALSE(load->OpenLoop(requests, 1000, absl::Milliseconds(50)).ok());
}

TEST_F(HttpLoadTest, AnotherAnswerIsAnErrorWithItsText) {
  Serve([](const http::Request&) { return http::JsonResponse(503, "{}"); });
  const auto load = Connect(1);
  ASSERT_NE(load, nullptr);
  HttpRequests requests = SomeRequests(2);

  const auto measured = load->ClosedLoop(requests, absl::Minutes(1));

  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(measured->ops, 0);
  EXPECT_EQ(measured->errors, 2);
  EXPECT_EQ(measured->first_error, "503 {}");
}

TEST_F(HttpLoadTest, ConnectsAgainWhenTheServerCloses) {
  Serve([](const http::Request&) { return http::JsonResponse(200, "[]"); });
  const auto load = Connect(2);
  ASSERT_NE(load, nullptr);
  HttpRequests requests;
  requests.wire.assign(10, HttpPostText("/x", "Connection: close\r\n", "{}"));

  const auto measured = load->ClosedLoop(requests, absl::Minutes(1));

  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(measured->ops, 10) << measured->first_error;
  EXPECT_GE(server_->stats().accepted_connections_total, 10);
}

TEST_F(HttpLoadTest, SlowClientsHoldTheirConnections) {
  Serve([](const http::Request&) { return http::JsonResponse(200, "[]"); });

  const auto slow = SlowClients::Start(server_->port(), 20, "/x", "", 1000);

  ASSERT_TRUE(slow.ok()) << slow.status();
  const int64_t deadline = MonotonicNanos() + 20'000'000'000;
  while (server_->stats().open_connections < 20 &&
         MonotonicNanos() < deadline) {
    WaitUntilNanos(MonotonicNanos() + 1'000'000);
  }
  EXPECT_EQ(server_->stats().open_connections, 20);
  EXPECT_EQ(served_, 0);
  EXPECT_EQ((*slow)->turned_away(), 0);
}

}  // namespace
}  // namespace tenure::bench
