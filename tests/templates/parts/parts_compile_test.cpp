// parts_compile_test.cpp - NVRTC compiles kernels with each optional part, on one of their archs,
// without spills: lengths, block masks, pages, keys in splits, sinks. Needs NVRTC, but neither a
// GPU nor a driver.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "runtime/compile/compiler.h"
#include "templates/hopper/grid.cuh"
#include "templates/registry.h"
#include "tests/templates/compile_together.h"

namespace attnforge {
namespace {

struct Case {
  std::string_view part, family, arch, problem;
  int block_m = 0;      // of the first candidate that has it; 0: the first of all
  bool split = false;   // of those, the first with several splits of the keys
  bool shares = false;  // or with shares of them
};

// Tiles are small, and compile fast, where there is little shared memory.
constexpr Case kCases[] = {
    {"lengths", "fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=8 num_heads=16 seqlen=8192 tokens=16384 head_dim=128 lengths=packed"},
    {"lengths", "fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=8 num_heads=16 seqlen=8192 head_dim=64 lengths=used causal lse"},
    {"lengths", "fwd_mma_sm80", "86",
     "fwd fp16 batch=8 num_heads=16 seqlen=4096 head_dim=128 lengths=packed causal lse"},
    {"lengths", "fwd_mma_sm80", "90",
     "fwd bf16 batch=8 num_heads=16:2 seqlen=1:4096 head_dim=128 lengths=used"},
    {"lengths", "fwd_regtile_f32", "89",
     "fwd fp32 batch=8 num_heads=16 seqlen=4096 head_dim=64 lengths=packed causal"},
    {"lengths", "fwd_naive", "80",
     "fwd bf16 batch=2 num_heads=4 seqlen=100 head_dim=64 lengths=packed lse"},
    {"block_mask", "fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=2 num_heads=16:4 seqlen=8192 head_dim=128 blocks=64 causal lse mask_bits "
     "mask_heads=4"},
    {"block_mask", "fwd_wgmma_sm90a", "90a",
     "fwd fp16 batch=2 num_heads=16 seqlen=8192 head_dim=64 blocks=16 density=0.1 lengths=used"},
    {"block_mask", "fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=2 num_heads=16 seqlen=8192 head_dim=256 blocks=32 softcap=30"},
    {"block_mask", "fwd_wgmma_sm90a", "90a",  // whose blocks make their own lists
     "fwd bf16 batch=1 num_heads=8 seqlen=1024 head_dim=256 blocks=16 causal lse mask_bits"},
    {"block_mask", "fwd_mma_sm80", "86",
     "fwd bf16 batch=2 num_heads=16 seqlen=4096 head_dim=128 blocks=64 causal lse"},
    {"block_mask", "fwd_mma_sm80", "89",
     "fwd fp16 batch=2 num_heads=16 seqlen=4096 head_dim=64 blocks=16 density=0.1 mask_bits"},
    {"block_mask", "fwd_mma_sm80", "80",
     "fwd bf16 batch=4 num_heads=8 seqlen=2048 head_dim=96 blocks=128:32 lengths=packed"},
    {"block_mask", "fwd_naive", "80",
     "fwd bf16 batch=2 num_heads=4:2 seqlen=100 head_dim=64 lse causal blocks=64:16 mask_heads=2"},
    {"block_mask", "fwd_naive", "90",
     "fwd fp16 batch=2 num_heads=4 seqlen=1:500 head_dim=64 blocks=128 mask_bits mask_batch=2 "
     "lengths=used"},
    // Of the tiles of few rows, whose keys are split, every one on an arch with little shared
    // memory and on one with much.
    {"pages", "fwd_mma_sm80", "80",
     "fwd bf16 batch=64 num_heads=32:8 seqlen=1:8192 head_dim=128 page_size=16 lengths=used", 32},
    {"pages", "fwd_mma_sm80", "86",
     "fwd fp16 batch=2 num_heads=16:1 seqlen=1:8192 head_dim=128 page_size=64 lengths=used", 16},
    {"pages", "fwd_mma_sm80", "86",
     "fwd bf16 batch=2 num_heads=32:8 seqlen=1:8192 head_dim=128 page_size=24 causal lengths=used",
     32},
    {"pages", "fwd_mma_sm80", "86",
     "fwd bf16 batch=1 num_heads=16:1 seqlen=4:8192 head_dim=128 page_size=16 window_left=4096 "
     "lengths=used",
     64},
    {"pages", "fwd_mma_sm80", "90a",
     "fwd bf16 batch=1 num_heads=16:1 seqlen=1:8192 head_dim=128 page_size=8 lengths=used", 16},
    {"pages", "fwd_mma_sm80", "90a",
     "fwd bf16 batch=8 num_heads=32:8 seqlen=1:8192 head_dim=128 page_size=1 lengths=used", 32},
    {"pages", "fwd_mma_sm80", "89",
     "fwd bf16 batch=8 num_heads=8:2 seqlen=200:4096 head_dim=128 page_size=4 causal lengths=used"},
    {"pages", "fwd_mma_sm80", "90a",
     "fwd bf16 batch=1 num_heads=32:8 seqlen=1:65536 head_dim=128 page_size=16 sinks lse "
     "lengths=used",
     32},
    {"pages", "fwd_mma_sm80", "90a",
     "fwd bf16 batch=8 num_heads=16:4 seqlen=12:8192 head_dim=128 page_size=16 lengths=used", 64},
    {"pages", "fwd_mma_sm80", "86",
     "fwd fp16 batch=4 num_heads=8:2 seqlen=4:8192 head_dim=72 page_size=32 softcap=20 "
     "lengths=used",
     32},
    {"pages", "fwd_mma_sm80", "90a",
     "fwd bf16 batch=4 num_heads=8 seqlen=512:8192 head_dim=64 page_size=16 alignment=8 "
     "args=\"float* slope\" score=\"s + slope[head] * (k - q)\" mask=\"(k ^ q) % 64 != 3\" "
     "lengths=used"},
    {"pages", "fwd_mma_sm80", "90a",
     "fwd bf16 batch=4 num_heads=8 seqlen=512:8192 head_dim=192:128 page_size=256 lengths=used"},
    {"pages", "fwd_mma_sm80", "89",
     "fwd bf16 batch=9 num_heads=8:2 seqlen=200:4096 head_dim=128 page_size=16 causal "
     "lengths=packed"},
    {"pages", "fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=1 num_heads=32:8 seqlen=512:32768 head_dim=128 page_size=64 causal lse "
     "lengths=used"},
    {"pages", "fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=1 num_heads=32:8 seqlen=1:65536 head_dim=128 page_size=16 sinks lengths=used",
     64},
    {"pages", "fwd_wgmma_sm90a", "90a",
     "fwd fp16 batch=4 num_heads=8:2 seqlen=4:8192 head_dim=64 page_size=24 window_left=999 "
     "softcap=20 lengths=used"},
    {"pages", "fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=4 num_heads=16 seqlen=512:8192 head_dim=192:128 page_size=128 "
     "mask=\"(k ^ q) % 64 != 3\" lengths=used"},
    {"pages", "fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=9 num_heads=8:2 seqlen=200:4096 head_dim=128 page_size=8 causal "
     "lengths=packed"},
    {"pages", "fwd_regtile_f32", "86",
     "fwd fp32 batch=4 num_heads=8:2 seqlen=512:4096 head_dim=64 page_size=16 causal lengths=used"},
    {"pages", "fwd_regtile_f32", "90a",
     "fwd fp32 batch=4 num_heads=8:2 seqlen=3:4096 head_dim=128 page_size=24 tf32 lengths=used"},
    // Of tiles of 512 keys, in more pages than a warp has lanes, there is none.
    {"pages", "fwd_regtile_f32", "90a",
     "fwd fp32 batch=1 num_heads=2 seqlen=1:8192 head_dim=16 page_size=8 lengths=used"},
    {"pages", "fwd_naive", "80",
     "fwd fp16 batch=4 num_heads=8:2 seqlen=4:900 head_dim=64 page_size=24 lse mask=\"k != q\" "
     "lengths=used"},
    {"splits", "fwd_mma_sm80", "80",
     "fwd bf16 batch=1 num_heads=32:8 seqlen=1:65536 head_dim=128 lse", 32, true},
    {"splits", "fwd_mma_sm80", "86", "fwd fp16 batch=1 num_heads=16:1 seqlen=1:8192 head_dim=128",
     16, true},
    {"splits", "fwd_mma_sm80", "89",
     "fwd bf16 batch=1 num_heads=16:1 seqlen=4:8192 head_dim=128 window_left=4096", 64, true},
    {"splits", "fwd_mma_sm80", "86",
     "fwd bf16 batch=4 num_heads=32:8 seqlen=1:8192 head_dim=128 lengths=used lse", 32, true},
    {"splits", "fwd_mma_sm80", "80",
     "fwd fp16 batch=4 num_heads=8:2 seqlen=4:8192 head_dim=72 lengths=packed causal", 32, true},
    {"splits", "fwd_mma_sm80", "86",
     "fwd bf16 batch=1 num_heads=16 seqlen=64:8192 head_dim=64 blocks=64 mask_bits", 64, true},
    {"splits", "fwd_mma_sm80", "89",
     "fwd bf16 batch=1 num_heads=16:4 seqlen=2:8192 head_dim=128 softcap=30 args=\"float* slope\" "
     "score=\"s + slope[head] * (k - q)\" rope=half",
     32, true},
    {"splits", "fwd_mma_sm80", "90a",
     "fwd bf16 batch=1 num_heads=8 seqlen=256:32768 head_dim=128 causal", 128, true},
    {"splits", "fwd_wgmma_sm90a", "90a",
     "fwd fp16 batch=4 num_heads=8:2 seqlen=4:8192 head_dim=64 lengths=packed causal softcap=20",
     64, true},
    {"splits", "fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=4 num_heads=16 seqlen=2:8192 head_dim=128 lengths=used window_left=4096", 64,
     true},
    {"splits", "fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=1 num_heads=16:1 seqlen=1:8192 head_dim=192:128 rope=half", 64, true},
    {"splits", "fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=4 num_heads=16:1 seqlen=1:8192 head_dim=64:256 lengths=used", 64, true},
    {"splits", "fwd_mma_sm80", "80",
     "fwd bf16 batch=1 num_heads=16:1 seqlen=1:8192 head_dim=64:512", 16, true},
    {"splits", "fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=64 num_heads=64:4 seqlen=7:4096 head_dim=128 causal", 128, false, true},
    {"splits", "fwd_wgmma_sm90a", "90a",
     "fwd fp16 batch=60 num_heads=64:4 seqlen=8:4096 head_dim=64 page_size=64 lengths=used lse",
     128, false, true},
    {"sinks", "fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=60 num_heads=64:4 seqlen=7:4096 head_dim=128 lengths=used causal sinks lse",
     128, false, true},
    {"sinks", "fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=2 num_heads=16 seqlen=8192 head_dim=128 blocks=128 sinks"},
    {"sinks", "fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=4 num_heads=16 seqlen=4096 head_dim=128 lengths=packed sinks lse "
     "score=\"s + 0.5f * (k - q)\""},
    {"sinks", "fwd_mma_sm80", "86",
     "fwd fp16 batch=2 num_heads=16 seqlen=4096 head_dim=64 blocks=64 mask_bits sinks"},
    {"sinks", "fwd_mma_sm80", "89",
     "fwd fp16 batch=2 num_heads=16 seqlen=4096 head_dim=96 lengths=used sinks"},
    {"sinks", "fwd_mma_sm80", "80",
     "fwd bf16 batch=2 num_heads=8 seqlen=1024 head_dim=64 rope=half causal sinks"},
    {"sinks", "fwd_regtile_f32", "80",
     "fwd fp32 batch=2 num_heads=8:2 seqlen=1024 head_dim=64 sinks lse"},
    {"sinks", "fwd_naive", "80",
     "fwd bf16 batch=2 num_heads=8:2 seqlen=300 head_dim=64 sinks blocks=64 lengths=used lse"},
};

std::string fault_of(const Case& c) {
  const Problem problem = parse_problem(c.problem);
  const DeviceFacts& device = typical_device(c.arch);
  const Family& family = *find_family(c.family);
  const std::vector<Candidate> all = candidates(family, problem, device);
  const auto found = std::ranges::find_if(all, [&](const Candidate& each) {
    const bool tile = c.block_m == 0 ||
                      family.tile_shape(each.config, problem).block_m == c.block_m;
    return tile && (!c.split || each.config.get("num_splits") > 1) &&
           (!c.shares || each.config.get("grid") == kGridShares);
  });
  if (found == all.end()) return "no candidate";
  const auto cubin = test::compiled(family.render(found->config, problem), device.arch);
  const int spills = cubin.spill_store_bytes + cubin.spill_load_bytes;
  return spills == 0 ? "" : fmt::format("{} bytes of spills: {}", spills, to_string(found->config));
}

class Parts : public testing::TestWithParam<const char*> {};

TEST_P(Parts, CompileWithoutSpills) {
  std::vector<Case> cases;
  std::ranges::copy_if(kCases, std::back_inserter(cases),
                       [](const Case& c) { return c.part == GetParam(); });
  const std::vector<std::string> faults = test::compile_together(
      cases.size(), [&](std::size_t i) { return fault_of(cases[i]); });
  for (std::size_t i = 0; i < faults.size(); ++i)
    EXPECT_EQ(faults[i], "") << "sm_" << cases[i].arch << ": " << cases[i].problem;
}

/// What is empty is not launched, but its kernel is compiled, also for several splits of the keys.
TEST(NothingToCompute, Compiles) {
  struct Kernel {
    const Family* family;
    Config config;
    Problem problem;
  };
  std::vector<Kernel> kernels;
  for (const char* text :
       {"fwd bf16 batch=2 num_heads=4:2 seqlen=0:100 head_dim=64 lse",
        "fwd bf16 batch=2 num_heads=4:2 seqlen=0:100 head_dim=64 lengths=used page_size=16",
        "fwd fp16 batch=0 num_heads=4:1 seqlen=3:100 head_dim=64 lengths=packed causal lse",
        "fwd bf16 batch=2 num_heads=4:2 seqlen=0 head_dim=64 sinks blocks=64"}) {
    const Problem problem = parse_problem(text);
    for (const Family* const family : registry()) {
      std::vector<Candidate> all = candidates(*family, problem, typical_device("90a"));
      if (all.empty() || family->name.starts_with("bwd")) continue;
      Config config = all.front().config;
      kernels.push_back({family, config, problem});
      for (auto& [name, value] : config.fields)
        if (name == "num_splits") value = 2;
      if (illegal(*family, config, problem, typical_device("90a")).empty())
        kernels.push_back({family, config, problem});
    }
  }
  EXPECT_GT(kernels.size(), 8u);
  const std::vector<std::string> faults = test::compile_together(kernels.size(), [&](auto i) {
    const Kernel& kernel = kernels[i];
    test::check_cpp(kernel.family->render(kernel.config, kernel.problem),
                    typical_device("90a").arch);
    return std::string();
  });
  for (std::size_t i = 0; i < faults.size(); ++i)
    EXPECT_EQ(faults[i], "") << to_string(kernels[i].config) << ": "
                             << to_string(kernels[i].problem);
}

INSTANTIATE_TEST_SUITE_P(Of, Parts,
                         testing::Values("lengths", "block_mask", "pages", "splits", "sinks"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace attnforge
