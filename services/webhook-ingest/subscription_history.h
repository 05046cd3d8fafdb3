#ifndef TENURE_SERVICES_WEBHOOK_INGEST_SUBSCRIPTION_HISTORY_H_
#define TENURE_SERVICES_WEBHOOK_INGEST_SUBSCRIPTION_HISTORY_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/db/pool.h"
#include "tenure/subscription/v1/subscriptions.pb.h"

namespace tenure::webhook_ingest {

// What became of subscriptions and why, for people. Thread-safe.
class SubscriptionHistory {
 public:
  // `environment` is "live" or "test": rows of the other are not seen (R15).
  SubscriptionHistory(db::Pool& pool, std::string environment)
      : pool_(pool), environment_(std::move(environment)) {}

  absl::Status History(const subscription::v1::HistoryRequest& request,
                       subscription::v1::HistoryResponse* response);
  absl::Status Explain(const subscription::v1::ExplainRequest& request,
                       subscription::v1::ExplainResponse* response);

  // Facts told of each candidate.
  static constexpr int kMaxFacts = 200;

 private:
  db::Pool& pool_;
  const std::string environment_;
};

// The number of rows of a page for a page_size as it was asked for.
// INVALID_ARGUMENT for a negative one.
absl::StatusOr<int> PageLimit(int page_size);

// The error of a page_token that its method did not make.
absl::Status PageTokenError();

}  // namespace tenure::webhook_ingest

#endif  // TENURE_SERVICES_WEBHOOK_INGEST_SUBSCRIPTION_HISTORY_H_
