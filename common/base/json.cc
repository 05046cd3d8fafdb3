#include "common/base/json.h"

#include <algorithm>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/error.h"
#include "common/base/utf8.h"

namespace tenure {
namespace {

constexpr size_t kMaxDepth = 1000;

absl::Status Malformed(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   common::v1::ERROR_REASON_EVENT_MALFORMED,
                   absl::StrCat("JSON: ", what));
}

absl::Status MalformedAt(absl::string_view what, size_t offset) {
  return Malformed(absl::StrCat(what, " at byte ", offset));
}

// The offset of the first byte that does not belong to well-formed UTF-8.
size_t FirstInvalidUtf8(absl::string_view bytes) {
  size_t good = 0;
  while (good < bytes.size()) {
    size_t length = 1;
    while (length <= 4 && !IsValidUtf8(bytes.substr(good, length))) ++length;
    if (length > 4) break;
    good += length;
  }
  return good;
}

// The value of four hex digits, -1 when they are not that.
int ReadHex4(absl::string_view text) {
  if (text.size() < 4) return -1;
  int value = 0;
  for (const char c : text.substr(0, 4)) {
    int digit = 0;
    if (c >= '0' && c <= '9') {
      digit = c - '0';
    } else if (c >= 'a' && c <= 'f') {
      digit = c - 'a' + 10;
    } else if (c >= 'A' && c <= 'F') {
      digit = c - 'A' + 10;
    } else {
      return -1;
    }
    value = value * 16 + digit;
  }
  return value;
}

bool IsHighSurrogate(int unit) { return unit >= 0xD800 && unit <= 0xDBFF; }
bool IsLowSurrogate(int unit) { return unit >= 0xDC00 && unit <= 0xDFFF; }

// Replaces the escapes of lone surrogates, which the library refuses, by
// \ufffd, which has the same length, so that no offset changes. Adds the
// ordinal number of each string that had one to `strings`, ascending.
//
// Where this scan and the library's lexer part ways, the text is not JSON and
// the lexer has already failed further left.
std::string ReplaceLoneSurrogates(absl::string_view bytes,
                                  std::vector<size_t>* strings) {
  std::string text(bytes);
  size_t ordinal = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!inside) {
      inside = text[i] == '"';
      continue;
    }
    if (text[i] == '"') {
      inside = false;
      ++ordinal;
      continue;
    }
    if (text[i] != '\\') continue;
    ++i;  // The escaped character, which may be a quote.
    if (i >= text.size() || text[i] != 'u') continue;
    const absl::string_view rest = absl::string_view(text).substr(i + 1);
    const int unit = ReadHex4(rest);
    if (IsHighSurrogate(unit) && rest.size() >= 10 && rest[4] == '\\' &&
        rest[5] == 'u' && IsLowSurrogate(ReadHex4(rest.substr(6)))) {
      i += 10;
    } else if (IsHighSurrogate(unit) || IsLowSurrogate(unit)) {
      text.replace(i + 1, 4, "fffd");
      if (strings->empty() || strings->back() != ordinal) {
        strings->push_back(ordinal);
      }
      i += 4;
    }
  }
  return text;
}

bool KeyLess(const JsonMember& a, const JsonMember& b) {
  if (a.key_has_lone_surrogate != b.key_has_lone_surrogate) {
    return b.key_has_lone_surrogate;
  }
  return a.key < b.key;
}

}  // namespace

// Receives the library's events and builds the tree; a false answer ends the
// parse.
class JsonTreeBuilder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  JsonTreeBuilder(const JsonLimits& limits, size_t size,
                  const std::vector<size_t>& lone_surrogates)
      : max_depth_(std::min(limits.max_depth, kMaxDepth)),
        max_values_(limits.max_values),
        size_(size),
        lone_surrogates_(lone_surrogates) {}

  // The names and signatures below are the library's.
  // NOLINTBEGIN(readability-identifier-naming)
  bool null() { return Add(JsonValue()); }
  bool boolean(bool value) { return AddAs<bool>(value); }
  bool number_integer(number_integer_t value) { return AddAs<int64_t>(value); }
  bool number_unsigned(number_unsigned_t value) {
    constexpr auto kMax =
        static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    if (value > kMax) return AddAs<uint64_t>(value);
    return AddAs<int64_t>(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) {
    return AddAs<double>(value);
  }
  bool string(string_t& value) {
    const bool lone = NextStringHasLoneSurrogate();
    return AddAs<JsonValue::String>(JsonValue::String{std::move(value), lone});
  }
  bool binary(binary_t&) { return false; }
  bool start_object(size_t) { return Open(JsonValue::Object()); }
  bool key(string_t& value) {
    Frame& frame = open_.back();
    frame.key = std::move(value);
    frame.key_has_lone_surrogate = NextStringHasLoneSurrogate();
    return true;
  }
  bool end_object() {
    SortMembers(std::get<JsonValue::Object>(open_.back().value.value_));
    return Close();
  }
  bool start_array(size_t) { return Open(JsonValue::Array()); }
  bool end_array() { return Close(); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) {
    // `position` counts the bytes read, the one at fault included. The text of
    // `error` quotes the input and is not used.
    if (position > size_) {
      status_ = MalformedAt("the text ends too early,", size_);
    } else if (error.id == kNumberOverflowId) {
      status_ = MalformedAt("a number is out of range", position - 1);
    } else {
      status_ = MalformedAt("syntax error", position == 0 ? 0 : position - 1);
    }
    return false;
  }
  // NOLINTEND(readability-identifier-naming)

  const absl::Status& status() const { return status_; }
  JsonValue TakeRoot() { return std::move(root_); }

 private:
  // out_of_range.406
  static constexpr int kNumberOverflowId = 406;

  // A container that is still open, and the key its next member will have.
  struct Frame {
    JsonValue value;
    std::string key;
    bool key_has_lone_surrogate = false;
  };

  bool NextStringHasLoneSurrogate() {
    const size_t ordinal = next_string_++;
    if (next_lone_ == lone_surrogates_.size() ||
        lone_surrogates_[next_lone_] != ordinal) {
      return false;
    }
    ++next_lone_;
    return true;
  }

  bool CountValue() {
    if (++values_ <= max_values_) return true;
    status_ = Malformed(
        absl::StrCat("more than ", max_values_, " values in one text"));
    return false;
  }

  template <typename T>
  bool AddAs(T content) {
    JsonValue value;
    value.value_.emplace<T>(std::move(content));
    return Add(std::move(value));
  }

  bool Add(JsonValue value) {
    if (!CountValue()) return false;
    Place(std::move(value));
    return true;
  }

  void Place(JsonValue value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    Frame& frame = open_.back();
    if (auto* array = std::get_if<JsonValue::Array>(&frame.value.value_)) {
      array->push_back(std::move(value));
    } else {
      std::get<JsonValue::Object>(frame.value.value_)
          .push_back(JsonMember{std::move(frame.key),
                                frame.key_has_lone_surrogate,
                                std::move(value)});
    }
  }

  template <typename Container>
  bool Open(Container container) {
    if (open_.size() >= max_depth_) {
      status_ =
          Malformed(absl::StrCat("nested deeper than ", max_depth_, " levels"));
      return false;
    }
    if (!CountValue()) return false;
    Frame frame;
    frame.value.value_.emplace<Container>(std::move(container));
    open_.push_back(std::move(frame));
    return true;
  }

  bool Close() {
    JsonValue value = std::move(open_.back().value);
    open_.pop_back();
    Place(std::move(value));
    return true;
  }

  // Stable. Providers print their objects nearly sorted ("id" and "object"
  // first), which insertion does in one pass.
  static void SortByKey(JsonValue::Object& members) {
    constexpr size_t kFewMembers = 64;
    if (members.size() > kFewMembers) {
      std::stable_sort(members.begin(), members.end(), KeyLess);
      return;
    }
    for (auto next = members.begin(); next != members.end(); ++next) {
      if (next == members.begin() || !KeyLess(*next, *(next - 1))) continue;
      std::rotate(std::upper_bound(members.begin(), next, *next, KeyLess), next,
                  next + 1);
    }
  }

  // Sorts, and keeps the last member of each key. Keys with a lone surrogate
  // are not compared with each other: U+FFFD may stand for different ones.
  static void SortMembers(JsonValue::Object& members) {
    SortByKey(members);
    size_t kept = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      const bool superseded = i + 1 < members.size() &&
                              !members[i + 1].key_has_lone_surrogate &&
                              members[i].key == members[i + 1].key;
      if (superseded) continue;
      if (kept != i) members[kept] = std::move(members[i]);
      ++kept;
    }
    members.erase(members.begin() + static_cast<std::ptrdiff_t>(kept),
                  members.end());
    // Many texts have thousands of small objects; half-empty ones add up.
    members.shrink_to_fit();
  }

  const size_t max_depth_;
  const size_t max_values_;
  const size_t size_;
  const std::vector<size_t>& lone_surrogates_;
  size_t next_lone_ = 0;
  size_t next_string_ = 0;
  size_t values_ = 0;
  std::vector<Frame> open_;
  JsonValue root_;
  absl::Status status_;
};

JsonValue::JsonValue() = default;
JsonValue::JsonValue(JsonValue&&) noexcept = default;
JsonValue& JsonValue::operator=(JsonValue&&) noexcept = default;
JsonValue::~JsonValue() = default;

bool JsonValue::IsNull() const {
  return std::holds_alternative<std::monostate>(value_);
}
bool JsonValue::IsBool() const { return std::holds_alternative<bool>(value_); }
bool JsonValue::IsNumber() const {
  return std::holds_alternative<int64_t>(value_) ||
         std::holds_alternative<uint64_t>(value_) ||
         std::holds_alternative<double>(value_);
}
bool JsonValue::IsString() const {
  return std::holds_alternative<String>(value_);
}
bool JsonValue::IsArray() const {
  return std::holds_alternative<Array>(value_);
}
bool JsonValue::IsObject() const {
  return std::holds_alternative<Object>(value_);
}

std::optional<bool> JsonValue::AsBool() const {
  if (const bool* value = std::get_if<bool>(&value_)) return *value;
  return std::nullopt;
}

std::optional<int64_t> JsonValue::AsInt64() const {
  if (const int64_t* value = std::get_if<int64_t>(&value_)) return *value;
  return std::nullopt;
}

std::optional<double> JsonValue::AsDouble() const {
  if (const auto* value = std::get_if<double>(&value_)) return *value;
  if (const auto* value = std::get_if<int64_t>(&value_)) {
    return static_cast<double>(*value);
  }
  if (const auto* value = std::get_if<uint64_t>(&value_)) {
    return static_cast<double>(*value);
  }
  return std::nullopt;
}

std::optional<absl::string_view> JsonValue::AsString() const {
  const auto* string = std::get_if<String>(&value_);
  if (string == nullptr || string->lone_surrogate) return std::nullopt;
  return absl::string_view(string->text);
}

bool JsonValue::has_lone_surrogate() const {
  const auto* string = std::get_if<String>(&value_);
  return string != nullptr && string->lone_surrogate;
}

const JsonValue* JsonValue::Find(absl::string_view key) const {
  const auto* object = std::get_if<Object>(&value_);
  if (object == nullptr) return nullptr;
  const auto found = std::lower_bound(
      object->begin(), object->end(), key,
      [](const JsonMember& member, absl::string_view wanted) {
        return !member.key_has_lone_surrogate && member.key < wanted;
      });
  if (found == object->end() || found->key_has_lone_surrogate ||
      found->key != key) {
    return nullptr;
  }
  return &found->value;
}

const JsonValue* JsonValue::At(
    std::initializer_list<absl::string_view> path) const {
  const JsonValue* value = this;
  for (const absl::string_view key : path) {
    value = value->Find(key);
    if (value == nullptr) return nullptr;
  }
  return value;
}

absl::Span<const JsonValue> JsonValue::items() const {
  const auto* array = std::get_if<Array>(&value_);
  if (array == nullptr) return {};
  return *array;
}

absl::Span<const JsonMember> JsonValue::members() const {
  const auto* object = std::get_if<Object>(&value_);
  if (object == nullptr) return {};
  return *object;
}

absl::StatusOr<JsonValue> ParseJson(absl::string_view bytes,
                                    const JsonLimits& limits) {
  if (bytes.size() > limits.max_bytes) {
    return Malformed(absl::StrCat("larger than ", limits.max_bytes, " bytes"));
  }
  // The library would skip the mark and take a NUL for the end of the text.
  if (absl::ConsumePrefix(&bytes, "\xEF\xBB\xBF")) {
    return MalformedAt("a byte order mark is not allowed", 0);
  }
  if (const size_t at = bytes.find('\0'); at != absl::string_view::npos) {
    return MalformedAt("a raw NUL byte", at);
  }
  if (!IsValidUtf8(bytes)) {
    return MalformedAt("invalid UTF-8", FirstInvalidUtf8(bytes));
  }
  try {
    std::vector<size_t> lone_surrogates;
    const std::string text = ReplaceLoneSurrogates(bytes, &lone_surrogates);
    JsonTreeBuilder builder(limits, text.size(), lone_surrogates);
    if (!nlohmann::json::sax_parse(text, &builder)) {
      if (!builder.status().ok()) return builder.status();
      return Malformed("syntax error");
    }
    return builder.TakeRoot();
  } catch (const std::bad_alloc&) {
    return OverloadedError("memory");
  } catch (const std::exception&) {
    return Malformed("cannot be read");
  }
}

}  // namespace tenure
