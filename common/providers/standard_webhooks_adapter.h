#ifndef TENURE_COMMON_PROVIDERS_STANDARD_WEBHOOKS_ADAPTER_H_
#define TENURE_COMMON_PROVIDERS_STANDARD_WEBHOOKS_ADAPTER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/providers/provider_adapter.h"
#include "common/providers/standard_webhooks_signature.h"

namespace tenure::providers {

struct StandardWebhooksSettings {
  // All are accepted; without one nothing verifies.
  std::vector<StandardWebhooksKey> keys;
  absl::Duration signature_tolerance = absl::Minutes(5);
  // Stored in every PAID fact that will renew as leeway_until = period end +
  // this.
  absl::Duration renewal_leeway = absl::Hours(3);
};

// Webhooks of a sender who speaks Tenure's own payload contract, signed by the
// Standard Webhooks specification (docs/standard-webhooks.md).
//
// The event's id is the webhook-id header, the same for every attempt. Its
// order is the body's `timestamp`, never the header's, which is the attempt's.
// An event of the contract whose content does not keep it is quarantined and
// names the first member at fault: `<member>_missing` or `<member>_invalid`.
class StandardWebhooksAdapter : public ProviderAdapter {
 public:
  explicit StandardWebhooksAdapter(StandardWebhooksSettings settings)
      : settings_(std::move(settings)) {}

  absl::StatusOr<std::string> Verify(const Delivery& delivery,
                                     absl::Time now) const override;
  // Leaves event_id empty: it is no part of the body.
  absl::StatusOr<ProviderEvent> Parse(absl::string_view body) const override;
  absl::StatusOr<std::string> EventId(
      const Delivery& delivery, const ProviderEvent& event) const override;

 private:
  StandardWebhooksSettings settings_;
};

}  // namespace tenure::providers

#endif  // TENURE_COMMON_PROVIDERS_STANDARD_WEBHOOKS_ADAPTER_H_
