// tenure-entitlement: answers whether a subject has access now.

#include <memory>
#include <utility>

#include "common/base/proto_time.h"
#include "common/base/status_macros.h"
#include "common/rpc/server.h"
#include "services/entitlement/access_store.h"
#include "services/entitlement/check_access.h"
#include "services/entitlement/entitlement_service.h"
#include "services/entitlement/quota_balances.h"
#include "services/host/service_host.h"

namespace tenure::entitlement {
namespace {

// A request of this service is a few short texts.
constexpr int kMaxRequestBytes = 64 * 1024;

using Config = config::v1::EntitlementConfig;

absl::Status Run(const Config& config) {
  host::ServiceHost host("entitlement", FromProto(config.drain_timeout()));
  RETURN_IF_ERROR(host.StartProbes(config.metrics()));
  ASSIGN_OR_RETURN(const std::shared_ptr<db::Pool> pool,
                   host.ConnectDatabase(config.database()));

  AccessStore store(*pool, host::EnvironmentName(config.environment()));
  CheckAccess check_access(store);
  QuotaBalances quota(*pool, host::EnvironmentName(config.environment()));
  rpc::CallGuard guard(config.grpc().max_threads(),
                       host.MakeCallObserver({"Check", "GetQuota"}));
  EntitlementService service(check_access, quota, guard);
  ASSIGN_OR_RETURN(
      const std::unique_ptr<rpc::Server> server,
      rpc::Server::Start({config.grpc().listen(), config.grpc().max_threads(),
                          kMaxRequestBytes},
                         {{v1::Entitlement::service_full_name(), &service}}));
  server->SetServing(true);
  host.SetStarted();
  host.AwaitShutdown();
  server->Shutdown(host.DrainTimeLeft());
  return absl::OkStatus();
}

}  // namespace
}  // namespace tenure::entitlement

int main(int argc, char** argv) {
  tenure::config::v1::EntitlementConfig config;
  return tenure::host::RunService(
      argc, argv, "entitlement",
      "Answers whether a subject has access now, from stored instants.",
      &config,
      [](const google::protobuf::Message& message)
          -> const tenure::config::v1::LogConfig& {
        return static_cast<const tenure::config::v1::EntitlementConfig&>(
                   message)
            .log();
      },
      [&] { return tenure::entitlement::Run(config); });
}
