#ifndef TENURE_COMMON_STORE_CATALOG_DEFINITION_H_
#define TENURE_COMMON_STORE_CATALOG_DEFINITION_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/domain/plan.h"
#include "tenure/catalog/v1/catalog.pb.h"

namespace tenure::store {

// What a catalogue means, apart from any database.

// Something wrong with a catalogue.
struct CatalogError {
  // "plans[1].quotas[0].amount".
  std::string key;
  std::string what;
  // The value is not there.
  bool missing = false;
};

// Everything that is wrong, in the order of the catalogue.
std::vector<CatalogError> FindCatalogErrors(
    const catalog::v1::Catalog& catalog);

// The same catalogue in its one normal form: every default written out, plans,
// features, quotas and products in order of their names. Two catalogues that
// mean the same have the same normal form, and that of a normal form is itself.
// The catalogue must be free of errors.
catalog::v1::Catalog NormalizeCatalog(catalog::v1::Catalog catalog);
catalog::v1::Plan NormalizePlan(catalog::v1::Plan plan);

// A difference between what is stored and what a catalogue says.
struct CatalogDifference {
  // "plan pro", "product stripe/price_1" or "default_plan".
  std::string thing;
  // "grace_period", "features.api.limit"; empty for the thing itself.
  std::string key;
  // nullopt: not there.
  std::optional<std::string> stored;
  std::optional<std::string> wanted;
  // The catalogue does not name it: it stays as it is.
  bool stays = false;

  friend bool operator==(const CatalogDifference&,
                         const CatalogDifference&) = default;
};

// What applying `wanted` to `stored` would change, and what it would leave
// though it is not named; both in normal form. Plans, then products, each in
// order of their names.
std::vector<CatalogDifference> DiffCatalogs(const catalog::v1::Catalog& stored,
                                            const catalog::v1::Catalog& wanted);

// True when applying would change something.
bool HasChanges(const std::vector<CatalogDifference>& differences);

// For people: a line for each difference, under the plan it belongs to.
std::string FormatDifferences(
    const std::vector<CatalogDifference>& differences);

// The definition of a plan in normal form as it is stored with the revision:
// proto JSON with the names of the file, without name and products. The reverse
// gives a plan in normal form; INTERNAL when `json` is none.
std::string DefinitionJson(const catalog::v1::Plan& plan);
absl::StatusOr<catalog::v1::Plan> PlanFromDefinition(absl::string_view name,
                                                     absl::string_view json);

// The rules of a plan in normal form. `id` and `revision` are left 0.
domain::Plan ToDomain(const catalog::v1::Plan& plan);
domain::Term ToDomain(const catalog::v1::Term& term);

}  // namespace tenure::store

#endif  // TENURE_COMMON_STORE_CATALOG_DEFINITION_H_
