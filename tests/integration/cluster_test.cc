// The services as an operator and a provider see them: processes, HTTP, gRPC
// (through tenurectl) and SQL.

#include "tests/integration/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "tests/support/fault_proxy.h"
#include "tests/support/http_client.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace tenure::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kTenurectl[] = TENURE_BUILD_DIR "/tools/tenurectl/tenurectl";
constexpr char kDemo[] = TENURE_SOURCE_DIR "/scripts/demo.py";
constexpr char kBoundaryIgnored[] =
    TENURE_BUILD_DIR "/tests/integration/tenure-entitlement-ignores-boundary";

int64_t NowSeconds() {
  return absl::ToUnixSeconds(SystemClock::Instance().Now());
}

class ClusterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    ASSERT_OK_AND_ASSIGN(session_, database_->OpenSession());
    ASSERT_OK_AND_ASSIGN(cluster_, Cluster::Make(database_->conninfo()));
  }

  Finished Tenurectl(const std::vector<std::string>& args) {
    absl::StatusOr<Finished> finished = RunToEnd(kTenurectl, args);
    EXPECT_OK(finished.status());
    return finished.ok() ? *finished : Finished{};
  }

  void ApplyCatalog() {
    const Finished applied =
        Tenurectl({"catalog", "apply", cluster_->directory() + "/catalog.yaml",
                   "--conninfo", database_->conninfo()});
    ASSERT_TRUE(applied.status.ok()) << applied.output;
  }

  // The answer of Entitlement.Check as JSON.
  std::string Check(const std::string& subject) {
    return Tenurectl({"check", "--address",
                      cluster_->Address("entitlement_grpc"), "--subject",
                      subject, "--feature", "api"})
        .output;
  }

  std::string Sql(const std::string& query) {
    const auto value = session_->Scalar(query);
    EXPECT_OK(value.status()) << query;
    return value.ok() ? *value : "";
  }

  // Polls a state that only a process can bring about.
  bool AwaitHttp(const std::string& address, const std::string& path,
                 int status) {
    const Clock& clock = SystemClock::Instance();
    const absl::Duration deadline = clock.Monotonic() + kPatience;
    while (clock.Monotonic() < deadline) {
      const auto reply = HttpGet(address, path);
      if (reply.ok() && reply->status == status) return true;
    }
    return false;
  }

  // Polls /metrics for a gauge; `start` is its line up to the value.
  bool AwaitMetricAboveZero(const std::string& address,
                            const std::string& start) {
    const Clock& clock = SystemClock::Instance();
    const absl::Duration deadline = clock.Monotonic() + kPatience;
    while (clock.Monotonic() < deadline) {
      const auto reply = HttpGet(address, "/metrics");
      if (!reply.ok()) continue;
      const size_t at = reply->body.find("\n" + start);
      if (at != std::string::npos &&
          std::stod(reply->body.substr(at + 1 + start.size())) > 0) {
        return true;
      }
    }
    return false;
  }

  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Cluster> cluster_;
};

TEST_F(ClusterTest, S0_3_C039_DemoShowsAccessEndingWithTheSchedulerStopped) {
  ASSERT_OK(cluster_->StartIngest());
  ASSERT_OK(cluster_->StartEntitlement());
  ASSERT_OK(cluster_->StartScheduler());
  auto environment = cluster_->DemoEnvironment();
  environment["TENURE_DEMO_SECONDS"] = "15";

  ASSERT_OK_AND_ASSIGN(const Finished demo,
                       RunToEnd("python3", {kDemo}, environment));

  EXPECT_EQ(demo.status.code, 0) << demo.output;
  EXPECT_THAT(demo.output, HasSubstr("\ndemo: ok\n"));
}

TEST_F(ClusterTest, DemoFailsAgainstAnEntitlementThatIgnoresTheBoundary) {
  ASSERT_OK(cluster_->StartIngest());
  ASSERT_OK(cluster_->StartEntitlement(kBoundaryIgnored));
  ASSERT_OK(cluster_->StartScheduler());
  auto environment = cluster_->DemoEnvironment();
  environment["TENURE_DEMO_SECONDS"] = "15";

  ASSERT_OK_AND_ASSIGN(const Finished demo,
                       RunToEnd("python3", {kDemo}, environment));

  EXPECT_EQ(demo.status.code, 1) << demo.output;
  EXPECT_THAT(demo.output,
              HasSubstr("demo: failed. access after the end, with the "
                        "scheduler paused: expected no, got yes"));
}

TEST_F(ClusterTest, C002_RedeliveryAfterAKillBetweenCommitAndReplyHasNoEffect) {
  ASSERT_OK_AND_ASSIGN(const auto proxy,
                       FaultProxy::Start(database_->conninfo()));
  ASSERT_OK_AND_ASSIGN(cluster_,
                       Cluster::Make(proxy->Through(database_->conninfo())));
  ApplyCatalog();
  ASSERT_OK(cluster_->StartIngest());
  const int64_t start = NowSeconds();
  const std::string body =
      InvoicePaidBody("kill", "user-kill", start, start + 3600);
  // The commit is done and its answer never arrives: the process is killed in
  // exactly that state.
  proxy->CutAfterCommit();
  ASSERT_OK_AND_ASSIGN(const std::string first, cluster_->Post(body));
  EXPECT_THAT(first, StartsWith("503 ")) << "acknowledged in doubt";
  ASSERT_OK(cluster_->ingest().Signal(SIGKILL));
  ASSERT_OK(cluster_->ingest().Wait().status());
  const std::string before =
      Sql("SELECT string_agg(s::text, ' ') FROM subscription s");

  ASSERT_OK(cluster_->StartIngest());
  ASSERT_OK_AND_ASSIGN(const std::string second, cluster_->Post(body));

  EXPECT_THAT(second,
              AllOf(StartsWith("200 "), HasSubstr("\"duplicate\":true")));
  EXPECT_EQ(Sql("SELECT string_agg(s::text, ' ') FROM subscription s"), before);
  EXPECT_EQ(Sql("SELECT string_agg(event_type, ' ' ORDER BY seq)"
                " FROM subscription_event"),
            "subscription.created subscription.activated");
  EXPECT_EQ(Sql("SELECT count(*) FROM payment"), "1");
}

TEST_F(ClusterTest, TakesTheSameEventOverHttpAndShowsItOverGrpc) {
  ApplyCatalog();
  ASSERT_OK(cluster_->StartIngest());
  ASSERT_OK(cluster_->StartEntitlement());
  const int64_t start = NowSeconds();
  ASSERT_OK_AND_ASSIGN(
      const std::string answer,
      cluster_->Post(InvoicePaidBody("a", "user-a", start, start + 3600)));
  EXPECT_THAT(answer,
              AllOf(StartsWith("200 "), HasSubstr("\"state\":\"applied\"")));

  EXPECT_THAT(Check("user-a"),
              AllOf(HasSubstr("\"has_access\":true"),
                    HasSubstr("\"reason\":\"ACCESS_REASON_PAID\"")));
  EXPECT_THAT(Check("user-b"),
              HasSubstr("\"reason\":\"ACCESS_REASON_NO_SUBSCRIPTION\""));
  EXPECT_THAT(
      Tenurectl({"subscription", "list", "--address",
                 cluster_->Address("ingest_grpc"), "--subject", "user-a"})
          .output,
      AllOf(HasSubstr("\"state\":\"SUBSCRIPTION_STATE_ACTIVE\""),
            HasSubstr("\"provider_subscription_id\":\"sub_a\"")));
  EXPECT_TRUE(
      Tenurectl({"health", "--address", cluster_->Address("ingest_grpc")})
          .status.ok());
  const Finished bad =
      Tenurectl({"check", "--address", cluster_->Address("entitlement_grpc"),
                 "--subject", "user-a", "--feature", "bad\x01"});
  EXPECT_EQ(bad.status.code, 1);
  EXPECT_THAT(bad.output, HasSubstr("feature: must not contain control"));
}

TEST_F(ClusterTest, C140_AParkedEventIsAppliedOnceTheCatalogueKnowsItsPrice) {
  ASSERT_OK(cluster_->StartIngest());
  ASSERT_OK(cluster_->StartScheduler());
  const int64_t start = NowSeconds();
  ASSERT_OK_AND_ASSIGN(
      const std::string answer,
      cluster_->Post(InvoicePaidBody("p", "user-p", start, start + 3600)));
  EXPECT_THAT(answer,
              AllOf(StartsWith("200 "), HasSubstr("\"state\":\"parked\"")));
  EXPECT_EQ(Sql("SELECT reason FROM provider_event"), "unknown_plan");
  EXPECT_EQ(Sql("SELECT count(*) FROM subscription"), "0");

  ApplyCatalog();

  EXPECT_OK(session_->AwaitTrue(
      "SELECT count(*) = 1 FROM provider_event WHERE status = 'applied'"));
  EXPECT_EQ(Sql("SELECT status FROM subscription"), "ACTIVE");
  EXPECT_EQ(Sql("SELECT string_agg(event_type, ' ' ORDER BY seq)"
                " FROM subscription_event"),
            "subscription.created subscription.activated");
}

TEST_F(ClusterTest, C011_AnInvoiceBeforeItsCheckoutIsAppliedWithIt) {
  ApplyCatalog();
  ASSERT_OK(cluster_->StartIngest());
  ASSERT_OK(cluster_->StartScheduler());
  ASSERT_OK(cluster_->StartEntitlement());
  const int64_t start = NowSeconds();
  ASSERT_OK_AND_ASSIGN(
      const std::string parked,
      cluster_->Post(InvoicePaidBody("2", "", start, start + 3600)));
  EXPECT_THAT(parked,
              AllOf(StartsWith("200 "), HasSubstr("\"state\":\"parked\"")));
  EXPECT_EQ(Sql("SELECT reason FROM provider_event"), "no_subject");

  ASSERT_OK_AND_ASSIGN(
      const std::string linked,
      cluster_->Post(absl::StrCat(
          R"({"id":"evt_co","object":"event","livemode":false,)",
          R"("type":"checkout.session.completed","created":)", start + 1,
          R"(,"data":{"object":{"id":"cs_2","object":"checkout.session",)",
          R"("mode":"subscription","payment_status":"paid",)",
          R"("customer":"cus_2","subscription":"sub_2",)",
          R"("client_reference_id":"user-2","metadata":{}}}})")));
  EXPECT_THAT(linked,
              AllOf(StartsWith("200 "), HasSubstr("\"state\":\"applied\"")));

  // Without a redelivery.
  EXPECT_OK(session_->AwaitTrue(
      "SELECT count(*) = 2 FROM provider_event WHERE status = 'applied'"));
  EXPECT_THAT(Check("user-2"), HasSubstr("\"has_access\":true"));
}

TEST_F(ClusterTest, S4_25_S4_28_QuotaComesWithThePaymentAndEndsWithTheTerm) {
  const std::string file = cluster_->directory() + "/quota.yaml";
  std::ofstream(file) << "plans:\n"
                         "  - name: pro\n"
                         "    features: [{name: api}]\n"
                         "    quotas: [{meter: tokens, amount: 70}]\n"
                         "    provider_products:\n"
                         "      - {route: stripe, product_id: price_pro}\n";
  const Finished applied = Tenurectl(
      {"catalog", "apply", file, "--conninfo", database_->conninfo()});
  ASSERT_TRUE(applied.status.ok()) << applied.output;
  ASSERT_OK(cluster_->StartIngest());
  ASSERT_OK(cluster_->StartEntitlement());
  const auto quota = [&](const std::string& subject) {
    return Tenurectl({"quota", "--address",
                      cluster_->Address("entitlement_grpc"), "--subject",
                      subject, "--meter", "tokens"})
        .output;
  };
  const int64_t start = NowSeconds();
  // One term that goes on, one that ended a minute ago.
  ASSERT_OK(
      cluster_->Post(InvoicePaidBody("on", "user-on", start, start + 3600))
          .status());
  ASSERT_OK(
      cluster_
          ->Post(InvoicePaidBody("off", "user-off", start - 3600, start - 60))
          .status());
  EXPECT_THAT(quota("user-on"), HasSubstr("\"remaining\":\"70\""));
  EXPECT_THAT(quota("user-off"), Not(HasSubstr("\"remaining\":\"70\"")));
  EXPECT_THAT(quota("user-off"), HasSubstr("\"meter\":\"tokens\""));
  EXPECT_EQ(Sql("SELECT count(*) FROM quota_transaction"), "1");
}

TEST_F(ClusterTest, C012_AnEventOfNobodyIsDeadAfterTheParkingLimit) {
  ApplyCatalog();
  ASSERT_OK(cluster_->StartIngest());
  const int64_t start = NowSeconds();
  std::string body = InvoicePaidBody("n", "", start, start + 3600);
  ASSERT_OK_AND_ASSIGN(const std::string answer, cluster_->Post(body));
  EXPECT_THAT(answer, HasSubstr("\"state\":\"parked\""));

  // Short of the limit it is tried and waits on; past it, it is given up.
  ASSERT_OK(database_->SetClockOffset(absl::Hours(24 * 7) - absl::Minutes(5)));
  ASSERT_OK(cluster_->StartScheduler());
  EXPECT_OK(session_->AwaitTrue(
      "SELECT attempt_count > 1 AND status = 'parked' FROM provider_event"));
  ASSERT_OK(cluster_->scheduler().Stop().status());
  ASSERT_OK(database_->SetClockOffset(absl::Hours(24 * 7) + absl::Hours(2)));
  ASSERT_OK(cluster_->StartScheduler());

  EXPECT_OK(session_->AwaitTrue(
      "SELECT count(*) = 1 FROM provider_event WHERE status = 'dead' AND "
      "reason = 'no_subject'"));
  EXPECT_EQ(Sql("SELECT count(*) FROM subscription"), "0");
  EXPECT_EQ(Sql("SELECT count(*) FROM subject"), "0");
}

TEST_F(ClusterTest, S0_38_JobsArePausedResumedAndRunByCommand) {
  ASSERT_OK(cluster_->StartScheduler());
  const std::string address = cluster_->Address("scheduler_grpc");
  EXPECT_THAT(
      Tenurectl({"job", "pause", "subscription_maintenance", "--actor=test",
                 "--address", address})
          .output,
      AllOf(HasSubstr("\"paused\":true"), HasSubstr("\"paused_by\":\"test\"")));
  // A run by command works on a paused job too.
  EXPECT_THAT(Tenurectl({"job", "run", "subscription_maintenance", "--address",
                         address})
                  .output,
              HasSubstr("\"found_count\":\"0\""));
  EXPECT_THAT(Tenurectl({"job", "resume", "subscription_maintenance",
                         "--actor=test", "--address", address})
                  .output,
              HasSubstr("\"paused\":false"));
  EXPECT_THAT(Tenurectl({"job", "list", "--address", address}).output,
              HasSubstr("subscription_maintenance"));
  const Finished unknown =
      Tenurectl({"job", "run", "no_such_job", "--address", address});
  EXPECT_EQ(unknown.status.code, 1);
  EXPECT_THAT(unknown.output, HasSubstr("there is no job no_such_job"));
}

TEST_F(ClusterTest, S0_9_TheSweepsPeriodIsASetting) {
  for (const char* period : {"10s", "60s"}) {
    ASSERT_OK_AND_ASSIGN(
        const Finished printed,
        RunToEnd(TENURE_BUILD_DIR "/services/scheduler/tenure-scheduler",
                 {"--config=" + cluster_->directory() + "/scheduler.yaml",
                  "--database_conninfo=host=127.0.0.1",
                  "--grpc_listen=127.0.0.1:1", "--metrics_listen=127.0.0.1:1",
                  absl::StrCat("--subscription_maintenance_period=", period),
                  "--print-config"}));
    EXPECT_TRUE(printed.status.ok()) << printed.output;
    EXPECT_THAT(printed.output,
                HasSubstr(period == absl::string_view("60s") ? "period: 1m"
                                                             : "period: 10s"));
  }
  // The file's 200 ms: the job is registered with it and runs again and again.
  ASSERT_OK(cluster_->StartScheduler());
  EXPECT_EQ(Sql("SELECT period FROM job WHERE name = "
                "'subscription_maintenance'"),
            "00:00:00.2");
  const std::string first =
      Sql("SELECT coalesce(max(started_at), '-infinity')::text FROM job_run "
          "WHERE job = 'subscription_maintenance'");
  EXPECT_OK(session_->AwaitTrue(
      absl::StrCat("SELECT count(*) > 0 FROM job_run WHERE job = "
                   "'subscription_maintenance' AND started_at > '",
                   first, "'")));
}

TEST_F(ClusterTest, S0_41_ADeadSchedulerIsSeenByTheOtherServices) {
  ApplyCatalog();
  ASSERT_OK(cluster_->StartIngest());
  ASSERT_OK(cluster_->StartEntitlement());
  const int64_t start = NowSeconds();
  ASSERT_OK(cluster_->Post(InvoicePaidBody("o", "user-o", start, start + 2))
                .status());
  ASSERT_OK(session_->AwaitTrue(
      "SELECT access_until <= tenure_now() FROM subscription"));

  for (const auto& [probes, metric] :
       {std::pair("ingest_probes", "tenure_webhook_ingest_oldest_due_age_"),
        std::pair("entitlement_probes",
                  "tenure_entitlement_oldest_due_age_")}) {
    EXPECT_TRUE(AwaitMetricAboveZero(cluster_->Address(probes),
                                     absl::StrCat(metric, "seconds ")));
  }
}

TEST_F(ClusterTest, S0_41_R4_EventsThatNobodyTriesAreSeenByWebhookIngest) {
  ApplyCatalog();
  ASSERT_OK(cluster_->StartIngest());
  const int64_t start = NowSeconds();
  ASSERT_OK_AND_ASSIGN(
      const std::string answer,
      cluster_->Post(InvoicePaidBody("n", "", start, start + 3600)));
  ASSERT_THAT(answer, HasSubstr("\"state\":\"parked\""));
  ASSERT_OK(session_->AwaitTrue(
      "SELECT next_attempt_at <= tenure_now() FROM provider_event"));
  // A new process looks at once.
  ASSERT_OK(cluster_->ingest().Stop().status());
  ASSERT_OK(cluster_->StartIngest());

  EXPECT_TRUE(AwaitMetricAboveZero(
      cluster_->Address("ingest_probes"),
      "tenure_webhook_ingest_inbox_oldest_due_age_seconds{route=\"stripe\"} "));
  ASSERT_OK(cluster_->StartScheduler());
  EXPECT_TRUE(AwaitMetricAboveZero(
      cluster_->Address("scheduler_probes"),
      "tenure_scheduler_inbox_events{route=\"stripe\",state=\"parked\"} "));
}

TEST_F(ClusterTest, C023_AnEmptySecretFileStopsTheStart) {
  ASSERT_OK(WriteFile(cluster_->secret_file(), "\n"));
  ASSERT_OK_AND_ASSIGN(const auto ingest, cluster_->Launch("webhook-ingest"));
  ASSERT_OK_AND_ASSIGN(const ExitStatus status, ingest->Wait());
  EXPECT_NE(status.code, 0);
  EXPECT_EQ(status.signal, 0);
  EXPECT_THAT(ingest->Output(), HasSubstr(cluster_->secret_file()));
}

TEST_F(ClusterTest, AMissingKeyAWrongTypeAndAnUnknownKeyAreNamedTogether) {
  ASSERT_OK(WriteFile(cluster_->directory() + "/scheduler.yaml",
                      "subscription_maintenance:\n  batch_size: many\n"
                      "  perod: 10s\n"));
  ASSERT_OK_AND_ASSIGN(
      const Finished finished,
      RunToEnd(TENURE_BUILD_DIR "/services/scheduler/tenure-scheduler",
               {"--config=" + cluster_->directory() + "/scheduler.yaml"}));
  EXPECT_EQ(finished.status.code, 2);
  EXPECT_THAT(finished.output,
              AllOf(HasSubstr("subscription_maintenance.batch_size"),
                    HasSubstr("subscription_maintenance.perod"),
                    HasSubstr("database.conninfo"), HasSubstr("grpc.listen")));
}

TEST_F(ClusterTest, S0_43_ASchemaThatIsNotMigratedStopsTheStart) {
  ASSERT_OK(session_
                ->Exec("DELETE FROM schema_migration WHERE version = "
                       "(SELECT max(version) FROM schema_migration)",
                       {})
                .status());
  for (const char* service : {"webhook-ingest", "entitlement", "scheduler"}) {
    ASSERT_OK_AND_ASSIGN(const auto process, cluster_->Launch(service));
    ASSERT_OK_AND_ASSIGN(const ExitStatus status, process->Wait());
    EXPECT_EQ(status.code, 1) << service;
    EXPECT_THAT(process->Output(), HasSubstr("tenurectl migrate up"))
        << service;
  }
}

TEST_F(ClusterTest, C136_LivenessHoldsAndReadinessFollowsTheDatabase) {
  ASSERT_OK_AND_ASSIGN(const auto proxy,
                       FaultProxy::Start(database_->conninfo()));
  ASSERT_OK_AND_ASSIGN(cluster_,
                       Cluster::Make(proxy->Through(database_->conninfo())));
  ASSERT_OK(cluster_->StartEntitlement());
  const std::string probes = cluster_->Address("entitlement_probes");
  EXPECT_TRUE(AwaitHttp(probes, "/readyz", 200));

  proxy->Refuse(true);
  proxy->CutNow();
  EXPECT_TRUE(AwaitHttp(probes, "/readyz", 503));
  ASSERT_OK_AND_ASSIGN(const HttpReply live, HttpGet(probes, "/livez"));
  EXPECT_EQ(live.status, 200);
  const Finished check =
      Tenurectl({"check", "--address", cluster_->Address("entitlement_grpc"),
                 "--subject", "x", "--feature", "api"});
  EXPECT_EQ(check.status.code, 1);
  EXPECT_THAT(check.output, HasSubstr("cannot connect to the database"));

  proxy->Heal();
  EXPECT_TRUE(AwaitHttp(probes, "/readyz", 200));
  EXPECT_THAT(Check("x"), HasSubstr("ACCESS_REASON_NO_SUBSCRIPTION"));
}

TEST_F(ClusterTest, AServiceWaitsForADatabaseThatIsAwayAtItsStart) {
  ASSERT_OK_AND_ASSIGN(const auto proxy,
                       FaultProxy::Start(database_->conninfo()));
  ASSERT_OK_AND_ASSIGN(cluster_,
                       Cluster::Make(proxy->Through(database_->conninfo())));
  proxy->Refuse(true);
  ASSERT_OK_AND_ASSIGN(const auto scheduler, cluster_->Launch("scheduler"));
  ASSERT_OK(scheduler->AwaitLine("waiting for the database").status());

  proxy->Heal();

  EXPECT_OK(scheduler->AwaitLine("\"started\"").status());
  ASSERT_OK_AND_ASSIGN(const ExitStatus status, scheduler->Stop());
  EXPECT_TRUE(status.ok()) << status << scheduler->Output();
}

TEST_F(ClusterTest, C116_SigtermAnswersWhatWasAcceptedAndEndsWithZero) {
  ApplyCatalog();
  ASSERT_OK(cluster_->StartIngest());
  ASSERT_OK(cluster_->StartEntitlement());
  ASSERT_OK(cluster_->StartScheduler());
  // A delivery that waits on a lock while the signal comes.
  const int64_t start = NowSeconds();
  ASSERT_OK(cluster_->Post(InvoicePaidBody("d", "user-d", start, start + 60))
                .status());
  ASSERT_OK(session_->Exec("BEGIN", {}).status());
  // A subscription that is locked would be passed by; the whole inbox cannot
  // be.
  ASSERT_OK(session_->Exec(
      "LOCK TABLE provider_event IN SHARE ROW EXCLUSIVE MODE", {}));
  absl::StatusOr<std::string> answer;
  std::thread delivery([&] {
    std::string renewal = InvoicePaidBody("d", "user-d", start, start + 120);
    renewal.replace(renewal.find("evt_d"), 5, "evt_e");
    renewal.replace(renewal.find("in_d"), 4, "in_e");
    answer = cluster_->Post(renewal);
  });
  ASSERT_OK_AND_ASSIGN(const auto watcher, database_->OpenSession());
  EXPECT_OK(watcher->AwaitTrue(
      "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = "
      "current_database() AND wait_event_type = 'Lock'"));
  ASSERT_OK(cluster_->ingest().Signal(SIGTERM));
  EXPECT_OK(cluster_->ingest().AwaitLine("\"ending\"").status());
  ASSERT_OK(session_->Exec("ROLLBACK", {}).status());

  delivery.join();

  ASSERT_OK(answer.status());
  EXPECT_THAT(*answer,
              AllOf(StartsWith("200 "), HasSubstr("\"state\":\"applied\"")));
  for (Process* process : {&cluster_->ingest(), &cluster_->entitlement(),
                           &cluster_->scheduler()}) {
    // The first one has had its signal.
    if (process != &cluster_->ingest()) {
      ASSERT_OK(process->Signal(SIGTERM));
    }
    ASSERT_OK_AND_ASSIGN(const ExitStatus status, process->Wait());
    EXPECT_TRUE(status.ok()) << status << process->Output();
  }
}

TEST_F(ClusterTest, C137_NoSecretSignatureOrBodyReachesTheLogOrTheMetrics) {
  ApplyCatalog();
  ASSERT_OK(cluster_->StartIngest({"--log_level=debug"}));
  const int64_t start = NowSeconds();
  const std::string body =
      InvoicePaidBody("canary", "canary-in-body", start, start + 60);
  ASSERT_OK(cluster_->Post(body).status());
  ASSERT_OK(cluster_->Post(body).status());
  ASSERT_OK(HttpPost(cluster_->Address("http"), "/v1/webhooks/stripe", body,
                     {{"Stripe-Signature", "t=1,v1=canaryinsignature"}})
                .status());
  ASSERT_OK_AND_ASSIGN(const HttpReply metrics,
                       HttpGet(cluster_->Address("ingest_probes"), "/metrics"));
  EXPECT_EQ(metrics.status, 200);
  EXPECT_THAT(metrics.body,
              HasSubstr("tenure_webhook_ingest_events_total{class=\"payment\","
                        "outcome=\"applied\",route=\"stripe\"} 1"));
  ASSERT_OK(cluster_->ingest().Stop().status());
  for (const std::string& text : {cluster_->ingest().Output(), metrics.body}) {
    EXPECT_THAT(text, AllOf(Not(HasSubstr("canary-in-body")),
                            Not(HasSubstr("canaryinsignature")),
                            Not(HasSubstr("whsec_"))));
  }
  EXPECT_THAT(cluster_->ingest().Output(), HasSubstr("evt_canary"));
}

TEST_F(ClusterTest, C137_APasswordBesideAUriReachesNoOutput) {
  const std::string password_file = cluster_->directory() + "/password";
  ASSERT_OK(WriteFile(password_file, "canary' &pass=word%\n"));
  const std::string server =
      absl::StrCat("postgresql://", Sql("SELECT current_user"),
                   "@127.0.0.1:", Sql("SHOW port"), "/");
  const Finished right = Tenurectl({"migrate", "status",
                                    "--conninfo=" + server + database_->name(),
                                    "--password-file=" + password_file});
  EXPECT_TRUE(right.status.ok()) << right.output;
  EXPECT_THAT(right.output, HasSubstr("applied"));

  const Finished wrong =
      Tenurectl({"migrate", "status", "--conninfo=" + server + "no_such_base",
                 "--password-file=" + password_file});
  EXPECT_EQ(wrong.status.code, 1);
  EXPECT_THAT(wrong.output,
              AllOf(HasSubstr("no_such_base"), Not(HasSubstr("canary"))));
}

TEST_F(ClusterTest, R15_AnEntitlementOfTheOtherEnvironmentSeesNothing) {
  ApplyCatalog();
  ASSERT_OK(cluster_->StartIngest());
  ASSERT_OK(cluster_->StartEntitlement("", {"--environment=live"}));
  const int64_t start = NowSeconds();
  ASSERT_OK(cluster_->Post(InvoicePaidBody("t", "user-t", start, start + 60))
                .status());
  EXPECT_THAT(Check("user-t"), HasSubstr("ACCESS_REASON_NO_SUBSCRIPTION"));
}

}  // namespace
}  // namespace tenure::test
