#include "common/store/catalog_store.h"

#include <cstdint>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/store/statements.h"

namespace tenure::store {
namespace {

std::vector<std::string> FeatureNames(const catalog::v1::Plan& plan) {
  std::vector<std::string> names;
  for (const auto& feature : plan.features()) names.push_back(feature.name());
  return names;
}

// True when a new revision was written.
absl::StatusOr<bool> ApplyPlan(db::Transaction& tx,
                               const catalog::v1::Plan& plan) {
  ASSIGN_OR_RETURN(const db::Result latest,
                   tx.Execute(kSelectLatestPlan, db::MakeParams(plan.name())));
  int64_t revision = 1;
  const std::vector<std::string> features = FeatureNames(plan);
  if (!latest.empty()) {
    ASSIGN_OR_RETURN(
        const db::Result match,
        tx.Execute(kSelectPlanFeaturesMatch,
                   db::MakeParams(latest[0].Int64("id"), features)));
    if (match[0].Bool("same")) return false;
    revision = latest[0].Int64("revision") + 1;
  }
  ASSIGN_OR_RETURN(
      const db::Result inserted,
      tx.Execute(kInsertPlan, db::MakeParams(plan.name(), revision)));
  RETURN_IF_ERROR(tx.Execute(kInsertPlanFeatures,
                             db::MakeParams(inserted[0].Int64("id"), features))
                      .status());
  return true;
}

}  // namespace

absl::Status ValidateCatalog(const catalog::v1::Catalog& catalog) {
  std::set<std::string> plans;
  std::set<std::pair<std::string, std::string>> products;
  for (int i = 0; i < catalog.plans_size(); ++i) {
    const catalog::v1::Plan& plan = catalog.plans(i);
    const std::string at = absl::StrCat("plans[", i, "]");
    RETURN_IF_ERROR(ValidateText(absl::StrCat(at, ".name"), plan.name(), 127));
    if (!plans.insert(plan.name()).second) {
      return FieldInvalidError(absl::StrCat(at, ".name"),
                               absl::StrCat(plan.name(), " is given twice"));
    }
    std::set<std::string> features;
    for (int k = 0; k < plan.features_size(); ++k) {
      const std::string field = absl::StrCat(at, ".features[", k, "].name");
      const std::string& name = plan.features(k).name();
      RETURN_IF_ERROR(ValidateText(field, name, 127));
      if (!features.insert(name).second) {
        return FieldInvalidError(field, absl::StrCat(name, " is given twice"));
      }
    }
    for (int k = 0; k < plan.provider_products_size(); ++k) {
      const std::string field = absl::StrCat(at, ".provider_products[", k, "]");
      const auto& product = plan.provider_products(k);
      RETURN_IF_ERROR(
          ValidateText(absl::StrCat(field, ".route"), product.route(), 64));
      RETURN_IF_ERROR(ValidateText(absl::StrCat(field, ".product_id"),
                                   product.product_id(), 255));
      if (!products.insert({product.route(), product.product_id()}).second) {
        return FieldInvalidError(
            field, absl::StrCat(product.product_id(), " of route ",
                                product.route(), " is given twice"));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<CatalogChanges> ApplyCatalog(
    db::Pool& pool, const catalog::v1::Catalog& catalog) {
  RETURN_IF_ERROR(ValidateCatalog(catalog));
  CatalogChanges changes;
  RETURN_IF_ERROR(pool.RunTransaction([&](db::Transaction& tx) -> absl::Status {
    changes = CatalogChanges{};
    RETURN_IF_ERROR(tx.Execute(kLockCatalog).status());
    for (const catalog::v1::Plan& plan : catalog.plans()) {
      ASSIGN_OR_RETURN(const bool revised, ApplyPlan(tx, plan));
      if (revised) changes.revised_plans.push_back(plan.name());
      for (const auto& product : plan.provider_products()) {
        ASSIGN_OR_RETURN(
            const db::Result written,
            tx.Execute(kUpsertProviderProduct,
                       db::MakeParams(product.route(), product.product_id(),
                                      plan.name())));
        changes.changed_products += static_cast<int>(written.affected_rows());
      }
    }
    if (changes.changed_products == 0) return absl::OkStatus();
    return tx.Execute(kWakeEventsOfUnknownPlans).status();
  }));
  return changes;
}

}  // namespace tenure::store
