#include "common/base/rfc3339.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/time/civil_time.h"

namespace tenure {
namespace {

// Reads from the front of a text; whatever does not fit ends it for good.
class Cursor {
 public:
  explicit Cursor(absl::string_view text) : text_(text) {}

  int Digits(int count) {
    int value = 0;
    for (int i = 0; i < count; ++i) {
      if (!NextIsDigit()) {
        ok_ = false;
        return 0;
      }
      value = value * 10 + (text_.front() - '0');
      text_.remove_prefix(1);
    }
    return value;
  }

  bool Take(char c) {
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }

  void Expect(char c) { ok_ = Take(c) && ok_; }

  bool NextIsDigit() const {
    return !text_.empty() &&
           absl::ascii_isdigit(static_cast<unsigned char>(text_.front()));
  }

  // Everything fitted and nothing is left.
  bool Done() const { return ok_ && text_.empty(); }

 private:
  absl::string_view text_;
  bool ok_ = true;
};

// One to nine digits behind the point.
int64_t Nanoseconds(Cursor& cursor) {
  int64_t nanoseconds = cursor.Digits(1);
  for (int place = 1; place < 9; ++place) {
    nanoseconds *= 10;
    if (cursor.NextIsDigit()) nanoseconds += cursor.Digits(1);
  }
  return nanoseconds;
}

}  // namespace

std::optional<absl::Time> ParseRfc3339(absl::string_view text) {
  Cursor cursor(text);
  const int year = cursor.Digits(4);
  cursor.Expect('-');
  const int month = cursor.Digits(2);
  cursor.Expect('-');
  const int day = cursor.Digits(2);
  cursor.Expect('T');
  const int hour = cursor.Digits(2);
  cursor.Expect(':');
  const int minute = cursor.Digits(2);
  cursor.Expect(':');
  const int second = cursor.Digits(2);
  const int64_t nanoseconds = cursor.Take('.') ? Nanoseconds(cursor) : 0;
  absl::Duration offset;
  if (!cursor.Take('Z')) {
    const bool behind = cursor.Take('-');
    if (!behind) cursor.Expect('+');
    const int offset_hour = cursor.Digits(2);
    cursor.Expect(':');
    const int offset_minute = cursor.Digits(2);
    if (offset_hour > 23 || offset_minute > 59) return std::nullopt;
    offset = absl::Hours(offset_hour) + absl::Minutes(offset_minute);
    if (behind) offset = -offset;
  }
  if (!cursor.Done() || hour > 23 || minute > 59 || second > 60) {
    return std::nullopt;
  }
  const absl::CivilDay date(year, month, day);
  if (date.year() != year || date.month() != month || date.day() != day) {
    return std::nullopt;
  }
  const absl::Time midnight = absl::FromCivil(date, absl::UTCTimeZone());
  // The digits of a leap second are in no other second.
  const absl::Duration fraction =
      second == 60 ? absl::ZeroDuration()
                   : absl::Nanoseconds(nanoseconds - nanoseconds % 1000);
  const absl::Time time = midnight + absl::Hours(hour) + absl::Minutes(minute) +
                          absl::Seconds(second) + fraction - offset;
  constexpr int64_t kYear1 = -62135596800;
  constexpr int64_t kYear10000 = 253402300800;
  if (time < absl::FromUnixSeconds(kYear1) ||
      time >= absl::FromUnixSeconds(kYear10000)) {
    return std::nullopt;
  }
  return time;
}

}  // namespace tenure
