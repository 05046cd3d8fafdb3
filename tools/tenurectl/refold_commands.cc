#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/crypto.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/db/pool.h"
#include "common/store/refold.h"
#include "tools/tenurectl/commands.h"
#include "tools/tenurectl/database.h"

namespace tenure::tenurectl {
namespace {

absl::Status Show(const store::RefoldedSubscription& one) {
  if (!one.status.ok()) {
    std::printf("subscription %lld: %s\n", static_cast<long long>(one.id),
                std::string(one.status.message()).c_str());
    return absl::OkStatus();
  }
  if (one.without_facts) {
    std::printf("subscription %lld of %s: has no facts, left alone\n",
                static_cast<long long>(one.id), one.subject.c_str());
    return absl::OkStatus();
  }
  std::printf("subscription %lld of %s:\n", static_cast<long long>(one.id),
              one.subject.c_str());
  for (const store::RefoldDifference& difference : one.differences) {
    std::printf("  %s: %s -> %s\n", difference.column.c_str(),
                difference.before.c_str(), difference.after.c_str());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<bool> RefoldSubscriptions(const DatabaseOptions& options,
                                         const RefoldOptions& refold) {
  RETURN_IF_ERROR(ValidateText("reason", refold.reason, 1024));
  db::PoolOptions pool_options;
  ASSIGN_OR_RETURN(pool_options.connection, ConnectionOptionsOf(options));
  pool_options.size = 1;
  db::Pool pool(std::move(pool_options));
  store::RefoldScope scope;
  scope.plan = refold.plan;
  scope.environment = refold.environment;
  scope.after_id = refold.after_id;
  store::Author author;
  author.request_id = absl::StrCat("refold/", RandomUuid());
  author.actor = refold.actor;
  author.reason = refold.reason;
  ASSIGN_OR_RETURN(const store::RefoldTotals totals,
                   store::Refold(pool, scope,
                                 refold.write ? store::RefoldMode::kWrite
                                              : store::RefoldMode::kDiff,
                                 author, &Show));
  std::printf(
      "%lld examined, %lld %s, %lld without facts, %lld failed; last id "
      "%lld%s\n",
      static_cast<long long>(totals.examined),
      static_cast<long long>(totals.different),
      refold.write ? "changed" : "would change",
      static_cast<long long>(totals.without_facts),
      static_cast<long long>(totals.failed),
      static_cast<long long>(totals.last_id),
      refold.write ? "" : " (diff: nothing was written; --write writes)");
  if (totals.failed > 0) {
    return absl::InternalError(
        absl::StrCat(totals.failed, " subscriptions could not be folded"));
  }
  return totals.different > 0;
}

}  // namespace tenure::tenurectl
