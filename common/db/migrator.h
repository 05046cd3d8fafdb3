#ifndef TENURE_COMMON_DB_MIGRATOR_H_
#define TENURE_COMMON_DB_MIGRATOR_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/db/connection.h"

namespace tenure::db {

// One forward-only step of the schema: common/migrations/NNNN_name.sql.
struct Migration {
  int version;
  const char* name;
  const char* sql;
};

// The steps this binary knows, ascending, without gaps from 1.
absl::Span<const Migration> KnownMigrations();

// SHA-256 of a step's text, in hex. An applied step must never change.
std::string Checksum(const Migration& migration);

enum class MigrationState {
  kApplied,
  kPending,
  // The database holds another text under this version.
  kChanged,
  // The database is ahead of this binary.
  kUnknown,
};

struct MigrationStatus {
  int version = 0;
  std::string name;
  MigrationState state = MigrationState::kPending;
  std::optional<absl::Time> applied_at;
};

// Known and applied steps, ascending.
absl::StatusOr<std::vector<MigrationStatus>> GetMigrationStatus(
    Connection& connection);

// Applies every pending step, each in one transaction of its own together with
// its record, under one advisory lock: of several migrators one works and the
// others find nothing left. Stops at the first error, which leaves the steps
// before it applied. Refuses when an applied step was changed. Returns the
// versions applied.
absl::StatusOr<std::vector<int>> MigrateUp(
    Connection& connection,
    absl::Span<const Migration> migrations = KnownMigrations());

// OK when this binary can work on the schema: every step it knows is applied
// unchanged, and the database is at most one step ahead (each step stays
// compatible with the previous binary, so that a rollout and its rollback
// work). Otherwise FAILED_PRECONDITION with a sentence for the operator.
absl::Status ValidateSchema(Connection& connection);

}  // namespace tenure::db

#endif  // TENURE_COMMON_DB_MIGRATOR_H_
