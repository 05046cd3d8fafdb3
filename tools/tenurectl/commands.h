#ifndef TENURE_TOOLS_TENURECTL_COMMANDS_H_
#define TENURE_TOOLS_TENURECTL_COMMANDS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tenure::tenurectl {

// One function a command. They print their answer to standard output (replies
// of services as proto JSON, one object a line) and return an error whose
// message is written for the operator.

struct DatabaseOptions {
  std::string conninfo;
  std::string password_file;
};

absl::Status MigrateUp(const DatabaseOptions& options);
absl::Status ShowMigrations(const DatabaseOptions& options);
absl::Status ValidateMigrations(const DatabaseOptions& options);

// With `dry_run` says what it would do and writes nothing.
absl::Status ApplyCatalogFile(const DatabaseOptions& options,
                              const std::string& file, bool dry_run);
// Whether applying the file would change something.
absl::StatusOr<bool> DiffCatalogFile(const DatabaseOptions& options,
                                     const std::string& file);
absl::Status ExportCatalogFile(const DatabaseOptions& options);

struct CheckOptions {
  std::string address;
  std::string subject;
  std::string feature;
  // RFC 3339; empty for now.
  std::string at;
};

absl::Status Check(const CheckOptions& options);
absl::Status GetSubscription(const std::string& address, int64_t id);
absl::Status ListSubscriptions(const std::string& address,
                               const std::string& subject);
absl::Status ListJobs(const std::string& address);
absl::Status RunJob(const std::string& address, const std::string& job,
                    const std::string& actor);
absl::Status PauseJob(const std::string& address, const std::string& job,
                      const std::string& actor);
absl::Status ResumeJob(const std::string& address, const std::string& job,
                       const std::string& actor);
absl::Status Health(const std::string& address);

}  // namespace tenure::tenurectl

#endif  // TENURE_TOOLS_TENURECTL_COMMANDS_H_
