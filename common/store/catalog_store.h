#ifndef TENURE_COMMON_STORE_CATALOG_STORE_H_
#define TENURE_COMMON_STORE_CATALOG_STORE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/db/pool.h"
#include "common/domain/plan.h"
#include "common/store/catalog_definition.h"
#include "tenure/catalog/v1/catalog.pb.h"

namespace tenure::store {

struct CatalogChanges {
  // Names of plans that got a first or further revision.
  std::vector<std::string> revised_plans;
  // Provider products that are new or mean another plan or term now.
  int changed_products = 0;
  bool changed_default_plan = false;
  // The same in detail, with what the catalogue does not name.
  std::vector<CatalogDifference> differences;
};

enum class ApplyMode {
  kWrite,
  // Says what would be written, and writes nothing.
  kDryRun,
};

// The first of FindCatalogErrors as INVALID_ARGUMENT naming the entry.
absl::Status ValidateCatalog(const catalog::v1::Catalog& catalog);

// Brings the database to what the catalogue says, in one transaction. Applying
// the same catalogue again changes nothing. A plan of whose definition anything
// but provider products changed gets a new revision: subscriptions keep the
// revision they were folded with until they are folded again or renewed (R5).
// Plans, products and the default plan stay when the catalogue does not name
// them. Events parked for a plan or product that is there now are woken (C140).
// One apply waits for another.
absl::StatusOr<CatalogChanges> ApplyCatalog(db::Pool& pool,
                                            const catalog::v1::Catalog& catalog,
                                            ApplyMode mode = ApplyMode::kWrite);

// The stored catalogue in normal form: the latest revision of each plan. It
// applies to no change.
absl::StatusOr<catalog::v1::Catalog> ExportCatalog(db::Pool& pool);

// A plan out of the columns of a row; `definition` without features.
absl::StatusOr<domain::Plan> MakePlan(int64_t id, absl::string_view name,
                                      int64_t revision,
                                      const std::string& definition);

// What is bought: a route's name and a product's id.
using ProductKey = std::pair<std::string, std::string>;

// The four below are one statement each in the caller's transaction, and do
// not load features.

// The plans of several products, as of FindPlanOfProduct; those that mean none
// are left out.
absl::StatusOr<std::map<ProductKey, domain::Plan>> FindPlansOfProducts(
    db::Transaction& tx, const std::set<ProductKey>& products);

// The latest revision of the plan that a product means, with the product's own
// term where it has one. nullopt for a product that means no plan.
absl::StatusOr<std::optional<domain::Plan>> FindPlanOfProduct(
    db::Transaction& tx, absl::string_view route_name,
    absl::string_view product_id);

// The latest revision; nullopt when there is no plan of this name.
absl::StatusOr<std::optional<domain::Plan>> FindPlan(db::Transaction& tx,
                                                     absl::string_view name);

// One revision. NOT_FOUND when there is none of this id.
absl::StatusOr<domain::Plan> LoadPlan(db::Transaction& tx, int64_t plan_id);

}  // namespace tenure::store

#endif  // TENURE_COMMON_STORE_CATALOG_STORE_H_
