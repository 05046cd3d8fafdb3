#ifndef TENURE_COMMON_BASE_JSON_H_
#define TENURE_COMMON_BASE_JSON_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tenure {

// Bounds on a JSON text. PostgreSQL's own parser runs out of stack on deep
// input and any parser runs out of memory on wide input, so both are refused
// while reading.
struct JsonLimits {
  // Brackets open at once. Values above 1 000 count as 1 000, because a tree
  // is destroyed by recursion.
  size_t max_depth = 64;
  size_t max_bytes = 1024 * 1024;
  // Values of all kinds; a value takes up to 50 times the bytes of its text.
  size_t max_values = 100'000;
};

struct JsonMember;

// A JSON value, immutable once parsed. Const access is thread-safe.
//
// A typed accessor answers nullopt when the value is of another kind; nothing
// is converted.
class JsonValue {
 public:
  // null
  JsonValue();
  JsonValue(JsonValue&&) noexcept;
  JsonValue& operator=(JsonValue&&) noexcept;
  JsonValue(const JsonValue&) = delete;
  JsonValue& operator=(const JsonValue&) = delete;
  ~JsonValue();

  bool IsNull() const;
  bool IsBool() const;
  bool IsNumber() const;
  bool IsString() const;
  bool IsArray() const;
  bool IsObject() const;

  std::optional<bool> AsBool() const;
  // An integer in the range of int64, written without fraction and exponent:
  // 1.0 and 1e0 are doubles and answer nullopt, as does 9223372036854775808.
  std::optional<int64_t> AsInt64() const;
  // Any number, rounded to the nearest double.
  std::optional<double> AsDouble() const;
  // The text in UTF-8; it may hold U+0000. nullopt for a string that contains
  // the escape of a lone surrogate, which no UTF-8 text can express. Valid
  // while this value lives.
  std::optional<absl::string_view> AsString() const;
  // True for such a string.
  bool has_lone_surrogate() const;

  // The member of an object, nullptr when there is none or this is no object.
  // Of members with the same key the last one counts, as in PostgreSQL's
  // jsonb. A key with a lone surrogate is never found.
  const JsonValue* Find(absl::string_view key) const;
  // Find, repeated: At({"data", "object", "id"}). `this` for an empty path.
  const JsonValue* At(std::initializer_list<absl::string_view> path) const;

  // The elements of an array in order; empty for anything else.
  absl::Span<const JsonValue> items() const;
  // The members of an object, sorted by the bytes of their keys, those whose
  // key has a lone surrogate at the end; empty for anything else.
  absl::Span<const JsonMember> members() const;

 private:
  friend class JsonTreeBuilder;
  struct String {
    std::string text;
    bool lone_surrogate;
  };
  using Array = std::vector<JsonValue>;
  using Object = std::vector<JsonMember>;

  // uint64_t holds only what int64_t cannot.
  std::variant<std::monostate, bool, int64_t, uint64_t, double, String, Array,
               Object>
      value_;
};

struct JsonMember {
  std::string key;
  // The key contains a lone surrogate; `key` has U+FFFD in its place.
  bool key_has_lone_surrogate;
  JsonValue value;
};

// Reads one JSON text (RFC 8259) and nothing around it but white space.
//
// INVALID_ARGUMENT with the reason EVENT_MALFORMED, naming the byte offset and
// never the content, for: a byte order mark, invalid UTF-8, a raw NUL, anything
// after the value, comments, NaN, single quotes, a number beyond the range of a
// double, and text over a limit. The escape \u0000 is allowed in strings, and
// so is the escape of a lone surrogate: only using that string fails, so that
// an odd field nobody reads cannot block an event (C032). No exception leaves
// this function.
absl::StatusOr<JsonValue> ParseJson(absl::string_view bytes,
                                    const JsonLimits& limits = {});

}  // namespace tenure

#endif  // TENURE_COMMON_BASE_JSON_H_
