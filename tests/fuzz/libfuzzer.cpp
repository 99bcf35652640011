// libfuzzer.cpp - a fuzz target for clang's libFuzzer (CMake option ATTNFORGE_LIBFUZZER), which
// brings its own main and its own mutation.
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  attnforge::fuzz::fuzz_one(data, size);
  return 0;
}
