#ifndef TENURE_COMMON_BASE_UTF8_H_
#define TENURE_COMMON_BASE_UTF8_H_

#include "absl/strings/string_view.h"

namespace tenure {

// True when `text` is well-formed UTF-8: no overlong forms, no surrogates,
// nothing above U+10FFFF.
bool IsValidUtf8(absl::string_view text);

}  // namespace tenure

#endif  // TENURE_COMMON_BASE_UTF8_H_
