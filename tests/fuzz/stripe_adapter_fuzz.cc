// From a verified body to facts: total. Every input is an event with facts that
// can be stored and folded, an event that is ignored for a reason, or
// INVALID_ARGUMENT. The same JSON in another spelling is the same event.
#include <string>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/domain/fold.h"
#include "common/providers/stripe_adapter.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/json_print.h"

namespace {

using tenure::providers::Fact;
using tenure::providers::ProviderEvent;
using tenure::providers::SubscriptionFacts;

// Text that a column of 255 bytes holds; empty where it may be absent.
bool Storable(const std::string& text) {
  return text.empty() || tenure::ValidateText("text", text, 255).ok();
}

void CheckFacts(const ProviderEvent& event, const std::string& product_id,
                const std::vector<Fact>& facts) {
  FUZZ_CHECK(Storable(product_id));
  FUZZ_CHECK(!facts.empty());
  std::vector<tenure::domain::OrderedFact> ordered;
  for (size_t i = 0; i < facts.size(); ++i) {
    Fact fact = facts[i];
    FUZZ_CHECK(fact.ordinal() == static_cast<int32_t>(i));
    FUZZ_CHECK(fact.plan().empty() && fact.plan_revision() == 0);
    // What the store stamps.
    if (!product_id.empty()) fact.set_plan(product_id);
    if (fact.has_plan_changed()) FUZZ_CHECK(!product_id.empty());
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
  FUZZ_CHECK(!folded->subscription.lifetime);
}

void CheckSubscription(const ProviderEvent& event,
                       const SubscriptionFacts& facts) {
  // One way to find the subscription, and only one.
  FUZZ_CHECK(facts.provider_subscription_id.empty() ==
             !facts.payment_names.empty());
  FUZZ_CHECK(Storable(facts.provider_subscription_id));
  FUZZ_CHECK(Storable(facts.item_key));
  FUZZ_CHECK(Storable(facts.customer_id));
  FUZZ_CHECK(Storable(facts.subject));
  for (const std::string& name : facts.payment_names) {
    FUZZ_CHECK(!name.empty() && Storable(name));
  }
  CheckFacts(event, facts.product_id, facts.facts);
  for (const auto& alternative : facts.alternatives) {
    CheckFacts(event, alternative.product_id, alternative.facts);
  }
}

std::string Text(const std::string& product_id,
                 const std::vector<Fact>& facts) {
  std::string text = product_id + "(";
  for (const Fact& fact : facts) text += fact.ShortDebugString() + ";";
  return text + ")";
}

// All that a reading says.
std::string Text(const ProviderEvent& event) {
  std::string text = event.event_id + "|" + event.type + "|" + event.account +
                     "|" + (event.livemode ? "live" : "test") + "|" +
                     event.customer_id + "|" +
                     absl::FormatTime(event.occurred_at) + "|" + event.ignored +
                     "|" + event.quarantined + "\n";
  for (const SubscriptionFacts& facts : event.subscriptions) {
    text += facts.provider_subscription_id + "|" + facts.item_key + "|" +
            facts.customer_id + "|" + facts.subject + "|" +
            Text(facts.product_id, facts.facts);
    for (const auto& other : facts.alternatives) {
      text += "or " + Text(other.product_id, other.facts);
    }
    for (const std::string& name : facts.payment_names) text += "|" + name;
    text += "\n";
  }
  for (const auto& link : event.links) {
    text += link.customer_id + "=" + link.subject + "\n";
  }
  for (const auto& alias : event.payment_aliases) {
    text += alias.payment_key + "=" + alias.alias + "\n";
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const tenure::providers::StripeAdapter& adapter =
      *new tenure::providers::StripeAdapter(
          tenure::providers::StripeSettings());
  const absl::string_view body(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<ProviderEvent> event = adapter.Parse(body);
  if (!event.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(event.status()));
    FUZZ_CHECK(tenure::GetErrorInfo(event.status()).has_value());
    return 0;
  }
  const absl::StatusOr<tenure::JsonValue> json = tenure::ParseJson(body);
  FUZZ_CHECK(json.ok());
  tenure::fuzz::PrintedJson printed;
  tenure::fuzz::PrintJson(*json, 0, &printed);
  if (printed.printable) {
    const absl::StatusOr<ProviderEvent> again = adapter.Parse(printed.text);
    FUZZ_CHECK(again.ok());
    FUZZ_CHECK(Text(*event) == Text(*again));
  }
  FUZZ_CHECK(tenure::providers::ValidateEventId(event->event_id).ok());
  FUZZ_CHECK(!event->type.empty() && Storable(event->type));
  FUZZ_CHECK(Storable(event->account));
  // It is about subscriptions, or says why not.
  FUZZ_CHECK((event->subscriptions.empty() ? 0 : 1) +
                 (event->ignored.empty() ? 0 : 1) +
                 (event->quarantined.empty() ? 0 : 1) ==
             1);
  for (const SubscriptionFacts& facts : event->subscriptions) {
    CheckSubscription(*event, facts);
  }
  for (const auto& link : event->links) {
    FUZZ_CHECK(!link.customer_id.empty() && Storable(link.customer_id));
    FUZZ_CHECK(!link.subject.empty() && Storable(link.subject));
  }
  for (const auto& alias : event->payment_aliases) {
    FUZZ_CHECK(!alias.payment_key.empty() && Storable(alias.payment_key));
    FUZZ_CHECK(!alias.alias.empty() && Storable(alias.alias));
  }
  return 0;
}
