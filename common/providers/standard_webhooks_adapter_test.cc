#include "common/providers/standard_webhooks_adapter.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/crypto.h"
#include "common/base/json.h"
#include "common/base/proto_time.h"
#include "common/base/rfc3339.h"
#include "common/domain/fold.h"
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
using ::testing::SizeIs;

constexpr absl::string_view kSecret =
    "whsec_WW91ciBiaWxsaW5nIHNpZ25zIHdpdGggdGhpcyBrZXk=";

auto IsMalformed() {
  return AllOf(StatusIs(absl::StatusCode::kInvalidArgument),
               HasReason(common::v1::ERROR_REASON_EVENT_MALFORMED));
}
auto HasNoId() {
  return AllOf(StatusIs(absl::StatusCode::kInvalidArgument),
               HasReason(common::v1::ERROR_REASON_EVENT_ID_MISSING));
}

StandardWebhooksAdapter Adapter() {
  StandardWebhooksSettings settings;
  absl::StatusOr<StandardWebhooksKey> key =
      StandardWebhooksKey::Parse({"test-key", Secret(std::string(kSecret))});
  EXPECT_THAT(key, IsOk());
  if (key.ok()) settings.keys.push_back(*std::move(key));
  return StandardWebhooksAdapter(std::move(settings));
}

absl::StatusOr<ProviderEvent> Parse(absl::string_view body) {
  return Adapter().Parse(body);
}

absl::Time Utc(absl::string_view text) {
  const std::optional<absl::Time> time = ParseRfc3339(text);
  EXPECT_TRUE(time.has_value()) << text;
  return time.value_or(absl::InfinitePast());
}

// ---- what an event says, in words ----

std::string InWords(const google::protobuf::Message& message,
                    const google::protobuf::FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case google::protobuf::FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field) ? "true" : "false";
    case google::protobuf::FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat(reflection.GetInt64(message, &field));
    case google::protobuf::FieldDescriptor::CPPTYPE_STRING: {
      std::string text = reflection.GetString(message, &field);
      return absl::StrContains(text, ' ') ? absl::StrCat("\"", text, "\"")
                                          : text;
    }
    case google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE: {
      google::protobuf::Timestamp timestamp;
      timestamp.ParseFromString(
          reflection.GetMessage(message, &field).SerializeAsString());
      return absl::FormatTime(
          "%Y-%m-%dT%H:%M:%E*SZ",
          FromProto("instant", timestamp).value_or(absl::InfinitePast()),
          absl::UTCTimeZone());
    }
    default:
      return "?";
  }
}

std::string InWords(const Fact& fact) {
  const google::protobuf::FieldDescriptor* kind =
      Fact::descriptor()->FindFieldByNumber(fact.kind_case());
  if (kind == nullptr) return "NO KIND";
  std::string words(kind->name());
  std::transform(words.begin(), words.end(), words.begin(), ::toupper);
  const google::protobuf::Message& content =
      fact.GetReflection()->GetMessage(fact, kind);
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  content.GetReflection()->ListFields(content, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    absl::StrAppend(&words, " ", field->name(), "=", InWords(content, *field));
  }
  return words;
}

std::string InWords(const ProviderEvent& event) {
  if (!event.ignored.empty()) return "ignored " + event.ignored;
  if (!event.quarantined.empty()) return "quarantined " + event.quarantined;
  std::vector<std::string> lines;
  for (const SubscriptionFacts& facts : event.subscriptions) {
    std::string who = "subscription " + facts.provider_subscription_id;
    const std::pair<const char*, const std::string&> kNames[] = {
        {" customer ", facts.customer_id},
        {" subject ", facts.subject},
        {" product ", facts.product_id}};
    for (const auto& [label, text] : kNames) {
      if (!text.empty()) absl::StrAppend(&who, label, text);
    }
    lines.push_back(std::move(who));
    for (const Fact& fact : facts.facts) lines.push_back(InWords(fact));
  }
  return absl::StrJoin(lines, "\n");
}

std::string InWords(absl::string_view body) {
  const absl::StatusOr<ProviderEvent> event = Parse(body);
  return event.ok() ? InWords(*event) : event.status().ToString();
}

// ---- bodies ----

// An event at 2026-01-01T00:00:10Z with any members of `data`.
std::string Event(absl::string_view type, absl::string_view members,
                  absl::string_view timestamp = "2026-01-01T00:00:10Z") {
  return absl::StrCat(R"({"type":"subscription.)", type, R"(","timestamp":")",
                      timestamp,
                      R"(","data":{"subscription_id":"sub_1","version":1)",
                      members.empty() ? "" : ",", members, "}}");
}

constexpr absl::string_view kPeriod =
    R"("period":{"starts_at":"2026-01-01T00:00:00Z",)"
    R"("ends_at":"2026-02-01T00:00:00Z"})";
constexpr absl::string_view kPayment =
    R"("payment":{"id":"pay_1","amount_minor":900,"currency":"EUR"})";

std::string Active(absl::string_view more = "",
                   absl::string_view timestamp = "2026-01-01T00:00:10Z") {
  return Event(
      "active",
      absl::StrCat(kPeriod, ",", kPayment, more.empty() ? "" : ",", more),
      timestamp);
}

// The text with one piece replaced, which must be there.
std::string With(const std::string& text, const std::string& from,
                 const std::string& to) {
  EXPECT_TRUE(absl::StrContains(text, from)) << from;
  return absl::StrReplaceAll(text, {{from, to}});
}

std::string Why(absl::string_view body) {
  const absl::StatusOr<ProviderEvent> event = Parse(body);
  EXPECT_THAT(event, IsOk()) << body;
  if (!event.ok()) return "";
  if (!event->quarantined.empty()) {
    // Nothing of it is applied, and it is still known what it was about.
    EXPECT_THAT(event->subscriptions, IsEmpty());
    EXPECT_FALSE(event->type.empty());
  }
  return event->quarantined;
}

// ---- the document ----

std::string Document() {
  std::ifstream file(TENURE_TEST_DOCS "/standard-webhooks.md",
                     std::ios::binary);
  EXPECT_TRUE(file.good());
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Block {
  std::string language;
  std::string text;
};

std::vector<Block> Blocks() {
  std::vector<Block> blocks;
  bool inside = false;
  for (const absl::string_view line : absl::StrSplit(Document(), '\n')) {
    if (absl::StartsWith(line, "```")) {
      if (!inside) blocks.push_back({std::string(line.substr(3)), ""});
      inside = !inside;
    } else if (inside) {
      std::string& text = blocks.back().text;
      absl::StrAppend(&text, text.empty() ? "" : "\n", line);
    }
  }
  EXPECT_FALSE(inside);
  return blocks;
}

TEST(StandardWebhooksDocument, EveryExampleGivesTheFactsBelowIt) {
  const std::vector<Block> blocks = Blocks();
  std::vector<std::string> types;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].language != "json") continue;
    ASSERT_LT(i + 1, blocks.size());
    ASSERT_EQ(blocks[i + 1].language, "facts") << blocks[i].text;
    EXPECT_EQ(InWords(blocks[i].text), blocks[i + 1].text) << blocks[i].text;
    const absl::StatusOr<ProviderEvent> event = Parse(blocks[i].text);
    ASSERT_THAT(event, IsOk());
    types.push_back(event->type);
  }
  EXPECT_GE(types.size(), 19u);
  // Every type of the table has one.
  int listed = 0;
  for (const absl::string_view line : absl::StrSplit(Document(), '\n')) {
    if (!absl::StartsWith(line, "| `subscription.")) continue;
    EXPECT_THAT(types, ::testing::Contains(
                           std::string(line.substr(3, line.find('`', 3) - 3))));
    ++listed;
  }
  EXPECT_EQ(listed, 13);
}

TEST(StandardWebhooksDocument, C021_TheSampleDeliveryVerifies) {
  for (const Block& block : Blocks()) {
    if (block.language != "http") continue;
    Delivery delivery;
    bool in_body = false;
    for (const absl::string_view line : absl::StrSplit(block.text, '\n')) {
      if (in_body) {
        delivery.body = std::string(line);
      } else if (line.empty()) {
        in_body = true;
      } else {
        const std::pair<std::string, std::string> header =
            absl::StrSplit(line, absl::MaxSplits(": ", 1));
        delivery.headers.push_back(header);
      }
    }
    EXPECT_TRUE(absl::StrContains(Document(), kSecret));
    EXPECT_THAT(Adapter().Verify(delivery, Utc("2026-01-01T00:00:06Z")),
                IsOkAndHolds("test-key"));
    ASSERT_OK_AND_ASSIGN(const ProviderEvent event, Adapter().Read(delivery));
    EXPECT_EQ(event.event_id, "msg_2Zc0Ksample");
    return;
  }
  FAIL() << "the document has no sample delivery";
}

// ---- envelope ----

TEST(StandardWebhooksAdapter, ReadsTheEnvelope) {
  ASSERT_OK_AND_ASSIGN(
      const ProviderEvent event,
      Parse(Active(R"("customer_id":"cust_1","account":"acct_1",)"
                   R"("livemode":false)",
                   "2026-01-01T08:00:10.1234567+08:00")));
  EXPECT_EQ(event.event_id, "");
  EXPECT_EQ(event.type, "subscription.active");
  EXPECT_EQ(event.account, "acct_1");
  EXPECT_FALSE(event.livemode);
  EXPECT_EQ(event.customer_id, "cust_1");
  EXPECT_EQ(event.occurred_at, Utc("2026-01-01T00:00:10.123456Z"));
  ASSERT_THAT(event.subscriptions, SizeIs(1));
  const SubscriptionFacts& facts = event.subscriptions[0];
  EXPECT_EQ(facts.item_key, "");
  EXPECT_THAT(facts.payment_names, IsEmpty());
  EXPECT_THAT(facts.alternatives, IsEmpty());
  ASSERT_THAT(facts.facts, SizeIs(2));
  using subscription::v1::FACT_LAYER_MONEY;
  using subscription::v1::FACT_LAYER_PROVIDER;
  EXPECT_EQ(facts.facts[0].layer(), FACT_LAYER_PROVIDER);
  EXPECT_EQ(facts.facts[1].layer(), FACT_LAYER_MONEY);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(facts.facts[static_cast<size_t>(i)].ordinal(), i);
    ASSERT_OK_AND_ASSIGN(
        const absl::Time order_at,
        FromProto("order_at", facts.facts[static_cast<size_t>(i)].order_at()));
    EXPECT_EQ(order_at, event.occurred_at);
  }
}

TEST(StandardWebhooksAdapter, C016_LivemodeIsReadAndNeverGuessed) {
  for (const auto& [text, livemode] :
       {std::pair("", true), std::pair("\"livemode\":true", true),
        std::pair("\"livemode\":false", false)}) {
    ASSERT_OK_AND_ASSIGN(const ProviderEvent event, Parse(Active(text)));
    EXPECT_EQ(event.livemode, livemode);
  }
  for (const char* bad : {"null", "\"false\"", "0", "\"\"", "[]", "{}"}) {
    EXPECT_THAT(Parse(Active(absl::StrCat("\"livemode\":", bad))),
                IsMalformed())
        << bad;
    // Also of a type that is not read.
    EXPECT_THAT(Parse(Event("sneezed", absl::StrCat("\"livemode\":", bad))),
                IsMalformed())
        << bad;
  }
}

TEST(StandardWebhooksAdapter, C015_TheAccountIsPartOfTheKey) {
  for (const char* none : {"", "\"account\":null", "\"account\":\"\""}) {
    ASSERT_OK_AND_ASSIGN(const ProviderEvent event, Parse(Active(none)));
    EXPECT_EQ(event.account, "");
  }
  for (const std::string& bad :
       {std::string("1"), std::string("[]"), std::string("false"),
        std::string("\"a\\u0000\""), std::string("\"\\ud800\""),
        "\"" + std::string(256, 'a') + "\""}) {
    EXPECT_THAT(Parse(Active("\"account\":" + bad)), IsMalformed()) << bad;
  }
}

TEST(StandardWebhooksAdapter, TheEnvelopeHasToBeThere) {
  for (const std::string& bad :
       {std::string("null"),
        std::string("[]"),
        std::string("5"),
        std::string("\"a\""),
        std::string("{}"),
        std::string(R"({"test": 2432232314})"),
        With(Active(), "type", "kind"),
        With(Active(), "\"subscription.active\"", "7"),
        With(Active(), "\"subscription.active\"", "\"\""),
        With(Active(), "\"subscription.active\"", "null"),
        With(Active(), "\"subscription.active\"", "\"a\\nb\""),
        With(Active(), "subscription.active", std::string(256, 'a')),
        With(Active(), "\"timestamp\"", "\"time\""),
        With(Active(), "\"2026-01-01T00:00:10Z\"", "1767225610"),
        With(Active(), "\"2026-01-01T00:00:10Z\"", "\"yesterday\""),
        With(Active(), "\"2026-01-01T00:00:10Z\"", "\"infinite-future\""),
        With(Active(), "\"2026-01-01T00:00:10Z\"", "\"10000-01-01T00:00:00Z\""),
        With(Active(), "\"data\"", "\"datum\""),
        std::string(R"({"type":"a","timestamp":"2026-01-01T00:00:00Z",)"
                    R"("data":[]})"),
        std::string(R"({"type":"a","timestamp":"2026-01-01T00:00:00Z",)"
                    R"("data":null})")}) {
    EXPECT_THAT(Parse(bad), IsMalformed()) << bad;
  }
}

TEST(StandardWebhooksAdapter, OtherTypesAreIgnoredWhateverTheySay) {
  for (const char* type :
       {"sneezed", "Active", "active ", "active.v2", "", "deleted"}) {
    EXPECT_EQ(InWords(Event(type, "\"payment\":7")),
              "ignored type_carries_no_fact")
        << type;
  }
  ASSERT_OK_AND_ASSIGN(
      const ProviderEvent event,
      Parse(R"({"type":"customer.deleted","timestamp":"2026-01-01T00:00:00Z",)"
            R"("data":{"customer_id":"cust_1"}})"));
  EXPECT_EQ(event.ignored, "type_carries_no_fact");
  // So that an erasure finds it.
  EXPECT_EQ(event.customer_id, "cust_1");
}

// ---- the event's id ----

Delivery WithId(const std::string& id) {
  return {{{"webhook-id", id}}, Active()};
}

TEST(StandardWebhooksAdapter, TheIdIsTheHeadersAndNeverTheBodys) {
  Delivery delivery = WithId("msg_1");
  delivery.headers[0].first = "Webhook-ID";
  delivery.body = With(delivery.body, "{\"type\"", "{\"id\":\"x\",\"type\"");
  ASSERT_OK_AND_ASSIGN(const ProviderEvent event, Adapter().Read(delivery));
  EXPECT_EQ(event.event_id, "msg_1");
  EXPECT_EQ(event.type, "subscription.active");
}

TEST(StandardWebhooksAdapter, C017_ABlankIdIsRefused) {
  for (const char* id : {"", " ", "\t", "   "}) {
    EXPECT_THAT(Adapter().Read(WithId(id)), HasNoId());
  }
  Delivery none = WithId("");
  none.headers.clear();
  EXPECT_THAT(Adapter().Read(none), HasNoId());
  // What is no event is told before it is missed an id.
  none.body = "{}";
  EXPECT_THAT(Adapter().Read(none), IsMalformed());
}

TEST(StandardWebhooksAdapter, C019_IdsAreComparedAsBytes) {
  std::vector<std::string> seen;
  for (const std::string& id :
       {std::string("msg_\xc3\xa9"), std::string("msg_e\xcc\x81"),
        std::string("MSG_1"), std::string("msg_1"), std::string("msg_1 "),
        std::string("msg_🙂"), std::string(255, 'a')}) {
    ASSERT_OK_AND_ASSIGN(const ProviderEvent event, Adapter().Read(WithId(id)));
    EXPECT_EQ(event.event_id, id);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), event.event_id), 0);
    seen.push_back(event.event_id);
  }
  for (const std::string& id :
       {std::string("msg_1\t"), std::string("msg\x01"), std::string("msg\x7f"),
        std::string("msg_\xff"), std::string("a\0b", 3),
        std::string(256, 'a')}) {
    EXPECT_THAT(Adapter().Read(WithId(id)), IsMalformed()) << id;
  }
}

// ---- effects ----

TEST(StandardWebhooksAdapter, EveryTypeSaysWhatItsNamePromises) {
  const struct {
    const char* type;
    std::string members;
    const char* words;
  } kTable[] = {
      {"created", "", "CREATED starts_at=2026-01-01T00:00:10Z"},
      {"created", R"("starts_at":"2025-12-01T00:00:00Z")",
       "CREATED starts_at=2025-12-01T00:00:00Z"},
      {"trialing",
       R"("trial":{"starts_at":"2026-01-01T00:00:00Z",)"
       R"("ends_at":"2026-01-15T00:00:00Z"},"will_renew":false)",
       "SNAPSHOT provider_state=trialing period_ends_at=2026-01-15T00:00:00Z "
       "starts_at=2026-01-01T00:00:00Z trial_ends_at=2026-01-15T00:00:00Z"},
      {"active", absl::StrCat(kPeriod, ",", kPayment),
       "SNAPSHOT provider_state=active period_ends_at=2026-02-01T00:00:00Z "
       "will_renew=true\n"
       "PAID payment_key=pay_1 period_starts_at=2026-01-01T00:00:00Z "
       "period_ends_at=2026-02-01T00:00:00Z amount_minor=900 currency=EUR "
       "leeway_until=2026-02-01T03:00:00Z will_renew=true "
       "paid_at=2026-01-01T00:00:10Z"},
      // Neither renews, so nothing is waited for behind the end.
      {"renewed",
       absl::StrCat(kPeriod, ",", kPayment, R"(,"will_renew":false)"),
       "SNAPSHOT provider_state=active period_ends_at=2026-02-01T00:00:00Z\n"
       "PAID payment_key=pay_1 period_starts_at=2026-01-01T00:00:00Z "
       "period_ends_at=2026-02-01T00:00:00Z amount_minor=900 currency=EUR "
       "paid_at=2026-01-01T00:00:10Z"},
      {"renewed",
       absl::StrCat(kPeriod, ",", kPayment,
                    R"(,"ends_at":"2026-01-20T00:00:00Z",)"
                    R"("starts_at":"2025-06-01T00:00:00Z")"),
       "SNAPSHOT provider_state=active period_ends_at=2026-02-01T00:00:00Z "
       "starts_at=2025-06-01T00:00:00Z cancel_at=2026-01-20T00:00:00Z\n"
       "PAID payment_key=pay_1 period_starts_at=2026-01-01T00:00:00Z "
       "period_ends_at=2026-02-01T00:00:00Z amount_minor=900 currency=EUR "
       "paid_at=2026-01-01T00:00:10Z"},
      {"past_due", R"("payment":{"id":"pay_2"})",
       "PAYMENT_FAILED payment_key=pay_2"},
      {"past_due",
       R"("payment":{"id":"pay_2"},"grace_until":"2026-01-08T00:00:00Z")",
       "PAYMENT_FAILED payment_key=pay_2 "
       "grace_period_ends_at=2026-01-08T00:00:00Z grace_by_provider=true"},
      {"canceled", R"("cancel_at_period_end":true)", "CANCEL_SCHEDULED"},
      // The edge: an end at the event's own instant has come.
      {"canceled", R"("ends_at":"2026-01-01T00:00:10.000001Z")",
       "CANCEL_SCHEDULED cancel_at=2026-01-01T00:00:10.000001Z"},
      {"canceled", R"("ends_at":"2026-01-01T00:00:10Z")",
       "ENDED ended_at=2026-01-01T00:00:10Z"},
      {"canceled",
       R"("ends_at":"2026-01-01T00:00:09Z","cancel_at_period_end":true)",
       "ENDED ended_at=2026-01-01T00:00:09Z"},
      {"canceled",
       R"("ends_at":"2026-02-01T00:00:00Z","cancel_at_period_end":false)",
       "CANCEL_SCHEDULED cancel_at=2026-02-01T00:00:00Z"},
      {"uncanceled", "", "CANCEL_REVERTED"},
      {"paused", "", "PAUSED pause_at=2026-01-01T00:00:10Z"},
      {"paused", R"("pause_at":"2026-02-01T00:00:00Z")",
       "PAUSED pause_at=2026-02-01T00:00:00Z"},
      {"resumed", "", "RESUMED"},
      {"resumed", R"("ends_at":"2026-02-11T00:00:00Z")",
       "RESUMED expires_at=2026-02-11T00:00:00Z"},
      {"plan_changed", R"("product_id":"p")", "PLAN_CHANGED"},
      {"plan_changed",
       R"("product_id":"p","effective_at":"2026-02-01T00:00:00Z")",
       "PLAN_CHANGED effective_at=2026-02-01T00:00:00Z"},
      {"revoked", "", "REVOKED revoked_at=2026-01-01T00:00:10Z"},
      {"revoked", R"("ends_at":"2026-01-01T00:00:10Z","reason":"fraud")",
       "REVOKED reason=fraud revoked_at=2026-01-01T00:00:10Z"},
      {"refunded",
       R"("payment":{"id":"pay_1"},"refund":{"id":"re_1","amount_minor":1})",
       "REFUNDED payment_key=pay_1 refund_key=re_1 amount_minor=1"},
      {"refunded",
       R"("payment":{"id":"pay_1"},)"
       R"("refund":{"id":"re_1","amount_minor":900,"full":true})",
       "REFUNDED payment_key=pay_1 refund_key=re_1 amount_minor=900 full=true"},
      {"refund_reversed", R"("refund":{"id":"re_1"})",
       "REFUND_REVERSED refund_key=re_1"},
  };
  for (const auto& row : kTable) {
    const std::string body = Event(row.type, row.members);
    std::string expected = "subscription sub_1";
    if (absl::StrContains(row.members, "product_id")) expected += " product p";
    EXPECT_EQ(InWords(body), absl::StrCat(expected, "\n", row.words)) << body;
    // Each gives facts that can be stored.
    ASSERT_OK_AND_ASSIGN(const ProviderEvent event, Parse(body));
    for (Fact fact : event.subscriptions[0].facts) {
      if (fact.has_plan_changed()) fact.set_plan("p");
      EXPECT_THAT(domain::MakeOrderedFact("msg_1", fact), IsOk()) << body;
    }
  }
}

TEST(StandardWebhooksAdapter, WhatIsRequiredIsMissedByName) {
  const struct {
    const char* type;
    std::string members;
    const char* why;
  } kTable[] = {
      {"trialing", "", "trial_starts_at_missing"},
      {"trialing", R"("trial":{"starts_at":"2026-01-01T00:00:00Z"})",
       "trial_ends_at_missing"},
      {"trialing", R"("trial":7)", "trial_starts_at_missing"},
      {"active", std::string(kPayment), "period_starts_at_missing"},
      {"active", std::string(kPeriod), "payment_id_missing"},
      {"active", absl::StrCat(kPeriod, R"(,"payment":{"id":"p"})"),
       "payment_amount_minor_missing"},
      {"active",
       absl::StrCat(kPeriod, R"(,"payment":{"id":"p","amount_minor":1})"),
       "payment_currency_missing"},
      {"past_due", "", "payment_id_missing"},
      {"canceled", "", "ends_at_missing"},
      {"canceled", R"("cancel_at_period_end":false)", "ends_at_missing"},
      {"plan_changed", "", "product_id_missing"},
      {"refunded", R"("refund":{"id":"re_1","full":true})",
       "payment_id_missing"},
      {"refunded", R"("payment":{"id":"p"},"refund":{"full":true})",
       "refund_id_missing"},
      {"refunded", R"("payment":{"id":"p"},"refund":{"id":"re_1"})",
       "refund_amount_minor_missing"},
      {"refunded",
       R"("payment":{"id":"p"},"refund":{"id":"re_1","full":false})",
       "refund_amount_minor_missing"},
      {"refund_reversed", R"("refund":{})", "refund_id_missing"},
  };
  for (const auto& row : kTable) {
    EXPECT_EQ(Why(Event(row.type, row.members)), row.why) << row.members;
  }
  for (const char* type :
       {"created", "trialing", "active", "renewed", "past_due", "canceled",
        "uncanceled", "paused", "resumed", "plan_changed", "revoked",
        "refunded", "refund_reversed"}) {
    const std::string body = Event(type, "");
    EXPECT_EQ(Why(With(body, "\"subscription_id\":\"sub_1\"", "\"x\":1")),
              "subscription_id_missing");
    EXPECT_EQ(Why(With(body, "\"version\":1", "\"x\":1")), "version_missing");
  }
}

TEST(StandardWebhooksAdapter, AWrongMemberIsNotTakenForAnAbsentOne) {
  const std::string refund = Event(
      "refunded", R"("payment":{"id":"p"},"refund":{"id":"r","full":true})");
  const struct {
    std::string body;
    const char* why;
  } kTable[] = {
      {With(Active(), "\"version\":1", "\"version\":0"), "version_invalid"},
      {With(Active(), "\"version\":1", "\"version\":-1"), "version_invalid"},
      {With(Active(), "\"version\":1", "\"version\":1.0"), "version_invalid"},
      {With(Active(), "\"version\":1", "\"version\":\"1\""), "version_invalid"},
      {With(Active(), "\"version\":1", "\"version\":9223372036854775808"),
       "version_invalid"},
      {With(Active(), "\"sub_1\"", "42"), "subscription_id_invalid"},
      {With(Active(), "\"sub_1\"", "{\"id\":\"sub_1\"}"),
       "subscription_id_invalid"},
      {With(Active(), "sub_1", std::string(256, 's')),
       "subscription_id_invalid"},
      {Active(R"("customer_id":7)"), "customer_id_invalid"},
      {Active(R"("subject":7)"), "subject_invalid"},
      {Active(R"("subject":["a"])"), "subject_invalid"},
      {Active(R"("product_id":7)"), "product_id_invalid"},
      {Active(R"("will_renew":"yes")"), "will_renew_invalid"},
      {Active(R"("will_renew":1)"), "will_renew_invalid"},
      {Active(R"("cancel_at_period_end":"true")"),
       "cancel_at_period_end_invalid"},
      // It ends or it renews.
      {Active(R"("will_renew":true,"cancel_at_period_end":true)"),
       "will_renew_invalid"},
      {Active(R"("will_renew":true,"ends_at":"2026-01-20T00:00:00Z")"),
       "will_renew_invalid"},
      // Not active any more, by its own word.
      {Active(R"("ends_at":"2026-01-01T00:00:10Z")"), "ends_at_invalid"},
      {Active(R"("starts_at":"soon")"), "starts_at_invalid"},
      {With(Active(), "\"pay_1\"", "1"), "payment_id_invalid"},
      {With(Active(), "900", "-1"), "payment_amount_minor_invalid"},
      {With(Active(), "900", "9.00"), "payment_amount_minor_invalid"},
      {With(Active(), "900", "\"900\""), "payment_amount_minor_invalid"},
      {With(Active(), "900", "1e3"), "payment_amount_minor_invalid"},
      {With(Active(), "\"EUR\"", "\"eur\""), "payment_currency_invalid"},
      {With(Active(), "\"EUR\"", "\"EURO\""), "payment_currency_invalid"},
      {With(Active(), "\"EUR\"", "\"€\""), "payment_currency_invalid"},
      {With(Active(), "\"EUR\"", "978"), "payment_currency_invalid"},
      {With(Active(), "900", "900,\"paid_at\":1767225600"),
       "payment_paid_at_invalid"},
      {With(Active(), "900", "900,\"replaces\":1"), "payment_replaces_invalid"},
      {With(Active(), "900", "900,\"replaces\":\"pay_1\""),
       "payment_replaces_invalid"},
      {Event("past_due", R"("payment":{"id":"p"},"grace_until":7)"),
       "grace_until_invalid"},
      {Event("paused", R"("pause_at":"2026-13-01T00:00:00Z")"),
       "pause_at_invalid"},
      {Event("resumed", R"("ends_at":false)"), "ends_at_invalid"},
      {Event("plan_changed", R"("product_id":"p","effective_at":"now")"),
       "effective_at_invalid"},
      {Event("revoked", R"("ends_at":"2026-01-01T00:00:11Z")"),
       "ends_at_invalid"},
      {Event("revoked", R"("reason":7)"), "reason_invalid"},
      {With(refund, "\"full\":true", "\"full\":\"yes\""),
       "refund_full_invalid"},
      {With(refund, "\"full\":true", "\"amount_minor\":0"),
       "refund_amount_minor_invalid"},
      {With(refund, "\"full\":true", "\"full\":true,\"amount_minor\":-1"),
       "refund_amount_minor_invalid"},
  };
  for (const auto& row : kTable) {
    EXPECT_EQ(Why(row.body), row.why) << row.body;
  }
  // 0 is an amount: the sender's word is enough.
  EXPECT_EQ(Why(With(Active(), "900", "0")), "");
  EXPECT_EQ(Why(With(Active(), "900", "9223372036854775807")), "");
}

// ---- odd instants ----

TEST(StandardWebhooksAdapter, C069_AnAbsentEndIsNeverALifetime) {
  for (const char* none : {"null", "\"\""}) {
    EXPECT_EQ(Why(With(Active(), "\"2026-02-01T00:00:00Z\"", none)),
              "period_ends_at_missing");
    EXPECT_EQ(Why(Event("canceled", absl::StrCat("\"ends_at\":", none))),
              "ends_at_missing");
    // Where a member may be absent, so may its content.
    EXPECT_EQ(InWords(Active(
                  absl::StrCat("\"ends_at\":", none, ",\"starts_at\":", none,
                               ",\"will_renew\":", none, ",\"subject\":", none,
                               ",\"cancel_at_period_end\":", none))),
              InWords(Active()));
  }
  EXPECT_EQ(Why(Event("active", kPayment)), "period_starts_at_missing");
  for (const char* type :
       {"created", "trialing", "active", "renewed", "past_due", "canceled",
        "uncanceled", "paused", "resumed", "plan_changed", "revoked",
        "refunded", "refund_reversed"}) {
    const absl::StatusOr<ProviderEvent> event =
        Parse(Event(type, absl::StrCat(R"("lifetime":true,"product_id":"p",)",
                                       kPeriod, ",", kPayment)));
    ASSERT_THAT(event, IsOk());
    for (const SubscriptionFacts& facts : event->subscriptions) {
      for (const Fact& fact : facts.facts) {
        EXPECT_FALSE(fact.paid().lifetime());
      }
    }
  }
}

TEST(StandardWebhooksAdapter, C070_OnlyTheYears1To9999) {
  for (const char* good :
       {"2038-01-19T03:14:08Z", "9999-12-31T23:59:59.999999Z"}) {
    EXPECT_EQ(Why(With(Active(), "2026-02-01T00:00:00Z", good)), "") << good;
    ASSERT_OK_AND_ASSIGN(const ProviderEvent event,
                         Parse(With(Active(), "2026-02-01T00:00:00Z", good)));
    for (const Fact& fact : event.subscriptions[0].facts) {
      EXPECT_THAT(domain::MakeOrderedFact("msg_1", fact), IsOk()) << good;
    }
  }
  for (const char* bad :
       {"infinity", "-infinity", "infinite-future", "infinite-past",
        "294276-12-31T00:00:00Z", "10000-01-01T00:00:00Z",
        "0000-12-31T00:00:00Z", "9999-12-31T23:59:59-01:00", "253402300800",
        "2026-02-30T00:00:00Z", "2026-02-01", "2026-02-01T00:00:00"}) {
    EXPECT_EQ(Why(With(Active(), "2026-02-01T00:00:00Z", bad)),
              "period_ends_at_invalid")
        << bad;
    EXPECT_EQ(Why(Event("canceled", absl::StrCat("\"ends_at\":\"", bad, "\""))),
              "ends_at_invalid")
        << bad;
  }
  for (const char* number : {"253402300800", "4e15", "-1", "1767225600"}) {
    EXPECT_EQ(Why(With(Active(), "\"2026-02-01T00:00:00Z\"", number)),
              "period_ends_at_invalid")
        << number;
  }
}

TEST(StandardWebhooksAdapter, C072_ATermHasALength) {
  const auto ends = [](const std::string& at) {
    return With(Active(), "2026-02-01T00:00:00Z", at);
  };
  EXPECT_EQ(Why(ends("2026-01-01T00:00:00Z")), "period_invalid");
  EXPECT_EQ(Why(ends("2025-12-31T23:59:59Z")), "period_invalid");
  EXPECT_EQ(Why(ends("2026-01-01T00:00:00.0000009Z")), "period_invalid");
  EXPECT_EQ(Why(ends("2026-01-01T00:00:00.001Z")), "");
  EXPECT_EQ(Why(ends("2026-01-01T00:00:00.000001Z")), "");
  EXPECT_EQ(
      Why(Event("trialing", R"("trial":{"starts_at":"2026-01-01T00:00:00Z",)"
                            R"("ends_at":"2026-01-01T00:00:00Z"})")),
      "trial_invalid");
}

// ---- hostile bytes ----

TEST(StandardWebhooksAdapter, C031_NulIsNoTextAndHarmsNothingElsewhere) {
  EXPECT_EQ(InWords(Active(R"("name":"a\u0000b","a\u0000b":1)")),
            InWords(Active()));
  EXPECT_EQ(Why(Active(R"("subject":"a\u0000b")")), "subject_invalid");
  EXPECT_EQ(Why(With(Active(), "sub_1", R"(sub\u0000)")),
            "subscription_id_invalid");
  std::string raw = Active();
  raw[raw.find("sub_1")] = '\0';
  EXPECT_THAT(Parse(raw), IsMalformed());
}

TEST(StandardWebhooksAdapter, C032_HalfACharacterIsNoName) {
  EXPECT_EQ(InWords(Active(R"("name":"\ud800","\udc00":1)")),
            InWords(Active()));
  for (const std::string& bad :
       {Active(R"("subject":"user-\ud800")"),
        Active(R"("customer_id":"\udc00")"),
        Active(R"("product_id":"a\ud800b")"),
        With(Active(), "sub_1", R"(sub_\ud800)"),
        With(Active(), "pay_1", R"(pay_\ud800)"),
        With(Active(), "EUR", R"(EU\ud800)"),
        With(Active(), "subscription.active", R"(subscription.\ud800)"),
        // A fault beside it does not hide it.
        With(Active(R"("subject":"\ud800")"), "900", "-1")}) {
    EXPECT_THAT(Parse(bad), IsMalformed()) << bad;
  }
  for (const std::string& bad :
       {With(Active(), "sub_1", "\xff\xfe"),
        With(Active(), "sub_1", "\xc0\x80"), "\xef\xbb\xbf" + Active(),
        std::string("\xff\xfe{\0}\0", 6)}) {
    EXPECT_THAT(Parse(bad), IsMalformed());
  }
}

TEST(StandardWebhooksAdapter, C033_DeepNestingIsRefused) {
  const auto nested = [](size_t depth, char open, char close) {
    std::string inside;
    for (size_t i = 0; i < depth; ++i) {
      inside += open;
      if (open == '{') inside += "\"a\":";
    }
    inside += "1";
    inside += std::string(depth, close);
    return Active("\"more\":" + inside);
  };
  for (const auto& [open, close] : {std::pair('[', ']'), std::pair('{', '}')}) {
    EXPECT_THAT(Parse(nested(32, open, close)), IsOk());
    EXPECT_THAT(Parse(nested(62, open, close)), IsOk());
    for (const size_t depth : {63u, 64u, 65u, 1000u}) {
      EXPECT_THAT(Parse(nested(depth, open, close)), IsMalformed()) << depth;
    }
  }
  EXPECT_THAT(Parse(std::string(200'000, '[')), IsMalformed());
}

TEST(StandardWebhooksAdapter, C037_EveryPrefixAndEveryTailIsRefused) {
  const std::string good = Active();
  for (size_t size = 0; size < good.size(); ++size) {
    ASSERT_THAT(Parse(good.substr(0, size)), IsMalformed()) << size;
  }
  for (const std::string& bad :
       {good + "{}", good + ",", good + "x", good + std::string(1, '\0'),
        With(good, "900", "NaN"), With(good, "900", "900/*cents*/"),
        With(good, "\"", "'"), With(good, "900", "0900"),
        With(good, "900", "+900"),
        Active("\"more\":\"" + std::string(1 << 20, 'a') + "\"")}) {
    EXPECT_THAT(Parse(bad), IsMalformed());
  }
  EXPECT_THAT(Parse(" \r\n\t" + good + " \n"), IsOk());
}

TEST(StandardWebhooksAdapter, OfADoubledMemberTheLastOneCounts) {
  EXPECT_EQ(InWords(With(Active(), "\"sub_1\"",
                         "\"sub_0\",\"subscription_id\":\"sub_1\"")),
            InWords(Active()));
}

// ---- signature ----

TEST(StandardWebhooksAdapter, C023_VerifiesWithTheKeysOfItsSettings) {
  const StandardWebhooksAdapter adapter = Adapter();
  const absl::Time now = Utc("2026-01-01T00:00:10Z");
  Delivery delivery;
  delivery.body = Active();
  const std::string timestamp = absl::StrCat(absl::ToUnixSeconds(now));
  ASSERT_OK_AND_ASSIGN(
      const std::string digest,
      HmacSha256("Your billing signs with this key",
                 {"msg_1", ".", timestamp, ".", delivery.body}));
  delivery.headers = {{"Webhook-Id", "msg_1"},
                      {"Webhook-Timestamp", timestamp},
                      {"Webhook-Signature", "v1," + Base64Encode(digest)}};
  EXPECT_THAT(adapter.Verify(delivery, now), IsOkAndHolds("test-key"));
  EXPECT_THAT(adapter.Verify(delivery, now + absl::Seconds(300)), IsOk());
  EXPECT_THAT(adapter.Verify(delivery, now + absl::Seconds(301)),
              StatusIs(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(
      StandardWebhooksAdapter(StandardWebhooksSettings()).Verify(delivery, now),
      StatusIs(absl::StatusCode::kUnauthenticated));
  delivery.body += " ";
  EXPECT_THAT(adapter.Verify(delivery, now),
              StatusIs(absl::StatusCode::kUnauthenticated));
}

// ---- order ----

std::vector<domain::OrderedFact> Ordered(const std::string& event_id,
                                         const std::string& body) {
  std::vector<domain::OrderedFact> ordered;
  const absl::StatusOr<ProviderEvent> event = Parse(body);
  EXPECT_THAT(event, IsOk());
  if (!event.ok()) return ordered;
  for (const SubscriptionFacts& facts : event->subscriptions) {
    for (Fact fact : facts.facts) {
      fact.set_plan("pro");
      const auto one = domain::MakeOrderedFact(event_id, fact);
      EXPECT_THAT(one, IsOk());
      if (one.ok()) ordered.push_back(*one);
    }
  }
  return ordered;
}

absl::StatusOr<domain::Projection> Folded(
    const std::vector<std::vector<domain::OrderedFact>>& events) {
  std::vector<domain::OrderedFact> all;
  for (const auto& event : events) {
    all.insert(all.end(), event.begin(), event.end());
  }
  return domain::Fold(all);
}

TEST(StandardWebhooksAdapter, R5_TheTimestampOrdersWhateverTheArrival) {
  const auto active = Ordered("msg_9", Active());
  const auto canceled =
      Ordered("msg_3", Event("canceled", R"("cancel_at_period_end":true)",
                             "2026-01-10T00:00:00.000001Z"));
  // One microsecond is enough, and the ids say nothing.
  const auto uncanceled =
      Ordered("msg_1", Event("uncanceled", "", "2026-01-10T00:00:00.000002Z"));
  ASSERT_OK_AND_ASSIGN(const domain::Projection sent,
                       Folded({active, canceled, uncanceled}));
  ASSERT_OK_AND_ASSIGN(const domain::Projection late,
                       Folded({uncanceled, active, canceled}));
  EXPECT_EQ(sent, late);
  EXPECT_TRUE(sent.subscription.will_renew);
  EXPECT_FALSE(sent.subscription.needs_reconcile);
  EXPECT_EQ(sent.subscription.expires_at, Utc("2026-02-01T00:00:00Z"));
}

TEST(StandardWebhooksAdapter, R5_TwoStatesOfOneInstantAreMarked) {
  const auto active = Ordered("msg_1", Active());
  const auto canceled =
      Ordered("msg_2", Event("canceled", R"("cancel_at_period_end":true)",
                             "2026-01-10T00:00:00Z"));
  const auto uncanceled =
      Ordered("msg_3", Event("uncanceled", "", "2026-01-10T00:00:00Z"));
  ASSERT_OK_AND_ASSIGN(const domain::Projection one,
                       Folded({active, canceled, uncanceled}));
  ASSERT_OK_AND_ASSIGN(const domain::Projection two,
                       Folded({uncanceled, canceled, active}));
  EXPECT_EQ(one, two);
  EXPECT_TRUE(one.subscription.needs_reconcile);
  // Money and a state of one instant contradict nobody.
  ASSERT_OK_AND_ASSIGN(
      const domain::Projection paid,
      Folded({active,
              Ordered("msg_4", Event("past_due", R"("payment":{"id":"pay_2"})",
                                     "2026-01-01T00:00:10Z"))}));
  EXPECT_FALSE(paid.subscription.needs_reconcile);
}

TEST(StandardWebhooksAdapter, APaymentCountsOnceUnderAnyEvent) {
  ASSERT_OK_AND_ASSIGN(
      const domain::Projection projection,
      Folded({Ordered("msg_1", Active()),
              Ordered("msg_2", Active("", "2026-01-01T00:00:11Z")),
              Ordered("msg_3",
                      With(Active("", "2026-01-01T00:00:12Z"),
                           "subscription.active", "subscription.renewed"))}));
  EXPECT_THAT(projection.terms, SizeIs(1));
  EXPECT_EQ(projection.subscription.term_no, 1);
}

// A year of one subscription, told by the contract alone.
TEST(StandardWebhooksAdapter, ALifeFromTrialToRefund) {
  std::vector<std::vector<domain::OrderedFact>> events;
  const auto tell = [&](const std::string& body) {
    events.push_back(Ordered(absl::StrCat("msg_", events.size()), body));
    const absl::StatusOr<domain::Projection> projection = Folded(events);
    EXPECT_THAT(projection, IsOk());
    return projection.ok() ? projection->subscription : domain::Subscription();
  };
  const auto paid = [&](const char* id, const char* from, const char* to,
                        const char* at) {
    return With(With(With(Active("", at), "2026-01-01T00:00:00Z", from),
                     "2026-02-01T00:00:00Z", to),
                "pay_1", id);
  };
  EXPECT_EQ(tell(Event("created", "", "2026-01-01T00:00:00Z")).status,
            domain::Status::kPending);
  domain::Subscription s =
      tell(Event("trialing",
                 R"("trial":{"starts_at":"2026-01-01T00:00:00Z",)"
                 R"("ends_at":"2026-01-15T00:00:00Z"})",
                 "2026-01-01T00:00:01Z"));
  EXPECT_EQ(s.status, domain::Status::kTrialing);
  EXPECT_EQ(s.expires_at, Utc("2026-01-15T00:00:00Z"));
  s = tell(paid("pay_1", "2026-01-15T00:00:00Z", "2026-02-15T00:00:00Z",
                "2026-01-15T00:00:05Z"));
  EXPECT_EQ(s.status, domain::Status::kActive);
  EXPECT_EQ(s.expires_at, Utc("2026-02-15T00:00:00Z"));
  EXPECT_EQ(s.leeway_until, Utc("2026-02-15T03:00:00Z"));
  s = tell(Event("past_due",
                 R"("payment":{"id":"pay_2"},)"
                 R"("grace_until":"2026-02-22T00:00:00Z")",
                 "2026-02-15T00:00:30Z"));
  EXPECT_EQ(s.status, domain::Status::kPastDue);
  EXPECT_EQ(s.grace_period_ends_at, Utc("2026-02-22T00:00:00Z"));
  s = tell(paid("pay_2", "2026-02-15T00:00:00Z", "2026-03-15T00:00:00Z",
                "2026-02-17T00:00:00Z"));
  EXPECT_EQ(s.status, domain::Status::kActive);
  EXPECT_EQ(s.grace_period_ends_at, std::nullopt);
  EXPECT_EQ(s.expires_at, Utc("2026-03-15T00:00:00Z"));
  s = tell(Event("paused", "", "2026-03-01T00:00:00Z"));
  EXPECT_EQ(s.pause_at, Utc("2026-03-01T00:00:00Z"));
  s = tell(Event("resumed", R"("ends_at":"2026-03-25T00:00:00Z")",
                 "2026-03-11T00:00:00Z"));
  EXPECT_EQ(s.pause_at, std::nullopt);
  EXPECT_EQ(s.expires_at, Utc("2026-03-25T00:00:00Z"));
  s = tell(Event("canceled", R"("cancel_at_period_end":true)",
                 "2026-03-12T00:00:00Z"));
  EXPECT_FALSE(s.will_renew);
  EXPECT_EQ(s.cancel_at, Utc("2026-03-25T00:00:00Z"));
  s = tell(Event("uncanceled", "", "2026-03-13T00:00:00Z"));
  EXPECT_TRUE(s.will_renew);
  s = tell(Event("refunded",
                 R"("payment":{"id":"pay_2"},)"
                 R"("refund":{"id":"re_1","amount_minor":900})",
                 "2026-03-14T00:00:00Z"));
  EXPECT_EQ(s.status, domain::Status::kRevoked);
  s = tell(Event("refund_reversed", R"("refund":{"id":"re_1"})",
                 "2026-03-14T12:00:00Z"));
  EXPECT_EQ(s.status, domain::Status::kActive);
  s = tell(Event("revoked", R"("reason":"fraud")", "2026-03-14T18:00:00Z"));
  EXPECT_EQ(s.status, domain::Status::kRevoked);
}

}  // namespace
}  // namespace tenure::providers
