#include "services/webhook-ingest/ingest_queue.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "common/base/error.h"
#include "common/base/log.h"

namespace tenure::webhook_ingest {
namespace {

// Events that wait for the thread that applies what was locked; more are left
// to the retry job.
constexpr size_t kMaxLocked = 256;

// Bodies that may wait for a writer; the listener's own bound ends when it has
// answered, and it answers without waiting when the database does not.
constexpr size_t kMaxQueuedBytes = size_t{64} * 1024 * 1024;
// A statement takes a batch as one text, in hex.
constexpr size_t kMaxBatchBytes = size_t{8} * 1024 * 1024;

}  // namespace

IngestQueue::IngestQueue(store::InboxStore& inbox, const Options& options,
                         const Clock& clock, obs::Registry& registry)
    : inbox_(inbox),
      options_(options),
      clock_(clock),
      batch_size_(registry.Histogram("ingest_batch_events",
                                     "events that share one commit", {},
                                     {1, 2, 4, 8, 16, 32, 64, 128, 256, 512})),
      wait_seconds_(registry.Histogram(
          "ingest_stage_seconds", "time of a delivery by what it was spent on",
          {{"stage", "queue"}})),
      write_seconds_(registry.Histogram(
          "ingest_stage_seconds", "time of a delivery by what it was spent on",
          {{"stage", "write"}})),
      alone_(registry.Counter("ingest_alone_total",
                              "events that were recorded alone")),
      locked_(registry.Counter(
          "ingest_locked_total",
          "events whose subscription was locked elsewhere, applied later")),
      queued_(registry.Gauge("ingest_queue_events",
                             "verified events that wait to be recorded")) {
  for (int i = 0; i < options_.batch_writers; ++i) {
    batch_threads_.emplace_back([this] { WriteBatches(); });
  }
  for (int i = 0; i < options_.single_writers; ++i) {
    other_threads_.emplace_back([this] { RecordSingles(); });
  }
  other_threads_.emplace_back([this] { ApplyLocked(); });
}

IngestQueue::~IngestQueue() { Stop(); }

void IngestQueue::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  batch_wake_.NotifyAll();
  for (std::thread& thread : batch_threads_) thread.join();
  batch_threads_.clear();
  {
    MutexLock lock(mutex_);
    batches_done_ = true;
  }
  single_wake_.NotifyAll();
  locked_wake_.NotifyAll();
  for (std::thread& thread : other_threads_) thread.join();
  other_threads_.clear();
}

void IngestQueue::Submit(store::DeliveredEvent event, Done done) {
  const bool together = store::InboxStore::MayGoTogether(event);
  const Key key = KeyOf(event);
  Item item{std::move(event), std::move(done), clock_.Monotonic()};
  {
    MutexLock lock(mutex_);
    if (!stopping_ &&
        batch_queue_.size() + single_queue_.size() <
            static_cast<size_t>(options_.max_queued) &&
        queued_bytes_ + item.event.body.size() <= kMaxQueuedBytes) {
      NoteQueued(item);
      if (!together) {
        single_queue_.push_back(std::move(item));
        single_wake_.NotifyOne();
        return;
      }
      batch_queue_.push_back(std::move(item));
      // The end of the batch that has its subscription wakes the writers.
      const bool may_go = key == Key() || in_flight_.count(key) == 0;
      if (may_go && IsWorthACommit()) batch_wake_.NotifyOne();
      return;
    }
  }
  item.done(OverloadedError("the queue of deliveries"));
}

void IngestQueue::NoteQueued(const Item& item) {
  queued_bytes_ += item.event.body.size();
  queued_.Increment();
}

void IngestQueue::NoteTaken(const Item& item) {
  queued_bytes_ -= item.event.body.size();
  queued_.Decrement();
}

IngestQueue::Key IngestQueue::KeyOf(const store::DeliveredEvent& delivered) {
  const providers::ProviderEvent& event = delivered.event;
  if (event.subscriptions.empty()) return {};
  return {delivered.route.id, event.account,
          event.subscriptions[0].provider_subscription_id};
}

std::vector<IngestQueue::Item> IngestQueue::TakeBatch() {
  std::vector<Item> batch;
  std::vector<Item> passed;
  const std::multiset<Key> others = in_flight_;
  size_t bytes = 0;
  while (!batch_queue_.empty() && bytes < kMaxBatchBytes &&
         batch.size() < static_cast<size_t>(options_.batch_size)) {
    Item item = std::move(batch_queue_.front());
    batch_queue_.pop_front();
    const Key key = KeyOf(item.event);
    if (key != Key() && others.count(key) != 0) {
      passed.push_back(std::move(item));
      continue;
    }
    if (key != Key()) in_flight_.insert(key);
    bytes += item.event.body.size();
    NoteTaken(item);
    batch.push_back(std::move(item));
  }
  batch_queue_.insert(batch_queue_.begin(),
                      std::make_move_iterator(passed.begin()),
                      std::make_move_iterator(passed.end()));
  return batch;
}

void IngestQueue::Gather() {
  // Deliveries come in waves, because a commit answers many senders at once.
  // Whoever is ready to run may add to the batch first; nobody is waited for,
  // so with nothing else to run this costs a microsecond.
  for (size_t before = 0;;) {
    {
      MutexLock lock(mutex_);
      const size_t now = batch_queue_.size();
      if (now <= before || now >= static_cast<size_t>(options_.batch_size)) {
        return;
      }
      before = now;
    }
    std::this_thread::yield();
  }
}

bool IngestQueue::IsWorthACommit() const {
  // Beside a commit in flight a much smaller one costs more than it brings:
  // what waits goes with the next. Half as many is where neither the rate with
  // many senders nor the latency with few is worse (measured).
  return !batch_queue_.empty() &&
         (stopping_ || 2 * batch_queue_.size() >= events_in_flight_ ||
          batch_queue_.size() >= static_cast<size_t>(options_.batch_size));
}

void IngestQueue::WriteBatches() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      while (!IsWorthACommit()) {
        if (stopping_ && batch_queue_.empty()) return;
        batch_wake_.Wait(mutex_);
      }
    }
    Gather();
    std::vector<Item> batch;
    {
      MutexLock lock(mutex_);
      if (IsWorthACommit()) batch = TakeBatch();
      if (batch.empty()) {
        // The subscriptions of all that wait are in flight; the end of that
        // batch wakes this thread.
        if (!batch_queue_.empty()) batch_wake_.Wait(mutex_);
        continue;
      }
      events_in_flight_ += batch.size();
    }
    std::vector<Key> keys;
    for (const Item& item : batch) keys.push_back(KeyOf(item.event));
    Write(batch);
    {
      MutexLock lock(mutex_);
      for (const Key& key : keys) {
        const auto it = in_flight_.find(key);
        if (it != in_flight_.end()) in_flight_.erase(it);
      }
      events_in_flight_ -= keys.size();
    }
    // Another writer may wait for the subscriptions of this batch.
    batch_wake_.NotifyAll();
  }
}

void IngestQueue::Write(std::vector<Item>& batch) {
  const absl::Duration started = clock_.Monotonic();
  std::vector<const store::DeliveredEvent*> events;
  events.reserve(batch.size());
  for (const Item& item : batch) {
    wait_seconds_.Observe(absl::ToDoubleSeconds(started - item.submitted));
    events.push_back(&item.event);
  }
  batch_size_.Observe(static_cast<double>(batch.size()));
  auto recorded = inbox_.RecordTogether(events);
  write_seconds_.Observe(absl::ToDoubleSeconds(clock_.Monotonic() - started));
  if (!recorded.ok() &&
      !store::InboxStore::ShouldRecordAlone(recorded.status())) {
    for (Item& item : batch) item.done(recorded.status());
    return;
  }
  if (!recorded.ok()) {
    log::Warning("a batch of events failed; each is recorded alone",
                 {{"events", static_cast<int64_t>(batch.size())},
                  {"detail", std::string(recorded.status().message())}});
  }
  std::vector<Item> alone;
  std::vector<std::pair<int64_t, store::DeliveredEvent>> locked;
  for (size_t i = 0; i < batch.size(); ++i) {
    if (!recorded.ok() || !(*recorded)[i].has_value()) {
      alone.push_back(std::move(batch[i]));
      continue;
    }
    store::RecordedEvent& event = *(*recorded)[i];
    batch[i].done(event);
    if (event.apply_next) {
      locked.emplace_back(event.event_id, std::move(batch[i].event));
    }
  }
  ApplyNext(std::move(locked));
  if (alone.empty()) return;
  MutexLock lock(mutex_);
  // Admitted once, so no bound applies.
  for (Item& item : alone) {
    NoteQueued(item);
    single_queue_.push_back(std::move(item));
  }
  single_wake_.NotifyAll();
}

void IngestQueue::ApplyNext(
    std::vector<std::pair<int64_t, store::DeliveredEvent>> locked) {
  if (locked.empty()) return;
  locked_.Increment(static_cast<double>(locked.size()));
  MutexLock lock(mutex_);
  for (auto& event : locked) {
    if (locked_queue_.size() >= kMaxLocked) break;
    // The inbox has it.
    event.second.body.clear();
    locked_queue_.push_back(std::move(event));
    locked_wake_.NotifyOne();
  }
}

void IngestQueue::RecordSingles() {
  for (;;) {
    std::optional<Item> item;
    {
      MutexLock lock(mutex_);
      while (single_queue_.empty() && !batches_done_) single_wake_.Wait(mutex_);
      if (single_queue_.empty()) return;
      item = std::move(single_queue_.front());
      single_queue_.pop_front();
      NoteTaken(*item);
    }
    alone_.Increment();
    const absl::Duration started = clock_.Monotonic();
    wait_seconds_.Observe(absl::ToDoubleSeconds(started - item->submitted));
    absl::StatusOr<store::RecordedEvent> recorded =
        inbox_.Record(item->event.route, item->event.event, item->event.body);
    write_seconds_.Observe(absl::ToDoubleSeconds(clock_.Monotonic() - started));
    item->done(recorded);
    if (!recorded.ok() || !recorded->apply_next) continue;
    std::vector<std::pair<int64_t, store::DeliveredEvent>> locked;
    locked.emplace_back(recorded->event_id, std::move(item->event));
    ApplyNext(std::move(locked));
  }
}

void IngestQueue::ApplyLocked() {
  for (;;) {
    std::optional<std::pair<int64_t, store::DeliveredEvent>> event;
    {
      MutexLock lock(mutex_);
      while (locked_queue_.empty() && !stopping_) locked_wake_.Wait(mutex_);
      // What is left waits in the inbox and is due soon.
      if (stopping_) return;
      event = std::move(locked_queue_.front());
      locked_queue_.pop_front();
    }
    ApplyOne(event->first, event->second);
  }
}

void IngestQueue::ApplyOne(int64_t event_id,
                           const store::DeliveredEvent& event) {
  const log::ScopedRequestId scope(log::NewRequestId());
  const auto recorded = inbox_.RetryEvent(
      event_id,
      [&event](int64_t /*route_id*/, absl::string_view /*body*/)
          -> absl::StatusOr<store::InboxStore::ParsedEvent> {
        return store::InboxStore::ParsedEvent{event.route, event.event};
      });
  if (!recorded.ok()) {
    log::Warning("an event of a locked subscription is left to the retry job",
                 {{"provider_event", event_id},
                  {"detail", std::string(recorded.status().message())}});
    return;
  }
  if (!recorded->has_value()) return;
  log::Info("event applied after its subscription was locked",
            {{"provider_event", event_id},
             {"state", store::EventStateName((*recorded)->state)},
             {"reason", (*recorded)->reason}});
}

}  // namespace tenure::webhook_ingest
