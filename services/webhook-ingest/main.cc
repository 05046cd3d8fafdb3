// tenure-webhook-ingest: takes provider events and turns them into
// subscription state.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/periodic.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"
#include "common/http/server.h"
#include "common/obs/http_metrics.h"
#include "common/rpc/server.h"
#include "common/store/inbox_store.h"
#include "services/host/inbox_gauges.h"
#include "services/host/routes.h"
#include "services/host/service_host.h"
#include "services/webhook-ingest/event_operations.h"
#include "services/webhook-ingest/flood_guard.h"
#include "services/webhook-ingest/ingest_event.h"
#include "services/webhook-ingest/ingest_queue.h"
#include "services/webhook-ingest/provider_events_service.h"
#include "services/webhook-ingest/subscriptions_service.h"
#include "services/webhook-ingest/webhook_http.h"
#include "services/webhook-ingest/webhook_ingest_service.h"

namespace tenure::webhook_ingest {
namespace {

using Config = config::v1::WebhookIngestConfig;

http::ServerOptions HttpOptions(const config::v1::HttpConfig& config,
                                const WebhookHttp& edge) {
  http::ServerOptions options;
  options.listen_address = config.listen();
  options.worker_threads = config.worker_threads();
  options.max_queued = config.max_queued();
  options.max_body_bytes = static_cast<size_t>(config.max_body_bytes());
  options.request_timeout = FromProto(config.request_timeout());
  options.max_connections = config.max_connections();
  options.max_connections_per_peer = config.max_connections_per_peer();
  options.accept = [&edge](const http::RequestHead& head) {
    return edge.Accept(head);
  };
  return options;
}

IngestQueue::Options QueueOptions(const config::v1::InboxConfig& config) {
  IngestQueue::Options options;
  options.batch_writers = config.batch_writers();
  options.batch_size = config.batch_size();
  options.single_writers = config.single_writers();
  options.max_queued = config.max_queued();
  return options;
}

absl::Status Run(const Config& config) {
  host::ServiceHost host("webhook-ingest", FromProto(config.drain_timeout()));
  // Before anything listens: without its secrets the process must not start.
  ASSIGN_OR_RETURN(host::Routes routes,
                   host::Routes::Make(config.routes(),
                                      FromProto(config.signature_tolerance()),
                                      host.registry()));
  RETURN_IF_ERROR(host.StartProbes(config.metrics()));
  ASSIGN_OR_RETURN(const std::shared_ptr<db::Pool> pool,
                   host.ConnectDatabase(config.database()));
  RETURN_IF_ERROR(routes.Register(*pool));
  const host::InboxGauges inbox_gauges(pool, host.registry());

  store::InboxStore inbox(*pool);
  std::vector<std::string> route_names;
  for (const auto& [name, route] : routes.all()) route_names.push_back(name);
  FloodGuard floods(config.flood_limit_per_minute(), route_names,
                    SystemClock::Instance(), host.registry());
  IngestQueue queue(inbox, QueueOptions(config.inbox()),
                    SystemClock::Instance(), host.registry());
  IngestEvent ingest(routes, queue, floods, SystemClock::Instance(),
                     static_cast<size_t>(config.http().max_body_bytes()),
                     host.registry());
  std::vector<std::string> methods = SubscriptionsService::MethodNames();
  methods.push_back("Ingest");
  for (std::string& method : ProviderEventsService::MethodNames()) {
    methods.push_back(std::move(method));
  }
  rpc::CallGuard guard(config.grpc().max_threads(),
                       host.MakeCallObserver(methods));
  WebhookIngestService ingest_service(ingest, guard);
  SubscriptionsService subscriptions_service(
      *pool, host::EnvironmentName(config.environment()), guard);
  EventOperations event_operations(*pool, inbox, routes,
                                   host::EnvironmentName(config.environment()));
  ProviderEventsService provider_events_service(event_operations, guard);
  ASSIGN_OR_RETURN(
      const std::unique_ptr<rpc::Server> grpc_server,
      rpc::Server::Start(
          {config.grpc().listen(), config.grpc().max_threads(),
           static_cast<int>(config.http().max_body_bytes())},
          {{webhook::v1::WebhookIngest::service_full_name(), &ingest_service},
           {webhook::v1::ProviderEvents::service_full_name(),
            &provider_events_service},
           {subscription::v1::Subscriptions::service_full_name(),
            &subscriptions_service}}));

  WebhookHttp edge(routes, ingest);
  ASSIGN_OR_RETURN(
      const std::unique_ptr<http::Server> http_server,
      http::Server::Start(
          HttpOptions(config.http(), edge),
          [&edge](http::Request request, http::Responder responder) {
            edge.Handle(std::move(request), std::move(responder));
          }));
  const obs::HttpServerMetrics http_metrics(host.registry(), *http_server);
  const std::unique_ptr<Periodic> keys =
      routes.WatchKeys(FromProto(config.secret_check_period()));
  host.OnReload([&keys] { keys->Wake(); });
  grpc_server->SetServing(true);
  host.SetStarted();
  host.AwaitShutdown();
  grpc_server->SetServing(false);
  http_server->Drain(host.DrainTimeLeft());
  grpc_server->Shutdown(host.DrainTimeLeft());
  return absl::OkStatus();
}

}  // namespace
}  // namespace tenure::webhook_ingest

int main(int argc, char** argv) {
  tenure::config::v1::WebhookIngestConfig config;
  return tenure::host::RunService(
      argc, argv, "webhook-ingest",
      "Takes provider webhooks over HTTP and gRPC, verifies and stores each "
      "once, and turns them into subscription state.",
      &config,
      [](const google::protobuf::Message& message)
          -> const tenure::config::v1::LogConfig& {
        return static_cast<const tenure::config::v1::WebhookIngestConfig&>(
                   message)
            .log();
      },
      [&] { return tenure::webhook_ingest::Run(config); });
}
