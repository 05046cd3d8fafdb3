# Compiler settings that every Tenure target shares. Third-party and generated headers are SYSTEM includes.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

set(TENURE_SANITIZE "" CACHE STRING "Comma-separated -fsanitize= list, empty for none")
option(TENURE_FUZZ "Build the libFuzzer targets (clang only)" OFF)
option(TENURE_LTO "Link-time optimisation; off until a measurement shows that it pays" OFF)
option(TENURE_PCH "Precompiled headers for gRPC, protobuf and GoogleTest" ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Debug CACHE STRING "" FORCE)
endif()

# Release keeps frame pointers and line tables so that a profile of production can be read.
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1 -fno-omit-frame-pointer")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -fno-omit-frame-pointer")

find_program(TENURE_CCACHE ccache)
if(TENURE_CCACHE)
  # pch_defines,time_macros: what ccache needs to hit on translation units that use a precompiled header. BASEDIR and
  # NOHASHDIR: a second build folder or clone of the same text hits as well.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${TENURE_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()

# mold, then lld, then the system linker. GCC before 12.1 does not know -fuse-ld=mold.
find_program(TENURE_MOLD mold)
find_program(TENURE_LLD ld.lld)
if(TENURE_MOLD AND NOT TENURE_LTO)
  add_link_options(-fuse-ld=mold)
elseif(TENURE_LLD AND NOT TENURE_LTO)
  add_link_options(-fuse-ld=lld)
endif()

# Everywhere: gRPC brings it along, and a precompiled header is good for one set of flags only.
add_compile_options(-pthread)
find_package(Threads REQUIRED)

# Flags of our own code only (generated code is compiled without warnings).
add_library(tenure_compile INTERFACE)
target_compile_options(tenure_compile INTERFACE -Wall -Wextra -Wpedantic -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(tenure_compile INTERFACE -Wthread-safety)
endif()
target_include_directories(tenure_compile INTERFACE "${PROJECT_SOURCE_DIR}")
target_link_libraries(tenure_compile INTERFACE Threads::Threads)

if(CMAKE_BUILD_TYPE STREQUAL "Release")
  add_compile_definitions(_FORTIFY_SOURCE=2)
  add_compile_options(-fstack-protector-strong -fPIE)
  add_link_options(-pie -Wl,-z,relro,-z,now)
else()
  # The only builds that accept a database whose clock was moved for a test (R16).
  add_compile_definitions(TENURE_ALLOW_CLOCK_OFFSET=1 _GLIBCXX_ASSERTIONS=1)
endif()

if(TENURE_SANITIZE)
  add_compile_options(-fsanitize=${TENURE_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TENURE_SANITIZE})
endif()

if(TENURE_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Asio has a fence that TSan does not model and GCC warns of; its queues are guarded by mutexes as well.
  add_compile_options(-Wno-tsan)
endif()

if(TENURE_LTO)
  set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)
endif()

if(TENURE_CCACHE)
  # GCC needs this for ccache to see through a precompiled header.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
endif()

# tenure_library(NAME target SOURCES ... HEADERS ... [PUBLIC libs...] [PRIVATE libs...])
function(tenure_library)
  cmake_parse_arguments(arg "" "NAME" "SOURCES;HEADERS;PUBLIC;PRIVATE" ${ARGN})
  add_library(${arg_NAME} STATIC ${arg_SOURCES} ${arg_HEADERS})
  target_link_libraries(${arg_NAME} PUBLIC tenure_compile ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
endfunction()
