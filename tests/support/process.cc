#include "tests/support/process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"

extern char** environ;

namespace tenure::test {
namespace {

// What an error message shows of the output.
constexpr size_t kMessageBytes = 4000;

// How long destruction waits for killed programs to be gone.
constexpr absl::Duration kLastWords = absl::Seconds(5);

absl::Duration Monotonic() { return SystemClock::Instance().Monotonic(); }

absl::Status ErrnoError(absl::string_view what) {
  return absl::InternalError(absl::StrCat(what, ": ", std::strerror(errno)));
}

void CloseFd(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

std::string Tail(const std::string& output) {
  return output.size() <= kMessageBytes
             ? output
             : "..." + output.substr(output.size() - kMessageBytes);
}

// The entry of PATH that holds `program`, or `program` itself. Done before the
// fork: after it only async-signal-safe functions may be called.
std::string FindProgram(const std::string& program) {
  if (absl::StrContains(program, '/')) return program;
  const char* path = std::getenv("PATH");
  for (const absl::string_view dir :
       absl::StrSplit(path == nullptr ? "" : path, ':')) {
    std::string candidate = absl::StrCat(dir, "/", program);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return program;
}

std::vector<std::string> MakeEnvironment(const ProcessOptions& options) {
  std::map<std::string, std::string> merged;
  if (!options.clear_env) {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::pair<std::string, std::string> parts =
          absl::StrSplit(*entry, absl::MaxSplits('=', 1));
      merged[parts.first] = parts.second;
    }
  }
  for (const auto& [name, value] : options.env) merged[name] = value;
  std::vector<std::string> environment;
  for (const auto& [name, value] : merged) {
    environment.push_back(absl::StrCat(name, "=", value));
  }
  return environment;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const ExitStatus& status) {
  if (status.signal != 0) return out << "signal " << status.signal;
  return out << "exit code " << status.code;
}

absl::StatusOr<std::unique_ptr<Process>> Process::Start(
    absl::string_view program, ProcessOptions options) {
  std::unique_ptr<Process> process(new Process());
  int output_fds[2];
  int stdin_fds[2] = {-1, -1};
  if (pipe2(process->wake_fds_, O_CLOEXEC | O_NONBLOCK) != 0) {
    return ErrnoError("pipe");
  }
  int file_fd = -1;
  if (!options.output_path.empty()) {
    file_fd = open(options.output_path.c_str(),
                   O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file_fd < 0) return ErrnoError(options.output_path);
  }
  if (pipe2(output_fds, O_CLOEXEC) != 0) {
    CloseFd(&file_fd);
    return ErrnoError("pipe");
  }
  if (options.pipe_stdin) {
    if (pipe2(stdin_fds, O_CLOEXEC) != 0) {
      CloseFd(&file_fd);
      CloseFd(&output_fds[0]);
      CloseFd(&output_fds[1]);
      return ErrnoError("pipe");
    }
  } else {
    stdin_fds[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
  Process* const p = process.get();
  {
    MutexLock lock(p->mutex_);
    p->stdin_fd_ = stdin_fds[1];
  }
  p->reader_ = std::thread(
      [p, fd = output_fds[0], file_fd] { p->ReadOutput(fd, file_fd); });
  p->waiter_ = std::thread(
      [p, program = FindProgram(std::string(program)),
       options = std::move(options), out = output_fds[1],
       in = stdin_fds[0]] { p->RunProgram(program, options, out, in); });
  absl::Status started;
  {
    MutexLock lock(p->mutex_);
    while (absl::IsUnknown(p->started_)) p->changed_.Wait(p->mutex_);
    started = p->started_;
  }
  RETURN_IF_ERROR(started);
  return process;
}

void Process::RunProgram(const std::string& program,
                         const ProcessOptions& options, int output_write_fd,
                         int stdin_read_fd) {
  std::vector<std::string> args = {program};
  args.insert(args.end(), options.args.begin(), options.args.end());
  const std::vector<char*> argv = Pointers(args);
  std::vector<std::string> environment = MakeEnvironment(options);
  const std::vector<char*> envp = Pointers(environment);
  const pid_t parent = getpid();
  // Closed by a successful exec; otherwise carries errno.
  int error_fds[2];
  if (pipe2(error_fds, O_CLOEXEC) != 0) error_fds[0] = error_fds[1] = -1;

  // The parent of the program is this thread, which lives until the program
  // has ended: PR_SET_PDEATHSIG acts on the death of the thread.
  const pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    if (!options.outlives_parent) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(127);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    signal(SIGPIPE, SIG_DFL);
    if (dup2(stdin_read_fd, 0) >= 0 && dup2(output_write_fd, 1) >= 0 &&
        dup2(output_write_fd, 2) >= 0 &&
        (options.cwd.empty() || chdir(options.cwd.c_str()) == 0)) {
      execve(program.c_str(), argv.data(), envp.data());
    }
    const int error = errno;
    (void)!write(error_fds[1], &error, sizeof(error));
    _exit(127);
  }
  const int fork_error = errno;
  close(output_write_fd);
  close(stdin_read_fd);
  CloseFd(&error_fds[1]);
  int error = 0;
  if (pid < 0) {
    error = fork_error;
  } else {
    // Both sides set it, so that it is set whoever comes first.
    setpgid(pid, pid);
    ssize_t got;
    do {
      got = read(error_fds[0], &error, sizeof(error));
    } while (got < 0 && errno == EINTR);
  }
  CloseFd(&error_fds[0]);
  {
    MutexLock lock(mutex_);
    pid_ = pid;
    started_ = error == 0 ? absl::OkStatus()
                          : absl::NotFoundError(absl::StrCat(
                                program, ": ", std::strerror(error)));
    if (pid < 0) exited_ = true;
    changed_.NotifyAll();
  }
  if (pid < 0) return;

  // The first wait leaves the process in place: its number is freed only
  // under the lock, so that Signal can never reach a stranger.
  siginfo_t info;
  while (waitid(P_PID, pid, &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  MutexLock lock(mutex_);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    exit_status_.signal = WTERMSIG(status);
  } else {
    exit_status_.code = WEXITSTATUS(status);
  }
  exited_ = true;
  changed_.NotifyAll();
  (void)!write(wake_fds_[1], "x", 1);
}

void Process::ReadOutput(int output_fd, int file_fd) {
  fcntl(output_fd, F_SETFL, O_NONBLOCK);
  std::vector<char> buffer(65536);
  bool ended = false;
  while (!ended) {
    pollfd fds[2] = {{output_fd, POLLIN, 0}, {wake_fds_[0], POLLIN, 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR) break;
    char wake[16];
    while (read(wake_fds_[0], wake, sizeof(wake)) > 0) {
    }
    bool exited;
    {
      MutexLock lock(mutex_);
      if (closing_) break;
      exited = exited_;
    }
    // Everything the program wrote before its end is in the pipe by now.
    for (;;) {
      const ssize_t got = read(output_fd, buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) break;
      if (got == 0) {
        ended = true;
        break;
      }
      for (ssize_t done = 0; file_fd >= 0 && done < got;) {
        const ssize_t put = write(file_fd, buffer.data() + done, got - done);
        if (put <= 0) break;
        done += put;
      }
      MutexLock lock(mutex_);
      Append(absl::string_view(buffer.data(), got));
      changed_.NotifyAll();
      if (closing_) break;
    }
    if (exited || ended) {
      MutexLock lock(mutex_);
      output_complete_ = true;
      changed_.NotifyAll();
    }
  }
  close(output_fd);
  CloseFd(&file_fd);
  MutexLock lock(mutex_);
  if (line_start_ < output_.size()) {
    lines_.push_back(output_.substr(line_start_));
    line_start_ = output_.size();
  }
  output_complete_ = true;
  output_ended_ = true;
  changed_.NotifyAll();
}

void Process::Append(absl::string_view chunk) {
  size_t scan = output_.size();
  output_.append(chunk.data(), chunk.size());
  for (;;) {
    const size_t newline = output_.find('\n', scan);
    if (newline == std::string::npos) return;
    lines_.push_back(output_.substr(line_start_, newline - line_start_));
    line_start_ = scan = newline + 1;
  }
}

Process::~Process() {
  {
    MutexLock lock(mutex_);
    // The group outlives its leader while a child of it runs. When all are
    // gone the number may be anybody's, but only after the leader was reaped.
    if (pid_ > 0 && (!exited_ || !output_ended_)) kill(-pid_, SIGKILL);
    CloseFd(&stdin_fd_);
  }
  if (waiter_.joinable()) waiter_.join();
  if (reader_.joinable()) {
    // The output ends with the last of the group; only a program that left the
    // group and kept the output open is not waited for.
    const absl::Duration end = Monotonic() + kLastWords;
    MutexLock lock(mutex_);
    while (!output_ended_ && Monotonic() < end) {
      changed_.WaitFor(mutex_, end - Monotonic());
    }
    closing_ = true;
  }
  if (wake_fds_[1] >= 0) (void)!write(wake_fds_[1], "x", 1);
  if (reader_.joinable()) reader_.join();
  CloseFd(&wake_fds_[0]);
  CloseFd(&wake_fds_[1]);
}

absl::StatusOr<std::string> Process::AwaitLine(absl::string_view substring,
                                               absl::Duration timeout) const {
  const absl::Duration end = Monotonic() + timeout;
  size_t next = 0;
  MutexLock lock(mutex_);
  for (;;) {
    for (; next < lines_.size(); ++next) {
      if (absl::StrContains(lines_[next], substring)) return lines_[next];
    }
    if (output_ended_) {
      return absl::FailedPreconditionError(
          absl::StrCat("the output ended without \"", substring,
                       "\"; it was:\n", Tail(output_)));
    }
    const absl::Duration left = end - Monotonic();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(absl::StrCat(
          "no line with \"", substring, "\" within ",
          absl::FormatDuration(timeout), "; the output was:\n", Tail(output_)));
    }
    changed_.WaitFor(mutex_, left);
  }
}

std::string Process::Output() const {
  MutexLock lock(mutex_);
  return output_;
}

std::vector<std::string> Process::Lines() const {
  MutexLock lock(mutex_);
  return lines_;
}

absl::Status Process::Signal(int signal) {
  MutexLock lock(mutex_);
  if (exited_) return absl::FailedPreconditionError("the program has ended");
  if (kill(pid_, signal) != 0) return ErrnoError("kill");
  return absl::OkStatus();
}

void Process::CloseStdin() {
  MutexLock lock(mutex_);
  CloseFd(&stdin_fd_);
}

absl::StatusOr<ExitStatus> Process::Wait(absl::Duration timeout) const {
  const absl::Duration end = Monotonic() + timeout;
  MutexLock lock(mutex_);
  while (!exited_ || !output_complete_) {
    const absl::Duration left = end - Monotonic();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(absl::StrCat(
          "the program did not end within ", absl::FormatDuration(timeout),
          "; its output was:\n", Tail(output_)));
    }
    changed_.WaitFor(mutex_, left);
  }
  return exit_status_;
}

absl::StatusOr<ExitStatus> Process::Stop(absl::Duration timeout) {
  // It may have ended by itself, which Wait reports.
  (void)Signal(SIGTERM);
  return Wait(timeout);
}

int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool bound =
      fd >= 0 &&
      bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (fd >= 0) close(fd);
  return bound ? ntohs(address.sin_port) : 0;
}

}  // namespace tenure::test
