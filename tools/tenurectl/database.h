#ifndef TENURE_TOOLS_TENURECTL_DATABASE_H_
#define TENURE_TOOLS_TENURECTL_DATABASE_H_

#include "absl/status/statusor.h"
#include "common/db/connection.h"
#include "tools/tenurectl/commands.h"

namespace tenure::tenurectl {

// How to connect; reads the password from its file. With time limits for an
// operator's command, which may wait for another one.
absl::StatusOr<db::ConnectionOptions> ConnectionOptionsOf(
    const DatabaseOptions& options);

}  // namespace tenure::tenurectl

#endif  // TENURE_TOOLS_TENURECTL_DATABASE_H_
