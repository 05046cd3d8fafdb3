// The bounded JSON reader: a value or INVALID_ARGUMENT; what it accepts is
// valid UTF-8 within the limits, means the same when it is printed and read
// again, and is a whole text (neither a longer nor a shorter one is accepted).
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "common/base/json.h"
#include "common/base/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/json_print.h"

namespace {

using tenure::JsonValue;
using tenure::fuzz::PrintedJson;
using tenure::fuzz::PrintJson;

// How deep the text is by its brackets, which stand in no string.
size_t DepthOf(const std::string& text) {
  size_t depth = 0;
  size_t deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;  // what is escaped ends nothing
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

// Whether a text that is JSON for the library is refused here for one of our
// rules: size, depth, number of values, no byte order mark, and no NUL, which
// the library takes for the end of the text (C031).
bool StricterRule(const std::string& text) {
  const tenure::JsonLimits limits;
  return text.size() > limits.max_bytes || DepthOf(text) > limits.max_depth ||
         text.size() > limits.max_values ||
         text.find('\0') != std::string::npos ||
         text.rfind("\xef\xbb\xbf", 0) == 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<JsonValue> value = tenure::ParseJson(input);
  // As the library reads texts by itself.
  const bool accepted_there = nlohmann::json::accept(input);
  if (!value.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(value.status()));
    FUZZ_CHECK(!accepted_there || StricterRule(input));
    return 0;
  }
  FUZZ_CHECK(tenure::IsValidUtf8(input));
  FUZZ_CHECK(size <= tenure::JsonLimits().max_bytes);
  PrintedJson printed;
  PrintJson(*value, 0, &printed);
  FUZZ_CHECK(printed.depth <= tenure::JsonLimits().max_depth);
  FUZZ_CHECK(printed.values <= tenure::JsonLimits().max_values);

  // The library refuses halves of characters, which are taken here where nobody
  // reads them (C032).
  FUZZ_CHECK(accepted_there || input.find("\\ud") != std::string::npos ||
             input.find("\\uD") != std::string::npos);

  // A member told twice counts once, so the text need not come back; what it
  // means does.
  if (printed.printable) {
    const absl::StatusOr<JsonValue> again = tenure::ParseJson(printed.text);
    FUZZ_CHECK(again.ok());
    PrintedJson reprinted;
    PrintJson(*again, 0, &reprinted);
    FUZZ_CHECK(printed.text == reprinted.text);
  }
  FUZZ_CHECK(!tenure::ParseJson(input + "x").ok());
  FUZZ_CHECK(!tenure::ParseJson(input + "{}").ok());
  if (value->IsArray() || value->IsObject() || value->IsString()) {
    const size_t last = input.find_last_not_of(" \t\r\n");
    FUZZ_CHECK(!tenure::ParseJson(input.substr(0, last)).ok());
  }
  return 0;
}
