#include "services/entitlement/check_access.h"

#include "common/base/status_macros.h"

namespace tenure::entitlement {

absl::StatusOr<AccessAnswer> CheckAccess::Run(const AccessQuestion& question) {
  ASSIGN_OR_RETURN(const AccessSnapshot snapshot,
                   store_.Read(question.subject, question.feature));
  AccessAnswer answer;
  answer.decided_at = question.at.value_or(snapshot.now);
  answer.verdict = domain::DecideAccess(snapshot.candidates, answer.decided_at);
  return answer;
}

}  // namespace tenure::entitlement
