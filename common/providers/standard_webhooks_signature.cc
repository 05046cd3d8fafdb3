#include "common/providers/standard_webhooks_signature.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/crypto.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tenure::providers {
namespace {

absl::Status Malformed(absl::string_view header, absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   common::v1::ERROR_REASON_SIGNATURE_HEADER_MALFORMED,
                   absl::StrCat("the ", header, " header ", what));
}

absl::Status Invalid(absl::string_view what) {
  return MakeError(absl::StatusCode::kUnauthenticated,
                   common::v1::ERROR_REASON_SIGNATURE_INVALID, what);
}

absl::Status BadKey(const SigningSecret& key, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the key '", key.name, "' ", what));
}

// A header that has to be there, once: of two, one might be checked and the
// other believed.
absl::StatusOr<absl::string_view> RequiredHeader(const Delivery& delivery,
                                                 absl::string_view name) {
  absl::string_view found;
  int count = 0;
  for (const auto& [key, value] : delivery.headers) {
    if (!absl::EqualsIgnoreCase(key, name)) continue;
    found = value;
    ++count;
  }
  if (found.empty()) {
    return Invalid(absl::StrCat("the ", name, " header is missing"));
  }
  if (count > 1) return Malformed(name, "is there twice");
  if (found.size() > kMaxStandardWebhooksHeaderBytes) {
    return Malformed(name, "is too long");
  }
  return found;
}

// Digits only: SimpleAtoi alone would take "+5" and " 5".
std::optional<int64_t> ParseSeconds(absl::string_view text) {
  const bool digits =
      std::all_of(text.begin(), text.end(),
                  [](unsigned char c) { return absl::ascii_isdigit(c); });
  int64_t seconds = 0;
  if (!digits || !absl::SimpleAtoi(text, &seconds)) return std::nullopt;
  return seconds;
}

struct Signatures {
  // In base64, as sent.
  std::vector<absl::string_view> v1;
  // In raw bytes.
  std::vector<std::string> v1a;
};

absl::StatusOr<Signatures> ParseSignatures(absl::string_view header) {
  Signatures signatures;
  size_t entries = 0;
  std::vector<absl::string_view> v1a;
  for (const absl::string_view entry : absl::StrSplit(header, ' ')) {
    if (++entries > kMaxStandardWebhooksSignatures) {
      return Malformed("webhook-signature", "has too many entries");
    }
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(entry, absl::MaxSplits(',', 1));
    if (pair.second.empty()) continue;
    if (pair.first == "v1") signatures.v1.push_back(pair.second);
    if (pair.first == "v1a") v1a.push_back(pair.second);
  }
  for (const absl::string_view text : v1a) {
    std::optional<std::string> bytes = Base64Decode(text);
    if (bytes && bytes->size() == kEd25519SignatureBytes) {
      signatures.v1a.push_back(*std::move(bytes));
    }
  }
  return signatures;
}

}  // namespace

StandardWebhooksKey::StandardWebhooksKey(std::string name, Kind kind,
                                         Secret bytes)
    : name_(std::move(name)), kind_(kind), bytes_(std::move(bytes)) {}

absl::StatusOr<StandardWebhooksKey> StandardWebhooksKey::Parse(
    const SigningSecret& key) {
  absl::string_view text = key.secret.Reveal();
  if (absl::StartsWith(text, "whsk_")) {
    return BadKey(key, "is a private key: the public one (whpk_) is needed");
  }
  const bool is_public = absl::ConsumePrefix(&text, "whpk_");
  if (!is_public) absl::ConsumePrefix(&text, "whsec_");
  std::optional<std::string> decoded = Base64Decode(text);
  if (!decoded) {
    return BadKey(key, "is no base64, with or without whsec_ or whpk_");
  }
  Secret bytes(*std::move(decoded));
  const size_t size = bytes.Reveal().size();
  if (is_public) {
    if (!IsEd25519PublicKey(bytes.Reveal())) {
      return BadKey(key, "is no Ed25519 public key");
    }
    return StandardWebhooksKey(key.name, Kind::kPublic, std::move(bytes));
  }
  if (size < kMinStandardWebhooksKeyBytes ||
      size > kMaxStandardWebhooksKeyBytes) {
    return BadKey(
        key, absl::StrCat("must be ", kMinStandardWebhooksKeyBytes, " to ",
                          kMaxStandardWebhooksKeyBytes, " bytes in base64"));
  }
  return StandardWebhooksKey(key.name, Kind::kShared, std::move(bytes));
}

absl::StatusOr<std::string> VerifyStandardWebhooksSignature(
    const Delivery& delivery, absl::Span<const StandardWebhooksKey> keys,
    absl::Time now, absl::Duration tolerance) {
  ASSIGN_OR_RETURN(const absl::string_view id,
                   RequiredHeader(delivery, "webhook-id"));
  ASSIGN_OR_RETURN(const absl::string_view timestamp,
                   RequiredHeader(delivery, "webhook-timestamp"));
  ASSIGN_OR_RETURN(const absl::string_view header,
                   RequiredHeader(delivery, "webhook-signature"));
  ASSIGN_OR_RETURN(const Signatures signatures, ParseSignatures(header));
  if (signatures.v1.empty() && signatures.v1a.empty()) {
    return Invalid("the webhook-signature header has no v1 or v1a signature");
  }
  const std::optional<int64_t> seconds = ParseSeconds(timestamp);
  if (!seconds)
    return Malformed("webhook-timestamp", "is no number of seconds");

  const StandardWebhooksKey* vouching = nullptr;
  // Ed25519 reads the text in one piece.
  std::string signed_text;
  for (const StandardWebhooksKey& key : keys) {
    // No early exit: the work does not tell which key matched.
    bool matches = false;
    if (key.kind() == StandardWebhooksKey::Kind::kShared) {
      if (signatures.v1.empty()) continue;
      ASSIGN_OR_RETURN(
          const std::string digest,
          HmacSha256(key.Reveal(), {id, ".", timestamp, ".", delivery.body}));
      const std::string expected = Base64Encode(digest);
      for (const absl::string_view signature : signatures.v1) {
        matches |= ConstantTimeEquals(signature, expected);
      }
    } else if (!signatures.v1a.empty()) {
      if (signed_text.empty()) {
        signed_text = absl::StrCat(id, ".", timestamp, ".", delivery.body);
      }
      for (const std::string& signature : signatures.v1a) {
        matches |= Ed25519Verify(key.Reveal(), signed_text, signature);
      }
    }
    if (matches && vouching == nullptr) vouching = &key;
  }
  if (vouching == nullptr) return Invalid("no signature matches");

  const absl::Duration distance = now - absl::FromUnixSeconds(*seconds);
  if (distance > tolerance || distance < -tolerance) {
    return MakeError(
        absl::StatusCode::kUnauthenticated,
        common::v1::ERROR_REASON_SIGNATURE_TIMESTAMP_OUT_OF_TOLERANCE,
        "the signed timestamp is too far from the present");
  }
  return vouching->name();
}

}  // namespace tenure::providers
