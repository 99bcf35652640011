// pages_compile_test.cpp - NVRTC compiles kernels whose keys lie in pages, with each part of a
// problem that changes how keys are found: without spills. Needs NVRTC, but neither a GPU nor a
// driver.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "runtime/compile/compiler.h"
#include "templates/registry.h"
#include "tests/templates/compile_together.h"

namespace attnforge {
namespace {

struct PagesCase {
  const char* family;
  const char* arch;
  std::string problem;  // with lengths=used, or "packed" at its end
  int block_m;          // the first candidate that has it; 0: the first of all
};

// Each part once for a family. Of the tiles of few rows, whose keys are split, every one on an arch
// with little shared memory and on one with much.
const std::vector<PagesCase> kCases = {
    {"fwd_mma_sm80", "80",
     "fwd bf16 batch=64 num_heads=32:8 seqlen=1:8192 head_dim=128 page_size=16", 32},
    {"fwd_mma_sm80", "86",
     "fwd fp16 batch=2 num_heads=16:1 seqlen=1:8192 head_dim=128 page_size=64", 16},
    {"fwd_mma_sm80", "86",
     "fwd bf16 batch=2 num_heads=32:8 seqlen=1:8192 head_dim=128 page_size=24 causal", 32},
    {"fwd_mma_sm80", "86",
     "fwd bf16 batch=1 num_heads=16:1 seqlen=4:8192 head_dim=128 page_size=16 window_left=4096",
     64},
    {"fwd_mma_sm80", "90a",
     "fwd bf16 batch=1 num_heads=16:1 seqlen=1:8192 head_dim=128 page_size=8", 16},
    {"fwd_mma_sm80", "90a",
     "fwd bf16 batch=1 num_heads=32:8 seqlen=1:65536 head_dim=128 page_size=16 sinks lse", 32},
    {"fwd_mma_sm80", "90a",
     "fwd bf16 batch=8 num_heads=16:4 seqlen=12:8192 head_dim=128 page_size=16", 64},
    {"fwd_mma_sm80", "86",
     "fwd fp16 batch=4 num_heads=8:2 seqlen=4:8192 head_dim=72 page_size=32 softcap=20", 32},
    {"fwd_mma_sm80", "90a",
     "fwd bf16 batch=4 num_heads=8 seqlen=512:8192 head_dim=64 page_size=16 alignment=8 "
     "args=\"float* slope\" score=\"s + slope[head] * (k - q)\" mask=\"(k ^ q) % 64 != 3\"",
     0},
    {"fwd_mma_sm80", "90a",
     "fwd bf16 batch=4 num_heads=8 seqlen=512:8192 head_dim=192:128 page_size=256", 0},
    {"fwd_mma_sm80", "89",
     "fwd bf16 batch=9 num_heads=8:2 seqlen=200:4096 head_dim=128 page_size=16 causal packed", 0},
    {"fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=1 num_heads=32:8 seqlen=512:32768 head_dim=128 page_size=64 causal lse", 0},
    {"fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=1 num_heads=32:8 seqlen=1:65536 head_dim=128 page_size=16 sinks", 64},
    {"fwd_wgmma_sm90a", "90a",
     "fwd fp16 batch=4 num_heads=8:2 seqlen=4:8192 head_dim=64 page_size=24 window_left=999 "
     "softcap=20",
     0},
    {"fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=4 num_heads=16 seqlen=512:8192 head_dim=192:128 page_size=128 "
     "mask=\"(k ^ q) % 64 != 3\"",
     0},
    {"fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=9 num_heads=8:2 seqlen=200:4096 head_dim=128 page_size=8 causal packed", 0},
    {"fwd_regtile_f32", "86",
     "fwd fp32 batch=4 num_heads=8:2 seqlen=512:4096 head_dim=64 page_size=16 causal", 0},
    {"fwd_regtile_f32", "90a",
     "fwd fp32 batch=4 num_heads=8:2 seqlen=3:4096 head_dim=128 page_size=24 tf32", 0},
    // Of tiles of 512 keys, in more pages than a warp has lanes, there is none.
    {"fwd_regtile_f32", "90a", "fwd fp32 batch=1 num_heads=2 seqlen=1:8192 head_dim=16 page_size=8",
     0},
    {"fwd_naive", "80",
     "fwd fp16 batch=4 num_heads=8:2 seqlen=4:900 head_dim=64 page_size=24 lse mask=\"k != q\"", 0},
};

std::string fault_of(const PagesCase& c) {
  const bool packed = c.problem.ends_with(" packed");
  const std::string_view words = std::string_view(c.problem).substr(0, c.problem.rfind(" packed"));
  const Problem problem = parse_problem(
      fmt::format("{} lengths={}", words, packed ? "packed" : "used"));
  const DeviceFacts& device = typical_device(c.arch);
  const Family& family = *find_family(c.family);
  for (const Candidate& candidate : candidates(family, problem, device)) {
    if (c.block_m != 0 && family.tile_shape(candidate.config, problem).block_m != c.block_m)
      continue;
    const Cubin cubin = compile(family.render(candidate.config, problem), device.arch);
    const int spills = cubin.spill_store_bytes + cubin.spill_load_bytes;
    return spills == 0 ? ""
                       : fmt::format("{} bytes of spills: {}", spills, to_string(candidate.config));
  }
  return "no candidate";
}

TEST(Pages, CompileWithoutSpills) {
  const std::vector<std::string> faults = test::compile_together(
      kCases.size(), [&](std::size_t i) { return fault_of(kCases[i]); });
  for (std::size_t i = 0; i < faults.size(); ++i)
    EXPECT_EQ(faults[i], "") << "sm_" << kCases[i].arch << ": " << kCases[i].problem;
}

}  // namespace
}  // namespace attnforge
