#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/domain/access.h"
#include "common/domain/fold.h"
#include "common/domain/fold_testing.h"
#include "common/domain/lifecycle.h"

// Writes docs/lifecycle.md: what each fact makes of a subscription in each
// state, as the code has it. `lifecycle_table FILE` fails when the file says
// otherwise, `lifecycle_table --write FILE` renews it.
namespace tenure::domain {
namespace {

// A subscription in each state, as it is at `now`.
struct Start {
  Status status;
  std::string description;
  std::vector<Fact> facts;
  absl::Time now;
};

std::vector<Start> Starts() {
  const Fact month = OnPlan(
      Paid(Day(0), "in_1", Day(0), Day(30), Day(30) + absl::Hours(3)), "basic");
  return {
      {Status::kPending,
       "created on day 0, nothing paid; today is day 10",
       {Created(Day(0), Day(0))},
       Day(10)},
      {Status::kTrialing,
       "a trial from day 0 to day 14; today is day 10",
       {OnPlan(Created(Day(0), Day(0), Day(14)), "basic")},
       Day(10)},
      {Status::kActive,
       "paid from day 0 to day 30, renews, with a leeway of 3 hours; today is "
       "day 10",
       {month},
       Day(10)},
      {Status::kPastDue,
       "paid from day 0 to day 30, the next charge failed on day 30, grace to "
       "day 33; today is day 31",
       {month, Failed(Day(30), "in_2", Day(33))},
       Day(31)},
      {Status::kPaused,
       "paid from day 0 to day 30, paused by the provider on day 5; today is "
       "day 10",
       {month, Paused(Day(5))},
       Day(10)},
      {Status::kCanceled,
       "paid from day 0 to day 30, ended at once by an operator on day 5; "
       "today is day 10",
       {month, ByOperator(Ended(Day(5), Day(5)))},
       Day(10)},
      {Status::kExpired,
       "paid from day 0 to day 30, cancelled on day 20 for the end of the "
       "period; today is day 40",
       {month, CancelScheduled(Day(20), Day(30))},
       Day(40)},
      {Status::kRevoked,
       "paid from day 0 to day 30, refunded in full on day 5; today is day 10",
       {month, Refunded(Day(5), "in_1", "re_1")},
       Day(10)},
  };
}

struct Telling {
  std::string title;
  std::string description;
  // The fact as told at `now` of a row as it is.
  Fact (*fact)(const Subscription& row, absl::Time now);
};

absl::Time End(const Subscription& row, absl::Time now) {
  return std::max(row.expires_at.value_or(now), now);
}

constexpr absl::Duration kDay = absl::Hours(24);

const std::vector<Telling>& Tellings() {
  using S = const Subscription&;
  using T = absl::Time;
  static const auto& tellings = *new std::vector<Telling>{
      {"CREATED", "It exists at the provider, from today.",
       [](S, T now) { return Created(now, now); }},
      {"CREATED, trial", "It exists, with a trial of 14 days from today.",
       [](S, T now) { return Created(now, now, now + 14 * kDay); }},
      {"PAID",
       "30 days were paid, from the present end on, or from today when that "
       "has passed. The provider will renew it.",
       [](S row, T now) {
         const T from = End(row, now);
         return Paid(now, "in_2", from, from + 30 * kDay,
                     from + 30 * kDay + absl::Hours(3));
       }},
      {"PAID, replacing",
       "30 days from today on were paid, and take over what was left of the "
       "first payment (an upgrade).",
       [](S, T now) {
         return Replacing(OnPlan(Paid(now, "in_2", now, now + 30 * kDay,
                                      now + 30 * kDay + absl::Hours(3)),
                                 "pro"),
                          "in_1");
       }},
      {"PAYMENT_FAILED", "A charge failed, and the plan gives 3 days of grace.",
       [](S, T now) { return Failed(now, "in_2", now + 3 * kDay); }},
      {"CANCEL_SCHEDULED", "It will end with what was paid.",
       [](S, T now) { return CancelScheduled(now); }},
      {"CANCEL_REVERTED", "It will not end with what was paid.",
       [](S, T now) { return CancelReverted(now); }},
      {"ENDED, provider", "The provider ended it today.",
       [](S, T now) { return Ended(now, now); }},
      {"ENDED, operator", "An operator ended it today.",
       [](S, T now) { return ByOperator(Ended(now, now)); }},
      {"ENDED, provider, later", "The provider says that it ends in 5 days.",
       [](S, T now) { return Ended(now, now + 5 * kDay); }},
      {"PAUSED", "The provider paused it today.",
       [](S, T now) { return Paused(now); }},
      {"RESUMED, provider", "The provider's pause is over.",
       [](S, T now) { return Resumed(now); }},
      {"RESUMED, operator",
       "An operator lifts a pause, an end or a revocation of an operator, and "
       "a lost dispute.",
       [](S, T now) { return ByOperator(Resumed(now)); }},
      {"REFUNDED, part", "A third of the first payment was given back.",
       [](S, T now) { return Refunded(now, "in_1", "re_2", 300); }},
      {"REFUNDED, in full", "The first payment was given back.",
       [](S, T now) { return Refunded(now, "in_1", "re_2"); }},
      {"REFUND_REVERSED", "The refund was taken back.",
       [](S, T now) { return RefundReversed(now, "re_1"); }},
      {"REVOKED, provider", "The provider took back everything until today.",
       [](S, T now) { return Revoked(now); }},
      {"REVOKED, operator", "An operator revoked it until one lifts it.",
       [](S, T now) { return ByOperator(Revoked(now)); }},
      {"PLAN_CHANGED, now", "It is on another plan from today.",
       [](S, T now) { return PlanChanged(now, "pro"); }},
      {"PLAN_CHANGED, at the end",
       "It will be on another plan from the present end on.",
       [](S row, T now) {
         return PlanChanged(now, "pro", End(row, now + kDay));
       }},
      {"EXTENDED, provider",
       "The provider gave 7 days, from the present end on, or from today when "
       "that has passed.",
       [](S row, T now) {
         Fact fact = Extended(now, End(row, now) + 7 * kDay);
         fact.set_layer(subscription::v1::FACT_LAYER_PROVIDER);
         return fact;
       }},
      {"EXTENDED, operator",
       "An operator gave 7 days, from the present end on, or from today when "
       "that has passed.",
       [](S row, T now) { return Extended(now, End(row, now) + 7 * kDay); }},
      {"TRANSFERRED", "It belongs to another subject.",
       [](S, T now) { return Transferred(now, 7); }},
      {"DISPUTE_OPENED",
       "The first payment is disputed, and the policy suspends.",
       [](S, T now) { return DisputeOpened(now, "in_1", true); }},
      {"DISPUTE_CLOSED, won", "A dispute was decided for us.",
       [](S, T now) { return DisputeClosed(now, "in_1", false); }},
      {"DISPUTE_CLOSED, lost", "A dispute was decided against us.",
       [](S, T now) { return DisputeClosed(now, "in_1", true); }},
      {"SNAPSHOT, active", "Read back: active, will renew.",
       [](S, T now) { return Snapshot(now, "active"); }},
      {"SNAPSHOT, past_due", "Read back: past due, without a word of grace.",
       [](S, T now) { return Snapshot(now, "past_due"); }},
      {"SNAPSHOT, paused", "Read back: paused.",
       [](S, T now) { return Snapshot(now, "paused"); }},
      {"SNAPSHOT, ended", "Read back: ended.",
       [](S, T now) { return Snapshot(now, "ended"); }},
  };
  return tellings;
}

std::string DayText(const std::optional<absl::Time>& time) {
  if (!time) return "none";
  const absl::Duration since = *time - Day(0);
  const int64_t hours = since / absl::Hours(1);
  std::string text = absl::StrCat("day ", hours / 24);
  if (hours % 24 != 0) absl::StrAppend(&text, " + ", hours % 24, " h");
  return text;
}

// What a cell of a detailed table says of one field.
std::string Moved(const std::optional<absl::Time>& before,
                  const std::optional<absl::Time>& after) {
  if (before == after) return "=";
  return DayText(after);
}

std::string OtherChanges(const Subscription& before,
                         const Subscription& after) {
  std::vector<std::string> changes;
  if (before.lifetime != after.lifetime) {
    changes.push_back(after.lifetime ? "lifetime" : "no lifetime");
  }
  if (before.starts_at != after.starts_at) {
    changes.push_back(absl::StrCat("starts ", DayText(after.starts_at)));
  }
  if (before.leeway_until != after.leeway_until) {
    changes.push_back(absl::StrCat("leeway ", DayText(after.leeway_until)));
  }
  if (before.pause_at != after.pause_at) {
    changes.push_back(
        after.pause_at ? absl::StrCat("paused from ", DayText(after.pause_at))
                       : "no pause");
  }
  if (before.plan != after.plan) {
    changes.push_back(absl::StrCat("plan ", after.plan));
  }
  if (before.next_plan_at != after.next_plan_at) {
    changes.push_back(absl::StrCat("plan ", after.next_plan, " from ",
                                   DayText(after.next_plan_at)));
  }
  if (before.subject_id != after.subject_id) {
    changes.push_back("another subject");
  }
  if (before.needs_reconcile != after.needs_reconcile) {
    changes.push_back("needs a read-back");
  }
  return absl::StrJoin(changes, ", ");
}

bool HasAccess(const Subscription& s, absl::Time now) {
  AccessCandidate candidate;
  candidate.subscription_id = 1;
  candidate.subscription = s;
  candidate.plan_grants = true;
  candidate.next_plan_grants = true;
  return DecideAccess({candidate}, now).has_access;
}

struct Cell {
  Subscription before;
  Subscription after;
  std::vector<std::string> events;
  bool access = false;
};

Cell Tell(const Start& start, const Telling& telling) {
  Row row;
  row.Move(Projected(start.facts), start.now);
  Cell cell;
  cell.before = row.state->subscription;
  std::vector<Fact> facts = start.facts;
  facts.push_back(telling.fact(cell.before, start.now));
  const Transition transition = row.Move(Projected(facts), start.now);
  cell.after = transition.state.subscription;
  for (const DomainEvent& event : transition.events) {
    cell.events.push_back(absl::StrCat(
        "`", event.type.substr(std::string("subscription.").size()), "`"));
  }
  cell.access = HasAccess(cell.after, start.now);
  return cell;
}

std::string Name(Status status) { return std::string(StatusName(status)); }

std::string Document() {
  const std::vector<Start> starts = Starts();
  std::string out =
      "# What a fact does\n\n"
      "<!-- Generated by common/domain/lifecycle_table.cc from the code. Renew "
      "it: ./dev build dev lifecycle_table, then\n"
      ".dev/build/dev/common/domain/lifecycle_table --write docs/lifecycle.md. "
      "Do not edit. -->\n\n"
      "A provider, the money and operators tell *facts*; a subscription is "
      "what they add up to, whatever their order of\n"
      "arrival. This is what each kind of fact makes of a subscription in each "
      "state, when it is the newest one. An older\n"
      "fact that comes late gives the row that it would have given in time.\n\n"
      "The state alone does not decide: the same fact can do more or less to "
      "another subscription of the same state. The\n"
      "tables are of these eight:\n\n"
      "| state | the subscription |\n|---|---|\n";
  for (const Start& start : starts) {
    absl::StrAppend(&out, "| ", Name(start.status), " | ", start.description,
                    " |\n");
  }
  absl::StrAppend(&out,
                  "\n## The state afterwards\n\n`=` is the state it was in. "
                  "Bold: access today.\n\n| fact |");
  for (const Start& start : starts) {
    absl::StrAppend(&out, " ", Name(start.status), " |");
  }
  absl::StrAppend(&out, "\n|---|");
  for (size_t i = 0; i < starts.size(); ++i) absl::StrAppend(&out, "---|");
  absl::StrAppend(&out, "\n");
  for (const Telling& telling : Tellings()) {
    absl::StrAppend(&out, "| ", telling.title, " |");
    for (const Start& start : starts) {
      const Cell cell = Tell(start, telling);
      const std::string state =
          cell.after.status == start.status ? "=" : Name(cell.after.status);
      const std::string mark = cell.access ? "**" : "";
      absl::StrAppend(&out, " ", mark, state, mark, " |");
    }
    absl::StrAppend(&out, "\n");
  }
  absl::StrAppend(
      &out,
      "\n## What moves\n\n`=` is as before. *End* is `expires_at`, *grace* "
      "`grace_period_ends_at`, *cancel* `cancel_at`; the last two\n"
      "columns are what else changed and the events that are announced "
      "([events.md](events.md)).\n");
  for (const Telling& telling : Tellings()) {
    absl::StrAppend(&out, "\n### ", telling.title, "\n\n", telling.description,
                    "\n\n| before | after | access | end | grace | cancel | "
                    "renews | else | events |\n"
                    "|---|---|---|---|---|---|---|---|---|\n");
    for (const Start& start : starts) {
      const Cell cell = Tell(start, telling);
      absl::StrAppend(
          &out, "| ", Name(start.status), " | ",
          cell.after.status == start.status ? "=" : Name(cell.after.status),
          " | ", cell.access ? "yes" : "no", " | ",
          Moved(cell.before.expires_at, cell.after.expires_at), " | ",
          Moved(cell.before.grace_period_ends_at,
                cell.after.grace_period_ends_at),
          " | ", Moved(cell.before.cancel_at, cell.after.cancel_at), " | ",
          cell.before.will_renew == cell.after.will_renew ? "="
          : cell.after.will_renew                         ? "yes"
                                                          : "no",
          " | ", OtherChanges(cell.before, cell.after), " | ",
          absl::StrJoin(cell.events, ", "), " |\n");
    }
  }
  return out;
}

int Main(int argc, char** argv) {
  const bool write = argc == 3 && std::string(argv[1]) == "--write";
  if (argc != 2 && !write) {
    std::cerr << "usage: lifecycle_table [--write] FILE\n";
    return 2;
  }
  for (const Start& start : Starts()) {
    if (Lapse(Folded(start.facts), start.now).status != start.status) {
      std::cerr << "the facts for " << StatusName(start.status)
                << " give another state\n";
      return 1;
    }
  }
  const std::string document = Document();
  if (write) {
    std::ofstream file(argv[2], std::ios::binary);
    file << document;
    file.flush();
    if (!file) {
      std::cerr << argv[2] << " cannot be written\n";
      return 1;
    }
    return 0;
  }
  std::ifstream file(argv[1], std::ios::binary);
  const std::string present((std::istreambuf_iterator<char>(file)),
                            std::istreambuf_iterator<char>());
  if (!file || present != document) {
    std::cerr << argv[1]
              << " does not say what the code does: renew it with --write\n";
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace tenure::domain

int main(int argc, char** argv) { return tenure::domain::Main(argc, argv); }
