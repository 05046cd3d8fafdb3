#include "common/db/result.h"

#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/crypto.h"
#include "common/base/error.h"
#include "common/db/pqxx_result.h"

namespace tenure::db {
namespace {

using Index = pqxx::result::size_type;

// "2026-11-30 10:00:00.5+00": sessions run with TimeZone=UTC and DateStyle=ISO,
// which the pool asserts on every connection.
bool ParseInstant(absl::string_view text, absl::Time* time) {
  std::string error;
  return absl::ConsumeSuffix(&text, "+00") &&
         absl::ParseTime("%Y-%m-%d %H:%M:%E*S", text, time, &error);
}

}  // namespace

size_t Result::size() const { return static_cast<size_t>(rep_->result.size()); }

size_t Result::affected_rows() const {
  return static_cast<size_t>(rep_->result.affected_rows());
}

Row Result::operator[](size_t index) const { return Row(rep_, index); }

absl::Status Result::status() const { return rep_->status; }

void Row::Fail(absl::string_view column, absl::string_view expected) const {
  if (!rep_->status.ok()) return;
  rep_->status =
      InternalError(absl::StrCat("column ", column, " is not ", expected));
}

std::optional<absl::string_view> Row::Raw(absl::string_view column,
                                          bool null_allowed) const {
  try {
    const auto known =
        rep_->columns.find(std::string_view(column.data(), column.size()));
    if (known == rep_->columns.end()) {
      Fail(column, "part of the result");
      return std::nullopt;
    }
    const pqxx::field field =
        rep_->result[static_cast<Index>(index_)][known->second];
    if (field.is_null()) {
      if (!null_allowed) Fail(column, "set");
      return std::nullopt;
    }
    return absl::string_view(field.c_str(), field.size());
  } catch (const std::exception&) {
    Fail(column, "part of the result");
    return std::nullopt;
  }
}

bool Row::IsNull(absl::string_view column) const {
  return !Raw(column, /*null_allowed=*/true).has_value();
}

bool Row::Bool(absl::string_view column) const {
  const auto raw = Raw(column, false);
  if (!raw.has_value()) return false;
  if (*raw != "t" && *raw != "f") Fail(column, "a boolean");
  return *raw == "t";
}

int64_t Row::Int64(absl::string_view column) const {
  const auto raw = Raw(column, false);
  int64_t value = 0;
  if (raw.has_value() && !absl::SimpleAtoi(*raw, &value)) {
    Fail(column, "an integer");
    return 0;
  }
  return value;
}

std::string Row::Text(absl::string_view column) const {
  const auto raw = Raw(column, false);
  return raw.has_value() ? std::string(*raw) : std::string();
}

std::string Row::Bytea(absl::string_view column) const {
  auto raw = Raw(column, false);
  if (!raw.has_value()) return "";
  std::optional<std::string> bytes;
  if (absl::ConsumePrefix(&*raw, "\\x")) bytes = HexDecode(*raw);
  if (!bytes.has_value()) Fail(column, "a bytea in hex");
  return bytes.value_or("");
}

absl::Time Row::Time(absl::string_view column) const {
  const auto raw = Raw(column, false);
  absl::Time time;
  if (raw.has_value() && !ParseInstant(*raw, &time)) {
    Fail(column, "an instant in UTC");
    return absl::UnixEpoch();
  }
  return time;
}

absl::Duration Row::Interval(absl::string_view column) const {
  // Statements select intervals as microseconds (bigint).
  return absl::Microseconds(Int64(column));
}

std::optional<int64_t> Row::OptionalInt64(absl::string_view column) const {
  if (IsNull(column)) return std::nullopt;
  return Int64(column);
}

std::optional<std::string> Row::OptionalText(absl::string_view column) const {
  if (IsNull(column)) return std::nullopt;
  return Text(column);
}

std::optional<absl::Time> Row::OptionalTime(absl::string_view column) const {
  if (IsNull(column)) return std::nullopt;
  return Time(column);
}

}  // namespace tenure::db
