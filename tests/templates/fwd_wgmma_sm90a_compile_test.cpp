// fwd_wgmma_sm90a_compile_test.cpp - the registers that the config counts on are those that the
// compiled kernel starts with. Needs NVRTC, but no GPU.
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "runtime/compiler.h"
#include "templates/registry.h"
#include "tests/templates/fwd_wgmma_sm90a_configs.h"

namespace attnforge {
namespace {

TEST(FwdWgmmaSm90aCompiles, WithTheRegistersThatWarpgroupsShareOut) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  const Family& family = *find_family("fwd_wgmma_sm90a");
  const DeviceFacts& device = typical_device("90a");
  const Problem problem = parse_problem("fwd bf16 batch=2 num_heads=16 seqlen=4096 head_dim=64");
  std::set<std::pair<int, int>> seen;  // warpgroups, blocks an SM
  for (const Candidate& candidate : candidates(family, problem, device)) {
    const FwdWgmmaSm90aConfig c = test::registers_of(candidate.config, problem);
    if (!seen.insert({c.warpgroups, c.blocks_per_sm}).second) continue;
    const Cubin cubin = compile(family.render(candidate.config, problem), device.arch);
    const int given = (cubin.registers + 7) / 8 * 8 * c.num_threads();
    EXPECT_LE(test::registers_taken(c), given)
        << to_string(candidate.config) << ": " << cubin.registers
        << " registers at launch; the last warpgroup would wait for ever";
    EXPECT_LE((cubin.registers + 7) / 8 * 8, c.consumer_registers()) << to_string(candidate.config);
  }
  EXPECT_GE(seen.size(), 2u);
}

}  // namespace
}  // namespace attnforge
