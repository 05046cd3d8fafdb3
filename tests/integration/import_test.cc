// `tenurectl import` and the commands of `tenurectl subscription`, as programs
// against a running webhook-ingest.

#include <signal.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/cluster.h"
#include "tests/support/session.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace tenure::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kSomeRowsFailed = 3;

const std::string& Tenurectl() {
  static const std::string path =
      absl::StrCat(TENURE_BUILD_DIR, "/tools/tenurectl/tenurectl");
  return path;
}

class ImportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    ASSERT_OK_AND_ASSIGN(session_, database_->OpenSession());
    ASSERT_OK_AND_ASSIGN(cluster_, Cluster::Make(database_->conninfo()));
    ASSERT_OK(WriteFile(File("catalog.yaml"),
                        "plans:\n"
                        "  - {name: pro, features: [{name: api}]}\n"
                        "  - {name: max, features: [{name: api}]}\n"
                        "  - {name: life, lifetime: true, features: "
                        "[{name: api}]}\n"));
    ASSERT_OK_AND_ASSIGN(
        const Finished applied,
        RunToEnd(Tenurectl(), {"catalog", "apply", File("catalog.yaml"),
                               "--conninfo", database_->conninfo()}));
    ASSERT_TRUE(applied.status.ok()) << applied.output;
    ASSERT_OK(cluster_->StartIngest());
  }

  std::string File(const std::string& name) const {
    return absl::StrCat(cluster_->directory(), "/", name);
  }

  std::vector<std::string> ImportArgs(const std::string& file,
                                      const std::string& format,
                                      std::vector<std::string> more = {}) {
    std::vector<std::string> args = {
        "import", file,        "--format",
        format,   "--address", cluster_->Address("ingest_grpc")};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }

  // Writes `text` to a file and imports it.
  Finished Import(const std::string& text, const std::string& format = "csv",
                  const std::vector<std::string>& more = {}) {
    EXPECT_OK(WriteFile(File("rows"), text));
    const absl::StatusOr<Finished> done =
        RunToEnd(Tenurectl(), ImportArgs(File("rows"), format, more));
    EXPECT_OK(done);
    return done.value_or(Finished());
  }

  Finished Subscription(std::vector<std::string> args) {
    args.insert(args.begin(), "subscription");
    args.insert(args.end(), {"--address", cluster_->Address("ingest_grpc")});
    const absl::StatusOr<Finished> done = RunToEnd(Tenurectl(), args);
    EXPECT_OK(done);
    return done.value_or(Finished());
  }

  std::string Scalar(const std::string& sql,
                     const std::vector<SqlValue>& params = {}) {
    const absl::StatusOr<std::string> value = session_->Scalar(sql, params);
    EXPECT_OK(value);
    return value.value_or("");
  }

  // "u1 pro 2099-01-01 00:00:00+00 key" of each subscription, by subject.
  std::string Imported() {
    return Scalar(
        "SELECT coalesce(string_agg(concat_ws(' ', u.external_id, p.name, "
        "s.starts_at AT TIME ZONE 'UTC', coalesce((s.expires_at AT TIME ZONE "
        "'UTC')::text, 'for ever'), s.provider_subscription_id), E'\\n' ORDER "
        "BY u.external_id, s.id), '') FROM subscription s JOIN subject u ON "
        "u.id = s.subject_id JOIN plan p ON p.id = s.plan_id");
  }

  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Cluster> cluster_;
};

TEST_F(ImportTest, ACsvFileIsReadAsRfc4180Says) {
  const Finished done = Import(
      "external_key,subject,plan,lifetime,starts_at,expires_at\r\n"
      "1,u1,pro,,2026-01-31T10:00:00Z,2099-01-31T10:00:00+02:00\r\n"
      "\r\n"
      "\"2,\"\"b\"\"\",\"u2, second\",life,true,2026-01-31T10:00:00Z,\r\n"
      "3,\"u3\",\"max\",false,\"2026-01-31T10:00:00Z\",2099-01-31T10:00:00Z");

  EXPECT_EQ(done.status, ExitStatus{}) << done.output;
  EXPECT_THAT(done.output,
              HasSubstr("3 rows read: 3 imported, 0 known already, 0 failed"));
  EXPECT_EQ(Imported(),
            "u1 pro 2026-01-31 10:00:00 2099-01-31 08:00:00 import/1\n"
            "u2, second life 2026-01-31 10:00:00 for ever import/2,\"b\"\n"
            "u3 max 2026-01-31 10:00:00 2099-01-31 10:00:00 import/3");
  EXPECT_EQ(Scalar("SELECT string_agg(DISTINCT reason || environment, ' ') "
                   "FROM subscription_fact JOIN subscription ON id = "
                   "subscription_id"),
            "importtest");
}

TEST_F(ImportTest, ErrorsNameFileLineAndColumnAndTheRestIsImported) {
  const Finished done = Import(
      "subject,plan,starts_at,expires_at,lifetime,external_key\n"
      "u1,pro,,2099-01-01T00:00:00Z,,1\n"
      "u2,gold,,2099-01-01T00:00:00Z,,2\n"
      ",pro,,2099-01-01T00:00:00Z,,3\n"
      "u4,pro,,tomorrow,,4\n"
      "u5,pro,2099-01-01T00:00:00Z,2098-01-01T00:00:00Z,,5\n"
      "u6,pro,,2099-01-01T00:00:00Z,true,6\n"
      "u7,pro,,,,7\n"
      "u8,pro,,,true,8\n"
      "u9,pro,,,maybe,9\n"
      "u10,pro,,2099-01-01T00:00:00Z\n"
      "u11,pr\"o,,2099-01-01T00:00:00Z,,11\n"
      "\"u12\"x,pro,,2099-01-01T00:00:00Z,,12\n"
      "\"u\n13\",pro,,2099-01-01T00:00:00Z,,13\n"
      "u\xff,pro,,2099-01-01T00:00:00Z,,14\n"
      "u15,pro,,2099-01-01T00:00:00Z,,1\n"
      "u16,pro,01.02.2026,2099-01-01T00:00:00Z,,16\n" +
          std::string(70000, 'x') +
          ",pro,,2099-01-01T00:00:00Z,,17\n"
          "u18,pro,,2099-01-01T00:00:00Z,,18\n"
          "\"u19,pro,,2099-01-01T00:00:00Z,,19\n",
      "csv", {"--errors", File("errors"), "--concurrency", "1"});

  EXPECT_EQ(done.status.code, kSomeRowsFailed) << done.output;
  std::ifstream file(File("errors"));
  std::stringstream errors;
  errors << file.rdbuf();
  const std::string rows = File("rows");
  for (const char* line :
       {":3: plan: the catalogue has no plan 'gold'",
        ":4: subject: subject is required",
        ":5: expires_at: 'tomorrow' is not RFC 3339",
        ":6: expires_at: must be later than starts_at",
        ":7: expires_at: a lifetime has no end",
        ":8: expires_at: is required where lifetime is not true",
        ":9: plan: plan 'pro' is not sold for ever",
        ":10: lifetime: must be true, false or empty",
        ":11: 4 columns instead of 6",
        ":12: a quote inside a field without quotes",
        ":13: text behind a closing quote",
        ":14: subject: must not contain control characters",
        ":16: subject: must be valid UTF-8",
        ":17: the request_id was used for another request",
        ":18: starts_at: '01.02.2026' is not RFC 3339",
        ":19: more than 65536 bytes",
        ":21: the file ends inside a quoted field"}) {
    EXPECT_THAT(errors.str(), HasSubstr(absl::StrCat(rows, line)));
    EXPECT_THAT(done.output, HasSubstr(absl::StrCat(rows, line)));
  }
  EXPECT_THAT(done.output, HasSubstr("19 rows read: 2 imported, 0 known "
                                     "already, 17 failed"));
  EXPECT_EQ(Scalar("SELECT string_agg(external_id, ' ' ORDER BY id) FROM "
                   "subject"),
            "u1 u18");
}

// Regression: each became the last instant of the year 9999, or another one.
TEST_F(ImportTest, C070_AnInstantOfNoYearIsRefused) {
  std::string rows = "subject,plan,expires_at\n";
  const std::string kOdd[] = {
      "infinite-future",       "infinite-past",
      "12027-01-31T10:00:00Z", "27-01-31T10:00:00Z",
      "-2027-01-31T10:00:00Z", "9999-12-31T23:59:59-01:00",
      " infinite-future",      "0000-12-31T00:00:00Z"};
  for (const std::string& odd : kOdd)
    absl::StrAppend(&rows, "u,pro,", odd, "\n");
  rows += "u,pro,9999-12-31T23:59:59Z\n";

  const Finished done = Import(rows);

  EXPECT_THAT(done.output, HasSubstr("9 rows read: 1 imported, 0 known "
                                     "already, 8 failed"));
  for (const std::string& odd : kOdd) {
    EXPECT_THAT(done.output, HasSubstr(absl::StrCat("expires_at: '", odd,
                                                    "' is not RFC 3339")));
  }
}

// Regression: it was passed over at the start of a row.
TEST_F(ImportTest, ACarriageReturnAloneIsAnErrorWhereverItStands) {
  const Finished done = Import(
      "subject,plan,expires_at\r\n"
      "\ru1,pro,2099-01-01T00:00:00Z\r\n"
      "\r\n"
      "\r\ru2,pro,2099-01-01T00:00:00Z\n"
      "u3,pro,2099-01-01T00:00:00Z\r\n\r");

  EXPECT_THAT(done.output,
              HasSubstr(":2: a carriage return without a line feed"));
  EXPECT_THAT(done.output,
              HasSubstr(":4: a carriage return without a line feed"));
  EXPECT_THAT(done.output, HasSubstr("3 rows read: 1 imported, 0 known "
                                     "already, 2 failed"));
}

// Regression: the file was emptied before it was read.
TEST_F(ImportTest, TheErrorsAreNotWrittenOverTheRows) {
  const std::string rows =
      "subject,plan,expires_at\nu1,pro,2099-01-01T00:00:00Z\n";
  const Finished done = Import(rows, "csv", {"--errors", File("rows")});

  EXPECT_EQ(done.status.code, 1);
  EXPECT_THAT(done.output, HasSubstr("is the file to import"));
  std::ifstream file(File("rows"));
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), rows);
}

// Regression: the batch was larger than a message may be, and the import ended.
TEST_F(ImportTest, ABatchOfRowsThatAreTooLongFailsRowByRow) {
  std::string rows = "subject,plan,expires_at\n";
  for (int i = 0; i < 99; ++i) {
    absl::StrAppend(&rows, std::string(60'000, 'x'),
                    ",pro,2099-01-01T00:00:00Z\n");
  }
  rows += "u,pro,2099-01-01T00:00:00Z\n";

  const Finished done = Import(rows);

  EXPECT_EQ(done.status.code, kSomeRowsFailed);
  EXPECT_THAT(done.output,
              HasSubstr(":100: subject: must be at most 255 bytes"));
  EXPECT_THAT(done.output, HasSubstr("100 rows read: 1 imported, 0 known "
                                     "already, 99 failed"));
}

TEST_F(ImportTest, ANdjsonFileHasOneObjectALine) {
  const Finished done = Import(
      "{\"subject\": \"u1\", \"plan\": \"pro\", \"starts_at\": "
      "\"2026-01-31T10:00:00Z\", \"expires_at\": \"2099-01-31T10:00:00Z\", "
      "\"external_key\": \"1\"}\r\n"
      "\n"
      "{\"subject\": \"u\\u0032\", \"plan\": \"life\", \"starts_at\": "
      "\"2026-01-31T10:00:00Z\", \"lifetime\": true, \"expires_at\": null}\n"
      "{\"subject\": \"u3\", \"plan\": \"pro\", \"expire\": \"2099\"}\n"
      "{\"subject\": 4, \"plan\": \"pro\"}\n"
      "{\"subject\": \"u5\", \"plan\": \"pro\", \"lifetime\": \"true\"}\n"
      "[1]\n"
      "{\"subject\": \"u7\"\n",
      "ndjson");

  EXPECT_EQ(done.status.code, kSomeRowsFailed) << done.output;
  EXPECT_EQ(Imported(),
            "u1 pro 2026-01-31 10:00:00 2099-01-31 10:00:00 import/1\n"
            "u2 life 2026-01-31 10:00:00 for ever");
  for (const char* line :
       {":4: unknown key 'expire'", ":5: subject: must be a string",
        ":6: lifetime: must be true or false", ":7: is no JSON object",
        ":8: "}) {
    EXPECT_THAT(done.output, HasSubstr(absl::StrCat(File("rows"), line)));
  }
}

TEST_F(ImportTest, AFileThatCannotBeReadIsRefusedBeforeTheFirstRow) {
  const std::string row = "u1,pro,2099-01-01T00:00:00Z\n";
  const struct {
    std::string text;
    const char* message;
  } cases[] = {
      {"\xEF\xBB\xBFsubject,plan,expires_at\n" + row,
       ":1: the file begins with a byte order mark"},
      {"\xFF\xFEs", ":1: the file begins with a byte order mark"},
      {"", ":1: the file is empty"},
      {"subject,plan,expires_at,colour\n" + row, ":1: unknown column 'colour'"},
      {"subject,subject,plan,expires_at\n" + row,
       ":1: column 'subject' is given twice"},
      {"subject,expires_at\n" + row, ":1: column 'plan' is missing"},
      {"subject,plan\n" + row,
       ":1: one of the columns expires_at and lifetime is needed"},
  };
  for (const auto& c : cases) {
    const Finished done = Import(c.text);
    EXPECT_EQ(done.status.code, 1) << done.output;
    EXPECT_THAT(done.output, HasSubstr(absl::StrCat(File("rows"), c.message)));
  }
  ASSERT_OK_AND_ASSIGN(
      const Finished missing,
      RunToEnd(Tenurectl(), ImportArgs(File("nothing"), "csv")));
  EXPECT_EQ(missing.status.code, 1);
  ASSERT_OK_AND_ASSIGN(const Finished format,
                       RunToEnd(Tenurectl(), ImportArgs(File("rows"), "xml")));
  EXPECT_EQ(format.status.code, 2);
  EXPECT_EQ(Scalar("SELECT count(*) FROM subject"), "0");
}

TEST_F(ImportTest, ADryRunFindsEveryErrorAndWritesNothing) {
  const std::string rows =
      "subject,plan,expires_at\n"
      "u1,pro,2099-01-01T00:00:00Z\n"
      "u2,gold,2099-01-01T00:00:00Z\n"
      "u3,pro,1999-01-01T00:00:00Z\n";
  const std::string before = Scalar(
      "SELECT (SELECT max(id) FROM plan) || ' ' || (SELECT count(*) FROM "
      "route)");

  const Finished done = Import(rows, "csv", {"--dry-run"});

  EXPECT_EQ(done.status.code, kSomeRowsFailed);
  EXPECT_THAT(done.output,
              AllOf(HasSubstr(":3: plan: "), HasSubstr(":4: expires_at: "),
                    HasSubstr("nothing was written")));
  EXPECT_EQ(Scalar("SELECT (SELECT max(id) FROM plan) || ' ' || (SELECT "
                   "count(*) FROM route)"),
            before);
  EXPECT_EQ(Scalar("SELECT (SELECT count(*) FROM subject) + (SELECT count(*) "
                   "FROM subscription) + (SELECT count(*) FROM request_log)"),
            "0");
  // Not even a number of an identity was used up (C113).
  ASSERT_EQ(
      Import("subject,plan,expires_at\nu1,pro,2099-01-01T00:00:00Z\n").status,
      ExitStatus{});
  EXPECT_EQ(Scalar("SELECT max(id) FROM subscription"), "1");
}

TEST_F(ImportTest, TheSameRowIsImportedOnceWhateverTheFileIsCalled) {
  const std::string header = "subject,plan,expires_at,external_key\n";
  const std::string row = "u1,pro,2099-01-01T00:00:00Z,\n";
  const Finished first = Import(header + row + row);
  EXPECT_THAT(first.output,
              HasSubstr("2 rows read: 1 imported, 1 known already"));
  ASSERT_OK(WriteFile(File("copy"),
                      "external_key,expires_at,plan,subject\n"
                      ",2099-01-01T00:00:00Z,pro,u1\n"));
  ASSERT_OK_AND_ASSIGN(const Finished copy,
                       RunToEnd(Tenurectl(), ImportArgs(File("copy"), "csv")));
  EXPECT_THAT(copy.output,
              HasSubstr("1 rows read: 0 imported, 1 known already"));
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription"), "1");

  // Another source's rows are others.
  const Finished other = Import(header + row, "csv", {"--source", "shop"});
  EXPECT_THAT(other.output, HasSubstr("1 imported"));
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription"), "2");
}

TEST_F(ImportTest, TenThousandRowsKilledHalfWayAndRunAgainAreTheExactSet) {
  constexpr int kRows = 10000;
  std::string text = "external_key,subject,plan,starts_at,expires_at\n";
  int broken = 0;
  for (int i = 0; i < kRows; ++i) {
    // One in a hundred: a plan that is not there, or no instant.
    const bool bad = i % 100 == 37;
    broken += bad;
    absl::StrAppend(
        &text, "k", i, ",user-", i, ",", bad && i % 200 == 37 ? "gold" : "pro",
        ",2026-01-01T00:00:00Z,",
        bad && i % 200 != 37 ? "never" : "2099-01-01T00:00:00Z", "\n");
  }
  ASSERT_EQ(broken, kRows / 100);
  ASSERT_OK(WriteFile(File("big.csv"), text));
  ProcessOptions options;
  options.args = ImportArgs(File("big.csv"), "csv", {"--concurrency", "2"});
  ASSERT_OK_AND_ASSIGN(const auto process,
                       Process::Start(Tenurectl(), options));
  ASSERT_OK(session_->AwaitTrue("SELECT count(*) >= 3000 FROM subscription"));
  ASSERT_OK(process->Signal(SIGKILL));
  ASSERT_OK(process->Wait());
  // What the service had begun may still be committed.
  const int half = std::stoi(Scalar("SELECT count(*) FROM subscription"));
  ASSERT_LT(half, kRows - broken);

  options.args =
      ImportArgs(File("big.csv"), "csv", {"--errors", File("errors")});
  ASSERT_OK_AND_ASSIGN(const auto again, Process::Start(Tenurectl(), options));
  ASSERT_OK_AND_ASSIGN(const ExitStatus status, again->Wait(absl::Minutes(4)));

  EXPECT_EQ(status.code, kSomeRowsFailed) << again->Output();
  EXPECT_EQ(Scalar("SELECT count(*) || ' ' || count(DISTINCT subject_id) || "
                   "' ' || count(DISTINCT provider_subscription_id) FROM "
                   "subscription"),
            "9900 9900 9900");
  EXPECT_EQ(
      Scalar("SELECT count(*) FROM generate_series(0, 9999) i LEFT JOIN "
             "(subject u JOIN subscription s ON s.subject_id = u.id AND "
             "s.expires_at = '2099-01-01Z' AND s.status = 'ACTIVE') ON "
             "u.external_id = 'user-' || i WHERE (s.id IS NULL) <> (i % 100 "
             "= 37)"),
      "0");
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription_fact"), "9900");
  EXPECT_EQ(Scalar("SELECT count(*) FROM request_log WHERE response IS NULL"),
            "0");
  std::ifstream file(File("errors"));
  int lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  EXPECT_EQ(lines, broken);

  // A third run finds nothing to do.
  options.args = ImportArgs(File("big.csv"), "csv");
  ASSERT_OK_AND_ASSIGN(const auto third, Process::Start(Tenurectl(), options));
  ASSERT_OK(third->Wait(absl::Minutes(4)));
  EXPECT_THAT(third->Output(),
              HasSubstr("10000 rows read: 0 imported, 9900 known already, 100 "
                        "failed"));
}

TEST_F(ImportTest, AServiceThatIsAwayIsWaitedForAndTheRunThenGoesOn) {
  std::string text = "subject,plan,expires_at\n";
  for (int i = 0; i < 50; ++i) {
    absl::StrAppend(&text, "u", i, ",pro,2099-01-01T00:00:00Z\n");
  }
  ASSERT_OK(WriteFile(File("rows"), text));
  ASSERT_OK(cluster_->ingest().Stop());
  ProcessOptions options;
  options.args = ImportArgs(File("rows"), "csv", {"--batch-size", "5"});
  ASSERT_OK_AND_ASSIGN(const auto process,
                       Process::Start(Tenurectl(), options));

  ASSERT_OK(cluster_->StartIngest());

  ASSERT_OK_AND_ASSIGN(const ExitStatus status, process->Wait());
  EXPECT_EQ(status, ExitStatus{}) << process->Output();
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription"), "50");
}

TEST_F(ImportTest, ATerminalShowsABarThatLeavesNothingBehind) {
  std::string text = "subject,plan,expires_at\n";
  for (int i = 0; i < 3000; ++i) {
    absl::StrAppend(&text, "u", i, ",", i == 2900 ? "gold" : "pro",
                    ",2099-01-01T00:00:00Z\n");
  }
  ASSERT_OK(WriteFile(File("rows"), text));
  // script(1) gives the program a terminal.
  const std::string command = absl::StrJoin(
      ImportArgs(File("rows"), "csv", {"--concurrency", "1"}), " ");
  ASSERT_OK_AND_ASSIGN(
      const Finished done,
      RunToEnd("script",
               {"--quiet", "--return", "--command",
                absl::StrCat(Tenurectl(), " ", command), "/dev/null"}));

  EXPECT_EQ(done.status.code, kSomeRowsFailed) << done.output;
  EXPECT_THAT(done.output, AllOf(HasSubstr("\r\033[K["), HasSubstr("% "),
                                 HasSubstr(" rows "), HasSubstr("/s ")));
  // The bar is taken away before a line of another kind.
  EXPECT_THAT(done.output, HasSubstr(absl::StrCat("\r\033[K", File("rows"),
                                                  ":2902: plan: ")));
  EXPECT_THAT(done.output, HasSubstr("3000 rows read: 2999 imported"));
  EXPECT_LT(done.output.rfind("\r\033[K["), done.output.rfind("\r\033[K"));
}

// ---- tenurectl subscription ----

// Regression: commands that were not chosen took the variable, for all of them.
TEST_F(ImportTest, AFlagOfTenurectlWinsOverTheEnvironment) {
  const auto exported = [](std::vector<std::string> args,
                           const std::string& conninfo) {
    args.insert(args.begin(), {"catalog", "export"});
    const absl::StatusOr<Finished> done =
        RunToEnd(Tenurectl(), args, {{"TENURE_DATABASE_CONNINFO", conninfo}});
    return done.ok() ? done->output : std::string(done.status().message());
  };
  const std::string nowhere = "host=127.0.0.1 port=1";
  EXPECT_THAT(exported({"--conninfo", database_->conninfo()}, nowhere),
              HasSubstr("name: \"pro\""));
  EXPECT_THAT(exported({}, database_->conninfo()), HasSubstr("name: \"pro\""));
  EXPECT_THAT(exported({}, ""), HasSubstr("--conninfo is required"));

  ASSERT_OK_AND_ASSIGN(const Finished granted,
                       RunToEnd(Tenurectl(),
                                {"subscription", "grant", "--address",
                                 cluster_->Address("ingest_grpc"), "--subject",
                                 "u1", "--plan", "pro", "--term", "1 month",
                                 "--reason", "test", "--actor", "ann"},
                                {{"USER", "bob"}}));
  ASSERT_TRUE(granted.status.ok()) << granted.output;
  EXPECT_EQ(Scalar("SELECT string_agg(DISTINCT actor, ' ') FROM "
                   "subscription_fact"),
            "ann");
}

TEST_F(ImportTest, EachCommandOfTenurectlSubscriptionDoesItsCall) {
  const auto ok = [this](std::vector<std::string> args,
                         const std::string& part) {
    const Finished done = Subscription(args);
    EXPECT_TRUE(done.status.ok()) << args[0] << ": " << done.output;
    EXPECT_THAT(done.output, HasSubstr(part)) << args[0];
    return done.output;
  };
  const auto write = [&](std::vector<std::string> args,
                         const std::string& part) {
    args.insert(args.end(), {"--reason", "test", "--actor", "ann"});
    return ok(args, part);
  };
  const std::string granted =
      write({"grant", "--subject", "u1", "--plan", "pro", "--term", "3 months",
             "--request-id", "r1"},
            "\"state\":\"SUBSCRIPTION_STATE_ACTIVE\"");
  EXPECT_THAT(granted, Not(HasSubstr("request id:")));
  // The same request again is the first answer.
  EXPECT_EQ(write({"grant", "--subject", "u1", "--plan", "pro", "--term",
                   "3month", "--request-id", "r1"},
                  "\"id\":\"1\""),
            granted);
  EXPECT_THAT(
      write({"extend", "--id", "1", "--expires-at", "2099-01-01T00:00:00Z"},
            "2099-01-01T00:00:00Z"),
      HasSubstr("request id: "));
  write({"pause", "--id", "1"}, "SUBSCRIPTION_STATE_PAUSED");
  write({"resume", "--id", "1"}, "SUBSCRIPTION_STATE_ACTIVE");
  write({"change-plan", "--id", "1", "--plan", "max", "--at-end"},
        "\"next_plan\":\"max\"");
  write({"cancel", "--id", "1", "--when", "at-end"}, "\"cancel_at\":");
  write({"resume-cancel", "--id", "1"}, "SUBSCRIPTION_STATE_ACTIVE");
  write({"revoke", "--id", "1"}, "SUBSCRIPTION_STATE_REVOKED");
  write({"resume", "--id", "1"}, "SUBSCRIPTION_STATE_ACTIVE");
  write({"transfer", "--id", "1", "--to", "u2"}, "\"subject\":\"u2\"");
  ok({"get", "--id", "1"}, "\"subject\":\"u2\"");
  ok({"list", "--subject", "u2", "--active", "--plan", "pro"}, "\"id\":\"1\"");
  const std::string history = ok({"history", "--id", "1"}, "\"kind\":\"paid\"");
  EXPECT_THAT(history, AllOf(HasSubstr("\"actor\":\"ann\""),
                             HasSubstr("subscription.transferred")));
  ok({"explain", "--subject", "u2", "--feature", "api"}, "\"has_access\":true");
  ok({"explain", "--subject", "u2", "--feature", "api", "--at",
      "2099-01-01T00:00:00Z"},
     "\"has_access\":false");
  write({"create-order", "--route", "stripe", "--subject", "u3", "--plan",
         "pro", "--amount", "900", "--currency", "EUR", "--order-id", "o-1"},
        "\"order_id\":\"o-1\"");
  write({"link-customer", "--route", "stripe", "--customer", "cus_1",
         "--subject", "u3"},
        "\"woken_events\":\"0\"");
  write({"erase-subject", "--subject", "u2"}, "\"pseudonym\":\"erased:");

  // A call that is refused, and wrong usage.
  const Finished refused = Subscription(
      {"revoke", "--id", "99", "--reason", "test", "--actor", "ann"});
  EXPECT_EQ(refused.status.code, 1);
  EXPECT_THAT(refused.output, HasSubstr("there is no subscription"));
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{
           {"revoke", "--id", "1"},
           {"grant", "--subject", "u", "--plan", "p", "--reason", "r"},
           {"grant", "--subject", "u", "--plan", "p", "--reason", "r", "--term",
            "1 day", "--lifetime"},
           {"cancel", "--id", "1", "--when", "soon", "--reason", "r"}}) {
    EXPECT_EQ(Subscription(args).status.code, 2) << args[0];
  }
  EXPECT_EQ(Subscription({"grant", "--subject", "u", "--plan", "p", "--reason",
                          "r", "--term", "3 moons"})
                .status.code,
            1);
}

}  // namespace
}  // namespace tenure::test
