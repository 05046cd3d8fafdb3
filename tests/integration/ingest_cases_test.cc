// What went wrong for others with webhooks, case by case, over HTTP: a real
// listener, the classes of webhook-ingest behind it, a real PostgreSQL. The
// service as a process where the case is about the process.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/http/server.h"
#include "tests/integration/cluster.h"
#include "tests/integration/ingest_stack.h"
#include "tests/integration/rows.h"
#include "tests/integration/stripe_event.h"
#include "tests/support/barrier.h"
#include "tests/support/http_client.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace tenure::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr char kPath[] = "/v1/webhooks/stripe";

// A wall clock that the test sets; time still passes for those who wait.
class SetClock : public Clock {
 public:
  explicit SetClock(absl::Time now) : now_(absl::ToUnixMicros(now)) {}

  absl::Time Now() const override { return absl::FromUnixMicros(now_); }
  absl::Duration Monotonic() const override {
    return SystemClock::Instance().Monotonic();
  }
  void Set(absl::Time now) { now_ = absl::ToUnixMicros(now); }

 private:
  std::atomic<int64_t> now_;
};

// What the provider sees of an answer: "200 applied", "200 applied again",
// "401 SIGNATURE_INVALID".
std::string Summary(int status, const std::string& body) {
  const absl::StatusOr<JsonValue> json = ParseJson(body);
  if (!json.ok()) return absl::StrCat(status, " not JSON: ", body);
  const auto text = [](const JsonValue* value) {
    return std::string(value == nullptr ? "" : value->AsString().value_or(""));
  };
  if (status != 200) {
    return absl::StrCat(status, " ", text(json->At({"error", "reason"})));
  }
  const JsonValue* duplicate = json->Find("duplicate");
  const bool again =
      duplicate != nullptr && duplicate->AsBool().value_or(false);
  return absl::StrCat(status, " ", text(json->Find("state")),
                      again ? " again" : "");
}

HttpHeaders StripeHeaders(const std::string& signature) {
  return {{"Content-Type", "application/json"},
          {"Stripe-Signature", signature}};
}

// customer.subscription.*, as far as Tenure reads it.
struct StripeSubscription {
  std::string event_id;
  std::string type = "customer.subscription.updated";
  absl::Time created;
  std::string subscription_id = "sub_1";
  std::string customer_id = "cus_1";
  // In the subscription's metadata; empty for none.
  std::string subject = "u1";
  std::string status = "active";
  std::string price_id = "price_pro";
  absl::Time started_at;
  absl::Time period_end;
  bool canceling = false;
  // JSON of previous_attributes.
  std::string previous = "{}";

  std::string Body() const {
    return absl::StrCat(
        "{\"id\":\"", event_id, "\",\"object\":\"event\",\"type\":\"", type,
        "\",\"livemode\":true,\"created\":", absl::ToUnixSeconds(created),
        ",\"data\":{\"previous_attributes\":", previous,
        ",\"object\":{\"id\":\"", subscription_id,
        "\",\"object\":\"subscription\",\"customer\":\"", customer_id,
        "\",\"status\":\"", status, "\",\"metadata\":",
        subject.empty()
            ? std::string("{}")
            : absl::StrCat("{\"tenure_subject\":\"", subject, "\"}"),
        ",\"cancel_at_period_end\":", canceling ? "true" : "false",
        ",\"start_date\":", absl::ToUnixSeconds(started_at),
        ",\"items\":{\"data\":[{\"price\":{\"id\":\"", price_id,
        "\"},\"current_period_end\":", absl::ToUnixSeconds(period_end),
        "}]}}}}");
  }
};

// A checkout that says whose customer it was.
std::string CheckoutBody(const std::string& event_id, absl::Time created,
                         const std::string& customer_id,
                         const std::string& subscription_id,
                         const std::string& subject) {
  return absl::StrCat(
      "{\"id\":\"", event_id,
      "\",\"object\":\"event\",\"type\":\"checkout.session.completed\","
      "\"livemode\":true,\"created\":",
      absl::ToUnixSeconds(created),
      ",\"data\":{\"object\":{\"id\":\"cs_1\",\"object\":\"checkout.session\","
      "\"mode\":\"subscription\",\"payment_status\":\"paid\",\"customer\":\"",
      customer_id, "\",\"subscription\":\"", subscription_id,
      "\",\"client_reference_id\":\"", subject, "\",\"metadata\":{}}}}");
}

class IngestCases : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    ASSERT_OK_AND_ASSIGN(session_, database_->OpenSession());
    ASSERT_OK(AddCatalog(*session_));
    // 100 units a month.
    Exec(
        "UPDATE plan SET definition = "
        "'{\"quotas\":[{\"meter\":\"units\",\"amount\":\"100\"}]}'");
    Start();
  }

  // Also a restart: nothing of the former one is left.
  void Start(const IngestStack::Options& options = IngestStack::Options()) {
    server_.reset();
    stack_.reset();
    ASSERT_OK_AND_ASSIGN(stack_,
                         IngestStack::Make(database_->conninfo(), options));
    http::ServerOptions http;
    http.listen_address = "127.0.0.1:0";
    http.worker_threads = 8;
    http.max_body_bytes = IngestStack::kMaxBodyBytes;
    webhook_ingest::WebhookHttp& edge = stack_->edge();
    http.accept = [&edge](const http::RequestHead& head) {
      return edge.Accept(head);
    };
    ASSERT_OK_AND_ASSIGN(
        server_, http::Server::Start(http, [&edge](http::Request request,
                                                   http::Responder responder) {
          edge.Handle(std::move(request), std::move(responder));
        }));
  }

  std::string Post(const std::string& body, const HttpHeaders& headers,
                   const std::string& path = kPath) {
    const absl::StatusOr<HttpReply> reply =
        HttpPost(server_->address(), path, body, headers);
    if (!reply.ok()) return reply.status().ToString();
    return Summary(reply->status, reply->body);
  }

  static std::string Signature(const std::string& body,
                               absl::Time at = SystemClock::Instance().Now()) {
    return StripeSignature(IngestStack::kSecret, body, at);
  }

  // Signed now.
  std::string Deliver(const std::string& body,
                      const std::string& route = "stripe") {
    return Post(body, StripeHeaders(Signature(body)),
                absl::StrCat("/v1/webhooks/", route));
  }

  // The same without a socket, for what is done thousands of times.
  std::string DeliverInProcess(const std::string& body,
                               const std::string& signature) {
    http::Request request;
    request.method = "POST";
    request.target = kPath;
    for (const auto& [name, value] : StripeHeaders(signature)) {
      request.headers.Add(name, value);
    }
    request.body = body;
    const http::Response response = stack_->Post(std::move(request));
    return Summary(response.status, response.body);
  }

  // Invoice number `n` of `subscription`: the month that begins `n` months of
  // 30 days after an hour ago.
  StripeInvoice Invoice(int n = 0) const {
    StripeInvoice invoice;
    invoice.event_id = absl::StrCat("evt_", n);
    invoice.invoice_id = absl::StrCat("in_", n);
    invoice.subscription_id = "sub_1";
    invoice.subject = "u1";
    invoice.period_start = start_ + n * kMonth;
    invoice.period_end = invoice.period_start + kMonth;
    invoice.created = invoice.period_start;
    return invoice;
  }

  std::string Scalar(const std::string& sql,
                     const std::vector<SqlValue>& params = {}) {
    absl::StatusOr<std::string> value = session_->Scalar(sql, params);
    return value.ok() ? *value : value.status().ToString();
  }

  void Exec(const std::string& sql) { ASSERT_OK(session_->Exec(sql)); }

  std::string SnapshotText(absl::string_view but_table = "") {
    absl::StatusOr<std::string> text = Snapshot(*session_, but_table);
    EXPECT_OK(text);
    return text.value_or("");
  }

  std::string InboxCount() {
    return Scalar("SELECT count(*)::text FROM provider_event");
  }

  std::string EventRow(const std::string& event_id) {
    return Scalar(
        "SELECT status || '/' || reason FROM provider_event "
        "WHERE external_event_id = $1",
        {event_id});
  }

  // "terms releases balance" of all there is.
  std::string Quota() {
    return Scalar(
        "SELECT (SELECT count(*) FROM payment) || ' ' || (SELECT count(*) FROM "
        "quota_transaction) || ' ' || (SELECT coalesce(sum(remaining), 0) FROM "
        "quota_grant)");
  }

  // How often a delivery to "stripe" ended so.
  std::string Counted(const std::string& outcome) {
    const std::string text = stack_->registry().Render();
    int64_t sum = 0;
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      if (absl::StrContains(line, "events_total{") &&
          absl::StrContains(line, absl::StrCat("outcome=\"", outcome, "\"")) &&
          absl::StrContains(line, "route=\"stripe\"")) {
        int64_t count = 0;
        EXPECT_TRUE(absl::SimpleAtoi(line.substr(line.rfind(' ') + 1), &count));
        sum += count;
      }
    }
    return absl::StrCat(sum);
  }

  static constexpr absl::Duration kMonth = absl::Hours(30 * 24);

  const absl::Time start_ = absl::FromUnixSeconds(
      absl::ToUnixSeconds(SystemClock::Instance().Now()) - 3600);
  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<IngestStack> stack_;
  std::unique_ptr<http::Server> server_;
};

// ---- duplicates ----

TEST_F(IngestCases, C001_OnePaidInvoiceIsOneTermHoweverOftenItIsTold) {
  StripeInvoice a = Invoice();
  a.event_id = "evt_a";
  a.invoice_id = "in_9";
  EXPECT_EQ(Deliver(a.Body()), "200 applied");
  EXPECT_EQ(Quota(), "1 1 100");
  // A start registers its routes again.
  const std::string before = SnapshotText("route");

  EXPECT_EQ(Deliver(a.Body()), "200 applied again");
  EXPECT_EQ(Deliver(a.Body()), "200 applied again");
  std::vector<std::string> answers(8);
  std::vector<std::thread> threads;
  Barrier barrier(static_cast<int>(answers.size()));
  for (std::string& answer : answers) {
    threads.emplace_back([&] {
      if (barrier.ArriveAndWait()) answer = Deliver(a.Body());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(answers, Each("200 applied again"));
  Start();
  EXPECT_EQ(Deliver(a.Body()), "200 applied again");
  EXPECT_EQ(SnapshotText("route"), before);

  StripeInvoice b = a;
  b.event_id = "evt_b";
  b.type = "invoice.payment_succeeded";
  EXPECT_EQ(Deliver(b.Body()), "200 noop");
  EXPECT_EQ(Deliver(b.Body()), "200 noop again");

  EXPECT_EQ(Quota(), "1 1 100");
  EXPECT_EQ(Scalar("SELECT biz_type || ' ' || delta FROM quota_transaction"),
            "monthly_release 100");
  EXPECT_EQ(Scalar("SELECT term_no || ' ' || period_no FROM quota_schedule "
                   "WHERE status = 'RELEASED'"),
            "1 0");
  EXPECT_EQ(Scalar("SELECT string_agg(external_event_id || ' ' || status, ', ' "
                   "ORDER BY id) FROM provider_event"),
            "evt_a applied, evt_b noop");
}

TEST_F(IngestCases, C001_EightFirstDeliveriesAtOnceAreOneTerm) {
  for (int round = 0; round < 10; ++round) {
    StripeInvoice invoice = Invoice();
    invoice.event_id = absl::StrCat("evt_", round);
    invoice.invoice_id = absl::StrCat("in_", round);
    invoice.subscription_id = absl::StrCat("sub_", round);
    std::vector<std::string> answers(8);
    std::vector<std::thread> threads;
    Barrier barrier(static_cast<int>(answers.size()));
    for (std::string& answer : answers) {
      threads.emplace_back([&] {
        if (barrier.ArriveAndWait()) answer = Deliver(invoice.Body());
      });
    }
    for (std::thread& thread : threads) thread.join();

    EXPECT_EQ(std::count(answers.begin(), answers.end(), "200 applied"), 1);
    EXPECT_EQ(std::count(answers.begin(), answers.end(), "200 applied again"),
              7);
    EXPECT_EQ(Quota(),
              absl::StrCat(round + 1, " ", round + 1, " ", 100 * (round + 1)));
  }
}

TEST_F(IngestCases, C002_TheMemoryOfAnEventOutlastsEveryRetryOfItsProvider) {
  StripeInvoice invoice = Invoice();
  // So long that it is still paid for at the last delivery.
  invoice.period_end = invoice.period_start + absl::Hours(24 * 365);
  ASSERT_EQ(Deliver(invoice.Body()), "200 applied");
  SetClock clock(start_);
  for (const absl::Duration later :
       {absl::Seconds(1), absl::Hours(3 * 24), absl::Hours(30 * 24),
        absl::Hours(40 * 24)}) {
    SCOPED_TRACE(absl::FormatDuration(later));
    ASSERT_OK(database_->SetClockOffset(later));
    clock.Set(SystemClock::Instance().Now() + later);
    IngestStack::Options options;
    options.clock = &clock;
    Start(options);
    const std::string before = SnapshotText();

    EXPECT_EQ(Post(invoice.Body(),
                   StripeHeaders(Signature(invoice.Body(), clock.Now()))),
              "200 applied again");

    EXPECT_EQ(SnapshotText(), before);
  }
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM payment"), "1");
}

TEST_F(IngestCases, C003_NoAnswerLeavesAnEventThatNobodyActsOn) {
  ASSERT_EQ(Deliver(Invoice(0).Body()), "200 applied");
  ASSERT_OK_AND_ASSIGN(const auto holder, database_->OpenSession());
  IngestStack::Options options;
  options.lock_timeout = absl::Milliseconds(100);
  Start(options);
  ASSERT_OK(holder->Exec("BEGIN; SELECT id FROM subscription FOR UPDATE"));

  const std::string first = Deliver(Invoice(1).Body());

  // Refused and not stored, or stored and due; never done without effect.
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM payment"), "1");
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM provider_event WHERE "
                   "external_event_id = 'evt_1' AND next_attempt_at IS NULL"),
            "0");
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM provider_event WHERE "
                   "external_event_id = 'evt_1'"),
            absl::StartsWith(first, "200 ") ? "1" : "0")
      << first;
  EXPECT_TRUE(absl::StartsWith(first, "200 ") ||
              absl::StartsWith(first, "503 "))
      << first;

  ASSERT_OK(holder->Exec("ROLLBACK"));
  // The queue applies it right after; the provider's own retries may too.
  for (int i = 0; i < 1000 && EventRow("evt_1") != "applied/"; ++i) {
    EXPECT_THAT(Deliver(Invoice(1).Body()), ::testing::StartsWith("200 "));
    ASSERT_OK(session_->Exec("SELECT pg_sleep(0.01)"));
  }
  EXPECT_EQ(EventRow("evt_1"), "applied/");
  EXPECT_EQ(Scalar("SELECT term_no::text FROM subscription"), "2");
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM payment"), "2");
}

// ---- order ----

TEST_F(IngestCases, C006_ACreationThatComesAfterItsUpdateUndoesNothing) {
  StripeSubscription updated;
  updated.event_id = "evt_updated";
  updated.created = absl::FromUnixSeconds(1623979266);
  updated.started_at = absl::FromUnixSeconds(1623979265);
  updated.period_end = updated.started_at + kMonth;
  StripeSubscription created = updated;
  created.event_id = "evt_created";
  created.type = "customer.subscription.created";
  created.created = absl::FromUnixSeconds(1623979265);
  created.status = "incomplete";
  StripeInvoice paid = Invoice();
  paid.created = absl::FromUnixSeconds(1623979266);
  const auto state = [&] {
    return Scalar("SELECT status || ' ' || term_no FROM subscription");
  };

  EXPECT_EQ(Deliver(paid.Body()), "200 applied");
  EXPECT_EQ(Deliver(updated.Body()), "200 applied");
  EXPECT_EQ(state(), "ACTIVE 1");
  const std::string access =
      Scalar("SELECT access_until::text FROM subscription");
  EXPECT_THAT(Deliver(created.Body()), AnyOf("200 applied", "200 noop"));

  EXPECT_EQ(state(), "ACTIVE 1");
  EXPECT_EQ(Scalar("SELECT access_until::text FROM subscription"), access);
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM provider_event WHERE status IN "
                   "('applied', 'noop')"),
            "3");
  // What it was older than is in the facts, in the provider's order.
  EXPECT_EQ(
      Scalar("SELECT e.external_event_id FROM subscription_fact f JOIN "
             "provider_event e ON e.id = f.provider_event_id WHERE f.kind = "
             "'snapshot' ORDER BY f.order_at DESC LIMIT 1"),
      "evt_updated");
}

TEST_F(IngestCases, C007_AllOrdersOfOneLifeEndInTheSameRows) {
  Exec(
      "WITH p AS (INSERT INTO plan (name, revision, definition) VALUES ('max',"
      " 1, '{\"quotas\":[{\"meter\":\"units\",\"amount\":\"500\"}]}')) "
      "INSERT INTO provider_product VALUES ('stripe', 'price_max', 'max')");
  const auto day = [&](double days) {
    return start_ + (days - 10) * absl::Hours(24);
  };
  // Without what is a subscription's own, and without what tells the way.
  const auto everything = [&](const std::string& sub) {
    const std::string of = absl::StrCat(
        "(SELECT id FROM subscription WHERE provider_subscription_id = '", sub,
        "')");
    return Scalar(absl::StrCat(
        "SELECT (SELECT (to_jsonb(s) - ARRAY['id', 'subject_id',"
        " 'provider_subscription_id', 'created_at', 'version', 'event_seq',"
        " 'expired_at', 'episode'])::text FROM subscription s WHERE id = ",
        of,
        ") || E'\\n' || (SELECT coalesce(string_agg(term_no || ' ' ||"
        " split_part(payment_key, '@', 1), ', ' ORDER BY term_no), '') FROM"
        " payment WHERE subscription_id = ",
        of,
        ") || E'\\n' || (SELECT coalesce(string_agg(meter || ' ' || term_no ||"
        " '.' || period_no || ' ' || amount || ' ' || scheduled_at || ' ' ||"
        " status, ', ' ORDER BY scheduled_at, id), '') FROM quota_schedule"
        " WHERE status <> 'CANCELLED' AND subscription_id = ",
        of,
        ") || E'\\n' || (SELECT coalesce(string_agg(split_part(biz_id, '/', 4)"
        " || ' ' || delta || ' ' || due_at, ', ' ORDER BY due_at), '') FROM"
        " quota_transaction WHERE subscription_id = ",
        of, ")"));
  };
  std::vector<size_t> order(5);
  std::iota(order.begin(), order.end(), 0);
  std::string expected;
  int n = 0;
  do {
    const std::string sub = absl::StrCat("sub_", n++);
    StripeSubscription created;
    created.event_id = absl::StrCat("evt_1@", sub);
    created.type = "customer.subscription.created";
    created.created = day(0);
    created.subscription_id = sub;
    created.customer_id = absl::StrCat("cus_", sub);
    created.subject = absl::StrCat("u_", sub);
    created.started_at = day(0);
    created.period_end = day(5);
    StripeInvoice paid;
    paid.event_id = absl::StrCat("evt_2@", sub);
    paid.created = day(0.1);
    paid.invoice_id = absl::StrCat("in_1@", sub);
    paid.subscription_id = sub;
    paid.customer_id = created.customer_id;
    paid.subject = created.subject;
    paid.period_start = day(0);
    paid.period_end = day(5);
    StripeSubscription updated = created;
    updated.event_id = absl::StrCat("evt_3@", sub);
    updated.type = "customer.subscription.updated";
    updated.created = day(4);
    updated.price_id = "price_max";
    updated.previous = R"({"items":{"data":[{"price":{"id":"price_pro"}}]}})";
    StripeInvoice renewed = paid;
    renewed.event_id = absl::StrCat("evt_4@", sub);
    renewed.created = day(5);
    renewed.invoice_id = absl::StrCat("in_2@", sub);
    renewed.price_id = "price_max";
    renewed.period_start = day(5);
    renewed.period_end = day(35);
    StripeSubscription canceled = updated;
    canceled.event_id = absl::StrCat("evt_5@", sub);
    canceled.created = day(6);
    canceled.period_end = day(35);
    canceled.canceling = true;
    canceled.previous = R"({"cancel_at_period_end":false})";
    const std::string life[] = {created.Body(), paid.Body(), updated.Body(),
                                renewed.Body(), canceled.Body()};
    for (const size_t i : order) {
      EXPECT_THAT(Deliver(life[i]), AnyOf("200 applied", "200 noop"));
      EXPECT_THAT(Deliver(life[i]),
                  AnyOf("200 applied again", "200 noop again"));
    }
    const std::string got = everything(sub);
    if (expected.empty()) expected = got;
    ASSERT_EQ(got, expected) << absl::StrJoin(order, " ");
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(n, 120);
  EXPECT_THAT(expected,
              AllOf(HasSubstr("\"status\": \"ACTIVE\""),
                    HasSubstr("\n1 in_1, 2 in_2\n"), HasSubstr("RELEASED")));
  EXPECT_EQ(InboxCount(), "600");
}

TEST_F(IngestCases, C009_TwoPlansOfOneSecondAreFlaggedInBothOrders) {
  Exec(
      "WITH p AS (INSERT INTO plan (name, revision) VALUES ('a', 1), ('b', 1))"
      " INSERT INTO provider_product VALUES ('stripe', 'price_a', 'a'), "
      "('stripe', 'price_b', 'b')");
  std::set<std::string> ends;
  for (const bool b_first : {true, false}) {
    StripeInvoice paid = Invoice();
    paid.subscription_id = b_first ? "sub_ba" : "sub_ab";
    paid.invoice_id = absl::StrCat("in_", paid.subscription_id);
    paid.event_id = absl::StrCat("evt_paid_", paid.subscription_id);
    ASSERT_EQ(Deliver(paid.Body()), "200 applied");
    std::vector<std::string> bodies;
    for (const char* plan : {"a", "b"}) {
      StripeSubscription updated;
      updated.subscription_id = paid.subscription_id;
      updated.event_id = absl::StrCat("evt_", plan, "_", paid.subscription_id);
      updated.created = start_ + absl::Seconds(700);
      updated.started_at = start_;
      updated.period_end = paid.period_end;
      updated.price_id = absl::StrCat("price_", plan);
      updated.previous = R"({"items":{"data":[{"price":{"id":"price_pro"}}]}})";
      bodies.push_back(updated.Body());
    }
    if (b_first) std::reverse(bodies.begin(), bodies.end());
    for (const std::string& body : bodies) {
      EXPECT_EQ(Deliver(body), "200 applied");
    }
    ends.insert(Scalar(
        "SELECT p.name || ' ' || s.needs_reconcile FROM subscription s JOIN "
        "plan p ON p.id = s.plan_id WHERE provider_subscription_id = $1",
        {paid.subscription_id}));
  }
  EXPECT_THAT(ends, testing::ElementsAre("b true"));
}

// ---- events before the local row ----

TEST_F(IngestCases, C011_AnInvoiceBeforeItsCheckoutWaitsForItAndNoLonger) {
  StripeInvoice invoice = Invoice();
  invoice.subject = "";
  invoice.customer_id = "cus_2";
  invoice.subscription_id = "sub_2";
  EXPECT_EQ(Deliver(invoice.Body()), "200 parked");
  EXPECT_EQ(EventRow("evt_0"), "parked/no_subject");
  EXPECT_EQ(Quota(), "0 0 0");

  EXPECT_EQ(Deliver(CheckoutBody("evt_co", start_ + absl::Seconds(1), "cus_2",
                                 "sub_2", "u2")),
            "200 applied");
  // What the process does each second; no redelivery.
  ASSERT_OK(stack_->RetryWaiting().status());

  EXPECT_EQ(EventRow("evt_0"), "applied/");
  EXPECT_EQ(Scalar("SELECT u.external_id || ' ' || s.status || ' ' || "
                   "(s.access_until > tenure_now()) FROM subscription s JOIN "
                   "subject u ON u.id = s.subject_id"),
            "u2 ACTIVE true");
  EXPECT_EQ(Quota(), "1 1 100");
}

TEST_F(IngestCases, C012_ASubscriptionOfNobodyIsNoRowAndDiesAfterItsTime) {
  StripeSubscription created;
  created.event_id = "evt_foreign";
  created.type = "customer.subscription.created";
  created.customer_id = "cus_foreign";
  created.subject = "";
  created.created = start_;
  created.started_at = start_;
  created.period_end = start_ + kMonth;
  EXPECT_EQ(Deliver(created.Body()), "200 parked");

  for (const int days : {1, 6}) {
    ASSERT_OK(database_->SetClockOffset(days * absl::Hours(24)));
    Start();
    ASSERT_OK(stack_->RetryWaiting().status());
    EXPECT_EQ(EventRow("evt_foreign"), "parked/no_subject") << days;
  }
  ASSERT_OK(database_->SetClockOffset(absl::Hours(7 * 24) + absl::Minutes(1)));
  Start();
  ASSERT_OK(stack_->RetryWaiting().status());

  EXPECT_EQ(EventRow("evt_foreign"), "dead/no_subject");
  EXPECT_EQ(Scalar("SELECT (SELECT count(*) FROM subscription) || ' ' || "
                   "(SELECT count(*) FROM subject)"),
            "0 0");
}

// ---- identity ----

TEST_F(IngestCases, C015_OneIdOfFourSourcesIsFourEvents) {
  const auto body = [&](const char* account, bool livemode) {
    StripeInvoice invoice = Invoice();
    invoice.event_id = "evt_1";
    invoice.account = account;
    invoice.livemode = livemode;
    return invoice.Body();
  };

  EXPECT_EQ(Deliver(body("acct_x", true)), "200 applied");
  EXPECT_EQ(Deliver(body("acct_x", false)), "200 ignored");
  EXPECT_EQ(Deliver(body("acct_y", true)), "200 applied");
  EXPECT_EQ(Deliver(body("acct_x", true), "stripe-eu"), "200 applied");

  EXPECT_EQ(InboxCount(), "4");
  // Each with its own payment and its own quota.
  EXPECT_EQ(Quota(), "3 3 300");
  EXPECT_EQ(Scalar("SELECT string_agg(r.name || ' ' || s.account || ' ' || "
                   "s.environment || ' ' || s.term_no, ', ' ORDER BY r.name, "
                   "s.account) FROM subscription s JOIN route r ON r.id = "
                   "s.route_id"),
            "stripe acct_x live 1, stripe acct_y live 1, "
            "stripe-eu acct_x live 1");
}

TEST_F(IngestCases, C016_TestMoneyAtALiveRouteIsStoredCountedAndNothingElse) {
  Exec("INSERT INTO sink (name) VALUES ('orders')");
  StripeInvoice invoice = Invoice();
  invoice.livemode = false;
  const std::string before = SnapshotText("provider_event");

  EXPECT_EQ(Deliver(invoice.Body()), "200 ignored");
  EXPECT_EQ(Deliver(invoice.Body()), "200 ignored again");

  EXPECT_EQ(EventRow("evt_0"), "ignored/livemode_mismatch");
  EXPECT_EQ(SnapshotText("provider_event"), before);
  EXPECT_EQ(Counted("ignored"), "1");
  EXPECT_EQ(Counted("duplicate"), "1");
}

TEST_F(IngestCases, C017_ABlankIdIsRefusedEachTimeAndPoisonsNothing) {
  const std::string good = Invoice().Body();
  const std::string id = R"("id":"evt_0",)";
  ASSERT_TRUE(absl::StrContains(good, id));
  const std::string before = SnapshotText();
  int refused = 0;
  for (const char* shape :
       {R"("id":"",)", R"("id":" ",)", "", R"("id":null,)", R"("id":0,)",
        R"("id":[],)", R"("id":{},)", R"("id":"\t\n",)"}) {
    for (const char* other : {"", R"("pending_webhooks":1,)"}) {
      const std::string body =
          absl::StrReplaceAll(good, {{id, absl::StrCat(shape, other)}});
      EXPECT_EQ(Deliver(body), "400 EVENT_ID_MISSING") << body;
      EXPECT_EQ(Deliver(body), "400 EVENT_ID_MISSING") << body;
      refused += 2;
    }
  }
  EXPECT_EQ(SnapshotText(), before);
  EXPECT_EQ(Counted("malformed"), absl::StrCat(refused));

  EXPECT_EQ(Deliver(good), "200 applied");
  EXPECT_EQ(Quota(), "1 1 100");
}

TEST_F(IngestCases, C019_IdsAreBytesInTheInboxTheAnswersAndTheMetrics) {
  const std::vector<std::string> ids = {"evt_\u00e9",
                                        "evt_e\u0301",
                                        "EVT_1",
                                        "evt_1",
                                        "evt_1 ",
                                        " evt_1",
                                        "evt_\U0001f642",
                                        "evt.1.invoice.paid",
                                        "evt_\u4e2d",
                                        "evt_\u200b",
                                        "evt_\u202e1",
                                        "evt_'; --",
                                        std::string(255, 'x')};
  for (const std::string& id : ids) {
    SCOPED_TRACE(id);
    StripeInvoice invoice = Invoice();
    invoice.event_id = id;
    EXPECT_THAT(Deliver(invoice.Body()), AnyOf("200 applied", "200 noop"));
    EXPECT_THAT(Deliver(invoice.Body()),
                AnyOf("200 applied again", "200 noop again"));
    EXPECT_EQ(Scalar("SELECT count(*)::text FROM provider_event WHERE "
                     "external_event_id = $1",
                     {id}),
              "1");
  }
  // Quotes and what JSON escapes are bytes of an id too.
  StripeInvoice quoted = Invoice();
  quoted.event_id = R"(evt_\"\\1)";
  EXPECT_EQ(Deliver(quoted.Body()), "200 noop");
  EXPECT_EQ(InboxCount(), absl::StrCat(ids.size() + 1));

  for (const char* id : {R"(evt_1\t)", R"(evt_1\u0000)", R"(evt_\u001b[31m)",
                         R"(\nevt_1)", R"(evt_\u007f)"}) {
    StripeInvoice invoice = Invoice();
    invoice.event_id = id;
    EXPECT_THAT(Deliver(invoice.Body()), testing::StartsWith("400 EVENT_"))
        << id;
  }
  StripeInvoice too_long = Invoice();
  too_long.event_id = std::string(256, 'x');
  EXPECT_THAT(Deliver(too_long.Body()), testing::StartsWith("400 EVENT_"));
  EXPECT_EQ(InboxCount(), absl::StrCat(ids.size() + 1));
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM payment"), "1");
  // None of them is a label.
  EXPECT_FALSE(absl::StrContains(stack_->registry().Render(), "evt"));
}

// ---- signatures ----

TEST_F(IngestCases, C021_TheBytesCountAsTheyWereSent) {
  const std::string plain = Invoice().Body();
  int n = 0;
  const auto variant = [&](const std::string& from, const std::string& to) {
    EXPECT_TRUE(absl::StrContains(plain, from)) << from;
    return absl::StrReplaceAll(
        plain, {{from, to}, {"\"evt_0\"", absl::StrCat("\"evt_v", n++, "\"")}});
  };
  const std::vector<std::string> bodies = {
      variant("\"object\":\"event\"", "\"object\":  \"event\""),
      variant("\"object\":\"event\"",
              "\"object\":\"event\",\"url\":\"https:\\/\\/a.example\\/\""),
      variant("\"object\":\"event\"",
              "\"object\":\"event\",\"name\":\"\\u4e2d\\u6587\""),
      variant("\"object\":\"event\"", "\"object\":\"event\",\"rate\":1.0"),
      variant("{\"id\"", "{\"z\":1,\"a\":2,\"id\""),
      variant("}]}}}}", "}]}}}}\n"),
      variant(",\"data\"", ",\r\n\t\"data\""),
      variant("\"cus_1\"", "\"\\u0063us_1\""),
  };
  for (const std::string& body : bodies) {
    EXPECT_THAT(Deliver(body), AnyOf("200 applied", "200 noop")) << body;
  }
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM payment"), "1");
  const std::string before = SnapshotText();

  // Any bit of the body, of the timestamp, of the signature.
  const std::string body = Invoice(1).Body();
  const std::string signature = Signature(body);
  const size_t comma = signature.find(",v1=");
  ASSERT_NE(comma, std::string::npos);
  for (size_t bit = 0; bit < 8 * body.size(); ++bit) {
    std::string other = body;
    other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << bit % 8));
    ASSERT_EQ(DeliverInProcess(other, signature), "401 SIGNATURE_INVALID")
        << bit;
  }
  for (size_t bit = 0; bit < 8 * signature.size(); ++bit) {
    std::string other = signature;
    other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << bit % 8));
    const std::string answer = DeliverInProcess(body, other);
    // A timestamp that is no number is malformed; another number is not what
    // was signed.
    const bool digits = other.find_first_not_of("0123456789", 2) == comma &&
                        absl::StartsWith(other, "t=") && other[2] != '0';
    if (digits) {
      ASSERT_EQ(answer, "401 SIGNATURE_INVALID") << other;
    } else {
      ASSERT_THAT(answer, AnyOf("401 SIGNATURE_INVALID",
                                "400 SIGNATURE_HEADER_MALFORMED"))
          << other;
    }
  }
  EXPECT_EQ(SnapshotText(), before);
  EXPECT_EQ(DeliverInProcess(body, signature), "200 applied");
}

TEST_F(IngestCases, C022_AnyLiveSecretOfSeveralIsEnoughAndARetiredOneIsNot) {
  const std::string old_secret = "whsec_old_of_the_cases";
  const std::string new_secret = "whsec_new_of_the_cases";
  int n = 0;
  const auto post = [&](const std::vector<std::string>& signers, int junk = 0) {
    StripeInvoice invoice = Invoice();
    invoice.event_id = absl::StrCat("evt_r", n++);
    const std::string body = invoice.Body();
    const absl::Time now = SystemClock::Instance().Now();
    std::string header = absl::StrCat("t=", absl::ToUnixSeconds(now));
    for (int i = 0; i < junk; ++i) {
      absl::StrAppend(&header, ",v1=", std::string(64, '0'));
    }
    for (const std::string& secret : signers) {
      const std::string one = StripeSignature(secret, body, now);
      absl::StrAppend(&header, one.substr(one.find(',')));
    }
    return Post(body, StripeHeaders(header));
  };
  const auto accepted = AnyOf("200 applied", "200 noop");
  IngestStack::Options options;
  options.secrets = {old_secret, new_secret};
  Start(options);
  EXPECT_THAT(post({old_secret, new_secret}), accepted);
  EXPECT_THAT(post({new_secret, old_secret}), accepted);
  EXPECT_THAT(post({old_secret}), accepted);
  EXPECT_THAT(post({new_secret}), accepted);
  EXPECT_THAT(post({"whsec_stranger", new_secret}), accepted);
  EXPECT_THAT(post({new_secret}, /*junk=*/14), accepted);
  EXPECT_EQ(post({new_secret}, /*junk=*/15), "400 SIGNATURE_HEADER_MALFORMED");
  EXPECT_EQ(post({new_secret}, /*junk=*/50), "400 SIGNATURE_HEADER_MALFORMED");
  EXPECT_EQ(post({"whsec_stranger"}), "401 SIGNATURE_INVALID");

  options.secrets = {new_secret};
  Start(options);
  EXPECT_THAT(post({old_secret, new_secret}), accepted);
  EXPECT_THAT(post({new_secret, old_secret}), accepted);
  EXPECT_EQ(post({old_secret}), "401 SIGNATURE_INVALID");
  // More than 8 KiB in fewer than 16 entries.
  const std::string body = Invoice(1).Body();
  EXPECT_EQ(
      Post(body,
           StripeHeaders(absl::StrCat(
               StripeSignature(new_secret, body, SystemClock::Instance().Now()),
               ",x=", std::string(8192, 'x')))),
      "400 SIGNATURE_HEADER_MALFORMED");
}

TEST_F(IngestCases, C023_WithoutASignatureNothingIsTrue) {
  const std::string body = Invoice().Body();
  const std::string before = SnapshotText();
  const std::string now =
      absl::StrCat(absl::ToUnixSeconds(SystemClock::Instance().Now()));

  EXPECT_EQ(Post(body, {{"Content-Type", "application/json"}}),
            "401 SIGNATURE_INVALID");
  for (const std::string& header :
       {std::string(), std::string("v1,"), std::string("v1="),
        absl::StrCat("t=", now), absl::StrCat("t=", now, ",v1="),
        // What an empty key would have made.
        absl::StrCat("t=", now, ",v1=", std::string(64, '0'))}) {
    EXPECT_EQ(Post(body, StripeHeaders(header)), "401 SIGNATURE_INVALID")
        << header;
  }
  const std::string of_nothing =
      StripeSignature("", body, SystemClock::Instance().Now());
  EXPECT_EQ(Post(body, StripeHeaders(of_nothing)), "401 SIGNATURE_INVALID");
  EXPECT_EQ(SnapshotText(), before);
}

TEST_F(IngestCases, C028_TheToleranceIsClosedOnBothSides) {
  SetClock clock(absl::FromUnixSeconds(absl::ToUnixSeconds(start_)));
  IngestStack::Options options;
  options.clock = &clock;
  Start(options);
  const int64_t now = absl::ToUnixSeconds(clock.Now());
  int n = 0;
  const auto post = [&](const std::string& timestamp) {
    StripeInvoice invoice = Invoice();
    invoice.event_id = absl::StrCat("evt_t", n++);
    const std::string body = invoice.Body();
    // Signed right, whatever the timestamp is.
    const std::string text = absl::StrCat(timestamp, ".", body);
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    HMAC(EVP_sha256(), IngestStack::kSecret, sizeof(IngestStack::kSecret) - 1,
         reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         digest, &size);
    return Post(body, StripeHeaders(absl::StrCat(
                          "t=", timestamp, ",v1=",
                          absl::BytesToHexString(absl::string_view(
                              reinterpret_cast<const char*>(digest), size)))));
  };

  for (const int offset : {-300, 0, 300}) {
    EXPECT_THAT(post(absl::StrCat(now + offset)),
                AnyOf("200 applied", "200 noop"))
        << offset;
  }
  for (const std::string& out :
       {absl::StrCat(now - 301), absl::StrCat(now + 301), std::string("0"),
        std::string("2147483648"), std::string("9223372036854775807")}) {
    EXPECT_EQ(post(out), "401 SIGNATURE_TIMESTAMP_OUT_OF_TOLERANCE") << out;
  }
  for (const std::string malformed :
       {"-1", "abc", "1e3", "+5", " 5", "", "9223372036854775808"}) {
    EXPECT_EQ(post(malformed), "400 SIGNATURE_HEADER_MALFORMED") << malformed;
  }
  EXPECT_EQ(InboxCount(), "3");
}

TEST_F(IngestCases, C029_ARecordedRequestIsNothingNewAndThenNothingAtAll) {
  SetClock clock(start_);
  IngestStack::Options options;
  options.clock = &clock;
  Start(options);
  const std::string body = Invoice().Body();
  const HttpHeaders recorded = StripeHeaders(Signature(body, clock.Now()));
  ASSERT_EQ(Post(body, recorded), "200 applied");
  const std::string before = SnapshotText();

  clock.Set(start_ + absl::Seconds(10));
  EXPECT_EQ(Post(body, recorded), "200 applied again");
  clock.Set(start_ + absl::Minutes(10));
  EXPECT_EQ(Post(body, recorded), "401 SIGNATURE_TIMESTAMP_OUT_OF_TOLERANCE");
  // Its parts are of no use either.
  const std::string other = Invoice(1).Body();
  EXPECT_EQ(Post(other, recorded), "401 SIGNATURE_INVALID");

  EXPECT_EQ(SnapshotText(), before);
}

// ---- odd bodies ----

TEST_F(IngestCases, C031_AnEscapedNulIsKeptAndARawOneIsNoJson) {
  const std::string object = "\"object\":\"event\"";
  int n = 0;
  for (const char* more :
       {R"(,"name":"a\u0000b")", R"(,"na\u0000me":1)",
        R"(,"deep":{"list":["\u0000",{"\u0000":"\u0000"}]})"}) {
    StripeInvoice invoice = Invoice(n);
    const std::string body = absl::StrReplaceAll(
        invoice.Body(), {{object, absl::StrCat(object, more)}});
    EXPECT_EQ(Deliver(body), "200 applied") << more;
    EXPECT_EQ(Deliver(body), "200 applied again") << more;
    EXPECT_EQ(Scalar("SELECT encode(body, 'hex') FROM provider_event WHERE "
                     "external_event_id = $1",
                     {invoice.event_id}),
              absl::BytesToHexString(body));
    ++n;
  }
  EXPECT_EQ(Scalar("SELECT term_no::text FROM subscription"), "3");

  const std::string good = Invoice(n).Body();
  for (const size_t at :
       {size_t{0}, good.find("event"), good.find("cus_1"), good.size()}) {
    std::string body = good;
    body.insert(at, 1, '\0');
    EXPECT_EQ(Deliver(body), "400 EVENT_MALFORMED") << at;
  }
  EXPECT_EQ(InboxCount(), "3");
}

TEST_F(IngestCases,
       C032_HalfACharacterMattersWhereItIsReadAndBrokenUtf8Always) {
  const std::string good = Invoice().Body();
  const auto with = [&](const std::string& from, const std::string& to) {
    EXPECT_TRUE(absl::StrContains(good, from)) << from;
    return absl::StrReplaceAll(good, {{from, to}});
  };
  const std::string object = "\"object\":\"event\"";
  for (const std::string& body : {
           with(object, absl::StrCat(object, ",\"name\":\"\xff\xfe\"")),
           with(object, absl::StrCat(object, ",\"name\":\"\xc0\x80\"")),
           with(object, absl::StrCat(object, ",\"name\":\"\xed\xa0\x80\"")),
           with(object, absl::StrCat(object, ",\"\xff\":1")),
           absl::StrCat("\xef\xbb\xbf", good),
           absl::StrCat("\xff\xfe", good),
           std::string("\xff\xfe{\0\"\0", 6),
           with("\"cus_1\"", R"("cus_\ud800")"),
           with("\"u1\"", R"("u\udc00")"),
           with("\"evt_0\"", R"("evt_\ud800")"),
       }) {
    EXPECT_THAT(Deliver(body),
                AnyOf("400 EVENT_MALFORMED", "400 EVENT_ID_MISSING"))
        << absl::CEscape(body);
  }
  EXPECT_EQ(InboxCount(), "0");

  const std::string unused =
      with(object, absl::StrCat(object, R"(,"name":"\ud800")"));
  EXPECT_EQ(Deliver(unused), "200 applied");
  EXPECT_EQ(Scalar("SELECT encode(body, 'hex') FROM provider_event"),
            absl::BytesToHexString(unused));
}

// `depth` arrays or objects in each other.
std::string Nested(int depth, bool arrays) {
  std::string text;
  for (int i = 0; i < depth; ++i) text += arrays ? "[" : "{\"\":";
  text += arrays ? "" : "0";
  text += std::string(depth, arrays ? ']' : '}');
  return text;
}

// An event whose deepest place is `depth` deep; itself it is 1.
std::string EventOfDepth(const std::string& good, int depth, bool arrays) {
  return absl::StrReplaceAll(good, {{"\"object\":\"event\"",
                                     absl::StrCat("\"object\":\"event\",\"x\":",
                                                  Nested(depth - 1, arrays))}});
}

TEST_F(IngestCases, C033_ADeepBodyIsRefusedBeforeTheDatabase) {
  int n = 0;
  for (const bool arrays : {true, false}) {
    for (const int depth : {32, 64, 65, 1000}) {
      SCOPED_TRACE(absl::StrCat(depth, arrays ? " arrays" : " objects"));
      const std::string body = EventOfDepth(Invoice(n++).Body(), depth, arrays);
      const std::string stored = InboxCount();
      EXPECT_EQ(Post(body, {{"Content-Type", "application/json"}}),
                "401 SIGNATURE_INVALID");
      EXPECT_EQ(InboxCount(), stored);
      EXPECT_EQ(Deliver(body),
                depth <= 64 ? "200 applied" : "400 EVENT_MALFORMED");
    }
  }
  EXPECT_EQ(InboxCount(), "4");
}

TEST_F(IngestCases, C037_EveryPrefixAndEveryAdditionIsRefused) {
  const std::string good = Invoice().Body();
  const std::string before = SnapshotText();
  const auto signed_answer = [&](const std::string& body) {
    return DeliverInProcess(body, Signature(body));
  };
  for (size_t size = 0; size < good.size(); ++size) {
    ASSERT_EQ(signed_answer(good.substr(0, size)), "400 EVENT_MALFORMED")
        << size;
  }
  const std::string object = "\"object\":\"event\"";
  for (const std::string& body : {
           good + "{}",
           good + good,
           good + "]",
           good + "x",
           good + std::string(1, '\0'),
           absl::StrReplaceAll(good, {{object, object + ",\"x\":NaN"}}),
           absl::StrReplaceAll(good, {{object, object + ",\"x\":-Infinity"}}),
           absl::StrReplaceAll(good, {{object, object + ",\"x\":01"}}),
           absl::StrReplaceAll(good, {{object, object + ",\"x\":1,"}}),
           absl::StrReplaceAll(good, {{object, object + "/* x */"}}),
           absl::StrReplaceAll(good, {{object, object + "// x\n"}}),
           absl::StrReplaceAll(good, {{"\"", "'"}}),
       }) {
    EXPECT_EQ(Deliver(body), "400 EVENT_MALFORMED") << body;
  }
  // Not even read: it is larger than any event.
  EXPECT_THAT(Post(std::string(10 * 1024 * 1024, 'x'),
                   {{"Content-Type", "application/json"}}),
              testing::StartsWith("413"));
  EXPECT_EQ(SnapshotText(), before);
  // The first few over a socket too, and the service goes on.
  for (size_t size = 0; size < good.size(); size += 97) {
    EXPECT_EQ(Deliver(good.substr(0, size)), "400 EVENT_MALFORMED") << size;
  }
  EXPECT_EQ(Deliver(good), "200 applied");
}

// ---- Stripe's own library as the judge ----

// What a program of tests/node prints for `input`, as JSON.
absl::StatusOr<JsonValue> RunNode(const std::string& program,
                                  const std::string& arguments,
                                  const std::string& input) {
  const std::string file =
      absl::StrCat(::testing::TempDir(), "/node_input_", ::getpid(), ".json");
  RETURN_IF_ERROR(WriteFile(file, input));
  const absl::StatusOr<Finished> finished = RunToEnd(
      "sh", {"-c", absl::StrCat("exec node " TENURE_SOURCE_DIR "/tests/node/",
                                program, " ", arguments, " < ", file)});
  ::unlink(file.c_str());
  if (!finished.ok()) return finished.status();
  if (!finished->status.ok()) return absl::InternalError(finished->output);
  return ParseJson(finished->output);
}

std::string Base64(const std::string& text) { return absl::Base64Escape(text); }

TEST_F(IngestCases, C021_WhatStripesLibrarySignsIsTakenAndOneFlippedBitIsNot) {
  const std::string body = Invoice().Body();
  std::vector<std::string> deliveries = {
      absl::StrCat("{\"body_base64\":\"", Base64(body), "\"}")};
  const auto flip = [&](const char* part, size_t bits, size_t step) {
    for (size_t bit = 0; bit < bits; bit += step) {
      deliveries.push_back(absl::StrCat(
          "{\"body_base64\":\"", Base64(Invoice(1).Body()),
          "\",\"flip\":{\"part\":\"", part, "\",\"bit\":", bit, "}}"));
    }
  };
  flip("body", 8 * body.size(), 61);
  flip("signature", 4 * 64, 1);
  flip("timestamp", 4 * 10, 1);

  ASSERT_OK_AND_ASSIGN(
      const JsonValue answers,
      RunNode("stripe_post.mjs",
              absl::StrCat("http://", server_->address(), kPath, " ",
                           IngestStack::kSecret),
              absl::StrCat("[", absl::StrJoin(deliveries, ","), "]")));

  ASSERT_EQ(answers.items().size(), deliveries.size());
  for (size_t i = 0; i < deliveries.size(); ++i) {
    const JsonValue& answer = answers.items()[i];
    const int64_t status = answer.Find("status")->AsInt64().value_or(0);
    if (i == 0) {
      EXPECT_EQ(status, 200);
    } else if (absl::StrContains(deliveries[i], "\"timestamp\"")) {
      // 400 when it is no number any more.
      EXPECT_THAT(status, AnyOf(400, 401)) << deliveries[i];
    } else {
      EXPECT_EQ(status, 401) << deliveries[i];
    }
  }
  EXPECT_EQ(EventRow("evt_0"), "applied/");
  EXPECT_EQ(InboxCount(), "1");
}

TEST_F(IngestCases, C021_StripesLibraryTakesWhatTheTestsSignAndNoFlippedBit) {
  const std::string body = Invoice().Body();
  const std::string header = Signature(body);
  std::vector<std::string> vectors;
  const auto add = [&](const std::string& secret, const std::string& text,
                       const std::string& bytes) {
    vectors.push_back(absl::StrCat("{\"secret\":\"", secret, "\",\"header\":\"",
                                   text, "\",\"body_base64\":\"", Base64(bytes),
                                   "\"}"));
  };
  add(IngestStack::kSecret, header, body);
  add("whsec_other", header, body);
  for (size_t bit = 0; bit < 8 * body.size(); bit += 61) {
    std::string other = body;
    other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << bit % 8));
    add(IngestStack::kSecret, header, other);
  }
  for (size_t i = header.find("v1=") + 3; i < header.size(); ++i) {
    std::string other = header;
    other[i] = static_cast<char>(other[i] ^ 1);
    add(IngestStack::kSecret, other, body);
  }

  ASSERT_OK_AND_ASSIGN(
      const JsonValue verdicts,
      RunNode("stripe_vectors.mjs", "--verify",
              absl::StrCat("[", absl::StrJoin(vectors, ","), "]")));

  ASSERT_EQ(verdicts.items().size(), vectors.size());
  for (size_t i = 0; i < vectors.size(); ++i) {
    EXPECT_EQ(verdicts.items()[i].Find("accepted")->AsBool(), i == 0)
        << vectors[i];
  }
}

// ---- the process ----

class IngestProcess : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    ASSERT_OK_AND_ASSIGN(session_, database_->OpenSession());
    ASSERT_OK(AddCatalog(*session_));
    ASSERT_OK_AND_ASSIGN(cluster_, Cluster::Make(database_->conninfo()));
  }

  std::string Scalar(const std::string& sql) {
    absl::StatusOr<std::string> value = session_->Scalar(sql);
    return value.ok() ? *value : value.status().ToString();
  }

  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Cluster> cluster_;
};

TEST_F(IngestProcess, C033_TwoHundredThousandBracketsOnASmallStackAreRefused) {
  const std::string program = cluster_->directory() + "/small_stack";
  ASSERT_OK(WriteFile(
      program, "#!/bin/sh\nulimit -s 256\nexec " TENURE_BUILD_DIR
               "/services/webhook-ingest/tenure-webhook-ingest \"$@\"\n"));
  ASSERT_EQ(::chmod(program.c_str(), 0755), 0);
  ASSERT_OK_AND_ASSIGN(const auto ingest,
                       cluster_->Launch("webhook-ingest", {}, program));
  ASSERT_OK(ingest->AwaitLine("\"started\""));
  std::ifstream limits(absl::StrCat("/proc/", ingest->pid(), "/limits"));
  std::stringstream text;
  text << limits.rdbuf();
  ASSERT_THAT(text.str(), ContainsRegex("Max stack size +262144 "));
  const std::string address = cluster_->Address("http");
  const int64_t now = absl::ToUnixSeconds(SystemClock::Instance().Now());
  int n = 0;
  for (const bool arrays : {true, false}) {
    for (const int depth : {32, 64, 65, 1000, 200000}) {
      SCOPED_TRACE(absl::StrCat(depth, arrays ? " arrays" : " objects"));
      const std::string good = InvoicePaidBody(
          absl::StrCat(n), absl::StrCat("u", n), now, now + 3600);
      ++n;
      const std::string spaced = "\"object\": \"event\"";
      ASSERT_TRUE(absl::StrContains(good, spaced));
      const std::string body = absl::StrReplaceAll(
          good,
          {{spaced,
            absl::StrCat(spaced, ", \"x\": ", Nested(depth - 1, arrays))}});
      ASSERT_OK_AND_ASSIGN(const HttpReply unsigned_one,
                           HttpPost(address, kPath, body,
                                    {{"Content-Type", "application/json"}}));
      EXPECT_EQ(unsigned_one.status, 401);
      ASSERT_OK_AND_ASSIGN(const std::string answer, cluster_->Post(body));
      EXPECT_THAT(answer, testing::StartsWith(depth <= 64 ? "200 " : "400 "));
    }
  }
  // The brackets alone are no event, and no reason to end either.
  for (const std::string& body :
       {std::string(200000, '['), Nested(200000, true)}) {
    ASSERT_OK_AND_ASSIGN(const std::string answer, cluster_->Post(body));
    EXPECT_THAT(answer, testing::StartsWith("400 "));
  }
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM provider_event WHERE status = "
                   "'applied'"),
            "4");
  ASSERT_OK_AND_ASSIGN(
      const std::string last,
      cluster_->Post(InvoicePaidBody("last", "u-last", now, now + 3600)));
  EXPECT_THAT(last, HasSubstr("\"state\":\"applied\""));
}

}  // namespace
}  // namespace tenure::test
