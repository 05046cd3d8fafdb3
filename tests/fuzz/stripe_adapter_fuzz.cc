// From a verified body to facts: total. Every input is an event with facts that
// can be stored and folded, an event that is ignored for a reason, or
// INVALID_ARGUMENT.
#include <string>

#include "common/base/error.h"
#include "common/domain/fold.h"
#include "common/providers/stripe_adapter.h"
#include "tests/fuzz/fuzz.h"

namespace {

using tenure::providers::Fact;
using tenure::providers::ProviderEvent;
using tenure::providers::SubscriptionFacts;

// Text that a column of 255 bytes holds; empty where it may be absent.
bool Storable(const std::string& text) {
  return text.empty() || tenure::ValidateText("text", text, 255).ok();
}

void CheckFacts(const ProviderEvent& event, const SubscriptionFacts& facts) {
  FUZZ_CHECK(!facts.provider_subscription_id.empty());
  FUZZ_CHECK(Storable(facts.provider_subscription_id));
  FUZZ_CHECK(Storable(facts.item_key));
  FUZZ_CHECK(Storable(facts.customer_id));
  FUZZ_CHECK(Storable(facts.subject));
  FUZZ_CHECK(Storable(facts.product_id));
  FUZZ_CHECK(!facts.facts.empty());
  std::vector<tenure::domain::OrderedFact> ordered;
  for (const Fact& fact : facts.facts) {
    const auto one = tenure::domain::MakeOrderedFact(event.event_id, fact);
    FUZZ_CHECK(one.ok());
    FUZZ_CHECK(one->order.order_at == event.occurred_at);
    FUZZ_CHECK(Storable(tenure::domain::MoneyKey(fact)));
    for (const std::string& alias : fact.paid().aliases()) {
      FUZZ_CHECK(!alias.empty() && Storable(alias));
    }
    FUZZ_CHECK(fact.paid().amount_minor() >= 0);
    ordered.push_back(*one);
  }
  const auto folded = tenure::domain::Fold(ordered);
  FUZZ_CHECK(folded.ok());
  FUZZ_CHECK(!folded->lifetime);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const tenure::providers::StripeAdapter& adapter =
      *new tenure::providers::StripeAdapter([] {
        tenure::providers::StripeSettings settings;
        settings.secrets.emplace_back("whsec_unused");
        return settings;
      }());
  const absl::string_view body(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<ProviderEvent> event = adapter.Parse(body);
  if (!event.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(event.status()));
    FUZZ_CHECK(tenure::GetErrorInfo(event.status()).has_value());
    return 0;
  }
  FUZZ_CHECK(tenure::providers::ValidateEventId(event->event_id).ok());
  FUZZ_CHECK(!event->type.empty() && Storable(event->type));
  FUZZ_CHECK(Storable(event->account));
  FUZZ_CHECK(event->ignored.empty() == !event->subscriptions.empty());
  for (const SubscriptionFacts& facts : event->subscriptions) {
    CheckFacts(*event, facts);
  }
  return 0;
}
