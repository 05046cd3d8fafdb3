// The inbox as an operator sees it: the real service over gRPC on a real
// PostgreSQL, events through the webhook path beside it.

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/crypto.h"
#include "common/base/proto_time.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "common/store/catalog_store.h"
#include "google/protobuf/text_format.h"
#include "services/webhook-ingest/provider_events_service.h"
#include "services/webhook-ingest/statements.h"
#include "services/webhook-ingest/subscription_writes.h"
#include "tests/integration/ingest_stack.h"
#include "tests/integration/rows.h"
#include "tests/support/barrier.h"
#include "tests/support/process.h"
#include "tests/support/session.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace tenure::test {
namespace {

namespace pb = ::tenure::webhook::v1;
namespace reason = ::tenure::common::v1;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Stub = pb::ProviderEvents::Stub;
using webhook_ingest::EventOperations;

constexpr char kCatalog[] = R"pb(
  plans {
    name: "pro"
    features { name: "export" }
    provider_products { route: "stripe" product_id: "price_pro" }
    provider_products { route: "stripe-eu" product_id: "price_pro" }
    provider_products { route: "stripe-sandbox" product_id: "price_pro" }
  }
)pb";
constexpr char kCatalogWithNewPrice[] = R"pb(
  plans {
    name: "pro"
    features { name: "export" }
    provider_products { route: "stripe" product_id: "price_pro" }
    provider_products { route: "stripe" product_id: "price_new" }
    provider_products { route: "stripe-eu" product_id: "price_pro" }
    provider_products { route: "stripe-sandbox" product_id: "price_pro" }
  }
)pb";

constexpr absl::Duration kMonth = absl::Hours(30 * 24);

std::vector<int64_t> Ids(const pb::ListEventsResponse& page) {
  std::vector<int64_t> ids;
  for (const pb::Event& event : page.events()) ids.push_back(event.id());
  return ids;
}

std::vector<std::string> ExternalIds(const pb::ListEventsResponse& page) {
  std::vector<std::string> ids;
  for (const pb::Event& event : page.events()) {
    ids.push_back(event.external_event_id());
  }
  return ids;
}

// "7 PARKED unknown_plan".
std::string Text(const pb::EventOutcome& outcome) {
  return absl::StrCat(outcome.event_id(), " ",
                      pb::EventState_Name(outcome.state())
                          .substr(std::string("EVENT_STATE_").size()),
                      " ", outcome.reason());
}

class ProviderEvents : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    ASSERT_OK_AND_ASSIGN(session_, database_->OpenSession());
    Restart();
    ApplyCatalog(kCatalog);
  }

  void Restart() {
    live_ = Side();
    test_ = Side();
    ASSERT_OK_AND_ASSIGN(stack_, IngestStack::Make(database_->conninfo()));
    Serve("live", &live_);
    Serve("test", &test_);
  }

  // Moves the database's clock, as a new process sees it.
  void MoveClock(absl::Duration offset) {
    ASSERT_OK(database_->SetClockOffset(offset));
    ASSERT_OK_AND_ASSIGN(session_, database_->OpenSession());
    Restart();
  }

  void ApplyCatalog(const char* text) {
    catalog::v1::Catalog catalog;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &catalog));
    ASSERT_OK(store::ApplyCatalog(stack_->pool(), catalog));
  }

  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(
      grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                   Response*),
      const Request& request) {
    return CallAt(live_, method, request);
  }

  struct Side {
    std::unique_ptr<EventOperations> operations;
    std::unique_ptr<webhook_ingest::ProviderEventsService> service;
    std::unique_ptr<rpc::Server> server;
    std::unique_ptr<Stub> stub;
  };

  template <typename Request, typename Response>
  absl::StatusOr<Response> CallAt(
      Side& side,
      grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                   Response*),
      const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(
        absl::ToChronoTime(SystemClock::Instance().Now() + kPatience));
    Response response;
    const grpc::Status status =
        ((*side.stub).*method)(&context, request, &response);
    if (!status.ok()) return rpc::FromGrpcStatus(status);
    return response;
  }

  void Serve(const std::string& environment, Side* side) {
    side->operations = std::make_unique<EventOperations>(
        stack_->pool(), stack_->inbox(), stack_->routes(), environment);
    side->service = std::make_unique<webhook_ingest::ProviderEventsService>(
        *side->operations, guard_);
    ASSERT_OK_AND_ASSIGN(
        side->server,
        rpc::Server::Start(
            {"127.0.0.1:0", 16, 1 << 20},
            {{pb::ProviderEvents::service_full_name(), side->service.get()}}));
    side->stub = pb::ProviderEvents::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", side->server->port()),
                            grpc::InsecureChannelCredentials()));
  }

  // Invoice number `n` of the subscription sub_<subscription>: the month that
  // begins `n` months after the start of the present one.
  StripeInvoice Invoice(int n, int subscription = 1) const {
    StripeInvoice invoice;
    invoice.event_id = absl::StrCat("evt_", subscription, "_", n);
    invoice.invoice_id = absl::StrCat("in_", subscription, "_", n);
    invoice.subscription_id = absl::StrCat("sub_", subscription);
    invoice.customer_id = absl::StrCat("cus_", subscription);
    invoice.subject = absl::StrCat("u", subscription);
    invoice.period_start = start_ + n * kMonth;
    invoice.period_end = invoice.period_start + kMonth;
    invoice.created = start_ + absl::Seconds(n);
    return invoice;
  }

  // Delivers an event; Tenure's id of it.
  int64_t Deliver(const std::string& body,
                  const std::string& route = "stripe") {
    const absl::StatusOr<store::RecordedEvent> recorded =
        stack_->Record(body, route);
    EXPECT_OK(recorded);
    return recorded.ok() ? recorded->event_id : 0;
  }

  // An event that waits for its price to be known.
  int64_t DeliverUnknownPlan(int subscription) {
    StripeInvoice invoice = Invoice(0, subscription);
    invoice.price_id = "price_new";
    return Deliver(invoice.Body());
  }

  template <typename Request>
  Request NewWrite() {
    Request request;
    pb::OperatorContext& context = *request.mutable_context();
    context.set_request_id(RandomUuid());
    context.set_actor("ann");
    context.set_reason("ticket 7");
    return request;
  }

  pb::ReplayEventRequest NewReplay(int64_t id) {
    pb::ReplayEventRequest request = NewWrite<pb::ReplayEventRequest>();
    request.set_event_id(id);
    return request;
  }

  // What a replay says of the event.
  std::string Replay(int64_t id) {
    const absl::StatusOr<pb::ReplayEventResponse> replayed =
        Call(&Stub::ReplayEvent, NewReplay(id));
    if (!replayed.ok()) return replayed.status().ToString();
    return Text(replayed->outcome());
  }

  absl::StatusOr<pb::DiscardEventResponse> Discard(int64_t id) {
    pb::DiscardEventRequest request = NewWrite<pb::DiscardEventRequest>();
    request.set_event_id(id);
    return Call(&Stub::DiscardEvent, request);
  }

  absl::StatusOr<pb::GetEventResponse> Get(int64_t id) {
    pb::GetEventRequest request;
    request.set_event_id(id);
    return Call(&Stub::GetEvent, request);
  }

  pb::ListEventsResponse List(const std::string& filter, int page_size = 0,
                              const std::string& token = "") {
    pb::ListEventsRequest request;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        filter, request.mutable_filter()))
        << filter;
    request.set_page_size(page_size);
    request.set_page_token(token);
    const absl::StatusOr<pb::ListEventsResponse> page =
        Call(&Stub::ListEvents, request);
    EXPECT_OK(page);
    return page.value_or(pb::ListEventsResponse());
  }

  std::string Scalar(const std::string& sql,
                     const std::vector<SqlValue>& params = {}) {
    absl::StatusOr<std::string> value = session_->Scalar(sql, params);
    return value.ok() ? *value : value.status().ToString();
  }
  void Exec(const std::string& sql) { ASSERT_OK(session_->Exec(sql)); }

  // "status/reason" of an event.
  std::string EventRow(int64_t id) {
    return Scalar(
        "SELECT status || '/' || reason FROM provider_event WHERE id = $1",
        {absl::StrCat(id)});
  }

  // What the facts of a subscription are and add up to.
  std::string SubscriptionText(const std::string& name) {
    return Scalar(
        "SELECT concat_ws(' ', s.status, s.starts_at, s.expires_at, s.term_no,"
        "  (SELECT string_agg(f.kind || f.event_id, ' '"
        "    ORDER BY f.order_at, f.rank, f.event_id, f.ordinal)"
        "    FROM subscription_fact f WHERE f.subscription_id = s.id))"
        "  FROM subscription s WHERE s.provider_subscription_id = $1",
        {name});
  }

  // Everything stored but the inbox, the audit and the answers.
  std::string Effects() {
    const absl::StatusOr<std::string> text =
        Snapshot(*session_, "provider_event");
    EXPECT_OK(text);
    return text.value_or("");
  }

  const absl::Time start_ = absl::FromUnixSeconds(
      absl::ToUnixSeconds(SystemClock::Instance().Now()) - 3600);
  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<Session> session_;
  rpc::CallGuard guard_{16, [](absl::string_view, grpc::StatusCode, double) {}};
  std::unique_ptr<IngestStack> stack_;
  Side live_;
  Side test_;
};

TEST_F(ProviderEvents, C012_S22_DeadEventsAreListedUntilSomebodySeesToThem) {
  StripeInvoice foreign = Invoice(0, 3);
  foreign.subject.clear();
  const int64_t id = Deliver(foreign.Body());
  Deliver(Invoice(0).Body());
  EXPECT_THAT(Ids(List("states: EVENT_STATE_PARKED")), ElementsAre(id));
  EXPECT_THAT(Ids(List("states: EVENT_STATE_DEAD")), IsEmpty());

  MoveClock(absl::Hours(7 * 24 + 1));
  EXPECT_THAT(stack_->RetryWaiting(), IsOkAndHolds(1));

  EXPECT_THAT(Ids(List("states: EVENT_STATE_PARKED")), IsEmpty());
  const pb::ListEventsResponse dead = List("states: EVENT_STATE_DEAD");
  ASSERT_THAT(Ids(dead), ElementsAre(id));
  const pb::Event& event = dead.events(0);
  EXPECT_EQ(event.route(), "stripe");
  EXPECT_TRUE(event.livemode());
  EXPECT_EQ(event.external_event_id(), "evt_3_0");
  EXPECT_EQ(event.event_type(), "invoice.paid");
  EXPECT_EQ(event.customer_id(), "cus_3");
  EXPECT_EQ(event.state(), pb::EVENT_STATE_DEAD);
  EXPECT_EQ(event.reason(), "no_subject");
  EXPECT_EQ(event.attempt_count(), 2);
  EXPECT_TRUE(event.has_processed_at());
  EXPECT_FALSE(event.has_next_attempt_at());
  EXPECT_EQ(event.body_sha256(), Sha256(foreign.Body()));
  EXPECT_EQ(event.body_size(), static_cast<int64_t>(foreign.Body().size()));

  ASSERT_OK(Discard(id));

  EXPECT_EQ(EventRow(id), "ignored/discarded");
  EXPECT_THAT(Ids(List("states: EVENT_STATE_DEAD")), IsEmpty());
}

TEST_F(ProviderEvents, C012_C140_ADeadEventIsAppliedOnceItsPriceIsKnown) {
  const int64_t id = DeliverUnknownPlan(1);
  ASSERT_EQ(EventRow(id), "parked/unknown_plan");
  MoveClock(absl::Hours(7 * 24 + 1));
  ASSERT_THAT(stack_->RetryWaiting(), IsOkAndHolds(1));
  ASSERT_EQ(EventRow(id), "dead/unknown_plan");
  // Not cured yet: one more attempt, and dead again.
  EXPECT_EQ(Replay(id), absl::StrCat(id, " DEAD unknown_plan"));

  ApplyCatalog(kCatalogWithNewPrice);
  EXPECT_EQ(Replay(id), absl::StrCat(id, " APPLIED "));

  EXPECT_EQ(EventRow(id), "applied/");
  EXPECT_EQ(Scalar("SELECT expires_at = to_timestamp($1::bigint)"
                   " FROM subscription",
                   {absl::StrCat(absl::ToUnixSeconds(Invoice(0).period_end))}),
            "t");
  EXPECT_EQ(Scalar("SELECT string_agg(concat_ws(' ', actor, action,"
                   "  object_kind, before->>'state', before->>'reason',"
                   "  after->>'state', reason), '; ' ORDER BY id) FROM audit"),
            "ann replay provider_event dead unknown_plan received ticket 7; "
            "ann replay provider_event dead unknown_plan received ticket 7");
}

TEST_F(ProviderEvents, S20_ARepeatedReplayGivesTheFirstAnswerAndOneAuditRow) {
  const int64_t id = DeliverUnknownPlan(1);
  const pb::ReplayEventRequest request = NewReplay(id);
  ASSERT_OK_AND_ASSIGN(const pb::ReplayEventResponse first,
                       Call(&Stub::ReplayEvent, request));
  EXPECT_EQ(Text(first.outcome()), absl::StrCat(id, " PARKED unknown_plan"));
  const std::string attempts =
      Scalar("SELECT attempt_count FROM provider_event");
  // The event has moved on when the repeat comes.
  ApplyCatalog(kCatalogWithNewPrice);
  ASSERT_THAT(stack_->RetryWaiting(), IsOkAndHolds(1));
  ASSERT_EQ(EventRow(id), "applied/");

  pb::ReplayEventRequest again = request;
  again.mutable_context()->set_actor("bob");
  again.mutable_context()->set_reason("lost the answer");
  ASSERT_OK_AND_ASSIGN(const pb::ReplayEventResponse second,
                       Call(&Stub::ReplayEvent, again));

  EXPECT_EQ(second.SerializeAsString(), first.SerializeAsString());
  EXPECT_EQ(Scalar("SELECT string_agg(actor || ' ' || request_id, ',')"
                   " FROM audit"),
            absl::StrCat("ann ", request.context().request_id()));
  EXPECT_EQ(EventRow(id), "applied/");
  pb::ReplayEventRequest other = request;
  other.set_event_id(id + 1);
  EXPECT_THAT(Call(&Stub::ReplayEvent, other),
              HasReason(reason::ERROR_REASON_REQUEST_ID_REUSED));
}

TEST_F(ProviderEvents, S20_RepeatsAtOnceReplayOnce) {
  const int64_t id = DeliverUnknownPlan(1);
  ApplyCatalog(kCatalogWithNewPrice);
  const pb::ReplayEventRequest request = NewReplay(id);
  constexpr int kThreads = 8;
  Barrier start(kThreads);
  std::vector<std::string> answers(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      if (!start.ArriveAndWait()) return;
      const auto answer = Call(&Stub::ReplayEvent, request);
      answers[static_cast<size_t>(i)] =
          answer.ok() ? Text(answer->outcome()) : answer.status().ToString();
    });
  }
  for (std::thread& thread : threads) thread.join();

  // A repeat that came before the try may say that it is still to come.
  const std::set<std::string> different(answers.begin(), answers.end());
  for (const std::string& answer : different) {
    EXPECT_THAT(answer, ::testing::AnyOf(absl::StrCat(id, " APPLIED "),
                                         absl::StrCat(id, " RECEIVED ")));
  }
  EXPECT_EQ(Scalar("SELECT count(*) FROM audit"), "1");
  EXPECT_EQ(EventRow(id), "applied/");
  EXPECT_EQ(Scalar("SELECT count(*) FROM payment"), "1");
  ASSERT_OK_AND_ASSIGN(const pb::ReplayEventResponse later,
                       Call(&Stub::ReplayEvent, request));
  EXPECT_EQ(Text(later.outcome()), absl::StrCat(id, " APPLIED "));
}

TEST_F(ProviderEvents, S20_R5_ReplayingWhatWasAppliedChangesNothing) {
  const int64_t first = Deliver(Invoice(0).Body());
  const int64_t second = Deliver(Invoice(1).Body());
  StripeInvoice told_twice = Invoice(1);
  told_twice.event_id = "evt_again";
  told_twice.type = "invoice.payment_succeeded";
  const int64_t noop = Deliver(told_twice.Body());
  StripeInvoice other_mode = Invoice(2);
  other_mode.livemode = false;
  const int64_t ignored = Deliver(other_mode.Body());
  ASSERT_EQ(EventRow(noop), "noop/");
  const std::string before = Effects();

  EXPECT_EQ(Replay(first), absl::StrCat(first, " APPLIED "));
  EXPECT_EQ(Replay(second), absl::StrCat(second, " APPLIED "));
  EXPECT_EQ(Replay(first), absl::StrCat(first, " APPLIED "));
  EXPECT_EQ(Replay(noop), absl::StrCat(noop, " NOOP "));
  EXPECT_EQ(Replay(ignored),
            absl::StrCat(ignored, " IGNORED livemode_mismatch"));

  EXPECT_EQ(Effects(), before);
  EXPECT_EQ(EventRow(first), "applied/");
  EXPECT_EQ(EventRow(noop), "noop/");
  EXPECT_EQ(Scalar("SELECT count(*) FROM audit"), "5");
}

TEST_F(ProviderEvents, K3_S20_ALateReplayTakesThePlaceOfItsEvent) {
  // In order.
  Deliver(Invoice(0, 1).Body());
  StripeDeletion deletion{"evt_1_del", start_ + absl::Minutes(20), "sub_1",
                          "u1", start_ + absl::Minutes(20)};
  Deliver(deletion.Body());
  // The payment is tried long after the end that followed it.
  const int64_t late = DeliverUnknownPlan(2);
  deletion.event_id = "evt_2_del";
  deletion.subscription_id = "sub_2";
  deletion.subject = "u2";
  const int64_t end = Deliver(deletion.Body());
  ApplyCatalog(kCatalogWithNewPrice);
  EXPECT_EQ(Replay(end).substr(absl::StrCat(end).size(), 8), " APPLIED");
  EXPECT_EQ(Replay(late), absl::StrCat(late, " APPLIED "));

  std::string expected = SubscriptionText("sub_1");
  for (size_t at = 0; (at = expected.find("evt_1", at)) != std::string::npos;) {
    expected.replace(at, 5, "evt_2");
  }
  EXPECT_THAT(expected, HasSubstr("EXPIRED"));
  EXPECT_EQ(SubscriptionText("sub_2"), expected);
}

TEST_F(ProviderEvents, ReplayTriesWhatWasSetAsideForItsContent) {
  StripeInvoice broken = Invoice(0);
  broken.period_end = broken.period_start;
  const int64_t id = Deliver(broken.Body());
  ASSERT_EQ(EventRow(id), "quarantined/period_invalid");
  EXPECT_EQ(Replay(id), absl::StrCat(id, " QUARANTINED period_invalid"));
  EXPECT_THAT(Ids(List("states: EVENT_STATE_QUARANTINED")), ElementsAre(id));
}

TEST_F(ProviderEvents, S16_D14_ABodyThatIsGoneIsNeitherReplayedNorShown) {
  const int64_t id = Deliver(Invoice(0).Body());
  ASSERT_OK(stack_->Record(absl::StrCat(Invoice(0).Body(), " ")));
  webhook_ingest::SubscriptionWrites writes(stack_->pool(), "live");
  subscription::v1::EraseSubjectRequest erase;
  erase.mutable_context()->set_request_id("e");
  erase.mutable_context()->set_actor("ann");
  erase.mutable_context()->set_reason("asked");
  erase.set_subject("u1");
  subscription::v1::EraseSubjectResponse erased;
  ASSERT_OK(writes.EraseSubject(erase, &erased));
  const std::string before = Effects();
  const std::string row = Scalar("SELECT e::text FROM provider_event e");

  EXPECT_THAT(Call(&Stub::ReplayEvent, NewReplay(id)),
              HasReason(reason::ERROR_REASON_EVENT_BODY_GONE));
  ASSERT_OK_AND_ASSIGN(const pb::GetEventResponse shown, Get(id));
  EXPECT_EQ(shown.event().body_size(), 0);
  EXPECT_EQ(shown.event().body_sha256(), Sha256(Invoice(0).Body()));
  ASSERT_THAT(shown.conflicts(), SizeIs(1));
  EXPECT_EQ(shown.conflicts(0).body_size(), 0);
  pb::GetEventRequest look;
  look.set_event_id(id);
  look.set_include_body(true);
  look.set_actor("ann");
  look.set_reason("ticket 7");
  EXPECT_THAT(Call(&Stub::GetEvent, look),
              HasReason(reason::ERROR_REASON_EVENT_BODY_GONE));
  look.set_conflict_id(shown.conflicts(0).id());
  EXPECT_THAT(Call(&Stub::GetEvent, look),
              HasReason(reason::ERROR_REASON_EVENT_BODY_GONE));
  pb::ReplayEventsRequest all = NewWrite<pb::ReplayEventsRequest>();
  all.mutable_filter()->add_states(pb::EVENT_STATE_APPLIED);
  all.set_limit(10);
  ASSERT_OK_AND_ASSIGN(const pb::ReplayEventsResponse none,
                       Call(&Stub::ReplayEvents, all));
  EXPECT_THAT(none.outcomes(), IsEmpty());
  all = NewWrite<pb::ReplayEventsRequest>();
  all.mutable_filter()->set_customer_id("cus_1");
  all.mutable_filter()->add_states(pb::EVENT_STATE_APPLIED);
  all.set_limit(10);
  ASSERT_OK_AND_ASSIGN(const pb::ReplayEventsResponse of_customer,
                       Call(&Stub::ReplayEvents, all));
  EXPECT_THAT(of_customer.outcomes(), IsEmpty());

  EXPECT_EQ(Scalar("SELECT e::text FROM provider_event e"), row);
  EXPECT_EQ(Effects(), before);
  EXPECT_EQ(Scalar("SELECT count(*) FROM audit"), "0");
}

TEST_F(ProviderEvents, S16_S20_ABodyIsShownOnlyOnRequestAndThatIsAudited) {
  const std::string body = Invoice(0).Body();
  const std::string other = absl::StrCat(body, " ");
  const int64_t id = Deliver(body);
  ASSERT_OK(stack_->Record(other));

  ASSERT_OK_AND_ASSIGN(const pb::GetEventResponse plain, Get(id));
  EXPECT_EQ(plain.body(), "");
  EXPECT_EQ(plain.event().conflict_count(), 1);
  ASSERT_THAT(plain.conflicts(), SizeIs(1));
  EXPECT_EQ(plain.conflicts(0).body_sha256(), Sha256(other));
  EXPECT_EQ(Scalar("SELECT count(*) FROM audit"), "0");

  pb::GetEventRequest look;
  look.mutable_key()->set_route("stripe");
  look.mutable_key()->set_livemode(true);
  look.mutable_key()->set_external_event_id("evt_1_0");
  look.set_include_body(true);
  EXPECT_THAT(Call(&Stub::GetEvent, look),
              HasReason(reason::ERROR_REASON_FIELD_MISSING));
  look.set_actor("ann");
  EXPECT_THAT(Call(&Stub::GetEvent, look),
              HasReason(reason::ERROR_REASON_FIELD_MISSING));
  look.set_reason("ticket 7");
  ASSERT_OK_AND_ASSIGN(const pb::GetEventResponse shown,
                       Call(&Stub::GetEvent, look));
  EXPECT_EQ(shown.body(), body);
  look.set_conflict_id(plain.conflicts(0).id());
  ASSERT_OK_AND_ASSIGN(const pb::GetEventResponse conflict,
                       Call(&Stub::GetEvent, look));
  EXPECT_EQ(conflict.body(), other);

  EXPECT_EQ(Scalar("SELECT string_agg(concat_ws(' ', actor, action, object_id,"
                   "  reason, before, after), '; ') FROM audit"),
            absl::StrCat("ann read_body ", id, " ticket 7; ann read_body ", id,
                         " ticket 7"));
  ASSERT_OK_AND_ASSIGN(const pb::GetEventResponse after, Get(id));
  ASSERT_THAT(after.audit(), SizeIs(2));
  EXPECT_EQ(after.audit(0).action(), "read_body");
  EXPECT_EQ(after.audit(0).actor(), "ann");
}

TEST_F(ProviderEvents, GetTellsWhatAnEventGave) {
  const int64_t first = Deliver(Invoice(0).Body());
  const int64_t second = Deliver(Invoice(1).Body());
  const std::string subscription = Scalar("SELECT id FROM subscription");

  for (const int64_t id : {first, second}) {
    ASSERT_OK_AND_ASSIGN(const pb::GetEventResponse shown, Get(id));
    ASSERT_THAT(shown.facts(), SizeIs(1));
    EXPECT_EQ(absl::StrCat(shown.facts(0).subscription_id()), subscription);
    EXPECT_EQ(shown.facts(0).kind(), "paid");
    EXPECT_THAT(Ids(List(absl::StrCat("subscription_id: ", subscription))),
                ElementsAre(second, first));
  }
  EXPECT_THAT(Get(second + 1), HasReason(reason::ERROR_REASON_EVENT_NOT_FOUND));
}

TEST_F(ProviderEvents, R15_EventsOfTheOtherEnvironmentAreNotSeen) {
  StripeInvoice invoice = Invoice(0);
  invoice.livemode = false;
  const int64_t id = Deliver(invoice.Body(), "stripe-sandbox");
  ASSERT_EQ(EventRow(id), "applied/");

  EXPECT_THAT(Ids(List("")), IsEmpty());
  EXPECT_THAT(Get(id), HasReason(reason::ERROR_REASON_EVENT_NOT_FOUND));
  EXPECT_THAT(Call(&Stub::ReplayEvent, NewReplay(id)),
              HasReason(reason::ERROR_REASON_EVENT_NOT_FOUND));
  EXPECT_THAT(Discard(id), HasReason(reason::ERROR_REASON_EVENT_NOT_FOUND));
  pb::ListEventsRequest list;
  list.mutable_filter()->set_route("stripe-sandbox");
  EXPECT_THAT(Call(&Stub::ListEvents, list),
              HasReason(reason::ERROR_REASON_ROUTE_NOT_FOUND));
  ASSERT_OK_AND_ASSIGN(const pb::ListEventsResponse seen,
                       CallAt(test_, &Stub::ListEvents, list));
  EXPECT_THAT(Ids(seen), ElementsAre(id));
  EXPECT_THAT(CallAt(test_, &Stub::ReplayEvent, NewReplay(id)), IsOk());
}

TEST_F(ProviderEvents, AnyFilterShowsExactlyItsEventsNewestFirst) {
  const int64_t applied = Deliver(Invoice(0, 1).Body());
  const int64_t parked = DeliverUnknownPlan(2);
  const int64_t eu = Deliver(Invoice(0, 3).Body(), "stripe-eu");
  StripeInvoice failed_payment = Invoice(1, 1);
  failed_payment.type = "invoice.created";
  const int64_t ignored = Deliver(failed_payment.Body());
  StripeInvoice broken = Invoice(0, 4);
  broken.period_end = broken.period_start;
  const int64_t quarantined = Deliver(broken.Body());
  StripeInvoice connected = Invoice(0, 5);
  connected.account = "acct_1";
  const int64_t of_account = Deliver(connected.Body());
  Exec("UPDATE provider_event SET received_at = to_timestamp(1000 + id)");
  const std::string subscription = Scalar(
      "SELECT id FROM subscription"
      " WHERE provider_subscription_id = 'sub_1'");

  struct Case {
    std::string filter;
    std::vector<int64_t> ids;
  };
  for (const Case& c : std::vector<Case>{
           {"", {of_account, quarantined, ignored, eu, parked, applied}},
           {"route: 'stripe-eu'", {eu}},
           {"states: EVENT_STATE_PARKED states: EVENT_STATE_QUARANTINED",
            {quarantined, parked}},
           {"states: EVENT_STATE_PARKED states: EVENT_STATE_PARKED", {parked}},
           {"states: EVENT_STATE_PARKED states: EVENT_STATE_IGNORED",
            {ignored, parked}},
           {"states: EVENT_STATE_RECEIVED states: EVENT_STATE_PARKED",
            {parked}},
           {"states: EVENT_STATE_PARKED reason: 'no_subject'", {}},
           {"states: EVENT_STATE_PARKED reason: 'unknown_plan'", {parked}},
           {"reason: 'unknown_plan'", {parked}},
           {"event_type: 'invoice.created'", {ignored}},
           {"event_type: 'invoice'", {}},
           {"customer_id: 'cus_1'", {ignored, applied}},
           {"customer_id: 'cus_1' states: EVENT_STATE_APPLIED", {applied}},
           {"customer_id: 'cus_5'", {}},
           {"customer_id: 'cus_5' account: 'acct_1'", {of_account}},
           {"account: 'acct_1'", {of_account}},
           {"account: ''", {quarantined, ignored, eu, parked, applied}},
           {"external_event_id: 'evt_3_0'", {eu}},
           {"external_event_id: 'evt_3_0' route: 'stripe'", {}},
           {"external_event_id: 'evt_3'", {}},
           {absl::StrCat("subscription_id: ", subscription), {applied}},
           {absl::StrCat("received_after { seconds: ", 1000 + parked,
                         " } received_before { seconds: ", 1000 + ignored,
                         " }"),
            {eu, parked}},
           {absl::StrCat("states: EVENT_STATE_PARKED received_before {"
                         " seconds: ",
                         1000 + parked, " }"),
            {}}}) {
    SCOPED_TRACE(c.filter);
    EXPECT_THAT(Ids(List(c.filter)), ::testing::ElementsAreArray(c.ids));
    // Page by page it is the same.
    std::vector<int64_t> paged;
    std::string token;
    do {
      const pb::ListEventsResponse page = List(c.filter, 1, token);
      for (const int64_t id : Ids(page)) paged.push_back(id);
      token = page.next_page_token();
    } while (!token.empty());
    EXPECT_EQ(paged, c.ids);
  }
}

TEST_F(ProviderEvents, PagesStayWhileEventsArriveAndStatesChange) {
  std::vector<int64_t> expected;
  for (int i = 1; i <= 6; ++i)
    expected.insert(expected.begin(), DeliverUnknownPlan(i));
  for (const std::string filter : {"", "states: EVENT_STATE_PARKED"}) {
    SCOPED_TRACE(filter);
    std::vector<int64_t> seen;
    std::string token;
    int arriving = filter.empty() ? 10 : 20;
    do {
      const pb::ListEventsResponse page = List(filter, 2, token);
      for (const int64_t id : Ids(page)) seen.push_back(id);
      token = page.next_page_token();
      DeliverUnknownPlan(arriving++);
    } while (!token.empty());
    EXPECT_EQ(seen, filter.empty()
                        ? expected
                        : std::vector<int64_t>(seen.begin(), seen.end()));
    EXPECT_EQ(std::vector<int64_t>(seen.end() - 6, seen.end()), expected);
    EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), seen.size());
  }
}

TEST_F(ProviderEvents, S20_ABatchReplaysTheOldestUpToItsLimitAndGoesOn) {
  std::vector<int64_t> ids;
  for (int i = 1; i <= 5; ++i) ids.push_back(DeliverUnknownPlan(i));
  StripeInvoice foreign = Invoice(0, 6);
  foreign.subject.clear();
  const int64_t other_reason = Deliver(foreign.Body());
  ApplyCatalog(kCatalogWithNewPrice);

  pb::ReplayEventsRequest request = NewWrite<pb::ReplayEventsRequest>();
  request.mutable_filter()->set_reason("unknown_plan");
  request.set_limit(3);
  ASSERT_OK_AND_ASSIGN(const pb::ReplayEventsResponse first,
                       Call(&Stub::ReplayEvents, request));
  ASSERT_THAT(first.outcomes(), SizeIs(3));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Text(first.outcomes(i)),
              absl::StrCat(ids[static_cast<size_t>(i)], " APPLIED "));
  }
  EXPECT_EQ(first.next_after_event_id(), ids[2]);
  EXPECT_EQ(EventRow(ids[3]), "parked/unknown_plan");
  ASSERT_OK_AND_ASSIGN(const pb::ReplayEventsResponse repeat,
                       Call(&Stub::ReplayEvents, request));
  EXPECT_EQ(repeat.SerializeAsString(), first.SerializeAsString());
  EXPECT_EQ(EventRow(ids[3]), "parked/unknown_plan");

  request.mutable_context()->set_request_id("next");
  request.set_after_event_id(first.next_after_event_id());
  ASSERT_OK_AND_ASSIGN(const pb::ReplayEventsResponse second,
                       Call(&Stub::ReplayEvents, request));
  ASSERT_THAT(second.outcomes(), SizeIs(2));
  EXPECT_EQ(second.next_after_event_id(), 0);
  EXPECT_EQ(EventRow(ids[4]), "applied/");
  EXPECT_EQ(EventRow(other_reason), "parked/no_subject");
  EXPECT_EQ(Scalar("SELECT string_agg(object_id, ' ' ORDER BY id) FROM audit"),
            absl::StrJoin(ids, " "));
}

TEST_F(ProviderEvents, ABatchAlsoReplaysSettledEventsByTheirType) {
  StripeInvoice unread = Invoice(0);
  unread.type = "invoice.created";
  const int64_t id = Deliver(unread.Body());
  Deliver(Invoice(0).Body());
  pb::ReplayEventsRequest request = NewWrite<pb::ReplayEventsRequest>();
  request.mutable_filter()->add_states(pb::EVENT_STATE_IGNORED);
  request.mutable_filter()->set_event_type("invoice.created");
  request.set_limit(500);
  ASSERT_OK_AND_ASSIGN(const pb::ReplayEventsResponse replayed,
                       Call(&Stub::ReplayEvents, request));
  ASSERT_THAT(replayed.outcomes(), SizeIs(1));
  EXPECT_EQ(Text(replayed.outcomes(0)),
            absl::StrCat(id, " IGNORED type_carries_no_fact"));
  EXPECT_EQ(replayed.next_after_event_id(), 0);
}

TEST_F(ProviderEvents, R8_ABatchPassesOverWhatIsBeingTried) {
  const int64_t held = DeliverUnknownPlan(1);
  const int64_t free = DeliverUnknownPlan(2);
  ASSERT_OK(session_->Exec("BEGIN"));
  ASSERT_OK(session_->Exec(absl::StrCat(
      "SELECT FROM provider_event WHERE id = ", held, " FOR NO KEY UPDATE")));
  pb::ReplayEventsRequest request = NewWrite<pb::ReplayEventsRequest>();
  request.set_limit(10);
  ASSERT_OK_AND_ASSIGN(const pb::ReplayEventsResponse replayed,
                       Call(&Stub::ReplayEvents, request));
  ASSERT_OK(session_->Exec("COMMIT"));
  ASSERT_THAT(replayed.outcomes(), SizeIs(1));
  EXPECT_EQ(replayed.outcomes(0).event_id(), free);
}

TEST_F(ProviderEvents, R4_AReplayOfAnotherProcessesRouteIsLeftToThatOne) {
  Exec(
      "INSERT INTO route (name, kind, environment) VALUES ('elsewhere',"
      " 'stripe', 'live'); INSERT INTO provider_event (route_id, account,"
      " livemode, external_event_id, event_type, body, body_sha256,"
      " occurred_at, status, reason, processed_at) SELECT id, '', true, "
      "'evt_x',"
      " 'invoice.paid', '{}', sha256('{}'), tenure_now(), 'dead',"
      " 'no_subject', tenure_now() FROM route WHERE name = 'elsewhere'");
  const int64_t id = std::stoll(Scalar("SELECT id FROM provider_event"));
  const pb::ReplayEventRequest request = NewReplay(id);
  ASSERT_OK_AND_ASSIGN(const pb::ReplayEventResponse replayed,
                       Call(&Stub::ReplayEvent, request));
  EXPECT_EQ(Text(replayed.outcome()), absl::StrCat(id, " RECEIVED "));
  EXPECT_EQ(Scalar("SELECT concat_ws(' ', status, next_attempt_at <="
                   " tenure_now(), processed_at IS NULL) FROM provider_event"),
            "received t t");
  EXPECT_THAT(Ids(List("states: EVENT_STATE_RECEIVED")), ElementsAre(id));
  EXPECT_THAT(Get(id), IsOk());

  // What its process does. The repeat says it, and so does the next one.
  Exec(
      "UPDATE provider_event SET status = 'ignored', reason = 'nothing_paid',"
      " next_attempt_at = NULL, processed_at = tenure_now()");
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(const pb::ReplayEventResponse later,
                         Call(&Stub::ReplayEvent, request));
    EXPECT_EQ(Text(later.outcome()), absl::StrCat(id, " IGNORED nothing_paid"));
    Exec("UPDATE provider_event SET reason = 'discarded'");
  }
}

TEST_F(ProviderEvents, DiscardTakesOnlyWhatNeedsSomebodyAndReplayTakesItBack) {
  const int64_t applied = Deliver(Invoice(0, 1).Body());
  const int64_t parked = DeliverUnknownPlan(2);
  EXPECT_THAT(Discard(applied),
              HasReason(reason::ERROR_REASON_EVENT_NOT_SET_ASIDE));
  EXPECT_THAT(Discard(parked + 1),
              HasReason(reason::ERROR_REASON_EVENT_NOT_FOUND));
  EXPECT_EQ(Scalar("SELECT count(*) FROM audit"), "0");
  EXPECT_EQ(Scalar("SELECT count(*) FROM request_log"), "0");

  pb::DiscardEventRequest request = NewWrite<pb::DiscardEventRequest>();
  request.set_event_id(parked);
  ASSERT_OK_AND_ASSIGN(const pb::DiscardEventResponse discarded,
                       Call(&Stub::DiscardEvent, request));
  EXPECT_EQ(Text(discarded.outcome()),
            absl::StrCat(parked, " IGNORED discarded"));
  EXPECT_EQ(Scalar("SELECT concat_ws(' ', action, before->>'state',"
                   " after->>'reason', actor, reason) FROM audit"),
            "discard parked discarded ann ticket 7");
  // A repeat, also once the event is there no more to be discarded.
  ASSERT_OK_AND_ASSIGN(const pb::DiscardEventResponse again,
                       Call(&Stub::DiscardEvent, request));
  EXPECT_EQ(again.SerializeAsString(), discarded.SerializeAsString());
  EXPECT_EQ(Scalar("SELECT count(*) FROM audit"), "1");
  // Nothing tries it any more, not even another delivery.
  ApplyCatalog(kCatalogWithNewPrice);
  EXPECT_THAT(stack_->RetryWaiting(), IsOkAndHolds(0));
  StripeInvoice invoice = Invoice(0, 2);
  invoice.price_id = "price_new";
  Deliver(invoice.Body());
  EXPECT_EQ(EventRow(parked), "ignored/discarded");

  EXPECT_EQ(Replay(parked), absl::StrCat(parked, " APPLIED "));
}

TEST_F(ProviderEvents, R7_AReplayThatCannotBeTriedNowIsDurable) {
  const int64_t id = Deliver(Invoice(0).Body());
  // Whatever is applied fails.
  Exec(R"sql(
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'refused by the test'; END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON provider_event
  FOR EACH ROW WHEN (new.status = 'applied') EXECUTE FUNCTION refuse())sql");
  EXPECT_EQ(Replay(id), absl::StrCat(id, " FAILED apply_failed"));
  EXPECT_THAT(Ids(List("states: EVENT_STATE_FAILED")), ElementsAre(id));
  ASSERT_OK_AND_ASSIGN(const pb::GetEventResponse shown, Get(id));
  EXPECT_THAT(shown.event().last_error(), Not(IsEmpty()));
  EXPECT_TRUE(shown.event().has_next_attempt_at());
  ASSERT_THAT(shown.audit(), SizeIs(1));
  EXPECT_THAT(shown.audit(0).before_json(), HasSubstr("applied"));

  Exec("DROP TRIGGER refuse ON provider_event");
  EXPECT_EQ(Replay(id).substr(0, absl::StrCat(id).size()), absl::StrCat(id));
  EXPECT_EQ(Scalar("SELECT count(*) FROM payment"), "1");
  EXPECT_THAT(Ids(List("states: EVENT_STATE_FAILED")), IsEmpty());
}

TEST_F(ProviderEvents, WrongRequestsNameTheirField) {
  const auto field_of = [](const auto& result) -> std::string {
    const std::optional<ErrorInfo> info = GetErrorInfo(StatusOf(result));
    if (!info || info->metadata.count("field") == 0) return "(none)";
    return info->metadata.at("field");
  };
  const auto list = [&](const std::string& text) {
    pb::ListEventsRequest request;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &request));
    return field_of(Call(&Stub::ListEvents, request));
  };
  EXPECT_EQ(list("page_size: -1"), "page_size");
  EXPECT_EQ(list("page_token: '7'"), "page_token");
  EXPECT_EQ(list("filter { states: EVENT_STATE_UNSPECIFIED }"),
            "filter.states");
  EXPECT_EQ(list("filter { subscription_id: -1 }"), "filter.subscription_id");
  EXPECT_EQ(list("filter { subscription_id: 0 }"), "filter.subscription_id");
  EXPECT_EQ(list("filter { customer_id: '' }"), "filter.customer_id");
  EXPECT_EQ(list("filter { event_type: 'a\\nb' }"), "filter.event_type");
  EXPECT_EQ(list("filter { received_after { seconds: 999999999999 } }"),
            "filter.received_after");

  pb::ReplayEventRequest replay;
  EXPECT_EQ(field_of(Call(&Stub::ReplayEvent, replay)), "context.request_id");
  replay = NewWrite<pb::ReplayEventRequest>();
  EXPECT_EQ(field_of(Call(&Stub::ReplayEvent, replay)), "event_id");
  replay.mutable_context()->clear_reason();
  EXPECT_EQ(field_of(Call(&Stub::ReplayEvent, replay)), "context.reason");
  const auto batch = [&](const std::string& text) {
    pb::ReplayEventsRequest request = NewWrite<pb::ReplayEventsRequest>();
    EXPECT_TRUE(google::protobuf::TextFormat::MergeFromString(text, &request));
    return field_of(Call(&Stub::ReplayEvents, request));
  };
  EXPECT_EQ(batch(""), "limit");
  EXPECT_EQ(batch("limit: 501"), "limit");
  EXPECT_EQ(batch("limit: 1 after_event_id: -1"), "after_event_id");
  EXPECT_EQ(batch("limit: 1 filter { states: EVENT_STATE_RECEIVED }"),
            "filter.states");
  pb::GetEventRequest get;
  EXPECT_EQ(field_of(Call(&Stub::GetEvent, get)), "event_id");
  get.set_event_id(1);
  get.set_conflict_id(1);
  EXPECT_EQ(field_of(Call(&Stub::GetEvent, get)), "conflict_id");
}

// Ten seconds pass from one look to the next.
class LeapingClock : public Clock {
 public:
  absl::Time Now() const override { return SystemClock::Instance().Now(); }
  absl::Duration Monotonic() const override {
    return absl::Seconds(10 * looks_.fetch_add(1));
  }

 private:
  mutable std::atomic<int> looks_{0};
};

TEST_F(ProviderEvents, R4_WhatABatchHasNoTimeToTryIsLeftToTheRetries) {
  const int64_t id = DeliverUnknownPlan(1);
  ApplyCatalog(kCatalogWithNewPrice);
  const LeapingClock clock;
  EventOperations operations(stack_->pool(), stack_->inbox(), stack_->routes(),
                             "live", clock);
  pb::ReplayEventsRequest request = NewWrite<pb::ReplayEventsRequest>();
  request.set_limit(10);
  pb::ReplayEventsResponse response;
  ASSERT_OK(operations.ReplayMany(request, &response));
  ASSERT_THAT(response.outcomes(), SizeIs(1));
  EXPECT_EQ(Text(response.outcomes(0)), absl::StrCat(id, " RECEIVED "));

  EXPECT_THAT(stack_->RetryWaiting(), IsOkAndHolds(1));

  ASSERT_OK(operations.ReplayMany(request, &response));
  ASSERT_THAT(response.outcomes(), SizeIs(1));
  EXPECT_EQ(Text(response.outcomes(0)), absl::StrCat(id, " APPLIED "));
}

TEST_F(ProviderEvents, D16_AnAppliedEventNeverCostsAnEntryInTheListsByState) {
  const std::string size =
      "SELECT pg_relation_size('provider_event_set_aside')";
  const std::string empty = Scalar(size);
  for (int i = 1; i <= 20; ++i) {
    EXPECT_THAT(EventRow(Deliver(Invoice(0, i).Body())), HasSubstr("applied"));
    StripeInvoice unread = Invoice(1, i);
    unread.type = "invoice.created";
    EXPECT_THAT(EventRow(Deliver(unread.Body())), HasSubstr("ignored"));
  }
  EXPECT_EQ(Scalar(size), empty);
  DeliverUnknownPlan(21);
  EXPECT_NE(Scalar(size), empty);
}

// `tenurectl events` as a person types it.
class EventsCommand : public ProviderEvents {
 protected:
  struct Finished {
    int code = -1;
    std::string output;
    std::vector<std::string> lines;
  };

  Finished Run(std::vector<std::string> args) {
    args.insert(args.begin(), "events");
    args.push_back("--address");
    args.push_back(absl::StrCat("127.0.0.1:", live_.server->port()));
    ProcessOptions options;
    options.args = std::move(args);
    options.env = {{"USER", "ann"}};
    Finished finished;
    const auto process = Process::Start(TENURECTL_PATH, options);
    EXPECT_OK(process);
    if (!process.ok()) return finished;
    const absl::StatusOr<ExitStatus> status = (*process)->Wait(kPatience);
    EXPECT_OK(status);
    if (status.ok()) finished.code = status->code;
    finished.output = (*process)->Output();
    finished.lines = (*process)->Lines();
    return finished;
  }
};

TEST_F(EventsCommand, S20_ListsShowsReplaysAndDiscards) {
  const int64_t applied = Deliver(Invoice(0, 1).Body());
  const int64_t parked = DeliverUnknownPlan(2);
  const int64_t other = DeliverUnknownPlan(3);
  StripeInvoice broken = Invoice(0, 4);
  broken.period_end = broken.period_start;
  const int64_t quarantined = Deliver(broken.Body());

  Finished done = Run({"list"});
  EXPECT_EQ(done.code, 0) << done.output;
  ASSERT_THAT(done.lines, SizeIs(5));
  EXPECT_THAT(done.lines[0], HasSubstr("STATE"));
  EXPECT_THAT(done.lines[1], HasSubstr("quarantined"));
  EXPECT_THAT(done.lines[4], HasSubstr("evt_1_0"));
  done = Run({"list", "--limit", "1", "-o", "json"});
  ASSERT_THAT(done.lines, SizeIs(2)) << done.output;
  EXPECT_THAT(done.output, HasSubstr("there are more"));
  EXPECT_THAT(done.output, HasSubstr("\"state\":\"EVENT_STATE_QUARANTINED\""));
  done = Run({"list", "--state", "applied,noop", "--customer", "cus_1"});
  ASSERT_THAT(done.lines, SizeIs(2)) << done.output;
  done = Run({"parked", "--why", "unknown_plan"});
  ASSERT_THAT(done.lines, SizeIs(3)) << done.output;
  done = Run({"dead"});
  ASSERT_THAT(done.lines, SizeIs(2)) << done.output;
  EXPECT_THAT(done.lines[1], HasSubstr("period_invalid"));

  done = Run({"show", absl::StrCat(applied)});
  EXPECT_EQ(done.code, 0) << done.output;
  EXPECT_THAT(done.output, HasSubstr("paid of subscription "));
  EXPECT_THAT(done.output, Not(HasSubstr("\"object\":\"event\"")));
  done =
      Run({"show", "--external-id", "evt_1_0", "--route", "stripe", "--body"});
  EXPECT_EQ(done.code, 1) << done.output;
  EXPECT_THAT(done.output, HasSubstr("--reason"));
  done = Run({"show", "--external-id", "evt_1_0", "--route", "stripe", "--body",
              "--reason", "ticket 7"});
  EXPECT_EQ(done.code, 0) << done.output;
  EXPECT_THAT(done.output, HasSubstr(Invoice(0, 1).Body()));
  EXPECT_THAT(Run({"show", absl::StrCat(applied)}).output,
              HasSubstr("ann read_body: ticket 7"));

  done = Run(
      {"replay", absl::StrCat(applied), absl::StrCat(parked), "--reason", "r"});
  EXPECT_EQ(done.code, 0) << done.output;
  EXPECT_THAT(done.output, HasSubstr("request id: "));
  EXPECT_THAT(done.output, HasSubstr("unknown_plan"));
  done = Run({"replay", absl::StrCat(quarantined + 1), "--reason", "r"});
  EXPECT_EQ(done.code, 1) << done.output;
  ApplyCatalog(kCatalogWithNewPrice);
  done = Run({"replay-all", "--why", "unknown_plan", "--reason", "r",
              "--request-id", "again"});
  EXPECT_EQ(done.code, 0) << done.output;
  ASSERT_THAT(done.lines, SizeIs(3)) << done.output;
  EXPECT_EQ(EventRow(parked), "applied/");
  EXPECT_EQ(EventRow(other), "applied/");
  const std::string audit = Scalar("SELECT count(*) FROM audit");
  // The same command once more is the same answer.
  EXPECT_EQ(Run({"replay-all", "--why", "unknown_plan", "--reason", "r",
                 "--request-id", "again"})
                .output,
            done.output);
  EXPECT_EQ(Scalar("SELECT count(*) FROM audit"), audit);

  done = Run({"discard", absl::StrCat(quarantined), "--reason", "r"});
  EXPECT_EQ(done.code, 0) << done.output;
  EXPECT_EQ(EventRow(quarantined), "ignored/discarded");
  EXPECT_THAT(Run({"dead"}).lines, SizeIs(1));
  EXPECT_EQ(Run({"replay", absl::StrCat(parked)}).code, 2);
  EXPECT_EQ(Run({"show"}).code, 2);
  EXPECT_EQ(Run({"list", "--state", "lost"}).code, 2);
}

// An inbox as it is after a while: 120 000 applied events, and among them some
// that need somebody.
class LargeInbox : public ProviderEvents {
 protected:
  static constexpr int kEvents = 120'000;

  void SetUp() override {
    ProviderEvents::SetUp();
    Exec(absl::StrCat(
        "INSERT INTO provider_event (route_id, account, livemode,"
        "  external_event_id, event_type, body, body_sha256, occurred_at,"
        "  received_at, customer_id, status, reason, processed_at,"
        "  next_attempt_at)"
        " SELECT (SELECT id FROM route WHERE name = 'stripe'), '', true,"
        "  'evt_' || i, CASE i WHEN 5 THEN 'rare' ELSE 'invoice.paid' END,"
        "  '{}', sha256('{}'), now(),"
        "  to_timestamp(1700000000 + i * 60), 'cus_' || i % 20000,"
        "  s, '',"
        "  CASE WHEN s = 'parked' OR s = 'failed' OR s = 'received'"
        "       THEN NULL ELSE now() END,"
        "  CASE WHEN s = 'parked' OR s = 'failed' OR s = 'received'"
        "       THEN now() + interval '1 day' END"
        "  FROM generate_series(1, ",
        kEvents,
        ") i, LATERAL (SELECT CASE WHEN i % 1000 = 1 THEN 'parked'"
        "  WHEN i % 1000 = 2 THEN 'dead' WHEN i % 2000 = 3 THEN 'failed'"
        "  WHEN i % 2000 = 4 THEN 'quarantined' WHEN i = 70000 THEN 'received'"
        "  ELSE 'applied' END AS s) x;"
        "ANALYZE provider_event"));
  }

  // The lines of the plan that a prepared statement gets after a while,
  // whatever its parameters.
  std::string GenericPlan(const db::Statement& statement,
                          const std::string& arguments) {
    EXPECT_OK(session_->Exec("SET plan_cache_mode = force_generic_plan"));
    const absl::StatusOr<SqlRows> plan = session_->Exec(absl::StrCat(
        "PREPARE st AS ", statement.sql,
        "; EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) EXECUTE st ", arguments));
    EXPECT_OK(plan);
    EXPECT_OK(session_->Exec("DEALLOCATE st"));
    std::string text;
    if (!plan.ok()) return text;
    for (const SqlRow& line : *plan) absl::StrAppend(&text, *line[0], "\n");
    return text;
  }
};

TEST_F(LargeInbox, D16_TheListsReadTheirIndexes) {
  const std::string routes = absl::StrCat(
      "'{", Scalar("SELECT id FROM route WHERE name = 'stripe'"), "}'");
  const std::string any = absl::StrCat(
      "(", routes, ", NULL, NULL, NULL, NULL, NULL, 1, 1000000000, 51, ");
  const std::string of_none = absl::StrCat(
      "(", routes, ", NULL, NULL, '', NULL, NULL, 1, 1000000000, 51, '{}', ");
  struct Case {
    const db::Statement& statement;
    std::string arguments;
    std::string index;
  };
  using namespace webhook_ingest;  // NOLINT: the statements
  for (const Case& c : std::vector<Case>{
           {kListEvents, absl::StrCat(any, "'{}')"), "provider_event_pkey"},
           {kListEventsUpwards, absl::StrCat(any, "'{applied}')"),
            "provider_event_pkey"},
           {kListEventsSetAside, absl::StrCat(any, "'{parked,dead}')"),
            "provider_event_set_aside"},
           {kListEventsSetAsideUpwards,
            absl::StrCat(any, "'{parked,failed,quarantined,dead}')"),
            "provider_event_set_aside"},
           {kListEventsReceived, absl::StrCat(any, "'{received}')"),
            "provider_event_waiting"},
           {kListEventsOfCustomer, absl::StrCat(of_none, "'cus_77', -1)"),
            "provider_event_customer"},
           {kListEventsByExternalId, absl::StrCat(of_none, "'evt_77', -1)"),
            "provider_event_route_id_account_livemode"},
           {kSelectEvents, "('{5,7}', 'live')", "provider_event_pkey"},
           {kSelectEventOutcomes, "('{5,7}')", "provider_event_pkey"},
           {kSelectEventReceivedAt, "(500)", "provider_event_pkey"},
           {kSelectNewestEventId, "", "provider_event_pkey"}}) {
    const std::string plan = GenericPlan(c.statement, c.arguments);
    EXPECT_THAT(plan, HasSubstr(c.index)) << c.statement.name << "\n" << plan;
    EXPECT_THAT(plan, Not(HasSubstr("Seq Scan on provider_event")))
        << c.statement.name << "\n"
        << plan;
  }
  // In order, so that a page of 50 reads about as many rows.
  EXPECT_THAT(GenericPlan(kListEvents, absl::StrCat(any, "'{}')")),
              Not(HasSubstr("Sort")));
}

TEST_F(LargeInbox, OneCallLooksAtABoundedNumberOfEventsAndSaysWhereItStopped) {
  // The rare one is far down: the first page is empty and not the last.
  const pb::ListEventsResponse first = List("event_type: 'rare'");
  EXPECT_THAT(Ids(first), IsEmpty());
  ASSERT_THAT(first.next_page_token(), Not(IsEmpty()));
  const pb::ListEventsResponse second =
      List("event_type: 'rare'", 0, first.next_page_token());
  EXPECT_THAT(ExternalIds(second), ElementsAre("evt_5"));
  EXPECT_THAT(second.next_page_token(), IsEmpty());

  // A range of time leads there at once.
  const pb::ListEventsResponse in_range = List(absl::StrCat(
      "event_type: 'rare' received_before { seconds: ", 1700000000 + 60 * 50,
      " }"));
  EXPECT_THAT(ExternalIds(in_range), ElementsAre("evt_5"));
  EXPECT_THAT(in_range.next_page_token(), IsEmpty());
  EXPECT_THAT(
      ExternalIds(List(absl::StrCat(
          "received_after { seconds: ", 1700000000 + 60 * 60'000,
          " } received_before { seconds: ", 1700000000 + 60 * 60'003, " }"))),
      ElementsAre("evt_60002", "evt_60001", "evt_60000"));
}

TEST_F(LargeInbox, EveryPageOfAListByStateIsFull) {
  std::set<int64_t> seen;
  std::string token;
  int pages = 0;
  int64_t last = std::numeric_limits<int64_t>::max();
  do {
    const pb::ListEventsResponse page = List(
        "states: EVENT_STATE_PARKED states: EVENT_STATE_DEAD"
        " states: EVENT_STATE_RECEIVED",
        100, token);
    for (const int64_t id : Ids(page)) {
      EXPECT_LT(id, last);
      last = id;
      seen.insert(id);
    }
    token = page.next_page_token();
    EXPECT_TRUE(token.empty() || page.events_size() == 100);
    ++pages;
  } while (!token.empty());
  EXPECT_EQ(seen.size(), 241u);
  EXPECT_EQ(pages, 3);
}

}  // namespace
}  // namespace tenure::test
