// The bounded JSON reader: a value or INVALID_ARGUMENT; what it accepts is
// valid UTF-8 within the limits, means the same when it is printed and read
// again, and is a whole text (neither a longer nor a shorter one is accepted).
#include <cinttypes>
#include <cstring>
#include <string>

#include "common/base/json.h"
#include "common/base/utf8.h"
#include "tests/fuzz/fuzz.h"

namespace {

using tenure::JsonMember;
using tenure::JsonValue;

struct Printed {
  std::string text;
  // A lone surrogate has no UTF-8, so such a value is not printed.
  bool printable = true;
  size_t depth = 0;
  size_t values = 0;
};

void PrintString(absl::string_view text, Printed* out) {
  out->text += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out->text += '\\';
      out->text += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", c);
      out->text += escape;
    } else {
      out->text += c;
    }
  }
  out->text += '"';
}

void Print(const JsonValue& value, size_t depth, Printed* out) {
  ++out->values;
  const int kinds = value.IsNull() + value.IsBool() + value.IsNumber() +
                    value.IsString() + value.IsArray() + value.IsObject();
  FUZZ_CHECK(kinds == 1);
  if (value.IsNull()) {
    out->text += "null";
  } else if (value.IsBool()) {
    out->text += *value.AsBool() ? "true" : "false";
  } else if (value.IsNumber()) {
    char number[64];
    if (value.AsInt64()) {
      std::snprintf(number, sizeof(number), "%" PRId64, *value.AsInt64());
    } else {
      std::snprintf(number, sizeof(number), "%.17g", *value.AsDouble());
      // Without a point or an exponent it would come back as an integer.
      if (std::strpbrk(number, ".e") == nullptr) std::strcat(number, ".0");
    }
    out->text += number;
  } else if (value.IsString()) {
    FUZZ_CHECK(value.AsString().has_value() == !value.has_lone_surrogate());
    if (value.has_lone_surrogate()) {
      out->printable = false;
    } else {
      PrintString(*value.AsString(), out);
    }
  } else if (value.IsArray()) {
    out->depth = std::max(out->depth, depth + 1);
    out->text += '[';
    for (const JsonValue& item : value.items()) {
      Print(item, depth + 1, out);
      out->text += ',';
    }
    if (!value.items().empty()) out->text.pop_back();
    out->text += ']';
  } else {
    out->depth = std::max(out->depth, depth + 1);
    out->text += '{';
    for (const JsonMember& member : value.members()) {
      if (member.key_has_lone_surrogate) {
        out->printable = false;
      } else {
        FUZZ_CHECK(value.Find(member.key) == &member.value);
      }
      PrintString(member.key, out);
      out->text += ':';
      Print(member.value, depth + 1, out);
      out->text += ',';
    }
    if (!value.members().empty()) out->text.pop_back();
    out->text += '}';
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<JsonValue> value = tenure::ParseJson(input);
  if (!value.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(value.status()));
    return 0;
  }
  FUZZ_CHECK(tenure::IsValidUtf8(input));
  FUZZ_CHECK(size <= tenure::JsonLimits().max_bytes);
  Printed printed;
  Print(*value, 0, &printed);
  FUZZ_CHECK(printed.depth <= tenure::JsonLimits().max_depth);
  FUZZ_CHECK(printed.values <= tenure::JsonLimits().max_values);

  // A member told twice counts once, so the text need not come back; what it
  // means does.
  if (printed.printable) {
    const absl::StatusOr<JsonValue> again = tenure::ParseJson(printed.text);
    FUZZ_CHECK(again.ok());
    Printed reprinted;
    Print(*again, 0, &reprinted);
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
