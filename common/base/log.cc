#include "common/base/log.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>

#include "absl/strings/str_format.h"
#include "common/base/clock.h"
#include "common/base/crypto.h"
#include "common/base/mutex.h"
#include "common/base/utf8.h"

namespace tenure::log {
namespace {

// Names of services and request ids are short by contract; a caller-supplied
// request id must not crowd out the fields.
constexpr size_t kMaxNameBytes = 128;
// What a pipe takes in one piece once poll(2) says it is writable.
constexpr size_t kChunkBytes = 4096;
// How long the rest of a line that has begun may wait for the reader.
constexpr int kTornLineWaitMillis = 100;
// Kept free for the note on fields that did not fit, and the end of the line.
constexpr size_t kTailBytes = 48;

std::atomic<int> lowest_level{static_cast<int>(Level::kInfo)};
std::atomic<int64_t> dropped_lines{0};

struct Output {
  Mutex mutex;
  std::string service TENURE_GUARDED_BY(mutex);
  // The last line was cut off by a reader that stopped reading, so the next
  // one starts with a line end.
  bool torn TENURE_GUARDED_BY(mutex) = false;
};

// Never destroyed: threads may log while static objects are torn down.
Output& GetOutput() {
  static Output* const output = new Output;
  return *output;
}

thread_local std::string current_request_id;

absl::string_view LevelName(Level level) {
  switch (level) {
    case Level::kDebug:
      return "debug";
    case Level::kInfo:
      return "info";
    case Level::kWarning:
      return "warning";
    case Level::kError:
      return "error";
  }
  return "error";
}

// The length of the UTF-8 sequence at the start of `text`, 0 when ill-formed.
size_t SequenceLength(absl::string_view text) {
  for (size_t n = 1; n <= 4 && n <= text.size(); ++n) {
    if (IsValidUtf8(text.substr(0, n))) return n;
  }
  return 0;
}

// Code points above ASCII that steer a terminal, end a line for some reader
// or reorder what a person sees.
bool IsUnsafe(uint32_t code) {
  return (code >= 0x80 && code <= 0x9F) || code == 0x2028 || code == 0x2029 ||
         (code >= 0x202A && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

// Appends `text` as the inside of a JSON string of ASCII-safe content: what a
// terminal would act on is escaped, bytes that are no UTF-8 become U+FFFD.
void AppendEscaped(absl::string_view text, std::string* out) {
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text.front());
    if (c < 0x80) {
      text.remove_prefix(1);
      switch (c) {
        case '"':
          out->append("\\\"");
          break;
        case '\\':
          out->append("\\\\");
          break;
        case '\n':
          out->append("\\n");
          break;
        case '\r':
          out->append("\\r");
          break;
        case '\t':
          out->append("\\t");
          break;
        default:
          if (c < 0x20 || c == 0x7F) {
            absl::StrAppendFormat(out, "\\u%04x", c);
          } else {
            out->push_back(static_cast<char>(c));
          }
      }
      continue;
    }
    const size_t length = SequenceLength(text);
    if (length == 0) {
      out->append("\\ufffd");
      text.remove_prefix(1);
      continue;
    }
    uint32_t code = c & (0xFFU >> (length + 1));
    for (size_t i = 1; i < length; ++i) {
      code = (code << 6) | (static_cast<unsigned char>(text[i]) & 0x3F);
    }
    if (IsUnsafe(code)) {
      absl::StrAppendFormat(out, "\\u%04x", code);
    } else {
      out->append(text.data(), length);
    }
    text.remove_prefix(length);
  }
}

// Appends `text` quoted, cut to `max_bytes` between two characters.
void AppendQuoted(absl::string_view text, size_t max_bytes, std::string* out) {
  out->push_back('"');
  if (text.size() <= max_bytes) {
    AppendEscaped(text, out);
  } else {
    const std::string note = absl::StrCat("...(", text.size(), " bytes)");
    size_t cut = max_bytes - note.size();
    // Back to the start of a character; at most three bytes, more is no UTF-8.
    for (int i = 0; i < 3 && cut > 0 &&
                    (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80;
         ++i) {
      --cut;
    }
    AppendEscaped(text.substr(0, cut), out);
    out->append(note);
  }
  out->push_back('"');
}

// Waits until standard error takes kChunkBytes without blocking.
bool Writable(int timeout_millis) {
  pollfd fd = {STDERR_FILENO, POLLOUT, 0};
  const int ready = ::poll(&fd, 1, timeout_millis);
  return ready == 1 && (fd.revents & POLLOUT) != 0 &&
         (fd.revents & (POLLERR | POLLNVAL)) == 0;
}

// Keeps SIGPIPE away from the process while standard error is written: a log
// reader that went away must not end a service.
class SigpipeBlock {
 public:
  SigpipeBlock() {
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &previous_);
  }
  ~SigpipeBlock() {
    if (broken_ && !was_pending_) {
      const timespec none = {0, 0};
      while (sigtimedwait(&sigpipe_, nullptr, &none) == -1 && errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
  }
  SigpipeBlock(const SigpipeBlock&) = delete;
  SigpipeBlock& operator=(const SigpipeBlock&) = delete;

  void SetBroken() { broken_ = true; }

 private:
  sigset_t sigpipe_;
  sigset_t previous_;
  bool was_pending_ = false;
  bool broken_ = false;
};

// Writes all of `text` or says how many bytes went out.
size_t WriteStderr(absl::string_view text) {
  SigpipeBlock block;
  size_t written = 0;
  while (written < text.size()) {
    if (!Writable(written == 0 ? 0 : kTornLineWaitMillis)) break;
    const ssize_t n = ::write(STDERR_FILENO, text.data() + written,
                              std::min(kChunkBytes, text.size() - written));
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EPIPE) block.SetBroken();
      break;
    }
    written += static_cast<size_t>(n);
  }
  return written;
}

}  // namespace

// Builds one line and hands it to standard error.
class Writer {
 public:
  static void Write(Level level, absl::string_view message, Fields fields) {
    if (static_cast<int>(level) <
        lowest_level.load(std::memory_order_relaxed)) {
      return;
    }
    Output& output = GetOutput();
    std::string line;
    line.reserve(512);
    line.append("{\"time\":\"");
    line.append(absl::FormatTime("%Y-%m-%d%ET%H:%M:%E6SZ",
                                 SystemClock::Instance().Now(),
                                 absl::UTCTimeZone()));
    line.append("\",\"level\":\"");
    line.append(LevelName(level).data(), LevelName(level).size());
    line.append("\",\"message\":");
    AppendQuoted(message, kMaxValueBytes, &line);
    if (!current_request_id.empty()) {
      line.append(",\"request_id\":");
      AppendQuoted(current_request_id, kMaxNameBytes, &line);
    }

    MutexLock lock(output.mutex);
    if (!output.service.empty()) {
      line.append(",\"service\":");
      AppendQuoted(output.service, kMaxNameBytes, &line);
    }
    int left_out = 0;
    for (const Field& field : fields) {
      const size_t before = line.size();
      line.push_back(',');
      AppendQuoted(field.key_, kMaxNameBytes, &line);
      line.push_back(':');
      AppendValue(field, &line);
      if (line.size() > kMaxLineBytes - kTailBytes) {
        line.resize(before);
        ++left_out;
      }
    }
    if (left_out > 0) absl::StrAppend(&line, ",\"fields_left_out\":", left_out);
    line.append("}\n");
    if (output.torn) line.insert(line.begin(), '\n');
    const size_t written = WriteStderr(line);
    if (written == line.size()) {
      output.torn = false;
    } else {
      if (written > 0) output.torn = true;
      dropped_lines.fetch_add(1, std::memory_order_relaxed);
    }
  }

 private:
  static void AppendValue(const Field& field, std::string* line) {
    // JSON has no infinity and no NaN.
    const bool quoted = field.quoted_ ||
                        field.value_.find("inf") != std::string::npos ||
                        field.value_.find("nan") != std::string::npos;
    if (quoted) {
      AppendQuoted(field.value_, kMaxValueBytes, line);
    } else {
      line->append(field.value_);
    }
  }
};

void Debug(absl::string_view message, Fields fields) {
  Writer::Write(Level::kDebug, message, fields);
}

void Info(absl::string_view message, Fields fields) {
  Writer::Write(Level::kInfo, message, fields);
}

void Warning(absl::string_view message, Fields fields) {
  Writer::Write(Level::kWarning, message, fields);
}

void Error(absl::string_view message, Fields fields) {
  Writer::Write(Level::kError, message, fields);
}

void Configure(absl::string_view service, Level lowest) {
  Output& output = GetOutput();
  MutexLock lock(output.mutex);
  output.service = std::string(service);
  lowest_level.store(static_cast<int>(lowest), std::memory_order_relaxed);
}

bool ParseLevel(absl::string_view text, Level* level) {
  for (const Level candidate :
       {Level::kDebug, Level::kInfo, Level::kWarning, Level::kError}) {
    if (text == LevelName(candidate)) {
      *level = candidate;
      return true;
    }
  }
  return false;
}

int64_t DroppedLines() { return dropped_lines.load(std::memory_order_relaxed); }

ScopedRequestId::ScopedRequestId(absl::string_view request_id)
    : previous_(current_request_id) {
  current_request_id = std::string(request_id);
}

ScopedRequestId::~ScopedRequestId() {
  current_request_id = std::move(previous_);
}

const std::string& ScopedRequestId::Current() { return current_request_id; }

std::string NewRequestId() {
  std::string bytes = RandomBytes(16);
  // The all-zero trace id is the one W3C forbids.
  bytes.back() |= 1;
  return HexEncode(bytes);
}

}  // namespace tenure::log
