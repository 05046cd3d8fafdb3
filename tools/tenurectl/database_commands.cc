#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/secret_file.h"
#include "common/base/status_macros.h"
#include "common/db/migrator.h"
#include "tools/tenurectl/commands.h"
#include "tools/tenurectl/database.h"

namespace tenure::tenurectl {

absl::StatusOr<db::ConnectionOptions> ConnectionOptionsOf(
    const DatabaseOptions& options) {
  db::ConnectionOptions connection;
  connection.conninfo = options.conninfo;
  connection.application_name = "tenurectl";
  if (!options.password_file.empty()) {
    ASSIGN_OR_RETURN(connection.password,
                     ReadSecretFile(options.password_file));
  }
  // A migration may wait for another migrator and may rewrite a table.
  connection.lock_timeout = absl::Minutes(1);
  connection.statement_timeout = absl::Minutes(30);
  return connection;
}

namespace {

absl::StatusOr<std::unique_ptr<db::Connection>> Connect(
    const DatabaseOptions& options) {
  ASSIGN_OR_RETURN(const db::ConnectionOptions connection,
                   ConnectionOptionsOf(options));
  return db::Connection::Open(connection);
}

const char* StateName(db::MigrationState state) {
  switch (state) {
    case db::MigrationState::kApplied:
      return "applied";
    case db::MigrationState::kPending:
      return "pending";
    case db::MigrationState::kChanged:
      return "CHANGED";
    case db::MigrationState::kUnknown:
      return "unknown to this version";
  }
  return "";
}

}  // namespace

absl::Status MigrateUp(const DatabaseOptions& options) {
  ASSIGN_OR_RETURN(const auto connection, Connect(options));
  ASSIGN_OR_RETURN(const std::vector<int> applied, db::MigrateUp(*connection));
  std::printf("%s\n", applied.empty()
                          ? "the schema is up to date"
                          : absl::StrCat("applied migration ",
                                         absl::StrJoin(applied, ", "))
                                .c_str());
  return absl::OkStatus();
}

absl::Status ShowMigrations(const DatabaseOptions& options) {
  ASSIGN_OR_RETURN(const auto connection, Connect(options));
  ASSIGN_OR_RETURN(const auto all, db::GetMigrationStatus(*connection));
  for (const db::MigrationStatus& status : all) {
    std::printf("%04d  %-24s  %s%s\n", status.version, status.name.c_str(),
                StateName(status.state),
                status.applied_at
                    ? absl::StrCat("  ", absl::FormatTime(absl::RFC3339_sec,
                                                          *status.applied_at,
                                                          absl::UTCTimeZone()))
                          .c_str()
                    : "");
  }
  return absl::OkStatus();
}

absl::Status ValidateMigrations(const DatabaseOptions& options) {
  ASSIGN_OR_RETURN(const auto connection, Connect(options));
  RETURN_IF_ERROR(db::ValidateSchema(*connection));
  std::printf("the schema is the one this version works on\n");
  return absl::OkStatus();
}

}  // namespace tenure::tenurectl
