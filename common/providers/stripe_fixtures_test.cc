// Every body of the fixtures is read as the table of its README says: the table
// is parsed, and each word of its column "right reading" has a check here or a
// reason why it has none.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/proto_time.h"
#include "common/providers/stripe_adapter.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tenure::providers {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

using Path = std::filesystem::path;

// ---- the table ----

struct Row {
  std::vector<std::string> files;
  // "invoice.paid"; empty for an answer of the API.
  std::string type;
  std::vector<std::string> words;
};

std::string Text(absl::string_view text) {
  return std::string(absl::StripAsciiWhitespace(text));
}

// At every "; " that stands in no bracket.
std::vector<std::string> SplitWords(absl::string_view text) {
  std::vector<std::string> words(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c == ';' && depth == 0) {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  for (std::string& word : words) word = Text(word);
  return words;
}

// The first name with a dot in it, as "invoice.paid".
std::string EventType(absl::string_view cell) {
  if (absl::StartsWith(cell, "GET ")) return "";
  for (const absl::string_view word : absl::StrSplit(cell, ' ')) {
    const absl::string_view name = absl::StripSuffix(word, ",");
    if (absl::StrContains(name, '.') && !absl::StrContains(name, '/')) {
      return std::string(name);
    }
  }
  ADD_FAILURE() << "no event: " << cell;
  return "";
}

std::string ReadFile(const Path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The rows of the chapter "Stripe".
std::vector<Row> ReadTable(const Path& folder) {
  std::vector<Row> rows;
  std::vector<std::string> columns;
  size_t announced = 0;
  bool inside = false;
  const std::string readme = ReadFile(folder / "README.md");
  for (const absl::string_view line : absl::StrSplit(readme, '\n')) {
    if (absl::StartsWith(line, "## ")) {
      absl::string_view count = line;
      inside = absl::ConsumePrefix(&count, "## Stripe (");
      if (inside) {
        EXPECT_TRUE(absl::SimpleAtoi(
            std::string(count.substr(0, count.find(' '))), &announced));
      }
    }
    if (!inside || !absl::StartsWith(line, "|")) continue;
    std::vector<std::string> cells = absl::StrSplit(line, '|');
    for (std::string& cell : cells) cell = Text(cell);
    if (columns.empty()) {
      columns = cells;
      continue;
    }
    if (absl::StartsWith(cells[1], "---")) continue;
    EXPECT_EQ(cells.size(), columns.size()) << line;
    const auto cell = [&](absl::string_view column) {
      const auto at = std::find(columns.begin(), columns.end(), column);
      EXPECT_NE(at, columns.end()) << column;
      return cells[std::min<size_t>(at - columns.begin(), cells.size() - 1)];
    };
    Row row;
    for (const absl::string_view file :
         absl::StrSplit(cell("file"), '`', absl::SkipWhitespace())) {
      if (file != "<br>") row.files.emplace_back(file);
    }
    row.type = EventType(cell("event"));
    row.words = SplitWords(cell("right reading"));
    rows.push_back(std::move(row));
  }
  EXPECT_EQ(rows.size(), announced) << folder;
  EXPECT_GE(rows.size(), 25u) << folder;
  return rows;
}

// ---- the reading ----

StripeAdapter Adapter() {
  StripeSettings settings;
  settings.secrets.emplace_back("whsec_unused");
  return StripeAdapter(std::move(settings));
}

// A file as the event `type`: put into an event where it is only a part of one.
std::string BodyAs(const Path& path, const std::string& own_type,
                   const std::string& type) {
  std::string body = ReadFile(path);
  const std::string name = path.filename().string();
  if (absl::StrContains(name, ".api-read.")) {
    body = absl::StrCat(R"({"object":)", body, "}");
  } else if (!absl::EndsWith(name, ".data.json")) {
    const std::string from = absl::StrCat(R"("type": ")", own_type, "\"");
    EXPECT_TRUE(absl::StrContains(body, from)) << from;
    return absl::StrReplaceAll(
        body, {{from, absl::StrCat(R"("type": ")", type, "\"")}});
  }
  return absl::StrCat(R"({"id":"evt_wrapped","object":"event","created":)",
                      R"(1767225600,"livemode":true,"type":")", type,
                      R"(","data":)", body, "}");
}

ProviderEvent Parse(const std::string& body) {
  const absl::StatusOr<ProviderEvent> event = Adapter().Parse(body);
  EXPECT_TRUE(event.ok()) << event.status();
  return event.value_or(ProviderEvent());
}

// An event that carries no fact still has an object whose members the table
// tells: they are read as an event says them that has the same object and does
// carry one.
const std::map<std::string, std::string>& TellingTypes() {
  static const auto& types = *new std::map<std::string, std::string>{
      {"customer.subscription.trial_will_end", "customer.subscription.updated"},
      {"", "customer.subscription.updated"},
      {"invoice.created", "invoice.payment_failed"},
      {"invoice.payment_action_required", "invoice.payment_failed"},
      {"invoice.upcoming", "invoice.payment_failed"},
      {"invoice.updated", "invoice_payment.paid"},
  };
  return types;
}

// Words without a check: of events of the type, the word that begins so. Each
// must be met by the fixtures of this tree.
struct Unread {
  const char* type;
  const char* word;
  const char* reason;
  mutable bool met = false;
};

const Unread kUnread[] = {
    {"invoice.paid", "status=paid",
     "without a subscription the invoice is nobody's here, paid or not"},
    {"invoice.paid", "money=",
     "money that buys no period is in no fact: neither a one-off sale nor the "
     "difference of two prices"},
    {"invoice.paid", "key=", "a fact of money alone would carry it"},
    {"invoice.paid",
     "plan=", "what a one-off sale sells is the plan of no subscription"},
    {"invoice.payment_failed", "attempt=",
     "grace runs from the failure; how often it was tried changes nothing"},
    {"invoice.payment_failed", "next try", "as the number of tries"},
    {"invoice.payment_action_required",
     "plan=", "usage of a month that is over sells no plan"},
    {"invoice.upcoming",
     "sub=", "without an id it is an invoice of no event that carries a fact"},
    {"invoice.upcoming", "plan=", "as its subscription"},
    {"invoice.upcoming", "money=", "as its subscription"},
    {"invoice.updated",
     "key=", "the payment is known by the invoice; its own id names nothing"},
    {"invoice.updated", "money=", "the invoice's own events tell the money"},
    {"charge.dispute.created", "charge=", "an inquiry states nothing"},
    {"charge.dispute.created", "money=", "an inquiry states nothing"},
    {"charge.dispute.created", "key=", "an inquiry states nothing"},
    {"checkout.session.completed", "payment_status=",
     "a session grants nothing, paid or not: the invoice does (C053)"},
    {"checkout.session.completed", "money=", "as whether it is paid"},
    {"checkout.session.completed", "key=", "as whether it is paid"},
    {"checkout.session.completed", "sub=sub_",
     "the link is the customer's, for all that this customer buys"},
    {"customer.subscription.trial_will_end", "quantity",
     "a plan has no number of seats"},
    {"customer.subscription.updated", "quantity",
     "a plan has no number of seats"},
};

void Leave(const Row& row, absl::string_view word) {
  for (const Unread& unread : kUnread) {
    if (unread.type == row.type && absl::StartsWith(word, unread.word)) {
      unread.met = true;
      return;
    }
  }
  ADD_FAILURE() << "no check, and no reason to have none";
}

absl::Time Utc(absl::string_view text) {
  absl::Time time;
  std::string error;
  EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, text, &time, &error))
      << text << ": " << error;
  return time;
}

absl::Time Instant(const google::protobuf::Timestamp& timestamp) {
  return FromProto("instant", timestamp).value_or(absl::InfinitePast());
}

std::string KindOf(const Fact& fact) {
  const auto* field = Fact::descriptor()->FindFieldByNumber(fact.kind_case());
  return field == nullptr ? "(none)"
                          : absl::AsciiStrToUpper(std::string(field->name()));
}

// What a text of the table begins with: "sub_1" of "sub_1 (line)".
std::string FirstOf(absl::string_view text) {
  return std::string(text.substr(0, text.find_first_of(" (;,")));
}

// One file against the words of its row.
class Checker {
 public:
  Checker(const Row& row, Path path) : row_(row), path_(std::move(path)) {
    const auto telling = TellingTypes().find(row.type);
    const bool tells = telling == TellingTypes().end();
    event_ = As(row.type.empty() ? telling->second : row.type);
    told_ = tells ? event_ : As(telling->second);
  }

  void Check(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value =
        equals == std::string::npos ? "" : word.substr(equals + 1);
    if (key == "fact") return Fact_(value);
    if (key == "sub") return Subscription(word, value);
    if (key == "customer") return Customer(value);
    if (key == "status") return Status(word, FirstOf(value));
    if (key == "end") return End(value);
    if (key == "would_end" || absl::StartsWith(word, "unpaid period ")) {
      return StatesNoEnd();
    }
    if (key == "period_end") return PeriodEnd(value);
    if (key == "cancel_at") {
      const Fact* fact = Find(event_, Fact::kCancelScheduled);
      ASSERT_NE(fact, nullptr);
      EXPECT_EQ(Instant(fact->cancel_scheduled().cancel_at()), Utc(value));
      return;
    }
    absl::string_view rest = word;
    if (absl::ConsumePrefix(&rest, "access ends ")) {
      const Fact* fact = Find(event_, Fact::kPaused);
      ASSERT_NE(fact, nullptr);
      EXPECT_EQ(Instant(fact->paused().pause_at()), Utc(FirstOf(rest)));
      return;
    }
    if (word == "nothing was ever paid") {
      EXPECT_EQ(Find(event_, Fact::kPaid), nullptr);
      return;
    }
    if (absl::ConsumePrefix(&rest, "two ends: ")) return TwoEnds(rest);
    if (absl::StartsWith(word, "plan is chosen by the catalogue")) {
      ASSERT_THAT(told_.subscriptions, SizeIs(1));
      EXPECT_THAT(told_.subscriptions[0].alternatives, Not(IsEmpty()));
      return;
    }
    if (key == "plan") return Plan(word, value);
    if (key == "money") return Money(word, value);
    if (key == "key") return Key(word, FirstOf(value));
    if (key == "at") {
      EXPECT_EQ(event_.occurred_at, Utc(value));
      return;
    }
    if (key == "will_renew") return WillRenew(value == "true");
    if (key == "charge" && !event_.subscriptions.empty()) {
      EXPECT_THAT(event_.subscriptions[0].payment_names, Contains(value));
      return;
    }
    if (key == "invoice") return Invoice(value);
    if (key == "refunded") {
      const Fact* fact = Find(event_, Fact::kRefunded);
      ASSERT_NE(fact, nullptr);
      EXPECT_EQ(fact->refunded().full(), value == "true");
      return;
    }
    if (word == "previous amount_refunded=0") {
      const Fact* fact = Find(event_, Fact::kRefunded);
      ASSERT_NE(fact, nullptr);
      EXPECT_EQ(fact->refunded().refunded_total_minor(),
                fact->refunded().amount_minor());
      return;
    }
    if (key == "mode") {
      EXPECT_EQ(event_.ignored == "checkout_without_subscription",
                value == "payment");
      return;
    }
    if (word == "client_reference_id=null") {
      EXPECT_EQ(event_.ignored, "checkout_names_no_subject");
      EXPECT_THAT(event_.links, IsEmpty());
      return;
    }
    if (key == "object") {
      // Under the name of another kind it is still not read as one.
      EXPECT_EQ(As("invoice.paid").ignored, "unexpected_object");
      return;
    }
    if (word == "no invoice id") {
      EXPECT_EQ(told_.ignored, "invoice_without_id");
      return;
    }
    Leave(row_, word);
  }

  // Of every event, whatever its row says.
  void CheckWhole() {
    EXPECT_EQ(event_.quarantined, "");
    EXPECT_THAT(event_.subscriptions, SizeIs(testing::Le(1u)));
    EXPECT_EQ(event_.subscriptions.empty(), !event_.ignored.empty());
    for (const SubscriptionFacts& facts : event_.subscriptions) {
      EXPECT_EQ(facts.item_key, "");
      EXPECT_NE(facts.provider_subscription_id.empty(),
                facts.payment_names.empty());
    }
  }

 private:
  ProviderEvent As(const std::string& type) const {
    return Parse(BodyAs(path_, row_.type, type));
  }

  static const Fact* Find(const ProviderEvent& event, Fact::KindCase kind) {
    for (const SubscriptionFacts& facts : event.subscriptions) {
      for (const Fact& fact : facts.facts) {
        if (fact.kind_case() == kind) return &fact;
      }
    }
    return nullptr;
  }

  void Fact_(const std::string& value) {
    if (absl::StartsWith(value, "link only")) return Link();
    const std::string kind = FirstOf(value);
    if (kind == "none") {
      EXPECT_THAT(event_.subscriptions, IsEmpty());
      EXPECT_THAT(event_.links, IsEmpty());
      EXPECT_NE(event_.ignored, "");
      return;
    }
    ASSERT_THAT(event_.subscriptions, SizeIs(1));
    const SubscriptionFacts& facts = event_.subscriptions[0];
    std::vector<std::vector<Fact>> readings = {facts.facts};
    for (const Alternative& other : facts.alternatives) {
      readings.push_back(other.facts);
    }
    for (const std::vector<Fact>& reading : readings) {
      // The fact, and beside it only the state as it is printed.
      ASSERT_THAT(reading, Not(IsEmpty()));
      EXPECT_EQ(KindOf(reading.front()), kind);
      for (size_t i = 1; i < reading.size(); ++i) {
        EXPECT_EQ(KindOf(reading[i]), "SNAPSHOT");
      }
    }
    if (kind == "REFUNDED") {
      EXPECT_EQ(readings[0][0].refunded().full(), value == "REFUNDED full");
    }
  }

  void Link() {
    EXPECT_THAT(event_.subscriptions, IsEmpty());
    const std::string body = BodyAs(path_, row_.type, row_.type);
    const std::string empty = R"("client_reference_id": null)";
    ASSERT_TRUE(absl::StrContains(body, empty));
    const ProviderEvent linked = Parse(absl::StrReplaceAll(
        body, {{empty, R"("client_reference_id": "user-1")"}}));
    ASSERT_THAT(linked.links, SizeIs(1));
    EXPECT_EQ(linked.links[0].customer_id, event_.customer_id);
    EXPECT_EQ(linked.links[0].subject, "user-1");
    EXPECT_EQ(linked.ignored, "customer_link");
  }

  void Subscription(const std::string& word, const std::string& value) {
    if (value == "null") {
      for (const SubscriptionFacts& facts : told_.subscriptions) {
        EXPECT_EQ(facts.provider_subscription_id, "");
      }
      return;
    }
    if (told_.subscriptions.empty()) return Leave(row_, word);
    EXPECT_EQ(told_.subscriptions[0].provider_subscription_id, FirstOf(value));
  }

  void Customer(const std::string& value) {
    const std::string customer = value == "null" ? "" : FirstOf(value);
    EXPECT_EQ(event_.customer_id, customer);
    for (const SubscriptionFacts& facts : told_.subscriptions) {
      EXPECT_EQ(facts.customer_id, customer);
    }
  }

  void Status(const std::string& word, const std::string& status) {
    if (absl::StartsWith(status, "warning_")) {
      EXPECT_EQ(event_.ignored, "dispute_inquiry");
      return;
    }
    if (status == "open" || status == "draft") {
      EXPECT_EQ(Find(event_, Fact::kPaid), nullptr);
      return;
    }
    if (status == "paid") {
      if (!told_.payment_aliases.empty()) return;
      if (event_.subscriptions.empty()) return Leave(row_, word);
      EXPECT_TRUE(Find(event_, Fact::kPaid) != nullptr ||
                  Find(event_, Fact::kPlanChanged) != nullptr);
      return;
    }
    if (status == "canceled") {
      EXPECT_NE(Find(event_, Fact::kEnded), nullptr);
      return;
    }
    if (status == "paused") {
      EXPECT_NE(Find(event_, Fact::kPaused), nullptr);
      return;
    }
    const Fact* snapshot = Find(told_, Fact::kSnapshot);
    if (snapshot != nullptr) {
      EXPECT_EQ(snapshot->snapshot().provider_state(), status);
      return;
    }
    // A change that leaves the state as it is.
    EXPECT_EQ(status, "active");
    EXPECT_TRUE(Find(told_, Fact::kPlanChanged) != nullptr ||
                Find(told_, Fact::kCancelScheduled) != nullptr);
    EXPECT_EQ(Find(told_, Fact::kEnded), nullptr);
  }

  // The ends that the facts prove, one a fact.
  static std::vector<absl::Time> StatedEnds(const ProviderEvent& event) {
    std::vector<absl::Time> ends;
    for (const SubscriptionFacts& facts : event.subscriptions) {
      for (const Fact& fact : facts.facts) {
        if (fact.has_paid()) {
          ends.push_back(Instant(fact.paid().period_ends_at()));
        } else if (fact.has_ended()) {
          ends.push_back(Instant(fact.ended().ended_at()));
        } else if (fact.has_snapshot() && fact.snapshot().has_trial_ends_at()) {
          ends.push_back(Instant(fact.snapshot().trial_ends_at()));
        }
      }
    }
    return ends;
  }

  void StatesNoEnd() const {
    EXPECT_THAT(StatedEnds(event_), IsEmpty());
    EXPECT_THAT(StatedEnds(told_), IsEmpty());
  }

  void End(const std::string& value) const {
    // The stored end stays, or a payment that is not proven would move it.
    if (absl::StartsWith(value, "none") ||
        absl::StartsWith(value, "unchanged") ||
        absl::StrContains(value, "(unchanged)") ||
        absl::StrContains(value, "(start of the unpaid period)")) {
      return StatesNoEnd();
    }
    EXPECT_THAT(StatedEnds(told_), testing::ElementsAre(Utc(FirstOf(value))));
  }

  void PeriodEnd(const std::string& value) const {
    const Fact* fact = Find(told_, Fact::kSnapshot);
    ASSERT_NE(fact, nullptr);
    EXPECT_EQ(Instant(fact->snapshot().period_ends_at()), Utc(FirstOf(value)));
  }

  void TwoEnds(absl::string_view text) const {
    std::map<std::string, absl::Time> expected;
    for (const absl::string_view part : absl::StrSplit(text, ", ")) {
      const std::vector<std::string> pair = absl::StrSplit(part, ' ');
      ASSERT_EQ(pair.size(), 2u) << part;
      expected[pair[0]] = Utc(pair[1]);
    }
    ASSERT_THAT(told_.subscriptions, SizeIs(1));
    const SubscriptionFacts& facts = told_.subscriptions[0];
    std::map<std::string, absl::Time> read;
    const auto add = [&](const std::string& product, const Fact& fact) {
      read[product] =
          Instant(fact.has_paid() ? fact.paid().period_ends_at()
                                  : fact.snapshot().period_ends_at());
    };
    add(facts.product_id, facts.facts[0]);
    for (const Alternative& other : facts.alternatives) {
      add(other.product_id, other.facts[0]);
    }
    EXPECT_EQ(read, expected);
  }

  void Plan(const std::string& word, const std::string& value) {
    if (told_.subscriptions.empty()) return Leave(row_, word);
    const SubscriptionFacts& facts = told_.subscriptions[0];
    if (facts.product_id.empty()) return Leave(row_, word);
    std::set<std::string> read = {facts.product_id};
    for (const Alternative& other : facts.alternatives) {
      read.insert(other.product_id);
    }
    std::set<std::string> expected;
    const std::string text = value.substr(0, value.find(" ("));
    for (const absl::string_view part : absl::StrSplit(text, " and ")) {
      expected.insert(FirstOf(part));
      if (absl::StrContains(part, ' ')) Leave(row_, "quantity");
    }
    EXPECT_EQ(read, expected);
    absl::string_view was = value;
    if (absl::StrContains(value, "(was ")) {
      was.remove_prefix(value.find("(was ") + 5);
      EXPECT_EQ(read.count(FirstOf(was.substr(0, was.find(')')))), 0u);
    }
  }

  void Money(const std::string& word, const std::string& value) {
    const std::vector<std::string> parts = absl::StrSplit(value, ' ');
    ASSERT_GE(parts.size(), 2u);
    if (parts[0] == "0") {
      EXPECT_EQ(Find(event_, Fact::kPaid), nullptr);
      EXPECT_EQ(Find(told_, Fact::kPaid), nullptr);
      return;
    }
    if (const Fact* paid = Find(event_, Fact::kPaid)) {
      EXPECT_EQ(absl::StrCat(paid->paid().amount_minor(), " ",
                             absl::AsciiStrToLower(paid->paid().currency())),
                value);
      return;
    }
    if (const Fact* refunded = Find(event_, Fact::kRefunded)) {
      // "refund 500 of 1500 usd"
      ASSERT_EQ(parts.size(), 5u);
      EXPECT_EQ(absl::StrCat(refunded->refunded().amount_minor()), parts[1]);
      EXPECT_EQ(refunded->refunded().full(), parts[1] == parts[3]);
      return;
    }
    Leave(row_, word);
  }

  void Key(const std::string& word, const std::string& value) {
    if (const Fact* paid = Find(event_, Fact::kPaid)) {
      EXPECT_EQ(paid->paid().payment_key(), value);
    } else if (const Fact* failed = Find(event_, Fact::kPaymentFailed)) {
      EXPECT_EQ(failed->payment_failed().payment_key(), value);
    } else if (const Fact* refunded = Find(event_, Fact::kRefunded)) {
      EXPECT_EQ(refunded->refunded().refund_key(), value);
    } else {
      Leave(row_, word);
    }
  }

  void WillRenew(bool expected) const {
    // It renews until something says that it does not.
    bool renews = true;
    for (const SubscriptionFacts& facts : told_.subscriptions) {
      for (const Fact& fact : facts.facts) {
        if (fact.has_snapshot()) renews = fact.snapshot().will_renew();
        if (fact.has_paid()) renews = fact.paid().will_renew();
        if (fact.has_cancel_scheduled() || fact.has_ended()) renews = false;
      }
    }
    EXPECT_EQ(renews, expected);
  }

  void Invoice(const std::string& value) const {
    if (value == "null") {
      // Another name finds the payment.
      ASSERT_THAT(event_.subscriptions, SizeIs(1));
      EXPECT_THAT(event_.subscriptions[0].payment_names, Not(IsEmpty()));
      return;
    }
    ASSERT_THAT(told_.payment_aliases, Not(IsEmpty()));
    for (const PaymentAlias& alias : told_.payment_aliases) {
      EXPECT_EQ(alias.payment_key, value);
    }
  }

  const Row& row_;
  const Path path_;
  // As the file's own event says it, and as one that carries a fact would.
  ProviderEvent event_;
  ProviderEvent told_;
};

// ---- the folders ----

const Path& OwnFolder() {
  static const Path& folder = *new Path(TENURE_TEST_FIXTURES);
  return folder;
}

// The larger collection: of TENURE_FIXTURES, which then must be there, or
// beside the checkout. None: only the files of this tree.
std::optional<Path> CollectedFolder() {
  const char* given = std::getenv("TENURE_FIXTURES");
  if (given != nullptr && *given != '\0') return given;
  const Path sibling = TENURE_TEST_SIBLING_FIXTURES;
  if (std::filesystem::is_directory(sibling / "stripe")) return sibling;
  return std::nullopt;
}

// What the files of one folder are about: "invoice.paid PAID".
using Kinds = std::set<std::string>;

Kinds CheckFolder(const Path& folder) {
  Kinds kinds;
  std::set<std::string> told;
  for (const Row& row : ReadTable(folder)) {
    for (const std::string& file : row.files) {
      SCOPED_TRACE(file);
      EXPECT_TRUE(told.insert(file).second) << "two rows";
      if (!std::filesystem::exists(folder / file)) {
        ADD_FAILURE() << "there is a row and no file";
        continue;
      }
      Checker checker(row, folder / file);
      checker.CheckWhole();
      EXPECT_TRUE(absl::StartsWith(row.words[0], "fact="));
      for (const std::string& word : row.words) {
        SCOPED_TRACE(word);
        checker.Check(word);
      }
      std::string kind = FirstOf(row.words[0].substr(5));
      kinds.insert(absl::StrCat(row.type, " ", kind));
    }
  }
  for (const auto& entry :
       std::filesystem::directory_iterator(folder / "stripe")) {
    const std::string file =
        absl::StrCat("stripe/", entry.path().filename().string());
    // Of signatures, not of bodies; the tests of the signature read them.
    if (absl::StartsWith(file, "stripe/signature_")) continue;
    EXPECT_EQ(told.count(file), 1u) << file << " has no row";
  }
  return kinds;
}

TEST(StripeFixtures, EveryFileOfTheTreeIsReadAsItsRowSays) {
  CheckFolder(OwnFolder());
  for (const Unread& unread : kUnread) {
    EXPECT_TRUE(unread.met)
        << "no fixture has " << unread.type << " " << unread.word;
  }
}

TEST(StripeFixtures, EveryCollectedFileIsReadAsItsRowSaysAndHasItsLikeHere) {
  const std::optional<Path> collected = CollectedFolder();
  const Kinds own = CheckFolder(OwnFolder());
  if (!collected.has_value()) {
    std::printf("no collection: the files of the tree alone\n");
    return;
  }
  std::printf("collected in %s\n", collected->c_str());

  for (const std::string& kind : CheckFolder(*collected)) {
    EXPECT_EQ(own.count(kind), 1u) << "the tree has no fixture of " << kind;
  }
}

TEST(StripeFixtures, AnAnswerOfTheApiIsNoEvent) {
  for (const Row& row : ReadTable(OwnFolder())) {
    if (!row.type.empty()) continue;
    const auto event = Adapter().Parse(ReadFile(OwnFolder() / row.files[0]));
    EXPECT_EQ(event.status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace tenure::providers
