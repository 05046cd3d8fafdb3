#include "common/store/catalog_file.h"

#include <set>
#include <utility>

#include "common/base/config.h"
#include "common/base/status_macros.h"
#include "common/store/catalog_definition.h"

namespace tenure::store {

absl::StatusOr<catalog::v1::Catalog> LoadCatalogFile(absl::string_view path) {
  catalog::v1::Catalog catalog;
  Document document = LoadDocument(path, &catalog);
  // A value that could not be read is not missing, too.
  std::set<std::string> unread;
  for (const DocumentError& error : document.errors) unread.insert(error.key);
  // Nothing was read.
  if (unread.count("") > 0) return document.ToStatus();
  for (CatalogError& error : FindCatalogErrors(catalog)) {
    if (unread.count(error.key) > 0) continue;
    document.errors.push_back({document.LineOf(error.key), std::move(error.key),
                               std::move(error.what)});
  }
  RETURN_IF_ERROR(document.ToStatus());
  return catalog;
}

std::string CatalogYaml(const catalog::v1::Catalog& catalog) {
  const std::string yaml = PrintConfig(catalog);
  return yaml.empty() ? "{}\n" : yaml;
}

}  // namespace tenure::store
