#ifndef TENURE_SERVICES_WEBHOOK_INGEST_ROUTES_H_
#define TENURE_SERVICES_WEBHOOK_INGEST_ROUTES_H_

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/db/pool.h"
#include "common/providers/provider_adapter.h"
#include "common/store/fact_store.h"
#include "tenure/config/v1/config.pb.h"

namespace tenure::webhook_ingest {

// A configured provider instance, ready to take events.
struct ConfiguredRoute {
  std::unique_ptr<providers::ProviderAdapter> adapter;
  store::Route route;
};

// The configured routes by name. Immutable, so thread-safe.
class Routes {
 public:
  // Reads the secret files and makes an adapter of each route. Errors name the
  // route; an empty secret, an unknown type or a doubled name is one: the
  // process must not start (C023).
  static absl::StatusOr<Routes> Make(
      const config::v1::WebhookIngestConfig& config);

  // Writes the routes to the database and learns their ids.
  absl::Status Register(db::Pool& pool);

  // nullptr when there is none.
  const ConfiguredRoute* Find(absl::string_view name) const;

  const std::map<std::string, ConfiguredRoute, std::less<>>& all() const {
    return routes_;
  }

 private:
  std::map<std::string, ConfiguredRoute, std::less<>> routes_;
};

}  // namespace tenure::webhook_ingest

#endif  // TENURE_SERVICES_WEBHOOK_INGEST_ROUTES_H_
