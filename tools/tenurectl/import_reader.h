#ifndef TENURE_TOOLS_TENURECTL_IMPORT_READER_H_
#define TENURE_TOOLS_TENURECTL_IMPORT_READER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tenure::tenurectl {

// What is wrong with a row. `column` is empty when it is the row as a whole.
struct RowError {
  std::string column;
  std::string message;
};

// A row as it stands in the file.
struct ImportRow {
  // Of its first byte, from 1.
  int64_t line = 0;
  // Set when the row could not be read; the rest is then empty.
  std::optional<RowError> error;
  std::string subject;
  std::string plan;
  std::string starts_at;
  std::string expires_at;
  std::string external_key;
  bool lifetime = false;
};

// Reads a file row by row in constant memory: a row of more than kMaxRowBytes
// is an error of that row. Not thread-safe.
class RowReader {
 public:
  virtual ~RowReader() = default;

  // False at the end of the file. An error ends the whole import: the file
  // itself cannot be read.
  virtual absl::StatusOr<bool> Next(ImportRow* row) = 0;

  // How much was read, and of how much; 0 when that is not known.
  virtual int64_t bytes_read() const = 0;
  virtual int64_t bytes_total() const = 0;

  static constexpr size_t kMaxRowBytes = 64 * 1024;
};

enum class ImportFormat {
  // RFC 4180 with a header line.
  kCsv,
  // One JSON object a line.
  kNdjson,
};

// Opens a file, "-" for standard input, and reads what comes before the first
// row. Errors are written for people, "FILE:1: ..." among them: a byte order
// mark, an unknown column, one that is missing.
absl::StatusOr<std::unique_ptr<RowReader>> OpenRows(const std::string& path,
                                                    ImportFormat format);

}  // namespace tenure::tenurectl

#endif  // TENURE_TOOLS_TENURECTL_IMPORT_READER_H_
