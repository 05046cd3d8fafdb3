#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/proto_time.h"
#include "common/domain/access.h"
#include "common/domain/fold.h"
#include "common/domain/fold_testing.h"
#include "common/domain/lifecycle.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

// The proof of the fold over generated histories of facts.
//
// TENURE_PROPERTY_HISTORIES is how many histories each property sees (10 000
// when unset; `./dev property` runs a million). A failure prints the seed of
// its history: TENURE_PROPERTY_SEED=<seed> runs that one alone.
namespace tenure::domain {
namespace {

constexpr int kKinds = 17;
constexpr Fact::KindCase kFirstKind = Fact::kCreated;
constexpr int kStatuses = 8;

// ---- numbers by chance, the same on every machine ----

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    // splitmix64: neighbouring seeds give unlike numbers.
    state_ += 0x9e3779b97f4a7c15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // In [0, n).
  int Below(int n) {
    return static_cast<int>(Next() % static_cast<uint64_t>(n));
  }
  // In [from, to].
  int Between(int from, int to) { return from + Below(to - from + 1); }
  bool Chance(int percent) { return Below(100) < percent; }
  template <typename T>
  T OneOf(std::initializer_list<T> values) {
    return *(values.begin() + Below(static_cast<int>(values.size())));
  }
  template <typename T>
  void Shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i) {
      std::swap(values[i - 1], values[Below(static_cast<int>(i))]);
    }
  }

 private:
  uint64_t state_;
};

int64_t EnvironmentNumber(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  int64_t number = 0;
  return text != nullptr && absl::SimpleAtoi(text, &number) ? number
                                                            : otherwise;
}

// ---- histories ----

struct Arrival {
  size_t fact = 0;
  absl::Time now;
};

// Facts of one subscription and how they reach us.
struct History {
  uint64_t seed = 0;
  std::vector<OrderedFact> facts;
  // By `now`; each fact at least once.
  std::vector<Arrival> arrivals;
};

// Lives as providers tell them: mostly sensible, now and then contradictory.
class Author {
 public:
  explicit Author(uint64_t seed) : seed_(seed), random_(seed) {}

  History Write() {
    History history;
    history.seed = seed_;
    chaos_ = random_.Chance(25) ? 60 : 8;
    const int count = random_.Between(2, 11);
    for (int i = 0; i < count; ++i) {
      if (i > 0) PassTime();
      Fact fact = AnyFact();
      *fact.mutable_order_at() = ToProto(at_);
      // Now and then one event tells several things.
      if (i > 0 && at_ == last_at_ && random_.Chance(30)) {
        fact.set_ordinal(++ordinal_);
      } else {
        event_id_ = absl::StrCat("evt_", random_.Below(100), "_", i);
        ordinal_ = 0;
      }
      last_at_ = at_;
      history.facts.push_back(Ordered(event_id_, fact));
      if (random_.Chance(5)) SendAgain(history);
    }
    Deliver(history);
    return history;
  }

 private:
  // The newest event once more, under another id; now and then half of it.
  void SendAgain(History& history) {
    const size_t count = history.facts.size();
    const std::string again = absl::StrCat(event_id_, "_again_", count);
    for (size_t i = 0; i < count; ++i) {
      const OrderedFact& fact = history.facts[i];
      if (fact.order.event_id != event_id_ || random_.Chance(10)) continue;
      OrderedFact copy = Ordered(again, fact.fact);
      history.facts.push_back(std::move(copy));
    }
  }

  void PassTime() {
    switch (random_.Below(10)) {
      case 0:
      case 1:
        return;  // a tie
      case 2:
        at_ += absl::Seconds(1);
        return;
      case 3:
      case 4:
        at_ += absl::Hours(random_.Between(1, 20));
        return;
      case 5:
        // To the end of what was paid, which is where things happen.
        at_ = std::max(at_, end_);
        return;
      default:
        at_ += absl::Hours(24 * random_.Between(1, 3));
    }
  }

  bool Chaos() { return random_.Chance(chaos_); }
  absl::Time AnyDay() {
    return Day(random_.Between(0, 14)) + absl::Seconds(random_.Below(2));
  }
  // Around now, or anywhere.
  absl::Time Soon() {
    if (Chaos()) return AnyDay();
    return at_ + absl::Hours(random_.OneOf({0, 6, 24, 48, 72}));
  }
  absl::Time SoonOrEnd() { return random_.Chance(40) ? end_ : Soon(); }
  std::optional<absl::Time> Maybe(int percent, absl::Time time) {
    if (!random_.Chance(percent)) return std::nullopt;
    return time;
  }
  Fact Layered(Fact fact, int internal_percent) {
    return random_.Chance(internal_percent) ? ByOperator(std::move(fact))
                                            : fact;
  }
  Fact Planned(Fact fact, int percent) {
    if (!random_.Chance(percent)) return fact;
    return OnPlan(std::move(fact), random_.OneOf({"basic", "pro"}),
                  random_.Between(1, 2));
  }
  std::string Key(int serial) { return absl::StrCat("in_", serial); }
  // A name of a payment: known, by alias, not told yet, or of nobody.
  std::string PaymentName() {
    const int serial =
        random_.Below(10) < 7 && serial_ > 0
            ? (random_.Chance(60) ? serial_ : random_.Between(1, serial_))
            : serial_ + random_.Between(1, 2);
    return absl::StrCat(random_.Chance(30) ? "ch_" : "in_", serial);
  }

  Fact AnyFact() {
    // The first fact is mostly one that begins a life.
    int weight = random_.Below(100);
    if (serial_ == 0 && at_ == Day(0))
      weight = random_.Below(Chaos() ? 100 : 44);
    if (weight < 10) return AnyCreated();
    if (weight < 30) return AnyPaid();
    if (weight < 37) return AnySnapshot();
    if (weight < 41) {
      return Layered(
          Extended(at_, random_.Chance(50) ? end_ + absl::Hours(24) : Soon()),
          70);
    }
    if (weight < 44) {
      return Layered(Transferred(at_, random_.Between(1, 3)), 50);
    }
    if (weight < 53) return AnyFailed();
    if (weight < 57) {
      return Layered(CancelScheduled(at_, Maybe(60, SoonOrEnd())), 35);
    }
    if (weight < 61) return Layered(CancelReverted(at_), 35);
    if (weight < 66) return Layered(Ended(at_, SoonOrEnd()), 35);
    if (weight < 70) return Layered(Paused(at_, Maybe(60, Soon())), 40);
    if (weight < 75) {
      return Layered(Resumed(at_, Maybe(40, end_ + absl::Hours(48))), 50);
    }
    if (weight < 82) return AnyRefunded();
    if (weight < 85) {
      return RefundReversed(at_,
                            absl::StrCat("re_", random_.Between(1, refunds_)));
    }
    if (weight < 89) return Layered(Revoked(at_, Maybe(40, Soon())), 35);
    if (weight < 93) {
      return Layered(Planned(PlanChanged(at_, random_.OneOf({"basic", "pro"}),
                                         Maybe(60, SoonOrEnd())),
                             30),
                     40);
    }
    if (weight < 97) {
      return DisputeOpened(at_, PaymentName(), random_.Chance(60));
    }
    return DisputeClosed(at_, PaymentName(), random_.Chance(40));
  }

  Fact AnyCreated() {
    const absl::Time starts_at = Chaos() ? AnyDay() : at_;
    return Planned(
        Created(at_, Maybe(85, starts_at),
                Maybe(60, starts_at + absl::Hours(24 * random_.Between(2, 6)))),
        50);
  }

  Fact AnyPaid() {
    if (serial_ > 0 && random_.Chance(12)) {
      // The same payment told again, perhaps under another name or with
      // other contents.
      Fact again = last_paid_;
      if (random_.Chance(30)) {
        again.mutable_paid()->set_payment_key(absl::StrCat("ch_", serial_));
      }
      if (random_.Chance(20)) {
        again.mutable_paid()->set_amount_minor(300);
      }
      return again;
    }
    ++serial_;
    const bool stacked = random_.Chance(30);
    absl::Time from = stacked || random_.Chance(60) ? end_ : at_;
    if (stacked) from = std::max(from, at_);
    if (Chaos()) from = AnyDay();
    const absl::Time to = random_.Chance(3)
                              ? from + kTick
                              : from + absl::Hours(24 * random_.Between(1, 4));
    Fact fact = random_.Chance(5) ? LifetimePaid(at_, Key(serial_), from)
                                  : Paid(at_, Key(serial_), from, to);
    auto& paid = *fact.mutable_paid();
    paid.set_stacked(stacked);
    paid.set_will_renew(!stacked && !paid.lifetime() && random_.Chance(70));
    if (paid.will_renew() && random_.Chance(60)) {
      *paid.mutable_leeway_until() = ToProto(to + absl::Hours(3));
    }
    if (random_.Chance(50)) paid.add_aliases(absl::StrCat("ch_", serial_));
    paid.set_amount_minor(random_.Chance(6) ? 0 : 900);
    // In mid-period, or from where the other one begins or ends.
    if (random_.Chance(12)) paid.set_replaces(PaymentName());
    fact.set_layer(random_.Chance(12) ? subscription::v1::FACT_LAYER_INTERNAL
                   : random_.Chance(50)
                       ? subscription::v1::FACT_LAYER_MONEY
                       : subscription::v1::FACT_LAYER_PROVIDER);
    if (!paid.lifetime()) end_ = std::max(end_, to);
    fact = Planned(std::move(fact), 60);
    last_paid_ = fact;
    return fact;
  }

  Fact AnyFailed() {
    Fact fact =
        Failed(at_, random_.Chance(70) ? Key(serial_ + 1) : PaymentName(),
               Maybe(70, random_.Chance(70) ? end_ + absl::Hours(36) : Soon()));
    fact.mutable_payment_failed()->set_grace_by_provider(random_.Chance(25));
    return fact;
  }

  Fact AnyRefunded() {
    // A refund is told again under its key and of its payment.
    if (refunds_ > 1 && random_.Chance(20)) return last_refund_;
    Fact fact = Refunded(at_, PaymentName(), absl::StrCat("re_", refunds_++));
    auto& refunded = *fact.mutable_refunded();
    switch (random_.Below(4)) {
      case 0:
        refunded.set_amount_minor(900);
        break;
      case 1:
        refunded.set_amount_minor(random_.OneOf({300, 450, 600}));
        refunded.set_full(false);
        break;
      case 2:
        refunded.set_refunded_total_minor(random_.OneOf({300, 600, 900}));
        refunded.set_full(false);
        break;
      default:
        break;
    }
    refunded.set_keeps_access(random_.Chance(15));
    last_refund_ = fact;
    return fact;
  }

  Fact AnySnapshot() {
    Fact fact =
        Snapshot(at_,
                 random_.OneOf({"pending", "trialing", "active", "active",
                                "past_due", "paused", "ended"}),
                 random_.Chance(40));
    auto& snapshot = *fact.mutable_snapshot();
    const auto set = [&](int percent, absl::Time time,
                         auto* (*field)(subscription::v1::Snapshot&)) {
      if (random_.Chance(percent)) *field(snapshot) = ToProto(time);
    };
    using S = subscription::v1::Snapshot;
    set(
        60, end_, +[](S& s) { return s.mutable_period_ends_at(); });
    set(
        40, Chaos() ? AnyDay() : Day(0),
        +[](S& s) { return s.mutable_starts_at(); });
    set(
        15, Soon(), +[](S& s) { return s.mutable_trial_ends_at(); });
    set(
        15, SoonOrEnd(), +[](S& s) { return s.mutable_cancel_at(); });
    if (snapshot.provider_state() == "ended") {
      set(
          60, SoonOrEnd(), +[](S& s) { return s.mutable_ended_at(); });
    }
    if (snapshot.provider_state() == "past_due") {
      set(
          60, Soon(), +[](S& s) { return s.mutable_grace_period_ends_at(); });
    }
    if (random_.Chance(20)) snapshot.set_will_renew(random_.Chance(50));
    return Planned(std::move(fact), 30);
  }

  // Nearly half of the facts come late, some twice.
  void Deliver(History& history) {
    for (size_t i = 0; i < history.facts.size(); ++i) {
      const int times = random_.Chance(15) ? 2 : 1;
      for (int n = 0; n < times; ++n) {
        absl::Duration lag = absl::Seconds(random_.Below(3));
        if (random_.Chance(48)) lag = absl::Hours(random_.Between(1, 24 * 7));
        history.arrivals.push_back({i, history.facts[i].order.order_at + lag});
      }
    }
    random_.Shuffle(history.arrivals);
    std::stable_sort(
        history.arrivals.begin(), history.arrivals.end(),
        [](const Arrival& a, const Arrival& b) { return a.now < b.now; });
  }

  const uint64_t seed_;
  Random random_;
  // How many of a hundred dates are arbitrary.
  int chaos_ = 0;
  absl::Time at_ = Day(0);
  absl::Time last_at_;
  // End of what was paid as far as was told.
  absl::Time end_ = Day(0) + absl::Hours(24);
  int serial_ = 0;
  int refunds_ = 1;
  int ordinal_ = 0;
  std::string event_id_;
  Fact last_paid_;
  Fact last_refund_;
};

std::string Show(const History& history) {
  std::string out;
  for (const Arrival& arrival : history.arrivals) {
    const OrderedFact& fact = history.facts[arrival.fact];
    absl::StrAppend(
        &out, "  ",
        absl::FormatTime("%m-%dT%H:%M:%S", arrival.now, absl::UTCTimeZone()),
        " ", fact.order.event_id, " at ",
        absl::FormatTime("%m-%dT%H:%M:%S", fact.order.order_at,
                         absl::UTCTimeZone()),
        " ", fact.fact.ShortDebugString(), "\n");
  }
  return out;
}

// ---- running a property ----

// Empty when it holds, else what is wrong.
using Property = std::function<std::string(const History&)>;

#define REQUIRE_THAT(condition, ...)                                  \
  if (!(condition)) {                                                 \
    return absl::StrCat("line ", __LINE__, ": not (" #condition ") ", \
                        ##__VA_ARGS__);                               \
  }                                                                   \
  static_assert(true)

History Without(const History& history, size_t fact) {
  History less;
  less.seed = history.seed;
  for (size_t i = 0; i < history.facts.size(); ++i) {
    if (i != fact) less.facts.push_back(history.facts[i]);
  }
  for (const Arrival& arrival : history.arrivals) {
    if (arrival.fact == fact) continue;
    less.arrivals.push_back(arrival);
    if (arrival.fact > fact) --less.arrivals.back().fact;
  }
  return less;
}

// The fewest facts that still break the property.
std::string Explain(const Property& property, History history,
                    std::string failure) {
  const uint64_t seed = history.seed;
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (size_t i = 0; i < history.facts.size(); ++i) {
      History less = Without(history, i);
      std::string still = property(less);
      if (still.empty()) continue;
      history = std::move(less);
      failure = std::move(still);
      smaller = true;
      break;
    }
  }
  return absl::StrCat("TENURE_PROPERTY_SEED=", seed, "\n", Show(history),
                      failure, "\n");
}

void ForEveryHistory(const char* claim, const Property& property,
                     int64_t share = 1) {
  const int64_t histories =
      EnvironmentNumber("TENURE_PROPERTY_HISTORIES", 10'000) / share;
  if (const char* seed = std::getenv("TENURE_PROPERTY_SEED")) {
    uint64_t first = 0;
    ASSERT_TRUE(absl::SimpleAtoi(seed, &first));
    const bool one = std::getenv("TENURE_PROPERTY_HISTORIES") == nullptr;
    for (int64_t i = 0; i < (one ? 1 : histories); ++i) {
      const History history = Author(first + i).Write();
      std::string failure = property(history);
      ASSERT_EQ(failure, "") << Explain(property, history, failure);
    }
    return;
  }
  // RapidCheck chooses where each of its tries begins; a try is many
  // histories, because its own generators are too slow for a million.
  constexpr int kTries = 100;
  int64_t seen = 0;
  EXPECT_TRUE(rc::check(claim, [&] {
    const uint64_t first = *rc::gen::noShrink(
        rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<uint64_t>()));
    for (int64_t i = 0; i < (histories + kTries - 1) / kTries; ++i, ++seen) {
      const History history = Author(first + i).Write();
      std::string failure = property(history);
      if (!failure.empty()) RC_FAIL(Explain(property, history, failure));
    }
  }));
  std::printf("%s: %d histories\n", claim, static_cast<int>(seen));
}

// ---- tools of the properties ----

std::string Bytes(const FoldState& state) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    state.SerializeToCodedStream(&coded);
  }
  return bytes;
}

FoldState FoldedState(const std::vector<OrderedFact>& facts) {
  absl::StatusOr<FoldState> state = FoldFacts(facts);
  EXPECT_THAT(state, test::IsOk());
  return state.ok() ? *std::move(state) : FoldState();
}

std::vector<OrderedFact> Sorted(std::vector<OrderedFact> facts) {
  std::sort(facts.begin(), facts.end(),
            [](const OrderedFact& a, const OrderedFact& b) {
              return a.order < b.order;
            });
  return facts;
}

std::vector<OrderedFact> Arrivals(const History& history) {
  std::vector<OrderedFact> facts;
  for (const Arrival& arrival : history.arrivals) {
    facts.push_back(history.facts[arrival.fact]);
  }
  return facts;
}

std::string Text(absl::Time time) {
  return absl::FormatTime("%m-%dT%H:%M:%E6S", time, absl::UTCTimeZone());
}

std::string Text(const Subscription& subscription) {
  std::ostringstream out;
  out << subscription;
  return out.str();
}

// The instants at which anything of a row may change, and their neighbours.
void AddInstants(const Subscription& s, std::vector<absl::Time>& instants) {
  for (const auto& instant :
       {s.starts_at, s.expires_at, s.grace_period_ends_at, s.leeway_until,
        s.cancel_at, s.pause_at, s.next_plan_at}) {
    if (!instant) continue;
    instants.insert(instants.end(),
                    {*instant - kTick, *instant, *instant + kTick});
  }
}

std::vector<absl::Time> InOrder(std::vector<absl::Time> instants) {
  instants.push_back(Day(-2));
  instants.push_back(Day(100));
  std::sort(instants.begin(), instants.end());
  instants.erase(std::unique(instants.begin(), instants.end()), instants.end());
  return instants;
}

std::vector<absl::Time> Instants(const Subscription& s) {
  std::vector<absl::Time> instants;
  AddInstants(s, instants);
  return InOrder(std::move(instants));
}

AccessCandidate Candidate(const Subscription& s, int64_t id = 1,
                          bool grants = true, bool next_grants = true) {
  AccessCandidate candidate;
  candidate.subscription_id = id;
  candidate.subscription = s;
  candidate.plan = s.plan;
  candidate.next_plan = s.next_plan;
  candidate.plan_grants = grants;
  candidate.next_plan_grants = next_grants;
  return candidate;
}

bool HasAccess(const Subscription& s, absl::Time at) {
  return DecideAccess({Candidate(s)}, at).has_access;
}

// ---- coverage ----

// What the histories of one run held.
struct Coverage {
  std::array<std::array<int64_t, kStatuses>, kKinds> hits = {};
  int64_t histories = 0;
  int64_t facts = 0;
  int64_t late = 0;
  int64_t ties = 0;
  int64_t read_back_needed = 0;

  void Print() const {
    std::printf("%-16s", "fact \\ status");
    for (int s = 0; s < kStatuses; ++s) {
      std::printf("%10s",
                  std::string(StatusName(static_cast<Status>(s))).c_str());
    }
    std::printf("\n");
    for (int k = 0; k < kKinds; ++k) {
      std::printf(
          "%-16s",
          KindName(static_cast<Fact::KindCase>(kFirstKind + k)).c_str());
      for (const int64_t count : hits[k]) {
        std::printf("%10lld", static_cast<long long>(count));
      }
      std::printf("\n");
    }
    std::printf(
        "%lld histories, %lld facts, %.1f %% late, %lld ties of one instant, "
        "%lld histories that need a read-back\n",
        static_cast<long long>(histories), static_cast<long long>(facts),
        100.0 * late / std::max<int64_t>(facts, 1),
        static_cast<long long>(ties), static_cast<long long>(read_back_needed));
  }
};

// ---- the properties ----

TEST(FoldProperty, R5_StepByStepIsTheSameAsAllAnew) {
  Coverage coverage;
  ForEveryHistory("step by step == all anew", [&](const History& history) {
    std::vector<OrderedFact> arrived;
    std::set<size_t> seen;
    std::string stored;
    Subscription row;
    ++coverage.histories;
    for (const Arrival& arrival : history.arrivals) {
      const OrderedFact& fact = history.facts[arrival.fact];
      const int kind = fact.fact.kind_case() - kFirstKind;
      row = Lapse(row, arrival.now);
      ++coverage.hits[kind][static_cast<int>(row.status)];
      ++coverage.facts;
      if (std::any_of(arrived.begin(), arrived.end(),
                      [&](const OrderedFact& other) {
                        return fact.order < other.order;
                      })) {
        ++coverage.late;
      }
      if (seen.insert(arrival.fact).second &&
          std::any_of(arrived.begin(), arrived.end(),
                      [&](const OrderedFact& other) {
                        return fact.order.order_at == other.order.order_at &&
                               fact.order.event_id != other.order.event_id;
                      })) {
        ++coverage.ties;
      }
      arrived.push_back(fact);
      // As stored between two deliveries.
      FoldState state;
      REQUIRE_THAT(state.ParseFromString(stored));
      if (IsNewest(state, fact.order)) {
        REQUIRE_THAT(Step(fact, state).ok());
      } else {
        state = FoldedState(arrived);
      }
      stored = Bytes(state);
      const FoldState anew = FoldedState(arrived);
      REQUIRE_THAT(stored == Bytes(anew), "\n", state.ShortDebugString(), "\n",
                   anew.ShortDebugString());
      const Projection projection = Project(state);
      REQUIRE_THAT(projection == Project(anew));
      REQUIRE_THAT(stored == Bytes(state));
      row = projection.subscription;
    }
    if (row.needs_reconcile) ++coverage.read_back_needed;
    return std::string();
  });
  coverage.Print();
  if (coverage.histories >= 1'000) {
    EXPECT_GE(coverage.late, coverage.facts * 3 / 10);
  }
  if (coverage.histories < 10'000) return;
  // 1000 in a million. Every kind of fact can arrive in every state, so no pair
  // is excused.
  for (int k = 0; k < kKinds; ++k) {
    for (int s = 0; s < kStatuses; ++s) {
      EXPECT_GE(coverage.hits[k][s], coverage.histories / 1'000)
          << KindName(static_cast<Fact::KindCase>(kFirstKind + k)) << " in "
          << StatusName(static_cast<Status>(s));
    }
  }
}

TEST(FoldProperty, R5_OrderAndRepetitionOfFactsDoNotMatter) {
  ForEveryHistory("fold(shuffled, repeated) == fold(facts)",
                  [](const History& history) {
                    Random random(history.seed);
                    std::vector<OrderedFact> arrivals = Arrivals(history);
                    arrivals.insert(arrivals.end(), history.facts.begin(),
                                    history.facts.end());
                    random.Shuffle(arrivals);
                    const FoldState expected = FoldedState(history.facts);
                    const FoldState state = FoldedState(arrivals);
                    REQUIRE_THAT(Bytes(state) == Bytes(expected));
                    REQUIRE_THAT(Project(state) == Project(expected));
                    return std::string();
                  });
}

// Lives in all their orders, each fact told twice, moved step by step.
TEST(FoldProperty, R5_AllOrdersOfHandWrittenLivesGiveOneRow) {
  const absl::Time leeway = Day(30) + absl::Hours(3);
  const std::vector<std::vector<Fact>> kLives = {
      // A refund by alias before its payment, a reversal, an extension.
      {Paid(Day(0), "in_1", Day(0), Day(30), leeway),
       Refunded(Day(3), "in_1", "re_1", 450),
       Refunded(Day(4), "in_1", "re_2", 450), RefundReversed(Day(5), "re_1"),
       Extended(Day(2), Day(35)), Failed(Day(30), "in_2", Day(33)),
       CancelScheduled(Day(20), Day(30))},
      // Stacked terms of which the second is taken back.
      {Stacked(Paid(Day(0), "o_1", Day(0), Day(30))),
       Stacked(Paid(Day(1), "o_2", Day(30), Day(60))),
       Stacked(Paid(Day(2), "o_3", Day(60), Day(90))),
       Refunded(Day(40), "o_2", "re_1"), Extended(Day(41), Day(100)),
       RefundReversed(Day(42), "re_1")},
      // Ended, bought again, ended again, all within seconds.
      {Created(Day(0), Day(0), Day(7)), Ended(Day(7), Day(7)),
       Paid(Day(7), "in_1", Day(7), Day(37)),
       Snapshot(Day(7), "active", /*read_back=*/false),
       Snapshot(Day(7) + absl::Seconds(1), "past_due"),
       Ended(Day(7) + absl::Seconds(1), Day(20)),
       Paid(Day(21), "in_2", Day(21), Day(51))},
      // An operator and a provider pull at one row.
      {Paid(Day(0), "in_1", Day(0), Day(30), leeway),
       ByOperator(Paused(Day(5), Day(6))), Paused(Day(5), Day(8)),
       ByOperator(Resumed(Day(9), Day(33))), ByOperator(Revoked(Day(10))),
       Resumed(Day(11)), ByOperator(Resumed(Day(12)))},
      // Plans, now and at the boundary, in one second.
      {OnPlan(Paid(Day(0), "in_1", Day(0), Day(30)), "basic"),
       PlanChanged(Day(1), "pro", Day(30)), PlanChanged(Day(1), "max", Day(30)),
       PlanChanged(Day(2), "pro"),
       OnPlan(Paid(Day(30), "in_2", Day(30), Day(60)), "basic"),
       Transferred(Day(3), 7), PlanChanged(Day(31), "max", Day(60))},
      // An upgrade, told before what it replaces, extended and downgraded.
      {Aliased(Paid(Day(0), "in_1", Day(0), Day(90), leeway), "ch_1"),
       Replacing(Paid(Day(0), "in_2", Day(5), Day(35)), "ch_1"),
       Extended(Day(6), Day(40)), Ended(Day(7), Day(8)),
       ByOperator(CancelScheduled(Day(9), Day(37))),
       Paid(Day(10), "in_3", Day(10), Day(12))},
      // Disputes against a payment that is known by another name.
      {Paid(Day(0), "in_1", Day(0), Day(30)),
       DisputeOpened(Day(3), "in_1", true), DisputeClosed(Day(9), "in_1", true),
       ByOperator(Resumed(Day(10))), DisputeOpened(Day(11), "in_1", false),
       LifetimePaid(Day(12), "in_2", Day(12)),
       Refunded(Day(13), "in_2", "re_1")},
  };
  for (const std::vector<Fact>& life : kLives) {
    ASSERT_LE(life.size(), 7u);
    const std::vector<OrderedFact> facts = Events(life);
    const std::string expected = Bytes(FoldedState(facts));
    const Projection projected = Projected(facts);
    std::vector<size_t> order(life.size());
    std::iota(order.begin(), order.end(), 0);
    do {
      FoldState state;
      std::vector<OrderedFact> arrived;
      for (const size_t i : order) {
        for (int twice = 0; twice < 2; ++twice) {
          arrived.push_back(facts[i]);
          if (IsNewest(state, facts[i].order)) {
            ASSERT_THAT(Step(facts[i], state), test::IsOk());
          } else {
            state = FoldedState(arrived);
          }
        }
      }
      ASSERT_EQ(Bytes(state), expected);
      ASSERT_EQ(Project(state), projected);
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

// What the facts say, read naively: no running sum, no layout.
class Naive {
 public:
  explicit Naive(const std::vector<OrderedFact>& facts)
      : facts_(Sorted(facts)) {
    for (const OrderedFact& ordered : facts_) {
      const Fact& fact = ordered.fact;
      if (fact.has_paid()) Hear(fact.paid(), fact.layer());
    }
    for (const OrderedFact& ordered : facts_) {
      if (ordered.fact.has_refund_reversed()) {
        reversed_.insert(ordered.fact.refund_reversed().refund_key());
      }
    }
  }

  // Whether anything that was said can give access at `at`; errs towards yes.
  bool MayHaveAccess(absl::Time at) const {
    return Began(at) && SomethingReaches(at) && !Denied(at);
  }

  // Whether the payment's term must be taken back.
  bool TakenBack(const std::string& key) const {
    for (const Payment& payment : payments_) {
      if (payment.names.contains(key)) return RefundedInFull(payment);
    }
    return false;
  }

  // Where another payment took over what was left of it.
  std::optional<absl::Time> ReplacedAt(const std::string& key) const {
    for (const Payment& payment : payments_) {
      if (payment.names.contains(key)) return ReplacedAt(payment);
    }
    return std::nullopt;
  }

  // Whether a dispute about the payment was lost.
  bool Lost(const std::string& key) const {
    for (const Payment& payment : payments_) {
      if (!payment.names.contains(key)) continue;
      for (const OrderedFact& ordered : facts_) {
        const auto& closed = ordered.fact.dispute_closed();
        if (closed.lost() && payment.names.contains(closed.payment_key())) {
          return true;
        }
      }
    }
    return false;
  }

  // Two events of one instant said different things, and nobody has read back
  // since.
  bool NeedsReconcile() const {
    std::map<absl::Time, std::map<std::string, std::set<std::string>>> said;
    absl::Time read_back = absl::InfinitePast();
    for (const OrderedFact& ordered : facts_) {
      Fact fact = ordered.fact;
      if (fact.layer() != subscription::v1::FACT_LAYER_PROVIDER) continue;
      if (fact.has_snapshot() && fact.snapshot().read_back()) {
        read_back = std::max(read_back, ordered.order.order_at);
      } else if (fact.has_snapshot() || fact.has_cancel_scheduled() ||
                 fact.has_cancel_reverted() || fact.has_paused() ||
                 fact.has_resumed() || fact.has_plan_changed()) {
        fact.clear_ordinal();
        said[ordered.order.order_at][ordered.order.event_id].insert(
            fact.SerializeAsString());
      }
    }
    for (const auto& [at, events] : said) {
      std::set<std::set<std::string>> different;
      for (const auto& [id, contents] : events) different.insert(contents);
      if (different.size() > 1 && at >= read_back) return true;
    }
    return false;
  }

  bool RowRevoked() const {
    bool revoked = false;
    for (const OrderedFact& ordered : facts_) {
      const Fact& fact = ordered.fact;
      if (fact.has_revoked() && IsInternal(fact)) revoked = true;
      if (fact.has_dispute_closed() && fact.dispute_closed().lost()) {
        revoked = true;
      }
      if (fact.has_resumed() && IsInternal(fact)) revoked = false;
    }
    return revoked;
  }

 private:
  struct Payment {
    std::set<std::string> names;
    const subscription::v1::Paid* told = nullptr;
    bool internal = false;
  };

  static bool IsInternal(const Fact& fact) {
    return fact.layer() == subscription::v1::FACT_LAYER_INTERNAL;
  }
  static absl::Time Time(const google::protobuf::Timestamp& proto) {
    return *FromProto("instant", proto);
  }

  void Hear(const subscription::v1::Paid& paid, int layer) {
    std::set<std::string> names(paid.aliases().begin(), paid.aliases().end());
    names.insert(paid.payment_key());
    for (Payment& payment : payments_) {
      if (payment.names.contains(paid.payment_key()) ||
          names.contains(payment.told->payment_key())) {
        payment.names.merge(names);
        return;
      }
    }
    payments_.push_back({std::move(names), &paid,
                         layer == subscription::v1::FACT_LAYER_INTERNAL});
  }

  bool RefundedInFull(const Payment& payment) const {
    std::map<std::string, subscription::v1::Refunded> refunds;
    for (const OrderedFact& ordered : facts_) {
      if (!ordered.fact.has_refunded()) continue;
      const auto& refunded = ordered.fact.refunded();
      if (!payment.names.contains(refunded.payment_key())) continue;
      if (reversed_.contains(refunded.refund_key())) continue;
      refunds[refunded.refund_key()] = refunded;
    }
    int64_t sum = 0;
    for (const auto& [key, refund] : refunds) {
      if (refund.keeps_access()) continue;
      if (refund.full()) return true;
      sum += refund.amount_minor();
      const int64_t amount = payment.told->amount_minor();
      if (amount > 0 && std::max(sum, refund.refunded_total_minor()) >= amount)
        return true;
    }
    return false;
  }

  std::optional<absl::Time> ReplacedAt(const Payment& payment) const {
    std::optional<absl::Time> at;
    for (const OrderedFact& ordered : facts_) {
      const std::string& replaced = ordered.fact.paid().replaces();
      if (replaced.empty() || !payment.names.contains(replaced)) continue;
      for (const Payment& by : payments_) {
        if (&by == &payment ||
            !by.names.contains(ordered.fact.paid().payment_key())) {
          continue;
        }
        const absl::Time from = Time(by.told->period_starts_at());
        if (!at || from < *at) at = from;
      }
    }
    return at;
  }

  // Until when an operator's extension holds whatever the provider says, if
  // that is behind `at`.
  bool PromisedBehind(absl::Time at) const {
    bool promised = false;
    for (const OrderedFact& ordered : facts_) {
      const Fact& fact = ordered.fact;
      if (!IsInternal(fact)) continue;
      if (fact.has_extended() && Time(fact.extended().expires_at()) > at) {
        promised = true;
      }
    }
    return promised;
  }

  // A bound for where a payment's time ends.
  absl::Time Reach(const Payment& payment) const {
    absl::Time reach = absl::InfiniteFuture();
    if (!payment.told->lifetime()) {
      reach = Time(payment.told->period_ends_at());
      if (payment.told->has_leeway_until() && payment.told->will_renew()) {
        reach = std::max(reach, Time(payment.told->leeway_until()));
      }
    }
    absl::Time last_refund = absl::InfinitePast();
    bool told = false;
    for (const OrderedFact& ordered : facts_) {
      const Fact& fact = ordered.fact;
      if (fact.has_paid() && &fact.paid() == payment.told) told = true;
      if (fact.has_refunded() &&
          payment.names.contains(fact.refunded().payment_key())) {
        last_refund = std::max(last_refund, ordered.order.order_at);
      }
      // The provider takes back what it was paid until then.
      if (told && fact.has_revoked() && !IsInternal(fact) &&
          !payment.internal) {
        reach = std::min(reach, fact.revoked().has_revoked_at()
                                    ? Time(fact.revoked().revoked_at())
                                    : ordered.order.order_at);
      }
    }
    if (RefundedInFull(payment)) reach = std::min(reach, last_refund);
    if (const auto at = ReplacedAt(payment)) reach = std::min(reach, *at);
    return reach;
  }

  bool Began(absl::Time at) const {
    for (const OrderedFact& ordered : facts_) {
      const Fact& fact = ordered.fact;
      if (fact.created().has_starts_at() &&
          Time(fact.created().starts_at()) <= at) {
        return true;
      }
      if (fact.snapshot().has_starts_at() &&
          Time(fact.snapshot().starts_at()) <= at) {
        return true;
      }
      if (fact.has_paid() && Time(fact.paid().period_starts_at()) <= at) {
        return true;
      }
      for (const auto* added :
           {fact.extended().has_expires_at() ? &fact.extended().expires_at()
                                             : nullptr,
            fact.resumed().has_expires_at() ? &fact.resumed().expires_at()
                                            : nullptr}) {
        if (added != nullptr &&
            std::min(ordered.order.order_at, Time(*added) - kTick) <= at) {
          return true;
        }
      }
    }
    return false;
  }

  bool SomethingReaches(absl::Time at) const {
    for (const Payment& payment : payments_) {
      if (Reach(payment) > at) return true;
    }
    for (const OrderedFact& ordered : facts_) {
      const Fact& fact = ordered.fact;
      const auto reaches = [&](bool present, const auto& timestamp) {
        return present && Time(timestamp) > at;
      };
      if (reaches(fact.created().has_trial_ends_at(),
                  fact.created().trial_ends_at()) ||
          reaches(fact.snapshot().has_trial_ends_at(),
                  fact.snapshot().trial_ends_at()) ||
          reaches(fact.extended().has_expires_at(),
                  fact.extended().expires_at()) ||
          reaches(fact.resumed().has_expires_at(),
                  fact.resumed().expires_at()) ||
          reaches(fact.payment_failed().has_grace_period_ends_at(),
                  fact.payment_failed().grace_period_ends_at()) ||
          reaches(fact.snapshot().has_grace_period_ends_at(),
                  fact.snapshot().grace_period_ends_at())) {
        return true;
      }
    }
    return false;
  }

  // Whether the last word of somebody is that there is no access at `at`.
  bool Denied(absl::Time at) const {
    if (RowRevoked()) return true;
    std::optional<absl::Time> ended;
    std::optional<absl::Time> pause;
    std::optional<absl::Time> cancel;
    std::optional<absl::Time> pause_by_operator;
    std::optional<absl::Time> cancel_by_operator;
    bool ended_by_operator = false;
    bool promised_by_operator = false;
    bool extended_after_cancel = false;
    std::map<std::string, absl::Time> disputes;
    const auto name_of = [&](const std::string& key) {
      for (const Payment& payment : payments_) {
        if (payment.names.contains(key)) return payment.told->payment_key();
      }
      return key;
    };
    for (const OrderedFact& ordered : facts_) {
      const Fact& fact = ordered.fact;
      const absl::Time order_at = ordered.order.order_at;
      const auto or_now = [&](bool present, const auto& timestamp) {
        return present ? Time(timestamp) : order_at;
      };
      const bool internal = IsInternal(fact);
      if (fact.has_paid()) {
        ended.reset();
        pause.reset();
        cancel.reset();
        cancel_by_operator.reset();
      } else if (fact.has_snapshot()) {
        const std::string& word = fact.snapshot().provider_state();
        if (word == "pending") continue;
        cancel.reset();
        if (word == "ended") {
          ended = or_now(fact.snapshot().has_ended_at(),
                         fact.snapshot().ended_at());
          continue;
        }
        ended.reset();
        if (word == "paused") {
          pause = std::max(pause.value_or(order_at), order_at);
        } else {
          pause.reset();
        }
      } else if (fact.has_ended()) {
        if (internal) {
          ended_by_operator = true;
        } else {
          ended = Time(fact.ended().ended_at());
        }
      } else if (fact.has_paused()) {
        (internal ? pause_by_operator : pause) =
            or_now(fact.paused().has_pause_at(), fact.paused().pause_at());
      } else if (fact.has_resumed()) {
        (internal ? pause_by_operator : pause).reset();
        if (internal) ended_by_operator = false;
      } else if (fact.has_cancel_scheduled()) {
        auto& slot = internal ? cancel_by_operator : cancel;
        slot.reset();
        if (fact.cancel_scheduled().has_cancel_at()) {
          slot = Time(fact.cancel_scheduled().cancel_at());
        }
        if (internal) extended_after_cancel = false;
        promised_by_operator = promised_by_operator || internal;
      } else if (fact.has_extended()) {
        extended_after_cancel = extended_after_cancel || internal;
      } else if (fact.has_cancel_reverted()) {
        (internal ? cancel_by_operator : cancel).reset();
      } else if (fact.has_dispute_opened()) {
        if (fact.dispute_opened().suspends()) {
          disputes.emplace(name_of(fact.dispute_opened().payment_key()),
                           order_at);
        }
      } else if (fact.has_dispute_closed()) {
        disputes.erase(name_of(fact.dispute_closed().payment_key()));
      }
    }
    if (ended_by_operator) return true;
    // An operator's promise outlives the provider's end.
    if (promised_by_operator) ended.reset();
    if (PromisedBehind(at)) {
      ended.reset();
      cancel.reset();
      if (extended_after_cancel) cancel_by_operator.reset();
    }
    for (const auto& limit :
         {ended, pause, cancel, pause_by_operator, cancel_by_operator}) {
      if (limit && *limit <= at) return true;
    }
    return std::any_of(disputes.begin(), disputes.end(),
                       [&](const auto& d) { return d.second <= at; });
  }

  std::vector<OrderedFact> facts_;
  std::vector<Payment> payments_;
  std::set<std::string> reversed_;
};

TEST(FoldProperty, NoAccessWithoutSomethingSaidThatGivesIt) {
  ForEveryHistory(
      "no access without a live grantor", [](const History& history) {
        const Subscription s = Folded(history.facts);
        const Naive naive(history.facts);
        for (const absl::Time at : Instants(s)) {
          if (!HasAccess(s, at)) continue;
          REQUIRE_THAT(naive.MayHaveAccess(at), Text(at), " ", Text(s));
        }
        return std::string();
      });
}

TEST(FoldProperty, WhatWasPaidAndNotTakenAwayIsGiven) {
  ForEveryHistory("a paid period is given", [](const History& history) {
    absl::Time newest = absl::InfinitePast();
    for (const OrderedFact& ordered : history.facts) {
      newest = std::max(newest, ordered.order.order_at);
      switch (ordered.fact.kind_case()) {
        case Fact::kEnded:
        case Fact::kRevoked:
        case Fact::kDisputeOpened:
        case Fact::kDisputeClosed:
        case Fact::kPaused:
          return std::string();
        case Fact::kCancelScheduled:
          if (ordered.fact.cancel_scheduled().has_cancel_at()) {
            return std::string();
          }
          break;
        case Fact::kSnapshot:
          if (ordered.fact.snapshot().has_cancel_at() ||
              ordered.fact.snapshot().provider_state() == "ended" ||
              ordered.fact.snapshot().provider_state() == "paused") {
            return std::string();
          }
          break;
        default:
          break;
      }
    }
    const Projection projection = Projected(history.facts);
    for (const PaidTerm& term : projection.terms) {
      if (term.taken_back || term.replaced) continue;
      const auto told = std::find_if(
          history.facts.begin(), history.facts.end(), [&](const auto& fact) {
            return fact.fact.has_paid() &&
                   fact.fact.paid().payment_key() == term.payment_key;
          });
      REQUIRE_THAT(told != history.facts.end());
      // A state says nothing of the time before the newest fact: who gets the
      // money of a past period back is REVOKED and once had access.
      const absl::Time end = term.lifetime ? Day(1000) : term.ends_at;
      for (const absl::Time at :
           {std::max(term.starts_at, newest), end - kTick}) {
        if (at < newest || at >= end) continue;
        REQUIRE_THAT(HasAccess(projection.subscription, at), Text(at), " ",
                     Text(projection.subscription));
      }
      // All of it: moving keeps its length.
      if (term.lifetime) continue;
      bool length_told = false;
      for (const OrderedFact& fact : history.facts) {
        const auto& paid = fact.fact.paid();
        if (!fact.fact.has_paid() || paid.lifetime()) continue;
        length_told = length_told ||
                      *FromProto("to", paid.period_ends_at()) -
                              *FromProto("from", paid.period_starts_at()) ==
                          term.ends_at - term.starts_at;
      }
      REQUIRE_THAT(length_told, term.payment_key);
    }
    return std::string();
  });
}

TEST(FoldProperty, WhatWasTakenBackStaysSo) {
  ForEveryHistory(
      "an older fact leaves no terminal state", [](const History& history) {
        // Every fact but the deciding ones may be older or newer.
        const Projection projection = Projected(history.facts);
        const Naive naive(history.facts);
        if (naive.RowRevoked()) {
          REQUIRE_THAT(projection.subscription.status == Status::kRevoked);
        }
        for (const PaidTerm& term : projection.terms) {
          if (!naive.TakenBack(term.payment_key)) continue;
          REQUIRE_THAT(term.taken_back, term.payment_key);
        }
        return std::string();
      });
}

TEST(FoldProperty, C063_AReplacedPaymentEndsWhereItsReplacementBegins) {
  int64_t replaced = 0;
  ForEveryHistory("replaced, not refunded", [&](const History& history) {
    const Naive naive(history.facts);
    for (const PaidTerm& term : Projected(history.facts).terms) {
      const auto at = naive.ReplacedAt(term.payment_key);
      if (!at) {
        REQUIRE_THAT(!term.replaced, term.payment_key);
        continue;
      }
      ++replaced;
      REQUIRE_THAT(term.ends_at <= std::max(*at, term.starts_at),
                   term.payment_key, " at ", Text(*at));
    }
    return std::string();
  });
  EXPECT_GT(replaced, 0);
}

TEST(FoldProperty, C009_ExactlyTheTiesThatNobodyReadBackAreFlagged) {
  ForEveryHistory("ties", [](const History& history) {
    REQUIRE_THAT(Folded(history.facts).needs_reconcile ==
                 Naive(history.facts).NeedsReconcile());
    return std::string();
  });
}

TEST(FoldProperty, C062_ALostDisputeCountsAsARefundOfAll) {
  ForEveryHistory("lost money", [](const History& history) {
    const Naive naive(history.facts);
    for (const PaidTerm& term : Projected(history.facts).terms) {
      if (!naive.Lost(term.payment_key)) continue;
      REQUIRE_THAT(term.refunded_minor == term.amount_minor, term.payment_key);
    }
    return std::string();
  });
}

// Whatever was told before, and whatever end the provider tells afterwards.
TEST(FoldProperty, C068_AnOperatorsExtensionGivesAccessToItsInstant) {
  int64_t seen = 0;
  ForEveryHistory("an operator's word", [&](const History& history) {
    absl::Time newest = absl::InfinitePast();
    for (const OrderedFact& fact : history.facts) {
      newest = std::max(newest, fact.order.order_at);
    }
    Random random(history.seed);
    std::vector<OrderedFact> facts = history.facts;
    const Subscription before = Folded(facts);
    const absl::Time now = newest + absl::Seconds(1);
    const absl::Time until = std::max(before.expires_at.value_or(now), now) +
                             absl::Hours(random.Between(1, 72));
    if (before.lifetime || before.starts_at.value_or(now) >= until) {
      return std::string();
    }
    facts.push_back(Ordered("word", Extended(now, until)));
    // The provider ends it, again perhaps.
    const absl::Time end = Day(random.Between(0, 20));
    absl::Time told = now;
    for (int i = random.Below(3); i > 0; --i) {
      told += absl::Hours(i);
      Fact fact = Ended(told, end);
      if (random.Chance(30)) fact = CancelScheduled(told, end);
      if (random.Chance(30)) fact = Snapshot(told, "ended");
      facts.push_back(Ordered(absl::StrCat("end_", i), fact));
    }
    const FoldState state = FoldedState(facts);
    const Subscription s = Project(state).subscription;
    if (state.row_revoked() || state.has_internal_ended_at() || s.pause_at) {
      return std::string();
    }
    ++seen;
    for (const absl::Time at :
         {std::max(told, s.starts_at.value_or(told)), until - kTick}) {
      if (at < told || at >= until) continue;
      REQUIRE_THAT(HasAccess(s, at), Text(at), " ", Text(s));
    }
    // Grace apart, nobody gets more than was said.
    if (told == now && !s.grace_period_ends_at && !s.leeway_until) {
      REQUIRE_THAT(!HasAccess(s, until), Text(until), " ", Text(s));
    }
    return std::string();
  });
  EXPECT_GT(seen, 0);
}

// Whatever came before, the newest facts do exactly what they say.
TEST(FoldProperty, TheNewestFactDoesWhatItSays) {
  ForEveryHistory("the newest fact", [](const History& history) {
    absl::Time now = Day(0);
    for (const OrderedFact& fact : history.facts) {
      now = std::max(now, fact.order.order_at);
    }
    const FoldState state = FoldedState(history.facts);
    const auto then = [&](const std::vector<Fact>& facts) {
      FoldState after = state;
      for (size_t i = 0; i < facts.size(); ++i) {
        EXPECT_THAT(Step(Ordered(absl::StrCat("zz_", i), facts[i]), after),
                    test::IsOk());
      }
      return Project(after);
    };
    const auto at = [&](int hours) { return now + absl::Hours(hours); };
    const Projection is = Project(state);

    // A dispute that suspends nothing.
    const Subscription disputed =
        then({DisputeOpened(at(1), "in_1", false)}).subscription;
    REQUIRE_THAT(disputed.status == is.subscription.status);
    REQUIRE_THAT(disputed.pause_at == is.subscription.pause_at);
    // Grace is stamped once, leeway ends with the failure, both with the
    // payment.
    const Fact failed = Failed(at(1), "in_new", at(30));
    const Fact again = Failed(at(2), "in_new", at(60));
    const Subscription due = then({failed}).subscription;
    if (due.status == Status::kPastDue) {
      REQUIRE_THAT(!due.leeway_until, Text(due));
      if (due.grace_period_ends_at) {
        REQUIRE_THAT(then({failed, again}).subscription.grace_period_ends_at ==
                     due.grace_period_ends_at);
      }
    }
    const absl::Time end =
        std::max(is.subscription.expires_at.value_or(at(2)), at(2));
    const Projection paid =
        then({failed, Paid(at(2), "in_new", end, end + absl::Hours(24))});
    REQUIRE_THAT(state.unpaid() || !paid.subscription.grace_period_ends_at,
                 Text(paid.subscription));
    // What the provider takes back is what it was paid.
    const Projection revoked = then({Revoked(at(1))});
    for (size_t i = 0; i < is.terms.size(); ++i) {
      REQUIRE_THAT(is.terms[i].internal
                       ? revoked.terms[i].taken_back == is.terms[i].taken_back
                       : revoked.terms[i].taken_back);
    }
    // An operator's end ends all.
    const Subscription ended =
        then({ByOperator(Ended(at(1), at(1)))}).subscription;
    REQUIRE_THAT(ended.status == Status::kCanceled ||
                 ended.status == Status::kRevoked);
    REQUIRE_THAT(!ended.lifetime);
    REQUIRE_THAT(!ended.expires_at || *ended.expires_at <= at(1), Text(ended));
    // An operator's notice keeps the time up to it, whoever ends it first.
    const Fact notice = ByOperator(CancelScheduled(at(1)));
    REQUIRE_THAT(then({notice, Ended(at(2), at(2))}).subscription.expires_at ==
                 then({notice}).subscription.expires_at);
    // A plan is in force at its instant.
    REQUIRE_THAT(then({PlanChanged(at(1), "new", at(2)), Transferred(at(2), 9)})
                     .subscription.plan == "new");
    // What was given for a payment goes with it.
    std::vector<Fact> all_back = {Extended(at(1), end + absl::Hours(99))};
    for (size_t i = 0; i < is.terms.size(); ++i) {
      all_back.push_back(
          Refunded(at(2), is.terms[i].payment_key, absl::StrCat("re_new_", i)));
    }
    for (const PaidTerm& term : then(all_back).terms) {
      REQUIRE_THAT(term.taken_back, term.payment_key);
    }
    return std::string();
  });
}

TEST(FoldProperty, AccessNeverComesBackByTimeAlone) {
  ForEveryHistory("monotone in time", [](const History& history) {
    const Subscription s = Folded(history.facts);
    bool had = false;
    bool lost = false;
    for (const absl::Time at : Instants(s)) {
      const bool has = HasAccess(s, at);
      REQUIRE_THAT(!(has && lost), Text(at), " ", Text(s));
      // It can only begin at the start, or never have been taken.
      if (has && !had && at != Day(-2)) {
        REQUIRE_THAT(s.starts_at == at, Text(at), " ", Text(s));
      }
      lost = lost || (had && !has);
      had = has;
    }
    return std::string();
  });
}

// Several subscriptions of one subject, rights that plans have or lack.
TEST(FoldProperty, AnAnswerHoldsUntilItsNextTransition) {
  ForEveryHistory("cached answer == fresh answer", [](const History& history) {
    Random random(history.seed);
    std::vector<AccessCandidate> candidates;
    std::vector<absl::Time> instants;
    const int count = random.Between(1, 3);
    for (int i = 0; i < count; ++i) {
      Subscription s =
          i == 0
              ? Folded(history.facts)
              : Folded(Author(history.seed ^ (0x5bd1e995u + i)).Write().facts);
      // The sweep came at some instant, or not yet.
      if (random.Chance(50)) s = Lapse(s, Day(random.Between(0, 15)));
      candidates.push_back(
          Candidate(s, i + 1, random.Chance(75), random.Chance(75)));
      AddInstants(s, instants);
    }
    if (random.Chance(20)) {
      AccessCandidate beneath;
      beneath.is_default_plan = true;
      beneath.plan = "free";
      beneath.plan_grants = random.Chance(80);
      candidates.push_back(beneath);
    }
    std::optional<Verdict> cached;
    for (const absl::Time at : InOrder(std::move(instants))) {
      const Verdict fresh = DecideAccess(candidates, at);
      if (cached &&
          (!cached->next_transition_at || at < *cached->next_transition_at)) {
        REQUIRE_THAT(fresh == *cached, Text(at));
      }
      if (fresh.next_transition_at) {
        REQUIRE_THAT(*fresh.next_transition_at > at);
      }
      if (fresh.has_access && fresh.access_until) {
        REQUIRE_THAT(*fresh.access_until > at);
      }
      // The order of the candidates is nobody's business.
      std::vector<AccessCandidate> reversed(candidates.rbegin(),
                                            candidates.rend());
      REQUIRE_THAT(DecideAccess(reversed, at) == fresh);
      cached = fresh;
    }
    return std::string();
  });
}

TEST(FoldProperty, TheRowCanAlwaysBeStored) {
  ForEveryHistory("the CHECK constraints hold", [](const History& history) {
    const Projection folded = Projected(history.facts);
    const Subscription& s = folded.subscription;
    REQUIRE_THAT(s.status != Status::kExpired);
    for (const absl::Time now : Instants(s)) {
      const std::string broken =
          BrokenCheck(Advance(std::nullopt, {}, folded, now).state);
      REQUIRE_THAT(broken.empty(), broken, " at ", Text(now), ": ", Text(s));
    }
    return std::string();
  });
}

TEST(FoldProperty, R1_TheSweepNeverChangesAnAnswer) {
  ForEveryHistory("Lapse narrows nothing early", [](const History& history) {
    const Subscription s = Folded(history.facts);
    const std::vector<absl::Time> instants = Instants(s);
    Subscription earlier = s;
    for (size_t i = 0; i < instants.size(); ++i) {
      const absl::Time now = instants[i];
      const Subscription lapsed = Lapse(s, now);
      REQUIRE_THAT(Lapse(lapsed, now) == lapsed);
      // Swept twice is swept once.
      REQUIRE_THAT(Lapse(earlier, now) == lapsed, Text(earlier), " then ",
                   Text(lapsed));
      earlier = lapsed;
      const Verdict before = DecideAccess({Candidate(s)}, now);
      const Verdict after = DecideAccess({Candidate(lapsed)}, now);
      REQUIRE_THAT(before == after, Text(now), " ", Text(s), "; reason ",
                   static_cast<int>(before.reason), " then ",
                   static_cast<int>(after.reason));
      for (size_t j = i; j < instants.size(); ++j) {
        REQUIRE_THAT(
            HasAccess(s, instants[j]) == HasAccess(lapsed, instants[j]),
            "swept ", Text(now), " asked ", Text(instants[j]), " ", Text(s));
      }
    }
    return std::string();
  });
}

TEST(FoldProperty, C062_AReadBackChangesOnlyWhatTheProviderOwns) {
  ForEveryHistory("SNAPSHOT owns little", [](const History& history) {
    FoldState state;
    for (const OrderedFact& fact : Sorted(history.facts)) {
      const FoldState before = state;
      REQUIRE_THAT(Step(fact, state).ok());
      if (!fact.fact.has_snapshot()) continue;
      REQUIRE_THAT(Project(state).terms == Project(before).terms);
      const auto kept = [](FoldState s) {
        FoldState rest;
        *rest.mutable_payments() = s.payments();
        // Leeway waits for a charge; a failure ends it.
        for (auto& payment : *rest.mutable_payments()) {
          payment.clear_leeway_until();
        }
        *rest.mutable_extensions() = s.extensions();
        *rest.mutable_stray_refunds() = s.stray_refunds();
        *rest.mutable_reversed_refunds() = s.reversed_refunds();
        *rest.mutable_disputes() = s.disputes();
        if (s.has_internal_cancel()) {
          *rest.mutable_internal_cancel() = s.internal_cancel();
        }
        if (s.has_internal_ended_at()) {
          rest.set_internal_ended_at(s.internal_ended_at());
        }
        if (s.has_internal_pause_at()) {
          rest.set_internal_pause_at(s.internal_pause_at());
        }
        rest.set_row_revoked(s.row_revoked());
        rest.set_provider_revoked(s.provider_revoked());
        rest.set_subject_id(s.subject_id());
        return Bytes(rest);
      };
      REQUIRE_THAT(kept(state) == kept(before));
    }
    return std::string();
  });
}

// A whole life of a row: facts arrive in any order, time goes on between them,
// the sweep comes when it likes.
TEST(AdvanceProperty, ALifeIsStoredAndToldWithoutContradiction) {
  ForEveryHistory("invariants of a row's life", [](const History& history) {
    Random random(history.seed);
    std::optional<SubscriptionState> state;
    std::vector<PaidTerm> terms;
    std::vector<std::string> keys;
    std::vector<OrderedFact> arrived;
    std::map<int, int> ends_of_episode;
    int64_t last_seq = 0;
    const auto move = [&](absl::Time now) {
      const Projection folded = Projected(arrived);
      Transition transition = Advance(state, terms, folded, now);
      std::set<std::string> unique;
      for (const DomainEvent& event : transition.events) {
        REQUIRE_THAT(unique.insert(event.business_key).second,
                     event.business_key);
        REQUIRE_THAT(event.access_until ==
                     transition.state.subscription.AccessUntil());
        REQUIRE_THAT(
            event.old_access_until ==
            (state ? state->subscription.AccessUntil() : std::nullopt));
      }
      NumberEvents(keys, transition);
      const SubscriptionState& after = transition.state;
      REQUIRE_THAT(BrokenCheck(after).empty(), BrokenCheck(after), " ",
                   Text(after.subscription));
      // R5: the row is Lapse(Fold(facts), now), whatever came before.
      REQUIRE_THAT(after.subscription == Lapse(folded.subscription, now));
      for (const DomainEvent& event : transition.events) {
        REQUIRE_THAT(event.seq == ++last_seq);
        REQUIRE_THAT(event.episode == after.lifecycle.episode);
        REQUIRE_THAT(event.effective_at > Day(-10), event.business_key);
        keys.push_back(event.business_key);
        if (event.type != "subscription.expired") continue;
        REQUIRE_THAT(++ends_of_episode[event.episode] == 1);
        REQUIRE_THAT(event.access_until.has_value());
        REQUIRE_THAT(*event.access_until <= now);
      }
      REQUIRE_THAT(after.lifecycle.event_seq == last_seq);
      if (state) {
        REQUIRE_THAT(after.lifecycle.episode >= state->lifecycle.episode);
      }
      if (after.subscription.status == Status::kExpired) {
        REQUIRE_THAT(ends_of_episode[after.lifecycle.episode] == 1);
      }
      state = after;
      terms = folded.terms;
      // Told again at the same instant, it is nothing new.
      const Transition again = Advance(state, terms, folded, now);
      REQUIRE_THAT(!again.changed);
      REQUIRE_THAT(again.events.empty());
      return std::string();
    };
    for (const Arrival& arrival : history.arrivals) {
      arrived.push_back(history.facts[arrival.fact]);
      std::string failure = move(arrival.now);
      if (failure.empty() && random.Chance(40)) {
        failure = move(arrival.now + absl::Seconds(1));
      }
      if (!failure.empty()) return failure;
    }
    std::string failure = move(Day(400));
    if (!failure.empty()) return failure;
    REQUIRE_THAT(!IsLive(state->subscription.status) ||
                 state->subscription.lifetime);
    return std::string();
  });
}

bool IsOver(Status status) {
  return status == Status::kExpired || status == Status::kCanceled ||
         status == Status::kRevoked;
}

// What a receiver makes of the events, knowing nothing else.
struct Receiver {
  Status status = Status::kPending;
  int episode = 0;
  // The end that it keeps, by the events that tell of one.
  absl::Time until = absl::InfinitePast();

  void Hear(const DomainEvent& event) {
    static const auto& ends = *new std::set<std::string>{
        "activated", "resumed",       "renewed",          "extended",
        "past_due",  "entered_grace", "cancel_scheduled", "shortened"};
    if (ends.contains(event.type.substr(std::string("subscription.").size()))) {
      until = event.access_until.value_or(absl::InfiniteFuture());
    }
    static const auto& told = *new std::map<std::string, Status>{
        {"created", Status::kPending},   {"activated", Status::kActive},
        {"resumed", Status::kActive},    {"past_due", Status::kPastDue},
        {"recovered", Status::kActive},  {"paused", Status::kPaused},
        {"canceled", Status::kCanceled}, {"expired", Status::kExpired},
        {"revoked", Status::kRevoked},
    };
    const auto found =
        told.find(event.type.substr(std::string("subscription.").size()));
    if (found != told.end()) {
      status = found->second;
    } else if (event.episode > episode && status == Status::kExpired) {
      status = Status::kActive;
    }
    episode = event.episode;
  }
};

// Of facts that come in their order: a late one may show that what was told
// never was, and that is not told again (R6).
TEST(AdvanceProperty, TheEventsAloneTellTheState) {
  ForEveryHistory("events tell the state", [](const History& history) {
    std::optional<SubscriptionState> state;
    std::vector<PaidTerm> terms;
    std::vector<std::string> keys;
    std::vector<OrderedFact> arrived;
    std::string log;
    Receiver receiver;
    const auto move = [&](absl::Time now) {
      const Projection folded = Projected(arrived);
      Transition transition = Advance(state, terms, folded, now);
      NumberEvents(keys, transition);
      for (const DomainEvent& event : transition.events) {
        keys.push_back(event.business_key);
        absl::StrAppend(&log, "  ", Text(now), " ", event.business_key, "\n");
        receiver.Hear(event);
      }
      state = transition.state;
      terms = folded.terms;
      Status status = state->subscription.status;
      if (status == Status::kTrialing) status = Status::kActive;
      // That a row without access is without for another reason is not told.
      if (status == Status::kPending) return std::string();
      if (IsOver(status) && IsOver(receiver.status)) return std::string();
      REQUIRE_THAT(status == receiver.status, StatusName(status), " but told ",
                   StatusName(receiver.status), " ", Text(state->subscription),
                   "\n", log);
      // Nobody keeps a later end than it has.
      if (IsLive(state->subscription.status)) {
        REQUIRE_THAT(
            receiver.until <= state->subscription.AccessUntil().value_or(
                                  absl::InfiniteFuture()),
            Text(receiver.until), " ", Text(state->subscription), "\n", log);
      }
      return std::string();
    };
    const std::vector<OrderedFact> sorted = Sorted(history.facts);
    for (size_t i = 0; i < sorted.size(); ++i) {
      arrived.push_back(sorted[i]);
      // Of one instant only the outcome is told for sure.
      const absl::Time at = sorted[i].order.order_at;
      if (i + 1 < sorted.size() && sorted[i + 1].order.order_at == at) continue;
      std::string failure = move(at + absl::Seconds(1));
      if (!failure.empty()) return failure;
    }
    return move(Day(400));
  });
}

// Of facts that come late too, as far as they change what is true.
TEST(AdvanceProperty, R6_PastDueAndRecoveryAreToldWheneverTheyAreTrueAgain) {
  ForEveryHistory("past due is told", [](const History& history) {
    std::optional<SubscriptionState> state;
    std::vector<PaidTerm> terms;
    std::vector<std::string> keys;
    std::vector<OrderedFact> arrived;
    Receiver receiver;
    bool past_due = false;
    for (const Arrival& arrival : history.arrivals) {
      arrived.push_back(history.facts[arrival.fact]);
      const Projection folded = Projected(arrived);
      Transition transition = Advance(state, terms, folded, arrival.now);
      NumberEvents(keys, transition);
      for (const DomainEvent& event : transition.events) {
        keys.push_back(event.business_key);
        if (event.type == "subscription.past_due") past_due = true;
        if (event.type == "subscription.recovered") past_due = false;
        receiver.Hear(event);
      }
      const bool was_live = state && IsLive(state->subscription.status);
      const bool was_past_due =
          state && state->subscription.status == Status::kPastDue;
      state = transition.state;
      terms = folded.terms;
      const Status status = state->subscription.status;
      if (status == Status::kPastDue) {
        REQUIRE_THAT(past_due, Text(arrival.now));
      } else if (was_past_due &&
                 (status == Status::kActive || status == Status::kTrialing)) {
        REQUIRE_THAT(!past_due, Text(arrival.now));
      }
      if (was_live && IsLive(status)) {
        REQUIRE_THAT(
            receiver.until <= state->subscription.AccessUntil().value_or(
                                  absl::InfiniteFuture()),
            Text(arrival.now));
      } else {
        // What a late fact brings back may have been told before.
        receiver.until = absl::InfinitePast();
        past_due = status == Status::kPastDue;
      }
    }
    return std::string();
  });
}

}  // namespace
}  // namespace tenure::domain
