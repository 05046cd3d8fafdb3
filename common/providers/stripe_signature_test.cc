#include "common/providers/stripe_signature.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
using ::testing::Not;

constexpr absl::Duration kTolerance = absl::Minutes(5);
constexpr absl::string_view kBody = R"({"id":"evt_1","object":"event"})";
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

// Named as they read, so that the name that is answered tells the key.
std::vector<SigningSecret> Secrets(const std::vector<std::string>& texts) {
  std::vector<SigningSecret> secrets;
  for (const std::string& text : texts) {
    secrets.push_back({text, Secret(text)});
  }
  return secrets;
}

absl::StatusOr<std::string> Verify(absl::string_view header,
                                   absl::string_view body,
                                   const std::vector<std::string>& secrets,
                                   int64_t now = kNow) {
  return VerifyStripeSignature(header, body, Secrets(secrets),
                               absl::FromUnixSeconds(now), kTolerance);
}

// Signed as Stripe does, with any text for a timestamp.
std::string V1(absl::string_view secret, absl::string_view timestamp,
               absl::string_view body = kBody) {
  const absl::StatusOr<std::string> digest =
      HmacSha256(secret, {timestamp, ".", body});
  EXPECT_THAT(digest, IsOk());
  return absl::StrCat("v1=", HexEncode(digest.value_or("")));
}

std::string Signed(absl::string_view secret, absl::string_view timestamp) {
  return absl::StrCat("t=", timestamp, ",", V1(secret, timestamp));
}

// One entry of the vectors that Stripe's own library made.
struct Vector {
  std::string name;
  std::string secret;
  int64_t timestamp = 0;
  std::string body;
  std::string header;
};

std::vector<Vector> Vectors() {
  std::ifstream file(TENURE_TEST_FIXTURES "/stripe/signature_vectors.json",
                     std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  const absl::StatusOr<JsonValue> json = ParseJson(text.str());
  EXPECT_THAT(json, IsOk());
  std::vector<Vector> vectors;
  if (!json.ok()) return vectors;
  const auto member = [](const JsonValue& item, absl::string_view key) {
    const JsonValue* found = item.Find(key);
    return std::string(found == nullptr ? "" : found->AsString().value_or(""));
  };
  for (const JsonValue& item : json->items()) {
    Vector vector;
    vector.name = member(item, "name");
    vector.secret = member(item, "secret");
    vector.timestamp = item.Find("timestamp")->AsInt64().value_or(0);
    EXPECT_TRUE(
        absl::Base64Unescape(member(item, "body_base64"), &vector.body));
    vector.header = member(item, "header");
    vectors.push_back(std::move(vector));
  }
  EXPECT_GE(vectors.size(), 20u);
  return vectors;
}

TEST(StripeSignature, C021_AcceptsWhatTheOfficialLibrarySigned) {
  for (const Vector& vector : Vectors()) {
    EXPECT_THAT(
        Verify(vector.header, vector.body, {vector.secret}, vector.timestamp),
        IsOk())
        << vector.name;
    EXPECT_THAT(Verify(vector.header, vector.body, {vector.secret + "x"},
                       vector.timestamp),
                IsInvalid())
        << vector.name;
  }
}

TEST(StripeSignature, C021_AnyFlippedBitOfTheBodyIsRefused) {
  for (const Vector& vector : Vectors()) {
    const std::vector<SigningSecret> secrets = Secrets({vector.secret});
    const absl::Time now = absl::FromUnixSeconds(vector.timestamp);
    std::string body = vector.body;
    for (size_t bit = 0; bit < body.size() * 8; ++bit) {
      const char mask = static_cast<char>(1 << (bit % 8));
      body[bit / 8] ^= mask;
      ASSERT_THAT(
          VerifyStripeSignature(vector.header, body, secrets, now, kTolerance),
          IsInvalid())
          << vector.name << " bit " << bit;
      body[bit / 8] ^= mask;
    }
    // Nor is a byte more or less.
    EXPECT_THAT(Verify(vector.header, vector.body + "\n", {vector.secret},
                       vector.timestamp),
                IsInvalid());
    EXPECT_THAT(
        Verify(vector.header, vector.body.substr(0, vector.body.size() - 1),
               {vector.secret}, vector.timestamp),
        IsInvalid());
  }
}

TEST(StripeSignature, C021_AnyFlippedBitOfTheHeaderIsRefused) {
  for (const Vector& vector : Vectors()) {
    // Where a second signature stands, flipping the other one harms nothing.
    if (std::count(vector.header.begin(), vector.header.end(), ',') != 1) {
      continue;
    }
    const std::vector<SigningSecret> secrets = Secrets({vector.secret});
    // Without the tolerance, so that the signature alone has to refuse.
    const absl::Time now = absl::FromUnixSeconds(vector.timestamp);
    std::string header = vector.header;
    const size_t signature = header.find(",v1=") + 4;
    for (size_t bit = 0; bit < header.size() * 8; ++bit) {
      const char mask = static_cast<char>(1 << (bit % 8));
      header[bit / 8] ^= mask;
      const absl::StatusOr<std::string> status = VerifyStripeSignature(
          header, vector.body, secrets, now, absl::InfiniteDuration());
      ASSERT_THAT(status, AnyOf(IsInvalid(), IsMalformed()))
          << vector.name << " " << header;
      if (bit / 8 >= signature) {
        ASSERT_THAT(status, IsInvalid()) << header;
      }
      header[bit / 8] ^= mask;
    }
  }
}

TEST(StripeSignature, C022_AnyPairOfSignatureAndSecretIsEnoughInAnyOrder) {
  const std::string t = absl::StrCat(kNow);
  std::vector<std::string> entries = {
      "t=" + t, V1("whsec_old", t), V1("whsec_new", t),
      "v0=" + std::string(64, '0'), "v1=" + std::string(64, 'f')};
  std::sort(entries.begin(), entries.end());
  do {
    const std::string header = absl::StrJoin(entries, ",");
    for (const std::vector<std::string>& secrets :
         {std::vector<std::string>{"whsec_old", "whsec_new"},
          std::vector<std::string>{"whsec_new", "whsec_old"},
          std::vector<std::string>{"whsec_new"},
          std::vector<std::string>{"whsec_old"},
          std::vector<std::string>{"other", "another", "whsec_new"}}) {
      ASSERT_THAT(Verify(header, kBody, secrets), IsOk()) << header;
    }
    ASSERT_THAT(Verify(header, kBody, {"other"}), IsInvalid()) << header;
  } while (std::next_permutation(entries.begin(), entries.end()));
}

TEST(StripeSignature, C022_ARetiredSecretNoLongerCounts) {
  const std::string header = Signed("whsec_old", absl::StrCat(kNow));
  EXPECT_THAT(Verify(header, kBody, {"whsec_old", "whsec_new"}), IsOk());
  EXPECT_THAT(Verify(header, kBody, {"whsec_new"}), IsInvalid());
}

TEST(StripeSignature, C022_TellsWhichLiveSecretVouched) {
  const std::string t = absl::StrCat(kNow);
  const std::string old_only = Signed("whsec_old", t);
  const std::string both = absl::StrCat(old_only, ",", V1("whsec_new", t));
  const std::vector<std::string> rotating = {"whsec_new", "whsec_old"};
  EXPECT_THAT(Verify(old_only, kBody, rotating), IsOkAndHolds("whsec_old"));
  EXPECT_THAT(Verify(Signed("whsec_new", t), kBody, rotating),
              IsOkAndHolds("whsec_new"));
  // Signed with both while the provider rotates: the first of the settings,
  // so that a key that is named last falls silent as soon as it may go.
  EXPECT_THAT(Verify(both, kBody, rotating), IsOkAndHolds("whsec_new"));
  EXPECT_THAT(Verify(both, kBody, {"whsec_old", "whsec_new"}),
              IsOkAndHolds("whsec_old"));
  EXPECT_THAT(Verify(both, kBody, {"other", "whsec_old"}),
              IsOkAndHolds("whsec_old"));
}

TEST(StripeSignature, C022_MoreThan16EntriesAreRefused) {
  const std::string good = Signed("whsec_new", absl::StrCat(kNow));
  const auto with_junk = [&](int count) {
    std::string junk;
    for (int i = 0; i < count; ++i) {
      absl::StrAppend(&junk, "v1=", std::string(64, 'a'), ",");
    }
    return junk + good;
  };
  EXPECT_THAT(Verify(with_junk(13), kBody, {"whsec_new"}), IsOk());
  EXPECT_THAT(Verify(with_junk(14), kBody, {"whsec_new"}), IsOk());
  EXPECT_THAT(Verify(with_junk(15), kBody, {"whsec_new"}), IsMalformed());
  EXPECT_THAT(Verify(with_junk(50), kBody, {"whsec_new"}), IsMalformed());
  EXPECT_THAT(Verify(good + std::string(15, ','), kBody, {"whsec_new"}),
              IsMalformed());
}

TEST(StripeSignature, C022_AHeaderOfMoreThan8KiBIsRefused) {
  const std::string good =
      absl::StrCat(Signed("whsec_new", absl::StrCat(kNow)), ",x=");
  const auto padded = [&](size_t size) {
    return good + std::string(size - good.size(), 'x');
  };
  EXPECT_THAT(Verify(padded(8191), kBody, {"whsec_new"}), IsOk());
  EXPECT_THAT(Verify(padded(8192), kBody, {"whsec_new"}), IsOk());
  EXPECT_THAT(Verify(padded(8193), kBody, {"whsec_new"}), IsMalformed());
}

TEST(StripeSignature, C023_FailsClosedWithoutASignature) {
  const std::string t = absl::StrCat("t=", kNow);
  for (const std::string& header :
       {std::string(), std::string("v1,"), std::string("v1="),
        std::string("v1=,"), std::string(","), std::string("="),
        std::string(" "), std::string("v1"), t, t + ",v1",
        t + ",v1=", t + ",v1=,v1=", t + ",v0=" + std::string(64, '0'),
        t + ",v1=" + std::string(64, '0'), t + ",v1=00", t + ",v1=zz",
        // Standard Webhooks' form of a header is another provider's.
        t + ",v1," + std::string(64, '0'),
        // A hex signature is compared as text: lower case only, no spaces.
        t + ", " + V1("whsec_new", absl::StrCat(kNow)),
        absl::StrCat(t,
                     ",v1= ", V1("whsec_new", absl::StrCat(kNow)).substr(3))}) {
    EXPECT_THAT(Verify(header, kBody, {"whsec_new"}), IsInvalid()) << header;
  }
}

TEST(StripeSignature, C023_AnEmptyOrMissingSecretVerifiesNothing) {
  // What an empty key would have signed. HmacSha256 itself refuses to.
  EXPECT_THAT(HmacSha256("", {"1", ".", "body"}), Not(IsOk()));
  const std::string header =
      absl::StrCat("t=", kNow, ",v1=", std::string(64, '0'));
  EXPECT_THAT(Verify(header, kBody, {}), IsInvalid());
  EXPECT_THAT(Verify(header, kBody, {""}), Not(IsOk()));
  EXPECT_THAT(Verify(Signed("whsec_new", absl::StrCat(kNow)), kBody, {}),
              IsInvalid());
}

TEST(StripeSignature, C028_TheToleranceIsClosedAndTwoSided) {
  const struct {
    int64_t offset;
    bool accepted;
  } kTable[] = {{-301, false}, {-300, true}, {-299, true}, {0, true},
                {299, true},   {300, true},  {301, false}};
  for (const auto& row : kTable) {
    const absl::StatusOr<std::string> status =
        Verify(Signed("whsec_new", absl::StrCat(kNow + row.offset)), kBody,
               {"whsec_new"});
    if (row.accepted) {
      EXPECT_THAT(status, IsOk()) << row.offset;
    } else {
      EXPECT_THAT(status, IsOutOfTolerance()) << row.offset;
    }
  }
  // By the microsecond on our side of the comparison.
  const std::string header = Signed("whsec_new", absl::StrCat(kNow));
  for (const int sign : {-1, 1}) {
    const absl::Time edge =
        absl::FromUnixSeconds(kNow) + sign * absl::Seconds(300);
    EXPECT_THAT(VerifyStripeSignature(header, kBody, Secrets({"whsec_new"}),
                                      edge, kTolerance),
                IsOk());
    EXPECT_THAT(
        VerifyStripeSignature(header, kBody, Secrets({"whsec_new"}),
                              edge + sign * absl::Microseconds(1), kTolerance),
        IsOutOfTolerance());
  }
}

TEST(StripeSignature, C028_FarTimestampsOverflowNothing) {
  for (const absl::string_view timestamp :
       {"0", "1", "2147483647", "2147483648", "9223372036854775807"}) {
    EXPECT_THAT(Verify(Signed("whsec_new", timestamp), kBody, {"whsec_new"}),
                IsOutOfTolerance())
        << timestamp;
  }
}

TEST(StripeSignature, C028_MalformedTimestampsAreRefusedThoughSigned) {
  const std::string now = absl::StrCat(kNow);
  for (const std::string& timestamp :
       {std::string("-1"), std::string("abc"), std::string("1e3"),
        std::string("+5"), std::string(" 5"), std::string("5 "), std::string(),
        std::string("1.0"), std::string("0x10"), "+" + now, " " + now,
        now + " ", now + ".0", "-" + now, std::string("9223372036854775808"),
        std::string(400, '9'), now + std::string(1, '\0'),
        std::string("\xd9\xa1\xd9\xa2")}) {
    EXPECT_THAT(Verify(Signed("whsec_new", timestamp), kBody, {"whsec_new"}),
                IsMalformed())
        << timestamp;
  }
  // None at all, and two of which one might be checked and the other believed.
  EXPECT_THAT(Verify(V1("whsec_new", now), kBody, {"whsec_new"}),
              IsMalformed());
  EXPECT_THAT(Verify(absl::StrCat("t=1,", Signed("whsec_new", now)), kBody,
                     {"whsec_new"}),
              IsMalformed());
}

TEST(StripeSignature, ARecordedRequestDoesNotVerifyAfterTheWindow) {
  const std::string header = Signed("whsec_new", absl::StrCat(kNow));
  EXPECT_THAT(Verify(header, kBody, {"whsec_new"}, kNow + 10), IsOk());
  EXPECT_THAT(Verify(header, kBody, {"whsec_new"}, kNow + 600),
              IsOutOfTolerance());
}

TEST(StripeSignature, AWrongSignatureSaysNothingAboutTheTimestamp) {
  EXPECT_THAT(Verify(Signed("whsec_other", "1"), kBody, {"whsec_new"}),
              IsInvalid());
}

}  // namespace
}  // namespace tenure::providers
