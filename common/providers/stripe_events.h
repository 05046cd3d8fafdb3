#ifndef TENURE_COMMON_PROVIDERS_STRIPE_EVENTS_H_
#define TENURE_COMMON_PROVIDERS_STRIPE_EVENTS_H_

#include "common/base/json.h"
#include "common/providers/provider_adapter.h"
#include "common/providers/stripe_adapter.h"
#include "common/providers/stripe_reader.h"

namespace tenure::providers {

// What each family of Stripe's events says. `data` is the event's `data`, whose
// `object` is an object. Every function fills `event`, whose envelope is read,
// or sets its `ignored`.

// customer.subscription.created, .updated, .paused, .resumed, .deleted.
void ReadStripeSubscription(const JsonValue& data,
                            const StripeSettings& settings, TextReader& texts,
                            ProviderEvent* event);

// invoice.paid, invoice.payment_succeeded.
void ReadStripeInvoicePaid(const JsonValue& data,
                           const StripeSettings& settings, TextReader& texts,
                           ProviderEvent* event);

// invoice.payment_failed.
void ReadStripeInvoiceFailed(const JsonValue& data,
                             const StripeSettings& settings, TextReader& texts,
                             ProviderEvent* event);

// invoice_payment.paid: which charge or intent paid an invoice.
void ReadStripeInvoicePayment(const JsonValue& data, TextReader& texts,
                              ProviderEvent* event);

// charge.refunded.
void ReadStripeChargeRefunded(const JsonValue& data, TextReader& texts,
                              ProviderEvent* event);

// refund.created, .updated, .failed, charge.refund.updated.
void ReadStripeRefund(const JsonValue& data, TextReader& texts,
                      ProviderEvent* event);

// charge.dispute.created, .updated, .closed.
void ReadStripeDispute(const JsonValue& data, TextReader& texts,
                       ProviderEvent* event);

// checkout.session.completed, .async_payment_succeeded.
void ReadStripeCheckout(const JsonValue& data, const StripeSettings& settings,
                        TextReader& texts, ProviderEvent* event);

// Adds facts about one subscription; the first candidate is what counts unless
// the catalogue knows only another one. `candidates` is not empty.
void AddStripeFacts(SubscriptionFacts facts,
                    std::vector<Alternative> candidates, ProviderEvent* event);

}  // namespace tenure::providers

#endif  // TENURE_COMMON_PROVIDERS_STRIPE_EVENTS_H_
