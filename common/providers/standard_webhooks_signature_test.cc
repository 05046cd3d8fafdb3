#include "common/providers/standard_webhooks_signature.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/crypto.h"
#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace tenure::providers {
namespace {

using test::HasReason;
using test::IsOk;
using test::IsOkAndHolds;
using test::StatusIs;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kTolerance = absl::Minutes(5);
constexpr absl::string_view kId = "msg_1";
constexpr absl::string_view kBody = R"({"type":"a"})";
constexpr int64_t kNow = 1'764'500'000;

auto IsInvalid() {
  return AllOf(StatusIs(absl::StatusCode::kUnauthenticated),
               HasReason(common::v1::ERROR_REASON_SIGNATURE_INVALID));
}
auto IsOutOfTolerance() {
  return AllOf(
      StatusIs(absl::StatusCode::kUnauthenticated),
      HasReason(common::v1::ERROR_REASON_SIGNATURE_TIMESTAMP_OUT_OF_TOLERANCE));
}
auto IsMalformed() {
  return AllOf(StatusIs(absl::StatusCode::kInvalidArgument),
               HasReason(common::v1::ERROR_REASON_SIGNATURE_HEADER_MALFORMED));
}

// A shared secret of 32 bytes that are all the same.
std::string Shared(char fill) {
  return "whsec_" + Base64Encode(std::string(32, fill));
}
const std::string& Old() {
  static const std::string& secret = *new std::string(Shared('o'));
  return secret;
}
const std::string& New() {
  static const std::string& secret = *new std::string(Shared('n'));
  return secret;
}

// The sender's half of a key pair; only tests sign with it.
class PrivateKey {
 public:
  explicit PrivateKey(char fill)
      : key_(
            EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr,
                                         reinterpret_cast<const unsigned char*>(
                                             std::string(32, fill).data()),
                                         32)) {}
  ~PrivateKey() { EVP_PKEY_free(key_); }
  PrivateKey(const PrivateKey&) = delete;
  PrivateKey& operator=(const PrivateKey&) = delete;

  std::string PublicBytes() const {
    std::string bytes(32, '\0');
    size_t size = bytes.size();
    EXPECT_EQ(EVP_PKEY_get_raw_public_key(
                  key_, reinterpret_cast<unsigned char*>(bytes.data()), &size),
              1);
    return bytes;
  }
  std::string Public() const { return "whpk_" + Base64Encode(PublicBytes()); }

  std::string Sign(absl::string_view text) const {
    std::string signature(64, '\0');
    size_t size = signature.size();
    EVP_MD_CTX* context = EVP_MD_CTX_new();
    EXPECT_EQ(EVP_DigestSignInit(context, nullptr, nullptr, nullptr, key_), 1);
    EXPECT_EQ(
        EVP_DigestSign(
            context, reinterpret_cast<unsigned char*>(signature.data()), &size,
            reinterpret_cast<const unsigned char*>(text.data()), text.size()),
        1);
    EVP_MD_CTX_free(context);
    return signature;
  }

 private:
  EVP_PKEY* const key_;
};

// Named as they read, so that the name that is answered tells the key.
std::vector<StandardWebhooksKey> Keys(const std::vector<std::string>& texts) {
  std::vector<StandardWebhooksKey> keys;
  for (const std::string& text : texts) {
    absl::StatusOr<StandardWebhooksKey> key =
        StandardWebhooksKey::Parse({text, Secret(text)});
    EXPECT_THAT(key, IsOk()) << text;
    if (key.ok()) keys.push_back(*std::move(key));
  }
  return keys;
}

Delivery Sent(const std::string& id, const std::string& timestamp,
              const std::string& signature, std::string body) {
  return {{{"content-type", "application/json"},
           {"webhook-id", id},
           {"webhook-timestamp", timestamp},
           {"webhook-signature", signature}},
          std::move(body)};
}

// A delivery at kNow whose signatures are given.
Delivery Sent(const std::string& signature) {
  return Sent(std::string(kId), absl::StrCat(kNow), signature,
              std::string(kBody));
}

absl::StatusOr<std::string> Verify(const Delivery& delivery,
                                   const std::vector<std::string>& keys,
                                   int64_t now = kNow) {
  return VerifyStandardWebhooksSignature(
      delivery, Keys(keys), absl::FromUnixSeconds(now), kTolerance);
}

std::string V1(const std::string& secret, absl::string_view timestamp,
               absl::string_view id = kId, absl::string_view body = kBody) {
  const std::vector<StandardWebhooksKey> keys = Keys({secret});
  const absl::StatusOr<std::string> digest =
      HmacSha256(keys[0].Reveal(), {id, ".", timestamp, ".", body});
  EXPECT_THAT(digest, IsOk());
  return "v1," + Base64Encode(digest.value_or(""));
}

std::string V1a(const PrivateKey& key, absl::string_view timestamp,
                absl::string_view id = kId, absl::string_view body = kBody) {
  return "v1a," +
         Base64Encode(key.Sign(absl::StrCat(id, ".", timestamp, ".", body)));
}

std::string Now() { return absl::StrCat(kNow); }

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string Member(const JsonValue& item, absl::string_view key) {
  const JsonValue* found = item.Find(key);
  return std::string(found == nullptr ? "" : found->AsString().value_or(""));
}

// One entry of the vectors that the official libraries made.
struct Vector {
  std::string name;
  std::string key;
  Delivery delivery;
  int64_t timestamp = 0;
};

std::vector<Vector> Vectors() {
  const absl::StatusOr<JsonValue> json = ParseJson(ReadFile(
      TENURE_TEST_FIXTURES "/standard_webhooks/signature_vectors.json"));
  EXPECT_THAT(json, IsOk());
  std::vector<Vector> vectors;
  if (!json.ok()) return vectors;
  for (const JsonValue& item : json->items()) {
    Vector vector;
    vector.name = Member(item, "name");
    vector.key = Member(item, "key");
    EXPECT_TRUE(absl::SimpleAtoi(Member(item, "timestamp"), &vector.timestamp));
    const auto body = Base64Decode(Member(item, "body_base64"));
    EXPECT_TRUE(body.has_value());
    vector.delivery = Sent(Member(item, "id"), Member(item, "timestamp"),
                           Member(item, "signature"), body.value_or(""));
    vectors.push_back(std::move(vector));
  }
  EXPECT_GE(vectors.size(), 50u);
  return vectors;
}

void FlipBit(std::string& text, size_t bit) {
  text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
}

TEST(StandardWebhooksSignature, C021_AcceptsWhatTheOfficialLibrariesSigned) {
  for (const Vector& vector : Vectors()) {
    EXPECT_THAT(Verify(vector.delivery, {vector.key}, vector.timestamp),
                IsOkAndHolds(vector.key))
        << vector.name;
    EXPECT_THAT(Verify(vector.delivery, {Shared('x'), PrivateKey('x').Public()},
                       vector.timestamp),
                IsInvalid())
        << vector.name;
  }
}

TEST(StandardWebhooksSignature, C021_AnyFlippedBitIsRefused) {
  int public_key_vectors = 0;
  for (Vector& vector : Vectors()) {
    const std::string& signature = vector.delivery.headers[3].second;
    // Where a second signature stands, flipping the other one harms nothing.
    if (absl::StrContains(signature, ' ')) continue;
    if (absl::StartsWith(vector.name, "long")) continue;
    // Slow, and each of them is the same: two will do.
    if (absl::StartsWith(signature, "v1a,") && ++public_key_vectors > 2) {
      continue;
    }
    const std::vector<StandardWebhooksKey> keys = Keys({vector.key});
    const absl::Time now = absl::FromUnixSeconds(vector.timestamp);
    const std::pair<const char*, std::string*> kPlaces[] = {
        {"id", &vector.delivery.headers[1].second},
        {"timestamp", &vector.delivery.headers[2].second},
        {"signature", &vector.delivery.headers[3].second},
        {"body", &vector.delivery.body}};
    for (const auto& [place, text] : kPlaces) {
      for (size_t bit = 0; bit < text->size() * 8; ++bit) {
        FlipBit(*text, bit);
        // Without the tolerance, so that the signature alone has to refuse.
        ASSERT_THAT(VerifyStandardWebhooksSignature(vector.delivery, keys, now,
                                                    absl::InfiniteDuration()),
                    AnyOf(IsInvalid(), IsMalformed()))
            << vector.name << " " << place << " bit " << bit;
        FlipBit(*text, bit);
      }
      // Nor is a byte more or less.
      const std::string good = *text;
      for (const std::string& other : {good + "0", "0" + good, good.substr(1),
                                       good.substr(0, good.size() - 1)}) {
        *text = other;
        ASSERT_THAT(VerifyStandardWebhooksSignature(vector.delivery, keys, now,
                                                    absl::InfiniteDuration()),
                    AnyOf(IsInvalid(), IsMalformed()))
            << vector.name << " " << place << " " << other;
      }
      *text = good;
    }
  }
}

// The examples of the specification, where they are at hand.
TEST(StandardWebhooksSignature, C021_JudgesTheCollectedVectorsAsTheySay) {
  std::filesystem::path folder =
      TENURE_TEST_SIBLING_FIXTURES "/standardwebhooks";
  if (const char* fixtures = std::getenv("TENURE_FIXTURES")) {
    folder = std::filesystem::path(fixtures) / "standardwebhooks";
  }
  if (!std::filesystem::is_directory(folder)) {
    // The vectors of the official libraries cover the same ground.
    return;
  }
  int judged = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    const absl::StatusOr<JsonValue> json = ParseJson(ReadFile(entry.path()));
    ASSERT_THAT(json, IsOk()) << entry.path();
    Delivery delivery;
    delivery.body = Member(*json, "body");
    for (const JsonMember& header : json->Find("headers")->members()) {
      delivery.headers.emplace_back(
          header.key, std::string(header.value.AsString().value_or("")));
    }
    std::string key = Member(*json, "secret");
    if (key.empty()) key = Member(*json, "public_key");
    const int64_t now = json->Find("now")->AsInt64().value_or(0);
    EXPECT_EQ(Verify(delivery, {key}, now).ok(),
              json->Find("valid")->AsBool().value_or(false))
        << entry.path();
    ++judged;
  }
  EXPECT_GE(judged, 12);
}

// ---- the official libraries judge what we sign, and ours what they refuse
// ----

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", text, "\"");
}

// What the libraries answer to each delivery, at its `now`.
struct Judged {
  std::vector<std::string> keys;
  Delivery delivery;
  int64_t now = kNow;
};

std::vector<bool> JudgeByLibraries(const std::vector<Judged>& cases) {
  const std::filesystem::path file =
      std::filesystem::path(::testing::TempDir()) /
      absl::StrCat("standard_webhooks_", HexEncode(RandomBytes(8)), ".json");
  std::vector<std::string> entries;
  for (const Judged& one : cases) {
    entries.push_back(absl::StrCat(
        "{\"keys\":[",
        absl::StrJoin(one.keys, ",",
                      [](std::string* out, const std::string& key) {
                        absl::StrAppend(out, Quoted(key));
                      }),
        "],\"id\":", Quoted(one.delivery.headers[1].second),
        ",\"timestamp\":", Quoted(one.delivery.headers[2].second),
        ",\"signature\":", Quoted(one.delivery.headers[3].second),
        ",\"body_base64\":", Quoted(Base64Encode(one.delivery.body)),
        ",\"now\":", one.now, "}"));
  }
  std::ofstream(file) << "[" << absl::StrJoin(entries, ",\n") << "]";
  const std::string command = absl::StrCat(
      "node '" TENURE_TEST_NODE "/standard_webhooks_vectors.mjs' --verify < '",
      file.string(), "'");
  std::string answer;
  FILE* pipe = popen(command.c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  if (pipe == nullptr) return {};
  char buffer[4096];
  while (const size_t count = fread(buffer, 1, sizeof(buffer), pipe)) {
    answer.append(buffer, count);
  }
  EXPECT_EQ(pclose(pipe), 0) << command;
  std::filesystem::remove(file);
  const absl::StatusOr<JsonValue> json = ParseJson(answer);
  EXPECT_THAT(json, IsOk()) << answer;
  std::vector<bool> accepted;
  if (!json.ok()) return accepted;
  for (const JsonValue& item : json->items()) {
    accepted.push_back(item.Find("accepted")->AsBool().value_or(false));
  }
  EXPECT_EQ(accepted.size(), cases.size());
  return accepted;
}

TEST(StandardWebhooksSignature, C021_C022_AgreesWithTheOfficialLibraries) {
  std::mt19937 random(20261130);
  const auto below = [&](size_t limit) {
    return static_cast<size_t>(random() % limit);
  };
  const PrivateKey key_a('a');
  const PrivateKey key_b('b');
  const PrivateKey retired('r');
  std::vector<Judged> cases;
  for (int i = 0; i < 600; ++i) {
    const std::string id = absl::StrCat("msg_", i, i % 7 == 0 ? ".x" : "");
    const int64_t at = kNow + static_cast<int64_t>(below(640)) - 320;
    const std::string timestamp = absl::StrCat(at);
    std::string body = absl::StrCat("{\"n\":", i, ",\"text\":\"");
    for (size_t n = below(80); n > 0; --n) {
      static constexpr absl::string_view kPieces[] = {"a", "é", "中",  "🙂",
                                                      " ", ".", "\\n", "\\\\"};
      absl::StrAppend(&body, kPieces[below(8)]);
    }
    absl::StrAppend(&body, "\"}");
    std::vector<std::string> entries;
    for (size_t n = below(5); n > 0; --n) {
      switch (below(9)) {
        case 0:
          entries.push_back(V1(Old(), timestamp, id, body));
          break;
        case 1:
          entries.push_back(V1(New(), timestamp, id, body));
          break;
        case 2:
          entries.push_back(V1(Shared('r'), timestamp, id, body));
          break;
        case 3:
          entries.push_back(V1a(key_a, timestamp, id, body));
          break;
        case 4:
          entries.push_back(V1a(retired, timestamp, id, body));
          break;
        case 5: {
          // Right but for one bit of what was signed.
          std::string other = body;
          other[8] = other[8] == 'x' ? 'y' : 'x';
          entries.push_back(V1(New(), timestamp, id, other));
          break;
        }
        case 6:
          entries.push_back("v2," + V1(New(), timestamp, id, body).substr(3));
          break;
        case 7:
          // A shared secret that somebody made of the public key.
          entries.push_back(V1("whsec_" + Base64Encode(key_b.PublicBytes()),
                               timestamp, id, body));
          break;
        default:
          entries.push_back(below(2) == 0 ? "v1" : "junk");
      }
    }
    if (entries.empty()) entries.push_back(V1a(key_b, timestamp, id, body));
    Judged one;
    one.keys = {Old(), New(), key_a.Public(), key_b.Public()};
    one.delivery = Sent(id, timestamp, absl::StrJoin(entries, " "), body);
    // Node judges v1a without a clock.
    const bool has_v1a =
        absl::StrContains(one.delivery.headers[3].second, "v1a");
    one.now = has_v1a ? at : kNow;
    cases.push_back(std::move(one));
  }
  const std::vector<bool> accepted = JudgeByLibraries(cases);
  ASSERT_EQ(accepted.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(Verify(cases[i].delivery, cases[i].keys, cases[i].now).ok(),
              accepted[i])
        << i << " " << cases[i].delivery.headers[3].second;
  }
  const auto yes = std::count(accepted.begin(), accepted.end(), true);
  EXPECT_GT(yes, 200);
  EXPECT_LT(yes, 500);
}

// ---- keys ----

TEST(StandardWebhooksKey, ReadsSharedSecretsOf24To64Bytes) {
  for (const size_t size : {24u, 25u, 32u, 63u, 64u}) {
    const std::string bytes(size, 's');
    for (const char* prefix : {"", "whsec_"}) {
      const absl::StatusOr<StandardWebhooksKey> key =
          StandardWebhooksKey::Parse(
              {"key-1", Secret(prefix + Base64Encode(bytes))});
      ASSERT_THAT(key, IsOk()) << size;
      EXPECT_EQ(key->kind(), StandardWebhooksKey::Kind::kShared);
      EXPECT_EQ(key->Reveal(), bytes);
      EXPECT_EQ(key->name(), "key-1");
    }
  }
}

TEST(StandardWebhooksKey, C023_RefusesWhatIsNoKeyAndShowsNothingOfIt) {
  const std::string public_bytes = PrivateKey('p').PublicBytes();
  const std::string kBad[] = {
      "", "whsec_", "whpk_", "whsk_", Base64Encode(std::string(23, 's')),
      "whsec_" + Base64Encode(std::string(23, 's')),
      "whsec_" + Base64Encode(std::string(65, 's')),
      "whsec_" + std::string(32, '-'), "whsec_" + std::string(33, 'A'),
      "WHSEC_" + Base64Encode(std::string(32, 's')),
      " whsec_" + Base64Encode(std::string(32, 's')),
      "whsec_" + Base64Encode(std::string(32, 's')) + "\n",
      "whsec_whsec_" + Base64Encode(std::string(32, 's')),
      "whsec_" + HexEncode(std::string(32, 's')) + "0",
      // Not padded, so that two texts would be one key.
      "whsec_" + Base64Encode(std::string(32, 's')).substr(0, 43),
      "whpk_" + Base64Encode(public_bytes.substr(1)),
      "whpk_" + Base64Encode(public_bytes + "x"),
      "whpk_" + Base64Encode(std::string(32, '\0')),
      "whsk_" + Base64Encode(std::string(64, 's')),
      "whsec_whpk_" + Base64Encode(public_bytes)};
  for (const std::string& bad : kBad) {
    const absl::StatusOr<StandardWebhooksKey> key =
        StandardWebhooksKey::Parse({"key-1", Secret(bad)});
    EXPECT_THAT(key, StatusIs(absl::StatusCode::kInvalidArgument,
                              HasSubstr("the key 'key-1'")))
        << bad;
    const std::string message(key.status().message());
    if (bad.size() > 12) {
      EXPECT_THAT(message, Not(HasSubstr(bad.substr(7)))) << bad;
    }
  }
}

TEST(StandardWebhooksSignature, C023_AKeyVerifiesItsOwnKindOnly) {
  const PrivateKey key('p');
  // The public key is public: whoever knows it must not be able to sign.
  const std::string as_secret = "whsec_" + Base64Encode(key.PublicBytes());
  const std::string forged = V1(as_secret, Now());
  EXPECT_THAT(Verify(Sent(forged), {as_secret}), IsOk());
  EXPECT_THAT(Verify(Sent(forged), {key.Public()}), IsInvalid());
  EXPECT_THAT(Verify(Sent("v1a," + forged.substr(3)), {key.Public()}),
              IsInvalid());
  // Nor does the right bytes under the other version's name count.
  const std::string signature = V1a(key, Now());
  EXPECT_THAT(Verify(Sent(signature), {key.Public()}), IsOk());
  EXPECT_THAT(Verify(Sent("v1," + signature.substr(4)), {key.Public()}),
              IsInvalid());
  EXPECT_THAT(Verify(Sent(signature), {as_secret}), IsInvalid());
  const std::string shared = V1(New(), Now());
  EXPECT_THAT(Verify(Sent("v1a," + shared.substr(3)), {New()}), IsInvalid());
}

// ---- rotation and bounds ----

TEST(StandardWebhooksSignature, C022_AnyPairIsEnoughInAnyOrder) {
  const PrivateKey key('p');
  std::vector<std::string> entries = {
      V1(Old(), Now()), V1(New(), Now()), V1a(key, Now()),
      "v1," + Base64Encode(std::string(32, 'f')), "v2,x"};
  std::sort(entries.begin(), entries.end());
  do {
    const Delivery delivery = Sent(absl::StrJoin(entries, " "));
    for (const std::vector<std::string>& keys :
         {std::vector<std::string>{Old(), New()},
          std::vector<std::string>{New(), Old()},
          std::vector<std::string>{New()}, std::vector<std::string>{Old()},
          std::vector<std::string>{key.Public()},
          std::vector<std::string>{Shared('x'), PrivateKey('x').Public(),
                                   New()}}) {
      ASSERT_THAT(Verify(delivery, keys), IsOk());
    }
    ASSERT_THAT(Verify(delivery, {Shared('x'), PrivateKey('x').Public()}),
                IsInvalid());
  } while (std::next_permutation(entries.begin(), entries.end()));
}

TEST(StandardWebhooksSignature, C022_ARetiredKeyNoLongerCounts) {
  const PrivateKey key('p');
  EXPECT_THAT(Verify(Sent(V1(Old(), Now())), {Old(), New()}), IsOk());
  EXPECT_THAT(Verify(Sent(V1(Old(), Now())), {New()}), IsInvalid());
  EXPECT_THAT(Verify(Sent(V1a(key, Now())), {key.Public(), New()}), IsOk());
  EXPECT_THAT(Verify(Sent(V1a(key, Now())), {New()}), IsInvalid());
  EXPECT_THAT(Verify(Sent(V1a(key, Now())), {PrivateKey('q').Public()}),
              IsInvalid());
}

TEST(StandardWebhooksSignature, C022_TellsWhichLiveKeyVouched) {
  const PrivateKey key('p');
  const std::string both = absl::StrCat(V1(Old(), Now()), " ", V1a(key, Now()));
  EXPECT_THAT(Verify(Sent(both), {New(), key.Public(), Old()}),
              IsOkAndHolds(key.Public()));
  EXPECT_THAT(Verify(Sent(both), {New(), Old(), key.Public()}),
              IsOkAndHolds(Old()));
  EXPECT_THAT(Verify(Sent(V1(New(), Now())), {Old(), New()}),
              IsOkAndHolds(New()));
}

TEST(StandardWebhooksSignature, C022_MoreThan16EntriesAreRefused) {
  const auto with_junk = [&](int count) {
    std::string junk;
    for (int i = 0; i < count; ++i) {
      absl::StrAppend(&junk, i % 2 == 0 ? "v1," : "v1a,",
                      Base64Encode(std::string(i % 2 == 0 ? 32 : 64, 'a')),
                      " ");
    }
    return Sent(junk + V1(New(), Now()));
  };
  EXPECT_THAT(Verify(with_junk(14), {New()}), IsOk());
  EXPECT_THAT(Verify(with_junk(15), {New()}), IsOk());
  EXPECT_THAT(Verify(with_junk(16), {New()}), IsMalformed());
  EXPECT_THAT(Verify(with_junk(50), {New()}), IsMalformed());
  EXPECT_THAT(Verify(Sent(V1(New(), Now()) + std::string(16, ' ')), {New()}),
              IsMalformed());
}

TEST(StandardWebhooksSignature, C022_AHeaderOfMoreThan8KiBIsRefused) {
  const auto padded = [](std::string text, size_t size) {
    return text + std::string(size - text.size(), 'x');
  };
  const std::string good = V1(New(), Now()) + " v9,";
  EXPECT_THAT(Verify(Sent(padded(good, 8192)), {New()}), IsOk());
  EXPECT_THAT(Verify(Sent(padded(good, 8193)), {New()}), IsMalformed());
  for (const size_t size : {8192u, 8193u}) {
    const std::string id = padded("msg_", size);
    const Delivery delivery =
        Sent(id, Now(), V1(New(), Now(), id), std::string(kBody));
    if (size == 8192) {
      EXPECT_THAT(Verify(delivery, {New()}), IsOk());
    } else {
      EXPECT_THAT(Verify(delivery, {New()}), IsMalformed());
    }
  }
  const std::string timestamp = std::string(8193 - Now().size(), '0') + Now();
  EXPECT_THAT(Verify(Sent(std::string(kId), timestamp, V1(New(), timestamp),
                          std::string(kBody)),
                     {New()}),
              IsMalformed());
}

TEST(StandardWebhooksSignature, TheSameHeaderTwiceIsRefused) {
  const Delivery good = Sent(V1(New(), Now()));
  for (size_t i = 1; i < good.headers.size(); ++i) {
    for (const bool first : {false, true}) {
      Delivery delivery = good;
      std::pair<std::string, std::string> again = delivery.headers[i];
      again.first[0] = 'W';
      delivery.headers.insert(
          first ? delivery.headers.begin() : delivery.headers.end(), again);
      EXPECT_THAT(Verify(delivery, {New()}), IsMalformed()) << again.first;
    }
  }
  Delivery delivery = good;
  delivery.headers.emplace_back("content-type", "text/plain");
  EXPECT_THAT(Verify(delivery, {New()}), IsOk());
}

// ---- fails closed ----

TEST(StandardWebhooksSignature, C023_FailsClosedWithoutASignature) {
  const std::string good = V1(New(), Now());
  const PrivateKey key('p');
  const std::string good_v1a = V1a(key, Now());
  for (const std::string& header :
       {std::string(), std::string(" "), std::string("v1"), std::string("v1,"),
        std::string("v1a,"), std::string(","), std::string("v1, v1a, v1,"),
        good.substr(3), "," + good.substr(3), "V1," + good.substr(3),
        "v2," + good.substr(3), "v1=" + good.substr(3), "v1 ," + good.substr(3),
        good + ",", good + "=", good.substr(0, good.size() - 1), good + ",junk",
        "v1,," + good.substr(3), good + "\t", good + "\n",
        absl::StrCat(good, ";", good), good_v1a + "=",
        good_v1a.substr(0, good_v1a.size() - 1),
        good_v1a.substr(0, good_v1a.size() - 2), good_v1a + ",",
        "v1a," + Base64Encode(std::string(64, '\0')),
        // Stripe's form of a header is another provider's.
        absl::StrCat("t=", kNow, ",v1=", std::string(64, '0'))}) {
    EXPECT_THAT(Verify(Sent(header), {New(), key.Public()}), IsInvalid())
        << header;
  }
}

TEST(StandardWebhooksSignature, C023_EveryHeaderHasToBeThere) {
  for (const absl::string_view name :
       {"webhook-id", "webhook-timestamp", "webhook-signature"}) {
    Delivery without = Sent(V1(New(), Now()));
    Delivery empty = without;
    without.headers.erase(
        std::find_if(without.headers.begin(), without.headers.end(),
                     [&](const auto& header) { return header.first == name; }));
    EXPECT_THAT(Verify(without, {New()}), IsInvalid()) << name;
    for (auto& [key, value] : empty.headers) {
      if (key == name) value.clear();
    }
    EXPECT_THAT(Verify(empty, {New()}), IsInvalid()) << name;
  }
  // An empty id is not signed for either.
  EXPECT_THAT(Verify(Sent("", Now(), V1(New(), Now(), ""), std::string(kBody)),
                     {New()}),
              IsInvalid());
  // Svix's own names are another contract's.
  Delivery svix = Sent(V1(New(), Now()));
  for (auto& [key, value] : svix.headers) {
    if (absl::StartsWith(key, "webhook-")) key = "svix-" + key.substr(8);
  }
  EXPECT_THAT(Verify(svix, {New()}), IsInvalid());
}

TEST(StandardWebhooksSignature, C023_WithoutAKeyNothingVerifies) {
  EXPECT_THAT(Verify(Sent(V1(New(), Now())), {}), IsInvalid());
  EXPECT_THAT(Verify(Sent(V1a(PrivateKey('p'), Now())), {}), IsInvalid());
  EXPECT_THAT(Verify(Sent("v1,"), {}), IsInvalid());
}

TEST(StandardWebhooksSignature, ReadsHeaderNamesWithoutCase) {
  Delivery delivery = Sent(V1(New(), Now()));
  delivery.headers[1].first = "Webhook-Id";
  delivery.headers[2].first = "WEBHOOK-TIMESTAMP";
  EXPECT_THAT(Verify(delivery, {New()}), IsOk());
}

// ---- time ----

Delivery SentAt(const std::string& timestamp) {
  return Sent(std::string(kId), timestamp, V1(New(), timestamp),
              std::string(kBody));
}

TEST(StandardWebhooksSignature, C028_TheToleranceIsClosedAndTwoSided) {
  const struct {
    int64_t offset;
    bool accepted;
  } kTable[] = {{-301, false}, {-300, true}, {-299, true}, {0, true},
                {299, true},   {300, true},  {301, false}};
  for (const auto& row : kTable) {
    const absl::StatusOr<std::string> status =
        Verify(SentAt(absl::StrCat(kNow + row.offset)), {New()});
    if (row.accepted) {
      EXPECT_THAT(status, IsOk()) << row.offset;
    } else {
      EXPECT_THAT(status, IsOutOfTolerance()) << row.offset;
    }
  }
  // By the microsecond on our side of the comparison.
  for (const int sign : {-1, 1}) {
    const absl::Time edge =
        absl::FromUnixSeconds(kNow) + sign * absl::Seconds(300);
    EXPECT_THAT(VerifyStandardWebhooksSignature(SentAt(Now()), Keys({New()}),
                                                edge, kTolerance),
                IsOk());
    EXPECT_THAT(VerifyStandardWebhooksSignature(
                    SentAt(Now()), Keys({New()}),
                    edge + sign * absl::Microseconds(1), kTolerance),
                IsOutOfTolerance());
  }
}

TEST(StandardWebhooksSignature, C028_FarTimestampsOverflowNothing) {
  for (const char* timestamp :
       {"0", "1", "2147483647", "2147483648", "9223372036854775807"}) {
    EXPECT_THAT(Verify(SentAt(timestamp), {New()}), IsOutOfTolerance())
        << timestamp;
  }
}

TEST(StandardWebhooksSignature,
     C028_MalformedTimestampsAreRefusedThoughSigned) {
  for (const std::string& timestamp :
       {std::string("-1"), std::string("+5"), std::string(" 5"),
        std::string("5 "), std::string("1e3"), std::string("abc"),
        std::string("0x10"), std::string("9223372036854775808"),
        std::string("99999999999999999999999"), Now() + ".0", Now() + ".",
        "+" + Now(), " " + Now(), Now() + "\n",
        std::string("2026-01-01T00:00:00Z"), std::string("1\0", 2)}) {
    EXPECT_THAT(Verify(SentAt(timestamp), {New()}), IsMalformed()) << timestamp;
  }
}

TEST(StandardWebhooksSignature, ARecordedRequestDoesNotVerifyAfterTheWindow) {
  const Delivery delivery = Sent(V1(New(), Now()));
  EXPECT_THAT(Verify(delivery, {New()}, kNow + 10), IsOk());
  EXPECT_THAT(Verify(delivery, {New()}, kNow + 600), IsOutOfTolerance());
}

TEST(StandardWebhooksSignature, AWrongSignatureSaysNothingAboutTheTimestamp) {
  EXPECT_THAT(
      Verify(Sent(std::string(kId), "1", V1(Old(), "1"), std::string(kBody)),
             {New()}),
      IsInvalid());
}

}  // namespace
}  // namespace tenure::providers
