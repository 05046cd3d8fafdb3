#include "common/base/crypto.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

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
