#ifndef TENURE_COMMON_PROVIDERS_SIGNING_SECRET_H_
#define TENURE_COMMON_PROVIDERS_SIGNING_SECRET_H_

#include <string>

#include "common/base/secret_file.h"

namespace tenure::providers {

// One live key of a route.
struct SigningSecret {
  // What may be shown: in logs and as a metric's label. Unique within a route.
  std::string name;
  Secret secret;
};

}  // namespace tenure::providers

#endif  // TENURE_COMMON_PROVIDERS_SIGNING_SECRET_H_
