#ifndef TENURE_COMMON_DB_RESULT_H_
#define TENURE_COMMON_DB_RESULT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tenure::db {

class Row;

// The rows of one statement. Cheap to copy. Typed reads of a Row never throw:
// the first unreadable value (no such column, NULL where none may be, text of
// another type) is kept in status(), which a FromRow function returns after
// its reads.
class Result {
 public:
  // Implemented over libpqxx in result.cc.
  struct Rep;
  explicit Result(std::shared_ptr<Rep> rep) : rep_(std::move(rep)) {}

  size_t size() const;
  bool empty() const { return size() == 0; }
  // Rows changed by an INSERT, UPDATE or DELETE without RETURNING.
  size_t affected_rows() const;
  // `index` < size().
  Row operator[](size_t index) const;
  absl::Status status() const;

 private:
  std::shared_ptr<Rep> rep_;
};

// One row. Valid as long as its Result or any copy of it.
class Row {
 public:
  Row(std::shared_ptr<Result::Rep> rep, size_t index)
      : rep_(std::move(rep)), index_(index) {}

  bool IsNull(absl::string_view column) const;
  bool Bool(absl::string_view column) const;
  int64_t Int64(absl::string_view column) const;
  std::string Text(absl::string_view column) const;
  std::string Bytea(absl::string_view column) const;
  absl::Time Time(absl::string_view column) const;
  absl::Duration Interval(absl::string_view column) const;

  // NULL becomes nullopt.
  std::optional<int64_t> OptionalInt64(absl::string_view column) const;
  std::optional<std::string> OptionalText(absl::string_view column) const;
  std::optional<absl::Time> OptionalTime(absl::string_view column) const;

 private:
  std::optional<absl::string_view> Raw(absl::string_view column,
                                       bool null_allowed) const;
  void Fail(absl::string_view column, absl::string_view expected) const;

  std::shared_ptr<Result::Rep> rep_;
  size_t index_;
};

}  // namespace tenure::db

#endif  // TENURE_COMMON_DB_RESULT_H_
