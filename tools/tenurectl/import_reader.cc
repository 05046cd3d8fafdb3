#include "tools/tenurectl/import_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"

namespace tenure::tenurectl {
namespace {

constexpr const char* kColumns[] = {"subject",    "plan",     "starts_at",
                                    "expires_at", "lifetime", "external_key"};

bool IsColumn(absl::string_view name) {
  return std::find(std::begin(kColumns), std::end(kColumns), name) !=
         std::end(kColumns);
}

// Puts a value into its place. The error's column is `column`.
std::optional<RowError> SetColumn(absl::string_view column, std::string value,
                                  ImportRow* row) {
  if (!IsValidUtf8(value)) {
    return RowError{std::string(column), "must be valid UTF-8"};
  }
  if (column == "subject") {
    row->subject = std::move(value);
  } else if (column == "plan") {
    row->plan = std::move(value);
  } else if (column == "starts_at") {
    row->starts_at = std::move(value);
  } else if (column == "expires_at") {
    row->expires_at = std::move(value);
  } else if (column == "external_key") {
    row->external_key = std::move(value);
  } else if (value == "true" || value == "false" || value.empty()) {
    row->lifetime = value == "true";
  } else {
    return RowError{std::string(column), "must be true, false or empty"};
  }
  return std::nullopt;
}

void SetError(RowError error, ImportRow* row) {
  const int64_t line = row->line;
  *row = ImportRow{};
  row->line = line;
  row->error = std::move(error);
}

// A file read byte by byte through a buffer.
class ByteSource {
 public:
  static constexpr int kEnd = -1;

  static absl::StatusOr<std::unique_ptr<ByteSource>> Open(
      const std::string& path) {
    std::FILE* file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
    if (file == nullptr) {
      return absl::NotFoundError(
          absl::StrCat(path, ": ", std::strerror(errno)));
    }
    std::unique_ptr<ByteSource> source(new ByteSource(path, file));
    struct stat info = {};
    if (::fstat(::fileno(file), &info) == 0) {
      if (S_ISDIR(info.st_mode)) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": is a directory"));
      }
      if (S_ISREG(info.st_mode)) source->total_ = info.st_size;
    }
    source->Fill();
    const absl::string_view head(source->buffer_, source->size_);
    if (absl::StartsWith(head, "\xEF\xBB\xBF") ||
        absl::StartsWith(head, "\xFE\xFF") ||
        absl::StartsWith(head, "\xFF\xFE")) {
      return absl::InvalidArgumentError(
          absl::StrCat(path,
                       ":1: the file begins with a byte order mark; save it "
                       "as UTF-8 without one"));
    }
    return source;
  }
  ~ByteSource() {
    if (file_ != stdin) std::fclose(file_);
  }

  // The next byte, or kEnd.
  int Get() {
    const int c = Peek();
    if (c == kEnd) return kEnd;
    ++at_;
    if (c == '\n') ++line_;
    return c;
  }
  int Peek() {
    if (at_ == size_ && !Fill()) return kEnd;
    return static_cast<unsigned char>(buffer_[at_]);
  }

  // Of the next byte.
  int64_t line() const { return line_; }
  const std::string& path() const { return path_; }
  int64_t read() const { return before_ + static_cast<int64_t>(at_); }
  int64_t total() const { return total_; }
  absl::Status status() const {
    if (!std::ferror(file_)) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat(path_, ":", line_, ": cannot be read further"));
  }

 private:
  ByteSource(std::string path, std::FILE* file)
      : path_(std::move(path)), file_(file) {}

  bool Fill() {
    before_ += static_cast<int64_t>(size_);
    at_ = 0;
    size_ = std::fread(buffer_, 1, sizeof(buffer_), file_);
    return size_ > 0;
  }

  const std::string path_;
  std::FILE* const file_;
  char buffer_[64 * 1024];
  size_t at_ = 0;
  size_t size_ = 0;
  int64_t before_ = 0;
  int64_t total_ = 0;
  int64_t line_ = 1;
};

class SourceReader : public RowReader {
 public:
  explicit SourceReader(std::unique_ptr<ByteSource> source)
      : source_(std::move(source)) {}
  int64_t bytes_read() const override { return source_->read(); }
  int64_t bytes_total() const override { return source_->total(); }

 protected:
  // Passes over the rest of the line.
  void SkipLine() {
    for (int c = source_->Get(); c != ByteSource::kEnd && c != '\n';
         c = source_->Get()) {
    }
  }

  std::unique_ptr<ByteSource> source_;
};

// RFC 4180.
class CsvReader : public SourceReader {
 public:
  using SourceReader::SourceReader;

  absl::Status ReadHeader() {
    int64_t line = 0;
    std::optional<RowError> error;
    const bool any = ReadRecord(&header_, &line, &error);
    RETURN_IF_ERROR(source_->status());
    if (!any)
      return Refuse(1, "the file is empty; the first line names the columns");
    if (error) return Refuse(line, error->message);
    for (auto it = header_.begin(); it != header_.end(); ++it) {
      if (!IsColumn(*it)) {
        return Refuse(line,
                      absl::StrCat("unknown column '", *it, "'; known are: ",
                                   absl::StrJoin(kColumns, ", ")));
      }
      if (std::find(header_.begin(), it, *it) != it) {
        return Refuse(line, absl::StrCat("column '", *it, "' is given twice"));
      }
    }
    for (const char* column : {"subject", "plan"}) {
      if (!Has(column)) {
        return Refuse(line, absl::StrCat("column '", column, "' is missing"));
      }
    }
    if (!Has("expires_at") && !Has("lifetime")) {
      return Refuse(line,
                    "one of the columns expires_at and lifetime is needed");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Next(ImportRow* row) override {
    *row = ImportRow{};
    std::vector<std::string> fields;
    std::optional<RowError> error;
    const bool any = ReadRecord(&fields, &row->line, &error);
    RETURN_IF_ERROR(source_->status());
    if (!any) return false;
    if (!error && fields.size() != header_.size()) {
      error = RowError{"", absl::StrCat(fields.size(), " columns instead of ",
                                        header_.size())};
    }
    for (size_t i = 0; !error && i < fields.size(); ++i) {
      error = SetColumn(header_[i], std::move(fields[i]), row);
    }
    if (error) SetError(*std::move(error), row);
    return true;
  }

 private:
  bool Has(absl::string_view column) const {
    return std::find(header_.begin(), header_.end(), column) != header_.end();
  }
  absl::Status Refuse(int64_t line, absl::string_view message) const {
    return absl::InvalidArgumentError(
        absl::StrCat(source_->path(), ":", line, ": ", message));
  }

  // The next record that is not an empty line; false at the end. After an error
  // the reading goes on behind the line on which it was noticed.
  bool ReadRecord(std::vector<std::string>* fields, int64_t* line,
                  std::optional<RowError>* error) {
    fields->clear();
    *line = source_->line();
    while (source_->Peek() == '\n' || source_->Peek() == '\r') {
      if (source_->Get() == '\r' && source_->Peek() != '\n' &&
          source_->Peek() != ByteSource::kEnd) {
        *error = RowError{"", "a carriage return without a line feed"};
        SkipLine();
        return true;
      }
      *line = source_->line();
    }
    if (source_->Peek() == ByteSource::kEnd) return false;
    size_t bytes = 0;
    std::string field;
    const auto fail = [&](absl::string_view message, bool at_line_end = false) {
      *error = RowError{"", std::string(message)};
      if (!at_line_end) SkipLine();
      return true;
    };
    for (;;) {
      // At the start of a field.
      field.clear();
      int c = source_->Get();
      if (c == '"') {
        for (;;) {
          c = source_->Get();
          if (c == ByteSource::kEnd) {
            return fail("the file ends inside a quoted field");
          }
          if (c == '"') {
            if (source_->Peek() != '"') break;
            source_->Get();
          }
          if (++bytes > kMaxRowBytes) {
            return fail(absl::StrCat("more than ", kMaxRowBytes,
                                     " bytes; is a closing quote missing?"),
                        c == '\n');
          }
          field.push_back(static_cast<char>(c));
        }
        c = source_->Get();
        if (c != ',' && c != '\n' && c != '\r' && c != ByteSource::kEnd) {
          return fail("text behind a closing quote");
        }
      } else {
        while (c != ',' && c != '\n' && c != '\r' && c != ByteSource::kEnd) {
          if (c == '"') return fail("a quote inside a field without quotes");
          if (++bytes > kMaxRowBytes) {
            return fail(absl::StrCat("more than ", kMaxRowBytes, " bytes"));
          }
          field.push_back(static_cast<char>(c));
          c = source_->Get();
        }
      }
      if (c == '\r') {
        if (source_->Peek() != '\n') {
          return fail("a carriage return without a line feed");
        }
        c = source_->Get();
      }
      fields->push_back(std::move(field));
      if (c != ',') return true;
      ++bytes;
    }
  }

  std::vector<std::string> header_;
};

class NdjsonReader : public SourceReader {
 public:
  using SourceReader::SourceReader;

  absl::StatusOr<bool> Next(ImportRow* row) override {
    std::string text;
    do {
      *row = ImportRow{};
      row->line = source_->line();
      text.clear();
      if (source_->Peek() == ByteSource::kEnd) {
        RETURN_IF_ERROR(source_->status());
        return false;
      }
      for (int c = source_->Get(); c != ByteSource::kEnd && c != '\n';
           c = source_->Get()) {
        if (text.size() == kMaxRowBytes) {
          SkipLine();
          SetError({"", absl::StrCat("more than ", kMaxRowBytes, " bytes")},
                   row);
          return true;
        }
        text.push_back(static_cast<char>(c));
      }
      RETURN_IF_ERROR(source_->status());
      if (!text.empty() && text.back() == '\r') text.pop_back();
    } while (text.empty());
    if (std::optional<RowError> error = Read(text, row)) {
      SetError(*std::move(error), row);
    }
    return true;
  }

 private:
  static std::optional<RowError> Read(const std::string& text, ImportRow* row) {
    const absl::StatusOr<JsonValue> json = ParseJson(text);
    if (!json.ok()) return RowError{"", std::string(json.status().message())};
    if (!json->IsObject()) return RowError{"", "is no JSON object"};
    for (const JsonMember& member : json->members()) {
      if (member.key_has_lone_surrogate || !IsColumn(member.key)) {
        return RowError{
            "", absl::StrCat("unknown key '", member.key,
                             "'; known are: ", absl::StrJoin(kColumns, ", "))};
      }
      if (member.value.IsNull()) continue;
      if (member.key == "lifetime") {
        const std::optional<bool> flag = member.value.AsBool();
        if (!flag) return RowError{member.key, "must be true or false"};
        row->lifetime = *flag;
        continue;
      }
      const std::optional<absl::string_view> value = member.value.AsString();
      if (!value) return RowError{member.key, "must be a string"};
      if (auto error = SetColumn(member.key, std::string(*value), row)) {
        return error;
      }
    }
    return std::nullopt;
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<RowReader>> OpenRows(const std::string& path,
                                                    ImportFormat format) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> source, ByteSource::Open(path));
  if (format == ImportFormat::kNdjson) {
    return std::make_unique<NdjsonReader>(std::move(source));
  }
  auto reader = std::make_unique<CsvReader>(std::move(source));
  RETURN_IF_ERROR(reader->ReadHeader());
  return reader;
}

}  // namespace tenure::tenurectl
