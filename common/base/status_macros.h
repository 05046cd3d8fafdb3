#ifndef TENURE_COMMON_BASE_STATUS_MACROS_H_
#define TENURE_COMMON_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define TENURE_MACRO_CONCAT_INNER(a, b) a##b
#define TENURE_MACRO_CONCAT(a, b) TENURE_MACRO_CONCAT_INNER(a, b)

// Returns from the function when `expr`, an absl::Status, is not OK.
#define RETURN_IF_ERROR(expr)                                     \
  do {                                                            \
    if (absl::Status tenure_status = (expr); !tenure_status.ok()) \
      return tenure_status;                                       \
  } while (false)

// Declares or assigns `lhs` from `expr`, an absl::StatusOr, or returns its
// error.
#define ASSIGN_OR_RETURN(lhs, expr)                                         \
  TENURE_ASSIGN_OR_RETURN(TENURE_MACRO_CONCAT(tenure_status_or_, __LINE__), \
                          lhs, expr)
#define TENURE_ASSIGN_OR_RETURN(tmp, lhs, expr)  \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return std::move(tmp).status(); \
  lhs = *std::move(tmp)

#endif  // TENURE_COMMON_BASE_STATUS_MACROS_H_
