#ifndef TENURE_COMMON_PROVIDERS_PROVIDER_ADAPTER_H_
#define TENURE_COMMON_PROVIDERS_PROVIDER_ADAPTER_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tenure/subscription/v1/fact.pb.h"

namespace tenure::providers {

using Fact = ::tenure::subscription::v1::Fact;

// A request as the provider sent it.
struct Delivery {
  // In order; names compare without case.
  std::vector<std::pair<std::string, std::string>> headers;
  // Byte for byte: the signature is over these bytes.
  std::string body;

  // The first header of that name.
  std::optional<absl::string_view> Header(absl::string_view name) const;
};

// What an event says if another of its products is the one that counts.
struct Alternative {
  std::string product_id;
  std::vector<Fact> facts;
};

// What one event says about one subscription.
struct SubscriptionFacts {
  // The provider's ids. item_key tells apart what one provider subscription
  // sells side by side; empty for the only one. Without a
  // provider_subscription_id the subscription is the one that the payment in
  // payment_names belongs to.
  std::string provider_subscription_id;
  std::string item_key;
  std::string customer_id;
  // The subject as the configured metadata names it; empty when it does not.
  std::string subject;
  // What was bought, to find the plan; empty when the event does not say.
  std::string product_id;
  // Facts as the speaker said them: plan, revision and whatever is policy are
  // for the store to add. A PLAN_CHANGED means the plan of product_id.
  std::vector<Fact> facts;
  // Set when several products were sold with ends of their own: the first one
  // whose product the catalogue knows replaces product_id and facts, which
  // come before all of these (C069).
  std::vector<Alternative> alternatives;
  // Set when the facts are about a payment and the event does not say of which
  // subscription: the names the payment may be known by, best first. The first
  // one is the payment_key of the facts.
  std::vector<std::string> payment_names;
};

// Which subject a customer is.
struct CustomerLink {
  std::string customer_id;
  std::string subject;
};

// Another name of a payment, told apart from the payment itself.
struct PaymentAlias {
  std::string payment_key;
  std::string alias;
};

// A verified event in the words all providers share.
struct ProviderEvent {
  std::string event_id;
  std::string type;
  // The provider's account the event belongs to, empty for the only one.
  std::string account;
  bool livemode = true;
  // The provider's id of the customer that the event is about, also of one that
  // is ignored; empty when it does not say. Up to 255 bytes.
  std::string customer_id;
  // The event's own time; order_at of its facts.
  absl::Time occurred_at;
  // Empty for an event that carries nothing for a subscription; `ignored`
  // then says why, in snake case.
  std::vector<SubscriptionFacts> subscriptions;
  // What such an event may tell all the same. None of it is a grant. A link
  // never replaces another one.
  std::vector<CustomerLink> links;
  std::vector<PaymentAlias> payment_aliases;
  std::string ignored;
  // Why, in snake case, when the event is about a subscription and what it says
  // of it cannot be: a period without length, an instant of no year (C070,
  // C072). Nothing of it is applied then; an operator has to see it.
  std::string quarantined;
};

// One provider's format. Implementations are immutable and thread-safe.
class ProviderAdapter {
 public:
  virtual ~ProviderAdapter() = default;

  // Whether the delivery is the provider's own, at `now`: the name of the live
  // key that vouches for it, the first one in the order of the settings where
  // the provider signed with several (C022). Nothing of the body is parsed.
  // UNAUTHENTICATED or INVALID_ARGUMENT with a SIGNATURE_* reason; fails closed
  // (R12), always without a key.
  virtual absl::StatusOr<std::string> Verify(const Delivery& delivery,
                                             absl::Time now) const = 0;

  // Reads a verified body. INVALID_ARGUMENT (EVENT_MALFORMED,
  // EVENT_ID_MISSING) only for a body that is not an event of this provider at
  // all, or that has half a character in a text that is read (C032); an event
  // whose content makes no sense is returned as far as it could be read,
  // because it must still be recorded.
  virtual absl::StatusOr<ProviderEvent> Parse(absl::string_view body) const = 0;

  // The id under which the provider sends this event again, of a verified
  // delivery whose body Parse has read as `event`. Where it stands in a header
  // and not in the body, Parse leaves event_id empty; whoever reads a stored
  // body again takes the id that was stored beside it. EVENT_ID_MISSING or
  // EVENT_MALFORMED when there is none that can be a key.
  virtual absl::StatusOr<std::string> EventId(const Delivery& delivery,
                                              const ProviderEvent& event) const;

  // Parse and EventId in one: what a verified delivery says, id included.
  absl::StatusOr<ProviderEvent> Read(const Delivery& delivery) const;
};

// Limits on the id of an event: 1..255 bytes of UTF-8, not only white space,
// no control characters; compared byte for byte (C017, C019).
absl::Status ValidateEventId(absl::string_view id);

}  // namespace tenure::providers

#endif  // TENURE_COMMON_PROVIDERS_PROVIDER_ADAPTER_H_
