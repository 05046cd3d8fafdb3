#include "tests/bench/http_load.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace tenure::bench {
namespace {

// What no answer needs; a run that waits longer would hang.
constexpr int64_t kAnswerNanos = 30'000'000'000;
// SlowClients sends in this many portions a second, so that its own work is
// spread.
constexpr int kPortions = 10;

absl::Status SystemError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(errno)));
}

absl::StatusOr<int> ConnectTo(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return SystemError("socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address),
              sizeof address) != 0) {
    absl::Status status = SystemError(absl::StrCat("no connection to ", port));
    close(fd);
    return status;
  }
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  return fd;
}

}  // namespace

std::string HttpPostText(absl::string_view target, absl::string_view headers,
                         absl::string_view body) {
  return absl::StrCat("POST ", target,
                      " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
                      "application/json\r\nContent-Length: ",
                      body.size(), "\r\n", headers, "\r\n", body);
}

absl::StatusOr<bool> ParseAnswer(absl::string_view received,
                                 HttpAnswer* answer) {
  constexpr absl::string_view kEnd = "\r\n\r\n";
  const size_t end = received.find(kEnd);
  if (end == absl::string_view::npos) return false;
  const std::vector<absl::string_view> lines =
      absl::StrSplit(received.substr(0, end), "\r\n");
  // "HTTP/1.1 200 OK"
  if (lines[0].size() < 12 || !absl::StartsWith(lines[0], "HTTP/1.1 ") ||
      !absl::SimpleAtoi(lines[0].substr(9, 3), &answer->status)) {
    return absl::InvalidArgumentError("this is no answer of HTTP/1.1");
  }
  size_t length = 0;
  bool has_length = false;
  answer->closes = false;
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(lines[i], absl::MaxSplits(':', 1));
    const absl::string_view value = absl::StripAsciiWhitespace(field.second);
    if (absl::EqualsIgnoreCase(field.first, "Content-Length")) {
      has_length = absl::SimpleAtoi(value, &length);
    } else if (absl::EqualsIgnoreCase(field.first, "Connection")) {
      answer->closes = absl::EqualsIgnoreCase(value, "close");
    }
  }
  if (!has_length) {
    return absl::InvalidArgumentError("an answer without Content-Length");
  }
  answer->size = end + kEnd.size() + length;
  if (received.size() < answer->size) return false;
  answer->body = received.substr(end + kEnd.size(), length);
  return true;
}

struct HttpLoad::Connection {
  int fd = -1;
  const std::string* request = nullptr;  // under way
  size_t written = 0;
  bool wants_write = false;
  int64_t from = 0;
  std::string received;
};

HttpLoad::HttpLoad(int port, CheckAnswer check)
    : port_(port), check_(std::move(check)) {}

HttpLoad::~HttpLoad() {
  for (const auto& connection : connections_) {
    if (connection->fd >= 0) close(connection->fd);
  }
  if (epoll_ >= 0) close(epoll_);
}

absl::StatusOr<std::unique_ptr<HttpLoad>> HttpLoad::Connect(int port,
                                                            int connections,
                                                            CheckAnswer check) {
  std::unique_ptr<HttpLoad> load(new HttpLoad(port, std::move(check)));
  load->epoll_ = epoll_create1(EPOLL_CLOEXEC);
  if (load->epoll_ < 0) return SystemError("epoll_create1");
  for (int i = 0; i < connections; ++i) {
    load->connections_.push_back(std::make_unique<Connection>());
    RETURN_IF_ERROR(load->Open(*load->connections_.back()));
  }
  return load;
}

absl::Status HttpLoad::Open(Connection& connection) {
  if (connection.fd >= 0) close(connection.fd);
  connection.fd = -1;
  connection.received.clear();
  connection.wants_write = false;
  ASSIGN_OR_RETURN(connection.fd, ConnectTo(port_));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &connection;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, connection.fd, &event) != 0) {
    return SystemError("epoll_ctl");
  }
  return absl::OkStatus();
}

void HttpLoad::Send(Connection& connection, const std::string& request,
                    int64_t from) {
  connection.request = &request;
  connection.written = 0;
  connection.from = from;
  Flush(connection);
}

void HttpLoad::Flush(Connection& connection) {
  const std::string& request = *connection.request;
  while (connection.written < request.size()) {
    const ssize_t n = send(connection.fd, request.data() + connection.written,
                           request.size() - connection.written, MSG_NOSIGNAL);
    // What is wrong with it comes to light when reading.
    if (n < 0) break;
    connection.written += static_cast<size_t>(n);
  }
  const bool wants_write = connection.written < request.size();
  if (wants_write == connection.wants_write) return;
  connection.wants_write = wants_write;
  epoll_event event{};
  event.events = wants_write ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.ptr = &connection;
  epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.fd, &event);
}

void HttpLoad::Fail(Connection& connection, absl::string_view why,
                    Measurement& measured) {
  ++measured.errors;
  if (measured.first_error.empty()) measured.first_error = std::string(why);
  connection.request = nullptr;
}

bool HttpLoad::Receive(Connection& connection, Measurement& measured) {
  std::array<char, 8192> buffer;
  const ssize_t n = recv(connection.fd, buffer.data(), buffer.size(), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  const bool under_way = connection.request != nullptr;
  if (n <= 0) {
    if (under_way) Fail(connection, "the connection ended", measured);
    // Without a connection its next request fails, which is then counted.
    (void)Open(connection);
    return under_way;
  }
  connection.received.append(buffer.data(), static_cast<size_t>(n));
  HttpAnswer answer;
  const absl::StatusOr<bool> whole = ParseAnswer(connection.received, &answer);
  if (whole.ok() && !*whole) return false;
  if (!whole.ok() || !under_way) {
    if (under_way) Fail(connection, whole.status().message(), measured);
    (void)Open(connection);
    return under_way;
  }
  if (check_ && !check_(answer.status, answer.body)) {
    Fail(connection, absl::StrCat(answer.status, " ", answer.body), measured);
  } else {
    ++measured.ops;
    measured.request_bytes += static_cast<int64_t>(connection.request->size());
    measured.reply_bytes += static_cast<int64_t>(answer.size);
    measured.latency.RecordNanos(MonotonicNanos() - connection.from);
    connection.request = nullptr;
  }
  connection.received.erase(0, answer.size);
  if (answer.closes) (void)Open(connection);
  return true;
}

absl::Status HttpLoad::Wait(int64_t deadline, Measurement& measured,
                            const std::function<void(Connection&)>& free) {
  std::array<epoll_event, 64> events;
  const int64_t left = std::max<int64_t>(0, deadline - MonotonicNanos());
  timespec timeout{};
  timeout.tv_sec = left / 1'000'000'000;
  timeout.tv_nsec = left % 1'000'000'000;
  const int count = epoll_pwait2(epoll_, events.data(),
                                 static_cast<int>(events.size()), &timeout,
                                 /*sigmask=*/nullptr);
  if (count < 0 && errno != EINTR) return SystemError("epoll_pwait2");
  for (int i = 0; i < count; ++i) {
    auto& connection = *static_cast<Connection*>(events[i].data.ptr);
    if ((events[i].events & EPOLLOUT) != 0 && connection.request != nullptr) {
      Flush(connection);
    }
    if ((events[i].events & ~EPOLLOUT) == 0) continue;
    if (Receive(connection, measured)) free(connection);
  }
  return absl::OkStatus();
}

absl::StatusOr<Measurement> HttpLoad::ClosedLoop(HttpRequests& requests,
                                                 absl::Duration duration) {
  Measurement measured;
  const int64_t start = MonotonicNanos();
  const int64_t end = start + absl::ToInt64Nanoseconds(duration);
  size_t in_flight = 0;
  const auto send_next = [&](Connection& connection) {
    const int64_t now = MonotonicNanos();
    const std::string* request = now < end ? requests.Next() : nullptr;
    if (request == nullptr) return;
    Send(connection, *request, now);
    ++in_flight;
  };
  for (const auto& connection : connections_) send_next(*connection);
  while (in_flight > 0) {
    if (MonotonicNanos() > end + kAnswerNanos) {
      return absl::DeadlineExceededError(
          absl::StrCat(in_flight, " requests got no answer"));
    }
    RETURN_IF_ERROR(Wait(end + kAnswerNanos, measured, [&](Connection& c) {
      --in_flight;
      send_next(c);
    }));
  }
  measured.seconds = static_cast<double>(MonotonicNanos() - start) * 1e-9;
  return measured;
}

absl::StatusOr<Measurement> HttpLoad::OpenLoop(HttpRequests& requests,
                                               double per_second,
                                               absl::Duration duration) {
  const auto total =
      static_cast<int64_t>(per_second * absl::ToDoubleSeconds(duration));
  if (total < 1 ||
      requests.wire.size() - requests.sent < static_cast<size_t>(total)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no timetable of ", total,
        " requests: ", requests.wire.size() - requests.sent, " are left"));
  }
  const double interval = 1e9 / per_second;
  Measurement measured;
  // The longest idle first, so that all are used.
  std::deque<Connection*> idle;
  for (const auto& connection : connections_) idle.push_back(connection.get());
  const int64_t start = MonotonicNanos();
  const auto due_at = [&](int64_t i) {
    return start + static_cast<int64_t>(interval * static_cast<double>(i));
  };
  const int64_t give_up = due_at(total) + kAnswerNanos;
  int64_t sent = 0;
  int64_t finished = 0;
  while (finished < total) {
    const int64_t now = MonotonicNanos();
    if (now > give_up) {
      return absl::DeadlineExceededError(
          absl::StrCat(total - finished, " requests got no answer"));
    }
    while (sent < total && !idle.empty() && due_at(sent) <= now) {
      Connection& connection = *idle.front();
      idle.pop_front();
      Send(connection, *requests.Next(), due_at(sent));
      ++sent;
    }
    const int64_t deadline =
        sent < total && !idle.empty() ? due_at(sent) : give_up;
    RETURN_IF_ERROR(Wait(deadline, measured, [&](Connection& connection) {
      ++finished;
      idle.push_back(&connection);
    }));
  }
  measured.seconds = static_cast<double>(MonotonicNanos() - start) * 1e-9;
  return measured;
}

absl::StatusOr<std::unique_ptr<SlowClients>> SlowClients::Start(
    int port, int clients, absl::string_view target, absl::string_view headers,
    int64_t body_bytes) {
  // Proves that somebody listens.
  ASSIGN_OR_RETURN(const int probe, ConnectTo(port));
  close(probe);
  std::unique_ptr<SlowClients> slow(new SlowClients);
  const std::string head =
      absl::StrCat("POST ", target,
                   " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
                   "application/json\r\nContent-Length: ",
                   body_bytes, "\r\n", headers, "\r\n{");
  slow->thread_ = std::thread(
      [s = slow.get(), port, clients, head] { s->Run(port, clients, head); });
  return slow;
}

SlowClients::~SlowClients() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void SlowClients::Run(int port, int clients, const std::string& head) {
  std::vector<int> sockets(static_cast<size_t>(clients), -1);
  const int64_t start = MonotonicNanos();
  for (int64_t portion = 0; !stop_; ++portion) {
    WaitUntilNanos(start + portion * (1'000'000'000 / kPortions));
    for (size_t i = static_cast<size_t>(portion % kPortions);
         i < sockets.size(); i += kPortions) {
      int& fd = sockets[i];
      if (fd >= 0 && send(fd, " ", 1, MSG_NOSIGNAL) == 1) continue;
      if (fd >= 0) {
        close(fd);
        fd = -1;
        ++turned_away_;
      }
      const absl::StatusOr<int> opened = ConnectTo(port);
      if (!opened.ok()) continue;
      fd = *opened;
      (void)send(fd, head.data(), head.size(), MSG_NOSIGNAL);
    }
  }
  for (const int fd : sockets) {
    if (fd >= 0) close(fd);
  }
}

}  // namespace tenure::bench
