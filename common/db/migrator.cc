#include "common/db/migrator.h"

#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/crypto.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/db/migrations.h"
#include "common/db/statements.h"

namespace tenure::db {
namespace {

struct Applied {
  std::string name;
  std::string checksum;
  absl::Time applied_at;
};

// By version; empty on a database that was never migrated.
template <typename Session>
absl::StatusOr<std::map<int, Applied>> ReadApplied(Session& session) {
  std::map<int, Applied> applied;
  ASSIGN_OR_RETURN(const Result exists,
                   session.Execute(kSelectSchemaMigrationExists));
  if (!exists[0].Bool("present")) return applied;
  ASSIGN_OR_RETURN(const Result rows, session.Execute(kSelectSchemaMigrations));
  for (size_t i = 0; i < rows.size(); ++i) {
    applied[static_cast<int>(rows[i].Int64("version"))] = {
        rows[i].Text("name"), rows[i].Text("checksum"),
        rows[i].Time("applied_at")};
  }
  RETURN_IF_ERROR(rows.status());
  return applied;
}

absl::Status ChangedError(const Migration& migration) {
  return absl::FailedPreconditionError(absl::StrCat(
      "migration ", migration.version, " (", migration.name,
      ") was applied with another text than this binary has; a migration "
      "must never be edited after it was applied"));
}

}  // namespace

absl::Span<const Migration> KnownMigrations() { return kMigrations; }

std::string Checksum(const Migration& migration) {
  return HexEncode(Sha256(migration.sql));
}

absl::StatusOr<std::vector<MigrationStatus>> GetMigrationStatus(
    Connection& connection) {
  ASSIGN_OR_RETURN(auto applied, ReadApplied(connection));
  std::vector<MigrationStatus> all;
  for (const Migration& migration : KnownMigrations()) {
    MigrationStatus status;
    status.version = migration.version;
    status.name = migration.name;
    if (auto it = applied.find(migration.version); it != applied.end()) {
      status.applied_at = it->second.applied_at;
      status.state = it->second.checksum == Checksum(migration)
                         ? MigrationState::kApplied
                         : MigrationState::kChanged;
      applied.erase(it);
    }
    all.push_back(std::move(status));
  }
  for (auto& [version, row] : applied) {
    all.push_back(
        {version, row.name, MigrationState::kUnknown, row.applied_at});
  }
  return all;
}

absl::StatusOr<std::vector<int>> MigrateUp(
    Connection& connection, absl::Span<const Migration> migrations) {
  std::vector<int> done;
  for (const Migration& migration : migrations) {
    ASSIGN_OR_RETURN(std::unique_ptr<Transaction> tx,
                     Transaction::Begin(connection));
    // Transaction-level, so that it also holds behind a pooler.
    RETURN_IF_ERROR(tx->Execute(kLockMigrations).status());
    RETURN_IF_ERROR(tx->Execute(kCreateSchemaMigration).status());
    ASSIGN_OR_RETURN(const auto applied, ReadApplied(*tx));
    const auto it = applied.find(migration.version);
    if (it != applied.end()) {
      if (it->second.checksum != Checksum(migration)) {
        return ChangedError(migration);
      }
      continue;
    }
    log::Info("applying migration",
              {{"version", migration.version}, {"name", migration.name}});
    RETURN_IF_ERROR(tx->ExecuteScript(migration.name, migration.sql));
    RETURN_IF_ERROR(tx->Execute(kInsertSchemaMigration,
                                MakeParams(migration.version, migration.name,
                                           Checksum(migration)))
                        .status());
    RETURN_IF_ERROR(tx->Commit());
    done.push_back(migration.version);
  }
  return done;
}

absl::Status ValidateSchema(Connection& connection) {
  ASSIGN_OR_RETURN(const auto all, GetMigrationStatus(connection));
  std::vector<std::string> pending;
  int unknown = 0;
  for (const MigrationStatus& status : all) {
    switch (status.state) {
      case MigrationState::kApplied:
        break;
      case MigrationState::kPending:
        pending.push_back(absl::StrCat(status.version));
        break;
      case MigrationState::kChanged:
        return absl::FailedPreconditionError(absl::StrCat(
            "migration ", status.version, " (", status.name,
            ") in the database has another text than this binary knows"));
      case MigrationState::kUnknown:
        ++unknown;
        break;
    }
  }
  if (!pending.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the database schema is older than this binary: "
                     "migration ",
                     absl::StrJoin(pending, ", "),
                     " is not applied; run `tenurectl migrate up` first"));
  }
  if (unknown > 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the database schema is ", unknown,
        " migrations newer than this binary, which works with one at most; "
        "deploy a newer binary"));
  }
  return absl::OkStatus();
}

}  // namespace tenure::db
