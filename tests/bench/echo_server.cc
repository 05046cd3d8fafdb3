// The bare gRPC server that benchmarks compare the product with.
//   tenure-bench-echo --listen=127.0.0.1:PORT --response_file=PATH
//                     [--max_threads=32]
// PATH holds a serialised CheckResponse, the answer to every call. Ends on
// SIGTERM or SIGINT.
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>
#include <signal.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "tests/bench/echo_service.h"

namespace tenure::bench {
namespace {

// The one place that decides the baseline's server style. It must be the style
// of tenure-entitlement: a synchronous server with gRPC's defaults and as many
// threads as its grpc.max_threads allows.
std::unique_ptr<grpc::Server> StartLikeTheProduct(const std::string& listen,
                                                  int max_threads,
                                                  grpc::Service* service) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials());
  // A stale process must not share the port and answer in our place.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  grpc::ResourceQuota quota("bench_echo");
  quota.SetMaxThreads(max_threads);
  builder.SetResourceQuota(quota);
  builder.RegisterService(service);
  return builder.BuildAndStart();
}

int Main(int argc, char** argv) {
  std::string listen;
  std::string response_file;
  int max_threads = 32;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (absl::ConsumePrefix(&argument, "--listen=")) {
      listen = std::string(argument);
    } else if (absl::ConsumePrefix(&argument, "--response_file=")) {
      response_file = std::string(argument);
    } else if (!absl::ConsumePrefix(&argument, "--max_threads=") ||
               !absl::SimpleAtoi(argument, &max_threads)) {
      fprintf(stderr, "tenure-bench-echo: unknown argument %s\n", argv[i]);
      return 2;
    }
  }
  entitlement::v1::CheckResponse answer;
  std::ifstream file(response_file, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  if (!file || !answer.ParseFromString(bytes.str())) {
    fprintf(stderr, "tenure-bench-echo: %s holds no CheckResponse\n",
            response_file.c_str());
    return 1;
  }

  // Blocked before any thread starts, so that sigwait alone sees them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  EchoService service(std::move(answer));
  const auto server = StartLikeTheProduct(listen, max_threads, &service);
  if (server == nullptr) {
    fprintf(stderr, "tenure-bench-echo: cannot listen on %s\n", listen.c_str());
    return 1;
  }
  int signal = 0;
  sigwait(&signals, &signal);
  server->Shutdown();
  return 0;
}

}  // namespace
}  // namespace tenure::bench

int main(int argc, char** argv) { return tenure::bench::Main(argc, argv); }
