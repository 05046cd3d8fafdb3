#include "common/providers/stripe_adapter.h"

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"
#include "common/providers/stripe_signature.h"

namespace tenure::providers {
namespace {

namespace pb = ::tenure::subscription::v1;
using Path = std::initializer_list<absl::string_view>;

absl::Status Malformed(absl::string_view field, absl::string_view expected) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   common::v1::ERROR_REASON_EVENT_MALFORMED,
                   absl::StrCat(field, ": ", expected),
                   {{"field", std::string(field)}});
}

// Reads the texts of one event.
class TextReader {
 public:
  // The text at a path, or the `id` of an expanded object there. Empty when it
  // is absent, null, no text, or text that no id can be (control characters,
  // more than 255 bytes).
  std::string At(const JsonValue& value, Path path) {
    const JsonValue* found = value.At(path);
    if (found != nullptr && found->IsObject()) found = found->Find("id");
    if (found == nullptr || !found->IsString()) return "";
    if (found->has_lone_surrogate()) {
      status_.Update(
          Malformed(absl::StrJoin(path, "."), "must be well-formed text"));
      return "";
    }
    const absl::string_view text = *found->AsString();
    if (!ValidateText("", text, 255).ok()) return "";
    return std::string(text);
  }

  std::string First(const JsonValue& value, std::initializer_list<Path> paths) {
    for (const Path& path : paths) {
      std::string text = At(value, path);
      if (!text.empty()) return text;
    }
    return "";
  }

  // The first text read that was half a character (C032). Whoever put it there
  // means a name that cannot be known, so the event must not be taken for one
  // without that name.
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

// Unix seconds within the years 1..9999 (C070).
std::optional<absl::Time> InstantAt(const JsonValue& value, Path path) {
  constexpr int64_t kYear1 = -62135596800;
  constexpr int64_t kYear10000 = 253402300800;
  const JsonValue* found = value.At(path);
  if (found == nullptr) return std::nullopt;
  const std::optional<int64_t> seconds = found->AsInt64();
  if (!seconds || *seconds < kYear1 || *seconds >= kYear10000) {
    return std::nullopt;
  }
  return absl::FromUnixSeconds(*seconds);
}

bool IsTrue(const JsonValue& value, Path path) {
  const JsonValue* found = value.At(path);
  return found != nullptr && found->AsBool().value_or(false);
}

Fact MakeFact(pb::FactLayer layer, absl::Time order_at) {
  Fact fact;
  fact.set_layer(layer);
  *fact.mutable_order_at() = ToProto(order_at);
  return fact;
}

// What an invoice line sold.
struct Line {
  std::string product_id;
  std::string subject;
  absl::Time starts_at;
  absl::Time ends_at;
};

// A line that bought a period of the subscription: not a proration, not usage
// that was metered over a period that is past, not a one-off item.
std::optional<Line> BoughtPeriod(const JsonValue& line,
                                 absl::string_view subject_key,
                                 TextReader& texts) {
  const std::string kind = texts.First(line, {{"parent", "type"}, {"type"}});
  if (kind != "subscription" && kind != "subscription_item_details") {
    return std::nullopt;
  }
  if (IsTrue(line, {"proration"}) ||
      IsTrue(line, {"parent", "subscription_item_details", "proration"})) {
    return std::nullopt;
  }
  if (texts.First(line, {{"price", "recurring", "usage_type"},
                         {"plan", "usage_type"}}) == "metered") {
    return std::nullopt;
  }
  const auto starts_at = InstantAt(line, {"period", "start"});
  const auto ends_at = InstantAt(line, {"period", "end"});
  if (!starts_at || !ends_at || *ends_at <= *starts_at) return std::nullopt;
  return Line{
      texts.First(line,
                  {{"pricing", "price_details", "price"}, {"price"}, {"plan"}}),
      texts.At(line, {"metadata", subject_key}), *starts_at, *ends_at};
}

class InvoicePaid {
 public:
  InvoicePaid(const JsonValue& invoice, const StripeSettings& settings,
              TextReader& texts)
      : invoice_(invoice), settings_(settings), texts_(texts) {}

  // Fills `event`; leaves it ignored, with the reason, where no period was
  // bought with money.
  void ReadInto(ProviderEvent* event) const {
    SubscriptionFacts out;
    out.provider_subscription_id = texts_.First(
        invoice_,
        {{"parent", "subscription_details", "subscription"}, {"subscription"}});
    if (out.provider_subscription_id.empty()) {
      event->ignored = "invoice_without_subscription";
      return;
    }
    const std::string payment_key = texts_.At(invoice_, {"id"});
    const JsonValue* amount = invoice_.Find("amount_paid");
    const int64_t amount_minor =
        amount == nullptr ? 0 : amount->AsInt64().value_or(0);
    if (amount_minor <= 0) {
      // A trial's invoice of 0 proves no payment.
      event->ignored = "nothing_paid";
      return;
    }
    const std::optional<Line> line = LongestLine();
    if (!line || payment_key.empty()) {
      event->ignored = "no_period_bought";
      return;
    }
    out.product_id = line->product_id;
    out.customer_id = texts_.At(invoice_, {"customer"});
    const absl::string_view key = settings_.subject_metadata_key;
    out.subject = texts_.First(
        invoice_, {{"parent", "subscription_details", "metadata", key},
                   {"subscription_details", "metadata", key},
                   {"metadata", key}});
    if (out.subject.empty()) out.subject = line->subject;

    Fact fact = MakeFact(pb::FACT_LAYER_MONEY, event->occurred_at);
    pb::Paid& paid = *fact.mutable_paid();
    paid.set_payment_key(payment_key);
    *paid.mutable_period_starts_at() = ToProto(line->starts_at);
    *paid.mutable_period_ends_at() = ToProto(line->ends_at);
    paid.set_amount_minor(amount_minor);
    paid.set_currency(absl::AsciiStrToUpper(texts_.At(invoice_, {"currency"})));
    paid.set_will_renew(true);
    *paid.mutable_leeway_until() =
        ToProto(line->ends_at + settings_.renewal_leeway);
    *paid.mutable_paid_at() =
        ToProto(InstantAt(invoice_, {"status_transitions", "paid_at"})
                    .value_or(event->occurred_at));
    for (const Path& path : {Path{"charge"}, Path{"payment_intent"}}) {
      const std::string alias = texts_.At(invoice_, path);
      if (!alias.empty()) paid.add_aliases(alias);
    }
    out.facts.push_back(std::move(fact));
    event->subscriptions.push_back(std::move(out));
  }

 private:
  std::optional<Line> LongestLine() const {
    std::optional<Line> longest;
    const JsonValue* lines = invoice_.At({"lines", "data"});
    if (lines == nullptr) return longest;
    for (const JsonValue& item : lines->items()) {
      std::optional<Line> line =
          BoughtPeriod(item, settings_.subject_metadata_key, texts_);
      if (line && (!longest || line->ends_at > longest->ends_at)) {
        longest = std::move(line);
      }
    }
    return longest;
  }

  const JsonValue& invoice_;
  const StripeSettings& settings_;
  TextReader& texts_;
};

void ReadSubscriptionDeleted(const JsonValue& subscription,
                             const StripeSettings& settings, TextReader& texts,
                             ProviderEvent* event) {
  SubscriptionFacts out;
  out.provider_subscription_id = texts.At(subscription, {"id"});
  if (out.provider_subscription_id.empty()) {
    event->ignored = "subscription_without_id";
    return;
  }
  out.customer_id = texts.At(subscription, {"customer"});
  out.subject =
      texts.At(subscription, {"metadata", settings.subject_metadata_key});
  const JsonValue* items = subscription.At({"items", "data"});
  if (items != nullptr && items->items().size() == 1) {
    out.product_id = texts.First(items->items()[0], {{"price"}, {"plan"}});
  }
  Fact fact = MakeFact(pb::FACT_LAYER_PROVIDER, event->occurred_at);
  // The period may run on for a month after an end at once; ended_at is when
  // access stops.
  *fact.mutable_ended()->mutable_ended_at() = ToProto(
      InstantAt(subscription, {"ended_at"}).value_or(event->occurred_at));
  out.facts.push_back(std::move(fact));
  event->subscriptions.push_back(std::move(out));
}

}  // namespace

absl::Status StripeAdapter::Verify(const Delivery& delivery,
                                   absl::Time now) const {
  return VerifyStripeSignature(delivery.Header("Stripe-Signature").value_or(""),
                               delivery.body, settings_.secrets, now,
                               settings_.signature_tolerance);
}

absl::StatusOr<ProviderEvent> StripeAdapter::Parse(
    absl::string_view body) const {
  ASSIGN_OR_RETURN(const JsonValue root, ParseJson(body));
  if (!root.IsObject()) return Malformed("body", "must be a JSON object");
  ProviderEvent event;
  TextReader texts;
  const JsonValue* id = root.Find("id");
  if (id != nullptr && id->has_lone_surrogate()) {
    return Malformed("id", "must be well-formed text");
  }
  if (id != nullptr) event.event_id = std::string(id->AsString().value_or(""));
  RETURN_IF_ERROR(ValidateEventId(event.event_id));
  event.type = texts.At(root, {"type"});
  if (event.type.empty()) {
    return Malformed("type", "must be 1 to 255 bytes of text");
  }
  // Part of the event's key, so a text that cannot be one is not passed over.
  const JsonValue* account = root.Find("account");
  if (account != nullptr && !account->IsNull() && account->AsString() != "") {
    event.account = texts.At(root, {"account"});
    if (event.account.empty()) {
      return Malformed("account", "must be 1 to 255 bytes of text");
    }
  }
  const JsonValue* livemode = root.Find("livemode");
  if (livemode != nullptr && !livemode->AsBool().has_value()) {
    return Malformed("livemode", "must be true or false");
  }
  event.livemode = livemode == nullptr || *livemode->AsBool();
  const auto created = InstantAt(root, {"created"});
  if (!created) return Malformed("created", "must be Unix seconds");
  event.occurred_at = *created;
  const JsonValue* object = root.At({"data", "object"});
  if (object == nullptr || !object->IsObject()) {
    return Malformed("data.object", "must be an object");
  }

  if (event.type == "invoice.paid" ||
      event.type == "invoice.payment_succeeded") {
    InvoicePaid(*object, settings_, texts).ReadInto(&event);
  } else if (event.type == "customer.subscription.deleted") {
    ReadSubscriptionDeleted(*object, settings_, texts, &event);
  } else {
    event.ignored = "type_carries_no_fact";
  }
  RETURN_IF_ERROR(texts.status());
  return event;
}

}  // namespace tenure::providers
