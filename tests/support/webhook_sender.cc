#include "tests/support/webhook_sender.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/clock.h"

namespace tenure::test {
namespace {

// How often a delivery under way looks whether the sender ends.
constexpr absl::Duration kLook = absl::Milliseconds(50);

absl::Duration Monotonic() { return SystemClock::Instance().Monotonic(); }

}  // namespace

// One keep-alive connection of one thread.
class WebhookSender::Connection {
 public:
  ~Connection() { Close(); }

  // Makes one exchange and fills `attempt`.
  void Exchange(const std::string& address, const std::string& request,
                absl::Duration timeout, const std::atomic<bool>& stopping,
                Attempt* attempt) {
    // As HTTP clients do: one that the receiver has closed meanwhile is none.
    if (fd_ >= 0 && (address != address_ || HasEnded())) Close();
    attempt->reused_connection = fd_ >= 0;
    if (fd_ < 0 && !Open(address, attempt)) return;
    const absl::Duration end = Monotonic() + timeout;
    absl::string_view rest = request;
    bool can_send = true;
    std::string received;
    for (;;) {
      const absl::Duration left = end - Monotonic();
      if (left <= absl::ZeroDuration() || stopping) {
        attempt->error = stopping ? "given up" : "no answer in time";
        return Close();
      }
      const bool sending = can_send && !rest.empty();
      pollfd ready = {fd_, static_cast<short>(POLLIN | (sending ? POLLOUT : 0)),
                      0};
      poll(&ready, 1,
           static_cast<int>(absl::ToInt64Milliseconds(std::min(left, kLook))) +
               1);
      if (sending && (ready.revents & POLLOUT) != 0) {
        const ssize_t sent =
            send(fd_, rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
          rest.remove_prefix(static_cast<size_t>(sent));
          attempt->sent_whole = rest.empty();
        } else if (errno != EAGAIN && errno != EINTR) {
          // An answer may have come all the same.
          can_send = false;
        }
      }
      if ((ready.revents & ~POLLOUT) == 0) continue;
      char buffer[16384];
      const ssize_t got = recv(fd_, buffer, sizeof(buffer), MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      const std::string why =
          got < 0 ? std::strerror(errno) : "the connection was closed";
      if (got > 0) received.append(buffer, static_cast<size_t>(got));
      const absl::StatusOr<std::optional<HttpReply>> reply =
          ParseHttpReply(received, got == 0, /*is_head=*/false);
      if (!reply.ok()) {
        attempt->error = std::string(reply.status().message());
        return Close();
      }
      if (reply->has_value()) {
        attempt->status = (*reply)->status;
        attempt->reply = **reply;
        // An answer before the whole request leaves a stream without a
        // beginning.
        if (got <= 0 || !rest.empty() ||
            absl::EqualsIgnoreCase(
                attempt->reply.Header("Connection").value_or(""), "close")) {
          Close();
        }
        return;
      }
      if (got <= 0) {
        attempt->error = absl::StrCat(why, ", after ", received.size(),
                                      " bytes of an answer");
        return Close();
      }
    }
  }

  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  bool HasEnded() const {
    pollfd ready = {fd_, POLLIN, 0};
    return poll(&ready, 1, 0) != 0;
  }

  bool Open(const std::string& address, Attempt* attempt) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(address, absl::MaxSplits(':', 1));
    sockaddr_in target = {};
    target.sin_family = AF_INET;
    uint32_t port = 0;
    if (inet_pton(AF_INET, parts.first.c_str(), &target.sin_addr) != 1 ||
        !absl::SimpleAtoi(parts.second, &port)) {
      attempt->error = absl::StrCat("no address: ", address);
      return false;
    }
    target.sin_port = htons(static_cast<uint16_t>(port));
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd_ < 0 || connect(fd_, reinterpret_cast<sockaddr*>(&target),
                           sizeof(target)) != 0) {
      attempt->error = absl::StrCat("connecting: ", std::strerror(errno));
      Close();
      return false;
    }
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    address_ = address;
    return true;
  }

  int fd_ = -1;
  std::string address_;
};

bool WebhookSender::Entry::acknowledged() const {
  return std::any_of(attempts.begin(), attempts.end(),
                     [](const Attempt& a) { return a.acknowledged(); });
}

WebhookSender::WebhookSender(Options options) : options_(std::move(options)) {
  for (int i = 0; i < options_.connections; ++i) {
    threads_.emplace_back([this] { Run(); });
  }
}

WebhookSender::~WebhookSender() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void WebhookSender::Enqueue(const std::string& event_id, absl::Duration due,
                            std::shared_ptr<Group> group) {
  Job job;
  job.event_id = event_id;
  job.address = options_.addresses[next_address_++ % options_.addresses.size()];
  job.group = std::move(group);
  queue_.emplace(std::pair(due, next_job_++), std::move(job));
  ++outstanding_[event_id];
  ++totals_.outstanding;
}

void WebhookSender::Send(const std::vector<Event>& events, int copies) {
  copies = std::min(copies, options_.connections);
  MutexLock lock(mutex_);
  const absl::Duration now = Monotonic();
  for (const Event& event : events) {
    const bool added = ledger_.emplace(event.id, Entry{event, {}}).second;
    if (added) ++totals_.events;
    // One job after the other: the threads that have some of a group get the
    // others next, so that a group never waits for good.
    std::shared_ptr<Group> group;
    if (copies > 1) group = std::make_shared<Group>(Group{copies});
    for (int i = 0; i < copies; ++i) Enqueue(event.id, now, group);
  }
  changed_.NotifyAll();
}

void WebhookSender::SetRedelivery(bool on) {
  MutexLock lock(mutex_);
  redelivery_ = on;
  if (!on) return;
  const absl::Duration now = Monotonic();
  for (const auto& [id, entry] : ledger_) {
    if (!entry.acknowledged() && outstanding_[id] == 0) {
      Enqueue(id, now, nullptr);
    }
  }
  changed_.NotifyAll();
}

void WebhookSender::SendAllAgain() {
  MutexLock lock(mutex_);
  const absl::Duration now = Monotonic();
  for (const auto& [id, entry] : ledger_) Enqueue(id, now, nullptr);
  changed_.NotifyAll();
}

bool WebhookSender::TakeJob(Job* job) {
  MutexLock lock(mutex_);
  while (!stopping_) {
    const absl::Duration now = Monotonic();
    if (queue_.empty()) {
      changed_.Wait(mutex_);
      continue;
    }
    const auto next = queue_.begin();
    if (next->first.first > now) {
      changed_.WaitFor(mutex_, next->first.first - now);
      continue;
    }
    *job = std::move(next->second);
    queue_.erase(next);
    if (job->group != nullptr) {
      --job->group->missing;
      changed_.NotifyAll();
      while (job->group->missing > 0 && !stopping_) changed_.Wait(mutex_);
    }
    return !stopping_;
  }
  return false;
}

void WebhookSender::Run() {
  Connection connection;
  Job job;
  while (TakeJob(&job)) {
    std::string body;
    {
      MutexLock lock(mutex_);
      body = ledger_.at(job.event_id).event.body;
    }
    std::string request =
        absl::StrCat("POST ", options_.path, " HTTP/1.1\r\nHost: ", job.address,
                     "\r\nContent-Length: ", body.size(), "\r\n");
    for (const auto& [name, value] : options_.sign(body)) {
      absl::StrAppend(&request, name, ": ", value, "\r\n");
    }
    absl::StrAppend(&request, "\r\n", body);
    Attempt attempt;
    attempt.address = job.address;
    attempt.sent_at = SystemClock::Instance().Now();
    if (!options_.keep_alive) connection.Close();
    connection.Exchange(job.address, request, options_.timeout, stopping_,
                        &attempt);
    Record(job, std::move(attempt));
  }
}

void WebhookSender::Record(const Job& job, Attempt attempt) {
  MutexLock lock(mutex_);
  ++totals_.attempts;
  if (attempt.status == 0) {
    ++totals_.unanswered;
  } else {
    ++totals_.answers[attempt.status];
  }
  Entry& entry = ledger_.at(job.event_id);
  const bool before = entry.acknowledged();
  entry.attempts.push_back(std::move(attempt));
  const bool acknowledged = entry.acknowledged();
  if (acknowledged && !before) ++totals_.acknowledged;
  --totals_.outstanding;
  if (--outstanding_[job.event_id] == 0 && !acknowledged && redelivery_) {
    const double tries =
        static_cast<double>(std::min<size_t>(entry.attempts.size(), 10));
    Enqueue(job.event_id, Monotonic() + options_.redelivery_delay * tries,
            nullptr);
  }
  changed_.NotifyAll();
}

bool WebhookSender::Await(const std::function<bool(const Totals&)>& condition,
                          absl::Duration timeout) const {
  const absl::Duration end = Monotonic() + timeout;
  MutexLock lock(mutex_);
  while (!condition(totals_)) {
    const absl::Duration left = end - Monotonic();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(mutex_, left);
  }
  return true;
}

bool WebhookSender::AwaitAllAcknowledged(absl::Duration timeout) const {
  return Await(
      [](const Totals& totals) {
        return totals.acknowledged == totals.events && totals.outstanding == 0;
      },
      timeout);
}

bool WebhookSender::AwaitQuiet(absl::Duration timeout) const {
  return Await([](const Totals& totals) { return totals.outstanding == 0; },
               timeout);
}

WebhookSender::Totals WebhookSender::totals() const {
  MutexLock lock(mutex_);
  return totals_;
}

std::map<std::string, WebhookSender::Entry> WebhookSender::Ledger() const {
  MutexLock lock(mutex_);
  return ledger_;
}

}  // namespace tenure::test
