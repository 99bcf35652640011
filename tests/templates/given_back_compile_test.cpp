// given_back_compile_test.cpp - no kernel gives a buffer that TMA fills back while its ldmatrix may
// still be reading it. Needs NVRTC, but neither a GPU nor a driver.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/family.h"
#include "runtime/compile/compiler.h"
#include "templates/registry.h"
#include "tests/templates/compile_together.h"

namespace attnforge {
namespace {

/// The first arrival after an ldmatrix that no product was waited for between; -1: there is none.
/// An arrival overtakes an ldmatrix that queues behind stores, a wait for products does not.
int early_arrival(std::string_view ptx) {
  bool reading = false;
  int line_number = 0;
  while (!ptx.empty()) {
    const std::string_view line = ptx.substr(0, ptx.find('\n'));
    ptx.remove_prefix(std::min(ptx.size(), line.size() + 1));
    ++line_number;
    const auto has = [&](std::string_view word) { return line.find(word) != line.npos; };
    if (has("ldmatrix")) reading = true;
    if (has("wgmma.wait_group")) reading = false;
    if (reading && has("mbarrier.arrive.")) return line_number;
  }
  return -1;
}

struct QInRegs {
  const char* problem;
  int warpgroups, grid, pack_gqa;
};
const std::vector<QInRegs> kCases = {
    // first_calls --seed 20261126, call 111: rows of the next Q in place of this one's.
    {"fwd fp16 batch=56 num_heads=32:8 seqlen=64:37 head_dim=64", 2, 1, 4},
    {"fwd bf16 batch=4 num_heads=8 seqlen=999 head_dim=64 causal", 1, 2, 1},
    {"fwd bf16 batch=4 num_heads=8 seqlen=999 head_dim=64 window_left=99 window_right=0", 2, 1, 1},
    {"fwd bf16 batch=4 num_heads=8 seqlen=999 head_dim=64 lengths=packed", 2, 1, 1},
    {"fwd bf16 batch=4 num_heads=8 seqlen=4096 head_dim=64 blocks=128", 2, 2, 1},
    {"fwd bf16 batch=4 num_heads=8 seqlen=4096 head_dim=64 blocks=128", 1, 1, 1},
};

std::string fault_of(const QInRegs& c) {
  const Problem problem = parse_problem(c.problem);
  const DeviceFacts& device = typical_device("90a");
  const Family& family = *find_family("fwd_wgmma_sm90a");
  const Config config = parse_config(fmt::format(
      "fwd_wgmma_sm90a warpgroups={} block_n=64 k_stages=2 v_stages=2 q_in_regs=1 q_stages=1 "
      "pingpong=0 grid={} blocks_per_sm=1 swizzle=128 pack_gqa={} head_group_mb=0 own_lists=0 "
      "num_splits=1",
      c.warpgroups, c.grid, c.pack_gqa));
  const std::string wrong = illegal(family, config, problem, device);
  if (!wrong.empty()) return wrong;
  const std::string ptx = test::compiled_ptx(family.render(config, problem), device.arch);
  if (ptx.find("ldmatrix") == ptx.npos) return "Q is not read into registers";
  const int line = early_arrival(ptx);
  return line < 0 ? "" : fmt::format("line {} of the PTX arrives", line);
}

TEST(QInRegisters, IsGivenBackAfterProductsOfIt) {
  const std::vector<std::string> faults = test::compile_together(
      kCases.size(), [&](std::size_t i) { return fault_of(kCases[i]); });
  for (std::size_t i = 0; i < faults.size(); ++i) EXPECT_EQ(faults[i], "") << kCases[i].problem;
}

/// By columns a warp reads back its own dS, beside buffers of Q and dO that TMA fills.
TEST(DsOfColumns, IsUsedBeforeBuffersAreGivenBack) {
  const DeviceFacts& device = typical_device("90a");
  const Family& family = *find_family("bwd_wgmma_sm90a");
  for (const int head_dim : {192, 256}) {
    const Problem problem = parse_problem(
        fmt::format("bwd bf16 batch=2 num_heads=8 seqlen=999 head_dim={} causal", head_dim));
    const Config config = candidates(family, problem, device).front().config;
    const std::string ptx = test::compiled_ptx(family.render(config, problem), device.arch);
    ASSERT_NE(ptx.find("ldmatrix"), ptx.npos) << to_string(config);
    EXPECT_EQ(early_arrival(ptx), -1) << to_string(config);
  }
}

}  // namespace
}  // namespace attnforge
