#ifndef TENURE_COMMON_BASE_LOG_H_
#define TENURE_COMMON_BASE_LOG_H_

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tenure::log {

// One JSON object per line on standard error: time, level, message, service,
// request_id and the fields. Control characters are escaped and a line is
// capped at kMaxLineBytes. Secrets, signatures, bodies and card data are never
// given to it (R14). All functions are thread-safe; a failing write is counted
// (DroppedLines) and never blocks or ends the process.
enum class Level { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

// A longer value is cut, so that no caller-supplied text can flood the log.
inline constexpr size_t kMaxValueBytes = 1024;
inline constexpr size_t kMaxLineBytes = 16 * 1024;

// A named value of a line.
class Field {
 public:
  Field(absl::string_view key, absl::string_view value)
      : key_(key), value_(value), quoted_(true) {}
  Field(absl::string_view key, const std::string& value)
      : key_(key), value_(value), quoted_(true) {}
  Field(absl::string_view key, const char* value)
      : key_(key), value_(value), quoted_(true) {}
  Field(absl::string_view key, bool value)
      : key_(key), value_(value ? "true" : "false"), quoted_(false) {}
  Field(absl::string_view key, int value)
      : key_(key), value_(absl::StrCat(value)), quoted_(false) {}
  Field(absl::string_view key, int64_t value)
      : key_(key), value_(absl::StrCat(value)), quoted_(false) {}
  Field(absl::string_view key, uint64_t value)
      : key_(key), value_(absl::StrCat(value)), quoted_(false) {}
  Field(absl::string_view key, double value)
      : key_(key), value_(absl::StrCat(value)), quoted_(false) {}
  // Seconds.
  Field(absl::string_view key, absl::Duration value)
      : Field(key, absl::ToDoubleSeconds(value)) {}
  // RFC 3339, UTC.
  Field(absl::string_view key, absl::Time value)
      : Field(key, absl::FormatTime(absl::RFC3339_full, value,
                                    absl::UTCTimeZone())) {}

 private:
  friend class Writer;
  std::string key_;
  std::string value_;
  bool quoted_;
};

using Fields = std::initializer_list<Field>;

void Debug(absl::string_view message, Fields fields = {});
void Info(absl::string_view message, Fields fields = {});
void Warning(absl::string_view message, Fields fields = {});
void Error(absl::string_view message, Fields fields = {});

// Sets the lowest level written and the value of "service". Called once from
// main before threads start.
void Configure(absl::string_view service, Level lowest);

// Reads "debug", "info", "warning" or "error"; false for anything else.
bool ParseLevel(absl::string_view text, Level* level);

// Lines lost because standard error could not take them.
int64_t DroppedLines();

// Puts `request_id` into every line of this thread for its scope; nests.
class ScopedRequestId {
 public:
  explicit ScopedRequestId(absl::string_view request_id);
  ~ScopedRequestId();
  ScopedRequestId(const ScopedRequestId&) = delete;
  ScopedRequestId& operator=(const ScopedRequestId&) = delete;

  // The id of the innermost scope of this thread, empty outside.
  static const std::string& Current();

 private:
  std::string previous_;
};

// A fresh random id: 32 lower-case hex digits, the form of a W3C trace id.
std::string NewRequestId();

}  // namespace tenure::log

#endif  // TENURE_COMMON_BASE_LOG_H_
