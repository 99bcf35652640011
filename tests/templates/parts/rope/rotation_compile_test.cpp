// rotation_compile_test.cpp - NVRTC compiles the step that rotates q and k for every arch, dtype
// and alignment without spills. Needs NVRTC, but neither a GPU nor a driver.
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
#include "tests/support/argument_fields.h"
#include "tests/templates/compile_together.h"

namespace attnforge {
namespace {

std::string fault_of(const Source& source, const Arch& arch) {
  const auto cubin = test::compiled(source, arch);
  const int spills = cubin.spill_store_bytes + cubin.spill_load_bytes;
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
    EXPECT_THAT(test::compiled_ptx(source, device.arch),
                testing::HasSubstr(fmt::format("[probe_param_0+{}]", places[0])))
        << type;
  }
}

}  // namespace
}  // namespace attnforge
