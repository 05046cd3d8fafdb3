#include "common/base/config.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/base/config_test.pb.h"
#include "common/base/proto_time.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tenure/config/v1/config.pb.h"
#include "tests/support/status_matchers.h"

namespace tenure {
namespace {

using config_test::Settings;
using google::protobuf::util::MessageDifferencer;
using test::IsOk;
using test::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() {
    std::string pattern = ::testing::TempDir() + "/config_test_XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  ~ConfigTest() override { std::filesystem::remove_all(directory_); }

  std::string Path() const { return directory_ + "/app.yaml"; }

  // Writes the file and names it by --config.
  void File(absl::string_view yaml) {
    std::ofstream(Path(), std::ios::binary) << yaml;
    flags_.push_back("--config=" + Path());
  }

  absl::Status Load(google::protobuf::Message* config) {
    std::vector<const char*> argv = {"app"};
    for (const std::string& flag : flags_) argv.push_back(flag.c_str());
    std::vector<const char*> environment;
    for (const std::string& entry : environment_) {
      environment.push_back(entry.c_str());
    }
    environment.push_back(nullptr);
    return LoadConfig(static_cast<int>(argv.size()), argv.data(),
                      environment.data(), "app", "does things", config, &how_);
  }
  absl::Status Load() { return Load(&settings_); }

  // Loads with only these flags, for tests of many small cases.
  absl::Status LoadWith(std::vector<std::string> flags) {
    flags_ = std::move(flags);
    return Load();
  }

  std::string directory_;
  std::vector<std::string> flags_;
  std::vector<std::string> environment_;
  Settings settings_;
  LoadedFrom how_;
};

auto Fails(const std::string& what) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what));
}

TEST_F(ConfigTest, FillsDefaultsOfEveryType) {
  File("pool: {conninfo: host=db}\n");
  ASSERT_THAT(Load(), IsOk());

  EXPECT_EQ(settings_.pool().conninfo(), "host=db");
  EXPECT_EQ(settings_.pool().size(), 8);
  EXPECT_EQ(FromProto(settings_.pool().acquire_timeout()), absl::Seconds(2));
  EXPECT_EQ(settings_.big(), 9007199254740993);
  EXPECT_EQ(settings_.port(), 8080u);
  EXPECT_TRUE(settings_.enabled());
  EXPECT_EQ(settings_.ratio(), 0.1);
  EXPECT_EQ(settings_.mode(), config_test::RUN_MODE_FAST);
  EXPECT_THAT(settings_.peers(), IsEmpty());
  EXPECT_EQ(how_.file, Path());
  EXPECT_FALSE(how_.print_and_exit);
  EXPECT_THAT(how_.warnings, IsEmpty());
}

TEST_F(ConfigTest, PrefersFlagThenEnvironmentThenFileThenDefault) {
  const std::string yaml = "pool: {conninfo: host=db, size: 10}\n";

  File(yaml);
  ASSERT_THAT(Load(), IsOk());
  EXPECT_EQ(settings_.pool().size(), 10);

  environment_ = {"TENURE_POOL_SIZE=20"};
  ASSERT_THAT(Load(), IsOk());
  EXPECT_EQ(settings_.pool().size(), 20);

  flags_.push_back("--pool_size=30");
  ASSERT_THAT(Load(), IsOk());
  EXPECT_EQ(settings_.pool().size(), 30);

  flags_ = {"--pool_size", "40", "--pool_conninfo", "host=db"};
  environment_.clear();
  ASSERT_THAT(Load(), IsOk());
  EXPECT_EQ(settings_.pool().size(), 40);
}

TEST_F(ConfigTest, ReadsEveryTypeFromFlagEnvironmentAndFileAlike) {
  const auto check = [&] {
    EXPECT_EQ(FromProto(settings_.pool().acquire_timeout()),
              absl::Milliseconds(250));
    EXPECT_EQ(settings_.big(), INT64_MIN);
    EXPECT_EQ(settings_.port(), 0u);
    EXPECT_FALSE(settings_.enabled());
    EXPECT_EQ(settings_.ratio(), 0.25);
    EXPECT_EQ(settings_.mode(), config_test::RUN_MODE_VERY_SAFE);
    EXPECT_THAT(settings_.peers(), ElementsAre("a:1", "b:2"));
    EXPECT_EQ(settings_.note(), "[::1]:80");
  };

  flags_ = {"--pool_conninfo=host=db",
            "--pool_acquire_timeout=250ms",
            "--big=-9223372036854775808",
            "--port=0",
            "--enabled=false",
            "--ratio=0.25",
            "--mode=very_safe",
            "--peers=a:1, b:2",
            "--note=[::1]:80"};
  ASSERT_THAT(Load(), IsOk());
  check();

  flags_ = {};
  environment_ = {"TENURE_POOL_CONNINFO=host=db",
                  "TENURE_POOL_ACQUIRE_TIMEOUT=250ms",
                  "TENURE_BIG=-9223372036854775808",
                  "TENURE_PORT=0",
                  "TENURE_ENABLED=false",
                  "TENURE_RATIO=0.25",
                  "TENURE_MODE=very_safe",
                  "TENURE_PEERS=a:1,b:2",
                  "TENURE_NOTE=[::1]:80"};
  ASSERT_THAT(Load(), IsOk());
  check();

  environment_ = {};
  File(R"(
pool:
  conninfo: host=db
  acquire_timeout: 250ms
big: -9223372036854775808
port: 0
enabled: false
ratio: 0.25
mode: very_safe
peers: [a:1, "b:2"]
note: "[::1]:80"
)");
  ASSERT_THAT(Load(), IsOk());
  check();
}

TEST_F(ConfigTest, NamesTheFileByEnvironmentToo) {
  File("pool: {conninfo: host=db, size: 11}\n");
  flags_.clear();
  environment_ = {absl::StrCat("TENURE_CONFIG=", Path())};

  ASSERT_THAT(Load(), IsOk());
  EXPECT_EQ(settings_.pool().size(), 11);

  EXPECT_THAT(LoadWith({"--config=/nonexistent/x.yaml"}),
              AllOf(Fails("/nonexistent/x.yaml"), Fails("No such file"),
                    Fails("flag --config")));
  environment_ = {"TENURE_CONFIG=/nonexistent/y.yaml"};
  EXPECT_THAT(LoadWith({}), Fails("environment variable TENURE_CONFIG"));
  environment_ = {"TENURE_CONFIG="};
  EXPECT_THAT(LoadWith({}), Fails("its name is empty"));
  EXPECT_THAT(LoadWith({"--config=" + directory_}), Fails("cannot read"));
}

TEST_F(ConfigTest, ReadsAnEmptyFileAsNoSettings) {
  for (const absl::string_view yaml : {"", "---\n", "# nothing\n", "{}\n"}) {
    flags_ = {"--pool_conninfo=host=db"};
    File(yaml);
    EXPECT_THAT(Load(), IsOk()) << yaml;
  }
  flags_ = {"--pool_conninfo=host=db"};
  File("pool:\n  # size: 9\n");
  EXPECT_THAT(Load(), IsOk());
}

TEST_F(ConfigTest, ReportsAllErrorsTogetherEachWithKeyAndPlace) {
  File(
      "pool:\n"
      "  size: 501\n"
      "  szie: 3\n"
      "port: \"80\"\n"
      "nonsense: 1\n"
      "note: a\n"
      "note: b\n");
  environment_ = {"TENURE_RATIO=2", "TENURE_ENABLED=yes"};
  flags_.push_back("--big=1.5");
  flags_.push_back("--bogus=1");

  const absl::Status status = Load();

  EXPECT_THAT(status, Fails("the configuration of app has 10 errors"));
  EXPECT_THAT(status, Fails(absl::StrCat(
                          "pool.size: must be from 1 to 500, found \"501\" (",
                          Path(), ":2)")));
  EXPECT_THAT(status,
              Fails(absl::StrCat("pool.szie: unknown key; did you mean size? (",
                                 Path(), ":3)")));
  EXPECT_THAT(status, Fails("port: must be a whole number, found a quoted"));
  EXPECT_THAT(status, Fails(absl::StrCat("nonsense: unknown key (", Path())));
  EXPECT_THAT(status, Fails(absl::StrCat("note: is set twice in the file (",
                                         Path(), ":7)")));
  EXPECT_THAT(status, Fails("ratio: must be from 0 to 1, found \"2\" "
                            "(environment variable TENURE_RATIO)"));
  EXPECT_THAT(status, Fails("enabled: must be true or false, found \"yes\" "
                            "(environment variable TENURE_ENABLED)"));
  EXPECT_THAT(status, Fails("big: must be a whole number, found \"1.5\" "
                            "(flag --big)"));
  EXPECT_THAT(status, Fails("unknown flag \"--bogus\""));
  // The required connection string is missing as well.
  EXPECT_THAT(status, Fails("pool.conninfo: is required: text, where the "
                            "database is (set it in the YAML file, or by "
                            "TENURE_POOL_CONNINFO or --pool_conninfo)"));
}

TEST_F(ConfigTest, ChecksAValueEvenWhenAnotherSourceWins) {
  File("pool: {conninfo: host=db, size: 0}\n");
  flags_.push_back("--pool_size=5");

  EXPECT_THAT(Load(), Fails("pool.size: must be from 1 to 500, found \"0\""));
}

TEST_F(ConfigTest, RefusesAnEmptyRequiredText) {
  for (const absl::string_view yaml :
       {"pool: {conninfo: \"\"}", "pool: {conninfo: ''}"}) {
    flags_.clear();
    File(yaml);
    EXPECT_THAT(Load(),
                AllOf(Fails("pool.conninfo: is required and must not be empty"),
                      Fails("app.yaml:1")));
  }
  EXPECT_THAT(LoadWith({"--pool_conninfo="}), Fails("(flag --pool_conninfo)"));
  EXPECT_THAT(LoadWith({"--pool_conninfo", ""}), Fails("must not be empty"));
  environment_ = {"TENURE_POOL_CONNINFO="};
  EXPECT_THAT(LoadWith({}),
              Fails("(environment variable TENURE_POOL_CONNINFO)"));
}

TEST_F(ConfigTest, RefusesAKeyWithoutAValue) {
  File("pool: {conninfo: host=db, size: }\nnote: ~\n");

  EXPECT_THAT(Load(), AllOf(Fails("pool.size: has no value, expected whole"),
                            Fails("note: has no value, expected text")));
}

TEST_F(ConfigTest, RefusesTheWrongKindOfNode) {
  File(
      "pool: 5\n"
      "note: [a]\n"
      "peers: a\n"
      "port: {a: 1}\n"
      "routes: {name: x}\n"
      "? [x]\n: 1\n");
  EXPECT_THAT(
      Load(),
      AllOf(Fails("pool: must be a mapping of settings, found a single value"),
            Fails("note: must be a text, found a list"),
            Fails("peers: must be a list, found a single value"),
            Fails("port: must be a whole number, found a mapping"),
            Fails("routes: must be a list, found a mapping"),
            Fails("a key must be a name, found a list")));

  flags_.clear();
  File("- a\n- b\n");
  EXPECT_THAT(Load(), Fails("must be a mapping of settings, found a list"));
  flags_.clear();
  File("peers: [a, [b]]\n");
  EXPECT_THAT(Load(), Fails("must be a list of texts, found a list in it"));
  flags_.clear();
  File("peers: [a, '']\n");
  EXPECT_THAT(Load(), Fails("must not have an empty element"));
}

TEST_F(ConfigTest, RefusesWhatIsNotYamlNamingTheLine) {
  File("pool:\n  conninfo: host=db\n  size: [1\nport: }\n");
  const absl::Status status = Load();
  EXPECT_THAT(status, AllOf(Fails("is not YAML"), Fails("app.yaml:")));
  // What an unreadable file may hold is not called missing.
  EXPECT_THAT(status, Not(Fails("is required")));

  flags_.clear();
  File("a: 1\n---\nb: 2\n");
  EXPECT_THAT(Load(), Fails("must hold one YAML document"));
  flags_.clear();
  File(std::string(2'000'000, '#'));
  EXPECT_THAT(Load(), Fails("is larger than 1048576 bytes"));
  flags_.clear();
  File(std::string(100'000, '['));
  EXPECT_THAT(Load(), Fails("configuration file"));
}

TEST_F(ConfigTest, ReadsNumbersStrictly) {
  for (const std::string bad : {"", " 5", "5 ", "+5", "0x10", "5.0", "5e1",
                                "five", "1_000", "2147483648", "-"}) {
    EXPECT_THAT(LoadWith({"--pool_conninfo=x", "--pool_size=" + bad}),
                Fails("pool.size: must be"))
        << bad;
  }
  for (const std::string bad : {"", "nan", "inf", "1e999", "0.5x", " 0.5"}) {
    EXPECT_THAT(LoadWith({"--pool_conninfo=x", "--ratio=" + bad}),
                Fails("ratio: must be a number from 0 to 1"))
        << bad;
  }
  for (const std::string bad : {"-1", "4294967296"}) {
    EXPECT_THAT(LoadWith({"--pool_conninfo=x", "--port=" + bad}),
                Fails("port: must be a whole number that is not negative"))
        << bad;
  }
  EXPECT_THAT(LoadWith({"--pool_conninfo=x", "--port=65536"}),
              Fails("port: must be at most 65535"));
  for (const std::string bad : {"True", "1", "yes", "", "on"}) {
    EXPECT_THAT(LoadWith({"--pool_conninfo=x", "--enabled=" + bad}),
                Fails("enabled: must be true or false"))
        << bad;
  }
}

TEST_F(ConfigTest, ReadsDurationsWithAUnitInsideTheirBounds) {
  for (const std::string bad : {"", "5", "5 s", "inf", "-inf", "5sec", "s"}) {
    EXPECT_THAT(
        LoadWith({"--pool_conninfo=x", "--pool_acquire_timeout=" + bad}),
        Fails("pool.acquire_timeout: must be a duration such as 250ms, 5s or "
              "3h from 1ms to 60s"))
        << bad;
  }
  for (const std::string bad : {"60001ms", "999us", "0", "-1s"}) {
    EXPECT_THAT(
        LoadWith({"--pool_conninfo=x", "--pool_acquire_timeout=" + bad}),
        Fails("pool.acquire_timeout: must be from 1ms to 60s"))
        << bad;
  }
  for (const std::string good : {"60s", "1ms", "1m", "0.5s"}) {
    EXPECT_THAT(
        LoadWith({"--pool_conninfo=x", "--pool_acquire_timeout=" + good}),
        IsOk())
        << good;
  }
}

TEST_F(ConfigTest, ReadsEnumsByTheirShortNameAlone) {
  for (const std::string bad :
       {"", "FAST", "RUN_MODE_FAST", "unspecified", "1", "very-safe"}) {
    EXPECT_THAT(LoadWith({"--pool_conninfo=x", "--mode=" + bad}),
                Fails("mode: must be fast or very_safe"))
        << bad;
  }
}

TEST_F(ConfigTest, RefusesControlCharactersAndInvalidUtf8) {
  EXPECT_THAT(LoadWith({"--pool_conninfo=x", "--note=a\nb"}),
              Fails("note: must not contain control characters, found "
                    "\"a\\nb\""));
  EXPECT_THAT(LoadWith({"--pool_conninfo=x", "--note=\xff"}),
              Fails("note: must be valid UTF-8"));
  flags_.clear();
  File("pool: {conninfo: x}\nnote: \"a\\0b\"\n");
  EXPECT_THAT(Load(), Fails("note: must not contain control characters"));
}

TEST_F(ConfigTest, RefusesAPasswordInAConnectionStringWithoutQuotingIt) {
  for (const std::string bad :
       {"host=db password=hunter2", "password = hunter2", "PASSWORD=hunter2",
        "password='hunter2'", "sslpassword=hunter2",
        "postgresql://u:hunter2@db/x", "postgres://u:hunter2@db",
        "postgresql://db/x?password=hunter2",
        "postgresql://db/x?%70assword=hunter2", "POSTGRES://u:hunter2@db"}) {
    const absl::Status status = LoadWith({"--pool_conninfo=" + bad});
    EXPECT_THAT(status, Fails("put the password in password_file")) << bad;
    EXPECT_THAT(status.ToString(), Not(HasSubstr("hunter2"))) << bad;
  }
  for (const std::string good :
       {"host=/run/pg port=5432 dbname=tenure user=app", "passfile=/x",
        "postgresql://u@db:5432/x", "postgresql://db:5432/x?sslmode=require",
        "postgresql://[::1]:5432/x"}) {
    EXPECT_THAT(LoadWith({"--pool_conninfo=" + good}), IsOk()) << good;
  }
}

TEST_F(ConfigTest, NeverQuotesASecretInAnError) {
  const absl::Status status = LoadWith(
      {"--pool_conninfo=x", "--api_key=hunter2\n", "--old_keys=hunter2,"});

  EXPECT_THAT(status, AllOf(Fails("api_key: must not contain control"),
                            Fails("old_keys: must not have an empty element")));
  EXPECT_THAT(status.ToString(), Not(HasSubstr("hunter2")));
}

TEST_F(ConfigTest, AppliesDefaultsAndRulesInsideListsOfMessages) {
  File(R"(
pool: {conninfo: host=db}
routes:
  - name: stripe
    secret_files: [/s/a, /s/b]
    pool: {conninfo: host=other}
  - name: stripe-eu
    secret_files: [/s/c]
    leeway: 0s
    pool: {conninfo: host=other, size: 3}
)");
  ASSERT_THAT(Load(), IsOk());

  ASSERT_THAT(settings_.routes(), SizeIs(2));
  EXPECT_THAT(settings_.routes(0).secret_files(), ElementsAre("/s/a", "/s/b"));
  EXPECT_EQ(FromProto(settings_.routes(0).leeway()), absl::Hours(3));
  EXPECT_EQ(settings_.routes(0).pool().size(), 8);
  EXPECT_EQ(FromProto(settings_.routes(1).leeway()), absl::ZeroDuration());
  EXPECT_EQ(settings_.routes(1).pool().size(), 3);
}

TEST_F(ConfigTest, NamesTheEntryOfAListThatIsWrong) {
  File(
      "pool: {conninfo: host=db}\n"
      "routes:\n"
      "  - name: stripe\n"
      "    secret_files: []\n"
      "    pool: {conninfo: password=x}\n"
      "  - leeway: -1s\n"
      "    secret_file: /s/a\n"
      "  - just text\n");

  EXPECT_THAT(
      Load(),
      AllOf(Fails("routes[0].secret_files: is required and must not be empty"),
            Fails("routes[0].pool.conninfo: must not hold a password"),
            Fails("routes[1].name: is required: text, name of the route (in "
                  "the entry at"),
            Fails("routes[1].leeway: must be at least 0s, found \"-1s\""),
            Fails("routes[1].secret_file: unknown key; did you mean "
                  "secret_files?"),
            Fails("routes[2]: must be a mapping of settings, found a single "
                  "value")));
}

TEST_F(ConfigTest, DemandsAnEntryInARequiredList) {
  config_test::NeedsRoutes config;
  EXPECT_THAT(Load(&config), Fails("routes: needs at least one entry (set "
                                   "only in the YAML file"));
  File("routes: []\n");
  EXPECT_THAT(Load(&config), Fails("routes: needs at least one entry"));
}

TEST_F(ConfigTest, GivesNoFlagAndNoVariableToFieldsInsideLists) {
  EXPECT_THAT(LoadWith({"--pool_conninfo=x", "--routes_name=x"}),
              Fails("unknown flag \"--routes_name\""));
  environment_ = {"TENURE_ROUTES_NAME=x"};
  ASSERT_THAT(LoadWith({"--pool_conninfo=x"}), IsOk());
  EXPECT_THAT(how_.warnings, ElementsAre(HasSubstr("TENURE_ROUTES_NAME")));
}

TEST_F(ConfigTest, RefusesACommandLineItCannotRead) {
  const std::string ok = "--pool_conninfo=x";
  EXPECT_THAT(LoadWith({ok, "stray"}), Fails("unexpected argument \"stray\""));
  EXPECT_THAT(LoadWith({ok, "--pool_szie", "5"}),
              AllOf(Fails("unknown flag \"--pool_szie\"; did you mean "
                          "--pool_size?"),
                    Not(Fails("unexpected argument"))));
  EXPECT_THAT(LoadWith({ok, "-x"}), Fails("unknown flag \"-x\""));
  EXPECT_THAT(LoadWith({ok, "--port=1", "--port=2"}), Fails("port"));
  EXPECT_THAT(LoadWith({ok, "--port=1", "--port="}), Fails("port"));
  EXPECT_THAT(LoadWith({ok, "--port"}), Fails("port"));
  EXPECT_THAT(LoadWith({"--note", "--port=1"}),
              AllOf(Fails("--note needs a value, found the flag \"--port=1\""),
                    Not(Fails("is required"))));
  EXPECT_THAT(LoadWith({ok, "--pool.size=5"}), Fails("unknown flag"));
  EXPECT_THAT(LoadWith({ok, "--POOL_SIZE=5"}), Fails("unknown flag"));
  // A value may look like a list, hold quotes or be empty.
  ASSERT_THAT(LoadWith({ok, "--note=[\"a\", 'b']"}), IsOk());
  EXPECT_EQ(settings_.note(), "[\"a\", 'b']");
  ASSERT_THAT(LoadWith({ok, "--note=", "--port=7"}), IsOk());
  EXPECT_EQ(settings_.note(), "");
  EXPECT_EQ(settings_.port(), 7u);
  ASSERT_THAT(LoadWith({ok, "--note=-dash"}), IsOk());
  EXPECT_EQ(settings_.note(), "-dash");
}

TEST_F(ConfigTest, WarnsOfForeignVariablesAndRefusesNearMisses) {
  environment_ = {"TENURE_DEV_ROOT=/x", "TENURE_SERVICE_HOST=10.0.0.1",
                  "PATH=/bin", "TENUREX=1", "NOEQUALS"};
  ASSERT_THAT(LoadWith({"--pool_conninfo=x"}), IsOk());
  EXPECT_THAT(how_.warnings, ElementsAre(AllOf(HasSubstr("TENURE_DEV_ROOT, "),
                                               HasSubstr("TENURE_SERVICE_HOST"),
                                               Not(HasSubstr("TENUREX")))));

  environment_ = {"TENURE_POOL_SIZ=5"};
  EXPECT_THAT(LoadWith({"--pool_conninfo=x"}),
              Fails("environment variable TENURE_POOL_SIZ: no such setting; "
                    "did you mean TENURE_POOL_SIZE?"));
}

TEST_F(ConfigTest, PrintsWhatLoadsAgainWithSecretsRedacted) {
  File(R"(
pool:
  conninfo: 'host=db application_name=''a "b" \ c'''
  acquire_timeout: 1m
big: -5
enabled: false
ratio: 0.3
port: 0
mode: very_safe
peers: ["a: b", "# c", "[x]"]
api_key: hunter2
old_keys: [hunter3, hunter4]
pause: 1h0m0.5s
routes:
  - name: "- odd: {name}"
    secret_files: [/s/a, /s/b]
    token: hunter5
    pool: {conninfo: host=other}
  - name: second
    secret_files: [/s/c]
    pool: {conninfo: host=other, size: 3}
)");
  flags_.push_back("--print-config");
  ASSERT_THAT(Load(), IsOk());
  ASSERT_TRUE(how_.print_and_exit);
  const std::string printed = how_.output;
  EXPECT_THAT(printed, Not(HasSubstr("hunter")));
  EXPECT_THAT(printed, HasSubstr("api_key: \"[redacted]\"\n"));
  Settings expected = settings_;
  expected.set_api_key("[redacted]");
  expected.set_old_keys(0, "[redacted]");
  expected.set_old_keys(1, "[redacted]");
  expected.mutable_routes(0)->set_token("[redacted]");

  flags_.clear();
  File(printed);
  ASSERT_THAT(Load(), IsOk()) << printed;

  EXPECT_TRUE(MessageDifferencer::Equals(settings_, expected)) << printed;
  EXPECT_EQ(PrintConfig(settings_), printed);
}

TEST_F(ConfigTest, PrintsNothingWhenTheConfigurationIsWrong) {
  EXPECT_THAT(LoadWith({"--print-config"}), Fails("pool.conninfo"));
  EXPECT_FALSE(how_.print_and_exit);
}

TEST_F(ConfigTest, HelpListsEverySettingEvenWhenTheRestIsWrong) {
  environment_ = {"TENURE_PORT=wrong"};
  ASSERT_THAT(LoadWith({"--help", "--bogus"}), IsOk());

  ASSERT_TRUE(how_.print_and_exit);
  EXPECT_THAT(how_.output, HasSubstr("app: does things"));
  EXPECT_THAT(how_.output,
              HasSubstr("  --pool_size  (whole number, from 1 to 500, default "
                        "8)\n      connections\n      file: pool.size   "
                        "environment: TENURE_POOL_SIZE\n"));
  EXPECT_THAT(how_.output, HasSubstr("--mode  (fast|very_safe, default fast)"));
  EXPECT_THAT(how_.output, HasSubstr("--pool_conninfo  (text, required)"));
  EXPECT_THAT(how_.output,
              HasSubstr("routes[].name  (text, required)\n      name of"));
  EXPECT_THAT(how_.output, HasSubstr("routes[].pool.size"));
  EXPECT_THAT(how_.output, Not(HasSubstr("TENURE_ROUTES")));
  ASSERT_THAT(LoadWith({"-h"}), IsOk());
  EXPECT_TRUE(how_.print_and_exit);
}

TEST_F(ConfigTest, VersionNamesProgramAndVersion) {
  ASSERT_THAT(LoadWith({"--version"}), IsOk());

  EXPECT_TRUE(how_.print_and_exit);
  EXPECT_THAT(how_.output,
              ::testing::MatchesRegex("app [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST_F(ConfigTest, RefusesASchemaThatCannotWork) {
  config_test::Ambiguous ambiguous;
  EXPECT_THAT(Load(&ambiguous), StatusIs(absl::StatusCode::kInternal,
                                         HasSubstr("--a_b_c twice")));
  config_test::Unsupported unsupported;
  EXPECT_THAT(Load(&unsupported),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("numbers")));
}

// The configurations of the three services.

constexpr char kService[] = R"(
database: {conninfo: host=/run/postgresql}
grpc: {listen: "127.0.0.1:0"}
metrics: {listen: "127.0.0.1:0"}
)";

TEST_F(ConfigTest, ServicesNeedOnlyTheirAddressesAndRoutes) {
  config::v1::EntitlementConfig entitlement;
  File(kService);
  ASSERT_THAT(Load(&entitlement), IsOk());
  EXPECT_EQ(entitlement.environment(), config::v1::ENVIRONMENT_LIVE);
  EXPECT_EQ(FromProto(entitlement.drain_timeout()), absl::Seconds(20));

  config::v1::SchedulerConfig scheduler;
  EXPECT_THAT(Load(&scheduler), Fails("routes"));
  flags_.clear();
  File(absl::StrCat(kService, "routes:\n  - {name: stripe, type: stripe}\n"));
  ASSERT_THAT(Load(&scheduler), IsOk());
  EXPECT_EQ(scheduler.subscription_maintenance().batch_size(), 500);
  EXPECT_EQ(FromProto(scheduler.retry_events().period()), absl::Seconds(1));
  EXPECT_EQ(FromProto(scheduler.retry_events().parking_limit()),
            absl::Hours(7 * 24));

  config::v1::WebhookIngestConfig ingest;
  flags_.clear();
  File(absl::StrCat(kService,
                    "http: {listen: \"127.0.0.1:0\"}\n"
                    "routes:\n"
                    "  - {name: stripe, type: stripe, secret_files: [/s]}\n"));
  ASSERT_THAT(Load(&ingest), IsOk());
  EXPECT_EQ(ingest.http().max_body_bytes(), 1048576);
  EXPECT_EQ(FromProto(ingest.routes(0).renewal_leeway()), absl::Hours(3));
  EXPECT_EQ(ingest.routes(0).environment(), config::v1::ENVIRONMENT_LIVE);
}

// -- Documents ----------------------------------------------------------------

TEST_F(ConfigTest, ADocumentSaysWhereItsKeysStand) {
  File(
      "title: \"\"\n"
      "dishes:\n"
      "  - name: soup\n"
      "    pieces: 0\n"
      "  -\n"
      "    name: roast\n"
      "    rest:\n"
      "      5m\n"
      "    pool: {conninfo: x}\n");
  config_test::Menu menu;
  Document document = LoadDocument(Path(), &menu);

  EXPECT_THAT(document.ToStatus(), IsOk());
  EXPECT_EQ(document.file, Path());
  EXPECT_EQ(document.LineOf("title"), 1);
  EXPECT_EQ(document.LineOf("dishes"), 2);
  EXPECT_EQ(document.LineOf("dishes[0]"), 3);
  EXPECT_EQ(document.LineOf("dishes[0].pieces"), 4);
  EXPECT_EQ(document.LineOf("dishes[1].rest"), 7);
  EXPECT_EQ(document.LineOf("dishes[1].pool.conninfo"), 9);
  // The nearest around it, for what is not there.
  EXPECT_EQ(document.LineOf("dishes[0].grams"), 3);
  EXPECT_EQ(document.LineOf("dishes[7].name"), 2);
  EXPECT_EQ(document.LineOf("nothing.at.all"), 0);

  document.errors.push_back({document.LineOf("dishes[0].pieces"),
                             "dishes[0].pieces", "must be positive"});
  document.errors.push_back({document.LineOf("title"), "title", "is dull"});
  EXPECT_EQ(
      document.ToStatus().message(),
      absl::StrCat(Path(), " has 2 errors:\n", Path(), ":1: title: is dull\n",
                   Path(), ":4: dishes[0].pieces: must be positive"));
}

TEST_F(ConfigTest, ADocumentTellsWhatItLeavesOutFromWhatIsEmpty) {
  File("dishes:\n  - name: soup\n    pieces: 0\n  - name: roast\n");
  config_test::Menu menu;
  ASSERT_THAT(LoadDocument(Path(), &menu).ToStatus(), IsOk());
  EXPECT_FALSE(menu.has_title());
  EXPECT_FALSE(menu.dishes(0).has_pool());
  EXPECT_FALSE(menu.dishes(0).has_rest());
  EXPECT_TRUE(menu.dishes(0).has_pieces());
  EXPECT_EQ(menu.dishes(1).measure_case(),
            config_test::Menu::Dish::MEASURE_NOT_SET);
  // It prints to a document that reads the same.
  const std::string printed = PrintConfig(menu);
  File(printed);
  config_test::Menu again;
  ASSERT_THAT(LoadDocument(Path(), &again).ToStatus(), IsOk());
  EXPECT_TRUE(MessageDifferencer::Equals(menu, again)) << printed;

  File("title: \"\"\ndishes:\n  - pool:\n      conninfo: x\n");
  ASSERT_THAT(LoadDocument(Path(), &menu).ToStatus(), IsOk());
  EXPECT_TRUE(menu.has_title());
  EXPECT_TRUE(menu.dishes(0).has_pool());
  EXPECT_EQ(menu.dishes_size(), 1);
}

TEST_F(ConfigTest, ADocumentIsReadStrictly) {
  File(
      "titel: x\n"
      "dishes:\n"
      "  - {name: soup, pieces: 1, grams: 2}\n"
      "  - rest: soon\n"
      "  - 5\n");
  config_test::Menu menu;
  const absl::Status status = LoadDocument(Path(), &menu).ToStatus();
  EXPECT_THAT(
      status,
      AllOf(Fails(Path() + ":1: titel: unknown key; did you mean title?"),
            Fails(Path() + ":3: dishes[0].grams: cannot be given together "
                           "with pieces"),
            Fails(Path() + ":4: dishes[1].rest: must be a duration"),
            Fails(Path() + ":5: dishes[2]: must be a mapping")));

  File("dishes: [\n");
  EXPECT_THAT(LoadDocument(Path(), &menu).ToStatus(),
              AllOf(Fails(Path() + ":"), Fails(": is not YAML: ")));
  const Document none = LoadDocument("/nonexistent/x.yaml", &menu);
  ASSERT_THAT(none.errors, SizeIs(1));
  EXPECT_EQ(none.errors[0].line, 0);
  EXPECT_EQ(none.errors[0].key, "");
  // Larger than a configuration may be.
  File(std::string(2'000'000, '#'));
  EXPECT_THAT(LoadDocument(Path(), &menu).ToStatus(), IsOk());
}

// One environment for all three must not stop any of them: a variable of one
// service is never taken for a misspelt one of another.
TEST_F(ConfigTest, ServicesLiveWithEachOthersVariables) {
  config::v1::EntitlementConfig entitlement;
  config::v1::SchedulerConfig scheduler;
  config::v1::WebhookIngestConfig ingest;
  const std::vector<google::protobuf::Message*> configs = {&entitlement,
                                                           &scheduler, &ingest};
  std::vector<std::string> names;
  for (google::protobuf::Message* config : configs) {
    flags_ = {"--help"};
    environment_.clear();
    ASSERT_THAT(Load(config), IsOk());
    for (const absl::string_view line : absl::StrSplit(how_.output, '\n')) {
      const std::vector<std::string> parts =
          absl::StrSplit(line, "environment: ");
      if (parts.size() == 2 && parts[1] != "TENURE_CONFIG)") {
        names.push_back(parts[1]);
      }
    }
  }
  ASSERT_GT(names.size(), 40u);

  for (google::protobuf::Message* config : configs) {
    for (const std::string& name : names) {
      flags_.clear();
      environment_ = {absl::StrCat(name, "=x")};
      EXPECT_THAT(Load(config), Not(Fails("no such setting"))) << name;
    }
  }
}

}  // namespace
}  // namespace tenure
