#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/db/pool.h"
#include "common/store/catalog_file.h"
#include "common/store/catalog_store.h"
#include "tools/tenurectl/commands.h"
#include "tools/tenurectl/database.h"

namespace tenure::tenurectl {
namespace {

absl::StatusOr<std::unique_ptr<db::Pool>> OpenPool(
    const DatabaseOptions& options) {
  db::PoolOptions pool_options;
  ASSIGN_OR_RETURN(pool_options.connection, ConnectionOptionsOf(options));
  pool_options.size = 1;
  return std::make_unique<db::Pool>(std::move(pool_options));
}

void Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace

absl::Status ApplyCatalogFile(const DatabaseOptions& options,
                              const std::string& file, bool dry_run) {
  ASSIGN_OR_RETURN(const catalog::v1::Catalog catalog,
                   store::LoadCatalogFile(file));
  ASSIGN_OR_RETURN(const std::unique_ptr<db::Pool> pool, OpenPool(options));
  ASSIGN_OR_RETURN(const store::CatalogChanges changes,
                   store::ApplyCatalog(*pool, catalog,
                                       dry_run ? store::ApplyMode::kDryRun
                                               : store::ApplyMode::kWrite));
  if (dry_run) Print(store::FormatDifferences(changes.differences));
  Print(
      absl::StrCat(catalog.plans_size(), " plans read; revised: ",
                   changes.revised_plans.empty()
                       ? "none"
                       : absl::StrJoin(changes.revised_plans, ", "),
                   "; provider products changed: ", changes.changed_products,
                   changes.changed_default_plan ? "; default plan changed" : "",
                   dry_run ? " (dry run: nothing was written)" : "", "\n"));
  return absl::OkStatus();
}

absl::StatusOr<bool> DiffCatalogFile(const DatabaseOptions& options,
                                     const std::string& file) {
  ASSIGN_OR_RETURN(const catalog::v1::Catalog catalog,
                   store::LoadCatalogFile(file));
  ASSIGN_OR_RETURN(const std::unique_ptr<db::Pool> pool, OpenPool(options));
  ASSIGN_OR_RETURN(
      const store::CatalogChanges changes,
      store::ApplyCatalog(*pool, catalog, store::ApplyMode::kDryRun));
  Print(store::FormatDifferences(changes.differences));
  return store::HasChanges(changes.differences);
}

absl::Status ExportCatalogFile(const DatabaseOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<db::Pool> pool, OpenPool(options));
  ASSIGN_OR_RETURN(const catalog::v1::Catalog catalog,
                   store::ExportCatalog(*pool));
  Print(store::CatalogYaml(catalog));
  return absl::OkStatus();
}

}  // namespace tenure::tenurectl
