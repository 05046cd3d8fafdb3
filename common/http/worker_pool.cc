#include "common/http/worker_pool.h"

#include <utility>

namespace tenure::http {

WorkerPool::WorkerPool(int threads, int max_queued) : max_queued_(max_queued) {
  // Counted as free from the start, so that the first jobs find room even
  // before the threads run.
  {
    MutexLock lock(mutex_);
    idle_ = threads;
  }
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

WorkerPool::~WorkerPool() { Stop(); }

bool WorkerPool::Submit(Job job) {
  MutexLock lock(mutex_);
  if (stopped_) return false;
  if (static_cast<int>(queue_.size()) >= max_queued_ + idle_) return false;
  queue_.push_back(std::move(job));
  wake_.NotifyOne();
  return true;
}

void WorkerPool::Stop() {
  std::deque<Job> dropped;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    dropped.swap(queue_);
    wake_.NotifyAll();
  }
  // Outside the lock: a job's destructor may answer a request.
  dropped.clear();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

int WorkerPool::queued() const {
  MutexLock lock(mutex_);
  const int waiting = static_cast<int>(queue_.size()) - idle_;
  return waiting > 0 ? waiting : 0;
}

void WorkerPool::Run() {
  for (;;) {
    Job job;
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !stopped_) wake_.Wait(mutex_);
      if (stopped_) return;
      job = std::move(queue_.front());
      queue_.pop_front();
      --idle_;
    }
    job();
    // Before the thread counts as free: the job's captures are its work too.
    job = nullptr;
    MutexLock lock(mutex_);
    ++idle_;
  }
}

}  // namespace tenure::http
