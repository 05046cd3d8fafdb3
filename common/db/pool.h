#ifndef TENURE_COMMON_DB_POOL_H_
#define TENURE_COMMON_DB_POOL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/db/connection.h"

namespace tenure::db {

struct PoolOptions {
  ConnectionOptions connection;
  int size = 8;
  absl::Duration acquire_timeout = absl::Seconds(2);
};

// A bounded pool of sessions. Thread-safe. A session is handed out only while
// it is usable and silent; a broken one is dropped, never repaired, and a new
// one is opened in its place with its settings asserted.
class Pool {
 public:
  explicit Pool(PoolOptions options,
                const Clock& clock = SystemClock::Instance());
  ~Pool();

  // A session on loan; returns to the pool on destruction.
  class Lease {
   public:
    Lease(Pool* pool, std::unique_ptr<Connection> connection)
        : pool_(pool), connection_(std::move(connection)) {}
    Lease(Lease&&) = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (connection_ != nullptr) pool_->Return(std::move(connection_));
    }
    Connection& operator*() { return *connection_; }
    Connection* operator->() { return connection_.get(); }

   private:
    Pool* pool_;
    std::unique_ptr<Connection> connection_;
  };

  // Waits up to acquire_timeout for a free place. Errors: RESOURCE_EXHAUSTED
  // (all in use), UNAVAILABLE (cannot connect).
  absl::StatusOr<Lease> Acquire();

  // Runs one repeatable statement in its own implicit transaction; when the
  // session turns out to be lost, once more on another.
  absl::StatusOr<Result> Execute(const Statement& statement,
                                 const Params& params = {});

  // Runs `body` in a transaction and commits it. The whole is repeated, at
  // most kMaxAttempts times with jittered backoff, when PostgreSQL answers
  // with a serialization failure or deadlock (40001, 40P01), and when the
  // session was lost before COMMIT was sent. `body` must therefore have no
  // effect outside the transaction but in variables it sets afresh. An unknown
  // commit outcome is not repeated here: it is returned (IsCommitUnknown) and
  // the caller decides by key.
  absl::Status RunTransaction(
      absl::FunctionRef<absl::Status(Transaction&)> body);

  static constexpr int kMaxAttempts = 5;

  struct Stats {
    int open = 0;
    int in_use = 0;
    int64_t opened_total = 0;
    int64_t discarded_total = 0;
  };
  Stats stats() const;

 private:
  void Return(std::unique_ptr<Connection> connection);

  const PoolOptions options_;
  const Clock& clock_;
  mutable Mutex mutex_;
  CondVar returned_;
  std::vector<std::unique_ptr<Connection>> idle_ TENURE_GUARDED_BY(mutex_);
  int in_use_ TENURE_GUARDED_BY(mutex_) = 0;
  int64_t opened_ TENURE_GUARDED_BY(mutex_) = 0;
  int64_t discarded_ TENURE_GUARDED_BY(mutex_) = 0;
};

}  // namespace tenure::db

#endif  // TENURE_COMMON_DB_POOL_H_
