#include "tests/bench/load_client.h"

#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"

namespace tenure::bench {

struct LoadClient::Call {
  grpc::GenericStub* stub = nullptr;
  // A context serves one call; it is rebuilt in place.
  std::optional<grpc::ClientContext> context;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
  grpc::ByteBuffer reply;
  grpc::Status status;
  int64_t from = 0;
  size_t request_bytes = 0;
};

LoadClient::LoadClient(Target target, ClientOptions options)
    : target_(std::move(target)),
      options_(options),
      random_(static_cast<uint32_t>(options.seed)) {}

LoadClient::~LoadClient() {
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

absl::StatusOr<std::unique_ptr<LoadClient>> LoadClient::Connect(
    Target target, ClientOptions options, absl::Duration timeout) {
  if (target.requests.empty()) {
    return absl::InvalidArgumentError("a target needs a request");
  }
  std::unique_ptr<LoadClient> client(
      new LoadClient(std::move(target), options));
  const auto deadline =
      absl::ToChronoTime(SystemClock::Instance().Now() + timeout);
  for (int i = 0; i < options.channels; ++i) {
    grpc::ChannelArguments arguments;
    // Without it all channels to one address share a connection.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    Channel channel;
    channel.channel = grpc::CreateCustomChannel(
        client->target_.address, grpc::InsecureChannelCredentials(), arguments);
    if (!channel.channel->WaitForConnected(deadline)) {
      return absl::UnavailableError(
          absl::StrCat("no connection to ", client->target_.address, " within ",
                       absl::FormatDuration(timeout)));
    }
    channel.stub = std::make_unique<grpc::GenericStub>(channel.channel);
    client->channels_.push_back(std::move(channel));
  }
  return client;
}

const grpc::ByteBuffer* LoadClient::NextRequest() {
  const std::vector<grpc::ByteBuffer>& all = target_.requests;
  if (!target_.each_once) {
    ++sent_;
    return &all[random_() % all.size()];
  }
  return sent_ < all.size() ? &all[sent_++] : nullptr;
}

bool LoadClient::Send(Call& call, int64_t from) {
  const grpc::ByteBuffer* request = NextRequest();
  if (request == nullptr) return false;
  call.context.emplace();
  call.context->set_deadline(absl::ToChronoTime(SystemClock::Instance().Now() +
                                                options_.call_timeout));
  call.from = from;
  call.request_bytes = request->Length();
  call.reader = call.stub->PrepareUnaryCall(&*call.context, target_.method,
                                            *request, &queue_);
  call.reader->StartCall();
  call.reader->Finish(&call.reply, &call.status, &call);
  return true;
}

void LoadClient::Finish(const Call& call, int64_t at, Measurement& measured) {
  std::string error;
  if (!call.status.ok()) {
    error = absl::StrCat("code ", static_cast<int>(call.status.error_code()),
                         ": ", call.status.error_message());
  } else if (finished_++ % static_cast<uint64_t>(options_.sample_every) == 0 &&
             target_.check_reply && !target_.check_reply(call.reply)) {
    error = "the reply is not the expected one";
  }
  if (!error.empty()) {
    ++measured.errors;
    if (measured.first_error.empty()) measured.first_error = error;
    return;
  }
  ++measured.ops;
  measured.request_bytes += static_cast<int64_t>(call.request_bytes);
  measured.reply_bytes += static_cast<int64_t>(call.reply.Length());
  measured.latency.RecordNanos(at - call.from);
}

absl::StatusOr<Measurement> LoadClient::ClosedLoop(absl::Duration duration) {
  Measurement measured;
  std::vector<std::unique_ptr<Call>> calls;
  for (const Channel& channel : channels_) {
    for (int i = 0; i < options_.outstanding; ++i) {
      calls.push_back(std::make_unique<Call>());
      calls.back()->stub = channel.stub.get();
    }
  }
  const int64_t start = MonotonicNanos();
  const int64_t end = start + absl::ToInt64Nanoseconds(duration);
  size_t in_flight = 0;
  for (const auto& call : calls) {
    if (Send(*call, MonotonicNanos())) ++in_flight;
  }
  int64_t now = start;
  while (in_flight > 0) {
    void* tag = nullptr;
    bool ok = false;
    if (!queue_.Next(&tag, &ok)) {
      return absl::InternalError("the completion queue ended");
    }
    auto* call = static_cast<Call*>(tag);
    now = MonotonicNanos();
    Finish(*call, now, measured);
    if (now >= end || !Send(*call, now)) --in_flight;
  }
  measured.seconds = static_cast<double>(now - start) * 1e-9;
  return measured;
}

absl::StatusOr<Measurement> LoadClient::OpenLoop(double per_second,
                                                 absl::Duration duration) {
  const auto total =
      static_cast<int64_t>(per_second * absl::ToDoubleSeconds(duration));
  if (total < 1) {
    return absl::InvalidArgumentError("the rate allows no call");
  }
  if (target_.each_once &&
      target_.requests.size() - sent_ < static_cast<size_t>(total)) {
    return absl::InvalidArgumentError("too few requests for the timetable");
  }
  const double interval = 1e9 / per_second;
  Measurement measured;
  const int64_t start = MonotonicNanos();
  // The sender never touches `measured`, the receiver never `random_`.
  std::thread sender([&] {
    for (int64_t i = 0; i < total; ++i) {
      const int64_t due =
          start + static_cast<int64_t>(interval * static_cast<double>(i));
      WaitUntilNanos(due);
      auto call = std::make_unique<Call>();
      call->stub =
          channels_[static_cast<size_t>(i) % channels_.size()].stub.get();
      Send(*call.release(), due);  // The receiver takes it back by its tag.
    }
  });
  int64_t now = start;
  for (int64_t received = 0; received < total; ++received) {
    void* tag = nullptr;
    bool ok = false;
    // The queue is shut down only by the destructor.
    queue_.Next(&tag, &ok);
    const std::unique_ptr<Call> call(static_cast<Call*>(tag));
    now = MonotonicNanos();
    Finish(*call, now, measured);
  }
  sender.join();
  measured.seconds = static_cast<double>(now - start) * 1e-9;
  return measured;
}

void LoadClient::CallOnce(Measurement& measured) {
  Call call;
  call.stub = channels_.front().stub.get();
  const int64_t start = MonotonicNanos();
  if (!Send(call, start)) return;
  void* tag = nullptr;
  bool ok = false;
  queue_.Next(&tag, &ok);
  const int64_t now = MonotonicNanos();
  Finish(call, now, measured);
  measured.seconds += static_cast<double>(now - start) * 1e-9;
}

absl::StatusOr<std::string> LoadClient::Fetch() {
  Call call;
  call.stub = channels_.front().stub.get();
  if (!Send(call, MonotonicNanos())) {
    return absl::FailedPreconditionError("every request was sent");
  }
  void* tag = nullptr;
  bool ok = false;
  queue_.Next(&tag, &ok);
  if (!call.status.ok()) {
    return absl::Status(static_cast<absl::StatusCode>(call.status.error_code()),
                        call.status.error_message());
  }
  return FromByteBuffer(call.reply);
}

std::vector<Measurement> CallIdle(const std::vector<LoadClient*>& clients,
                                  int calls, absl::Duration gap) {
  std::vector<Measurement> measured(clients.size());
  const int64_t gap_nanos = absl::ToInt64Nanoseconds(gap);
  const int64_t share = gap_nanos / static_cast<int64_t>(clients.size());
  const int64_t start = MonotonicNanos();
  for (int64_t i = 0; i < calls; ++i) {
    for (size_t k = 0; k < clients.size(); ++k) {
      WaitUntilNanos(start + i * gap_nanos + static_cast<int64_t>(k) * share);
      clients[k]->CallOnce(measured[k]);
    }
  }
  return measured;
}

grpc::ByteBuffer ToByteBuffer(const std::string& serialized) {
  const grpc::Slice slice(serialized);
  return grpc::ByteBuffer(&slice, 1);
}

absl::StatusOr<std::string> FromByteBuffer(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  if (const grpc::Status status = buffer.Dump(&slices); !status.ok()) {
    return absl::InternalError(status.error_message());
  }
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

}  // namespace tenure::bench
