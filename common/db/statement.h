#ifndef TENURE_COMMON_DB_STATEMENT_H_
#define TENURE_COMMON_DB_STATEMENT_H_

namespace tenure::db {

// One SQL statement out of a .sql file (common/cmake/TenureSql.cmake). `name`
// is the file's stem; it is also the name it is prepared under, its metric
// label and its log field.
struct Statement {
  const char* name;
  const char* sql;
};

}  // namespace tenure::db

#endif  // TENURE_COMMON_DB_STATEMENT_H_
