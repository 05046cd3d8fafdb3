#include "common/providers/stripe_adapter.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/crypto.h"
#include "common/base/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace tenure::providers {
namespace {

using test::HasReason;
using test::IsOk;
using test::IsOkAndHolds;
using test::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr absl::Duration kLeeway = absl::Hours(2);

auto IsMalformed() {
  return AllOf(StatusIs(absl::StatusCode::kInvalidArgument),
               HasReason(common::v1::ERROR_REASON_EVENT_MALFORMED));
}
auto HasNoId() {
  return AllOf(StatusIs(absl::StatusCode::kInvalidArgument),
               HasReason(common::v1::ERROR_REASON_EVENT_ID_MISSING));
}

StripeAdapter Adapter() {
  StripeSettings settings;
  settings.secrets.push_back({"test-key", Secret("whsec_test")});
  settings.renewal_leeway = kLeeway;
  return StripeAdapter(std::move(settings));
}

absl::StatusOr<ProviderEvent> Parse(absl::string_view body) {
  return Adapter().Parse(body);
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string Own(const std::string& name) {
  return ReadFile(std::filesystem::path(TENURE_TEST_FIXTURES) / "stripe" /
                  name);
}

// The text with one piece replaced, which must be there.
std::string With(const std::string& text, const std::string& from,
                 const std::string& to) {
  EXPECT_TRUE(absl::StrContains(text, from)) << from;
  return absl::StrReplaceAll(text, {{from, to}});
}

absl::Time Instant(const google::protobuf::Timestamp& timestamp) {
  return FromProto("instant", timestamp).value_or(absl::InfinitePast());
}

absl::Time Utc(const std::string& text) {
  absl::Time time;
  std::string error;
  EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, text, &time, &error))
      << error;
  return time;
}

// A minimal event around any JSON for the id and other members.
std::string Event(const std::string& id_json,
                  const std::string& more = "\"livemode\":true") {
  return absl::StrCat(R"({"object":"event","id":)", id_json,
                      R"(,"type":"test.event","created":1767225600,)", more,
                      R"(,"data":{"object":{}}})");
}

// ---- what each shape of an event says ----

TEST(StripeAdapter, ReadsAPaidInvoiceOfBasil) {
  ASSERT_OK_AND_ASSIGN(const ProviderEvent event,
                       Parse(Own("invoice-paid.basil.json")));
  EXPECT_EQ(event.event_id, "evt_TenurePaid1");
  EXPECT_EQ(event.type, "invoice.paid");
  EXPECT_TRUE(event.livemode);
  EXPECT_EQ(event.account, "");
  EXPECT_EQ(event.ignored, "");
  EXPECT_EQ(event.occurred_at, Utc("2026-01-01T00:00:15Z"));
  ASSERT_THAT(event.subscriptions, SizeIs(1));
  const SubscriptionFacts& facts = event.subscriptions[0];
  EXPECT_EQ(facts.provider_subscription_id, "sub_Tenure1");
  EXPECT_EQ(facts.item_key, "");
  EXPECT_EQ(facts.customer_id, "cus_Tenure1");
  EXPECT_EQ(facts.subject, "user-1");
  // Of the line that bought a period, not of the set-up fee before it.
  EXPECT_EQ(facts.product_id, "price_monthly");
  ASSERT_THAT(facts.facts, SizeIs(1));
  const Fact& fact = facts.facts[0];
  EXPECT_EQ(fact.layer(), subscription::v1::FACT_LAYER_MONEY);
  EXPECT_EQ(Instant(fact.order_at()), event.occurred_at);
  ASSERT_TRUE(fact.has_paid());
  EXPECT_EQ(fact.paid().payment_key(), "in_Tenure1");
  EXPECT_EQ(Instant(fact.paid().period_starts_at()),
            Utc("2026-01-01T00:00:00Z"));
  EXPECT_EQ(Instant(fact.paid().period_ends_at()), Utc("2026-02-01T00:00:00Z"));
  EXPECT_EQ(Instant(fact.paid().leeway_until()),
            Utc("2026-02-01T00:00:00Z") + kLeeway);
  EXPECT_EQ(Instant(fact.paid().paid_at()), Utc("2026-01-01T00:00:12Z"));
  EXPECT_EQ(fact.paid().amount_minor(), 900);
  EXPECT_EQ(fact.paid().currency(), "EUR");
  EXPECT_TRUE(fact.paid().will_renew());
}

TEST(StripeAdapter, ReadsTheOlderShapesOfAPaidInvoice) {
  for (const auto& [name, product] :
       {std::pair("invoice-payment-succeeded.acacia.json", "price_monthly"),
        std::pair("invoice-payment-succeeded.2019.json", "plan_monthly")}) {
    SCOPED_TRACE(name);
    ASSERT_OK_AND_ASSIGN(const ProviderEvent event, Parse(Own(name)));
    ASSERT_THAT(event.subscriptions, SizeIs(1));
    const SubscriptionFacts& facts = event.subscriptions[0];
    EXPECT_EQ(facts.provider_subscription_id, "sub_Tenure2");
    EXPECT_EQ(facts.customer_id, "cus_Tenure2");
    EXPECT_EQ(facts.product_id, product);
    // Metadata of the line, where the invoice has none.
    EXPECT_EQ(facts.subject, "user-2");
    ASSERT_THAT(facts.facts, SizeIs(1));
    EXPECT_EQ(Instant(facts.facts[0].paid().period_ends_at()),
              Utc("2026-02-01T00:00:00Z"));
    EXPECT_THAT(facts.facts[0].paid().aliases(),
                ElementsAre("ch_Tenure1", "pi_Tenure1"));
  }
}

TEST(StripeAdapter, TheTwoEventsOfOnePaymentCarryOneKey) {
  const std::string paid = Own("invoice-paid.basil.json");
  const std::string succeeded =
      With(With(paid, "\"invoice.paid\"", "\"invoice.payment_succeeded\""),
           "evt_TenurePaid1", "evt_TenurePaid1b");
  ASSERT_OK_AND_ASSIGN(const ProviderEvent one, Parse(paid));
  ASSERT_OK_AND_ASSIGN(const ProviderEvent two, Parse(succeeded));
  ASSERT_THAT(two.subscriptions, SizeIs(1));
  EXPECT_EQ(one.subscriptions[0].facts[0].SerializeAsString(),
            two.subscriptions[0].facts[0].SerializeAsString());
}

TEST(StripeAdapter, TheLineThatReachesFurthestIsWhatWasBought) {
  ASSERT_OK_AND_ASSIGN(const ProviderEvent event,
                       Parse(Own("invoice-paid-two-periods.basil.json")));
  ASSERT_THAT(event.subscriptions, SizeIs(1));
  EXPECT_EQ(event.subscriptions[0].product_id, "price_yearly");
  EXPECT_EQ(Instant(event.subscriptions[0].facts[0].paid().period_ends_at()),
            Utc("2027-01-01T00:00:00Z"));
}

TEST(StripeAdapter, WhatBoughtNoPeriodIsRecordedAndChangesNothing) {
  const struct {
    const char* file;
    const char* ignored;
  } kTable[] = {
      {"invoice-paid-one-off.json", "invoice_without_subscription"},
      {"invoice-paid-zero.basil.json", "nothing_paid"},
      {"invoice-paid-metered.2020.json", "no_period_bought"},
      {"unknown-type.json", "type_carries_no_fact"},
  };
  for (const auto& row : kTable) {
    SCOPED_TRACE(row.file);
    ASSERT_OK_AND_ASSIGN(const ProviderEvent event, Parse(Own(row.file)));
    EXPECT_EQ(event.ignored, row.ignored);
    EXPECT_THAT(event.subscriptions, IsEmpty());
    EXPECT_NE(event.event_id, "");
  }
}

TEST(StripeAdapter, ReadsAnEndAtItsOwnInstant) {
  ASSERT_OK_AND_ASSIGN(const ProviderEvent event,
                       Parse(Own("subscription-deleted.basil.json")));
  ASSERT_THAT(event.subscriptions, SizeIs(1));
  const SubscriptionFacts& facts = event.subscriptions[0];
  EXPECT_EQ(facts.provider_subscription_id, "sub_Tenure1");
  EXPECT_EQ(facts.customer_id, "cus_Tenure1");
  EXPECT_EQ(facts.subject, "user-1");
  EXPECT_EQ(facts.product_id, "price_monthly");
  ASSERT_THAT(facts.facts, SizeIs(1));
  EXPECT_EQ(facts.facts[0].layer(), subscription::v1::FACT_LAYER_PROVIDER);
  // Not the period's end three weeks later.
  EXPECT_EQ(Instant(facts.facts[0].ended().ended_at()),
            Utc("2026-01-11T00:00:00Z"));
  EXPECT_EQ(Instant(facts.facts[0].order_at()), Utc("2026-01-11T00:00:03Z"));
}

TEST(StripeAdapter, SaysWhetherItIsTestMoney) {
  const std::string live = Own("invoice-paid.basil.json");
  ASSERT_OK_AND_ASSIGN(
      const ProviderEvent test,
      Parse(With(live, "\"livemode\": true", "\"livemode\": false")));
  EXPECT_FALSE(test.livemode);
  EXPECT_THAT(test.subscriptions, SizeIs(1));
  for (const std::string bad : {"\"false\"", "0", "null", "{}"}) {
    EXPECT_THAT(Parse(With(live, "\"livemode\": true", "\"livemode\": " + bad)),
                IsMalformed())
        << bad;
  }
}

TEST(StripeAdapter, NamesTheAccountOfAConnectedOne) {
  ASSERT_OK_AND_ASSIGN(const ProviderEvent event,
                       Parse(Own("unknown-type.json")));
  EXPECT_EQ(event.account, "acct_Tenure1");
  EXPECT_FALSE(event.livemode);
  ASSERT_OK_AND_ASSIGN(const ProviderEvent none,
                       Parse(Event("\"evt_1\"", "\"account\":null")));
  EXPECT_EQ(none.account, "");
}

// ---- the subscription's own events ----

// An event around `object`.
std::string EventOf(const std::string& type, const std::string& object,
                    const std::string& previous = "{}",
                    const std::string& id = "evt_1") {
  return absl::StrCat(R"({"id":")", id, R"(","livemode":true,"type":")", type,
                      R"(","created":1767225600,"data":{"object":)", object,
                      R"(,"previous_attributes":)", previous, "}}");
}

constexpr char kUpdated[] = "customer.subscription.updated";

// 2026-02-01.
constexpr char kPeriodEnd[] = "1769904000";

std::string Subscription(const std::string& status,
                         const std::string& more = "") {
  return absl::StrCat(
      R"({"id":"sub_1","customer":"cus_1","status":")", status,
      R"(","start_date":1764547200,"items":{"data":[{"price":{"id":"price_1"},)",
      R"("current_period_end":)", kPeriodEnd, "}]}", more, "}");
}

// "snapshot cancel_scheduled", or why there is none.
std::string Kinds(const ProviderEvent& event) {
  if (!event.quarantined.empty()) {
    EXPECT_THAT(event.subscriptions, IsEmpty());
    return "quarantined " + event.quarantined;
  }
  if (event.subscriptions.empty()) return event.ignored;
  std::vector<std::string> kinds;
  for (const Fact& fact : event.subscriptions[0].facts) {
    EXPECT_EQ(fact.ordinal(), static_cast<int>(kinds.size()));
    EXPECT_EQ(Instant(fact.order_at()), event.occurred_at);
    kinds.push_back(std::string(
        Fact::descriptor()->FindFieldByNumber(fact.kind_case())->name()));
  }
  return absl::StrJoin(kinds, " ");
}

std::string KindsOf(const std::string& body) {
  const absl::StatusOr<ProviderEvent> event = Parse(body);
  if (!event.ok()) return std::string(event.status().message());
  return Kinds(*event);
}

// The facts as bytes, to see that two events say the same.
std::string Content(const std::string& body) {
  const absl::StatusOr<ProviderEvent> event = Parse(body);
  std::string content;
  if (!event.ok()) return content;
  for (const SubscriptionFacts& facts : event->subscriptions) {
    for (const Fact& fact : facts.facts) content += fact.SerializeAsString();
  }
  return content;
}

TEST(StripeAdapter, SaysOfASubscriptionWhatItsEventChanged) {
  const std::string cancel = R"(,"cancel_at_period_end":true)";
  const std::string cancel_at =
      absl::StrCat(cancel, R"(,"cancel_at":)", kPeriodEnd);
  const std::string was_canceling = R"({"cancel_at_period_end":true})";
  const std::string was_not = R"({"cancel_at_period_end":false})";
  const std::string other_price =
      R"({"items":{"data":[{"price":{"id":"price_0"}}]}})";
  const struct {
    std::string type;
    std::string object;
    std::string previous;
    std::string facts;
  } kTable[] = {
      {"customer.subscription.created", Subscription("active"), "{}",
       "created snapshot"},
      {"customer.subscription.created", Subscription("incomplete"), "{}",
       "created"},
      {kUpdated, Subscription("active"), "{}", "snapshot"},
      {kUpdated, Subscription("active"), R"({"latest_invoice":"in_1"})",
       "snapshot"},
      {kUpdated, Subscription("active"), "null", "snapshot"},
      {kUpdated, Subscription("active"), "[]", "snapshot"},
      {kUpdated, Subscription("incomplete"), "{}", "snapshot"},
      {kUpdated, Subscription("active", cancel_at), was_not,
       "cancel_scheduled"},
      {kUpdated, Subscription("active", cancel), was_not, "cancel_scheduled"},
      // Said before: the state, and no second occurrence.
      {kUpdated, Subscription("active", cancel_at), "{}", "snapshot"},
      // More than that changed.
      {kUpdated, Subscription("active", cancel_at),
       R"({"cancel_at_period_end":false,"status":"past_due"})",
       "snapshot cancel_scheduled"},
      {kUpdated, Subscription("active"), was_canceling, "cancel_reverted"},
      {kUpdated, Subscription("active"), R"({"cancel_at":1769904000})",
       "cancel_reverted"},
      {kUpdated, Subscription("active"), was_not, "snapshot"},
      {kUpdated, Subscription("active"), other_price, "plan_changed"},
      {kUpdated, Subscription("active"), R"({"plan":{"id":"price_0"}})",
       "plan_changed"},
      {kUpdated, Subscription("active"), R"({"plan":{"nickname":"old"}})",
       "snapshot"},
      {kUpdated, Subscription("active"),
       R"({"items":{"data":[{"price":{"id":"price_1"}}]}})", "snapshot"},
      {kUpdated, Subscription("active"),
       R"({"items":{"data":[{"price":{"id":"price_0"},)"
       R"("current_period_end":1767225600}]}})",
       "snapshot plan_changed"},
      {kUpdated, Subscription("active"),
       R"({"cancel_at_period_end":true,)" + other_price.substr(1),
       "plan_changed cancel_reverted"},
      {kUpdated, Subscription("past_due"), R"({"status":"active"})",
       "snapshot"},
      {kUpdated, Subscription("unpaid"), R"({"status":"past_due"})",
       "snapshot"},
      {kUpdated, Subscription("canceled"), other_price, "ended"},
      {kUpdated, Subscription("incomplete_expired"), "{}", "ended"},
      {kUpdated, Subscription("paused"), "{}", "paused"},
      {kUpdated, Subscription("paused", cancel_at), was_not,
       "paused cancel_scheduled"},
      {kUpdated, Subscription("active"), R"({"status":"paused"})", "resumed"},
      {kUpdated, Subscription("past_due"), R"({"status":"paused"})",
       "snapshot"},
      {"customer.subscription.resumed", Subscription("active"), "{}",
       "resumed"},
      {"customer.subscription.deleted", Subscription("active"), "{}", "ended"},
      {kUpdated, Subscription("brand_new_status"), "{}", "unknown_status"},
      {kUpdated, R"({"id":"sub_1"})", "{}", "unknown_status"},
      {kUpdated, R"({"status":"active"})", "{}", "subscription_without_id"},
      {kUpdated, R"({"id":"sub_1","object":"invoice","status":"active"})", "{}",
       "unexpected_object"},
      {"customer.subscription.trial_will_end", Subscription("trialing"), "{}",
       "type_carries_no_fact"},
  };
  for (const auto& row : kTable) {
    EXPECT_EQ(KindsOf(EventOf(row.type, row.object, row.previous)), row.facts)
        << row.type << " " << row.object << " " << row.previous;
  }
}

TEST(StripeAdapter, ASnapshotSaysTheStateAndProvesNoPayment) {
  const struct {
    const char* status;
    const char* state;
  } kStates[] = {{"active", "active"},
                 {"trialing", "trialing"},
                 {"past_due", "past_due"},
                 {"unpaid", "past_due"},
                 {"incomplete", "pending"}};
  for (const auto& [status, state] : kStates) {
    ASSERT_OK_AND_ASSIGN(
        const ProviderEvent event,
        Parse(EventOf(kUpdated,
                      Subscription(status, R"(,"trial_end":1768435200)"))));
    ASSERT_THAT(event.subscriptions, SizeIs(1));
    const SubscriptionFacts& facts = event.subscriptions[0];
    EXPECT_EQ(facts.product_id, "price_1");
    EXPECT_EQ(facts.facts[0].layer(), subscription::v1::FACT_LAYER_PROVIDER);
    const auto& snapshot = facts.facts[0].snapshot();
    EXPECT_EQ(snapshot.provider_state(), state);
    EXPECT_EQ(Instant(snapshot.period_ends_at()), Utc("2026-02-01T00:00:00Z"));
    EXPECT_EQ(Instant(snapshot.starts_at()), Utc("2025-12-01T00:00:00Z"));
    EXPECT_TRUE(snapshot.will_renew());
    EXPECT_FALSE(snapshot.has_cancel_at());
    // Of a trial that is over it says nothing more.
    EXPECT_EQ(snapshot.has_trial_ends_at(),
              snapshot.provider_state() == "trialing");
    // Policy and read-back are not the event's to say.
    EXPECT_FALSE(snapshot.has_grace_period_ends_at());
    EXPECT_FALSE(snapshot.read_back());
  }
}

TEST(StripeAdapter, ACancellationEndsWithThePeriodWhereNoInstantIsGiven) {
  const std::string old_api =
      With(Subscription("active", R"(,"cancel_at_period_end":true)"),
           R"("current_period_end")", R"("other")");
  const struct {
    std::string object;
    absl::Time cancel_at;
  } kTable[] = {
      {Subscription("active", R"(,"cancel_at":1768435200)"),
       Utc("2026-01-15T00:00:00Z")},
      {Subscription("active", R"(,"cancel_at_period_end":true)"),
       Utc("2026-02-01T00:00:00Z")},
      {With(old_api, R"("start_date")",
            R"("current_period_end":1769904000,"start_date")"),
       Utc("2026-02-01T00:00:00Z")},
      // Not known at all: the end of what was paid.
      {old_api, absl::InfinitePast()},
  };
  for (const auto& row : kTable) {
    SCOPED_TRACE(row.object);
    ASSERT_OK_AND_ASSIGN(
        const ProviderEvent event,
        Parse(EventOf(kUpdated, row.object, R"({"cancel_at":null})")));
    EXPECT_EQ(Kinds(event), "cancel_scheduled");
    const auto& cancel = event.subscriptions[0].facts[0].cancel_scheduled();
    EXPECT_EQ(cancel.has_cancel_at() ? Instant(cancel.cancel_at())
                                     : absl::InfinitePast(),
              row.cancel_at);
    ASSERT_OK_AND_ASSIGN(const ProviderEvent later,
                         Parse(EventOf(kUpdated, row.object)));
    const auto& snapshot = later.subscriptions[0].facts[0].snapshot();
    EXPECT_FALSE(snapshot.will_renew());
    EXPECT_EQ(snapshot.has_cancel_at(), cancel.has_cancel_at());
  }
}

TEST(StripeAdapter, TwoEventsOfOneChangeDoNotContradictEachOther) {
  const std::string paused =
      Subscription("paused", R"(,"trial_end":1767225500)");
  const std::string was_trialing = R"({"status":"trialing"})";
  const std::string was_paused = R"({"status":"paused"})";
  EXPECT_EQ(
      Content(EventOf("customer.subscription.paused", paused, was_trialing)),
      Content(EventOf(kUpdated, paused, was_trialing, "evt_2")));
  EXPECT_EQ(
      Content(EventOf("customer.subscription.resumed", Subscription("active"),
                      was_paused)),
      Content(EventOf(kUpdated, Subscription("active"), was_paused, "evt_2")));
}

TEST(StripeAdapter, APauseTakesAwayWhatFollowsTheTrial) {
  const auto pause_at = [](const std::string& more) {
    const absl::StatusOr<ProviderEvent> event = Parse(
        EventOf("customer.subscription.paused", Subscription("paused", more)));
    if (!event.ok() || event->subscriptions.empty()) {
      return absl::InfinitePast();
    }
    return Instant(event->subscriptions[0].facts[0].paused().pause_at());
  };
  EXPECT_EQ(pause_at(R"(,"trial_end":1767225570)"),
            Utc("2025-12-31T23:59:30Z"));
  EXPECT_EQ(pause_at(R"(,"trial_end":null)"), Utc("2026-01-01T00:00:00Z"));
  EXPECT_EQ(pause_at(R"(,"trial_end":1767225601)"),
            Utc("2026-01-01T00:00:00Z"));
}

// The event cannot tell which of the prices is in the catalogue.
TEST(StripeAdapter, C069_EveryItemIsOfferedWithItsOwnEnd) {
  const std::string items =
      R"({"id":"sub_1","status":"active","items":{"data":[)"
      R"({"price":{"id":"price_a"},"current_period_end":1769904000},)"
      R"({"price":{"id":"price_b"},"current_period_end":1798761600},)"
      R"({"price":{"id":"price_a"},"current_period_end":1767312000},)"
      R"({"price":{"id":"price_c"},"current_period_end":null},)"
      R"({"quantity":1}]}})";
  ASSERT_OK_AND_ASSIGN(const ProviderEvent event,
                       Parse(EventOf(kUpdated, items)));
  ASSERT_THAT(event.subscriptions, SizeIs(1));
  const SubscriptionFacts& facts = event.subscriptions[0];
  EXPECT_EQ(facts.item_key, "");
  EXPECT_EQ(facts.product_id, "price_b");
  EXPECT_EQ(Instant(facts.facts[0].snapshot().period_ends_at()),
            Utc("2027-01-01T00:00:00Z"));
  ASSERT_THAT(facts.alternatives, SizeIs(2));
  EXPECT_EQ(facts.alternatives[0].product_id, "price_a");
  EXPECT_EQ(Instant(facts.alternatives[0].facts[0].snapshot().period_ends_at()),
            Utc("2026-02-01T00:00:00Z"));
  EXPECT_EQ(facts.alternatives[1].product_id, "price_c");
  EXPECT_FALSE(facts.alternatives[1].facts[0].snapshot().has_period_ends_at());
}

TEST(StripeAdapter, C069_EveryBoughtLineIsOfferedWithItsOwnEnd) {
  ASSERT_OK_AND_ASSIGN(const ProviderEvent event,
                       Parse(Own("invoice-paid-two-periods.basil.json")));
  ASSERT_THAT(event.subscriptions, SizeIs(1));
  ASSERT_THAT(event.subscriptions[0].alternatives, SizeIs(1));
  const Alternative& other = event.subscriptions[0].alternatives[0];
  EXPECT_EQ(other.product_id, "price_monthly");
  ASSERT_THAT(other.facts, SizeIs(1));
  EXPECT_EQ(Instant(other.facts[0].paid().period_ends_at()),
            Utc("2026-02-01T00:00:00Z"));
  EXPECT_EQ(other.facts[0].paid().payment_key(),
            event.subscriptions[0].facts[0].paid().payment_key());
}

TEST(StripeAdapter, C069_AnAbsentPeriodIsNoPeriod) {
  for (const std::string end : {"null", "\"\""}) {
    const std::string object = With(Subscription("active"), kPeriodEnd, end);
    ASSERT_OK_AND_ASSIGN(const ProviderEvent event,
                         Parse(EventOf(kUpdated, object)));
    EXPECT_EQ(Kinds(event), "snapshot");
    EXPECT_FALSE(
        event.subscriptions[0].facts[0].snapshot().has_period_ends_at());
  }
  for (const std::string end : {"null", "253402300800", "\"1\""}) {
    ASSERT_OK_AND_ASSIGN(
        const ProviderEvent event,
        Parse(EventOf("customer.subscription.deleted",
                      Subscription("canceled", R"(,"ended_at":)" + end))));
    EXPECT_EQ(Instant(event.subscriptions[0].facts[0].ended().ended_at()),
              event.occurred_at);
  }
}

TEST(StripeAdapter, C070_AnInstantOfNoYearIsSetAsideForAnOperator) {
  for (const std::string bad :
       {"0.5", "253402300800", "4000000000000000", "{}", "[]", "\"1\"", "true",
        "-9223372036854775808"}) {
    SCOPED_TRACE(bad);
    EXPECT_EQ(KindsOf(EventOf(kUpdated,
                              With(Subscription("active"), kPeriodEnd, bad))),
              "quarantined instant_invalid");
    for (const std::string member :
         {"current_period_end", "cancel_at", "trial_end"}) {
      const std::string more = absl::StrCat(",\"", member, "\":", bad);
      EXPECT_EQ(KindsOf(EventOf(kUpdated, Subscription("active", more))),
                "quarantined instant_invalid");
    }
  }
}

// ---- money ----

std::string SmallInvoice(const std::string& members) {
  return absl::StrCat(
      R"({"id":"in_1","customer":"cus_1","currency":"eur",)", members,
      R"(,"parent":{"subscription_details":{"subscription":"sub_1"}},)",
      R"("lines":{"data":[{"amount":900,"parent":{"type":)",
      R"("subscription_item_details"},"pricing":{"price_details":)",
      R"({"price":"price_1"}},"period":{"start":1767225600,"end":1769904000})",
      "}]}}");
}

TEST(StripeAdapter, AnInvoiceOverNothingExtendsNothing) {
  const auto kinds = [](const std::string& members) {
    return KindsOf(EventOf("invoice.paid", SmallInvoice(members)));
  };
  EXPECT_EQ(kinds(R"("amount_paid":900)"), "paid");
  EXPECT_EQ(kinds(R"("amount_paid":0,"total":0)"), "nothing_paid");
  // A coupon over the whole sum.
  EXPECT_EQ(kinds(R"("amount_paid":0,"total":0,"starting_balance":-900)"),
            "nothing_paid");
  EXPECT_EQ(kinds(R"("amount_paid":0,"total":900)"), "nothing_paid");
  // Paid from the credit of the customer.
  EXPECT_EQ(kinds(R"("amount_paid":0,"total":900,"starting_balance":-900)"),
            "paid");
}

// The ledger of money takes three capital letters; without them the event
// would fail in the database again and again.
TEST(StripeAdapter, APaymentInNoCurrencyIsSetAside) {
  for (const std::string odd : {"null", "5", "\"eu\"", "\"euro\"", "\"e r\"",
                                "\"e1r\"", "[]", "\"\\u00e9r\""}) {
    EXPECT_EQ(KindsOf(EventOf(
                  "invoice.paid",
                  With(SmallInvoice(R"("amount_paid":900)"), "\"eur\"", odd))),
              "quarantined currency_invalid")
        << odd;
  }
}

TEST(StripeAdapter, APaymentIsKnownUnderAllItsNames) {
  const std::string object = SmallInvoice(
      R"("amount_paid":900,"charge":"ch_1","payments":{"data":[)"
      R"({"id":"inpay_1","payment":{"type":"payment_intent",)"
      R"("payment_intent":"pi_1"}},{"payment":{"charge":{"id":"ch_2"}}},)"
      R"({"payment":{"charge":"ch_1"}},{"payment":null}]})");
  ASSERT_OK_AND_ASSIGN(const ProviderEvent event,
                       Parse(EventOf("invoice.paid", object)));
  ASSERT_EQ(Kinds(event), "paid");
  EXPECT_THAT(event.subscriptions[0].facts[0].paid().aliases(),
              ElementsAre("ch_1", "pi_1", "ch_2"));

  // Since 2025 an event of its own tells them.
  ASSERT_OK_AND_ASSIGN(
      const ProviderEvent alias,
      Parse(EventOf("invoice_payment.paid",
                    R"({"id":"inpay_1","object":"invoice_payment",)"
                    R"("invoice":"in_1","status":"paid","payment":)"
                    R"({"type":"payment_intent","payment_intent":"pi_1"}})")));
  EXPECT_EQ(Kinds(alias), "payment_alias");
  ASSERT_THAT(alias.payment_aliases, SizeIs(1));
  EXPECT_EQ(alias.payment_aliases[0].payment_key, "in_1");
  EXPECT_EQ(alias.payment_aliases[0].alias, "pi_1");
  EXPECT_EQ(KindsOf(EventOf("invoice_payment.paid", "{}")),
            "payment_without_invoice");
  EXPECT_EQ(KindsOf(EventOf("invoice.paid",
                            R"({"id":"inpay_1","object":"invoice_payment"})")),
            "unexpected_object");
}

TEST(StripeAdapter, AFailureNamesTheInvoiceAndLeavesGraceToThePlan) {
  ASSERT_OK_AND_ASSIGN(
      const ProviderEvent event,
      Parse(EventOf("invoice.payment_failed",
                    SmallInvoice(R"("amount_paid":0,"amount_due":900)"))));
  ASSERT_EQ(Kinds(event), "payment_failed");
  const SubscriptionFacts& facts = event.subscriptions[0];
  EXPECT_EQ(facts.provider_subscription_id, "sub_1");
  EXPECT_EQ(facts.product_id, "price_1");
  EXPECT_EQ(facts.facts[0].layer(), subscription::v1::FACT_LAYER_MONEY);
  EXPECT_EQ(facts.facts[0].payment_failed().payment_key(), "in_1");
  EXPECT_FALSE(facts.facts[0].payment_failed().has_grace_period_ends_at());
  EXPECT_FALSE(facts.facts[0].payment_failed().grace_by_provider());
  EXPECT_EQ(KindsOf(EventOf("invoice.payment_failed",
                            R"({"id":"in_1","subscription":null})")),
            "invoice_without_subscription");
  EXPECT_EQ(KindsOf(EventOf("invoice.payment_failed",
                            R"({"id":null,"subscription":"sub_1"})")),
            "invoice_without_id");
}

TEST(StripeAdapter, AProrationChangesThePlanAndGivesNoTime) {
  const auto line = [](const char* price, int amount) {
    return absl::StrCat(
        R"({"amount":)", amount,
        R"(,"proration":true,"type":"invoiceitem","price":{"id":")", price,
        R"("},"period":{"start":1767225600,"end":1798761600}})");
  };
  const auto invoice = [](const std::string& lines) {
    return EventOf("invoice.paid",
                   absl::StrCat(R"({"id":"in_1","amount_paid":500,)",
                                R"("subscription":"sub_1","lines":{"data":[)",
                                lines, "]}}"));
  };
  ASSERT_OK_AND_ASSIGN(
      const ProviderEvent event,
      Parse(invoice(line("price_0", -400) + "," + line("price_1", 900))));
  ASSERT_EQ(Kinds(event), "plan_changed");
  EXPECT_EQ(event.subscriptions[0].product_id, "price_1");
  EXPECT_EQ(event.subscriptions[0].facts[0].plan_changed().plan(), "");
  // More of the same, or something beside it, is no other plan.
  EXPECT_EQ(
      KindsOf(invoice(line("price_1", -400) + "," + line("price_1", 900))),
      "no_period_bought");
  EXPECT_EQ(KindsOf(invoice(line("price_1", 900))), "no_period_bought");
}

TEST(StripeAdapter, ARefundNamesThePaymentInEveryWayItKnows) {
  ASSERT_OK_AND_ASSIGN(
      const ProviderEvent event,
      Parse(EventOf(
          "charge.refunded",
          R"({"id":"ch_1","object":"charge","customer":"cus_1",)"
          R"("invoice":"in_1","payment_intent":"pi_1","refunded":true,)"
          R"("amount_refunded":900,"refunds":{"data":[)"
          R"({"id":"re_3","created":4,"amount":50,"status":"failed"},)"
          R"({"id":"re_2","created":3,"amount":400,"status":"succeeded"},)"
          R"({"id":"re_1","created":2,"amount":500}]}})")));
  ASSERT_EQ(Kinds(event), "refunded");
  const SubscriptionFacts& facts = event.subscriptions[0];
  EXPECT_EQ(facts.provider_subscription_id, "");
  EXPECT_EQ(facts.customer_id, "cus_1");
  EXPECT_EQ(facts.product_id, "");
  EXPECT_THAT(facts.payment_names, ElementsAre("in_1", "ch_1", "pi_1"));
  EXPECT_EQ(facts.facts[0].layer(), subscription::v1::FACT_LAYER_MONEY);
  const auto& refunded = facts.facts[0].refunded();
  EXPECT_EQ(refunded.payment_key(), "in_1");
  EXPECT_EQ(refunded.refund_key(), "re_2");
  EXPECT_EQ(refunded.amount_minor(), 400);
  EXPECT_EQ(refunded.refunded_total_minor(), 900);
  EXPECT_TRUE(refunded.full());
  EXPECT_FALSE(refunded.keeps_access());
}

// Since 2022 the charge does not list its refunds: the sum under the charge's
// name, which does not add to what refund.created tells.
TEST(StripeAdapter, ARefundWithoutAListIsTheSumOfAll) {
  ASSERT_OK_AND_ASSIGN(
      const ProviderEvent event,
      Parse(EventOf("charge.refunded",
                    R"({"id":"ch_1","payment_intent":"pi_1",)"
                    R"("refunded":false,"amount_refunded":500})")));
  ASSERT_EQ(Kinds(event), "refunded");
  EXPECT_THAT(event.subscriptions[0].payment_names,
              ElementsAre("ch_1", "pi_1"));
  const auto& refunded = event.subscriptions[0].facts[0].refunded();
  EXPECT_EQ(refunded.refund_key(), "ch_1");
  EXPECT_EQ(refunded.amount_minor(), 0);
  EXPECT_EQ(refunded.refunded_total_minor(), 500);
  EXPECT_FALSE(refunded.full());
  for (const std::string object :
       {R"({"id":"ch_1","refunded":false,"amount_refunded":0})",
        R"({"id":"ch_1","amount_refunded":-500})",
        R"({"id":"ch_1","amount_refunded":"500"})"}) {
    EXPECT_EQ(KindsOf(EventOf("charge.refunded", object)), "nothing_refunded");
  }
  EXPECT_EQ(KindsOf(EventOf("charge.refunded", R"({"refunded":true})")),
            "refund_without_payment");
}

TEST(StripeAdapter, ARefundCountsUntilItFails) {
  const auto refund = [](const std::string& type, const std::string& status) {
    return EventOf(
        type, absl::StrCat(R"({"id":"re_1","object":"refund","amount":500,)",
                           R"("charge":"ch_1","payment_intent":"pi_1",)",
                           R"("status":")", status, "\"}"));
  };
  for (const std::string status : {"succeeded", "pending"}) {
    ASSERT_OK_AND_ASSIGN(const ProviderEvent event,
                         Parse(refund("refund.created", status)));
    ASSERT_EQ(Kinds(event), "refunded");
    const auto& refunded = event.subscriptions[0].facts[0].refunded();
    EXPECT_EQ(refunded.payment_key(), "ch_1");
    EXPECT_EQ(refunded.refund_key(), "re_1");
    EXPECT_EQ(refunded.amount_minor(), 500);
    EXPECT_FALSE(refunded.full());
  }
  EXPECT_EQ(KindsOf(refund("refund.created", "requires_action")),
            "refund_waits");
  for (const auto& [type, status] :
       {std::pair("refund.updated", "failed"),
        std::pair("refund.updated", "canceled"),
        std::pair("refund.failed", "failed"),
        std::pair("charge.refund.updated", "failed")}) {
    ASSERT_OK_AND_ASSIGN(const ProviderEvent event,
                         Parse(refund(type, status)));
    // Under the charge's name too, which stands for it where there is no list.
    ASSERT_EQ(Kinds(event), "refund_reversed refund_reversed");
    const SubscriptionFacts& facts = event.subscriptions[0];
    EXPECT_THAT(facts.payment_names, ElementsAre("ch_1", "pi_1"));
    EXPECT_EQ(facts.facts[0].refund_reversed().refund_key(), "re_1");
    EXPECT_EQ(facts.facts[1].refund_reversed().refund_key(), "ch_1");
  }
  EXPECT_EQ(KindsOf(EventOf("refund.created", R"({"id":"re_1","amount":5})")),
            "refund_without_payment");
  EXPECT_EQ(KindsOf(EventOf("refund.created",
                            R"({"id":"re_1","amount":0,"charge":"ch_1"})")),
            "nothing_refunded");
}

TEST(StripeAdapter, OnlyADisputeThatMovesMoneyIsOne) {
  const struct {
    std::string type;
    std::string status;
    std::string previous;
    std::string facts;
  } kTable[] = {
      {"created", "needs_response", "{}", "dispute_opened"},
      {"created", "warning_needs_response", "{}", "dispute_inquiry"},
      {"updated", "under_review", R"({"evidence":{}})", "dispute_goes_on"},
      {"updated", "needs_response", R"({"status":"warning_under_review"})",
       "dispute_opened"},
      {"updated", "warning_under_review", "{}", "dispute_inquiry"},
      {"closed", "won", "{}", "dispute_closed"},
      {"closed", "lost", "{}", "dispute_closed"},
      {"closed", "warning_closed", "{}", "dispute_inquiry"},
      {"funds_withdrawn", "needs_response", "{}", "type_carries_no_fact"},
      {"funds_reinstated", "won", "{}", "type_carries_no_fact"},
  };
  for (const auto& row : kTable) {
    SCOPED_TRACE(row.type + " " + row.status);
    ASSERT_OK_AND_ASSIGN(
        const ProviderEvent event,
        Parse(EventOf(
            "charge.dispute." + row.type,
            absl::StrCat(R"({"id":"dp_1","object":"dispute",)",
                         R"("charge":"ch_1","status":")", row.status, "\"}"),
            row.previous)));
    EXPECT_EQ(Kinds(event), row.facts);
    if (event.subscriptions.empty()) continue;
    EXPECT_THAT(event.subscriptions[0].payment_names, ElementsAre("ch_1"));
    const Fact& fact = event.subscriptions[0].facts[0];
    EXPECT_EQ(fact.has_dispute_opened() ? fact.dispute_opened().payment_key()
                                        : fact.dispute_closed().payment_key(),
              "ch_1");
    EXPECT_EQ(fact.dispute_closed().lost(), row.status == "lost");
    EXPECT_FALSE(fact.dispute_opened().suspends());
  }
  EXPECT_EQ(KindsOf(EventOf("charge.dispute.created",
                            R"({"id":"dp_1","status":"needs_response"})")),
            "dispute_without_payment");
}

// ---- what tells no fact, and something all the same ----

TEST(StripeAdapter, C053_ACheckoutLinksTheCustomerAndGrantsNothing) {
  const auto session = [](const std::string& members) {
    return absl::StrCat(R"({"id":"cs_1","object":"checkout.session",)", members,
                        "}");
  };
  const std::string ids =
      R"("subscription":"sub_1","customer":"cus_1","payment_status":"unpaid")";
  for (const auto& [type, members] : {
           std::pair("checkout.session.completed",
                     ids + R"(,"client_reference_id":"user-1")"),
           std::pair("checkout.session.async_payment_succeeded",
                     ids + R"(,"metadata":{"tenure_subject":"user-1"},)"
                           R"("client_reference_id":"other")"),
       }) {
    ASSERT_OK_AND_ASSIGN(const ProviderEvent event,
                         Parse(EventOf(type, session(members))));
    EXPECT_EQ(Kinds(event), "customer_link");
    ASSERT_THAT(event.links, SizeIs(1));
    EXPECT_EQ(event.links[0].customer_id, "cus_1");
    EXPECT_EQ(event.links[0].subject, "user-1");
  }
  for (const auto& [members, ignored] : {
           std::pair(ids, "checkout_names_no_subject"),
           std::pair(std::string(R"("subscription":"sub_1","customer":null,)"
                                 R"("client_reference_id":"user-1")"),
                     "checkout_names_no_subject"),
           std::pair(std::string(R"("mode":"payment","customer":"cus_1",)"
                                 R"("client_reference_id":"user-1")"),
                     "checkout_without_subscription"),
       }) {
    ASSERT_OK_AND_ASSIGN(
        const ProviderEvent event,
        Parse(EventOf("checkout.session.completed", session(members))));
    EXPECT_EQ(Kinds(event), ignored);
    EXPECT_THAT(event.links, IsEmpty());
  }
  EXPECT_EQ(
      KindsOf(EventOf("checkout.session.async_payment_failed", session(ids))),
      "type_carries_no_fact");
}

TEST(StripeAdapter, FeaturesOfStripeAreNotTenures) {
  EXPECT_EQ(KindsOf(EventOf(
                "entitlements.active_entitlement_summary.updated",
                R"({"object":"entitlements.active_entitlement_summary"})")),
            "entitlements_come_from_plans");
}

TEST(StripeAdapter, C032_HalfACharacterInAnyIdThatIsReadIsRefused) {
  const struct {
    std::string type;
    std::string object;
    std::string previous;
  } kTable[] = {
      {kUpdated, R"({"id":"sub_1","status":"\ud800"})", "{}"},
      {kUpdated, Subscription("active"), R"({"plan":{"id":"\ud800"}})"},
      {kUpdated, With(Subscription("active"), "price_1", "\\ud800"), "{}"},
      {"charge.refunded", R"({"id":"ch_1","invoice":"\ud800"})", "{}"},
      {"refund.created", R"({"id":"re_1","charge":"\ud800"})", "{}"},
      {"charge.dispute.created", R"({"charge":"\ud800"})", "{}"},
      {"checkout.session.completed",
       R"({"subscription":"s","client_reference_id":"\ud800"})", "{}"},
      {"invoice_payment.paid", R"({"invoice":"\ud800"})", "{}"},
  };
  for (const auto& row : kTable) {
    EXPECT_THAT(Parse(EventOf(row.type, row.object, row.previous)),
                IsMalformed())
        << row.type;
  }
}

// Whatever stands where: read or recorded, never refused.
TEST(StripeAdapter, C037_AnyValueInAnyPlaceOfAnyEventIsTaken) {
  const std::string kTypes[] = {kUpdated,
                                "customer.subscription.created",
                                "customer.subscription.deleted",
                                "customer.subscription.paused",
                                "invoice.paid",
                                "invoice.payment_failed",
                                "invoice_payment.paid",
                                "charge.refunded",
                                "refund.updated",
                                "charge.dispute.closed",
                                "checkout.session.completed"};
  const std::string kObjects[] = {
      Subscription("active", R"(,"cancel_at":1769904000)"),
      Subscription("paused", R"(,"trial_end":1767225500)"),
      SmallInvoice(R"("amount_paid":900,"payments":{"data":[{}]})"),
      R"({"id":"ch_1","refunded":true,"amount_refunded":9,"refunds":{"data":)"
      R"([{"id":"re_1","created":2,"amount":9}]}})",
      R"({"id":"re_1","charge":"ch_1","amount":9,"status":"failed"})",
  };
  const std::string kValues[] = {"null",
                                 "{}",
                                 "[]",
                                 "[[]]",
                                 "true",
                                 "-1",
                                 "9223372036854775807",
                                 "-9223372036854775808",
                                 "1e300",
                                 "\"\"",
                                 "\"a\\u0000\"",
                                 "[{\"id\":[]}]",
                                 "{\"data\":[null,{},[],1]}"};
  size_t tried = 0;
  for (const std::string& type : kTypes) {
    for (const std::string& object : kObjects) {
      // Replaces the value of each member, wherever it stands.
      for (size_t at = object.find("\":"); at != std::string::npos;
           at = object.find("\":", at + 1)) {
        const size_t begin = at + 2;
        const size_t end = object.find_first_of(",}]", begin);
        if (object[begin] == '{' || object[begin] == '[') continue;
        for (const std::string& value : kValues) {
          const std::string odd =
              absl::StrCat(object.substr(0, begin), value, object.substr(end));
          EXPECT_THAT(Parse(EventOf(type, odd, value)), IsOk()) << odd;
          ++tried;
        }
      }
    }
  }
  EXPECT_GT(tried, 4000u);
}

// ---- ids ----

TEST(StripeAdapter, C017_ABlankIdIsRefusedAndNeverAKey) {
  for (const std::string id : {"\"\"", "\" \"", "\"\\t\\n\"", "null", "0", "[]",
                               "{}", "true", "{\"id\":\"evt_1\"}"}) {
    EXPECT_THAT(Parse(Event(id)), HasNoId()) << id;
    EXPECT_THAT(Parse(Event(id, "\"livemode\":false")), HasNoId()) << id;
  }
  EXPECT_THAT(Parse(R"({"type":"a","created":1,"data":{"object":{}}})"),
              HasNoId());
  EXPECT_THAT(Parse(Event("\"evt_1\"")), IsOk());
}

TEST(StripeAdapter, C019_IdsAreBytesAndStayApart) {
  const std::vector<std::string> ids = {
      "evt_\xc3\xa9",   // é as one code point
      "evt_e\xcc\x81",  // é as e and an accent
      "EVT_1",
      "evt_1",
      "evt_1 ",
      " evt_1",
      "evt_\xf0\x9f\x99\x82",  // an emoji
      "evt.test.id",
      std::string(255, 'x'),
  };
  std::set<std::string> read;
  for (const std::string& id : ids) {
    ASSERT_OK_AND_ASSIGN(const ProviderEvent event,
                         Parse(Event(absl::StrCat("\"", id, "\""))));
    EXPECT_EQ(event.event_id, id);
    read.insert(event.event_id);
  }
  EXPECT_EQ(read.size(), ids.size());
  for (const std::string id :
       {"evt_1\\t", "evt_1\\u0000", "\\u0000", "evt\\u007f", "evt_1\\n"}) {
    EXPECT_THAT(Parse(Event(absl::StrCat("\"", id, "\""))), IsMalformed())
        << id;
  }
  EXPECT_THAT(Parse(Event(absl::StrCat("\"", std::string(256, 'x'), "\""))),
              IsMalformed());
}

// ---- hostile and odd bodies ----

TEST(StripeAdapter, C037_WhatIsNoEventIsRefused) {
  for (const std::string body :
       {"",
        " ",
        "null",
        "1",
        "\"evt_1\"",
        "[]",
        "[{}]",
        "{}x",
        "{'id':1}",
        "{\"id\":\"evt_1\"}",
        "{\"id\":\"evt_1\",\"type\":\"a\"}",
        R"({"id":"evt_1","type":"a","created":1})",
        R"({"id":"evt_1","type":"a","created":1,"data":{}})",
        R"({"id":"evt_1","type":"a","created":1,"data":{"object":null}})",
        R"({"id":"evt_1","type":"a","created":1,"data":{"object":[]}})",
        R"({"id":"evt_1","type":"a","created":1,"data":[]})",
        R"({"id":"evt_1","type":"","created":1,"data":{"object":{}}})",
        R"({"id":"evt_1","type":5,"created":1,"data":{"object":{}}})",
        R"({"id":"evt_1","type":"a\u0000","created":1,"data":{"object":{}}})",
        R"({"id":"evt_1","created":1,"data":{"object":{}}})"}) {
    EXPECT_THAT(Parse(body), StatusIs(absl::StatusCode::kInvalidArgument))
        << body;
  }
}

TEST(StripeAdapter, C037_EveryPrefixOfAnEventIsRefused) {
  const std::string body = Own("subscription-deleted.basil.json");
  const size_t end = body.find_last_of('}');
  for (size_t size = 0; size <= end; ++size) {
    ASSERT_THAT(Parse(absl::string_view(body).substr(0, size)),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << size;
  }
  EXPECT_THAT(Parse(body + "{}"), IsMalformed());
}

TEST(StripeAdapter, C070_CreatedMustLieInTheYears1To9999) {
  const auto created = [](const std::string& json) {
    return absl::StrCat(R"({"id":"evt_1","type":"a","created":)", json,
                        R"(,"data":{"object":{}}})");
  };
  for (const std::string bad :
       {"253402300800", "4000000000000000", "4e15", "-62135596801", "null",
        "\"1\"", "1.5", "1e0", "9223372036854775807", "9223372036854775808",
        "-9223372036854775808", "1e400", "[]"}) {
    EXPECT_THAT(Parse(created(bad)),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << bad;
  }
  for (const int64_t good : {int64_t{-62135596800}, int64_t{-1}, int64_t{0},
                             int64_t{2147483648}, int64_t{253402300799}}) {
    ASSERT_OK_AND_ASSIGN(const ProviderEvent event,
                         Parse(created(absl::StrCat(good))));
    EXPECT_EQ(event.occurred_at, absl::FromUnixSeconds(good));
  }
}

TEST(StripeAdapter, C072_MoneyForAPeriodThatCannotBeIsSetAside) {
  const std::string body = Own("invoice-payment-succeeded.acacia.json");
  for (const std::string end :
       {"null", "\"\"", "\"1769904000\"", "1767225600", "1767225599",
        "253402300800", "4000000000000000", "-9223372036854775808", "1e10"}) {
    ASSERT_OK_AND_ASSIGN(const ProviderEvent event,
                         Parse(With(body, "1769904000", end)));
    EXPECT_EQ(Kinds(event), "quarantined period_invalid") << end;
  }
  // The last second of the year 9999 works, and its leeway is clamped.
  ASSERT_OK_AND_ASSIGN(const ProviderEvent event,
                       Parse(With(body, "1769904000", "253402300799")));
  ASSERT_THAT(event.subscriptions, SizeIs(1));
  const auto& paid = event.subscriptions[0].facts[0].paid();
  EXPECT_EQ(paid.period_ends_at().seconds(), 253402300799);
  EXPECT_THAT(FromProto("leeway_until", paid.leeway_until()), IsOk());
}

TEST(StripeAdapter, C031_AnEscapedNulInAFieldNobodyReadsIsHarmless) {
  const std::string body =
      With(Own("invoice-paid.basil.json"), "\"pending_webhooks\": 1",
           R"("na\u0000me": "a\u0000b")");
  ASSERT_OK_AND_ASSIGN(const ProviderEvent event, Parse(body));
  EXPECT_THAT(event.subscriptions, SizeIs(1));
}

// Regression: PostgreSQL cannot store such text, so the event failed with a
// 5xx for ever.
TEST(StripeAdapter, C031_AnAccountThatNoTextColumnHoldsIsRefused) {
  for (const std::string account :
       {R"("acct\u0000")", R"("a\tb")", "5", "[]"}) {
    EXPECT_THAT(Parse(Event("\"evt_1\"", "\"account\":" + account)),
                IsMalformed())
        << account;
  }
  EXPECT_THAT(Parse(Event("\"evt_1\"",
                          "\"account\":\"" + std::string(256, 'x') + "\"")),
              IsMalformed());
}

TEST(StripeAdapter, C031_AnIdThatNoTextColumnHoldsIsReadAsAbsent) {
  const std::string body = Own("invoice-paid.basil.json");
  const std::string kOdd[] = {R"("a\u0000b")", R"("\u001b")",
                              "\"" + std::string(256, 'x') + "\""};
  for (const std::string& odd : kOdd) {
    ASSERT_OK_AND_ASSIGN(ProviderEvent event,
                         Parse(With(body, "\"cus_Tenure1\"", odd)));
    ASSERT_THAT(event.subscriptions, SizeIs(1));
    EXPECT_EQ(event.subscriptions[0].customer_id, "");

    ASSERT_OK_AND_ASSIGN(event, Parse(With(body, "\"user-1\"", odd)));
    ASSERT_THAT(event.subscriptions, SizeIs(1));
    EXPECT_EQ(event.subscriptions[0].subject, "");

    ASSERT_OK_AND_ASSIGN(event, Parse(With(body, "\"sub_Tenure1\"", odd)));
    EXPECT_EQ(event.ignored, "invoice_without_subscription");

    ASSERT_OK_AND_ASSIGN(event, Parse(With(body, "\"in_Tenure1\"", odd)));
    EXPECT_EQ(event.ignored, "no_period_bought");
  }
}

TEST(StripeAdapter, C032_HalfACharacterCountsOnlyWhereItIsRead) {
  const std::string body = Own("invoice-paid.basil.json");
  const std::string lone = R"("\ud800")";
  // In fields that nobody reads.
  for (const std::string unread :
       {"\"prod_Tenure1\"", "\"subscription_cycle\"", "\"line_item\""}) {
    ASSERT_OK_AND_ASSIGN(const ProviderEvent event,
                         Parse(With(body, unread, lone)));
    EXPECT_THAT(event.subscriptions, SizeIs(1)) << unread;
  }
  // In ids, the subject, and what tells the event.
  for (const std::string read :
       {"\"evt_TenurePaid1\"", "\"invoice.paid\"", "\"sub_Tenure1\"",
        "\"cus_Tenure1\"", "\"user-1\"", "\"in_Tenure1\"",
        "\"price_monthly\""}) {
    EXPECT_THAT(Parse(With(body, read, lone)), IsMalformed()) << read;
  }
  const std::string deleted = Own("subscription-deleted.basil.json");
  for (const std::string read : {"\"sub_Tenure1\"", "\"user-1\""}) {
    EXPECT_THAT(Parse(With(deleted, read, lone)), IsMalformed()) << read;
  }
}

TEST(StripeAdapter, C032_BrokenUtf8AndByteOrderMarksAreRefused) {
  const std::string body = Own("unknown-type.json");
  for (const std::string& broken :
       {"\xef\xbb\xbf" + body, With(body, "obt_Tenure1", "\xff\xfe"),
        With(body, "obt_Tenure1", "\xc0\x80"), std::string("\xff\xfe{\0", 4),
        With(body, "obt_Tenure1", std::string(1, '\0'))}) {
    EXPECT_THAT(Parse(broken), IsMalformed());
  }
}

TEST(StripeAdapter, MembersOfTheWrongKindAreReadAsAbsent) {
  const std::string body = Own("invoice-payment-succeeded.acacia.json");
  const struct {
    const char* from;
    const char* to;
    const char* ignored;
  } kTable[] = {
      {"\"amount_paid\": 900", "\"amount_paid\": \"900\"", "nothing_paid"},
      {"\"amount_paid\": 900", "\"amount_paid\": -900", "nothing_paid"},
      {"\"amount_paid\": 900", "\"amount_paid\": 9.5", "nothing_paid"},
      {"\"lines\": {", "\"lines\": 5, \"x\": {", "no_period_bought"},
      {"\"type\": \"subscription\"", "\"type\": {}", "no_period_bought"},
      {"\"sub_Tenure2\"", "[\"sub_Tenure2\"]", "invoice_without_subscription"},
  };
  for (const auto& row : kTable) {
    SCOPED_TRACE(row.to);
    ASSERT_OK_AND_ASSIGN(const ProviderEvent event,
                         Parse(With(body, row.from, row.to)));
    EXPECT_EQ(event.ignored, row.ignored);
    EXPECT_THAT(event.subscriptions, IsEmpty());
  }
}

// ---- Verify ----

TEST(StripeAdapter, C023_VerifiesTheHeaderWhateverItsCase) {
  const StripeAdapter adapter = Adapter();
  const absl::Time now = Utc("2026-01-01T00:00:00Z");
  Delivery delivery;
  delivery.body = "{}";
  EXPECT_THAT(adapter.Verify(delivery, now),
              StatusIs(absl::StatusCode::kUnauthenticated));
  ASSERT_OK_AND_ASSIGN(const std::string digest,
                       HmacSha256("whsec_test", {"1767225600", ".", "{}"}));
  delivery.headers = {
      {"Content-Type", "application/json"},
      {"stripe-SIGNATURE", "t=1767225600,v1=" + HexEncode(digest)}};
  EXPECT_THAT(adapter.Verify(delivery, now), IsOkAndHolds("test-key"));
  EXPECT_THAT(adapter.Verify(delivery, now + absl::Seconds(301)),
              StatusIs(absl::StatusCode::kUnauthenticated));
  delivery.body = "{ }";
  EXPECT_THAT(adapter.Verify(delivery, now),
              StatusIs(absl::StatusCode::kUnauthenticated));
}

}  // namespace
}  // namespace tenure::providers
