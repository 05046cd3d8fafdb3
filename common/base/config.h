#ifndef TENURE_COMMON_BASE_CONFIG_H_
#define TENURE_COMMON_BASE_CONFIG_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace tenure {

// Where the settings came from, and what main has to do besides running.
struct LoadedFrom {
  // --help, --version or --print-config was given: main prints `output` to
  // standard output and exits with 0. `config` is complete only for the last.
  bool print_and_exit = false;
  std::string output;
  // The YAML file that was read, empty for none.
  std::string file;
  // Things the operator should know; main logs each as a warning once the
  // logger is configured.
  std::vector<std::string> warnings;
};

// Fills `config`, an empty generated message whose fields carry the option
// tenure.config.v1.setting, from flags, environment, a YAML file and defaults,
// in this order of precedence.
//
// A setting a.b_c is the YAML key b_c under a, the flag --a_b_c and the
// environment variable TENURE_A_B_C. The file is named by --config or
// TENURE_CONFIG. Types: string, bool, int32, int64, uint32, double, enum (its
// short name in lower case, "live" for ENVIRONMENT_LIVE), Duration ("250ms"),
// and lists of strings (a YAML list; comma-separated elsewhere). Lists of
// messages come from the file alone; their fields have defaults like others.
//
// Strict: unknown keys and flags, duplicate keys, wrong types, values out of
// range, a missing or empty required value and a password inside a connection
// string are errors. An environment variable TENURE_... that is no setting is
// an error when it is one or two letters away from one, else a warning.
//
// INVALID_ARGUMENT lists every error found, one per line, each with the full
// key, where it was set and what would be right; values of secret settings are
// never quoted. `environment` is a null-terminated list of NAME=VALUE, as
// `environ`. Not thread-safe; called once from main. No exception leaves it.
absl::Status LoadConfig(int argc, const char* const* argv,
                        const char* const* environment,
                        absl::string_view program,
                        absl::string_view description,
                        google::protobuf::Message* config, LoadedFrom* how);

// The same with the environment of the process.
absl::Status LoadConfig(int argc, const char* const* argv,
                        absl::string_view program,
                        absl::string_view description,
                        google::protobuf::Message* config, LoadedFrom* how);

// The YAML of a filled `config`, which loads again to an equal message except
// that secrets read "[redacted]". Settings without a value are left out.
std::string PrintConfig(const google::protobuf::Message& config);

// Something wrong with a document.
struct DocumentError {
  // From 1; 0 for the file as a whole.
  int line = 0;
  // "plans[1].quotas[0].amount"; empty for the file as a whole.
  std::string key;
  std::string what;
};

// A YAML file that is no configuration: where its keys stand and what is wrong
// with it.
struct Document {
  std::string file;
  // Every known key that the file gives, with its line, and every entry of a
  // list ("plans[1]").
  std::map<std::string, int> lines;
  std::vector<DocumentError> errors;

  // The line of a key, or of the nearest one around it that the file gives; 0
  // for none.
  int LineOf(absl::string_view key) const;

  // OK without errors, else INVALID_ARGUMENT with all of them in order of their
  // lines, one a line: "catalog.yaml:14: plans[1].name: is required".
  absl::Status ToStatus() const;
};

// Fills `message` from a YAML file by the strict rules above, without flags and
// environment. The caller may add errors of his own before ToStatus. Unlike in
// a configuration a message that the file leaves out stays unset, and a file
// may have 16 MiB. No exception leaves it.
Document LoadDocument(absl::string_view path,
                      google::protobuf::Message* message);

}  // namespace tenure

#endif  // TENURE_COMMON_BASE_CONFIG_H_
