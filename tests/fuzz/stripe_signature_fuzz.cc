// The header parser and verifier of Stripe signatures: never crashes, and
// names exactly the key that the few lines of Reference() name.
//
// Input: the header up to the first line end, then the body. No fuzzer guesses
// an HMAC, so "@A" and "@B" in the header stand for the right signatures under
// two live secrets, and "@X" for one under a retired secret.
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <string>
#include <vector>

#include "common/providers/stripe_signature.h"
#include "tests/fuzz/fuzz.h"

namespace {

constexpr long long kNow = 1764500000;
constexpr const char* kSecretA = "whsec_a";
constexpr const char* kSecretB = "whsec_b";
constexpr const char* kRetired = "whsec_x";

std::string Hmac(const std::string& key, const std::string& text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest,
       &size);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[digest[i] >> 4];
    hex += kDigits[digest[i] & 15];
  }
  return hex;
}

std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> parts = {""};
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

bool StartsWith(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

// The text that the signature covers before the body.
std::string TimestampOf(const std::string& header) {
  for (const std::string& part : SplitAtCommas(header)) {
    if (StartsWith(part, "t=")) return part.substr(2);
  }
  return "";
}

std::string FillIn(std::string header, const std::string& body) {
  const std::string text = TimestampOf(header) + "." + body;
  const std::pair<const char*, const char*> kPlaces[] = {
      {"@A", kSecretA}, {"@B", kSecretB}, {"@X", kRetired}};
  for (const auto& [place, secret] : kPlaces) {
    const std::string hex = Hmac(secret, text);
    // Bounded: the header must not explode.
    for (int i = 0; i < 20; ++i) {
      const size_t at = header.find(place);
      if (at == std::string::npos) break;
      header.replace(at, 2, hex);
    }
  }
  return header;
}

// The secret that vouches; empty when none does.
std::string Reference(const std::string& header, const std::string& body) {
  if (header.size() > 8192) return "";
  const std::vector<std::string> parts = SplitAtCommas(header);
  if (parts.size() > 16) return "";
  int timestamps = 0;
  for (const std::string& part : parts) {
    timestamps += part == "t" || StartsWith(part, "t=");
  }
  const std::string timestamp = TimestampOf(header);
  if (timestamps != 1 || timestamp.empty() || timestamp.size() > 19) {
    return "";
  }
  if (timestamp.size() > 1 && timestamp[0] == '0') return "";
  long long seconds = 0;
  for (const char c : timestamp) {
    if (c < '0' || c > '9') return "";
    if (seconds > 1000 * kNow) return "";
    seconds = seconds * 10 + (c - '0');
  }
  if (seconds < kNow - 300 || seconds > kNow + 300) return "";
  for (const char* secret : {kSecretA, kSecretB}) {
    for (const std::string& part : parts) {
      if (part == "v1=" + Hmac(secret, timestamp + "." + body)) return secret;
    }
  }
  return "";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t line_end = input.find('\n');
  const std::string body =
      line_end == std::string::npos ? "" : input.substr(line_end + 1);
  const std::string header = FillIn(input.substr(0, line_end), body);

  std::vector<tenure::providers::SigningSecret> secrets;
  for (const char* secret : {kSecretA, kSecretB}) {
    secrets.push_back({secret, tenure::Secret(secret)});
  }
  const absl::StatusOr<std::string> key =
      tenure::providers::VerifyStripeSignature(header, body, secrets,
                                               absl::FromUnixSeconds(kNow),
                                               absl::Seconds(300));
  FUZZ_CHECK(key.value_or("") == Reference(header, body));
  FUZZ_CHECK(key.ok() || absl::IsUnauthenticated(key.status()) ||
             absl::IsInvalidArgument(key.status()));
  return 0;
}
