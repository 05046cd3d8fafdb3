#ifndef TENURE_COMMON_BASE_RFC3339_H_
#define TENURE_COMMON_BASE_RFC3339_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tenure {

// Reads an instant as RFC 3339 writes it, "2026-01-31T08:00:00.123Z" or with an
// offset "+08:00", of the years 1..9999 in UTC. Up to nine digits of a second
// are read and floored to whole microseconds, which is what PostgreSQL stores.
// A leap second is the first instant after it.
//
// nullopt for anything else: a date alone, a time without a zone, a space or
// lower-case letters in place of T and Z, 31 February, "infinite-future"
// (C070).
std::optional<absl::Time> ParseRfc3339(absl::string_view text);

}  // namespace tenure

#endif  // TENURE_COMMON_BASE_RFC3339_H_
