#ifndef TENURE_COMMON_DB_PQXX_RESULT_H_
#define TENURE_COMMON_DB_PQXX_RESULT_H_

#include <functional>
#include <map>
#include <pqxx/pqxx>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/db/result.h"

namespace tenure::db {

// Private to common/db: what a Result holds.
struct Result::Rep {
  explicit Rep(pqxx::result r) : result(std::move(r)) {
    for (pqxx::row::size_type i = 0; i < result.columns(); ++i) {
      columns.emplace(result.column_name(i), i);
    }
  }
  pqxx::result result;
  // By name; the driver would search and fold names at every read.
  std::map<std::string, pqxx::row::size_type, std::less<>> columns;
  absl::Status status;
};

}  // namespace tenure::db

#endif  // TENURE_COMMON_DB_PQXX_RESULT_H_
