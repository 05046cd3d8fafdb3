// The scheduler's job retry_events and the gauges of the inbox, over a real
// PostgreSQL.
#include "services/scheduler/retry_events.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/db/pool.h"
#include "common/obs/metrics.h"
#include "common/store/inbox_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/host/inbox_gauges.h"
#include "services/host/routes.h"
#include "services/host/statements.h"
#include "services/scheduler/job_runner.h"
#include "services/scheduler/job_store.h"
#include "tests/integration/rows.h"
#include "tests/integration/stripe_event.h"
#include "tests/support/session.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace tenure::test {
namespace {

using scheduler::JobOutcome;
using scheduler::RetryEvents;
using ::testing::HasSubstr;
using ::testing::Not;

// What a scheduler has of the job: routes without keys, a pool, the inbox. Its
// clock is the database's as it is when this is made.
class SchedulerSide {
 public:
  struct Options {
    int64_t batch_size = 1000;
    absl::Duration parking_limit = store::InboxStore::kParkingLimit;
  };

  static absl::StatusOr<std::unique_ptr<SchedulerSide>> Make(
      const TestDatabase& database, const Options& options) {
    host::Routes::Configs configs;
    for (const auto& [name, type] : {std::pair("stripe", "stripe"),
                                     std::pair("hooks", "standard_webhooks")}) {
      config::v1::RouteConfig& route = *configs.Add();
      route.set_name(name);
      route.set_type(type);
      route.set_environment(config::v1::ENVIRONMENT_LIVE);
      route.set_subject_metadata_key("tenure_subject");
    }
    ASSIGN_OR_RETURN(host::Routes routes,
                     host::Routes::MakeWithoutKeys(configs));
    db::PoolOptions pool;
    pool.connection.conninfo = database.conninfo();
    auto pools = std::make_unique<db::Pool>(pool);
    RETURN_IF_ERROR(routes.Register(*pools));
    return std::unique_ptr<SchedulerSide>(
        new SchedulerSide(std::move(routes), std::move(pools), options));
  }

  absl::StatusOr<JobOutcome> Run() {
    JobOutcome outcome;
    RETURN_IF_ERROR(retry_.Run([] { return false; }, &outcome));
    return outcome;
  }

  // What webhook-ingest would have stored of a verified delivery.
  absl::StatusOr<store::RecordedEvent> Receive(const std::string& body,
                                               const std::string& route,
                                               const std::string& event_id) {
    const host::ConfiguredRoute& configured = *routes_.Find(route);
    ASSIGN_OR_RETURN(providers::ProviderEvent event,
                     configured.adapter()->Parse(body));
    event.event_id = event_id;
    return inbox_.Record(configured.route(), event, body);
  }

  RetryEvents& retry() { return retry_; }
  db::Pool& pool() { return *pool_; }
  obs::Registry& registry() { return registry_; }

 private:
  SchedulerSide(host::Routes routes, std::unique_ptr<db::Pool> pool,
                const Options& options)
      : routes_(std::move(routes)),
        pool_(std::move(pool)),
        inbox_(*pool_, options.parking_limit),
        retry_(routes_, inbox_, options.batch_size, registry_) {}

  obs::Registry registry_{"scheduler"};
  host::Routes routes_;
  std::unique_ptr<db::Pool> pool_;
  store::InboxStore inbox_;
  RetryEvents retry_;
};

class RetryEventsJob : public ::testing::Test {
 protected:
  using Options = SchedulerSide::Options;

  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    ASSERT_OK_AND_ASSIGN(session_, database_->OpenSession());
    ASSERT_OK(AddCatalog(*session_));
    Restart({});
  }

  // A new process, which sees the clock as it was moved.
  void Restart(const Options& options) {
    ASSERT_OK_AND_ASSIGN(scheduler_, SchedulerSide::Make(*database_, options));
  }
  void MoveClock(absl::Duration offset, const Options& options = {}) {
    ASSERT_OK(database_->SetClockOffset(offset));
    Restart(options);
  }

  // A paid invoice of a customer whom nobody knows.
  StripeInvoice Invoice(int n) const {
    StripeInvoice invoice;
    invoice.event_id = absl::StrCat("evt_", n);
    invoice.invoice_id = absl::StrCat("in_", n);
    invoice.subscription_id = absl::StrCat("sub_", n);
    invoice.customer_id = absl::StrCat("cus_", n);
    invoice.period_start = start_;
    invoice.period_end = start_ + absl::Hours(30 * 24);
    invoice.created = start_;
    return invoice;
  }

  void Park(int n) {
    ASSERT_OK_AND_ASSIGN(
        const store::RecordedEvent recorded,
        scheduler_->Receive(Invoice(n).Body(), "stripe", Invoice(n).event_id));
    ASSERT_EQ(recorded.state, store::EventState::kParked);
  }

  // From now on the subject of Invoice(n) is known.
  void Link(int n) {
    ASSERT_OK(session_->Exec(absl::StrCat(
        "WITH u AS (INSERT INTO subject (external_id) VALUES ('u", n,
        "') RETURNING id) INSERT INTO customer_link (route_id, account, "
        "customer_id, subject_id) SELECT r.id, '', 'cus_",
        n, "', u.id FROM u, route r WHERE r.name = 'stripe'")));
  }

  std::string Scalar(const std::string& sql) {
    absl::StatusOr<std::string> value = session_->Scalar(sql);
    return value.ok() ? *value : value.status().ToString();
  }

  const absl::Time start_ = absl::FromUnixSeconds(
      absl::ToUnixSeconds(SystemClock::Instance().Now()) - 3600);
  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<SchedulerSide> scheduler_;
};

TEST_F(RetryEventsJob, R4_C011_AppliesWhatWaitsWhenItsTimeHasCome) {
  Park(1);
  Park(2);
  Link(1);
  ASSERT_OK_AND_ASSIGN(const JobOutcome early, scheduler_->Run());
  EXPECT_EQ(early.found_count, 0);

  MoveClock(absl::Seconds(10));
  ASSERT_OK_AND_ASSIGN(const JobOutcome due, scheduler_->Run());
  EXPECT_EQ(due.found_count, 2);
  EXPECT_EQ(due.succeeded_count, 1);
  EXPECT_EQ(due.failed_count, 0) << "waiting on is no failure";
  EXPECT_EQ(due.batch_count, 2);

  EXPECT_EQ(Scalar("SELECT string_agg(status, ' ' ORDER BY id) FROM "
                   "provider_event"),
            "applied parked");
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription"), "1");
  ASSERT_OK_AND_ASSIGN(const JobOutcome after, scheduler_->Run());
  EXPECT_EQ(after.found_count, 0);
}

TEST_F(RetryEventsJob, C012_TheParkingLimitIsASetting) {
  const Options options{.parking_limit = absl::Hours(1)};
  Park(1);

  MoveClock(absl::Minutes(59), options);
  ASSERT_OK_AND_ASSIGN(const JobOutcome before, scheduler_->Run());
  EXPECT_EQ(before.found_count, 1);
  EXPECT_EQ(Scalar("SELECT status FROM provider_event"), "parked");

  MoveClock(absl::Minutes(61), options);
  ASSERT_OK_AND_ASSIGN(const JobOutcome past, scheduler_->Run());
  EXPECT_EQ(past.failed_count, 1);
  EXPECT_EQ(Scalar("SELECT status || '/' || reason FROM provider_event"),
            "dead/no_subject");
}

TEST_F(RetryEventsJob, C012_WaitsDoubleFromTwoSecondsToAnHour) {
  Park(1);
  std::vector<std::string> waits;
  for (int tries = 0; tries < 14; ++tries) {
    waits.push_back(
        Scalar("SELECT extract(epoch FROM next_attempt_at - received_at)"
               "::bigint FROM provider_event"));
    // As if it had just come and were due.
    ASSERT_OK(
        session_->Exec("UPDATE provider_event SET received_at = tenure_now(), "
                       "next_attempt_at = tenure_now()"));
    ASSERT_OK_AND_ASSIGN(const JobOutcome outcome, scheduler_->Run());
    ASSERT_EQ(outcome.found_count, 1);
  }
  EXPECT_THAT(waits, ::testing::ElementsAre("2", "4", "8", "16", "32", "64",
                                            "128", "256", "512", "1024", "2048",
                                            "3600", "3600", "3600"));
}

TEST_F(RetryEventsJob, ARunEndsAtItsBatchOrWhenItIsStopped) {
  for (int n = 1; n <= 5; ++n) Park(n);
  MoveClock(absl::Seconds(10), {.batch_size = 3});

  JobOutcome stopped;
  ASSERT_OK(scheduler_->retry().Run([] { return true; }, &stopped));
  EXPECT_EQ(stopped.found_count, 0);
  ASSERT_OK_AND_ASSIGN(const JobOutcome full, scheduler_->Run());
  EXPECT_EQ(full.found_count, 3);
  ASSERT_OK_AND_ASSIGN(const JobOutcome rest, scheduler_->Run());
  EXPECT_EQ(rest.found_count, 2);
}

TEST_F(RetryEventsJob, TwoSchedulersTryEachEventOnce) {
  constexpr int kEvents = 60;
  for (int n = 0; n < kEvents; ++n) {
    Park(n);
    Link(n);
  }
  MoveClock(absl::Seconds(10));
  ASSERT_OK_AND_ASSIGN(const auto other, SchedulerSide::Make(*database_, {}));
  JobOutcome outcomes[2];
  absl::Status statuses[2];
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      statuses[i] = (i == 0 ? *scheduler_ : *other)
                        .retry()
                        .Run([] { return false; }, &outcomes[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_OK(statuses[0]);
  EXPECT_OK(statuses[1]);
  EXPECT_EQ(outcomes[0].succeeded_count + outcomes[1].succeeded_count, kEvents);
  EXPECT_EQ(Scalar("SELECT count(*) FROM provider_event WHERE status = "
                   "'applied' AND attempt_count = 2"),
            absl::StrCat(kEvents));
  EXPECT_EQ(Scalar("SELECT count(*) FROM subscription"), absl::StrCat(kEvents));
}

TEST_F(RetryEventsJob, AnEventWhoseIdStoodInAHeaderKeepsIt) {
  const std::string body = absl::StrCat(
      R"({"type":"subscription.active","timestamp":"2026-01-01T00:00:00Z",)",
      R"("data":{"subscription_id":"sub_42","version":3,"subject":"user-1",)",
      R"("product_id":"price_late","period":{"starts_at":)",
      R"("2026-01-01T00:00:00Z","ends_at":"2027-02-01T00:00:00Z"},)",
      R"("payment":{"id":"pay_1","amount_minor":900,"currency":"EUR"}}})");
  ASSERT_OK_AND_ASSIGN(const store::RecordedEvent recorded,
                       scheduler_->Receive(body, "hooks", "msg_77"));
  ASSERT_EQ(recorded.reason, "unknown_plan");
  ASSERT_OK(session_->Exec(
      "INSERT INTO provider_product (route_name, product_id, plan_name) "
      "VALUES ('hooks', 'price_late', 'pro')"));

  MoveClock(absl::Seconds(10));
  ASSERT_OK_AND_ASSIGN(const JobOutcome outcome, scheduler_->Run());

  EXPECT_EQ(outcome.succeeded_count, 1);
  EXPECT_EQ(Scalar("SELECT DISTINCT event_id FROM subscription_fact"),
            "msg_77");
}

TEST_F(RetryEventsJob, C003_R4_WhatFailsIsRecordedAndTriedAgain) {
  Park(1);
  Link(1);
  MoveClock(absl::Seconds(10));
  ASSERT_OK(session_->Exec(R"sql(
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'refused by the test'; END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON provider_event
  FOR EACH ROW WHEN (new.status = 'applied') EXECUTE FUNCTION refuse())sql"));
  {
    scheduler::JobStore jobs(scheduler_->pool());
    scheduler::JobRunner runner(
        "retry_events", absl::Hours(1), "test",
        [this](const std::function<bool()>& stop, JobOutcome* outcome) {
          return scheduler_->retry().Run(stop, outcome);
        },
        jobs, SystemClock::Instance(), scheduler_->registry());
    // Runs at once, and by command: one of the two takes the event.
    ASSERT_OK(runner.Start());
    EXPECT_OK(runner.RunNow([] { return false; }).status());
  }
  EXPECT_EQ(Scalar("SELECT status FROM provider_event"), "failed");
  EXPECT_EQ(Scalar("SELECT sum(found_count) || ' ' || sum(failed_count) FROM "
                   "job_run WHERE job = 'retry_events'"),
            "1 1");

  ASSERT_OK(session_->Exec("DROP TRIGGER refuse ON provider_event"));
  MoveClock(absl::Minutes(10));
  ASSERT_OK_AND_ASSIGN(const JobOutcome outcome, scheduler_->Run());
  EXPECT_EQ(outcome.succeeded_count, 1);
  EXPECT_EQ(Scalar("SELECT status FROM provider_event"), "applied");
}

TEST_F(RetryEventsJob, R4_ADatabaseThatCannotWorkChangesNothingOfTheEvent) {
  Park(1);
  Link(1);
  MoveClock(absl::Seconds(10));
  const std::string before = Scalar("SELECT t::text FROM provider_event t");
  ASSERT_OK(session_->Exec("ALTER TABLE customer_link RENAME TO away"));
  EXPECT_THAT(scheduler_->Run(), Not(IsOk()));
  EXPECT_EQ(Scalar("SELECT t::text FROM provider_event t"), before);

  ASSERT_OK(session_->Exec("ALTER TABLE away RENAME TO customer_link"));
  ASSERT_OK_AND_ASSIGN(const JobOutcome outcome, scheduler_->Run());
  EXPECT_EQ(outcome.succeeded_count, 1);
}

// ---- gauges ----

class Gauges : public RetryEventsJob {
 protected:
  void SetUp() override {
    RetryEventsJob::SetUp();
    db::PoolOptions options;
    options.connection.conninfo = database_->conninfo();
    pool_ = std::make_shared<db::Pool>(options);
  }

  // `count` events of a route in a state, received and due `age` ago.
  void AddEvents(const std::string& route, const std::string& status, int count,
                 int age_seconds = 0) {
    const bool waits =
        status == "received" || status == "parked" || status == "failed";
    ASSERT_OK(session_->Exec(absl::StrCat(
        "INSERT INTO provider_event (route_id, account, livemode, "
        "external_event_id, event_type, body, body_sha256, occurred_at, "
        "received_at, status, next_attempt_at, processed_at) SELECT r.id, '', "
        "true, '",
        status,
        "' || i, 'x', '{}', sha256('{}'), tenure_now(), tenure_now() - ",
        age_seconds * 2, " * interval '1 second', '", status, "', ",
        waits ? absl::StrCat("tenure_now() - ", age_seconds,
                             " * interval '1 second', NULL")
              : std::string("NULL, tenure_now()"),
        " FROM route r, generate_series(1, ", count, ") i WHERE r.name = '",
        route, "'")));
  }

  // The gauges of a new process.
  std::string Render() {
    obs::Registry registry("webhook-ingest");
    {
      host::InboxGauges gauges(pool_, registry);
      EXPECT_OK(gauges.Refresh());
    }
    return registry.Render();
  }

  static std::string Line(const std::string& metrics,
                          const std::string& series) {
    const std::string start = absl::StrCat("tenure_webhook_ingest_", series);
    for (const absl::string_view line : absl::StrSplit(metrics, '\n')) {
      if (absl::StartsWith(line, start)) {
        return std::string(line.substr(start.size() + 1));
      }
    }
    return "(none)";
  }
  static std::string Count(const std::string& metrics, const std::string& route,
                           const std::string& state) {
    return Line(metrics, absl::StrCat("inbox_events{route=\"", route,
                                      "\",state=\"", state, "\"}"));
  }

  std::shared_ptr<db::Pool> pool_;
};

TEST_F(Gauges, TellWhatWaitsAndWhatWasGivenUpByRoute) {
  AddEvents("stripe", "received", 1, 5);
  AddEvents("stripe", "parked", 2, 300);
  AddEvents("stripe", "failed", 3, 10);
  AddEvents("stripe", "quarantined", 4);
  AddEvents("stripe", "dead", 5);
  AddEvents("stripe", "applied", 6);
  // Nobody's: a route that no process has is seen all the same.
  ASSERT_OK(
      session_->Exec("INSERT INTO route (name, kind, environment) VALUES "
                     "('gone', 'stripe', 'live')"));
  AddEvents("gone", "parked", 7);

  const std::string metrics = Render();

  EXPECT_EQ(Count(metrics, "stripe", "received"), "1");
  EXPECT_EQ(Count(metrics, "stripe", "parked"), "2");
  EXPECT_EQ(Count(metrics, "stripe", "failed"), "3");
  EXPECT_EQ(Count(metrics, "stripe", "quarantined"), "4");
  EXPECT_EQ(Count(metrics, "stripe", "dead"), "5");
  EXPECT_EQ(Count(metrics, "stripe", "applied"), "(none)");
  EXPECT_EQ(Count(metrics, "gone", "parked"), "7");
  EXPECT_EQ(Count(metrics, "hooks", "parked"), "0");
  const auto age = [&](const std::string& name, const std::string& route) {
    return std::stod(
        Line(metrics, absl::StrCat(name, "{route=\"", route, "\"}")));
  };
  EXPECT_GE(age("inbox_oldest_pending_age_seconds", "stripe"), 600);
  EXPECT_GE(age("inbox_oldest_due_age_seconds", "stripe"), 300);
  EXPECT_LT(age("inbox_oldest_due_age_seconds", "stripe"), 600);
  EXPECT_EQ(age("inbox_oldest_due_age_seconds", "hooks"), 0);
}

TEST_F(Gauges, AnEventThatIsNotDueYetIsNotOverdue) {
  AddEvents("stripe", "parked", 1, -3600);

  const std::string metrics = Render();

  EXPECT_EQ(Count(metrics, "stripe", "parked"), "1");
  EXPECT_EQ(Line(metrics, "inbox_oldest_due_age_seconds{route=\"stripe\"}"),
            "0");
}

TEST_F(Gauges, CountNoFurtherThanTheyCanTell) {
  AddEvents("stripe", "dead", host::InboxGauges::kMostCounted + 5);
  AddEvents("stripe", "parked", host::InboxGauges::kMostCounted + 5);

  const std::string metrics = Render();

  EXPECT_EQ(Count(metrics, "stripe", "dead"), "10000");
  EXPECT_EQ(Count(metrics, "stripe", "parked"), "10000");
}

TEST_F(Gauges, ReadThePartialIndexesOnly) {
  AddEvents("stripe", "applied", 30000);
  AddEvents("stripe", "parked", 200);
  AddEvents("stripe", "dead", 200);
  AddEvents("stripe", "quarantined", 10);
  ASSERT_OK(session_->Exec("ANALYZE provider_event"));
  ASSERT_OK(session_->Exec("SET plan_cache_mode = force_generic_plan"));
  ASSERT_OK(session_->Exec(absl::StrCat("PREPARE counts (bigint) AS ",
                                        host::kSelectInboxCounts.sql)));
  ASSERT_OK_AND_ASSIGN(
      const SqlRows explained,
      session_->Exec("EXPLAIN (COSTS OFF) EXECUTE counts (10000)"));
  std::string plan;
  for (const SqlRow& row : explained) absl::StrAppend(&plan, *row[0], "\n");
  EXPECT_THAT(plan, HasSubstr("provider_event_waiting"));
  EXPECT_THAT(plan, HasSubstr("provider_event_set_aside"));
  EXPECT_THAT(plan, Not(HasSubstr("Seq Scan on provider_event")));
  EXPECT_THAT(plan, Not(HasSubstr("provider_event_pkey")));
}

}  // namespace
}  // namespace tenure::test
