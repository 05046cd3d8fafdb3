#ifndef TENURE_COMMON_STORE_CATALOG_FILE_H_
#define TENURE_COMMON_STORE_CATALOG_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tenure/catalog/v1/catalog.pb.h"

namespace tenure::store {

// Reads a catalogue from its YAML file, typed and strict. INVALID_ARGUMENT
// lists everything that is wrong, one a line, each with its line and key:
// "catalog.yaml:14: plans[1].quotas[0].amount: must be positive".
absl::StatusOr<catalog::v1::Catalog> LoadCatalogFile(absl::string_view path);

// The YAML of a catalogue; LoadCatalogFile reads an equal one from it.
std::string CatalogYaml(const catalog::v1::Catalog& catalog);

}  // namespace tenure::store

#endif  // TENURE_COMMON_STORE_CATALOG_FILE_H_
