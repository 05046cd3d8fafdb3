#ifndef TENURE_COMMON_HTTP_MESSAGE_H_
#define TENURE_COMMON_HTTP_MESSAGE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tenure::http {

// Header fields in the order they came, repeated ones included. Names compare
// without regard to case. Values carry no surrounding white space and may hold
// bytes above 0x7f.
class Headers {
 public:
  using Field = std::pair<std::string, std::string>;

  Headers() = default;
  Headers(std::initializer_list<Field> fields) : fields_(fields) {}

  void Add(absl::string_view name, absl::string_view value) {
    fields_.emplace_back(std::string(name), std::string(value));
  }

  // The value of the first field of that name, or null. Valid until the next
  // change.
  const std::string* Find(absl::string_view name) const;
  // The values of all fields of that name, in order.
  std::vector<std::string> FindAll(absl::string_view name) const;
  bool Has(absl::string_view name) const { return Find(name) != nullptr; }

  const std::vector<Field>& fields() const { return fields_; }
  std::vector<Field>::const_iterator begin() const { return fields_.begin(); }
  std::vector<Field>::const_iterator end() const { return fields_.end(); }
  size_t size() const { return fields_.size(); }
  bool empty() const { return fields_.empty(); }

 private:
  std::vector<Field> fields_;
};

// What is known of a request once its header is read.
struct RequestHead {
  std::string method;  // as sent; methods are case-sensitive
  std::string target;  // the path alone, not percent-decoded; "*" is possible
  std::string query;   // what follows '?', not decoded, without the '?'
  Headers headers;     // without trailers
  std::string remote_address;  // the peer's IP address, no port
  // What Content-Length says; none for a chunked body. No body: 0.
  std::optional<uint64_t> content_length;
  // When the answer must be out, on SystemClock's Monotonic() scale.
  absl::Duration deadline = absl::ZeroDuration();
};

struct Request : RequestHead {
  std::string body;  // the bytes as sent, chunk framing removed
};

struct Response {
  int status = 200;  // 200..599
  Headers headers;   // Content-Type and what else the sender wants to say
  std::string body;
};

// A response with one content type. Framing fields (Content-Length, Date,
// Connection, Transfer-Encoding) are the server's business and are dropped when
// set by a handler.
Response MakeResponse(int status, absl::string_view content_type,
                      std::string body);
// text/plain; a line feed is added to `text`.
Response TextResponse(int status, absl::string_view text);
// application/json; `json` is sent as it is.
Response JsonResponse(int status, std::string json);
// 405 with the Allow field, e.g. "GET, HEAD".
Response MethodNotAllowed(absl::string_view allow);

// The path and the query of a request target in origin form ("/a?b"), absolute
// form ("http://host/a?b") or "*". False for any other target.
bool SplitTarget(absl::string_view target, std::string* path,
                 std::string* query);

// The media type of a Content-Type value: lower case, without parameters.
std::string MediaType(absl::string_view content_type);

// Settings of the answer that the server decides.
struct ResponseFraming {
  bool keep_alive = false;
  bool http10 = false;  // an old client must be told that it may go on
  absl::Time date;
};

// The bytes of the status line and the header fields. A field with a name that
// is no token or a value with a control character is left out, so that no
// caller-supplied text can add lines to an answer.
std::string FormatResponseHead(const Response& response,
                               const ResponseFraming& framing);

// True when a response of that status carries no body at all.
bool BodyForbidden(int status);

}  // namespace tenure::http

#endif  // TENURE_COMMON_HTTP_MESSAGE_H_
