// rotation_compile_test.cpp - NVRTC compiles the step that rotates q and k for every arch, dtype
// and alignment, and the kernel that rotates by itself, without spills. Needs NVRTC, but neither a
// GPU nor a driver.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "runtime/compile/compiler.h"
#include "templates/parts/rope/host.h"
#include "templates/registry.h"
#include "tests/support/argument_parts.h"
#include "tests/templates/compile_together.h"

namespace attnforge {
namespace {

std::string fault_of(const Source& source, const Arch& arch) {
  const Cubin cubin = compile(source, arch);
  const int spills = cubin.spill_store_bytes + cubin.spill_load_bytes;
  if (cubin.wgmma_serialized) return "products are serialized";
  return spills == 0 ? "" : fmt::format("{} bytes of spills", spills);
}

TEST(RotationStepCompiles, ForEveryArchAndEveryKindOfRowsWithoutSpills) {
  // All dtypes, both kinds of pairs, vectors of 16 and 8 bytes, tails that are copied, and every
  // alignment.
  constexpr const char* kProblems[] = {
      "fwd bf16 seqlen=64 head_dim=128 rope=half",
      "fwd fp16 seqlen=64 head_dim=72 rope=interleaved alignment=8",
      "fwd bf16 seqlen=64 head_dim=512 rope=half rope_dim=8 alignment=4",
      "fwd fp16 seqlen=64 head_dim=96 rope=half rope_dim=80 alignment=2",
      "fwd bf16 seqlen=64 head_dim=80 rope=interleaved rope_dim=32",
      "fwd fp32 seqlen=64 head_dim=64 rope=half",
      "fwd fp32 seqlen=64 head_dim=128 rope=interleaved rope_dim=40 alignment=4",
  };
  // Each on the newest arch, and by turns on one of the others.
  std::vector<std::pair<const Arch*, const char*>> all;
  for (std::size_t i = 0; i < std::size(kProblems); ++i) {
    all.emplace_back(&archs().back(), kProblems[i]);
    all.emplace_back(&archs()[i % (archs().size() - 1)], kProblems[i]);
  }
  const std::vector<std::string> faults = test::compile_together(all.size(), [&](std::size_t i) {
    Source source;
    source.name = "rotate_q_and_k";
    source.entry = "namespace attnforge {}\nusing namespace attnforge;\n";
    return fault_of(with_rotation(source, parse_problem(all[i].second)), *all[i].first);
  });
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(faults[i], "") << "sm_" << all[i].first->name << " " << all[i].second;
}

struct Fused {
  const char* problem;
  const char* config;
};

TEST(FusedRopeCompiles, WithoutSpills) {
  constexpr Fused kFused[] = {
      {"fwd bf16 batch=4 num_heads=16 seqlen=4096 head_dim=128 causal rope=half",
       "fwd_wgmma_sm90a warpgroups=2 block_n=96 k_stages=2 v_stages=2 q_in_regs=0 q_stages=2 "
       "pingpong=1 grid=2 blocks_per_sm=1 swizzle=128 pack_gqa=1 head_group_mb=32 fused_rope=1"},
      {"fwd fp16 batch=8 num_heads=32:8 seqlen=4:4096 head_dim=64 rope=interleaved",
       "fwd_wgmma_sm90a warpgroups=1 block_n=96 k_stages=2 v_stages=2 q_in_regs=0 q_stages=1 "
       "pingpong=0 grid=0 blocks_per_sm=1 swizzle=128 pack_gqa=4 head_group_mb=0 fused_rope=1"},
      {"fwd fp16 batch=8 num_heads=8 seqlen=2048 head_dim=72 rope=half rope_dim=40",
       "fwd_wgmma_sm90a warpgroups=3 block_n=96 k_stages=2 v_stages=2 q_in_regs=0 q_stages=2 "
       "pingpong=1 grid=1 blocks_per_sm=1 swizzle=64 pack_gqa=1 head_group_mb=0 fused_rope=1"},
  };
  const Family& family = *find_family("fwd_wgmma_sm90a");
  const DeviceFacts& device = typical_device("90a");
  const std::vector<std::string> faults = test::compile_together(
      std::size(kFused), [&](std::size_t i) -> std::string {
        const Problem problem = parse_problem(kFused[i].problem);
        const Config config = read_config(kFused[i].config);
        const std::string reason = illegal(family, config, problem, device);
        return reason.empty() ? fault_of(family.render(config, problem), device.arch) : reason;
      });
  for (std::size_t i = 0; i < std::size(kFused); ++i) EXPECT_EQ(faults[i], "") << kFused[i].problem;
}

/// The oracle, which rotates by itself: its member `rope` is where the launch puts it, after any
/// other part.
TEST(RopeOfTheOracle, LiesWhereTheLaunchPutsIt) {
  const Family& family = *find_family("fwd_naive");
  const DeviceFacts& device = typical_device("80");
  for (const char* text : {"fwd bf16 num_heads=2 seqlen=8:20 head_dim=64 rope=half",
                           "fwd fp16 num_heads=2 seqlen=1:20 head_dim=72 rope=interleaved sinks "
                           "blocks=64 score=\"0.5f * s\""}) {
    const Problem problem = parse_problem(text);
    const Config config = candidates(family, problem, device).front().config;
    const LaunchStep step = family.launch(config, problem, device).steps.back();
    const auto places = test::places_of(own_argument<bind_rope>(), step);
    ASSERT_EQ(places.size(), 1u);
    Source source = family.render(config, problem);
    const std::size_t begin = source.entry.find("const __grid_constant__ ");
    ASSERT_NE(begin, std::string::npos) << source.entry;
    const std::string type = source.entry.substr(begin, source.entry.find(" p)", begin) - begin);
    source.text = source.text.substr(0, source.text.find("extern \"C\" __global__")) +
                  "extern \"C\" __global__ void probe(" + type +
                  " p, u64* to) { to[0] = u64(p.rope.cos); }\n";
    EXPECT_THAT(compile_to_ptx(source, device.arch),
                testing::HasSubstr(fmt::format("[probe_param_0+{}]", places[0])))
        << type;
  }
}

}  // namespace
}  // namespace attnforge
