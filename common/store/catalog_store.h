#ifndef TENURE_COMMON_STORE_CATALOG_STORE_H_
#define TENURE_COMMON_STORE_CATALOG_STORE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/db/pool.h"
#include "tenure/catalog/v1/catalog.pb.h"

namespace tenure::store {

struct CatalogChanges {
  // Names of plans that got a first or further revision.
  std::vector<std::string> revised_plans;
  // Provider products that are new or mean another plan now.
  int changed_products = 0;
};

// INVALID_ARGUMENT naming the entry, for a name that is missing, too long or
// given twice.
absl::Status ValidateCatalog(const catalog::v1::Catalog& catalog);

// Brings the database to what the catalogue says, in one transaction. Applying
// the same catalogue again changes nothing. A plan whose features changed gets
// a new revision: subscriptions keep the revision they were folded with until
// they are folded again (R5). Plans and products that the catalogue does not
// name stay.
absl::StatusOr<CatalogChanges> ApplyCatalog(
    db::Pool& pool, const catalog::v1::Catalog& catalog);

}  // namespace tenure::store

#endif  // TENURE_COMMON_STORE_CATALOG_STORE_H_
