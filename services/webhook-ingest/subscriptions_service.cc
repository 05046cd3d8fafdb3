#include "services/webhook-ingest/subscriptions_service.h"

#include <algorithm>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "services/webhook-ingest/subscription_convert.h"

namespace tenure::webhook_ingest {
namespace {

namespace pb = ::tenure::subscription::v1;

// A page token of List is the id of the last row of the page before.
absl::StatusOr<std::optional<int64_t>> ParsePageToken(
    const std::string& token) {
  if (token.empty()) return std::nullopt;
  int64_t id = 0;
  if (!absl::SimpleAtoi(token, &id) || id <= 0) return PageTokenError();
  return id;
}

}  // namespace

std::vector<std::string> SubscriptionsService::MethodNames() {
  const auto* service =
      pb::GetRequest::descriptor()->file()->FindServiceByName("Subscriptions");
  std::vector<std::string> names;
  for (int i = 0; i < service->method_count(); ++i) {
    names.push_back(service->method(i)->name());
  }
  return names;
}

grpc::Status SubscriptionsService::Get(grpc::ServerContext* context,
                                       const pb::GetRequest* request,
                                       pb::GetResponse* response) {
  return guard_.Run(context, "Get", [&]() -> absl::Status {
    RETURN_IF_ERROR(ValidateSubscriptionId(request->subscription_id()));
    ASSIGN_OR_RETURN(const store::StoredSubscription stored,
                     store_.Get(request->subscription_id()));
    ToApi(stored, response->mutable_subscription());
    return absl::OkStatus();
  });
}

grpc::Status SubscriptionsService::List(grpc::ServerContext* context,
                                        const pb::ListRequest* request,
                                        pb::ListResponse* response) {
  return guard_.Run(context, "List", [&]() -> absl::Status {
    RETURN_IF_ERROR(ValidateText("subject", request->subject(), 255));
    ASSIGN_OR_RETURN(const int limit, PageLimit(request->page_size()));
    store::SubscriptionFilter filter;
    filter.subject = request->subject();
    ASSIGN_OR_RETURN(filter.before_id, ParsePageToken(request->page_token()));
    filter.active_only = request->active_only();
    filter.plan = request->plan();
    if (!filter.plan.empty()) {
      RETURN_IF_ERROR(ValidateText("plan", filter.plan, 127));
    }
    // One more than asked for says whether there is a further page.
    ASSIGN_OR_RETURN(const std::vector<store::StoredSubscription> rows,
                     store_.ListOfSubject(filter, limit + 1));
    const size_t count = std::min(rows.size(), static_cast<size_t>(limit));
    for (size_t i = 0; i < count; ++i) {
      ToApi(rows[i], response->add_subscriptions());
    }
    if (rows.size() > count) {
      response->set_next_page_token(absl::StrCat(rows[count - 1].id));
    }
    return absl::OkStatus();
  });
}

grpc::Status SubscriptionsService::History(grpc::ServerContext* context,
                                           const pb::HistoryRequest* request,
                                           pb::HistoryResponse* response) {
  return guard_.Run(context, "History",
                    [&] { return history_.History(*request, response); });
}

grpc::Status SubscriptionsService::Explain(grpc::ServerContext* context,
                                           const pb::ExplainRequest* request,
                                           pb::ExplainResponse* response) {
  return guard_.Run(context, "Explain",
                    [&] { return history_.Explain(*request, response); });
}

grpc::Status SubscriptionsService::Grant(grpc::ServerContext* context,
                                         const pb::GrantRequest* request,
                                         pb::GrantResponse* response) {
  return guard_.Run(context, "Grant",
                    [&] { return writes_.Grant(*request, response); });
}

grpc::Status SubscriptionsService::BatchGrant(
    grpc::ServerContext* context, const pb::BatchGrantRequest* request,
    pb::BatchGrantResponse* response) {
  return guard_.Run(context, "BatchGrant",
                    [&] { return writes_.BatchGrant(*request, response); });
}

grpc::Status SubscriptionsService::Extend(grpc::ServerContext* context,
                                          const pb::ExtendRequest* request,
                                          pb::ExtendResponse* response) {
  return guard_.Run(context, "Extend",
                    [&] { return writes_.Extend(*request, response); });
}

grpc::Status SubscriptionsService::Cancel(grpc::ServerContext* context,
                                          const pb::CancelRequest* request,
                                          pb::CancelResponse* response) {
  return guard_.Run(context, "Cancel",
                    [&] { return writes_.Cancel(*request, response); });
}

grpc::Status SubscriptionsService::ResumeCancel(
    grpc::ServerContext* context, const pb::ResumeCancelRequest* request,
    pb::ResumeCancelResponse* response) {
  return guard_.Run(context, "ResumeCancel",
                    [&] { return writes_.ResumeCancel(*request, response); });
}

grpc::Status SubscriptionsService::Revoke(grpc::ServerContext* context,
                                          const pb::RevokeRequest* request,
                                          pb::RevokeResponse* response) {
  return guard_.Run(context, "Revoke",
                    [&] { return writes_.Revoke(*request, response); });
}

grpc::Status SubscriptionsService::Pause(grpc::ServerContext* context,
                                         const pb::PauseRequest* request,
                                         pb::PauseResponse* response) {
  return guard_.Run(context, "Pause",
                    [&] { return writes_.Pause(*request, response); });
}

grpc::Status SubscriptionsService::Resume(grpc::ServerContext* context,
                                          const pb::ResumeRequest* request,
                                          pb::ResumeResponse* response) {
  return guard_.Run(context, "Resume",
                    [&] { return writes_.Resume(*request, response); });
}

grpc::Status SubscriptionsService::ChangePlan(
    grpc::ServerContext* context, const pb::ChangePlanRequest* request,
    pb::ChangePlanResponse* response) {
  return guard_.Run(context, "ChangePlan",
                    [&] { return writes_.ChangePlan(*request, response); });
}

grpc::Status SubscriptionsService::Transfer(grpc::ServerContext* context,
                                            const pb::TransferRequest* request,
                                            pb::TransferResponse* response) {
  return guard_.Run(context, "Transfer",
                    [&] { return writes_.Transfer(*request, response); });
}

grpc::Status SubscriptionsService::CreateOrder(
    grpc::ServerContext* context, const pb::CreateOrderRequest* request,
    pb::CreateOrderResponse* response) {
  return guard_.Run(context, "CreateOrder",
                    [&] { return writes_.CreateOrder(*request, response); });
}

grpc::Status SubscriptionsService::LinkCustomer(
    grpc::ServerContext* context, const pb::LinkCustomerRequest* request,
    pb::LinkCustomerResponse* response) {
  return guard_.Run(context, "LinkCustomer",
                    [&] { return writes_.LinkCustomer(*request, response); });
}

grpc::Status SubscriptionsService::EraseSubject(
    grpc::ServerContext* context, const pb::EraseSubjectRequest* request,
    pb::EraseSubjectResponse* response) {
  return guard_.Run(context, "EraseSubject",
                    [&] { return writes_.EraseSubject(*request, response); });
}

}  // namespace tenure::webhook_ingest
