#include "services/webhook-ingest/flood_guard.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace tenure::webhook_ingest {

std::string FloodSubject(const providers::ProviderEvent& event) {
  const std::string of_account =
      event.account.empty() ? "" : absl::StrCat(event.account, " ");
  if (!event.customer_id.empty()) {
    return absl::StrCat(of_account, "customer ", event.customer_id);
  }
  for (const providers::SubscriptionFacts& facts : event.subscriptions) {
    if (!facts.provider_subscription_id.empty()) {
      return absl::StrCat(of_account, "subscription ",
                          facts.provider_subscription_id);
    }
  }
  return "";
}

FloodGuard::FloodGuard(int limit_per_minute,
                       const std::vector<std::string>& routes,
                       const Clock& clock, obs::Registry& registry,
                       size_t max_subjects)
    : limit_(limit_per_minute),
      max_subjects_(std::max<size_t>(1, max_subjects)),
      clock_(clock) {
  for (const std::string& route : routes) {
    flooded_[route] = &registry.Counter(
        "flooded_events_total",
        "events beyond a subject's cap of a minute, left to the retry job",
        {{"route", route}});
  }
}

bool FloodGuard::Allow(absl::string_view route, absl::string_view subject) {
  if (limit_ <= 0 || subject.empty()) return true;
  const int64_t events = Count(absl::StrCat(route, " ", subject));
  if (events <= limit_) return true;
  const auto counter =
      flooded_.find(std::string_view(route.data(), route.size()));
  if (counter != flooded_.end()) counter->second->Increment();
  if (events == limit_ + 1) {
    log::Warning(
        "flood of one subject; its events wait for the retry job",
        {{"route", route}, {"subject", subject}, {"limit_per_minute", limit_}});
  }
  return false;
}

size_t FloodGuard::subjects() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

int64_t FloodGuard::Count(std::string key) {
  const absl::Duration now = clock_.Monotonic();
  MutexLock lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    if (entries_.size() == max_subjects_) {
      by_key_.erase(entries_.back().key);
      entries_.pop_back();
    }
    entries_.push_front({std::move(key), now, 1});
    by_key_.emplace(entries_.front().key, entries_.begin());
    return 1;
  }
  entries_.splice(entries_.begin(), entries_, found->second);
  Entry& entry = entries_.front();
  if (now - entry.started >= kWindow) {
    entry.started = now;
    entry.events = 0;
  }
  return ++entry.events;
}

}  // namespace tenure::webhook_ingest
