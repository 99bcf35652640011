// append_kv_compile_test.cpp - NVRTC compiles the kernel that appends rows to caches for every arch
// and kind of rows, without spills. Needs NVRTC, but neither a GPU nor a driver.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "runtime/compile/compiler.h"
#include "templates/ops/append_kv/params.h"
#include "templates/registry.h"
#include "tests/templates/compile_together.h"
#include "tests/templates/problems.h"

namespace attnforge {
namespace {

struct Case {
  Problem problem;
  const char* arch;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const std::string_view arch : known_archs()) {
    for (const Problem& problem : test::append_problems()) {
      // All of them once; of other archs that of a Llama, which rotates.
      if (arch == "90a" || &problem == test::append_problems().data())
        cases.push_back({problem, arch.data()});
    }
  }
  return cases;
}

TEST(AppendKv, CompilesWithoutSpillsForEveryArch) {
  const Family* const family = find_family("append_kv");
  const std::vector<Case> cases = all_cases();
  const std::vector<std::string> faults = test::compile_together(cases.size(), [&](std::size_t i) {
    const DeviceFacts& device = typical_device(cases[i].arch);
    const Config config = candidates(*family, cases[i].problem, device).front().config;
    const Cubin cubin = compile(family->render(config, cases[i].problem), device.arch);
    if (cubin.spill_store_bytes + cubin.spill_load_bytes > 0)
      return fmt::format("spills {} bytes", cubin.spill_store_bytes + cubin.spill_load_bytes);
    // What hides the waits for lengths and pages is many warps on an SM.
    const int threads = AppendShape::kMostThreads * config.get("blocks_per_sm");
    if (cubin.registers * threads > device.arch.registers_per_sm)
      return fmt::format("takes {} registers", cubin.registers);
    return std::string();
  });
  for (std::size_t i = 0; i < faults.size(); ++i)
    EXPECT_EQ(faults[i], "") << "sm_" << cases[i].arch << ": " << to_string(cases[i].problem);
}

}  // namespace
}  // namespace attnforge
