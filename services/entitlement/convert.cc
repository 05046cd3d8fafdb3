#include "services/entitlement/convert.h"

#include "common/base/error.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"

namespace tenure::entitlement {
namespace {

v1::AccessReason ToApi(domain::AccessReason reason) {
  switch (reason) {
    case domain::AccessReason::kPaid:
      return v1::ACCESS_REASON_PAID;
    case domain::AccessReason::kTrial:
      return v1::ACCESS_REASON_TRIAL;
    case domain::AccessReason::kGrace:
      return v1::ACCESS_REASON_GRACE;
    case domain::AccessReason::kLifetime:
      return v1::ACCESS_REASON_LIFETIME;
    case domain::AccessReason::kDefaultPlan:
      return v1::ACCESS_REASON_DEFAULT_PLAN;
    case domain::AccessReason::kNoSubscription:
      return v1::ACCESS_REASON_NO_SUBSCRIPTION;
    case domain::AccessReason::kFeatureNotInPlan:
      return v1::ACCESS_REASON_FEATURE_NOT_IN_PLAN;
    case domain::AccessReason::kNotStarted:
      return v1::ACCESS_REASON_NOT_STARTED;
    case domain::AccessReason::kEnded:
      return v1::ACCESS_REASON_ENDED;
    case domain::AccessReason::kPending:
      return v1::ACCESS_REASON_PENDING;
    case domain::AccessReason::kPaused:
      return v1::ACCESS_REASON_PAUSED;
    case domain::AccessReason::kCanceled:
      return v1::ACCESS_REASON_CANCELED;
    case domain::AccessReason::kRevoked:
      return v1::ACCESS_REASON_REVOKED;
  }
  return v1::ACCESS_REASON_UNSPECIFIED;
}

}  // namespace

absl::StatusOr<AccessQuestion> FromApi(const v1::CheckRequest& request) {
  RETURN_IF_ERROR(ValidateText("subject", request.subject(), 255));
  RETURN_IF_ERROR(ValidateText("feature", request.feature(), 127));
  AccessQuestion question{request.subject(), request.feature(), std::nullopt};
  if (request.has_at()) {
    ASSIGN_OR_RETURN(question.at, FromProto("at", request.at()));
  }
  return question;
}

void ToApi(const AccessAnswer& answer, v1::CheckResponse* response) {
  const domain::Verdict& verdict = answer.verdict;
  response->set_has_access(verdict.has_access);
  response->set_reason(ToApi(verdict.reason));
  if (verdict.access_until) {
    *response->mutable_access_until() = ToProto(*verdict.access_until);
  }
  if (verdict.next_transition_at) {
    *response->mutable_next_transition_at() =
        ToProto(*verdict.next_transition_at);
  }
  *response->mutable_decided_at() = ToProto(answer.decided_at);
  if (verdict.value.limit) response->set_limit(*verdict.value.limit);
  if (verdict.value.quantity) response->set_quantity(*verdict.value.quantity);
  if (verdict.subscription_id != 0 ||
      verdict.reason == domain::AccessReason::kDefaultPlan) {
    v1::Grantor& grantor = *response->mutable_grantor();
    grantor.set_subscription_id(verdict.subscription_id);
    grantor.set_plan(verdict.plan);
    grantor.set_in_grace(verdict.in_grace);
    grantor.set_will_renew(verdict.will_renew);
  }
}

}  // namespace tenure::entitlement
