#ifndef TENURE_SERVICES_WEBHOOK_INGEST_INGEST_QUEUE_H_
#define TENURE_SERVICES_WEBHOOK_INGEST_INGEST_QUEUE_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/obs/metrics.h"
#include "common/store/inbox_store.h"

namespace tenure::webhook_ingest {

// Carries verified events into the inbox, many to a commit: what arrives while
// the last commit is in flight goes together, up to a cap. There is no timer,
// so a lone event waits for nothing.
//
// Events that cannot go with others (InboxStore::MayGoTogether), and those of a
// batch that failed, are recorded alone by threads of their own; so a poisonous
// event fails nobody else, and one that waits for a lock stalls no batch. An
// event whose subscription is locked elsewhere is stored as received and
// applied right after by one more thread; when that is not quick either, the
// retry job does it. Each thread uses one connection.
//
// Thread-safe.
class IngestQueue {
 public:
  struct Options {
    // Threads that write batches. Two keep the database busy while the other
    // waits for its commit; more only lower the throughput (measured).
    int batch_writers = 2;
    int batch_size = 64;
    // Threads that record events alone.
    int single_writers = 2;
    // Events that may wait; one more is refused.
    int max_queued = 1024;
  };
  // Called once for each event, by a thread of the queue or of the caller; must
  // not block.
  using Done = std::function<void(absl::StatusOr<store::RecordedEvent>)>;

  IngestQueue(store::InboxStore& inbox, const Options& options,
              const Clock& clock, obs::Registry& registry);
  // Finishes what waits, as far as its answer is not given yet.
  ~IngestQueue();
  IngestQueue(const IngestQueue&) = delete;
  IngestQueue& operator=(const IngestQueue&) = delete;

  // What the destructor does, for owners of what the answers use. Nothing may
  // be submitted any more. Repeatable.
  void Stop() TENURE_EXCLUDES(mutex_);

  // OVERLOADED when too many wait, or too many bytes.
  void Submit(store::DeliveredEvent event, Done done) TENURE_EXCLUDES(mutex_);

 private:
  // A subscription by its provider's names; empty for none.
  using Key = std::tuple<int64_t, std::string, std::string>;
  struct Item {
    store::DeliveredEvent event;
    Done done;
    absl::Duration submitted;
  };

  static Key KeyOf(const store::DeliveredEvent& event);
  void NoteQueued(const Item& item) TENURE_REQUIRES(mutex_);
  void NoteTaken(const Item& item) TENURE_REQUIRES(mutex_);
  // Lets the threads that are about to add events do so.
  void Gather() TENURE_EXCLUDES(mutex_);
  bool IsWorthACommit() const TENURE_REQUIRES(mutex_);
  // The next events whose subscriptions no other batch in flight has: they
  // would only find them locked.
  std::vector<Item> TakeBatch() TENURE_REQUIRES(mutex_);
  void WriteBatches() TENURE_EXCLUDES(mutex_);
  void Write(std::vector<Item>& batch) TENURE_EXCLUDES(mutex_);
  void RecordSingles() TENURE_EXCLUDES(mutex_);
  // Hands stored events to the thread that applies what was locked.
  void ApplyNext(std::vector<std::pair<int64_t, store::DeliveredEvent>> locked)
      TENURE_EXCLUDES(mutex_);
  void ApplyLocked() TENURE_EXCLUDES(mutex_);
  void ApplyOne(int64_t event_id, const store::DeliveredEvent& event);

  store::InboxStore& inbox_;
  const Options options_;
  const Clock& clock_;
  prometheus::Histogram& batch_size_;
  prometheus::Histogram& wait_seconds_;
  prometheus::Histogram& write_seconds_;
  prometheus::Counter& alone_;
  prometheus::Counter& locked_;
  prometheus::Gauge& queued_;

  Mutex mutex_;
  CondVar batch_wake_;
  CondVar single_wake_;
  CondVar locked_wake_;
  bool stopping_ TENURE_GUARDED_BY(mutex_) = false;
  // What a batch gave up is in the other queue by now.
  bool batches_done_ TENURE_GUARDED_BY(mutex_) = false;
  size_t queued_bytes_ TENURE_GUARDED_BY(mutex_) = 0;
  std::deque<Item> batch_queue_ TENURE_GUARDED_BY(mutex_);
  std::deque<Item> single_queue_ TENURE_GUARDED_BY(mutex_);
  std::deque<std::pair<int64_t, store::DeliveredEvent>> locked_queue_
      TENURE_GUARDED_BY(mutex_);
  std::multiset<Key> in_flight_ TENURE_GUARDED_BY(mutex_);
  size_t events_in_flight_ TENURE_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> batch_threads_;
  std::vector<std::thread> other_threads_;
};

}  // namespace tenure::webhook_ingest

#endif  // TENURE_SERVICES_WEBHOOK_INGEST_INGEST_QUEUE_H_
