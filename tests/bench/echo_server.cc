// The bare gRPC server that benchmarks compare the product with.
//   tenure-bench-echo --listen=127.0.0.1:PORT --response_file=PATH
//                     [--max_threads=32]
// PATH holds a serialised CheckResponse, the answer to every call. Ends on
// SIGTERM or SIGINT.
#include <signal.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/rpc/server.h"
#include "tests/bench/echo_service.h"

namespace tenure::bench {
namespace {

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
  // The product's own way to start a server, so that both have one style by
  // construction. What wraps its handlers (CallGuard) is not the baseline's.
  const auto server =
      rpc::Server::Start({.listen = listen, .max_threads = max_threads},
                         {{"tenure.bench.v1.Echo", &service}});
  if (!server.ok()) {
    fprintf(stderr, "tenure-bench-echo: %s\n",
            server.status().ToString().c_str());
    return 1;
  }
  (*server)->SetServing(true);
  int signal = 0;
  sigwait(&signals, &signal);
  (*server)->Shutdown(absl::Seconds(5));
  return 0;
}

}  // namespace
}  // namespace tenure::bench

int main(int argc, char** argv) { return tenure::bench::Main(argc, argv); }
