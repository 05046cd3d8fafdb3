#ifndef TENURE_COMMON_PROVIDERS_STRIPE_ADAPTER_H_
#define TENURE_COMMON_PROVIDERS_STRIPE_ADAPTER_H_

#include <string>
#include <vector>

#include "common/providers/provider_adapter.h"
#include "common/providers/signing_secret.h"

namespace tenure::providers {

struct StripeSettings {
  // Endpoint secrets as Stripe shows them, "whsec_" included. All are accepted;
  // without one nothing verifies.
  std::vector<SigningSecret> secrets;
  absl::Duration signature_tolerance = absl::Minutes(5);
  // Stored in every PAID fact as leeway_until = period end + this.
  absl::Duration renewal_leeway = absl::Hours(3);
  // Metadata key of the subscription that holds the subject.
  std::string subject_metadata_key = "tenure_subject";
};

// Stripe webhooks: API versions from 2019 to 2025 (the period on the invoice
// line or the subscription item, the subscription at the top of the invoice or
// under `parent`).
//
// The subscription's own events tell its state, invoices tell the money: an
// invoice is the payment key, so that the events of one payment count once, and
// its charge and intent are names under which a refund or dispute finds it.
// Only a paid invoice line ever gives time. One row per Stripe subscription;
// with several items the one whose product the catalogue knows decides, of
// several the one that reaches furthest (C069).
class StripeAdapter : public ProviderAdapter {
 public:
  explicit StripeAdapter(StripeSettings settings)
      : settings_(std::move(settings)) {}

  absl::StatusOr<std::string> Verify(const Delivery& delivery,
                                     absl::Time now) const override;
  absl::StatusOr<ProviderEvent> Parse(absl::string_view body) const override;

 private:
  StripeSettings settings_;
};

}  // namespace tenure::providers

#endif  // TENURE_COMMON_PROVIDERS_STRIPE_ADAPTER_H_
