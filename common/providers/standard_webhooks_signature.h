#ifndef TENURE_COMMON_PROVIDERS_STANDARD_WEBHOOKS_SIGNATURE_H_
#define TENURE_COMMON_PROVIDERS_STANDARD_WEBHOOKS_SIGNATURE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/secret_file.h"
#include "common/providers/provider_adapter.h"
#include "common/providers/signing_secret.h"

namespace tenure::providers {

// Longer headers, and lists of more signatures, are refused before any digest
// is computed, so that one request cannot ask for many (C022).
inline constexpr size_t kMaxStandardWebhooksHeaderBytes = 8 * 1024;
inline constexpr size_t kMaxStandardWebhooksSignatures = 16;

// Bounds on the bytes of a symmetric key.
inline constexpr size_t kMinStandardWebhooksKeyBytes = 24;
inline constexpr size_t kMaxStandardWebhooksKeyBytes = 64;

// One live key. Of one kind for ever: the bytes of a public key, which anybody
// may know, never serve as a shared secret.
class StandardWebhooksKey {
 public:
  enum class Kind {
    // v1: HMAC-SHA-256.
    kShared,
    // v1a: Ed25519.
    kPublic,
  };

  // Reads a key as its file has it: "whsec_" and base64, or base64 alone, is a
  // shared secret of 24 to 64 bytes; "whpk_" and base64 a public key of 32
  // bytes. INVALID_ARGUMENT, naming the key and never its content, for all
  // else: an empty or short secret (C023), a private key ("whsk_"), a public
  // key under which anybody could sign.
  static absl::StatusOr<StandardWebhooksKey> Parse(const SigningSecret& key);

  const std::string& name() const { return name_; }
  Kind kind() const { return kind_; }
  // The raw bytes.
  absl::string_view Reveal() const { return bytes_.Reveal(); }

 private:
  StandardWebhooksKey(std::string name, Kind kind, Secret bytes);

  std::string name_;
  Kind kind_;
  Secret bytes_;
};

// Verifies the headers webhook-id, webhook-timestamp (Unix seconds) and
// webhook-signature ("v1,<base64>" and "v1a,<base64>", separated by spaces)
// over "<id>.<timestamp>.<body>". Any pair of a signature and a live key of its
// kind that matches is enough (both sides rotate); other versions are passed
// over. Shared-key comparison takes constant time. Returns the name of the
// first key that matches, in the order of `keys`.
//
// The timestamp must lie within `tolerance` of `now` in both directions,
// bounds included (C028).
//
// Errors: UNAUTHENTICATED SIGNATURE_INVALID (a header is absent or empty, no
// signature of a known version, nothing matches), UNAUTHENTICATED
// SIGNATURE_TIMESTAMP_OUT_OF_TOLERANCE, INVALID_ARGUMENT
// SIGNATURE_HEADER_MALFORMED.
absl::StatusOr<std::string> VerifyStandardWebhooksSignature(
    const Delivery& delivery, absl::Span<const StandardWebhooksKey> keys,
    absl::Time now, absl::Duration tolerance);

}  // namespace tenure::providers

#endif  // TENURE_COMMON_PROVIDERS_STANDARD_WEBHOOKS_SIGNATURE_H_
