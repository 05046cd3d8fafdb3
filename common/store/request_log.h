#ifndef TENURE_COMMON_STORE_REQUEST_LOG_H_
#define TENURE_COMMON_STORE_REQUEST_LOG_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/db/connection.h"
#include "common/db/pool.h"
#include "common/store/fact_store.h"

namespace tenure::store {

// The first answers to writes, so that a repeat gets the same one and changes
// nothing. All inside the transaction of the write.

// A write as its caller names it.
struct RequestKey {
  // Unique among the methods of all environments: "live/Grant".
  std::string method;
  // SHA-256 of what counts as the request, 32 bytes.
  std::string sha256;
  Author author;
};

// Takes the request's key. nullopt: it is the first one, and FinishRequest has
// to follow in the same transaction; else the first one's answer. Of two at
// once the second waits for the first one's commit, so this is the first lock
// of its transaction, before those of R8: nothing that holds any of them ever
// waits for a request.
//
// ALREADY_EXISTS (REQUEST_ID_REUSED) for another request under the same id;
// FAILED_PRECONDITION (SUBJECT_ERASED) when the answer was erased.
absl::StatusOr<std::optional<std::string>> BeginRequest(db::Transaction& tx,
                                                        const RequestKey& key);

// Keeps the answer. `subject_id`: whose data it holds, for erasure; nullopt for
// nobody's.
absl::Status FinishRequest(db::Transaction& tx, const RequestKey& key,
                           absl::string_view response,
                           std::optional<int64_t> subject_id);

// Those of `keys`, all of one method, that were answered, by request_id, as
// BeginRequest would tell it: for passing over many repeats at once. What is
// missing here may still have been answered when it is begun.
absl::StatusOr<std::map<std::string, absl::StatusOr<std::string>>> FindAnswers(
    db::Pool& pool, const std::vector<RequestKey>& keys);

}  // namespace tenure::store

#endif  // TENURE_COMMON_STORE_REQUEST_LOG_H_
