#include "common/base/crypto.h"

#include <openssl/err.h>

#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
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

struct Ed25519Vector {
  absl::string_view public_key;
  absl::string_view message;
  absl::string_view signature;
};

// RFC 8032, section 7.1, tests 1 to 3.
constexpr Ed25519Vector kEd25519Vectors[] = {
    {"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
     "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"},
    {"3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
     "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"},
    {"fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
     "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
     "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"},
};

std::string Bytes(absl::string_view hex) {
  return HexDecode(hex).value_or("not hex");
}

TEST(Ed25519, AgreesWithTheVectorsOfRfc8032) {
  for (const Ed25519Vector& vector : kEd25519Vectors) {
    EXPECT_TRUE(Ed25519Verify(Bytes(vector.public_key), Bytes(vector.message),
                              Bytes(vector.signature)))
        << vector.public_key;
    EXPECT_FALSE(Ed25519Verify(Bytes(vector.public_key),
                               Bytes(vector.message) + "x",
                               Bytes(vector.signature)));
  }
}

TEST(Ed25519, RefusesEveryFlippedBitAndEveryOtherLength) {
  const std::string key = Bytes(kEd25519Vectors[2].public_key);
  const std::string message = Bytes(kEd25519Vectors[2].message);
  const std::string signature = Bytes(kEd25519Vectors[2].signature);
  const auto flipped = [](std::string bytes, size_t bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    return bytes;
  };
  for (size_t bit = 0; bit < signature.size() * 8; ++bit) {
    EXPECT_FALSE(Ed25519Verify(key, message, flipped(signature, bit))) << bit;
  }
  for (size_t bit = 0; bit < key.size() * 8; ++bit) {
    EXPECT_FALSE(Ed25519Verify(flipped(key, bit), message, signature)) << bit;
  }
  for (size_t bit = 0; bit < message.size() * 8; ++bit) {
    EXPECT_FALSE(Ed25519Verify(key, flipped(message, bit), signature)) << bit;
  }
  for (const std::string& other :
       {std::string(), signature.substr(0, 63), signature + "x"}) {
    EXPECT_FALSE(Ed25519Verify(key, message, other));
  }
  for (const std::string& other : {std::string(), key.substr(1), key + "x"}) {
    EXPECT_FALSE(Ed25519Verify(other, message, signature));
  }
  // A refusal is an answer and leaves no error behind for others to find.
  EXPECT_EQ(ERR_peek_error(), 0u);
}

// Under a point of small order the neutral element and zero sign everything.
TEST(Ed25519, C023_NoKeyUnderWhichAnybodyCanSign) {
  const std::string neutral = "01" + std::string(62, '0');
  const std::string signature = Bytes(neutral + std::string(64, '0'));
  for (const absl::string_view key :
       {"0000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000080",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000080",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"}) {
    EXPECT_FALSE(IsEd25519PublicKey(Bytes(key))) << key;
    for (int i = 0; i < 16; ++i) {
      EXPECT_FALSE(Ed25519Verify(Bytes(key), absl::StrCat(i), signature))
          << key;
    }
  }
  for (const Ed25519Vector& vector : kEd25519Vectors) {
    EXPECT_TRUE(IsEd25519PublicKey(Bytes(vector.public_key)));
  }
}

// RFC 4648, section 10.
TEST(Base64, AgreesWithThePublishedVectors) {
  for (const auto& [bytes, text] :
       {std::pair("", ""), std::pair("f", "Zg=="), std::pair("fo", "Zm8="),
        std::pair("foo", "Zm9v"), std::pair("foob", "Zm9vYg=="),
        std::pair("fooba", "Zm9vYmE="), std::pair("foobar", "Zm9vYmFy")}) {
    EXPECT_EQ(Base64Encode(bytes), text);
    EXPECT_THAT(Base64Decode(text), Optional(Eq(bytes)));
  }
}

TEST(Base64, RoundTripsEveryByteAtEveryPlace) {
  for (int shift = 0; shift < 3; ++shift) {
    std::string bytes(static_cast<size_t>(shift), 'x');
    for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
    EXPECT_THAT(Base64Decode(Base64Encode(bytes)), Optional(Eq(bytes)));
  }
}

TEST(Base64, BytesHaveOneTextOnly) {
  for (const absl::string_view bad :
       {"Z",     "Zg",   "Zg=",      "Zg===", "Zh==",  "Zm9=",  "=",
        "==",    "====", "Zg==Zg==", "Zm9v ", " Zm9v", "Zm 9v", "Zm9v\n",
        "Zm9\n", "Zm-v", "Zm_v",     "Zg..",  "Zm9v=", "Z=g=",  "Zm9vZ==="}) {
    EXPECT_EQ(Base64Decode(bad), std::nullopt) << bad;
  }
  EXPECT_EQ(Base64Decode(absl::string_view("Zg\0=", 4)), std::nullopt);
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
