#ifndef TENURE_COMMON_BASE_CRYPTO_H_
#define TENURE_COMMON_BASE_CRYPTO_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tenure {

// Digests and randomness over OpenSSL's EVP interface. All functions are
// thread-safe. A failure of OpenSSL itself (out of memory, no entropy) ends
// the process: nothing that is signed or unique can be made after it.

inline constexpr size_t kSha256Bytes = 32;

// SHA-256 of `bytes`: 32 raw bytes.
std::string Sha256(absl::string_view bytes);

// HMAC-SHA-256 over the concatenation of `pieces`, which are not copied:
// HmacSha256(key, {timestamp, ".", body}). 32 raw bytes. INTERNAL when `key` is
// empty, so that a missing secret can never verify anything (C023).
absl::StatusOr<std::string> HmacSha256(
    absl::string_view key, absl::Span<const absl::string_view> pieces);

// Equality in a time that depends on the lengths alone.
bool ConstantTimeEquals(absl::string_view a, absl::string_view b);

inline constexpr size_t kEd25519PublicKeyBytes = 32;
inline constexpr size_t kEd25519SignatureBytes = 64;

// Whether these raw bytes can be somebody's Ed25519 public key. False for
// another length and for the points of small order, all zeros among them: under
// such a key anybody can sign (C023).
bool IsEd25519PublicKey(absl::string_view public_key);

// Whether `signature` over `message` was made with the private half of
// `public_key` (RFC 8032, pure Ed25519). False for anything that is no key or
// no signature.
bool Ed25519Verify(absl::string_view public_key, absl::string_view message,
                   absl::string_view signature);

// Base64 with the alphabet of RFC 4648 section 4, padded.
std::string Base64Encode(absl::string_view bytes);
// Reads what Base64Encode writes and nothing else: no white space, no missing
// padding, no bits behind the last byte. So bytes have one text only, and a
// changed text never means the same bytes.
std::optional<std::string> Base64Decode(absl::string_view text);

// Lower-case hex digits.
std::string HexEncode(absl::string_view bytes);
// Reads pairs of hex digits of either case; nullopt for anything else,
// including an odd count, spaces and a "0x".
std::optional<std::string> HexDecode(absl::string_view hex);

// `count` bytes from the cryptographic random generator.
std::string RandomBytes(size_t count);

// A random (version 4) UUID in its lower-case text form.
std::string RandomUuid();

}  // namespace tenure

#endif  // TENURE_COMMON_BASE_CRYPTO_H_
