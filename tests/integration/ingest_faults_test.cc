// webhook-ingest under faults: real processes over a real PostgreSQL, and a
// provider whose books say afterwards what was acknowledged. Nothing that got a
// 2xx is lost, nothing counts twice.
//
// TENURE_FAULT_ROUNDS=N makes N rounds of each repeated fault,
// TENURE_FAULT_SEED=N repeats a run's choices.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/substitute.h"
#include "common/base/clock.h"
#include "tests/integration/cluster.h"
#include "tests/support/fault_proxy.h"
#include "tests/support/pg_cluster.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"
#include "tests/support/webhook_sender.h"

namespace tenure::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Event = WebhookSender::Event;
using Totals = WebhookSender::Totals;

constexpr char kTenurectl[] = TENURE_BUILD_DIR "/tools/tenurectl/tenurectl";
constexpr char kPath[] = "/v1/webhooks/stripe";
constexpr int64_t kMonth = 30 * 24 * 3600;
// What the process may take to end after SIGTERM.
constexpr absl::Duration kEndWithin = absl::Seconds(25);

// Not the product's SHA-256.
std::string Sha256Hex(absl::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(), nullptr);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<char*>(digest), size));
}

int Rounds(int usual) {
  const char* text = std::getenv("TENURE_FAULT_ROUNDS");
  int rounds = 0;
  return text != nullptr && absl::SimpleAtoi(text, &rounds) ? rounds : usual;
}

// One invoice of a subscription: month `month` of `months`, the last of which
// is the present one.
struct Invoice {
  std::string event_id;
  std::string invoice_id;
  std::string subscription_id;
  int64_t start = 0;
};

std::string BodyOf(const Invoice& invoice) {
  const absl::string_view key =
      absl::string_view(invoice.subscription_id).substr(4);
  return absl::Substitute(
      R"({"id": "$0", "object": "event", "type": "invoice.paid",
 "created": $3, "livemode": false, "data": {"object": {"id": "$1",
 "object": "invoice", "amount_paid": 2000, "currency": "usd",
 "customer": "cus_$2", "parent": {"type": "subscription_details",
 "subscription_details": {"subscription": "sub_$2",
 "metadata": {"tenure_subject": "user-$2"}}},
 "lines": {"data": [{"parent": {"type": "subscription_item_details"},
 "period": {"start": $3, "end": $4},
 "pricing": {"price_details": {"price": "price_pro"}}}]}}}})",
      invoice.event_id, invoice.invoice_id, key, invoice.start,
      invoice.start + kMonth);
}

class IngestFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    uint64_t seed = std::random_device()();
    if (const char* text = std::getenv("TENURE_FAULT_SEED")) {
      ASSERT_TRUE(absl::SimpleAtoi(text, &seed));
    }
    std::cout << "TENURE_FAULT_SEED=" << seed << std::endl;
    random_.seed(seed);
    now_ = absl::ToUnixSeconds(SystemClock::Instance().Now());
    ASSERT_OK_AND_ASSIGN(database_, MakeDatabase());
    ASSERT_OK(UseDatabase(database_->conninfo()));
    // One monthly release a paid month, so that what counts twice shows in the
    // ledger too.
    const std::string file = cluster_->directory() + "/quota.yaml";
    ASSERT_OK(WriteFile(file,
                        "plans:\n  - name: pro\n    features: [{name: api}]\n"
                        "    quotas: [{meter: tokens, amount: 100}]\n"
                        "    provider_products:\n"
                        "      - {route: stripe, product_id: price_pro}\n"));
    const auto applied = RunToEnd(
        kTenurectl,
        {"catalog", "apply", file, "--conninfo", database_->conninfo()});
    ASSERT_OK(applied.status());
    ASSERT_TRUE(applied->status.ok()) << applied->output;
  }

  virtual absl::StatusOr<std::unique_ptr<TestDatabase>> MakeDatabase() {
    return TestDatabase::Create();
  }

  // The service of this test reaches the database by `conninfo`.
  absl::Status UseDatabase(const std::string& conninfo) {
    absl::StatusOr<std::unique_ptr<Cluster>> cluster = Cluster::Make(conninfo);
    if (!cluster.ok()) return cluster.status();
    cluster_ = *std::move(cluster);
    return absl::OkStatus();
  }

  WebhookSender::Options SenderOptions() {
    WebhookSender::Options options;
    options.addresses = {cluster_->Address("http")};
    options.path = kPath;
    options.sign = [this](absl::string_view body) {
      return cluster_->StripeHeaders(body);
    };
    return options;
  }

  int Pick(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random_);
  }

  // The next `count` events of a provider with many customers: invoices of
  // subscriptions of several months, some of them a second event of the same
  // invoice, checkouts, and events that mean nothing to us, in an order of
  // chance.
  std::vector<Event> Traffic(int count) {
    std::vector<Event> events;
    while (static_cast<int>(events.size()) < count) {
      if (Pick(0, 9) == 0) {
        const std::string id = absl::StrCat("evt_other_", ++numbered_);
        events.push_back(
            {id, absl::Substitute(
                     R"({"id":"$0","object":"event","type":"product.updated",)"
                     R"("created":$1,"livemode":false,"data":{"object":{)"
                     R"("id":"prod_1","object":"product"}}})",
                     id, now_)});
        continue;
      }
      const int months = Pick(1, 4);
      const std::string key = absl::StrCat(++numbered_);
      if (Pick(0, 3) == 0) events.push_back(Checkout(key));
      for (int month = 0; month < months; ++month) {
        Invoice invoice;
        invoice.event_id = absl::StrCat("evt_", key, "_", month);
        invoice.invoice_id = absl::StrCat("in_", key, "_", month);
        invoice.subscription_id = absl::StrCat("sub_", key);
        invoice.start = now_ - 3600 - (months - 1 - month) * kMonth;
        events.push_back(Pay(invoice));
        if (Pick(0, 7) == 0) {
          invoice.event_id += "_again";
          events.push_back(Pay(invoice));
        }
      }
    }
    std::shuffle(events.begin(), events.end(), random_);
    return events;
  }

  // Says whose the customer of a subscription is; such events are not committed
  // together with others.
  Event Checkout(const std::string& key) {
    const std::string id = "evt_checkout_" + key;
    return {id,
            absl::Substitute(
                R"({"id":"$0","object":"event","livemode":false,"created":$1,)"
                R"("type":"checkout.session.completed","data":{"object":{)"
                R"("id":"cs_$2","object":"checkout.session",)"
                R"("mode":"subscription","payment_status":"paid",)"
                R"("customer":"cus_$2","subscription":"sub_$2",)"
                R"("client_reference_id":"user-$2","metadata":{}}}})",
                id, now_ - 3600, key)};
  }

  // An event of the invoice, which counts from now on among what is paid.
  Event Pay(const Invoice& invoice) {
    paid_[invoice.subscription_id][invoice.invoice_id] = invoice.start;
    return {invoice.event_id, BodyOf(invoice)};
  }

  Event FirstInvoiceOf(const std::string& key) {
    return Pay({"evt_" + key, "in_" + key, "sub_" + key, now_ - 3600});
  }

  std::string Sql(const std::string& query) {
    const auto rows = ExecOnce(database_->conninfo(), query);
    EXPECT_OK(rows.status()) << query;
    if (!rows.ok() || rows->size() != 1 || rows->front().size() != 1) return "";
    return rows->front().front().value_or("");
  }

  // Number of rows of the event's id in the inbox.
  int64_t Stored(const std::string& event_id) {
    const auto rows = ExecOnce(database_->conninfo(),
                               "SELECT 1 FROM provider_event WHERE "
                               "external_event_id = $1",
                               {event_id});
    EXPECT_OK(rows.status());
    return rows.ok() ? static_cast<int64_t>(rows->size()) : -1;
  }

  // After the last fault: nothing acknowledged is without effect any more. The
  // scheduler tries what waits.
  void AwaitNothingWaits() {
    ASSERT_OK(cluster_->StartScheduler());
    absl::StatusOr<std::unique_ptr<Session>> session =
        Session::Open(database_->conninfo());
    ASSERT_OK(session.status());
    EXPECT_OK((*session)->AwaitTrue(
        "SELECT count(*) = 0 FROM provider_event WHERE status IN ('received', "
        "'failed')"))
        << Sql("SELECT string_agg(concat_ws(' ', external_event_id, status, "
               "reason, attempt_count, next_attempt_at, last_error), '; ') "
               "FROM provider_event WHERE status IN ('received', 'failed')");
  }

  // Every 2xx has its row with the body that was sent, no row is of an event
  // that was never sent, and every acknowledged event is settled.
  void ExpectInboxMatches(
      const std::map<std::string, WebhookSender::Entry>& ledger) {
    const auto rows = ExecOnce(
        database_->conninfo(),
        "SELECT external_event_id, encode(body_sha256, 'hex'), status, reason "
        "FROM provider_event ORDER BY external_event_id");
    ASSERT_OK(rows.status());
    std::map<std::string, SqlRow> stored;
    for (const SqlRow& row : *rows) {
      EXPECT_TRUE(stored.emplace(*row[0], row).second) << "twice: " << *row[0];
      EXPECT_EQ(ledger.count(*row[0]), 1u) << "never sent: " << *row[0];
    }
    for (const auto& [id, entry] : ledger) {
      if (!entry.acknowledged()) continue;
      const auto row = stored.find(id);
      if (row == stored.end()) {
        ADD_FAILURE() << "acknowledged and not stored: " << id;
        continue;
      }
      EXPECT_EQ(row->second[1], Sha256Hex(entry.event.body)) << id;
      const std::string status = *row->second[2];
      EXPECT_TRUE(status == "applied" || status == "noop" ||
                  status == "ignored" ||
                  (status == "parked" && !row->second[3]->empty()))
          << id << " is " << status << " " << *row->second[3];
    }
    EXPECT_EQ(Sql("SELECT count(*) FROM event_conflict"), "0");
  }

  // Each invoice counted once, whatever happened: in payments, facts, terms,
  // history and the ledger.
  void ExpectEachInvoiceCountedOnce() {
    const auto rows = ExecOnce(
        database_->conninfo(),
        "SELECT provider_subscription_id,"
        "  (SELECT count(*) FROM payment p WHERE p.subscription_id = s.id),"
        "  (SELECT coalesce(sum(amount_minor), 0) FROM payment p"
        "    WHERE p.subscription_id = s.id),"
        "  (SELECT count(DISTINCT money_key) FROM subscription_fact f"
        "    WHERE f.subscription_id = s.id AND money_key IS NOT NULL),"
        "  (SELECT count(*) - count(DISTINCT (event_id, ordinal))"
        "     FROM subscription_fact f WHERE f.subscription_id = s.id),"
        "  extract(epoch FROM expires_at)::bigint,"
        "  event_seq - (SELECT count(*) FROM subscription_event e"
        "                WHERE e.subscription_id = s.id),"
        "  (SELECT count(*) - count(DISTINCT business_key)"
        "     FROM subscription_event e WHERE e.subscription_id = s.id),"
        "  (SELECT count(*) FROM subscription_event e"
        "    WHERE e.subscription_id = s.id"
        "      AND event_type = 'subscription.created'),"
        "  (SELECT coalesce(sum(delta), 0)"
        "     FROM quota_transaction t WHERE t.subscription_id = s.id),"
        "  (SELECT count(*) FROM quota_grant g WHERE g.subscription_id = s.id)"
        " FROM subscription s ORDER BY 1");
    ASSERT_OK(rows.status());
    std::map<std::string, SqlRow> stored;
    for (const SqlRow& row : *rows) {
      EXPECT_TRUE(stored.emplace(*row[0], row).second) << "two of " << *row[0];
    }
    EXPECT_EQ(stored.size(), paid_.size());
    for (const auto& [subscription, invoices] : paid_) {
      int64_t end = 0;
      for (const auto& [id, start] : invoices) {
        end = std::max(end, start + kMonth);
      }
      const auto row = stored.find(subscription);
      if (row == stored.end()) {
        ADD_FAILURE() << "no subscription " << subscription;
        continue;
      }
      const auto count = absl::StrCat(invoices.size());
      EXPECT_THAT(
          row->second,
          ElementsAre(subscription, count, absl::StrCat(2000 * invoices.size()),
                      count, "0", absl::StrCat(end), "0", "0", "1",
                      absl::StrCat(100 * invoices.size()), count))
          << "subscription, payments, money, facts of money, doubled facts, "
             "end, history missing, history doubled, created, ledger, grants";
    }
    EXPECT_EQ(Sql("SELECT count(*) FROM subject"), absl::StrCat(paid_.size()));
  }

  // What is stored is what the stored facts add up to.
  void ExpectFoldedAnewIsTheSame() {
    const auto refold =
        RunToEnd(kTenurectl, {"refold", "--all", "--environment", "test",
                              "--conninfo", database_->conninfo()});
    ASSERT_OK(refold.status());
    EXPECT_EQ(refold->status.code, 0) << refold->output;
    EXPECT_THAT(refold->output,
                HasSubstr(absl::StrCat(paid_.size(), " examined, 0 would")));
  }

  // After a quiet phase, in which the sender got a 2xx for everything.
  void ExpectNothingLostAndNothingTwice(const WebhookSender& sender) {
    ASSERT_TRUE(sender.AwaitAllAcknowledged()) << Summary(sender);
    AwaitNothingWaits();
    ExpectInboxMatches(sender.Ledger());
    ExpectEachInvoiceCountedOnce();
    ExpectFoldedAnewIsTheSame();
    std::cout << Summary(sender) << std::endl;
  }

  // Answers that are none of those that a provider may get in a fault.
  void ExpectOnlyAnswers(const WebhookSender& sender) {
    for (const auto& [id, entry] : sender.Ledger()) {
      for (const WebhookSender::Attempt& attempt : entry.attempts) {
        EXPECT_THAT(attempt.status, AnyOf(0, 200, 503))
            << id << " " << attempt.reply.body;
        if (attempt.status == 503) {
          EXPECT_TRUE(attempt.reply.Header("Retry-After").has_value())
              << attempt.reply.body;
        }
      }
    }
  }

  static std::string Summary(const WebhookSender& sender) {
    const Totals totals = sender.totals();
    std::string text = absl::StrCat(
        totals.events, " events, ", totals.acknowledged, " acknowledged, ",
        totals.attempts, " deliveries, ", totals.unanswered, " unanswered");
    for (const auto& [status, count] : totals.answers) {
      absl::StrAppend(&text, ", ", count, " x ", status);
    }
    return text;
  }

  // Waits until the sender's books have `more` acknowledged events than now.
  static bool AwaitMoreAcknowledged(const WebhookSender& sender, int more) {
    const int64_t wanted = sender.totals().acknowledged + more;
    return sender.Await([wanted](const Totals& totals) {
      return totals.acknowledged >= std::min(wanted, totals.events);
    });
  }

  static bool AwaitMoreAnswers(const WebhookSender& sender, int status,
                               int more) {
    const int64_t wanted = sender.totals().Answers(status) + more;
    return sender.Await([status, wanted](const Totals& totals) {
      return totals.Answers(status) >= wanted;
    });
  }

  void KillIngest() {
    ASSERT_OK(cluster_->ingest().Signal(SIGKILL));
    ASSERT_OK(cluster_->ingest().Wait().status());
  }

  std::mt19937_64 random_;
  int64_t now_ = 0;
  int numbered_ = 0;
  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<Cluster> cluster_;
  // Start of each paid month, by invoice, by subscription.
  std::map<std::string, std::map<std::string, int64_t>> paid_;
};

TEST_F(IngestFaults, F02_C002_KilledBetweenCommitAndReplyCountsOnce) {
  ASSERT_OK_AND_ASSIGN(const auto proxy,
                       FaultProxy::Start(database_->conninfo()));
  ASSERT_OK(UseDatabase(proxy->Through(database_->conninfo())));
  ASSERT_OK(cluster_->StartIngest());
  WebhookSender sender(SenderOptions());
  sender.SetRedelivery(false);
  const Event event = FirstInvoiceOf("kill");
  // The commit is done, the service waits for its answer, the provider for
  // ours.
  proxy->HoldAfterCommit();
  sender.Send({event});
  ASSERT_TRUE(proxy->AwaitHeld(1));
  EXPECT_EQ(Stored(event.id), 1);
  KillIngest();
  ASSERT_TRUE(sender.AwaitQuiet());
  EXPECT_EQ(sender.totals().unanswered, 1) << Summary(sender);
  proxy->Heal();
  const std::string before =
      Sql("SELECT string_agg(s::text, ' ') FROM subscription s");

  ASSERT_OK(cluster_->StartIngest());
  sender.SendAllAgain();
  ASSERT_TRUE(sender.AwaitQuiet());
  EXPECT_EQ(sender.totals().Answers(200), 1) << Summary(sender);
  // The provider's last try, days later.
  ASSERT_OK(cluster_->ingest().Stop().status());
  ASSERT_OK(database_->SetClockOffset(absl::Hours(72)));
  ASSERT_OK(cluster_->StartIngest());
  sender.SendAllAgain();
  ASSERT_TRUE(sender.AwaitQuiet());

  EXPECT_EQ(sender.totals().Answers(200), 2) << Summary(sender);
  EXPECT_THAT(sender.Ledger().at(event.id).attempts.back().reply.body,
              HasSubstr("\"duplicate\":true"));
  EXPECT_EQ(Sql("SELECT string_agg(s::text, ' ') FROM subscription s"), before);
  ExpectNothingLostAndNothingTwice(sender);
}

TEST_F(IngestFaults, F02_C002_RepliesSwallowedOnTheWayCountOnce) {
  ASSERT_OK(cluster_->StartIngest());
  std::pair<std::string, std::string> address =
      absl::StrSplit(cluster_->Address("http"), ':');
  ASSERT_OK_AND_ASSIGN(
      const auto proxy,
      FaultProxy::StartPlain(address.first, std::stoi(address.second)));
  WebhookSender::Options options = SenderOptions();
  options.addresses = {absl::StrCat("127.0.0.1:", proxy->port())};
  WebhookSender sender(options);
  const std::vector<Event> events = Traffic(40);
  // Every connection ends with the first byte of an answer.
  proxy->CutAfterBytes(FaultProxy::Direction::kToClient, 0);
  sender.Send(events);
  ASSERT_TRUE(sender.Await([](const Totals& totals) {
    return totals.unanswered >= 60;
  })) << Summary(sender);
  EXPECT_EQ(sender.totals().acknowledged, 0);
  EXPECT_NE(Sql("SELECT count(*) FROM provider_event"), "0");
  KillIngest();
  proxy->Heal();
  ASSERT_OK(cluster_->StartIngest());

  ExpectNothingLostAndNothingTwice(sender);
}

TEST_F(IngestFaults, F01_KilledAtRandomUnderLoad) {
  ASSERT_OK(cluster_->StartIngest());
  WebhookSender sender(SenderOptions());
  for (int round = 0; round < Rounds(5); ++round) {
    sender.Send(Traffic(80), Pick(1, 2));
    ASSERT_TRUE(AwaitMoreAcknowledged(sender, Pick(1, 60))) << Summary(sender);
    KillIngest();
    ASSERT_OK(cluster_->StartIngest());
  }
  ExpectNothingLostAndNothingTwice(sender);
  ExpectOnlyAnswers(sender);
}

TEST_F(IngestFaults, F15_C103_CutAroundCommitIsNeverAcknowledgedInDoubt) {
  ASSERT_OK_AND_ASSIGN(const auto proxy,
                       FaultProxy::Start(database_->conninfo()));
  ASSERT_OK(UseDatabase(proxy->Through(database_->conninfo())));
  ASSERT_OK(cluster_->StartIngest());
  WebhookSender sender(SenderOptions());
  // One at a time: at every 2xx the row is there, whatever the cut did.
  for (int round = 0; round < Rounds(6); ++round) {
    const Event event = FirstInvoiceOf(absl::StrCat("doubt-", round));
    const int64_t cuts = proxy->counters().cuts;
    const bool before = round % 2 == 0;
    sender.SetRedelivery(false);
    before ? proxy->CutBeforeCommit() : proxy->CutAfterCommit();
    sender.Send({event});
    ASSERT_TRUE(proxy->AwaitCuts(cuts + 1));
    ASSERT_TRUE(sender.AwaitQuiet());
    const WebhookSender::Entry entry = sender.Ledger().at(event.id);
    EXPECT_THAT(entry.attempts.back().status, AnyOf(200, 503));
    EXPECT_EQ(Stored(event.id), entry.acknowledged() || !before ? 1 : 0);
    sender.SetRedelivery(true);
    ASSERT_TRUE(sender.AwaitAllAcknowledged()) << Summary(sender);
  }
  // Under load, both kinds in turns.
  for (int round = 0; round < Rounds(6); ++round) {
    sender.Send(Traffic(40));
    const int64_t cuts = proxy->counters().cuts;
    const int times = Pick(1, 4);
    round % 2 == 0 ? proxy->CutBeforeCommit(times)
                   : proxy->CutAfterCommit(times);
    // The retries of waiting events commit too, so there is always a next one.
    ASSERT_TRUE(proxy->AwaitCuts(cuts + 1));
  }
  proxy->Heal();

  ExpectNothingLostAndNothingTwice(sender);
  ExpectOnlyAnswers(sender);
}

TEST_F(IngestFaults, F06_F07_SessionsTerminatedAndCancelledAgainAndAgain) {
  ASSERT_OK(cluster_->StartIngest());
  WebhookSender sender(SenderOptions());
  for (int round = 0; round < Rounds(10); ++round) {
    sender.Send(Traffic(40));
    ASSERT_TRUE(AwaitMoreAcknowledged(sender, Pick(1, 30))) << Summary(sender);
    if (round % 2 == 0) {
      ASSERT_OK(database_->TerminateSessions());
    } else {
      ASSERT_OK(ExecOnce(database_->conninfo(),
                         "SELECT pg_cancel_backend(pid) FROM pg_stat_activity "
                         "WHERE datname = current_database() AND pid <> "
                         "pg_backend_pid()"));
    }
  }
  ExpectNothingLostAndNothingTwice(sender);
  ExpectOnlyAnswers(sender);
}

TEST_F(IngestFaults, F12_AnExhaustedPoolIsAnswered503AndHeals) {
  ASSERT_OK(cluster_->StartIngest({"--database_pool_size=2",
                                   "--database_acquire_timeout=200ms",
                                   "--database_lock_timeout=1s"}));
  WebhookSender::Options options = SenderOptions();
  options.connections = 24;
  WebhookSender sender(options);
  sender.Send(Traffic(40));
  ASSERT_TRUE(sender.AwaitAllAcknowledged()) << Summary(sender);
  ASSERT_OK_AND_ASSIGN(const auto blocker, database_->OpenSession());
  ASSERT_OK(blocker->Exec("BEGIN"));
  ASSERT_OK(blocker->Exec("LOCK TABLE provider_event IN EXCLUSIVE MODE"));
  const int64_t acknowledged = sender.totals().acknowledged;

  sender.Send(Traffic(60));
  ASSERT_TRUE(AwaitMoreAnswers(sender, 503, 60)) << Summary(sender);
  EXPECT_EQ(sender.totals().acknowledged, acknowledged)
      << "a 2xx without a row";
  ASSERT_OK_AND_ASSIGN(const HttpReply live,
                       HttpGet(cluster_->Address("ingest_probes"), "/livez"));
  EXPECT_EQ(live.status, 200);
  ASSERT_OK(blocker->Exec("ROLLBACK"));

  ExpectNothingLostAndNothingTwice(sender);
  ExpectOnlyAnswers(sender);
}

TEST_F(IngestFaults, F12_C003_R4_ALockedSubscriptionHoldsUpNobodyElse) {
  ASSERT_OK(cluster_->StartIngest());
  WebhookSender::Options options = SenderOptions();
  options.connections = 24;
  WebhookSender hot(options);
  WebhookSender others(options);
  hot.Send({FirstInvoiceOf("hot")});
  ASSERT_TRUE(hot.AwaitAllAcknowledged()) << Summary(hot);
  ASSERT_OK_AND_ASSIGN(const auto blocker, database_->OpenSession());
  ASSERT_OK(blocker->Exec("BEGIN"));
  ASSERT_OK(
      blocker->Exec("SELECT id FROM subscription WHERE "
                    "provider_subscription_id = 'sub_hot' FOR UPDATE"));
  // More than there are workers and sessions.
  std::vector<Event> renewals;
  for (int month = 1; month <= 20; ++month) {
    renewals.push_back(
        Pay({absl::StrCat("evt_hot_", month), absl::StrCat("in_hot_", month),
             "sub_hot", now_ - 3600 - month * kMonth}));
  }

  hot.Send(renewals);
  others.Send(Traffic(120));

  // All while the lock is held.
  EXPECT_TRUE(others.AwaitAllAcknowledged()) << Summary(others);
  EXPECT_TRUE(hot.AwaitAllAcknowledged()) << Summary(hot);
  EXPECT_EQ(hot.totals().Answers(200), 21) << Summary(hot);
  EXPECT_EQ(Sql("SELECT string_agg(DISTINCT status, ' ') FROM provider_event "
                "WHERE external_event_id LIKE 'evt\\_hot\\_%'"),
            "received");
  EXPECT_EQ(Sql("SELECT count(*) FROM provider_event WHERE external_event_id "
                "NOT LIKE 'evt\\_hot%' AND status = 'received'"),
            "0");
  ASSERT_OK(blocker->Exec("ROLLBACK"));
  // By the service that took them, without another delivery.
  EXPECT_OK(blocker->AwaitTrue(
      "SELECT count(*) = 0 FROM provider_event WHERE status = 'received'"));

  ASSERT_TRUE(others.AwaitAllAcknowledged());
  auto ledger = hot.Ledger();
  ledger.merge(others.Ledger());
  AwaitNothingWaits();
  ExpectInboxMatches(ledger);
  ExpectEachInvoiceCountedOnce();
  ExpectFoldedAnewIsTheSame();
}

TEST_F(IngestFaults, F12_RepeatsForALockedSubscriptionHoldUpNobodyElse) {
  ASSERT_OK(cluster_->StartIngest());
  WebhookSender::Options options = SenderOptions();
  options.connections = 24;
  WebhookSender hot(options);
  WebhookSender others(options);
  hot.Send({FirstInvoiceOf("hot")});
  ASSERT_TRUE(hot.AwaitAllAcknowledged()) << Summary(hot);
  ASSERT_OK_AND_ASSIGN(const auto blocker, database_->OpenSession());
  ASSERT_OK(blocker->Exec("BEGIN"));
  ASSERT_OK(
      blocker->Exec("SELECT id FROM subscription WHERE "
                    "provider_subscription_id = 'sub_hot' FOR UPDATE"));
  std::vector<Event> renewals;
  for (int month = 1; month <= 12; ++month) {
    renewals.push_back(
        Pay({absl::StrCat("evt_hot_", month), absl::StrCat("in_hot_", month),
             "sub_hot", now_ - 3600 - month * kMonth}));
  }
  hot.Send(renewals);
  ASSERT_TRUE(hot.AwaitAllAcknowledged()) << Summary(hot);

  // They wait for the lock, and come again; others come that cannot be
  // committed together.
  hot.Send(renewals);
  std::vector<Event> checkouts;
  for (int i = 0; i < 40; ++i) {
    const std::string key = absl::StrCat("checkout-", i);
    checkouts.push_back(Checkout(key));
    checkouts.push_back(FirstInvoiceOf(key));
  }
  others.Send(checkouts);
  EXPECT_TRUE(others.AwaitAllAcknowledged()) << Summary(others);
  EXPECT_TRUE(hot.AwaitQuiet()) << Summary(hot);
  EXPECT_EQ(others.totals().attempts, 80) << Summary(others);
  EXPECT_EQ(hot.totals().Answers(200), 25) << Summary(hot);
  ASSERT_OK(blocker->Exec("ROLLBACK"));

  auto ledger = hot.Ledger();
  ledger.merge(others.Ledger());
  AwaitNothingWaits();
  ExpectInboxMatches(ledger);
  ExpectEachInvoiceCountedOnce();
  ExpectFoldedAnewIsTheSame();
}

TEST_F(IngestFaults, F05_C116_SigtermUnderLoadLosesNoAcceptedRequest) {
  WebhookSender::Options options = SenderOptions();
  options.connections = 16;
  WebhookSender kept(options);
  options.keep_alive = false;
  WebhookSender fresh(options);
  ASSERT_OK(cluster_->StartIngest());
  int reset = 0;
  for (int round = 0; round < Rounds(10); ++round) {
    // Each event goes out once until the process has ended, so that an event
    // without an answer that is stored all the same was accepted and lost.
    kept.SetRedelivery(false);
    fresh.SetRedelivery(false);
    kept.Send(Traffic(60));
    fresh.Send(Traffic(60));
    ASSERT_TRUE(AwaitMoreAcknowledged(kept, Pick(1, 30))) << Summary(kept);
    ASSERT_OK(cluster_->ingest().Signal(SIGTERM));
    ASSERT_OK(cluster_->ingest().AwaitLine("\"ending\"").status());
    // An impatient supervisor changes nothing. It may be gone by now.
    (void)cluster_->ingest().Signal(SIGTERM);

    ASSERT_OK_AND_ASSIGN(const ExitStatus status,
                         cluster_->ingest().Wait(kEndWithin));
    EXPECT_TRUE(status.ok()) << status << cluster_->ingest().Output();
    ASSERT_TRUE(kept.AwaitQuiet() && fresh.AwaitQuiet());
    for (const WebhookSender* sender : {&kept, &fresh}) {
      for (const auto& [id, entry] : sender->Ledger()) {
        for (const WebhookSender::Attempt& attempt : entry.attempts) {
          if (attempt.status != 0 || !attempt.sent_whole ||
              entry.acknowledged()) {
            continue;
          }
          ++reset;
          EXPECT_EQ(Stored(id), 0)
              << "stored without an answer: " << id << " " << attempt.error;
        }
      }
    }
    ASSERT_OK(cluster_->StartIngest());
    kept.SetRedelivery(true);
    fresh.SetRedelivery(true);
    ASSERT_TRUE(kept.AwaitAllAcknowledged() && fresh.AwaitAllAcknowledged())
        << Summary(kept) << Summary(fresh);
  }
  std::cout << reset << " closed before they were read\n"
            << Summary(kept) << "\n"
            << Summary(fresh) << std::endl;
  AwaitNothingWaits();
  auto ledger = kept.Ledger();
  ledger.merge(fresh.Ledger());
  ExpectInboxMatches(ledger);
  ExpectEachInvoiceCountedOnce();
  ExpectFoldedAnewIsTheSame();
  ExpectOnlyAnswers(kept);
  ExpectOnlyAnswers(fresh);
}

TEST_F(IngestFaults, C001_DoublesAtTwoReplicasAtOnceAreOneEffect) {
  ASSERT_OK(cluster_->StartIngest());
  ASSERT_OK_AND_ASSIGN(const auto second, Cluster::Make(database_->conninfo()));
  ASSERT_OK(second->StartIngest());
  WebhookSender::Options options = SenderOptions();
  options.addresses = {cluster_->Address("http"), second->Address("http")};
  WebhookSender sender(options);

  // Pairs, one copy for each replica; then eight of each, four for each.
  sender.Send(Traffic(150), 2);
  sender.Send(Traffic(30), 8);

  ExpectNothingLostAndNothingTwice(sender);
  ExpectOnlyAnswers(sender);
  EXPECT_EQ(sender.totals().Answers(200), sender.totals().attempts)
      << "a double is answered as the first is";
}

TEST_F(IngestFaults, C001_OneInvoiceReplayedInEveryWayIsOneTerm) {
  ASSERT_OK(cluster_->StartIngest());
  WebhookSender sender(SenderOptions());
  Invoice invoice{"evt_a", "in_9", "sub_9", now_ - 3600};
  const Event first = Pay(invoice);
  for (int i = 0; i < 3; ++i) {
    sender.Send({first});
    ASSERT_TRUE(sender.AwaitQuiet());
  }
  sender.Send({first}, 8);
  ASSERT_TRUE(sender.AwaitQuiet());
  KillIngest();
  ASSERT_OK(cluster_->StartIngest());
  sender.Send({first});
  ASSERT_TRUE(sender.AwaitQuiet());
  invoice.event_id = "evt_b";
  sender.Send({Pay(invoice)});

  ExpectNothingLostAndNothingTwice(sender);
  EXPECT_EQ(sender.totals().Answers(200), 13) << Summary(sender);
  EXPECT_EQ(Sql("SELECT string_agg(external_event_id || ' ' || status, ', ' "
                "ORDER BY external_event_id) FROM provider_event"),
            "evt_a applied, evt_b noop");
  EXPECT_EQ(Sql("SELECT term_no FROM subscription"), "1");
}

TEST_F(IngestFaults, C003_R4_APoisonousEventHarmsNoNeighbour) {
  ASSERT_OK(ExecOnce(
      database_->conninfo(),
      "CREATE FUNCTION refuse_poison() RETURNS trigger LANGUAGE plpgsql AS $$ "
      "BEGIN IF new.provider_subscription_id = 'sub_poison' THEN RAISE "
      "EXCEPTION 'poison'; END IF; RETURN new; END $$; "
      "CREATE TRIGGER refuse_poison BEFORE INSERT ON subscription FOR EACH ROW "
      "EXECUTE FUNCTION refuse_poison()"));
  ASSERT_OK(cluster_->StartIngest());
  WebhookSender sender(SenderOptions());
  std::vector<Event> events = Traffic(150);
  const Event poison = FirstInvoiceOf("poison");
  events.insert(events.begin() + Pick(20, 120), poison);
  sender.Send(events);
  ASSERT_TRUE(sender.AwaitAllAcknowledged()) << Summary(sender);

  EXPECT_EQ(sender.totals().Answers(200), sender.totals().events)
      << Summary(sender);
  EXPECT_EQ(Sql("SELECT string_agg(external_event_id, ' ') FROM provider_event "
                "WHERE status NOT IN ('applied', 'noop', 'ignored')"),
            "evt_poison");
  EXPECT_EQ(Sql("SELECT concat_ws(' ', status, reason, next_attempt_at > "
                "received_at) FROM provider_event WHERE external_event_id = "
                "'evt_poison'"),
            "failed apply_failed t");
  ASSERT_OK(ExecOnce(database_->conninfo(),
                     "DROP TRIGGER refuse_poison ON subscription"));

  ExpectNothingLostAndNothingTwice(sender);
}

// Over a server that nobody else uses.
class IngestDatabaseFaults : public IngestFaults {
 protected:
  absl::StatusOr<std::unique_ptr<TestDatabase>> MakeDatabase() override {
    absl::StatusOr<std::unique_ptr<OwnPgCluster>> own = OwnPgCluster::Start();
    if (!own.ok()) return own.status();
    server_ = *std::move(own);
    return TestDatabase::Create(server_->cluster());
  }

  void TearDown() override {
    // Before its server.
    database_.reset();
  }

  std::unique_ptr<OwnPgCluster> server_;
};

TEST_F(IngestDatabaseFaults, F08_F09_DatabaseDownAndBack) {
  ASSERT_OK(cluster_->StartIngest());
  const pid_t pid = cluster_->ingest().pid();
  WebhookSender sender(SenderOptions());
  for (int round = 0; round < Rounds(4); ++round) {
    sender.Send(Traffic(60));
    ASSERT_TRUE(AwaitMoreAcknowledged(sender, Pick(1, 40))) << Summary(sender);
    ASSERT_OK(round % 2 == 0 ? server_->Crash() : server_->Shutdown());
    sender.Send(Traffic(10));
    ASSERT_TRUE(AwaitMoreAnswers(sender, 503, 20)) << Summary(sender);
    const int64_t acknowledged = sender.totals().acknowledged;
    ASSERT_TRUE(AwaitMoreAnswers(sender, 503, 10)) << Summary(sender);
    EXPECT_EQ(sender.totals().acknowledged, acknowledged)
        << "a 2xx without a database";
    ASSERT_OK(server_->Restart());
    ASSERT_TRUE(sender.AwaitAllAcknowledged()) << Summary(sender);
  }
  EXPECT_EQ(cluster_->ingest().pid(), pid);
  EXPECT_OK(cluster_->ingest().Signal(0)) << "the process did not live through";
  ExpectNothingLostAndNothingTwice(sender);
  ExpectOnlyAnswers(sender);
}

TEST_F(IngestDatabaseFaults, F10_FrozenDatabaseIsAnswered503WithinTheDeadline) {
  // Fewer places than deliveries: what finds none is answered too.
  ASSERT_OK(cluster_->StartIngest(
      {"--http_request_timeout=1s", "--inbox_max_queued=16"}));
  WebhookSender::Options options = SenderOptions();
  options.connections = 48;
  WebhookSender sender(options);
  sender.Send(Traffic(40));
  ASSERT_TRUE(AwaitMoreAcknowledged(sender, 10)) << Summary(sender);

  ASSERT_OK(server_->Freeze());
  // What was answered before the last process stopped is past.
  sender.Send(Traffic(80));
  ASSERT_TRUE(AwaitMoreAnswers(sender, 503, 80)) << Summary(sender);
  const int64_t acknowledged = sender.totals().acknowledged;
  ASSERT_TRUE(AwaitMoreAnswers(sender, 503, 60)) << Summary(sender);
  EXPECT_EQ(sender.totals().acknowledged, acknowledged)
      << "a 2xx without a database";
  ASSERT_OK(server_->Thaw());

  ExpectNothingLostAndNothingTwice(sender);
  ExpectOnlyAnswers(sender);
  EXPECT_EQ(sender.totals().unanswered, 0) << Summary(sender);
}

}  // namespace
}  // namespace tenure::test
