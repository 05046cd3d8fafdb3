#include "common/http/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/http/test_client.h"

namespace tenure::http {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Longer than any test runs: a limit that the test is not about.
constexpr absl::Duration kNever = absl::Minutes(10);
// A limit that the test waits for.
constexpr absl::Duration kShort = absl::Milliseconds(200);

ServerOptions TestOptions() {
  ServerOptions options;
  options.listen_address = "127.0.0.1:0";
  options.io_threads = 2;
  options.request_timeout = kNever;
  options.idle_timeout = kNever;
  return options;
}

std::unique_ptr<Server> StartServer(ServerOptions options, Handler handler) {
  absl::StatusOr<std::unique_ptr<Server>> server =
      Server::Start(std::move(options), std::move(handler));
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

// Answers with what it was asked.
void Echo(Request request, Responder responder) {
  responder.Send(
      TextResponse(200, absl::StrCat(request.method, " ", request.target, " [",
                                     request.query, "] ", request.body)));
}

// Holds the requests it is given until it is opened; then echoes.
class Gate {
 public:
  Handler handler() {
    return [this](Request request, Responder responder) {
      {
        MutexLock lock(mutex_);
        ++arrived_;
        changed_.NotifyAll();
        while (!open_) changed_.Wait(mutex_);
      }
      Echo(std::move(request), std::move(responder));
    };
  }
  void AwaitArrived(int count) {
    MutexLock lock(mutex_);
    while (arrived_ < count) changed_.Wait(mutex_);
  }
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int arrived_ TENURE_GUARDED_BY(mutex_) = 0;
  bool open_ TENURE_GUARDED_BY(mutex_) = false;
};

// Waits for a counter that has no signal of its own.
template <typename Condition>
bool Await(Condition condition) {
  Mutex mutex;
  CondVar never;
  MutexLock lock(mutex);
  for (int i = 0; i < 30000; ++i) {
    if (condition()) return true;
    never.WaitFor(mutex, absl::Milliseconds(1));
  }
  return false;
}

TEST(HttpServer, GivesTheHandlerThePartsOfTheRequest) {
  std::promise<Request> seen;
  auto server =
      StartServer(TestOptions(), [&](Request request, Responder responder) {
        seen.set_value(std::move(request));
        responder.Send(TextResponse(201, "made"));
      });
  TestClient client(server->port());

  client.Send(
      "POST /v1/webhooks/stripe?a=1&b HTTP/1.1\r\nHost: test\r\n"
      "X-One:  first \r\nx-one: second\r\nContent-Length: "
      "5\r\n\r\n\x01{\r\n\xff");
  const std::string answer = client.ReadResponse();

  EXPECT_THAT(answer, StartsWith("HTTP/1.1 201 Created\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nmade\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nDate: "));
  const Request request = seen.get_future().get();
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.target, "/v1/webhooks/stripe");
  EXPECT_EQ(request.query, "a=1&b");
  EXPECT_EQ(request.body, "\x01{\r\n\xff");
  EXPECT_EQ(request.content_length, 5u);
  EXPECT_EQ(request.remote_address, "127.0.0.1");
  EXPECT_THAT(request.headers.FindAll("X-One"),
              ::testing::ElementsAre("first", "second"));
  EXPECT_EQ(request.headers.fields()[2].first, "x-one");
  EXPECT_GT(request.deadline, absl::ZeroDuration());
}

TEST(HttpServer, AnswersManyRequestsOnOneConnection) {
  auto server = StartServer(TestOptions(), Echo);
  TestClient client(server->port());

  for (int i = 0; i < 20; ++i) {
    const std::string body = std::string(static_cast<size_t>(i) * 3000, 'x');
    client.Send(MakeRequest("POST", absl::StrCat("/", i), body));
    const std::string answer = client.ReadResponse();
    EXPECT_THAT(answer,
                EndsWith(absl::StrCat("POST /", i, " [] ", body, "\n")));
    EXPECT_THAT(answer, Not(HasSubstr("Connection: close")));
  }

  EXPECT_EQ(server->stats().accepted_connections_total, 1);
  EXPECT_EQ(server->stats().requests_total, 20);
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  auto server = StartServer(TestOptions(), Echo);
  TestClient client(server->port());
  std::string all;
  for (int i = 0; i < 50; ++i) {
    all += MakeRequest(i % 2 == 0 ? "POST" : "GET", absl::StrCat("/", i),
                       i % 2 == 0 ? "body" : "");
  }

  client.Send(all);

  for (int i = 0; i < 50; ++i) {
    EXPECT_THAT(client.ReadResponse(),
                HasSubstr(absl::StrCat(" /", i, " [] ")));
  }
}

TEST(HttpServer, AnswersHeadWithTheLengthAndWithoutTheBody) {
  auto server = StartServer(TestOptions(), Echo);
  TestClient client(server->port());

  client.Send(MakeRequest("HEAD", "/x"));
  client.Send(MakeRequest("GET", "/y", "", "Connection: close\r\n"));
  const std::string both = client.ReadToEnd();

  const size_t end = both.find("\r\n\r\n");
  EXPECT_THAT(both.substr(0, end), HasSubstr("Content-Length: 12"));
  EXPECT_THAT(both.substr(end + 4), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST(HttpServer, ClosesAfterAnHttp10Request) {
  auto server = StartServer(TestOptions(), Echo);
  TestClient client(server->port());

  client.Send("GET /old HTTP/1.0\r\n\r\n");

  EXPECT_THAT(client.ReadToEnd(),
              AllOf(StartsWith("HTTP/1.1 200"),
                    HasSubstr("Connection: close\r\n"), HasSubstr("GET /old")));
}

TEST(HttpServer, KeepsAnHttp10ConnectionThatAsksForIt) {
  auto server = StartServer(TestOptions(), Echo);
  TestClient client(server->port());

  for (int i = 0; i < 2; ++i) {
    client.Send("GET /old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_THAT(client.ReadResponse(), HasSubstr("Connection: keep-alive\r\n"));
  }
}

TEST(HttpServer, ClosesWhenTheClientAsksForIt) {
  auto server = StartServer(TestOptions(), Echo);
  TestClient client(server->port());

  client.Send(MakeRequest("GET", "/", "", "Connection: close\r\n"));

  EXPECT_THAT(client.ReadResponse(), HasSubstr("Connection: close\r\n"));
  EXPECT_TRUE(client.AtEnd());
}

TEST(HttpServer, AnswersAClientThatClosedItsSendingSide) {
  auto server = StartServer(TestOptions(), Echo);
  TestClient client(server->port());

  client.Send(MakeRequest("POST", "/", "last words"));
  client.SendEof();

  EXPECT_THAT(client.ReadToEnd(), HasSubstr("last words"));
}

TEST(HttpServer, JoinsTheChunksOfABody) {
  auto server = StartServer(TestOptions(), Echo);
  TestClient client(server->port());

  client.Send(
      "POST /c HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: Chunked\r\n\r\n"
      "4\r\nabcd\r\n1;ext=1\r\ne\r\n0\r\n\r\n");

  EXPECT_THAT(client.ReadResponse(), EndsWith("POST /c [] abcde\n"));
}

// Regression: Beast 1.74 asserts that the bytes of the last chunk come at once;
// a client whose "0 CRLF" arrived before the rest ended the process.
TEST(HttpServer, TakesTheLastChunkByteByByte) {
  auto server = StartServer(TestOptions(), Echo);
  for (absl::string_view body : {absl::string_view("0\r\n\r\n"),
                                 absl::string_view("1\r\na\r\n0\r\n\r\n"),
                                 absl::string_view("0\r\nX: y\r\n\r\n")}) {
    for (size_t cut = 0; cut <= body.size(); ++cut) {
      TestClient client(server->port());
      client.Send(absl::StrCat(
          "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n",
          body.substr(0, cut)));
      // An answer on another connection: the server has had time to read.
      TestClient other(server->port());
      other.Send(MakeRequest("GET", "/"));
      other.ReadResponse();
      for (const char c : body.substr(cut)) {
        client.Send(absl::string_view(&c, 1));
      }
      EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 200")) << cut;
    }
  }
}

TEST(HttpServer, TakesARequestByteByByte) {
  auto server = StartServer(TestOptions(), Echo);
  TestClient client(server->port());

  for (const char c : MakeRequest("POST", "/slow", "body", "A: b\r\n")) {
    ASSERT_TRUE(client.Send(absl::string_view(&c, 1)));
  }

  EXPECT_THAT(client.ReadResponse(), EndsWith("POST /slow [] body\n"));
}

TEST(HttpServer, KeepsTrailersOutOfTheHeaders) {
  std::atomic<bool> signed_by_trailer{true};
  auto server =
      StartServer(TestOptions(), [&](Request request, Responder responder) {
        signed_by_trailer = request.headers.Has("Stripe-Signature");
        responder.Send(TextResponse(200, "ok"));
      });
  TestClient client(server->port());

  client.Send(
      "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
      "1\r\na\r\n0\r\nStripe-Signature: forged\r\n\r\n");

  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 200"));
  EXPECT_FALSE(signed_by_trailer);
}

TEST(HttpServer, C034_Answers413WithoutReadingTheBody) {
  auto server = StartServer(TestOptions(), Echo);
  TestClient client(server->port());

  client.Send(
      "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 67108864\r\n\r\n");

  EXPECT_THAT(client.ReadResponse(),
              AllOf(StartsWith("HTTP/1.1 413 Content Too Large\r\n"),
                    HasSubstr("Connection: close\r\n")));
  EXPECT_TRUE(client.AtEnd());
  EXPECT_EQ(server->stats().requests_total, 0);
}

TEST(HttpServer, C034_TheAnswer413ReachesAClientThatKeepsSending) {
  auto server = StartServer(TestOptions(), Echo);
  TestClient client(server->port());

  client.Send(
      "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 67108864\r\n\r\n");
  client.Send(std::string(512 * 1024, 'x'));

  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 413"));
}

TEST(HttpServer, C034_TakesABodyOfExactlyTheLimit) {
  ServerOptions options = TestOptions();
  options.max_body_bytes = 100;
  auto server = StartServer(options, Echo);
  TestClient client(server->port());

  client.Send(MakeRequest("POST", "/", std::string(100, 'x')));
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 200"));
  client.Send(
      absl::StrCat("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: "
                   "chunked\r\n\r\n64\r\n",
                   std::string(100, 'x'), "\r\n0\r\n\r\n"));
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 200"));
  client.Send(MakeRequest("POST", "/", std::string(101, 'x')));
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 413"));
}

TEST(HttpServer, C034_Answers413ToAChunkedBodyWithoutEnd) {
  auto server = StartServer(TestOptions(), Echo);
  TestClient client(server->port());
  client.Send(
      "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk =
      absl::StrCat("10000\r\n", std::string(0x10000, 'x'), "\r\n");

  // 16 chunks are the limit of 1 MiB to the byte.
  for (int i = 0; i < 17; ++i) client.Send(chunk);

  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 413"));
  EXPECT_EQ(server->stats().requests_total, 0);
}

TEST(HttpServer, C034_Answers413WhenAChunkAnnouncesTooMuch) {
  auto server = StartServer(TestOptions(), Echo);
  for (const char* size : {"100001", "ffffffffffffffff"}) {
    TestClient client(server->port());

    client.Send(absl::StrCat(
        "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n",
        size, "\r\n"));

    EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 413")) << size;
  }
}

TEST(HttpServer, C034_Answers400ToAnEndlessChunkHeader) {
  auto server = StartServer(TestOptions(), Echo);
  TestClient client(server->port());

  client.Send(absl::StrCat(
      "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n1;",
      std::string(64 * 1024, 'x')));

  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 400"));
}

TEST(HttpServer, C034_Answers431To20000HeaderLines) {
  auto server = StartServer(TestOptions(), Echo);
  TestClient client(server->port());
  std::string lines;
  for (int i = 0; i < 20000; ++i) absl::StrAppend(&lines, "X-", i, ": y\r\n");

  client.Send(absl::StrCat("GET / HTTP/1.1\r\nHost: test\r\n", lines));

  EXPECT_THAT(client.ReadResponse(), AllOf(StartsWith("HTTP/1.1 431"),
                                           HasSubstr("Connection: close\r\n")));
}

// Regression: Beast counts its header limit anew whenever it has consumed a
// line, so header lines that came one by one were taken without end.
TEST(HttpServer, C034_Answers431WhenHeaderLinesComeOneByOne) {
  auto server = StartServer(TestOptions(), Echo);
  TestClient client(server->port());
  client.Send("GET / HTTP/1.1\r\nHost: test\r\n");

  int sent = 0;
  while (sent < 20000 && !client.Readable(0) &&
         client.Send("X-Y: zzzzzz\r\n")) {
    ++sent;
  }

  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 431"));
}

TEST(HttpServer, C034_HeaderLimitCountsTheWholeHeader) {
  auto server = StartServer(TestOptions(), Echo);
  const std::string start = "GET / HTTP/1.1\r\nHost: test\r\nX: ";
  const size_t rest = kMaxHeaderBytes - start.size() - 4;
  TestClient fits(server->port());
  TestClient one_more(server->port());
  TestClient long_target(server->port());

  fits.Send(absl::StrCat(start, std::string(rest, 'x'), "\r\n\r\n"));
  one_more.Send(absl::StrCat(start, std::string(rest + 1, 'x'), "\r\n\r\n"));
  long_target.Send(absl::StrCat(
      "GET /", std::string(12000, 'x'),
      " HTTP/1.1\r\nHost: test\r\nX: ", std::string(12000, 'x'), "\r\n\r\n"));

  EXPECT_THAT(fits.ReadResponse(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(one_more.ReadResponse(), StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(long_target.ReadResponse(), StartsWith("HTTP/1.1 431"));
}

TEST(HttpServer, C034_Answers408ToABodyThatStops) {
  ServerOptions options = TestOptions();
  options.request_timeout = kShort;
  auto server = StartServer(options, Echo);
  TestClient client(server->port());

  client.Send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nabc");

  EXPECT_THAT(client.ReadResponse(), AllOf(StartsWith("HTTP/1.1 408"),
                                           HasSubstr("Connection: close\r\n")));
  EXPECT_TRUE(client.AtEnd());
  EXPECT_EQ(server->stats().timed_out_total, 1);
}

TEST(HttpServer, C034_Answers408ToAHeaderThatStops) {
  ServerOptions options = TestOptions();
  options.request_timeout = kShort;
  auto server = StartServer(options, Echo);
  TestClient client(server->port());

  client.Send("POST / HTTP/1.1\r\nHost: te");

  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 408"));
  EXPECT_TRUE(client.AtEnd());
}

TEST(HttpServer, C034_TrickleDoesNotMoveTheDeadline) {
  ServerOptions options = TestOptions();
  options.request_timeout = kShort;
  auto server = StartServer(options, Echo);
  TestClient client(server->port());
  client.Send(
      "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000\r\n\r\n");

  // Every byte comes well before a timeout per read would.
  while (!client.Readable(5) && client.Send("x")) {
  }

  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 408"));
}

TEST(HttpServer, ClosesAConnectionThatSendsNothing) {
  ServerOptions options = TestOptions();
  options.idle_timeout = kShort;
  auto server = StartServer(options, Echo);
  TestClient client(server->port());

  EXPECT_TRUE(client.AtEnd());
}

TEST(HttpServer, ClosesAKeptConnectionThatStaysIdle) {
  ServerOptions options = TestOptions();
  options.idle_timeout = kShort;
  auto server = StartServer(options, Echo);
  TestClient client(server->port());

  client.Send(MakeRequest("GET", "/"));

  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(client.AtEnd());
}

TEST(HttpServer, Answers503WhenTheHandlerTakesTooLong) {
  ServerOptions options = TestOptions();
  options.request_timeout = kShort;
  Gate gate;
  auto server = StartServer(options, gate.handler());
  TestClient client(server->port());

  client.Send(MakeRequest("POST", "/", "body"));

  EXPECT_THAT(client.ReadResponse(),
              AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("Retry-After: 1\r\n"),
                    HasSubstr("Connection: close\r\n")));
  EXPECT_TRUE(client.AtEnd());
  gate.Open();
}

TEST(HttpServer, ARequestWhoseTimePassedInTheQueueIsNotRun) {
  ServerOptions options = TestOptions();
  options.worker_threads = 1;
  options.request_timeout = kShort;
  Gate gate;
  std::atomic<int> ran{0};
  auto server = StartServer(options, [&, hold = gate.handler()](
                                         Request request, Responder responder) {
    ++ran;
    hold(std::move(request), std::move(responder));
  });
  TestClient first(server->port());
  first.Send(MakeRequest("GET", "/first"));
  gate.AwaitArrived(1);
  TestClient second(server->port());
  second.Send(MakeRequest("GET", "/second"));
  EXPECT_THAT(second.ReadResponse(), StartsWith("HTTP/1.1 503"));

  gate.Open();
  server.reset();

  EXPECT_EQ(ran, 1);
}

TEST(HttpServer, CutsAClientThatDoesNotReadItsAnswer) {
  ServerOptions options = TestOptions();
  options.request_timeout = kShort;
  const size_t size = 64 * 1024 * 1024;
  auto server = StartServer(options, [&](Request, Responder responder) {
    responder.Send(TextResponse(200, std::string(size, 'x')));
  });
  TestClient client(server->port());

  client.Send(MakeRequest("GET", "/"));

  EXPECT_TRUE(Await([&] { return server->stats().timed_out_total == 1; }));
  EXPECT_LT(client.ReadToEnd().size(), size);
}

struct BadRequest {
  std::string name;
  std::string bytes;
};

class HttpServerFraming : public ::testing::TestWithParam<BadRequest> {};

// The second request of each must not be answered: where two readers could
// disagree about the end of the first, nothing after it can be trusted.
TEST_P(HttpServerFraming, IsAnsweredOnceWith400AndClosed) {
  std::atomic<int> handled{0};
  auto server = StartServer(TestOptions(), [&](Request, Responder responder) {
    ++handled;
    responder.Send(TextResponse(200, "ok"));
  });
  TestClient client(server->port());

  client.Send(absl::StrCat(GetParam().bytes, MakeRequest("GET", "/smuggled")));
  const std::string all = client.ReadToEnd();

  EXPECT_THAT(all, AllOf(StartsWith("HTTP/1.1 400 Bad Request\r\n"),
                         HasSubstr("Connection: close\r\n")));
  EXPECT_EQ(all.find("HTTP/1.1", 1), std::string::npos) << all;
  EXPECT_EQ(handled, 0);
  EXPECT_EQ(server->stats().refused_total, 1);
}

INSTANTIATE_TEST_SUITE_P(
    All, HttpServerFraming,
    ::testing::ValuesIn(std::vector<BadRequest>{
        {"LengthAndChunked",
         "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n"
         "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
        {"ChunkedAndLength",
         "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n"
         "Content-Length: 4\r\n\r\n0\r\n\r\n"},
        {"LengthAndOtherCoding",
         "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n"
         "Transfer-Encoding: identity\r\n\r\nabcd"},
        {"TwoLengths",
         "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n"
         "Content-Length: 5\r\n\r\nabcd"},
        {"SameLengthTwice",
         "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n"
         "Content-Length: 4\r\n\r\nabcd"},
        {"ListedLength",
         "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 4, 4\r\n\r\nabcd"},
        {"SignedLength",
         "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: +4\r\n\r\nabcd"},
        {"NegativeLength",
         "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: -4\r\n\r\nabcd"},
        {"HugeLength",
         "POST / HTTP/1.1\r\nHost: t\r\n"
         "Content-Length: 18446744073709551617\r\n\r\n"},
        {"EmptyLength",
         "POST / HTTP/1.1\r\nHost: t\r\nContent-Length:\r\n\r\n"},
        {"SpaceBeforeColon",
         "POST / HTTP/1.1\r\nHost: t\r\nContent-Length : 4\r\n\r\nabcd"},
        {"UnknownCoding",
         "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip\r\n\r\n"},
        {"ObscuredCoding",
         "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: xchunked\r\n\r\n"},
        {"CodingAfterChunked",
         "POST / HTTP/1.1\r\nHost: t\r\n"
         "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"},
        {"ChunkedTwice",
         "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n"
         "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
        {"ChunkedInHttp10",
         "POST / HTTP/1.0\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
         "0\r\n\r\n"},
        {"NoHost", "GET / HTTP/1.1\r\n\r\n"},
        {"TwoHosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"},
        {"BadTarget", "GET nowhere HTTP/1.1\r\nHost: t\r\n\r\n"},
        {"Connect", "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"},
        {"BareLineFeeds", "GET / HTTP/1.1\nHost: t\n\n"},
        {"BareLineFeedInField",
         "GET / HTTP/1.1\r\nHost: t\r\nX: a\nContent-Length: 9\r\n\r\n"},
        {"BareCarriageReturnInField",
         "GET / HTTP/1.1\r\nHost: t\r\nX: a\rContent-Length: 9\r\n\r\n"},
        {"FoldedField", "GET / HTTP/1.1\r\nHost: t\r\nX: a\r\n b\r\n\r\n"},
        {"FoldedByATab", "GET / HTTP/1.1\r\nHost: t\r\nX: a\r\n\tb\r\n\r\n"},
        {"FoldedBeforeTheLength",
         "POST / HTTP/1.1\r\nHost: t\r\nContent-Length:\r\n 4\r\n\r\nabcd"},
        {"FoldedBeforeTheCoding",
         "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding:\r\n chunked\r\n"
         "\r\n0\r\n\r\n"},
        {"FoldedAfterTheCoding",
         "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n \r\n"
         "\r\n0\r\n\r\n"},
        {"LineFeedInChunkExtension",
         "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
         "1;a=\"\n\"\r\nx\r\n0\r\n\r\n"},
        {"LineFeedInLastChunkExtension",
         "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
         "0;a=\"\n\"\r\n\r\n"},
        {"FoldedTrailer",
         "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
         "0\r\nT: a\r\n b\r\n\r\n"},
        {"NulInValue", absl::StrCat("GET / HTTP/1.1\r\nHost: t\r\nX: a",
                                    std::string(1, '\0'), "b\r\n\r\n")},
        {"NotHttp", "\x16\x03\x01\x02 hello\r\n\r\n"},
        {"Http2Preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
        {"ChunkSizeNotHex",
         "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
         "xyz\r\n\r\n"},
        {"ChunkLongerThanItSays",
         "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
         "1\r\nabc\r\n0\r\n\r\n"},
        {"ChunkSizeTooLarge",
         "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
         "10000000000000001\r\na\r\n0\r\n\r\n"},
    }),
    [](const auto& row) { return row.param.name; });

TEST(HttpServer, Answers400ToARequestCutInTheMiddle) {
  auto server = StartServer(TestOptions(), Echo);
  const std::string whole = MakeRequest("POST", "/", "body");
  for (size_t cut = 1; cut < whole.size(); ++cut) {
    TestClient client(server->port());

    client.Send(whole.substr(0, cut));
    client.SendEof();

    EXPECT_THAT(client.ReadToEnd(), StartsWith("HTTP/1.1 400")) << cut;
  }
  EXPECT_EQ(server->stats().requests_total, 0);
}

TEST(HttpServer, SaysContinueBeforeAnAcceptableBody) {
  auto server = StartServer(TestOptions(), Echo);
  TestClient client(server->port());

  client.Send(
      "POST / HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\n"
      "Content-Length: 4\r\n\r\n");
  EXPECT_EQ(client.ReadHead(), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("body");

  EXPECT_THAT(client.ReadResponse(),
              AllOf(StartsWith("HTTP/1.1 200"), EndsWith("body\n")));
}

TEST(HttpServer, C034_DoesNotSayContinueToABodyThatIsTooLarge) {
  auto server = StartServer(TestOptions(), Echo);
  TestClient client(server->port());

  client.Send(
      "POST / HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\n"
      "Content-Length: 67108864\r\n\r\n");

  EXPECT_THAT(client.ReadToEnd(), StartsWith("HTTP/1.1 413"));
}

TEST(HttpServer, Answers408WhenTheBodyDoesNotFollowTheContinue) {
  ServerOptions options = TestOptions();
  options.request_timeout = kShort;
  auto server = StartServer(options, Echo);
  TestClient client(server->port());

  client.Send(
      "POST / HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\n"
      "Content-Length: 4\r\n\r\n");

  EXPECT_THAT(client.ReadToEnd(), HasSubstr("\r\n\r\nHTTP/1.1 408"));
}

TEST(HttpServer, Answers417ToAnUnknownExpectation) {
  auto server = StartServer(TestOptions(), Echo);
  TestClient client(server->port());

  client.Send("GET / HTTP/1.1\r\nHost: t\r\nExpect: miracles\r\n\r\n");

  EXPECT_THAT(client.ReadToEnd(), StartsWith("HTTP/1.1 417"));
}

std::optional<Response> OnlyJsonPostToHook(const RequestHead& head) {
  if (head.target != "/hook") return TextResponse(404, "no such route");
  if (head.method != "POST") return MethodNotAllowed("POST");
  const std::string* type = head.headers.Find("Content-Type");
  if (type == nullptr || MediaType(*type) != "application/json") {
    return TextResponse(415, "send application/json");
  }
  return std::nullopt;
}

TEST(HttpServer, RefusesByTheHeaderWithoutReadingTheBody) {
  ServerOptions options = TestOptions();
  options.accept = OnlyJsonPostToHook;
  auto server = StartServer(options, Echo);
  const auto answer = [&](absl::string_view method, absl::string_view target,
                          absl::string_view type) {
    TestClient client(server->port());
    // No byte of the body ever comes; nor does "100 Continue".
    client.Send(absl::StrCat(method, " ", target,
                             " HTTP/1.1\r\nHost: t\r\nContent-Type: ", type,
                             "\r\nExpect: 100-continue\r\n"
                             "Content-Length: 100\r\n\r\n"));
    return client.ReadToEnd();
  };

  EXPECT_THAT(
      answer("POST", "/other", "application/json"),
      AllOf(StartsWith("HTTP/1.1 404"), HasSubstr("Connection: close\r\n")));
  EXPECT_THAT(answer("PUT", "/hook", "application/json"),
              AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("Allow: POST\r\n")));
  EXPECT_THAT(answer("POST", "/hook", "text/xml"), StartsWith("HTTP/1.1 415"));
}

TEST(HttpServer, KeepsTheConnectionAfterARefusalWithoutABody) {
  ServerOptions options = TestOptions();
  options.accept = OnlyJsonPostToHook;
  auto server = StartServer(options, Echo);
  TestClient client(server->port());

  client.Send(MakeRequest("GET", "/other"));
  EXPECT_THAT(
      client.ReadResponse(),
      AllOf(StartsWith("HTTP/1.1 404"), Not(HasSubstr("Connection: close"))));
  client.Send(MakeRequest("POST", "/hook", "{}",
                          "Content-Type: application/json; charset=utf-8\r\n"));
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 200"));
}

TEST(HttpServer, C034_TwoHundredSlowClientsDoNotDelayAGoodOne) {
  ServerOptions options = TestOptions();
  options.io_threads = 1;
  options.worker_threads = 1;
  auto server = StartServer(options, Echo);
  std::vector<TestClient> slow;
  for (int i = 0; i < 200; ++i) {
    slow.emplace_back(server->port());
    switch (i % 4) {
      case 0:
        slow.back().Send("POST / HT");
        break;
      case 1:
        slow.back().Send("POST / HTTP/1.1\r\nHost: t\r\nX: ");
        break;
      case 2:
        slow.back().Send(
            "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1000\r\n\r\nabc");
        break;
      case 3:
        break;  // says nothing
    }
  }
  ASSERT_TRUE(Await([&] { return server->stats().open_connections == 200; }));

  TestClient good(server->port());
  for (int i = 0; i < 50; ++i) {
    good.Send(MakeRequest("POST", "/good", std::string(20000, 'x')));
    ASSERT_THAT(good.ReadResponse(), StartsWith("HTTP/1.1 200"));
  }

  EXPECT_EQ(server->stats().open_connections, 201);
}

TEST(HttpServer, C034_MemoryOfUnfinishedBodiesIsBounded) {
  ServerOptions options = TestOptions();
  options.max_buffered_bytes = 1024 * 1024;
  auto server = StartServer(options, Echo);
  std::vector<TestClient> large;
  for (int i = 0; i < 10; ++i) {
    large.emplace_back(server->port());
    large.back().Send(absl::StrCat(
        "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 500000\r\n\r\n",
        std::string(400000, 'x')));
  }

  int refused = 0;
  EXPECT_TRUE(Await([&] { return server->stats().overloaded_total > 0; }));
  for (TestClient& client : large) {
    if (client.Readable(0)) {
      EXPECT_THAT(
          client.ReadResponse(),
          AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("Retry-After: 1\r\n")));
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
  // The usual small delivery is taken all the same.
  TestClient good(server->port());
  good.Send(MakeRequest("POST", "/", std::string(20000, 'x')));
  EXPECT_THAT(good.ReadResponse(), StartsWith("HTTP/1.1 200"));
  large.clear();
  good.Close();
  EXPECT_TRUE(Await([&] { return server->stats().open_connections == 0; }));
  EXPECT_EQ(server->stats().buffered_body_bytes, 0);
}

TEST(HttpServer, Answers503AtOnceWhenTheQueueIsFull) {
  ServerOptions options = TestOptions();
  options.worker_threads = 1;
  options.max_queued = 1;
  options.retry_after = absl::Seconds(7);
  Gate gate;
  auto server = StartServer(options, gate.handler());
  TestClient running(server->port());
  running.Send(MakeRequest("GET", "/running"));
  gate.AwaitArrived(1);
  TestClient queued(server->port());
  queued.Send(MakeRequest("GET", "/queued"));
  ASSERT_TRUE(Await([&] { return server->stats().queued_requests == 1; }));

  TestClient refused(server->port());
  refused.Send(MakeRequest("POST", "/refused", "body"));

  EXPECT_THAT(refused.ReadResponse(),
              AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("Retry-After: 7\r\n"),
                    HasSubstr("Connection: close\r\n")));
  EXPECT_TRUE(refused.AtEnd());
  gate.Open();
  EXPECT_THAT(running.ReadResponse(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(queued.ReadResponse(), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(server->stats().overloaded_total, 1);
}

TEST(HttpServer, Answers500WhenTheHandlerDropsItsResponder) {
  auto server = StartServer(TestOptions(), [](Request, Responder) {});
  TestClient client(server->port());

  client.Send(MakeRequest("GET", "/"));

  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 500"));
}

TEST(HttpServer, Answers500WhenTheHandlerThrows) {
  std::atomic<int> calls{0};
  auto server = StartServer(TestOptions(), [&](Request, Responder responder) {
    switch (++calls) {
      case 1:
        throw std::runtime_error("bug");
      case 2:
        throw 7;
      default:
        responder.Send(TextResponse(200, "alive"));
    }
  });
  TestClient client(server->port());

  for (const char* status : {"500", "500", "200"}) {
    client.Send(MakeRequest("GET", "/"));
    EXPECT_THAT(client.ReadResponse(),
                StartsWith(absl::StrCat("HTTP/1.1 ", status)));
  }
}

TEST(HttpServer, Answers500InsteadOfAnImpossibleStatus) {
  auto server = StartServer(TestOptions(), [](Request, Responder responder) {
    responder.Send(TextResponse(100, "?"));
  });
  TestClient client(server->port());

  client.Send(MakeRequest("GET", "/"));

  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 500"));
}

TEST(HttpServer, TakesTheAnswerFromAnotherThread) {
  std::promise<Responder> handed_over;
  auto server = StartServer(TestOptions(), [&](Request, Responder responder) {
    handed_over.set_value(std::move(responder));
  });
  TestClient client(server->port());
  client.Send(MakeRequest("GET", "/"));
  Responder responder = handed_over.get_future().get();

  std::thread other([&] { responder.Send(TextResponse(202, "later")); });
  other.join();
  responder.Send(TextResponse(500, "a second answer is nothing"));

  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 202"));
  EXPECT_FALSE(client.Readable(0));
}

TEST(HttpServer, AnAnswerAfterTheServerIsGoneDoesNothing) {
  std::promise<Responder> handed_over;
  auto server = StartServer(TestOptions(), [&](Request, Responder responder) {
    handed_over.set_value(std::move(responder));
  });
  TestClient client(server->port());
  client.Send(MakeRequest("GET", "/"));
  Responder responder = handed_over.get_future().get();

  server.reset();
  responder.Send(TextResponse(200, "too late"));

  EXPECT_EQ(client.ReadToEnd(), "");
}

TEST(HttpServer, RunsHandlersOnIoThreadsWithoutWorkers) {
  ServerOptions options = TestOptions();
  options.worker_threads = 0;
  auto server = StartServer(options, Echo);
  TestClient client(server->port());

  for (int i = 0; i < 3; ++i) {
    client.Send(MakeRequest("POST", "/", "inline"));
    EXPECT_THAT(client.ReadResponse(), EndsWith("inline\n"));
  }
}

TEST(HttpServer, DropsHeaderInjectionFromAnAnswer) {
  auto server = StartServer(TestOptions(), [](Request, Responder responder) {
    Response response = TextResponse(200, "ok");
    response.headers.Add("X-Echo", "a\r\nX-Evil: 1");
    responder.Send(std::move(response));
  });
  TestClient client(server->port());

  client.Send(MakeRequest("GET", "/"));

  EXPECT_THAT(client.ReadResponse(), Not(HasSubstr("X-Evil")));
}

TEST(HttpServerDrain, C116_AnswersWhatIsUnderWayAndClosesTheRest) {
  Gate gate;
  auto server = StartServer(TestOptions(), gate.handler());
  const int port = server->port();
  TestClient under_way(port);
  under_way.Send(MakeRequest("POST", "/under-way", "body"));
  gate.AwaitArrived(1);
  // A request half read when the drain begins counts as under way.
  TestClient half_read(port);
  half_read.Send(
      "POST /half HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\nab");
  ASSERT_TRUE(Await([&] { return server->stats().open_connections == 2; }));

  std::promise<bool> drained;
  std::thread drain(
      [&] { drained.set_value(server->Drain(absl::Minutes(1))); });
  // The listener is closed once a new connection is refused.
  EXPECT_TRUE(Await([&] { return !TestClient().Connect(port); }));
  half_read.Send("cd");
  gate.Open();

  EXPECT_THAT(under_way.ReadResponse(),
              AllOf(StartsWith("HTTP/1.1 200"), EndsWith("body\n"),
                    HasSubstr("Connection: close\r\n")));
  EXPECT_TRUE(under_way.AtEnd());
  EXPECT_THAT(half_read.ReadResponse(),
              AllOf(StartsWith("HTTP/1.1 200"), EndsWith("abcd\n")));
  under_way.Close();
  half_read.Close();
  EXPECT_TRUE(drained.get_future().get());
  drain.join();
}

TEST(HttpServerDrain, C116_ClosesAKeptIdleConnectionAtOnce) {
  auto server = StartServer(TestOptions(), Echo);
  TestClient client(server->port());
  client.Send(MakeRequest("GET", "/"));
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 200"));

  EXPECT_TRUE(server->Drain(absl::Minutes(1)));

  EXPECT_TRUE(client.AtEnd());
  EXPECT_TRUE(server->Drain(absl::ZeroDuration())) << "a second one is fine";
}

TEST(HttpServerDrain, C116_AnswersConnectionsTheKernelHadAccepted) {
  ServerOptions options = TestOptions();
  options.max_connections = 1;
  Gate gate;
  auto server = StartServer(options, gate.handler());
  TestClient first(server->port());
  first.Send(MakeRequest("GET", "/first"));
  gate.AwaitArrived(1);
  // Connected and sent as far as they can tell, but the server is full.
  std::vector<TestClient> waiting;
  for (int i = 0; i < 5; ++i) {
    waiting.emplace_back(server->port());
    ASSERT_TRUE(waiting.back().Send(MakeRequest("GET", "/waiting")));
  }
  EXPECT_EQ(server->stats().accepted_connections_total, 1);

  std::promise<bool> drained;
  std::thread drain(
      [&] { drained.set_value(server->Drain(absl::Minutes(1))); });
  gate.Open();

  EXPECT_THAT(first.ReadToEnd(), StartsWith("HTTP/1.1 200"));
  for (TestClient& client : waiting) {
    EXPECT_THAT(client.ReadToEnd(), StartsWith("HTTP/1.1 200"));
    client.Close();
  }
  first.Close();
  EXPECT_TRUE(drained.get_future().get());
  drain.join();
}

TEST(HttpServerDrain, ReturnsAtItsLimitWithWorkLeft) {
  Gate gate;
  auto server = StartServer(TestOptions(), gate.handler());
  TestClient client(server->port());
  client.Send(MakeRequest("GET", "/"));
  gate.AwaitArrived(1);

  EXPECT_FALSE(server->Drain(absl::Milliseconds(50)));

  gate.Open();
  EXPECT_THAT(client.ReadToEnd(), StartsWith("HTTP/1.1 200"));
  client.Close();
  EXPECT_TRUE(server->Drain(absl::Minutes(1)));
}

TEST(HttpServerLimits, ClosesTheLongestIdleConnectionForANewcomer) {
  ServerOptions options = TestOptions();
  options.io_threads = 1;  // so that they become idle in this order
  options.max_connections = 2;
  auto server = StartServer(options, Echo);
  TestClient silent(server->port());
  TestClient kept(server->port());
  kept.Send(MakeRequest("GET", "/kept"));
  EXPECT_THAT(kept.ReadResponse(), HasSubstr("/kept"));

  TestClient newcomer(server->port());
  newcomer.Send(MakeRequest("GET", "/newcomer"));

  EXPECT_THAT(newcomer.ReadResponse(), HasSubstr("/newcomer"));
  EXPECT_TRUE(silent.AtEnd());
  kept.Send(MakeRequest("GET", "/again"));
  EXPECT_THAT(kept.ReadResponse(), HasSubstr("/again"));
}

TEST(HttpServerLimits, ServesMoreClientsThanItHasConnectionsFor) {
  ServerOptions options = TestOptions();
  options.max_connections = 3;
  auto server = StartServer(options, Echo);
  std::vector<TestClient> clients;
  for (int i = 0; i < 60; ++i) {
    clients.emplace_back(server->port());
    clients.back().Send(MakeRequest("GET", "/"));
  }

  for (TestClient& client : clients) {
    EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 200"));
  }
}

TEST(HttpServerLimits, ClosesConnectionsBeyondThePeerLimit) {
  ServerOptions options = TestOptions();
  options.max_connections_per_peer = 2;
  auto server = StartServer(options, Echo);
  TestClient first(server->port());
  TestClient second(server->port());
  ASSERT_TRUE(Await([&] { return server->stats().open_connections == 2; }));

  TestClient third(server->port());

  EXPECT_EQ(third.ReadToEnd(), "");
  second.Close();
  ASSERT_TRUE(Await([&] { return server->stats().open_connections == 1; }));
  TestClient fourth(server->port());
  fourth.Send(MakeRequest("GET", "/"));
  EXPECT_THAT(fourth.ReadResponse(), StartsWith("HTTP/1.1 200"));
}

TEST(HttpServerLimits, AcceptsAgainAfterFileDescriptorsRanOut) {
  auto server = StartServer(TestOptions(), Echo);
  TestClient client;
  // UBSan looks at an object of a type it has not met through a pipe, which
  // needs descriptors: the log's clock is met here.
  SystemClock::Instance().Now();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 3;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);

  ASSERT_TRUE(client.Connect(server->port()));
  client.Send(MakeRequest("GET", "/"));
  const bool failed =
      Await([&] { return server->stats().accept_errors_total > 0; });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);

  EXPECT_TRUE(failed);
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 200"));
}

TEST(HttpServerStart, NamesTheAddressThatIsTaken) {
  auto server = StartServer(TestOptions(), Echo);
  ServerOptions options = TestOptions();
  options.listen_address = server->address();

  const auto second = Server::Start(options, Echo);

  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(server->address()));
}

TEST(HttpServerStart, NamesTheAddressThatIsMalformed) {
  for (const char* address : {"", "8080", ":8080", "127.0.0.1:", "127.0.0.1:x",
                              "127.0.0.1:65536", "127.0.0.1:-1", "::1:80"}) {
    ServerOptions options = TestOptions();
    options.listen_address = address;

    const auto server = Server::Start(options, Echo);

    ASSERT_FALSE(server.ok()) << address;
    EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(server.status().message()),
                HasSubstr(absl::StrCat("\"", address, "\"")));
  }
}

TEST(HttpServerStart, ReportsTheBoundAddress) {
  auto server = StartServer(TestOptions(), Echo);

  EXPECT_GT(server->port(), 0);
  EXPECT_EQ(server->address(), absl::StrCat("127.0.0.1:", server->port()));
}

TEST(HttpServer, ServesManyClientsAtOnceWhileSomeVanish) {
  ServerOptions options = TestOptions();
  options.max_queued = 1000;
  auto server = StartServer(options, Echo);
  std::atomic<int> answered{0};

  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 10; ++round) {
        TestClient client(server->port());
        for (int i = 0; i < 10; ++i) {
          const std::string body(static_cast<size_t>(t * 500 + i), 'x');
          client.Send(MakeRequest("POST", "/", body));
          // Every fifth connection goes away without its answer.
          if (round % 5 == 4 && i == 5) break;
          if (absl::EndsWith(client.ReadResponse(), absl::StrCat(body, "\n"))) {
            ++answered;
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(answered, 8 * (8 * 10 + 2 * 5));
  EXPECT_TRUE(server->Drain(absl::Minutes(1)));
}

}  // namespace
}  // namespace tenure::http
