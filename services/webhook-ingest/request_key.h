#ifndef TENURE_SERVICES_WEBHOOK_INGEST_REQUEST_KEY_H_
#define TENURE_SERVICES_WEBHOOK_INGEST_REQUEST_KEY_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/crypto.h"
#include "common/store/request_log.h"

namespace tenure::webhook_ingest {

// The key of an operator's write, out of its request: any message whose context
// has request_id, actor and reason. What counts as the request is all of it but
// who repeats it and why.
template <typename Request>
store::RequestKey RequestKeyOf(const std::string& environment,
                               absl::string_view method,
                               const Request& request) {
  store::RequestKey key;
  key.method = absl::StrCat(environment, "/", method);
  key.author = {request.context().request_id(), request.context().actor(),
                request.context().reason()};
  Request counted = request;
  counted.mutable_context()->clear_actor();
  counted.mutable_context()->clear_reason();
  // No message here has a map, so the bytes are the same everywhere.
  key.sha256 = Sha256(counted.SerializeAsString());
  return key;
}

}  // namespace tenure::webhook_ingest

#endif  // TENURE_SERVICES_WEBHOOK_INGEST_REQUEST_KEY_H_
