#ifndef TENURE_SERVICES_HOST_ROUTES_H_
#define TENURE_SERVICES_HOST_ROUTES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/base/periodic.h"
#include "common/db/pool.h"
#include "common/obs/metrics.h"
#include "common/providers/provider_adapter.h"
#include "common/store/fact_store.h"
#include "common/store/inbox_store.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "tenure/config/v1/config.pb.h"

namespace tenure::host {

// A configured provider instance. Thread-safe once Routes::Register has
// returned.
class ConfiguredRoute {
 public:
  const store::Route& route() const { return route_; }

  // The adapter with the keys that are live now. Keys may be exchanged at any
  // moment: a delivery is verified and read with one and the same.
  std::shared_ptr<const providers::ProviderAdapter> adapter() const
      TENURE_EXCLUDES(mutex_);

  // The key of that name vouched for a delivery at `at`.
  void NoteKeyUse(absl::string_view key, absl::Time at) const;

 private:
  friend class Routes;

  // Where a route with keys stands in reading its files again.
  struct KeyFiles {
    // SHA-256 of the texts, in the order of the files: of the keys that are
    // live, and of what was seen in their place once.
    std::vector<std::string> live;
    std::vector<std::string> seen;
    // Why they cannot be read, so that it is logged once.
    std::string error;
  };

  config::v1::RouteConfig config_;
  store::Route route_;
  absl::Duration signature_tolerance_;
  mutable Mutex mutex_;
  std::shared_ptr<const providers::ProviderAdapter> adapter_
      TENURE_GUARDED_BY(mutex_);
  KeyFiles files_;
  std::map<std::string, prometheus::Gauge*, std::less<>> last_used_;
  prometheus::Counter* reloads_replaced_ = nullptr;
  prometheus::Counter* reloads_unchanged_ = nullptr;
  prometheus::Counter* reloads_failed_ = nullptr;
};

// The configured routes by name. Find and all() are thread-safe once Register
// has returned.
class Routes {
 public:
  using Configs = google::protobuf::RepeatedPtrField<config::v1::RouteConfig>;

  // Makes an adapter of each route, with the keys in its files. Errors name the
  // route; no secret or an empty one, two files of one name, an unknown type or
  // a doubled name is one: the process must not start (C023).
  static absl::StatusOr<Routes> Make(const Configs& configs,
                                     absl::Duration signature_tolerance,
                                     obs::Registry& registry);

  // The same without keys, for who reads stored bodies again: no file is
  // opened, and no delivery ever verifies.
  static absl::StatusOr<Routes> MakeWithoutKeys(const Configs& configs);

  // Writes the routes to the database and learns their ids.
  absl::Status Register(db::Pool& pool);

  // nullptr when there is none.
  const ConfiguredRoute* Find(absl::string_view name) const;
  const ConfiguredRoute* FindById(int64_t route_id) const;

  // Reads the body of a stored event again, by the adapter of its route.
  absl::StatusOr<store::InboxStore::ParsedEvent> ReadStored(
      int64_t route_id, absl::string_view body) const;

  const std::map<std::string, std::unique_ptr<ConfiguredRoute>, std::less<>>&
  all() const {
    return routes_;
  }

  // Reads the files of all keys again. A route whose files have other texts
  // than its live keys takes them, once they were found the same twice in a
  // row: a file may be caught half written. A file that cannot be read, or
  // holds no key, leaves the route as it is; it is logged with its name and
  // counted (F32). True when something was seen for the first time and is worth
  // another look soon. Not thread-safe beside itself.
  bool ReloadKeys();

  // Does so every `period`, and at each Wake, until it is destroyed.
  std::unique_ptr<Periodic> WatchKeys(absl::Duration period);

 private:
  static absl::StatusOr<Routes> MakeAll(const Configs& configs,
                                        absl::Duration signature_tolerance,
                                        obs::Registry* registry);
  static absl::Status LoadKeys(obs::Registry& registry,
                               ConfiguredRoute* configured);
  static absl::StatusOr<bool> ReloadKeysOf(ConfiguredRoute* configured);

  std::map<std::string, std::unique_ptr<ConfiguredRoute>, std::less<>> routes_;
};

}  // namespace tenure::host

#endif  // TENURE_SERVICES_HOST_ROUTES_H_
