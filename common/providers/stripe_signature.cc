#include "common/providers/stripe_signature.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/base/crypto.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tenure::providers {
namespace {

absl::Status Malformed(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   common::v1::ERROR_REASON_SIGNATURE_HEADER_MALFORMED, what);
}

absl::Status Invalid(absl::string_view what) {
  return MakeError(absl::StatusCode::kUnauthenticated,
                   common::v1::ERROR_REASON_SIGNATURE_INVALID, what);
}

// Digits only: SimpleAtoi alone would take "+5" and " 5". And one spelling a
// number: the provider's own verifier signs the number, not its text.
std::optional<int64_t> ParseSeconds(absl::string_view text) {
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(),
                                                   absl::ascii_isdigit);
  const bool padded = text.size() > 1 && text.front() == '0';
  int64_t seconds = 0;
  if (!digits || padded || !absl::SimpleAtoi(text, &seconds))
    return std::nullopt;
  return seconds;
}

}  // namespace

absl::StatusOr<std::string> VerifyStripeSignature(
    absl::string_view header, absl::string_view body,
    absl::Span<const SigningSecret> secrets, absl::Time now,
    absl::Duration tolerance) {
  if (header.empty()) return Invalid("the Stripe-Signature header is missing");
  if (header.size() > kMaxStripeSignatureHeaderBytes) {
    return Malformed("the Stripe-Signature header is too long");
  }
  std::optional<absl::string_view> timestamp;
  std::vector<absl::string_view> signatures;
  size_t entries = 0;
  for (const absl::string_view entry : absl::StrSplit(header, ',')) {
    if (++entries > kMaxStripeSignatureEntries) {
      return Malformed("the Stripe-Signature header has too many entries");
    }
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(entry, absl::MaxSplits('=', 1));
    if (pair.first == "t") {
      if (timestamp.has_value()) {
        return Malformed("the Stripe-Signature header has two timestamps");
      }
      timestamp = pair.second;
    } else if (pair.first == "v1" && !pair.second.empty()) {
      signatures.push_back(pair.second);
    }
  }
  if (signatures.empty()) {
    return Invalid("the Stripe-Signature header has no v1 signature");
  }
  if (!timestamp.has_value()) {
    return Malformed("the Stripe-Signature header has no timestamp");
  }
  const std::optional<int64_t> seconds = ParseSeconds(*timestamp);
  if (!seconds.has_value()) {
    return Malformed(
        "the timestamp of the Stripe-Signature header is not a "
        "number of seconds");
  }

  const SigningSecret* vouching = nullptr;
  for (const SigningSecret& secret : secrets) {
    ASSIGN_OR_RETURN(
        const std::string digest,
        HmacSha256(secret.secret.Reveal(), {*timestamp, ".", body}));
    const std::string expected = HexEncode(digest);
    // No early exit: the work does not tell which secret matched.
    bool matches = false;
    for (const absl::string_view signature : signatures) {
      matches |= ConstantTimeEquals(signature, expected);
    }
    if (matches && vouching == nullptr) vouching = &secret;
  }
  if (vouching == nullptr) return Invalid("no signature matches");

  const absl::Duration distance = now - absl::FromUnixSeconds(*seconds);
  if (distance > tolerance || distance < -tolerance) {
    return MakeError(
        absl::StatusCode::kUnauthenticated,
        common::v1::ERROR_REASON_SIGNATURE_TIMESTAMP_OUT_OF_TOLERANCE,
        "the signed timestamp is too far from the present");
  }
  return vouching->name;
}

}  // namespace tenure::providers
