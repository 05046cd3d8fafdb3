#ifndef TENURE_COMMON_PROVIDERS_STRIPE_SIGNATURE_H_
#define TENURE_COMMON_PROVIDERS_STRIPE_SIGNATURE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/providers/signing_secret.h"

namespace tenure::providers {

// Longer headers, and headers with more entries, are refused before any digest
// is computed, so that one request cannot ask for many (C022).
inline constexpr size_t kMaxStripeSignatureHeaderBytes = 8 * 1024;
inline constexpr size_t kMaxStripeSignatureEntries = 16;

// Verifies a Stripe-Signature header, "t=<unix seconds>,v1=<hex>[,v1=...]",
// over "<t>.<body>" with HMAC-SHA-256. Any pair of a v1 entry and a live
// secret that matches is enough (both sides rotate); other schemes are passed
// over. Comparison takes constant time. Returns the name of the first secret
// that matches.
//
// The timestamp must lie within `tolerance` of `now` in both directions,
// bounds included (C028).
//
// Errors: UNAUTHENTICATED SIGNATURE_INVALID (no header, no v1 entry, nothing
// matches), UNAUTHENTICATED SIGNATURE_TIMESTAMP_OUT_OF_TOLERANCE,
// INVALID_ARGUMENT SIGNATURE_HEADER_MALFORMED.
absl::StatusOr<std::string> VerifyStripeSignature(
    absl::string_view header, absl::string_view body,
    absl::Span<const SigningSecret> secrets, absl::Time now,
    absl::Duration tolerance);

}  // namespace tenure::providers

#endif  // TENURE_COMMON_PROVIDERS_STRIPE_SIGNATURE_H_
