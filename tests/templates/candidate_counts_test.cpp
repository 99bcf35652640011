// candidate_counts_test.cpp - the pruned search space of a family is worth a search and small
// enough for one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

struct Bounds {
  const char* family;
  const char* arch;
  std::size_t least, most;  // configs of each problem
};
constexpr Bounds kBounds[] = {
    {"fwd_mma_sm80", "86", 100, 1000},   {"fwd_mma_sm80", "89", 80, 1000},
    {"fwd_mma_sm80", "90a", 100, 1000},  {"fwd_wgmma_sm90a", "90a", 120, 1000},
    {"bwd_mma_sm80", "80", 8, 1000},     {"bwd_mma_sm80", "86", 2, 1000},
    {"bwd_mma_sm80", "89", 2, 1000},     {"bwd_mma_sm80", "90a", 12, 1000},
    {"fwd_flash_vec", "86", 40, 400},    {"fwd_flash_vec", "90a", 40, 400},
    {"fwd_flash_scalar", "86", 8, 150},  {"fwd_flash_scalar", "89", 8, 150},
    {"fwd_materialized", "86", 8, 100},  {"fwd_materialized", "89", 8, 100},
    {"fwd_wmma", "86", 8, 500},          {"fwd_wmma", "89", 8, 500},
    {"fwd_wmma", "90a", 16, 500},        {"fwd_regtile_f32", "86", 20, 1500},
    {"fwd_regtile_f32", "89", 20, 1500}, {"fwd_regtile_f32", "90a", 30, 1500},
};
void PrintTo(const Bounds& bounds, std::ostream* out) {
  *out << bounds.family << "_on_sm" << bounds.arch;
}

struct Counted {
  const char* problem;
};
constexpr Counted kProblems[] = {
    {"fwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal"},
    {"fwd bf16 batch=4 num_heads=16 seqlen=2048 head_dim=64"},
    {"fwd fp16 batch=1 num_heads=16:1 seqlen=8192 head_dim=256 causal"},
    {"fwd fp16 batch=8 num_heads=12 seqlen=512 head_dim=40"},
    {"fwd bf16 batch=2 num_heads=16 seqlen=4096 head_dim=72 causal lse"},
    {"fwd bf16 batch=1 num_heads=24 seqlen=4608 head_dim=96"},
    {"fwd bf16 batch=1 num_heads=16 seqlen=4096 head_dim=192:128 causal"},
    {"fwd fp16 batch=1 num_heads=8 seqlen=16384 head_dim=160 window_left=1024"},
    {"fwd bf16 batch=2 num_heads=32:4 seqlen=1024 head_dim=112 softcap=30"},
    {"fwd fp16 batch=1 num_heads=32:8 seqlen=256:4096 head_dim=128 causal"},
    {"fwd bf16 batch=1 num_heads=16 seqlen=512 head_dim=256"},
    {"fwd fp16 batch=1 num_heads=16 seqlen=512 head_dim=72 causal"},
    {"fwd bf16 batch=1 num_heads=8 seqlen=256 head_dim=192:128 lse"},
    {"fwd bf16 batch=4 num_heads=8 seqlen=4096 head_dim=256 causal lse"},
    {"fwd bf16 batch=4 num_heads=10 seqlen=4096 head_dim=192 lse"},
    {"fwd bf16 batch=4 num_heads=32:8 seqlen=1:4096 head_dim=128"},
    {"fwd bf16 batch=64 num_heads=32:8 seqlen=1:8192 head_dim=128"},
    {"fwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal rope=half"},
    {"bwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal"},
    {"bwd bf16 batch=4 num_heads=16 seqlen=2048 head_dim=64"},
    {"bwd fp16 batch=1 num_heads=16 seqlen=4096 head_dim=256 causal"},
    {"bwd fp16 batch=2 num_heads=12 seqlen=1000 head_dim=72 deterministic"},
    {"bwd bf16 batch=1 num_heads=16 seqlen=4096 head_dim=192:128 window_left=512"},
};

class CandidateCounts : public testing::TestWithParam<Bounds> {};

TEST_P(CandidateCounts, AreWithinTheBounds) {
  const Bounds& bounds = GetParam();
  const Family* family = find_family(bounds.family);
  ASSERT_NE(family, nullptr);
  for (const Counted& counted : kProblems) {
    Problem problem = parse_problem(counted.problem);
    if (problem.op != family->op) continue;
    if (!rejection(*family, problem, arch_named(bounds.arch)).empty())
      problem.dtype_q = problem.dtype_k = problem.dtype_v = problem.dtype_o = DType::kFp32;
    if ((required_features(problem) & ~family->features) != 0) continue;
    const std::size_t count = candidates(*family, problem, typical_device(bounds.arch)).size();
    EXPECT_GE(count, bounds.least) << counted.problem;
    EXPECT_LE(count, bounds.most) << counted.problem;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CandidateCounts, testing::ValuesIn(kBounds),
                         [](const auto& info) { return testing::PrintToString(info.param); });

TEST(CandidateCounts, LargeHeadDimsHaveAChoiceOnEveryArch) {
  const Family& family = *find_family("fwd_mma_sm80");
  for (const char* arch : {"80", "86", "89", "90a", "100a", "120a"}) {
    for (const char* head_dim : {"264", "320", "328", "384", "504", "512", "512:64", "64:512"}) {
      const Problem problem = parse_problem(
          std::string("fwd bf16 batch=2 num_heads=8:2 seqlen=2048 causal lse head_dim=") +
          head_dim);
      const std::size_t count = candidates(family, problem, typical_device(arch)).size();
      EXPECT_GE(count, 8u) << "sm_" << arch << " " << to_string(problem);
      EXPECT_LE(count, 1000u) << "sm_" << arch << " " << to_string(problem);
    }
  }
}

TEST(CandidateCounts, PaddingTo16IsTriedWhereItIsOneMoreFragmentOfV) {
  const Family& family = *find_family("fwd_mma_sm80");
  const DeviceFacts& device = typical_device("90a");
  const auto padded = [](const Candidate& each) { return each.config.get("pad_head_dim") == 1; };
  for (const char* head_dim : {"40", "72", "128:72", "200"}) {
    const Problem problem = parse_problem(std::string("fwd fp16 seqlen=4096 head_dim=") + head_dim);
    const std::vector<Candidate> all = candidates(family, problem, device);
    const auto count = static_cast<std::size_t>(std::count_if(all.begin(), all.end(), padded));
    EXPECT_GT(count, 0u) << head_dim;
    EXPECT_LT(count, all.size() / 4) << head_dim << ": the search is not doubled";
    EXPECT_FALSE(padded(all.front())) << "the model sees no gain in it";
  }
  for (const char* head_dim : {"48", "72:64", "128", "504", "512:72"}) {
    const Problem problem = parse_problem(std::string("fwd fp16 seqlen=4096 head_dim=") + head_dim);
    const std::vector<Candidate> all = candidates(family, problem, device);
    EXPECT_EQ(std::count_if(all.begin(), all.end(), padded), 0) << head_dim;
    Config forced = all.front().config;
    std::ranges::find(forced.fields, "pad_head_dim", &std::pair<std::string, int>::first)
        ->second = 1;
    // 512 columns take two warps, whose halves are not padded.
    EXPECT_EQ(illegal(family, forced, problem, device) == "", forced.get("head_dim_warps") == 1);
  }
}

}  // namespace
}  // namespace attnforge
