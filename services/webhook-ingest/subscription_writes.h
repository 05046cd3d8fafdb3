#ifndef TENURE_SERVICES_WEBHOOK_INGEST_SUBSCRIPTION_WRITES_H_
#define TENURE_SERVICES_WEBHOOK_INGEST_SUBSCRIPTION_WRITES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/db/pool.h"
#include "common/domain/fold.h"
#include "common/store/fact_store.h"
#include "common/store/subscription_store.h"
#include "tenure/subscription/v1/subscriptions.pb.h"

namespace tenure::webhook_ingest {

// What operators and other services do to subscriptions: facts of the internal
// layer, each write one transaction with its request_log row, which is locked
// before everything else. Errors are those that subscriptions.proto names.
// Thread-safe.
class SubscriptionWrites {
 public:
  // `environment` is "live" or "test": subscriptions and routes of the other
  // are not seen (R15).
  SubscriptionWrites(db::Pool& pool, std::string environment)
      : pool_(pool), environment_(std::move(environment)) {}

  absl::Status Grant(const subscription::v1::GrantRequest& request,
                     subscription::v1::GrantResponse* response);
  absl::Status BatchGrant(const subscription::v1::BatchGrantRequest& request,
                          subscription::v1::BatchGrantResponse* response);
  absl::Status Extend(const subscription::v1::ExtendRequest& request,
                      subscription::v1::ExtendResponse* response);
  absl::Status Cancel(const subscription::v1::CancelRequest& request,
                      subscription::v1::CancelResponse* response);
  absl::Status ResumeCancel(
      const subscription::v1::ResumeCancelRequest& request,
      subscription::v1::ResumeCancelResponse* response);
  absl::Status Revoke(const subscription::v1::RevokeRequest& request,
                      subscription::v1::RevokeResponse* response);
  absl::Status Pause(const subscription::v1::PauseRequest& request,
                     subscription::v1::PauseResponse* response);
  absl::Status Resume(const subscription::v1::ResumeRequest& request,
                      subscription::v1::ResumeResponse* response);
  absl::Status ChangePlan(const subscription::v1::ChangePlanRequest& request,
                          subscription::v1::ChangePlanResponse* response);
  absl::Status Transfer(const subscription::v1::TransferRequest& request,
                        subscription::v1::TransferResponse* response);
  absl::Status CreateOrder(const subscription::v1::CreateOrderRequest& request,
                           subscription::v1::CreateOrderResponse* response);
  absl::Status LinkCustomer(
      const subscription::v1::LinkCustomerRequest& request,
      subscription::v1::LinkCustomerResponse* response);
  absl::Status EraseSubject(
      const subscription::v1::EraseSubjectRequest& request,
      subscription::v1::EraseSubjectResponse* response);

  static constexpr int kMaxBatch = 500;

 private:
  // A subscription under its lock, as it is at locked.now.
  struct Held {
    store::LockedSubscription locked;
    domain::Subscription present;
  };
  // What a write says.
  struct Said {
    domain::Fact fact;
    // Where the end has to be afterwards, or the write would be without effect.
    std::optional<absl::Time> reaches;
  };
  using Decide =
      absl::FunctionRef<absl::StatusOr<Said>(db::Transaction&, const Held&)>;
  // Does the write and sets the response; whose data that holds.
  using Body = absl::FunctionRef<absl::StatusOr<std::optional<int64_t>>(
      db::Transaction&, const store::Author&)>;

  // Runs `body` once for a request_id; a repeat gets the first answer.
  template <typename Request, typename Response>
  absl::Status Once(absl::string_view method, const Request& request,
                    Response* response, Body body);
  // A write of one fact to one subscription.
  template <typename Request, typename Response>
  absl::Status Change(absl::string_view method, const Request& request,
                      Response* response, Decide decide);

  absl::StatusOr<Held> Hold(db::Transaction& tx, int64_t subscription_id);
  absl::StatusOr<store::StoredSubscription> Say(db::Transaction& tx,
                                                const Held& held, Said said,
                                                const store::Author& author);
  absl::StatusOr<store::Route> FindRoute(db::Transaction& tx,
                                         const std::string& name);

  db::Pool& pool_;
  const std::string environment_;
};

}  // namespace tenure::webhook_ingest

#endif  // TENURE_SERVICES_WEBHOOK_INGEST_SUBSCRIPTION_WRITES_H_
