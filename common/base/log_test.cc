#include "common/base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace tenure::log {
namespace {

using ::testing::Each;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;
using ::testing::SizeIs;

class LogTest : public ::testing::Test {
 protected:
  LogTest() { Configure("tenure-test", Level::kInfo); }
  ~LogTest() override { Configure("", Level::kInfo); }

  // The text that `write` logs.
  template <typename F>
  static std::string Captured(F write) {
    ::testing::internal::CaptureStderr();
    write();
    return ::testing::internal::GetCapturedStderr();
  }

  // The one line that `write` logs, parsed.
  template <typename F>
  static JsonValue CapturedLine(F write) {
    const std::string text = Captured(write);
    EXPECT_TRUE(absl::EndsWith(text, "\n"));
    EXPECT_EQ(text.find('\n'), text.size() - 1);
    absl::StatusOr<JsonValue> line = ParseJson(text);
    EXPECT_THAT(line, test::IsOk()) << text;
    return line.ok() ? *std::move(line) : JsonValue();
  }

  static std::string Text(const JsonValue& line, absl::string_view key) {
    const JsonValue* value = line.Find(key);
    if (value == nullptr || !value->AsString().has_value()) return "(none)";
    return std::string(*value->AsString());
  }
};

// Puts a pipe in the place of standard error for its scope.
class StderrPipe {
 public:
  StderrPipe() {
    saved_ = ::dup(STDERR_FILENO);
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reader_ = ends[0];
    EXPECT_GE(::dup2(ends[1], STDERR_FILENO), 0);
    ::close(ends[1]);
    // One page: the smallest a pipe can be.
    EXPECT_GE(::fcntl(STDERR_FILENO, F_SETPIPE_SZ, 4096), 4096);
  }
  ~StderrPipe() {
    ::dup2(saved_, STDERR_FILENO);
    ::close(saved_);
    CloseReader();
  }
  void CloseReader() {
    if (reader_ >= 0) ::close(reader_);
    reader_ = -1;
  }
  // All that is in the pipe now.
  std::string Read() {
    ::fcntl(reader_, F_SETFL, O_NONBLOCK);
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = ::read(reader_, buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<size_t>(n));
    }
    return text;
  }

 private:
  int saved_ = -1;
  int reader_ = -1;
};

TEST_F(LogTest, WritesOneJsonObjectPerLine) {
  const JsonValue line = CapturedLine([] {
    Warning("pool is full", {{"waiting", 3},
                             {"big", int64_t{9007199254740993}},
                             {"most", std::numeric_limits<uint64_t>::max()},
                             {"ratio", 0.5},
                             {"ok", false},
                             {"route", "stripe"},
                             {"waited", absl::Milliseconds(1500)},
                             {"since", absl::FromUnixSeconds(0)}});
  });

  EXPECT_THAT(Text(line, "time"),
              ::testing::MatchesRegex(
                  "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
                  "\\.[0-9]{6}Z"));
  EXPECT_EQ(Text(line, "level"), "warning");
  EXPECT_EQ(Text(line, "message"), "pool is full");
  EXPECT_EQ(Text(line, "service"), "tenure-test");
  EXPECT_EQ(line.Find("request_id"), nullptr);
  EXPECT_THAT(line.Find("waiting")->AsInt64(), Optional(3));
  EXPECT_THAT(line.Find("big")->AsInt64(), Optional(9007199254740993));
  EXPECT_TRUE(line.Find("most")->IsNumber());
  EXPECT_THAT(line.Find("ratio")->AsDouble(), Optional(0.5));
  EXPECT_THAT(line.Find("ok")->AsBool(), Optional(false));
  EXPECT_EQ(Text(line, "route"), "stripe");
  EXPECT_THAT(line.Find("waited")->AsDouble(), Optional(1.5));
  EXPECT_EQ(Text(line, "since"), "1970-01-01T00:00:00+00:00");
}

TEST_F(LogTest, LeavesOutLevelsBelowTheLowest) {
  EXPECT_EQ(Captured([] { Debug("quiet"); }), "");
  EXPECT_EQ(Text(CapturedLine([] { Info("x"); }), "level"), "info");
  EXPECT_EQ(Text(CapturedLine([] { Error("x"); }), "level"), "error");

  Configure("tenure-test", Level::kDebug);
  EXPECT_EQ(Text(CapturedLine([] { Debug("x"); }), "level"), "debug");
  Configure("tenure-test", Level::kError);
  EXPECT_EQ(Captured([] { Warning("quiet"); }), "");
}

TEST_F(LogTest, ReadsLevelNamesExactly) {
  Level level = Level::kDebug;
  EXPECT_TRUE(ParseLevel("warning", &level));
  EXPECT_EQ(level, Level::kWarning);
  for (const absl::string_view bad : {"", "WARNING", "warn", "info ", "3"}) {
    EXPECT_FALSE(ParseLevel(bad, &level)) << bad;
  }
  EXPECT_EQ(level, Level::kWarning);
}

TEST_F(LogTest, EscapesControlCharactersAndTerminalSequences) {
  std::string hostile;
  for (int i = 0; i < 0x20; ++i) hostile.push_back(static_cast<char>(i));
  // DEL, a C1 control sequence introducer, a line separator and a
  // right-to-left override.
  hostile += "\x7f\"\\\x1b[2J\x1b]0;owned\x07\xc2\x9b\xe2\x80\xa8\xe2\x80\xae";

  std::string text;
  const JsonValue line = CapturedLine([&] {
    Info(hostile, {{"key\n\x1b[31m", hostile}});
  });
  text = Captured([&] { Info(hostile, {{"key\n\x1b[31m", hostile}}); });

  text.pop_back();
  for (const char c : text) {
    ASSERT_GE(static_cast<unsigned char>(c), 0x20);
    ASSERT_LT(static_cast<unsigned char>(c), 0x7f);
  }
  EXPECT_EQ(Text(line, "message"), hostile);
  EXPECT_EQ(Text(line, "key\n\x1b[31m"), hostile);
}

TEST_F(LogTest, CannotBeMadeToForgeALine) {
  const std::string forged =
      "x\n{\"level\":\"error\",\"message\":\"forged\"}\r\n";
  const std::string text = Captured([&] { Info("m", {{"subject", forged}}); });

  EXPECT_THAT(std::vector<std::string>(absl::StrSplit(text, '\n')), SizeIs(2));
}

TEST_F(LogTest, ReplacesInvalidUtf8AndKeepsValid) {
  const JsonValue line = CapturedLine([] {
    Info("m", {{"bad", "a\xff\xc0\x80z\xe4\xb8"}, {"good", "中文 😀"}});
  });

  EXPECT_EQ(Text(line, "bad"),
            "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDz\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(Text(line, "good"), "中文 😀");
}

TEST_F(LogTest, CutsAValueOfTenMegabytes) {
  const std::string huge(10'000'000, 'a');
  const JsonValue line = CapturedLine([&] { Info(huge, {{"v", huge}}); });

  for (const absl::string_view key : {"message", "v"}) {
    EXPECT_LE(Text(line, key).size(), kMaxValueBytes);
    EXPECT_THAT(Text(line, key), ::testing::EndsWith("...(10000000 bytes)"));
  }
}

TEST_F(LogTest, CutsBetweenCharacters) {
  for (size_t shift = 0; shift < 4; ++shift) {
    std::string text(shift, 'a');
    while (text.size() < 3000) text += "😀";
    const JsonValue line = CapturedLine([&] { Info("m", {{"v", text}}); });
    EXPECT_THAT(Text(line, "v"), Not(HasSubstr("\xEF\xBF\xBD")));
    EXPECT_LE(Text(line, "v").size(), kMaxValueBytes);
  }
}

TEST_F(LogTest, CapsTheLineAndSaysWhatItLeftOut) {
  // Each byte takes six in the line.
  const std::string wide(kMaxValueBytes, '\x01');
  const std::string text = Captured([&] {
    Info(wide, {{"a", wide}, {"b", wide}, {"c", wide}, {"short", 1}});
  });

  EXPECT_LE(text.size(), kMaxLineBytes);
  const absl::StatusOr<JsonValue> line = ParseJson(text);
  ASSERT_THAT(line, test::IsOk());
  EXPECT_NE(line->Find("a"), nullptr);
  EXPECT_EQ(line->Find("c"), nullptr);
  EXPECT_THAT(line->Find("short")->AsInt64(), Optional(1));
  EXPECT_THAT(line->Find("fields_left_out")->AsInt64(), Optional(2));
}

TEST_F(LogTest, WritesWhatJsonHasNoNumberForAsText) {
  const JsonValue line = CapturedLine([] {
    Info("m", {{"nan", std::nan("")},
               {"inf", -std::numeric_limits<double>::infinity()},
               {"forever", absl::InfiniteDuration()},
               {"never", absl::InfiniteFuture()},
               {"tiny", 1e-300},
               {"large", 1e300}});
  });

  EXPECT_THAT(Text(line, "nan"), HasSubstr("nan"));
  EXPECT_EQ(Text(line, "inf"), "-inf");
  EXPECT_EQ(Text(line, "forever"), "inf");
  EXPECT_EQ(Text(line, "never"), "infinite-future");
  EXPECT_TRUE(line.Find("tiny")->IsNumber());
  EXPECT_TRUE(line.Find("large")->IsNumber());
}

TEST_F(LogTest, PutsTheInnermostRequestIdIntoEveryLineOfItsThread) {
  const auto id_of_line = [] {
    return Text(CapturedLine([] { Info("m"); }), "request_id");
  };

  EXPECT_EQ(id_of_line(), "(none)");
  {
    const ScopedRequestId outer("outer");
    EXPECT_EQ(id_of_line(), "outer");
    {
      const ScopedRequestId inner("inner");
      EXPECT_EQ(id_of_line(), "inner");
      EXPECT_EQ(ScopedRequestId::Current(), "inner");
      std::thread other([] { EXPECT_EQ(ScopedRequestId::Current(), ""); });
      other.join();
    }
    EXPECT_EQ(id_of_line(), "outer");
  }
  EXPECT_EQ(id_of_line(), "(none)");

  const ScopedRequestId hostile(std::string(100'000, '\n'));
  EXPECT_LE(id_of_line().size(), 128u);
}

TEST_F(LogTest, MakesRequestIdsOfThirtyTwoHexDigits) {
  const std::string id = NewRequestId();

  EXPECT_THAT(id, ::testing::MatchesRegex("[0-9a-f]{32}"));
  EXPECT_NE(id, NewRequestId());
}

TEST_F(LogTest, KeepsLinesOfSeveralThreadsApart) {
  const std::string text = Captured([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([t] {
        const ScopedRequestId id(std::to_string(t));
        for (int i = 0; i < 100; ++i) {
          Info("m", {{"t", t}, {"pad", std::string(900, 'x')}});
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });

  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  lines.pop_back();
  ASSERT_THAT(lines, SizeIs(400));
  for (const std::string& line : lines) {
    const absl::StatusOr<JsonValue> parsed = ParseJson(line);
    ASSERT_THAT(parsed, test::IsOk()) << line;
    EXPECT_EQ(Text(*parsed, "request_id"),
              std::to_string(*parsed->Find("t")->AsInt64()));
  }
}

TEST_F(LogTest, CountsALineNobodyReadsAndLivesOn) {
  const int64_t before = DroppedLines();
  {
    StderrPipe pipe;
    pipe.CloseReader();
    Info("nobody hears this");
  }
  EXPECT_EQ(DroppedLines(), before + 1);
}

TEST_F(LogTest, NeverWaitsForAReaderThatStopped) {
  const int64_t before = DroppedLines();
  std::string text;
  {
    StderrPipe pipe;
    // More than the pipe holds; without a bound this would never return.
    for (int i = 0; i < 40; ++i) Info("m", {{"pad", std::string(500, 'x')}});
    text = pipe.Read();
  }
  const int64_t dropped = DroppedLines() - before;
  EXPECT_GT(dropped, 0);
  EXPECT_LT(dropped, 40);
}

TEST_F(LogTest, StartsAFreshLineAfterOneThatWasTorn) {
  std::string text;
  {
    StderrPipe pipe;
    const std::string wide(kMaxValueBytes, '\x01');
    Info("torn", {{"a", wide}, {"b", wide}});  // 12 KiB into a pipe of 4.
    text = pipe.Read();
    Info("whole");
    text += pipe.Read();
  }

  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_FALSE(ParseJson(lines[0]).ok());
  const absl::StatusOr<JsonValue> whole = ParseJson(lines[1]);
  ASSERT_THAT(whole, test::IsOk());
  EXPECT_EQ(Text(*whole, "message"), "whole");
}

}  // namespace
}  // namespace tenure::log
