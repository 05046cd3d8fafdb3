#include "common/http/message.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tenure::http {
namespace {

bool IsToken(absl::string_view text) {
  if (text.empty()) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::StrContains("!#$%&'*+-.^_`|~", absl::string_view(&c, 1));
  });
}

bool IsFieldValue(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return c == '\t' || (byte >= 0x20 && byte != 0x7f);
  });
}

bool DecidedByServer(absl::string_view name) {
  for (absl::string_view own :
       {"connection", "content-length", "date", "keep-alive",
        "transfer-encoding", "trailer", "upgrade"}) {
    if (absl::EqualsIgnoreCase(name, own)) return true;
  }
  return false;
}

absl::string_view Reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 301:
      return "Moved Permanently";
    case 302:
      return "Found";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Status";
  }
}

}  // namespace

const std::string* Headers::Find(absl::string_view name) const {
  for (const Field& field : fields_) {
    if (absl::EqualsIgnoreCase(field.first, name)) return &field.second;
  }
  return nullptr;
}

std::vector<std::string> Headers::FindAll(absl::string_view name) const {
  std::vector<std::string> values;
  for (const Field& field : fields_) {
    if (absl::EqualsIgnoreCase(field.first, name)) {
      values.push_back(field.second);
    }
  }
  return values;
}

Response MakeResponse(int status, absl::string_view content_type,
                      std::string body) {
  Response response;
  response.status = status;
  response.headers.Add("Content-Type", content_type);
  response.body = std::move(body);
  return response;
}

Response TextResponse(int status, absl::string_view text) {
  return MakeResponse(status, "text/plain; charset=utf-8",
                      absl::StrCat(text, "\n"));
}

Response JsonResponse(int status, std::string json) {
  return MakeResponse(status, "application/json", std::move(json));
}

Response MethodNotAllowed(absl::string_view allow) {
  Response response = TextResponse(405, "method not allowed");
  response.headers.Add("Allow", allow);
  return response;
}

bool SplitTarget(absl::string_view target, std::string* path,
                 std::string* query) {
  query->clear();
  if (target == "*") {
    *path = "*";
    return true;
  }
  if (absl::StartsWithIgnoreCase(target, "http://") ||
      absl::StartsWithIgnoreCase(target, "https://")) {
    target.remove_prefix(target.find("//") + 2);
    const size_t end = target.find_first_of("/?");
    if (target.empty() || end == 0) return false;  // no authority
    if (end == absl::string_view::npos) {
      *path = "/";
      return true;
    }
    target.remove_prefix(end);
    if (target.front() == '?') {
      *path = "/";
      *query = std::string(target.substr(1));
      return !absl::StrContains(target, "#");
    }
  }
  if (target.empty() || target.front() != '/') return false;
  if (absl::StrContains(target, "#")) return false;
  const size_t mark = target.find('?');
  *path = std::string(target.substr(0, mark));
  if (mark != absl::string_view::npos) {
    *query = std::string(target.substr(mark + 1));
  }
  return true;
}

std::string MediaType(absl::string_view content_type) {
  const absl::string_view type = content_type.substr(0, content_type.find(';'));
  return absl::AsciiStrToLower(absl::StripAsciiWhitespace(type));
}

bool BodyForbidden(int status) {
  return status < 200 || status == 204 || status == 304;
}

std::string FormatResponseHead(const Response& response,
                               const ResponseFraming& framing) {
  std::string head = absl::StrCat("HTTP/1.1 ", response.status, " ",
                                  Reason(response.status), "\r\n");
  absl::StrAppend(&head, "Date: ",
                  absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", framing.date,
                                   absl::UTCTimeZone()),
                  "\r\n");
  for (const auto& [name, value] : response.headers) {
    if (DecidedByServer(name) || !IsToken(name) || !IsFieldValue(value)) {
      continue;
    }
    absl::StrAppend(&head, name, ": ", value, "\r\n");
  }
  if (!BodyForbidden(response.status)) {
    absl::StrAppend(&head, "Content-Length: ", response.body.size(), "\r\n");
  }
  if (!framing.keep_alive) {
    head += "Connection: close\r\n";
  } else if (framing.http10) {
    head += "Connection: keep-alive\r\n";
  }
  head += "\r\n";
  return head;
}

}  // namespace tenure::http
