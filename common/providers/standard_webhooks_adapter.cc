#include "common/providers/standard_webhooks_adapter.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/proto_time.h"
#include "common/base/rfc3339.h"
#include "common/base/status_macros.h"

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

// Reads the members of `data`. Null and "" say as little as an absent member
// (C069); all else that is not what the contract wants is a fault and not an
// absent member, so that no word of the sender is passed over.
class MemberReader {
 public:
  explicit MemberReader(const JsonValue& data) : data_(data) {}

  std::string Text(Path path) {
    const JsonValue* value = Find(path);
    if (value == nullptr) return "";
    if (value->has_lone_surrogate()) {
      // A name that cannot be known (C032).
      malformed_.Update(
          Malformed(absl::StrCat("data.", absl::StrJoin(path, ".")),
                    "must be well-formed text"));
      return "";
    }
    const std::optional<absl::string_view> text = value->AsString();
    if (!text || !ValidateText("", *text, 255).ok()) {
      SetFault(path, "invalid");
      return "";
    }
    return std::string(*text);
  }

  std::string RequiredText(Path path) {
    if (Find(path) == nullptr) SetFault(path, "missing");
    return Text(path);
  }

  std::optional<absl::Time> Instant(Path path) {
    const JsonValue* value = Find(path);
    if (value == nullptr) return std::nullopt;
    std::optional<absl::Time> time =
        ParseRfc3339(value->AsString().value_or(""));
    if (!time) SetFault(path, "invalid");
    return time;
  }

  absl::Time RequiredInstant(Path path) {
    if (Find(path) == nullptr) SetFault(path, "missing");
    return Instant(path).value_or(absl::UnixEpoch());
  }

  std::optional<int64_t> Integer(Path path, int64_t min) {
    const JsonValue* value = Find(path);
    if (value == nullptr) return std::nullopt;
    const std::optional<int64_t> number = value->AsInt64();
    if (number && *number >= min) return number;
    SetFault(path, "invalid");
    return std::nullopt;
  }

  int64_t RequiredInteger(Path path, int64_t min) {
    if (Find(path) == nullptr) SetFault(path, "missing");
    return Integer(path, min).value_or(min);
  }

  std::optional<bool> Flag(Path path) {
    const JsonValue* value = Find(path);
    if (value == nullptr) return std::nullopt;
    if (!value->AsBool()) SetFault(path, "invalid");
    return value->AsBool();
  }

  // Keeps the first one.
  void SetFault(Path path, absl::string_view what) {
    if (fault_.empty()) {
      fault_ = absl::StrCat(absl::StrJoin(path, "_"), "_", what);
    }
  }

  // In snake case; empty when there is none.
  const std::string& fault() const { return fault_; }
  // Not OK when the event cannot even be stored as one.
  const absl::Status& malformed() const { return malformed_; }

 private:
  const JsonValue* Find(Path path) const {
    const JsonValue* value = data_.At(path);
    if (value == nullptr || value->IsNull() || value->AsString() == "") {
      return nullptr;
    }
    return value;
  }

  const JsonValue& data_;
  std::string fault_;
  absl::Status malformed_;
};

// Makes the facts of one event.
class FactReader {
 public:
  FactReader(MemberReader& data, const StandardWebhooksSettings& settings,
             absl::Time occurred_at)
      : data_(data), settings_(settings), occurred_at_(occurred_at) {}

  std::vector<Fact> Take() { return std::move(facts_); }

  void ReadCreated() {
    pb::Created& created = *Provider().mutable_created();
    *created.mutable_starts_at() =
        ToProto(data_.Instant({"starts_at"}).value_or(occurred_at_));
  }

  void ReadTrialing() {
    const absl::Time from = data_.RequiredInstant({"trial", "starts_at"});
    const absl::Time to = data_.RequiredInstant({"trial", "ends_at"});
    if (to <= from) data_.SetFault({"trial"}, "invalid");
    pb::Snapshot& snapshot = AddSnapshot("trialing", to);
    *snapshot.mutable_starts_at() = ToProto(from);
    *snapshot.mutable_trial_ends_at() = ToProto(to);
  }

  // One event tells the provider's state and the money.
  void ReadPaid() {
    const absl::Time from = data_.RequiredInstant({"period", "starts_at"});
    const absl::Time to = data_.RequiredInstant({"period", "ends_at"});
    // C072
    if (to <= from) data_.SetFault({"period"}, "invalid");
    const pb::Snapshot& snapshot = AddSnapshot("active", to);
    const bool will_renew = snapshot.will_renew();

    pb::Paid& paid = *Money().mutable_paid();
    paid.set_payment_key(data_.RequiredText({"payment", "id"}));
    paid.set_amount_minor(
        data_.RequiredInteger({"payment", "amount_minor"}, 0));
    paid.set_currency(data_.RequiredText({"payment", "currency"}));
    if (paid.currency().size() != 3 ||
        !std::all_of(paid.currency().begin(), paid.currency().end(),
                     [](unsigned char c) { return absl::ascii_isupper(c); })) {
      data_.SetFault({"payment", "currency"}, "invalid");
    }
    *paid.mutable_paid_at() =
        ToProto(data_.Instant({"payment", "paid_at"}).value_or(occurred_at_));
    paid.set_replaces(data_.Text({"payment", "replaces"}));
    if (!paid.replaces().empty() && paid.replaces() == paid.payment_key()) {
      data_.SetFault({"payment", "replaces"}, "invalid");
    }
    *paid.mutable_period_starts_at() = ToProto(from);
    *paid.mutable_period_ends_at() = ToProto(to);
    paid.set_will_renew(will_renew);
    if (will_renew) {
      *paid.mutable_leeway_until() = ToProto(to + settings_.renewal_leeway);
    }
  }

  void ReadPastDue() {
    pb::PaymentFailed& failed = *Money().mutable_payment_failed();
    failed.set_payment_key(data_.RequiredText({"payment", "id"}));
    if (const auto until = data_.Instant({"grace_until"})) {
      *failed.mutable_grace_period_ends_at() = ToProto(*until);
      failed.set_grace_by_provider(true);
    }
  }

  void ReadCanceled() {
    const auto ends_at = data_.Instant({"ends_at"});
    const bool at_period_end =
        data_.Flag({"cancel_at_period_end"}).value_or(false);
    if (!ends_at && !at_period_end) data_.SetFault({"ends_at"}, "missing");
    if (ends_at && *ends_at <= occurred_at_) {
      *Provider().mutable_ended()->mutable_ended_at() = ToProto(*ends_at);
      return;
    }
    pb::CancelScheduled& cancel = *Provider().mutable_cancel_scheduled();
    if (ends_at) *cancel.mutable_cancel_at() = ToProto(*ends_at);
  }

  void ReadUncanceled() { Provider().mutable_cancel_reverted(); }

  void ReadPaused() {
    *Provider().mutable_paused()->mutable_pause_at() =
        ToProto(data_.Instant({"pause_at"}).value_or(occurred_at_));
  }

  void ReadResumed() {
    pb::Resumed& resumed = *Provider().mutable_resumed();
    if (const auto ends_at = data_.Instant({"ends_at"})) {
      *resumed.mutable_expires_at() = ToProto(*ends_at);
    }
  }

  void ReadPlanChanged() {
    data_.RequiredText({"product_id"});
    pb::PlanChanged& changed = *Provider().mutable_plan_changed();
    if (const auto at = data_.Instant({"effective_at"})) {
      *changed.mutable_effective_at() = ToProto(*at);
    }
  }

  void ReadRevoked() {
    pb::Revoked& revoked = *Provider().mutable_revoked();
    const absl::Time at = data_.Instant({"ends_at"}).value_or(occurred_at_);
    // Of something later nobody can say that it was taken away.
    if (at > occurred_at_) data_.SetFault({"ends_at"}, "invalid");
    *revoked.mutable_revoked_at() = ToProto(at);
    revoked.set_reason(data_.Text({"reason"}));
  }

  void ReadRefunded() {
    pb::Refunded& refunded = *Money().mutable_refunded();
    refunded.set_payment_key(data_.RequiredText({"payment", "id"}));
    refunded.set_refund_key(data_.RequiredText({"refund", "id"}));
    refunded.set_full(data_.Flag({"refund", "full"}).value_or(false));
    const auto amount = data_.Integer({"refund", "amount_minor"}, 1);
    refunded.set_amount_minor(amount.value_or(0));
    if (!refunded.full() && !amount) {
      data_.SetFault({"refund", "amount_minor"}, "missing");
    }
  }

  void ReadRefundReversed() {
    Money().mutable_refund_reversed()->set_refund_key(
        data_.RequiredText({"refund", "id"}));
  }

 private:
  Fact& Add(pb::FactLayer layer) {
    Fact& fact = facts_.emplace_back();
    fact.set_layer(layer);
    *fact.mutable_order_at() = ToProto(occurred_at_);
    fact.set_ordinal(static_cast<int32_t>(facts_.size()) - 1);
    return fact;
  }
  Fact& Provider() { return Add(pb::FACT_LAYER_PROVIDER); }
  Fact& Money() { return Add(pb::FACT_LAYER_MONEY); }

  // Valid until the next fact.
  pb::Snapshot& AddSnapshot(absl::string_view state, absl::Time period_end) {
    const auto ends_at = data_.Instant({"ends_at"});
    const bool cancels = data_.Flag({"cancel_at_period_end"}).value_or(false) ||
                         ends_at.has_value();
    const bool will_renew = data_.Flag({"will_renew"}).value_or(!cancels);
    // Not active any more, by its own word.
    if (ends_at && *ends_at <= occurred_at_) {
      data_.SetFault({"ends_at"}, "invalid");
    }
    // It ends or it renews.
    if (will_renew && cancels) data_.SetFault({"will_renew"}, "invalid");
    pb::Snapshot& snapshot = *Provider().mutable_snapshot();
    snapshot.set_provider_state(std::string(state));
    snapshot.set_will_renew(will_renew);
    *snapshot.mutable_period_ends_at() = ToProto(period_end);
    if (const auto at = data_.Instant({"starts_at"})) {
      *snapshot.mutable_starts_at() = ToProto(*at);
    }
    if (cancels) {
      *snapshot.mutable_cancel_at() = ToProto(ends_at.value_or(period_end));
    }
    return snapshot;
  }

  MemberReader& data_;
  const StandardWebhooksSettings& settings_;
  const absl::Time occurred_at_;
  std::vector<Fact> facts_;
};

struct EventKind {
  absl::string_view type;
  void (FactReader::*read)();
};

constexpr EventKind kEventKinds[] = {
    {"subscription.created", &FactReader::ReadCreated},
    {"subscription.trialing", &FactReader::ReadTrialing},
    {"subscription.active", &FactReader::ReadPaid},
    {"subscription.renewed", &FactReader::ReadPaid},
    {"subscription.past_due", &FactReader::ReadPastDue},
    {"subscription.canceled", &FactReader::ReadCanceled},
    {"subscription.uncanceled", &FactReader::ReadUncanceled},
    {"subscription.paused", &FactReader::ReadPaused},
    {"subscription.resumed", &FactReader::ReadResumed},
    {"subscription.plan_changed", &FactReader::ReadPlanChanged},
    {"subscription.revoked", &FactReader::ReadRevoked},
    {"subscription.refunded", &FactReader::ReadRefunded},
    {"subscription.refund_reversed", &FactReader::ReadRefundReversed},
};

const EventKind* FindKind(absl::string_view type) {
  for (const EventKind& kind : kEventKinds) {
    if (kind.type == type) return &kind;
  }
  return nullptr;
}

// A text that the event cannot be stored without, or that is part of its key.
absl::StatusOr<std::string> KeyText(const JsonValue* value,
                                    absl::string_view field) {
  const absl::string_view text =
      value == nullptr ? "" : value->AsString().value_or("");
  if (!ValidateText("", text, 255).ok()) {
    return Malformed(field, "must be 1 to 255 bytes of text");
  }
  return std::string(text);
}

// Which account, and whether the money is real: part of the event's key, so
// what cannot be read is not passed over.
absl::Status ReadKey(const JsonValue& data, ProviderEvent* event) {
  const JsonValue* account = data.Find("account");
  if (account != nullptr && !account->IsNull() && account->AsString() != "") {
    ASSIGN_OR_RETURN(event->account, KeyText(account, "data.account"));
  }
  const JsonValue* livemode = data.Find("livemode");
  if (livemode != nullptr && !livemode->AsBool()) {
    return Malformed("data.livemode", "must be true or false");
  }
  event->livemode = livemode == nullptr || *livemode->AsBool();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> StandardWebhooksAdapter::Verify(
    const Delivery& delivery, absl::Time now) const {
  return VerifyStandardWebhooksSignature(delivery, settings_.keys, now,
                                         settings_.signature_tolerance);
}

absl::StatusOr<ProviderEvent> StandardWebhooksAdapter::Parse(
    absl::string_view body) const {
  ASSIGN_OR_RETURN(const JsonValue root, ParseJson(body));
  if (!root.IsObject()) return Malformed("body", "must be a JSON object");
  ProviderEvent event;
  ASSIGN_OR_RETURN(event.type, KeyText(root.Find("type"), "type"));
  const JsonValue* timestamp = root.Find("timestamp");
  const std::optional<absl::Time> occurred_at = ParseRfc3339(
      timestamp == nullptr ? "" : timestamp->AsString().value_or(""));
  if (!occurred_at) {
    return Malformed("timestamp", "must be an instant of RFC 3339");
  }
  event.occurred_at = *occurred_at;
  const JsonValue* data = root.Find("data");
  if (data == nullptr || !data->IsObject()) {
    return Malformed("data", "must be an object");
  }
  RETURN_IF_ERROR(ReadKey(*data, &event));

  MemberReader members(*data);
  event.customer_id = members.Text({"customer_id"});
  const EventKind* kind = FindKind(event.type);
  if (kind == nullptr) {
    event.ignored = "type_carries_no_fact";
    return event;
  }
  SubscriptionFacts facts;
  facts.provider_subscription_id = members.RequiredText({"subscription_id"});
  // The sender's own count of its changes. Two events of one instant that say
  // different things are told apart by it, and by nobody else.
  members.RequiredInteger({"version"}, 1);
  facts.customer_id = event.customer_id;
  facts.subject = members.Text({"subject"});
  facts.product_id = members.Text({"product_id"});
  FactReader reader(members, settings_, event.occurred_at);
  (reader.*kind->read)();
  RETURN_IF_ERROR(members.malformed());
  event.quarantined = members.fault();
  if (event.quarantined.empty()) {
    facts.facts = reader.Take();
    event.subscriptions.push_back(std::move(facts));
  }
  return event;
}

absl::StatusOr<std::string> StandardWebhooksAdapter::EventId(
    const Delivery& delivery, const ProviderEvent& /*event*/) const {
  const std::string id(delivery.Header("webhook-id").value_or(""));
  RETURN_IF_ERROR(ValidateEventId(id));
  return id;
}

}  // namespace tenure::providers
