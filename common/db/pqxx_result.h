#ifndef TENURE_COMMON_DB_PQXX_RESULT_H_
#define TENURE_COMMON_DB_PQXX_RESULT_H_

#include <pqxx/pqxx>
#include <utility>

#include "absl/status/status.h"
#include "common/db/result.h"

namespace tenure::db {

// Private to common/db: what a Result holds.
struct Result::Rep {
  explicit Rep(pqxx::result r) : result(std::move(r)) {}
  pqxx::result result;
  absl::Status status;
};

}  // namespace tenure::db

#endif  // TENURE_COMMON_DB_PQXX_RESULT_H_
