// tenure-scheduler: tidies up behind the instants. It may be late, doubled,
// paused or killed, and every answer stays right.

#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"
#include "common/rpc/server.h"
#include "common/store/inbox_store.h"
#include "services/host/inbox_gauges.h"
#include "services/host/routes.h"
#include "services/host/service_host.h"
#include "services/scheduler/expire_sweep.h"
#include "services/scheduler/expiry_store.h"
#include "services/scheduler/job_runner.h"
#include "services/scheduler/job_store.h"
#include "services/scheduler/retry_events.h"
#include "services/scheduler/scheduler_admin_service.h"
#include "services/scheduler/subscription_maintenance.h"

namespace tenure::scheduler {
namespace {

// A request of this service is a few short texts.
constexpr int kMaxRequestBytes = 64 * 1024;

using Config = config::v1::SchedulerConfig;

// Tells replicas apart in job_run: host name and process id.
std::string InstanceName() {
  char host[256] = "";
  ::gethostname(host, sizeof(host) - 1);
  return absl::StrCat(host, ":", ::getpid());
}

absl::Status Run(const Config& config) {
  ASSIGN_OR_RETURN(host::Routes routes,
                   host::Routes::MakeWithoutKeys(config.routes()));
  host::ServiceHost host("scheduler", FromProto(config.drain_timeout()));
  RETURN_IF_ERROR(host.StartProbes(config.metrics()));
  ASSIGN_OR_RETURN(const std::shared_ptr<db::Pool> pool,
                   host.ConnectDatabase(config.database()));
  RETURN_IF_ERROR(routes.Register(*pool));
  const host::InboxGauges inbox_gauges(pool, host.registry());

  JobStore jobs(*pool);
  ExpiryStore expiry(*pool);
  ExpireSweep sweep(expiry, config.subscription_maintenance().batch_size());
  SubscriptionMaintenance work(*pool, sweep,
                               config.subscription_maintenance().batch_size());
  JobRunner maintenance(
      "subscription_maintenance",
      FromProto(config.subscription_maintenance().period()), InstanceName(),
      [&work](const std::function<bool()>& stop, JobOutcome* outcome) {
        return work.Run(stop, outcome);
      },
      jobs, SystemClock::Instance(), host.registry());

  store::InboxStore inbox(*pool,
                          FromProto(config.retry_events().parking_limit()));
  RetryEvents retry_events(routes, inbox, config.retry_events().batch_size(),
                           host.registry());
  JobRunner retries(
      "retry_events", FromProto(config.retry_events().period()), InstanceName(),
      [&retry_events](const std::function<bool()>& stop, JobOutcome* outcome) {
        return retry_events.Run(stop, outcome);
      },
      jobs, SystemClock::Instance(), host.registry());

  rpc::CallGuard guard(
      config.grpc().max_threads(),
      host.MakeCallObserver({"ListJobs", "RunJob", "PauseJob", "ResumeJob"}));
  SchedulerAdminService admin({&maintenance, &retries}, jobs, guard);
  ASSIGN_OR_RETURN(
      const std::unique_ptr<rpc::Server> server,
      rpc::Server::Start({config.grpc().listen(), config.grpc().max_threads(),
                          kMaxRequestBytes},
                         {{v1::SchedulerAdmin::service_full_name(), &admin}}));
  RETURN_IF_ERROR(maintenance.Start());
  RETURN_IF_ERROR(retries.Start());
  server->SetServing(true);
  host.SetStarted();
  host.AwaitShutdown();
  server->SetServing(false);
  maintenance.Stop();
  retries.Stop();
  server->Shutdown(host.DrainTimeLeft());
  return absl::OkStatus();
}

}  // namespace
}  // namespace tenure::scheduler

int main(int argc, char** argv) {
  tenure::config::v1::SchedulerConfig config;
  return tenure::host::RunService(
      argc, argv, "scheduler",
      "Runs the periodic jobs. No access depends on any of them.", &config,
      [](const google::protobuf::Message& message)
          -> const tenure::config::v1::LogConfig& {
        return static_cast<const tenure::config::v1::SchedulerConfig&>(message)
            .log();
      },
      [&] { return tenure::scheduler::Run(config); });
}
