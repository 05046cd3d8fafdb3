#include "common/db/result.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/db/connection.h"
#include "common/db/params.h"
#include "common/db/sql_error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace tenure::db {
namespace {

using ::tenure::test::HasReason;
using ::tenure::test::IsOk;
using ::tenure::test::IsOkAndHolds;
using ::tenure::test::StatusIs;
using ::tenure::test::TestDatabase;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Statement kEchoBool{"echo_bool", "SELECT $1::boolean AS v"};
constexpr Statement kEchoInt{"echo_int", "SELECT $1::bigint AS v"};
constexpr Statement kEchoText{"echo_text", "SELECT $1::text AS v"};
constexpr Statement kEchoBytea{"echo_bytea", "SELECT $1::bytea AS v"};
constexpr Statement kEchoTime{"echo_time", "SELECT $1::timestamptz AS v"};
constexpr Statement kEchoInterval{
    "echo_interval",
    "SELECT (extract(epoch FROM $1::interval) * 1000000)::bigint AS v"};
constexpr Statement kEchoInts{
    "echo_ints",
    "SELECT v FROM unnest($1::bigint[]) WITH ORDINALITY u(v, i) ORDER BY i"};
constexpr Statement kEchoTexts{
    "echo_texts",
    "SELECT v FROM unnest($1::text[]) WITH ORDINALITY u(v, i) ORDER BY i"};

absl::Time Instant(absl::string_view text) {
  absl::Time time;
  std::string error;
  EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, text, &time, &error))
      << text << ": " << error;
  return time;
}

class ResultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    ConnectionOptions options;
    options.conninfo = database_->conninfo();
    ASSERT_OK_AND_ASSIGN(connection_, Connection::Open(options));
  }

  Result Run(const Statement& statement, const Params& params = {}) {
    absl::StatusOr<Result> result = connection_->Execute(statement, params);
    EXPECT_THAT(result, IsOk());
    // Without a result there is nothing to go on with.
    if (!result.ok()) throw std::runtime_error(result.status().ToString());
    return *std::move(result);
  }

  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<Connection> connection_;
};

TEST_F(ResultTest, BooleansAndIntegersComeBackAsSent) {
  for (const bool value : {false, true}) {
    EXPECT_EQ(Run(kEchoBool, MakeParams(value))[0].Bool("v"), value);
  }
  for (const int64_t value :
       {int64_t{0}, int64_t{-1}, int64_t{2147483648}, int64_t{1} << 53,
        std::numeric_limits<int64_t>::min(),
        std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(Run(kEchoInt, MakeParams(value))[0].Int64("v"), value);
  }
}

TEST_F(ResultTest, TextComesBackAsSent) {
  for (const std::string value :
       {"", "plain", "it's", "back\\slash", "\"quoted\"", "{a,b}", "NULL",
        "\\x00", "line\nbreak\ttab\r", "$1 %s ?", "süß 日本語 🎉", "e\xCC\x81",
        "'; DROP TABLE subject; --"}) {
    EXPECT_EQ(Run(kEchoText, MakeParams(value))[0].Text("v"), value);
  }
  const std::string big(1 << 20, 'x');
  EXPECT_EQ(Run(kEchoText, MakeParams(big))[0].Text("v"), big);
}

TEST_F(ResultTest, TextWithANulByteIsRefusedAndNotCutOff) {
  const std::string value("a\0b", 3);
  const absl::Status status =
      connection_->Execute(kEchoText, MakeParams(value)).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(SqlStateOf(status), "22021");
  EXPECT_THAT(connection_->Execute(kEchoTexts,
                                   MakeParams(std::vector<std::string>{value})),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_TRUE(connection_->usable());

  ASSERT_OK_AND_ASSIGN(const auto tx, Transaction::Begin(*connection_));
  EXPECT_THAT(tx->Execute(kEchoText, MakeParams(value)),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(tx->Commit(), Not(IsOk()));
}

TEST_F(ResultTest, BytesComeBackAsSent) {
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  for (const std::string& value :
       {std::string(), std::string(1, '\0'), std::string("\0a\0", 3), all,
        std::string(1 << 20, '\xff')}) {
    EXPECT_EQ(Run(kEchoBytea, MakeParams(Bytes{value}))[0].Bytea("v"), value);
  }
}

TEST_F(ResultTest, InstantsKeepTheirMicrosecondsFromYear1To9999) {
  for (const char* text :
       {"0001-01-01T00:00:00Z", "1000-02-28T23:59:59.000001Z",
        "1969-12-31T23:59:59.999999Z", "1970-01-01T00:00:00Z",
        "2026-03-29T00:59:59.5Z", "2026-03-29T01:00:00.10Z",
        "2028-02-29T12:00:00Z", "2038-01-19T03:14:08Z",
        "9999-12-31T23:59:59.999999Z"}) {
    const absl::Time value = Instant(text);
    EXPECT_EQ(Run(kEchoTime, MakeParams(value))[0].Time("v"), value) << text;
  }
}

TEST_F(ResultTest, AnInstantIsCutToWholeMicrosecondsNeverRoundedUp) {
  const absl::Time second = Instant("2026-11-30T10:00:00Z");
  EXPECT_EQ(
      Run(kEchoTime, MakeParams(second - absl::Nanoseconds(1)))[0].Time("v"),
      second - absl::Microseconds(1));
  const absl::Time before_epoch = Instant("1969-12-31T23:59:59Z");
  EXPECT_EQ(
      Run(kEchoTime, MakeParams(before_epoch + absl::Nanoseconds(1999)))[0]
          .Time("v"),
      before_epoch + absl::Microseconds(1));
}

TEST_F(ResultTest, C070_AnInfiniteInstantIsSentAsNull) {
  for (const absl::Time value :
       {absl::InfiniteFuture(), absl::InfinitePast()}) {
    EXPECT_EQ(Run(kEchoTime, MakeParams(value))[0].OptionalTime("v"),
              std::nullopt);
  }
}

TEST_F(ResultTest, C070_AnInfiniteInstantFromTheDatabaseIsAnErrorNotADate) {
  for (const char* value : {"infinity", "-infinity", "4000-01-01 00:00:00 BC",
                            "294276-12-31 00:00:00+00"}) {
    const Result result = Run(kEchoTime, MakeParams(value));
    const absl::Time read = result[0].Time("v");
    if (result.status().ok()) {
      EXPECT_EQ(read, Instant("294276-12-31T00:00:00Z")) << value;
    } else {
      EXPECT_THAT(result.status(), StatusIs(absl::StatusCode::kInternal,
                                            HasSubstr("an instant in UTC")));
      EXPECT_EQ(read, absl::UnixEpoch());
    }
  }
}

TEST_F(ResultTest, IntervalsComeBackAsMicroseconds) {
  for (const absl::Duration value :
       {absl::ZeroDuration(), absl::Microseconds(1), absl::Milliseconds(-250),
        absl::Hours(24 * 366 * 10), -absl::Hours(36)}) {
    EXPECT_EQ(Run(kEchoInterval, MakeParams(value))[0].Interval("v"), value);
  }
}

TEST_F(ResultTest, ArraysComeBackAsSent) {
  const std::vector<int64_t> ints = {0, -7, std::numeric_limits<int64_t>::max(),
                                     std::numeric_limits<int64_t>::min()};
  const Result int_rows = Run(kEchoInts, MakeParams(ints));
  ASSERT_EQ(int_rows.size(), ints.size());
  for (size_t i = 0; i < ints.size(); ++i) {
    EXPECT_EQ(int_rows[i].Int64("v"), ints[i]);
  }

  const std::vector<std::string> texts = {
      "",     "NULL", "null", "a,b",       "{",         "}",
      "\"",   "\\",   " ",    "  lead",    "trail  ",   "it's",
      "\\\"", "süß",  "🎉",    "new\nline", "{\"a\",b}", "x"};
  const Result text_rows = Run(kEchoTexts, MakeParams(texts));
  ASSERT_EQ(text_rows.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(text_rows[i].Text("v"), texts[i]);
  }

  EXPECT_TRUE(Run(kEchoInts, MakeParams(std::vector<int64_t>())).empty());
  EXPECT_TRUE(Run(kEchoTexts, MakeParams(std::vector<std::string>())).empty());
}

TEST_F(ResultTest, AbsentValuesAreNullBothWays) {
  const Result ints = Run(kEchoInt, MakeParams(std::optional<int64_t>()));
  EXPECT_TRUE(ints[0].IsNull("v"));
  EXPECT_EQ(ints[0].OptionalInt64("v"), std::nullopt);
  const Result texts = Run(kEchoText, MakeParams(std::optional<std::string>()));
  EXPECT_EQ(texts[0].OptionalText("v"), std::nullopt);
  const Result times = Run(kEchoTime, MakeParams(std::optional<absl::Time>()));
  EXPECT_EQ(times[0].OptionalTime("v"), std::nullopt);
  EXPECT_OK(times.status());

  const Result set = Run(kEchoText, MakeParams(std::optional<std::string>("")));
  EXPECT_FALSE(set[0].IsNull("v"));
  EXPECT_THAT(set[0].OptionalText("v"), Eq(std::optional<std::string>("")));
}

TEST_F(ResultTest, TheFirstUnreadableValueStaysInTheStatus) {
  static constexpr Statement kMixed{
      "mixed", "SELECT NULL::bigint AS absent, 'abc'::text AS word, 1 AS n"};
  const auto first_error = [this](auto read) {
    const Result result = Run(kMixed);
    read(result[0]);
    const absl::Status first = result.status();
    EXPECT_EQ(result[0].Int64("n"), 1);
    result[0].Text("nonsense");
    EXPECT_EQ(result.status(), first);
    const Result copy = result;
    EXPECT_EQ(copy.status(), first);
    EXPECT_THAT(first, HasReason(common::v1::ERROR_REASON_INTERNAL));
    return std::string(first.message());
  };
  EXPECT_EQ(first_error([](const Row& row) { row.Text("missing"); }),
            "column missing is not part of the result");
  EXPECT_EQ(first_error([](const Row& row) { row.IsNull("missing"); }),
            "column missing is not part of the result");
  EXPECT_EQ(first_error([](const Row& row) { row.OptionalTime("missing"); }),
            "column missing is not part of the result");
  EXPECT_EQ(first_error([](const Row& row) { row.Int64("absent"); }),
            "column absent is not set");
  EXPECT_EQ(first_error([](const Row& row) { row.Text("absent"); }),
            "column absent is not set");
  EXPECT_EQ(first_error([](const Row& row) { row.Bool("absent"); }),
            "column absent is not set");
  EXPECT_EQ(first_error([](const Row& row) { row.Bytea("absent"); }),
            "column absent is not set");
  EXPECT_EQ(first_error([](const Row& row) { row.Time("absent"); }),
            "column absent is not set");
  EXPECT_EQ(first_error([](const Row& row) { row.Int64("word"); }),
            "column word is not an integer");
  EXPECT_EQ(first_error([](const Row& row) { row.Bool("word"); }),
            "column word is not a boolean");
  EXPECT_EQ(first_error([](const Row& row) { row.Bytea("word"); }),
            "column word is not a bytea in hex");
  EXPECT_EQ(first_error([](const Row& row) { row.Time("word"); }),
            "column word is not an instant in UTC");
  EXPECT_EQ(first_error([](const Row& row) { row.OptionalInt64("word"); }),
            "column word is not an integer");
}

TEST_F(ResultTest, ANumberThatDoesNotFitIsAnError) {
  static constexpr Statement kTooBig{"too_big",
                                     "SELECT 9223372036854775808 AS v"};
  const Result result = Run(kTooBig);
  EXPECT_EQ(result[0].Int64("v"), 0);
  EXPECT_THAT(result.status(), Not(IsOk()));
}

TEST_F(ResultTest, CountsTheRowsThatAStatementChanged) {
  ASSERT_OK(connection_->ExecuteScript("setup", "CREATE TABLE t (n int)"));
  static constexpr Statement kInsert{
      "insert", "INSERT INTO t SELECT generate_series(1, $1::int)"};
  static constexpr Statement kUpdate{"update",
                                     "UPDATE t SET n = 0 WHERE n > 3"};
  EXPECT_EQ(Run(kInsert, MakeParams(5)).affected_rows(), 5u);
  EXPECT_EQ(Run(kUpdate).affected_rows(), 2u);
  EXPECT_EQ(Run(kUpdate).affected_rows(), 0u);
}

TEST_F(ResultTest, AValueOfAnotherTypeIsRefusedAndHarmless) {
  EXPECT_THAT(connection_->Execute(kEchoInt, MakeParams("word")),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_TRUE(connection_->usable());
  EXPECT_EQ(Run(kEchoInt, MakeParams(1))[0].Int64("v"), 1);
}

TEST_F(ResultTest, AWrongNumberOfParametersIsAnError) {
  EXPECT_THAT(connection_->Execute(kEchoInt, MakeParams(1, 2)), Not(IsOk()));
  EXPECT_THAT(connection_->Execute(kEchoInt), Not(IsOk()));
}

}  // namespace
}  // namespace tenure::db
