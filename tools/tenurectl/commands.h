#ifndef TENURE_TOOLS_TENURECTL_COMMANDS_H_
#define TENURE_TOOLS_TENURECTL_COMMANDS_H_

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tenure::tenurectl {

// Gives the value of an option from an environment variable, where it is set
// and the command line does not say otherwise. Not by CLI11's envname(): that
// looks at the commands which are not chosen, too, and several of them write to
// the same value, so that the variable would win over the flag.
inline void TakeFromEnvironment(CLI::Option* option, const char* variable,
                                std::string* value) {
  option->description(option->get_description() + " (environment: " + variable +
                      ")");
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return;
  *value = text;
  option->required(false);
}

// What the command line asks for.
using Command = std::function<absl::Status()>;

// What main returns, where a command says more than done or failed.
struct ExitCodes {
  int done = 0;
  int failed = 1;
};

// The commands of a family, added to the command line; the one that was given
// sets `chosen`.
void AddSubscriptionCommands(CLI::App* root, Command* chosen);
void AddEventCommands(CLI::App* root, Command* chosen);
void AddImportCommand(CLI::App* root, Command* chosen, ExitCodes* codes);

// An option --address with a default.
void AddAddress(CLI::App* app, std::string* address,
                const std::string& default_address);

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

struct RefoldOptions {
  // Empty for all plans.
  std::string plan;
  std::string environment;
  std::string actor;
  std::string reason;
  int64_t after_id = 0;
  bool write = false;
};

// Prints what folding anew changes (or would change); whether that is anything.
absl::StatusOr<bool> RefoldSubscriptions(const DatabaseOptions& options,
                                         const RefoldOptions& refold);

struct CheckOptions {
  std::string address;
  std::string subject;
  std::string feature;
  // RFC 3339; empty for now.
  std::string at;
};

absl::Status Check(const CheckOptions& options);
// An empty `meter` asks for all.
absl::Status GetQuota(const std::string& address, const std::string& subject,
                      const std::string& meter);
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
