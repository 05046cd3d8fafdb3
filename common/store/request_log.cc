#include "common/store/request_log.h"

#include <utility>

#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/store/statements.h"

namespace tenure::store {
namespace {

absl::StatusOr<std::string> FirstAnswer(const db::Row& row,
                                        const RequestKey& key) {
  // Before the comparison: erasure takes the request's hash too.
  if (row.IsNull("response")) {
    return MakeError(absl::StatusCode::kFailedPrecondition,
                     common::v1::ERROR_REASON_SUBJECT_ERASED,
                     "the answer to this request was erased with its subject");
  }
  if (row.Bytea("request_sha256") != key.sha256) {
    return MakeError(absl::StatusCode::kAlreadyExists,
                     common::v1::ERROR_REASON_REQUEST_ID_REUSED,
                     "the request_id was used for another request",
                     {{"request_id", key.author.request_id}});
  }
  return row.Bytea("response");
}

}  // namespace

absl::StatusOr<std::optional<std::string>> BeginRequest(db::Transaction& tx,
                                                        const RequestKey& key) {
  const Author& author = key.author;
  ASSIGN_OR_RETURN(
      const db::Result inserted,
      tx.Execute(kInsertRequest, db::MakeParams(key.method, author.request_id,
                                                db::Bytes{key.sha256},
                                                author.actor, author.reason)));
  if (inserted.affected_rows() == 1) return std::nullopt;
  ASSIGN_OR_RETURN(const db::Result rows,
                   tx.Execute(kSelectRequest,
                              db::MakeParams(key.method, author.request_id)));
  if (rows.empty()) return InternalError("a logged request vanished");
  ASSIGN_OR_RETURN(std::string answer, FirstAnswer(rows[0], key));
  RETURN_IF_ERROR(rows.status());
  return answer;
}

absl::Status FinishRequest(db::Transaction& tx, const RequestKey& key,
                           absl::string_view response,
                           std::optional<int64_t> subject_id) {
  return tx
      .Execute(kFinishRequest,
               db::MakeParams(key.method, key.author.request_id,
                              db::Bytes{std::string(response)}, subject_id))
      .status();
}

absl::StatusOr<std::map<std::string, absl::StatusOr<std::string>>> FindAnswers(
    db::Pool& pool, const std::vector<RequestKey>& keys) {
  std::map<std::string, absl::StatusOr<std::string>> answers;
  if (keys.empty()) return answers;
  std::map<std::string, const RequestKey*> by_id;
  std::vector<std::string> ids;
  for (const RequestKey& key : keys) {
    by_id[key.author.request_id] = &key;
    ids.push_back(key.author.request_id);
  }
  ASSIGN_OR_RETURN(
      const db::Result rows,
      pool.Execute(kSelectRequests, db::MakeParams(keys[0].method, ids)));
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string id = rows[i].Text("request_id");
    const auto key = by_id.find(id);
    if (key == by_id.end()) continue;
    answers.emplace(id, FirstAnswer(rows[i], *key->second));
  }
  RETURN_IF_ERROR(rows.status());
  return answers;
}

}  // namespace tenure::store
