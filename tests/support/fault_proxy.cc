#include "tests/support/fault_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <libpq-fe.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"

namespace tenure::test {
namespace {

// Reading pauses above this much on its way, unless a message is larger.
constexpr size_t kMaxQueuedBytes = 1 << 20;
// No PostgreSQL message is larger than this; a larger length is no message.
constexpr uint32_t kMaxMessageBytes = 1 << 30;

// Codes that stand where a startup packet has its protocol version.
constexpr uint32_t kSslRequest = 80877103;
constexpr uint32_t kGssEncRequest = 80877104;

absl::Duration Monotonic() { return SystemClock::Instance().Monotonic(); }

absl::Status ErrnoError(absl::string_view what) {
  return absl::InternalError(absl::StrCat(what, ": ", std::strerror(errno)));
}

uint32_t ReadUint32(absl::string_view bytes) {
  uint32_t value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return ntohl(value);
}

// Removes a zero-terminated string from the front of `bytes`.
std::string TakeString(absl::string_view* bytes) {
  const size_t end = std::min(bytes->find('\0'), bytes->size());
  std::string text(bytes->substr(0, end));
  bytes->remove_prefix(std::min(end + 1, bytes->size()));
  return text;
}

bool IsCommit(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  while (absl::ConsumeSuffix(&text, ";")) {
    text = absl::StripTrailingAsciiWhitespace(text);
  }
  for (const char* form : {"COMMIT", "COMMIT WORK", "COMMIT TRANSACTION", "END",
                           "END WORK", "END TRANSACTION"}) {
    if (absl::EqualsIgnoreCase(text, form)) return true;
  }
  return false;
}

struct FreeOptions {
  void operator()(PQconninfoOption* options) const { PQconninfoFree(options); }
};

absl::StatusOr<std::map<std::string, std::string>> ParseConninfo(
    absl::string_view conninfo) {
  char* message = nullptr;
  const std::unique_ptr<PQconninfoOption, FreeOptions> options(
      PQconninfoParse(std::string(conninfo).c_str(), &message));
  if (options == nullptr) {
    absl::Status error = absl::InvalidArgumentError(
        message == nullptr ? "libpq is out of memory" : message);
    PQfreemem(message);
    return error;
  }
  std::map<std::string, std::string> values;
  for (const PQconninfoOption* option = options.get();
       option->keyword != nullptr; ++option) {
    if (option->val != nullptr) values[option->keyword] = option->val;
  }
  return values;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FaultProxy>> FaultProxy::Start(
    absl::string_view conninfo) {
  ASSIGN_OR_RETURN(auto values, ParseConninfo(conninfo));
  const std::string host =
      values.count("hostaddr") != 0 ? values["hostaddr"] : values["host"];
  int port = 5432;
  if (values.count("port") != 0 && !absl::SimpleAtoi(values["port"], &port)) {
    return absl::InvalidArgumentError("the port is not one number");
  }
  std::unique_ptr<FaultProxy> proxy(
      new FaultProxy(host == "localhost" ? "127.0.0.1" : host, port, true));
  RETURN_IF_ERROR(proxy->Listen());
  return proxy;
}

absl::StatusOr<std::unique_ptr<FaultProxy>> FaultProxy::StartPlain(
    absl::string_view host, int port) {
  std::unique_ptr<FaultProxy> proxy(
      new FaultProxy(std::string(host), port, false));
  RETURN_IF_ERROR(proxy->Listen());
  return proxy;
}

absl::Status FaultProxy::Listen() {
  in_addr upstream;
  if (inet_pton(AF_INET, host_.c_str(), &upstream) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("not an IPv4 address: \"", host_, "\""));
  }
  if (pipe2(wake_fds_, O_CLOEXEC | O_NONBLOCK) != 0) return ErrnoError("pipe");
  listen_fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (listen_fd_ < 0 ||
      bind(listen_fd_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listen_fd_, SOMAXCONN) != 0 ||
      getsockname(listen_fd_, reinterpret_cast<sockaddr*>(&address), &size) !=
          0) {
    return ErrnoError("listening on 127.0.0.1");
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

FaultProxy::~FaultProxy() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) {
    Wake();
    thread_.join();
  }
  for (const int fd : {listen_fd_, wake_fds_[0], wake_fds_[1]}) {
    if (fd >= 0) close(fd);
  }
}

std::string FaultProxy::Through(absl::string_view conninfo) const {
  absl::StatusOr<std::map<std::string, std::string>> values =
      ParseConninfo(conninfo);
  // libpq will name the fault when the caller connects.
  if (!values.ok()) return std::string(conninfo);
  values->erase("hostaddr");
  (*values)["host"] = "127.0.0.1";
  (*values)["port"] = absl::StrCat(port_);
  (*values)["sslmode"] = "disable";
  (*values)["gssencmode"] = "disable";
  std::string text;
  for (const auto& [keyword, value] : *values) {
    absl::StrAppend(&text, text.empty() ? "" : " ", keyword, "='");
    for (const char c : value) {
      if (c == '\'' || c == '\\') text.push_back('\\');
      text.push_back(c);
    }
    text.push_back('\'');
  }
  return text;
}

void FaultProxy::Wake() const { (void)!write(wake_fds_[1], "x", 1); }

void FaultProxy::Refuse(bool on, int connection) {
  MutexLock lock(mutex_);
  rules_[connection].refuse = on;
}

void FaultProxy::Delay(absl::Duration to_server, absl::Duration to_client,
                       int connection) {
  MutexLock lock(mutex_);
  rules_[connection].delay_to_server = to_server;
  rules_[connection].delay_to_client = to_client;
}

void FaultProxy::BlackHole(bool on, int connection) {
  MutexLock lock(mutex_);
  rules_[connection].black_hole = on;
  Wake();
}

void FaultProxy::CutAfterBytes(Direction direction, int64_t bytes,
                               int connection) {
  MutexLock lock(mutex_);
  const bool to_server = direction == Direction::kToServer;
  Rules& rules = rules_[connection];
  (to_server ? rules.budget_to_server : rules.budget_to_client) = bytes;
  for (auto& [id, open] : connections_) {
    if (connection != kAllConnections && connection != id) continue;
    (to_server ? open.to_server : open.to_client).budget = bytes;
  }
}

void FaultProxy::CutNow(CutKind kind, int connection) {
  MutexLock lock(mutex_);
  // The loop may be polling the descriptors, so only the loop closes them.
  pending_cuts_.push_back({kind, connection});
  Wake();
  while (!pending_cuts_.empty()) changed_.Wait(mutex_);
}

void FaultProxy::AddShot(Shot shot) {
  MutexLock lock(mutex_);
  shots_.push_back(std::move(shot));
}

void FaultProxy::CutBeforeCommit(int times, int connection) {
  AddShot({connection, true, "", false, false, times});
}

void FaultProxy::CutAfterCommit(int times, int connection) {
  AddShot({connection, true, "", true, false, times});
}

void FaultProxy::HoldAfterCommit(int times, int connection) {
  AddShot({connection, true, "", true, true, times});
}

void FaultProxy::CutBeforeStatement(absl::string_view text, int times,
                                    int connection) {
  AddShot({connection, false, std::string(text), false, false, times});
}

void FaultProxy::CutAfterStatement(absl::string_view text, int times,
                                   int connection) {
  AddShot({connection, false, std::string(text), true, false, times});
}

void FaultProxy::Heal() {
  MutexLock lock(mutex_);
  rules_.clear();
  shots_.clear();
  for (auto& [id, connection] : connections_) {
    connection.to_server.budget.reset();
    connection.to_client.budget.reset();
    connection.to_client.held = false;
  }
  Wake();
}

FaultProxy::Counters FaultProxy::counters() const {
  MutexLock lock(mutex_);
  Counters counters = counters_;
  counters.open = static_cast<int64_t>(connections_.size());
  return counters;
}

bool FaultProxy::AwaitCounter(int64_t Counters::*counter, int64_t count,
                              absl::Duration timeout) const {
  const absl::Duration end = Monotonic() + timeout;
  MutexLock lock(mutex_);
  while (counters_.*counter < count) {
    const absl::Duration left = end - Monotonic();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(mutex_, left);
  }
  return true;
}

bool FaultProxy::AwaitCuts(int64_t count, absl::Duration timeout) const {
  return AwaitCounter(&Counters::cuts, count, timeout);
}

bool FaultProxy::AwaitHeld(int64_t count, absl::Duration timeout) const {
  return AwaitCounter(&Counters::held, count, timeout);
}

bool FaultProxy::AwaitConnections(int64_t count, absl::Duration timeout) const {
  return AwaitCounter(&Counters::connections, count, timeout);
}

bool FaultProxy::BlackHoled(int connection) const {
  for (const int key : {kAllConnections, connection}) {
    const auto rules = rules_.find(key);
    if (rules != rules_.end() && rules->second.black_hole) return true;
  }
  return false;
}

bool FaultProxy::Refused(int connection) const {
  for (const int key : {kAllConnections, connection}) {
    const auto rules = rules_.find(key);
    if (rules != rules_.end() && rules->second.refuse) return true;
  }
  return false;
}

absl::Duration FaultProxy::DelayOf(int connection, Direction direction) const {
  absl::Duration delay = absl::ZeroDuration();
  for (const int key : {kAllConnections, connection}) {
    const auto rules = rules_.find(key);
    if (rules == rules_.end()) continue;
    delay = std::max(delay, direction == Direction::kToServer
                                ? rules->second.delay_to_server
                                : rules->second.delay_to_client);
  }
  return delay;
}

void FaultProxy::Run() {
  std::vector<pollfd> fds;
  MutexLock lock(mutex_);
  while (!stopping_) {
    // What to wait for. A descriptor without events is left out, since poll
    // reports errors and hang-ups unasked and would return at once.
    fds.assign({{listen_fd_, POLLIN, 0}, {wake_fds_[0], POLLIN, 0}});
    const absl::Duration now = Monotonic();
    absl::Duration wait = absl::InfiniteDuration();
    for (auto& [id, connection] : connections_) {
      short client = 0;
      short server = 0;
      if (!BlackHoled(id)) {
        for (Flow* flow : {&connection.to_server, &connection.to_client}) {
          const bool to_server = flow->direction == Direction::kToServer;
          short& source = to_server ? client : server;
          short& sink = to_server ? server : client;
          if (!flow->read_ended && !flow->cut_when_drained &&
              flow->queued_bytes < kMaxQueuedBytes) {
            source |= POLLIN;
          }
          if (flow->queue.empty() || flow->held) continue;
          if (flow->queue.front().due <= now) {
            sink |= POLLOUT;
          } else {
            wait = std::min(wait, flow->queue.front().due - now);
          }
        }
      }
      fds.push_back({client != 0 ? connection.client_fd : -1, client, 0});
      fds.push_back({server != 0 ? connection.server_fd : -1, server, 0});
    }
    const int timeout = wait == absl::InfiniteDuration()
                            ? -1
                            : static_cast<int>(std::min<int64_t>(
                                  absl::ToInt64Milliseconds(
                                      absl::Ceil(wait, absl::Milliseconds(1))),
                                  60000));
    mutex_.Unlock();
    poll(fds.data(), fds.size(), timeout);
    mutex_.Lock();

    char wake[64];
    while (read(wake_fds_[0], wake, sizeof(wake)) > 0) {
    }
    for (const PendingCut& cut : pending_cuts_) {
      for (auto it = connections_.begin(); it != connections_.end();) {
        if (cut.connection == kAllConnections || cut.connection == it->first) {
          Cut(it->second, cut.kind);
          it = connections_.erase(it);
        } else {
          ++it;
        }
      }
    }
    if (!pending_cuts_.empty()) {
      pending_cuts_.clear();
      changed_.NotifyAll();
    }
    // Everything is non-blocking, so each flow is simply tried.
    for (auto it = connections_.begin(); it != connections_.end();) {
      Connection& connection = it->second;
      bool alive = true;
      if (!BlackHoled(connection.id)) {
        alive = connection.server_fd >= 0 || ConnectUpstream(connection);
        for (Flow* flow : {&connection.to_server, &connection.to_client}) {
          alive = alive && Read(connection, *flow);
        }
        for (Flow* flow : {&connection.to_server, &connection.to_client}) {
          alive = alive && Write(connection, *flow);
        }
      }
      it = alive ? std::next(it) : connections_.erase(it);
    }
    AcceptAll();
  }
  for (auto& [id, connection] : connections_) Close(connection, false);
  connections_.clear();
}

void FaultProxy::AcceptAll() {
  bool accepted = false;
  for (;;) {
    const int fd =
        accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) break;
    Connection connection;
    connection.id = next_id_++;
    connection.client_fd = fd;
    connection.opaque = !postgres_;
    connection.to_client.direction = Direction::kToClient;
    if (Refused(connection.id)) {
      ++counters_.refused;
      Close(connection, true);
      changed_.NotifyAll();
      continue;
    }
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    for (const int key : {kAllConnections, connection.id}) {
      const auto rules = rules_.find(key);
      if (rules == rules_.end()) continue;
      if (rules->second.budget_to_server.has_value()) {
        connection.to_server.budget = rules->second.budget_to_server;
      }
      if (rules->second.budget_to_client.has_value()) {
        connection.to_client.budget = rules->second.budget_to_client;
      }
    }
    ++counters_.connections;
    connections_.emplace(connection.id, std::move(connection));
    accepted = true;
  }
  if (accepted) {
    changed_.NotifyAll();
    // A new turn of the loop connects it to the server.
    Wake();
  }
}

bool FaultProxy::ConnectUpstream(Connection& connection) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, host_.c_str(), &address.sin_addr);
  address.sin_port = htons(static_cast<uint16_t>(upstream_port_));
  if (fd < 0 || connect(fd, reinterpret_cast<sockaddr*>(&address),
                        sizeof(address)) != 0) {
    if (fd >= 0) close(fd);
    Close(connection, true);
    return false;
  }
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  fcntl(fd, F_SETFL, O_NONBLOCK);
  connection.server_fd = fd;
  return true;
}

bool FaultProxy::Read(Connection& connection, Flow& flow) {
  const int fd = flow.direction == Direction::kToServer ? connection.client_fd
                                                        : connection.server_fd;
  char buffer[65536];
  while (!flow.read_ended && !flow.cut_when_drained &&
         flow.queued_bytes < kMaxQueuedBytes) {
    const ssize_t got = recv(fd, buffer, sizeof(buffer), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (got < 0) {
      Close(connection, true);
      return false;
    }
    if (got == 0) {
      flow.read_ended = true;
      if (!flow.cut_when_drained) Push(connection, flow, flow.partial);
      flow.partial.clear();
      return true;
    }
    flow.partial.append(buffer, static_cast<size_t>(got));
    TakeMessages(connection, flow);
  }
  return true;
}

bool FaultProxy::Write(Connection& connection, Flow& flow) {
  const bool to_server = flow.direction == Direction::kToServer;
  const int fd = to_server ? connection.server_fd : connection.client_fd;
  if (flow.held) return true;
  while (!flow.queue.empty() && flow.queue.front().due <= Monotonic()) {
    std::string& bytes = flow.queue.front().bytes;
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (sent < 0) {
      Close(connection, true);
      return false;
    }
    (to_server ? counters_.bytes_to_server : counters_.bytes_to_client) += sent;
    flow.queued_bytes -= static_cast<size_t>(sent);
    if (static_cast<size_t>(sent) == bytes.size()) {
      flow.queue.pop_front();
    } else {
      bytes.erase(0, static_cast<size_t>(sent));
    }
  }
  if (!flow.queue.empty()) return true;
  if (flow.cut_when_drained) {
    Cut(connection, CutKind::kReset);
    return false;
  }
  if (flow.read_ended && !flow.write_ended) {
    flow.write_ended = true;
    shutdown(fd, SHUT_WR);
  }
  if (connection.to_server.write_ended && connection.to_client.write_ended) {
    Close(connection, false);
    return false;
  }
  return true;
}

void FaultProxy::TakeMessages(Connection& connection, Flow& flow) {
  absl::string_view rest = flow.partial;
  while (!rest.empty() && !flow.cut_when_drained) {
    const size_t size = MessageSize(connection, flow.direction, rest);
    if (size == 0) break;
    const absl::string_view message = rest.substr(0, size);
    rest.remove_prefix(size);
    const bool forward =
        connection.opaque || (flow.direction == Direction::kToServer
                                  ? InspectFromClient(connection, message)
                                  : InspectFromServer(connection, message));
    if (forward) Push(connection, flow, message);
  }
  flow.partial.erase(0, flow.partial.size() - rest.size());
}

size_t FaultProxy::MessageSize(Connection& connection, Direction direction,
                               absl::string_view input) {
  if (connection.opaque) return input.size();
  const bool from_client = direction == Direction::kToServer;
  if (!from_client && connection.negotiation_replies > 0) return 1;
  // A startup packet has no type byte.
  const size_t type_bytes = from_client && !connection.startup_done ? 0 : 1;
  if (input.size() < type_bytes + 4) return 0;
  const uint32_t length = ReadUint32(input.substr(type_bytes));
  if (length < 4 || length > kMaxMessageBytes) {
    // Not the protocol: let it through unread.
    connection.opaque = true;
    return input.size();
  }
  const size_t size = type_bytes + length;
  return input.size() < size ? 0 : size;
}

bool FaultProxy::InspectFromClient(Connection& connection,
                                   absl::string_view message) {
  if (!connection.startup_done) {
    const uint32_t code =
        message.size() < 8 ? 0 : ReadUint32(message.substr(4));
    if (code == kSslRequest || code == kGssEncRequest) {
      ++connection.negotiation_replies;
    } else {
      connection.startup_done = true;
    }
    return true;
  }
  absl::string_view body = message.substr(5);
  switch (message[0]) {
    case 'Q':
      return OnStatement(connection, TakeString(&body));
    case 'P': {
      const std::string name = TakeString(&body);
      connection.statements[name] = TakeString(&body);
      return true;
    }
    case 'B': {
      const std::string portal = TakeString(&body);
      connection.portals[portal] = connection.statements[TakeString(&body)];
      return true;
    }
    case 'E':
      return OnStatement(connection, connection.portals[TakeString(&body)]);
    default:
      return true;
  }
}

bool FaultProxy::OnStatement(Connection& connection, absl::string_view text) {
  const bool commit = IsCommit(text);
  ++counters_.statements;
  if (commit) ++counters_.commits_seen;
  changed_.NotifyAll();
  for (auto shot = shots_.begin(); shot != shots_.end(); ++shot) {
    if (shot->connection != kAllConnections &&
        shot->connection != connection.id) {
      continue;
    }
    if (shot->commit ? !commit : !absl::StrContains(text, shot->text)) continue;
    const bool after = shot->after;
    const bool of_commit = shot->commit;
    const bool hold = shot->hold;
    if (--shot->times <= 0) shots_.erase(shot);
    if (after) {
      connection.awaited = hold        ? Awaited::kCommitReplyToHold
                           : of_commit ? Awaited::kCommitReply
                                       : Awaited::kReadyForQuery;
      return true;
    }
    connection.to_server.cut_when_drained = true;
    return false;
  }
  return true;
}

bool FaultProxy::InspectFromServer(Connection& connection,
                                   absl::string_view message) {
  if (connection.negotiation_replies > 0) {
    --connection.negotiation_replies;
    // Encrypted from here on.
    if (message[0] == 'S' || message[0] == 'G') connection.opaque = true;
    return true;
  }
  absl::string_view body = message.substr(5);
  const std::string tag = message[0] == 'C' ? TakeString(&body) : "";
  if (tag == "COMMIT") {
    ++counters_.commits_answered;
    changed_.NotifyAll();
  }
  switch (connection.awaited) {
    case Awaited::kNothing:
      return true;
    case Awaited::kCommitReply:
      // A COMMIT of a failed transaction is answered otherwise.
      if (tag != "COMMIT" && tag != "ROLLBACK" && message[0] != 'E') {
        return true;
      }
      break;
    case Awaited::kCommitReplyToHold:
      if (tag != "COMMIT") return true;
      connection.awaited = Awaited::kNothing;
      connection.to_client.held = true;
      ++counters_.held;
      changed_.NotifyAll();
      return true;
    case Awaited::kReadyForQuery:
      // Outside a transaction block the commit is sure only here.
      if (message[0] != 'Z') return false;
      break;
  }
  connection.to_client.cut_when_drained = true;
  return false;
}

void FaultProxy::Push(Connection& connection, Flow& flow,
                      absl::string_view bytes) {
  if (flow.budget.has_value()) {
    const size_t allowed = static_cast<size_t>(std::max<int64_t>(
        0,
        std::min<int64_t>(*flow.budget, static_cast<int64_t>(bytes.size()))));
    *flow.budget -= static_cast<int64_t>(allowed);
    bytes = bytes.substr(0, allowed);
    if (*flow.budget <= 0) flow.cut_when_drained = true;
  }
  if (bytes.empty()) return;
  absl::Duration due = Monotonic() + DelayOf(connection.id, flow.direction);
  if (!flow.queue.empty()) due = std::max(due, flow.queue.back().due);
  flow.queue.push_back({std::string(bytes), due});
  flow.queued_bytes += bytes.size();
}

void FaultProxy::Cut(Connection& connection, CutKind kind) {
  Close(connection, kind == CutKind::kReset);
  ++counters_.cuts;
  changed_.NotifyAll();
}

void FaultProxy::Close(Connection& connection, bool reset) {
  if (reset) {
    // Closing with a zero linger time sends RST. The server gets an orderly
    // end: it must still work on what was forwarded before.
    const linger no_linger = {1, 0};
    setsockopt(connection.client_fd, SOL_SOCKET, SO_LINGER, &no_linger,
               sizeof(no_linger));
  }
  close(connection.client_fd);
  connection.client_fd = -1;
  if (connection.server_fd >= 0) close(connection.server_fd);
  connection.server_fd = -1;
}

}  // namespace tenure::test
