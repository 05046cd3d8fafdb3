#ifndef TENURE_TESTS_SUPPORT_PROCESS_H_
#define TENURE_TESTS_SUPPORT_PROCESS_H_

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "tests/support/test_signal.h"

namespace tenure::test {

struct ProcessOptions {
  // Without the program's own name.
  std::vector<std::string> args = {};
  // Added to this process's environment, or the whole of it.
  std::map<std::string, std::string> env = {};
  bool clear_env = false;
  // Empty: this process's working directory.
  std::string cwd = {};
  // Standard output and standard error go, interleaved as written, to this
  // file too when it is set (created or emptied).
  std::string output_path = {};
  // Standard input is a pipe that CloseStdin ends, instead of /dev/null.
  bool pipe_stdin = false;
  // By default the kernel kills the program when this process dies, so that a
  // test cut short by a time limit leaves no server behind.
  bool outlives_parent = false;
};

// How a program ended: `signal` is 0 for a normal end.
struct ExitStatus {
  int code = 0;
  int signal = 0;

  bool ok() const { return code == 0 && signal == 0; }
};
inline bool operator==(const ExitStatus& a, const ExitStatus& b) {
  return a.code == b.code && a.signal == b.signal;
}
std::ostream& operator<<(std::ostream& out, const ExitStatus& status);

// A program started by a test. It leads a process group of its own, which is
// killed (SIGKILL) at destruction. Its output is read at all times, so it never
// blocks on a full pipe. Thread-safe.
class Process {
 public:
  // Starts `program`: a path, or a name looked up in PATH.
  static absl::StatusOr<std::unique_ptr<Process>> Start(
      absl::string_view program, ProcessOptions options);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }

  // Waits for a line that contains `substring` and returns the first such one
  // from the start of the output, without its newline. Fails with
  // DEADLINE_EXCEEDED, or with FAILED_PRECONDITION when the output ended
  // without it; both messages carry the output's end.
  absl::StatusOr<std::string> AwaitLine(
      absl::string_view substring, absl::Duration timeout = kPatience) const;

  // What was written so far, complete once Wait has returned.
  std::string Output() const;
  std::vector<std::string> Lines() const;

  // Sends a signal to the program itself. FAILED_PRECONDITION when it has
  // ended.
  absl::Status Signal(int signal);

  // Ends the program's standard input (pipe_stdin).
  void CloseStdin();

  // Waits for the end of the program; may be called again.
  absl::StatusOr<ExitStatus> Wait(absl::Duration timeout = kPatience) const;

  // Signal(SIGTERM), then Wait.
  absl::StatusOr<ExitStatus> Stop(absl::Duration timeout = kPatience);

 private:
  Process() = default;

  // Starts the program and waits for its end; runs on waiter_.
  void RunProgram(const std::string& program, const ProcessOptions& options,
                  int output_write_fd, int stdin_read_fd);
  // Reads the output until all programs that can write to it have ended, or
  // destruction begins; runs on reader_.
  void ReadOutput(int output_fd, int file_fd);
  void Append(absl::string_view chunk) TENURE_REQUIRES(mutex_);

  pid_t pid_ = -1;
  std::thread waiter_;
  std::thread reader_;
  int wake_fds_[2] = {-1, -1};  // a byte wakes reader_

  mutable Mutex mutex_;
  mutable CondVar changed_;
  absl::Status started_ TENURE_GUARDED_BY(mutex_) =
      absl::UnknownError("starting");
  bool exited_ TENURE_GUARDED_BY(mutex_) = false;
  bool output_complete_ TENURE_GUARDED_BY(mutex_) = false;
  bool output_ended_ TENURE_GUARDED_BY(mutex_) = false;
  bool closing_ TENURE_GUARDED_BY(mutex_) = false;
  ExitStatus exit_status_ TENURE_GUARDED_BY(mutex_);
  int stdin_fd_ TENURE_GUARDED_BY(mutex_) = -1;
  std::string output_ TENURE_GUARDED_BY(mutex_);
  // Start of the first unfinished line in output_.
  size_t line_start_ TENURE_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> lines_ TENURE_GUARDED_BY(mutex_);
};

// A TCP port of 127.0.0.1 that was free a moment ago. For programs that cannot
// be given port 0: somebody else may take it first.
int FreePort();

}  // namespace tenure::test

#endif  // TENURE_TESTS_SUPPORT_PROCESS_H_
