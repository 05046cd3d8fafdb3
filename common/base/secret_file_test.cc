#include "common/base/secret_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace tenure {
namespace {

using test::IsOkAndHolds;
using test::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class SecretFile : public ::testing::Test {
 protected:
  SecretFile() {
    std::string pattern = ::testing::TempDir() + "/secret_file_XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  ~SecretFile() override { std::filesystem::remove_all(directory_); }

  std::string Path() const { return directory_ + "/stripe_secret"; }
  std::string Write(absl::string_view content) const {
    std::ofstream(Path(), std::ios::binary) << content;
    return Path();
  }

  std::string directory_;
};

::testing::Matcher<absl::StatusOr<std::string>> FailsNamingTheFile(
    absl::string_view why) {
  return StatusIs(
      absl::StatusCode::kFailedPrecondition,
      AllOf(HasSubstr("stripe_secret"), HasSubstr(std::string(why))));
}

TEST_F(SecretFile, DropsOneLineEndAndNothingElse) {
  EXPECT_THAT(ReadSecretFile(Write("whsec_1")), IsOkAndHolds("whsec_1"));
  EXPECT_THAT(ReadSecretFile(Write("whsec_1\n")), IsOkAndHolds("whsec_1"));
  EXPECT_THAT(ReadSecretFile(Write("whsec_1\r\n")), IsOkAndHolds("whsec_1"));
  EXPECT_THAT(ReadSecretFile(Write("whsec_1\n\n")), IsOkAndHolds("whsec_1\n"));
  EXPECT_THAT(ReadSecretFile(Write(" a b ")), IsOkAndHolds(" a b "));
}

TEST_F(SecretFile, C023_RefusesAnEmptyFile) {
  EXPECT_THAT(ReadSecretFile(Write("")), FailsNamingTheFile("is empty"));
  EXPECT_THAT(ReadSecretFile(Write("\n")), FailsNamingTheFile("is empty"));
  EXPECT_THAT(ReadSecretFile(Write("\r\n")), FailsNamingTheFile("is empty"));
  EXPECT_FALSE(ReadSecret(Write("")).ok());
}

TEST_F(SecretFile, RefusesWhatIsMissingOrNoFile) {
  EXPECT_THAT(ReadSecretFile(Path()), FailsNamingTheFile("No such file"));

  ASSERT_EQ(::mkdir(Path().c_str(), 0700), 0);
  EXPECT_THAT(ReadSecretFile(Path()), FailsNamingTheFile("is a directory"));
  ASSERT_EQ(::rmdir(Path().c_str()), 0);

  ASSERT_EQ(::mkfifo(Path().c_str(), 0600), 0);
  EXPECT_THAT(ReadSecretFile(Path()),
              FailsNamingTheFile("is not a regular file"));
}

TEST_F(SecretFile, FollowsALinkAsMountedSecretsAreLinks) {
  const std::string target = directory_ + "/target";
  std::ofstream(target) << "whsec_1\n";
  ASSERT_EQ(::symlink(target.c_str(), Path().c_str()), 0);

  EXPECT_THAT(ReadSecretFile(Path()), IsOkAndHolds("whsec_1"));
}

TEST_F(SecretFile, RefusesMoreThan64KiB) {
  EXPECT_TRUE(ReadSecretFile(Write(std::string(64 * 1024, 'k'))).ok());
  EXPECT_THAT(ReadSecretFile(Write(std::string(64 * 1024 + 1, 'k'))),
              FailsNamingTheFile("larger than 65536"));
}

TEST_F(SecretFile, NeverQuotesTheContent) {
  const absl::StatusOr<std::string> secret =
      ReadSecretFile(Write(std::string("whsec_hidden\0x", 14)));

  EXPECT_THAT(secret, FailsNamingTheFile("NUL"));
  EXPECT_THAT(secret.status().ToString(), Not(HasSubstr("whsec")));
}

TEST_F(SecretFile, RefusesAFileItMayNotRead) {
  Write("whsec_1");
  ASSERT_EQ(::chmod(Path().c_str(), 0), 0);
  // Root reads everything; what is shown then is that nothing breaks.
  if (::geteuid() == 0) {
    EXPECT_TRUE(ReadSecretFile(Path()).ok());
  } else {
    EXPECT_THAT(ReadSecretFile(Path()), FailsNamingTheFile("Permission"));
  }
}

TEST_F(SecretFile, ReadsIntoASecret) {
  const absl::StatusOr<Secret> secret = ReadSecret(Write("whsec_1\n"));

  ASSERT_TRUE(secret.ok());
  EXPECT_EQ(secret->Reveal(), "whsec_1");
}

template <typename T, typename = void>
struct IsStreamable : std::false_type {};
template <typename T>
struct IsStreamable<T, std::void_t<decltype(std::declval<std::ostream&>()
                                            << std::declval<const T&>())>>
    : std::true_type {};

TEST(Secret, CannotBeCopiedStreamedOrConverted) {
  static_assert(!std::is_copy_constructible_v<Secret>);
  static_assert(!std::is_copy_assignable_v<Secret>);
  static_assert(IsStreamable<int>::value);
  static_assert(!IsStreamable<Secret>::value);
  static_assert(!std::is_convertible_v<Secret, absl::AlphaNum>);
  static_assert(!std::is_convertible_v<Secret, std::string>);
  static_assert(!std::is_convertible_v<Secret, absl::string_view>);
}

TEST(Secret, LeavesNothingBehindWhenMoved) {
  Secret first(std::string("short"));
  const absl::string_view place = first.Reveal();

  Secret second(std::move(first));
  EXPECT_EQ(second.Reveal().data(), place.data());  // The bytes did not move.
  EXPECT_TRUE(first.empty());  // NOLINT(bugprone-use-after-move)

  Secret third(std::string("other"));
  third = std::move(second);
  EXPECT_EQ(third.Reveal(), "short");
  EXPECT_TRUE(second.empty());  // NOLINT(bugprone-use-after-move)
}

}  // namespace
}  // namespace tenure
