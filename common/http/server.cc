#include "common/http/server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <chrono>
#include <exception>
#include <limits>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/http/worker_pool.h"

namespace tenure::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;
using beast::error_code;

// What one read may bring before and within a body. Idle connections hold no
// buffer at all.
constexpr size_t kHeaderReadBytes = 4 * 1024;
constexpr size_t kBodyReadBytes = 16 * 1024;
// A chunk's size line with its extensions, or the trailer.
constexpr size_t kMaxChunkOverheadBytes = 8 * 1024;
// After an answer that ends the connection, what the client still sends is read
// and thrown away, this much and this long: closing over unread bytes would
// reset the connection and could take the answer with it.
constexpr size_t kLingerBytes = 1024 * 1024;
constexpr absl::Duration kLingerTime = absl::Seconds(2);
// For sending the answer that says that the request's time is over.
constexpr absl::Duration kLastAnswerTime = absl::Seconds(2);
// While draining: for the first request of a client that has only connected.
constexpr absl::Duration kFirstRequestGrace = absl::Seconds(1);
// Before the next accept after one that failed (out of file descriptors).
constexpr absl::Duration kAcceptBackoff = absl::Milliseconds(100);
// The kernel's queue is shorter; ends the take-in loop of Drain.
constexpr int kMaxTakenIn = 4096;

constexpr absl::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

absl::Duration Monotonic() { return SystemClock::Instance().Monotonic(); }

std::chrono::nanoseconds TimerSpan(absl::Duration span) {
  return absl::ToChronoNanoseconds(
      std::clamp(span, absl::ZeroDuration(), absl::Hours(24)));
}

absl::string_view View(beast::string_view text) {
  return absl::string_view(text.data(), text.size());
}

// A field that goes on in the next line. Beast joins the lines; a reader before
// us may have seen two fields, or none.
bool HasFoldedLine(absl::string_view fields) {
  return absl::StrContains(fields, "\r\n ") ||
         absl::StrContains(fields, "\r\n\t");
}

// What may not stand in a line: Beast takes a line feed in a quoted text, where
// others end the line.
bool HasControl(absl::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    return c != '\t' && absl::ascii_iscntrl(static_cast<unsigned char>(c));
  });
}

// Collects one request from the events of Beast's parser. The limits are its
// own: in Beast 1.74 the header limit restarts whenever a line is consumed, so
// that a slow sender never meets it, and trailers would join the header.
class RequestParser : public beast::http::basic_parser<true> {
 public:
  explicit RequestParser(size_t max_body_bytes)
      : max_body_bytes_(max_body_bytes) {
    header_limit(kMaxHeaderBytes);
    body_limit(std::numeric_limits<std::uint64_t>::max());
  }

  // Valid once is_header_done().
  RequestHead& head() { return head_; }
  bool http10() const { return version_ == 10; }
  bool is_head_request() const { return is_head_request_; }
  // After the last chunk.
  bool in_trailer() const { return in_trailer_; }
  std::string& body() { return body_; }

  // Why the framing of a well-formed header is refused; empty if it is not.
  std::string FramingProblem();

 private:
  using Verb = beast::http::verb;
  using FieldName = beast::http::field;

  // These are the base's pure virtual functions, of which newer versions have
  // one more (on_trailer_field_impl); hence no `override`.
  void on_request_impl(Verb, beast::string_view method,
                       beast::string_view target, int version, error_code&) {
    head_.method = std::string(View(method));
    is_head_request_ = head_.method == "HEAD";
    raw_target_ = std::string(View(target));
    version_ = version;
  }
  void on_response_impl(int, beast::string_view, int, error_code&) {}
  void on_field_impl(FieldName, beast::string_view name,
                     beast::string_view value, error_code&) {
    // A trailer may not pose as a header, e.g. as a signature.
    if (header_seen_) return;
    head_.headers.Add(View(name), View(value));
  }
  void on_trailer_field_impl(FieldName, beast::string_view, beast::string_view,
                             error_code&) {}
  void on_header_impl(error_code&) { header_seen_ = true; }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) {}
  std::size_t on_body_impl(beast::string_view bytes, error_code& ec) {
    return Append(bytes, ec);
  }
  void on_chunk_header_impl(std::uint64_t size, beast::string_view extensions,
                            error_code& ec) {
    if (HasControl(View(extensions))) {
      ec = beast::http::error::bad_chunk_extension;
    } else if (size > max_body_bytes_ - body_.size()) {
      ec = beast::http::error::body_limit;
    }
    in_trailer_ = size == 0;
  }
  std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view bytes,
                                 error_code& ec) {
    return Append(bytes, ec);
  }
  void on_finish_impl(error_code&) {}

  std::size_t Append(beast::string_view bytes, error_code& ec) {
    if (bytes.size() > max_body_bytes_ - body_.size()) {
      ec = beast::http::error::body_limit;
      return 0;
    }
    body_.append(bytes.data(), bytes.size());
    return bytes.size();
  }

  const size_t max_body_bytes_;
  RequestHead head_;
  std::string raw_target_;
  std::string body_;
  int version_ = 11;
  bool is_head_request_ = false;
  bool header_seen_ = false;
  bool in_trailer_ = false;
};

std::string RequestParser::FramingProblem() {
  const std::vector<std::string> lengths =
      head_.headers.FindAll("Content-Length");
  const std::vector<std::string> codings =
      head_.headers.FindAll("Transfer-Encoding");
  if (!lengths.empty() && !codings.empty()) {
    return "both Content-Length and Transfer-Encoding";
  }
  if (lengths.size() > 1) return "repeated Content-Length";
  head_.content_length = 0;
  if (!lengths.empty()) {
    std::uint64_t length = 0;
    for (const char c : lengths[0]) {
      if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) {
        return "bad Content-Length";
      }
    }
    if (!absl::SimpleAtoi(lengths[0], &length)) return "bad Content-Length";
    head_.content_length = length;
  }
  if (!codings.empty()) {
    // Beast takes any other coding for "no body" and would read the body as the
    // next request.
    if (codings.size() > 1 || !absl::EqualsIgnoreCase(codings[0], "chunked")) {
      return "Transfer-Encoding other than chunked";
    }
    if (http10()) return "Transfer-Encoding in HTTP/1.0";
    head_.content_length = std::nullopt;
  }
  const size_t hosts = head_.headers.FindAll("Host").size();
  if (hosts > 1) return "repeated Host";
  if (hosts == 0 && !http10()) return "no Host";
  if (!SplitTarget(raw_target_, &head_.target, &head_.query)) {
    return "bad request target";
  }
  return "";
}

struct HostPort {
  std::string host;
  std::string port;
};

absl::StatusOr<HostPort> ParseListenAddress(absl::string_view address) {
  const auto bad = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen address \"", address, "\": ", why,
                     " (expected host:port, e.g. 127.0.0.1:8080)"));
  };
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos) return bad("no port");
  absl::string_view host = address.substr(0, colon);
  const absl::string_view port = address.substr(colon + 1);
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
  } else if (absl::StrContains(host, ":")) {
    return bad("an IPv6 address needs brackets");
  }
  if (host.empty()) return bad("no host");
  int number = 0;
  if (!absl::SimpleAtoi(port, &number) || number < 0 || number > 65535) {
    return bad("the port is not a number from 0 to 65535");
  }
  return HostPort{std::string(host), absl::StrCat(number)};
}

}  // namespace

Responder::Responder(std::function<void(Response)> send)
    : send_(std::move(send)) {}

Responder::Responder(Responder&& other) noexcept
    : send_(std::exchange(other.send_, nullptr)) {}

Responder& Responder::operator=(Responder&& other) noexcept {
  if (this != &other) {
    if (send_) Send(TextResponse(500, "internal error"));
    send_ = std::exchange(other.send_, nullptr);
  }
  return *this;
}

Responder::~Responder() {
  if (!send_) return;
  log::Error("request dropped without an answer");
  Send(TextResponse(500, "internal error"));
}

void Responder::Send(Response response) {
  if (!send_) return;
  std::exchange(send_, nullptr)(std::move(response));
}

// Everything that lives as long as a connection or a Responder needs it. The
// io threads belong to the Server: they have ended when it is gone, and from
// then on Send does nothing.
class Server::Core : public std::enable_shared_from_this<Server::Core> {
 public:
  class Connection;

  Core(ServerOptions options, Handler handler)
      : options_(std::move(options)),
        handler_(std::move(handler)),
        work_(asio::make_work_guard(io_)),
        acceptor_(asio::make_strand(io_)),
        accept_timer_(acceptor_.get_executor()) {}

  absl::Status Listen();
  void Run();
  bool Drain(absl::Duration limit) TENURE_EXCLUDES(mutex_);
  void Stop() TENURE_EXCLUDES(mutex_);
  ServerStats Stats() const TENURE_EXCLUDES(mutex_);

  int port() const { return port_; }
  const std::string& address() const { return address_; }

 private:
  struct Counters {
    std::atomic<int64_t> accepted{0};
    std::atomic<int64_t> accept_errors{0};
    std::atomic<int64_t> requests{0};
    std::atomic<int64_t> refused{0};
    std::atomic<int64_t> overloaded{0};
    std::atomic<int64_t> timed_out{0};
  };

  // On the acceptor's strand.
  void AcceptNext() TENURE_EXCLUDES(mutex_);
  void OnAccept(error_code ec, tcp::socket socket) TENURE_EXCLUDES(mutex_);
  void OnCrowded() TENURE_EXCLUDES(mutex_);
  void StopListening() TENURE_EXCLUDES(mutex_);

  void Admit(tcp::socket socket) TENURE_EXCLUDES(mutex_);
  void Remove(uint64_t id, const std::string& peer) TENURE_EXCLUDES(mutex_);
  std::vector<std::shared_ptr<Connection>> Connections() const
      TENURE_EXCLUDES(mutex_);
  // Hands the answer to the connection's strand; nothing once stopped.
  void Post(std::shared_ptr<Connection> connection, uint64_t exchange,
            Response response) TENURE_EXCLUDES(mutex_);
  // Runs the handler on a worker. False: no room.
  bool Submit(std::shared_ptr<Connection> connection, uint64_t exchange,
              Request request);
  void Handle(Request request, Responder responder);

  const ServerOptions options_;
  const Handler handler_;
  std::unique_ptr<WorkerPool> workers_;
  std::vector<std::thread> io_threads_;

  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  tcp::acceptor acceptor_;
  asio::steady_timer accept_timer_;
  int port_ = 0;
  std::string address_;

  std::atomic<bool> draining_{false};
  // Clients wait for a connection slot: answers end their connections.
  std::atomic<bool> crowded_{false};
  std::atomic<int64_t> buffered_bytes_{0};
  Counters counters_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::unordered_map<uint64_t, std::shared_ptr<Connection>> connections_
      TENURE_GUARDED_BY(mutex_);
  std::unordered_map<std::string, int> per_peer_ TENURE_GUARDED_BY(mutex_);
  uint64_t next_id_ TENURE_GUARDED_BY(mutex_) = 1;
  bool waiting_for_room_ TENURE_GUARDED_BY(mutex_) = false;
  bool listening_ TENURE_GUARDED_BY(mutex_) = false;
  bool closing_ TENURE_GUARDED_BY(mutex_) = false;
  bool stopped_ TENURE_GUARDED_BY(mutex_) = false;
};

// One client. Everything but the atomics runs on the socket's strand. Exactly
// one operation on the socket is pending in every phase but kHandling (none)
// and kClosed.
class Server::Core::Connection
    : public std::enable_shared_from_this<Server::Core::Connection> {
 public:
  Connection(std::shared_ptr<Core> core, tcp::socket socket, uint64_t id,
             std::string peer)
      : core_(std::move(core)),
        id_(id),
        peer_(std::move(peer)),
        socket_(std::move(socket)),
        timer_(socket_.get_executor()) {}

  // Any thread.
  asio::any_io_executor executor() { return socket_.get_executor(); }
  // When it became idle (or has only its lingering left), in nanoseconds of
  // the monotonic clock; 0 while busy.
  int64_t idle_since() const { return idle_since_.load(); }
  // Whether the answer to that exchange is still wanted.
  bool Wants(uint64_t exchange) const { return exchange_.load() == exchange; }

  // On the strand.
  void Start() { BeginIdle(); }
  void OnAnswer(uint64_t exchange, Response response);
  void OnDrain();
  void CloseIfIdle();
  void Close();

 private:
  enum class Phase {
    kIdle,       // waits for the first byte of a request
    kReading,    // header, 100-continue, body
    kHandling,   // the handler works
    kWriting,    // the answer goes out
    kLingering,  // the answer is out, the client's remaining bytes are eaten
    kClosed,
  };

  void BeginIdle();
  // Makes it one that may be closed for a newcomer.
  void NoteIdle();
  void BeginRequest();
  // Parses what is buffered; reads more, answers, or hands the request on.
  void Pump();
  void ReadMore();
  // Decides on the header. False: answered, or waits for 100-continue to go
  // out; Pump is done for now either way.
  bool OnHeader();
  void Dispatch();
  // Answers with an error of the server's own.
  void Refuse(int status, absl::string_view text);
  void RefuseOverload(absl::string_view text);
  void OnParseError(error_code ec);
  void Answer(Response response, bool may_keep_alive);
  void OnWritten(bool keep_alive);
  void Linger();
  void ReadAndDiscard();

  void Arm(absl::Duration span);
  void OnTimer();
  // True, with the 408 under way, when the request's time is over.
  bool AnsweredTimeout();
  // Accounts for the memory of the body. False: too much is buffered.
  bool Charge();
  void Discharge();
  bool NothingToRead();

  const std::shared_ptr<Core> core_;
  const uint64_t id_;
  const std::string peer_;
  tcp::socket socket_;
  asio::steady_timer timer_;
  uint64_t timer_generation_ = 0;

  Phase phase_ = Phase::kIdle;
  beast::flat_buffer buffer_;
  std::unique_ptr<RequestParser> parser_;
  size_t header_bytes_ = 0;
  bool header_handled_ = false;
  bool deadline_passed_ = false;
  int64_t served_ = 0;
  int64_t charged_bytes_ = 0;
  size_t discarded_bytes_ = 0;
  std::string out_head_;
  std::string out_body_;

  std::atomic<int64_t> idle_since_{0};
  std::atomic<uint64_t> exchange_{0};
  uint64_t last_exchange_ = 0;
};

void Server::Core::Connection::BeginIdle() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kIdle;
  if (buffer_.size() > 0) {
    BeginRequest();
    return;
  }
  buffer_ = beast::flat_buffer();
  const bool draining = core_->draining_;
  if (served_ > 0 && (draining || core_->crowded_) && NothingToRead()) {
    Close();
    return;
  }
  NoteIdle();
  Arm(draining ? std::min(kFirstRequestGrace, core_->options_.idle_timeout)
               : core_->options_.idle_timeout);
  socket_.async_wait(tcp::socket::wait_read,
                     [self = shared_from_this()](error_code ec) {
                       if (self->phase_ != Phase::kIdle) return;
                       if (ec) {
                         self->Close();
                         return;
                       }
                       self->BeginRequest();
                     });
}

void Server::Core::Connection::NoteIdle() {
  // At least 1: 0 means busy.
  idle_since_ = std::max<int64_t>(1, absl::ToInt64Nanoseconds(Monotonic()));
  if (!core_->crowded_) return;
  asio::post(core_->acceptor_.get_executor(),
             [core = core_] { core->OnCrowded(); });
}

void Server::Core::Connection::BeginRequest() {
  idle_since_ = 0;
  phase_ = Phase::kReading;
  parser_ = std::make_unique<RequestParser>(core_->options_.max_body_bytes);
  parser_->head().deadline = Monotonic() + core_->options_.request_timeout;
  header_bytes_ = 0;
  header_handled_ = false;
  Arm(core_->options_.request_timeout);
  Pump();
}

void Server::Core::Connection::Pump() {
  while (!parser_->is_done()) {
    if (buffer_.size() == 0) {
      ReadMore();
      return;
    }
    const bool in_header = !parser_->is_header_done();
    error_code ec;
    const size_t consumed = parser_->put(buffer_.data(), ec);
    // The parser takes a line only with what begins the next one.
    const bool folded =
        (in_header || parser_->in_trailer()) &&
        HasFoldedLine(absl::string_view(
            static_cast<const char*>(buffer_.data().data()), consumed));
    buffer_.consume(consumed);
    if (in_header) {
      header_bytes_ += consumed;
      const size_t pending = parser_->is_header_done() ? 0 : buffer_.size();
      if (header_bytes_ + pending > kMaxHeaderBytes) {
        Refuse(431, "request header too large");
        return;
      }
    }
    if (ec && ec != beast::http::error::need_more) {
      OnParseError(ec);
      return;
    }
    if (folded) {
      Refuse(400, "bad request: folded header line");
      return;
    }
    if (parser_->is_header_done() && !header_handled_) {
      header_handled_ = true;
      if (!OnHeader()) return;
      continue;
    }
    if (!Charge()) {
      RefuseOverload("too much is being received");
      return;
    }
    if (parser_->is_done()) break;
    if (ec || consumed == 0) {
      if (!in_header && buffer_.size() > kMaxChunkOverheadBytes) {
        Refuse(400, "chunk header or trailer too large");
        return;
      }
      ReadMore();
      return;
    }
  }
  Dispatch();
}

void Server::Core::Connection::ReadMore() {
  const size_t room =
      parser_->is_header_done() ? kBodyReadBytes : kHeaderReadBytes;
  socket_.async_read_some(
      buffer_.prepare(room),
      [self = shared_from_this()](error_code ec, size_t bytes) {
        if (self->phase_ != Phase::kReading) return;
        if (!ec) self->buffer_.commit(bytes);
        if (self->AnsweredTimeout()) return;
        if (ec == asio::error::eof && self->parser_->got_some()) {
          // Half-closed in the middle of a request: the client may still
          // listen.
          self->Refuse(400, "incomplete request");
          return;
        }
        if (ec) {
          self->Close();
          return;
        }
        self->Pump();
      });
}

bool Server::Core::Connection::OnHeader() {
  const std::string problem = parser_->FramingProblem();
  if (!problem.empty()) {
    Refuse(400, absl::StrCat("bad request: ", problem));
    return false;
  }
  RequestHead& head = parser_->head();
  head.remote_address = peer_;
  const bool has_body = head.content_length != 0;
  if (core_->options_.accept) {
    std::optional<Response> answer = core_->options_.accept(head);
    if (answer.has_value()) {
      ++core_->counters_.requests;
      Answer(*std::move(answer), /*may_keep_alive=*/!has_body);
      return false;
    }
  }
  if (head.content_length.value_or(0) > core_->options_.max_body_bytes) {
    Refuse(413, absl::StrCat("body larger than ",
                             core_->options_.max_body_bytes, " bytes"));
    return false;
  }
  const std::string* expect = head.headers.Find("Expect");
  if (expect == nullptr || parser_->http10()) return true;
  if (!absl::EqualsIgnoreCase(*expect, "100-continue")) {
    Refuse(417, "unknown expectation");
    return false;
  }
  // A client that already sends does not wait for the word.
  if (!has_body || buffer_.size() > 0) return true;
  asio::async_write(socket_, asio::buffer(kContinue.data(), kContinue.size()),
                    [self = shared_from_this()](error_code ec, size_t) {
                      if (self->phase_ != Phase::kReading) return;
                      if (ec && !self->deadline_passed_) {
                        self->Close();
                        return;
                      }
                      if (self->AnsweredTimeout()) return;
                      self->Pump();
                    });
  return false;
}

void Server::Core::Connection::Dispatch() {
  ++core_->counters_.requests;
  Request request;
  static_cast<RequestHead&>(request) = std::move(parser_->head());
  request.body = std::move(parser_->body());
  phase_ = Phase::kHandling;
  exchange_ = ++last_exchange_;
  if (!core_->Submit(shared_from_this(), last_exchange_, std::move(request))) {
    exchange_ = 0;
    RefuseOverload("too many requests are waiting");
  }
}

void Server::Core::Connection::OnAnswer(uint64_t exchange, Response response) {
  if (phase_ != Phase::kHandling || !Wants(exchange)) return;
  Answer(std::move(response), /*may_keep_alive=*/true);
}

void Server::Core::Connection::OnParseError(error_code ec) {
  if (ec == beast::http::error::header_limit) {
    Refuse(431, "request header too large");
  } else if (ec == beast::http::error::body_limit) {
    Refuse(413, absl::StrCat("body larger than ",
                             core_->options_.max_body_bytes, " bytes"));
  } else {
    Refuse(400, absl::StrCat("bad request: ", ec.message()));
  }
}

void Server::Core::Connection::Refuse(int status, absl::string_view text) {
  ++core_->counters_.refused;
  Answer(TextResponse(status, text), /*may_keep_alive=*/false);
}

void Server::Core::Connection::RefuseOverload(absl::string_view text) {
  ++core_->counters_.overloaded;
  Response response = TextResponse(503, text);
  response.headers.Add(
      "Retry-After",
      absl::StrCat(absl::ToInt64Seconds(core_->options_.retry_after)));
  Answer(std::move(response), /*may_keep_alive=*/false);
}

void Server::Core::Connection::Answer(Response response, bool may_keep_alive) {
  exchange_ = 0;
  phase_ = Phase::kWriting;
  if (response.status < 200 || response.status > 599) {
    log::Error("handler answered with an impossible status",
               {{"status", response.status}});
    response = TextResponse(500, "internal error");
  }
  const bool keep_alive = may_keep_alive && parser_->is_header_done() &&
                          parser_->keep_alive() && !deadline_passed_ &&
                          !core_->draining_ && !core_->crowded_;
  out_head_ = FormatResponseHead(
      response, ResponseFraming{.keep_alive = keep_alive,
                                .http10 = parser_->http10(),
                                .date = SystemClock::Instance().Now()});
  out_body_ = std::move(response.body);
  if (parser_->is_head_request() || BodyForbidden(response.status)) {
    out_body_.clear();
  }
  Discharge();
  parser_.reset();
  const std::array<asio::const_buffer, 2> bytes = {asio::buffer(out_head_),
                                                   asio::buffer(out_body_)};
  asio::async_write(
      socket_, bytes,
      [self = shared_from_this(), keep_alive](error_code ec, size_t) {
        if (self->phase_ != Phase::kWriting) return;
        if (ec) {
          self->Close();
          return;
        }
        self->OnWritten(keep_alive);
      });
}

void Server::Core::Connection::OnWritten(bool keep_alive) {
  out_head_ = std::string();
  out_body_ = std::string();
  ++served_;
  if (keep_alive) {
    BeginIdle();
  } else {
    Linger();
  }
}

void Server::Core::Connection::Linger() {
  error_code ec;
  socket_.shutdown(tcp::socket::shutdown_send, ec);
  if (ec) {
    Close();
    return;
  }
  phase_ = Phase::kLingering;
  buffer_ = beast::flat_buffer();
  NoteIdle();
  Arm(kLingerTime);
  ReadAndDiscard();
}

void Server::Core::Connection::ReadAndDiscard() {
  socket_.async_read_some(
      buffer_.prepare(kHeaderReadBytes),
      [self = shared_from_this()](error_code ec, size_t bytes) {
        if (self->phase_ != Phase::kLingering) return;
        self->discarded_bytes_ += bytes;
        if (ec || self->discarded_bytes_ >= kLingerBytes) {
          self->Close();
          return;
        }
        self->ReadAndDiscard();
      });
}

void Server::Core::Connection::OnDrain() {
  if (phase_ != Phase::kIdle) return;
  if (served_ > 0) {
    CloseIfIdle();
  } else {
    Arm(std::min(kFirstRequestGrace, core_->options_.idle_timeout));
  }
}

void Server::Core::Connection::CloseIfIdle() {
  const bool idle = phase_ == Phase::kIdle || phase_ == Phase::kLingering;
  if (idle && NothingToRead()) Close();
}

bool Server::Core::Connection::NothingToRead() {
  error_code ec;
  return socket_.available(ec) == 0 || ec;
}

void Server::Core::Connection::Arm(absl::Duration span) {
  const uint64_t generation = ++timer_generation_;
  timer_.expires_after(TimerSpan(span));
  timer_.async_wait([self = shared_from_this(), generation](error_code ec) {
    if (ec || generation != self->timer_generation_) return;
    self->OnTimer();
  });
}

void Server::Core::Connection::OnTimer() {
  switch (phase_) {
    case Phase::kReading: {
      // The pending operation ends with an error and finds the flag.
      deadline_passed_ = true;
      error_code ec;
      socket_.cancel(ec);
      return;
    }
    case Phase::kHandling:
      ++core_->counters_.timed_out;
      deadline_passed_ = true;
      Arm(kLastAnswerTime);
      RefuseOverload("the request took too long");
      return;
    case Phase::kWriting:
      if (!deadline_passed_) ++core_->counters_.timed_out;
      Close();
      return;
    case Phase::kIdle:
    case Phase::kLingering:
      Close();
      return;
    case Phase::kClosed:
      return;
  }
}

bool Server::Core::Connection::AnsweredTimeout() {
  if (!deadline_passed_) return false;
  ++core_->counters_.timed_out;
  Arm(kLastAnswerTime);
  Refuse(408, "the request was not complete in time");
  return true;
}

bool Server::Core::Connection::Charge() {
  const auto held = static_cast<int64_t>(parser_->body().capacity());
  const int64_t total = core_->buffered_bytes_ += held - charged_bytes_;
  charged_bytes_ = held;
  return parser_->body().size() <= kAlwaysAdmittedBodyBytes ||
         total <= static_cast<int64_t>(core_->options_.max_buffered_bytes);
}

void Server::Core::Connection::Discharge() {
  core_->buffered_bytes_ -= charged_bytes_;
  charged_bytes_ = 0;
}

void Server::Core::Connection::Close() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  exchange_ = 0;
  idle_since_ = 0;
  ++timer_generation_;
  timer_.cancel();
  error_code ec;
  socket_.close(ec);
  Discharge();
  core_->Remove(id_, peer_);
}

absl::Status Server::Core::Listen() {
  ASSIGN_OR_RETURN(const HostPort where,
                   ParseListenAddress(options_.listen_address));
  error_code ec;
  tcp::resolver resolver(io_);
  const tcp::resolver::results_type found = resolver.resolve(
      where.host, where.port,
      tcp::resolver::passive | tcp::resolver::numeric_service, ec);
  if (ec || found.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen address \"", options_.listen_address,
                     "\": the host was not found: ", ec.message()));
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_.open(endpoint.protocol(), ec);
  // A restart must not wait for the old connections' TIME_WAIT. Two listeners
  // on one port stay impossible: SO_REUSEPORT is not set.
  if (!ec) acceptor_.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor_.bind(endpoint, ec);
  if (!ec) acceptor_.listen(tcp::acceptor::max_listen_connections, ec);
  tcp::endpoint bound;
  if (!ec) bound = acceptor_.local_endpoint(ec);
  if (ec) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on \"", options_.listen_address, "\": ", ec.message()));
  }
  port_ = bound.port();
  const std::string ip = bound.address().to_string();
  address_ = bound.address().is_v6() ? absl::StrCat("[", ip, "]:", port_)
                                     : absl::StrCat(ip, ":", port_);
  return absl::OkStatus();
}

void Server::Core::Run() {
  if (options_.worker_threads > 0) {
    workers_ = std::make_unique<WorkerPool>(options_.worker_threads,
                                            options_.max_queued);
  }
  {
    MutexLock lock(mutex_);
    listening_ = true;
  }
  asio::post(acceptor_.get_executor(),
             [self = shared_from_this()] { self->AcceptNext(); });
  for (int i = 0; i < std::max(1, options_.io_threads); ++i) {
    // Not a shared_ptr: the threads are joined before the Core can go.
    io_threads_.emplace_back([this] {
      for (;;) {
        try {
          io_.run();
          return;
        } catch (const std::exception& e) {
          // Out of memory, say. One connection is lost, the others go on.
          log::Error("exception on an io thread", {{"what", e.what()}});
        }
      }
    });
  }
}

void Server::Core::AcceptNext() {
  if (!acceptor_.is_open()) return;
  bool full = false;
  {
    MutexLock lock(mutex_);
    full = static_cast<int>(connections_.size()) >= options_.max_connections;
    waiting_for_room_ = full;
  }
  if (full) {
    // Remove() goes on. Until then only learn whether somebody waits.
    acceptor_.async_wait(tcp::acceptor::wait_read,
                         [self = shared_from_this()](error_code ec) {
                           if (!ec) self->OnCrowded();
                         });
    return;
  }
  acceptor_.async_accept(
      asio::make_strand(io_),
      [self = shared_from_this()](error_code ec, tcp::socket socket) {
        self->OnAccept(ec, std::move(socket));
      });
}

void Server::Core::OnAccept(error_code ec, tcp::socket socket) {
  if (ec == asio::error::operation_aborted) return;
  if (!ec) {
    Admit(std::move(socket));
    AcceptNext();
    return;
  }
  ++counters_.accept_errors;
  log::Warning("cannot accept a connection",
               {{"address", address_}, {"error", ec.message()}});
  // The connection stays in the kernel's queue, so accept would fail again at
  // once.
  accept_timer_.expires_after(TimerSpan(kAcceptBackoff));
  accept_timer_.async_wait([self = shared_from_this()](error_code wait_ec) {
    if (!wait_ec) self->AcceptNext();
  });
}

void Server::Core::OnCrowded() {
  std::shared_ptr<Connection> oldest;
  {
    MutexLock lock(mutex_);
    if (!waiting_for_room_) return;
    crowded_ = true;
    for (const auto& [id, connection] : connections_) {
      const int64_t since = connection->idle_since();
      if (since == 0) continue;
      if (oldest == nullptr || since < oldest->idle_since()) {
        oldest = connection;
      }
    }
  }
  if (oldest == nullptr) return;
  asio::post(oldest->executor(), [oldest] { oldest->CloseIfIdle(); });
}

void Server::Core::Admit(tcp::socket socket) {
  ++counters_.accepted;
  error_code ec;
  const tcp::endpoint remote = socket.remote_endpoint(ec);
  if (ec) return;  // gone already
  std::string peer = remote.address().to_string();
  socket.set_option(tcp::no_delay(true), ec);
  std::shared_ptr<Connection> connection;
  {
    MutexLock lock(mutex_);
    if (closing_) return;
    int& of_peer = per_peer_[peer];
    if (options_.max_connections_per_peer > 0 &&
        of_peer >= options_.max_connections_per_peer) {
      return;
    }
    ++of_peer;
    const uint64_t id = next_id_++;
    connection = std::make_shared<Connection>(shared_from_this(),
                                              std::move(socket), id, peer);
    connections_.emplace(id, connection);
  }
  asio::post(connection->executor(), [connection] { connection->Start(); });
}

void Server::Core::Remove(uint64_t id, const std::string& peer) {
  MutexLock lock(mutex_);
  if (connections_.erase(id) == 0) return;
  const auto of_peer = per_peer_.find(peer);
  if (--of_peer->second == 0) per_peer_.erase(of_peer);
  if (waiting_for_room_) {
    waiting_for_room_ = false;
    crowded_ = false;
    asio::post(acceptor_.get_executor(),
               [self = shared_from_this()] { self->AcceptNext(); });
  }
  changed_.NotifyAll();
}

std::vector<std::shared_ptr<Server::Core::Connection>>
Server::Core::Connections() const {
  std::vector<std::shared_ptr<Connection>> all;
  MutexLock lock(mutex_);
  all.reserve(connections_.size());
  for (const auto& [id, connection] : connections_) all.push_back(connection);
  return all;
}

void Server::Core::Post(std::shared_ptr<Connection> connection,
                        uint64_t exchange, Response response) {
  MutexLock lock(mutex_);
  if (stopped_) return;
  asio::any_io_executor executor = connection->executor();
  asio::post(executor, [connection = std::move(connection), exchange,
                        response = std::move(response)]() mutable {
    connection->OnAnswer(exchange, std::move(response));
  });
}

bool Server::Core::Submit(std::shared_ptr<Connection> connection,
                          uint64_t exchange, Request request) {
  Responder responder(
      [core = shared_from_this(), connection, exchange](Response response) {
        core->Post(connection, exchange, std::move(response));
      });
  if (workers_ == nullptr) {
    Handle(std::move(request), std::move(responder));
    return true;
  }
  // Shared, so that a refused job's responder can be silenced below.
  auto shared = std::make_shared<Responder>(std::move(responder));
  const bool taken = workers_->Submit([this, connection, exchange, shared,
                                       request = std::move(request)]() mutable {
    Responder mine = std::move(*shared);
    // It waited longer than the client does.
    if (!connection->Wants(exchange)) {
      mine.Send(Response{});
      return;
    }
    Handle(std::move(request), std::move(mine));
  });
  if (!taken) shared->Send(Response{});  // unwanted: the exchange is over
  return taken;
}

void Server::Core::Handle(Request request, Responder responder) {
  try {
    handler_(std::move(request), std::move(responder));
  } catch (const std::exception& e) {
    log::Error("exception in a request handler", {{"what", e.what()}});
  } catch (...) {
    log::Error("exception in a request handler");
  }
}

void Server::Core::StopListening() {
  if (acceptor_.is_open()) {
    // Closing resets what waits in the kernel's queue, though those clients
    // are connected and may have sent their request.
    error_code ec;
    acceptor_.non_blocking(true, ec);
    for (int i = 0; !ec && i < kMaxTakenIn; ++i) {
      tcp::socket socket = acceptor_.accept(asio::make_strand(io_), ec);
      if (!ec) Admit(std::move(socket));
    }
    acceptor_.close(ec);
    accept_timer_.cancel();
  }
  MutexLock lock(mutex_);
  listening_ = false;
  waiting_for_room_ = false;
  changed_.NotifyAll();
}

bool Server::Core::Drain(absl::Duration limit) {
  draining_ = true;
  asio::post(acceptor_.get_executor(),
             [self = shared_from_this()] { self->StopListening(); });
  for (const auto& connection : Connections()) {
    asio::post(connection->executor(), [connection] { connection->OnDrain(); });
  }
  const absl::Duration end = Monotonic() + limit;
  MutexLock lock(mutex_);
  while (listening_ || !connections_.empty()) {
    const absl::Duration left = end - Monotonic();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(mutex_, left);
  }
  return true;
}

void Server::Core::Stop() {
  draining_ = true;
  {
    MutexLock lock(mutex_);
    closing_ = true;
  }
  asio::post(acceptor_.get_executor(), [self = shared_from_this()] {
    error_code ec;
    self->acceptor_.close(ec);
    self->accept_timer_.cancel();
  });
  for (const auto& connection : Connections()) {
    asio::post(connection->executor(), [connection] { connection->Close(); });
  }
  if (workers_ != nullptr) workers_->Stop();
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  // The io threads end when every connection is closed and has run its last
  // completion.
  work_.reset();
  for (std::thread& thread : io_threads_) thread.join();
}

ServerStats Server::Core::Stats() const {
  ServerStats stats;
  {
    MutexLock lock(mutex_);
    stats.open_connections = static_cast<int64_t>(connections_.size());
  }
  stats.queued_requests = workers_ == nullptr ? 0 : workers_->queued();
  stats.buffered_body_bytes = buffered_bytes_;
  stats.accepted_connections_total = counters_.accepted;
  stats.accept_errors_total = counters_.accept_errors;
  stats.requests_total = counters_.requests;
  stats.refused_total = counters_.refused;
  stats.overloaded_total = counters_.overloaded;
  stats.timed_out_total = counters_.timed_out;
  return stats;
}

Server::Server(std::shared_ptr<Core> core) : core_(std::move(core)) {}

Server::~Server() { core_->Stop(); }

absl::StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options,
                                                      Handler handler) {
  auto core = std::make_shared<Core>(std::move(options), std::move(handler));
  RETURN_IF_ERROR(core->Listen());
  core->Run();
  return std::unique_ptr<Server>(new Server(std::move(core)));
}

int Server::port() const { return core_->port(); }
const std::string& Server::address() const { return core_->address(); }
bool Server::Drain(absl::Duration limit) { return core_->Drain(limit); }
ServerStats Server::stats() const { return core_->Stats(); }

}  // namespace tenure::http
