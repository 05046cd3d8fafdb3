#include "common/base/backoff.h"

#include <algorithm>

#include "absl/random/uniform_int_distribution.h"

namespace tenure {
namespace {

// One round of SplitMix64: the standard library's and Abseil's generators do
// not promise the same numbers everywhere.
uint64_t Mix(uint64_t value) {
  value += 0x9E3779B97F4A7C15;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

}  // namespace

Backoff::Backoff(absl::Duration base, absl::Duration cap)
    : base_(std::max(base, absl::Nanoseconds(1))),
      // A year: nanoseconds of it fit into 64 bits.
      cap_(std::clamp(cap, base_, std::max(base_, absl::Hours(24 * 365)))) {}

absl::Duration Backoff::Ceiling(int64_t attempt) const {
  absl::Duration ceiling = base_;
  for (int64_t i = 0; i < attempt && ceiling < cap_; ++i) ceiling *= 2;
  return std::min(ceiling, cap_);
}

absl::Duration Backoff::Delay(int64_t attempt, absl::BitGenRef random) const {
  absl::uniform_int_distribution<int64_t> even(
      0, absl::ToInt64Nanoseconds(Ceiling(attempt)));
  return absl::Nanoseconds(even(random));
}

absl::Duration Backoff::Delay(int64_t attempt, uint64_t seed) const {
  const auto nanos =
      static_cast<uint64_t>(absl::ToInt64Nanoseconds(Ceiling(attempt)));
  const uint64_t draw = Mix(seed ^ Mix(static_cast<uint64_t>(attempt)));
  // The high half of the product maps the draw onto [0, nanos] evenly.
  __extension__ using Wide = unsigned __int128;
  return absl::Nanoseconds(
      static_cast<int64_t>((static_cast<Wide>(draw) * (nanos + 1)) >> 64));
}

}  // namespace tenure
