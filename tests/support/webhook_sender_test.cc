#include "tests/support/webhook_sender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"

namespace tenure::test {
namespace {

using ::testing::ElementsAre;

constexpr char kClosed[] = "";

// A receiver that gives prepared answers to requests, in their order, and 200
// when there are no more. It serves any number of connections, each on a
// thread of its own.
class Receiver {
 public:
  explicit Receiver(std::deque<std::string> answers)
      : answers_(std::move(answers)) {
    listen_fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listen_fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listen_fd_, 16), 0);
    getsockname(listen_fd_, reinterpret_cast<sockaddr*>(&address), &size);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
    accepting_ = std::thread([this] {
      for (;;) {
        const int fd = accept(listen_fd_, nullptr, nullptr);
        if (fd < 0) return;
        ++connections_;
        serving_.emplace_back([this, fd] { Serve(fd); });
      }
    });
  }

  ~Receiver() {
    shutdown(listen_fd_, SHUT_RDWR);
    accepting_.join();
    for (std::thread& thread : serving_) thread.join();
    close(listen_fd_);
  }

  const std::string& address() const { return address_; }
  int connections() const { return connections_; }

 private:
  void Serve(int fd) {
    std::string received;
    char buffer[4096];
    for (;;) {
      const size_t end = received.find("body\n");
      if (end == std::string::npos) {
        const ssize_t got = recv(fd, buffer, sizeof(buffer), 0);
        if (got <= 0) break;
        received.append(buffer, static_cast<size_t>(got));
        continue;
      }
      received.erase(0, end + 5);
      std::string answer = "200 OK";
      {
        MutexLock lock(mutex_);
        if (!answers_.empty()) {
          answer = answers_.front();
          answers_.pop_front();
        }
      }
      if (answer == kClosed) break;
      const std::string text =
          absl::StrCat("HTTP/1.1 ", answer, "\r\nContent-Length: 0\r\n\r\n");
      (void)!send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    }
    close(fd);
  }

  int listen_fd_ = -1;
  std::string address_;
  std::atomic<int> connections_{0};
  std::thread accepting_;
  std::vector<std::thread> serving_;
  Mutex mutex_;
  std::deque<std::string> answers_ TENURE_GUARDED_BY(mutex_);
};

WebhookSender::Options OptionsFor(const Receiver& receiver, int connections) {
  WebhookSender::Options options;
  options.addresses = {receiver.address()};
  options.path = "/hook";
  options.sign = [](absl::string_view) { return HttpHeaders(); };
  options.connections = connections;
  options.redelivery_delay = absl::Milliseconds(1);
  return options;
}

std::vector<int> StatusesOf(const WebhookSender& sender,
                            const std::string& id) {
  const WebhookSender::Entry entry = sender.Ledger().at(id);
  std::vector<int> statuses;
  for (const auto& attempt : entry.attempts) statuses.push_back(attempt.status);
  return statuses;
}

TEST(WebhookSenderTest, SendsAgainUntilTheFirst2xxAndBooksEveryAnswer) {
  Receiver receiver(
      {"503 Away", kClosed, "401 No", "302 Elsewhere", "200 OK", "202 OK"});
  WebhookSender sender(OptionsFor(receiver, 1));

  sender.Send({{"a", "body\n"}});
  ASSERT_TRUE(sender.AwaitAllAcknowledged());

  EXPECT_THAT(StatusesOf(sender, "a"), ElementsAre(503, 0, 401, 302, 200));
  const WebhookSender::Totals totals = sender.totals();
  EXPECT_EQ(totals.attempts, 5);
  EXPECT_EQ(totals.unanswered, 1);
  EXPECT_EQ(totals.Answers(200), 1);
  // The one that the receiver closed, and the one after it.
  EXPECT_EQ(receiver.connections(), 2);
  sender.SendAllAgain();
  ASSERT_TRUE(sender.AwaitQuiet());
  EXPECT_EQ(sender.totals().Answers(202), 1);
}

TEST(WebhookSenderTest, WithoutRedeliveryAnEventGoesOutOnceUntilItIsOn) {
  Receiver receiver({"500 Oh"});
  WebhookSender sender(OptionsFor(receiver, 2));
  sender.SetRedelivery(false);

  sender.Send({{"a", "body\n"}});
  ASSERT_TRUE(sender.AwaitQuiet());
  EXPECT_THAT(StatusesOf(sender, "a"), ElementsAre(500));
  EXPECT_EQ(sender.totals().acknowledged, 0);

  sender.SetRedelivery(true);
  ASSERT_TRUE(sender.AwaitAllAcknowledged());
  EXPECT_THAT(StatusesOf(sender, "a"), ElementsAre(500, 200));
}

TEST(WebhookSenderTest, CopiesGoToTheAddressesInTurnAtTheSameTime) {
  Receiver one({});
  Receiver two({});
  WebhookSender::Options options = OptionsFor(one, 4);
  options.addresses.push_back(two.address());
  WebhookSender sender(options);

  sender.Send({{"a", "body\n"}, {"b", "body\n"}, {"c", "body\n"}}, 4);
  ASSERT_TRUE(sender.AwaitAllAcknowledged());

  for (const char* id : {"a", "b", "c"}) {
    const WebhookSender::Entry entry = sender.Ledger().at(id);
    int first = 0;
    for (const auto& attempt : entry.attempts) {
      first += attempt.address == one.address() ? 1 : 0;
    }
    EXPECT_EQ(entry.attempts.size(), 4u);
    EXPECT_EQ(first, 2) << id;
  }
}

}  // namespace
}  // namespace tenure::test
