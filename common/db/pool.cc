#include "common/db/pool.h"

#include <optional>
#include <utility>

#include "absl/random/random.h"
#include "common/base/error.h"
#include "common/base/periodic.h"
#include "common/base/status_macros.h"
#include "common/db/sql_error.h"

namespace tenure::db {
namespace {

// Full jitter over 10 ms doubled per attempt: two transactions that collided
// must not meet again at the same instant.
absl::Duration RetryDelay(int attempt) {
  thread_local absl::BitGen random;
  return absl::Milliseconds(absl::Uniform(random, 0.0, 10.0 * (1 << attempt)));
}

bool IsRetryable(const absl::Status& status, bool connection_lost) {
  const std::optional<std::string> sqlstate = SqlStateOf(status);
  if (!sqlstate.has_value()) return false;
  return connection_lost ||
         ClassifySqlState(*sqlstate) == SqlErrorClass::kRetryTransaction;
}

}  // namespace

Pool::Pool(PoolOptions options, const Clock& clock)
    : options_(std::move(options)), clock_(clock) {}

Pool::~Pool() = default;

absl::StatusOr<Pool::Lease> Pool::Acquire() {
  const absl::Duration deadline = clock_.Monotonic() + options_.acquire_timeout;
  {
    MutexLock lock(mutex_);
    while (in_use_ >= options_.size) {
      const absl::Duration left = deadline - clock_.Monotonic();
      if (left <= absl::ZeroDuration()) {
        return OverloadedError("the database connection pool");
      }
      returned_.WaitFor(mutex_, left);
    }
    ++in_use_;
    while (!idle_.empty()) {
      std::unique_ptr<Connection> connection = std::move(idle_.back());
      idle_.pop_back();
      if (connection->usable() && !connection->HasUnexpectedInput()) {
        return Lease(this, std::move(connection));
      }
      ++discarded_;
    }
    ++opened_;
  }
  auto connection = Connection::Open(options_.connection);
  if (!connection.ok()) {
    MutexLock lock(mutex_);
    --in_use_;
    --opened_;
    returned_.NotifyOne();
    return connection.status();
  }
  return Lease(this, *std::move(connection));
}

void Pool::Return(std::unique_ptr<Connection> connection) {
  MutexLock lock(mutex_);
  --in_use_;
  if (connection->usable()) {
    idle_.push_back(std::move(connection));
  } else {
    ++discarded_;
  }
  returned_.NotifyOne();
}

absl::StatusOr<Result> Pool::Execute(const Statement& statement,
                                     const Params& params) {
  for (int attempt = 0;; ++attempt) {
    ASSIGN_OR_RETURN(Lease lease, Acquire());
    absl::StatusOr<Result> result = lease->Execute(statement, params);
    if (result.ok() || lease->usable() || attempt > 0) return result;
  }
}

absl::Status Pool::RunTransaction(
    absl::FunctionRef<absl::Status(Transaction&)> body) {
  for (int attempt = 1;; ++attempt) {
    absl::Status status;
    bool lost = false;
    {
      ASSIGN_OR_RETURN(Lease lease, Acquire());
      absl::StatusOr<std::unique_ptr<Transaction>> transaction =
          Transaction::Begin(*lease);
      if (transaction.ok()) {
        status = body(**transaction);
        if (status.ok()) {
          status = (*transaction)->Commit();
          if (status.ok() || IsCommitUnknown(status)) return status;
        }
        transaction->reset();
      } else {
        status = transaction.status();
      }
      lost = !lease->usable();
    }
    if (attempt == kMaxAttempts || !IsRetryable(status, lost)) return status;
    tenure::SleepFor(RetryDelay(attempt));
  }
}

Pool::Stats Pool::stats() const {
  MutexLock lock(mutex_);
  Stats stats;
  stats.in_use = in_use_;
  stats.open = in_use_ + static_cast<int>(idle_.size());
  stats.opened_total = opened_;
  stats.discarded_total = discarded_;
  return stats;
}

}  // namespace tenure::db
