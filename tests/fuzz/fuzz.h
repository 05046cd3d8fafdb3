#ifndef TENURE_TESTS_FUZZ_FUZZ_H_
#define TENURE_TESTS_FUZZ_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

// The entry point that libFuzzer and the corpus replay call.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// Ends the process when a property does not hold, so that the fuzzer keeps the
// input.
#define FUZZ_CHECK(condition)                                                \
  do {                                                                       \
    if (!(condition)) {                                                      \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, \
                   #condition);                                              \
      std::abort();                                                          \
    }                                                                        \
  } while (false)

#endif  // TENURE_TESTS_FUZZ_FUZZ_H_
