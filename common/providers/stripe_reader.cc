#include "common/providers/stripe_reader.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error.h"
#include "common/base/proto_time.h"

namespace tenure::providers {

absl::Status StripeMalformed(absl::string_view field,
                             absl::string_view expected) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   common::v1::ERROR_REASON_EVENT_MALFORMED,
                   absl::StrCat(field, ": ", expected),
                   {{"field", std::string(field)}});
}

std::string TextReader::At(const JsonValue& value, JsonPath path) {
  const JsonValue* found = value.At(path);
  if (found != nullptr && found->IsObject()) found = found->Find("id");
  if (found == nullptr || !found->IsString()) return "";
  if (found->has_lone_surrogate()) {
    status_.Update(
        StripeMalformed(absl::StrJoin(path, "."), "must be well-formed text"));
    return "";
  }
  const absl::string_view text = *found->AsString();
  if (!ValidateText("", text, 255).ok()) return "";
  return std::string(text);
}

std::string TextReader::First(const JsonValue& value,
                              std::initializer_list<JsonPath> paths) {
  for (const JsonPath& path : paths) {
    std::string text = At(value, path);
    if (!text.empty()) return text;
  }
  return "";
}

std::optional<absl::Time> InstantAt(const JsonValue& value, JsonPath path) {
  constexpr int64_t kYear1 = -62135596800;
  constexpr int64_t kYear10000 = 253402300800;
  const JsonValue* found = value.At(path);
  if (found == nullptr) return std::nullopt;
  const std::optional<int64_t> seconds = found->AsInt64();
  if (!seconds || *seconds < kYear1 || *seconds >= kYear10000) {
    return std::nullopt;
  }
  return absl::FromUnixSeconds(*seconds);
}

bool IsBadInstant(const JsonValue& value, JsonPath path) {
  const JsonValue* found = value.At(path);
  return found != nullptr && !found->IsNull() && found->AsString() != "" &&
         !InstantAt(value, path);
}

int64_t AmountAt(const JsonValue& value, JsonPath path) {
  const JsonValue* found = value.At(path);
  return found == nullptr ? 0 : found->AsInt64().value_or(0);
}

bool IsTrue(const JsonValue& value, JsonPath path) {
  const JsonValue* found = value.At(path);
  return found != nullptr && found->AsBool().value_or(false);
}

Fact MakeFact(subscription::v1::FactLayer layer, const ProviderEvent& event) {
  Fact fact;
  fact.set_layer(layer);
  *fact.mutable_order_at() = ToProto(event.occurred_at);
  return fact;
}

}  // namespace tenure::providers
