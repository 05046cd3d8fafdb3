#ifndef TENURE_TESTS_BENCH_LOAD_CLIENT_H_
#define TENURE_TESTS_BENCH_LOAD_CLIENT_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/bench/harness.h"

namespace tenure::bench {

// What is called. Requests are serialised once, beforehand, so that the same
// client code with the same cost per call drives a baseline and the product.
struct Target {
  // host:port, plaintext.
  std::string address;
  // "/package.Service/Method".
  std::string method;
  // One of these is drawn at random for each call. Not empty.
  std::vector<grpc::ByteBuffer> requests;
  // Each is sent once instead, in order; a run ends when none is left.
  bool each_once = false;
  // Whether a reply is a right one; asked for one reply in `sample_every`.
  std::function<bool(const grpc::ByteBuffer&)> check_reply = nullptr;
};

struct ClientOptions {
  // Connections. Each is a TCP connection of its own.
  int channels = 4;
  // Calls kept in flight per channel by ClosedLoop.
  int outstanding = 8;
  int sample_every = 64;
  uint64_t seed = 1;
  // A call that takes longer counts as an error, so that no run hangs.
  absl::Duration call_timeout = absl::Seconds(10);
};

// Calls a method of a gRPC server over one completion queue. One run at a
// time; not thread-safe.
class LoadClient {
 public:
  // Connects all channels, waiting at most `timeout` for the server.
  static absl::StatusOr<std::unique_ptr<LoadClient>> Connect(
      Target target, ClientOptions options, absl::Duration timeout);
  ~LoadClient();

  // Throughput: keeps channels × outstanding calls in flight for `duration`,
  // then awaits the last ones. Latencies are from call to answer.
  absl::StatusOr<Measurement> ClosedLoop(absl::Duration duration);

  // Latency: sends `per_second` calls a second on a fixed timetable, whether
  // or not earlier ones are answered. Latencies are from the instant a call
  // was due on the timetable, so that a stall counts for every call behind it.
  absl::StatusOr<Measurement> OpenLoop(double per_second,
                                       absl::Duration duration);

  // Requests sent so far.
  size_t sent() const { return sent_; }

  // One call on the first channel, added to `measured`.
  void CallOnce(Measurement& measured);

  // One call on the first channel, unmeasured: the reply's bytes, or the error
  // of the call.
  absl::StatusOr<std::string> Fetch();

 private:
  struct Call;
  struct Channel {
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<grpc::GenericStub> stub;
  };

  LoadClient(Target target, ClientOptions options);

  // `from` is the instant its latency counts from. False when there is nothing
  // left to send.
  bool Send(Call& call, int64_t from);
  // Takes a finished call into `measured`.
  void Finish(const Call& call, int64_t at, Measurement& measured);
  // nullptr when each was sent.
  const grpc::ByteBuffer* NextRequest();

  const Target target_;
  const ClientOptions options_;
  std::vector<Channel> channels_;
  grpc::CompletionQueue queue_;
  std::minstd_rand random_;
  size_t sent_ = 0;
  uint64_t finished_ = 0;
};

// Idle latency: `calls` calls to each client, one at a time, so that each
// server sees one call per `gap`. The clients take turns within a gap.
std::vector<Measurement> CallIdle(const std::vector<LoadClient*>& clients,
                                  int calls, absl::Duration gap);

// Protobuf message to and from wire form.
grpc::ByteBuffer ToByteBuffer(const std::string& serialized);
absl::StatusOr<std::string> FromByteBuffer(const grpc::ByteBuffer& buffer);

}  // namespace tenure::bench

#endif  // TENURE_TESTS_BENCH_LOAD_CLIENT_H_
