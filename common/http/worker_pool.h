#ifndef TENURE_COMMON_HTTP_WORKER_POOL_H_
#define TENURE_COMMON_HTTP_WORKER_POOL_H_

#include <deque>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "common/base/mutex.h"

namespace tenure::http {

// A fixed number of threads over a bounded queue. A job that does not fit is
// refused at once: waiting longer than the caller's deadline helps nobody.
// Thread-safe.
class WorkerPool {
 public:
  using Job = absl::AnyInvocable<void()>;

  // Starts `threads` (at least 1) threads; at most `max_queued` jobs wait.
  WorkerPool(int threads, int max_queued);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False when the queue is full or the pool is stopped; `job` is then
  // destroyed unrun. A free thread takes a job without using the queue's room.
  bool Submit(Job job) TENURE_EXCLUDES(mutex_);

  // Destroys the waiting jobs unrun and returns when the running ones are done.
  // Not to be called from a job.
  void Stop() TENURE_EXCLUDES(mutex_);

  // Jobs that wait now.
  int queued() const TENURE_EXCLUDES(mutex_);

 private:
  void Run() TENURE_EXCLUDES(mutex_);

  const int max_queued_;
  mutable Mutex mutex_;
  CondVar wake_;
  std::deque<Job> queue_ TENURE_GUARDED_BY(mutex_);
  int idle_ TENURE_GUARDED_BY(mutex_) = 0;
  bool stopped_ TENURE_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tenure::http

#endif  // TENURE_COMMON_HTTP_WORKER_POOL_H_
