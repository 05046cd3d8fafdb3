#ifndef TENURE_TESTS_SUPPORT_FAULT_PROXY_H_
#define TENURE_TESTS_SUPPORT_FAULT_PROXY_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "tests/support/test_signal.h"

namespace tenure::test {

// A TCP proxy in front of a server that breaks connections on command. In front
// of PostgreSQL it understands the v3 protocol and can cut a connection at a
// chosen statement, so that both outcomes of an unanswered COMMIT can be made
// at will.
//
// Faults apply to all connections, present and future, or to one of them:
// connections are numbered from 1 in the order of their acceptance, and a
// number that is not accepted yet may be used. They last until changed or
// Heal(). The statement cuts are shots: each is used up by the statement that
// it cuts.
//
// Thread-safe. Once a setter has returned, no byte is forwarded against it.
class FaultProxy {
 public:
  static constexpr int kAllConnections = 0;

  enum class Direction { kToServer, kToClient };
  // How the client sees the end: an error (RST), or an orderly close (FIN).
  enum class CutKind { kReset, kClose };

  // What the proxy has seen since the start.
  struct Counters {
    int64_t connections = 0;  // accepted and not refused
    int64_t refused = 0;
    int64_t open = 0;  // connections at present
    int64_t cuts = 0;  // connections that a fault ended
    int64_t held = 0;  // COMMIT replies that were held back
    int64_t bytes_to_server = 0;
    int64_t bytes_to_client = 0;
    int64_t statements = 0;        // simple queries and executions
    int64_t commits_seen = 0;      // COMMITs that the client sent
    int64_t commits_answered = 0;  // replies "COMMIT" that the server sent
  };

  // A proxy on a free port of 127.0.0.1 in front of the PostgreSQL that
  // `conninfo` names, which must be a TCP one.
  static absl::StatusOr<std::unique_ptr<FaultProxy>> Start(
      absl::string_view conninfo);
  // The same for any protocol: the statement cuts never fire. `host` is an
  // IPv4 address.
  static absl::StatusOr<std::unique_ptr<FaultProxy>> StartPlain(
      absl::string_view host, int port);
  ~FaultProxy();
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  int port() const { return port_; }
  // `conninfo` with this proxy as its server, and without TLS and GSS, which
  // would hide the statements.
  std::string Through(absl::string_view conninfo) const;

  // Resets new connections as soon as they are accepted.
  void Refuse(bool on, int connection = kAllConnections);
  // Holds bytes back for that long, in order.
  void Delay(absl::Duration to_server, absl::Duration to_client,
             int connection = kAllConnections);
  // Moves no byte and no end of a connection, as a network that drops
  // everything: both sides see silence. What was sent meanwhile arrives when it
  // is lifted.
  void BlackHole(bool on, int connection = kAllConnections);
  // Lets `bytes` more bytes pass in a direction of each connection, then cuts
  // that connection.
  void CutAfterBytes(Direction direction, int64_t bytes,
                     int connection = kAllConnections);
  // Cuts at once; returns when it is done.
  void CutNow(CutKind kind = CutKind::kReset, int connection = kAllConnections);

  // Cuts at the next COMMIT, which the server then never sees: it rolls back.
  void CutBeforeCommit(int times = 1, int connection = kAllConnections);
  // Forwards the next COMMIT, waits for the server's answer to it and cuts
  // without passing the answer on: the transaction is committed and the client
  // cannot know.
  void CutAfterCommit(int times = 1, int connection = kAllConnections);
  // Forwards the next COMMIT and holds back the server's answer to it, and what
  // follows on that connection, until Heal or a cut: the instant between a
  // commit and the client's knowledge of it, for as long as a test needs.
  void HoldAfterCommit(int times = 1, int connection = kAllConnections);
  // The same as the cuts for a statement whose text contains `text`: for
  // statements that commit by themselves. After: once the server is ready for
  // the next one.
  void CutBeforeStatement(absl::string_view text, int times = 1,
                          int connection = kAllConnections);
  void CutAfterStatement(absl::string_view text, int times = 1,
                         int connection = kAllConnections);

  // Takes back every fault, shots included. Cut connections stay cut.
  void Heal();

  Counters counters() const;
  // Wait until that many cuts, held replies, or connections were counted; false
  // when `timeout` passed first.
  [[nodiscard]] bool AwaitCuts(int64_t count,
                               absl::Duration timeout = kPatience) const;
  [[nodiscard]] bool AwaitHeld(int64_t count,
                               absl::Duration timeout = kPatience) const;
  [[nodiscard]] bool AwaitConnections(int64_t count,
                                      absl::Duration timeout = kPatience) const;

 private:
  // Bytes on their way in one direction.
  struct Chunk {
    std::string bytes;
    absl::Duration due;  // monotonic
  };
  struct Flow {
    Direction direction = Direction::kToServer;
    // Read, not yet a whole message.
    std::string partial;
    std::deque<Chunk> queue;
    size_t queued_bytes = 0;
    // Bytes that may still pass.
    std::optional<int64_t> budget;
    // Nothing is read any more, and the connection is cut once the queue is
    // empty.
    bool cut_when_drained = false;
    // Nothing is written any more, until Heal.
    bool held = false;
    bool read_ended = false;
    bool write_ended = false;
  };
  enum class Awaited {
    kNothing,
    kCommitReply,
    kCommitReplyToHold,
    kReadyForQuery
  };
  struct Connection {
    int id = 0;
    int client_fd = -1;
    int server_fd = -1;
    Flow to_server;
    Flow to_client;
    // Protocol state.
    bool opaque = false;
    bool startup_done = false;
    int negotiation_replies = 0;
    std::map<std::string, std::string> statements;
    std::map<std::string, std::string> portals;
    Awaited awaited = Awaited::kNothing;
  };
  struct Rules {
    bool refuse = false;
    bool black_hole = false;
    absl::Duration delay_to_server = absl::ZeroDuration();
    absl::Duration delay_to_client = absl::ZeroDuration();
    std::optional<int64_t> budget_to_server;
    std::optional<int64_t> budget_to_client;
  };
  struct Shot {
    int connection = kAllConnections;
    bool commit = false;
    std::string text;
    bool after = false;
    bool hold = false;
    int times = 0;
  };
  struct PendingCut {
    CutKind kind;
    int connection;
  };

  FaultProxy(std::string host, int port, bool postgres)
      : host_(std::move(host)), upstream_port_(port), postgres_(postgres) {}

  absl::Status Listen();
  // The loop of thread_.
  void Run();
  void Wake() const;

  void AcceptAll() TENURE_REQUIRES(mutex_);
  bool ConnectUpstream(Connection& connection) TENURE_REQUIRES(mutex_);
  // These return false when the connection is over and has to be removed.
  bool Read(Connection& connection, Flow& flow) TENURE_REQUIRES(mutex_);
  bool Write(Connection& connection, Flow& flow) TENURE_REQUIRES(mutex_);
  void TakeMessages(Connection& connection, Flow& flow) TENURE_REQUIRES(mutex_);
  // Size of the message at the start of `input`; 0 when it is not complete.
  size_t MessageSize(Connection& connection, Direction direction,
                     absl::string_view input) TENURE_REQUIRES(mutex_);
  // Looks at a message; false when it must not be forwarded.
  bool InspectFromClient(Connection& connection, absl::string_view message)
      TENURE_REQUIRES(mutex_);
  bool InspectFromServer(Connection& connection, absl::string_view message)
      TENURE_REQUIRES(mutex_);
  bool OnStatement(Connection& connection, absl::string_view text)
      TENURE_REQUIRES(mutex_);
  void Push(Connection& connection, Flow& flow, absl::string_view bytes)
      TENURE_REQUIRES(mutex_);
  void Cut(Connection& connection, CutKind kind) TENURE_REQUIRES(mutex_);
  static void Close(Connection& connection, bool reset);

  bool BlackHoled(int connection) const TENURE_REQUIRES(mutex_);
  bool Refused(int connection) const TENURE_REQUIRES(mutex_);
  absl::Duration DelayOf(int connection, Direction direction) const
      TENURE_REQUIRES(mutex_);
  void AddShot(Shot shot);
  bool AwaitCounter(int64_t Counters::*counter, int64_t count,
                    absl::Duration timeout) const;

  const std::string host_;
  const int upstream_port_;
  const bool postgres_;
  int port_ = 0;
  int listen_fd_ = -1;
  int wake_fds_[2] = {-1, -1};
  std::thread thread_;

  mutable Mutex mutex_;
  mutable CondVar changed_;
  bool stopping_ TENURE_GUARDED_BY(mutex_) = false;
  int next_id_ TENURE_GUARDED_BY(mutex_) = 1;
  std::map<int, Connection> connections_ TENURE_GUARDED_BY(mutex_);
  // Key: a connection's number or kAllConnections.
  std::map<int, Rules> rules_ TENURE_GUARDED_BY(mutex_);
  std::vector<Shot> shots_ TENURE_GUARDED_BY(mutex_);
  std::vector<PendingCut> pending_cuts_ TENURE_GUARDED_BY(mutex_);
  Counters counters_ TENURE_GUARDED_BY(mutex_);
};

}  // namespace tenure::test

#endif  // TENURE_TESTS_SUPPORT_FAULT_PROXY_H_
