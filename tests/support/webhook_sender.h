#ifndef TENURE_TESTS_SUPPORT_WEBHOOK_SENDER_H_
#define TENURE_TESTS_SUPPORT_WEBHOOK_SENDER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "tests/support/http_client.h"
#include "tests/support/test_signal.h"

namespace tenure::test {

// A payment provider as webhook receivers know it: it posts events over several
// connections at once, sends again what was not answered 2xx, sends some twice,
// and keeps its own books of all that it sent and of every answer. Those books
// are the truth that a test compares the receiver's with: what got a 2xx will
// never come again. Thread-safe.
class WebhookSender {
 public:
  struct Options {
    // Where to, "127.0.0.1:PORT". Deliveries go to them in turn, the copies of
    // one event to different ones.
    std::vector<std::string> addresses;
    std::string path;
    // The headers of one delivery, made when it is sent.
    std::function<HttpHeaders(absl::string_view body)> sign;
    // Deliveries under way at once, each on a connection of its own that is
    // used again as long as the receiver keeps it.
    int connections = 8;
    // Opens a connection for each delivery instead.
    bool keep_alive = true;
    // For one delivery.
    absl::Duration timeout = kPatience;
    // From the first attempt without 2xx to the next one of the same event;
    // longer by as much after each, up to ten times. A provider takes minutes
    // to hours.
    absl::Duration redelivery_delay = absl::Milliseconds(50);
  };

  struct Event {
    std::string id;
    std::string body;
  };

  // One delivery of an event.
  struct Attempt {
    std::string address;
    absl::Time sent_at;
    // 0: no answer.
    int status = 0;
    HttpReply reply;
    // Why there was no answer.
    std::string error;
    // All bytes were handed to the kernel.
    bool sent_whole = false;
    // The connection had carried another delivery before.
    bool reused_connection = false;

    bool acknowledged() const { return status >= 200 && status < 300; }
  };

  // The books of one event.
  struct Entry {
    Event event;
    std::vector<Attempt> attempts;

    bool acknowledged() const;
  };

  struct Totals {
    int64_t events = 0;
    int64_t acknowledged = 0;        // events with at least one 2xx
    int64_t attempts = 0;            // finished ones
    int64_t unanswered = 0;          // of the attempts
    int64_t outstanding = 0;         // deliveries that wait or are under way
    std::map<int, int64_t> answers;  // attempts by HTTP status

    int64_t Answers(int status) const {
      const auto found = answers.find(status);
      return found == answers.end() ? 0 : found->second;
    }
  };

  explicit WebhookSender(Options options);
  // Gives up what is under way.
  ~WebhookSender();
  WebhookSender(const WebhookSender&) = delete;
  WebhookSender& operator=(const WebhookSender&) = delete;

  // Sends events in their order. With more than one copy (at most as many as
  // there are connections) those of one event leave at the same moment.
  void Send(const std::vector<Event>& events, int copies = 1);

  // Whether events without a 2xx are sent again (they are, from the start).
  // Turned on, it begins with those that wait for it.
  void SetRedelivery(bool on);
  // Sends every event once more, whatever it was answered.
  void SendAllAgain();

  // Waits until the books fulfil `condition`; false when `timeout` passed
  // first.
  [[nodiscard]] bool Await(const std::function<bool(const Totals&)>& condition,
                           absl::Duration timeout = kPatience) const;
  // Every event has a 2xx, and nothing is under way.
  [[nodiscard]] bool AwaitAllAcknowledged(
      absl::Duration timeout = kPatience) const;
  // Nothing waits and nothing is under way. Without redelivery, or it is the
  // same as the above.
  [[nodiscard]] bool AwaitQuiet(absl::Duration timeout = kPatience) const;

  Totals totals() const;
  // By event id.
  std::map<std::string, Entry> Ledger() const;

 private:
  // Copies of one event that wait for each other.
  struct Group {
    int missing;
  };
  struct Job {
    std::string event_id;
    std::string address;
    std::shared_ptr<Group> group;
  };
  class Connection;

  // The loop of each thread.
  void Run();
  // The next job whose time has come; false at the end.
  bool TakeJob(Job* job);
  void Enqueue(const std::string& event_id, absl::Duration due,
               std::shared_ptr<Group> group) TENURE_REQUIRES(mutex_);
  void Record(const Job& job, Attempt attempt);

  const Options options_;
  std::vector<std::thread> threads_;
  std::atomic<bool> stopping_{false};

  mutable Mutex mutex_;
  mutable CondVar changed_;
  bool redelivery_ TENURE_GUARDED_BY(mutex_) = true;
  size_t next_address_ TENURE_GUARDED_BY(mutex_) = 0;
  int64_t next_job_ TENURE_GUARDED_BY(mutex_) = 0;
  // By monotonic due time, then order of arrival.
  std::map<std::pair<absl::Duration, int64_t>, Job> queue_
      TENURE_GUARDED_BY(mutex_);
  std::map<std::string, Entry> ledger_ TENURE_GUARDED_BY(mutex_);
  // Deliveries of each event that wait or are under way.
  std::map<std::string, int> outstanding_ TENURE_GUARDED_BY(mutex_);
  Totals totals_ TENURE_GUARDED_BY(mutex_);
};

}  // namespace tenure::test

#endif  // TENURE_TESTS_SUPPORT_WEBHOOK_SENDER_H_
