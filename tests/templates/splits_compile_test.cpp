// splits_compile_test.cpp - NVRTC compiles kernels that split keys, and the step that merges them,
// with each part of a problem that changes their pieces: without spills. Needs NVRTC, but neither a
// GPU nor a driver.
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

struct SplitCase {
  const char* family;
  const char* arch;
  const char* problem;
  int block_m;  // the first candidate that has it
};

// Each part once for a family, on one of its archs: tiles are small, and compiles short, where
// there is little shared memory. The plain kernels are those of the first two. Sinks are in
// sinks_compile_test.cpp, pages in pages_compile_test.cpp.
constexpr SplitCase kCases[] = {
    {"fwd_mma_sm80", "80", "fwd bf16 batch=1 num_heads=32:8 seqlen=1:65536 head_dim=128 lse", 32},
    {"fwd_mma_sm80", "86", "fwd fp16 batch=1 num_heads=16:1 seqlen=1:8192 head_dim=128", 16},
    {"fwd_mma_sm80", "89",
     "fwd bf16 batch=1 num_heads=16:1 seqlen=4:8192 head_dim=128 window_left=4096", 64},
    {"fwd_mma_sm80", "86",
     "fwd bf16 batch=4 num_heads=32:8 seqlen=1:8192 head_dim=128 lengths=used lse", 32},
    {"fwd_mma_sm80", "80",
     "fwd fp16 batch=4 num_heads=8:2 seqlen=4:8192 head_dim=72 lengths=packed causal", 32},
    {"fwd_mma_sm80", "86",
     "fwd bf16 batch=1 num_heads=16 seqlen=64:8192 head_dim=64 blocks=64 mask_bits", 64},
    {"fwd_mma_sm80", "89",
     "fwd bf16 batch=1 num_heads=16:4 seqlen=2:8192 head_dim=128 softcap=30 args=\"float* slope\" "
     "score=\"s + slope[head] * (k - q)\" rope=half",
     32},
    {"fwd_mma_sm80", "90a", "fwd bf16 batch=1 num_heads=8 seqlen=256:32768 head_dim=128 causal",
     128},
    {"fwd_wgmma_sm90a", "90a",
     "fwd fp16 batch=4 num_heads=8:2 seqlen=4:8192 head_dim=64 lengths=packed causal softcap=20",
     64},
    {"fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=4 num_heads=16 seqlen=2:8192 head_dim=128 lengths=used window_left=4096", 64},
    {"fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=1 num_heads=16:1 seqlen=1:8192 head_dim=192:128 rope=half", 64},
    {"fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=4 num_heads=16:1 seqlen=1:8192 head_dim=64:256 lengths=used", 64},
    {"fwd_mma_sm80", "80", "fwd bf16 batch=1 num_heads=16:1 seqlen=1:8192 head_dim=64:512", 16},
};

std::string fault_of(const SplitCase& c) {
  const Problem problem = parse_problem(c.problem);
  const DeviceFacts& device = typical_device(c.arch);
  const Family& family = *find_family(c.family);
  for (const Candidate& candidate : candidates(family, problem, device)) {
    if (family.tile_shape(candidate.config, problem).block_m != c.block_m ||
        candidate.config.get("num_splits") == 1)
      continue;
    const Cubin cubin = compile(family.render(candidate.config, problem), device.arch);
    const int spills = cubin.spill_store_bytes + cubin.spill_load_bytes;
    return spills == 0 ? ""
                       : fmt::format("{} bytes of spills: {}", spills, to_string(candidate.config));
  }
  return "no candidate";
}

TEST(SplitKeys, CompileWithoutSpills) {
  const std::vector<std::string> faults = test::compile_together(
      std::size(kCases), [](std::size_t i) { return fault_of(kCases[i]); });
  for (std::size_t i = 0; i < faults.size(); ++i)
    EXPECT_EQ(faults[i], "") << "sm_" << kCases[i].arch << ": " << kCases[i].problem;
}

}  // namespace
}  // namespace attnforge
