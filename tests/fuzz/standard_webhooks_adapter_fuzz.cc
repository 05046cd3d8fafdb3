// From a verified body to facts: total. Every input is an event with facts that
// can be stored and folded, an event that is ignored or set aside for a reason,
// or INVALID_ARGUMENT.
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "common/base/error.h"
#include "common/domain/fold.h"
#include "common/providers/standard_webhooks_adapter.h"
#include "tests/fuzz/fuzz.h"

namespace {

using tenure::providers::Fact;
using tenure::providers::ProviderEvent;
using tenure::providers::SubscriptionFacts;

// Text that a column of 255 bytes holds; empty where it may be absent.
bool Storable(const std::string& text) {
  return text.empty() || tenure::ValidateText("text", text, 255).ok();
}

// A label of a metric and a column: few words, and none of the sender's.
bool IsReason(const std::string& text) {
  if (text.empty() || text.size() > 64) return false;
  for (const char c : text) {
    if (!absl::ascii_islower(static_cast<unsigned char>(c)) && c != '_') {
      return false;
    }
  }
  return true;
}

void CheckFacts(const ProviderEvent& event, const SubscriptionFacts& facts) {
  FUZZ_CHECK(!facts.provider_subscription_id.empty());
  FUZZ_CHECK(Storable(facts.provider_subscription_id));
  FUZZ_CHECK(facts.item_key.empty() && facts.alternatives.empty() &&
             facts.payment_names.empty());
  FUZZ_CHECK(facts.customer_id == event.customer_id);
  FUZZ_CHECK(Storable(facts.subject) && Storable(facts.product_id));
  FUZZ_CHECK(!facts.facts.empty());
  std::vector<tenure::domain::OrderedFact> ordered;
  for (size_t i = 0; i < facts.facts.size(); ++i) {
    Fact fact = facts.facts[i];
    FUZZ_CHECK(fact.ordinal() == static_cast<int32_t>(i));
    FUZZ_CHECK(fact.plan().empty() && fact.plan_revision() == 0);
    if (fact.has_plan_changed()) FUZZ_CHECK(!facts.product_id.empty());
    // What the store stamps.
    if (!facts.product_id.empty()) fact.set_plan(facts.product_id);
    const auto one = tenure::domain::MakeOrderedFact("msg_1", fact);
    FUZZ_CHECK(one.ok());
    FUZZ_CHECK(one->order.order_at == event.occurred_at);
    FUZZ_CHECK(Storable(tenure::domain::MoneyKey(fact)));
    FUZZ_CHECK(Storable(fact.paid().replaces()));
    FUZZ_CHECK(Storable(fact.revoked().reason()));
    FUZZ_CHECK(fact.paid().amount_minor() >= 0);
    ordered.push_back(*one);
  }
  const auto folded = tenure::domain::Fold(ordered);
  FUZZ_CHECK(folded.ok());
  FUZZ_CHECK(!folded->subscription.lifetime);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto& adapter = *new tenure::providers::StandardWebhooksAdapter(
      tenure::providers::StandardWebhooksSettings());
  const absl::string_view body(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<ProviderEvent> event = adapter.Parse(body);
  if (!event.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(event.status()));
    FUZZ_CHECK(tenure::GetErrorInfo(event.status()).has_value());
    return 0;
  }
  FUZZ_CHECK(event->event_id.empty());
  FUZZ_CHECK(!event->type.empty() && Storable(event->type));
  FUZZ_CHECK(Storable(event->account) && Storable(event->customer_id));
  FUZZ_CHECK(event->links.empty() && event->payment_aliases.empty());
  // It is about a subscription, or says why not.
  FUZZ_CHECK((event->subscriptions.empty() ? 0 : 1) +
                 (event->ignored.empty() ? 0 : 1) +
                 (event->quarantined.empty() ? 0 : 1) ==
             1);
  FUZZ_CHECK(event->ignored.empty() || IsReason(event->ignored));
  FUZZ_CHECK(event->quarantined.empty() || IsReason(event->quarantined));
  FUZZ_CHECK(event->subscriptions.size() <= 1);
  for (const SubscriptionFacts& facts : event->subscriptions) {
    CheckFacts(*event, facts);
  }
  return 0;
}
