#include "common/http/message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tenure::http {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Headers, FindsWithoutRegardToCaseAndKeepsTheOrder) {
  Headers headers = {{"A", "1"}, {"b", "2"}, {"a", "3"}};

  ASSERT_NE(headers.Find("a"), nullptr);
  EXPECT_EQ(*headers.Find("a"), "1");
  EXPECT_THAT(headers.FindAll("A"), ElementsAre("1", "3"));
  EXPECT_EQ(headers.Find("c"), nullptr);
}

TEST(SplitTarget, TakesOriginAndAbsoluteForm) {
  struct Row {
    std::string target, path, query;
  };
  const std::vector<Row> rows = {
      {"/", "/", ""},
      {"/a/b?x=1&y=?", "/a/b", "x=1&y=?"},
      {"/a%2fb", "/a%2fb", ""},
      {"/a?", "/a", ""},
      {"http://host", "/", ""},
      {"http://host/a?b", "/a", "b"},
      {"HTTPS://host?b", "/", "b"},
      {"*", "*", ""},
      {"//a", "//a", ""},
  };
  for (const Row& row : rows) {
    std::string path, query;
    EXPECT_TRUE(SplitTarget(row.target, &path, &query)) << row.target;
    EXPECT_EQ(path, row.path) << row.target;
    EXPECT_EQ(query, row.query) << row.target;
  }
}

TEST(SplitTarget, RefusesEverythingElse) {
  for (const char* target :
       {"", "a", "host:443", "http://", "http:///a", "http://?a", "/a#b",
        "http://h/a#b", "http://h?a#b", "ftp://h/a"}) {
    std::string path, query;
    EXPECT_FALSE(SplitTarget(target, &path, &query)) << target;
  }
}

TEST(MediaType, DropsParametersAndCase) {
  EXPECT_EQ(MediaType("Application/JSON; charset=utf-8"), "application/json");
  EXPECT_EQ(MediaType(" text/plain "), "text/plain");
  EXPECT_EQ(MediaType(""), "");
}

TEST(FormatResponseHead, WritesStatusDateLengthAndFields) {
  Response response = TextResponse(405, "no");
  response.headers.Add("Allow", "GET");

  const std::string head = FormatResponseHead(
      response, {.keep_alive = true, .date = absl::FromUnixSeconds(784111777)});

  EXPECT_EQ(head,
            "HTTP/1.1 405 Method Not Allowed\r\n"
            "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
            "Content-Type: text/plain; charset=utf-8\r\n"
            "Allow: GET\r\n"
            "Content-Length: 3\r\n\r\n");
}

TEST(FormatResponseHead, LeavesOutWhatWouldAddLinesOrChangeTheFraming) {
  Response response;
  response.headers.Add("X-Good", "yes");
  response.headers.Add("X-Bad", "a\r\nSet-Cookie: b");
  response.headers.Add("X Bad", "name");
  response.headers.Add("", "empty");
  response.headers.Add("X-Nul", std::string("a\0b", 3));
  response.headers.Add("content-LENGTH", "999");
  response.headers.Add("Transfer-Encoding", "chunked");
  response.body = "four";

  const std::string head = FormatResponseHead(response, {});

  EXPECT_THAT(head, HasSubstr("X-Good: yes\r\n"));
  EXPECT_THAT(head, HasSubstr("Content-Length: 4\r\n"));
  EXPECT_THAT(head, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(head, Not(HasSubstr("Cookie")));
  EXPECT_THAT(head, Not(HasSubstr("X Bad")));
  EXPECT_THAT(head, Not(HasSubstr("X-Nul")));
  EXPECT_THAT(head, Not(HasSubstr("999")));
  EXPECT_THAT(head, Not(HasSubstr("chunked")));
}

TEST(FormatResponseHead, SendsNoLengthWhereNoBodyMayBe) {
  Response response;
  response.status = 204;

  const std::string head = FormatResponseHead(response, {});

  EXPECT_THAT(head, StartsWith("HTTP/1.1 204 No Content\r\n"));
  EXPECT_THAT(head, Not(HasSubstr("Content-Length")));
}

}  // namespace
}  // namespace tenure::http
