include(GoogleTest)

# tenure_test(NAME name SOURCES ... LINK ... [LABELS ...] [TIMEOUT seconds] [POSTGRES])
# One ctest entry per TEST, discovered after the build, so that a case number in a test's name counts by itself.
# POSTGRES marks tests on the private PostgreSQL of the test run: ctest starts it before the first of them and stops it
# after the last (the fixture of tests/support); they fail, not skip, where PostgreSQL is missing.
set(TENURE_TEST_PG_DIR "${PROJECT_BINARY_DIR}/tests/postgres")

function(tenure_test)
  cmake_parse_arguments(arg "POSTGRES;GRPC" "NAME;TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${arg_NAME} ${arg_SOURCES})
  target_link_libraries(${arg_NAME} PRIVATE tenure_compile ${arg_LINK} tenure_test_main GTest::gmock)
  if(TENURE_PCH)
    target_precompile_headers(${arg_NAME} REUSE_FROM tenure_test_main)
  endif()
  set(properties TIMEOUT ${arg_TIMEOUT})
  if(arg_POSTGRES)
    list(APPEND arg_LABELS postgres)
    list(APPEND properties FIXTURES_REQUIRED postgres ENVIRONMENT "TENURE_TEST_PG_DIR=${TENURE_TEST_PG_DIR}")
    # What the fixture runs has to be built when the test is.
    add_dependencies(${arg_NAME} tenure_postgres_fixture)
  endif()
  gtest_discover_tests(${arg_NAME} TEST_LIST ${arg_NAME}_TESTS PROPERTIES ${properties} DISCOVERY_TIMEOUT 60)
  if(arg_LABELS)
    # Not through PROPERTIES: gtest_discover_tests takes a list apart on its way to ctest, and only the first label stays.
    set(labels_file "${CMAKE_CURRENT_BINARY_DIR}/${arg_NAME}_labels.cmake")
    file(CONFIGURE OUTPUT "${labels_file}" @ONLY CONTENT [[
foreach(test IN LISTS @arg_NAME@_TESTS)
  set_tests_properties("${test}" PROPERTIES LABELS "@arg_LABELS@")
endforeach()
]])
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${labels_file}")
  endif()
endfunction()
