#ifndef TENURE_COMMON_HTTP_SERVER_H_
#define TENURE_COMMON_HTTP_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/http/message.h"

namespace tenure::http {

// Header bytes of one request, start line included; more is answered 431.
inline constexpr size_t kMaxHeaderBytes = 16 * 1024;

// A body up to this size is taken however much is buffered already, so that
// clients that dawdle over large bodies cannot keep out the usual webhook
// (payloads below 20 kB).
inline constexpr size_t kAlwaysAdmittedBodyBytes = 64 * 1024;

struct ServerOptions {
  // "127.0.0.1:8080", "[::1]:8080", "0.0.0.0:0"; port 0 takes a free one. The
  // host is an address or a name of this machine.
  std::string listen_address;

  // Threads that read and write all connections. They never run a handler
  // unless worker_threads is 0.
  int io_threads = 1;
  // Threads that run handlers. 0: handlers run on an io thread and must not
  // block.
  int worker_threads = 4;
  // Requests that may wait for a worker; one more is answered 503 with
  // Retry-After.
  int max_queued = 256;

  // A longer body is answered 413.
  size_t max_body_bytes = 1024 * 1024;
  // Body bytes held for all requests together. Beyond it a body larger than
  // kAlwaysAdmittedBodyBytes is answered 503.
  size_t max_buffered_bytes = 32 * 1024 * 1024;

  // From the first byte of a request to the last byte of its answer, however
  // steadily the bytes trickle in. Passed while the request is read: 408;
  // while the handler works: 503; then the connection is closed.
  absl::Duration request_timeout = absl::Seconds(10);
  // How long a connection may stay open between requests, or before the first.
  absl::Duration idle_timeout = absl::Seconds(60);

  // Open connections. More wait in the kernel's queue until one ends; while
  // some wait, idle connections are closed, the longest idle first.
  int max_connections = 1024;
  // Of one peer address; more are closed at once. 0: no limit of its own (the
  // right value behind a gateway, which is the only peer).
  int max_connections_per_peer = 0;

  // Value of Retry-After in the server's own 503 answers; whole seconds.
  absl::Duration retry_after = absl::Seconds(1);

  // Asked when the header of a request is read and its body is not. A value is
  // the answer, and the body is never read. Runs on an io thread: must not
  // block or throw. Without it every request is read.
  std::function<std::optional<Response>(const RequestHead&)> accept;
};

// The one answer to one request. Move-only; Send may be called from any thread,
// also after the Server is gone (it then does nothing). Destroyed without a
// Send, it answers 500.
class Responder {
 public:
  // For tests of handlers: `send` gets the answer.
  explicit Responder(std::function<void(Response)> send);
  Responder(Responder&& other) noexcept;
  Responder& operator=(Responder&& other) noexcept;
  ~Responder();

  // The first call counts, later ones do nothing. Does not wait: a client that
  // reads slowly costs the caller nothing.
  void Send(Response response);

 private:
  std::function<void(Response)> send_;
};

// May throw only if it is a bug: the request is then answered 500.
using Handler = std::function<void(Request, Responder)>;

// What a server did, for metrics. Counters only grow.
struct ServerStats {
  int64_t open_connections = 0;
  int64_t queued_requests = 0;
  int64_t buffered_body_bytes = 0;
  int64_t accepted_connections_total = 0;
  int64_t accept_errors_total = 0;
  int64_t requests_total = 0;    // given to the handler or refused by accept
  int64_t refused_total = 0;     // 4xx answers that the server made itself
  int64_t overloaded_total = 0;  // 503: queue full or too much buffered
  int64_t timed_out_total = 0;   // request_timeout passed
};

// An HTTP/1.1 server for small requests: webhooks, probes, metrics. Slow
// clients hold memory but no thread. Requests of one connection are answered
// one by one, in order. Anything whose framing could be read in two ways
// (Content-Length with Transfer-Encoding, repeated or listed Content-Length,
// transfer codings but "chunked", a missing Host) is answered 400 and the
// connection is closed.
//
// Thread-safe. Drain and the destructor must not be called by a handler.
class Server {
 public:
  // Listens when it returns. Errors name the address: INVALID_ARGUMENT for one
  // that cannot be read or found, UNAVAILABLE when it is taken.
  static absl::StatusOr<std::unique_ptr<Server>> Start(ServerOptions options,
                                                       Handler handler);

  // Cuts what is still open; waits for running handlers.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;
  // The bound address with the port, "127.0.0.1:40123".
  const std::string& address() const;

  // Takes in the connections the kernel already accepted, stops listening,
  // closes idle connections and waits until every request under way has its
  // answer (sent with "Connection: close") or `limit` has passed. False when
  // something is still open then. Repeatable.
  bool Drain(absl::Duration limit);

  ServerStats stats() const;

 private:
  class Core;
  explicit Server(std::shared_ptr<Core> core);

  std::shared_ptr<Core> core_;
};

}  // namespace tenure::http

#endif  // TENURE_COMMON_HTTP_SERVER_H_
