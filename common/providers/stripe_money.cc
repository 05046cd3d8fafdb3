#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "common/base/proto_time.h"
#include "common/providers/stripe_events.h"

namespace tenure::providers {
namespace {

namespace pb = ::tenure::subscription::v1;

// A line of an invoice that is about a subscription.
struct Line {
  std::string product_id;
  std::string subject;
  std::optional<absl::Time> starts_at;
  std::optional<absl::Time> ends_at;
  int64_t amount_minor = 0;
  bool proration = false;
  // It is for a period: it is no proration, no usage that was metered over a
  // period that is past, no one-off item.
  bool for_period = false;
  // It bought one: the period has a length too (C072).
  bool buys = false;
};

Line ReadLine(const JsonValue& line, absl::string_view subject_key,
              TextReader& texts) {
  Line out;
  out.product_id = texts.First(
      line, {{"pricing", "price_details", "price"}, {"price"}, {"plan"}});
  out.subject = texts.At(line, {"metadata", subject_key});
  out.starts_at = InstantAt(line, {"period", "start"});
  out.ends_at = InstantAt(line, {"period", "end"});
  out.amount_minor = AmountAt(line, {"amount"});
  out.proration =
      IsTrue(line, {"proration"}) ||
      IsTrue(line, {"parent", "subscription_item_details", "proration"}) ||
      IsTrue(line, {"parent", "invoice_item_details", "proration"});
  const std::string kind = texts.First(line, {{"parent", "type"}, {"type"}});
  const std::string usage = texts.First(
      line, {{"price", "recurring", "usage_type"}, {"plan", "usage_type"}});
  out.for_period =
      (kind == "subscription" || kind == "subscription_item_details") &&
      !out.proration && usage != "metered";
  out.buys = out.for_period && out.starts_at && out.ends_at &&
             *out.starts_at < *out.ends_at;
  return out;
}

// As the ledger of money takes it.
bool IsCurrency(absl::string_view text) {
  return text.size() == 3 && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isupper(static_cast<unsigned char>(c));
         });
}

class InvoiceReader {
 public:
  InvoiceReader(const JsonValue& data, const StripeSettings& settings,
                TextReader& texts, ProviderEvent* event)
      : invoice_(*data.Find("object")),
        settings_(settings),
        texts_(texts),
        event_(*event) {}

  void ReadPaid() {
    if (!ReadSubscription()) return;
    // Credit of the customer is money that was paid before. An invoice over 0
    // proves no payment: a trial has one.
    const int64_t amount_minor = AmountAt(invoice_, {"amount_paid"});
    const bool by_credit = AmountAt(invoice_, {"total"}) > 0 &&
                           AmountAt(invoice_, {"starting_balance"}) < 0;
    if (amount_minor <= 0 && !by_credit) {
      event_.ignored = "nothing_paid";
      return;
    }
    const std::vector<Line> bought = BoughtLines();
    if (payment_key_.empty()) {
      event_.ignored = "no_period_bought";
      return;
    }
    if (bought.empty() &&
        std::any_of(lines_.begin(), lines_.end(),
                    [](const Line& line) { return line.for_period; })) {
      // Money for a period that nobody can tell.
      event_.quarantined = "period_invalid";
      return;
    }
    if (bought.empty()) return ReadProration();
    if (!IsCurrency(Currency())) {
      event_.quarantined = "currency_invalid";
      return;
    }
    std::vector<Alternative> candidates;
    for (const Line& line : bought) {
      candidates.push_back({line.product_id, {Paid(line, amount_minor)}});
    }
    AddStripeFacts(std::move(out_), std::move(candidates), &event_);
  }

  void ReadFailed() {
    if (!ReadSubscription()) return;
    if (payment_key_.empty()) {
      event_.ignored = "invoice_without_id";
      return;
    }
    Fact fact = MakeFact(pb::FACT_LAYER_MONEY, event_);
    fact.mutable_payment_failed()->set_payment_key(payment_key_);
    std::vector<Alternative> candidates;
    for (const Line& line : BoughtLines()) {
      candidates.push_back({line.product_id, {fact}});
    }
    if (candidates.empty()) candidates.push_back({"", {std::move(fact)}});
    AddStripeFacts(std::move(out_), std::move(candidates), &event_);
  }

 private:
  // False when the invoice belongs to none.
  bool ReadSubscription() {
    out_.provider_subscription_id = texts_.First(
        invoice_,
        {{"parent", "subscription_details", "subscription"}, {"subscription"}});
    if (out_.provider_subscription_id.empty()) {
      event_.ignored = "invoice_without_subscription";
      return false;
    }
    payment_key_ = texts_.At(invoice_, {"id"});
    out_.customer_id = texts_.At(invoice_, {"customer"});
    const absl::string_view key = settings_.subject_metadata_key;
    out_.subject = texts_.First(
        invoice_, {{"parent", "subscription_details", "metadata", key},
                   {"subscription_details", "metadata", key},
                   {"metadata", key}});
    if (const JsonValue* lines = invoice_.At({"lines", "data"})) {
      for (const JsonValue& line : lines->items()) {
        lines_.push_back(ReadLine(line, key, texts_));
      }
    }
    return true;
  }

  // The line that reaches furthest first.
  std::vector<Line> BoughtLines() {
    std::vector<Line> bought;
    for (const Line& line : lines_) {
      if (line.buys) bought.push_back(line);
    }
    std::stable_sort(
        bought.begin(), bought.end(),
        [](const Line& a, const Line& b) { return *a.ends_at > *b.ends_at; });
    for (const Line& line : bought) {
      if (out_.subject.empty()) out_.subject = line.subject;
    }
    return bought;
  }

  std::string Currency() {
    return absl::AsciiStrToUpper(texts_.At(invoice_, {"currency"}));
  }

  Fact Paid(const Line& line, int64_t amount_minor) {
    Fact fact = MakeFact(pb::FACT_LAYER_MONEY, event_);
    pb::Paid& paid = *fact.mutable_paid();
    paid.set_payment_key(payment_key_);
    *paid.mutable_period_starts_at() = ToProto(*line.starts_at);
    *paid.mutable_period_ends_at() = ToProto(*line.ends_at);
    paid.set_amount_minor(std::max<int64_t>(amount_minor, 0));
    paid.set_currency(Currency());
    paid.set_will_renew(true);
    *paid.mutable_leeway_until() =
        ToProto(*line.ends_at + settings_.renewal_leeway);
    *paid.mutable_paid_at() =
        ToProto(InstantAt(invoice_, {"status_transitions", "paid_at"})
                    .value_or(event_.occurred_at));
    const auto add_alias = [&](const std::string& alias) {
      const auto& known = paid.aliases();
      if (alias.empty() || alias == payment_key_ ||
          std::find(known.begin(), known.end(), alias) != known.end()) {
        return;
      }
      paid.add_aliases(alias);
    };
    add_alias(texts_.At(invoice_, {"charge"}));
    add_alias(texts_.At(invoice_, {"payment_intent"}));
    // Where they are since 2025, when the event was sent with them.
    if (const JsonValue* payments = invoice_.At({"payments", "data"})) {
      for (const JsonValue& payment : payments->items()) {
        add_alias(texts_.At(payment, {"payment", "charge"}));
        add_alias(texts_.At(payment, {"payment", "payment_intent"}));
      }
    }
    return fact;
  }

  // Money for the rest of a period under another price: the plan, and no time
  // (the line's end is that of a period which need not be paid).
  void ReadProration() {
    std::vector<std::string> credited;
    for (const Line& line : lines_) {
      if (line.proration && line.amount_minor < 0) {
        credited.push_back(line.product_id);
      }
    }
    std::vector<Alternative> candidates;
    for (const Line& line : lines_) {
      if (credited.empty() || !line.proration || line.amount_minor <= 0 ||
          line.product_id.empty() ||
          std::find(credited.begin(), credited.end(), line.product_id) !=
              credited.end()) {
        continue;
      }
      // Of the money layer: customer.subscription.updated says the same in the
      // same second, in other words that would look like a contradiction.
      Fact fact = MakeFact(pb::FACT_LAYER_MONEY, event_);
      fact.mutable_plan_changed();
      candidates.push_back({line.product_id, {std::move(fact)}});
      if (out_.subject.empty()) out_.subject = line.subject;
    }
    if (candidates.empty()) {
      event_.ignored = "no_period_bought";
      return;
    }
    AddStripeFacts(std::move(out_), std::move(candidates), &event_);
  }

  const JsonValue& invoice_;
  const StripeSettings& settings_;
  TextReader& texts_;
  ProviderEvent& event_;
  SubscriptionFacts out_;
  std::string payment_key_;
  std::vector<Line> lines_;
};

// The names of the payment that a refund or dispute is about, best first.
std::vector<std::string> PaymentNames(
    std::initializer_list<std::string> texts) {
  std::vector<std::string> names;
  for (const std::string& text : texts) {
    if (!text.empty() &&
        std::find(names.begin(), names.end(), text) == names.end()) {
      names.push_back(text);
    }
  }
  return names;
}

// Adds facts about a payment, of whatever subscription that is.
void AddPaymentFacts(std::vector<std::string> names, std::string customer_id,
                     std::vector<Fact> facts, ProviderEvent* event) {
  SubscriptionFacts out;
  out.customer_id = std::move(customer_id);
  out.payment_names = std::move(names);
  AddStripeFacts(std::move(out), {{"", std::move(facts)}}, event);
}

// The newest refund of a charge, nullptr where the list is not sent along
// (since 2022).
const JsonValue* NewestRefund(const JsonValue& charge, TextReader& texts) {
  const JsonValue* newest = nullptr;
  absl::Time created = absl::InfinitePast();
  const JsonValue* list = charge.At({"refunds", "data"});
  if (list == nullptr) return nullptr;
  for (const JsonValue& refund : list->items()) {
    const auto at = InstantAt(refund, {"created"});
    const std::string status = texts.At(refund, {"status"});
    if (!at || *at <= created || status == "failed" || status == "canceled" ||
        texts.At(refund, {"id"}).empty()) {
      continue;
    }
    newest = &refund;
    created = *at;
  }
  return newest;
}

}  // namespace

void ReadStripeInvoicePaid(const JsonValue& data,
                           const StripeSettings& settings, TextReader& texts,
                           ProviderEvent* event) {
  InvoiceReader(data, settings, texts, event).ReadPaid();
}

void ReadStripeInvoiceFailed(const JsonValue& data,
                             const StripeSettings& settings, TextReader& texts,
                             ProviderEvent* event) {
  InvoiceReader(data, settings, texts, event).ReadFailed();
}

void ReadStripeInvoicePayment(const JsonValue& data, TextReader& texts,
                              ProviderEvent* event) {
  const JsonValue& object = *data.Find("object");
  const std::string invoice = texts.At(object, {"invoice"});
  if (!invoice.empty()) {
    for (std::string& alias :
         PaymentNames({texts.At(object, {"payment", "charge"}),
                       texts.At(object, {"payment", "payment_intent"})})) {
      event->payment_aliases.push_back({invoice, std::move(alias)});
    }
  }
  event->ignored = event->payment_aliases.empty() ? "payment_without_invoice"
                                                  : "payment_alias";
}

void ReadStripeChargeRefunded(const JsonValue& data, TextReader& texts,
                              ProviderEvent* event) {
  const JsonValue& charge = *data.Find("object");
  const std::string charge_id = texts.At(charge, {"id"});
  std::vector<std::string> names =
      PaymentNames({texts.At(charge, {"invoice"}), charge_id,
                    texts.At(charge, {"payment_intent"})});
  if (charge_id.empty()) {
    event->ignored = "refund_without_payment";
    return;
  }
  Fact fact = MakeFact(pb::FACT_LAYER_MONEY, *event);
  pb::Refunded& refunded = *fact.mutable_refunded();
  refunded.set_payment_key(names.front());
  refunded.set_full(IsTrue(charge, {"refunded"}));
  refunded.set_refunded_total_minor(
      std::max<int64_t>(AmountAt(charge, {"amount_refunded"}), 0));
  if (const JsonValue* refund = NewestRefund(charge, texts)) {
    refunded.set_refund_key(texts.At(*refund, {"id"}));
    refunded.set_amount_minor(
        std::max<int64_t>(AmountAt(*refund, {"amount"}), 0));
  } else {
    // Which refund it was is not said, only the sum of all of them.
    refunded.set_refund_key(charge_id);
  }
  if (!refunded.full() && refunded.refunded_total_minor() == 0 &&
      refunded.amount_minor() == 0) {
    event->ignored = "nothing_refunded";
    return;
  }
  AddPaymentFacts(std::move(names), texts.At(charge, {"customer"}),
                  {std::move(fact)}, event);
}

void ReadStripeRefund(const JsonValue& data, TextReader& texts,
                      ProviderEvent* event) {
  const JsonValue& refund = *data.Find("object");
  const std::string refund_id = texts.At(refund, {"id"});
  const std::string charge_id = texts.At(refund, {"charge"});
  std::vector<std::string> names =
      PaymentNames({charge_id, texts.At(refund, {"payment_intent"})});
  if (refund_id.empty() || names.empty()) {
    event->ignored = "refund_without_payment";
    return;
  }
  const std::string status = texts.At(refund, {"status"});
  std::vector<Fact> facts;
  if (status == "failed" || status == "canceled") {
    // Also under the name that charge.refunded gives it without a list.
    for (const std::string& key : PaymentNames({refund_id, charge_id})) {
      Fact fact = MakeFact(pb::FACT_LAYER_MONEY, *event);
      fact.mutable_refund_reversed()->set_refund_key(key);
      facts.push_back(std::move(fact));
    }
  } else if (status == "requires_action") {
    event->ignored = "refund_waits";
    return;
  } else {
    const int64_t amount_minor = AmountAt(refund, {"amount"});
    if (amount_minor <= 0) {
      event->ignored = "nothing_refunded";
      return;
    }
    Fact fact = MakeFact(pb::FACT_LAYER_MONEY, *event);
    pb::Refunded& refunded = *fact.mutable_refunded();
    refunded.set_payment_key(names.front());
    refunded.set_refund_key(refund_id);
    refunded.set_amount_minor(amount_minor);
    facts.push_back(std::move(fact));
  }
  AddPaymentFacts(std::move(names), "", std::move(facts), event);
}

void ReadStripeDispute(const JsonValue& data, TextReader& texts,
                       ProviderEvent* event) {
  const JsonValue& dispute = *data.Find("object");
  std::vector<std::string> names = PaymentNames(
      {texts.At(dispute, {"charge"}), texts.At(dispute, {"payment_intent"})});
  const std::string status = texts.At(dispute, {"status"});
  if (absl::StartsWith(status, "warning_")) {
    // The bank asks; no money has moved.
    event->ignored = "dispute_inquiry";
    return;
  }
  if (names.empty()) {
    event->ignored = "dispute_without_payment";
    return;
  }
  Fact fact = MakeFact(pb::FACT_LAYER_MONEY, *event);
  if (event->type == "charge.dispute.closed") {
    pb::DisputeClosed& closed = *fact.mutable_dispute_closed();
    closed.set_payment_key(names.front());
    closed.set_lost(status == "lost");
  } else {
    const bool escalated = absl::StartsWith(
        texts.At(data, {"previous_attributes", "status"}), "warning_");
    if (event->type == "charge.dispute.updated" && !escalated) {
      event->ignored = "dispute_goes_on";
      return;
    }
    fact.mutable_dispute_opened()->set_payment_key(names.front());
  }
  AddPaymentFacts(std::move(names), "", {std::move(fact)}, event);
}

void ReadStripeCheckout(const JsonValue& data, const StripeSettings& settings,
                        TextReader& texts, ProviderEvent* event) {
  const JsonValue& session = *data.Find("object");
  // Paid or not, it says who the customer is and grants nothing: the invoice
  // brings the period once there is money (C053).
  if (texts.At(session, {"subscription"}).empty()) {
    event->ignored = "checkout_without_subscription";
    return;
  }
  CustomerLink link;
  link.customer_id = texts.At(session, {"customer"});
  link.subject = texts.First(
      session,
      {{"metadata", settings.subject_metadata_key}, {"client_reference_id"}});
  if (link.customer_id.empty() || link.subject.empty()) {
    event->ignored = "checkout_names_no_subject";
    return;
  }
  event->links.push_back(std::move(link));
  event->ignored = "customer_link";
}

}  // namespace tenure::providers
