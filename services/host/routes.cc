#include "services/host/routes.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/crypto.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/proto_time.h"
#include "common/base/secret_file.h"
#include "common/base/status_macros.h"
#include "common/providers/signing_secret.h"
#include "common/providers/standard_webhooks_adapter.h"
#include "common/providers/standard_webhooks_signature.h"
#include "common/providers/stripe_adapter.h"
#include "services/host/service_host.h"

namespace tenure::host {
namespace {

using Adapter = std::shared_ptr<const providers::ProviderAdapter>;
using Keys = std::vector<providers::SigningSecret>;

// Between the two looks at files that have changed: longer than it takes to
// write a line.
constexpr absl::Duration kSettleTime = absl::Milliseconds(200);

// As the CHECK of table route.
bool IsRouteName(absl::string_view name) {
  return !name.empty() && name.size() <= 64 && name[0] != '-' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
         });
}

absl::StatusOr<Adapter> MakeStripe(const config::v1::RouteConfig& route,
                                   Keys keys, absl::Duration tolerance) {
  providers::StripeSettings settings;
  settings.secrets = std::move(keys);
  settings.signature_tolerance = tolerance;
  settings.renewal_leeway = FromProto(route.renewal_leeway());
  settings.subject_metadata_key = route.subject_metadata_key();
  return std::make_shared<const providers::StripeAdapter>(std::move(settings));
}

absl::StatusOr<Adapter> MakeStandardWebhooks(
    const config::v1::RouteConfig& route, Keys keys, absl::Duration tolerance) {
  providers::StandardWebhooksSettings settings;
  for (const providers::SigningSecret& key : keys) {
    ASSIGN_OR_RETURN(providers::StandardWebhooksKey parsed,
                     providers::StandardWebhooksKey::Parse(key));
    settings.keys.push_back(std::move(parsed));
  }
  settings.signature_tolerance = tolerance;
  settings.renewal_leeway = FromProto(route.renewal_leeway());
  return std::make_shared<const providers::StandardWebhooksAdapter>(
      std::move(settings));
}

struct ProviderType {
  absl::string_view name;
  // `keys` is empty where nothing is to be verified.
  absl::StatusOr<Adapter> (*make)(const config::v1::RouteConfig& route,
                                  Keys keys, absl::Duration tolerance);
};

constexpr ProviderType kProviderTypes[] = {
    {"stripe", MakeStripe}, {"standard_webhooks", MakeStandardWebhooks}};

absl::Status RouteError(const config::v1::RouteConfig& route,
                        absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("routes: ", route.name(), ": ", what));
}

absl::StatusOr<Adapter> MakeAdapter(const config::v1::RouteConfig& route,
                                    Keys keys, absl::Duration tolerance) {
  std::vector<absl::string_view> known;
  for (const ProviderType& type : kProviderTypes) {
    if (type.name == route.type()) {
      absl::StatusOr<Adapter> adapter =
          type.make(route, std::move(keys), tolerance);
      if (adapter.ok()) return adapter;
      return RouteError(route, adapter.status().message());
    }
    known.push_back(type.name);
  }
  return RouteError(
      route, absl::StrCat("type: there is no provider type '", route.type(),
                          "'; known are: ", absl::StrJoin(known, ", ")));
}

// All that is shown of a key, in logs and metrics.
std::string KeyName(const std::string& file) {
  return std::filesystem::path(file).filename();
}

absl::Status CheckKeyNames(const config::v1::RouteConfig& route) {
  if (route.secret_files().empty()) {
    return RouteError(route, "secret_files: at least one is needed");
  }
  std::set<std::string> names;
  for (const std::string& file : route.secret_files()) {
    if (!names.insert(KeyName(file)).second) {
      return RouteError(
          route,
          absl::StrCat("secret_files: two files are called '", KeyName(file),
                       "'; the name of its file is the key's name, and "
                       "no two keys of a route may share it"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Keys> ReadKeys(const config::v1::RouteConfig& route,
                              std::vector<std::string>* digests) {
  Keys keys;
  for (const std::string& file : route.secret_files()) {
    absl::StatusOr<Secret> secret = ReadSecret(file);
    if (!secret.ok()) return RouteError(route, secret.status().message());
    digests->push_back(Sha256(secret->Reveal()));
    keys.push_back({KeyName(file), *std::move(secret)});
  }
  return keys;
}

}  // namespace

std::shared_ptr<const providers::ProviderAdapter> ConfiguredRoute::adapter()
    const {
  const MutexLock lock(mutex_);
  return adapter_;
}

void ConfiguredRoute::NoteKeyUse(absl::string_view key, absl::Time at) const {
  const auto gauge = last_used_.find(std::string_view(key.data(), key.size()));
  if (gauge == last_used_.end()) return;
  gauge->second->Set(absl::ToDoubleSeconds(at - absl::UnixEpoch()));
}

absl::StatusOr<Routes> Routes::Make(const Configs& configs,
                                    absl::Duration signature_tolerance,
                                    obs::Registry& registry) {
  return MakeAll(configs, signature_tolerance, &registry);
}

absl::StatusOr<Routes> Routes::MakeWithoutKeys(const Configs& configs) {
  return MakeAll(configs, absl::ZeroDuration(), nullptr);
}

absl::StatusOr<Routes> Routes::MakeAll(const Configs& configs,
                                       absl::Duration signature_tolerance,
                                       obs::Registry* registry) {
  Routes routes;
  for (const config::v1::RouteConfig& route : configs) {
    if (!IsRouteName(route.name())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "routes: name: '", route.name(),
          "' must be 1 to 64 of [a-z0-9-] and not begin with '-'"));
    }
    auto configured = std::make_unique<ConfiguredRoute>();
    configured->config_ = route;
    configured->signature_tolerance_ = signature_tolerance;
    configured->route_.name = route.name();
    configured->route_.environment = EnvironmentName(route.environment());
    if (registry != nullptr) {
      RETURN_IF_ERROR(LoadKeys(*registry, configured.get()));
    } else {
      const MutexLock lock(configured->mutex_);
      ASSIGN_OR_RETURN(configured->adapter_,
                       MakeAdapter(route, {}, signature_tolerance));
    }
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

absl::Status Routes::LoadKeys(obs::Registry& registry,
                              ConfiguredRoute* configured) {
  const config::v1::RouteConfig& config = configured->config_;
  RETURN_IF_ERROR(CheckKeyNames(config));
  ASSIGN_OR_RETURN(Keys keys, ReadKeys(config, &configured->files_.live));
  for (const providers::SigningSecret& key : keys) {
    configured->last_used_[key.name] = &registry.Gauge(
        "signing_key_last_used_seconds",
        "Unix time at which the key last vouched for a delivery; 0 before it "
        "did since the process started",
        {{"route", config.name()}, {"key", key.name}});
  }
  const auto reloads = [&](const char* outcome) {
    return &registry.Counter("secret_reloads_total",
                             "looks at the secret files of a route after the "
                             "start, by what came of them",
                             {{"route", config.name()}, {"outcome", outcome}});
  };
  configured->reloads_replaced_ = reloads("replaced");
  configured->reloads_unchanged_ = reloads("unchanged");
  configured->reloads_failed_ = reloads("failed");
  ASSIGN_OR_RETURN(
      Adapter adapter,
      MakeAdapter(config, std::move(keys), configured->signature_tolerance_));
  const MutexLock lock(configured->mutex_);
  configured->adapter_ = std::move(adapter);
  return absl::OkStatus();
}

absl::Status Routes::Register(db::Pool& pool) {
  return pool.RunTransaction([&](db::Transaction& tx) -> absl::Status {
    // The map's order: two processes that start together take the rows alike.
    for (auto& [name, configured] : routes_) {
      ASSIGN_OR_RETURN(
          configured->route_,
          store::RegisterRoute(tx, name, configured->config_.type(),
                               configured->route_.environment));
    }
    return absl::OkStatus();
  });
}

const ConfiguredRoute* Routes::Find(absl::string_view name) const {
  const auto it = routes_.find(std::string_view(name.data(), name.size()));
  return it == routes_.end() ? nullptr : it->second.get();
}

const ConfiguredRoute* Routes::FindById(int64_t route_id) const {
  for (const auto& [name, configured] : routes_) {
    if (configured->route().id == route_id) return configured.get();
  }
  return nullptr;
}

absl::StatusOr<store::InboxStore::ParsedEvent> Routes::ReadStored(
    int64_t route_id, absl::string_view body) const {
  const ConfiguredRoute* route = FindById(route_id);
  if (route == nullptr) {
    return InternalError(absl::StrCat("route ", route_id, " is not known"));
  }
  store::InboxStore::ParsedEvent parsed;
  parsed.route = route->route();
  ASSIGN_OR_RETURN(parsed.event, route->adapter()->Parse(body));
  return parsed;
}

bool Routes::ReloadKeys() {
  bool look_again = false;
  for (const auto& [name, configured] : routes_) {
    // Without keys there is nothing to read.
    if (configured->files_.live.empty()) continue;
    std::string& error = configured->files_.error;
    const absl::StatusOr<bool> seen = ReloadKeysOf(configured.get());
    if (seen.ok()) {
      look_again = look_again || *seen;
      if (!*seen && !error.empty()) {
        error.clear();
        log::Info("signing keys can be read again", {{"route", name}});
      }
      continue;
    }
    configured->files_.seen.clear();
    configured->reloads_failed_->Increment();
    if (error == seen.status().message()) continue;
    error = std::string(seen.status().message());
    log::Error("signing keys cannot be read; the route keeps those it has",
               {{"route", name}, {"detail", error}});
  }
  return look_again;
}

absl::StatusOr<bool> Routes::ReloadKeysOf(ConfiguredRoute* configured) {
  ConfiguredRoute::KeyFiles& files = configured->files_;
  std::vector<std::string> digests;
  ASSIGN_OR_RETURN(Keys keys, ReadKeys(configured->config_, &digests));
  if (digests == files.live) {
    files.seen.clear();
    configured->reloads_unchanged_->Increment();
    return false;
  }
  if (digests != files.seen) {
    files.seen = std::move(digests);
    return true;
  }
  std::vector<std::string> names;
  std::vector<std::string> replaced;
  for (size_t i = 0; i < keys.size(); ++i) {
    names.push_back(keys[i].name);
    if (digests[i] != files.live[i]) replaced.push_back(keys[i].name);
  }
  ASSIGN_OR_RETURN(Adapter adapter,
                   MakeAdapter(configured->config_, std::move(keys),
                               configured->signature_tolerance_));
  {
    const MutexLock lock(configured->mutex_);
    configured->adapter_.swap(adapter);
  }
  files.live = std::move(digests);
  files.seen.clear();
  configured->reloads_replaced_->Increment();
  log::Info("signing keys replaced",
            {{"route", configured->route_.name},
             {"keys", absl::StrJoin(names, ", ")},
             {"replaced", absl::StrJoin(replaced, ", ")}});
  return false;
}

std::unique_ptr<Periodic> Routes::WatchKeys(absl::Duration period) {
  return std::make_unique<Periodic>(period, [this](absl::Duration) {
    if (!ReloadKeys()) return;
    tenure::SleepFor(kSettleTime);
    ReloadKeys();
  });
}

}  // namespace tenure::host
