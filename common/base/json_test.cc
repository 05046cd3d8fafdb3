#include "common/base/json.h"

#include <pthread.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace tenure {
namespace {

using test::HasReason;
using test::IsOk;
using test::StatusIs;
using ::testing::AllOf;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;
using ::testing::SizeIs;

auto IsMalformed(const std::string& what = "") {
  return AllOf(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what)),
               HasReason(common::v1::ERROR_REASON_EVENT_MALFORMED));
}

// The value of a text that must parse.
JsonValue Parsed(absl::string_view text) {
  absl::StatusOr<JsonValue> value = ParseJson(text);
  EXPECT_THAT(value, IsOk()) << text;
  return value.ok() ? *std::move(value) : JsonValue();
}

std::string Nested(size_t depth, absl::string_view open,
                   absl::string_view close) {
  std::string text;
  for (size_t i = 0; i < depth; ++i) absl::StrAppend(&text, open);
  for (size_t i = 0; i < depth; ++i) absl::StrAppend(&text, close);
  return text;
}

std::string NestedObjects(size_t depth) {
  return absl::StrCat(Nested(depth - 1, "{\"a\":", ""), "{}",
                      std::string(depth - 1, '}'));
}

// Runs `work` on a thread with a stack of 256 KiB, as C033 asks.
void OnSmallStack(void (*work)()) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 256 * 1024), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, &attributes,
                [](void* argument) -> void* {
                  reinterpret_cast<void (*)()>(argument)();
                  return nullptr;
                },
                reinterpret_cast<void*>(work)),
            0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

TEST(ParseJson, ReadsEveryKindOfValue) {
  const JsonValue root =
      Parsed(R"( {"s":"\u4e2d\/\n","i":-7,"t":true,"f":false,"n":null,)"
             R"("a":[1,"x",[]],"o":{"k":{"id":"sub_1"}},"d":2.5} )");

  EXPECT_TRUE(root.IsObject());
  EXPECT_THAT(root.members(), SizeIs(8));
  EXPECT_THAT(root.Find("s")->AsString(), Optional(Eq("中/\n")));
  EXPECT_THAT(root.Find("i")->AsInt64(), Optional(-7));
  EXPECT_THAT(root.Find("t")->AsBool(), Optional(true));
  EXPECT_THAT(root.Find("f")->AsBool(), Optional(false));
  EXPECT_TRUE(root.Find("n")->IsNull());
  ASSERT_THAT(root.Find("a")->items(), SizeIs(3));
  EXPECT_THAT(root.Find("a")->items()[0].AsInt64(), Optional(1));
  EXPECT_TRUE(root.Find("a")->items()[2].IsArray());
  EXPECT_THAT(root.Find("d")->AsDouble(), Optional(2.5));
  EXPECT_THAT(root.At({"o", "k", "id"})->AsString(), Optional(Eq("sub_1")));
}

TEST(ParseJson, AnswersNothingForWhatIsNotThereOrOfAnotherKind) {
  const JsonValue root = Parsed(R"({"a":{"b":1},"s":"1"})");

  EXPECT_EQ(root.Find("x"), nullptr);
  EXPECT_EQ(root.At({"a", "x"}), nullptr);
  EXPECT_EQ(root.At({"a", "b", "c"}), nullptr);
  EXPECT_EQ(root.At({"x", "y", "z"}), nullptr);
  EXPECT_EQ(root.At({}), &root);
  EXPECT_EQ(root.Find("s")->AsInt64(), std::nullopt);
  EXPECT_EQ(root.Find("s")->AsBool(), std::nullopt);
  EXPECT_EQ(root.Find("s")->AsDouble(), std::nullopt);
  EXPECT_EQ(root.At({"a", "b"})->AsString(), std::nullopt);
  EXPECT_THAT(root.items(), SizeIs(0));
  EXPECT_THAT(root.Find("s")->members(), SizeIs(0));
}

TEST(ParseJson, KeepsIntegersExactAndConvertsNothingToThem) {
  const JsonValue root = Parsed(
      "[9007199254740993,9223372036854775807,-9223372036854775808,"
      "9223372036854775808,18446744073709551615,18446744073709551616,"
      "1.0,1e0,-0,0]");
  const absl::Span<const JsonValue> items = root.items();

  EXPECT_THAT(items[0].AsInt64(), Optional(9007199254740993));
  EXPECT_THAT(items[1].AsInt64(), Optional(INT64_MAX));
  EXPECT_THAT(items[2].AsInt64(), Optional(INT64_MIN));
  for (const size_t i : {3, 4, 5, 6, 7}) {
    EXPECT_EQ(items[i].AsInt64(), std::nullopt) << i;
    EXPECT_TRUE(items[i].IsNumber()) << i;
  }
  EXPECT_THAT(items[4].AsDouble(), Optional(18446744073709551615.0));
  EXPECT_THAT(items[6].AsDouble(), Optional(1.0));
  EXPECT_THAT(items[8].AsInt64(), Optional(0));
  EXPECT_THAT(items[9].AsInt64(), Optional(0));
}

TEST(ParseJson, LetsTheLastOfEqualKeysWinAsJsonbDoes) {
  const JsonValue root =
      Parsed(R"({"id":"first","z":1,"id":"second","a":{"id":1,"id":{"x":2}},)"
             R"("\u0069d":"third"})");

  EXPECT_THAT(root.Find("id")->AsString(), Optional(Eq("third")));
  EXPECT_THAT(root.At({"a", "id", "x"})->AsInt64(), Optional(2));
  EXPECT_THAT(root.members(), SizeIs(3));
}

TEST(ParseJson, FindsEveryKeyOfAWideObject) {
  std::string text = "{";
  for (int i = 0; i < 5000; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ",", "\"k", i * 7919 % 5000,
                    "\":", i * 7919 % 5000);
  }
  const JsonValue root = Parsed(absl::StrCat(text, "}"));

  ASSERT_THAT(root.members(), SizeIs(5000));
  for (int i = 0; i < 5000; ++i) {
    const JsonValue* value = root.Find(absl::StrCat("k", i));
    ASSERT_NE(value, nullptr) << i;
    EXPECT_THAT(value->AsInt64(), Optional(i));
  }
}

TEST(ParseJson, C031_AllowsTheEscapeOfNulInValuesAndKeys) {
  const JsonValue root =
      Parsed(R"({"id":"evt_1","name":"a\u0000b","k\u0000":"v"})");

  EXPECT_THAT(root.Find("id")->AsString(), Optional(Eq("evt_1")));
  EXPECT_THAT(root.Find("name")->AsString(),
              Optional(Eq(absl::string_view("a\0b", 3))));
  EXPECT_EQ(root.Find("k"), nullptr);
  ASSERT_NE(root.Find(absl::string_view("k\0", 2)), nullptr);
}

TEST(ParseJson, C031_RefusesARawNulAnywhere) {
  const std::string text = R"({"id":"evt_1","n":[1,2]})";
  for (size_t i = 0; i <= text.size(); ++i) {
    std::string with_nul = text;
    with_nul.insert(i, 1, '\0');
    EXPECT_THAT(ParseJson(with_nul),
                IsMalformed(absl::StrCat("NUL byte at byte ", i)));
  }
}

TEST(ParseJson, C032_RefusesInvalidUtf8AndByteOrderMarks) {
  EXPECT_THAT(ParseJson("{\"a\":\"\xff\xfe\"}"),
              IsMalformed("invalid UTF-8 at byte 6"));
  EXPECT_THAT(ParseJson("{\"a\":\"\xc0\x80\"}"), IsMalformed("at byte 6"));
  // A surrogate in UTF-8 form.
  EXPECT_THAT(ParseJson("\"\xed\xa0\x80\""), IsMalformed("at byte 1"));
  EXPECT_THAT(ParseJson("\"\xf4\x90\x80\x80\""), IsMalformed("at byte 1"));
  EXPECT_THAT(ParseJson("\"中\xe4\xb8\""), IsMalformed("at byte 4"));
  EXPECT_THAT(ParseJson("\xef\xbb\xbf{}"), IsMalformed("byte order mark"));
  EXPECT_THAT(ParseJson(absl::string_view("\xff\xfe{\0}\0", 6)), IsMalformed());
  EXPECT_THAT(ParseJson(absl::string_view("\xfe\xff\0{\0}", 6)), IsMalformed());
  // Outside strings it is a syntax error of its own kind.
  EXPECT_THAT(ParseJson("{}\xef\xbb\xbf"), IsMalformed());
}

TEST(ParseJson, C032_LoneSurrogateSpoilsOnlyItsOwnString) {
  const JsonValue root =
      Parsed(R"({"id":"evt_1","note":"x\ud800y","after":"ok",)"
             R"("list":["a","\uDFFF","b"],"k\udc00":1})");

  EXPECT_THAT(root.Find("id")->AsString(), Optional(Eq("evt_1")));
  EXPECT_THAT(root.Find("after")->AsString(), Optional(Eq("ok")));
  const JsonValue* note = root.Find("note");
  ASSERT_NE(note, nullptr);
  EXPECT_TRUE(note->IsString());
  EXPECT_TRUE(note->has_lone_surrogate());
  EXPECT_EQ(note->AsString(), std::nullopt);
  const absl::Span<const JsonValue> list = root.Find("list")->items();
  EXPECT_THAT(list[0].AsString(), Optional(Eq("a")));
  EXPECT_EQ(list[1].AsString(), std::nullopt);
  EXPECT_THAT(list[2].AsString(), Optional(Eq("b")));
  EXPECT_EQ(root.Find("k\xef\xbf\xbd"), nullptr);
  EXPECT_TRUE(root.members().back().key_has_lone_surrogate);
}

TEST(ParseJson, C032_TellsLoneSurrogatesFromPairsAndEscapedBackslashes) {
  const struct {
    absl::string_view text;
    std::optional<absl::string_view> value;
  } kCases[] = {
      {R"("\ud800\udc00")", "\xF0\x90\x80\x80"},
      {R"("\uDBFF\uDFFF")", "\xF4\x8F\xBF\xBF"},
      {R"("\ud83d\ude00!")", "\xF0\x9F\x98\x80!"},
      {R"("\\ud800")", "\\ud800"},
      {R"("\"\\\"ud800")", "\"\\\"ud800"},
      {R"("\ufffd")", "\xEF\xBF\xBD"},
      {R"("\ud7ff\ue000")", "\xED\x9F\xBF\xEE\x80\x80"},
      {R"("\\\ud800")", std::nullopt},
      {R"("\ud800")", std::nullopt},
      {R"("\udc00")", std::nullopt},
      {R"("\ud800\ud800\udc00")", std::nullopt},
      {R"("\ud800\u0041")", std::nullopt},
      {R"("\ud800\n")", std::nullopt},
      {R"("\ud800x\udc00")", std::nullopt},
      {R"("\udc00\ud800")", std::nullopt},
      {R"("\ud800\"")", std::nullopt},
  };
  for (const auto& test_case : kCases) {
    const JsonValue value = Parsed(test_case.text);
    EXPECT_TRUE(value.IsString()) << test_case.text;
    EXPECT_EQ(value.AsString(), test_case.value) << test_case.text;
    EXPECT_EQ(value.has_lone_surrogate(), !test_case.value.has_value());
  }
  for (const absl::string_view bad :
       {R"("\ud8")", R"("\ud800)", R"("\ud800\)", R"("\ud800\u")",
        R"("\ud800\udc")", R"("\ud80g")", R"(\ud800)", R"("\u{d800}")"}) {
    EXPECT_THAT(ParseJson(bad), IsMalformed()) << bad;
  }
}

TEST(ParseJson, C033_BoundsTheDepthOnASmallStack) {
  OnSmallStack([] {
    for (const size_t depth : {1, 32, 64}) {
      EXPECT_THAT(ParseJson(Nested(depth, "[", "]")), IsOk()) << depth;
      EXPECT_THAT(ParseJson(NestedObjects(depth)), IsOk()) << depth;
    }
    for (const size_t depth : {65, 1000, 100'000, 200'000}) {
      // At its own limit of bytes an object of 200 000 levels is refused too.
      JsonLimits limits;
      limits.max_bytes = 4 * 1024 * 1024;
      EXPECT_THAT(ParseJson(Nested(depth, "[", "]"), limits),
                  IsMalformed("deeper than 64"));
      EXPECT_THAT(ParseJson(NestedObjects(depth), limits),
                  IsMalformed("deeper than 64"));
      EXPECT_THAT(ParseJson(std::string(depth, '['), limits),
                  IsMalformed("deeper than 64"));
    }
  });
}

TEST(ParseJson, C033_DestroysTheDeepestTreeItAgreesToBuild) {
  OnSmallStack([] {
    JsonLimits limits;
    limits.max_depth = SIZE_MAX;
    EXPECT_THAT(ParseJson(Nested(1001, "[", "]"), limits),
                IsMalformed("deeper than 1000"));
    EXPECT_THAT(ParseJson(Nested(1000, "[", "]"), limits), IsOk());
    EXPECT_THAT(ParseJson(NestedObjects(1000), limits), IsOk());
  });
}

TEST(ParseJson, C033_BoundsTheNumberOfValues) {
  JsonLimits limits;
  limits.max_values = 4;
  EXPECT_THAT(ParseJson("[1,2,3]", limits), IsOk());
  EXPECT_THAT(ParseJson("[1,2,3,4]", limits),
              IsMalformed("more than 4 values"));
  EXPECT_THAT(ParseJson("[[],[],[],[]]", limits), IsMalformed());
  EXPECT_THAT(ParseJson(R"({"a":{},"b":{},"c":{},"d":{}})", limits),
              IsMalformed());

  std::string wide = "[0";
  for (int i = 0; i < 500'000; ++i) wide += ",0";
  EXPECT_THAT(ParseJson(absl::StrCat(wide, "]")),
              IsMalformed("more than 100000 values"));
}

TEST(ParseJson, C037_RefusesEveryProperPrefixOfAText) {
  const std::string text =
      R"({"id":"evt_1","n":[1.5e3,-2,true,null],"s":"\u4e2d\ud83d\ude00中",)"
      R"("o":{"k":"\ud800"}})";
  ASSERT_THAT(ParseJson(text), IsOk());

  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_THAT(ParseJson(text.substr(0, length)), IsMalformed())
        << text.substr(0, length);
  }
  EXPECT_THAT(ParseJson(text.substr(0, 5)), IsMalformed("ends too early"));
}

TEST(ParseJson, C037_RefusesTrailingInputAndRelaxedSyntax) {
  for (const absl::string_view bad :
       {"{}{}",      "{} x",      "1 2",       "[1],",     "NaN",
        "[NaN]",     "Infinity",  "-Infinity", "// c\n{}", "/* c */{}",
        "{} // c",   "{'a':1}",   "{a:1}",     "[1,]",     "{\"a\":1,}",
        "01",        "+1",        ".5",        "1.",       "0x1",
        "True",      "nul",       "\"\t\"",    "\"\n\"",   "\"\\x41\"",
        "\"\\u12\"", "{\"a\" 1}", "{1:2}",     "",         " ",
        "\"",        "{",         "[",         "]",        "}",
        ",",         ":",         "\x7f",      "\f1"}) {
    EXPECT_THAT(ParseJson(bad), IsMalformed()) << bad;
  }
  EXPECT_THAT(ParseJson("{}{}"), IsMalformed("at byte 2"));
  EXPECT_THAT(ParseJson(" \t\r\n{} \t\r\n"), IsOk());
}

TEST(ParseJson, C037_RefusesATextOverTheLimitOfBytes) {
  const std::string huge =
      absl::StrCat("\"", std::string(10'000'000, 'a'), "\"");
  EXPECT_THAT(ParseJson(huge), IsMalformed("larger than 1048576 bytes"));

  const std::string largest =
      absl::StrCat("\"", std::string(1024 * 1024 - 2, 'a'), "\"");
  EXPECT_THAT(ParseJson(largest), IsOk());
  EXPECT_THAT(ParseJson(largest + " "), IsMalformed());
}

TEST(ParseJson, C037_RefusesANumberNoDoubleHoldsWithoutAnException) {
  EXPECT_THAT(ParseJson("[1e400]"), IsMalformed("out of range"));
  EXPECT_THAT(ParseJson(std::string(100'000, '9')),
              IsMalformed("out of range"));
  EXPECT_THAT(Parsed("1e-400").AsDouble(), Optional(0.0));
}

TEST(ParseJson, NeverQuotesTheText) {
  for (const absl::string_view bad :
       {"{\"card\":\"4242424242424242\" x", "4242424242424242x",
        "{\"4242424242424242\":\"\\q\"}"}) {
    const absl::StatusOr<JsonValue> value = ParseJson(bad);
    EXPECT_THAT(value, IsMalformed());
    EXPECT_THAT(value.status().ToString(), Not(HasSubstr("4242")));
  }
}

// Whatever the bytes are, there is an answer and no exception.
TEST(ParseJson, C037_SurvivesRandomDamageToAText) {
  const std::string text =
      R"({"id":"evt_1","n":[1.5e3,-2,true,null],"s":"\u4e2d\ud83d\ude00",)"
      R"("o":{"k":"\ud800","k":"\\\"\ud800"}})";
  std::mt19937 random(20261130);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string damaged = text;
    const size_t edits = 1 + random() % 3;
    for (size_t i = 0; i < edits; ++i) {
      static constexpr char kLikely[] = "\"\\u{}[]:,d8c0 \0\xff";
      damaged[random() % damaged.size()] =
          random() % 2 == 0 ? kLikely[random() % (sizeof(kLikely) - 1)]
                            : static_cast<char>(random());
    }
    const absl::StatusOr<JsonValue> value = ParseJson(damaged);
    if (value.ok()) {
      ++accepted;
    } else {
      ASSERT_THAT(value, IsMalformed());
    }
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace tenure
