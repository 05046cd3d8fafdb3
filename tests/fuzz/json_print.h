#ifndef TENURE_TESTS_FUZZ_JSON_PRINT_H_
#define TENURE_TESTS_FUZZ_JSON_PRINT_H_

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>

#include "common/base/json.h"
#include "tests/fuzz/fuzz.h"

namespace tenure::fuzz {

// A value printed again, with other spaces and escapes than it came with.
struct PrintedJson {
  std::string text;
  // A lone surrogate has no UTF-8, so such a value is not printed.
  bool printable = true;
  size_t depth = 0;
  size_t values = 0;
};

inline void PrintJsonString(absl::string_view text, PrintedJson* out) {
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

inline void PrintJson(const JsonValue& value, size_t depth, PrintedJson* out) {
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
      PrintJsonString(*value.AsString(), out);
    }
  } else if (value.IsArray()) {
    out->depth = std::max(out->depth, depth + 1);
    out->text += '[';
    for (const JsonValue& item : value.items()) {
      PrintJson(item, depth + 1, out);
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
      PrintJsonString(member.key, out);
      out->text += ':';
      PrintJson(member.value, depth + 1, out);
      out->text += ',';
    }
    if (!value.members().empty()) out->text.pop_back();
    out->text += '}';
  }
}

}  // namespace tenure::fuzz

#endif  // TENURE_TESTS_FUZZ_JSON_PRINT_H_
