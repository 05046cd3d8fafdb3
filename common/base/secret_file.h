#ifndef TENURE_COMMON_BASE_SECRET_FILE_H_
#define TENURE_COMMON_BASE_SECRET_FILE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tenure {

// Text that must not be seen: it is wiped from memory when it goes out of
// scope, cannot be copied, and cannot be streamed, logged or concatenated by
// accident. Immutable; as thread-safe as any const value.
class Secret {
 public:
  Secret() = default;
  // Takes the text and wipes the string it came in.
  explicit Secret(std::string value);
  Secret(Secret&& other) noexcept = default;
  Secret& operator=(Secret&& other) noexcept;
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;
  ~Secret();

  // The text itself, valid while this object lives. Hand it to a function that
  // uses it at once and keeps no copy.
  absl::string_view Reveal() const {
    return absl::string_view(bytes_.data(), bytes_.size());
  }
  bool empty() const { return bytes_.empty(); }

  template <typename Stream>
  friend Stream& operator<<(Stream&, const Secret&) = delete;

 private:
  void Wipe();

  // Not a std::string: a moved-from short string keeps its characters.
  std::vector<char> bytes_;
};

inline constexpr size_t kMaxSecretFileBytes = 64 * 1024;

// Reads a file that holds one secret. One line end ("\n" or "\r\n") at its end
// is dropped, nothing else is changed. FAILED_PRECONDITION, naming the file and
// never its content, when the file is missing, unreadable, no regular file,
// empty after the line end is dropped (C023), larger than kMaxSecretFileBytes
// or holds a NUL.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path);

// The same, as a value that cannot leak by accident.
absl::StatusOr<Secret> ReadSecret(const std::string& path);

}  // namespace tenure

#endif  // TENURE_COMMON_BASE_SECRET_FILE_H_
