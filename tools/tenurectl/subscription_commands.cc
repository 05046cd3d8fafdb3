// `tenurectl subscription ...`: one command for each method of Subscriptions.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/crypto.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"
#include "tenure/subscription/v1/subscriptions.grpc.pb.h"
#include "tools/tenurectl/commands.h"
#include "tools/tenurectl/service_call.h"

namespace tenure::tenurectl {
namespace {

namespace pb = ::tenure::subscription::v1;
using Stub = pb::Subscriptions::Stub;

constexpr char kDefaultAddress[] = "127.0.0.1:50052";

// What the options of all these commands say; each command has some of them.
struct Options {
  std::string address;
  std::string request_id;
  std::string actor;
  std::string reason;
  int64_t id = 0;
  std::string subject;
  std::string plan;
  std::string starts_at;
  std::string expires_at;
  std::string term;
  bool lifetime = false;
  std::string external_key;
  std::string mode;
  std::string at;
  bool at_end = false;
  std::string route;
  std::string account;
  std::string customer;
  std::string order_id;
  std::string product;
  int64_t amount = 0;
  std::string currency;
  std::string feature;
  bool active_only = false;
};

std::unique_ptr<Stub> NewStub(const Options& o) {
  return pb::Subscriptions::NewStub(ChannelTo(o.address));
}

// Author and request id of a write. A made id is told before the call: after a
// broken connection it is what makes a repeat safe.
template <typename Request>
void SetContext(const Options& o, Request* request) {
  pb::WriteContext& context = *request->mutable_context();
  context.set_request_id(o.request_id);
  if (o.request_id.empty()) {
    context.set_request_id(RandomUuid());
    std::fprintf(stderr, "request id: %s\n", context.request_id().c_str());
  }
  context.set_actor(o.actor.empty() ? "operator" : o.actor);
  context.set_reason(o.reason);
}

template <typename Request, typename Response>
absl::Status Write(const Options& o,
                   grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                const Request&, Response*),
                   Request request) {
  SetContext(o, &request);
  return CallAndPrint(o.address, NewStub(o), method, request);
}

// "3 months", "1month", "30 d" is refused: a unit is written out.
absl::StatusOr<pb::Term> ParseTerm(const std::string& text) {
  size_t digits = 0;
  while (digits < text.size() && absl::ascii_isdigit(text[digits])) ++digits;
  absl::string_view unit =
      absl::StripAsciiWhitespace(absl::string_view(text).substr(digits));
  absl::ConsumeSuffix(&unit, "s");
  pb::TermUnit parsed = pb::TERM_UNIT_UNSPECIFIED;
  int32_t count = 0;
  if (!absl::SimpleAtoi(text.substr(0, digits), &count) ||
      !pb::TermUnit_Parse(
          absl::StrCat("TERM_UNIT_", absl::AsciiStrToUpper(unit)), &parsed) ||
      parsed == pb::TERM_UNIT_UNSPECIFIED) {
    return absl::InvalidArgumentError(
        absl::StrCat("--term: ", text,
                     " is no term; write \"3 months\" (day, week, month, "
                     "year)"));
  }
  pb::Term term;
  term.set_unit(parsed);
  term.set_count(count);
  return term;
}

absl::Status SetInstant(absl::string_view option, const std::string& text,
                        google::protobuf::Timestamp* (*mutable_field)(void*),
                        void* request) {
  if (text.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const absl::Time time, ParseInstant(option, text));
  *mutable_field(request) = ToProto(time);
  return absl::OkStatus();
}

absl::Status Grant(const Options& o) {
  pb::GrantRequest request;
  request.set_subject(o.subject);
  request.set_plan(o.plan);
  request.set_external_key(o.external_key);
  RETURN_IF_ERROR(SetInstant(
      "--starts-at", o.starts_at,
      [](void* r) {
        return static_cast<pb::GrantRequest*>(r)->mutable_starts_at();
      },
      &request));
  RETURN_IF_ERROR(SetInstant(
      "--expires-at", o.expires_at,
      [](void* r) {
        return static_cast<pb::GrantRequest*>(r)->mutable_expires_at();
      },
      &request));
  if (!o.term.empty()) {
    ASSIGN_OR_RETURN(*request.mutable_term(), ParseTerm(o.term));
  }
  if (o.lifetime) request.set_lifetime(true);
  return Write(o, &Stub::Grant, std::move(request));
}

absl::Status Extend(const Options& o) {
  pb::ExtendRequest request;
  request.set_subscription_id(o.id);
  RETURN_IF_ERROR(SetInstant(
      "--expires-at", o.expires_at,
      [](void* r) {
        return static_cast<pb::ExtendRequest*>(r)->mutable_expires_at();
      },
      &request));
  if (!o.term.empty()) {
    ASSIGN_OR_RETURN(*request.mutable_term(), ParseTerm(o.term));
  }
  return Write(o, &Stub::Extend, std::move(request));
}

absl::Status Cancel(const Options& o) {
  pb::CancelRequest request;
  request.set_subscription_id(o.id);
  request.set_mode(o.mode == "now" ? pb::CANCEL_MODE_NOW
                                   : pb::CANCEL_MODE_AT_END);
  return Write(o, &Stub::Cancel, std::move(request));
}

absl::Status ResumeCancel(const Options& o) {
  pb::ResumeCancelRequest request;
  request.set_subscription_id(o.id);
  return Write(o, &Stub::ResumeCancel, std::move(request));
}

absl::Status Revoke(const Options& o) {
  pb::RevokeRequest request;
  request.set_subscription_id(o.id);
  return Write(o, &Stub::Revoke, std::move(request));
}

absl::Status Pause(const Options& o) {
  pb::PauseRequest request;
  request.set_subscription_id(o.id);
  RETURN_IF_ERROR(SetInstant(
      "--at", o.at,
      [](void* r) { return static_cast<pb::PauseRequest*>(r)->mutable_at(); },
      &request));
  return Write(o, &Stub::Pause, std::move(request));
}

absl::Status Resume(const Options& o) {
  pb::ResumeRequest request;
  request.set_subscription_id(o.id);
  RETURN_IF_ERROR(SetInstant(
      "--expires-at", o.expires_at,
      [](void* r) {
        return static_cast<pb::ResumeRequest*>(r)->mutable_expires_at();
      },
      &request));
  return Write(o, &Stub::Resume, std::move(request));
}

absl::Status ChangePlan(const Options& o) {
  pb::ChangePlanRequest request;
  request.set_subscription_id(o.id);
  request.set_plan(o.plan);
  RETURN_IF_ERROR(SetInstant(
      "--at", o.at,
      [](void* r) {
        return static_cast<pb::ChangePlanRequest*>(r)->mutable_effective_at();
      },
      &request));
  if (o.at_end) request.set_at_end(true);
  return Write(o, &Stub::ChangePlan, std::move(request));
}

absl::Status Transfer(const Options& o) {
  pb::TransferRequest request;
  request.set_subscription_id(o.id);
  request.set_to_subject(o.subject);
  return Write(o, &Stub::Transfer, std::move(request));
}

absl::Status CreateOrder(const Options& o) {
  pb::CreateOrderRequest request;
  request.set_route(o.route);
  request.set_order_id(o.order_id);
  request.set_subject(o.subject);
  if (!o.product.empty()) {
    request.set_product_id(o.product);
  } else {
    request.set_plan(o.plan);
  }
  request.set_amount_minor(o.amount);
  request.set_currency(o.currency);
  return Write(o, &Stub::CreateOrder, std::move(request));
}

absl::Status LinkCustomer(const Options& o) {
  pb::LinkCustomerRequest request;
  request.set_route(o.route);
  request.set_account(o.account);
  request.set_customer_id(o.customer);
  request.set_subject(o.subject);
  return Write(o, &Stub::LinkCustomer, std::move(request));
}

absl::Status EraseSubject(const Options& o) {
  pb::EraseSubjectRequest request;
  request.set_subject(o.subject);
  return Write(o, &Stub::EraseSubject, std::move(request));
}

absl::Status Get(const Options& o) {
  pb::GetRequest request;
  request.set_subscription_id(o.id);
  return CallAndPrint(o.address, NewStub(o), &Stub::Get, request);
}

absl::Status List(const Options& o) {
  pb::ListRequest request;
  request.set_subject(o.subject);
  request.set_plan(o.plan);
  request.set_active_only(o.active_only);
  request.set_page_size(1000);
  const std::unique_ptr<Stub> stub = NewStub(o);
  do {
    ASSIGN_OR_RETURN(const pb::ListResponse page,
                     CallService(o.address, *stub, &Stub::List, request));
    Print(page);
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return absl::OkStatus();
}

absl::Status History(const Options& o) {
  pb::HistoryRequest request;
  request.set_subscription_id(o.id);
  request.set_page_size(500);
  const std::unique_ptr<Stub> stub = NewStub(o);
  do {
    ASSIGN_OR_RETURN(const pb::HistoryResponse page,
                     CallService(o.address, *stub, &Stub::History, request));
    for (const pb::HistoryEntry& entry : page.entries()) Print(entry);
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return absl::OkStatus();
}

absl::Status Explain(const Options& o) {
  pb::ExplainRequest request;
  request.set_subject(o.subject);
  request.set_feature(o.feature);
  RETURN_IF_ERROR(SetInstant(
      "--at", o.at,
      [](void* r) { return static_cast<pb::ExplainRequest*>(r)->mutable_at(); },
      &request));
  return CallAndPrint(o.address, NewStub(o), &Stub::Explain, request);
}

}  // namespace

void AddSubscriptionCommands(CLI::App* root, Command* chosen) {
  static Options o;
  CLI::App* family = root->add_subcommand(
      "subscription", "shows subscriptions and writes them");
  family->require_subcommand(1);
  const auto add = [&](const char* verb, const char* help,
                       absl::Status (*run)(const Options&)) {
    CLI::App* command = family->add_subcommand(verb, help);
    AddAddress(command, &o.address, kDefaultAddress);
    command->callback([chosen, run] { *chosen = [run] { return run(o); }; });
    return command;
  };
  const auto add_write = [&](const char* verb, const char* help,
                             absl::Status (*run)(const Options&)) {
    CLI::App* command = add(verb, help, run);
    command->add_option("--reason", o.reason, "why, for the record")
        ->required();
    TakeFromEnvironment(
        command->add_option("--actor", o.actor, "who does it, for the record")
            ->default_str("operator"),
        "USER", &o.actor);
    command->add_option(
        "--request-id", o.request_id,
        "repeats the call that had this id, safely; made and printed when "
        "absent");
    return command;
  };
  const auto id = [&](CLI::App* command) {
    command->add_option("--id", o.id, "Tenure's id of the subscription")
        ->required();
  };
  const auto subject = [&](CLI::App* command,
                           const char* help = "the subject") {
    command->add_option("--subject", o.subject, help)->required();
  };
  const auto end = [&](CLI::App* command) {
    CLI::Option_group* group = command->add_option_group("end");
    group->add_option("--expires-at", o.expires_at,
                      "the end, RFC 3339 (2027-01-31T10:00:00Z)");
    group->add_option("--term", o.term, "a length, \"3 months\"");
    return group;
  };

  id(add("get", "shows one", &Get));
  CLI::App* list = add("list", "lists those of a subject", &List);
  subject(list);
  list->add_option("--plan", o.plan, "only those of this plan");
  list->add_flag("--active", o.active_only, "only those that are active now");
  id(add("history", "shows facts and events of one, oldest first", &History));
  CLI::App* explain = add(
      "explain", "shows why a subject may or may not use a feature", &Explain);
  subject(explain);
  explain->add_option("--feature", o.feature, "the feature")->required();
  explain->add_option("--at", o.at, "another instant than now, RFC 3339");

  CLI::App* grant = add_write("grant", "gives a subject a plan", &Grant);
  subject(grant);
  grant->add_option("--plan", o.plan, "the plan")->required();
  grant->add_option("--starts-at", o.starts_at,
                    "first instant of access, RFC 3339; now when absent");
  CLI::Option_group* grant_end = end(grant);
  grant_end->add_flag("--lifetime", o.lifetime, "for ever");
  grant_end->require_option(1);
  grant->add_option("--external-key", o.external_key,
                    "its name where it comes from, granted once");
  CLI::App* extend = add_write("extend", "moves the end", &Extend);
  id(extend);
  end(extend)->require_option(1);
  CLI::App* cancel = add_write("cancel", "ends one", &Cancel);
  id(cancel);
  cancel->add_option("--when", o.mode, "now, or at the end of what was paid")
      ->required()
      ->check(CLI::IsMember({"now", "at-end"}));
  id(add_write("resume-cancel", "takes a cancellation at the end back",
               &ResumeCancel));
  id(add_write("revoke", "takes access away", &Revoke));
  CLI::App* pause = add_write("pause", "suspends access", &Pause);
  id(pause);
  pause->add_option("--at", o.at, "from when on, RFC 3339; now when absent");
  CLI::App* resume = add_write(
      "resume", "lifts a pause, a revocation or an end at once", &Resume);
  id(resume);
  resume->add_option("--expires-at", o.expires_at,
                     "a later end, RFC 3339, to make up for it");
  CLI::App* change = add_write("change-plan", "changes the plan", &ChangePlan);
  id(change);
  change->add_option("--plan", o.plan, "the new plan")->required();
  CLI::Option* change_at = change->add_option(
      "--at", o.at, "from when on, RFC 3339; now when absent");
  change->add_flag("--at-end", o.at_end, "at the end of what was paid")
      ->excludes(change_at);
  CLI::App* transfer =
      add_write("transfer", "moves one to another subject", &Transfer);
  id(transfer);
  transfer->add_option("--to", o.subject, "the other subject")->required();

  const auto route = [&](CLI::App* command) {
    command->add_option("--route", o.route, "the webhook route")->required();
  };
  CLI::App* order =
      add_write("create-order", "writes down an order before it is charged",
                &CreateOrder);
  route(order);
  order->add_option("--order-id", o.order_id, "its number; made when absent");
  subject(order);
  CLI::Option_group* item = order->add_option_group("item");
  item->add_option("--plan", o.plan, "the plan that is bought");
  item->add_option("--product", o.product,
                   "the product of the route that is bought");
  item->require_option(1);
  order->add_option("--amount", o.amount, "in minor units of the currency")
      ->required();
  order->add_option("--currency", o.currency, "ISO 4217")->required();
  CLI::App* link = add_write(
      "link-customer", "says whose a provider's customer is", &LinkCustomer);
  route(link);
  link->add_option("--account", o.account, "the provider's account, if many");
  link->add_option("--customer", o.customer, "the provider's id")->required();
  subject(link);
  subject(add_write("erase-subject",
                    "forgets a person and ends what it has; cannot be undone",
                    &EraseSubject));
}

}  // namespace tenure::tenurectl
