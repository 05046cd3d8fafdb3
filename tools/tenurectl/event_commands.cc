// `tenurectl events ...`: the inbox of webhook-ingest, for operators.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/crypto.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"
#include "tenure/webhook/v1/provider_events.grpc.pb.h"
#include "tools/tenurectl/commands.h"
#include "tools/tenurectl/service_call.h"

namespace tenure::tenurectl {
namespace {

namespace pb = ::tenure::webhook::v1;
using Stub = pb::ProviderEvents::Stub;

constexpr char kDefaultAddress[] = "127.0.0.1:50052";
constexpr char kStatePrefix[] = "EVENT_STATE_";
constexpr int kPageSize = 500;
constexpr int64_t kDefaultListed = 50;
constexpr int64_t kDefaultReplayed = 500;
// Events of one call of replay-all. Each is tried before the answer.
constexpr int kReplayBatch = 100;

// What the options of all these commands say; each command has some of them.
struct Options {
  std::string address;
  std::string output = "table";
  std::string request_id;
  std::string actor;
  std::string reason;
  std::vector<std::string> states;
  std::string route;
  std::string type;
  std::string why;
  std::string account;
  bool has_account = false;
  std::string customer;
  int64_t subscription = 0;
  std::string external_id;
  std::string after;
  std::string before;
  // 0 for the command's own.
  int64_t limit = 0;
  std::vector<int64_t> ids;
  int64_t id = 0;
  bool test_mode = false;
  bool body = false;
  int64_t conflict = 0;
};

std::unique_ptr<Stub> NewStub(const Options& o) {
  return pb::ProviderEvents::NewStub(ChannelTo(o.address));
}

// ---- output ----

std::string StateText(pb::EventState state) {
  return absl::AsciiStrToLower(
      absl::StripPrefix(pb::EventState_Name(state), kStatePrefix));
}

std::string TimeText(bool present, const google::protobuf::Timestamp& proto) {
  if (!present) return "-";
  const absl::StatusOr<absl::Time> time = FromProto("time", proto);
  if (!time.ok()) return "-";
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", *time, absl::UTCTimeZone());
}

// What others wrote, on one line: a control character would be the terminal's.
std::string Plain(const std::string& text) {
  std::string plain = text.empty() ? "-" : text;
  for (char& c : plain) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = ' ';
  }
  return plain;
}

// Rows with their columns as wide as the widest value.
void PrintTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&line, row[i]);
      if (i + 1 < row.size()) {
        line.append(widths[i] - row[i].size() + 2, ' ');
      }
    }
    std::printf("%s\n", line.c_str());
  }
}

std::vector<std::string> TableRow(const pb::Event& event) {
  return {absl::StrCat(event.id()),
          StateText(event.state()),
          Plain(event.reason()),
          event.route(),
          Plain(event.event_type()),
          Plain(event.external_event_id()),
          Plain(event.customer_id()),
          TimeText(event.has_received_at(), event.received_at()),
          absl::StrCat(event.attempt_count()),
          TimeText(event.has_next_attempt_at(), event.next_attempt_at())};
}

const std::vector<std::string>& EventHeader() {
  static const auto* const kHeader = new std::vector<std::string>{
      "ID",       "STATE",    "REASON",   "ROUTE", "TYPE",
      "EXTERNAL", "CUSTOMER", "RECEIVED", "TRIES", "NEXT"};
  return *kHeader;
}

void PrintOutcomes(const Options& o,
                   const std::vector<pb::EventOutcome>& outcomes) {
  std::vector<std::vector<std::string>> rows = {{"ID", "STATE", "REASON"}};
  for (const pb::EventOutcome& outcome : outcomes) {
    if (o.output == "json") {
      Print(outcome);
      continue;
    }
    rows.push_back({absl::StrCat(outcome.event_id()),
                    StateText(outcome.state()), Plain(outcome.reason())});
  }
  if (o.output != "json") PrintTable(rows);
}

void PrintEvent(const pb::GetEventResponse& shown) {
  const pb::Event& e = shown.event();
  const auto line = [](const char* name, const std::string& value) {
    std::printf("%-18s %s\n", name, value.c_str());
  };
  line("id", absl::StrCat(e.id()));
  line("state", absl::StrCat(StateText(e.state()),
                             e.reason().empty() ? "" : " ", e.reason()));
  if (!e.last_error().empty()) line("last error", Plain(e.last_error()));
  line("route", e.route());
  if (!e.account().empty()) line("account", Plain(e.account()));
  line("livemode", e.livemode() ? "true" : "false");
  line("external id", Plain(e.external_event_id()));
  line("type", Plain(e.event_type()));
  line("customer", Plain(e.customer_id()));
  line("occurred", TimeText(e.has_occurred_at(), e.occurred_at()));
  line("received", TimeText(e.has_received_at(), e.received_at()));
  line("settled", TimeText(e.has_processed_at(), e.processed_at()));
  line("next try", TimeText(e.has_next_attempt_at(), e.next_attempt_at()));
  line("tries", absl::StrCat(e.attempt_count()));
  line("body", e.body_size() == 0 ? std::string("gone")
                                  : absl::StrCat(e.body_size(), " bytes"));
  line("body sha256", absl::BytesToHexString(e.body_sha256()));
  for (const pb::EventConflict& conflict : shown.conflicts()) {
    line("other body",
         absl::StrCat(
             "conflict ", conflict.id(), ", ", conflict.body_size(), " bytes, ",
             TimeText(conflict.has_received_at(), conflict.received_at()),
             ", sha256 ", absl::BytesToHexString(conflict.body_sha256())));
  }
  for (const pb::EventFact& fact : shown.facts()) {
    line("fact", absl::StrCat(fact.kind(), " of subscription ",
                              fact.subscription_id()));
  }
  for (const pb::AuditEntry& entry : shown.audit()) {
    line("audit", absl::StrCat(TimeText(entry.has_at(), entry.at()), " ",
                               Plain(entry.actor()), " ", entry.action(), ": ",
                               Plain(entry.reason())));
  }
  if (!shown.body().empty()) std::printf("\n%s\n", shown.body().c_str());
}

// ---- requests ----

// Author and request id of a write. A made id is told before the call: after a
// broken connection it is what makes a repeat safe.
template <typename Request>
void SetContext(const Options& o, const std::string& request_id,
                Request* request) {
  pb::OperatorContext& context = *request->mutable_context();
  context.set_request_id(request_id);
  context.set_actor(o.actor.empty() ? "operator" : o.actor);
  context.set_reason(o.reason);
}

std::string RequestId(const Options& o) {
  if (!o.request_id.empty()) return o.request_id;
  std::string id = RandomUuid();
  std::fprintf(stderr, "request id: %s\n", id.c_str());
  return id;
}

absl::Status SetFilter(const Options& o, pb::EventFilter* filter) {
  for (const std::string& name : o.states) {
    pb::EventState state = pb::EVENT_STATE_UNSPECIFIED;
    // CLI11 has checked the name.
    pb::EventState_Parse(
        absl::StrCat(kStatePrefix, absl::AsciiStrToUpper(name)), &state);
    filter->add_states(state);
  }
  filter->set_route(o.route);
  filter->set_event_type(o.type);
  filter->set_reason(o.why);
  if (o.has_account) filter->set_account(o.account);
  if (!o.customer.empty()) filter->set_customer_id(o.customer);
  if (o.subscription != 0) filter->set_subscription_id(o.subscription);
  if (!o.external_id.empty()) filter->set_external_event_id(o.external_id);
  if (!o.after.empty()) {
    ASSIGN_OR_RETURN(const absl::Time at, ParseInstant("--after", o.after));
    *filter->mutable_received_after() = ToProto(at);
  }
  if (!o.before.empty()) {
    ASSIGN_OR_RETURN(const absl::Time at, ParseInstant("--before", o.before));
    *filter->mutable_received_before() = ToProto(at);
  }
  return absl::OkStatus();
}

// ---- commands ----

absl::Status List(const Options& o) {
  pb::ListEventsRequest request;
  RETURN_IF_ERROR(SetFilter(o, request.mutable_filter()));
  const std::unique_ptr<Stub> stub = NewStub(o);
  std::vector<std::vector<std::string>> rows = {EventHeader()};
  int64_t left = o.limit == 0 ? kDefaultListed : o.limit;
  do {
    request.set_page_size(static_cast<int>(std::min<int64_t>(left, kPageSize)));
    ASSIGN_OR_RETURN(const pb::ListEventsResponse page,
                     CallService(o.address, *stub, &Stub::ListEvents, request));
    for (const pb::Event& event : page.events()) {
      if (o.output == "json") {
        Print(event);
      } else {
        rows.push_back(TableRow(event));
      }
    }
    left -= page.events_size();
    request.set_page_token(page.next_page_token());
  } while (left > 0 && !request.page_token().empty());
  if (o.output != "json") PrintTable(rows);
  if (!request.page_token().empty()) {
    std::fprintf(stderr, "there are more; see --limit\n");
  }
  return absl::OkStatus();
}

absl::Status ListParked(const Options& o) {
  Options parked = o;
  parked.states = {"parked", "failed"};
  return List(parked);
}

absl::Status ListDead(const Options& o) {
  Options dead = o;
  dead.states = {"dead", "quarantined"};
  return List(dead);
}

absl::Status Show(const Options& o) {
  pb::GetEventRequest request;
  if (o.id != 0) {
    request.set_event_id(o.id);
  } else {
    pb::EventKey& key = *request.mutable_key();
    key.set_route(o.route);
    key.set_account(o.account);
    key.set_livemode(!o.test_mode);
    key.set_external_event_id(o.external_id);
  }
  request.set_include_body(o.body);
  request.set_conflict_id(o.conflict);
  if (o.body) {
    if (o.reason.empty()) {
      return absl::InvalidArgumentError(
          "--body: who reads it and why is kept; --reason is required");
    }
    request.set_actor(o.actor.empty() ? "operator" : o.actor);
    request.set_reason(o.reason);
  }
  const std::unique_ptr<Stub> stub = NewStub(o);
  ASSIGN_OR_RETURN(const pb::GetEventResponse shown,
                   CallService(o.address, *stub, &Stub::GetEvent, request));
  if (o.output == "json") {
    Print(shown);
  } else {
    PrintEvent(shown);
  }
  return absl::OkStatus();
}

// One call for each id, each with a request id of its own.
template <typename Request, typename Response>
absl::Status ForEachId(const Options& o,
                       grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                    const Request&,
                                                    Response*)) {
  if (!o.request_id.empty() && o.ids.size() > 1) {
    return absl::InvalidArgumentError("--request-id: is for one event");
  }
  const std::unique_ptr<Stub> stub = NewStub(o);
  std::vector<pb::EventOutcome> outcomes;
  absl::Status failed;
  for (const int64_t id : o.ids) {
    Request request;
    SetContext(o, RequestId(o), &request);
    request.set_event_id(id);
    const absl::StatusOr<Response> response =
        CallService(o.address, *stub, method, request);
    if (!response.ok()) {
      failed = response.status();
      break;
    }
    outcomes.push_back(response->outcome());
  }
  if (!outcomes.empty()) PrintOutcomes(o, outcomes);
  return failed;
}

absl::Status Replay(const Options& o) {
  return ForEachId(o, &Stub::ReplayEvent);
}

absl::Status Discard(const Options& o) {
  return ForEachId(o, &Stub::DiscardEvent);
}

absl::Status ReplayAll(const Options& o) {
  pb::ReplayEventsRequest request;
  RETURN_IF_ERROR(SetFilter(o, request.mutable_filter()));
  const std::unique_ptr<Stub> stub = NewStub(o);
  const std::string first_id = RequestId(o);
  std::vector<pb::EventOutcome> outcomes;
  absl::Status failed;
  int64_t left = o.limit == 0 ? kDefaultReplayed : o.limit;
  do {
    // The same ids in a repeat of the command.
    SetContext(o, absl::StrCat(first_id, "/", request.after_event_id()),
               &request);
    request.set_limit(static_cast<int>(std::min<int64_t>(left, kReplayBatch)));
    const absl::StatusOr<pb::ReplayEventsResponse> page =
        CallService(o.address, *stub, &Stub::ReplayEvents, request);
    if (!page.ok()) {
      failed = page.status();
      break;
    }
    outcomes.insert(outcomes.end(), page->outcomes().begin(),
                    page->outcomes().end());
    left -= page->outcomes_size();
    request.set_after_event_id(page->next_after_event_id());
  } while (left > 0 && request.after_event_id() != 0);
  PrintOutcomes(o, outcomes);
  if (failed.ok() && request.after_event_id() != 0) {
    std::fprintf(stderr, "there are more; see --limit\n");
  }
  return failed;
}

}  // namespace

void AddEventCommands(CLI::App* root, Command* chosen) {
  static Options o;
  CLI::App* family = root->add_subcommand(
      "events", "shows the inbox of provider events and tries them again");
  family->require_subcommand(1);
  const auto add = [&](const char* verb, const char* help,
                       absl::Status (*run)(const Options&)) {
    CLI::App* command = family->add_subcommand(verb, help);
    AddAddress(command, &o.address, kDefaultAddress);
    command->add_option("-o,--output", o.output, "table or json")
        ->default_str("table")
        ->check(CLI::IsMember({"table", "json"}));
    command->callback([chosen, run] { *chosen = [run] { return run(o); }; });
    return command;
  };
  const auto actor = [&](CLI::App* command) {
    TakeFromEnvironment(
        command->add_option("--actor", o.actor, "who does it, for the record")
            ->default_str("operator"),
        "USER", &o.actor);
  };
  const auto add_write = [&](const char* verb, const char* help,
                             absl::Status (*run)(const Options&)) {
    CLI::App* command = add(verb, help, run);
    command->add_option("--reason", o.reason, "why, for the record")
        ->required();
    actor(command);
    command->add_option(
        "--request-id", o.request_id,
        "repeats the call that had this id, safely; made and printed when "
        "absent");
    return command;
  };
  const auto account = [&](CLI::App* command) {
    command->add_option_function<std::string>(
        "--account",
        [](const std::string& text) {
          o.account = text;
          o.has_account = true;
        },
        "the provider's account, if many");
  };
  const auto filter = [&](CLI::App* command, bool with_states) {
    if (with_states) {
      command
          ->add_option("--state", o.states,
                       "received, applied, noop, ignored, parked, failed, "
                       "quarantined or dead; several with commas")
          ->delimiter(',')
          ->check(CLI::IsMember({"received", "applied", "noop", "ignored",
                                 "parked", "failed", "quarantined", "dead"}));
    }
    command->add_option("--route", o.route, "only of this webhook route");
    command->add_option("--type", o.type,
                        "only of this type of the provider's");
    command->add_option("--why", o.why,
                        "only those with this reason, \"unknown_plan\"");
    account(command);
    CLI::Option_group* about = command->add_option_group("about");
    about->add_option("--customer", o.customer,
                      "only about this customer of the provider's");
    about->add_option("--subscription", o.subscription,
                      "only those that gave a fact of this subscription");
    about->add_option("--external-id", o.external_id,
                      "only that of this id of the provider's");
    about->require_option(0, 1);
    command->add_option("--after", o.after,
                        "only received at this instant or later, RFC 3339");
    command->add_option("--before", o.before,
                        "only received before this instant, RFC 3339");
  };
  const auto limit = [&](CLI::App* command, int64_t at_most) {
    command->add_option("--limit", o.limit, "at most this many")
        ->default_str(absl::StrCat(at_most))
        ->check(CLI::PositiveNumber);
  };

  CLI::App* list = add("list", "lists events, the newest first", &List);
  filter(list, /*with_states=*/true);
  limit(list, kDefaultListed);
  CLI::App* parked = add(
      "parked", "lists those that wait and could not be applied", &ListParked);
  filter(parked, /*with_states=*/false);
  limit(parked, kDefaultListed);
  CLI::App* dead =
      add("dead", "lists those that nothing tries any more", &ListDead);
  filter(dead, /*with_states=*/false);
  limit(dead, kDefaultListed);

  CLI::App* show = add("show", "shows one event", &Show);
  CLI::Option_group* name = show->add_option_group("name");
  name->add_option("ID", o.id, "Tenure's id of the event")
      ->check(CLI::PositiveNumber);
  CLI::Option* external = name->add_option("--external-id", o.external_id,
                                           "the provider's id, with --route");
  name->require_option(1);
  external->needs(show->add_option("--route", o.route, "the webhook route"));
  account(show);
  show->add_flag("--test-mode", o.test_mode,
                 "with --external-id: a test-mode event");
  CLI::Option* body =
      show->add_flag("--body", o.body,
                     "also the body, which holds personal data; kept in the "
                     "audit");
  show->add_option("--conflict", o.conflict,
                   "the other body of this conflict instead")
      ->needs(body);
  show->add_option("--reason", o.reason, "with --body: why, for the record");
  actor(show);

  CLI::App* replay = add_write(
      "replay", "tries events again; one that was applied stays as it is",
      &Replay);
  replay->add_option("ID", o.ids, "Tenure's ids of the events")
      ->required()
      ->check(CLI::PositiveNumber);
  CLI::App* replay_all = add_write(
      "replay-all",
      "tries again what a filter finds, the oldest first; without --state what "
      "is parked, failed, quarantined or dead",
      &ReplayAll);
  filter(replay_all, /*with_states=*/true);
  limit(replay_all, kDefaultReplayed);
  CLI::App* discard =
      add_write("discard", "takes events off the list for good", &Discard);
  discard->add_option("ID", o.ids, "Tenure's ids of the events")
      ->required()
      ->check(CLI::PositiveNumber);
}

}  // namespace tenure::tenurectl
