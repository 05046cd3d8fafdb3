#include "tests/support/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/process.h"
#include "tests/support/status_matchers.h"

namespace tenure::test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Accepts one connection, reads until `until` was received, answers with fixed
// bytes and closes.
class CannedServer {
 public:
  explicit CannedServer(std::string reply, std::string until = "\r\n\r\n")
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, 1), 0);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
    thread_ = std::thread([this, reply, until] {
      const int connection = accept(fd_, nullptr, nullptr);
      char buffer[4096];
      while (!absl::StrContains(request_, until)) {
        const ssize_t got = recv(connection, buffer, sizeof(buffer), 0);
        if (got <= 0) break;
        request_.append(buffer, got);
      }
      send(connection, reply.data(), reply.size(), MSG_NOSIGNAL);
      close(connection);
    });
  }
  ~CannedServer() {
    if (thread_.joinable()) thread_.join();
    close(fd_);
  }

  const std::string& address() const { return address_; }
  // What was received; ends the server.
  std::string Request() {
    thread_.join();
    return request_;
  }

 private:
  const int fd_;
  std::string address_;
  std::string request_;
  std::thread thread_;
};

TEST(HttpClient, SendsAPostAndReadsABodyByItsLength) {
  CannedServer server(
      "HTTP/1.1 201 Created\r\nX-Kind: a\r\ncontent-length: 3\r\n\r\nabcd",
      "hello");

  ASSERT_OK_AND_ASSIGN(
      const HttpReply reply,
      HttpPost(server.address(), "/hooks/x", "hello", {{"Signature", "s"}}));

  EXPECT_EQ(reply.status, 201);
  EXPECT_EQ(reply.body, "abc");
  EXPECT_EQ(reply.Header("x-kind"), "a");
  EXPECT_EQ(reply.Header("absent"), std::nullopt);
  const std::string request = server.Request();
  EXPECT_THAT(request, StartsWith("POST /hooks/x HTTP/1.1\r\n"));
  EXPECT_THAT(request, HasSubstr("\r\nContent-Length: 5\r\n"));
  EXPECT_THAT(request, HasSubstr("\r\nSignature: s\r\n"));
  EXPECT_THAT(request, EndsWith("\r\n\r\nhello"));
}

TEST(HttpClient, ReadsChunks) {
  CannedServer server(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n1;x=y\r\nd\r\n0\r\n\r\n");

  ASSERT_OK_AND_ASSIGN(const HttpReply reply, HttpGet(server.address(), "/"));

  EXPECT_EQ(reply.body, "abcd");
}

TEST(HttpClient, ReadsToTheEndWithoutALength) {
  CannedServer server("HTTP/1.0 200 OK\r\n\r\nall of it");

  ASSERT_OK_AND_ASSIGN(const HttpReply reply, HttpGet(server.address(), "/"));

  EXPECT_EQ(reply.body, "all of it");
}

TEST(HttpClient, SkipsAnInterimReply) {
  CannedServer server(
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n");

  ASSERT_OK_AND_ASSIGN(const HttpReply reply, HttpGet(server.address(), "/"));

  EXPECT_EQ(reply.status, 204);
}

TEST(HttpClient, ReturnsAReplyThatComesBeforeTheRequestWasSent) {
  CannedServer server(
      "HTTP/1.1 413 Payload Too Large\r\nContent-Length: 0\r\n\r\n");

  // Far more than the socket buffers hold.
  ASSERT_OK_AND_ASSIGN(
      const HttpReply reply,
      HttpPost(server.address(), "/", std::string(32 << 20, 'x')));

  EXPECT_EQ(reply.status, 413);
}

TEST(HttpClient, NamesATruncatedReplyAndARefusedConnection) {
  CannedServer server("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");

  EXPECT_THAT(HttpGet(server.address(), "/"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("abc")));
  EXPECT_THAT(HttpGet(absl::StrCat("127.0.0.1:", FreePort()), "/"),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST(HttpClient, RejectsWhatIsNotHttp) {
  CannedServer server("SSH-2.0-x\r\n\r\n");

  EXPECT_THAT(HttpSendRaw(server.address(), "\r\n\r\n"),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace tenure::test
