// A house billing system as a provider: deliveries of the documented contract,
// signed as Standard Webhooks, over the classes of webhook-ingest and a real
// PostgreSQL.
#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/crypto.h"
#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/ingest_stack.h"
#include "tests/integration/rows.h"
#include "tests/support/session.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace tenure::test {
namespace {

constexpr absl::string_view kKey = "a shared secret of this one test";
constexpr absl::string_view kSeed = "the seed of the sender's own key";
static_assert(kKey.size() == 32 && kSeed.size() == 32);

EVP_PKEY* SenderKey() {
  static EVP_PKEY* const key = EVP_PKEY_new_raw_private_key(
      EVP_PKEY_ED25519, nullptr,
      reinterpret_cast<const unsigned char*>(kSeed.data()), kSeed.size());
  return key;
}

std::string PublicKey() {
  std::string bytes(32, '\0');
  size_t size = bytes.size();
  EVP_PKEY_get_raw_public_key(
      SenderKey(), reinterpret_cast<unsigned char*>(bytes.data()), &size);
  return "whpk_" + Base64Encode(bytes);
}

std::string V1(const std::string& text) {
  return "v1," + Base64Encode(HmacSha256(kKey, {text}).value_or(""));
}

std::string V1a(const std::string& text) {
  std::string signature(64, '\0');
  size_t size = signature.size();
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  EVP_DigestSignInit(context, nullptr, nullptr, nullptr, SenderKey());
  EVP_DigestSign(context, reinterpret_cast<unsigned char*>(signature.data()),
                 &size, reinterpret_cast<const unsigned char*>(text.data()),
                 text.size());
  EVP_MD_CTX_free(context);
  return "v1a," + Base64Encode(signature);
}

// "200 applied", "200 applied again", "401 SIGNATURE_INVALID".
std::string Summary(const http::Response& response) {
  const absl::StatusOr<JsonValue> json = ParseJson(response.body);
  if (!json.ok()) return absl::StrCat(response.status, " no JSON");
  const auto text = [](const JsonValue* value) {
    return std::string(value == nullptr ? "" : value->AsString().value_or(""));
  };
  if (response.status != 200) {
    return absl::StrCat(response.status, " ",
                        text(json->At({"error", "reason"})));
  }
  return absl::StrCat(
      "200 ", text(json->Find("state")),
      json->Find("duplicate")->AsBool().value_or(false) ? " again" : "");
}

class StandardWebhooksIngest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    ASSERT_OK_AND_ASSIGN(session_, database_->OpenSession());
    ASSERT_OK(AddCatalog(*session_));
    ASSERT_OK(session_->Exec(
        "INSERT INTO provider_product (route_name, product_id, plan_name) "
        "VALUES ('house', 'pro_month', 'pro')"));
    IngestStack::Options options;
    options.house_keys = {"whsec_" + Base64Encode(kKey), PublicKey()};
    ASSERT_OK_AND_ASSIGN(stack_,
                         IngestStack::Make(database_->conninfo(), options));
    start_ = absl::FromUnixSeconds(
        absl::ToUnixSeconds(SystemClock::Instance().Now()) - 60 * 60);
  }

  // `minutes` after the start.
  std::string At(double minutes) const {
    return absl::FormatTime("\"%Y-%m-%dT%H:%M:%E*SZ\"",
                            start_ + absl::Minutes(minutes),
                            absl::UTCTimeZone());
  }

  std::string Event(const std::string& type, double minutes,
                    const std::string& members,
                    const std::string& subscription = "sub_1") const {
    return absl::StrCat(R"({"type":"subscription.)", type, R"(","timestamp":)",
                        At(minutes), R"(,"data":{"subscription_id":")",
                        subscription, R"(","version":1,"subject":"u1",)",
                        R"("product_id":"pro_month")",
                        members.empty() ? "" : ",", members, "}}");
  }

  // The period `n` of 30 days, from 0.
  std::string Paid(double minutes, int n,
                   const std::string& subscription = "sub_1") const {
    const double day = 24 * 60;
    return Event(n == 0 ? "active" : "renewed", minutes,
                 absl::StrCat(R"("period":{"starts_at":)", At(n * 30 * day),
                              R"(,"ends_at":)", At((n + 1) * 30 * day),
                              R"(},"payment":{"id":"pay_)", n,
                              R"(","amount_minor":900,"currency":"EUR"})"),
                 subscription);
  }

  http::Request Request(const std::string& id, const std::string& body,
                        std::string (*sign)(const std::string&) = V1) const {
    http::Request request;
    request.method = "POST";
    request.target = "/v1/webhooks/house";
    const std::string timestamp =
        absl::StrCat(absl::ToUnixSeconds(SystemClock::Instance().Now()));
    request.headers.Add("Content-Type", "application/json");
    request.headers.Add("webhook-id", id);
    request.headers.Add("webhook-timestamp", timestamp);
    request.headers.Add("webhook-signature",
                        sign(absl::StrCat(id, ".", timestamp, ".", body)));
    request.body = body;
    return request;
  }

  std::string Deliver(const std::string& id, const std::string& body,
                      std::string (*sign)(const std::string&) = V1) {
    return Summary(stack_->Post(Request(id, body, sign)));
  }

  std::string Scalar(absl::string_view sql) {
    const absl::StatusOr<std::string> value = session_->Scalar(sql);
    EXPECT_THAT(value, IsOk()) << sql;
    return value.value_or("");
  }

  // What the row has come to, without what tells when and how.
  std::string Row(const std::string& subscription = "sub_1") {
    return Scalar(absl::StrCat(
        "SELECT concat_ws(' ', status, expires_at, cancel_at, pause_at, "
        "grace_period_ends_at, will_renew, term_no, needs_reconcile) FROM "
        "subscription WHERE provider_subscription_id = '",
        subscription, "'"));
  }

  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<IngestStack> stack_;
  absl::Time start_;
};

TEST_F(StandardWebhooksIngest, C015_TheHeadersIdIsTheKeyOfTheInbox) {
  const std::string body = Paid(0, 0);
  EXPECT_EQ(Deliver("msg_1", body), "200 applied");
  EXPECT_EQ(Scalar("SELECT status FROM subscription"), "ACTIVE");
  EXPECT_EQ(Scalar("SELECT external_event_id FROM provider_event"), "msg_1");
  EXPECT_EQ(Scalar("SELECT kind FROM route WHERE name = 'house'"),
            "standard_webhooks");
  // A later attempt, with a signature of its own and by the other key.
  const std::string before = Row();
  EXPECT_EQ(Deliver("msg_1", body), "200 applied again");
  EXPECT_EQ(Deliver("msg_1", body, V1a), "200 applied again");
  EXPECT_EQ(Row(), before);
  // Another body under the same id is set aside, the first one stays.
  EXPECT_EQ(Deliver("msg_1", Event("revoked", 1, "")), "200 quarantined");
  EXPECT_EQ(Row(), before);
  EXPECT_EQ(Scalar("SELECT count(*) FROM event_conflict"), "1");
  // Ids are bytes.
  EXPECT_EQ(Deliver("MSG_1", Event("paused", 2, "")), "200 applied");
  EXPECT_EQ(Scalar("SELECT count(*) FROM provider_event"), "2");
}

TEST_F(StandardWebhooksIngest, C021_C023_WhatIsNotSignedIsNotStored) {
  const std::string body = Paid(0, 0);
  http::Request flipped = Request("msg_1", body);
  flipped.body[20] = static_cast<char>(flipped.body[20] ^ 1);
  EXPECT_EQ(Summary(stack_->Post(flipped)), "401 SIGNATURE_INVALID");
  http::Request unsigned_one = Request("msg_1", body);
  unsigned_one.headers = http::Headers();
  unsigned_one.headers.Add("Content-Type", "application/json");
  EXPECT_EQ(Summary(stack_->Post(unsigned_one)), "401 SIGNATURE_INVALID");
  EXPECT_EQ(Deliver("", body), "401 SIGNATURE_INVALID");
  EXPECT_EQ(Deliver(" ", body), "400 EVENT_ID_MISSING");
  EXPECT_EQ(Deliver("msg_1", "{}"), "400 EVENT_MALFORMED");
  EXPECT_EQ(Scalar("SELECT count(*) FROM provider_event"), "0");
  EXPECT_EQ(Deliver("msg_1", body, V1a), "200 applied");
}

TEST_F(StandardWebhooksIngest,
       C016_TestMoneyAndFaultsAreStoredAndChangeNothing) {
  ASSERT_EQ(Deliver("msg_1", Paid(0, 0)), "200 applied");
  const std::string before = Row();
  EXPECT_EQ(Deliver("msg_2", Event("revoked", 1, "\"livemode\":false")),
            "200 ignored");
  EXPECT_EQ(Deliver("msg_3", Event("canceled", 1, "\"ends_at\":7")),
            "200 quarantined");
  EXPECT_EQ(Deliver("msg_4", Event("sneezed", 1, "")), "200 ignored");
  EXPECT_EQ(Row(), before);
  EXPECT_EQ(Scalar("SELECT string_agg(reason, ' ' ORDER BY external_event_id) "
                   "FROM provider_event WHERE reason <> ''"),
            "livemode_mismatch ends_at_invalid type_carries_no_fact");
}

// Five events in each of their 120 orders, each order on a subscription of its
// own: the rows say the same.
TEST_F(StandardWebhooksIngest, R5_EveryOrderOfArrivalGivesTheSameRow) {
  std::vector<int> order = {0, 1, 2, 3, 4};
  std::string expected;
  int round = 0;
  do {
    const std::string subscription = absl::StrCat("sub_", ++round);
    for (const int n : order) {
      const std::string bodies[] = {
          Paid(0, 0, subscription),
          Event("past_due", 1, R"("payment":{"id":"pay_1"})", subscription),
          Paid(2, 1, subscription),
          Event("canceled", 3, R"("cancel_at_period_end":true)", subscription),
          Event("uncanceled", 3.001, "", subscription)};
      // The payment's key is one of the whole account.
      std::string body = bodies[n];
      for (size_t at = 0; (at = body.find("\"pay_", at)) != std::string::npos;
           at += 1) {
        body.insert(at + 1, absl::StrCat(round, "_"));
      }
      const std::string answer =
          Deliver(absl::StrCat("msg_", round, "_", n), body);
      ASSERT_TRUE(answer == "200 applied" || answer == "200 noop") << answer;
    }
    const std::string row = Row(subscription);
    if (expected.empty()) expected = row;
    ASSERT_EQ(row, expected) << ::testing::PrintToString(order);
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(round, 120);
  EXPECT_THAT(expected, ::testing::StartsWith("ACTIVE "));
  EXPECT_THAT(expected, ::testing::EndsWith(" t 2 f"));
}

// A stored body is read again without its headers: its facts bear the id it
// came with.
TEST_F(StandardWebhooksIngest, C011_AParkedEventKeepsItsIdWhenItIsTriedAgain) {
  std::string body = Paid(0, 0);
  body.replace(body.find(R"("subject":"u1")"), 14, R"("customer_id":"c1")");
  EXPECT_EQ(Deliver("msg_1", body), "200 parked");
  ASSERT_OK(session_->Exec(
      "INSERT INTO subject (external_id) VALUES ('u1');"
      "INSERT INTO customer_link (route_id, account, customer_id, "
      "subject_id) SELECT r.id, '', 'c1', s.id FROM route r, subject s "
      "WHERE r.name = 'house';"
      "UPDATE provider_event SET next_attempt_at = tenure_now()"));
  ASSERT_OK_AND_ASSIGN(const int64_t tried, stack_->RetryWaiting());
  EXPECT_EQ(tried, 1);
  EXPECT_EQ(Scalar("SELECT status FROM provider_event"), "applied");
  EXPECT_EQ(Scalar("SELECT string_agg(DISTINCT event_id, ' ') "
                   "FROM subscription_fact"),
            "msg_1");
  EXPECT_EQ(Scalar("SELECT status FROM subscription"), "ACTIVE");
}

}  // namespace
}  // namespace tenure::test
