// A DecideAccess that is wrong on purpose: it grants as long as the status
// says so and never looks at the end. Linked into an entitlement of its own in
// place of common/domain/access.cc, to show that `./dev demo` sees it.

#include "common/domain/access.h"

namespace tenure::domain {

Verdict DecideAccess(absl::Span<const AccessCandidate> candidates, absl::Time) {
  Verdict verdict;
  for (const AccessCandidate& candidate : candidates) {
    if (!candidate.plan_grants || !IsLive(candidate.subscription.status)) {
      continue;
    }
    verdict.has_access = true;
    verdict.reason = AccessReason::kPaid;
    verdict.access_until = candidate.subscription.AccessUntil();
    verdict.subscription_id = candidate.subscription_id;
    verdict.plan = candidate.plan;
  }
  return verdict;
}

}  // namespace tenure::domain
