#include "tests/bench/load_client.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/bench/echo_service.h"

namespace tenure::bench {
namespace {

// An echo server in this process, and a client connected to it.
class LoadClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    answer_.set_has_access(true);
    answer_.set_reason(entitlement::v1::ACCESS_REASON_PAID);
    service_ = std::make_unique<EchoService>(answer_);
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    address_ = absl::StrCat("127.0.0.1:", port);
  }

  std::unique_ptr<LoadClient> Connect(
      const std::string& method, ClientOptions options,
      std::function<bool(const grpc::ByteBuffer&)> check_reply) {
    entitlement::v1::CheckRequest request;
    request.set_subject("user-1");
    request.set_feature("export");
    auto client = LoadClient::Connect(
        {.address = address_,
         .method = method,
         .requests = {ToByteBuffer(request.SerializeAsString())},
         .check_reply = std::move(check_reply)},
        options, absl::Seconds(20));
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }

  std::unique_ptr<LoadClient> ConnectToEcho() {
    return Connect("/tenure.bench.v1.Echo/CheckEcho",
                   {.channels = 2, .outstanding = 2, .sample_every = 1},
                   [this](const grpc::ByteBuffer& reply) {
                     const auto bytes = FromByteBuffer(reply);
                     return bytes.ok() && *bytes == answer_.SerializeAsString();
                   });
  }

  entitlement::v1::CheckResponse answer_;
  std::unique_ptr<EchoService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST_F(LoadClientTest, ClosedLoopCountsEveryCall) {
  const auto client = ConnectToEcho();
  ASSERT_NE(client, nullptr);

  const auto measured = client->ClosedLoop(absl::Milliseconds(50));

  ASSERT_TRUE(measured.ok());
  EXPECT_GE(measured->ops, 4);
  EXPECT_EQ(measured->errors, 0) << measured->first_error;
  EXPECT_EQ(measured->latency.count(), measured->ops);
  EXPECT_EQ(measured->reply_bytes,
            measured->ops * static_cast<int64_t>(answer_.ByteSizeLong()));
  EXPECT_GT(measured->seconds, 0);
}

TEST_F(LoadClientTest, OpenLoopSendsTheWholeTimetable) {
  const auto client = ConnectToEcho();
  ASSERT_NE(client, nullptr);

  const auto measured = client->OpenLoop(1000, absl::Milliseconds(50));

  ASSERT_TRUE(measured.ok());
  EXPECT_EQ(measured->ops, 50);
  EXPECT_EQ(measured->errors, 0) << measured->first_error;
  EXPECT_FALSE(client->OpenLoop(1, absl::Milliseconds(50)).ok());
}

TEST_F(LoadClientTest, IdleCallsTakeTurns) {
  const auto a = ConnectToEcho();
  const auto b = ConnectToEcho();
  ASSERT_NE(a, nullptr);
  ASSERT_NE(b, nullptr);

  const auto measured = CallIdle({a.get(), b.get()}, 3, absl::Milliseconds(2));

  ASSERT_EQ(measured.size(), 2u);
  EXPECT_EQ(measured[0].ops, 3);
  EXPECT_EQ(measured[1].ops, 3);
}

TEST_F(LoadClientTest, AWrongReplyIsAnError) {
  const auto client =
      Connect("/tenure.bench.v1.Echo/CheckEcho",
              {.channels = 1, .outstanding = 1, .sample_every = 1},
              [](const grpc::ByteBuffer&) { return false; });
  ASSERT_NE(client, nullptr);
  Measurement measured;

  client->CallOnce(measured);

  EXPECT_EQ(measured.ops, 0);
  EXPECT_EQ(measured.errors, 1);
}

TEST_F(LoadClientTest, AFailedCallIsAnErrorWithItsText) {
  const auto client = Connect("/tenure.bench.v1.Echo/NoSuchMethod",
                              {.channels = 1, .outstanding = 1}, nullptr);
  ASSERT_NE(client, nullptr);
  Measurement measured;

  client->CallOnce(measured);

  EXPECT_EQ(measured.errors, 1);
  EXPECT_NE(measured.first_error.find("code 12"), std::string::npos)
      << measured.first_error;
}

TEST(LoadClient, SaysThatNobodyListens) {
  // Port 1 needs rights to listen on and is not assigned to anything here.
  const auto client = LoadClient::Connect(
      {.address = "127.0.0.1:1", .method = "/x/y", .requests = {{}}}, {},
      absl::Milliseconds(100));

  EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tenure::bench
