#include "common/store/catalog_store.h"

#include <map>
#include <unordered_map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/domain/calendar.h"
#include "common/store/statements.h"

namespace tenure::store {
namespace {

using catalog::v1::Catalog;
using catalog::v1::Plan;
using catalog::v1::ProviderProduct;

struct StoredCatalog {
  Catalog catalog;
  // Latest, by name.
  std::map<std::string, int64_t> revisions;
};

// Of a product's own columns; nullopt when it has no term of its own.
absl::StatusOr<std::optional<domain::Term>> TermFromRow(const db::Row& row) {
  const std::optional<std::string> unit = row.OptionalText("term_unit");
  if (!unit.has_value()) return std::nullopt;
  const std::optional<domain::CalendarUnit> known =
      domain::ParseCalendarUnit(*unit);
  if (!known.has_value()) {
    return InternalError(absl::StrCat("unknown unit of a term: ", *unit));
  }
  return domain::Term{*known, static_cast<int>(row.Int64("term_count"))};
}

catalog::v1::Term ToProto(const domain::Term& term) {
  catalog::v1::Term proto;
  switch (term.unit) {
    case domain::CalendarUnit::kDay:
      proto.set_unit(catalog::v1::TERM_UNIT_DAY);
      break;
    case domain::CalendarUnit::kWeek:
      proto.set_unit(catalog::v1::TERM_UNIT_WEEK);
      break;
    case domain::CalendarUnit::kMonth:
      proto.set_unit(catalog::v1::TERM_UNIT_MONTH);
      break;
    case domain::CalendarUnit::kYear:
      proto.set_unit(catalog::v1::TERM_UNIT_YEAR);
      break;
  }
  proto.set_count(term.count);
  return proto;
}

absl::StatusOr<StoredCatalog> FromRows(const db::Result& rows) {
  StoredCatalog stored;
  std::map<std::string, Plan> plans;
  for (size_t i = 0; i < rows.size(); ++i) {
    const db::Row row = rows[i];
    if (row.Text("kind") != "plan") continue;
    const std::string name = row.Text("plan");
    ASSIGN_OR_RETURN(plans[name],
                     PlanFromDefinition(name, row.Text("definition")));
    stored.revisions[name] = row.Int64("revision");
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const db::Row row = rows[i];
    const std::string kind = row.Text("kind");
    const std::string name = row.Text("plan");
    if (kind == "default") {
      stored.catalog.set_default_plan(name);
    } else if (kind == "product") {
      ProviderProduct& product = *plans[name].add_provider_products();
      product.set_route(row.Text("route"));
      product.set_product_id(row.Text("product_id"));
      ASSIGN_OR_RETURN(const std::optional<domain::Term> term,
                       TermFromRow(row));
      if (term.has_value()) *product.mutable_term() = ToProto(*term);
    }
  }
  RETURN_IF_ERROR(rows.status());
  for (auto& [name, plan] : plans) {
    *stored.catalog.add_plans() = std::move(plan);
  }
  stored.catalog = NormalizeCatalog(std::move(stored.catalog));
  return stored;
}

// What definitions mean, so that the path of an event does not parse the same
// JSON again and again (measured: 40 us). By the text itself, so that nothing
// can be out of date. Thread-safe.
class DefinitionMemo {
 public:
  static DefinitionMemo& Instance() {
    static DefinitionMemo& memo = *new DefinitionMemo;
    return memo;
  }

  absl::StatusOr<domain::Plan> Get(absl::string_view name,
                                   const std::string& json) {
    {
      MutexLock lock(mutex_);
      const auto known = plans_.find(json);
      if (known != plans_.end()) return known->second;
    }
    ASSIGN_OR_RETURN(const Plan definition, PlanFromDefinition(name, json));
    const domain::Plan plan = ToDomain(definition);
    MutexLock lock(mutex_);
    // More than are sold at a time; then the old ones go with the new.
    if (plans_.size() >= kMaxPlans) plans_.clear();
    plans_.emplace(json, plan);
    return plan;
  }

 private:
  static constexpr size_t kMaxPlans = 1024;

  Mutex mutex_;
  std::unordered_map<std::string, domain::Plan> plans_
      TENURE_GUARDED_BY(mutex_);
};

absl::StatusOr<domain::Plan> PlanFromRow(const db::Row& row) {
  return MakePlan(row.Int64("id"), row.Text("name"), row.Int64("revision"),
                  row.Text("definition"));
}

absl::Status WritePlan(db::Transaction& tx, const Plan& plan,
                       int64_t revision) {
  ASSIGN_OR_RETURN(
      const db::Result inserted,
      tx.Execute(kInsertPlan,
                 db::MakeParams(plan.name(), revision, DefinitionJson(plan))));
  return tx
      .Execute(kInsertPlanFeatures, db::MakeParams(inserted[0].Int64("id")))
      .status();
}

absl::StatusOr<int> WriteProducts(db::Transaction& tx, const Plan& plan) {
  int changed = 0;
  for (const ProviderProduct& product : plan.provider_products()) {
    std::optional<std::string> unit;
    std::optional<int64_t> count;
    if (product.has_term()) {
      const domain::Term term = ToDomain(product.term());
      unit = std::string(domain::CalendarUnitName(term.unit));
      count = term.count;
    }
    ASSIGN_OR_RETURN(
        const db::Result written,
        tx.Execute(kUpsertProviderProduct,
                   db::MakeParams(product.route(), product.product_id(),
                                  plan.name(), unit, count)));
    changed += static_cast<int>(written.affected_rows());
  }
  return changed;
}

// What the differences come to, as an apply reports it.
CatalogChanges Summarize(std::vector<CatalogDifference> differences,
                         const std::vector<const Plan*>& revised) {
  CatalogChanges changes;
  for (const Plan* plan : revised) {
    changes.revised_plans.push_back(plan->name());
  }
  for (const CatalogDifference& difference : differences) {
    if (difference.stays) continue;
    if (absl::StartsWith(difference.thing, "product ")) {
      ++changes.changed_products;
    }
    if (difference.thing == "default_plan") changes.changed_default_plan = true;
  }
  changes.differences = std::move(differences);
  return changes;
}

absl::StatusOr<CatalogChanges> Apply(db::Transaction& tx, const Catalog& wanted,
                                     ApplyMode mode) {
  if (mode == ApplyMode::kWrite) {
    RETURN_IF_ERROR(tx.Execute(kLockCatalog).status());
  }
  ASSIGN_OR_RETURN(const db::Result rows, tx.Execute(kSelectCatalog));
  ASSIGN_OR_RETURN(const StoredCatalog stored, FromRows(rows));
  std::map<std::string, std::string> definitions;
  for (const Plan& plan : stored.catalog.plans()) {
    definitions[plan.name()] = DefinitionJson(plan);
  }
  std::vector<const Plan*> revised;
  bool new_plan = false;
  for (const Plan& plan : wanted.plans()) {
    const auto known = definitions.find(plan.name());
    if (known == definitions.end()) new_plan = true;
    if (known == definitions.end() || known->second != DefinitionJson(plan)) {
      revised.push_back(&plan);
    }
  }
  const CatalogChanges changes =
      Summarize(DiffCatalogs(stored.catalog, wanted), revised);
  if (mode == ApplyMode::kDryRun) return changes;

  for (const Plan* plan : revised) {
    const auto known = stored.revisions.find(plan->name());
    RETURN_IF_ERROR(WritePlan(
        tx, *plan, known == stored.revisions.end() ? 1 : known->second + 1));
  }
  int changed_products = 0;
  for (const Plan& plan : wanted.plans()) {
    ASSIGN_OR_RETURN(const int changed, WriteProducts(tx, plan));
    changed_products += changed;
  }
  if (changes.changed_default_plan) {
    RETURN_IF_ERROR((wanted.default_plan().empty()
                         ? tx.Execute(kDeleteDefaultPlan)
                         : tx.Execute(kUpsertDefaultPlan,
                                      db::MakeParams(wanted.default_plan())))
                        .status());
  }
  // An event may name its plan by a product or by the plan's own name.
  if (changed_products > 0 || new_plan) {
    RETURN_IF_ERROR(tx.Execute(kWakeEventsOfUnknownPlans).status());
  }
  return changes;
}

}  // namespace

absl::Status ValidateCatalog(const Catalog& catalog) {
  const std::vector<CatalogError> errors = FindCatalogErrors(catalog);
  if (errors.empty()) return absl::OkStatus();
  const CatalogError& first = errors.front();
  return first.missing ? FieldMissingError(first.key)
                       : FieldInvalidError(first.key, first.what);
}

absl::StatusOr<CatalogChanges> ApplyCatalog(db::Pool& pool,
                                            const Catalog& catalog,
                                            ApplyMode mode) {
  RETURN_IF_ERROR(ValidateCatalog(catalog));
  const Catalog wanted = NormalizeCatalog(catalog);
  CatalogChanges changes;
  RETURN_IF_ERROR(pool.RunTransaction([&](db::Transaction& tx) -> absl::Status {
    ASSIGN_OR_RETURN(changes, Apply(tx, wanted, mode));
    return absl::OkStatus();
  }));
  return changes;
}

absl::StatusOr<Catalog> ExportCatalog(db::Pool& pool) {
  ASSIGN_OR_RETURN(const db::Result rows, pool.Execute(kSelectCatalog));
  ASSIGN_OR_RETURN(StoredCatalog stored, FromRows(rows));
  return std::move(stored.catalog);
}

absl::StatusOr<domain::Plan> MakePlan(int64_t id, absl::string_view name,
                                      int64_t revision,
                                      const std::string& definition) {
  ASSIGN_OR_RETURN(domain::Plan plan,
                   DefinitionMemo::Instance().Get(name, definition));
  // Plans that are defined alike differ in these.
  plan.id = id;
  plan.name = std::string(name);
  plan.revision = revision;
  return plan;
}

absl::StatusOr<std::map<ProductKey, domain::Plan>> FindPlansOfProducts(
    db::Transaction& tx, const std::set<ProductKey>& products) {
  std::map<ProductKey, domain::Plan> plans;
  if (products.empty()) return plans;
  db::RowArrays keys(2);
  for (const auto& [route, product] : products) keys.AddRow(route, product);
  ASSIGN_OR_RETURN(const db::Result rows,
                   tx.Execute(kSelectPlansOfProducts, keys.ToParams()));
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSIGN_OR_RETURN(domain::Plan plan, PlanFromRow(rows[i]));
    ASSIGN_OR_RETURN(const std::optional<domain::Term> term,
                     TermFromRow(rows[i]));
    if (term.has_value()) plan.term = *term;
    plans.emplace(
        ProductKey(rows[i].Text("route_name"), rows[i].Text("product_id")),
        std::move(plan));
  }
  RETURN_IF_ERROR(rows.status());
  return plans;
}

absl::StatusOr<std::optional<domain::Plan>> FindPlanOfProduct(
    db::Transaction& tx, absl::string_view route_name,
    absl::string_view product_id) {
  using Plans = std::map<ProductKey, domain::Plan>;
  ASSIGN_OR_RETURN(Plans plans,
                   FindPlansOfProducts(tx, {{std::string(route_name),
                                             std::string(product_id)}}));
  if (plans.empty()) return std::nullopt;
  return std::move(plans.begin()->second);
}

absl::StatusOr<std::optional<domain::Plan>> FindPlan(db::Transaction& tx,
                                                     absl::string_view name) {
  ASSIGN_OR_RETURN(const db::Result rows,
                   tx.Execute(kSelectPlanByName, db::MakeParams(name)));
  if (rows.empty()) return std::nullopt;
  ASSIGN_OR_RETURN(const domain::Plan plan, PlanFromRow(rows[0]));
  RETURN_IF_ERROR(rows.status());
  return plan;
}

absl::StatusOr<domain::Plan> LoadPlan(db::Transaction& tx, int64_t plan_id) {
  ASSIGN_OR_RETURN(const db::Result rows,
                   tx.Execute(kSelectPlan, db::MakeParams(plan_id)));
  if (rows.empty()) {
    return absl::NotFoundError(absl::StrCat("there is no plan ", plan_id));
  }
  ASSIGN_OR_RETURN(domain::Plan plan, PlanFromRow(rows[0]));
  RETURN_IF_ERROR(rows.status());
  return plan;
}

}  // namespace tenure::store
