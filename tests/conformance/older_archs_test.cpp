// older_archs_test.cpp - what GPUs of sm_86 and sm_89 would run, on the GPU at hand: every family's
// configs for 99 KB of shared memory a block, as PTX of that arch that the driver compiles.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>

#include "generator/arch.h"
#include "runtime/compile/compiler.h"
#include "templates/registry.h"
#include "tests/conformance/proof.h"

namespace attnforge {
namespace {

using namespace test;

constexpr const char* kArchs[] = {"86", "89"};
constexpr int kRandomConfigs = 1;  // beside the one used when nothing was measured

/// Ragged tails, masks and options, and head dims at which 99 KB are little.
const ConformanceCase kCases = {
    .name = "OlderArchs",
    .problems =
        {"fwd bf16 batch=2 num_heads=4:2 seqlen=200:333 head_dim=128 causal lse",
         "fwd fp16 batch=1 num_heads=2 seqlen=150:190 head_dim=256 lse",
         "fwd fp16 batch=1 num_heads=3 seqlen=129:257 head_dim=64 window_left=50 softcap=30",
         "fwd fp32 batch=1 num_heads=2 seqlen=100:150 head_dim=96 causal lse"},
};

struct FamilyForArch {
  const Family* family;
  const char* arch;
};
std::string name_of(const FamilyForArch& c) {
  return fmt::format("{}_sm{}", c.family->name, c.arch);
}
void PrintTo(const FamilyForArch& c, std::ostream* out) { *out << name_of(c); }

std::vector<FamilyForArch> all_cases() {
  std::vector<FamilyForArch> all;
  for (const Family* family : registry()) {
    for (const char* arch : kArchs) all.push_back({family, arch});
  }
  return all;
}

class OlderArchs : public testing::TestWithParam<FamilyForArch> {
 protected:
  void SetUp() override {
    const std::string unusable = gpu_problem();
    if (!unusable.empty()) GTEST_SKIP() << unusable;
    const Arch& arch = typical_device(GetParam().arch).arch;
    if (gpu_facts().arch.sm < arch.sm)
      GTEST_SKIP() << gpu_facts().name << " is older than sm_" << arch.name;
    context_.emplace(gpu_context());
  }

  std::optional<ScopedContext> context_;
};

TEST_P(OlderArchs, PtxWithinTheirLimitsIsRight) {
  const Family& family = *GetParam().family;
  const DeviceFacts& device = typical_device(GetParam().arch);
  int served = 0;
  for (const std::string& text : kCases.problems) {
    const Problem problem = parse_problem(text);
    if (!rejection(family, problem, device.arch).empty()) continue;
    const Expectation expected(problem, kCases);
    GpuProblem gpu(expected.host);
    const std::vector<Compiled> some = compile_some_to_ptx(family, problem, device, kRandomConfigs,
                                                           kConformanceSeed);
    ASSERT_FALSE(some.empty()) << family.name << " has no config for " << text;
    for (const Compiled& compiled : some) {
      SCOPED_TRACE(fmt::format("{}\n  {}", text, to_string(compiled.candidate.config)));
      ASSERT_EQ(compiled.failure, "");
      const Loaded loaded(compiled);
      EXPECT_EQ(loaded.misfit(device.arch), "");
      HostProblem after = after_run(loaded, gpu, expected.host);
      EXPECT_EQ(fault_of(expected, after), "");
      ++served;
    }
  }
  if (served == 0) {
    GTEST_SKIP() << family.name << " does not run on sm_" << device.arch.name << ": "
                 << rejection(family, parse_problem(kCases.problems[0]), device.arch);
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, OlderArchs, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace attnforge
