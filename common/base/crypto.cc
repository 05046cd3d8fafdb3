#include "common/base/crypto.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tenure {
namespace {

[[noreturn]] void Die(const char* what) {
  // Not through the logger, which takes its request ids from here.
  std::fprintf(stderr, "fatal: OpenSSL failed: %s\n", what);
  std::abort();
}

unsigned char* AsBytes(std::string& text) {
  return reinterpret_cast<unsigned char*>(text.data());
}

const unsigned char* AsBytes(absl::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

struct MacContextDeleter {
  void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
};

struct KeyDeleter {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};

struct DigestContextDeleter {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

// The y coordinates of the eight points whose order divides 8, and those that
// name the same points by a number beyond the prime, in lower-case hex of the
// little-endian encoding without the sign bit.
constexpr absl::string_view kSmallOrderPoints[] = {
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
};

int Base64Digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return -1;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string Sha256(absl::string_view bytes) {
  std::string digest(kSha256Bytes, '\0');
  unsigned int length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), AsBytes(digest), &length,
                 EVP_sha256(), nullptr) != 1 ||
      length != kSha256Bytes) {
    Die("SHA-256");
  }
  return digest;
}

absl::StatusOr<std::string> HmacSha256(
    absl::string_view key, absl::Span<const absl::string_view> pieces) {
  if (key.empty()) {
    return InternalError(
        "HMAC with an empty key is impossible by construction");
  }
  // Fetched once: a fetch walks the providers under a lock.
  static EVP_MAC* const mac = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
  if (mac == nullptr) Die("HMAC is not available");
  const std::unique_ptr<EVP_MAC_CTX, MacContextDeleter> context(
      EVP_MAC_CTX_new(mac));
  char digest_name[] = "SHA256";
  const OSSL_PARAM params[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest_name, 0),
      OSSL_PARAM_construct_end()};
  if (context == nullptr ||
      EVP_MAC_init(context.get(), AsBytes(key), key.size(), params) != 1) {
    Die("HMAC init");
  }
  for (const absl::string_view piece : pieces) {
    if (piece.empty()) continue;
    if (EVP_MAC_update(context.get(), AsBytes(piece), piece.size()) != 1) {
      Die("HMAC update");
    }
  }
  std::string result(kSha256Bytes, '\0');
  size_t length = 0;
  if (EVP_MAC_final(context.get(), AsBytes(result), &length, result.size()) !=
          1 ||
      length != kSha256Bytes) {
    Die("HMAC final");
  }
  return result;
}

bool ConstantTimeEquals(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  return a.empty() || CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

bool IsEd25519PublicKey(absl::string_view public_key) {
  if (public_key.size() != kEd25519PublicKeyBytes) return false;
  std::string point(public_key);
  point.back() = static_cast<char>(point.back() & 0x7F);
  const std::string hex = HexEncode(point);
  return std::find(std::begin(kSmallOrderPoints), std::end(kSmallOrderPoints),
                   hex) == std::end(kSmallOrderPoints);
}

bool Ed25519Verify(absl::string_view public_key, absl::string_view message,
                   absl::string_view signature) {
  if (!IsEd25519PublicKey(public_key) ||
      signature.size() != kEd25519SignatureBytes) {
    return false;
  }
  const std::unique_ptr<EVP_PKEY, KeyDeleter> key(EVP_PKEY_new_raw_public_key(
      EVP_PKEY_ED25519, nullptr, AsBytes(public_key), public_key.size()));
  const std::unique_ptr<EVP_MD_CTX, DigestContextDeleter> context(
      EVP_MD_CTX_new());
  if (key == nullptr || context == nullptr ||
      EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr,
                           key.get()) != 1) {
    Die("Ed25519 init");
  }
  const bool valid =
      EVP_DigestVerify(context.get(), AsBytes(signature), signature.size(),
                       AsBytes(message), message.size()) == 1;
  // What was wrong with it stays in a queue of this thread otherwise, and the
  // next user of OpenSSL takes it for an error of its own.
  if (!valid) ERR_clear_error();
  return valid;
}

std::string Base64Encode(absl::string_view bytes) {
  return absl::Base64Escape(bytes);
}

std::optional<std::string> Base64Decode(absl::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && !text.empty() && text.back() == '=') {
    text.remove_suffix(1);
    ++padding;
  }
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  unsigned int bits = 0;
  int bit_count = 0;
  for (const char c : text) {
    const int digit = Base64Digit(c);
    if (digit < 0) return std::nullopt;
    bits = (bits << 6) | static_cast<unsigned int>(digit);
    bit_count += 6;
    if (bit_count < 8) continue;
    bit_count -= 8;
    bytes.push_back(static_cast<char>(bits >> bit_count));
    bits &= (1U << bit_count) - 1;
  }
  if (bits != 0) return std::nullopt;
  return bytes;
}

std::string HexEncode(absl::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 0xF]);
  }
  return hex;
}

std::optional<std::string> HexDecode(absl::string_view hex) {
  if (hex.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  bytes.reserve(hex.size() / 2);
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = HexDigit(hex[i]);
    const int low = HexDigit(hex[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(high * 16 + low));
  }
  return bytes;
}

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  if (count > 0 && RAND_bytes(AsBytes(bytes), static_cast<int>(count)) != 1) {
    Die("random bytes");
  }
  return bytes;
}

std::string RandomUuid() {
  std::string bytes = RandomBytes(16);
  bytes[6] = static_cast<char>((bytes[6] & 0x0F) | 0x40);
  bytes[8] = static_cast<char>((bytes[8] & 0x3F) | 0x80);
  const std::string hex = HexEncode(bytes);
  const absl::string_view view = hex;
  return absl::StrCat(view.substr(0, 8), "-", view.substr(8, 4), "-",
                      view.substr(12, 4), "-", view.substr(16, 4), "-",
                      view.substr(20));
}

}  // namespace tenure
