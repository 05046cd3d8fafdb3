#include "common/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "grpc/health/v1/health.pb.h"

namespace tenure::rpc {
namespace {

// What a request carries beside its body.
constexpr int kEnvelopeBytes = 64 * 1024;
constexpr int kMaxMetadataBytes = 16 * 1024;
constexpr int kMaxConcurrentStreams = 100;

int Milliseconds(absl::Duration span) {
  return static_cast<int>(absl::ToInt64Milliseconds(span));
}

// Process-wide switches of gRPC, set before the first server is built.
void EnableHealthAndReflection() {
  static const bool done = [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    // Keeps the descriptor of grpc.health.v1 in the binary: reflection lists
    // the built-in service but could not resolve it (grpc#36665).
    grpc::health::v1::HealthCheckRequest::descriptor();
    return true;
  }();
  (void)done;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerOptions& options, std::vector<NamedService> services) {
  EnableHealthAndReflection();
  std::unique_ptr<Server> server(new Server);
  grpc::ServerBuilder builder;
  // Two servers must never share a port: a stale process could answer.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             kMaxConcurrentStreams);
  // Admits clients that ping every 10 s, with or without calls (C130), and
  // leaves room for a network that brings two pings closer together.
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                             Milliseconds(options.keepalive_time));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             Milliseconds(options.keepalive_timeout));
  // Pings of an idle server bring no data and are not to run out.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.SetMaxReceiveMessageSize(options.max_body_bytes + kEnvelopeBytes);
  // CallGuard refuses above max_threads; the quota only stops a runaway. Its
  // own refusals are coarse (grpc#32680), and each call that is taken back
  // before it begins needs a thread for a moment, hence the room.
  grpc::ResourceQuota quota("tenure");
  quota.SetMaxThreads(options.max_threads + 256);
  builder.SetResourceQuota(quota);
  // Handlers block on the database. With the default of two pollers nearly
  // every call ends one thread and starts another; so many may wait instead.
  builder.SetSyncServerOption(
      grpc::ServerBuilder::SyncServerOption::MAX_POLLERS,
      std::max(2, options.max_threads / 2));
  builder.AddListeningPort(options.listen, grpc::InsecureServerCredentials(),
                           &server->port_);
  for (NamedService& named : services) {
    builder.RegisterService(named.service);
    server->names_.push_back(std::move(named.full_name));
  }
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr || server->port_ == 0) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen for gRPC on ", options.listen, "; is the port taken?"));
  }
  server->SetServing(false);
  return server;
}

Server::~Server() { Shutdown(absl::ZeroDuration()); }

void Server::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  if (health == nullptr) return;
  health->SetServingStatus(serving);
  for (const std::string& name : names_) {
    health->SetServingStatus(name, serving);
  }
}

void Server::Shutdown(absl::Duration limit) {
  if (server_ == nullptr) return;
  SetServing(false);
  server_->Shutdown(absl::ToChronoTime(SystemClock::Instance().Now() + limit));
  server_->Wait();
  server_.reset();
}

}  // namespace tenure::rpc
