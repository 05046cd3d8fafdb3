// tenurectl: migrations, catalogue, and the questions an operator asks.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "common/base/log.h"
#include "tools/tenurectl/commands.h"

namespace tenure::tenurectl {

void AddAddress(CLI::App* app, std::string* address,
                const std::string& default_address) {
  app->add_option("--address", *address, "gRPC address of the service")
      ->default_str(default_address);
  *address = default_address;
}

namespace {

// Exit codes: 0 done, 1 failed (ExitCodes), 2 wrong usage (CLI11's own codes
// become 2).
constexpr int kUsage = 2;
// Those of `catalog diff` follow diff(1).
constexpr int kDiffers = 1;
constexpr int kDiffFailed = 2;

void AddDatabaseOptions(CLI::App* app, DatabaseOptions* options) {
  TakeFromEnvironment(
      app->add_option("--conninfo", options->conninfo,
                      "libpq connection string of the database, without a "
                      "password")
          ->required(),
      "TENURE_DATABASE_CONNINFO", &options->conninfo);
  TakeFromEnvironment(app->add_option("--password-file", options->password_file,
                                      "file that holds the database password"),
                      "TENURE_DATABASE_PASSWORD_FILE", &options->password_file);
}

void AddMigrate(CLI::App* root, Command* chosen) {
  static DatabaseOptions options;
  CLI::App* migrate =
      root->add_subcommand("migrate", "brings the database schema up to date");
  migrate->require_subcommand(1);
  CLI::App* up = migrate->add_subcommand("up", "applies what is pending");
  AddDatabaseOptions(up, &options);
  up->callback([chosen] { *chosen = [] { return MigrateUp(options); }; });
  CLI::App* status = migrate->add_subcommand("status", "lists the migrations");
  AddDatabaseOptions(status, &options);
  status->callback(
      [chosen] { *chosen = [] { return ShowMigrations(options); }; });
  CLI::App* validate = migrate->add_subcommand(
      "validate", "says whether this version works on the schema");
  AddDatabaseOptions(validate, &options);
  validate->callback(
      [chosen] { *chosen = [] { return ValidateMigrations(options); }; });
}

void AddCatalog(CLI::App* root, Command* chosen, ExitCodes* codes) {
  static DatabaseOptions options;
  static std::string file;
  static bool dry_run = false;
  CLI::App* catalog = root->add_subcommand("catalog", "what is sold");
  catalog->require_subcommand(1);
  CLI::App* apply =
      catalog->add_subcommand("apply", "brings the database to what FILE says");
  apply->add_option("FILE", file, "YAML file with the plans")->required();
  apply->add_flag("--dry-run", dry_run,
                  "says what it would do and writes nothing");
  AddDatabaseOptions(apply, &options);
  apply->callback([chosen] {
    *chosen = [] { return ApplyCatalogFile(options, file, dry_run); };
  });
  CLI::App* diff = catalog->add_subcommand(
      "diff",
      "shows what applying FILE would change; exits with 0 for nothing, 1 for "
      "something, 2 for an error");
  diff->add_option("FILE", file, "YAML file with the plans")->required();
  AddDatabaseOptions(diff, &options);
  diff->callback([chosen, codes] {
    codes->failed = kDiffFailed;
    *chosen = [codes] {
      const absl::StatusOr<bool> differs = DiffCatalogFile(options, file);
      if (differs.value_or(false)) codes->done = kDiffers;
      return differs.status();
    };
  });
  CLI::App* dump = catalog->add_subcommand(
      "export", "prints what is stored as a file for apply");
  AddDatabaseOptions(dump, &options);
  dump->callback(
      [chosen] { *chosen = [] { return ExportCatalogFile(options); }; });
}

void AddRefold(CLI::App* root, Command* chosen, ExitCodes* codes) {
  static DatabaseOptions options;
  static RefoldOptions refold;
  static bool all = false;
  CLI::App* command = root->add_subcommand(
      "refold",
      "folds subscriptions anew from their facts and moves them to the latest "
      "revision of their plan; shows the differences, and writes them with "
      "--write. Without it exits with 0 for nothing to change, 1 for "
      "something, 2 for an error");
  CLI::Option_group* scope = command->add_option_group("scope");
  scope->add_option("--plan", refold.plan, "those of one plan");
  scope->add_flag("--all", all, "those of every plan");
  scope->require_option(1);
  command->add_option("--environment", refold.environment, "live or test")
      ->default_str("live")
      ->check(CLI::IsMember({"live", "test"}));
  refold.environment = "live";
  command->add_option("--after-id", refold.after_id,
                      "only ids above this: where an earlier run ended");
  command->add_flag("--write", refold.write, "writes the differences");
  TakeFromEnvironment(
      command
          ->add_option("--actor", refold.actor, "who does it, for the record")
          ->default_str("operator"),
      "USER", &refold.actor);
  command->add_option("--reason", refold.reason, "why, for the record")
      ->default_str("refold");
  AddDatabaseOptions(command, &options);
  command->callback([chosen, codes] {
    if (refold.actor.empty()) refold.actor = "operator";
    if (refold.reason.empty()) refold.reason = "refold";
    if (!refold.write) codes->failed = kDiffFailed;
    *chosen = [codes] {
      const absl::StatusOr<bool> differs = RefoldSubscriptions(options, refold);
      if (!refold.write && differs.value_or(false)) codes->done = kDiffers;
      return differs.status();
    };
  });
}

void AddCheck(CLI::App* root, Command* chosen) {
  static CheckOptions options;
  CLI::App* check =
      root->add_subcommand("check", "asks whether a subject may use a feature");
  AddAddress(check, &options.address, "127.0.0.1:50051");
  check->add_option("--subject", options.subject, "the subject")->required();
  check->add_option("--feature", options.feature, "the feature")->required();
  check->add_option("--at", options.at,
                    "another instant than now, RFC 3339 "
                    "(2027-01-31T10:00:00Z)");
  check->callback([chosen] { *chosen = [] { return Check(options); }; });
}

void AddQuota(CLI::App* root, Command* chosen) {
  static std::string address;
  static std::string subject;
  static std::string meter;
  CLI::App* quota =
      root->add_subcommand("quota", "shows what a subject has left");
  AddAddress(quota, &address, "127.0.0.1:50051");
  quota->add_option("--subject", subject, "the subject")->required();
  quota->add_option("--meter", meter, "one meter; all without it");
  quota->callback(
      [chosen] { *chosen = [] { return GetQuota(address, subject, meter); }; });
}

void AddJob(CLI::App* root, Command* chosen) {
  static std::string address;
  static std::string name;
  static std::string actor;
  CLI::App* job = root->add_subcommand("job", "shows and steers the jobs");
  job->require_subcommand(1);
  CLI::App* list = job->add_subcommand("list", "lists the jobs");
  AddAddress(list, &address, "127.0.0.1:50053");
  list->callback([chosen] { *chosen = [] { return ListJobs(address); }; });
  const auto add = [&](const char* verb, const char* help,
                       absl::Status (*run)(const std::string&,
                                           const std::string&,
                                           const std::string&)) {
    CLI::App* sub = job->add_subcommand(verb, help);
    AddAddress(sub, &address, "127.0.0.1:50053");
    sub->add_option("NAME", name, "the job")->required();
    TakeFromEnvironment(
        sub->add_option("--actor", actor, "who does it, for the record")
            ->default_str("operator"),
        "USER", &actor);
    sub->callback([chosen, run] {
      *chosen = [run] {
        return run(address, name, actor.empty() ? "operator" : actor);
      };
    });
  };
  add("run", "runs a job once, now, and waits for its end", &RunJob);
  add("pause", "stops further runs on all replicas", &PauseJob);
  add("resume", "lets a paused job run again", &ResumeJob);
}

void AddHealth(CLI::App* root, Command* chosen) {
  static std::string address;
  CLI::App* health = root->add_subcommand(
      "health", "asks a service for its health; fails unless it is serving");
  AddAddress(health, &address, "127.0.0.1:50051");
  health->callback([chosen] { *chosen = [] { return Health(address); }; });
}

int Main(int argc, char** argv) {
  log::Configure("tenurectl", log::Level::kWarning);
  CLI::App app("Operates a Tenure cluster.");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("tenurectl ") + TENURE_VERSION);
  Command chosen;
  ExitCodes codes;
  AddMigrate(&app, &chosen);
  AddCatalog(&app, &chosen, &codes);
  AddRefold(&app, &chosen, &codes);
  AddCheck(&app, &chosen);
  AddQuota(&app, &chosen);
  AddSubscriptionCommands(&app, &chosen);
  AddEventCommands(&app, &chosen);
  AddImportCommand(&app, &chosen, &codes);
  AddJob(&app, &chosen);
  AddHealth(&app, &chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kUsage;
  }
  const absl::Status status = chosen();
  if (status.ok()) return codes.done;
  std::fprintf(stderr, "tenurectl: %s\n",
               std::string(status.message()).c_str());
  return codes.failed;
}

}  // namespace
}  // namespace tenure::tenurectl

int main(int argc, char** argv) { return tenure::tenurectl::Main(argc, argv); }
