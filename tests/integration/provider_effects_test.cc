// What each provider event does to a row: one line here for each line of the
// table that the adapters are built from. Those of Stripe and of Standard
// Webhooks go through their adapters; the other providers' say by hand the
// facts that their adapters will have to say (FactsByHand in the name), so that
// the facts are seen to suffice.
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/proto_time.h"
#include "common/domain/fold.h"
#include "common/domain/lifecycle.h"
#include "common/providers/standard_webhooks_adapter.h"
#include "common/providers/stripe_adapter.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace tenure {
namespace {

namespace pb = ::tenure::subscription::v1;
using domain::Fact;
using domain::Status;
using Instant = std::optional<absl::Time>;

// Every history begins at Day(0); the first paid period ends at Day(30).
absl::Time Day(double n) {
  return absl::FromUnixSeconds(1'772'323'200) + absl::Hours(24) * n;
}

std::string Unix(double day) {
  return absl::StrCat(absl::ToUnixSeconds(Day(day)));
}

// Policy of the plan, stamped by the store.
constexpr absl::Duration kGrace = absl::Hours(24 * 7);
constexpr absl::Duration kLeeway = absl::Hours(3);
constexpr char kPlan[] = "pro";
constexpr int64_t kPrice = 900;

// ---- facts; the first argument of each is its order_at ----

Fact NewFact(double day, pb::FactLayer layer = pb::FACT_LAYER_PROVIDER) {
  Fact fact;
  fact.set_layer(layer);
  *fact.mutable_order_at() = ToProto(Day(day));
  return fact;
}

Fact Created(double day, Instant trial_ends_at = std::nullopt) {
  Fact fact = NewFact(day);
  *fact.mutable_created()->mutable_starts_at() = ToProto(Day(day));
  if (trial_ends_at) {
    *fact.mutable_created()->mutable_trial_ends_at() = ToProto(*trial_ends_at);
  }
  return fact;
}

// A period of a subscription that renews by itself.
Fact Paid(double day, const std::string& key, double from, double to,
          bool will_renew = true) {
  Fact fact = NewFact(day, pb::FACT_LAYER_MONEY);
  auto& paid = *fact.mutable_paid();
  paid.set_payment_key(key);
  *paid.mutable_period_starts_at() = ToProto(Day(from));
  *paid.mutable_period_ends_at() = ToProto(Day(to));
  paid.set_amount_minor(kPrice);
  paid.set_currency("EUR");
  paid.set_will_renew(will_renew);
  return fact;
}

// A prepaid term: it stands behind the one before and renews nothing.
Fact Prepaid(double day, const std::string& key, double from, double to) {
  Fact fact = Paid(day, key, from, to, /*will_renew=*/false);
  fact.mutable_paid()->set_stacked(true);
  return fact;
}

Fact PaymentFailed(double day, const std::string& key) {
  Fact fact = NewFact(day, pb::FACT_LAYER_MONEY);
  fact.mutable_payment_failed()->set_payment_key(key);
  return fact;
}

// The provider says itself until when grace lasts.
Fact PaymentFailedWithGrace(double day, const std::string& key, Instant grace) {
  Fact fact = PaymentFailed(day, key);
  auto& failed = *fact.mutable_payment_failed();
  failed.set_grace_by_provider(true);
  if (grace) *failed.mutable_grace_period_ends_at() = ToProto(*grace);
  return fact;
}

Fact CancelScheduled(double day, Instant cancel_at = std::nullopt) {
  Fact fact = NewFact(day);
  auto& cancel = *fact.mutable_cancel_scheduled();
  if (cancel_at) *cancel.mutable_cancel_at() = ToProto(*cancel_at);
  return fact;
}

Fact CancelReverted(double day) {
  Fact fact = NewFact(day);
  fact.mutable_cancel_reverted();
  return fact;
}

Fact Ended(double day, double ended_at) {
  Fact fact = NewFact(day);
  *fact.mutable_ended()->mutable_ended_at() = ToProto(Day(ended_at));
  return fact;
}

Fact Paused(double day, double pause_at) {
  Fact fact = NewFact(day);
  *fact.mutable_paused()->mutable_pause_at() = ToProto(Day(pause_at));
  return fact;
}

Fact Resumed(double day, Instant expires_at = std::nullopt) {
  Fact fact = NewFact(day);
  auto& resumed = *fact.mutable_resumed();
  if (expires_at) *resumed.mutable_expires_at() = ToProto(*expires_at);
  return fact;
}

Fact Extended(double day, double expires_at) {
  Fact fact = NewFact(day);
  *fact.mutable_extended()->mutable_expires_at() = ToProto(Day(expires_at));
  return fact;
}

// 0: the whole payment.
Fact Refunded(double day, const std::string& payment, const std::string& key,
              int64_t amount_minor = 0) {
  Fact fact = NewFact(day, pb::FACT_LAYER_MONEY);
  auto& refunded = *fact.mutable_refunded();
  refunded.set_payment_key(payment);
  refunded.set_refund_key(key);
  refunded.set_amount_minor(amount_minor);
  refunded.set_full(amount_minor == 0);
  return fact;
}

Fact RefundReversed(double day, const std::string& key) {
  Fact fact = NewFact(day, pb::FACT_LAYER_MONEY);
  fact.mutable_refund_reversed()->set_refund_key(key);
  return fact;
}

Fact DisputeOpened(double day, const std::string& payment) {
  Fact fact = NewFact(day, pb::FACT_LAYER_MONEY);
  fact.mutable_dispute_opened()->set_payment_key(payment);
  return fact;
}

Fact Revoked(double day, double revoked_at) {
  Fact fact = NewFact(day);
  *fact.mutable_revoked()->mutable_revoked_at() = ToProto(Day(revoked_at));
  return fact;
}

Fact PlanChanged(double day, Instant effective_at = std::nullopt) {
  Fact fact = NewFact(day);
  fact.set_plan("max");
  auto& changed = *fact.mutable_plan_changed();
  if (effective_at) *changed.mutable_effective_at() = ToProto(*effective_at);
  return fact;
}

Fact Snapshot(double day, const std::string& state, double period_ends_at,
              bool will_renew = true, Instant cancel_at = std::nullopt) {
  Fact fact = NewFact(day);
  auto& snapshot = *fact.mutable_snapshot();
  snapshot.set_provider_state(state);
  snapshot.set_will_renew(will_renew);
  *snapshot.mutable_period_ends_at() = ToProto(Day(period_ends_at));
  if (cancel_at) *snapshot.mutable_cancel_at() = ToProto(*cancel_at);
  return fact;
}

// ---- histories before the event ----

using Facts = std::vector<Fact>;

Facts operator+(Facts facts, Fact fact) {
  facts.push_back(std::move(fact));
  return facts;
}

Facts None() { return {}; }
Facts Pending() { return {Created(0)}; }
Facts Trialing() { return {Created(0, Day(14))}; }
Facts Live() {
  Fact paid = Paid(0, "in_1", 0, 30);
  paid.mutable_paid()->add_aliases("ch_1");
  paid.mutable_paid()->add_aliases("pi_1");
  *paid.mutable_paid()->mutable_leeway_until() = ToProto(Day(30) + kLeeway);
  return {Created(0), std::move(paid)};
}
Facts Canceling() { return Live() + CancelScheduled(10, Day(30)); }
// The renewal of Day(30) failed at Day(31).
Facts PastDue() { return Live() + PaymentFailed(31, "in_2"); }
Facts PausedInPeriod() { return Live() + Paused(10, 10); }
Facts OnePrepaid() { return {Created(0), Prepaid(0, "tx_1", 0, 30)}; }

// ---- expectations ----

// The C column.
struct Renewal {
  bool will_renew = true;
  Instant cancel_at = std::nullopt;
};
const Renewal kRenews{true, std::nullopt};
const Renewal kStopped{false, std::nullopt};
Renewal StopsAt(double day) { return {false, Day(day)}; }

absl::StatusOr<providers::ProviderEvent> ParseStripe(const std::string& body) {
  providers::StripeSettings settings;
  settings.renewal_leeway = kLeeway;
  return providers::StripeAdapter(std::move(settings)).Parse(body);
}

absl::StatusOr<providers::ProviderEvent> ParseStandardWebhooks(
    const std::string& body) {
  providers::StandardWebhooksSettings settings;
  settings.renewal_leeway = kLeeway;
  absl::StatusOr<providers::ProviderEvent> event =
      providers::StandardWebhooksAdapter(std::move(settings)).Parse(body);
  // It comes in a header.
  if (event.ok()) event->event_id = "msg_1";
  return event;
}

struct Row {
  // The provider's event; part of the test's name.
  std::string event = "";
  Facts before = {};
  // One of the two: a body, or the facts that an adapter has to say.
  std::string body = "";
  Facts facts = {};
  absl::StatusOr<providers::ProviderEvent> (*parse)(const std::string&) =
      ParseStripe;
  // When the row is looked at.
  double now = 0;
  // The columns of the table.
  Status status = Status::kPending;
  Instant expires_at = std::nullopt;
  Instant grace_period_ends_at = std::nullopt;
  Renewal renewal = {};
  int64_t refunded_minor = 0;
  std::string plan = kPlan;
};

std::ostream& operator<<(std::ostream& out, const Row& row) {
  return out << row.event;
}

// What the store adds to a fact when it is first stored, with the catalogue
// {price_pro: pro, price_max: max}.
void Stamp(const std::string& product_id, Fact& fact) {
  fact.set_plan_revision(1);
  if (fact.has_created() || fact.has_paid() || fact.has_snapshot() ||
      fact.has_plan_changed()) {
    if (fact.plan().empty()) {
      fact.set_plan(product_id == "price_max" ? "max" : kPlan);
    }
  }
  const auto grace =
      ToProto(absl::FromUnixSeconds(fact.order_at().seconds()) + kGrace);
  if (fact.has_payment_failed() && !fact.payment_failed().grace_by_provider()) {
    *fact.mutable_payment_failed()->mutable_grace_period_ends_at() = grace;
  }
  if (fact.has_snapshot() && fact.snapshot().provider_state() == "past_due") {
    *fact.mutable_snapshot()->mutable_grace_period_ends_at() = grace;
  }
  if (fact.has_dispute_opened()) {
    fact.mutable_dispute_opened()->set_suspends(true);
  }
}

std::string Show(const Instant& instant) {
  return instant
             ? absl::StrCat("day ", absl::ToDoubleSeconds(*instant - Day(0)) /
                                        (24 * 60 * 60))
             : "none";
}

class ProviderEffects : public ::testing::TestWithParam<Row> {};

TEST_P(ProviderEffects, AreThoseOfTheTable) {
  const Row& row = GetParam();
  std::vector<domain::OrderedFact> ordered;
  const auto add = [&](const std::string& event_id,
                       const std::string& product_id, Facts facts) {
    for (size_t i = 0; i < facts.size(); ++i) {
      facts[i].set_ordinal(static_cast<int32_t>(i));
      Stamp(product_id, facts[i]);
      ASSERT_OK_AND_ASSIGN(domain::OrderedFact fact,
                           domain::MakeOrderedFact(event_id, facts[i]));
      ordered.push_back(std::move(fact));
    }
  };
  for (size_t i = 0; i < row.before.size(); ++i) {
    add(absl::StrCat("before_", i), "price_pro", {row.before[i]});
  }
  if (row.body.empty()) {
    add("event", "price_pro", row.facts);
  } else {
    ASSERT_OK_AND_ASSIGN(const providers::ProviderEvent event,
                         row.parse(row.body));
    for (const providers::SubscriptionFacts& facts : event.subscriptions) {
      if (facts.provider_subscription_id.empty()) {
        // The store finds the subscription by one of the payment's names.
        EXPECT_THAT(facts.payment_names,
                    ::testing::Contains(::testing::AnyOf("ch_1", "pi_1")));
      } else {
        EXPECT_EQ(facts.provider_subscription_id, "sub_1");
      }
      add(event.event_id, facts.product_id, facts.facts);
    }
  }

  ASSERT_OK_AND_ASSIGN(const domain::Projection projection,
                       domain::Fold(ordered));
  const domain::Subscription is =
      domain::Lapse(projection.subscription, Day(row.now));
  int64_t refunded_minor = 0;
  for (const domain::PaidTerm& term : projection.terms) {
    refunded_minor += term.refunded_minor;
  }
  EXPECT_EQ(std::string(domain::StatusName(is.status)),
            std::string(domain::StatusName(row.status)));
  EXPECT_EQ(Show(is.expires_at), Show(row.expires_at));
  EXPECT_EQ(Show(is.grace_period_ends_at), Show(row.grace_period_ends_at));
  EXPECT_EQ(is.will_renew, row.renewal.will_renew);
  EXPECT_EQ(Show(is.cancel_at), Show(row.renewal.cancel_at));
  EXPECT_EQ(refunded_minor, row.refunded_minor);
  if (!row.before.empty() || is.status != Status::kPending) {
    EXPECT_EQ(is.plan, row.plan);
  }
  EXPECT_FALSE(is.needs_reconcile);
}

std::string NameOf(const ::testing::TestParamInfo<Row>& info) {
  return absl::StrReplaceAll(info.param.event,
                             {{".", "_"}, {" ", "_"}, {"/", "_"}, {"-", "_"}});
}

// ---- Stripe: bodies as far as they are read ----

std::string Event(const std::string& type, double day,
                  const std::string& object, const std::string& previous = "") {
  return absl::StrCat(
      R"({"id":"evt_1","object":"event","livemode":true,"created":)", Unix(day),
      R"(,"type":")", type, R"(","data":{"object":)", object,
      previous.empty() ? "" : R"(,"previous_attributes":)", previous, "}}");
}

struct StripeSubscription {
  std::string status = "active";
  double period_ends_at = 30;
  // Further members, each behind a comma.
  std::string more = "";
  std::string price = "price_pro";

  // Basil's shape: the period is the item's.
  std::string Json() const {
    return absl::StrCat(
        R"({"id":"sub_1","object":"subscription","customer":"cus_1",)",
        R"("status":")", status, R"(","start_date":)", Unix(0),
        R"(,"pause_collection":null,"items":{"data":[{"price":{"id":")", price,
        R"("},"current_period_end":)", Unix(period_ends_at), "}]}", more, "}");
  }
};

std::string InvoiceLine(const std::string& price, int64_t amount, double from,
                        double to, bool proration = false) {
  return absl::StrCat(R"({"object":"line_item","amount":)", amount,
                      R"(,"parent":{"type":"subscription_item_details",)",
                      R"("subscription_item_details":{"proration":)",
                      proration ? "true" : "false",
                      R"(}},"pricing":{"price_details":{"price":")", price,
                      R"("}},"period":{"start":)", Unix(from), R"(,"end":)",
                      Unix(to), "}}");
}

std::string Invoice(const std::string& id, const std::string& reason,
                    int64_t amount_paid, const std::string& lines) {
  return absl::StrCat(
      R"({"id":")", id, R"(","object":"invoice","customer":"cus_1",)",
      R"("currency":"eur","billing_reason":")", reason, R"(","amount_paid":)",
      amount_paid,
      R"(,"parent":{"subscription_details":{"subscription":"sub_1"}},)",
      R"("lines":{"data":[)", lines, "]}}");
}

std::string Charge(int64_t refunded, bool full) {
  return absl::StrCat(
      R"({"id":"ch_1","object":"charge","amount":900,"customer":"cus_1",)",
      R"("payment_intent":"pi_1","amount_refunded":)", refunded,
      R"(,"refunded":)", full ? "true" : "false",
      R"(,"refunds":{"data":[{"id":"re_1","created":)", Unix(10),
      R"(,"amount":)", refunded, R"(,"status":"succeeded"}]}})");
}

std::string Refund(const std::string& status) {
  return absl::StrCat(R"({"id":"re_1","object":"refund","amount":900,)",
                      R"("charge":"ch_1","payment_intent":"pi_1","status":")",
                      status, "\"}");
}

std::string Dispute(const std::string& status) {
  return absl::StrCat(R"({"id":"dp_1","object":"dispute","amount":900,)",
                      R"("charge":"ch_1","payment_intent":"pi_1","status":")",
                      status, "\"}");
}

std::vector<Row> StripeRows() {
  const std::string kUpdated = "customer.subscription.updated";
  const std::string kCreated = "customer.subscription.created";
  const std::string trial = absl::StrCat(R"(,"trial_end":)", Unix(14));
  const std::string ended = absl::StrCat(R"(,"ended_at":)", Unix(10));
  const std::string canceling =
      absl::StrCat(R"(,"cancel_at_period_end":true,"cancel_at":)", Unix(30));
  std::vector<Row> rows;

  // customer.subscription.created: per status; E only of a trial.
  rows.push_back(
      {.event = kCreated + " incomplete",
       .body = Event(kCreated, 0, StripeSubscription{"incomplete"}.Json()),
       .status = Status::kPending,
       .renewal = kStopped});
  rows.push_back({.event = kCreated + " active",
                  .body = Event(kCreated, 0, StripeSubscription{}.Json()),
                  .status = Status::kPending,
                  .renewal = kRenews});
  rows.push_back(
      {.event = kCreated + " trialing",
       .body =
           Event(kCreated, 0, StripeSubscription{"trialing", 14, trial}.Json()),
       .status = Status::kTrialing,
       .expires_at = Day(14),
       .renewal = kRenews});
  rows.push_back({.event = kCreated + " trialing cancel_at_period_end",
                  .body = Event(kCreated, 0,
                                StripeSubscription{
                                    "trialing", 14,
                                    trial + R"(,"cancel_at_period_end":true)"}
                                    .Json()),
                  .status = Status::kTrialing,
                  .expires_at = Day(14),
                  .renewal = StopsAt(14)});
  rows.push_back({.event = kUpdated + " incomplete_expired",
                  .before = Pending(),
                  .body = Event(kUpdated, 1,
                                StripeSubscription{"incomplete_expired"}.Json(),
                                R"({"status":"incomplete"})"),
                  .now = 1,
                  .status = Status::kCanceled,
                  .renewal = kStopped});

  // invoice.paid.
  rows.push_back({.event = "invoice.paid subscription_create",
                  .before = Pending(),
                  .body = Event("invoice.paid", 0,
                                Invoice("in_1", "subscription_create", 900,
                                        InvoiceLine("price_pro", 900, 0, 30))),
                  .status = Status::kActive,
                  .expires_at = Day(30),
                  .renewal = kRenews});
  rows.push_back({.event = "invoice.paid subscription_cycle",
                  .before = PastDue(),
                  .body = Event("invoice.paid", 33,
                                Invoice("in_2", "subscription_cycle", 900,
                                        InvoiceLine("price_pro", 900, 30, 60))),
                  .now = 33,
                  .status = Status::kActive,
                  .expires_at = Day(60),
                  .renewal = kRenews});
  rows.push_back({.event = "invoice.paid of an older period",
                  .before = Live() + Paid(30, "in_2", 30, 60),
                  .body = Event("invoice.paid", 31,
                                Invoice("in_0", "subscription_cycle", 900,
                                        InvoiceLine("price_pro", 900, 0, 20))),
                  .now = 31,
                  .status = Status::kActive,
                  .expires_at = Day(60),
                  .renewal = kRenews});
  // A renewal that failed is not made good by a paid change of the price.
  rows.push_back(
      {.event = "invoice.paid subscription_update of prorations",
       .before = PastDue(),
       .body =
           Event("invoice.paid", 32,
                 Invoice("in_3", "subscription_update", 500,
                         InvoiceLine("price_pro", -400, 32, 60, true) + "," +
                             InvoiceLine("price_max", 900, 32, 60, true))),
       .now = 32,
       .status = Status::kPastDue,
       .expires_at = Day(30),
       .grace_period_ends_at = Day(38),
       .renewal = kRenews,
       .plan = "max"});
  rows.push_back({.event = "invoice.paid of 0",
                  .before = Trialing(),
                  .body = Event("invoice.paid", 0,
                                Invoice("in_1", "subscription_create", 0,
                                        InvoiceLine("price_pro", 0, 0, 14))),
                  .status = Status::kTrialing,
                  .expires_at = Day(14),
                  .renewal = kStopped});

  // invoice.payment_failed, status past_due.
  rows.push_back({.event = "invoice.payment_failed",
                  .before = Live(),
                  .body = Event("invoice.payment_failed", 31,
                                Invoice("in_2", "subscription_cycle", 0,
                                        InvoiceLine("price_pro", 900, 30, 60))),
                  .now = 31,
                  .status = Status::kPastDue,
                  .expires_at = Day(30),
                  .grace_period_ends_at = Day(38),
                  .renewal = kRenews});
  rows.push_back({.event = "invoice.payment_failed again",
                  .before = PastDue(),
                  .body = Event("invoice.payment_failed", 34,
                                Invoice("in_2", "subscription_cycle", 0,
                                        InvoiceLine("price_pro", 900, 30, 60))),
                  .now = 34,
                  .status = Status::kPastDue,
                  .expires_at = Day(30),
                  .grace_period_ends_at = Day(38),
                  .renewal = kRenews});
  rows.push_back(
      {.event = kUpdated + " past_due",
       .before = Live(),
       .body = Event(kUpdated, 31, StripeSubscription{"past_due", 60}.Json(),
                     R"({"status":"active"})"),
       .now = 31,
       .status = Status::kPastDue,
       .expires_at = Day(30),
       .grace_period_ends_at = Day(38),
       .renewal = kRenews});

  // customer.subscription.updated, cancel_at_period_end.
  rows.push_back(
      {.event = kUpdated + " cancel_at_period_end true",
       .before = Live(),
       .body = Event(kUpdated, 10,
                     StripeSubscription{"active", 30, canceling}.Json(),
                     R"({"cancel_at_period_end":false,)"
                     R"("cancel_at":null})"),
       .now = 10,
       .status = Status::kActive,
       .expires_at = Day(30),
       .renewal = StopsAt(30)});
  rows.push_back({.event = kUpdated + " cancel_at_period_end false",
                  .before = Canceling(),
                  .body = Event(kUpdated, 12, StripeSubscription{}.Json(),
                                R"({"cancel_at_period_end":true})"),
                  .now = 12,
                  .status = Status::kActive,
                  .expires_at = Day(30),
                  .renewal = kRenews});
  rows.push_back(
      {.event = kUpdated + " another price",
       .before = Live(),
       .body =
           Event(kUpdated, 12, StripeSubscription{.price = "price_max"}.Json(),
                 R"({"items":{"data":[{"price":{"id":"price_pro"}}]}})"),
       .now = 12,
       .status = Status::kActive,
       .expires_at = Day(30),
       .renewal = kRenews,
       .plan = "max"});
  // The period turned and nothing is proven to be paid.
  rows.push_back(
      {.event = kUpdated + " period turned",
       .before = Live(),
       .body = Event(kUpdated, 30, StripeSubscription{"active", 60}.Json(),
                     R"({"latest_invoice":"in_1"})"),
       .now = 30,
       .status = Status::kActive,
       .expires_at = Day(30),
       .renewal = kRenews});

  // customer.subscription.paused, resumed.
  rows.push_back({.event = "customer.subscription.paused",
                  .before = Live(),
                  .body = Event("customer.subscription.paused", 10,
                                StripeSubscription{"paused"}.Json(),
                                R"({"status":"trialing"})"),
                  .now = 10,
                  .status = Status::kPaused,
                  .expires_at = Day(30),
                  .renewal = kRenews});
  rows.push_back({.event = "customer.subscription.paused after the trial",
                  .before = Trialing(),
                  .body = Event("customer.subscription.paused", 14,
                                StripeSubscription{"paused", 14}.Json(),
                                R"({"status":"trialing"})"),
                  .now = 14,
                  .status = Status::kPaused,
                  .expires_at = Day(14),
                  .renewal = kStopped});
  rows.push_back(
      {.event = "customer.subscription.resumed",
       .before = PausedInPeriod(),
       .body = Event("customer.subscription.resumed", 12,
                     StripeSubscription{}.Json(), R"({"status":"paused"})"),
       .now = 12,
       .status = Status::kActive,
       .expires_at = Day(30),
       .renewal = kRenews});
  rows.push_back({.event = kUpdated + " pause_collection",
                  .before = Live(),
                  .body = absl::StrReplaceAll(
                      Event(kUpdated, 10, StripeSubscription{}.Json(),
                            R"({"pause_collection":null})"),
                      {{R"("pause_collection":null,"items")",
                        R"("pause_collection":{"behavior":"void"},"items")"}}),
                  .now = 10,
                  .status = Status::kActive,
                  .expires_at = Day(30),
                  .renewal = kRenews});

  // Status unpaid: past_due, expired at G.
  const std::string unpaid =
      Event(kUpdated, 35, StripeSubscription{"unpaid", 60}.Json(),
            R"({"status":"past_due"})");
  rows.push_back({.event = kUpdated + " unpaid",
                  .before = PastDue(),
                  .body = unpaid,
                  .now = 35,
                  .status = Status::kPastDue,
                  .expires_at = Day(30),
                  .grace_period_ends_at = Day(38),
                  .renewal = kRenews});
  rows.push_back({.event = kUpdated + " unpaid after grace",
                  .before = PastDue(),
                  .body = unpaid,
                  .now = 38,
                  .status = Status::kExpired,
                  .expires_at = Day(30),
                  .grace_period_ends_at = Day(38),
                  .renewal = kRenews});

  // customer.subscription.deleted.
  rows.push_back(
      {.event = "customer.subscription.deleted at once",
       .before = Live(),
       .body = Event("customer.subscription.deleted", 10,
                     StripeSubscription{"canceled", 30, ended}.Json()),
       .now = 10,
       .status = Status::kExpired,
       .expires_at = Day(10),
       .renewal = kStopped});
  rows.push_back({.event = "customer.subscription.deleted at period end",
                  .before = Canceling(),
                  .body = Event("customer.subscription.deleted", 30,
                                StripeSubscription{
                                    "canceled", 30,
                                    absl::StrCat(R"(,"ended_at":)", Unix(30))}
                                    .Json()),
                  .now = 30,
                  .status = Status::kExpired,
                  .expires_at = Day(30),
                  .renewal = StopsAt(30)});
  rows.push_back({.event = "customer.subscription.deleted unpaid",
                  .before = PastDue(),
                  .body = Event("customer.subscription.deleted", 35,
                                StripeSubscription{
                                    "canceled", 60,
                                    absl::StrCat(R"(,"ended_at":)", Unix(35))}
                                    .Json()),
                  .now = 35,
                  .status = Status::kExpired,
                  .expires_at = Day(30),
                  .renewal = kStopped});
  rows.push_back(
      {.event = kUpdated + " canceled",
       .before = Live(),
       .body =
           Event(kUpdated, 10, StripeSubscription{"canceled", 30, ended}.Json(),
                 R"({"status":"active"})"),
       .now = 10,
       .status = Status::kExpired,
       .expires_at = Day(10),
       .renewal = kStopped});

  // Refunds. A revoked row tells no renewal, though nothing was cancelled.
  rows.push_back({.event = "charge.refunded full",
                  .before = Live(),
                  .body = Event("charge.refunded", 10, Charge(900, true)),
                  .now = 10,
                  .status = Status::kRevoked,
                  .expires_at = Day(10),
                  .renewal = kStopped,
                  .refunded_minor = 900});
  rows.push_back({.event = "charge.refunded in part",
                  .before = Live(),
                  .body = Event("charge.refunded", 10, Charge(300, false)),
                  .now = 10,
                  .status = Status::kActive,
                  .expires_at = Day(30),
                  .renewal = kRenews,
                  .refunded_minor = 300});
  rows.push_back({.event = "refund.created",
                  .before = Live(),
                  .body = Event("refund.created", 10, Refund("succeeded")),
                  .now = 10,
                  .status = Status::kRevoked,
                  .expires_at = Day(10),
                  .renewal = kStopped,
                  .refunded_minor = 900});
  rows.push_back({.event = "refund.updated failed",
                  .before = Live() + Refunded(10, "ch_1", "re_1"),
                  .body = Event("refund.updated", 12, Refund("failed")),
                  .now = 12,
                  .status = Status::kActive,
                  .expires_at = Day(30),
                  .renewal = kRenews});

  // Disputes.
  rows.push_back(
      {.event = "charge.dispute.created",
       .before = Live(),
       .body = Event("charge.dispute.created", 10, Dispute("needs_response")),
       .now = 10,
       .status = Status::kPaused,
       .expires_at = Day(30),
       .renewal = kRenews});
  rows.push_back({.event = "charge.dispute.created inquiry",
                  .before = Live(),
                  .body = Event("charge.dispute.created", 10,
                                Dispute("warning_needs_response")),
                  .now = 10,
                  .status = Status::kActive,
                  .expires_at = Day(30),
                  .renewal = kRenews});
  rows.push_back({.event = "charge.dispute.closed won",
                  .before = Live() + DisputeOpened(10, "ch_1"),
                  .body = Event("charge.dispute.closed", 12, Dispute("won")),
                  .now = 12,
                  .status = Status::kActive,
                  .expires_at = Day(30),
                  .renewal = kRenews});
  rows.push_back({.event = "charge.dispute.closed lost",
                  .before = Live() + DisputeOpened(10, "ch_1"),
                  .body = Event("charge.dispute.closed", 12, Dispute("lost")),
                  .now = 12,
                  .status = Status::kRevoked,
                  .expires_at = Day(30),
                  .renewal = kStopped,
                  .refunded_minor = 900});

  rows.push_back(
      {.event = "entitlements.active_entitlement_summary.updated",
       .before = Live(),
       .body = Event("entitlements.active_entitlement_summary.updated", 10,
                     R"({"object":"entitlements.active_entitlement_summary",)"
                     R"("customer":"cus_1"})"),
       .now = 10,
       .status = Status::kActive,
       .expires_at = Day(30),
       .renewal = kRenews});
  return rows;
}
INSTANTIATE_TEST_SUITE_P(Stripe, ProviderEffects,
                         ::testing::ValuesIn(StripeRows()), NameOf);

// ---- the others: facts by hand ----

// Row that says nothing new to the subscription.
Row Unchanged(const std::string& event, Facts facts = {}) {
  return {.event = event,
          .before = Live(),
          .facts = std::move(facts),
          .now = 10,
          .status = Status::kActive,
          .expires_at = Day(30),
          .renewal = kRenews};
}

// First failure of a renewal, with the plan's grace.
Row FirstFailure(const std::string& event) {
  return {.event = event,
          .before = Live(),
          .facts = {PaymentFailed(31, "in_2")},
          .now = 31,
          .status = Status::kPastDue,
          .expires_at = Day(30),
          .grace_period_ends_at = Day(38),
          .renewal = kRenews};
}

Row SecondFailure(const std::string& event) {
  Row row = FirstFailure(event);
  row.before = PastDue();
  row.facts = {PaymentFailed(34, "in_2")};
  row.now = 34;
  return row;
}

// A payment for the second period, with whatever else the event says.
Row Renews(const std::string& event, Facts before, bool will_renew = true) {
  return {.event = event,
          .before = std::move(before),
          .facts = {Paid(33, "in_2", 30, 60, will_renew)},
          .now = 33,
          .status = Status::kActive,
          .expires_at = Day(60),
          .renewal = will_renew ? kRenews : kStopped};
}

Row FirstPayment(const std::string& event, Facts before = Pending()) {
  return {.event = event,
          .before = std::move(before),
          .facts = {Paid(0, "in_1", 0, 30)},
          .status = Status::kActive,
          .expires_at = Day(30),
          .renewal = kRenews};
}

Row TrialBegins(const std::string& event) {
  return {.event = event,
          .facts = {Created(0, Day(14)), Snapshot(0, "trialing", 14)},
          .status = Status::kTrialing,
          .expires_at = Day(14),
          .renewal = kRenews};
}

Row StaysPending(const std::string& event) {
  return {.event = event,
          .facts = {Created(0)},
          .status = Status::kPending,
          .renewal = kStopped};
}

Row CancelRow(const std::string& event, Instant cancel_at = Day(30)) {
  return {.event = event,
          .before = Live(),
          .facts = {CancelScheduled(10, cancel_at)},
          .now = 10,
          .status = Status::kActive,
          .expires_at = Day(30),
          .renewal = StopsAt(30)};
}

Row RevertRow(const std::string& event) {
  return {.event = event,
          .before = Canceling(),
          .facts = {CancelReverted(12)},
          .now = 12,
          .status = Status::kActive,
          .expires_at = Day(30),
          .renewal = kRenews};
}

Row EndsAtOnce(const std::string& event) {
  return {.event = event,
          .before = Live(),
          .facts = {Ended(10, 10)},
          .now = 10,
          .status = Status::kExpired,
          .expires_at = Day(10),
          .renewal = kStopped};
}

Row EndsAtPeriodEnd(const std::string& event, Facts before = Live()) {
  return {.event = event,
          .before = std::move(before),
          .facts = {Ended(30.1, 30)},
          .now = 30.1,
          .status = Status::kExpired,
          .expires_at = Day(30),
          .renewal = kStopped};
}

Row PausesAtOnce(const std::string& event) {
  return {.event = event,
          .before = Live(),
          .facts = {Paused(10, 10)},
          .now = 10,
          .status = Status::kPaused,
          .expires_at = Day(30),
          .renewal = kRenews};
}

// Said in the period, with effect from its end.
Row PausesAtPeriodEnd(const std::string& event, Facts facts) {
  return {.event = event,
          .before = Live(),
          .facts = std::move(facts),
          .now = 30.2,
          .status = Status::kPaused,
          .expires_at = Day(30),
          .renewal = kRenews};
}

Row Resumes(const std::string& event) {
  return {.event = event,
          .before = PausedInPeriod(),
          .facts = {Resumed(12)},
          .now = 12,
          .status = Status::kActive,
          .expires_at = Day(30),
          .renewal = kRenews};
}

Row FullRefund(const std::string& event) {
  return {.event = event,
          .before = Live(),
          .facts = {Refunded(10, "in_1", "re_1")},
          .now = 10,
          .status = Status::kRevoked,
          .expires_at = Day(10),
          .renewal = kStopped,
          .refunded_minor = 900};
}

Row PartialRefund(const std::string& event) {
  return {.event = event,
          .before = Live(),
          .facts = {Refunded(10, "in_1", "re_1", 300)},
          .now = 10,
          .status = Status::kActive,
          .expires_at = Day(30),
          .renewal = kRenews,
          .refunded_minor = 300};
}

std::vector<Row> PaddleRows() {
  Row created = FirstPayment("subscription.created active", None());
  created.facts = {Created(0), Paid(0, "txn_1", 0, 30)};
  // Ended for good while it was paused.
  Row paused_until_it_ends = EndsAtPeriodEnd(
      "subscription.canceled while paused", Live() + Paused(30, 30));
  paused_until_it_ends.facts = {Ended(35, 35)};
  paused_until_it_ends.now = 35;
  Row resumed = Resumes("subscription.resumed with a new period");
  resumed.facts = {Resumed(12, Day(42))};
  resumed.expires_at = Day(42);
  return {
      created,
      TrialBegins("subscription.trialing"),
      FirstPayment("subscription.activated", Trialing()),
      Renews("transaction.completed", PastDue()),
      {.event = "subscription.updated scheduled_change cancel",
       .before = Live(),
       .facts = {Snapshot(10, "active", 30, false, Day(30))},
       .now = 10,
       .status = Status::kActive,
       .expires_at = Day(30),
       .renewal = StopsAt(30)},
      {.event = "subscription.updated scheduled_change null again",
       .before = Canceling(),
       .facts = {Snapshot(12, "active", 30)},
       .now = 12,
       .status = Status::kActive,
       .expires_at = Day(30),
       .renewal = kRenews},
      Unchanged("subscription.updated scheduled_change pause",
                {Snapshot(10, "active", 30), Paused(10, 30)}),
      {.event = "subscription.updated scheduled_change resume",
       .before = PausedInPeriod(),
       .facts = {Snapshot(12, "paused", 30)},
       .now = 12,
       .status = Status::kPaused,
       .expires_at = Day(30),
       .renewal = kRenews},
      FirstFailure("subscription.past_due"),
      SecondFailure("transaction.payment_failed"),
      PausesAtOnce("subscription.paused"),
      PausesAtPeriodEnd("subscription.paused at period end", {Paused(30, 30)}),
      paused_until_it_ends,
      resumed,
      EndsAtOnce("subscription.canceled"),
      FullRefund("adjustment.created refund approved"),
      PartialRefund("adjustment.updated refund of a part approved"),
      {.event = "adjustment.updated chargeback approved",
       .before = Live(),
       .facts = {DisputeOpened(10, "in_1")},
       .now = 10,
       .status = Status::kPaused,
       .expires_at = Day(30),
       .renewal = kRenews},
  };
}
INSTANTIATE_TEST_SUITE_P(PaddleFactsByHand, ProviderEffects,
                         ::testing::ValuesIn(PaddleRows()), NameOf);

std::vector<Row> AppleRows() {
  Row subscribed = FirstPayment("SUBSCRIBED", None());
  subscribed.facts = {Created(0), Paid(0, "in_1", 0, 30)};
  Row resubscribed =
      Renews("SUBSCRIBED RESUBSCRIBE", Canceling() + Ended(30.1, 30));
  resubscribed.facts = {Paid(33, "in_2", 33, 63)};
  resubscribed.expires_at = Day(63);
  Row reversed = Unchanged("REFUND_REVERSED", {RefundReversed(12, "re_1")});
  reversed.before = Live() + Refunded(10, "in_1", "re_1");
  reversed.now = 12;
  Row refund = FullRefund("REFUND");
  Fact same_plan = PlanChanged(12);
  same_plan.set_plan(kPlan);
  Row withdrawn = Unchanged("DID_CHANGE_RENEWAL_PREF withdrawn", {same_plan});
  withdrawn.before = Live() + PlanChanged(10, Day(30));
  withdrawn.now = 30.01;
  // The rest of the first transaction is Apple's to pay back, and tells no
  // refund here; the new one ends later, or earlier after a longer one.
  const auto replacing = [](double to) {
    Fact fact = Paid(10, "in_2", 10, to);
    fact.mutable_paid()->set_replaces("in_1");
    fact.set_plan("max");
    return fact;
  };
  Row upgrade{.event = "DID_CHANGE_RENEWAL_PREF UPGRADE",
              .before = Live(),
              .facts = {replacing(40)},
              .now = 10,
              .status = Status::kActive,
              .expires_at = Day(40),
              .renewal = kRenews,
              .plan = "max"};
  Row shorter = upgrade;
  shorter.event = "DID_CHANGE_RENEWAL_PREF UPGRADE to a shorter period";
  shorter.before = {Created(0), Paid(0, "in_1", 0, 365)};
  // The older of two transactions: the present right stays.
  Row older = Renews("REFUND of an older transaction",
                     Live() + Paid(30, "in_2", 30, 60));
  older.facts = {Refunded(33, "in_1", "re_1")};
  older.refunded_minor = 900;
  return {
      subscribed,
      resubscribed,
      Renews("DID_RENEW", Live()),
      Renews("DID_RENEW autoRenewStatus off", Live(), false),
      Renews("DID_RENEW BILLING_RECOVERY", PastDue()),
      Renews("OFFER_REDEEMED", Live()),
      {.event = "DID_FAIL_TO_RENEW",
       .before = Live(),
       .facts = {PaymentFailedWithGrace(29.9, "in_2", std::nullopt)},
       .now = 29.9,
       .status = Status::kPastDue,
       .expires_at = Day(30),
       .renewal = kRenews},
      {.event = "DID_FAIL_TO_RENEW GRACE_PERIOD",
       .before = Live(),
       .facts = {PaymentFailedWithGrace(30, "in_2", Day(46))},
       .now = 30,
       .status = Status::kPastDue,
       .expires_at = Day(30),
       .grace_period_ends_at = Day(46),
       .renewal = kRenews},
      // Past due without access is EXPIRED once time has passed (R1).
      {.event = "GRACE_PERIOD_EXPIRED",
       .before = Live() + PaymentFailedWithGrace(30, "in_2", Day(46)),
       .facts = {PaymentFailedWithGrace(46, "in_2", Day(46))},
       .now = 46,
       .status = Status::kExpired,
       .expires_at = Day(30),
       .grace_period_ends_at = Day(46),
       .renewal = kRenews},
      EndsAtPeriodEnd("EXPIRED VOLUNTARY"),
      EndsAtPeriodEnd("EXPIRED BILLING_RETRY", PastDue()),
      CancelRow("DID_CHANGE_RENEWAL_STATUS AUTO_RENEW_DISABLED"),
      RevertRow("DID_CHANGE_RENEWAL_STATUS AUTO_RENEW_ENABLED"),
      Unchanged("DID_CHANGE_RENEWAL_PREF DOWNGRADE",
                {PlanChanged(10, Day(30))}),
      {.event = "DID_CHANGE_RENEWAL_PREF DOWNGRADE at the end",
       .before = Live(),
       .facts = {PlanChanged(10, Day(30))},
       .now = 30.01,
       .status = Status::kActive,
       .expires_at = Day(30),
       .renewal = kRenews,
       .plan = "max"},
      withdrawn,
      upgrade,
      shorter,
      {.event = "RENEWAL_EXTENDED",
       .before = Live(),
       .facts = {Extended(10, 37)},
       .now = 10,
       .status = Status::kActive,
       .expires_at = Day(37),
       .renewal = kRenews},
      Unchanged("RENEWAL_EXTENSION SUMMARY"),
      refund,
      older,
      reversed,
      Unchanged("REFUND_DECLINED"),
      {.event = "REVOKE",
       .before = Live(),
       .facts = {Revoked(10, 9.5)},
       .now = 10,
       .status = Status::kRevoked,
       .expires_at = Day(9.5),
       .renewal = kStopped},
      Unchanged("ONE_TIME_CHARGE"),
      Unchanged("CONSUMPTION_REQUEST"),
      Unchanged("PRICE_INCREASE"),
      Unchanged("EXTERNAL_PURCHASE_TOKEN"),
  };
}
INSTANTIATE_TEST_SUITE_P(AppleFactsByHand, ProviderEffects,
                         ::testing::ValuesIn(AppleRows()), NameOf);

std::vector<Row> GoogleRows() {
  Row purchased = FirstPayment("4 PURCHASED", None());
  purchased.facts = {Created(0), Paid(0, "GPA.1", 0, 30)};
  const Facts in_grace = Live() + PaymentFailedWithGrace(30, "GPA.2", Day(37));
  Row revoked{.event = "12 REVOKED",
              .before = Live(),
              .facts = {Revoked(10, 10), Refunded(10, "in_1", "re_1")},
              .now = 10,
              .status = Status::kRevoked,
              .expires_at = Day(10),
              .renewal = kStopped,
              .refunded_minor = 900};
  Row voided = FullRefund("voided purchase refundType 1");
  Row part = PartialRefund("voided purchase refundType 2");
  Row changed = Unchanged("17 ITEMS_CHANGED", {PlanChanged(10)});
  changed.plan = "max";
  Row deferred = Unchanged("9 DEFERRED", {Extended(10, 40)});
  deferred.expires_at = Day(40);
  return {
      purchased,
      Renews("2 RENEWED", Live()),
      Renews("1 RECOVERED", in_grace),
      RevertRow("7 RESTARTED"),
      {.event = "6 IN_GRACE",
       .before = Live(),
       .facts = {PaymentFailedWithGrace(30, "GPA.2", Day(37))},
       .now = 30,
       .status = Status::kPastDue,
       .expires_at = Day(30),
       .grace_period_ends_at = Day(37),
       .renewal = kRenews},
      // Google moves it.
      {.event = "6 IN_GRACE again",
       .before = in_grace,
       .facts = {PaymentFailedWithGrace(31, "GPA.2", Day(40))},
       .now = 31,
       .status = Status::kPastDue,
       .expires_at = Day(30),
       .grace_period_ends_at = Day(40),
       .renewal = kRenews},
      // Past due without access is EXPIRED once time has passed (R1); the
      // hold's expiryTime is never the paid end.
      {.event = "5 ON_HOLD",
       .before = in_grace,
       .facts = {PaymentFailedWithGrace(37, "GPA.2", std::nullopt)},
       .now = 37,
       .status = Status::kExpired,
       .expires_at = Day(30),
       .renewal = kRenews},
      CancelRow("3 CANCELED"),
      CancelRow("18 CANCELLATION_SCHEDULED"),
      EndsAtPeriodEnd("3 CANCELED after a hold", in_grace),
      PausesAtOnce("10 PAUSED"),
      PausesAtPeriodEnd("10 PAUSED at period end", {Paused(30, 30)}),
      PausesAtPeriodEnd("11 PAUSE_SCHEDULE_CHANGED at period end",
                        {Paused(10, 30)}),
      Unchanged("11 PAUSE_SCHEDULE_CHANGED", {Paused(10, 30)}),
      revoked,
      voided,
      part,
      EndsAtPeriodEnd("13 EXPIRED"),
      {.event = "20 PENDING_PURCHASE_CANCELED",
       .before = Pending(),
       .facts = {Ended(1, 1)},
       .now = 1,
       .status = Status::kCanceled,
       .renewal = kStopped},
      deferred,
      changed,
      Unchanged("8 PRICE_CHANGE_CONFIRMED", {Snapshot(10, "active", 30)}),
      Unchanged("19 PRICE_CHANGE_UPDATED", {Snapshot(10, "active", 30)}),
      Unchanged("22 PRICE_STEP_UP_CONSENT", {Snapshot(10, "active", 30)}),
  };
}
INSTANTIATE_TEST_SUITE_P(GoogleFactsByHand, ProviderEffects,
                         ::testing::ValuesIn(GoogleRows()), NameOf);

std::vector<Row> PayPalRows() {
  return {
      StaysPending("BILLING.SUBSCRIPTION.CREATED"),
      FirstPayment("BILLING.SUBSCRIPTION.ACTIVATED"),
      Renews("PAYMENT.SALE.COMPLETED", PastDue()),
      FirstFailure("BILLING.SUBSCRIPTION.PAYMENT.FAILED"),
      PausesAtOnce("BILLING.SUBSCRIPTION.SUSPENDED"),
      // next_billing_time is gone by then: the end is the stored one.
      CancelRow("BILLING.SUBSCRIPTION.CANCELLED", std::nullopt),
      EndsAtPeriodEnd("BILLING.SUBSCRIPTION.EXPIRED"),
      FullRefund("PAYMENT.SALE.REFUNDED"),
      PartialRefund("PAYMENT.SALE.REFUNDED in part"),
      FullRefund("PAYMENT.SALE.REVERSED"),
  };
}
INSTANTIATE_TEST_SUITE_P(PayPalFactsByHand, ProviderEffects,
                         ::testing::ValuesIn(PayPalRows()), NameOf);

// An order paid while the one before still runs.
Row Stacks(const std::string& event) {
  return {.event = event,
          .before = OnePrepaid(),
          .facts = {Prepaid(10, "tx_2", 30, 60)},
          .now = 10,
          .status = Status::kActive,
          .expires_at = Day(60),
          .renewal = kStopped};
}

// The first of two orders is given back: the second moves left.
Row SegmentRemoved(const std::string& event) {
  return {.event = event,
          .before = OnePrepaid() + Prepaid(5, "tx_2", 30, 60),
          .facts = {Refunded(10, "tx_1", "re_1")},
          .now = 10,
          .status = Status::kActive,
          .expires_at = Day(40),
          .renewal = kStopped,
          .refunded_minor = 900};
}

Row PrepaidUnchanged(const std::string& event, Facts facts = {}) {
  return {.event = event,
          .before = OnePrepaid(),
          .facts = std::move(facts),
          .now = 10,
          .status = Status::kActive,
          .expires_at = Day(30),
          .renewal = kStopped};
}

Row PrepaidAfterEnd(const std::string& event) {
  return {.event = event,
          .before = OnePrepaid(),
          .facts = {Prepaid(35, "tx_2", 35, 65)},
          .now = 35,
          .status = Status::kActive,
          .expires_at = Day(65),
          .renewal = kStopped};
}

std::vector<Row> WeChatPayRows() {
  Row order_refunded = FullRefund("REFUND.SUCCESS of the only order");
  order_refunded.before = OnePrepaid();
  order_refunded.facts = {Refunded(10, "tx_1", "re_1", 900)};
  return {
      Stacks("TRANSACTION.SUCCESS"),
      PrepaidAfterEnd("TRANSACTION.SUCCESS after the end"),
      SegmentRemoved("REFUND.SUCCESS"),
      order_refunded,
      PrepaidUnchanged("REFUND.ABNORMAL"),
      PrepaidUnchanged("REFUND.CLOSED"),
  };
}
INSTANTIATE_TEST_SUITE_P(WeChatPayFactsByHand, ProviderEffects,
                         ::testing::ValuesIn(WeChatPayRows()), NameOf);

std::vector<Row> WeChatAutoDeductRows() {
  return {
      // Permission to charge, no money yet.
      {.event = "contract ADD",
       .facts = {Created(0), CancelReverted(0)},
       .status = Status::kPending,
       .renewal = kRenews},
      RevertRow("contract ADD again"),
      CancelRow("contract DELETE", std::nullopt),
      Renews("deduct success", PastDue()),
      FirstFailure("deduct NOTENOUGH"),
      SecondFailure("deduct RULELIMIT"),
      // Unknown: it is queried, and says nothing until then (R10).
      Unchanged("deduct SYSTEMERROR"),
  };
}
INSTANTIATE_TEST_SUITE_P(WeChatAutoDeductFactsByHand, ProviderEffects,
                         ::testing::ValuesIn(WeChatAutoDeductRows()), NameOf);

std::vector<Row> AlipayRows() {
  Row closed = FullRefund("TRADE_CLOSED with refund_fee");
  closed.before = OnePrepaid();
  closed.facts = {Refunded(10, "tx_1", "re_1")};
  // refund_fee is the sum of all refunds so far.
  Fact sum = Refunded(12, "tx_1", "re_2");
  sum.mutable_refunded()->set_full(false);
  sum.mutable_refunded()->set_refunded_total_minor(500);
  Row partial = PrepaidUnchanged("TRADE_SUCCESS with refund_fee", {sum});
  partial.before = OnePrepaid() + Refunded(11, "tx_1", "re_1", 300);
  partial.now = 12;
  partial.refunded_minor = 500;
  return {
      Stacks("TRADE_SUCCESS"),
      PrepaidUnchanged("TRADE_FINISHED", {Prepaid(10, "tx_1", 0, 30)}),
      partial,
      closed,
      SegmentRemoved("TRADE_CLOSED with gmt_refund of the first order"),
      {.event = "TRADE_CLOSED unpaid",
       .before = Pending(),
       .facts = {Ended(1, 1)},
       .now = 1,
       .status = Status::kCanceled,
       .renewal = kStopped},
      RevertRow("agreement sign"),
      CancelRow("agreement unsign", std::nullopt),
      // Nothing is sent: time alone ends it.
      {.event = "agreement validity end",
       .before = Live() + CancelScheduled(10, Day(30)),
       .now = 30,
       .status = Status::kExpired,
       .expires_at = Day(30),
       .renewal = StopsAt(30)},
  };
}
INSTANTIATE_TEST_SUITE_P(AlipayFactsByHand, ProviderEffects,
                         ::testing::ValuesIn(AlipayRows()), NameOf);

std::vector<Row> LemonSqueezyRows() {
  Row payment = FirstPayment("subscription_payment_success");
  return {
      TrialBegins("subscription_created on_trial"),
      // renews_at is no proof of money; subscription_payment_success is.
      {.event = "subscription_created active",
       .facts = {Created(0), Snapshot(0, "active", 30)},
       .status = Status::kPending,
       .renewal = kRenews},
      Unchanged("subscription_updated", {Snapshot(10, "active", 30)}),
      RevertRow("subscription_resumed"),
      Resumes("subscription_unpaused"),
      payment,
      Renews("subscription_payment_recovered", PastDue()),
      FirstFailure("subscription_payment_failed"),
      SecondFailure("subscription_payment_failed again"),
      CancelRow("subscription_cancelled"),
      EndsAtPeriodEnd("subscription_expired"),
      PausesAtOnce("subscription_paused"),
      FullRefund("subscription_payment_refunded"),
      FullRefund("order_refunded"),
  };
}
INSTANTIATE_TEST_SUITE_P(LemonSqueezyFactsByHand, ProviderEffects,
                         ::testing::ValuesIn(LemonSqueezyRows()), NameOf);

// ---- Standard Webhooks: bodies of the contract ----

std::string Rfc3339(double day) {
  return absl::FormatTime("\"%Y-%m-%dT%H:%M:%E*SZ\"", Day(day),
                          absl::UTCTimeZone());
}

// The row with a body in place of the facts. `members` are those of `data`
// besides the ones that every event has.
Row Told(Row row, double day, const std::string& members,
         const std::string& type = "") {
  row.parse = ParseStandardWebhooks;
  row.facts.clear();
  row.body = absl::StrCat(R"({"type":")", type.empty() ? row.event : type,
                          R"(","timestamp":)", Rfc3339(day),
                          R"(,"data":{"subscription_id":"sub_1","version":1)",
                          members.empty() ? "" : ",", members, "}}");
  return row;
}

std::string Period(double from, double to) {
  return absl::StrCat(R"("period":{"starts_at":)", Rfc3339(from),
                      R"(,"ends_at":)", Rfc3339(to), "}");
}

std::string Payment(const std::string& id) {
  return absl::StrCat(R"("payment":{"id":")", id,
                      R"(","amount_minor":900,"currency":"EUR"})");
}

std::vector<Row> StandardWebhooksRows() {
  const std::string first = absl::StrCat(Period(0, 30), ",", Payment("in_1"));
  const std::string second = absl::StrCat(Period(30, 60), ",", Payment("in_2"));
  const std::string refund_all =
      R"("payment":{"id":"in_1"},"refund":{"id":"re_1","full":true})";
  const Row revoked{.event = "subscription.revoked",
                    .before = Live(),
                    .now = 10,
                    .status = Status::kRevoked,
                    .expires_at = Day(10),
                    .renewal = kStopped};
  const Row past_due{.event = "subscription.past_due",
                     .before = Live(),
                     .now = 30,
                     .status = Status::kPastDue,
                     .expires_at = Day(30),
                     .grace_period_ends_at = Day(33),
                     .renewal = kRenews};
  Row trial = TrialBegins("subscription.trialing");
  Row canceled_later = CancelRow("subscription.canceled later");
  canceled_later.expires_at = Day(20);
  canceled_later.renewal = StopsAt(20);
  Row moved = Resumes("subscription.resumed with a new end");
  moved.expires_at = Day(32);
  Row changes_now = Unchanged("subscription.plan_changed");
  changes_now.plan = "max";
  Row changes_later = Unchanged("subscription.plan_changed later");
  Row upgraded = Unchanged("subscription.active that replaces");
  upgraded.expires_at = Day(40);
  upgraded.plan = "max";
  Row restored = Unchanged("subscription.refund_reversed");
  restored.before = Live() + Refunded(8, "in_1", "re_1");
  restored.renewal = kRenews;
  Row told_twice = FirstPayment("subscription.renewed told twice", Live());
  return {
      Told(StaysPending("subscription.created"), 0, ""),
      Told(std::move(trial), 0,
           absl::StrCat(R"("trial":{"starts_at":)", Rfc3339(0),
                        R"(,"ends_at":)", Rfc3339(14), "}")),
      Told(FirstPayment("subscription.active"), 0, first),
      Told(FirstPayment("subscription.active first of all", None()), 0, first,
           "subscription.active"),
      Told(Renews("subscription.renewed", PastDue()), 33, second),
      Told(Renews("subscription.renewed after a pause", PausedInPeriod()), 33,
           second, "subscription.renewed"),
      Told(std::move(told_twice), 0.1, first, "subscription.renewed"),
      Told(past_due, 30,
           absl::StrCat(R"("payment":{"id":"in_2"},"grace_until":)",
                        Rfc3339(33))),
      Told(FirstFailure("subscription.past_due by policy"), 31,
           R"("payment":{"id":"in_2"})", "subscription.past_due"),
      Told(CancelRow("subscription.canceled"), 10,
           R"("cancel_at_period_end":true)"),
      Told(std::move(canceled_later), 10,
           absl::StrCat(R"("ends_at":)", Rfc3339(20)), "subscription.canceled"),
      Told(EndsAtOnce("subscription.canceled at once"), 10,
           absl::StrCat(R"("ends_at":)", Rfc3339(10)), "subscription.canceled"),
      Told(RevertRow("subscription.uncanceled"), 12, ""),
      Told(PausesAtOnce("subscription.paused"), 10, ""),
      Told(PausesAtPeriodEnd("subscription.paused later", {}), 10,
           absl::StrCat(R"("pause_at":)", Rfc3339(30)), "subscription.paused"),
      Told(Resumes("subscription.resumed"), 12, ""),
      Told(std::move(moved), 12, absl::StrCat(R"("ends_at":)", Rfc3339(32)),
           "subscription.resumed"),
      Told(std::move(changes_now), 10, R"("product_id":"price_max")"),
      Told(std::move(changes_later), 9,
           absl::StrCat(R"("product_id":"price_max","effective_at":)",
                        Rfc3339(30)),
           "subscription.plan_changed"),
      Told(std::move(upgraded), 10,
           absl::StrCat(R"("product_id":"price_max",)", Period(10, 40),
                        R"(,"payment":{"id":"in_2","amount_minor":900,)",
                        R"("currency":"EUR","replaces":"in_1"})"),
           "subscription.active"),
      Told(revoked, 10, ""),
      Told(FullRefund("subscription.refunded"), 10, refund_all),
      Told(PartialRefund("subscription.refunded in part"), 10,
           R"("payment":{"id":"in_1"},)"
           R"("refund":{"id":"re_1","amount_minor":300})",
           "subscription.refunded"),
      Told(std::move(restored), 10, R"("refund":{"id":"re_1"})"),
      Told(Unchanged("customer.renamed"), 10, ""),
  };
}
INSTANTIATE_TEST_SUITE_P(StandardWebhooks, ProviderEffects,
                         ::testing::ValuesIn(StandardWebhooksRows()), NameOf);

}  // namespace
}  // namespace tenure
