// Subscriptions as a caller sees it: the real service over gRPC on a real
// PostgreSQL, provider events through the webhook path beside it.

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/crypto.h"
#include "common/base/proto_time.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "common/store/catalog_store.h"
#include "google/protobuf/text_format.h"
#include "services/webhook-ingest/subscriptions_service.h"
#include "tests/integration/ingest_stack.h"
#include "tests/support/barrier.h"
#include "tests/support/fault_proxy.h"
#include "tests/support/session.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace tenure::test {
namespace {

namespace pb = ::tenure::subscription::v1;
namespace reason = ::tenure::common::v1;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kCatalog[] = R"pb(
  plans {
    name: "pro"
    features { name: "export" }
    provider_products { route: "stripe" product_id: "price_pro" }
    provider_products {
      route: "stripe"
      product_id: "price_quarter"
      term { unit: TERM_UNIT_MONTH count: 3 }
    }
    provider_products { route: "stripe-sandbox" product_id: "price_pro" }
    release_time_zone: "UTC"
    quotas { meter: "tokens" amount: 100 }
  }
  plans {
    name: "max"
    features { name: "export" limit: 9 }
    features { name: "seats" quantity: 5 }
  }
  plans {
    name: "life"
    lifetime: true
    features { name: "export" }
  }
)pb";

constexpr absl::Duration kDay = absl::Hours(24);
constexpr absl::Duration kTick = absl::Microseconds(1);

absl::Time At(const google::protobuf::Timestamp& proto) {
  return *FromProto("at", proto);
}

// The field that an error names.
std::string FieldOf(const absl::Status& status) {
  const std::optional<ErrorInfo> info = GetErrorInfo(status);
  if (!info || info->metadata.count("field") == 0) return "";
  return info->metadata.at("field");
}

template <typename T>
std::string FieldOf(const absl::StatusOr<T>& value) {
  return FieldOf(value.status());
}

class SubscriptionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    ASSERT_OK_AND_ASSIGN(session_, database_->OpenSession());
    Restart();
    catalog::v1::Catalog catalog;
    ASSERT_TRUE(
        google::protobuf::TextFormat::ParseFromString(kCatalog, &catalog));
    ASSERT_OK(store::ApplyCatalog(stack_->pool(), catalog));
  }

  // The service as a new process, whose sessions see the clock as it is set.
  // Through `conninfo` when it is given.
  void Restart(const std::string& conninfo = "") {
    stub_.reset();
    server_.reset();
    sandbox_stub_.reset();
    sandbox_server_.reset();
    service_.reset();
    sandbox_.reset();
    IngestStack::Options options;
    options.registration_conninfo = database_->conninfo();
    ASSERT_OK_AND_ASSIGN(
        stack_,
        IngestStack::Make(conninfo.empty() ? database_->conninfo() : conninfo,
                          options));
    service_ = std::make_unique<webhook_ingest::SubscriptionsService>(
        stack_->pool(), "live", guard_);
    sandbox_ = std::make_unique<webhook_ingest::SubscriptionsService>(
        stack_->pool(), "test", guard_);
    Serve(service_.get(), &server_, &stub_);
    Serve(sandbox_.get(), &sandbox_server_, &sandbox_stub_);
  }

  void Serve(grpc::Service* service, std::unique_ptr<rpc::Server>* server,
             std::unique_ptr<pb::Subscriptions::Stub>* stub) {
    ASSERT_OK_AND_ASSIGN(
        *server, rpc::Server::Start(
                     {"127.0.0.1:0", 16, 1 << 20},
                     {{pb::Subscriptions::service_full_name(), service}}));
    *stub = pb::Subscriptions::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", (*server)->port()),
                            grpc::InsecureChannelCredentials()));
  }

  // Moves the database's clock, as a new process sees it.
  void MoveClock(absl::Duration offset) {
    ASSERT_OK(database_->SetClockOffset(offset));
    ASSERT_OK_AND_ASSIGN(session_, database_->OpenSession());
    Restart();
  }

  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (pb::Subscriptions::Stub::*method)(
                                    grpc::ClientContext*, const Request&,
                                    Response*),
                                const Request& request,
                                pb::Subscriptions::Stub* stub = nullptr) {
    grpc::ClientContext context;
    context.set_deadline(
        absl::ToChronoTime(SystemClock::Instance().Now() + kPatience));
    Response response;
    const grpc::Status status =
        ((stub == nullptr ? stub_.get() : stub)->*method)(&context, request,
                                                          &response);
    if (!status.ok()) return rpc::FromGrpcStatus(status);
    return response;
  }

  // A request with its context, and its subscription when it has one.
  template <typename Request>
  static Request NewRequest(int64_t subscription_id = 0) {
    Request request;
    pb::WriteContext& context = *request.mutable_context();
    context.set_request_id(RandomUuid());
    context.set_actor("ann");
    context.set_reason("ticket 7");
    const auto* field =
        Request::descriptor()->FindFieldByName("subscription_id");
    if (field != nullptr && subscription_id != 0) {
      Request::GetReflection()->SetInt64(&request, field, subscription_id);
    }
    return request;
  }

  pb::GrantRequest NewGrant(const std::string& subject,
                            const std::string& plan = "pro") {
    pb::GrantRequest request = NewRequest<pb::GrantRequest>();
    request.set_subject(subject);
    request.set_plan(plan);
    request.mutable_term()->set_unit(pb::TERM_UNIT_MONTH);
    request.mutable_term()->set_count(1);
    return request;
  }

  // A granted subscription.
  pb::Subscription Granted(const pb::GrantRequest& request) {
    absl::StatusOr<pb::GrantResponse> granted =
        Call(&pb::Subscriptions::Stub::Grant, request);
    EXPECT_OK(granted);
    return granted.ok() ? granted->subscription() : pb::Subscription();
  }
  pb::Subscription Granted(const std::string& subject,
                           const std::string& plan = "pro") {
    return Granted(NewGrant(subject, plan));
  }
  pb::Subscription Lifetime(const std::string& subject) {
    pb::GrantRequest request = NewGrant(subject, "life");
    request.set_lifetime(true);
    return Granted(request);
  }

  absl::StatusOr<pb::CancelResponse> Cancel(int64_t id, pb::CancelMode mode) {
    auto request = NewRequest<pb::CancelRequest>(id);
    request.set_mode(mode);
    return Call(&pb::Subscriptions::Stub::Cancel, request);
  }
  absl::StatusOr<pb::ResumeCancelResponse> ResumeCancel(int64_t id) {
    return Call(&pb::Subscriptions::Stub::ResumeCancel,
                NewRequest<pb::ResumeCancelRequest>(id));
  }
  absl::StatusOr<pb::RevokeResponse> Revoke(int64_t id) {
    return Call(&pb::Subscriptions::Stub::Revoke,
                NewRequest<pb::RevokeRequest>(id));
  }
  absl::StatusOr<pb::PauseResponse> Pause(int64_t id) {
    return Call(&pb::Subscriptions::Stub::Pause,
                NewRequest<pb::PauseRequest>(id));
  }
  absl::StatusOr<pb::ResumeResponse> Resume(int64_t id) {
    return Call(&pb::Subscriptions::Stub::Resume,
                NewRequest<pb::ResumeRequest>(id));
  }
  absl::StatusOr<pb::ChangePlanResponse> ChangePlan(int64_t id,
                                                    const std::string& plan) {
    auto request = NewRequest<pb::ChangePlanRequest>(id);
    request.set_plan(plan);
    return Call(&pb::Subscriptions::Stub::ChangePlan, request);
  }
  absl::StatusOr<pb::ExtendResponse> ExtendTo(int64_t id, absl::Time to) {
    auto request = NewRequest<pb::ExtendRequest>(id);
    *request.mutable_expires_at() = ToProto(to);
    return Call(&pb::Subscriptions::Stub::Extend, request);
  }
  absl::StatusOr<pb::EraseSubjectResponse> Erase(const std::string& subject) {
    auto request = NewRequest<pb::EraseSubjectRequest>();
    request.set_subject(subject);
    return Call(&pb::Subscriptions::Stub::EraseSubject, request);
  }
  pb::Subscription Get(int64_t id) {
    pb::GetRequest request;
    request.set_subscription_id(id);
    absl::StatusOr<pb::GetResponse> got =
        Call(&pb::Subscriptions::Stub::Get, request);
    EXPECT_OK(got);
    return got.ok() ? got->subscription() : pb::Subscription();
  }
  absl::StatusOr<pb::ExplainResponse> Explain(
      const std::string& subject, std::optional<absl::Time> at = std::nullopt,
      const std::string& feature = "export") {
    pb::ExplainRequest request;
    request.set_subject(subject);
    request.set_feature(feature);
    if (at) *request.mutable_at() = ToProto(*at);
    return Call(&pb::Subscriptions::Stub::Explain, request);
  }
  bool HasAccess(const std::string& subject,
                 std::optional<absl::Time> at = std::nullopt) {
    const absl::StatusOr<pb::ExplainResponse> explained = Explain(subject, at);
    EXPECT_OK(explained);
    return explained.ok() && explained->verdict().has_access();
  }
  // All entries of the chain of a subscription, read by pages of `page_size`.
  std::vector<pb::HistoryEntry> History(int64_t id, int page_size = 0) {
    std::vector<pb::HistoryEntry> all;
    pb::HistoryRequest request;
    request.set_subscription_id(id);
    request.set_page_size(page_size);
    do {
      absl::StatusOr<pb::HistoryResponse> page =
          Call(&pb::Subscriptions::Stub::History, request);
      EXPECT_OK(page);
      if (!page.ok()) return all;
      all.insert(all.end(), page->entries().begin(), page->entries().end());
      request.set_page_token(page->next_page_token());
    } while (!request.page_token().empty());
    return all;
  }
  // "paid created activated": facts by kind, events by type.
  std::vector<std::string> Chain(int64_t id) {
    std::vector<std::string> chain;
    for (const pb::HistoryEntry& entry : History(id)) {
      chain.push_back(entry.has_fact() ? entry.fact().kind()
                                       : entry.event().type());
    }
    return chain;
  }

  std::string Scalar(const std::string& sql,
                     const std::vector<SqlValue>& params = {}) {
    const absl::StatusOr<std::string> value = session_->Scalar(sql, params);
    EXPECT_OK(value);
    return value.value_or("");
  }
  absl::Time Now() {
    const std::string micros =
        Scalar("SELECT (extract(epoch FROM tenure_now()) * 1000000)::bigint");
    return absl::FromUnixMicros(std::stoll(micros));
  }
  // Releases of a subscription by status: "PENDING 5, RELEASED 1".
  std::string Releases(int64_t id) {
    return Scalar(
        "SELECT coalesce(string_agg(status || ' ' || n, ', ' ORDER BY status), "
        "'') FROM (SELECT status, count(*) AS n FROM quota_schedule WHERE "
        "subscription_id = $1::bigint GROUP BY status) q",
        {absl::StrCat(id)});
  }

  // A paid Stripe month of "sub_1"; `subject` may be empty.
  StripeInvoice Invoice(const std::string& subject, int month = 0) {
    StripeInvoice invoice;
    invoice.event_id = absl::StrCat("evt_", month);
    invoice.created = start_ + absl::Seconds(month);
    invoice.invoice_id = absl::StrCat("in_", month);
    invoice.subscription_id = "sub_1";
    invoice.subject = subject;
    invoice.period_start = start_ + month * 30 * kDay;
    invoice.period_end = start_ + (month + 1) * 30 * kDay;
    return invoice;
  }
  // What the webhook answered, without the id.
  std::string Deliver(const std::string& body,
                      const std::string& route = "stripe") {
    const std::string answer = stack_->Deliver(body, route).body;
    return answer.substr(0, answer.find(",\"duplicate"));
  }
  int64_t StripeId() {
    return std::stoll(
        Scalar("SELECT id FROM subscription WHERE provider_subscription_id = "
               "'sub_1'"));
  }

  const absl::Time start_ = absl::FromUnixSeconds(
      absl::ToUnixSeconds(SystemClock::Instance().Now()) - 3600);
  rpc::CallGuard guard_{64, nullptr};
  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<IngestStack> stack_;
  std::unique_ptr<webhook_ingest::SubscriptionsService> service_;
  std::unique_ptr<webhook_ingest::SubscriptionsService> sandbox_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<rpc::Server> sandbox_server_;
  std::unique_ptr<pb::Subscriptions::Stub> stub_;
  std::unique_ptr<pb::Subscriptions::Stub> sandbox_stub_;
};

constexpr char kApplied[] = R"({"state":"applied")";
constexpr char kParked[] = R"({"state":"parked")";

// ---- each write, as it is meant ----

TEST_F(SubscriptionsTest, GrantGivesAPlanForATermAnInstantOrForEver) {
  const absl::Time before = Now();
  const pb::Subscription month = Granted("u1");

  EXPECT_EQ(month.state(), pb::SUBSCRIPTION_STATE_ACTIVE);
  EXPECT_EQ(month.plan(), "pro");
  EXPECT_EQ(month.subject(), "u1");
  EXPECT_EQ(month.environment(), "live");
  EXPECT_EQ(month.route(), "internal");
  EXPECT_EQ(month.term_no(), 1);
  EXPECT_GE(At(month.starts_at()), before);
  EXPECT_EQ(
      At(month.expires_at()),
      domain::AddUnits(At(month.starts_at()), domain::CalendarUnit::kMonth, 1,
                       absl::UTCTimeZone()));
  EXPECT_TRUE(HasAccess("u1"));

  pb::GrantRequest until = NewGrant("u2");
  *until.mutable_starts_at() = ToProto(before + kDay);
  *until.mutable_expires_at() = ToProto(before + 2 * kDay);
  const pb::Subscription later = Granted(until);
  EXPECT_EQ(At(later.starts_at()), before + kDay);
  EXPECT_EQ(At(later.expires_at()), before + 2 * kDay);
  EXPECT_FALSE(HasAccess("u2"));
  EXPECT_TRUE(HasAccess("u2", before + kDay));

  const pb::Subscription life = Lifetime("u3");
  EXPECT_TRUE(life.lifetime());
  EXPECT_FALSE(life.has_expires_at());
  EXPECT_TRUE(HasAccess("u3", before + 100000 * kDay));
  EXPECT_THAT(Chain(month.id()), ElementsAre("paid", "subscription.created",
                                             "subscription.activated",
                                             "subscription.quota_released"));
}

TEST_F(SubscriptionsTest, AGrantWithAKnownExternalKeyIsTheFirstOne) {
  pb::GrantRequest first = NewGrant("u1");
  first.set_external_key("shop/17");
  pb::GrantRequest second = first;
  second.mutable_context()->set_request_id("another");

  EXPECT_EQ(Granted(second).id(), Granted(first).id());

  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription"), "1");
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription_fact"), "1");
}

TEST_F(SubscriptionsTest, ExtendMovesTheEndToAnInstantOrByATerm) {
  const pb::Subscription granted = Granted("u1");
  const absl::Time end = At(granted.expires_at());

  ASSERT_OK_AND_ASSIGN(const pb::ExtendResponse to,
                       ExtendTo(granted.id(), end + kDay));
  EXPECT_EQ(At(to.subscription().expires_at()), end + kDay);

  auto request = NewRequest<pb::ExtendRequest>(granted.id());
  request.mutable_term()->set_unit(pb::TERM_UNIT_WEEK);
  request.mutable_term()->set_count(2);
  ASSERT_OK_AND_ASSIGN(const pb::ExtendResponse by,
                       Call(&pb::Subscriptions::Stub::Extend, request));
  EXPECT_EQ(At(by.subscription().expires_at()), end + 15 * kDay);
  EXPECT_GT(by.subscription().version(), to.subscription().version());
}

TEST_F(SubscriptionsTest, ExtendByATermFromThePresentWhenItHasEnded) {
  const pb::Subscription granted = Granted("u1");
  MoveClock(60 * kDay);
  const absl::Time before = Now();

  auto request = NewRequest<pb::ExtendRequest>(granted.id());
  request.mutable_term()->set_unit(pb::TERM_UNIT_DAY);
  request.mutable_term()->set_count(1);
  ASSERT_OK_AND_ASSIGN(const pb::ExtendResponse extended,
                       Call(&pb::Subscriptions::Stub::Extend, request));

  EXPECT_GE(At(extended.subscription().expires_at()), before + kDay);
  EXPECT_LE(At(extended.subscription().expires_at()), Now() + kDay);
  EXPECT_EQ(extended.subscription().state(), pb::SUBSCRIPTION_STATE_ACTIVE);
}

TEST_F(SubscriptionsTest, RevokeTakesAccessAwayAndResumeGivesItBack) {
  const pb::Subscription granted = Granted("u1");

  ASSERT_OK_AND_ASSIGN(const pb::RevokeResponse revoked, Revoke(granted.id()));
  EXPECT_EQ(revoked.subscription().state(), pb::SUBSCRIPTION_STATE_REVOKED);
  EXPECT_FALSE(HasAccess("u1"));

  ASSERT_OK_AND_ASSIGN(const pb::ResumeResponse resumed, Resume(granted.id()));
  EXPECT_EQ(resumed.subscription().state(), pb::SUBSCRIPTION_STATE_ACTIVE);
  EXPECT_EQ(At(resumed.subscription().expires_at()), At(granted.expires_at()));
  EXPECT_TRUE(HasAccess("u1"));
}

TEST_F(SubscriptionsTest, PauseNowOrLaterAndResumeWithANewEnd) {
  const pb::Subscription granted = Granted("u1");
  const absl::Time end = At(granted.expires_at());

  ASSERT_OK_AND_ASSIGN(const pb::PauseResponse paused, Pause(granted.id()));
  EXPECT_EQ(paused.subscription().state(), pb::SUBSCRIPTION_STATE_PAUSED);
  EXPECT_FALSE(HasAccess("u1"));
  auto resume = NewRequest<pb::ResumeRequest>(granted.id());
  *resume.mutable_expires_at() = ToProto(end + kDay);
  ASSERT_OK_AND_ASSIGN(const pb::ResumeResponse resumed,
                       Call(&pb::Subscriptions::Stub::Resume, resume));
  EXPECT_EQ(At(resumed.subscription().expires_at()), end + kDay);
  EXPECT_TRUE(HasAccess("u1"));

  const absl::Time at = Now() + 2 * kDay;
  auto later = NewRequest<pb::PauseRequest>(granted.id());
  *later.mutable_at() = ToProto(at);
  ASSERT_OK_AND_ASSIGN(const pb::PauseResponse scheduled,
                       Call(&pb::Subscriptions::Stub::Pause, later));
  EXPECT_EQ(scheduled.subscription().state(), pb::SUBSCRIPTION_STATE_ACTIVE);
  EXPECT_EQ(At(scheduled.subscription().pause_at()), at);
  EXPECT_TRUE(HasAccess("u1", at - kTick));
  EXPECT_FALSE(HasAccess("u1", at));
  ASSERT_OK_AND_ASSIGN(const pb::ResumeResponse lifted, Resume(granted.id()));
  EXPECT_FALSE(lifted.subscription().has_pause_at());
}

TEST_F(SubscriptionsTest, ChangePlanNowAtTheEndOrAtAnInstant) {
  const pb::Subscription granted = Granted("u1");
  const absl::Time end = At(granted.expires_at());

  ASSERT_OK_AND_ASSIGN(const pb::ChangePlanResponse now,
                       ChangePlan(granted.id(), "max"));
  EXPECT_EQ(now.subscription().plan(), "max");
  EXPECT_EQ(now.subscription().next_plan(), "");

  auto request = NewRequest<pb::ChangePlanRequest>(granted.id());
  request.set_plan("pro");
  request.set_at_end(true);
  ASSERT_OK_AND_ASSIGN(const pb::ChangePlanResponse at_end,
                       Call(&pb::Subscriptions::Stub::ChangePlan, request));
  EXPECT_EQ(at_end.subscription().plan(), "max");
  EXPECT_EQ(at_end.subscription().next_plan(), "pro");
  EXPECT_EQ(At(at_end.subscription().next_plan_at()), end);

  request = NewRequest<pb::ChangePlanRequest>(granted.id());
  request.set_plan("pro");
  *request.mutable_effective_at() = ToProto(end - kDay);
  ASSERT_OK_AND_ASSIGN(const pb::ChangePlanResponse at,
                       Call(&pb::Subscriptions::Stub::ChangePlan, request));
  EXPECT_EQ(At(at.subscription().next_plan_at()), end - kDay);
  ASSERT_OK_AND_ASSIGN(const pb::ExplainResponse before,
                       Explain("u1", end - kDay - kTick));
  EXPECT_EQ(before.verdict().limit(), 9);
  ASSERT_OK_AND_ASSIGN(const pb::ExplainResponse after,
                       Explain("u1", end - kDay));
  EXPECT_TRUE(after.verdict().has_access());
  EXPECT_EQ(after.verdict().grantor().plan(), "pro");

  // Back to the plan in force takes the scheduled one away.
  ASSERT_OK_AND_ASSIGN(const pb::ChangePlanResponse back,
                       ChangePlan(granted.id(), "max"));
  EXPECT_EQ(back.subscription().next_plan(), "");
}

TEST_F(SubscriptionsTest, TransferMovesAccessToTheOtherSubject) {
  const pb::Subscription granted = Granted("u1");
  auto request = NewRequest<pb::TransferRequest>(granted.id());
  request.set_to_subject("u2");

  ASSERT_OK_AND_ASSIGN(const pb::TransferResponse moved,
                       Call(&pb::Subscriptions::Stub::Transfer, request));

  EXPECT_EQ(moved.subscription().subject(), "u2");
  EXPECT_FALSE(HasAccess("u1"));
  EXPECT_TRUE(HasAccess("u2"));
  // Facts name no subject: it could not be erased from them.
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription_fact WHERE "
                   "position('u2'::bytea IN body) > 0"),
            "0");
}

TEST_F(SubscriptionsTest,
       CreateOrderStoresWhatIsBoughtUnderAGivenOrMadeNumber) {
  auto request = NewRequest<pb::CreateOrderRequest>();
  request.set_route("stripe");
  request.set_order_id("2026-17");
  request.set_subject("u1");
  request.set_product_id("price_quarter");
  request.set_amount_minor(4900);
  request.set_currency("EUR");
  ASSERT_OK_AND_ASSIGN(const pb::CreateOrderResponse named,
                       Call(&pb::Subscriptions::Stub::CreateOrder, request));
  EXPECT_EQ(named.order().order_id(), "2026-17");
  EXPECT_EQ(named.order().plan(), "pro");
  EXPECT_EQ(named.order().term().unit(), pb::TERM_UNIT_MONTH);
  EXPECT_EQ(named.order().term().count(), 3);
  EXPECT_EQ(
      Scalar("SELECT concat_ws(' ', u.external_id, o.plan_name, o.term_unit, "
             "o.term_count, o.amount_minor, o.currency, o.status) FROM "
             "payment_order o JOIN subject u ON u.id = o.subject_id"),
      "u1 pro month 3 4900 EUR OPEN");

  // Another request for the same number is no repeat of the first.
  request.mutable_context()->set_request_id("another");
  const auto twice = Call(&pb::Subscriptions::Stub::CreateOrder, request);
  EXPECT_THAT(twice, StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(twice, HasReason(reason::ERROR_REASON_ORDER_ALREADY_EXISTS));

  request.clear_order_id();
  request.set_plan("pro");
  request.mutable_context()->set_request_id("third");
  ASSERT_OK_AND_ASSIGN(const pb::CreateOrderResponse made,
                       Call(&pb::Subscriptions::Stub::CreateOrder, request));
  EXPECT_EQ(made.order().order_id().size(), 32u);
  EXPECT_EQ(made.order().term().count(), 1);
  ASSERT_OK_AND_ASSIGN(const pb::CreateOrderResponse again,
                       Call(&pb::Subscriptions::Stub::CreateOrder, request));
  EXPECT_EQ(again.order().order_id(), made.order().order_id());
}

// ---- what is refused ----

TEST_F(SubscriptionsTest, EveryFieldThatIsMissingOrWrongIsNamed) {
  using Stub = pb::Subscriptions::Stub;
  const std::string long_text(1001, 'x');
  const auto field = [this](auto method, auto request, auto change) {
    change(&request);
    const auto answer = Call(method, request);
    EXPECT_THAT(answer, StatusIs(absl::StatusCode::kInvalidArgument))
        << request.ShortDebugString();
    return FieldOf(answer);
  };

  // The context is the same in every write.
  const auto context = [&](auto change) {
    return field(&Stub::Revoke, NewRequest<pb::RevokeRequest>(1),
                 [&](pb::RevokeRequest* r) { change(r->mutable_context()); });
  };
  EXPECT_EQ(field(&Stub::Revoke, pb::RevokeRequest(), [](auto*) {}),
            "context.request_id");
  EXPECT_EQ(context([&](auto* c) { c->set_request_id(long_text); }),
            "context.request_id");
  EXPECT_EQ(context([](auto* c) { c->clear_actor(); }), "context.actor");
  EXPECT_EQ(context([](auto* c) { c->set_actor("a\nb"); }), "context.actor");
  EXPECT_EQ(context([](auto* c) { c->clear_reason(); }), "context.reason");
  EXPECT_EQ(context([&](auto* c) { c->set_reason(long_text); }),
            "context.reason");

  const auto grant = [&](auto change) {
    return field(&Stub::Grant, NewGrant("u1"), change);
  };
  EXPECT_EQ(grant([](auto* r) { r->clear_context(); }), "context.request_id");
  EXPECT_EQ(grant([](auto* r) { r->clear_subject(); }), "subject");
  EXPECT_EQ(grant([&](auto* r) { r->set_subject(long_text); }), "subject");
  EXPECT_EQ(grant([](auto* r) { r->clear_plan(); }), "plan");
  EXPECT_EQ(grant([](auto* r) { r->clear_end(); }), "expires_at");
  EXPECT_EQ(grant([](auto* r) { r->mutable_term()->clear_unit(); }),
            "term.unit");
  EXPECT_EQ(grant([](auto* r) { r->mutable_term()->set_count(0); }),
            "term.count");
  EXPECT_EQ(grant([](auto* r) { r->mutable_term()->set_count(1201); }),
            "term.count");
  EXPECT_EQ(grant([](auto* r) { r->set_lifetime(false); }), "lifetime");
  EXPECT_EQ(grant([](auto* r) { r->mutable_starts_at()->set_nanos(-1); }),
            "starts_at");
  EXPECT_EQ(grant([](auto* r) {
              r->mutable_starts_at()->set_seconds(100);
              r->mutable_expires_at()->set_seconds(100);
            }),
            "expires_at");
  // Without a start it is now.
  EXPECT_EQ(grant([](auto* r) { r->mutable_expires_at()->set_seconds(100); }),
            "expires_at");
  EXPECT_EQ(grant([&](auto* r) { r->set_external_key(long_text); }),
            "external_key");

  const auto id = [&](auto method, auto request) {
    EXPECT_EQ(
        field(method, request, [](auto* r) { r->set_subscription_id(0); }),
        "subscription_id");
    EXPECT_EQ(
        field(method, request, [](auto* r) { r->set_subscription_id(-1); }),
        "subscription_id");
  };
  auto extend = NewRequest<pb::ExtendRequest>(1);
  extend.mutable_expires_at()->set_seconds(1);
  id(&Stub::Extend, extend);
  id(&Stub::Cancel, NewRequest<pb::CancelRequest>(1));
  id(&Stub::ResumeCancel, NewRequest<pb::ResumeCancelRequest>(1));
  id(&Stub::Revoke, NewRequest<pb::RevokeRequest>(1));
  id(&Stub::Pause, NewRequest<pb::PauseRequest>(1));
  id(&Stub::Resume, NewRequest<pb::ResumeRequest>(1));
  id(&Stub::ChangePlan, NewRequest<pb::ChangePlanRequest>(1));
  id(&Stub::Transfer, NewRequest<pb::TransferRequest>(1));
  id(&Stub::History, pb::HistoryRequest());
  id(&Stub::Get, pb::GetRequest());

  EXPECT_EQ(field(&Stub::Extend, extend, [](auto* r) { r->clear_end(); }),
            "expires_at");
  EXPECT_EQ(field(&Stub::Extend, extend,
                  [](auto* r) { r->mutable_expires_at()->set_nanos(-1); }),
            "expires_at");
  EXPECT_EQ(
      field(&Stub::Cancel, NewRequest<pb::CancelRequest>(1), [](auto*) {}),
      "mode");
  EXPECT_EQ(field(&Stub::Cancel, NewRequest<pb::CancelRequest>(1),
                  [](auto* r) { r->set_mode(static_cast<pb::CancelMode>(9)); }),
            "mode");
  EXPECT_EQ(field(&Stub::Pause, NewRequest<pb::PauseRequest>(1),
                  [](auto* r) { r->mutable_at()->set_nanos(-1); }),
            "at");
  EXPECT_EQ(field(&Stub::Resume, NewRequest<pb::ResumeRequest>(1),
                  [](auto* r) { r->mutable_expires_at()->set_nanos(-1); }),
            "expires_at");
  EXPECT_EQ(field(&Stub::ChangePlan, NewRequest<pb::ChangePlanRequest>(1),
                  [](auto*) {}),
            "plan");
  EXPECT_EQ(field(&Stub::ChangePlan, NewRequest<pb::ChangePlanRequest>(1),
                  [](auto* r) {
                    r->set_plan("max");
                    r->set_at_end(false);
                  }),
            "at_end");
  EXPECT_EQ(field(&Stub::ChangePlan, NewRequest<pb::ChangePlanRequest>(1),
                  [](auto* r) {
                    r->set_plan("max");
                    r->mutable_effective_at()->set_nanos(-1);
                  }),
            "effective_at");
  EXPECT_EQ(
      field(&Stub::Transfer, NewRequest<pb::TransferRequest>(1), [](auto*) {}),
      "to_subject");

  auto order = NewRequest<pb::CreateOrderRequest>();
  order.set_route("stripe");
  order.set_subject("u1");
  order.set_plan("pro");
  order.set_currency("EUR");
  const auto orders = [&](auto change) {
    return field(&Stub::CreateOrder, order, change);
  };
  EXPECT_EQ(orders([](auto* r) { r->clear_route(); }), "route");
  EXPECT_EQ(orders([](auto* r) { r->set_order_id("a b"); }), "order_id");
  EXPECT_EQ(orders([](auto* r) { r->set_order_id(std::string(65, 'a')); }),
            "order_id");
  EXPECT_EQ(orders([](auto* r) { r->clear_subject(); }), "subject");
  EXPECT_EQ(orders([](auto* r) { r->clear_item(); }), "plan");
  EXPECT_EQ(orders([](auto* r) { r->set_plan(""); }), "plan");
  EXPECT_EQ(orders([](auto* r) { r->set_product_id(""); }), "product_id");
  EXPECT_EQ(orders([](auto* r) { r->set_amount_minor(-1); }), "amount_minor");
  EXPECT_EQ(orders([](auto* r) { r->clear_currency(); }), "currency");
  EXPECT_EQ(orders([](auto* r) { r->set_currency("eur"); }), "currency");

  auto link = NewRequest<pb::LinkCustomerRequest>();
  link.set_route("stripe");
  link.set_customer_id("cus_1");
  link.set_subject("u1");
  const auto links = [&](auto change) {
    return field(&Stub::LinkCustomer, link, change);
  };
  EXPECT_EQ(links([](auto* r) { r->clear_route(); }), "route");
  EXPECT_EQ(links([&](auto* r) { r->set_account(long_text); }), "account");
  EXPECT_EQ(links([](auto* r) { r->clear_customer_id(); }), "customer_id");
  EXPECT_EQ(links([](auto* r) { r->clear_subject(); }), "subject");
  EXPECT_EQ(field(&Stub::EraseSubject, NewRequest<pb::EraseSubjectRequest>(),
                  [](auto*) {}),
            "subject");

  const auto history = [&](auto change) {
    pb::HistoryRequest request;
    request.set_subscription_id(1);
    return field(&Stub::History, request, change);
  };
  EXPECT_EQ(history([](auto* r) { r->set_page_size(-1); }), "page_size");
  for (const char* token : {"x", "?", "MXwyfDM", "MXw5fDF8MXwxfDF8",
                            "OTk5OTk5OTk5OTk5OTk5OTk5OXwwfDB8MHwwfDB8"}) {
    EXPECT_EQ(history([&](auto* r) { r->set_page_token(token); }), "page_token")
        << token;
  }
  pb::ListRequest list;
  list.set_subject("u1");
  EXPECT_EQ(field(&Stub::List, list, [](auto* r) { r->clear_subject(); }),
            "subject");
  EXPECT_EQ(field(&Stub::List, list, [](auto* r) { r->set_page_token("x"); }),
            "page_token");
  EXPECT_EQ(field(&Stub::List, list,
                  [&](auto* r) { r->set_plan(std::string(128, 'p')); }),
            "plan");
  pb::ExplainRequest explain;
  explain.set_subject("u1");
  explain.set_feature("export");
  EXPECT_EQ(field(&Stub::Explain, explain, [](auto* r) { r->clear_subject(); }),
            "subject");
  EXPECT_EQ(field(&Stub::Explain, explain, [](auto* r) { r->clear_feature(); }),
            "feature");
  EXPECT_EQ(field(&Stub::Explain, explain,
                  [](auto* r) { r->mutable_at()->set_nanos(-1); }),
            "at");

  EXPECT_EQ(field(&Stub::BatchGrant, pb::BatchGrantRequest(), [](auto*) {}),
            "grants");
  EXPECT_EQ(field(&Stub::BatchGrant, pb::BatchGrantRequest(),
                  [&](auto* r) {
                    for (int i = 0; i < 501; ++i)
                      *r->add_grants() = NewGrant("u");
                  }),
            "grants");
  // Nothing of all this was written.
  EXPECT_EQ(Scalar("SELECT count(*) FROM request_log"), "0");
  EXPECT_EQ(Scalar("SELECT count(*) FROM subject"), "0");
}

TEST_F(SubscriptionsTest, WhatIsNotThereIsNotFound) {
  using Stub = pb::Subscriptions::Stub;
  EXPECT_THAT(Call(&Stub::Grant, NewGrant("u1", "gold")),
              AllOf(StatusIs(absl::StatusCode::kNotFound),
                    HasReason(reason::ERROR_REASON_PLAN_NOT_FOUND)));
  const pb::Subscription granted = Granted("u1");
  EXPECT_THAT(ChangePlan(granted.id(), "gold"),
              AllOf(StatusIs(absl::StatusCode::kNotFound),
                    HasReason(reason::ERROR_REASON_PLAN_NOT_FOUND)));
  for (const absl::Status& status :
       {Revoke(999).status(), Pause(999).status(), Resume(999).status(),
        ResumeCancel(999).status(), ChangePlan(999, "max").status(),
        Cancel(999, pb::CANCEL_MODE_NOW).status(),
        ExtendTo(999, Now() + kDay).status()}) {
    EXPECT_THAT(status, HasReason(reason::ERROR_REASON_SUBSCRIPTION_NOT_FOUND));
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound));
  }
  auto order = NewRequest<pb::CreateOrderRequest>();
  order.set_route("stripe");
  order.set_subject("u1");
  order.set_product_id("price_none");
  order.set_currency("EUR");
  EXPECT_THAT(Call(&Stub::CreateOrder, order),
              HasReason(reason::ERROR_REASON_PRODUCT_NOT_FOUND));
  // A route of the other environment is none (R15).
  for (const char* route : {"nowhere", "stripe-sandbox"}) {
    order.set_route(route);
    EXPECT_THAT(Call(&Stub::CreateOrder, order),
                HasReason(reason::ERROR_REASON_ROUTE_NOT_FOUND));
    auto link = NewRequest<pb::LinkCustomerRequest>();
    link.set_route(route);
    link.set_customer_id("cus_1");
    link.set_subject("u1");
    EXPECT_THAT(Call(&Stub::LinkCustomer, link),
                HasReason(reason::ERROR_REASON_ROUTE_NOT_FOUND));
  }
  EXPECT_THAT(Erase("nobody"),
              AllOf(StatusIs(absl::StatusCode::kNotFound),
                    HasReason(reason::ERROR_REASON_SUBJECT_NOT_FOUND)));
  pb::HistoryRequest history;
  history.set_subscription_id(999);
  EXPECT_THAT(Call(&Stub::History, history),
              HasReason(reason::ERROR_REASON_SUBSCRIPTION_NOT_FOUND));
}

TEST_F(SubscriptionsTest, EveryStateThatDoesNotAllowAWriteRefusesIt) {
  const auto refused = [](const auto& answer, ErrorReason why) {
    EXPECT_THAT(answer, StatusIs(absl::StatusCode::kFailedPrecondition));
    EXPECT_THAT(answer, HasReason(why));
  };
  pb::GrantRequest for_ever = NewGrant("u1");
  for_ever.set_lifetime(true);
  refused(Call(&pb::Subscriptions::Stub::Grant, for_ever),
          reason::ERROR_REASON_PLAN_NOT_LIFETIME);

  const int64_t life = Lifetime("u0").id();
  refused(ExtendTo(life, Now() + kDay),
          reason::ERROR_REASON_LIFETIME_HAS_NO_END);
  refused(Cancel(life, pb::CANCEL_MODE_AT_END),
          reason::ERROR_REASON_LIFETIME_HAS_NO_END);
  auto at_end = NewRequest<pb::ChangePlanRequest>(life);
  at_end.set_plan("pro");
  at_end.set_at_end(true);
  refused(Call(&pb::Subscriptions::Stub::ChangePlan, at_end),
          reason::ERROR_REASON_LIFETIME_HAS_NO_END);

  const pb::Subscription granted = Granted("u1");
  const int64_t id = granted.id();
  const absl::Time end = At(granted.expires_at());
  refused(ExtendTo(id, Now() - kDay), reason::ERROR_REASON_END_NOT_LATER);
  refused(ExtendTo(id, end), reason::ERROR_REASON_END_NOT_LATER);
  EXPECT_OK(ExtendTo(id, end + kTick));
  refused(Resume(id), reason::ERROR_REASON_NOTHING_TO_RESUME);
  refused(ResumeCancel(id), reason::ERROR_REASON_NOTHING_TO_RESUME);
  refused(ChangePlan(id, "pro"), reason::ERROR_REASON_ALREADY_SO);
  auto transfer = NewRequest<pb::TransferRequest>(id);
  transfer.set_to_subject("u1");
  refused(Call(&pb::Subscriptions::Stub::Transfer, transfer),
          reason::ERROR_REASON_ALREADY_SO);
  auto change = NewRequest<pb::ChangePlanRequest>(id);
  change.set_plan("max");
  *change.mutable_effective_at() = ToProto(Now() - kDay);
  EXPECT_EQ(FieldOf(Call(&pb::Subscriptions::Stub::ChangePlan, change)),
            "effective_at");
  *change.mutable_effective_at() = ToProto(end - kDay);
  EXPECT_OK(Call(&pb::Subscriptions::Stub::ChangePlan, change));
  change.mutable_context()->set_request_id("another");
  refused(Call(&pb::Subscriptions::Stub::ChangePlan, change),
          reason::ERROR_REASON_ALREADY_SO);

  auto pause = NewRequest<pb::PauseRequest>(id);
  *pause.mutable_at() = ToProto(Now() - kDay);
  EXPECT_EQ(FieldOf(Call(&pb::Subscriptions::Stub::Pause, pause)), "at");
  *pause.mutable_at() = ToProto(end + kTick);
  EXPECT_EQ(FieldOf(Call(&pb::Subscriptions::Stub::Pause, pause)), "at");
  EXPECT_OK(Pause(id));
  refused(Pause(id), reason::ERROR_REASON_ALREADY_SO);
  auto resume = NewRequest<pb::ResumeRequest>(id);
  *resume.mutable_expires_at() = ToProto(Now() - kDay);
  refused(Call(&pb::Subscriptions::Stub::Resume, resume),
          reason::ERROR_REASON_END_NOT_LATER);
  EXPECT_OK(Resume(id));

  EXPECT_OK(Cancel(id, pb::CANCEL_MODE_AT_END));
  refused(Cancel(id, pb::CANCEL_MODE_AT_END), reason::ERROR_REASON_ALREADY_SO);
  EXPECT_OK(Cancel(id, pb::CANCEL_MODE_NOW));
  refused(Cancel(id, pb::CANCEL_MODE_NOW),
          reason::ERROR_REASON_SUBSCRIPTION_NOT_LIVE);
  refused(Cancel(id, pb::CANCEL_MODE_AT_END),
          reason::ERROR_REASON_SUBSCRIPTION_NOT_LIVE);
  refused(ResumeCancel(id), reason::ERROR_REASON_SUBSCRIPTION_NOT_LIVE);
  refused(Pause(id), reason::ERROR_REASON_SUBSCRIPTION_NOT_LIVE);
  refused(ChangePlan(id, "max"), reason::ERROR_REASON_SUBSCRIPTION_NOT_LIVE);
  refused(ExtendTo(id, end + kDay), reason::ERROR_REASON_SUBSCRIPTION_NOT_LIVE);
  EXPECT_OK(Revoke(id));
  refused(Revoke(id), reason::ERROR_REASON_ALREADY_SO);

  // A refused call leaves nothing: its id is free.
  const auto log = [this](const std::string& request_id) {
    return Scalar("SELECT count(*) FROM request_log WHERE request_id = $1",
                  {request_id});
  };
  EXPECT_EQ(log(for_ever.context().request_id()), "0");
  EXPECT_EQ(log(at_end.context().request_id()), "0");
}

TEST_F(SubscriptionsTest, AnEndedRowIsJudgedByTheClockAndNotByTheSweep) {
  const pb::Subscription granted = Granted("u1");
  MoveClock(60 * kDay);
  ASSERT_EQ(Get(granted.id()).state(), pb::SUBSCRIPTION_STATE_ACTIVE);

  EXPECT_THAT(Pause(granted.id()),
              HasReason(reason::ERROR_REASON_SUBSCRIPTION_NOT_LIVE));
  EXPECT_THAT(Cancel(granted.id(), pb::CANCEL_MODE_NOW),
              HasReason(reason::ERROR_REASON_SUBSCRIPTION_NOT_LIVE));
  EXPECT_THAT(ChangePlan(granted.id(), "max"),
              HasReason(reason::ERROR_REASON_SUBSCRIPTION_NOT_LIVE));
}

// ---- repeats ----

TEST_F(SubscriptionsTest, ARepeatGetsTheFirstAnswerAlsoAfterTheRowHasMovedOn) {
  const pb::GrantRequest grant = NewGrant("u1");
  ASSERT_OK_AND_ASSIGN(const pb::GrantResponse granted,
                       Call(&pb::Subscriptions::Stub::Grant, grant));
  const int64_t id = granted.subscription().id();
  const auto pause = NewRequest<pb::PauseRequest>(id);
  ASSERT_OK_AND_ASSIGN(const pb::PauseResponse paused,
                       Call(&pb::Subscriptions::Stub::Pause, pause));
  ASSERT_OK(Resume(id));
  ASSERT_OK(Revoke(id));
  const std::vector<std::string> chain = Chain(id);

  // Somebody else may repeat it, for another reason.
  pb::GrantRequest again = grant;
  again.mutable_context()->set_actor("bob");
  again.mutable_context()->set_reason("retry");
  ASSERT_OK_AND_ASSIGN(const pb::GrantResponse regranted,
                       Call(&pb::Subscriptions::Stub::Grant, again));
  ASSERT_OK_AND_ASSIGN(const pb::PauseResponse repaused,
                       Call(&pb::Subscriptions::Stub::Pause, pause));

  EXPECT_EQ(regranted.SerializeAsString(), granted.SerializeAsString());
  EXPECT_EQ(repaused.SerializeAsString(), paused.SerializeAsString());
  EXPECT_EQ(Chain(id), chain);
  EXPECT_EQ(Get(id).state(), pb::SUBSCRIPTION_STATE_REVOKED);
}

TEST_F(SubscriptionsTest, ARequestIdBelongsToOneRequestOfItsMethod) {
  pb::GrantRequest request = NewGrant("u1");
  const pb::Subscription granted = Granted(request);
  const std::string id = request.context().request_id();

  request.set_subject("u2");
  const auto other = Call(&pb::Subscriptions::Stub::Grant, request);
  EXPECT_THAT(other, StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(other, HasReason(reason::ERROR_REASON_REQUEST_ID_REUSED));
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription"), "1");

  // Another method, and another environment, count by themselves.
  auto revoke = NewRequest<pb::RevokeRequest>(granted.id());
  revoke.mutable_context()->set_request_id(id);
  EXPECT_OK(Call(&pb::Subscriptions::Stub::Revoke, revoke));
  EXPECT_OK(
      Call(&pb::Subscriptions::Stub::Grant, request, sandbox_stub_.get()));
}

TEST_F(SubscriptionsTest, ConcurrentRepeatsAreOneWriteWithOneAnswer) {
  constexpr int kThreads = 8;
  const pb::GrantRequest request = NewGrant("u1");
  Barrier barrier(kThreads);
  std::vector<std::string> answers(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      if (!barrier.ArriveAndWait()) return;
      const auto answer = Call(&pb::Subscriptions::Stub::Grant, request);
      EXPECT_OK(answer);
      if (answer.ok()) answers[i] = answer->SerializeAsString();
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_THAT(answers, ::testing::Each(answers[0]));
  EXPECT_THAT(answers[0], Not(IsEmpty()));
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription"), "1");
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription_fact"), "1");
}

TEST_F(SubscriptionsTest, ARepeatWaitsForTheFirstThatIsUnderWay) {
  const pb::Subscription granted = Granted("u1");
  // Holds the row, so that the first write waits in the middle.
  ASSERT_OK_AND_ASSIGN(const auto holder, database_->OpenSession());
  ASSERT_OK(holder->Exec("BEGIN; SELECT FROM subscription FOR UPDATE"));
  const auto request = NewRequest<pb::RevokeRequest>(granted.id());
  std::vector<std::string> answers(2);
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      const auto answer = Call(&pb::Subscriptions::Stub::Revoke, request);
      EXPECT_OK(answer);
      if (answer.ok()) answers[i] = answer->SerializeAsString();
    });
  }
  // One waits for the row, the other for the request.
  EXPECT_OK(session_->AwaitTrue(
      "SELECT count(*) = 2 FROM pg_stat_activity WHERE datname = "
      "current_database() AND wait_event_type = 'Lock'"));
  ASSERT_OK(holder->Exec("COMMIT"));
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_THAT(answers[0], Not(IsEmpty()));
}

TEST_F(SubscriptionsTest, ARepeatAfterALostAnswerToCommitIsOneWrite) {
  ASSERT_OK_AND_ASSIGN(const auto proxy,
                       FaultProxy::Start(database_->conninfo()));
  Restart(proxy->Through(database_->conninfo()));
  for (const bool committed : {true, false}) {
    SCOPED_TRACE(committed);
    const pb::GrantRequest request = NewGrant(committed ? "u1" : "u2");
    if (committed) {
      proxy->CutAfterCommit();
    } else {
      proxy->CutBeforeCommit();
    }
    const auto unknown = Call(&pb::Subscriptions::Stub::Grant, request);
    EXPECT_THAT(unknown, StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_THAT(unknown,
                HasReason(reason::ERROR_REASON_COMMIT_OUTCOME_UNKNOWN));
    EXPECT_EQ(Scalar("SELECT count(*) FROM request_log WHERE request_id = $1",
                     {request.context().request_id()}),
              committed ? "1" : "0");

    ASSERT_OK_AND_ASSIGN(const pb::GrantResponse repeated,
                         Call(&pb::Subscriptions::Stub::Grant, request));

    EXPECT_EQ(repeated.subscription().version(),
              Get(repeated.subscription().id()).version());
  }
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription"), "2");
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription_fact"), "2");
}

// Erasure locks the subject and then its subscriptions. A write that held the
// row first and came to the subject with its answer would deadlock with it.
TEST_F(SubscriptionsTest, R8_AWriteTakesTheSubjectBeforeTheSubscription) {
  const pb::Subscription granted = Granted("u1");
  ASSERT_OK_AND_ASSIGN(const auto holder, database_->OpenSession());
  ASSERT_OK(holder->Exec("BEGIN; SELECT FROM subject FOR UPDATE"));
  absl::Status revoked = absl::UnknownError("not called");
  std::thread thread([&] { revoked = Revoke(granted.id()).status(); });
  EXPECT_OK(session_->AwaitTrue(
      "SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = "
      "current_database() AND wait_event_type = 'Lock'"));

  EXPECT_OK(holder->Exec("SELECT FROM subscription FOR UPDATE NOWAIT"));

  ASSERT_OK(holder->Exec("COMMIT"));
  thread.join();
  EXPECT_OK(revoked);
}

// ---- cases ----

TEST_F(SubscriptionsTest, C011_ALinkWakesThePaymentThatWaitedForItsSubject) {
  ASSERT_EQ(Deliver(Invoice("").Body()), kParked);
  // Another customer's event waits on.
  StripeInvoice foreign = Invoice("", 1);
  foreign.customer_id = "cus_foreign";
  foreign.subscription_id = "sub_foreign";
  ASSERT_EQ(Deliver(foreign.Body()), kParked);
  ASSERT_OK(session_->Exec(
      "UPDATE provider_event SET next_attempt_at = tenure_now() + interval '1 "
      "hour'"));
  EXPECT_THAT(stack_->RetryWaiting(), IsOkAndHolds(0));

  auto link = NewRequest<pb::LinkCustomerRequest>();
  link.set_route("stripe");
  link.set_customer_id("cus_1");
  link.set_subject("u2");
  ASSERT_OK_AND_ASSIGN(const pb::LinkCustomerResponse linked,
                       Call(&pb::Subscriptions::Stub::LinkCustomer, link));
  EXPECT_EQ(linked.woken_events(), 1);

  EXPECT_THAT(stack_->RetryWaiting(), IsOkAndHolds(1));
  EXPECT_TRUE(HasAccess("u2"));
  EXPECT_EQ(Scalar("SELECT count(*) FROM quota_transaction WHERE biz_type = "
                   "'monthly_release'"),
            "1");
  EXPECT_EQ(Scalar("SELECT count(*) FROM provider_event WHERE status = "
                   "'parked'"),
            "1");
}

TEST_F(SubscriptionsTest, C011_ANewLinkSettlesAConflictOfSubjects) {
  auto link = NewRequest<pb::LinkCustomerRequest>();
  link.set_route("stripe");
  link.set_customer_id("cus_1");
  link.set_subject("wrong");
  ASSERT_OK(Call(&pb::Subscriptions::Stub::LinkCustomer, link));
  ASSERT_EQ(Deliver(Invoice("u1").Body()), kParked);
  ASSERT_EQ(Scalar("SELECT reason FROM provider_event"), "subject_conflict");

  link = NewRequest<pb::LinkCustomerRequest>();
  link.set_route("stripe");
  link.set_customer_id("cus_1");
  link.set_subject("u1");
  ASSERT_OK_AND_ASSIGN(const pb::LinkCustomerResponse linked,
                       Call(&pb::Subscriptions::Stub::LinkCustomer, link));
  EXPECT_EQ(linked.woken_events(), 1);

  EXPECT_THAT(stack_->RetryWaiting(), IsOkAndHolds(1));
  EXPECT_TRUE(HasAccess("u1"));
}

TEST_F(SubscriptionsTest, C059_ExplainNamesTheGrantorThatIsLeft) {
  const pb::Subscription life = Lifetime("u1");
  const pb::Subscription month = Granted("u1");
  ASSERT_OK_AND_ASSIGN(const pb::ExplainResponse both, Explain("u1"));
  EXPECT_EQ(both.verdict().grantor().subscription_id(), life.id());
  EXPECT_EQ(both.verdict().reason(), entitlement::v1::ACCESS_REASON_LIFETIME);

  ASSERT_OK(Revoke(life.id()));
  ASSERT_OK_AND_ASSIGN(const pb::ExplainResponse one, Explain("u1"));
  EXPECT_TRUE(one.verdict().has_access());
  EXPECT_EQ(one.verdict().grantor().subscription_id(), month.id());
  // Newest first; each says what it would say alone, and why.
  ASSERT_EQ(one.candidates_size(), 2);
  EXPECT_EQ(one.candidates(0).subscription().id(), month.id());
  EXPECT_TRUE(one.candidates(0).alone().has_access());
  EXPECT_FALSE(one.candidates(1).alone().has_access());
  EXPECT_EQ(one.candidates(1).alone().reason(),
            entitlement::v1::ACCESS_REASON_REVOKED);
  ASSERT_EQ(one.candidates(1).facts_size(), 2);
  EXPECT_EQ(one.candidates(1).facts(0).fact().kind(), "paid");
  EXPECT_EQ(one.candidates(1).facts(1).fact().kind(), "revoked");
  EXPECT_EQ(one.candidates(1).facts(1).actor(), "ann");
  EXPECT_EQ(one.candidates(1).facts(1).reason(), "ticket 7");

  EXPECT_FALSE(HasAccess("u1", At(month.expires_at())));
  EXPECT_TRUE(HasAccess("u1", At(month.expires_at()) - kTick));
}

TEST_F(SubscriptionsTest, C063_ACancellationAtTheEndCutsNothingAndComesBack) {
  pb::GrantRequest grant = NewGrant("u1");
  grant.mutable_term()->set_count(6);
  const pb::Subscription granted = Granted(grant);
  const int64_t id = granted.id();
  const absl::Time end = At(granted.expires_at());
  ASSERT_EQ(Releases(id), "PENDING 5, RELEASED 1");

  ASSERT_OK_AND_ASSIGN(const pb::CancelResponse canceled,
                       Cancel(id, pb::CANCEL_MODE_AT_END));
  EXPECT_EQ(canceled.subscription().state(), pb::SUBSCRIPTION_STATE_ACTIVE);
  EXPECT_EQ(At(canceled.subscription().cancel_at()), end);
  EXPECT_TRUE(HasAccess("u1", end - kTick));
  EXPECT_FALSE(HasAccess("u1", end));

  MoveClock(end - kDay - SystemClock::Instance().Now());
  ASSERT_OK_AND_ASSIGN(const pb::ResumeCancelResponse resumed,
                       ResumeCancel(id));
  EXPECT_FALSE(resumed.subscription().has_cancel_at());
  EXPECT_EQ(At(resumed.subscription().expires_at()), end);
  EXPECT_EQ(Scalar("SELECT count(*) FROM quota_schedule WHERE status <> "
                   "'CANCELLED'"),
            "6");
}

TEST_F(SubscriptionsTest, C063_ACancellationAtOnceStopsQuotaUntilItIsLifted) {
  pb::GrantRequest grant = NewGrant("u1");
  grant.mutable_term()->set_count(6);
  const int64_t id = Granted(grant).id();

  ASSERT_OK_AND_ASSIGN(const pb::CancelResponse canceled,
                       Cancel(id, pb::CANCEL_MODE_NOW));
  EXPECT_EQ(canceled.subscription().state(), pb::SUBSCRIPTION_STATE_CANCELED);
  EXPECT_FALSE(HasAccess("u1"));
  EXPECT_EQ(Releases(id), "CANCELLED 5, RELEASED 1");

  ASSERT_OK(Resume(id));
  EXPECT_TRUE(HasAccess("u1"));
  // Restored as new rows; what was paid out is not paid again.
  EXPECT_EQ(Releases(id), "CANCELLED 5, PENDING 5, RELEASED 1");
  EXPECT_EQ(Scalar("SELECT count(*) FROM quota_transaction WHERE biz_type = "
                   "'monthly_release'"),
            "1");
}

TEST_F(SubscriptionsTest, C065_AnEndAtOnceStaysWhateverTheProviderSays) {
  ASSERT_EQ(Deliver(Invoice("u1").Body()), kApplied);
  const int64_t id = StripeId();
  ASSERT_OK(Cancel(id, pb::CANCEL_MODE_NOW));
  ASSERT_FALSE(HasAccess("u1"));

  // The provider's own end lies later, and so does a further payment.
  StripeDeletion deletion;
  deletion.event_id = "evt_deleted";
  deletion.created = Now();
  deletion.subscription_id = "sub_1";
  deletion.subject = "u1";
  deletion.ended_at = start_ + 20 * kDay;
  EXPECT_EQ(stack_->Deliver(deletion.Body()).status, 200);
  EXPECT_FALSE(HasAccess("u1"));
  EXPECT_EQ(stack_->Deliver(Invoice("u1", 1).Body()).status, 200);

  EXPECT_FALSE(HasAccess("u1"));
  EXPECT_EQ(Get(id).state(), pb::SUBSCRIPTION_STATE_CANCELED);
}

TEST_F(SubscriptionsTest, C068_TheProvidersEndCannotBeResumedByUs) {
  ASSERT_EQ(Deliver(Invoice("u1").Body()), kApplied);
  const int64_t id = StripeId();
  const absl::Time end = At(Get(id).expires_at());
  ASSERT_OK(Cancel(id, pb::CANCEL_MODE_AT_END));
  StripeDeletion deletion;
  deletion.event_id = "evt_deleted";
  deletion.created = Now();
  deletion.subscription_id = "sub_1";
  deletion.subject = "u1";
  deletion.ended_at = Now();
  ASSERT_EQ(stack_->Deliver(deletion.Body()).status, 200);

  EXPECT_THAT(ResumeCancel(id),
              AllOf(StatusIs(absl::StatusCode::kFailedPrecondition),
                    HasReason(reason::ERROR_REASON_ENDED_BY_PROVIDER)));
  EXPECT_THAT(Resume(id), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(ExtendTo(id, end + kDay),
              HasReason(reason::ERROR_REASON_ENDED_BY_PROVIDER));

  EXPECT_TRUE(HasAccess("u1", end - kTick));
  EXPECT_FALSE(HasAccess("u1", end));
  EXPECT_THAT(Chain(id), ::testing::Contains("ended"));
}

// ---- erasure ----

TEST_F(SubscriptionsTest, D14_ErasureForgetsThePersonAndKeepsTheLedger) {
  constexpr char kName[] = "ann.smith@example.com";
  auto link = NewRequest<pb::LinkCustomerRequest>();
  link.set_route("stripe");
  link.set_customer_id("cus_1");
  link.set_subject(kName);
  ASSERT_OK(Call(&pb::Subscriptions::Stub::LinkCustomer, link));
  ASSERT_EQ(Deliver(Invoice(kName).Body()), kApplied);
  std::string other_body = Invoice(kName).Body();
  other_body += " ";
  ASSERT_EQ(Deliver(other_body), R"({"state":"quarantined")");
  const pb::GrantRequest grant = NewGrant(kName);
  const pb::Subscription granted = Granted(grant);
  pb::GrantRequest sandbox_grant = NewGrant(kName);
  ASSERT_OK(Call(&pb::Subscriptions::Stub::Grant, sandbox_grant,
                 sandbox_stub_.get()));
  const std::string ledger =
      "SELECT string_agg(p::text, ' ') FROM payment p WHERE route_id IN "
      "(SELECT id FROM route WHERE name = 'stripe')";
  const std::string ledger_before = Scalar(ledger);
  ASSERT_TRUE(HasAccess(kName));

  auto request = NewRequest<pb::EraseSubjectRequest>();
  request.set_subject(kName);
  ASSERT_OK_AND_ASSIGN(const pb::EraseSubjectResponse erased,
                       Call(&pb::Subscriptions::Stub::EraseSubject, request));

  EXPECT_THAT(erased.pseudonym(), StartsWith("erased:"));
  EXPECT_EQ(erased.subscription_count(), 3);
  EXPECT_EQ(erased.emptied_events(), 1);
  EXPECT_FALSE(HasAccess(kName));
  EXPECT_FALSE(HasAccess(erased.pseudonym()));
  EXPECT_FALSE(HasAccess(erased.pseudonym(), start_ + 10000 * kDay));
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription WHERE status = "
                   "'CANCELED'"),
            "3");
  EXPECT_EQ(Scalar(ledger), ledger_before);
  EXPECT_EQ(Scalar("SELECT count(*) FROM subject WHERE erased_at IS NOT NULL"),
            "1");
  const auto expect_nowhere = [&] {
    ASSERT_OK_AND_ASSIGN(
        const SqlRows tables,
        session_->Exec(
            "SELECT quote_ident(relname) FROM pg_class WHERE "
            "relnamespace = 'public'::regnamespace AND relkind = 'r'"));
    for (const SqlRow& table : tables) {
      EXPECT_EQ(
          Scalar(absl::StrCat("SELECT count(*) FROM ", *table[0],
                              " t WHERE position($1 IN t::text) > 0 OR "
                              "position(encode(convert_to($1, 'UTF8'), 'hex') "
                              "IN t::text) > 0"),
                 {kName}),
          "0")
          << *table[0];
    }
  };
  // The name is in no column of any table.
  expect_nowhere();

  // A repeat gets the same answer; it erases nobody anew.
  ASSERT_OK_AND_ASSIGN(const pb::EraseSubjectResponse again,
                       Call(&pb::Subscriptions::Stub::EraseSubject, request));
  EXPECT_EQ(again.SerializeAsString(), erased.SerializeAsString());
  // Nothing of the person is told or changed any more.
  EXPECT_THAT(Call(&pb::Subscriptions::Stub::Grant, grant),
              HasReason(reason::ERROR_REASON_SUBJECT_ERASED));
  EXPECT_THAT(Resume(granted.id()),
              HasReason(reason::ERROR_REASON_SUBJECT_ERASED));
  EXPECT_THAT(
      Call(&pb::Subscriptions::Stub::Grant, NewGrant(erased.pseudonym())),
      HasReason(reason::ERROR_REASON_SUBJECT_ERASED));
  EXPECT_THAT(Erase(erased.pseudonym()),
              HasReason(reason::ERROR_REASON_SUBJECT_ERASED));

  // A late payment of the same subscription brings no access back; the link
  // still finds the erased subject.
  EXPECT_EQ(stack_->Deliver(Invoice(kName, 1).Body()).status, 200);
  EXPECT_FALSE(HasAccess(erased.pseudonym()));
  EXPECT_FALSE(HasAccess(kName));
  // Nor is what it says of the person kept.
  expect_nowhere();
  EXPECT_EQ(Scalar("SELECT count(*) FROM customer_link"), "1");
  auto relink = NewRequest<pb::LinkCustomerRequest>();
  relink.set_route("stripe");
  relink.set_customer_id("cus_1");
  relink.set_subject("somebody");
  EXPECT_THAT(Call(&pb::Subscriptions::Stub::LinkCustomer, relink),
              HasReason(reason::ERROR_REASON_SUBJECT_ERASED));

  // The same name later is somebody new.
  const pb::Subscription fresh = Granted(kName);
  EXPECT_TRUE(HasAccess(kName));
  EXPECT_FALSE(HasAccess(erased.pseudonym()));
  EXPECT_NE(fresh.id(), granted.id());
}

TEST_F(SubscriptionsTest, D14_ALateEventOfAnErasedCustomerMakesNobodyAnew) {
  auto link = NewRequest<pb::LinkCustomerRequest>();
  link.set_route("stripe");
  link.set_customer_id("cus_1");
  link.set_subject("u1");
  ASSERT_OK(Call(&pb::Subscriptions::Stub::LinkCustomer, link));
  // Says who he is and makes no fact.
  const auto checkout = [&](const std::string& event_id) {
    return absl::StrCat(
        R"({"id":")", event_id, R"(","object":"event","livemode":true,)",
        R"("type":"checkout.session.completed","created":)",
        absl::ToUnixSeconds(start_),
        R"(,"data":{"object":{"id":"cs_1","object":"checkout.session",)",
        R"("mode":"payment","payment_status":"paid","customer":"cus_1",)",
        R"("customer_details":{"email":"u1@example.test"},)",
        R"("client_reference_id":"u1","metadata":{}}}})");
  };
  ASSERT_EQ(stack_->Deliver(checkout("evt_before")).status, 200);
  ASSERT_EQ(Scalar("SELECT customer_id FROM provider_event"), "cus_1");
  ASSERT_OK_AND_ASSIGN(const pb::EraseSubjectResponse erased, Erase("u1"));
  EXPECT_EQ(erased.emptied_events(), 1);
  EXPECT_EQ(stack_->Deliver(checkout("evt_after")).status, 200);

  // A new subscription of the same customer, with and without the name.
  for (const char* subject : {"", "u1"}) {
    StripeInvoice invoice = Invoice(subject);
    invoice.event_id = absl::StrCat("evt_late_", subject);
    invoice.subscription_id = absl::StrCat("sub_late_", subject);
    EXPECT_EQ(stack_->Deliver(invoice.Body()).status, 200);
  }

  EXPECT_EQ(Scalar("SELECT count(*) FROM subject"), "1");
  EXPECT_EQ(Scalar("SELECT count(*) FROM subject WHERE erased_at IS NULL"),
            "0");
  EXPECT_FALSE(HasAccess("u1"));
  // The money is booked under the pseudonym, and nothing that was said is kept.
  EXPECT_EQ(Scalar("SELECT string_agg(external_event_id || ' ' || status || ' '"
                   " || (body IS NULL), ', ' ORDER BY id) FROM provider_event"),
            "evt_before ignored true, evt_after ignored true, evt_late_ "
            "applied true, evt_late_u1 applied true");
}

TEST_F(SubscriptionsTest, D14_ABodyThatIsStoredDuringAnErasureIsEmptiedToo) {
  ASSERT_EQ(Deliver(Invoice("u1").Body()), kApplied);
  ASSERT_OK_AND_ASSIGN(const auto holder, database_->OpenSession());
  ASSERT_OK(
      holder->Exec("BEGIN; SELECT id FROM provider_event FOR NO KEY UPDATE; "
                   "INSERT INTO event_conflict (event_id, body, body_sha256) "
                   "SELECT id, 'ann', sha256('ann') FROM provider_event"));
  absl::StatusOr<pb::EraseSubjectResponse> erased =
      absl::UnknownError("not called");
  std::thread thread([&] { erased = Erase("u1"); });
  EXPECT_OK(session_->AwaitTrue(
      "SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = "
      "current_database() AND wait_event_type = 'Lock'"));
  ASSERT_OK(holder->Exec("COMMIT"));
  thread.join();

  ASSERT_OK(erased);
  EXPECT_EQ(erased->emptied_events(), 1);
  EXPECT_EQ(Scalar("SELECT count(*) FROM event_conflict WHERE body = ''"), "1");
  EXPECT_EQ(Scalar("SELECT count(*) FROM provider_event WHERE body IS NULL"),
            "1");
}

TEST_F(SubscriptionsTest, D14_AGrantThatCompetesWithAnErasureIsForSomebodyNew) {
  Granted("u1");
  ASSERT_OK_AND_ASSIGN(const auto holder, database_->OpenSession());
  ASSERT_OK(holder->Exec(
      "BEGIN; UPDATE subject SET external_id = 'erased:x', erased_at = "
      "tenure_now() WHERE external_id = 'u1'"));
  absl::StatusOr<pb::GrantResponse> granted = absl::UnknownError("not called");
  std::thread thread(
      [&] { granted = Call(&pb::Subscriptions::Stub::Grant, NewGrant("u1")); });
  EXPECT_OK(session_->AwaitTrue(
      "SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = "
      "current_database() AND wait_event_type = 'Lock'"));
  ASSERT_OK(holder->Exec("COMMIT"));
  thread.join();

  ASSERT_OK(granted);
  EXPECT_EQ(granted->subscription().subject(), "u1");
  EXPECT_EQ(Scalar("SELECT count(*) FROM subject"), "2");
}

// ---- reads ----

TEST_F(SubscriptionsTest, HistoryTellsFactsAndEventsInOneChainByPages) {
  ASSERT_EQ(Deliver(Invoice("u1").Body()), kApplied);
  const int64_t id = StripeId();
  const auto pause = NewRequest<pb::PauseRequest>(id);
  ASSERT_OK(Call(&pb::Subscriptions::Stub::Pause, pause));
  ASSERT_OK(Resume(id));
  ASSERT_OK(ExtendTo(id, start_ + 40 * kDay));

  const std::vector<pb::HistoryEntry> whole = History(id);

  EXPECT_THAT(
      Chain(id),
      ElementsAre("paid", "subscription.created", "subscription.activated",
                  "subscription.quota_released", "paused",
                  "subscription.paused", "resumed", "subscription.resumed",
                  "extended", "subscription.extended"));
  for (const int page_size : {1, 2, 3, 9, 10, 1000}) {
    const std::vector<pb::HistoryEntry> paged = History(id, page_size);
    ASSERT_EQ(paged.size(), whole.size()) << page_size;
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ(paged[i].SerializeAsString(), whole[i].SerializeAsString());
    }
  }
  const pb::HistoryEntry& paid = whole[0];
  EXPECT_EQ(paid.actor(), "");
  EXPECT_EQ(paid.fact().event_id(), "evt_0");
  EXPECT_EQ(paid.fact().money_key(), "in_0");
  EXPECT_GT(paid.fact().provider_event_id(), 0);
  EXPECT_EQ(paid.fact().fact().plan(), "pro");
  const pb::HistoryEntry& paused = whole[4];
  EXPECT_EQ(paused.actor(), "ann");
  EXPECT_EQ(paused.reason(), "ticket 7");
  EXPECT_EQ(paused.fact().event_id(), pause.context().request_id());
  EXPECT_EQ(paused.fact().provider_event_id(), 0);
  const pb::HistoryEntry& announced = whole[9];
  EXPECT_EQ(announced.actor(), "ann");
  EXPECT_EQ(announced.event().seq(), 6);
  EXPECT_THAT(announced.event().business_key(), StartsWith("extended/"));
  EXPECT_THAT(announced.event().cause(), StartsWith("request:"));
  EXPECT_EQ(At(announced.event().old_access_until()), start_ + 30 * kDay);
  EXPECT_EQ(At(announced.event().access_until()), start_ + 40 * kDay);
  EXPECT_THAT(whole[1].event().cause(), StartsWith("provider_event:"));
}

TEST_F(SubscriptionsTest, ExplainTellsWhatIsMissing) {
  ASSERT_OK_AND_ASSIGN(const pb::ExplainResponse nobody, Explain("nobody"));
  EXPECT_EQ(nobody.verdict().reason(),
            entitlement::v1::ACCESS_REASON_NO_SUBSCRIPTION);
  EXPECT_EQ(nobody.candidates_size(), 0);

  const pb::Subscription granted = Granted("u1");
  ASSERT_OK_AND_ASSIGN(const pb::ExplainResponse seats,
                       Explain("u1", std::nullopt, "seats"));
  EXPECT_EQ(seats.verdict().reason(),
            entitlement::v1::ACCESS_REASON_FEATURE_NOT_IN_PLAN);
  ASSERT_EQ(seats.candidates_size(), 1);
  EXPECT_FALSE(seats.candidates(0).plan_has_feature());

  const absl::Time end = At(granted.expires_at());
  ASSERT_OK_AND_ASSIGN(const pb::ExplainResponse last,
                       Explain("u1", end - kTick));
  EXPECT_TRUE(last.verdict().has_access());
  EXPECT_EQ(At(last.verdict().access_until()), end);
  EXPECT_EQ(At(last.verdict().decided_at()), end - kTick);
  ASSERT_OK_AND_ASSIGN(const pb::ExplainResponse over, Explain("u1", end));
  EXPECT_FALSE(over.verdict().has_access());
  EXPECT_EQ(over.verdict().reason(), entitlement::v1::ACCESS_REASON_ENDED);
}

TEST_F(SubscriptionsTest, ExplainShowsTheDefaultPlanBeneathTheSubscriptions) {
  ASSERT_OK(
      session_->Exec("INSERT INTO default_plan (plan_name) VALUES ('max')"));
  const pb::Subscription granted = Granted("u1");

  ASSERT_OK_AND_ASSIGN(const pb::ExplainResponse export_it, Explain("u1"));
  EXPECT_EQ(export_it.verdict().grantor().subscription_id(), granted.id());
  ASSERT_OK_AND_ASSIGN(const pb::ExplainResponse seats,
                       Explain("u1", std::nullopt, "seats"));
  EXPECT_EQ(seats.verdict().reason(),
            entitlement::v1::ACCESS_REASON_DEFAULT_PLAN);
  EXPECT_EQ(seats.verdict().quantity(), 5);
  ASSERT_EQ(seats.candidates_size(), 2);
  EXPECT_TRUE(seats.candidates(1).default_plan());
  EXPECT_TRUE(seats.candidates(1).plan_has_feature());
}

TEST_F(SubscriptionsTest, ExplainTellsTheNewestFactsWhenThereAreManyMore) {
  const pb::Subscription granted = Granted("u1");
  ASSERT_OK(session_->Exec(
      "INSERT INTO subscription_fact (subscription_id, layer, order_at, rank, "
      "event_id, ordinal, kind, plan_revision, body) SELECT subscription_id, "
      "layer, order_at - i * interval '1 day', rank, 'e' || i, 0, kind, "
      "plan_revision, body FROM subscription_fact, generate_series(1, 200) i"));

  ASSERT_OK_AND_ASSIGN(const pb::ExplainResponse explained, Explain("u1"));

  ASSERT_EQ(explained.candidates_size(), 1);
  EXPECT_TRUE(explained.candidates(0).facts_truncated());
  ASSERT_EQ(explained.candidates(0).facts_size(), 200);
  // In the order of the fold, so the grant is last.
  EXPECT_EQ(explained.candidates(0).facts(0).fact().event_id(), "e199");
  EXPECT_THAT(explained.candidates(0).facts(199).actor(), "ann");
  EXPECT_EQ(granted.term_no(), 1);
}

TEST_F(SubscriptionsTest, S4_19_TheActiveListHasWhatGivesAccessNow) {
  const int64_t active = Granted("u1").id();
  const int64_t life = Lifetime("u1").id();
  const int64_t max = Granted("u1", "max").id();
  const int64_t paused = Granted("u1").id();
  const int64_t revoked = Granted("u1").id();
  ASSERT_OK(Pause(paused));
  ASSERT_OK(Revoke(revoked));
  const auto list = [this](bool active_only, const std::string& plan) {
    pb::ListRequest request;
    request.set_subject("u1");
    request.set_active_only(active_only);
    request.set_plan(plan);
    request.set_page_size(2);
    std::vector<int64_t> ids;
    do {
      const auto page = Call(&pb::Subscriptions::Stub::List, request);
      EXPECT_OK(page);
      if (!page.ok()) break;
      for (const auto& s : page->subscriptions()) ids.push_back(s.id());
      request.set_page_token(page->next_page_token());
    } while (!request.page_token().empty());
    return ids;
  };

  EXPECT_THAT(list(false, ""), ElementsAre(revoked, paused, max, life, active));
  EXPECT_THAT(list(true, ""), ElementsAre(max, life, active));
  EXPECT_THAT(list(true, "pro"), ElementsAre(active));
  EXPECT_THAT(list(false, "gold"), IsEmpty());
  // No sweep has run: the instant decides (R1).
  MoveClock(60 * kDay);
  EXPECT_THAT(list(true, ""), ElementsAre(life));
}

TEST_F(SubscriptionsTest, R15_TheOtherEnvironmentIsNotSeenOrTouched) {
  const pb::Subscription live = Granted("u1");
  ASSERT_OK_AND_ASSIGN(const pb::GrantResponse test,
                       Call(&pb::Subscriptions::Stub::Grant, NewGrant("u1"),
                            sandbox_stub_.get()));
  EXPECT_EQ(test.subscription().environment(), "test");

  EXPECT_THAT(Revoke(test.subscription().id()),
              HasReason(reason::ERROR_REASON_SUBSCRIPTION_NOT_FOUND));
  pb::GetRequest get;
  get.set_subscription_id(test.subscription().id());
  EXPECT_THAT(Call(&pb::Subscriptions::Stub::Get, get),
              HasReason(reason::ERROR_REASON_SUBSCRIPTION_NOT_FOUND));
  pb::ListRequest list;
  list.set_subject("u1");
  ASSERT_OK_AND_ASSIGN(const pb::ListResponse listed,
                       Call(&pb::Subscriptions::Stub::List, list));
  ASSERT_EQ(listed.subscriptions_size(), 1);
  EXPECT_EQ(listed.subscriptions(0).id(), live.id());
  ASSERT_OK(Revoke(live.id()));
  EXPECT_FALSE(HasAccess("u1"));
}

// ---- batches ----

TEST_F(SubscriptionsTest, ABatchAnswersEachRowByItself) {
  pb::BatchGrantRequest batch;
  *batch.add_grants() = NewGrant("u1");
  *batch.add_grants() = NewGrant("u2", "gold");
  *batch.add_grants() = NewGrant("u3");
  batch.mutable_grants(2)->clear_subject();
  *batch.add_grants() = batch.grants(0);
  *batch.add_grants() = batch.grants(0);
  batch.mutable_grants(4)->set_subject("u4");
  *batch.add_grants() = NewGrant("u5");

  pb::BatchGrantRequest dry = batch;
  dry.set_dry_run(true);
  ASSERT_OK_AND_ASSIGN(const pb::BatchGrantResponse checked,
                       Call(&pb::Subscriptions::Stub::BatchGrant, dry));
  EXPECT_EQ(Scalar("SELECT (SELECT count(*) FROM request_log) + (SELECT "
                   "count(*) FROM subject)"),
            "0");
  ASSERT_OK_AND_ASSIGN(const pb::BatchGrantResponse first,
                       Call(&pb::Subscriptions::Stub::BatchGrant, batch));

  for (const pb::BatchGrantResponse& answer : {checked, first}) {
    ASSERT_EQ(answer.results_size(), 6);
    EXPECT_FALSE(answer.results(0).has_failure());
    EXPECT_EQ(answer.results(1).failure().error_reason(), "PLAN_NOT_FOUND");
    EXPECT_EQ(answer.results(1).failure().field(), "plan");
    EXPECT_EQ(answer.results(2).failure().error_reason(), "FIELD_MISSING");
    EXPECT_EQ(answer.results(2).failure().field(), "subject");
    EXPECT_TRUE(answer.results(3).repeated_request());
    EXPECT_EQ(answer.results(4).failure().error_reason(), "REQUEST_ID_REUSED");
    EXPECT_FALSE(answer.results(5).has_failure());
  }
  EXPECT_GT(first.results(0).subscription_id(), 0);
  EXPECT_EQ(first.results(3).subscription_id(),
            first.results(0).subscription_id());
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription"), "2");

  // A row is the same request as a Grant of its own.
  EXPECT_EQ(Granted(batch.grants(0)).id(), first.results(0).subscription_id());
  ASSERT_OK_AND_ASSIGN(const pb::BatchGrantResponse again,
                       Call(&pb::Subscriptions::Stub::BatchGrant, batch));
  for (const int i : {0, 3, 5}) {
    EXPECT_TRUE(again.results(i).repeated_request()) << i;
    EXPECT_EQ(again.results(i).subscription_id(),
              first.results(i).subscription_id());
  }
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription"), "2");
}

TEST_F(SubscriptionsTest, ARowThatTheDatabaseRefusesSpoilsNoOther) {
  ASSERT_OK(session_->Exec(R"sql(
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'refused by the test' USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER refuse BEFORE INSERT ON subject
  FOR EACH ROW WHEN (new.external_id = 'u3') EXECUTE FUNCTION refuse())sql"));
  pb::BatchGrantRequest batch;
  for (int i = 1; i <= 5; ++i) {
    *batch.add_grants() = NewGrant(absl::StrCat("u", i));
  }

  ASSERT_OK_AND_ASSIGN(const pb::BatchGrantResponse answer,
                       Call(&pb::Subscriptions::Stub::BatchGrant, batch));

  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(answer.results(i).has_failure(), i == 2) << i;
  }
  EXPECT_EQ(answer.results(2).failure().error_reason(), "FAILED_PRECONDITION");
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription"), "4");
}

TEST_F(SubscriptionsTest, BatchesThatOverlapGrantEachRowOnce) {
  constexpr int kThreads = 4;
  constexpr int kRows = 60;
  pb::BatchGrantRequest batch;
  for (int i = 0; i < kRows; ++i) {
    *batch.add_grants() = NewGrant(absl::StrCat("u", i % 7));
  }
  Barrier barrier(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      pb::BatchGrantRequest mine;
      for (int i = 0; i < kRows; ++i) {
        *mine.add_grants() = batch.grants((i * 7 + t * 11) % kRows);
      }
      if (!barrier.ArriveAndWait()) return;
      const auto answer = Call(&pb::Subscriptions::Stub::BatchGrant, mine);
      EXPECT_OK(answer);
      if (!answer.ok()) return;
      for (const pb::GrantResult& result : answer->results()) {
        EXPECT_FALSE(result.has_failure()) << result.ShortDebugString();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription"), absl::StrCat(kRows));
}

// Regression: they made the rows in the order of their own requests.
TEST_F(SubscriptionsTest, R8_BatchesThatNameTheSameKeysDoNotDeadlock) {
  constexpr int kRounds = 20;
  constexpr int kRows = 60;
  Barrier barrier(2);
  std::vector<std::thread> threads;
  for (const bool backwards : {false, true}) {
    threads.emplace_back([&, backwards] {
      for (int round = 0; round < kRounds; ++round) {
        pb::BatchGrantRequest batch;
        for (int i = 0; i < kRows; ++i) {
          pb::GrantRequest& grant = *batch.add_grants();
          grant = NewGrant("u1");
          const int request = backwards ? kRows - i : i;
          grant.mutable_context()->set_request_id(
              absl::StrCat(backwards, "/", round, "/", 100 + request));
          grant.set_external_key(absl::StrCat(round, "/", 100 + i));
        }
        if (!barrier.ArriveAndWait()) return;
        const auto answer = Call(&pb::Subscriptions::Stub::BatchGrant, batch);
        EXPECT_OK(answer);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription"),
            absl::StrCat(kRounds * kRows));

  // What the server counted is told when its sessions end.
  stub_.reset();
  server_.reset();
  sandbox_stub_.reset();
  sandbox_server_.reset();
  service_.reset();
  sandbox_.reset();
  stack_.reset();
  EXPECT_OK(session_->AwaitTrue(
      "SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = "
      "current_database() AND backend_type = 'client backend'"));
  EXPECT_EQ(Scalar("SELECT deadlocks FROM pg_stat_database WHERE datname = "
                   "current_database()"),
            "0");
}

}  // namespace
}  // namespace tenure::test
