#include "tests/support/process.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace tenure::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ProcessOptions Shell(const std::string& script) {
  ProcessOptions options;
  options.args = {"-c", script};
  return options;
}

TEST(Process, CapturesFiveMegabytesInAFileAndAsLines) {
  // 65536 lines of 80 bytes.
  const std::string path =
      ::testing::TempDir() + "/process_test_output." + std::to_string(getpid());
  ProcessOptions options = Shell(
      "i=0; while [ $i -lt 64 ]; do printf '%079d\\n' $(seq 1024);"
      " i=$((i+1)); done; echo done >&2");
  options.output_path = path;

  ASSERT_OK_AND_ASSIGN(const auto process, Process::Start("bash", options));
  ASSERT_THAT(process->Wait(), IsOkAndHolds(ExitStatus{}));

  EXPECT_EQ(process->Output().size(), 65536u * 80 + 5);
  EXPECT_EQ(process->Lines().size(), 65537u);
  EXPECT_EQ(process->Lines().back(), "done");
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  EXPECT_EQ(content.str(), process->Output());
  unlink(path.c_str());
}

TEST(Process, AwaitsALineOfARunningProgram) {
  ProcessOptions options = Shell("echo one; echo two >&2; read line; echo end");
  options.pipe_stdin = true;
  ASSERT_OK_AND_ASSIGN(const auto process, Process::Start("sh", options));

  EXPECT_THAT(process->AwaitLine("tw"), IsOkAndHolds("two"));
  EXPECT_THAT(process->AwaitLine("end", absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("two")));

  process->CloseStdin();
  EXPECT_THAT(process->Wait(), IsOkAndHolds(ExitStatus{}));
  EXPECT_THAT(process->Lines(), ElementsAre("one", "two", "end"));
  EXPECT_THAT(process->AwaitLine("three"),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(Process, TellsAnExitCodeFromASignal) {
  ASSERT_OK_AND_ASSIGN(const auto coded, Process::Start("sh", Shell("exit 3")));
  EXPECT_THAT(coded->Wait(), IsOkAndHolds(ExitStatus{3, 0}));

  ASSERT_OK_AND_ASSIGN(const auto killed,
                       Process::Start("sleep", {.args = {"600"}}));
  EXPECT_OK(killed->Signal(SIGUSR1));
  EXPECT_THAT(killed->Wait(), IsOkAndHolds(ExitStatus{0, SIGUSR1}));
  EXPECT_THAT(killed->Signal(SIGUSR1),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(Process, GivesArgumentsEnvironmentAndDirectory) {
  ProcessOptions options = Shell("echo $TENURE_X $1 $(pwd) ${HOME-none}");
  options.args.insert(options.args.end(), {"name", "first"});
  options.env = {{"TENURE_X", "x y"}, {"PATH", "/usr/bin:/bin"}};
  options.clear_env = true;
  options.cwd = "/usr";
  ASSERT_OK_AND_ASSIGN(const auto process, Process::Start("sh", options));

  EXPECT_THAT(process->Wait(), IsOk());
  EXPECT_EQ(process->Output(), "x y first /usr none\n");
}

TEST(Process, NamesAProgramThatDoesNotExist) {
  EXPECT_THAT(
      Process::Start("/nonexistent/program", {}),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent/program")));
}

TEST(Process, WaitDoesNotDependOnAGrandchildThatKeepsTheOutputOpen) {
  ASSERT_OK_AND_ASSIGN(const auto process,
                       Process::Start("sh", Shell("sleep 600 & echo $!")));

  EXPECT_THAT(process->Wait(), IsOkAndHolds(ExitStatus{}));
  EXPECT_EQ(process->Lines().size(), 1u);
}

TEST(Process, DestructionKillsTheWholeGroup) {
  // Every program of the group inherits the pipe's end, so the pipe ends with
  // the last of them.
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  {
    ASSERT_OK_AND_ASSIGN(
        const auto process,
        Process::Start("sh", Shell("sleep 600 & echo started; wait")));
    ASSERT_OK(process->AwaitLine("started"));
  }

  close(fds[1]);
  char byte;
  EXPECT_EQ(read(fds[0], &byte, 1), 0);
  close(fds[0]);
}

TEST(FreePort, CanBeBound) { EXPECT_GT(FreePort(), 0); }

}  // namespace
}  // namespace tenure::test
