#ifndef TENURE_SERVICES_HOST_INBOX_GAUGES_H_
#define TENURE_SERVICES_HOST_INBOX_GAUGES_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/base/periodic.h"
#include "common/db/pool.h"
#include "common/obs/metrics.h"

namespace tenure::host {

// Gauges of the events that need somebody, by route: how many wait (received,
// parked, failed) or were given up (quarantined, dead), and how old they are.
// Kept by every process that has to do with events, so that one that is dead is
// seen through another. All routes of the database count, also those that this
// process does not have: nobody may be the one that has them.
//
// Counts of each state end at kMostCounted. Until the first look that succeeds
// there are no series. Thread-safe.
class InboxGauges {
 public:
  static constexpr int64_t kMostCounted = 10'000;
  static constexpr absl::Duration kPeriod = absl::Seconds(10);

  // Looks at once and then every kPeriod, until it is destroyed. The pool is
  // shared for that long.
  InboxGauges(std::shared_ptr<db::Pool> pool, obs::Registry& registry);

  // Looks now.
  absl::Status Refresh() TENURE_EXCLUDES(mutex_);

 private:
  struct Series {
    std::vector<prometheus::Gauge*> states;
    prometheus::Gauge* pending_age = nullptr;
    prometheus::Gauge* due_age = nullptr;
  };
  Series& SeriesOf(const std::string& route) TENURE_REQUIRES(mutex_);

  const std::shared_ptr<db::Pool> pool_;
  obs::Registry& registry_;
  Mutex mutex_;
  std::map<std::string, Series> series_ TENURE_GUARDED_BY(mutex_);
  std::unique_ptr<Periodic> periodic_;
};

}  // namespace tenure::host

#endif  // TENURE_SERVICES_HOST_INBOX_GAUGES_H_
