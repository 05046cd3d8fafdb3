// HTTP/1 framing: whatever bytes a client sends, every request that is handled
// is one that the strict reader below finds at the same place, so that no proxy
// before the server can have seen another one (request smuggling). Each is
// answered once, in order, and at most one refusal follows, then the connection
// ends.
//
// Input: what a client sends before it closes its sending side.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/http/server.h"
#include "tests/fuzz/fuzz.h"

namespace {

using tenure::http::Request;
using tenure::http::Responder;
using tenure::http::Server;

// Small, so that bodies beyond it are found.
constexpr size_t kMaxBodyBytes = 512;

// ---- the strict reader ----

struct Message {
  std::string method;
  std::string target;
  std::string body;
  bool http10 = false;
};

bool IsToken(const std::string& text) {
  for (const char c : text) {
    if (!std::isalnum(static_cast<unsigned char>(c)) &&
        std::strchr("!#$%&'*+-.^_`|~", c) == nullptr) {
      return false;
    }
    if (c == '\0') return false;
  }
  return !text.empty();
}

// A byte that may stand in a value: no control character but the tab.
bool IsText(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte == '\t' || (byte >= 0x20 && byte != 0x7f);
}

std::string Lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 'a' - 'A');
  }
  return text;
}

std::string Trim(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// The grammar of RFC 9112 without anything that it lets a reader pass over: one
// line ending, no folded lines, one length or one coding.
class StrictReader {
 public:
  explicit StrictReader(const std::string& bytes) : bytes_(bytes) {}

  // The requests from the start on, up to the first that is not beyond doubt.
  std::vector<Message> Read() {
    std::vector<Message> messages;
    Message message;
    while (ReadMessage(&message))
      messages.push_back(std::exchange(message, {}));
    return messages;
  }

 private:
  // A line without its CRLF, which are the only control characters.
  bool Line(std::string* line) {
    line->clear();
    for (; at_ < bytes_.size(); ++at_) {
      if (bytes_[at_] == '\r') {
        if (at_ + 1 >= bytes_.size() || bytes_[at_ + 1] != '\n') return false;
        at_ += 2;
        return true;
      }
      if (!IsText(bytes_[at_])) return false;
      *line += bytes_[at_];
    }
    return false;
  }

  bool ReadMessage(Message* message) {
    std::string line;
    if (!Line(&line)) return false;
    const size_t first = line.find(' ');
    if (first == std::string::npos) return false;
    const size_t second = line.find(' ', first + 1);
    if (second == std::string::npos) return false;
    message->method = line.substr(0, first);
    message->target = line.substr(first + 1, second - first - 1);
    const std::string version = line.substr(second + 1);
    if (!IsToken(message->method) || message->target.empty() ||
        (version != "HTTP/1.1" && version != "HTTP/1.0")) {
      return false;
    }
    message->http10 = version == "HTTP/1.0";
    std::vector<std::string> lengths;
    std::vector<std::string> codings;
    int hosts = 0;
    for (;;) {
      if (!Line(&line)) return false;
      if (line.empty()) break;
      const size_t colon = line.find(':');
      if (colon == std::string::npos || !IsToken(line.substr(0, colon))) {
        return false;
      }
      const std::string name = Lower(line.substr(0, colon));
      const std::string value = Trim(line.substr(colon + 1));
      if (name == "content-length") lengths.push_back(value);
      if (name == "transfer-encoding") codings.push_back(value);
      hosts += name == "host";
    }
    if (lengths.size() + codings.size() > 1 || hosts > 1 ||
        (hosts == 0 && !message->http10)) {
      return false;
    }
    if (!codings.empty()) {
      return Lower(codings[0]) == "chunked" && !message->http10 &&
             Chunks(&message->body);
    }
    size_t length = 0;
    if (!lengths.empty()) {
      if (lengths[0].empty() ||
          lengths[0].find_first_not_of("0123456789") != std::string::npos) {
        return false;
      }
      for (const char digit : lengths[0]) {
        length = 10 * length + static_cast<size_t>(digit - '0');
        if (length > kMaxBodyBytes) return false;
      }
    }
    return Take(length, &message->body);
  }

  bool Take(size_t size, std::string* body) {
    if (bytes_.size() - at_ < size) return false;
    body->append(bytes_, at_, size);
    at_ += size;
    return body->size() <= kMaxBodyBytes;
  }

  bool Chunks(std::string* body) {
    std::string line;
    for (;;) {
      if (!Line(&line)) return false;
      const size_t digits = line.find_first_not_of("0123456789abcdefABCDEF");
      const std::string size_text = line.substr(0, digits);
      const std::string rest = Trim(
          digits == std::string::npos ? std::string() : line.substr(digits));
      if (size_text.empty() || (!rest.empty() && rest[0] != ';')) return false;
      size_t size = 0;
      for (const char digit : size_text) {
        size = 16 * size + static_cast<size_t>(
                               std::stoi(std::string(1, digit), nullptr, 16));
        if (size > kMaxBodyBytes) return false;
      }
      if (size == 0) break;
      if (!Take(size, body) || !Line(&line) || !line.empty()) return false;
    }
    do {
      if (!Line(&line)) return false;
      const size_t colon = line.find(':');
      if (!line.empty() &&
          (colon == std::string::npos || !IsToken(line.substr(0, colon)))) {
        return false;
      }
    } while (!line.empty());
    return true;
  }

  const std::string& bytes_;
  size_t at_ = 0;
};

// ---- the server ----

class Recorder {
 public:
  void Add(Request request) {
    tenure::MutexLock lock(mutex_);
    requests_.push_back(std::move(request));
  }
  std::vector<Request> Take() {
    tenure::MutexLock lock(mutex_);
    return std::exchange(requests_, {});
  }

 private:
  tenure::Mutex mutex_;
  std::vector<Request> requests_ TENURE_GUARDED_BY(mutex_);
};

Recorder& Handled() {
  static Recorder& recorder = *new Recorder;
  return recorder;
}

// Never stopped: it answers as long as the process runs.
const Server& TheServer() {
  static const Server* const server = [] {
    tenure::http::ServerOptions options;
    options.listen_address = "0.0.0.0:0";
    // Handlers run on the one io thread.
    options.worker_threads = 0;
    options.max_body_bytes = kMaxBodyBytes;
    options.request_timeout = absl::Seconds(30);
    auto started = Server::Start(options, [](Request request, Responder send) {
      Handled().Add(std::move(request));
      send.Send(tenure::http::TextResponse(200, "ok"));
    });
    FUZZ_CHECK(started.ok());
    return started->release();
  }();
  return *server;
}

// All that comes back for `bytes`.
std::string Exchange(const std::string& bytes) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  FUZZ_CHECK(fd >= 0);
  // From an address of its own, so that no run waits for the ports of those
  // before it.
  static uint32_t runs = 0;
  sockaddr_in from{};
  from.sin_family = AF_INET;
  from.sin_addr.s_addr = htonl(0x7f010000u + (++runs % 0xfffeu) + 1);
  FUZZ_CHECK(::bind(fd, reinterpret_cast<sockaddr*>(&from), sizeof(from)) == 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(TheServer().port()));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  FUZZ_CHECK(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0);
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n =
        ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) break;  // refused and closed
    sent += static_cast<size_t>(n);
  }
  ::shutdown(fd, SHUT_WR);
  std::string received;
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::recv(fd, buffer, sizeof(buffer), 0);
    if (n <= 0) break;
    received.append(buffer, static_cast<size_t>(n));
  }
  ::close(fd);
  return received;
}

// The status codes of the answers, which must be whole and nothing else.
std::vector<int> StatusesOf(const std::string& received,
                            const std::vector<Request>& handled) {
  std::vector<int> statuses;
  size_t at = 0;
  while (at < received.size()) {
    FUZZ_CHECK(received.compare(at, 9, "HTTP/1.1 ") == 0);
    const int status = std::atoi(received.c_str() + at + 9);
    const size_t end = received.find("\r\n\r\n", at);
    FUZZ_CHECK(end != std::string::npos);
    const std::string head = received.substr(at, end - at);
    at = end + 4;
    if (status == 100) continue;
    const bool to_head = statuses.size() < handled.size() &&
                         handled[statuses.size()].method == "HEAD";
    const size_t length = head.find("\r\nContent-Length: ");
    FUZZ_CHECK(length != std::string::npos);
    if (!to_head) {
      const size_t size = std::strtoul(head.c_str() + length + 18, nullptr, 10);
      // A refusal of a HEAD request has none either.
      if (received.size() - at >= size) {
        at += size;
      } else {
        FUZZ_CHECK(status >= 400 && at == received.size());
      }
    }
    statuses.push_back(status);
  }
  return statuses;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const std::vector<Message> strict = StrictReader(bytes).Read();

  const std::string received = Exchange(bytes);
  const std::vector<Request> handled = Handled().Take();

  FUZZ_CHECK(handled.size() <= strict.size());
  for (size_t i = 0; i < handled.size(); ++i) {
    FUZZ_CHECK(handled[i].method == strict[i].method);
    FUZZ_CHECK(handled[i].body == strict[i].body);
    std::string path;
    std::string query;
    FUZZ_CHECK(tenure::http::SplitTarget(strict[i].target, &path, &query));
    FUZZ_CHECK(handled[i].target == path && handled[i].query == query);
  }
  const std::vector<int> statuses = StatusesOf(received, handled);
  FUZZ_CHECK(statuses.size() == handled.size() ||
             statuses.size() == handled.size() + 1);
  for (size_t i = 0; i < statuses.size(); ++i) {
    FUZZ_CHECK(i < handled.size() ? statuses[i] == 200 : statuses[i] >= 400);
  }
  // What is beyond doubt is not dropped without a word.
  if (!strict.empty()) FUZZ_CHECK(!statuses.empty());
  return 0;
}
