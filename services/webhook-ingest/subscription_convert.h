#ifndef TENURE_SERVICES_WEBHOOK_INGEST_SUBSCRIPTION_CONVERT_H_
#define TENURE_SERVICES_WEBHOOK_INGEST_SUBSCRIPTION_CONVERT_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/domain/access.h"
#include "common/domain/calendar.h"
#include "common/store/subscription_store.h"
#include "tenure/entitlement/v1/entitlement.pb.h"
#include "tenure/subscription/v1/subscriptions.pb.h"

namespace tenure::webhook_ingest {

void ToApi(const store::StoredSubscription& stored,
           subscription::v1::Subscription* out);

// The answer of Entitlement.Check.
void ToApi(const domain::Verdict& verdict, absl::Time decided_at,
           entitlement::v1::CheckResponse* out);

void ToApi(const domain::Term& term, subscription::v1::Term* out);

// Errors name fields within `field`.
absl::StatusOr<domain::Term> FromApi(absl::string_view field,
                                     const subscription::v1::Term& term);

// OK for a positive id.
absl::Status ValidateSubscriptionId(int64_t id);

}  // namespace tenure::webhook_ingest

#endif  // TENURE_SERVICES_WEBHOOK_INGEST_SUBSCRIPTION_CONVERT_H_
