// Several events in one transaction: what each becomes, whom it may hold up,
// and what two batches do to each other.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/store/inbox_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/webhook-ingest/ingest_queue.h"
#include "tests/integration/ingest_stack.h"
#include "tests/integration/rows.h"
#include "tests/integration/stripe_event.h"
#include "tests/support/barrier.h"
#include "tests/support/session.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace tenure::test {
namespace {

using store::DeliveredEvent;
using store::EventState;
using store::RecordedEvent;
using ::testing::ElementsAre;
using Recorded = std::vector<std::optional<RecordedEvent>>;

class IngestBatch : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    ASSERT_OK_AND_ASSIGN(session_, database_->OpenSession());
    ASSERT_OK_AND_ASSIGN(stack_, IngestStack::Make(database_->conninfo()));
    ASSERT_OK(AddCatalog(*session_));
  }

  // Month `month` of subscription `n`, which belongs to subject u<n>.
  StripeInvoice Invoice(int n, int month) const {
    StripeInvoice invoice;
    invoice.event_id = absl::StrCat("evt_", n, "_", month);
    invoice.invoice_id = absl::StrCat("in_", n, "_", month);
    invoice.subscription_id = absl::StrCat("sub_", n);
    invoice.customer_id = absl::StrCat("cus_", n);
    invoice.subject = absl::StrCat("u", n);
    invoice.period_start = start_ + month * absl::Hours(30 * 24);
    invoice.period_end = invoice.period_start + absl::Hours(30 * 24);
    invoice.created = invoice.period_start;
    return invoice;
  }

  DeliveredEvent Delivered(const std::string& body) const {
    DeliveredEvent delivered;
    const host::ConfiguredRoute* configured = stack_->routes().Find("stripe");
    delivered.route = configured->route();
    absl::StatusOr<providers::ProviderEvent> event =
        configured->adapter()->Parse(body);
    EXPECT_OK(event);
    if (event.ok()) delivered.event = *std::move(event);
    delivered.body = body;
    return delivered;
  }

  static absl::StatusOr<Recorded> Together(
      IngestStack& stack, const std::vector<DeliveredEvent>& events) {
    std::vector<const DeliveredEvent*> pointers;
    for (const DeliveredEvent& event : events) pointers.push_back(&event);
    return stack.inbox().RecordTogether(pointers);
  }

  static std::string StateOf(const std::optional<RecordedEvent>& recorded) {
    if (!recorded.has_value()) return "alone";
    return absl::StrCat(store::EventStateName(recorded->state),
                        recorded->reason.empty() ? "" : "/", recorded->reason,
                        recorded->duplicate ? " again" : "");
  }
  static std::vector<std::string> StatesOf(const Recorded& recorded) {
    std::vector<std::string> states;
    for (const auto& one : recorded) states.push_back(StateOf(one));
    return states;
  }

  std::string Scalar(const std::string& sql) {
    absl::StatusOr<std::string> value = session_->Scalar(sql, {});
    return value.ok() ? *value : value.status().ToString();
  }

  // "status/reason status/reason ..." in the order of the ids.
  std::string Inbox() {
    return Scalar(
        "SELECT coalesce(string_agg(status || '/' || reason, ' ' ORDER BY "
        "external_event_id), '') FROM provider_event");
  }

  const absl::Time start_ = absl::FromUnixSeconds(
      absl::ToUnixSeconds(SystemClock::Instance().Now()) - 3600);
  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<IngestStack> stack_;
};

TEST_F(IngestBatch, R4_EventsOfOneBatchBecomeWhatTheyWouldAlone) {
  StripeInvoice nobody = Invoice(2, 0);
  nobody.subject = "";
  StripeInvoice unknown_price = Invoice(3, 0);
  unknown_price.price_id = "price_unknown";
  StripeInvoice test_money = Invoice(4, 0);
  test_money.livemode = false;
  StripeInvoice other_type = Invoice(5, 0);
  other_type.type = "invoice.finalized";
  ASSERT_OK_AND_ASSIGN(
      const Recorded recorded,
      Together(*stack_,
               {Delivered(Invoice(1, 0).Body()), Delivered(nobody.Body()),
                Delivered(unknown_price.Body()), Delivered(test_money.Body()),
                Delivered(other_type.Body())}));

  EXPECT_THAT(
      StatesOf(recorded),
      ElementsAre("applied", "parked/no_subject", "parked/unknown_plan",
                  "ignored/livemode_mismatch", "ignored/type_carries_no_fact"));
  EXPECT_EQ(Inbox(),
            "applied/ parked/no_subject parked/unknown_plan "
            "ignored/livemode_mismatch ignored/type_carries_no_fact");
  // One commit wrote it all, and each row once tried.
  EXPECT_EQ(Scalar("SELECT count(DISTINCT xmin::text) || ' ' || "
                   "min(attempt_count) || ' ' || max(attempt_count) "
                   "FROM provider_event"),
            "1 1 1");
  EXPECT_EQ(Scalar("SELECT string_agg(status || ' ' || term_no, ',') "
                   "FROM subscription"),
            "ACTIVE 1");
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM provider_event WHERE "
                   "(next_attempt_at IS NULL) = (processed_at IS NULL)"),
            "0");
}

TEST_F(IngestBatch, C007_SeveralEventsOfOneSubscriptionKeepTheirOwnCauses) {
  ASSERT_OK_AND_ASSIGN(const Recorded recorded,
                       Together(*stack_, {Delivered(Invoice(1, 1).Body()),
                                          Delivered(Invoice(1, 0).Body()),
                                          Delivered(Invoice(2, 0).Body()),
                                          Delivered(Invoice(1, 2).Body())}));

  EXPECT_THAT(StatesOf(recorded),
              ElementsAre("applied", "applied", "applied", "applied"));
  EXPECT_EQ(Scalar("SELECT string_agg(s.provider_subscription_id || ' ' || "
                   "s.term_no || ' ' || s.version, ',' ORDER BY s.id) "
                   "FROM subscription s"),
            "sub_1 3 4,sub_2 1 2");
  // Every event of the history names the delivery that brought it about.
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM subscription_event h WHERE NOT "
                   "EXISTS (SELECT FROM provider_event e WHERE h.cause = "
                   "'provider_event:' || e.id)"),
            "0");
  EXPECT_EQ(Scalar("SELECT count(*) || ' ' || count(DISTINCT "
                   "provider_event_id) FROM subscription_fact"),
            "4 4");
}

TEST_F(IngestBatch, C001_ARepeatWithinABatchIsADuplicate) {
  const std::string body = Invoice(1, 0).Body();
  ASSERT_OK_AND_ASSIGN(
      const Recorded recorded,
      Together(*stack_, {Delivered(body), Delivered(body), Delivered(body)}));
  EXPECT_THAT(StatesOf(recorded),
              ElementsAre("applied", "applied again", "applied again"));
  ASSERT_OK_AND_ASSIGN(
      const Recorded again,
      Together(*stack_, {Delivered(Invoice(2, 0).Body()), Delivered(body)}));
  EXPECT_THAT(StatesOf(again), ElementsAre("applied", "applied again"));
  EXPECT_EQ(again[1]->event_id, recorded[0]->event_id);
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM provider_event"), "2");
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM payment"), "2");
}

TEST_F(IngestBatch, K1_WhatNeedsALookOfItsOwnIsLeftAndNotStored) {
  StripeInvoice parked = Invoice(1, 0);
  parked.subject = "";
  ASSERT_OK(Together(*stack_, {Delivered(parked.Body())}).status());
  StripeInvoice other_body = Invoice(2, 0);
  ASSERT_OK(Together(*stack_, {Delivered(other_body.Body())}).status());
  other_body.amount = 1;
  const std::string before = Scalar(
      "SELECT string_agg(id || status || attempt_count, ',' ORDER BY id) FROM "
      "provider_event");

  // The first delivery waits, the second has another body, the third is new.
  ASSERT_OK_AND_ASSIGN(
      const Recorded recorded,
      Together(*stack_, {Delivered(parked.Body()), Delivered(other_body.Body()),
                         Delivered(Invoice(3, 0).Body())}));
  EXPECT_THAT(StatesOf(recorded), ElementsAre("alone", "alone", "applied"));
  EXPECT_EQ(Scalar("SELECT string_agg(id || status || attempt_count, ',' ORDER "
                   "BY id) FROM provider_event WHERE external_event_id <> "
                   "'evt_3_0'"),
            before);
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM event_conflict"), "0");

  // Both through the queue, as they would come.
  const http::Response conflict = stack_->Deliver(other_body.Body());
  EXPECT_EQ(conflict.status, 200);
  EXPECT_THAT(conflict.body, ::testing::HasSubstr("quarantined"));
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM event_conflict"), "1");
}

TEST_F(IngestBatch, R8_AHotSubscriptionHoldsUpNoNeighbour) {
  ASSERT_OK(Together(*stack_, {Delivered(Invoice(1, 0).Body()),
                               Delivered(Invoice(2, 0).Body())})
                .status());
  ASSERT_OK_AND_ASSIGN(const auto holder, database_->OpenSession());
  ASSERT_OK(
      holder->Exec("BEGIN; SELECT id FROM subscription WHERE "
                   "provider_subscription_id = 'sub_1' FOR UPDATE"));

  // Would wait for the holder if it took the lock like everybody.
  ASSERT_OK_AND_ASSIGN(const Recorded recorded,
                       Together(*stack_, {Delivered(Invoice(1, 1).Body()),
                                          Delivered(Invoice(2, 1).Body())}));
  EXPECT_THAT(StatesOf(recorded),
              ElementsAre("received/subscription_locked", "applied"));
  EXPECT_TRUE(recorded[0]->apply_next);
  EXPECT_EQ(Scalar("SELECT (next_attempt_at > tenure_now() AND processed_at IS "
                   "NULL AND body IS NOT NULL)::text FROM provider_event WHERE "
                   "external_event_id = 'evt_1_1'"),
            "true");

  ASSERT_OK(holder->Exec("ROLLBACK"));
  ASSERT_OK_AND_ASSIGN(
      const std::optional<RecordedEvent> applied,
      stack_->inbox().RetryEvent(
          recorded[0]->event_id,
          [&](int64_t, absl::string_view body)
              -> absl::StatusOr<store::InboxStore::ParsedEvent> {
            DeliveredEvent event = Delivered(std::string(body));
            return store::InboxStore::ParsedEvent{event.route, event.event};
          }));
  ASSERT_TRUE(applied.has_value());
  EXPECT_EQ(applied->state, EventState::kApplied);
  EXPECT_EQ(Scalar("SELECT string_agg(term_no::text, ' ') FROM subscription"),
            "2 2");
}

TEST_F(IngestBatch, R4_AnEventOfALockedSubscriptionIsAppliedRightAfter) {
  ASSERT_EQ(stack_->Deliver(Invoice(1, 0).Body()).status, 200);
  ASSERT_OK_AND_ASSIGN(const auto holder, database_->OpenSession());
  ASSERT_OK(holder->Exec("BEGIN; SELECT id FROM subscription FOR UPDATE"));
  const http::Response answer = stack_->Deliver(Invoice(1, 1).Body());
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.body, ::testing::HasSubstr("received"));
  // The queue's own thread waits for the lock by now, or will.
  ASSERT_OK(holder->Exec("ROLLBACK"));
  // No retry job runs here, and no redelivery comes.
  std::string term;
  for (int i = 0; i < 1000 && term != "2"; ++i) {
    ASSERT_OK(session_->Exec("SELECT pg_sleep(0.01)"));
    term = Scalar("SELECT term_no::text FROM subscription");
  }
  EXPECT_EQ(term, "2");
  EXPECT_EQ(Scalar("SELECT status FROM provider_event WHERE "
                   "external_event_id = 'evt_1_1'"),
            "applied");
}

// A refund names its payment, so it goes alone; it too must not hold up those
// behind it for as long as the lock lives.
TEST_F(IngestBatch, F12_ALoneEventOfALockedSubscriptionIsStoredAndApplied) {
  ASSERT_EQ(stack_->Deliver(Invoice(1, 0).Body()).status, 200);
  ASSERT_OK_AND_ASSIGN(const auto holder, database_->OpenSession());
  ASSERT_OK(holder->Exec("BEGIN; SELECT id FROM subscription FOR UPDATE"));

  DeliveredEvent refund = Delivered(Invoice(1, 1).Body());
  refund.event.event_id = "evt_refund";
  providers::SubscriptionFacts& facts = refund.event.subscriptions[0];
  facts.provider_subscription_id.clear();
  facts.payment_names = {"in_1_0"};
  providers::Fact fact = facts.facts[0];
  auto& refunded = *fact.mutable_refunded();
  refunded.set_payment_key("in_1_0");
  refunded.set_refund_key("re_1");
  refunded.set_amount_minor(2000);
  refunded.set_full(true);
  facts.facts = {fact};
  EXPECT_FALSE(store::InboxStore::MayGoTogether(refund));
  // The session would wait for thirty seconds.
  ASSERT_OK_AND_ASSIGN(const RecordedEvent recorded,
                       stack_->RecordEvent(refund.event, refund.body));
  EXPECT_EQ(StateOf(recorded), "received/busy");
  EXPECT_TRUE(recorded.apply_next);

  ASSERT_OK(holder->Exec("ROLLBACK"));
  ASSERT_OK_AND_ASSIGN(
      const std::optional<RecordedEvent> applied,
      stack_->inbox().RetryEvent(
          recorded.event_id,
          [&](int64_t, absl::string_view)
              -> absl::StatusOr<store::InboxStore::ParsedEvent> {
            return store::InboxStore::ParsedEvent{refund.route, refund.event};
          }));
  ASSERT_TRUE(applied.has_value());
  EXPECT_EQ(StateOf(applied), "applied");
  EXPECT_EQ(Scalar("SELECT status FROM subscription"), "REVOKED");
}

TEST_F(IngestBatch, R4_APoisonousEventFailsNobodyElse) {
  ASSERT_OK(session_->Exec(R"sql(
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'refused by the test'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON payment FOR EACH ROW
  WHEN (new.payment_key = 'in_13_0') EXECUTE FUNCTION refuse())sql"));
  constexpr int kEvents = 32;
  std::vector<std::thread> senders;
  std::vector<http::Response> answers(kEvents);
  Barrier barrier(kEvents);
  for (int n = 0; n < kEvents; ++n) {
    senders.emplace_back([&, n] {
      const std::string body = Invoice(n, 0).Body();
      if (!barrier.ArriveAndWait()) return;
      answers[n] = stack_->Deliver(body);
    });
  }
  for (std::thread& sender : senders) sender.join();
  for (int n = 0; n < kEvents; ++n) {
    EXPECT_EQ(answers[n].status, 200);
    EXPECT_THAT(answers[n].body,
                ::testing::HasSubstr(n == 13 ? "failed" : "applied"));
  }
  EXPECT_EQ(Scalar("SELECT string_agg(status || ' ' || n, ',' ORDER BY status) "
                   "FROM (SELECT status, count(*) AS n FROM provider_event "
                   "GROUP BY status) x"),
            "applied 31,failed 1");
  EXPECT_EQ(Scalar("SELECT (next_attempt_at > tenure_now())::text FROM "
                   "provider_event WHERE status = 'failed'"),
            "true");
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM subscription"), "31");
}

TEST_F(IngestBatch, S22_WhatIsDeferredIsStoredOnly) {
  DeliveredEvent deferred = Delivered(Invoice(1, 0).Body());
  deferred.deferred = "flood";
  ASSERT_OK_AND_ASSIGN(const Recorded recorded, Together(*stack_, {deferred}));
  EXPECT_THAT(StatesOf(recorded), ElementsAre("received/flood"));
  EXPECT_FALSE(recorded[0]->apply_next);
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM subscription"), "0");
  EXPECT_EQ(Scalar("SELECT (next_attempt_at > tenure_now() AND attempt_count = "
                   "0)::text FROM provider_event"),
            "true");
  // A redelivery in the flood is no way around it.
  ASSERT_OK_AND_ASSIGN(const Recorded again, Together(*stack_, {deferred}));
  EXPECT_THAT(StatesOf(again), ElementsAre("received/flood again"));

  ASSERT_OK(database_->SetClockOffset(absl::Minutes(2)));
  ASSERT_OK_AND_ASSIGN(const auto later,
                       IngestStack::Make(database_->conninfo()));
  EXPECT_THAT(later->RetryWaiting(), IsOkAndHolds(1));
  EXPECT_EQ(Scalar("SELECT status FROM provider_event"), "applied");
}

TEST_F(IngestBatch, D14_NothingIsKeptOfWhatIsSaidAboutAnErasedPerson) {
  ASSERT_OK(Together(*stack_, {Delivered(Invoice(1, 0).Body())}).status());
  ASSERT_OK(session_->Exec(
      "UPDATE subject SET external_id = 'erased/1', erased_at = tenure_now()"));
  ASSERT_OK_AND_ASSIGN(const Recorded recorded,
                       Together(*stack_, {Delivered(Invoice(1, 1).Body()),
                                          Delivered(Invoice(2, 0).Body())}));
  EXPECT_THAT(StatesOf(recorded), ElementsAre("applied", "applied"));
  EXPECT_EQ(Scalar("SELECT string_agg(external_event_id || ' ' || (body IS "
                   "NULL), ',' ORDER BY external_event_id) FROM provider_event "
                   "WHERE external_event_id <> 'evt_1_0'"),
            "evt_1_1 true,evt_2_0 false");
}

// What may still have to wait needs its body, whoever it is about.
TEST_F(IngestBatch, D14_R4_AnErasedPersonsEventKeepsItsBodyUntilItIsSettled) {
  ASSERT_OK(Together(*stack_, {Delivered(Invoice(1, 0).Body())}).status());
  ASSERT_OK(session_->Exec(
      "INSERT INTO customer_link (route_id, account, customer_id, subject_id) "
      "SELECT r.id, '', 'cus_1', u.id FROM route r, subject u WHERE r.name = "
      "'stripe'; UPDATE subject SET external_id = 'erased/1', erased_at = "
      "tenure_now()"));
  ASSERT_OK_AND_ASSIGN(const auto holder, database_->OpenSession());
  ASSERT_OK(holder->Exec("BEGIN; SELECT id FROM subscription FOR UPDATE"));
  ASSERT_OK_AND_ASSIGN(const Recorded recorded,
                       Together(*stack_, {Delivered(Invoice(1, 1).Body())}));
  EXPECT_THAT(StatesOf(recorded), ElementsAre("received/subscription_locked"));
  EXPECT_EQ(Scalar("SELECT (body IS NOT NULL)::text FROM provider_event WHERE "
                   "external_event_id = 'evt_1_1'"),
            "true");
  ASSERT_OK(holder->Exec("ROLLBACK"));
  ASSERT_OK(database_->SetClockOffset(absl::Minutes(2)));
  ASSERT_OK_AND_ASSIGN(const auto later,
                       IngestStack::Make(database_->conninfo()));
  EXPECT_THAT(later->RetryWaiting(), IsOkAndHolds(1));
  EXPECT_EQ(Scalar("SELECT status || ' ' || (body IS NULL) FROM provider_event "
                   "WHERE external_event_id = 'evt_1_1'"),
            "applied true");
  EXPECT_EQ(Scalar("SELECT term_no::text FROM subscription"), "2");
}

// An erasure under way has the subject; a linked customer's new subscription
// waits for it and then belongs to the erased row, not to a new one of the
// name.
TEST_F(IngestBatch, D14_ALinkedPersonIsNotMadeAnewDuringHisErasure) {
  ASSERT_OK(session_->Exec(
      "INSERT INTO subject (external_id) VALUES ('u1'); INSERT INTO "
      "customer_link (route_id, account, customer_id, subject_id) SELECT r.id, "
      "'', 'cus_1', u.id FROM route r, subject u WHERE r.name = 'stripe'"));
  ASSERT_OK_AND_ASSIGN(const auto eraser, database_->OpenSession());
  ASSERT_OK(
      eraser->Exec("BEGIN; SELECT id FROM subject FOR UPDATE; UPDATE subject "
                   "SET external_id "
                   "= 'erased/1', erased_at = tenure_now()"));
  absl::StatusOr<Recorded> recorded = Recorded();
  std::thread batch(
      [&] { recorded = Together(*stack_, {Delivered(Invoice(1, 0).Body())}); });
  // Until it waits for the eraser.
  for (int i = 0; i < 1000; ++i) {
    if (Scalar("SELECT count(*)::text FROM pg_locks WHERE NOT granted") !=
        "0") {
      break;
    }
    EXPECT_OK(session_->Exec("SELECT pg_sleep(0.001)"));
  }
  ASSERT_OK(eraser->Exec("COMMIT"));
  batch.join();
  ASSERT_OK(recorded.status());
  EXPECT_THAT(StatesOf(*recorded), ElementsAre("applied"));
  EXPECT_EQ(Scalar("SELECT count(*) || ' ' || min(external_id) FROM subject"),
            "1 erased/1");
  EXPECT_EQ(Scalar("SELECT (body IS NULL)::text FROM provider_event"), "true");
}

// Events of one purchase come together; the one that names neither product nor
// subject finds the subscription that the other creates.
TEST_F(IngestBatch, C011_AnEventFindsTheSubscriptionThatItsBatchCreates) {
  StripeInvoice second = Invoice(1, 1);
  second.subject = "";
  ASSERT_OK_AND_ASSIGN(const Recorded recorded,
                       Together(*stack_, {Delivered(second.Body()),
                                          Delivered(Invoice(1, 0).Body())}));
  EXPECT_THAT(StatesOf(recorded), ElementsAre("applied", "applied"));
  EXPECT_EQ(Scalar("SELECT term_no::text FROM subscription"), "2");
}

// Two batches with the same events in opposite orders: inserted as they came,
// each would wait for a key that the other has.
TEST_F(IngestBatch, R8_BatchesOfTheSameEventsInOppositeOrdersDoNotDeadlock) {
  constexpr int kRounds = 30;
  constexpr int kEvents = 24;
  ASSERT_OK_AND_ASSIGN(const auto other,
                       IngestStack::Make(database_->conninfo()));
  Barrier barrier(2);
  std::vector<std::thread> threads;
  std::vector<int> applied(2, 0);
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      IngestStack& stack = t == 0 ? *stack_ : *other;
      for (int round = 0; round < kRounds; ++round) {
        std::vector<DeliveredEvent> events;
        for (int n = 0; n < kEvents; ++n) {
          // New subscriptions in the first round, renewals after it.
          events.push_back(Delivered(Invoice(n, round).Body()));
        }
        if (t == 1) std::reverse(events.begin(), events.end());
        if (!barrier.ArriveAndWait()) return;
        const absl::StatusOr<Recorded> recorded = Together(stack, events);
        EXPECT_OK(recorded);
        if (!recorded.ok()) continue;
        for (const auto& event : *recorded) {
          if (event.has_value() && !event->duplicate) ++applied[t];
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(applied[0] + applied[1], kRounds * kEvents);
  EXPECT_EQ(Scalar("SELECT count(*) || ' ' || (SELECT count(*) FROM payment) "
                   "FROM provider_event WHERE status = 'applied'"),
            absl::StrCat(kRounds * kEvents, " ", kRounds * kEvents));
  EXPECT_EQ(Scalar("SELECT deadlocks::text FROM pg_stat_database WHERE datname "
                   "= current_database()"),
            "0");
}

// A writer that locks the inbox first and one that locks subscriptions first:
// batches hold no subscription while they wait for an inbox row, and pass by
// subscriptions that others hold.
TEST_F(IngestBatch, R8_BatchesAndWritersOfSubscriptionsDoNotDeadlock) {
  constexpr int kRounds = 40;
  constexpr int kSubscriptions = 16;
  std::vector<DeliveredEvent> first;
  for (int n = 0; n < kSubscriptions; ++n) {
    first.push_back(Delivered(Invoice(n, 0).Body()));
  }
  ASSERT_OK(Together(*stack_, first).status());
  ASSERT_OK_AND_ASSIGN(const auto writer, database_->OpenSession());
  Barrier barrier(2);
  std::thread batches([&] {
    for (int round = 1; round <= kRounds; ++round) {
      std::vector<DeliveredEvent> events;
      for (int n = 0; n < kSubscriptions; ++n) {
        events.push_back(Delivered(Invoice(n, round).Body()));
      }
      if (!barrier.ArriveAndWait()) return;
      EXPECT_OK(Together(*stack_, events));
    }
  });
  for (int round = 1; round <= kRounds; ++round) {
    ASSERT_TRUE(barrier.ArriveAndWait());
    // Descending, against the order of the batches, and then the inbox.
    for (const char* id : {"sub_15", "sub_9", "sub_3"}) {
      EXPECT_OK(writer->Exec(absl::StrCat(
          id[4] == '1' ? "BEGIN; " : "",
          "SELECT id FROM subscription WHERE provider_subscription_id = '", id,
          "' FOR NO KEY UPDATE")));
    }
    EXPECT_OK(
        writer->Exec("SELECT id FROM provider_event WHERE external_event_id = "
                     "'evt_3_0' FOR NO KEY UPDATE; COMMIT"));
  }
  batches.join();
  EXPECT_EQ(Scalar("SELECT deadlocks::text FROM pg_stat_database WHERE datname "
                   "= current_database()"),
            "0");
  EXPECT_EQ(Scalar("SELECT count(*)::text FROM provider_event WHERE status NOT "
                   "IN ('applied', 'received')"),
            "0");
}

TEST_F(IngestBatch, C001_FiftySendersOfDoubledEventsAreOneEffectEach) {
  constexpr int kThreads = 50;
  constexpr int kEach = 6;
  std::vector<std::thread> senders;
  Barrier barrier(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    senders.emplace_back([&, t] {
      if (!barrier.ArriveAndWait()) return;
      for (int i = 0; i < kEach; ++i) {
        // Each event is sent by two senders, and five subscriptions get all.
        const int n = (t / 2) % 5;
        const int month = (t / 10) * kEach + i;
        EXPECT_EQ(stack_->Deliver(Invoice(n, month).Body()).status, 200);
      }
    });
  }
  for (std::thread& sender : senders) sender.join();
  EXPECT_EQ(Scalar("SELECT count(*) || ' ' || (SELECT count(*) FROM payment) "
                   "|| ' ' || (SELECT count(*) FROM subscription_fact) FROM "
                   "provider_event WHERE status = 'applied'"),
            "150 150 150");
  EXPECT_EQ(Scalar("SELECT string_agg(DISTINCT term_no::text, ' ') FROM "
                   "subscription"),
            "30");
}

TEST_F(IngestBatch, K2_AFullQueueRefusesAtOnce) {
  obs::Registry registry("webhook-ingest");
  webhook_ingest::IngestQueue::Options options;
  options.batch_writers = 1;
  options.single_writers = 1;
  options.max_queued = 2;
  // The writer waits for a lock that this test holds, so the queue fills.
  ASSERT_OK_AND_ASSIGN(const auto holder, database_->OpenSession());
  ASSERT_OK(holder->Exec("BEGIN; LOCK TABLE provider_event IN EXCLUSIVE MODE"));
  std::vector<std::string> told;
  Mutex mutex;
  {
    webhook_ingest::IngestQueue queue(stack_->inbox(), options,
                                      SystemClock::Instance(), registry);
    const auto submit = [&](int n) {
      queue.Submit(Delivered(Invoice(n, 0).Body()),
                   [&, n](absl::StatusOr<RecordedEvent> recorded) {
                     MutexLock lock(mutex);
                     told.push_back(absl::StrCat(
                         n, " ",
                         recorded.ok() ? store::EventStateName(recorded->state)
                                       : absl::StatusCodeToString(
                                             recorded.status().code())));
                   });
    };
    submit(0);
    // Until the writer has it and waits in the database.
    for (int i = 0; i < 1000; ++i) {
      if (Scalar("SELECT count(*)::text FROM pg_locks WHERE NOT granted") !=
          "0") {
        break;
      }
      ASSERT_OK(session_->Exec("SELECT pg_sleep(0.01)"));
    }
    submit(1);
    submit(2);
    submit(3);
    {
      MutexLock lock(mutex);
      EXPECT_THAT(told, ElementsAre("3 RESOURCE_EXHAUSTED"));
    }
    ASSERT_OK(holder->Exec("ROLLBACK"));
  }
  EXPECT_THAT(
      told, ::testing::UnorderedElementsAre("3 RESOURCE_EXHAUSTED", "0 applied",
                                            "1 applied", "2 applied"));
}

}  // namespace
}  // namespace tenure::test
