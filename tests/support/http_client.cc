#include "tests/support/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"

namespace tenure::test {
namespace {

absl::Duration Monotonic() { return SystemClock::Instance().Monotonic(); }

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(Socket&& other) : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&&) = delete;

  int fd() const { return fd_; }

 private:
  int fd_;
};

absl::StatusOr<Socket> Connect(absl::string_view address) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(address, absl::MaxSplits(':', 1));
  sockaddr_in target = {};
  target.sin_family = AF_INET;
  uint32_t port = 0;
  if (inet_pton(AF_INET, parts.first.c_str(), &target.sin_addr) != 1 ||
      !absl::SimpleAtoi(parts.second, &port) || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("not an address like 127.0.0.1:8080: ", address));
  }
  target.sin_port = htons(static_cast<uint16_t>(port));
  Socket connected(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connected.fd() < 0 ||
      connect(connected.fd(), reinterpret_cast<sockaddr*>(&target),
              sizeof(target)) != 0) {
    return absl::UnavailableError(
        absl::StrCat("connecting to ", address, ": ", std::strerror(errno)));
  }
  return connected;
}

// Reads the chunks of a chunked body. nullopt when it is not complete yet.
absl::StatusOr<std::optional<std::string>> ReadChunks(absl::string_view rest) {
  std::string body;
  for (;;) {
    const size_t line_end = rest.find("\r\n");
    if (line_end == absl::string_view::npos) {
      return std::optional<std::string>();
    }
    const absl::string_view digits =
        rest.substr(0, std::min(rest.find(';'), line_end));
    uint32_t size = 0;
    if (!absl::SimpleHexAtoi(digits, &size)) {
      return absl::InvalidArgumentError("a chunk has no size");
    }
    rest.remove_prefix(line_end + 2);
    if (size == 0) {
      // Trailers, then an empty line.
      if (absl::StartsWith(rest, "\r\n") || absl::StrContains(rest, "\r\n\r\n"))
        return std::optional<std::string>(std::move(body));
      return std::optional<std::string>();
    }
    if (rest.size() < size + size_t{2}) return std::optional<std::string>();
    absl::StrAppend(&body, rest.substr(0, size));
    rest.remove_prefix(size + size_t{2});
  }
}

absl::StatusOr<HttpReply> Exchange(absl::string_view address,
                                   absl::string_view request, bool is_head,
                                   absl::Duration timeout) {
  const absl::Duration end = Monotonic() + timeout;
  ASSIGN_OR_RETURN(const Socket connection, Connect(address));
  std::string received;
  bool can_send = true;
  for (;;) {
    const absl::Duration left = end - Monotonic();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          absl::StrCat("no whole reply within ", absl::FormatDuration(timeout),
                       "; received: ", received.substr(0, 500)));
    }
    // Both ways at once: the server may answer, or stop reading, midway.
    const bool sending = can_send && !request.empty();
    pollfd ready = {connection.fd(),
                    static_cast<short>(POLLIN | (sending ? POLLOUT : 0)), 0};
    poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (sending && (ready.revents & POLLOUT) != 0) {
      const ssize_t sent = send(connection.fd(), request.data(), request.size(),
                                MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) {
        request.remove_prefix(static_cast<size_t>(sent));
      } else if (errno != EAGAIN && errno != EINTR) {
        // The reply may have arrived all the same.
        can_send = false;
      }
    }
    if ((ready.revents & ~POLLOUT) == 0) continue;
    char buffer[65536];
    const ssize_t got =
        recv(connection.fd(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    const bool ended = got <= 0;
    const std::string reason = got < 0 ? std::strerror(errno) : "it was closed";
    if (got > 0) received.append(buffer, static_cast<size_t>(got));
    ASSIGN_OR_RETURN(std::optional<HttpReply> reply,
                     ParseHttpReply(received, got == 0, is_head));
    if (reply.has_value()) return *std::move(reply);
    if (ended) {
      return absl::UnavailableError(
          absl::StrCat("the connection ended before a whole reply (", reason,
                       "); received: ", received.substr(0, 500)));
    }
  }
}

bool HasHeader(const HttpHeaders& headers, absl::string_view name) {
  return std::any_of(headers.begin(), headers.end(), [&](const auto& header) {
    return absl::EqualsIgnoreCase(header.first, name);
  });
}

}  // namespace

absl::StatusOr<std::optional<HttpReply>> ParseHttpReply(
    absl::string_view received, bool ended, bool is_head) {
  const std::optional<HttpReply> incomplete;
  HttpReply reply;
  absl::string_view rest = received;
  size_t head_end;
  // An interim reply (1xx) stands before the one that counts.
  do {
    head_end = rest.find("\r\n\r\n");
    if (head_end == absl::string_view::npos) {
      if (rest.size() >= 5 && !absl::StartsWith(rest, "HTTP/")) {
        return absl::InvalidArgumentError(
            absl::StrCat("not an HTTP reply: ", rest.substr(0, 200)));
      }
      return incomplete;
    }
    reply = HttpReply();
    bool first = true;
    for (const absl::string_view line :
         absl::StrSplit(rest.substr(0, head_end), "\r\n")) {
      if (first) {
        const std::vector<absl::string_view> words =
            absl::StrSplit(line, absl::MaxSplits(' ', 2));
        if (words.size() < 2 || !absl::StartsWith(words[0], "HTTP/1.") ||
            !absl::SimpleAtoi(words[1], &reply.status)) {
          return absl::InvalidArgumentError(
              absl::StrCat("not a status line: ", line));
        }
        first = false;
        continue;
      }
      const size_t colon = line.find(':');
      if (colon == absl::string_view::npos) {
        return absl::InvalidArgumentError(absl::StrCat("not a header: ", line));
      }
      reply.headers.emplace_back(
          std::string(line.substr(0, colon)),
          std::string(absl::StripAsciiWhitespace(line.substr(colon + 1))));
    }
    rest.remove_prefix(head_end + 4);
  } while (reply.status >= 100 && reply.status < 200);

  if (is_head || reply.status == 204 || reply.status == 304) {
    return std::optional<HttpReply>(std::move(reply));
  }
  if (absl::EqualsIgnoreCase(reply.Header("Transfer-Encoding").value_or(""),
                             "chunked")) {
    ASSIGN_OR_RETURN(std::optional<std::string> body, ReadChunks(rest));
    if (!body.has_value()) return incomplete;
    reply.body = *std::move(body);
    return std::optional<HttpReply>(std::move(reply));
  }
  if (const std::optional<std::string> length = reply.Header("Content-Length");
      length.has_value()) {
    uint64_t bytes = 0;
    if (!absl::SimpleAtoi(*length, &bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("Content-Length is ", *length));
    }
    if (rest.size() < bytes) return incomplete;
    reply.body = std::string(rest.substr(0, bytes));
    return std::optional<HttpReply>(std::move(reply));
  }
  if (!ended) return incomplete;
  reply.body = std::string(rest);
  return std::optional<HttpReply>(std::move(reply));
}

std::optional<std::string> HttpReply::Header(absl::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (absl::EqualsIgnoreCase(key, name)) return value;
  }
  return std::nullopt;
}

absl::StatusOr<HttpReply> HttpGet(absl::string_view address,
                                  absl::string_view path,
                                  const HttpHeaders& headers,
                                  absl::Duration timeout) {
  return HttpSend("GET", address, path, "", headers, timeout);
}

absl::StatusOr<HttpReply> HttpPost(absl::string_view address,
                                   absl::string_view path,
                                   absl::string_view body,
                                   const HttpHeaders& headers,
                                   absl::Duration timeout) {
  return HttpSend("POST", address, path, body, headers, timeout);
}

absl::StatusOr<HttpReply> HttpSend(absl::string_view method,
                                   absl::string_view address,
                                   absl::string_view path,
                                   absl::string_view body,
                                   const HttpHeaders& headers,
                                   absl::Duration timeout) {
  std::string request = absl::StrCat(method, " ", path, " HTTP/1.1\r\n");
  if (!HasHeader(headers, "Host")) {
    absl::StrAppend(&request, "Host: ", address, "\r\n");
  }
  if (!HasHeader(headers, "Connection")) {
    absl::StrAppend(&request, "Connection: close\r\n");
  }
  if (!HasHeader(headers, "Content-Length") &&
      !HasHeader(headers, "Transfer-Encoding") &&
      (!body.empty() || method == "POST" || method == "PUT")) {
    absl::StrAppend(&request, "Content-Length: ", body.size(), "\r\n");
  }
  for (const auto& [name, value] : headers) {
    absl::StrAppend(&request, name, ": ", value, "\r\n");
  }
  absl::StrAppend(&request, "\r\n", body);
  return Exchange(address, request, method == "HEAD", timeout);
}

absl::StatusOr<HttpReply> HttpSendRaw(absl::string_view address,
                                      absl::string_view request,
                                      absl::Duration timeout) {
  return Exchange(address, request, false, timeout);
}

}  // namespace tenure::test
