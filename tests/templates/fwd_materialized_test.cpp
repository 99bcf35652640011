// fwd_materialized_test.cpp - what is particular to the family that keeps its scores in memory: how
// much that is, where it lies, and that nobody gets it unasked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>

#include "attnforge/error.h"
#include "generator/arch.h"
#include "generator/candidates.h"
#include "templates/ladder/fwd_materialized/config.h"
#include "templates/registry.h"
#include "tests/support/argument_fields.h"
#include "tests/templates/problems.h"

namespace attnforge {
namespace {

const Family& family() { return *find_family("fwd_materialized"); }

Config first_config(const Problem& problem, const DeviceFacts& device) {
  return candidates(family(), problem, device).at(0).config;
}

TEST(FwdMaterialized, RefusesScoresThatDoNotFitTheGpuAndSaysHowMuchTheyTake) {
  // 64 heads x 32768 x 32768 floats are 256 GiB.
  const Problem problem = parse_problem("fwd bf16 batch=4 num_heads=16 seqlen=32768 head_dim=128");
  for (const char* arch : {"86", "90a"}) {
    const DeviceFacts& device = typical_device(arch);
    EXPECT_TRUE(candidates(family(), problem, device).empty());
    const Family* const families[] = {&family()};
    try {
      untuned(families, problem, device);
      FAIL() << "256 GiB fit " << device.name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_THAT(error.what(), testing::HasSubstr("256.0 GiB of workspace"));
      EXPECT_THAT(error.what(), testing::HasSubstr("fwd_flash"));
    }
  }
  DeviceFacts small = typical_device("90a");
  const Problem modest = parse_problem("fwd bf16 batch=1 num_heads=16 seqlen=8192 head_dim=128");
  EXPECT_FALSE(candidates(family(), modest, small).empty());
  small.memory_bytes = std::int64_t{4} << 30;  // as much as the scores
  EXPECT_TRUE(candidates(family(), modest, small).empty());
}

TEST(FwdMaterialized, WorkspaceIsScoresThenSums) {
  const Problem problem = parse_problem("fwd fp16 batch=2 num_heads=3 seqlen=100:200 head_dim=64");
  const DeviceFacts& device = typical_device("90a");
  const Config config = first_config(problem, device);
  const std::int64_t block_n = config.get("block_n"), rows = 2 * 3 * 100;
  const std::int64_t pitch = (200 + block_n - 1) / block_n * block_n;
  const Launch launch = family().launch(config, problem, device);
  EXPECT_EQ(launch.workspace_bytes, static_cast<std::size_t>(rows * (pitch + 1)) * sizeof(float));
  ASSERT_EQ(launch.steps.size(), 3u);
  for (const LaunchStep& step : launch.steps) {
    FwdMaterializedParams params;
    ASSERT_EQ(step.params.size(), sizeof(params));
    std::memcpy(&params, step.params.data(), sizeof(params));
    EXPECT_EQ(params.pitch, pitch);
    const auto scratch = test::parts_of<ScratchArgument>(step);
    ASSERT_EQ(scratch.size(), 2u);
    EXPECT_EQ(scratch[0].first, offsetof(FwdMaterializedParams, scores));
    EXPECT_EQ(test::planned_at<std::size_t>(step, scratch[0].first), 0u);
    EXPECT_EQ(scratch[1].first, offsetof(FwdMaterializedParams, row_sums));
    const auto sums_begin = test::planned_at<std::size_t>(step, scratch[1].first);
    EXPECT_EQ(sums_begin, static_cast<std::size_t>(rows * pitch) * sizeof(float));
    EXPECT_EQ(sums_begin + rows * sizeof(float), launch.workspace_bytes);
  }
}

TEST(FwdMaterialized, WorkspaceNeverShrinksWhenASizeGrows) {
  const DeviceFacts& device = typical_device("90a");
  const Problem problem = parse_problem("fwd fp16 batch=2 num_heads=3 seqlen=100:200 head_dim=64");
  const Config config = first_config(problem, device);
  std::size_t before = 0;
  for (int size = 0; size < 700; size += 7) {
    Problem larger = problem;
    larger.seqlen_q = 1 + size;
    larger.seqlen_kv = size;
    const std::size_t now = family().launch(config, larger, device).workspace_bytes;
    EXPECT_GE(now, before) << size;
    before = now;
  }
}

TEST(FwdMaterialized, WithoutKeysThereAreNoScoresToCompute) {
  const DeviceFacts& device = typical_device("90a");
  Problem problem = parse_problem("fwd fp16 batch=2 num_heads=3 seqlen=100:200 head_dim=64 lse");
  const Config config = first_config(problem, device);
  problem.seqlen_kv = 0;
  EXPECT_EQ(family().launch(config, problem, device).steps.size(), 2u);
}

TEST(FwdMaterialized, IsNobodysChoiceUnasked) {
  for (const Problem& problem : test::template_problems()) {
    for (const Arch& arch : archs()) {
      const Candidate choice = untuned(registry(), problem, typical_device(arch.name));
      EXPECT_NE(choice.family, &family()) << to_string(problem) << " on sm_" << arch.name;
    }
  }
}

}  // namespace
}  // namespace attnforge
