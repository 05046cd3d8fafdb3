#ifndef TENURE_SERVICES_WEBHOOK_INGEST_FLOOD_GUARD_H_
#define TENURE_SERVICES_WEBHOOK_INGEST_FLOOD_GUARD_H_

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/obs/metrics.h"
#include "common/providers/provider_adapter.h"

namespace tenure::webhook_ingest {

// Whom an event is about, for FloodGuard: the customer, or without one the
// first subscription that is named, within the provider's account. Empty when
// the event names neither.
std::string FloodSubject(const providers::ProviderEvent& event);

// Counts the events of each subject of a route, so that a flood of one subject
// does not hold up the others: beyond the cap of a minute an event is still
// stored, but its effect is left to the retry job (S22). Nothing is refused and
// nothing lost, so the count need not be exact: it lives in this process alone
// and starts from zero with it.
//
// A subject's minute begins with its first event; the next event after it ends
// begins another. At most `max_subjects` are remembered: for one more, the one
// that was quiet the longest is forgotten and counts from zero when it comes
// again. A flooding subject is never quiet for long, so it is not forgotten
// while fewer than max_subjects others come between two of its events.
//
// Each event beyond the cap is counted in flooded_events_total by route; the
// first one of a subject's minute is logged as a warning. Thread-safe.
class FloodGuard {
 public:
  static constexpr absl::Duration kWindow = absl::Minutes(1);
  static constexpr size_t kMaxSubjects = 16 * 1024;

  // `limit_per_minute` 0: everything is allowed. `routes` are the names of the
  // configured ones.
  FloodGuard(int limit_per_minute, const std::vector<std::string>& routes,
             const Clock& clock, obs::Registry& registry,
             size_t max_subjects = kMaxSubjects);
  FloodGuard(const FloodGuard&) = delete;
  FloodGuard& operator=(const FloodGuard&) = delete;

  // Counts one event. False when it is beyond the cap. An empty subject is
  // always allowed and not counted.
  bool Allow(absl::string_view route, absl::string_view subject)
      TENURE_EXCLUDES(mutex_);

  // Subjects remembered now, at most max_subjects.
  size_t subjects() const TENURE_EXCLUDES(mutex_);

 private:
  struct Entry {
    std::string key;
    absl::Duration started;  // on the clock's Monotonic() scale
    int64_t events = 0;
  };
  using Entries = std::list<Entry>;

  // Events of the key in its present minute, this one included.
  int64_t Count(std::string key) TENURE_EXCLUDES(mutex_);

  const int64_t limit_;
  const size_t max_subjects_;
  const Clock& clock_;
  std::map<std::string, prometheus::Counter*, std::less<>> flooded_;
  mutable Mutex mutex_;
  // The one heard last comes first.
  Entries entries_ TENURE_GUARDED_BY(mutex_);
  // Keys are views of Entry::key, which stays where it is.
  std::unordered_map<std::string_view, Entries::iterator> by_key_
      TENURE_GUARDED_BY(mutex_);
};

}  // namespace tenure::webhook_ingest

#endif  // TENURE_SERVICES_WEBHOOK_INGEST_FLOOD_GUARD_H_
