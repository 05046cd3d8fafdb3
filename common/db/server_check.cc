#include "common/db/server_check.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/db/migrator.h"
#include "common/db/sql_error.h"
#include "common/db/statements.h"

namespace tenure::db {
namespace {

#ifdef TENURE_ALLOW_CLOCK_OFFSET
constexpr bool kAllowClockOffset = true;
#else
constexpr bool kAllowClockOffset = false;
#endif

}  // namespace

absl::Status CheckServerFacts(const ServerFacts& facts,
                              bool allow_clock_offset) {
  if (!facts.skip_locked) {
    return absl::FailedPreconditionError(
        "the database does not support SELECT ... FOR UPDATE SKIP LOCKED, "
        "without which workers would wait on each other; use PostgreSQL 15 "
        "or newer");
  }
  if (facts.version_num < kMinServerVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the database server is PostgreSQL ", facts.version,
                     "; Tenure needs 15 or newer"));
  }
  if (facts.encoding != "UTF8") {
    return absl::FailedPreconditionError(
        absl::StrCat("the database's encoding is ", facts.encoding,
                     "; create it with ENCODING 'UTF8'"));
  }
  if (!facts.integer_datetimes || !facts.utc_safe) {
    return absl::FailedPreconditionError(
        "the database session does not print instants in UTC with "
        "microseconds; is there a pooler that drops SET TimeZone?");
  }
  if (!facts.clock_offset.empty() && !allow_clock_offset) {
    return absl::FailedPreconditionError(absl::StrCat(
        "tenure.clock_offset is set to '", facts.clock_offset,
        "': this database belongs to a test, a release build refuses it"));
  }
  return absl::OkStatus();
}

absl::Status CheckServer(Connection& connection) {
  RETURN_IF_ERROR(ValidateSchema(connection));
  ASSIGN_OR_RETURN(const Result result, connection.Execute(kSelectServerFacts));
  ServerFacts facts;
  facts.version_num = result[0].Int64("version_num");
  facts.version = result[0].Text("version");
  facts.encoding = result[0].Text("encoding");
  facts.integer_datetimes = result[0].Text("integer_datetimes") == "on";
  facts.utc_safe = result[0].Bool("utc_safe");
  facts.clock_offset = result[0].Text("clock_offset");
  RETURN_IF_ERROR(result.status());
  const absl::Status probe = connection.Execute(kProbeSkipLocked).status();
  const std::optional<std::string> sqlstate = SqlStateOf(probe);
  if (sqlstate == "42501") {
    return absl::FailedPreconditionError(
        "the database role has no rights on Tenure's tables; grant them, or "
        "use the role that owns them");
  }
  // Only a syntax error says something about the server; a lost session is
  // reported as that.
  if (!probe.ok() && sqlstate != "42601") return probe;
  facts.skip_locked = probe.ok();
  return CheckServerFacts(facts, kAllowClockOffset);
}

}  // namespace tenure::db
