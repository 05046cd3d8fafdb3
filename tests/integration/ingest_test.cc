// The way of a webhook from its bytes to the subscription, over the classes of
// webhook-ingest and a real PostgreSQL.

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/domain/fold.h"
#include "common/domain/lifecycle.h"
#include "common/http/server.h"
#include "common/store/subscription_store.h"
#include "tests/integration/ingest_stack.h"
#include "tests/integration/rows.h"
#include "tests/integration/stripe_event.h"
#include "tests/support/barrier.h"
#include "tests/support/fault_proxy.h"
#include "tests/support/http_client.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace tenure::test {
namespace {

using ::tenure::store::EventState;
using ::tenure::store::RecordedEvent;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The answer to a stored delivery.
struct Answer {
  int status = 0;
  std::string state;
  bool duplicate = false;

  friend bool operator==(const Answer&, const Answer&) = default;
};

void PrintTo(const Answer& answer, std::ostream* out) {
  *out << "{" << answer.status << ", \"" << answer.state << "\", "
       << (answer.duplicate ? "duplicate" : "first") << "}";
}

std::string TextOf(const JsonValue* value) {
  return value == nullptr ? std::string("(none)")
                          : std::string(value->AsString().value_or("(none)"));
}

Answer ReadAnswer(const http::Response& response) {
  Answer answer;
  answer.status = response.status;
  const absl::StatusOr<JsonValue> json = ParseJson(response.body);
  if (!json.ok()) {
    answer.state = "unreadable JSON";
    return answer;
  }
  answer.state = TextOf(json->Find("state"));
  const JsonValue* duplicate = json->Find("duplicate");
  answer.duplicate =
      duplicate != nullptr && duplicate->AsBool().value_or(false);
  return answer;
}

// error.reason of a refusal's JSON.
std::string ReasonOf(const std::string& body) {
  const absl::StatusOr<JsonValue> json = ParseJson(body);
  if (!json.ok()) return absl::StrCat("unreadable JSON: ", body);
  return TextOf(json->At({"error", "reason"}));
}

const Answer kApplied{200, "applied", false};

class Ingest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    ASSERT_OK_AND_ASSIGN(session_, database_->OpenSession());
    ASSERT_OK_AND_ASSIGN(stack_, IngestStack::Make(database_->conninfo()));
    ASSERT_OK(AddCatalog(*session_));
  }

  // Invoice number `n` of the subscription sub_1: the month that begins `n`
  // months of 30 days after the start of the present one.
  StripeInvoice Invoice(int n) const {
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

  // "status/reason" of an event.
  std::string EventRow(const std::string& event_id) {
    return Scalar(
        "SELECT status || '/' || reason FROM provider_event "
        "WHERE external_event_id = $1",
        {event_id});
  }

  // The types of a subscription's events in order.
  std::string History(const std::string& subscription_id = "sub_1") {
    return Scalar(
        "SELECT coalesce(string_agg(replace(e.event_type, 'subscription.', "
        "''), ' ' ORDER BY e.seq), '') FROM subscription_event e JOIN "
        "subscription s ON s.id = e.subscription_id "
        "WHERE s.provider_subscription_id = $1",
        {subscription_id});
  }

  // Moves the database's clock, as a new process sees it, to `offset` from the
  // machine's.
  void MoveClock(absl::Duration offset) {
    ASSERT_OK(database_->SetClockOffset(offset));
    ASSERT_OK_AND_ASSIGN(stack_, IngestStack::Make(database_->conninfo()));
  }

  // Makes the last statement of an ingest transaction fail.
  void BreakAnnouncing() {
    Exec(R"sql(
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'refused by the test'; END $$;
CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON sink_stream
  FOR EACH ROW EXECUTE FUNCTION refuse())sql");
  }

  static constexpr absl::Duration kMonth = absl::Hours(30 * 24);

  const absl::Time start_ = absl::FromUnixSeconds(
      absl::ToUnixSeconds(SystemClock::Instance().Now()) - 3600);
  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<IngestStack> stack_;
};

TEST_F(Ingest, MoneyForAnotherPlanIsThatPlanFromItsPeriodOn) {
  Exec(
      "WITH p AS (INSERT INTO plan (name, revision) VALUES ('max', 1)) "
      "INSERT INTO provider_product VALUES ('stripe', 'price_max', 'max')");
  ASSERT_EQ(ReadAnswer(stack_->Deliver(Invoice(0).Body())), kApplied);
  StripeInvoice in_advance = Invoice(1);
  in_advance.created = Invoice(0).created + absl::Seconds(1);
  in_advance.price_id = "price_max";

  EXPECT_EQ(ReadAnswer(stack_->Deliver(in_advance.Body())), kApplied);

  EXPECT_EQ(EventRow("evt_1"), "applied/");
  EXPECT_EQ(Scalar("SELECT p.name || ' ' || q.name || ' ' || (s.next_plan_at <"
                   " s.expires_at) FROM subscription s"
                   " JOIN plan p ON p.id = s.plan_id"
                   " JOIN plan q ON q.id = s.next_plan_id"),
            "pro max true");
}

TEST_F(Ingest, R4_WaitingEventsOfARouteThatIsNotConfiguredAreLeftToItsOwners) {
  Exec(
      "INSERT INTO route (name, kind, environment) VALUES ('elsewhere', "
      "'stripe', 'live'); INSERT INTO provider_event (route_id, account, "
      "livemode, external_event_id, event_type, body, body_sha256, "
      "occurred_at, received_at, status, next_attempt_at) SELECT id, '', "
      "true, 'evt_x', 'invoice.paid', '{}', sha256('{}'), tenure_now(), "
      "tenure_now() - interval '30 days', 'parked', tenure_now() FROM route "
      "WHERE name = 'elsewhere'");
  const std::string before = *Snapshot(*session_);

  EXPECT_THAT(stack_->RetryWaiting(), IsOkAndHolds(0));

  EXPECT_EQ(*Snapshot(*session_), before);
}

TEST_F(Ingest, AFirstDeliveryStoresEventFactStatePaymentHistoryAndOutbox) {
  Exec("INSERT INTO sink (name) VALUES ('orders'), ('mail')");
  Exec("INSERT INTO sink (name, enabled) VALUES ('retired', false)");

  EXPECT_EQ(ReadAnswer(stack_->Deliver(Invoice(0).Body())), kApplied);

  EXPECT_EQ(EventRow("evt_0"), "applied/");
  EXPECT_EQ(Scalar("SELECT (body = convert_to($1, 'UTF8') AND attempt_count = "
                   "1)::text FROM provider_event",
                   {Invoice(0).Body()}),
            "true");
  EXPECT_EQ(
      Scalar("SELECT kind || '/' || money_key || '/' || (provider_event_id"
             " = (SELECT id FROM provider_event))::text FROM "
             "subscription_fact"),
      "paid/in_0/true");
  EXPECT_EQ(Scalar("SELECT u.external_id || '/' || s.status || '/' || "
                   "s.environment || '/' || s.term_no || '/' || s.episode "
                   "FROM subscription s JOIN subject u ON u.id = s.subject_id"),
            "u1/ACTIVE/live/1/0");
  EXPECT_EQ(Scalar("SELECT extract(epoch FROM expires_at)::bigint::text "
                   "FROM subscription"),
            absl::StrCat(absl::ToUnixSeconds(Invoice(0).period_end)));
  EXPECT_EQ(Scalar("SELECT p.payment_key || '/' || amount_minor || '/' || "
                   "currency || '/' || term_no || '/' || alias FROM payment p "
                   "JOIN payment_alias a USING (route_id, account)"),
            "in_0/2000/USD/1/ch_in_0");
  EXPECT_EQ(History(), "created activated");
  EXPECT_EQ(
      Scalar("SELECT DISTINCT cause || '/' || (SELECT id FROM provider_event) "
             "FROM subscription_event"),
      absl::StrCat(
          "provider_event:", Scalar("SELECT id::text FROM provider_event"), "/",
          Scalar("SELECT id::text FROM provider_event")));
  EXPECT_EQ(Scalar("SELECT string_agg(k.name || ' ' || sent_seq || '-' || "
                   "head_seq, ', ' ORDER BY k.name) FROM sink_stream JOIN sink "
                   "k ON k.id = sink_id"),
            "mail 0-2, orders 0-2, retired 0-2")
      << "a disabled sink's rows wait for it (C127)";
}

TEST_F(Ingest, D11_AllOfADeliveryIsOneTransaction) {
  ASSERT_EQ(ReadAnswer(stack_->Deliver(Invoice(0).Body())), kApplied);

  EXPECT_EQ(Scalar("SELECT count(DISTINCT x)::text FROM ("
                   "SELECT xmin::text x FROM provider_event UNION ALL "
                   "SELECT xmin::text FROM subscription_fact UNION ALL "
                   "SELECT xmin::text FROM subscription UNION ALL "
                   "SELECT xmin::text FROM payment UNION ALL "
                   "SELECT xmin::text FROM subject UNION ALL "
                   "SELECT xmin::text FROM subscription_event) w"),
            "1");
}

TEST_F(Ingest, C003_R4_AnEventWhoseApplyingFailsIsKeptAndAppliedLater) {
  Exec("INSERT INTO sink (name) VALUES ('orders')");
  const std::string before = SnapshotText("provider_event");
  BreakAnnouncing();

  EXPECT_EQ(ReadAnswer(stack_->Deliver(Invoice(0).Body())),
            (Answer{200, "failed", false}));

  EXPECT_EQ(SnapshotText("provider_event"), before);
  EXPECT_EQ(EventRow("evt_0"), "failed/apply_failed");
  EXPECT_EQ(Scalar("SELECT (next_attempt_at > tenure_now() AND processed_at IS "
                   "NULL AND body IS NOT NULL AND last_error <> '')::text "
                   "FROM provider_event"),
            "true");
  EXPECT_EQ(Scalar("SELECT strpos(last_error, 'refused by the test')::text "
                   "FROM provider_event"),
            "0");

  Exec("DROP TRIGGER refuse ON sink_stream");
  EXPECT_EQ(ReadAnswer(stack_->Deliver(Invoice(0).Body())), kApplied);

  EXPECT_EQ(EventRow("evt_0"), "applied/");
  EXPECT_EQ(Scalar("SELECT (next_attempt_at IS NULL AND processed_at IS NOT "
                   "NULL AND last_error = '' AND attempt_count = 2)::text "
                   "FROM provider_event"),
            "true");
  EXPECT_EQ(History(), "created activated");
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM sink_stream"), "1");
}

TEST_F(Ingest, C003_R4_AFailedEventIsAppliedWithoutARedelivery) {
  Exec("INSERT INTO sink (name) VALUES ('orders')");
  BreakAnnouncing();
  ASSERT_EQ(ReadAnswer(stack_->Deliver(Invoice(0).Body())),
            (Answer{200, "failed", false}));

  // Not before its time, and not while the cause lasts.
  EXPECT_THAT(stack_->RetryWaiting(), IsOkAndHolds(0));
  MoveClock(absl::Minutes(10));
  EXPECT_THAT(stack_->RetryWaiting(), IsOkAndHolds(1));
  EXPECT_EQ(EventRow("evt_0"), "failed/apply_failed");
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM subscription"), "0");

  Exec("DROP TRIGGER refuse ON sink_stream");
  MoveClock(absl::Minutes(20));
  EXPECT_THAT(stack_->RetryWaiting(), IsOkAndHolds(1));
  EXPECT_EQ(EventRow("evt_0"), "applied/");
  EXPECT_EQ(History(), "created activated");
  EXPECT_THAT(stack_->RetryWaiting(), IsOkAndHolds(0));
  EXPECT_EQ(ReadAnswer(stack_->Deliver(Invoice(0).Body())),
            (Answer{200, "applied", true}));
}

TEST_F(Ingest, C016_R15_TestMoneyThatFailedFirstIsStillWithoutEffect) {
  Exec(R"sql(
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'refused by the test'; END $$;
CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON provider_event
  FOR EACH ROW WHEN (new.status = 'ignored') EXECUTE FUNCTION refuse())sql");
  StripeInvoice invoice = Invoice(0);
  invoice.livemode = false;
  ASSERT_EQ(ReadAnswer(stack_->Deliver(invoice.Body())),
            (Answer{200, "failed", false}));
  Exec("DROP TRIGGER refuse ON provider_event");

  MoveClock(absl::Minutes(10));
  EXPECT_THAT(stack_->RetryWaiting(), IsOkAndHolds(1));

  EXPECT_EQ(EventRow("evt_0"), "ignored/livemode_mismatch");
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM subscription"), "0");
}

TEST_F(Ingest, C003_ALockedSubscriptionsEventIsKeptAndAppliedOnceItIsFree) {
  ASSERT_EQ(ReadAnswer(stack_->Deliver(Invoice(0).Body())), kApplied);
  ASSERT_OK_AND_ASSIGN(const auto holder, database_->OpenSession());
  ASSERT_OK(holder->Exec("BEGIN; SELECT id FROM subscription FOR UPDATE"));
  IngestStack::Options options;
  options.lock_timeout = absl::Milliseconds(100);
  ASSERT_OK_AND_ASSIGN(const auto impatient,
                       IngestStack::Make(database_->conninfo(), options));

  // Acknowledged, because the row says that something will act on it (R4).
  EXPECT_EQ(ReadAnswer(impatient->Deliver(Invoice(1).Body())),
            (Answer{200, "received", false}));
  EXPECT_EQ(Scalar("SELECT term_no::text FROM subscription"), "1");

  ASSERT_OK(holder->Exec("ROLLBACK"));
  // The queue's own thread applies it, or has given up and the job does.
  MoveClock(absl::Minutes(10));
  for (int i = 0; i < 1000 && EventRow("evt_1") != "applied/"; ++i) {
    EXPECT_OK(stack_->RetryWaiting());
    Exec("SELECT pg_sleep(0.01)");
  }
  EXPECT_EQ(EventRow("evt_1"), "applied/");
  EXPECT_EQ(Scalar("SELECT term_no::text FROM subscription"), "2");
}

TEST_F(Ingest, C001_S0_28_RedeliveriesChangeNothingAndAreAcknowledged) {
  Exec("INSERT INTO sink (name) VALUES ('orders')");
  ASSERT_EQ(ReadAnswer(stack_->Deliver(Invoice(0).Body())), kApplied);
  const std::string before = SnapshotText();

  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ReadAnswer(stack_->Deliver(Invoice(0).Body())),
              (Answer{200, "applied", true}));
  }

  EXPECT_EQ(SnapshotText(), before);
}

TEST_F(Ingest, C001_S0_28_EightDeliveriesAtOnceAreOneEffect) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 10;
  Barrier barrier(kThreads);
  // Two processes: one would put the copies into one batch.
  ASSERT_OK_AND_ASSIGN(const auto other,
                       IngestStack::Make(database_->conninfo()));
  std::vector<std::vector<Answer>> answers(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      IngestStack& stack = t % 2 == 0 ? *stack_ : *other;
      for (int round = 0; round < kRounds; ++round) {
        const std::string body = Invoice(round).Body();
        if (!barrier.ArriveAndWait()) return;
        answers[t].push_back(ReadAnswer(stack.Deliver(body)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  for (int round = 0; round < kRounds; ++round) {
    int first = 0;
    for (const std::vector<Answer>& of_thread : answers) {
      ASSERT_EQ(of_thread.size(), kRounds);
      EXPECT_EQ(of_thread[round].status, 200);
      EXPECT_EQ(of_thread[round].state, "applied");
      if (!of_thread[round].duplicate) ++first;
    }
    EXPECT_EQ(first, 1) << "round " << round;
  }
  EXPECT_EQ(Scalar("SELECT (SELECT count(*) FROM provider_event) || ' ' || "
                   "(SELECT count(*) FROM subscription_fact) || ' ' || "
                   "(SELECT count(*) FROM payment) || ' ' || "
                   "(SELECT sum(term_no) FROM subscription)"),
            "10 10 10 10");
  EXPECT_EQ(History(),
            "created activated renewed renewed renewed renewed renewed renewed "
            "renewed "
            "renewed renewed");
}

TEST_F(Ingest, C001_TheSameInvoiceUnderAnotherEventIsNoSecondTerm) {
  ASSERT_EQ(ReadAnswer(stack_->Deliver(Invoice(0).Body())), kApplied);
  const std::string row = Scalar("SELECT s::text FROM subscription s");
  StripeInvoice second = Invoice(0);
  second.event_id = "evt_other";
  second.type = "invoice.payment_succeeded";
  second.created += absl::Seconds(1);

  EXPECT_EQ(ReadAnswer(stack_->Deliver(second.Body())),
            (Answer{200, "noop", false}));
  EXPECT_EQ(ReadAnswer(stack_->Deliver(second.Body())),
            (Answer{200, "noop", true}));

  EXPECT_EQ(Scalar("SELECT s::text FROM subscription s"), row);
  EXPECT_EQ(Scalar("SELECT term_no::text FROM subscription"), "1");
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM payment"), "1");
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM provider_event"), "2");
  EXPECT_EQ(History(), "created activated");
}

TEST_F(Ingest, D15_S0_27_S1_28_TheInboxKeyIsUniqueAndTheIdIsBounded) {
  ASSERT_EQ(ReadAnswer(stack_->Deliver(Invoice(0).Body())), kApplied);
  const std::string columns =
      "INSERT INTO provider_event (route_id, account, livemode, "
      "external_event_id, event_type, body_sha256, occurred_at, status, "
      "next_attempt_at) SELECT route_id, account, livemode, ";
  const std::string rest =
      ", event_type, body_sha256, occurred_at, 'received', tenure_now() FROM "
      "provider_event WHERE external_event_id = 'evt_0'";

  EXPECT_EQ(SqlState(session_->Exec(columns + "'evt_0'" + rest).status()),
            "23505");
  EXPECT_EQ(
      SqlState(session_->Exec(columns + "repeat('e', 256)" + rest).status()),
      "23514");
  EXPECT_OK(session_->Exec(columns + "repeat('e', 255)" + rest));
  EXPECT_EQ(Scalar("SELECT (received_at IS NOT NULL AND processed_at IS NULL)"
                   "::text FROM provider_event WHERE status = 'received'"),
            "true");
}

TEST_F(Ingest, C015_TheKeyHoldsRouteAccountAndMode) {
  const auto body = [&](const char* account, bool livemode) {
    StripeInvoice invoice = Invoice(0);
    invoice.event_id = "evt_1";
    invoice.account = account;
    invoice.livemode = livemode;
    return invoice.Body();
  };

  EXPECT_EQ(ReadAnswer(stack_->Deliver(body("acct_x", true))), kApplied);
  EXPECT_EQ(ReadAnswer(stack_->Deliver(body("acct_x", false))),
            (Answer{200, "ignored", false}));
  EXPECT_EQ(ReadAnswer(stack_->Deliver(body("acct_y", true))), kApplied);
  EXPECT_EQ(ReadAnswer(stack_->Deliver(body("acct_x", true), "stripe-eu")),
            kApplied);
  EXPECT_EQ(
      ReadAnswer(stack_->Deliver(body("acct_x", false), "stripe-sandbox")),
      kApplied);

  EXPECT_EQ(Scalar("SELECT count(*)::text FROM provider_event"), "5");
  EXPECT_EQ(Scalar("SELECT string_agg(r.name || ' ' || account || ' ' || "
                   "s.environment || ' ' || term_no, ', ' ORDER BY r.name, "
                   "account) FROM subscription s JOIN route r ON r.id = "
                   "s.route_id"),
            "stripe acct_x live 1, stripe acct_y live 1, "
            "stripe-eu acct_x live 1, stripe-sandbox acct_x test 1");
}

TEST_F(Ingest, C016_R15_TestMoneyAtALiveRouteIsStoredAndWithoutEffect) {
  const std::string before = SnapshotText("provider_event");
  StripeInvoice invoice = Invoice(0);
  invoice.livemode = false;

  EXPECT_EQ(ReadAnswer(stack_->Deliver(invoice.Body())),
            (Answer{200, "ignored", false}));
  EXPECT_EQ(ReadAnswer(stack_->Deliver(invoice.Body())),
            (Answer{200, "ignored", true}));

  EXPECT_EQ(EventRow("evt_0"), "ignored/livemode_mismatch");
  EXPECT_EQ(SnapshotText("provider_event"), before);
}

TEST_F(Ingest, R15_LiveMoneyAtATestRouteIsWithoutEffect) {
  EXPECT_EQ(ReadAnswer(stack_->Deliver(Invoice(0).Body(), "stripe-sandbox")),
            (Answer{200, "ignored", false}));
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM subscription"), "0");
}

TEST_F(Ingest, C070_C072_APeriodThatCannotBeIsSetAsideAndTheFormerStays) {
  ASSERT_EQ(ReadAnswer(stack_->Deliver(Invoice(0).Body())), kApplied);
  const std::string before =
      Scalar("SELECT expires_at::text || status FROM subscription");
  StripeInvoice zero = Invoice(1);
  zero.period_end = zero.period_start;
  StripeInvoice backwards = Invoice(2);
  backwards.period_end = backwards.period_start - absl::Seconds(1);
  StripeInvoice far = Invoice(3);
  far.period_end = absl::FromUnixSeconds(253402300800);

  for (const StripeInvoice& odd : {zero, backwards, far}) {
    EXPECT_EQ(ReadAnswer(stack_->Deliver(odd.Body())),
              (Answer{200, "quarantined", false}));
    EXPECT_EQ(ReadAnswer(stack_->Deliver(odd.Body())),
              (Answer{200, "quarantined", true}));
  }

  EXPECT_EQ(EventRow("evt_1"), "quarantined/period_invalid");
  EXPECT_EQ(EventRow("evt_3"), "quarantined/period_invalid");
  EXPECT_EQ(Scalar("SELECT expires_at::text || status FROM subscription"),
            before);
  MoveClock(absl::Hours(24));
  EXPECT_THAT(stack_->RetryWaiting(), IsOkAndHolds(0));
}

// Regression: it was tried again for seven days.
TEST_F(Ingest, C072_AFactThatCannotBeIsSetAsideByTheInbox) {
  providers::ProviderEvent event;
  event.event_id = "evt_9";
  event.type = "test";
  event.occurred_at = absl::FromUnixSeconds(1767225600);
  providers::SubscriptionFacts& facts = event.subscriptions.emplace_back();
  facts.provider_subscription_id = "sub_9";
  facts.subject = "user-9";
  facts.product_id = Invoice(0).price_id;
  providers::Fact& fact = facts.facts.emplace_back();
  fact.set_layer(subscription::v1::FACT_LAYER_MONEY);
  *fact.mutable_order_at() = ToProto(event.occurred_at);
  fact.mutable_paid()->set_payment_key("in_9");
  *fact.mutable_paid()->mutable_period_starts_at() = ToProto(event.occurred_at);
  *fact.mutable_paid()->mutable_period_ends_at() = ToProto(event.occurred_at);

  ASSERT_OK_AND_ASSIGN(const store::RecordedEvent recorded,
                       stack_->RecordEvent(event, "{}"));

  EXPECT_EQ(recorded.state, store::EventState::kQuarantined);
  EXPECT_EQ(EventRow("evt_9"), "quarantined/content_invalid");
  EXPECT_EQ(Scalar("SELECT last_error FROM provider_event"),
            "period_ends_at: must be later than period_starts_at");
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM subscription"), "0");
}

TEST_F(Ingest, TheSameIdWithAnotherBodyIsSetAsideAndTheFirstWins) {
  ASSERT_EQ(ReadAnswer(stack_->Deliver(Invoice(0).Body())), kApplied);
  const std::string before = SnapshotText("event_conflict");
  StripeInvoice forged = Invoice(0);
  forged.period_end += 12 * kMonth;

  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ReadAnswer(stack_->Deliver(forged.Body())),
              (Answer{200, "quarantined", false}));
  }

  EXPECT_EQ(SnapshotText("event_conflict"), before);
  EXPECT_EQ(Scalar("SELECT count(*) || ' ' || bool_and(body = convert_to($1, "
                   "'UTF8')) FROM event_conflict",
                   {forged.Body()}),
            "1 true");
  EXPECT_EQ(ReadAnswer(stack_->Deliver(Invoice(0).Body())),
            (Answer{200, "applied", true}));
}

TEST_F(Ingest, AnEventOfAnUnknownSubjectWaitsAndMakesNoSubscription) {
  StripeInvoice invoice = Invoice(0);
  invoice.subject.clear();
  invoice.customer_id = "cus_late";
  const std::string before = SnapshotText("provider_event");

  EXPECT_EQ(ReadAnswer(stack_->Deliver(invoice.Body())),
            (Answer{200, "parked", false}));
  // Still unknown: tried once more, still waiting.
  EXPECT_EQ(ReadAnswer(stack_->Deliver(invoice.Body())),
            (Answer{200, "parked", false}));

  EXPECT_EQ(EventRow("evt_0"), "parked/no_subject");
  EXPECT_EQ(Scalar("SELECT (next_attempt_at > tenure_now())::text FROM "
                   "provider_event"),
            "true");
  EXPECT_EQ(SnapshotText("provider_event"), before);

  Exec(
      "WITH u AS (INSERT INTO subject (external_id) VALUES ('u9') RETURNING "
      "id) INSERT INTO customer_link (route_id, account, customer_id, "
      "subject_id) SELECT r.id, '', 'cus_late', u.id FROM u, route r "
      "WHERE r.name = 'stripe'");
  EXPECT_EQ(ReadAnswer(stack_->Deliver(invoice.Body())), kApplied);
  EXPECT_EQ(EventRow("evt_0"), "applied/");
  EXPECT_EQ(Scalar("SELECT u.external_id FROM subscription s JOIN subject u ON "
                   "u.id = s.subject_id"),
            "u9");
}

TEST_F(Ingest, C012_AnEventOfNobodyIsDeadAfterAWeek) {
  StripeInvoice invoice = Invoice(0);
  invoice.subject.clear();
  invoice.customer_id = "cus_foreign";
  const std::string before = SnapshotText("provider_event");
  ASSERT_EQ(ReadAnswer(stack_->Deliver(invoice.Body())),
            (Answer{200, "parked", false}));

  MoveClock(absl::Hours(7 * 24 - 1));
  EXPECT_THAT(stack_->RetryWaiting(), IsOkAndHolds(1));
  EXPECT_EQ(EventRow("evt_0"), "parked/no_subject");

  MoveClock(absl::Hours(7 * 24 + 1));
  EXPECT_THAT(stack_->RetryWaiting(), IsOkAndHolds(1));
  EXPECT_EQ(EventRow("evt_0"), "dead/no_subject");
  EXPECT_THAT(stack_->RetryWaiting(), IsOkAndHolds(0));
  EXPECT_EQ(SnapshotText("provider_event"), before);
}

TEST_F(Ingest, C140_AnEventOfAnUnknownPriceIsAppliedOnceTheCatalogKnowsIt) {
  StripeInvoice invoice = Invoice(0);
  invoice.price_id = "price_new";
  ASSERT_EQ(ReadAnswer(stack_->Deliver(invoice.Body())),
            (Answer{200, "parked", false}));
  ASSERT_EQ(EventRow("evt_0"), "parked/unknown_plan");

  Exec(
      "INSERT INTO provider_product (route_name, product_id, plan_name) "
      "VALUES ('stripe', 'price_new', 'pro')");
  MoveClock(absl::Minutes(10));
  EXPECT_THAT(stack_->RetryWaiting(), IsOkAndHolds(1));

  EXPECT_EQ(EventRow("evt_0"), "applied/");
  EXPECT_EQ(History(), "created activated");
}

TEST_F(Ingest, AnEventOfAnUnknownPriceWaitsForTheCatalog) {
  StripeInvoice invoice = Invoice(0);
  invoice.price_id = "price_new";
  const std::string before = SnapshotText("provider_event");

  EXPECT_EQ(ReadAnswer(stack_->Deliver(invoice.Body())),
            (Answer{200, "parked", false}));
  EXPECT_EQ(EventRow("evt_0"), "parked/unknown_plan");
  EXPECT_EQ(SnapshotText("provider_event"), before);

  Exec(
      "INSERT INTO provider_product (route_name, product_id, plan_name) "
      "VALUES ('stripe', 'price_new', 'pro')");
  EXPECT_EQ(ReadAnswer(stack_->Deliver(invoice.Body())), kApplied);
  EXPECT_EQ(History(), "created activated");
}

TEST_F(Ingest, ALinkThatContradictsTheMetadataIsNobodysGuess) {
  Exec(
      "WITH u AS (INSERT INTO subject (external_id) VALUES ('u9') RETURNING "
      "id) INSERT INTO customer_link (route_id, account, customer_id, "
      "subject_id) SELECT r.id, '', 'cus_1', u.id FROM u, route r "
      "WHERE r.name = 'stripe'");

  EXPECT_EQ(ReadAnswer(stack_->Deliver(Invoice(0).Body())),
            (Answer{200, "parked", false}));

  EXPECT_EQ(EventRow("evt_0"), "parked/subject_conflict");
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM subscription"), "0");
}

TEST_F(Ingest, S0_29_ARenewalWritesTheNewEndAtOnce) {
  ASSERT_EQ(ReadAnswer(stack_->Deliver(Invoice(0).Body())), kApplied);
  ASSERT_EQ(ReadAnswer(stack_->Deliver(Invoice(1).Body())), kApplied);

  EXPECT_EQ(
      Scalar("SELECT extract(epoch FROM expires_at)::bigint || ' ' || "
             "status || ' ' || term_no || ' ' || episode "
             "FROM subscription"),
      absl::StrCat(absl::ToUnixSeconds(Invoice(1).period_end), " ACTIVE 2 0"));
  EXPECT_EQ(History(), "created activated renewed");
}

TEST_F(Ingest, ARenewalAfterTheEndRevivesTheSubscription) {
  StripeInvoice past = Invoice(-2);
  ASSERT_EQ(ReadAnswer(stack_->Deliver(past.Body())), kApplied);
  ASSERT_EQ(Scalar("SELECT status || ' ' || episode FROM subscription"),
            "EXPIRED 0");

  ASSERT_EQ(ReadAnswer(stack_->Deliver(Invoice(0).Body())), kApplied);

  EXPECT_EQ(Scalar("SELECT status || ' ' || episode || ' ' || (expired_at IS "
                   "NULL) || ' ' || term_no FROM subscription"),
            "ACTIVE 1 true 2");
  EXPECT_EQ(History(), "created activated expired renewed");
}

TEST_F(Ingest, ADeletedSubscriptionEndsAtItsEnd) {
  ASSERT_EQ(ReadAnswer(stack_->Deliver(Invoice(0).Body())), kApplied);
  StripeDeletion deletion;
  deletion.event_id = "evt_end";
  deletion.subscription_id = "sub_1";
  deletion.subject = "u1";
  deletion.ended_at = start_ + absl::Minutes(30);
  deletion.created = deletion.ended_at;

  EXPECT_EQ(ReadAnswer(stack_->Deliver(deletion.Body())), kApplied);

  EXPECT_EQ(
      Scalar("SELECT extract(epoch FROM expires_at)::bigint || ' ' || "
             "status || ' ' || will_renew FROM subscription"),
      absl::StrCat(absl::ToUnixSeconds(deletion.ended_at), " EXPIRED false"));
  EXPECT_EQ(History(), "created activated expired");
  EXPECT_EQ(Scalar("SELECT extract(epoch FROM effective_at)::bigint::text FROM "
                   "subscription_event WHERE event_type = "
                   "'subscription.expired'"),
            absl::StrCat(absl::ToUnixSeconds(deletion.ended_at)));
}

TEST_F(Ingest, AnEventThatCarriesNoFactIsKeptAsIgnored) {
  const std::string body = absl::StrCat(
      "{\"id\":\"evt_x\",\"type\":\"product.created\","
      "\"livemode\":true,\"created\":",
      absl::ToUnixSeconds(start_),
      ",\"data\":{\"object\":{\"id\":\"prod_1\"}}}");

  EXPECT_EQ(ReadAnswer(stack_->Deliver(body)), (Answer{200, "ignored", false}));
  EXPECT_EQ(ReadAnswer(stack_->Deliver(body)), (Answer{200, "ignored", true}));
  EXPECT_EQ(EventRow("evt_x"), "ignored/type_carries_no_fact");
}

class IngestOverFaults : public Ingest {
 protected:
  void SetUp() override {
    Ingest::SetUp();
    ASSERT_OK_AND_ASSIGN(proxy_, FaultProxy::Start(database_->conninfo()));
    IngestStack::Options options;
    options.pool_size = 1;
    options.registration_conninfo = database_->conninfo();
    ASSERT_OK_AND_ASSIGN(
        faulty_,
        IngestStack::Make(proxy_->Through(database_->conninfo()), options));
  }

  std::unique_ptr<FaultProxy> proxy_;
  std::unique_ptr<IngestStack> faulty_;
};

TEST_F(IngestOverFaults, C103_AnUnknownCommitIsNeverAcknowledged) {
  constexpr int kRounds = 40;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    const bool committed = round % 2 == 1;
    const std::string body = Invoice(round).Body();
    if (committed) {
      proxy_->CutAfterCommit();
    } else {
      proxy_->CutBeforeCommit();
    }

    if (round % 4 < 2) {
      const absl::StatusOr<store::RecordedEvent> unknown =
          faulty_->Record(body);
      EXPECT_TRUE(IsCommitUnknown(unknown.status()))
          << unknown.status().ToString();
    } else {
      const http::Response unknown = faulty_->Deliver(body);
      EXPECT_EQ(unknown.status, 503);
      EXPECT_TRUE(unknown.headers.Has("Retry-After"));
      EXPECT_EQ(ReasonOf(unknown.body), "COMMIT_OUTCOME_UNKNOWN");
    }
    ASSERT_TRUE(proxy_->AwaitCuts(round + 1));

    EXPECT_EQ(ReadAnswer(faulty_->Deliver(body)),
              (Answer{200, "applied", committed}));
    EXPECT_EQ(ReadAnswer(faulty_->Deliver(body)),
              (Answer{200, "applied", true}));
    EXPECT_EQ(Scalar("SELECT term_no || ' ' || (SELECT count(*) FROM payment) "
                     "|| ' ' || (SELECT count(*) FROM subscription_event) "
                     "FROM subscription"),
              absl::StrCat(round + 1, " ", round + 1, " ", round + 2));
  }
}

TEST_F(IngestOverFaults, AnAbsentDatabaseIsAnswered503AndTheRetryApplies) {
  ASSERT_EQ(ReadAnswer(faulty_->Deliver(Invoice(0).Body())), kApplied);
  proxy_->Refuse(true);
  proxy_->CutNow();

  const http::Response refused = faulty_->Deliver(Invoice(1).Body());
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(refused.headers.Has("Retry-After"));
  EXPECT_EQ(ReasonOf(refused.body), "DATABASE_UNAVAILABLE");
  EXPECT_THAT(refused.body, Not(HasSubstr("127.0.0.1")));

  proxy_->Heal();
  EXPECT_EQ(ReadAnswer(faulty_->Deliver(Invoice(1).Body())), kApplied);
  EXPECT_EQ(Scalar("SELECT term_no::text FROM subscription"), "2");
}

TEST_F(IngestOverFaults, ASessionLostBeforeCommitIsRepeatedUnseen) {
  ASSERT_EQ(ReadAnswer(faulty_->Deliver(Invoice(0).Body())), kApplied);
  proxy_->CutBeforeStatement("UPDATE subscription");

  EXPECT_EQ(ReadAnswer(faulty_->Deliver(Invoice(1).Body())), kApplied);
  EXPECT_TRUE(proxy_->AwaitCuts(1));
  EXPECT_EQ(Scalar("SELECT term_no::text FROM subscription"), "2");
}

TEST_F(Ingest, RefusalsAreJsonThatNamesTheReasonAndTellsNoSecret) {
  struct Case {
    const char* name;
    int status;
    const char* reason;
    http::Request request;
  };
  const std::string body = Invoice(0).Body();
  std::vector<Case> cases;
  const auto add = [&](const char* name, int status, const char* reason,
                       const std::string& text) -> http::Request& {
    cases.push_back({name, status, reason, IngestStack::SignedRequest(text)});
    return cases.back().request;
  };
  const auto set = [](http::Request& request, const std::string& header,
                      const std::string& value) {
    http::Headers headers;
    for (const auto& [name, old] : request.headers) {
      if (name != header) headers.Add(name, old);
    }
    if (!value.empty()) headers.Add(header, value);
    request.headers = headers;
  };
  add("no such path", 404, "PATH_NOT_FOUND", body).target = "/v2/webhooks";
  add("no such route", 404, "ROUTE_NOT_FOUND", body).target =
      "/v1/webhooks/paypal";
  add("a path below the route", 404, "ROUTE_NOT_FOUND", body).target =
      "/v1/webhooks/stripe/x";
  set(add("not JSON", 415, "CONTENT_TYPE", body), "Content-Type", "text/plain");
  set(add("no signature", 401, "SIGNATURE_INVALID", body), "Stripe-Signature",
      "");
  set(add("another secret", 401, "SIGNATURE_INVALID", body), "Stripe-Signature",
      StripeSignature("whsec_other", body, SystemClock::Instance().Now()));
  set(add("signed long ago", 401, "SIGNATURE_TIMESTAMP_OUT_OF_TOLERANCE", body),
      "Stripe-Signature",
      StripeSignature(IngestStack::kSecret, body,
                      SystemClock::Instance().Now() - absl::Minutes(6)));
  set(add("no header of Stripe's", 400, "SIGNATURE_HEADER_MALFORMED", body),
      "Stripe-Signature", "t=soon,v1=00");
  add("another body", 401, "SIGNATURE_INVALID", body).body += " ";
  add("malformed JSON", 400, "EVENT_MALFORMED", "{\"id\":\"evt_marker\"");
  add("no id", 400, "EVENT_ID_MISSING", "{\"type\":\"x\",\"created\":1}");
  const std::string before = SnapshotText();

  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const http::Response response = stack_->Post(c.request);
    EXPECT_EQ(response.status, c.status);
    EXPECT_EQ(ReasonOf(response.body), c.reason) << response.body;
    ASSERT_NE(response.headers.Find("Content-Type"), nullptr);
    EXPECT_EQ(http::MediaType(*response.headers.Find("Content-Type")),
              "application/json");
    EXPECT_THAT(response.body, Not(HasSubstr("whsec")));
    EXPECT_THAT(response.body, Not(HasSubstr("evt_")));
    if (const std::string* header =
            c.request.headers.Find("Stripe-Signature")) {
      EXPECT_THAT(response.body, Not(HasSubstr(*header)));
    }
  }
  EXPECT_EQ(SnapshotText(), before);
}

TEST_F(Ingest, OverTheWireItAnswers200And405And413) {
  http::ServerOptions options;
  options.listen_address = "127.0.0.1:0";
  options.max_body_bytes = IngestStack::kMaxBodyBytes;
  webhook_ingest::WebhookHttp& edge = stack_->edge();
  options.accept = [&edge](const http::RequestHead& head) {
    return edge.Accept(head);
  };
  ASSERT_OK_AND_ASSIGN(
      const auto server,
      http::Server::Start(
          options, [&edge](http::Request request, http::Responder responder) {
            edge.Handle(std::move(request), std::move(responder));
          }));
  const std::string path = "/v1/webhooks/stripe";
  const auto post = [&](const std::string& body) {
    return HttpPost(
        server->address(), path, body,
        {{"Content-Type", "application/json; charset=utf-8"},
         {"Stripe-Signature", StripeSignature(IngestStack::kSecret, body,
                                              SystemClock::Instance().Now())}});
  };

  ASSERT_OK_AND_ASSIGN(const HttpReply stored, post(Invoice(0).Body()));
  EXPECT_EQ(stored.status, 200);
  EXPECT_EQ(EventRow("evt_0"), "applied/");

  ASSERT_OK_AND_ASSIGN(const HttpReply read, HttpGet(server->address(), path));
  EXPECT_EQ(read.status, 405);
  EXPECT_EQ(read.Header("Allow"), "POST");

  ASSERT_OK_AND_ASSIGN(const HttpReply large,
                       post(std::string(IngestStack::kMaxBodyBytes + 1, ' ')));
  EXPECT_EQ(large.status, 413);
  EXPECT_EQ(ReasonOf(large.body), "BODY_TOO_LARGE");
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM provider_event"), "1");
}

// Runs `bodies`, each on a thread and a connection of its own, at once.
std::vector<Answer> DeliverAtOnce(IngestStack& stack, Barrier& barrier,
                                  const std::vector<std::string>& bodies) {
  std::vector<Answer> answers(bodies.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < bodies.size(); ++i) {
    threads.emplace_back([&, i] {
      const http::Request request = IngestStack::SignedRequest(bodies[i]);
      if (!barrier.ArriveAndWait()) return;
      answers[i] = ReadAnswer(stack.Post(request));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return answers;
}

TEST_F(Ingest, TwoRenewalsAtOnceLeaveTheLaterEnd) {
  Barrier barrier(2);
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    // An odd round hands the later one over first.
    StripeInvoice near = Invoice(2 * round);
    StripeInvoice far = Invoice(2 * round + 1);
    const std::string near_body = near.Body();
    const std::string far_body = far.Body();

    const std::vector<Answer> answers = DeliverAtOnce(
        *stack_, barrier,
        round % 2 == 0 ? std::vector<std::string>{near_body, far_body}
                       : std::vector<std::string>{far_body, near_body});

    EXPECT_THAT(answers, ElementsAre(kApplied, kApplied));
    EXPECT_EQ(
        Scalar("SELECT extract(epoch FROM expires_at)::bigint || ' ' || "
               "term_no FROM subscription"),
        absl::StrCat(absl::ToUnixSeconds(far.period_end), " ", 2 * round + 2));
  }
}

TEST_F(Ingest, TwoFirstEventsAtOnceMakeOneSubscription) {
  Barrier barrier(2);
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    StripeInvoice first = Invoice(2 * round);
    StripeInvoice second = Invoice(2 * round + 1);
    first.subscription_id = second.subscription_id =
        absl::StrCat("sub_round_", round);
    first.subject = second.subject = absl::StrCat("u_round_", round);

    EXPECT_THAT(DeliverAtOnce(*stack_, barrier, {first.Body(), second.Body()}),
                ElementsAre(kApplied, kApplied));

    EXPECT_EQ(Scalar("SELECT count(*) || ' ' || sum(term_no) FROM subscription "
                     "WHERE provider_subscription_id = $1",
                     {first.subscription_id}),
              "1 2");
  }
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM subject"), "20");
}

TEST_F(Ingest, R5_R8_RandomEventsAtOnceEndInTheFoldOfTheirFacts) {
  constexpr int kThreads = 4;
  constexpr int kEvents = 50;
  constexpr int kSubscriptions = 5;
  const auto subscription_id = [](int k) { return absl::StrCat("sub_r", k); };
  const auto subject = [](int k) { return absl::StrCat("u", k % 3); };
  Barrier barrier(kThreads);
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(1000 + t);
      if (!barrier.ArriveAndWait()) return;
      for (int i = 0; i < kEvents; ++i) {
        const int k = static_cast<int>(random() % kSubscriptions);
        const int n = static_cast<int>(random() % 12);
        std::string body;
        if (random() % 8 == 0) {
          StripeDeletion deletion;
          deletion.event_id = absl::StrCat("evt_end_", t, "_", i);
          deletion.subscription_id = subscription_id(k);
          deletion.subject = subject(k);
          deletion.ended_at = start_ + n * kMonth + absl::Hours(24);
          deletion.created = deletion.ended_at;
          body = deletion.Body();
        } else {
          // Few keys, so that threads also bring the same event or invoice.
          StripeInvoice invoice = Invoice(n);
          invoice.event_id = absl::StrCat("evt_", k, "_", n, "_", random() % 2);
          invoice.invoice_id = absl::StrCat("in_", k, "_", n);
          invoice.subscription_id = subscription_id(k);
          invoice.subject = subject(k);
          body = invoice.Body();
        }
        if (stack_->Deliver(body).status != 200) ++refused;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 0);

  store::SubscriptionStore subscriptions(stack_->pool(), "live");
  ASSERT_OK_AND_ASSIGN(
      const SqlRows rows,
      session_->Exec("SELECT id::text FROM subscription ORDER BY id"));
  EXPECT_EQ(rows.size(), kSubscriptions);
  for (const SqlRow& row : rows) {
    SCOPED_TRACE(absl::StrCat("subscription ", *row[0]));
    ASSERT_OK_AND_ASSIGN(const SqlRows stored,
                         session_->Exec("SELECT event_id, encode(body, 'hex') "
                                        "FROM subscription_fact WHERE "
                                        "subscription_id = $1",
                                        {row[0]}));
    std::vector<domain::OrderedFact> facts;
    for (const SqlRow& fact_row : stored) {
      domain::Fact fact;
      ASSERT_TRUE(fact.ParseFromString(absl::HexStringToBytes(*fact_row[1])));
      ASSERT_OK_AND_ASSIGN(domain::OrderedFact ordered,
                           domain::MakeOrderedFact(*fact_row[0], fact));
      facts.push_back(std::move(ordered));
    }
    EXPECT_THAT(facts, Not(IsEmpty()));
    ASSERT_OK_AND_ASSIGN(const domain::Projection projection,
                         domain::Fold(facts));
    domain::Subscription folded = projection.subscription;
    ASSERT_OK_AND_ASSIGN(const store::StoredSubscription subscription,
                         subscriptions.Get(std::stoll(*row[0])));
    // The store reads neither plans nor billing dates into the state.
    folded.plan.clear();
    folded.plan_revision = 0;
    folded.next_billing_at.reset();
    // No end lies near the present, so any present gives the same.
    EXPECT_EQ(subscription.state.subscription,
              domain::Lapse(folded, SystemClock::Instance().Now()));
    EXPECT_EQ(subscription.access_until, folded.AccessUntil());
  }
  // What the server counted is told when its sessions end.
  stack_.reset();
  EXPECT_OK(session_->AwaitTrue(
      "SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = "
      "current_database() AND backend_type = 'client backend'"));
  EXPECT_EQ(Scalar("SELECT deadlocks::text FROM pg_stat_database WHERE datname "
                   "= current_database()"),
            "0");
}

}  // namespace
}  // namespace tenure::test
