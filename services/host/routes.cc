#include "services/webhook-ingest/routes.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/proto_time.h"
#include "common/base/secret_file.h"
#include "common/base/status_macros.h"
#include "common/providers/stripe_adapter.h"
#include "services/host/service_host.h"

namespace tenure::webhook_ingest {
namespace {

// As the CHECK of table route.
bool IsRouteName(absl::string_view name) {
  return !name.empty() && name.size() <= 64 && name[0] != '-' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
         });
}

absl::StatusOr<std::unique_ptr<providers::ProviderAdapter>> MakeAdapter(
    const config::v1::RouteConfig& route,
    const config::v1::WebhookIngestConfig& config) {
  if (route.type() != "stripe") {
    return absl::InvalidArgumentError(absl::StrCat(
        "routes: ", route.name(), ": type: there is no provider type '",
        route.type(), "'; known are: stripe"));
  }
  providers::StripeSettings settings;
  std::set<std::string> names;
  for (const std::string& file : route.secret_files()) {
    const std::string name = std::filesystem::path(file).filename();
    // The name is all that tells keys apart in logs and metrics.
    if (!names.insert(name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("routes: ", route.name(), ": secret_files: two are ",
                       "called '", name, "'; names must differ"));
    }
    ASSIGN_OR_RETURN(Secret secret, ReadSecret(file));
    settings.secrets.push_back({name, std::move(secret)});
  }
  if (settings.secrets.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "routes: ", route.name(), ": secret_files: at least one is needed"));
  }
  settings.signature_tolerance = FromProto(config.signature_tolerance());
  settings.renewal_leeway = FromProto(route.renewal_leeway());
  settings.subject_metadata_key = route.subject_metadata_key();
  return std::make_unique<providers::StripeAdapter>(std::move(settings));
}

}  // namespace

absl::StatusOr<Routes> Routes::Make(
    const config::v1::WebhookIngestConfig& config) {
  Routes routes;
  for (const config::v1::RouteConfig& route : config.routes()) {
    if (!IsRouteName(route.name())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "routes: name: '", route.name(),
          "' must be 1 to 64 of [a-z0-9-] and not begin with '-'"));
    }
    ConfiguredRoute configured;
    ASSIGN_OR_RETURN(configured.adapter, MakeAdapter(route, config));
    configured.route.name = route.name();
    configured.route.environment = host::EnvironmentName(route.environment());
    if (!routes.routes_.emplace(route.name(), std::move(configured)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("routes: ", route.name(), " is given twice"));
    }
  }
  if (routes.routes_.empty()) {
    return absl::InvalidArgumentError("routes: at least one is needed");
  }
  return routes;
}

absl::Status Routes::Register(db::Pool& pool) {
  return pool.RunTransaction([&](db::Transaction& tx) -> absl::Status {
    // The map's order: two processes that start together take the rows alike.
    for (auto& [name, configured] : routes_) {
      ASSIGN_OR_RETURN(configured.route,
                       store::RegisterRoute(tx, name, "stripe",
                                            configured.route.environment));
    }
    return absl::OkStatus();
  });
}

const ConfiguredRoute* Routes::Find(absl::string_view name) const {
  const auto it = routes_.find(std::string_view(name.data(), name.size()));
  return it == routes_.end() ? nullptr : &it->second;
}

}  // namespace tenure::webhook_ingest
