#include "common/db/params.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace tenure::db {

Params& Params::Add(bool value) {
  values_.emplace_back(value ? "t" : "f");
  return *this;
}

Params& Params::Add(int64_t value) {
  values_.emplace_back(absl::StrCat(value));
  return *this;
}

Params& Params::Add(absl::string_view value) {
  values_.emplace_back(std::string(value));
  return *this;
}

Params& Params::Add(const Bytes& value) {
  values_.emplace_back(
      absl::StrCat("\\x", absl::BytesToHexString(value.value)));
  return *this;
}

Params& Params::Add(absl::Time value) {
  if (value == absl::InfiniteFuture() || value == absl::InfinitePast()) {
    return AddNull();
  }
  values_.emplace_back(
      absl::FormatTime("%E4Y-%m-%d %H:%M:%E6S+00", value, absl::UTCTimeZone()));
  return *this;
}

Params& Params::Add(absl::Duration value) {
  values_.emplace_back(
      absl::StrCat(absl::ToInt64Microseconds(value), " microseconds"));
  return *this;
}

Params& Params::Add(const std::vector<int64_t>& values) {
  std::string text = "{";
  for (const int64_t value : values) {
    if (text.size() > 1) text.push_back(',');
    absl::StrAppend(&text, value);
  }
  text.push_back('}');
  values_.emplace_back(std::move(text));
  return *this;
}

Params& Params::Add(const std::vector<std::string>& values) {
  std::string text = "{";
  for (const std::string& value : values) {
    if (text.size() > 1) text.push_back(',');
    text.push_back('"');
    for (const char c : value) {
      if (c == '"' || c == '\\') text.push_back('\\');
      text.push_back(c);
    }
    text.push_back('"');
  }
  text.push_back('}');
  values_.emplace_back(std::move(text));
  return *this;
}

Params& Params::AddNull() {
  values_.emplace_back(std::nullopt);
  return *this;
}

}  // namespace tenure::db
