#ifndef TENURE_COMMON_DB_SERVER_CHECK_H_
#define TENURE_COMMON_DB_SERVER_CHECK_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/db/connection.h"

namespace tenure::db {

// What a service must know of the server before it works on it.
struct ServerFacts {
  int64_t version_num = 0;
  std::string version;
  std::string encoding;
  bool integer_datetimes = false;
  // Instants are read back in UTC with microseconds.
  bool utc_safe = false;
  bool skip_locked = false;
  // Empty but in tests (R16).
  std::string clock_offset;
};

// The oldest server that was tested: 15, in PostgreSQL's own numbering.
inline constexpr int64_t kMinServerVersion = 150000;

// FAILED_PRECONDITION with a sentence for the operator when Tenure would not
// be right on such a server. `allow_clock_offset` is true in test builds only.
absl::Status CheckServerFacts(const ServerFacts& facts,
                              bool allow_clock_offset);

// Reads the facts, checks them and the schema (migrator.h). Services call it
// at start and exit on an error (S0-43).
absl::Status CheckServer(Connection& connection);

}  // namespace tenure::db

#endif  // TENURE_COMMON_DB_SERVER_CHECK_H_
