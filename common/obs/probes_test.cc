#include "common/obs/probes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>

#include "common/http/test_client.h"

namespace tenure::obs {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ProbeServerTest : public ::testing::Test {
 protected:
  ProbeServerTest() : registry_("entitlement") {
    auto server = ProbeServer::Start("127.0.0.1:0", readiness_, registry_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  std::string Ask(absl::string_view target, absl::string_view method = "GET") {
    http::TestClient client(server_->port());
    client.Send(http::MakeRequest(method, target, "", "Connection: close\r\n"));
    return client.ReadToEnd();
  }

  static nlohmann::json Body(const std::string& answer) {
    return nlohmann::json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
  }

  Readiness readiness_;
  Registry registry_;
  std::unique_ptr<ProbeServer> server_;
};

TEST_F(ProbeServerTest, C136_LiveWhileNotReady) {
  readiness_.Set("database", absl::UnavailableError("the database is away"));

  EXPECT_THAT(Ask("/livez"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Ask("/readyz"), StartsWith("HTTP/1.1 503"));
}

TEST_F(ProbeServerTest, C136_LiveWhileReadinessChecksHang) {
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  std::promise<void> both_asked;
  std::atomic<int> asked{0};
  readiness_.AddCheck("database", [&, open] {
    if (++asked == 2) both_asked.set_value();
    open.wait();
    return absl::OkStatus();
  });
  // As many as there are workers.
  http::TestClient first(server_->port());
  http::TestClient second(server_->port());
  first.Send(http::MakeRequest("GET", "/readyz"));
  second.Send(http::MakeRequest("GET", "/readyz"));
  both_asked.get_future().wait();

  EXPECT_THAT(Ask("/livez"), StartsWith("HTTP/1.1 200"));

  gate.set_value();
  EXPECT_THAT(first.ReadResponse(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(second.ReadResponse(), StartsWith("HTTP/1.1 200"));
}

TEST_F(ProbeServerTest, ReadyFlipsWithItsConditions) {
  EXPECT_THAT(Ask("/readyz"), StartsWith("HTTP/1.1 200")) << "no condition";

  readiness_.Set("database", absl::UnavailableError("away"));
  EXPECT_THAT(Ask("/readyz"), StartsWith("HTTP/1.1 503"));
  EXPECT_FALSE(readiness_.ready());

  readiness_.Set("database", absl::OkStatus());
  EXPECT_THAT(Ask("/readyz"), StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(readiness_.ready());

  readiness_.Set("draining", absl::UnavailableError("the process is ending"));
  EXPECT_THAT(Ask("/readyz"), StartsWith("HTTP/1.1 503"));
}

TEST_F(ProbeServerTest, ReadyNamesEveryCondition) {
  readiness_.Set("database", absl::UnavailableError("away \"\xff\n"));
  readiness_.AddCheck("schema", [] { return absl::OkStatus(); });
  readiness_.AddCheck("broken", []() -> absl::Status {
    throw std::runtime_error("password=hunter2");
  });

  const std::string answer = Ask("/readyz");

  EXPECT_THAT(answer, HasSubstr("Content-Type: application/json\r\n"));
  const nlohmann::json report = Body(answer);
  EXPECT_EQ(report["status"], "not ready");
  EXPECT_EQ(report["checks"].size(), 3u);
  EXPECT_EQ(report["checks"]["database"]["ok"], false);
  EXPECT_EQ(report["checks"]["database"]["code"], "UNAVAILABLE");
  EXPECT_EQ(report["checks"]["database"]["message"], "away \"?\n");
  EXPECT_EQ(report["checks"]["schema"]["ok"], true);
  EXPECT_EQ(report["checks"]["broken"]["message"], "the check failed");
}

TEST_F(ProbeServerTest, RemoveForgetsACondition) {
  readiness_.AddCheck("database", [] { return absl::UnavailableError("x"); });
  EXPECT_FALSE(readiness_.ready());

  readiness_.Remove("database");

  EXPECT_TRUE(readiness_.ready());
}

TEST(Readiness, RemoveWaitsForACheckThatRuns) {
  Readiness readiness;
  std::promise<void> started;
  std::promise<void> gate;
  auto finished = std::make_unique<std::atomic<bool>>(false);
  readiness.AddCheck("slow", [&] {
    started.set_value();
    gate.get_future().wait();
    *finished = true;
    return absl::OkStatus();
  });
  std::thread prober([&] { readiness.Evaluate(); });
  started.get_future().wait();

  std::thread opener([&] { gate.set_value(); });
  readiness.Remove("slow");

  EXPECT_TRUE(*finished);
  finished.reset();
  opener.join();
  prober.join();
}

TEST_F(ProbeServerTest, ServesTheMetrics) {
  registry_.Counter("checks_total", "Checks.").Increment(3);

  EXPECT_THAT(
      Ask("/metrics"),
      AllOf(StartsWith("HTTP/1.1 200"),
            HasSubstr(
                "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"),
            HasSubstr("\ntenure_entitlement_checks_total 3\n")));
}

TEST_F(ProbeServerTest, RefusesOtherPathsMethodsAndBodies) {
  EXPECT_THAT(Ask("/"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask("/livez/"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(
      Ask("/metrics", "POST"),
      AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("Allow: GET, HEAD\r\n")));
  http::TestClient client(server_->port());
  client.Send(http::MakeRequest("GET", "/readyz", "body"));
  EXPECT_THAT(client.ReadToEnd(), StartsWith("HTTP/1.1 413"));
}

TEST_F(ProbeServerTest, AnswersHeadProbes) {
  EXPECT_THAT(Ask("/livez", "HEAD"),
              AllOf(StartsWith("HTTP/1.1 200"), EndsWith("\r\n\r\n")));
}

TEST_F(ProbeServerTest, NamesAnAddressThatIsTaken) {
  const auto second =
      ProbeServer::Start(server_->address(), readiness_, registry_);

  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(server_->address()));
}

}  // namespace
}  // namespace tenure::obs
