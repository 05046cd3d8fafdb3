#include "common/providers/stripe_adapter.h"

#include <optional>

#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/providers/stripe_events.h"
#include "common/providers/stripe_reader.h"
#include "common/providers/stripe_signature.h"

namespace tenure::providers {
namespace {

struct EventKind {
  absl::string_view type;
  // What `object` says of the object; another one means that the name of the
  // event is not to be trusted.
  absl::string_view object;
  void (*read)(const JsonValue& data, const StripeSettings& settings,
               TextReader& texts, ProviderEvent* event);
};

// The reader of objects that need no settings.
template <void (*Read)(const JsonValue&, TextReader&, ProviderEvent*)>
void Plain(const JsonValue& data, const StripeSettings& /*settings*/,
           TextReader& texts, ProviderEvent* event) {
  Read(data, texts, event);
}

template <const char* kReason>
void Ignore(const JsonValue& /*data*/, const StripeSettings& /*settings*/,
            TextReader& /*texts*/, ProviderEvent* event) {
  event->ignored = kReason;
}

// Access follows from the plan in the catalogue, not from Stripe's features.
constexpr char kEntitlements[] = "entitlements_come_from_plans";

constexpr EventKind kEventKinds[] = {
    {"customer.subscription.created", "subscription", ReadStripeSubscription},
    {"customer.subscription.updated", "subscription", ReadStripeSubscription},
    {"customer.subscription.paused", "subscription", ReadStripeSubscription},
    {"customer.subscription.resumed", "subscription", ReadStripeSubscription},
    {"customer.subscription.deleted", "subscription", ReadStripeSubscription},
    {"invoice.paid", "invoice", ReadStripeInvoicePaid},
    {"invoice.payment_succeeded", "invoice", ReadStripeInvoicePaid},
    {"invoice.payment_failed", "invoice", ReadStripeInvoiceFailed},
    {"invoice_payment.paid", "invoice_payment",
     Plain<ReadStripeInvoicePayment>},
    {"charge.refunded", "charge", Plain<ReadStripeChargeRefunded>},
    {"refund.created", "refund", Plain<ReadStripeRefund>},
    {"refund.updated", "refund", Plain<ReadStripeRefund>},
    {"refund.failed", "refund", Plain<ReadStripeRefund>},
    {"charge.refund.updated", "refund", Plain<ReadStripeRefund>},
    {"charge.dispute.created", "dispute", Plain<ReadStripeDispute>},
    {"charge.dispute.updated", "dispute", Plain<ReadStripeDispute>},
    {"charge.dispute.closed", "dispute", Plain<ReadStripeDispute>},
    {"checkout.session.completed", "checkout.session", ReadStripeCheckout},
    {"checkout.session.async_payment_succeeded", "checkout.session",
     ReadStripeCheckout},
    {"entitlements.active_entitlement_summary.updated",
     "entitlements.active_entitlement_summary", Ignore<kEntitlements>},
};

void ReadObject(const JsonValue& data, const StripeSettings& settings,
                TextReader& texts, ProviderEvent* event) {
  for (const EventKind& kind : kEventKinds) {
    if (kind.type != event->type) continue;
    const std::string object = texts.At(data, {"object", "object"});
    if (!object.empty() && object != kind.object) {
      event->ignored = "unexpected_object";
      return;
    }
    kind.read(data, settings, texts, event);
    return;
  }
  event->ignored = "type_carries_no_fact";
}

}  // namespace

absl::StatusOr<std::string> StripeAdapter::Verify(const Delivery& delivery,
                                                  absl::Time now) const {
  return VerifyStripeSignature(delivery.Header("Stripe-Signature").value_or(""),
                               delivery.body, settings_.secrets, now,
                               settings_.signature_tolerance);
}

absl::StatusOr<ProviderEvent> StripeAdapter::Parse(
    absl::string_view body) const {
  ASSIGN_OR_RETURN(const JsonValue root, ParseJson(body));
  if (!root.IsObject()) return StripeMalformed("body", "must be a JSON object");
  ProviderEvent event;
  TextReader texts;
  const JsonValue* id = root.Find("id");
  if (id != nullptr && id->has_lone_surrogate()) {
    return StripeMalformed("id", "must be well-formed text");
  }
  if (id != nullptr) event.event_id = std::string(id->AsString().value_or(""));
  RETURN_IF_ERROR(ValidateEventId(event.event_id));
  event.type = texts.At(root, {"type"});
  if (event.type.empty()) {
    return StripeMalformed("type", "must be 1 to 255 bytes of text");
  }
  // Part of the event's key, so a text that cannot be one is not passed over.
  const JsonValue* account = root.Find("account");
  if (account != nullptr && !account->IsNull() && account->AsString() != "") {
    event.account = texts.At(root, {"account"});
    if (event.account.empty()) {
      return StripeMalformed("account", "must be 1 to 255 bytes of text");
    }
  }
  const JsonValue* livemode = root.Find("livemode");
  if (livemode != nullptr && !livemode->AsBool().has_value()) {
    return StripeMalformed("livemode", "must be true or false");
  }
  event.livemode = livemode == nullptr || *livemode->AsBool();
  const auto created = InstantAt(root, {"created"});
  if (!created) return StripeMalformed("created", "must be Unix seconds");
  event.occurred_at = *created;
  const JsonValue* object = root.At({"data", "object"});
  if (object == nullptr || !object->IsObject()) {
    return StripeMalformed("data.object", "must be an object");
  }

  // Of an object that is no customer's nothing is read, so half a character
  // there harms nobody (C032).
  TextReader names;
  event.customer_id = names.At(*object, {"customer"});
  if (event.customer_id.empty() &&
      names.At(*object, {"object"}) == "customer") {
    event.customer_id = names.At(*object, {"id"});
  }
  ReadObject(*root.Find("data"), settings_, texts, &event);
  RETURN_IF_ERROR(texts.status());
  return event;
}

}  // namespace tenure::providers
