// docs/openapi against the running service: what it answers is in the document,
// and what the document says can happen.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/http/message.h"
#include "services/webhook-ingest/webhook_http.h"
#include "tenure/webhook/v1/webhook_ingest.pb.h"
#include "tests/integration/cluster.h"
#include "tests/integration/stripe_event.h"
#include "tests/support/fault_proxy.h"
#include "tests/support/http_client.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace tenure::test {
namespace {

using nlohmann::json;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAreArray;
using ::testing::Eq;
using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAreArray;

constexpr char kWebhooks[] = "/v1/webhooks/{route}";

// As much of OpenAPI as the documents here use.
class Document {
 public:
  explicit Document(const std::string& name)
      : root_(YAML::LoadFile(
            absl::StrCat(TENURE_SOURCE_DIR, "/docs/openapi/", name))) {}

  // Why the reply is not one that the document describes; empty if it is.
  std::string Problem(const std::string& path, const std::string& method,
                      const HttpReply& reply) const {
    const YAML::Node operation = root_["paths"][path][method];
    if (!operation) return absl::StrCat("no operation ", method, " ", path);
    const YAML::Node response =
        Resolve(operation["responses"][absl::StrCat(reply.status)]);
    if (!response) return absl::StrCat("no response ", reply.status);
    for (const auto& header : response["headers"]) {
      const auto name = header.first.as<std::string>();
      const std::optional<std::string> value = reply.Header(name);
      if (!value.has_value()) {
        return absl::StrCat(reply.status, " without ", name);
      }
      const YAML::Node schema = header.second["schema"];
      const bool number = schema["type"].as<std::string>() == "integer";
      const std::string problem = Mismatch(
          number ? json::parse(*value, nullptr, false) : json(*value), schema);
      if (!problem.empty()) return absl::StrCat(name, ": ", problem);
    }
    const std::string type =
        http::MediaType(reply.Header("Content-Type").value_or(""));
    const YAML::Node media = response["content"][type];
    if (!media) return absl::StrCat(reply.status, " as ", type);
    const json body = type == "application/json"
                          ? json::parse(reply.body, nullptr, false)
                          : json(reply.body);
    return Mismatch(body, media["schema"]);
  }

  // Status and reason of every JSON refusal, "401 SIGNATURE_INVALID".
  std::set<std::string> Refusals(const std::string& path,
                                 const std::string& method) const {
    std::set<std::string> refusals;
    for (const auto& entry : root_["paths"][path][method]["responses"]) {
      const YAML::Node media = entry.second["content"]["application/json"];
      if (!media) continue;
      for (const YAML::Node& part : Resolve(media["schema"])["allOf"]) {
        for (const YAML::Node& reason : Resolve(
                 part)["properties"]["error"]["properties"]["reason"]["enum"]) {
          refusals.insert(absl::StrCat(entry.first.as<std::string>(), " ",
                                       reason.as<std::string>()));
        }
      }
    }
    return refusals;
  }

  std::set<std::string> Statuses(const std::string& path,
                                 const std::string& method) const {
    std::set<std::string> statuses;
    for (const auto& entry : root_["paths"][path][method]["responses"]) {
      statuses.insert(entry.first.as<std::string>());
    }
    return statuses;
  }

  std::vector<std::string> Enum(const std::string& schema,
                                const std::string& property) const {
    return root_["components"]["schemas"][schema]["properties"][property]
                ["enum"]
                    .as<std::vector<std::string>>();
  }

 private:
  YAML::Node Resolve(const YAML::Node& node) const {
    if (!node || !node.IsMap() || !node["$ref"]) return node;
    YAML::Node found = root_;
    const auto pointer = node["$ref"].as<std::string>();
    size_t at = 1;
    while (at != std::string::npos) {
      const size_t end = pointer.find('/', at + 1);
      found.reset(found[pointer.substr(at + 1, end - at - 1)]);
      at = end;
    }
    return found;
  }

  static json Value(const YAML::Node& scalar) {
    bool truth = false;
    // A quoted text has the tag "!".
    if (scalar.Tag() != "!" && YAML::convert<bool>::decode(scalar, truth)) {
      return truth;
    }
    return scalar.as<std::string>();
  }

  std::string Mismatch(const json& value, const YAML::Node& unresolved) const {
    const YAML::Node schema = Resolve(unresolved);
    if (!schema) return "no schema";
    if (value.is_discarded()) return "not JSON";
    for (const YAML::Node& part : schema["allOf"]) {
      const std::string problem = Mismatch(value, part);
      if (!problem.empty()) return problem;
    }
    if (schema["type"]) {
      const auto type = schema["type"].as<std::string>();
      const bool fits = type == "object"    ? value.is_object()
                        : type == "string"  ? value.is_string()
                        : type == "boolean" ? value.is_boolean()
                        : type == "integer" ? value.is_number_integer()
                                            : false;
      if (!fits) return absl::StrCat(value.dump(), " is no ", type);
    }
    if (schema["const"] && value != Value(schema["const"])) {
      return absl::StrCat(value.dump(), " is another value");
    }
    if (schema["enum"]) {
      bool found = false;
      for (const YAML::Node& one : schema["enum"]) found |= value == Value(one);
      if (!found) return absl::StrCat(value.dump(), " is not listed");
    }
    if (schema["pattern"] &&
        !::testing::Matches(::testing::ContainsRegex(
            schema["pattern"].as<std::string>()))(value.get<std::string>())) {
      return absl::StrCat(value.dump(), " does not match");
    }
    for (const YAML::Node& name : schema["required"]) {
      if (!value.contains(name.as<std::string>())) {
        return absl::StrCat(name.as<std::string>(), " is missing");
      }
    }
    if (!value.is_object()) return "";
    for (const auto& [name, member] : value.items()) {
      const YAML::Node properties = schema["properties"];
      const YAML::Node property = properties ? properties[name] : properties;
      const YAML::Node others = schema["additionalProperties"];
      std::string problem;
      if (property) {
        problem = Mismatch(member, property);
      } else if (others && others.IsMap()) {
        problem = Mismatch(member, others);
      } else if (others && !others.as<bool>()) {
        problem = "not described";
      }
      if (!problem.empty()) return absl::StrCat(name, ": ", problem);
    }
    return "";
  }

  const YAML::Node root_;
};

class OpenApiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    ASSERT_OK_AND_ASSIGN(proxy_, FaultProxy::Start(database_->conninfo()));
    ASSERT_OK_AND_ASSIGN(cluster_,
                         Cluster::Make(proxy_->Through(database_->conninfo())));
    std::ifstream file(cluster_->secret_file());
    std::getline(file, secret_);
  }

  std::string Body(const std::string& key) const {
    const int64_t now = absl::ToUnixSeconds(SystemClock::Instance().Now());
    return InvoicePaidBody(key, "user", now, now + 86400);
  }

  std::string Signature(const std::string& body,
                        absl::Duration age = absl::ZeroDuration()) const {
    return StripeSignature(secret_, body, SystemClock::Instance().Now() - age);
  }

  // Notes the reply and checks it against the document. Thread-safe.
  HttpReply Described(absl::StatusOr<HttpReply> reply) {
    EXPECT_OK(reply.status());
    if (!reply.ok()) return HttpReply{};
    EXPECT_EQ(webhooks_.Problem(kWebhooks, "post", *reply), "")
        << reply->status << " " << reply->body;
    MutexLock lock(mutex_);
    seen_statuses_.insert(absl::StrCat(reply->status));
    const json body = json::parse(reply->body, nullptr, false);
    if (body.is_object() && body.contains("error")) {
      seen_.insert(absl::StrCat(reply->status, " ",
                                body["error"]["reason"].get<std::string>()));
    }
    return *reply;
  }

  HttpReply Post(const std::string& body, HttpHeaders headers,
                 const std::string& path = "/v1/webhooks/stripe") {
    return Described(HttpPost(cluster_->Address("http"), path, body, headers));
  }

  HttpReply PostSigned(const std::string& body) {
    return Post(body, {{"Content-Type", "application/json"},
                       {"Stripe-Signature", Signature(body)}});
  }

  HttpReply Raw(const std::string& request) {
    return Described(HttpSendRaw(cluster_->Address("http"), request));
  }

  bool Seen(const std::string& refusal) TENURE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return seen_.contains(refusal);
  }

  std::string State(const HttpReply& reply) {
    const json body = json::parse(reply.body, nullptr, false);
    return body.is_object() && body.contains("state")
               ? body["state"].get<std::string>()
               : reply.body;
  }

  // What the service answers, whatever it is, must be described.
  void ProvokeAll() {
    const std::string target = "/v1/webhooks/stripe HTTP/1.1\r\nHost: t\r\n";
    const std::string good = Body("1");
    EXPECT_EQ(State(PostSigned(good)), "parked");
    EXPECT_EQ(State(PostSigned(good + " ")), "quarantined");
    EXPECT_EQ(State(PostSigned(
                  R"({"id":"evt_x","object":"event","type":"x.y","created":1,)"
                  R"("livemode":false,"data":{"object":{"id":"x"}}})")),
              "ignored");

    Post(good, {{"Stripe-Signature", "t=1,t=2,v1=00"}});
    PostSigned("not JSON");
    PostSigned(R"({"object":"event","type":"x.y","created":1,)"
               R"("livemode":false})");
    Post(good, {});
    Post(good, {{"Stripe-Signature", Signature(good, absl::Hours(1))}});
    Post(good, {{"X-Request-Id", "mine"}}, "/v1/webhooks/none");
    Post(good, {}, "/v1/other");
    for (const char* method : {"GET", "PUT", "DELETE", "PATCH", "OPTIONS"}) {
      Described(HttpSend(method, cluster_->Address("http"),
                         "/v1/webhooks/stripe", ""));
    }
    Raw("POST " + target + "Content-Length: 10\r\n\r\n{}");  // then silence
    Raw("POST " + target + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n");
    Raw("POST " + target + "Content-Length: 67108864\r\n\r\n");
    Raw("POST " + target + "Transfer-Encoding: chunked\r\n\r\nFFFFFF\r\n");
    Raw("POST " + target + "Content-Type: text/plain\r\n\r\n");
    Raw("POST " + target + "Expect: more\r\nContent-Length: 2\r\n\r\n");
    Raw("POST " + target + "X: " + std::string(16384, 'y') + "\r\n\r\n");
  }

  const Document webhooks_{"webhook-ingest.yaml"};
  const Document probes_{"probes.yaml"};
  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<FaultProxy> proxy_;
  std::unique_ptr<Cluster> cluster_;
  std::string secret_;
  Mutex mutex_;
  // "401 SIGNATURE_INVALID", and "401".
  std::set<std::string> seen_ TENURE_GUARDED_BY(mutex_);
  std::set<std::string> seen_statuses_ TENURE_GUARDED_BY(mutex_);
};

TEST_F(OpenApiTest, K2_EveryAnswerIsInTheDocumentAndEveryRefusalIsGiven) {
  ASSERT_OK(cluster_->StartIngest(
      {"--http_request_timeout=2s", "--http_worker_threads=1",
       "--http_max_queued=1", "--database_pool_size=2",
       "--database_acquire_timeout=200ms", "--database_lock_timeout=300ms"}));
  ProvokeAll();

  // More at once than fits, while the database stands still.
  {
    ASSERT_OK_AND_ASSIGN(const auto holder, database_->OpenSession());
    ASSERT_OK(holder->Exec("BEGIN; LOCK TABLE provider_event"));
    std::vector<std::thread> threads;
    for (int i = 0; i < 16; ++i) {
      threads.emplace_back(
          [&, i] { PostSigned(Body(absl::StrCat("crowd_", i))); });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_OK(holder->Exec("COMMIT"));
  }
  // The cut may meet the COMMIT of one of the crowd, which has its answer but
  // is still being worked on.
  for (int i = 0; i < 100 && !Seen("503 COMMIT_OUTCOME_UNKNOWN"); ++i) {
    proxy_->CutAfterCommit();
    PostSigned(Body(absl::StrCat("cut_", i)));
  }
  proxy_->Heal();
  proxy_->Refuse(true);
  proxy_->CutNow();
  EXPECT_EQ(PostSigned(Body("away")).status, 503);
  proxy_->Heal();

  // What cannot be brought about from outside, through the same conversion.
  const std::pair<absl::StatusCode, ErrorReason> inner[] = {
      {absl::StatusCode::kAborted, common::v1::ERROR_REASON_CONFLICT},
      {absl::StatusCode::kResourceExhausted,
       common::v1::ERROR_REASON_OVERLOADED},
      {absl::StatusCode::kDeadlineExceeded,
       common::v1::ERROR_REASON_DEADLINE_EXCEEDED},
      {absl::StatusCode::kCancelled, common::v1::ERROR_REASON_CANCELLED},
      {absl::StatusCode::kInternal, common::v1::ERROR_REASON_INTERNAL},
  };
  for (const auto& [code, reason] : inner) {
    http::Response response =
        webhook_ingest::ErrorResponse(MakeError(code, reason, "why"), "id");
    Described(HttpReply{response.status, response.headers.fields(),
                        std::move(response.body)});
  }

  MutexLock lock(mutex_);
  EXPECT_THAT(seen_,
              UnorderedElementsAreArray(webhooks_.Refusals(kWebhooks, "post")));
  EXPECT_THAT(seen_statuses_,
              UnorderedElementsAreArray(webhooks_.Statuses(kWebhooks, "post")));
}

TEST_F(OpenApiTest, EveryReasonIsOneOfTheContractOrOfTheHttpEdge) {
  for (const std::string& refusal : webhooks_.Refusals(kWebhooks, "post")) {
    const std::string reason = refusal.substr(refusal.find(' ') + 1);
    ErrorReason value = common::v1::ERROR_REASON_UNSPECIFIED;
    if (common::v1::ErrorReason_Parse("ERROR_REASON_" + reason, &value)) {
      continue;
    }
    EXPECT_THAT(reason, AnyOf(Eq("PATH_NOT_FOUND"), Eq("CONTENT_TYPE")));
  }
}

TEST_F(OpenApiTest, TheStatesAreThoseOfTheContract) {
  std::vector<std::string> states;
  const auto* type = webhook::v1::EventState_descriptor();
  for (int i = 1; i < type->value_count(); ++i) {
    states.push_back(absl::AsciiStrToLower(
        absl::StripPrefix(type->value(i)->name(), "EVENT_STATE_")));
  }
  EXPECT_THAT(webhooks_.Enum("Stored", "state"), ElementsAreArray(states));
}

TEST_F(OpenApiTest, EveryAnswerOfTheProbesIsInTheDocument) {
  ASSERT_OK(cluster_->StartIngest());
  const std::string address = cluster_->Address("ingest_probes");
  std::map<std::string, std::set<std::string>> seen;
  const auto described = [&](const std::string& path,
                             const absl::StatusOr<HttpReply>& reply) {
    ASSERT_OK(reply.status());
    EXPECT_EQ(probes_.Problem(path, "get", *reply), "")
        << path << " " << reply->status << " " << reply->body;
    seen[path].insert(absl::StrCat(reply->status));
  };
  for (const char* path : {"/livez", "/readyz", "/metrics"}) {
    described(path, HttpGet(address, path));
    described(path, HttpSend("POST", address, path, ""));
    described(path, HttpSendRaw(address, absl::StrCat("GET ", path,
                                                      " HTTP/1.1\r\nHost: t\r\n"
                                                      "Content-Length: "
                                                      "5\r\n\r\n")));
  }
  proxy_->Refuse(true);
  proxy_->CutNow();
  const Clock& clock = SystemClock::Instance();
  const absl::Duration end = clock.Monotonic() + kPatience;
  while (!seen["/readyz"].contains("503") && clock.Monotonic() < end) {
    described("/readyz", HttpGet(address, "/readyz"));
  }
  EXPECT_THAT(seen["/readyz"], Contains("503"));
  for (const auto& [path, statuses] : seen) {
    EXPECT_THAT(probes_.Statuses(path, "get"), IsSupersetOf(statuses)) << path;
  }
}

}  // namespace
}  // namespace tenure::test
