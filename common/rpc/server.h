#ifndef TENURE_COMMON_RPC_SERVER_H_
#define TENURE_COMMON_RPC_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tenure::rpc {

struct ServerOptions {
  // host:port; port 0 takes a free one.
  std::string listen;
  // Calls served at once.
  int max_threads = 32;
  // Largest body inside a request; the message around it may be 64 KiB larger.
  int max_body_bytes = 1024 * 1024;
  // A connection on which nothing came for so long is pinged, and closed when
  // that is not answered in time: a peer that went away without a word must not
  // keep its place.
  absl::Duration keepalive_time = absl::Seconds(60);
  absl::Duration keepalive_timeout = absl::Seconds(20);
};

// A service with the name its health is reported under.
struct NamedService {
  std::string full_name;
  grpc::Service* service;
};

// A synchronous gRPC server with bounded threads (libpqxx blocks), health and
// reflection. Health is NOT_SERVING until SetServing(true).
//
// Limits of a connection: 100 calls at once (more wait in the client), 16 KiB
// of metadata for a call (more is refused and ends the connection), pings no
// closer than 5 s unless something was sent in between (a client that goes on
// is cut off; clients that ping every 10 s, with or without calls, are
// welcome). Thread-safe.
class Server {
 public:
  // UNAVAILABLE, naming the address, when it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const ServerOptions& options, std::vector<NamedService> services);
  ~Server();

  int port() const { return port_; }

  // What grpc.health.v1 answers, for the whole server and each service.
  void SetServing(bool serving);

  // Turns health to NOT_SERVING, takes no new calls, waits for those under way
  // up to `limit` and cancels the rest (C117). A handler that does not look at
  // its cancellation is waited for: its own bounds (statement_timeout) end it.
  void Shutdown(absl::Duration limit);

 private:
  Server() = default;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::string> names_;
  int port_ = 0;
};

}  // namespace tenure::rpc

#endif  // TENURE_COMMON_RPC_SERVER_H_
