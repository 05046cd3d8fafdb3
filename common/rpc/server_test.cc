// Server and CallGuard over real calls.
#include "common/rpc/server.h"

#include <grpcpp/generic/generic_stub.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/rpc/call_guard.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "gtest/gtest.h"
#include "tenure/entitlement/v1/entitlement.grpc.pb.h"
#include "tests/support/barrier.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_signal.h"

namespace tenure::rpc {
namespace {

using ::tenure::test::Barrier;
using ::tenure::test::HasReason;
using ::tenure::test::IsOk;
using ::tenure::test::kPatience;
using ::tenure::test::StatusIs;
using ::tenure::test::TestSignal;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using HealthCheckResponse = grpc::health::v1::HealthCheckResponse;

constexpr char kServiceName[] = "tenure.entitlement.v1.Entitlement";
constexpr int kMaxInFlight = 2;

// A service whose one method does what the test says.
class TestService final : public entitlement::v1::Entitlement::Service {
 public:
  using Body = std::function<absl::Status(grpc::ServerContext&)>;

  explicit TestService(CallGuard& guard) : guard_(guard) {}

  grpc::Status Check(grpc::ServerContext* context,
                     const entitlement::v1::CheckRequest*,
                     entitlement::v1::CheckResponse*) override {
    if (before) before(*context);
    return guard_.Run(context, "Check", [&] { return body(*context); });
  }

  // Set before the first call.
  Body body = [](grpc::ServerContext&) { return absl::OkStatus(); };
  std::function<void(grpc::ServerContext&)> before;

 private:
  CallGuard& guard_;
};

class ServerTest : public ::testing::Test {
 protected:
  struct Finished {
    std::string method;
    grpc::StatusCode code;
  };

  ServerTest()
      : guard_(kMaxInFlight,
               [this](absl::string_view method, grpc::StatusCode code,
                      double seconds) {
                 EXPECT_GE(seconds, 0);
                 MutexLock lock(mutex_);
                 finished_.push_back({std::string(method), code});
                 observed_.Notify();
               }),
        service_(guard_) {}

  void SetUp() override {
    ServerOptions options;
    options.listen = "127.0.0.1:0";
    options.max_threads = 32;
    ASSERT_OK_AND_ASSIGN(server_,
                         Server::Start(options, {{kServiceName, &service_}}));
    channel_ = Channel();
    stub_ = entitlement::v1::Entitlement::NewStub(channel_);
  }

  std::string Address() const {
    return absl::StrCat("127.0.0.1:", server_->port());
  }

  std::shared_ptr<grpc::Channel> Channel() const {
    grpc::ChannelArguments arguments;
    // Whatever proxy the machine has is not for this.
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    return grpc::CreateCustomChannel(
        Address(), grpc::InsecureChannelCredentials(), arguments);
  }

  // One whose connection nobody shares.
  std::shared_ptr<grpc::Channel> OwnChannel(
      grpc::ChannelArguments arguments = {}) const {
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(
        Address(), grpc::InsecureChannelCredentials(), arguments);
  }

  static void Limit(grpc::ClientContext& context) {
    context.set_deadline(
        absl::ToChronoTime(SystemClock::Instance().Now() + kPatience));
  }

  // One call; `context` may carry metadata.
  grpc::Status Call(grpc::ClientContext& context) {
    Limit(context);
    entitlement::v1::CheckResponse response;
    return stub_->Check(&context, entitlement::v1::CheckRequest(), &response);
  }

  absl::Status Call() {
    grpc::ClientContext context;
    return FromGrpcStatus(Call(context));
  }

  // The request id that comes back when `metadata` is sent.
  std::string ReturnedId(
      const std::vector<std::pair<std::string, std::string>>& metadata) {
    grpc::ClientContext context;
    for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
    EXPECT_TRUE(Call(context).ok());
    const auto& trailing = context.GetServerTrailingMetadata();
    EXPECT_EQ(trailing.count("x-request-id"), 1u);
    const auto it = trailing.find("x-request-id");
    return it == trailing.end()
               ? ""
               : std::string(it->second.data(), it->second.size());
  }

  std::vector<Finished> finished() const {
    MutexLock lock(mutex_);
    return finished_;
  }

  // What health says of `service`; nullopt when it does not know it.
  std::optional<HealthCheckResponse::ServingStatus> Health(
      const std::string& service) {
    const auto stub = grpc::health::v1::Health::NewStub(channel_);
    grpc::ClientContext context;
    Limit(context);
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    HealthCheckResponse response;
    const grpc::Status status = stub->Check(&context, request, &response);
    if (status.error_code() == grpc::StatusCode::NOT_FOUND) return std::nullopt;
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.status();
  }

  mutable Mutex mutex_;
  std::vector<Finished> finished_ TENURE_GUARDED_BY(mutex_);
  TestSignal observed_;
  CallGuard guard_;
  TestService service_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<entitlement::v1::Entitlement::Stub> stub_;
};

TEST_F(ServerTest, TakesAFreePortAndSaysWhich) {
  EXPECT_GT(server_->port(), 0);
  EXPECT_OK(Call());
}

TEST_F(ServerTest, AnAddressThatIsTakenIsNamed) {
  CallGuard guard(1, nullptr);
  TestService service(guard);
  ServerOptions options;
  options.listen = Address();
  EXPECT_THAT(Server::Start(options, {{kServiceName, &service}}),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(Address())));
  // The one that has it is not disturbed.
  EXPECT_OK(Call());
}

TEST_F(ServerTest, AnAddressThatIsNoneIsNamed) {
  CallGuard guard(1, nullptr);
  TestService service(guard);
  ServerOptions options;
  options.listen = "127.0.0.1:notaport";
  EXPECT_THAT(Server::Start(options, {{kServiceName, &service}}),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("127.0.0.1:notaport")));
}

TEST_F(ServerTest, HealthIsNotServingUntilItIsSaidToBe) {
  for (const std::string& name : {std::string(), std::string(kServiceName)}) {
    EXPECT_EQ(Health(name), HealthCheckResponse::NOT_SERVING) << name;
  }
  server_->SetServing(true);
  for (const std::string& name : {std::string(), std::string(kServiceName)}) {
    EXPECT_EQ(Health(name), HealthCheckResponse::SERVING) << name;
  }
  server_->SetServing(false);
  for (const std::string& name : {std::string(), std::string(kServiceName)}) {
    EXPECT_EQ(Health(name), HealthCheckResponse::NOT_SERVING) << name;
  }
  EXPECT_EQ(Health("tenure.unknown.v1.Unknown"), std::nullopt);
}

// One question to the server's reflection, answered as text.
std::string Reflect(const std::shared_ptr<grpc::Channel>& channel,
                    const std::string& field, const std::string& value) {
  const auto* pool = google::protobuf::DescriptorPool::generated_pool();
  auto* factory = google::protobuf::MessageFactory::generated_factory();
  const auto make = [&](const std::string& name) {
    const auto* type = pool->FindMessageTypeByName(
        absl::StrCat("grpc.reflection.v1alpha.", name));
    return std::unique_ptr<google::protobuf::Message>(
        type == nullptr ? nullptr : factory->GetPrototype(type)->New());
  };
  const auto request = make("ServerReflectionRequest");
  const auto response = make("ServerReflectionResponse");
  if (request == nullptr || response == nullptr) return "no reflection linked";
  request->GetReflection()->SetString(
      request.get(), request->GetDescriptor()->FindFieldByName(field), value);
  const std::string bytes = request->SerializeAsString();

  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(
      absl::ToChronoTime(SystemClock::Instance().Now() + kPatience));
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(
      &context,
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  const auto await = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  call->StartCall(nullptr);
  if (!await()) return "no call";
  const grpc::Slice slice(bytes);
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  if (!await()) return "not written";
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  if (!await()) return "no answer";
  call->WritesDone(nullptr);
  await();
  grpc::Status status;
  call->Finish(&status, nullptr);
  await();
  grpc::Slice single;
  if (!answer.DumpToSingleSlice(&single).ok() ||
      !response->ParseFromArray(single.begin(),
                                static_cast<int>(single.size()))) {
    return "unreadable";
  }
  return response->DebugString();
}

TEST_F(ServerTest, ReflectionListsAndResolvesTheServices) {
  EXPECT_THAT(Reflect(channel_, "list_services", ""),
              AllOf(HasSubstr(kServiceName), HasSubstr("grpc.health.v1.Health"),
                    ::testing::Not(HasSubstr("error_response"))));
  // The health service is built in without its descriptor (grpc#36665).
  for (const char* symbol : {kServiceName, "grpc.health.v1.Health"}) {
    EXPECT_THAT(Reflect(channel_, "file_containing_symbol", symbol),
                AllOf(HasSubstr("file_descriptor_response"),
                      ::testing::Not(HasSubstr("error_response"))))
        << symbol;
  }
  EXPECT_THAT(Reflect(channel_, "file_containing_symbol", "no.such.Service"),
              HasSubstr("error_response"));
}

TEST_F(ServerTest, ABodyAboveTheLimitIsRefused) {
  grpc::ClientContext context;
  Limit(context);
  entitlement::v1::CheckRequest request;
  request.set_subject(std::string(2 << 20, 'x'));
  entitlement::v1::CheckResponse response;
  EXPECT_EQ(stub_->Check(&context, request, &response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

// Limits of a connection, as a client sees them on the wire.

// HTTP/2 frames over a plain socket: what no well-behaved client sends.
class RawHttp2 {
 public:
  struct Frame {
    int type = -1;  // -1: the connection ended
    int flags = 0;
    std::string payload;
  };
  static constexpr int kData = 0;
  static constexpr int kHeaders = 1;
  static constexpr int kReset = 3;
  static constexpr int kSettings = 4;
  static constexpr int kPing = 6;
  static constexpr int kGoAway = 7;
  static constexpr int kAck = 1;

  explicit RawHttp2(int port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    // A server that says nothing fails the test instead of holding it.
    const timeval limit{60, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    SendFrame(kSettings, 0, "");
  }
  ~RawHttp2() { ::close(fd_); }
  RawHttp2(const RawHttp2&) = delete;
  RawHttp2& operator=(const RawHttp2&) = delete;

  // `stream` 0 is the connection itself.
  void SendFrame(int type, int flags, absl::string_view payload,
                 uint32_t stream = 0) {
    std::string head = {0, static_cast<char>(payload.size() >> 8),
                        static_cast<char>(payload.size()),
                        static_cast<char>(type), static_cast<char>(flags)};
    for (const int shift : {24, 16, 8, 0}) {
      head.push_back(static_cast<char>(stream >> shift));
    }
    Send(absl::StrCat(head, payload));
  }

  Frame Read() {
    Frame frame;
    const std::string head = ReadBytes(9);
    if (head.size() < 9) return frame;
    const auto byte = [&head](int i) {
      return static_cast<size_t>(static_cast<unsigned char>(head[i]));
    };
    frame.payload = ReadBytes(byte(0) << 16 | byte(1) << 8 | byte(2));
    frame.type = static_cast<int>(byte(3));
    frame.flags = static_cast<int>(byte(4));
    return frame;
  }

  // The next frame of that type, or the end.
  Frame ReadType(int type) {
    for (;;) {
      Frame frame = Read();
      if (frame.type == type || frame.type == -1) return frame;
    }
  }

 private:
  void Send(absl::string_view bytes) {
    // The server may have closed already.
    (void)!::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  std::string ReadBytes(size_t size) {
    std::string bytes(size, '\0');
    size_t at = 0;
    while (at < size) {
      const ssize_t n = ::recv(fd_, &bytes[at], size - at, 0);
      if (n <= 0) break;
      at += static_cast<size_t>(n);
    }
    bytes.resize(at);
    return bytes;
  }

  const int fd_;
};

TEST_F(ServerTest, S12_TellsItsLimitsToEveryClient) {
  RawHttp2 client(server_->port());
  const RawHttp2::Frame frame = client.ReadType(RawHttp2::kSettings);
  std::map<int, uint32_t> settings;
  for (size_t at = 0; at + 6 <= frame.payload.size(); at += 6) {
    const auto byte = [&](size_t i) {
      return static_cast<uint32_t>(
          static_cast<unsigned char>(frame.payload[at + i]));
    };
    settings[static_cast<int>(byte(0) << 8 | byte(1))] =
        byte(2) << 24 | byte(3) << 16 | byte(4) << 8 | byte(5);
  }
  EXPECT_EQ(settings[3], 100u);         // SETTINGS_MAX_CONCURRENT_STREAMS
  EXPECT_EQ(settings[6], 16u * 1024u);  // SETTINGS_MAX_HEADER_LIST_SIZE
}

TEST_F(ServerTest, S12_C135_MetadataAbove16KiBIsRefused) {
  const auto with_metadata = [&](size_t bytes) {
    // A connection of its own: gRPC 1.51 ends one whose metadata it refuses,
    // and the caller may see that first.
    const auto stub = entitlement::v1::Entitlement::NewStub(OwnChannel());
    grpc::ClientContext context;
    Limit(context);
    context.AddMetadata("x-large", std::string(bytes, 'y'));
    entitlement::v1::CheckResponse response;
    return FromGrpcStatus(
        stub->Check(&context, entitlement::v1::CheckRequest(), &response));
  };
  EXPECT_OK(Call());
  EXPECT_OK(with_metadata(15 * 1024));
  for (const size_t bytes : {16 * 1024, 64 * 1024, 256 * 1024}) {
    EXPECT_THAT(with_metadata(bytes),
                AnyOf(StatusIs(absl::StatusCode::kResourceExhausted),
                      StatusIs(absl::StatusCode::kUnavailable)));
  }
  // Others have lost nothing.
  EXPECT_EQ(channel_->GetState(false), GRPC_CHANNEL_READY);
  EXPECT_OK(Call());
  EXPECT_EQ(finished().size(), 3u);
}

TEST_F(ServerTest, C130_AClientThatPingsWithoutPauseIsCutAndNobodyElse) {
  EXPECT_OK(Call());
  RawHttp2 client(server_->port());
  for (int i = 0; i < 100; ++i)
    client.SendFrame(RawHttp2::kPing, 0, "pingping");
  const RawHttp2::Frame frame = client.ReadType(RawHttp2::kGoAway);
  ASSERT_EQ(frame.type, RawHttp2::kGoAway);
  EXPECT_THAT(frame.payload, HasSubstr("too_many_pings"));
  EXPECT_EQ(client.ReadType(-1).type, -1);
  EXPECT_EQ(channel_->GetState(false), GRPC_CHANNEL_READY);
  EXPECT_OK(Call());
}

// The header of a call of Check, in HPACK without any compression of text.
std::string CallHeader() {
  const auto text = [](absl::string_view value) {
    return absl::StrCat(std::string(1, static_cast<char>(value.size())), value);
  };
  // Indexed :method POST and :scheme http; :authority and :path by their index;
  // the other names as text.
  return absl::StrCat("\x83\x86\x01", text("test"), "\x04",
                      text("/tenure.entitlement.v1.Entitlement/"
                           "Check"),
                      std::string(1, '\0'), text("content-type"),
                      text("application/grpc"), std::string(1, '\0'),
                      text("te"), text("trailers"));
}

TEST_F(ServerTest, F30_CallsThatAreTakenBackAtOnceHoldNothing) {
  const std::string header = CallHeader();
  const std::string cancel("\0\0\0\x08", 4);
  RawHttp2 flood(server_->port());
  // With an empty message it is a call.
  flood.SendFrame(RawHttp2::kHeaders, /*END_HEADERS*/ 4, header, 1);
  flood.SendFrame(RawHttp2::kData, /*END_STREAM*/ 1, std::string(5, '\0'), 1);
  ASSERT_TRUE(observed_.AwaitCount(1));
  std::thread flooder([&] {
    uint32_t stream = 3;
    for (int i = 0; i < 5'000; ++i, stream += 2) {
      flood.SendFrame(RawHttp2::kHeaders, /*END_HEADERS*/ 4, header, stream);
      flood.SendFrame(RawHttp2::kReset, 0, cancel, stream);
    }
    flood.SendFrame(RawHttp2::kPing, 0, "the end.");
  });
  constexpr int kCalls = 500;
  int refused = 0;
  for (int i = 0; i < kCalls; ++i) {
    const absl::Status status = Call();
    if (status.ok()) continue;
    // gRPC may be out of threads for a moment; nobody is cut off.
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
    ++refused;
  }
  flooder.join();
  std::cout << refused << " of " << kCalls
            << " good calls were refused meanwhile" << std::endl;
  EXPECT_LT(refused, kCalls / 2);
  EXPECT_EQ(channel_->GetState(false), GRPC_CHANNEL_READY);
  // The flood was read to its end, or its connection was ended.
  RawHttp2::Frame last;
  do {
    last = flood.ReadType(RawHttp2::kPing);
  } while (last.type == RawHttp2::kPing && last.flags != RawHttp2::kAck);
  const Clock& clock = SystemClock::Instance();
  const absl::Duration end = clock.Monotonic() + kPatience;
  absl::Status after = Call();
  while (!after.ok() && clock.Monotonic() < end) after = Call();
  EXPECT_OK(after);
  EXPECT_EQ(guard_.in_flight(), 0);
}

// Takes 45 s: a server with the settings of gRPC cuts this client after 40 s.
TEST_F(ServerTest, C130_AClientThatPingsEvery10SecondsWithoutCallsIsKept) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  const auto channel = OwnChannel(arguments);
  const Clock& clock = SystemClock::Instance();
  ASSERT_TRUE(
      channel->WaitForConnected(absl::ToChronoTime(clock.Now() + kPatience)));
  EXPECT_FALSE(channel->WaitForStateChange(
      GRPC_CHANNEL_READY, absl::ToChronoTime(clock.Now() + absl::Seconds(45))));
  EXPECT_EQ(channel->GetState(false), GRPC_CHANNEL_READY);
}

TEST_F(ServerTest, S12_APeerThatFallsSilentLosesItsConnection) {
  CallGuard guard(1, nullptr);
  TestService service(guard);
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  options.keepalive_time = absl::Milliseconds(100);
  options.keepalive_timeout = absl::Milliseconds(100);
  ASSERT_OK_AND_ASSIGN(const auto server,
                       Server::Start(options, {{kServiceName, &service}}));
  RawHttp2 silent(server->port());
  ASSERT_EQ(silent.ReadType(RawHttp2::kSettings).type, RawHttp2::kSettings);
  const RawHttp2::Frame ping = silent.ReadType(RawHttp2::kPing);
  EXPECT_EQ(ping.type, RawHttp2::kPing);
  // It does not answer.
  EXPECT_EQ(silent.ReadType(-1).type, -1);

  // One that answers stays, however long it has nothing to say.
  RawHttp2 idle(server->port());
  for (int i = 0; i < 10; ++i) {
    const RawHttp2::Frame asked = idle.ReadType(RawHttp2::kPing);
    ASSERT_EQ(asked.type, RawHttp2::kPing) << i;
    idle.SendFrame(RawHttp2::kPing, RawHttp2::kAck, asked.payload);
  }
}

// CallGuard.

TEST_F(ServerTest, C131_RefusesAtOnceAboveItsLimitAndRecovers) {
  constexpr int kCalls = 8;
  TestSignal refused;
  service_.body = [&](grpc::ServerContext&) {
    // Stays until every call above the limit has been answered.
    EXPECT_TRUE(refused.AwaitCount(kCalls - kMaxInFlight));
    return absl::OkStatus();
  };
  ASSERT_TRUE(channel_->WaitForConnected(
      absl::ToChronoTime(SystemClock::Instance().Now() + kPatience)));
  for (int round = 1; round <= 2; ++round) {
    Barrier barrier(kCalls);
    std::vector<absl::Status> outcomes(kCalls);
    std::vector<std::thread> callers;
    for (int i = 0; i < kCalls; ++i) {
      callers.emplace_back([&, i] {
        EXPECT_TRUE(barrier.ArriveAndWait());
        outcomes[i] = Call();
        if (!outcomes[i].ok()) refused.Notify();
      });
    }
    for (std::thread& caller : callers) caller.join();
    int ok = 0;
    for (const absl::Status& outcome : outcomes) {
      if (outcome.ok()) {
        ++ok;
        continue;
      }
      EXPECT_THAT(outcome, StatusIs(absl::StatusCode::kResourceExhausted));
      EXPECT_THAT(outcome, HasReason(common::v1::ERROR_REASON_OVERLOADED));
    }
    EXPECT_GE(ok, kMaxInFlight);
    if (round == 1) {
      EXPECT_EQ(ok, kMaxInFlight);
    }
    // The count of refusals is reached for good: nobody waits in round 2.
  }
  EXPECT_OK(Call());
  EXPECT_EQ(guard_.in_flight(), 0);
}

TEST_F(ServerTest, TheObserverHearsOfEveryCall) {
  EXPECT_OK(Call());
  service_.body = [](grpc::ServerContext&) {
    return FieldMissingError("subject");
  };
  EXPECT_THAT(Call(), StatusIs(absl::StatusCode::kInvalidArgument));
  service_.body = [](grpc::ServerContext&) {
    return absl::UnknownError("secret");
  };
  EXPECT_THAT(Call(), StatusIs(absl::StatusCode::kInternal));
  const std::vector<Finished> all = finished();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].code, grpc::StatusCode::OK);
  EXPECT_EQ(all[1].code, grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(all[2].code, grpc::StatusCode::INTERNAL);
  for (const Finished& call : all) EXPECT_EQ(call.method, "Check");
}

TEST_F(ServerTest, TheCallersRequestIdIsUsedAndReturned) {
  std::string inside;
  service_.body = [&](grpc::ServerContext&) {
    inside = log::ScopedRequestId::Current();
    return absl::OkStatus();
  };
  const std::string trace = "4bf92f3577b34da6a3ce929d0e0e4736";
  const std::string traceparent =
      absl::StrCat("00-", trace, "-00f067aa0ba902b7-01");
  EXPECT_EQ(ReturnedId({{"x-request-id", "order-17_a.b"}}), "order-17_a.b");
  EXPECT_EQ(inside, "order-17_a.b");
  EXPECT_EQ(ReturnedId({{"x-request-id", std::string(64, 'a')}}),
            std::string(64, 'a'));
  EXPECT_EQ(ReturnedId({{"traceparent", traceparent}}), trace);
  EXPECT_EQ(inside, trace);
  EXPECT_EQ(
      ReturnedId({{"traceparent", traceparent}, {"x-request-id", "mine"}}),
      "mine");
  // An unusable one gives way to the trace.
  EXPECT_EQ(
      ReturnedId({{"traceparent", traceparent}, {"x-request-id", "not / ok"}}),
      trace);
}

TEST_F(ServerTest, AnUnusableRequestIdIsReplacedByAFreshOne) {
  std::string previous;
  for (const std::pair<std::string, std::string>& metadata :
       std::vector<std::pair<std::string, std::string>>{
           {"other", "x"},
           {"x-request-id", ""},
           {"x-request-id", std::string(65, 'a')},
           {"x-request-id", "has space"},
           {"x-request-id", "quote\"brace}"},
           {"traceparent", "00-short"},
           {"traceparent",
            "00-4bf92f3577b34da6 3ce929d0e0e47 6-00f067aa0ba9-01"
            "02b7"}}) {
    SCOPED_TRACE(metadata.second);
    const std::string id = ReturnedId({metadata});
    EXPECT_THAT(id, MatchesRegex("[0-9a-f]{32}"));
    EXPECT_NE(id, previous);
    previous = id;
  }
  EXPECT_EQ(log::ScopedRequestId::Current(), "");
}

TEST_F(ServerTest, ADefectNamesTheRequestIdOfTheCall) {
  service_.body = [](grpc::ServerContext&) {
    return absl::InternalError("secret");
  };
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", "order-18");
  const grpc::Status status = Call(context);
  EXPECT_EQ(status.error_message(), "internal error; request id order-18");
  EXPECT_EQ(GetErrorInfo(FromGrpcStatus(status))->metadata.at("request_id"),
            "order-18");
}

TEST_F(ServerTest, ACallWhoseCallerHasGoneIsNotStarted) {
  TestSignal arrived;
  service_.before = [&](grpc::ServerContext& context) {
    arrived.Notify();
    const absl::Duration end = SystemClock::Instance().Monotonic() + kPatience;
    while (!context.IsCancelled() &&
           SystemClock::Instance().Monotonic() < end) {
      // gRPC has no event for it.
      std::this_thread::yield();
    }
  };
  service_.body = [](grpc::ServerContext&) {
    ADD_FAILURE() << "started";
    return absl::OkStatus();
  };
  grpc::ClientContext context;
  std::thread caller([&] {
    EXPECT_EQ(Call(context).error_code(), grpc::StatusCode::CANCELLED);
  });
  EXPECT_TRUE(arrived.Await());
  context.TryCancel();
  caller.join();
  ASSERT_TRUE(observed_.Await());
  EXPECT_EQ(finished()[0].code, grpc::StatusCode::CANCELLED);
}

// Shutdown.

TEST_F(ServerTest, ShutdownWaitsForACallThatFinishesInTime) {
  TestSignal started;
  TestSignal may_finish;
  service_.body = [&](grpc::ServerContext&) {
    started.Notify();
    EXPECT_TRUE(may_finish.Await());
    return absl::OkStatus();
  };
  absl::Status outcome = absl::UnknownError("not run");
  std::thread caller([&] { outcome = Call(); });
  EXPECT_TRUE(started.Await());
  TestSignal ended;
  std::thread stopper([&] {
    server_->Shutdown(kPatience);
    ended.Notify();
  });
  // Soon no new call gets in, while the old one goes on. One that comes just as
  // the server closes may see CANCELLED.
  absl::Status refused;
  do {
    grpc::ClientContext context;
    Limit(context);
    const auto stub = grpc::health::v1::Health::NewStub(Channel());
    HealthCheckResponse response;
    refused = FromGrpcStatus(stub->Check(
        &context, grpc::health::v1::HealthCheckRequest(), &response));
  } while (refused.code() != absl::StatusCode::kUnavailable);
  EXPECT_EQ(ended.count(), 0);
  may_finish.Notify();
  caller.join();
  stopper.join();
  EXPECT_OK(outcome);
}

TEST_F(ServerTest, C117_ShutdownEndsAHandlerThatWouldWaitForEver) {
  TestSignal started;
  TestSignal cancelled;
  service_.body = [&](grpc::ServerContext& context) {
    started.Notify();
    // As a handler of this tree does: it looks whether it is still wanted.
    while (!context.IsCancelled()) std::this_thread::yield();
    cancelled.Notify();
    return absl::CancelledError("no longer wanted");
  };
  absl::Status outcome;
  std::thread caller([&] { outcome = Call(); });
  EXPECT_TRUE(started.Await());
  server_->Shutdown(absl::Milliseconds(1));
  EXPECT_EQ(cancelled.count(), 1);
  caller.join();
  EXPECT_FALSE(outcome.ok());
  // Once more, and the destructor, are fine.
  server_->Shutdown(absl::Milliseconds(1));
}

TEST_F(ServerTest, C117_ShutdownReturnsWithAClientThatNeverReads) {
  grpc::ClientContext context;
  Limit(context);
  const auto stub = grpc::health::v1::Health::NewStub(channel_);
  grpc::health::v1::HealthCheckRequest request;
  // A stream without end, of which the client takes the first message only.
  const auto stream = stub->Watch(&context, request);
  HealthCheckResponse response;
  ASSERT_TRUE(stream->Read(&response));
  server_->Shutdown(absl::Milliseconds(1));
  while (stream->Read(&response)) {
  }
  EXPECT_FALSE(stream->Finish().ok());
}

}  // namespace
}  // namespace tenure::rpc
