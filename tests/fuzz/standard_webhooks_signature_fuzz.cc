// The header parser and verifier of Standard Webhooks signatures: never
// crashes, and names exactly the key that the few lines of Reference() name.
//
// Input: webhook-id, webhook-timestamp and webhook-signature, one line each,
// then the body. No fuzzer guesses a signature, so "@A" and "@B" in the third
// line stand for the right v1 signatures under two live secrets, "@P" for the
// v1a signature under a live key, and "@X" and "@Q" for those under retired
// ones; the version in front of each is the fuzzer's.
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <string>
#include <utility>
#include <vector>

#include "common/providers/standard_webhooks_signature.h"
#include "tests/fuzz/fuzz.h"

namespace {

constexpr long long kNow = 1764500000;

const unsigned char* Bytes(const std::string& text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::string Base64(const std::string& bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                      Bytes(bytes), static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(size));
  return text;
}

std::string Key(char fill) { return std::string(32, fill); }

std::string Hmac(char key, const std::string& text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  HMAC(EVP_sha256(), Key(key).data(), 32, Bytes(text), text.size(), digest,
       &size);
  return Base64(std::string(reinterpret_cast<char*>(digest), size));
}

EVP_PKEY* PrivateKey(char key) {
  return EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr,
                                      Bytes(Key(key)), 32);
}

std::string PublicKey(char key) {
  EVP_PKEY* const pair = PrivateKey(key);
  std::string bytes(32, '\0');
  size_t size = bytes.size();
  EVP_PKEY_get_raw_public_key(
      pair, reinterpret_cast<unsigned char*>(bytes.data()), &size);
  EVP_PKEY_free(pair);
  return Base64(bytes);
}

std::string Ed25519(char key, const std::string& text) {
  EVP_PKEY* const pair = PrivateKey(key);
  EVP_MD_CTX* const context = EVP_MD_CTX_new();
  std::string signature(64, '\0');
  size_t size = signature.size();
  EVP_DigestSignInit(context, nullptr, nullptr, nullptr, pair);
  EVP_DigestSign(context, reinterpret_cast<unsigned char*>(signature.data()),
                 &size, Bytes(text), text.size());
  EVP_MD_CTX_free(context);
  EVP_PKEY_free(pair);
  return Base64(signature);
}

std::string SignatureOf(char key, const std::string& text) {
  return key == 'P' || key == 'Q' ? Ed25519(key, text) : Hmac(key, text);
}

std::vector<std::string> SplitAtSpaces(const std::string& text) {
  std::vector<std::string> parts = {""};
  for (const char c : text) {
    if (c == ' ') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::string TakeLine(std::string* input) {
  const size_t end = input->find('\n');
  std::string line = input->substr(0, end);
  *input = end == std::string::npos ? "" : input->substr(end + 1);
  return line;
}

std::string FillIn(std::string header, const std::string& text) {
  for (const char key : {'A', 'B', 'X', 'P', 'Q'}) {
    const std::string place = {'@', key};
    if (header.find(place) == std::string::npos) continue;
    const std::string signature = SignatureOf(key, text);
    // Bounded: the header must not explode.
    for (int i = 0; i < 20; ++i) {
      const size_t at = header.find(place);
      if (at == std::string::npos) break;
      header.replace(at, 2, signature);
    }
  }
  return header;
}

// The key that vouches; empty when none does.
std::string Reference(const std::string& id, const std::string& timestamp,
                      const std::string& header, const std::string& text) {
  for (const std::string& one : {id, timestamp, header}) {
    if (one.empty() || one.size() > 8192) return "";
  }
  const std::vector<std::string> parts = SplitAtSpaces(header);
  if (parts.size() > 16) return "";
  long long seconds = 0;
  for (const char c : timestamp) {
    if (c < '0' || c > '9') return "";
    if (seconds > 1000 * kNow) return "";
    seconds = seconds * 10 + (c - '0');
  }
  if (seconds < kNow - 300 || seconds > kNow + 300) return "";
  for (const char key : {'A', 'P', 'B'}) {
    const std::string good =
        (key == 'P' ? "v1a," : "v1,") + SignatureOf(key, text);
    for (const std::string& part : parts) {
      if (part == good) return {key};
    }
  }
  return "";
}

std::vector<tenure::providers::StandardWebhooksKey> LiveKeys() {
  std::vector<tenure::providers::StandardWebhooksKey> keys;
  for (const std::pair<const char*, std::string>& one :
       {std::pair("A", "whsec_" + Base64(Key('A'))),
        std::pair("P", "whpk_" + PublicKey('P')),
        std::pair("B", Base64(Key('B')))}) {
    auto key = tenure::providers::StandardWebhooksKey::Parse(
        {one.first, tenure::Secret(one.second)});
    FUZZ_CHECK(key.ok());
    keys.push_back(*std::move(key));
  }
  return keys;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto& keys =
      *new std::vector<tenure::providers::StandardWebhooksKey>(LiveKeys());
  std::string body(reinterpret_cast<const char*>(data), size);
  const std::string id = TakeLine(&body);
  const std::string timestamp = TakeLine(&body);
  std::string header = TakeLine(&body);
  const std::string text = id + "." + timestamp + "." + body;
  header = FillIn(header, text);

  tenure::providers::Delivery delivery;
  delivery.headers = {{"webhook-id", id},
                      {"webhook-timestamp", timestamp},
                      {"webhook-signature", header}};
  delivery.body = body;
  const absl::StatusOr<std::string> key =
      tenure::providers::VerifyStandardWebhooksSignature(
          delivery, keys, absl::FromUnixSeconds(kNow), absl::Seconds(300));
  FUZZ_CHECK(key.value_or("") == Reference(id, timestamp, header, text));
  FUZZ_CHECK(key.ok() || absl::IsUnauthenticated(key.status()) ||
             absl::IsInvalidArgument(key.status()));
  // What a file says is a key or is refused, and is never both kinds.
  const auto parsed = tenure::providers::StandardWebhooksKey::Parse(
      {"fuzzed", tenure::Secret(id)});
  FUZZ_CHECK(parsed.ok() || absl::IsInvalidArgument(parsed.status()));
  if (parsed.ok()) {
    const bool is_public =
        parsed->kind() == tenure::providers::StandardWebhooksKey::Kind::kPublic;
    FUZZ_CHECK(is_public == (id.compare(0, 5, "whpk_") == 0));
    FUZZ_CHECK(is_public ? parsed->Reveal().size() == 32
                         : parsed->Reveal().size() >= 24 &&
                               parsed->Reveal().size() <= 64);
  }
  return 0;
}
