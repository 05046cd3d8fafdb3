#ifndef TENURE_TESTS_SUPPORT_HTTP_CLIENT_H_
#define TENURE_TESTS_SUPPORT_HTTP_CLIENT_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tests/support/test_signal.h"

namespace tenure::test {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpReply {
  int status = 0;
  HttpHeaders headers;  // names as sent
  std::string body;

  // The value of the first header of that name, in any case.
  std::optional<std::string> Header(absl::string_view name) const;
};

// Reads a reply from what has arrived of it. nullopt when it is not complete
// yet; `ended` says that nothing will follow, `is_head` that it has no body.
absl::StatusOr<std::optional<HttpReply>> ParseHttpReply(
    absl::string_view received, bool ended, bool is_head);

// A minimal HTTP/1.1 client, written apart from the product's HTTP code so that
// a misreading there is not mirrored here. One connection per request,
// "Connection: close". `address` is "127.0.0.1:PORT". UNAVAILABLE when the
// connection fails or ends before a whole reply, DEADLINE_EXCEEDED, or
// INVALID_ARGUMENT for a reply that is not HTTP.
//
// A reply that comes before the request was sent in full (413) is returned.
absl::StatusOr<HttpReply> HttpGet(absl::string_view address,
                                  absl::string_view path,
                                  const HttpHeaders& headers = {},
                                  absl::Duration timeout = kPatience);
absl::StatusOr<HttpReply> HttpPost(absl::string_view address,
                                   absl::string_view path,
                                   absl::string_view body,
                                   const HttpHeaders& headers = {},
                                   absl::Duration timeout = kPatience);
// Any method. Host, Connection and Content-Length are added where `headers` has
// none.
absl::StatusOr<HttpReply> HttpSend(absl::string_view method,
                                   absl::string_view address,
                                   absl::string_view path,
                                   absl::string_view body,
                                   const HttpHeaders& headers = {},
                                   absl::Duration timeout = kPatience);
// Sends `request` as it is, and keeps the connection open for the reply: for
// malformed requests.
absl::StatusOr<HttpReply> HttpSendRaw(absl::string_view address,
                                      absl::string_view request,
                                      absl::Duration timeout = kPatience);

}  // namespace tenure::test

#endif  // TENURE_TESTS_SUPPORT_HTTP_CLIENT_H_
