# tenure_sql(TARGET target NAMESPACE ns FILES a.sql ...): embeds each file as `const db::Statement k<CamelStem>`.
# The file stem is the statement's name, metric label and log field. Header: "<dir of the target>/statements.h" under gen.
function(tenure_sql)
  cmake_parse_arguments(arg "" "TARGET;NAMESPACE" "FILES" ${ARGN})
  file(RELATIVE_PATH dir "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
  set(out "${PROJECT_BINARY_DIR}/sql_gen/${dir}/statements.h")
  list(TRANSFORM arg_FILES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" OUTPUT_VARIABLE paths)
  add_custom_command(
    OUTPUT "${out}"
    COMMAND ${CMAKE_COMMAND} "-DOUT=${out}" "-DNAMESPACE=${arg_NAMESPACE}" "-DFILES=${paths}"
            -P "${PROJECT_SOURCE_DIR}/common/cmake/EmbedSql.cmake"
    DEPENDS ${paths} "${PROJECT_SOURCE_DIR}/common/cmake/EmbedSql.cmake"
    COMMENT "SQL ${dir}"
    VERBATIM)
  target_sources(${arg_TARGET} PRIVATE "${out}")
  target_include_directories(${arg_TARGET} PUBLIC "${PROJECT_BINARY_DIR}/sql_gen")
endfunction()

# tenure_migrations(TARGET target FILES ...): embeds common/migrations/NNNN_name.sql as db::kMigrations, in order.
function(tenure_migrations)
  cmake_parse_arguments(arg "" "TARGET" "FILES" ${ARGN})
  set(out "${PROJECT_BINARY_DIR}/sql_gen/common/db/migrations.h")
  list(TRANSFORM arg_FILES PREPEND "${PROJECT_SOURCE_DIR}/common/migrations/" OUTPUT_VARIABLE paths)
  add_custom_command(
    OUTPUT "${out}"
    COMMAND ${CMAKE_COMMAND} "-DOUT=${out}" "-DFILES=${paths}"
            -P "${PROJECT_SOURCE_DIR}/common/cmake/EmbedMigrations.cmake"
    DEPENDS ${paths} "${PROJECT_SOURCE_DIR}/common/cmake/EmbedMigrations.cmake"
    COMMENT "migrations"
    VERBATIM)
  target_sources(${arg_TARGET} PRIVATE "${out}")
  target_include_directories(${arg_TARGET} PUBLIC "${PROJECT_BINARY_DIR}/sql_gen")
endfunction()
