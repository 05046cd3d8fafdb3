// Headers of all shapes with the verdicts of another language's verifiers
// (tests/node/stripe_vectors.mjs): Stripe's own library, and the few lines that
// say our stricter rules.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/providers/stripe_signature.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tenure::providers {
namespace {

TEST(StripeSignatureCorpus, C022_C028_AcceptsExactlyWhatTheReferenceAccepts) {
  std::ifstream file(TENURE_TEST_FIXTURES "/stripe/signature_corpus.json");
  std::stringstream text;
  text << file.rdbuf();
  const absl::StatusOr<JsonValue> corpus = ParseJson(text.str());
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  const auto member = [](const JsonValue& object, const char* key) {
    return std::string(object.Find(key)->AsString().value_or(""));
  };
  std::vector<SigningSecret> secrets;
  for (const JsonValue& secret : corpus->Find("secrets")->items()) {
    const std::string own(secret.AsString().value_or(""));
    secrets.push_back({own, Secret(own)});
  }
  const std::string body = member(*corpus, "body");
  const absl::Time now =
      absl::FromUnixSeconds(corpus->Find("now")->AsInt64().value_or(0));
  int accepted = 0;
  int refused = 0;
  int stricter = 0;
  for (const JsonValue& row : corpus->Find("headers")->items()) {
    const std::string header = member(row, "header");
    const bool expected = *row.Find("accepted")->AsBool();
    const auto verdict =
        VerifyStripeSignature(header, body, secrets, now, absl::Minutes(5));
    EXPECT_EQ(verdict.ok(), expected) << header << "\n" << verdict.status();
    ++(expected ? accepted : refused);
    stricter += !expected && *row.Find("accepted_by_library")->AsBool();
  }
  EXPECT_GE(accepted, 50);
  EXPECT_GE(refused, 100);
  EXPECT_GE(stricter, 5);
}

}  // namespace
}  // namespace tenure::providers
