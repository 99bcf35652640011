// gpu_main.h - the main() of torture programs that are tests on a GPU: their options, or 77 without
// one.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/conformance/gpu.h"
#include "tests/torture/options.h"

namespace attnforge::torture {

inline int run_on_gpu(const char* name, int argc, char** argv, Options& options) {
  ::testing::InitGoogleTest(&argc, argv);
  options = read_options(argc, argv);
  if (const std::string problem = test::gpu_problem(); !problem.empty()) {
    fmt::print("{}: skipped: {}\n", name, problem);
    return 77;
  }
  return RUN_ALL_TESTS();
}

}  // namespace attnforge::torture
