#ifndef TENURE_TESTS_BENCH_HTTP_LOAD_H_
#define TENURE_TESTS_BENCH_HTTP_LOAD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tests/bench/harness.h"

namespace tenure::bench {

// Requests to send, whole as they go over the wire, each once and in order.
struct HttpRequests {
  std::vector<std::string> wire;
  size_t sent = 0;

  const std::string* Next() {
    return sent < wire.size() ? &wire[sent++] : nullptr;
  }
};

// A POST of JSON; `headers` are further lines, each with its line end.
std::string HttpPostText(absl::string_view target, absl::string_view headers,
                         absl::string_view body);

// The status code and the body of an answer in `received`, when it is whole:
// an answer of HTTP/1.1 with a Content-Length.
struct HttpAnswer {
  int status = 0;
  absl::string_view body;
  // Of the whole answer.
  size_t size = 0;
  // The server ends the connection behind it.
  bool closes = false;
};
// False when more has to be read. INVALID_ARGUMENT for anything else.
absl::StatusOr<bool> ParseAnswer(absl::string_view received,
                                 HttpAnswer* answer);

// Sends requests over keep-alive connections to 127.0.0.1, all on the calling
// thread: a load must leave the processor to what it measures. One run at a
// time; not thread-safe.
class HttpLoad {
 public:
  // Whether an answer is the right one.
  using CheckAnswer = std::function<bool(int status, absl::string_view body)>;

  static absl::StatusOr<std::unique_ptr<HttpLoad>> Connect(int port,
                                                           int connections,
                                                           CheckAnswer check);
  ~HttpLoad();
  HttpLoad(const HttpLoad&) = delete;
  HttpLoad& operator=(const HttpLoad&) = delete;

  // Throughput: every connection sends its next request when it has its
  // answer, for `duration` or until none is left; then the last answers are
  // awaited. Latencies are from sending to answer.
  absl::StatusOr<Measurement> ClosedLoop(HttpRequests& requests,
                                         absl::Duration duration);

  // Latency: `per_second` requests a second on a fixed timetable, whether or
  // not earlier ones are answered. Latencies are from the instant a request
  // was due, so that a wait for a free connection counts too.
  absl::StatusOr<Measurement> OpenLoop(HttpRequests& requests,
                                       double per_second,
                                       absl::Duration duration);

 private:
  struct Connection;

  HttpLoad(int port, CheckAnswer check);

  absl::Status Open(Connection& connection);
  // Begins a request; `from` is the instant its latency counts from.
  void Send(Connection& connection, const std::string& request, int64_t from);
  void Flush(Connection& connection);
  // Reads what came. True when the request under way is over.
  bool Receive(Connection& connection, Measurement& measured);
  void Fail(Connection& connection, absl::string_view why,
            Measurement& measured);
  // Waits for something to happen, at most until `deadline`; calls `free` for
  // every connection whose request is over.
  absl::Status Wait(int64_t deadline, Measurement& measured,
                    const std::function<void(Connection&)>& free);

  const int port_;
  const CheckAnswer check_;
  int epoll_ = -1;
  std::vector<std::unique_ptr<Connection>> connections_;
};

// Clients that send a long body one byte a second each, on a thread of their
// own, until destruction. One that is turned away comes again.
class SlowClients {
 public:
  static absl::StatusOr<std::unique_ptr<SlowClients>> Start(
      int port, int clients, absl::string_view target,
      absl::string_view headers, int64_t body_bytes);
  ~SlowClients();

  int64_t turned_away() const { return turned_away_; }

 private:
  SlowClients() = default;
  void Run(int port, int clients, const std::string& head);

  std::atomic<bool> stop_ = false;
  std::atomic<int64_t> turned_away_ = 0;
  std::thread thread_;
};

}  // namespace tenure::bench

#endif  // TENURE_TESTS_BENCH_HTTP_LOAD_H_
