// What a hostile or careless client can make tenure-webhook-ingest do, over the
// real program: its listeners, its settings, its memory.

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/http/test_client.h"
#include "common/rpc/status.h"
#include "tenure/webhook/v1/webhook_ingest.grpc.pb.h"
#include "tests/integration/cluster.h"
#include "tests/integration/stripe_event.h"
#include "tests/support/http_client.h"
#include "tests/support/session.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace tenure::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr size_t kMebibyte = 1024 * 1024;

absl::Time Now() { return SystemClock::Instance().Now(); }

class IngestLimitsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    // A sanitized service keeps freed memory for a while and would be measured
    // with it.
    const char* options = ::getenv("ASAN_OPTIONS");
    ::setenv("ASAN_OPTIONS",
             absl::StrCat(options == nullptr ? "" : options,
                          ":quarantine_size_mb=1:thread_local_quarantine_"
                          "size_kb=16:malloc_context_size=2")
                 .c_str(),
             1);
  }

  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    ASSERT_OK_AND_ASSIGN(session_, database_->OpenSession());
    ASSERT_OK_AND_ASSIGN(cluster_, Cluster::Make(database_->conninfo()));
    std::ifstream file(cluster_->secret_file());
    std::getline(file, secret_);
  }

  void Start(const std::vector<std::string>& flags = {}) {
    ASSERT_OK(cluster_->StartIngest(flags));
    ASSERT_TRUE(absl::SimpleAtoi(
        absl::StripPrefix(cluster_->Address("http"), "127.0.0.1:"), &port_));
  }

  std::string Signature(const std::string& body) const {
    return StripeSignature(secret_, body, Now());
  }

  std::string Body(const std::string& key) const {
    const int64_t now = absl::ToUnixSeconds(Now());
    return InvoicePaidBody(key, absl::StrCat("user_", key), now, now + 86400);
  }

  HttpReply PostSigned(const std::string& body, const std::string& signature) {
    absl::StatusOr<HttpReply> reply =
        HttpPost(cluster_->Address("http"), "/v1/webhooks/stripe", body,
                 {{"Content-Type", "application/json"},
                  {"Stripe-Signature", signature}});
    EXPECT_OK(reply.status());
    return reply.ok() ? *reply : HttpReply{};
  }

  // A good delivery is taken as ever.
  void ExpectServes(const std::string& key) {
    const std::string body = Body(key);
    const HttpReply reply = PostSigned(body, Signature(body));
    EXPECT_EQ(reply.status, 200) << reply.body;
  }

  std::string Sql(const std::string& query) {
    const auto value = session_->Scalar(query);
    EXPECT_OK(value.status()) << query;
    return value.ok() ? *value : "";
  }

  // A line of the service's /proc/PID/status, in bytes.
  size_t Memory(const std::string& name) {
    std::ifstream file(
        absl::StrCat("/proc/", cluster_->ingest().pid(), "/status"));
    std::string word;
    size_t kibibytes = 0;
    while (file >> word) {
      if (word == name + ":" && file >> kibibytes) return kibibytes * 1024;
    }
    ADD_FAILURE() << "no " << name;
    return 0;
  }

  std::string Head(absl::string_view more_fields) const {
    return absl::StrCat("POST /v1/webhooks/stripe HTTP/1.1\r\nHost: test\r\n",
                        more_fields, "\r\n");
  }

  std::unique_ptr<webhook::v1::WebhookIngest::Stub> Stub() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel_ = grpc::CreateCustomChannel(cluster_->Address("ingest_grpc"),
                                         grpc::InsecureChannelCredentials(),
                                         arguments);
    return webhook::v1::WebhookIngest::NewStub(channel_);
  }

  webhook::v1::IngestRequest IngestRequest(const std::string& body) const {
    webhook::v1::IngestRequest request;
    request.set_route("stripe");
    request.set_body(body);
    webhook::v1::Header& header = *request.add_headers();
    header.set_name("Stripe-Signature");
    header.set_value(Signature(body));
    return request;
  }

  static void Limit(grpc::ClientContext& context) {
    context.set_deadline(absl::ToChronoTime(Now() + kPatience));
  }

  // What became of a request, without more than it says.
  static absl::Status Ingest(webhook::v1::WebhookIngest::Stub& stub,
                             const webhook::v1::IngestRequest& request) {
    grpc::ClientContext context;
    Limit(context);
    webhook::v1::IngestResponse response;
    return rpc::FromGrpcStatus(stub.Ingest(&context, request, &response));
  }

  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Cluster> cluster_;
  std::shared_ptr<grpc::Channel> channel_;
  std::string secret_;
  int port_ = 0;
};

TEST_F(IngestLimitsTest, C034_S12_ALengthOf64MiBIsRefusedBeforeAnyOfItIsRead) {
  Start();
  http::TestClient client(port_);
  ASSERT_TRUE(client.Send(Head("Content-Length: 67108864\r\n")));

  EXPECT_THAT(client.ReadResponse(),
              AllOf(StartsWith("HTTP/1.1 413"), HasSubstr("BODY_TOO_LARGE"),
                    HasSubstr("Connection: close")));
  // A client that sends all the same is cut off.
  const std::string part(64 * 1024, 'x');
  size_t sent = 0;
  while (sent < 64 * kMebibyte && client.Send(part)) sent += part.size();
  EXPECT_LT(sent, 64 * kMebibyte);
  ExpectServes("after");
}

TEST_F(IngestLimitsTest, C034_S12_AChunkedBodyWithoutEndIsRefused) {
  Start();
  http::TestClient client(port_);
  ASSERT_TRUE(client.Send(Head("Transfer-Encoding: chunked\r\n")));
  const std::string chunk =
      absl::StrCat("4000\r\n", std::string(0x4000, 'x'), "\r\n");
  size_t sent = 0;
  while (sent < 64 * kMebibyte && !client.Readable(0) && client.Send(chunk)) {
    sent += 0x4000;
  }

  EXPECT_GE(sent, kMebibyte);
  EXPECT_LT(sent, 64 * kMebibyte);
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 413"));
  ExpectServes("after");
}

TEST_F(IngestLimitsTest, C034_S13_ATrickleIsCutAtTheTotalDeadline) {
  Start({"--http_request_timeout=1s"});
  for (const std::string& start :
       {std::string("POST /v1/webhooks/stripe HTTP/1.1\r\nHost: test\r\nX: "),
        Head("Content-Length: 1000000\r\n"),
        Head("Transfer-Encoding: chunked\r\n") + "F4240\r\n"}) {
    http::TestClient client(port_);
    ASSERT_TRUE(client.Send(start));
    int sent = 0;
    // The wait paces the sender and ends when there is an answer.
    while (sent < 1000 && !client.Readable(50) && client.Send("x")) ++sent;

    EXPECT_GE(sent, 3) << start;
    EXPECT_LT(sent, 1000) << start;
    EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 408")) << start;
    EXPECT_TRUE(client.AtEnd()) << start;
  }
  ExpectServes("after");
}

TEST_F(IngestLimitsTest, C034_S12_AHeaderAbove16KiBIsRefused) {
  Start();
  std::string lines;
  for (int i = 0; i < 20'000; ++i) absl::StrAppend(&lines, "X-", i, ": y\r\n");
  const std::string one = absl::StrCat("X: ", std::string(16384, 'y'), "\r\n");
  for (const std::string& fields : {lines, one}) {
    http::TestClient client(port_);
    // The server may answer and close before all of it is sent.
    client.Send(Head(fields));
    EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 431"));
  }
  // A long header below the limit is taken.
  http::TestClient client(port_);
  client.Send(Head(absl::StrCat("X: ", std::string(15000, 'y'),
                                "\r\nContent-Length: 2\r\n")) +
              "{}");
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 401"));
  ExpectServes("after");
}

TEST_F(IngestLimitsTest, C034_F30_FiveHundredSlowClientsCostLessThan64MiB) {
  // Long enough that all of them are still there at the end.
  Start({"--http_request_timeout=120s"});
  constexpr int kSlow = 500;
  constexpr int kGood = 400;
  for (int i = 0; i < 50; ++i) ExpectServes(absl::StrCat("warm_", i));
  const size_t before = Memory("VmRSS");
  // The peak from now on.
  std::ofstream(absl::StrCat("/proc/", cluster_->ingest().pid(), "/clear_refs"))
      << "5";

  const std::string half(500'000, 'x');
  std::vector<http::TestClient> slow;
  for (int i = 0; i < kSlow; ++i) {
    http::TestClient& client = slow.emplace_back(port_);
    switch (i % 5) {
      case 0:
        client.Send("POST /v1/webhooks/stripe HTTP/1.1\r\nHost: test\r\nX: ");
        client.Send(std::string(12'000, 'y'));
        break;
      case 1:
        client.Send(Head("Content-Length: 60000\r\n"));
        client.Send(half.substr(0, 59'999));
        break;
      case 2:
        client.Send(Head("Content-Length: 1000000\r\n"));
        client.Send(half);
        break;
      case 3:
        client.Send(Head("Transfer-Encoding: chunked\r\n"));
        client.Send(absl::StrCat("F4240\r\n", half));
        break;
      case 4:
        client.Send(Head("Content-Length: 67108864\r\n"));
        break;
    }
  }

  std::atomic<int> next{0};
  std::atomic<int> good{0};
  std::vector<std::vector<absl::Duration>> latencies(8);
  std::vector<std::thread> senders;
  for (std::vector<absl::Duration>& mine : latencies) {
    senders.emplace_back([&] {
      for (int i = next++; i < kGood; i = next++) {
        const std::string body = Body(absl::StrCat("good_", i));
        const std::string signature = Signature(body);
        const absl::Duration start = SystemClock::Instance().Monotonic();
        good += PostSigned(body, signature).status == 200;
        mine.push_back(SystemClock::Instance().Monotonic() - start);
      }
    });
  }
  for (std::thread& sender : senders) sender.join();
  const size_t after = Memory("VmHWM");

  EXPECT_EQ(good, kGood);
  EXPECT_EQ(Sql("SELECT count(*) FROM provider_event WHERE external_event_id "
                "LIKE 'evt_good_%'"),
            absl::StrCat(kGood));
  int answered = 0;
  for (int i = 0; i < kSlow; ++i) {
    if (!slow[i].Readable(0)) continue;
    ++answered;
    // Bodies that are too large, and those beyond what is buffered at once.
    EXPECT_THAT(slow[i].ReadResponse(), i % 5 == 4 ? StartsWith("HTTP/1.1 413")
                                                   : StartsWith("HTTP/1.1 503"))
        << i;
  }
  EXPECT_LT(after - std::min(before, after), 64 * kMebibyte);
  std::vector<absl::Duration> all;
  for (const auto& mine : latencies) {
    all.insert(all.end(), mine.begin(), mine.end());
  }
  std::sort(all.begin(), all.end());
  std::cout << "slow clients: " << kSlow << ", of them answered: " << answered
            << "; resident before: " << before / 1024
            << " KiB, peak: " << after / 1024
            << " KiB; good deliveries: " << good << ", p50 "
            << all[all.size() / 2] << ", p99 " << all[all.size() * 99 / 100]
            << std::endl;
}

TEST_F(IngestLimitsTest, S12_ConnectionsBeyondTheCapWaitForRoom) {
  Start({"--http_max_connections=4"});
  std::vector<http::TestClient> busy;
  for (int i = 0; i < 4; ++i) {
    busy.emplace_back(port_);
    ASSERT_TRUE(
        busy.back().Send(Head("Content-Length: 10\r\nExpect: "
                              "100-continue\r\n")));
    // It has a connection of its own.
    ASSERT_THAT(busy.back().ReadHead(), StartsWith("HTTP/1.1 100"));
  }
  http::TestClient waiting(port_);
  const std::string body = Body("waiting");
  ASSERT_TRUE(waiting.Send(
      Head(absl::StrCat("Stripe-Signature: ", Signature(body),
                        "\r\nContent-Length: ", body.size(), "\r\n")) +
      body));
  EXPECT_FALSE(waiting.Readable(300));
  busy.back().Close();
  EXPECT_THAT(waiting.ReadResponse(), StartsWith("HTTP/1.1 200"));
}

TEST_F(IngestLimitsTest, S12_IdleConnectionsMakeRoomForNewOnes) {
  Start({"--http_max_connections=4"});
  std::vector<http::TestClient> idle;
  for (int i = 0; i < 4; ++i) {
    idle.emplace_back(port_);
    idle.back().Send(Head("Content-Length: 2\r\n") + "{}");
    ASSERT_THAT(idle.back().ReadResponse(), StartsWith("HTTP/1.1 401"));
  }
  ExpectServes("newcomer");
}

TEST_F(IngestLimitsTest, S12_ConnectionsOfOnePeerBeyondItsCapAreClosed) {
  Start({"--http_max_connections_per_peer=3"});
  std::vector<http::TestClient> busy;
  for (int i = 0; i < 3; ++i) {
    busy.emplace_back(port_);
    ASSERT_TRUE(
        busy.back().Send(Head("Content-Length: 10\r\nExpect: "
                              "100-continue\r\n")));
    ASSERT_THAT(busy.back().ReadHead(), StartsWith("HTTP/1.1 100"));
  }
  http::TestClient fourth(port_);
  EXPECT_TRUE(fourth.AtEnd());
  busy.clear();
  // The server hears of the ends after the client has made them.
  const absl::Duration end = SystemClock::Instance().Monotonic() + kPatience;
  const std::string body = Body("after");
  std::string answer;
  while (answer.empty() && SystemClock::Instance().Monotonic() < end) {
    http::TestClient client(port_);
    client.Send(
        Head(absl::StrCat("Stripe-Signature: ", Signature(body),
                          "\r\nContent-Length: ", body.size(), "\r\n")) +
        body);
    answer = client.ReadResponse();
  }
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
}

TEST_F(IngestLimitsTest, C033_S03_NothingIsParsedBeforeAGoodSignature) {
  Start();
  const std::string opens(200'000, '[');
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  for (const std::string& body : {opens, objects, std::string("not JSON"),
                                  std::string("\0\xff\xfe", 3)}) {
    const HttpReply bad = PostSigned(body, Signature(body + " "));
    EXPECT_EQ(bad.status, 401);
    EXPECT_THAT(bad.body, HasSubstr("SIGNATURE_INVALID"));
    const HttpReply signed_one = PostSigned(body, Signature(body));
    EXPECT_EQ(signed_one.status, 400);
    EXPECT_THAT(signed_one.body, HasSubstr("EVENT_MALFORMED"));
  }
  EXPECT_EQ(Sql("SELECT count(*) FROM provider_event"), "0");
  ExpectServes("after");
}

TEST_F(IngestLimitsTest, S17_HostileTextStaysWithinItsLineOfTheLog) {
  Start({"--log_level=debug"});
  const std::string huge(500'000, 'h');
  // As JSON escapes; unescaped they are no JSON.
  const std::string nasty =
      R"(\u001b[31m\n{\"level\":\"error\",\"message\":\"forged\"}\r\u0007\u2028)";
  const auto event = [](const std::string& id, const std::string& type,
                        const std::string& customer) {
    return absl::StrCat(
        R"({"id":")", id, R"(","object":"event","type":")", type,
        R"(","created":1,"livemode":false,"data":{"object":{"id":"x",)",
        R"("object":"x","customer":")", customer, R"("}}})");
  };
  int posted = 0;
  for (const std::string& text : {nasty, huge}) {
    for (const std::string& body :
         {event("evt_1" + text, "a.b", "cus"), event("evt_2", text, "cus"),
          event("evt_3", "customer.subscription.updated", text), text}) {
      PostSigned(body, Signature(body));
      PostSigned(body, Signature(body + "x"));
      ++posted;
    }
  }
  for (const std::string& id :
       {std::string("\x1b[31mred"), std::string("\xff\xfe\x01"),
        std::string(10'000, 'i'), std::string("a\"},{\"b\":\"")}) {
    http::TestClient client(port_);
    client.Send(
        Head(absl::StrCat("X-Request-Id: ", id, "\r\nStripe-Signature: ", id,
                          "\r\nContent-Length: 2\r\n")) +
        "{}");
    EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 4"));
    const auto path = HttpPost(cluster_->Address("http"),
                               absl::StrCat("/v1/webhooks/", id), "{}");
    EXPECT_TRUE(!path.ok() || path->status >= 400);
  }
  ExpectServes("after");
  ASSERT_OK(cluster_->ingest().Stop().status());

  int lines = 0;
  for (const std::string& line : cluster_->ingest().Lines()) {
    ++lines;
    EXPECT_LE(line.size(), log::kMaxLineBytes);
    const nlohmann::json parsed = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(parsed.is_object()) << line;
    EXPECT_NE(parsed.value("message", ""), "forged") << line;
    EXPECT_THAT(line, Not(ContainsRegex("[[:cntrl:]]")));
  }
  EXPECT_GT(lines, posted);
}

TEST_F(IngestLimitsTest, S22_AFloodOfOneCustomerWaitsAndNobodyElseDoes) {
  Start({"--flood_limit_per_minute=3"});
  constexpr int kEvents = 10;
  int received = 0;
  for (int i = 0; i < kEvents; ++i) {
    const std::string key = absl::StrCat("flood", i);
    const std::string body =
        absl::StrReplaceAll(Body(key), {{"cus_" + key, "cus_flood"}});
    const HttpReply reply = PostSigned(body, Signature(body));
    EXPECT_EQ(reply.status, 200) << reply.body;
    const bool waits = absl::StrContains(reply.body, R"("state":"received")");
    EXPECT_EQ(waits, i >= 3) << i << " " << reply.body;
    received += waits;
    // Somebody else.
    const std::string other = Body(absl::StrCat("other", i));
    EXPECT_THAT(PostSigned(other, Signature(other)).body,
                HasSubstr(R"("state":"parked")"));
  }
  EXPECT_EQ(received, kEvents - 3);
  EXPECT_EQ(Sql("SELECT count(*) FROM provider_event WHERE status = 'received' "
                "AND reason = 'flood' AND next_attempt_at > tenure_now()"),
            absl::StrCat(kEvents - 3));
  const auto metrics = HttpGet(cluster_->Address("ingest_probes"), "/metrics");
  ASSERT_OK(metrics.status());
  EXPECT_THAT(metrics->body,
              HasSubstr("\ntenure_webhook_ingest_flooded_events_total"
                        "{route=\"stripe\"} 7\n"));
  int warnings = 0;
  for (const std::string& line : cluster_->ingest().Lines()) {
    warnings += absl::StrContains(line, "flood of one subject");
  }
  EXPECT_EQ(warnings, 1);

  // Nothing is lost: once their time has come, the job treats them like all
  // others.
  Sql("WITH due AS (UPDATE provider_event SET next_attempt_at = tenure_now() "
      "WHERE reason = 'flood' RETURNING id) SELECT count(*) FROM due");
  ASSERT_OK(cluster_->StartScheduler());
  EXPECT_OK(session_->AwaitTrue(
      "SELECT count(*) = 20 FROM provider_event WHERE status = 'parked'"));
}

// gRPC: the same event without the HTTP listener.

TEST_F(IngestLimitsTest, C135_S12_ABodyHasOneLimitOverHttpAndGrpc) {
  Start({"--http_max_body_bytes=100000"});
  const auto stub = Stub();
  for (const size_t size : {size_t{100'000}, size_t{100'001}}) {
    const std::string body(size, 'x');
    const bool fits = size == 100'000;
    EXPECT_EQ(PostSigned(body, Signature(body)).status, fits ? 400 : 413);
    EXPECT_THAT(Ingest(*stub, IngestRequest(body)),
                HasReason(fits ? common::v1::ERROR_REASON_EVENT_MALFORMED
                               : common::v1::ERROR_REASON_BODY_TOO_LARGE));
  }
}

TEST_F(IngestLimitsTest, C135_S12_AMessageOf5MiBIsRefused) {
  Start();
  const auto stub = Stub();
  EXPECT_THAT(Ingest(*stub, IngestRequest(std::string(5 * kMebibyte, 'x'))),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_OK(Ingest(*stub, IngestRequest(Body("after"))));
}

TEST_F(IngestLimitsTest, C135_S12_MetadataOf64KiBIsRefused) {
  Start();
  grpc::ClientContext context;
  Limit(context);
  context.AddMetadata("x-large", std::string(64 * 1024, 'y'));
  webhook::v1::IngestResponse response;
  // gRPC ends the connection with the call; the caller sees one or the other.
  EXPECT_THAT(rpc::FromGrpcStatus(Stub()->Ingest(
                  &context, IngestRequest(Body("large")), &response)),
              AnyOf(StatusIs(absl::StatusCode::kResourceExhausted),
                    StatusIs(absl::StatusCode::kUnavailable)));
  EXPECT_OK(Ingest(*Stub(), IngestRequest(Body("after"))));
  EXPECT_EQ(Sql("SELECT count(*) FROM provider_event"), "1");
}

TEST_F(IngestLimitsTest, C135_S12_HeadersInAMessageHaveTheLimitOfHttp) {
  Start();
  const auto stub = Stub();
  webhook::v1::IngestRequest many = IngestRequest(Body("many"));
  for (int i = 0; i < 100'000; ++i) many.add_headers()->set_name("x");
  EXPECT_THAT(Ingest(*stub, many),
              AllOf(StatusIs(absl::StatusCode::kInvalidArgument),
                    HasReason(common::v1::ERROR_REASON_FIELD_INVALID)));
  webhook::v1::IngestRequest large = IngestRequest(Body("large"));
  large.add_headers()->set_value(std::string(16 * 1024, 'y'));
  EXPECT_THAT(Ingest(*stub, large),
              AllOf(StatusIs(absl::StatusCode::kInvalidArgument),
                    HasReason(common::v1::ERROR_REASON_FIELD_INVALID)));
  EXPECT_EQ(Sql("SELECT count(*) FROM provider_event"), "0");

  webhook::v1::IngestRequest usual = IngestRequest(Body("usual"));
  for (int i = 0; i < 100; ++i) {
    webhook::v1::Header& header = *usual.add_headers();
    header.set_name(absl::StrCat("x-", i));
    header.set_value(std::string(100, 'y'));
  }
  EXPECT_OK(Ingest(*stub, usual));
}

TEST_F(IngestLimitsTest, C135_HeadersThatNoHttpRequestHasChangeNothing) {
  Start();
  const auto stub = Stub();
  // A name with NUL beside the real one is another name.
  webhook::v1::IngestRequest beside = IngestRequest(Body("beside"));
  webhook::v1::Header& header = *beside.add_headers();
  header.set_name(std::string("Stripe-Signature\0", 17));
  header.set_value(std::string("t=1,v1=00\0", 10));
  EXPECT_OK(Ingest(*stub, beside));
  webhook::v1::IngestRequest instead = IngestRequest(Body("instead"));
  instead.mutable_headers(0)->set_name(std::string("Stripe-Signature\0", 17));
  EXPECT_THAT(Ingest(*stub, instead),
              HasReason(common::v1::ERROR_REASON_SIGNATURE_INVALID));

  // proto3 text has to be UTF-8; other bytes make no message.
  std::string bytes = IngestRequest(Body("bytes")).SerializeAsString();
  const size_t at = bytes.find("Stripe-Signature");
  ASSERT_NE(at, std::string::npos);
  bytes[at] = '\xff';
  grpc::GenericStub generic(channel_);
  grpc::ClientContext context;
  Limit(context);
  grpc::CompletionQueue queue;
  const grpc::Slice slice(bytes);
  const auto call = generic.PrepareUnaryCall(
      &context, "/tenure.webhook.v1.WebhookIngest/Ingest",
      grpc::ByteBuffer(&slice, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer answer;
  grpc::Status status;
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(Sql("SELECT string_agg(external_event_id, ' ') FROM "
                "provider_event"),
            "evt_beside");
  EXPECT_OK(Ingest(*stub, IngestRequest(Body("after"))));
}

TEST_F(IngestLimitsTest, C135_ADeadlineThatPassesLosesAndDoublesNothing) {
  Start();
  const auto stub = Stub();
  ASSERT_OK(Ingest(*stub, IngestRequest(Body("first"))));
  int late = 0;
  for (int i = 0; i < 50; ++i) {
    const webhook::v1::IngestRequest request =
        IngestRequest(Body(absl::StrCat(i)));
    grpc::ClientContext hurried;
    hurried.set_deadline(absl::ToChronoTime(Now() + absl::Milliseconds(1)));
    webhook::v1::IngestResponse response;
    const absl::Status status =
        rpc::FromGrpcStatus(stub->Ingest(&hurried, request, &response));
    if (!status.ok()) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded));
      ++late;
    }
    // Whatever became of it, the repeat counts once. It has no deadline.
    grpc::ClientContext patient;
    EXPECT_OK(rpc::FromGrpcStatus(stub->Ingest(&patient, request, &response)));
  }
  EXPECT_GT(late, 0);
  EXPECT_EQ(Sql("SELECT count(*) FROM provider_event"), "51");
  EXPECT_EQ(Sql("SELECT count(*) FROM payment"), "0");  // parked: no plan
}

TEST_F(IngestLimitsTest, C135_ACallWithoutADeadlineEndsByTheServersOwn) {
  Start({"--database_lock_timeout=300ms", "--database_statement_timeout=1s"});
  const auto stub = Stub();
  ASSERT_OK_AND_ASSIGN(const auto holder, database_->OpenSession());
  ASSERT_OK(holder->Exec("BEGIN; LOCK TABLE provider_event"));
  grpc::ClientContext context;
  webhook::v1::IngestResponse response;
  const absl::Status status = rpc::FromGrpcStatus(
      stub->Ingest(&context, IngestRequest(Body("held")), &response));
  EXPECT_THAT(status, AnyOf(StatusIs(absl::StatusCode::kUnavailable),
                            StatusIs(absl::StatusCode::kAborted),
                            StatusIs(absl::StatusCode::kDeadlineExceeded)));
  ASSERT_OK(holder->Exec("COMMIT"));
  EXPECT_OK(Ingest(*stub, IngestRequest(Body("held"))));
}

}  // namespace
}  // namespace tenure::test
