#ifndef TENURE_COMMON_HTTP_TEST_CLIENT_H_
#define TENURE_COMMON_HTTP_TEST_CLIENT_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tenure::http {

// One TCP connection to 127.0.0.1 that sends and shows exact bytes. A read that
// brings nothing for half a minute ends, so that a hung server fails a test
// instead of holding it.
class TestClient {
 public:
  explicit TestClient(int port) : TestClient() { Connect(port); }
  TestClient() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {}
  ~TestClient() { Close(); }
  TestClient(TestClient&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), read_(std::move(other.read_)) {}
  TestClient& operator=(TestClient&&) = delete;

  bool Connect(int port) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return ::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
  }

  // False when the server has closed.
  bool Send(absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  void SendEof() { ::shutdown(fd_, SHUT_WR); }

  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

  // True when bytes or the end of the stream came within `milliseconds`.
  bool Readable(int milliseconds) {
    if (!read_.empty()) return true;
    pollfd entry{fd_, POLLIN, 0};
    return ::poll(&entry, 1, milliseconds) == 1;
  }

  // Everything up to the end of the stream.
  std::string ReadToEnd() {
    while (Fill()) {
    }
    return std::exchange(read_, "");
  }

  // True when the server ended the stream, in order, with nothing more to read.
  bool AtEnd() { return read_.empty() && !Fill() && ended_; }

  // The header of the next response, with its final empty line; "" if none.
  std::string ReadHead() {
    for (;;) {
      const size_t end = read_.find("\r\n\r\n");
      if (end != std::string::npos) return Take(end + 4);
      if (!Fill()) return "";
    }
  }

  // Header and body of the next response.
  std::string ReadResponse() {
    const std::string head = ReadHead();
    if (head.empty()) return "";
    const absl::string_view key = "Content-Length: ";
    const size_t at = head.find(std::string(key));
    size_t length = 0;
    if (at != std::string::npos) {
      length = std::strtoul(head.c_str() + at + key.size(), nullptr, 10);
    }
    while (read_.size() < length && Fill()) {
    }
    return head + Take(length);
  }

 private:
  bool Fill() {
    if (!Readable0(30000)) return false;
    char bytes[16384];
    const ssize_t n = ::recv(fd_, bytes, sizeof(bytes), 0);
    if (n == 0) ended_ = true;
    if (n <= 0) return false;
    read_.append(bytes, static_cast<size_t>(n));
    return true;
  }

  bool Readable0(int milliseconds) {
    pollfd entry{fd_, POLLIN, 0};
    return ::poll(&entry, 1, milliseconds) == 1;
  }

  std::string Take(size_t size) {
    std::string taken = read_.substr(0, size);
    read_.erase(0, size);
    return taken;
  }

  int fd_;
  bool ended_ = false;
  std::string read_;
};

// A request with a Host field and, unless empty, a body with its length.
inline std::string MakeRequest(absl::string_view method,
                               absl::string_view target,
                               absl::string_view body = "",
                               absl::string_view more_fields = "") {
  std::string text = absl::StrCat(method, " ", target,
                                  " HTTP/1.1\r\nHost: test\r\n", more_fields);
  if (!body.empty()) {
    absl::StrAppend(&text, "Content-Length: ", body.size(), "\r\n");
  }
  return absl::StrCat(text, "\r\n", body);
}

}  // namespace tenure::http

#endif  // TENURE_COMMON_HTTP_TEST_CLIENT_H_
