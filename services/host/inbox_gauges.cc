#include "services/host/inbox_gauges.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "services/host/statements.h"

namespace tenure::host {
namespace {

// The columns of select_inbox_counts.sql, and the values of the label.
constexpr const char* kStates[] = {"received", "parked", "failed",
                                   "quarantined", "dead"};

double AgeSeconds(const db::Row& row, absl::string_view column) {
  return static_cast<double>(row.OptionalInt64(column).value_or(0)) / 1e6;
}

}  // namespace

InboxGauges::InboxGauges(std::shared_ptr<db::Pool> pool,
                         obs::Registry& registry)
    : pool_(std::move(pool)), registry_(registry) {
  periodic_ = std::make_unique<Periodic>(kPeriod, [this](absl::Duration) {
    if (const absl::Status status = Refresh(); !status.ok()) {
      log::Warning("events not counted",
                   {{"detail", std::string(status.message())}});
    }
  });
}

absl::Status InboxGauges::Refresh() {
  ASSIGN_OR_RETURN(
      const db::Result routes,
      pool_->Execute(kSelectInboxCounts, db::MakeParams(kMostCounted)));
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < routes.size(); ++i) {
    const Series& series = SeriesOf(routes[i].Text("route"));
    for (size_t state = 0; state < series.states.size(); ++state) {
      series.states[state]->Set(
          static_cast<double>(routes[i].Int64(kStates[state])));
    }
    series.pending_age->Set(AgeSeconds(routes[i], "pending_age_us"));
    series.due_age->Set(AgeSeconds(routes[i], "due_age_us"));
  }
  return routes.status();
}

InboxGauges::Series& InboxGauges::SeriesOf(const std::string& route) {
  const auto [it, added] = series_.try_emplace(route);
  if (!added) return it->second;
  for (const char* state : kStates) {
    it->second.states.push_back(&registry_.Gauge(
        "inbox_events",
        absl::StrCat("events that wait or were given up, by state; ends at ",
                     kMostCounted),
        {{"route", route}, {"state", state}}));
  }
  it->second.pending_age = &registry_.Gauge(
      "inbox_oldest_pending_age_seconds",
      "time since the arrival of the oldest event that waits (received, "
      "parked, failed)",
      {{"route", route}});
  it->second.due_age = &registry_.Gauge(
      "inbox_oldest_due_age_seconds",
      "how long the next try of an event is overdue; grows while no scheduler "
      "has the route",
      {{"route", route}});
  return it->second;
}

}  // namespace tenure::host
