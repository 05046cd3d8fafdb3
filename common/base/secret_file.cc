#include "common/base/secret_file.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace tenure {
namespace {

absl::Status FileError(absl::string_view path, absl::string_view what) {
  return absl::FailedPreconditionError(
      absl::StrCat("secret file ", path, ": ", what));
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

// Wipes the buffer on every way out of the reader.
class WipedBuffer {
 public:
  explicit WipedBuffer(size_t size) : bytes_(size) {}
  ~WipedBuffer() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }
  WipedBuffer(const WipedBuffer&) = delete;
  WipedBuffer& operator=(const WipedBuffer&) = delete;
  char* data() { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }

 private:
  std::vector<char> bytes_;
};

}  // namespace

Secret::Secret(std::string value) : bytes_(value.begin(), value.end()) {
  OPENSSL_cleanse(value.data(), value.size());
}

Secret& Secret::operator=(Secret&& other) noexcept {
  if (this != &other) {
    Wipe();
    bytes_ = std::move(other.bytes_);
    other.bytes_.clear();
  }
  return *this;
}

Secret::~Secret() { Wipe(); }

void Secret::Wipe() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

absl::StatusOr<std::string> ReadSecretFile(const std::string& path) {
  // O_NONBLOCK: opening a FIFO by mistake must fail, not hang the start.
  const FileDescriptor file(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0) {
    return FileError(path, absl::StrCat("cannot open: ", strerror(errno)));
  }
  struct stat info;
  if (::fstat(file.get(), &info) != 0) {
    return FileError(path, absl::StrCat("cannot stat: ", strerror(errno)));
  }
  if (S_ISDIR(info.st_mode)) {
    return FileError(path, "is a directory, expected a file");
  }
  if (!S_ISREG(info.st_mode)) return FileError(path, "is not a regular file");

  WipedBuffer buffer(kMaxSecretFileBytes + 1);
  size_t size = 0;
  while (size < buffer.size()) {
    const ssize_t n =
        ::read(file.get(), buffer.data() + size, buffer.size() - size);
    if (n < 0) {
      if (errno == EINTR) continue;
      return FileError(path, absl::StrCat("cannot read: ", strerror(errno)));
    }
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  if (size > kMaxSecretFileBytes) {
    return FileError(
        path, absl::StrCat("is larger than ", kMaxSecretFileBytes, " bytes"));
  }
  absl::string_view text(buffer.data(), size);
  if (text.find('\0') != absl::string_view::npos) {
    return FileError(path, "holds a NUL byte, expected text");
  }
  if (!text.empty() && text.back() == '\n') {
    text.remove_suffix(1);
    if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
  }
  if (text.empty()) return FileError(path, "is empty, expected a secret");
  return std::string(text);
}

absl::StatusOr<Secret> ReadSecret(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, ReadSecretFile(path));
  return Secret(std::move(text));
}

}  // namespace tenure
