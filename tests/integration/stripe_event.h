#ifndef TENURE_TESTS_INTEGRATION_STRIPE_EVENT_H_
#define TENURE_TESTS_INTEGRATION_STRIPE_EVENT_H_

#include <openssl/hmac.h>

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tenure::test {

// A paid invoice as Stripe tells it, as far as Tenure reads it.
struct StripeInvoice {
  std::string event_id;
  std::string type = "invoice.paid";
  std::string account = "";
  bool livemode = true;
  absl::Time created;
  std::string invoice_id;
  std::string subscription_id;
  std::string customer_id = "cus_1";
  // In the subscription's metadata; empty for none.
  std::string subject;
  std::string price_id = "price_pro";
  int amount = 2000;
  absl::Time period_start;
  absl::Time period_end;

  std::string Body() const {
    const std::string metadata =
        subject.empty()
            ? std::string("{}")
            : absl::StrCat("{\"tenure_subject\":\"", subject, "\"}");
    return absl::StrCat(
        "{\"id\":\"", event_id, "\",\"object\":\"event\",",
        account.empty() ? std::string()
                        : absl::StrCat("\"account\":\"", account, "\","),
        "\"type\":\"", type, "\",\"livemode\":", livemode ? "true" : "false",
        ",\"created\":", absl::ToUnixSeconds(created),
        ",\"data\":{\"object\":{\"id\":\"", invoice_id,
        "\",\"object\":\"invoice\",\"customer\":\"", customer_id,
        "\",\"currency\":\"usd\",\"amount_paid\":", amount, ",\"charge\":\"ch_",
        invoice_id,
        "\",\"parent\":{\"type\":\"subscription_details\","
        "\"subscription_details\":{\"subscription\":\"",
        subscription_id, "\",\"metadata\":", metadata,
        "}},\"lines\":{\"data\":[{\"parent\":{\"type\":"
        "\"subscription_item_details\"},\"pricing\":{\"price_details\":{"
        "\"price\":\"",
        price_id,
        "\"}},\"period\":{\"start\":", absl::ToUnixSeconds(period_start),
        ",\"end\":", absl::ToUnixSeconds(period_end), "}}]}}}}");
  }
};

// customer.subscription.deleted.
struct StripeDeletion {
  std::string event_id;
  absl::Time created;
  std::string subscription_id;
  std::string subject;
  absl::Time ended_at;

  std::string Body() const {
    return absl::StrCat(
        "{\"id\":\"", event_id,
        "\",\"object\":\"event\",\"type\":\"customer.subscription.deleted\","
        "\"livemode\":true,\"created\":",
        absl::ToUnixSeconds(created), ",\"data\":{\"object\":{\"id\":\"",
        subscription_id,
        "\",\"object\":\"subscription\",\"customer\":\"cus_1\","
        "\"metadata\":{\"tenure_subject\":\"",
        subject, "\"},\"ended_at\":", absl::ToUnixSeconds(ended_at),
        ",\"items\":{\"data\":[{\"price\":{\"id\":\"price_pro\"}}]}}}}");
  }
};

// The Stripe-Signature header over `body`, computed apart from the product.
inline std::string StripeSignature(absl::string_view secret,
                                   absl::string_view body, absl::Time at) {
  const std::string timestamp = absl::StrCat(absl::ToUnixSeconds(at));
  const std::string signed_bytes = absl::StrCat(timestamp, ".", body);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(signed_bytes.data()),
       signed_bytes.size(), digest, &size);
  return absl::StrCat("t=", timestamp, ",v1=",
                      absl::BytesToHexString(absl::string_view(
                          reinterpret_cast<const char*>(digest), size)));
}

}  // namespace tenure::test

#endif  // TENURE_TESTS_INTEGRATION_STRIPE_EVENT_H_
