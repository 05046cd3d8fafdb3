#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/proto_time.h"
#include "common/providers/stripe_events.h"

namespace tenure::providers {
namespace {

namespace pb = ::tenure::subscription::v1;

// One thing the subscription sells, and the end of its period.
struct Item {
  std::string product_id;
  std::optional<absl::Time> period_ends_at;
};

// Tenure's word for a status of Stripe; empty for one that ends the
// subscription or is not known.
std::string StateOf(absl::string_view status) {
  if (status == "active" || status == "trialing" || status == "past_due" ||
      status == "paused") {
    return std::string(status);
  }
  if (status == "incomplete") return "pending";
  // The retries are over and Stripe leaves it to the merchant: grace decides.
  if (status == "unpaid") return "past_due";
  return "";
}

class SubscriptionReader {
 public:
  SubscriptionReader(const JsonValue& data, const StripeSettings& settings,
                     TextReader& texts, const ProviderEvent& event)
      : object_(*data.Find("object")),
        settings_(settings),
        texts_(texts),
        event_(event),
        status_(texts.At(object_, {"status"})),
        state_(StateOf(status_)),
        cancel_at_(InstantAt(object_, {"cancel_at"})),
        canceling_(cancel_at_ || IsTrue(object_, {"cancel_at_period_end"})) {
    const JsonValue* previous = data.Find("previous_attributes");
    if (previous != nullptr && previous->IsObject()) previous_ = previous;
  }

  void ReadInto(ProviderEvent* event) {
    SubscriptionFacts out;
    out.provider_subscription_id = texts_.At(object_, {"id"});
    if (out.provider_subscription_id.empty()) {
      event->ignored = "subscription_without_id";
      return;
    }
    if (!Ended() && state_.empty()) {
      event->ignored = "unknown_status";
      return;
    }
    if (!Ended() && HasBadInstant()) {
      event->quarantined = "instant_invalid";
      return;
    }
    out.customer_id = texts_.At(object_, {"customer"});
    out.subject =
        texts_.At(object_, {"metadata", settings_.subject_metadata_key});
    const std::vector<std::string> previous_products = PreviousProducts();
    std::vector<Alternative> candidates;
    for (const Item& item : Items()) {
      const bool plan_changed =
          !previous_products.empty() && !item.product_id.empty() &&
          std::find(previous_products.begin(), previous_products.end(),
                    item.product_id) == previous_products.end();
      candidates.push_back({item.product_id, FactsFor(item, plan_changed)});
    }
    AddStripeFacts(std::move(out), std::move(candidates), event);
  }

 private:
  bool Ended() const {
    return event_.type == "customer.subscription.deleted" ||
           status_ == "canceled" || status_ == "incomplete_expired";
  }

  // Among those that are read while it lives. An end is taken in any case: it
  // is one, whenever it was.
  bool HasBadInstant() const {
    for (const absl::string_view member :
         {"current_period_end", "cancel_at", "trial_end"}) {
      if (IsBadInstant(object_, {member})) return true;
    }
    const JsonValue* list = object_.At({"items", "data"});
    return list != nullptr &&
           std::any_of(list->items().begin(), list->items().end(),
                       [](const JsonValue& item) {
                         return IsBadInstant(item, {"current_period_end"});
                       });
  }

  // The item that reaches furthest first; at least one.
  std::vector<Item> Items() {
    const auto top = InstantAt(object_, {"current_period_end"});
    std::vector<Item> items;
    if (const JsonValue* list = object_.At({"items", "data"})) {
      for (const JsonValue& element : list->items()) {
        Item item;
        item.product_id = texts_.First(element, {{"price"}, {"plan"}});
        // Since 2025 only here, and each item has its own (C069).
        item.period_ends_at = InstantAt(element, {"current_period_end"});
        if (!item.period_ends_at) item.period_ends_at = top;
        if (!item.product_id.empty()) items.push_back(std::move(item));
      }
    }
    if (items.empty()) items.push_back({texts_.At(object_, {"plan"}), top});
    std::stable_sort(items.begin(), items.end(),
                     [](const Item& a, const Item& b) {
                       return a.period_ends_at.value_or(absl::InfinitePast()) >
                              b.period_ends_at.value_or(absl::InfinitePast());
                     });
    return items;
  }

  // What was sold before the event, where it says so.
  std::vector<std::string> PreviousProducts() {
    std::vector<std::string> products;
    if (previous_ == nullptr) return products;
    const auto add = [&](std::string product) {
      if (!product.empty()) products.push_back(std::move(product));
    };
    if (const JsonValue* list = previous_->At({"items", "data"})) {
      for (const JsonValue& item : list->items()) {
        add(texts_.First(item, {{"price"}, {"plan"}}));
      }
    }
    if (products.empty()) add(texts_.At(*previous_, {"plan"}));
    return products;
  }

  bool Changed(absl::string_view member) const {
    return previous_ != nullptr && previous_->Find(member) != nullptr;
  }

  // Whether the event changed more than the cancellation or the plan, so that
  // facts of these alone would leave something out.
  bool ChangedMore(const Item& item, bool plan_changed) const {
    for (const absl::string_view member :
         {"status", "current_period_end", "trial_end", "start_date", "start"}) {
      if (Changed(member)) return true;
    }
    if (!Changed("items")) return false;
    if (!plan_changed) return true;
    const JsonValue* list = previous_->At({"items", "data"});
    if (list == nullptr) return true;
    for (const JsonValue& element : list->items()) {
      const auto end = InstantAt(element, {"current_period_end"});
      if (end && end != item.period_ends_at) return true;
    }
    return false;
  }

  std::optional<absl::Time> CancelAt(const Item& item) const {
    if (!canceling_ || cancel_at_) return cancel_at_;
    return item.period_ends_at;
  }

  std::vector<Fact> FactsFor(const Item& item, bool plan_changed) {
    std::vector<Fact> facts;
    if (Ended()) {
      // The period may run on for a month after an end at once; ended_at is
      // when access stops.
      Fact fact = MakeFact(pb::FACT_LAYER_PROVIDER, event_);
      *fact.mutable_ended()->mutable_ended_at() = ToProto(
          InstantAt(object_, {"ended_at"}).value_or(event_.occurred_at));
      facts.push_back(std::move(fact));
      return facts;
    }
    if (event_.type == "customer.subscription.created") {
      facts.push_back(Created());
      if (state_ != "pending") facts.push_back(Snapshot(item));
      return facts;
    }
    std::vector<Fact> changes = Changes(item, plan_changed);
    const bool paused = state_ == "paused";
    const bool resumed =
        state_ == "active" && (event_.type == "customer.subscription.resumed" ||
                               (previous_ != nullptr &&
                                texts_.At(*previous_, {"status"}) == "paused"));
    // Two events tell of a pause and of its end, often in the same second: each
    // says one and the same thing, so that they do not contradict each other.
    if (paused) {
      facts.push_back(Paused());
    } else if (resumed) {
      Fact fact = MakeFact(pb::FACT_LAYER_PROVIDER, event_);
      fact.mutable_resumed();
      facts.push_back(std::move(fact));
    } else if (changes.empty() || ChangedMore(item, plan_changed)) {
      facts.push_back(Snapshot(item));
    }
    for (Fact& change : changes) facts.push_back(std::move(change));
    return facts;
  }

  // What previous_attributes shows to be new.
  std::vector<Fact> Changes(const Item& item, bool plan_changed) const {
    std::vector<Fact> facts;
    if (previous_ == nullptr) return facts;
    if (plan_changed) {
      facts.push_back(MakeFact(pb::FACT_LAYER_PROVIDER, event_));
      facts.back().mutable_plan_changed();
    }
    if (canceling_ &&
        (Changed("cancel_at") || Changed("cancel_at_period_end"))) {
      facts.push_back(MakeFact(pb::FACT_LAYER_PROVIDER, event_));
      pb::CancelScheduled& cancel = *facts.back().mutable_cancel_scheduled();
      if (const auto at = CancelAt(item))
        *cancel.mutable_cancel_at() = ToProto(*at);
    } else if (!canceling_ && (InstantAt(*previous_, {"cancel_at"}) ||
                               IsTrue(*previous_, {"cancel_at_period_end"}))) {
      facts.push_back(MakeFact(pb::FACT_LAYER_PROVIDER, event_));
      facts.back().mutable_cancel_reverted();
    }
    return facts;
  }

  std::optional<absl::Time> StartsAt() const {
    auto at = InstantAt(object_, {"start_date"});
    if (!at) at = InstantAt(object_, {"start"});
    if (!at) at = InstantAt(object_, {"created"});
    return at;
  }

  // Of a trial that is not over.
  std::optional<absl::Time> TrialEndsAt() const {
    if (state_ != "trialing") return std::nullopt;
    return InstantAt(object_, {"trial_end"});
  }

  Fact Created() const {
    Fact fact = MakeFact(pb::FACT_LAYER_PROVIDER, event_);
    pb::Created& created = *fact.mutable_created();
    if (const auto at = StartsAt()) *created.mutable_starts_at() = ToProto(*at);
    if (const auto at = TrialEndsAt()) {
      *created.mutable_trial_ends_at() = ToProto(*at);
    }
    return fact;
  }

  Fact Snapshot(const Item& item) const {
    Fact fact = MakeFact(pb::FACT_LAYER_PROVIDER, event_);
    pb::Snapshot& snapshot = *fact.mutable_snapshot();
    snapshot.set_provider_state(state_);
    snapshot.set_will_renew(!canceling_);
    if (item.period_ends_at) {
      *snapshot.mutable_period_ends_at() = ToProto(*item.period_ends_at);
    }
    if (const auto at = StartsAt())
      *snapshot.mutable_starts_at() = ToProto(*at);
    if (const auto at = TrialEndsAt()) {
      *snapshot.mutable_trial_ends_at() = ToProto(*at);
    }
    if (const auto at = CancelAt(item)) {
      *snapshot.mutable_cancel_at() = ToProto(*at);
    }
    return fact;
  }

  // A trial that ended without a way to pay: the access ended with it, some
  // seconds before the event.
  Fact Paused() const {
    Fact fact = MakeFact(pb::FACT_LAYER_PROVIDER, event_);
    const auto trial_end = InstantAt(object_, {"trial_end"});
    *fact.mutable_paused()->mutable_pause_at() = ToProto(
        trial_end && *trial_end < event_.occurred_at ? *trial_end
                                                     : event_.occurred_at);
    return fact;
  }

  const JsonValue& object_;
  const StripeSettings& settings_;
  TextReader& texts_;
  const ProviderEvent& event_;
  const JsonValue* previous_ = nullptr;
  const std::string status_;
  const std::string state_;
  const std::optional<absl::Time> cancel_at_;
  const bool canceling_;
};

}  // namespace

void AddStripeFacts(SubscriptionFacts facts,
                    std::vector<Alternative> candidates, ProviderEvent* event) {
  for (Alternative& candidate : candidates) {
    for (size_t i = 0; i < candidate.facts.size(); ++i) {
      candidate.facts[i].set_ordinal(static_cast<int32_t>(i));
    }
  }
  facts.product_id = std::move(candidates.front().product_id);
  facts.facts = std::move(candidates.front().facts);
  for (size_t i = 1; i < candidates.size(); ++i) {
    // Of one product only the candidate that reaches furthest.
    const std::string& product = candidates[i].product_id;
    const bool known =
        product == facts.product_id ||
        std::any_of(facts.alternatives.begin(), facts.alternatives.end(),
                    [&](const Alternative& other) {
                      return other.product_id == product;
                    });
    if (!known) facts.alternatives.push_back(std::move(candidates[i]));
  }
  event->subscriptions.push_back(std::move(facts));
}

void ReadStripeSubscription(const JsonValue& data,
                            const StripeSettings& settings, TextReader& texts,
                            ProviderEvent* event) {
  SubscriptionReader(data, settings, texts, *event).ReadInto(event);
}

}  // namespace tenure::providers
