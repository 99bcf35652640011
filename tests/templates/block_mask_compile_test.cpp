// block_mask_compile_test.cpp - NVRTC compiles the families that serve block masks: the config used
// when nothing was measured, without spills. With sinks: sinks_compile_test.cpp. Needs NVRTC, but
// neither a GPU nor a driver.
#include <gtest/gtest.h>

#include <string>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "runtime/compile/compiler.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

struct BlockMaskCase {
  const char* family;
  const char* arch;
  const char* problem;
};
void PrintTo(const BlockMaskCase& c, std::ostream* out) {
  *out << c.family << " on sm_" << c.arch << ": " << c.problem;
}

class BlockMaskCompile : public testing::TestWithParam<BlockMaskCase> {};

TEST_P(BlockMaskCompile, WithoutSpills) {
  const Problem problem = parse_problem(GetParam().problem);
  const DeviceFacts& device = typical_device(GetParam().arch);
  const Family& family = *find_family(GetParam().family);
  const std::vector<Candidate> configs = candidates(family, problem, device);
  ASSERT_FALSE(configs.empty());
  const Source source = family.render(configs.front().config, problem);
  const Cubin cubin = compile(source, device.arch);
  EXPECT_EQ(cubin.spill_store_bytes + cubin.spill_load_bytes, 0)
      << to_string(configs.front().config);
}

constexpr BlockMaskCase kCases[] = {
    {"fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=2 num_heads=16:4 seqlen=8192 head_dim=128 blocks=64 causal lse mask_bits "
     "mask_heads=4"},
    {"fwd_wgmma_sm90a", "90a",
     "fwd fp16 batch=2 num_heads=16 seqlen=8192 head_dim=64 blocks=16 density=0.1 lengths=used"},
    {"fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=2 num_heads=16 seqlen=8192 head_dim=256 blocks=32 softcap=30"},
    {"fwd_wgmma_sm90a", "90a",  // whose blocks make their own lists
     "fwd bf16 batch=1 num_heads=8 seqlen=1024 head_dim=256 blocks=16 causal lse mask_bits"},
    {"fwd_mma_sm80", "86",
     "fwd bf16 batch=2 num_heads=16 seqlen=4096 head_dim=128 blocks=64 causal lse"},
    {"fwd_mma_sm80", "89",
     "fwd fp16 batch=2 num_heads=16 seqlen=4096 head_dim=64 blocks=16 density=0.1 mask_bits"},
    {"fwd_mma_sm80", "80",
     "fwd bf16 batch=4 num_heads=8 seqlen=2048 head_dim=96 blocks=128:32 lengths=packed"},
    {"fwd_naive", "80",
     "fwd bf16 batch=2 num_heads=4:2 seqlen=100 head_dim=64 lse causal blocks=64:16 mask_heads=2"},
    {"fwd_naive", "90",
     "fwd fp16 batch=2 num_heads=4 seqlen=1:500 head_dim=64 blocks=128 mask_bits mask_batch=2 "
     "lengths=used"},
};
INSTANTIATE_TEST_SUITE_P(Families, BlockMaskCompile, testing::ValuesIn(kCases));

}  // namespace
}  // namespace attnforge
