#ifndef TENURE_TESTS_INTEGRATION_ROWS_H_
#define TENURE_TESTS_INTEGRATION_ROWS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/support/session.h"

namespace tenure::test {

// Plan "pro" with the feature "export"; "price_pro" means it on every route of
// IngestStack.
inline absl::Status AddCatalog(Session& session) {
  return session
      .Exec(R"sql(
WITH p AS (INSERT INTO plan (name, revision) VALUES ('pro', 1) RETURNING id)
INSERT INTO plan_feature (plan_id, feature) SELECT id, 'export' FROM p;
INSERT INTO provider_product (route_name, product_id, plan_name)
VALUES ('stripe', 'price_pro', 'pro'), ('stripe-eu', 'price_pro', 'pro'),
       ('stripe-sandbox', 'price_pro', 'pro'))sql")
      .status();
}

// Routes "direct" (live) and "direct-test" (test) for rows written by SQL.
inline absl::Status AddRoutes(Session& session) {
  return session
      .Exec(R"sql(
INSERT INTO route (name, kind, environment)
VALUES ('direct', 'stripe', 'live'), ('direct-test', 'stripe', 'test'))sql")
      .status();
}

// Writes `count` subscriptions sub_1 .. sub_count of the subjects u1 ..
// ucount. `columns` and `values` add columns of the caller's choice, where `i`
// is the number of the row; status and starts_at have to be among them.
inline absl::Status AddSubscriptions(Session& session, int count,
                                     absl::string_view columns,
                                     absl::string_view values,
                                     absl::string_view route = "direct") {
  return session
      .Exec(absl::StrCat(
          "INSERT INTO subject (external_id) SELECT 'u' || i FROM "
          "generate_series(1, ",
          count,
          ") i ON CONFLICT DO NOTHING;"
          "INSERT INTO subscription (subject_id, plan_id, environment, "
          "route_id, provider_subscription_id, fold_revision, ",
          columns,
          ") SELECT u.id, (SELECT id FROM plan WHERE name = 'pro'), "
          "r.environment, r.id, 'sub_' || i, 1, ",
          values, " FROM generate_series(1, ", count,
          ") n (i) JOIN subject u ON u.external_id = 'u' || i "
          "JOIN route r ON r.name = '",
          route, "' ORDER BY i"))
      .status();
}

// Everything stored, one line a row, with the place of the row: any write, even
// one that changes no value, makes another text.
inline absl::StatusOr<std::string> Snapshot(Session& session,
                                            absl::string_view but_table = "") {
  static constexpr const char* kTables[] = {"subject",
                                            "route",
                                            "plan",
                                            "plan_feature",
                                            "default_plan",
                                            "provider_product",
                                            "customer_link",
                                            "provider_event",
                                            "event_conflict",
                                            "subscription",
                                            "subscription_fact",
                                            "payment",
                                            "payment_alias",
                                            "subscription_event",
                                            "sink",
                                            "sink_stream",
                                            "quota_schedule",
                                            "job",
                                            "job_run"};
  std::string text;
  for (const char* table : kTables) {
    if (table == but_table) continue;
    auto rows = session.Exec(absl::StrCat(
        "SELECT t.ctid::text || t::text FROM ", table, " t ORDER BY t.ctid"));
    if (!rows.ok()) return rows.status();
    for (const SqlRow& row : *rows) {
      absl::StrAppend(&text, table, " ", row[0].value_or("NULL"), "\n");
    }
  }
  return text;
}

}  // namespace tenure::test

#endif  // TENURE_TESTS_INTEGRATION_ROWS_H_
