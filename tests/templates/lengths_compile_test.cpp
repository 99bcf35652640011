// lengths_compile_test.cpp - NVRTC compiles the product families and the oracle with lengths that
// only the GPU knows: the config used when nothing was measured, without spills. Needs NVRTC, but
// neither a GPU nor a driver.
#include <gtest/gtest.h>

#include <string>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "runtime/compile/compiler.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

struct LengthsCase {
  const char* family;
  const char* arch;
  const char* problem;
};
void PrintTo(const LengthsCase& c, std::ostream* out) {
  *out << c.family << " on sm_" << c.arch << ": " << c.problem;
}

class LengthsCompile : public testing::TestWithParam<LengthsCase> {};

TEST_P(LengthsCompile, WithoutSpills) {
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

constexpr LengthsCase kCases[] = {
    {"fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=8 num_heads=16 seqlen=8192 tokens=16384 head_dim=128 lengths=packed"},
    {"fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=8 num_heads=16 seqlen=8192 head_dim=64 lengths=used causal lse"},
    {"fwd_mma_sm80", "86",
     "fwd fp16 batch=8 num_heads=16 seqlen=4096 head_dim=128 lengths=packed causal lse"},
    {"fwd_mma_sm80", "90",
     "fwd bf16 batch=8 num_heads=16:2 seqlen=1:4096 head_dim=128 lengths=used"},
    {"fwd_regtile_f32", "89",
     "fwd fp32 batch=8 num_heads=16 seqlen=4096 head_dim=64 lengths=packed causal"},
    {"fwd_naive", "80", "fwd bf16 batch=2 num_heads=4 seqlen=100 head_dim=64 lengths=packed lse"},
};
INSTANTIATE_TEST_SUITE_P(Families, LengthsCompile, testing::ValuesIn(kCases));

}  // namespace
}  // namespace attnforge
