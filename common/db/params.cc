#include "common/db/params.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace tenure::db {
namespace {

// One element of an array literal.
void AppendElement(absl::string_view value, std::string& array) {
  array.push_back('"');
  for (;;) {
    // Bodies are long and have one such character, at their beginning.
    const size_t special = value.find_first_of("\"\\");
    array.append(value.data(), std::min(special, value.size()));
    if (special == absl::string_view::npos) break;
    array.push_back('\\');
    array.push_back(value[special]);
    value.remove_prefix(special + 1);
  }
  array.push_back('"');
}

}  // namespace

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
    AppendElement(value, text);
  }
  text.push_back('}');
  values_.emplace_back(std::move(text));
  return *this;
}

Params& Params::AddNull() {
  values_.emplace_back(std::nullopt);
  return *this;
}

void RowArrays::AddValues(const Params& row) {
  const auto& values = row.values();
  for (size_t i = 0; i < columns_.size(); ++i) {
    std::string& column = columns_[i];
    if (size_ > 0) column.push_back(',');
    if (i < values.size() && values[i].has_value()) {
      AppendElement(*values[i], column);
    } else {
      column += "NULL";
    }
  }
  ++size_;
}

void RowArrays::AppendTo(Params& params) const {
  for (const std::string& column : columns_) params.Add(column + "}");
}

Params RowArrays::ToParams() const {
  Params params;
  AppendTo(params);
  return params;
}

}  // namespace tenure::db
