#ifndef TENURE_COMMON_DB_PARAMS_H_
#define TENURE_COMMON_DB_PARAMS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tenure::db {

// A bytea value, apart from text.
struct Bytes {
  std::string value;
};

// The parameters of one execution, in order. Values travel in PostgreSQL's
// text format, so that libpqxx 6.4 and 7 take them alike. Instants are sent
// in UTC with microseconds; an infinite one becomes NULL, because no column
// takes infinity (R13). Text with a NUL byte is refused when it is executed (as
// 22021), because PostgreSQL cannot store it.
class Params {
 public:
  Params& Add(bool value);
  Params& Add(int value) { return Add(static_cast<int64_t>(value)); }
  Params& Add(int64_t value);
  Params& Add(absl::string_view value);
  Params& Add(const char* value) { return Add(absl::string_view(value)); }
  Params& Add(const std::string& value) {
    return Add(absl::string_view(value));
  }
  Params& Add(const Bytes& value);
  Params& Add(absl::Time value);
  Params& Add(absl::Duration value);
  // A bigint[] / text[] value.
  Params& Add(const std::vector<int64_t>& values);
  Params& Add(const std::vector<std::string>& values);
  template <typename T>
  Params& Add(const std::optional<T>& value) {
    return value.has_value() ? Add(*value) : AddNull();
  }
  Params& AddNull();

  const std::vector<std::optional<std::string>>& values() const {
    return values_;
  }

 private:
  std::vector<std::optional<std::string>> values_;
};

// Makes Params of the arguments: MakeParams(id, name, now).
template <typename... Args>
Params MakeParams(Args&&... args) {
  Params params;
  (params.Add(std::forward<Args>(args)), ...);
  return params;
}

// Rows for a statement that takes many at once, as one array a column:
// "FROM unnest($1::bigint[], $2::text[], ...)". Values as of Params.
class RowArrays {
 public:
  explicit RowArrays(size_t columns) : columns_(columns, "{") {}

  // One value a column.
  template <typename... Args>
  void AddRow(Args&&... args) {
    AddValues(MakeParams(std::forward<Args>(args)...));
  }
  void AddValues(const Params& row);

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  // Adds one array a column, in order.
  void AppendTo(Params& params) const;
  Params ToParams() const;

 private:
  size_t size_ = 0;
  std::vector<std::string> columns_;
};

}  // namespace tenure::db

#endif  // TENURE_COMMON_DB_PARAMS_H_
