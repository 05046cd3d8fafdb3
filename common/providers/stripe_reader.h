#ifndef TENURE_COMMON_PROVIDERS_STRIPE_READER_H_
#define TENURE_COMMON_PROVIDERS_STRIPE_READER_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/json.h"
#include "common/providers/provider_adapter.h"

namespace tenure::providers {

using JsonPath = std::initializer_list<absl::string_view>;

// INVALID_ARGUMENT with EVENT_MALFORMED, naming the field and never its
// content.
absl::Status StripeMalformed(absl::string_view field,
                             absl::string_view expected);

// Reads the texts of one event.
class TextReader {
 public:
  // The text at a path, or the `id` of an expanded object there. Empty when it
  // is absent, null, no text, or text that no id can be (control characters,
  // more than 255 bytes).
  std::string At(const JsonValue& value, JsonPath path);
  // The first that is not empty.
  std::string First(const JsonValue& value,
                    std::initializer_list<JsonPath> paths);

  // The first text read that was half a character (C032). Whoever put it there
  // means a name that cannot be known, so the event must not be taken for one
  // without that name.
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

// Unix seconds within the years 1..9999 (C070); nullopt for anything else.
std::optional<absl::Time> InstantAt(const JsonValue& value, JsonPath path);

// True where something stands that InstantAt cannot read. Absent, null and ""
// are no instant and not a bad one (C069).
bool IsBadInstant(const JsonValue& value, JsonPath path);

// An amount in minor units; 0 when it is absent or no integer.
int64_t AmountAt(const JsonValue& value, JsonPath path);

bool IsTrue(const JsonValue& value, JsonPath path);

// A fact of `event`, without a kind.
Fact MakeFact(subscription::v1::FactLayer layer, const ProviderEvent& event);

}  // namespace tenure::providers

#endif  // TENURE_COMMON_PROVIDERS_STRIPE_READER_H_
