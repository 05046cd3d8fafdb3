#include "services/webhook-ingest/subscriptions_service.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"

namespace tenure::webhook_ingest {
namespace {

namespace pb = ::tenure::subscription::v1;

constexpr int kDefaultPageSize = 50;
constexpr int kMaxPageSize = 1000;

pb::SubscriptionState ToApi(domain::Status status) {
  pb::SubscriptionState state = pb::SUBSCRIPTION_STATE_UNSPECIFIED;
  pb::SubscriptionState_Parse(
      absl::StrCat("SUBSCRIPTION_STATE_", domain::StatusName(status)), &state);
  return state;
}

void ToApi(const store::StoredSubscription& stored, pb::Subscription* out) {
  const domain::Subscription& s = stored.state.subscription;
  out->set_id(stored.id);
  out->set_subject(stored.subject);
  out->set_plan(stored.plan);
  out->set_state(ToApi(s.status));
  out->set_route(stored.route);
  out->set_environment(stored.environment);
  out->set_provider_subscription_id(stored.provider_subscription_id);
  if (s.starts_at) *out->mutable_starts_at() = ToProto(*s.starts_at);
  if (s.expires_at) *out->mutable_expires_at() = ToProto(*s.expires_at);
  if (stored.access_until) {
    *out->mutable_access_until() = ToProto(*stored.access_until);
  }
  out->set_lifetime(s.lifetime);
  if (s.cancel_at) *out->mutable_cancel_at() = ToProto(*s.cancel_at);
  out->set_will_renew(s.will_renew);
  if (stored.state.lifecycle.expired_at) {
    *out->mutable_expired_at() = ToProto(*stored.state.lifecycle.expired_at);
  }
  out->set_episode(stored.state.lifecycle.episode);
}

// A page token is the id of the last row of the page before.
absl::StatusOr<std::optional<int64_t>> ParsePageToken(
    const std::string& token) {
  if (token.empty()) return std::nullopt;
  int64_t id = 0;
  if (!absl::SimpleAtoi(token, &id) || id <= 0) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     common::v1::ERROR_REASON_PAGE_TOKEN_INVALID,
                     "page_token: was not made by this method",
                     {{"field", "page_token"}});
  }
  return id;
}

}  // namespace

grpc::Status SubscriptionsService::Get(grpc::ServerContext* context,
                                       const pb::GetRequest* request,
                                       pb::GetResponse* response) {
  return guard_.Run(context, "Get", [&]() -> absl::Status {
    if (request->subscription_id() == 0) {
      return FieldMissingError("subscription_id");
    }
    if (request->subscription_id() < 0) {
      return FieldInvalidError("subscription_id", "must be positive");
    }
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
    if (request->page_size() < 0) {
      return FieldInvalidError("page_size", "must not be negative");
    }
    const int limit = request->page_size() == 0
                          ? kDefaultPageSize
                          : std::min(request->page_size(), kMaxPageSize);
    ASSIGN_OR_RETURN(const std::optional<int64_t> before,
                     ParsePageToken(request->page_token()));
    // One more than asked for says whether there is a further page.
    ASSIGN_OR_RETURN(
        const std::vector<store::StoredSubscription> rows,
        store_.ListOfSubject(request->subject(), before, limit + 1));
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

}  // namespace tenure::webhook_ingest
