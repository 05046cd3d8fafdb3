#include "common/base/crypto.h"

#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace tenure {
namespace {

using test::StatusIs;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Optional;
using ::testing::SizeIs;

std::string HmacHex(absl::string_view key,
                    absl::Span<const absl::string_view> pieces) {
  const absl::StatusOr<std::string> mac = HmacSha256(key, pieces);
  return mac.ok() ? HexEncode(*mac) : mac.status().ToString();
}

// FIPS 180-2, appendix B, and the digest of nothing.
TEST(Sha256, AgreesWithThePublishedVectors) {
  EXPECT_EQ(HexEncode(Sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(HexEncode(Sha256("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(HexEncode(Sha256(
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(HexEncode(Sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// RFC 4231, cases 1, 2, 3, 6 and 7.
TEST(HmacSha256, AgreesWithTheVectorsOfRfc4231) {
  EXPECT_EQ(HmacHex(std::string(20, '\x0b'), {"Hi There"}),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(HmacHex("Jefe", {"what do ya want for nothing?"}),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(HmacHex(std::string(20, '\xaa'), {std::string(50, '\xdd')}),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(HmacHex(std::string(131, '\xaa'),
                    {"Test Using Larger Than Block-Size Key - Hash Key First"}),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(
      HmacHex(std::string(131, '\xaa'),
              {"This is a test using a larger than block-size key and a larger "
               "than block-size data. The key needs to be hashed before being "
               "used by the HMAC algorithm."}),
      "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(HmacSha256, ReadsPiecesAsOneText) {
  const std::string whole = HmacHex("key", {"1700000000.{}"});

  EXPECT_EQ(HmacHex("key", {"1700000000", ".", "", "{}"}), whole);
  EXPECT_EQ(HmacHex("key", {}), HmacHex("key", {""}));
}

TEST(HmacSha256, C023_RefusesAnEmptyKey) {
  EXPECT_THAT(HmacSha256("", {"body"}),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("impossible by construction")));
}

TEST(ConstantTimeEquals, ComparesContentAndLength) {
  EXPECT_TRUE(ConstantTimeEquals("", ""));
  EXPECT_TRUE(ConstantTimeEquals("abc", "abc"));
  EXPECT_FALSE(ConstantTimeEquals("abc", "abd"));
  EXPECT_FALSE(ConstantTimeEquals("abc", "ab"));
  EXPECT_FALSE(ConstantTimeEquals("", "a"));
  EXPECT_FALSE(ConstantTimeEquals(absl::string_view("a\0b", 3),
                                  absl::string_view("a\0c", 3)));
}

TEST(Hex, RoundTripsEveryByte) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));

  EXPECT_THAT(HexDecode(HexEncode(bytes)), Optional(Eq(bytes)));
  EXPECT_THAT(HexDecode(absl::AsciiStrToUpper(HexEncode(bytes))),
              Optional(Eq(bytes)));
}

TEST(Hex, RefusesAllThatIsNotPairsOfDigits) {
  for (const absl::string_view bad :
       {"a", "abc", "0x12", "1g", " 12", "12 ", "-1", "+f", "1\n"}) {
    EXPECT_EQ(HexDecode(bad), std::nullopt) << bad;
  }
  EXPECT_EQ(HexDecode(absl::string_view("\0\0", 2)), std::nullopt);
  EXPECT_THAT(HexDecode(""), Optional(Eq("")));
}

TEST(RandomBytes, HaveTheLengthAskedForAndDiffer) {
  EXPECT_THAT(RandomBytes(0), SizeIs(0));
  EXPECT_THAT(RandomBytes(33), SizeIs(33));
  EXPECT_NE(RandomBytes(16), RandomBytes(16));
}

TEST(RandomUuid, IsVersionFourInLowerCase) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string uuid = RandomUuid();
    ASSERT_THAT(uuid,
                ::testing::MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-"
                                        "[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
    seen.insert(uuid);
  }
  EXPECT_THAT(seen, SizeIs(1000));
}

}  // namespace
}  // namespace tenure
