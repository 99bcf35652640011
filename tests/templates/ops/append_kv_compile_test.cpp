// append_kv_compile_test.cpp - NVRTC compiles the kernel that appends rows to caches for every arch
// and kind of rows, without spills. Needs NVRTC, but neither a GPU nor a driver.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "generator/arch.h"
#include "runtime/compile/compiler.h"
#include "templates/ops/append_kv/host.h"
#include "tests/templates/compile_together.h"

namespace attnforge {
namespace {

struct Case {
  AppendCode code;
  const char* arch;
};

std::vector<Case> all_cases() {
  const std::vector<AppendCode> codes = {
      {{kBf16, 128, 128, kNoRope, 0}, 16},
      {{kBf16, 128, 128, kRopeHalf, 128}, 16},
      {{kFp16, 128, 128, kRopeInterleaved, 64}, 2},
      {{kFp16, 72, 40, kRopeHalf, 72}, 8},
      {{kFp32, 512, 256, kRopeHalf, 512}, 4},
      {{kBf16, 192, 128, kRopeInterleaved, 24}, 4},
      {{kFp32, 64, 64, kNoRope, 0}, 8},
  };
  std::vector<Case> cases;
  for (const std::string_view arch : known_archs()) {
    for (const AppendCode& code : codes) {
      // All of them once; of other archs that of a Llama, which rotates.
      if (arch == "90a" || &code - codes.data() == 1) cases.push_back({code, arch.data()});
    }
  }
  return cases;
}

TEST(AppendKv, CompilesWithoutSpillsForEveryArch) {
  const std::vector<Case> cases = all_cases();
  const std::vector<std::string> faults = test::compile_together(cases.size(), [&](std::size_t i) {
    const DeviceFacts& device = typical_device(cases[i].arch);
    const Cubin cubin = compile(append_source(cases[i].code), device.arch);
    if (cubin.spill_store_bytes + cubin.spill_load_bytes > 0)
      return fmt::format("spills {} bytes", cubin.spill_store_bytes + cubin.spill_load_bytes);
    // What hides the waits for lengths and pages is many warps on an SM.
    const int threads = AppendShape::kMostThreads * cases[i].code.shape.blocks_of_sm();
    if (cubin.registers * threads > device.arch.registers_per_sm)
      return fmt::format("takes {} registers", cubin.registers);
    return std::string();
  });
  for (std::size_t i = 0; i < faults.size(); ++i) {
    EXPECT_EQ(faults[i], "") << "sm_" << cases[i].arch << ": head dim "
                             << cases[i].code.shape.head_dim << ", rope "
                             << cases[i].code.shape.rope;
  }
}

}  // namespace
}  // namespace attnforge
