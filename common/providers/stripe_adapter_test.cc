#include "common/providers/stripe_adapter.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/crypto.h"
#include "common/base/json.h"
#include "common/base/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace tenure::providers {
namespace {

using test::HasReason;
using test::IsOk;
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
  settings.secrets.emplace_back("whsec_test");
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
      {"invoice-paid-proration.basil.json", "no_period_bought"},
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

TEST(StripeAdapter, ALineWithoutAUsablePeriodBuysNothing) {
  const std::string body = Own("invoice-payment-succeeded.acacia.json");
  for (const std::string end :
       {"null", "\"\"", "\"1769904000\"", "1767225600", "1767225599",
        "253402300800", "4000000000000000", "-9223372036854775808", "1e10"}) {
    ASSERT_OK_AND_ASSIGN(const ProviderEvent event,
                         Parse(With(body, "1769904000", end)));
    EXPECT_EQ(event.ignored, "no_period_bought") << end;
    EXPECT_THAT(event.subscriptions, IsEmpty());
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
  EXPECT_THAT(adapter.Verify(delivery, now), IsOk());
  EXPECT_THAT(adapter.Verify(delivery, now + absl::Seconds(301)),
              StatusIs(absl::StatusCode::kUnauthenticated));
  delivery.body = "{ }";
  EXPECT_THAT(adapter.Verify(delivery, now),
              StatusIs(absl::StatusCode::kUnauthenticated));
}

// ---- bodies as the provider really sends them ----

// The value at "data.object.lines.data.0.price".
std::string TextAt(const JsonValue& root, absl::string_view path) {
  const JsonValue* value = &root;
  for (const absl::string_view step : absl::StrSplit(path, '.')) {
    size_t index = 0;
    if (absl::SimpleAtoi(step, &index)) {
      value = index < value->items().size() ? &value->items()[index] : nullptr;
    } else {
      value = value->Find(step);
    }
    if (value == nullptr) return absl::StrCat("nothing at ", path);
  }
  return std::string(value->AsString().value_or("no text"));
}

// The collected files: of TENURE_FIXTURES, of the sibling folder that a
// developer keeps them in, or else the ones in this tree.
std::filesystem::path CollectedFixtures() {
  const char* given = std::getenv("TENURE_FIXTURES");
  if (given != nullptr && *given != '\0') return given;
  const std::filesystem::path sibling = TENURE_TEST_SIBLING_FIXTURES;
  if (std::filesystem::is_directory(sibling / "stripe")) return sibling;
  return TENURE_TEST_FIXTURES;
}

struct RealFile {
  std::string name;
  std::string body;
};

std::vector<RealFile> RealFiles() {
  // Files that hold only the data of an event, and what the event was.
  const std::map<std::string, std::string> kTypes = {
      {"invoice-paid-subscription-update-is-first-invoice.old-api.data.json",
       "invoice.payment_succeeded"},
      {"checkout-completed-subscription-mode.data.json",
       "checkout.session.completed"},
      {"invoice-payment-failed-renewal.basil.data.json",
       "invoice.payment_failed"},
      {"invoice-action-required-metered.both-shapes.data.json",
       "invoice.payment_action_required"},
      {"invoice-upcoming.basil.data.json", "invoice.upcoming"},
      {"charge-refunded-partial.data.json", "charge.refunded"},
      {"subscription-updated-canceled.period-in-items.data.json",
       "customer.subscription.updated"},
      {"invoice-payment-object.2025.data.json", "invoice.updated"},
  };
  std::vector<RealFile> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(CollectedFixtures() / "stripe")) {
    RealFile file;
    file.name = entry.path().filename().string();
    if (!absl::EndsWith(file.name, ".json") ||
        file.name == "signature_vectors.json" ||
        // An answer of the API, no event.
        absl::StrContains(file.name, ".api-")) {
      continue;
    }
    file.body = ReadFile(entry.path());
    if (absl::EndsWith(file.name, ".data.json")) {
      const auto type = kTypes.find(file.name);
      file.body = absl::StrCat(
          R"({"id":"evt_wrapped","object":"event","livemode":true,)",
          R"("created":1767225600,"type":")",
          type == kTypes.end() ? "test.unknown" : type->second, R"(","data":)",
          file.body, "}");
    }
    files.push_back(std::move(file));
  }
  std::sort(
      files.begin(), files.end(),
      [](const RealFile& a, const RealFile& b) { return a.name < b.name; });
  return files;
}

TEST(StripeAdapterFixtures, EveryCollectedBodyIsReadRight) {
  // What the collection's table says of the files that this adapter handles.
  // Ids are read from the file; dates and amounts are the point.
  struct Paid {
    std::string subscription;
    std::string customer;
    std::string product;
    std::string ends_at;
    int64_t amount_minor;
    std::string currency;
  };
  const std::string kObject = "data.object.";
  const std::map<std::string, Paid> kPaid = {
      {"invoice-payment-succeeded-renewal.2025-02-24.acacia.json",
       {"subscription", "customer", "lines.data.0.price.id",
        "2025-03-12T08:00:00Z", 95, "USD"}},
      {"invoice-paid-subscription-update-is-first-invoice.old-api.data.json",
       {"subscription", "customer", "lines.data.0.price.id",
        "2025-03-17T12:47:20Z", 1100, "EUR"}},
      {"invoice-paid.basil.json",
       {"parent.subscription_details.subscription", "customer",
        "lines.data.1.pricing.price_details.price", "2026-02-01T00:00:00Z", 900,
        "EUR"}},
      {"invoice-paid-two-periods.basil.json",
       {"parent.subscription_details.subscription", "customer",
        "lines.data.0.pricing.price_details.price", "2027-01-01T00:00:00Z", 900,
        "EUR"}},
      {"invoice-payment-succeeded.acacia.json",
       {"subscription", "customer", "lines.data.0.price.id",
        "2026-02-01T00:00:00Z", 900, "USD"}},
      {"invoice-payment-succeeded.2019.json",
       {"subscription.id", "customer.id", "lines.data.0.plan.id",
        "2026-02-01T00:00:00Z", 900, "USD"}},
  };
  const std::map<std::string, std::string> kEnded = {
      {"subscription-deleted-immediately.2020-08-27.json",
       "2022-03-26T18:41:37Z"},
      {"subscription-deleted-unpaid.basil.json", "2025-09-26T22:37:22Z"},
      {"subscription-deleted.basil.json", "2026-01-11T00:00:00Z"},
  };

  const std::vector<RealFile> files = RealFiles();
  EXPECT_GE(files.size(), 10u);
  size_t paid_files = 0;
  size_t ended_files = 0;
  for (const RealFile& file : files) {
    SCOPED_TRACE(file.name);
    ASSERT_OK_AND_ASSIGN(const JsonValue root, ParseJson(file.body));
    ASSERT_OK_AND_ASSIGN(const ProviderEvent event, Parse(file.body));
    EXPECT_EQ(event.event_id, TextAt(root, "id"));
    EXPECT_EQ(event.type, TextAt(root, "type"));

    if (const auto row = kPaid.find(file.name); row != kPaid.end()) {
      ++paid_files;
      const Paid& expected = row->second;
      ASSERT_THAT(event.subscriptions, SizeIs(1)) << event.ignored;
      const SubscriptionFacts& facts = event.subscriptions[0];
      EXPECT_EQ(facts.provider_subscription_id,
                TextAt(root, kObject + expected.subscription));
      EXPECT_EQ(facts.customer_id, TextAt(root, kObject + expected.customer));
      EXPECT_EQ(facts.product_id, TextAt(root, kObject + expected.product));
      ASSERT_THAT(facts.facts, SizeIs(1));
      const auto& paid = facts.facts[0].paid();
      EXPECT_EQ(paid.payment_key(), TextAt(root, kObject + "id"));
      EXPECT_EQ(Instant(paid.period_ends_at()), Utc(expected.ends_at));
      EXPECT_EQ(paid.amount_minor(), expected.amount_minor);
      EXPECT_EQ(paid.currency(), expected.currency);
      EXPECT_TRUE(paid.will_renew());
    } else if (const auto end = kEnded.find(file.name); end != kEnded.end()) {
      ++ended_files;
      ASSERT_THAT(event.subscriptions, SizeIs(1)) << event.ignored;
      const SubscriptionFacts& facts = event.subscriptions[0];
      EXPECT_EQ(facts.provider_subscription_id, TextAt(root, kObject + "id"));
      EXPECT_EQ(facts.customer_id, TextAt(root, kObject + "customer"));
      ASSERT_THAT(facts.facts, SizeIs(1));
      ASSERT_TRUE(facts.facts[0].has_ended());
      EXPECT_EQ(Instant(facts.facts[0].ended().ended_at()), Utc(end->second));
    } else {
      EXPECT_THAT(event.subscriptions, IsEmpty());
      EXPECT_NE(event.ignored, "");
    }
  }
  EXPECT_GE(paid_files, 2u);
  EXPECT_GE(ended_files, 1u);
}

TEST(StripeAdapterFixtures, AnAnswerOfTheApiIsNoEvent) {
  EXPECT_THAT(
      Parse(R"({"id":"sub_1","object":"subscription","created":1577836800})"),
      IsMalformed());
}

}  // namespace
}  // namespace tenure::providers
