// near_problems_test.cpp - whose winners are worth a look for a problem, in which order, and whose
// not.
#include "cache/near_problems.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace attnforge {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> configs_of(std::span<const Chosen> near) {
  std::vector<std::string> configs;
  for (const Chosen& each : near) configs.push_back(each.config);
  return configs;
}

const Problem kProblem = parse_problem(
    "fwd bf16 batch=4 num_heads=16 seqlen=4096 head_dim=128 causal");

TEST(NearProblems, SizesComeBeforeWhatIsCompiledIn) {
  const std::vector<Chosen> chosen = {
      {"fwd bf16 batch=4 num_heads=16 seqlen=4096 head_dim=64 causal", "head_dim"},
      {"fwd fp16 batch=4 num_heads=16 seqlen=4096 head_dim=128 causal", "dtype"},
      {"fwd bf16 batch=4 num_heads=16 seqlen=4096 head_dim=128 causal lse", "lse"},
      {"fwd bf16 batch=1 num_heads=16 seqlen=512 head_dim=128 causal", "far"},
      {"fwd bf16 batch=4 num_heads=16 seqlen=5120 head_dim=128 causal", "near"},
      {"fwd bf16 batch=4 num_heads=16 seqlen=4096 head_dim=128 causal layout=bhsd", "layout"},
      {"fwd bf16 batch=2 num_heads=16 seqlen=4096 head_dim=128 causal", "near"}};
  const std::vector<Chosen> near = near_winners(kProblem, chosen);
  EXPECT_THAT(configs_of(near), ElementsAre("layout", "near", "far", "lse", "dtype", "head_dim"));
  EXPECT_EQ(near[1].problem, chosen[4].problem) << "a config that won twice is said of the nearer";
}

/// Between kProblem and the one with `words` in place of its own.
std::pair<int, double> apart(const std::string& words) {
  Problem other = parse_problem("fwd bf16 causal " + words);
  return distance(kProblem, other).value();
}

// Each length counts as its powers of two, each head dim as eight times as many.
TEST(NearProblems, LengthsCountOnceAndHeadDimsEightTimes) {
  const auto powers = [](double a, double b) { return std::abs(std::log2((a + 1) / (b + 1))); };
  const auto sizes = [](const std::string& words) { return apart(words).second; };
  const std::string q = " seqlen=4096:", d = " head_dim=128";
  EXPECT_DOUBLE_EQ(sizes("batch=9 num_heads=16 seqlen=4096" + d), powers(4, 9));
  EXPECT_DOUBLE_EQ(sizes("batch=4 num_heads=32:16 seqlen=4096" + d), powers(16, 32));
  EXPECT_DOUBLE_EQ(sizes("batch=4 num_heads=16:2 seqlen=4096" + d), powers(16, 2));
  EXPECT_DOUBLE_EQ(sizes("batch=4 num_heads=16 seqlen=512:4096" + d), powers(4096, 512));
  EXPECT_DOUBLE_EQ(sizes("batch=4 num_heads=16" + q + "9000" + d), powers(4096, 9000));
  EXPECT_DOUBLE_EQ(sizes("batch=4 num_heads=16 seqlen=4096 head_dim=64:128"), 8 * powers(128, 64));
  EXPECT_DOUBLE_EQ(sizes("batch=4 num_heads=16 seqlen=4096 head_dim=128:64"), 8 * powers(128, 64));
  EXPECT_DOUBLE_EQ(sizes("batch=1 num_heads=8:4 seqlen=1024:2048 head_dim=96"),
                   powers(4, 1) + powers(16, 8) + powers(16, 4) + powers(4096, 1024) +
                       powers(4096, 2048) + 16 * powers(128, 96));
}

TEST(NearProblems, WhatDiffersOfTheKernelHasItsOrder) {
  const std::string same = "batch=4 num_heads=16 seqlen=4096 ";
  const int lse = apart(same + "head_dim=128 lse").first, dims = apart(same + "head_dim=64").first,
            dims_and_lse = apart(same + "head_dim=64 lse").first;
  EXPECT_EQ(apart("batch=1 num_heads=8 seqlen=512 head_dim=128").first, 0);
  EXPECT_GT(lse, 0);
  EXPECT_GT(dims, 2 * lse) << "the dtype is between them";
  EXPECT_EQ(dims_and_lse, dims + lse);
}

TEST(NearProblems, OneWithARopeIsOfTheSameKernel) {
  const std::vector<Chosen> chosen = {
      {"fwd bf16 batch=4 num_heads=16 seqlen=4096 head_dim=128 causal rope=half", "rope"}};
  EXPECT_THAT(configs_of(near_winners(kProblem, chosen)), ElementsAre("rope"));
}

TEST(NearProblems, PagesOfAnotherSizeAndKeysInOnePieceAreNearerThanOtherKernels) {
  const std::string used = "fwd bf16 batch=4 num_heads=16 seqlen=1:4096 head_dim=128 lengths=used";
  const std::vector<Chosen> chosen = {{used + " lse page_size=16", "lse"},
                                      {used, "one piece"},
                                      {used + " page_size=64", "other pages"},
                                      {"fwd bf16 batch=4 num_heads=16 seqlen=1:512 head_dim=128 "
                                       "lengths=used page_size=16",
                                       "same pages"}};
  EXPECT_THAT(configs_of(near_winners(parse_problem(used + " page_size=16"), chosen)),
              ElementsAre("same pages", "one piece", "other pages", "lse"));
}

TEST(NearProblems, OthersSayNothing) {
  std::vector<Chosen> chosen;
  for (const char* text :
       {"fwd bf16 batch=4 num_heads=16 seqlen=4096 head_dim=128",
        "fwd bf16 batch=4 num_heads=16 seqlen=4096 head_dim=128 causal window_left=128",
        "fwd bf16 batch=4 num_heads=16 seqlen=4096 head_dim=128 causal softcap=30",
        "fwd bf16 batch=4 num_heads=16 seqlen=4096 head_dim=128 causal lengths=packed",
        "fwd bf16 batch=4 num_heads=16 seqlen=4096 head_dim=128 causal lengths=used",
        "fwd bf16 batch=4 num_heads=16 seqlen=4096 head_dim=128 causal alignment=4",
        "fwd fp32 batch=4 num_heads=16 seqlen=4096 head_dim=128 causal",
        "fwd bf16 batch=4 num_heads=16 seqlen=1:4096 head_dim=128 causal",
        "fwd bf16 batch=4 num_heads=16 seqlen=2048 head_dim=128 causal forced block_n=64",
        "of another version"})
    chosen.push_back({text, "config"});
  EXPECT_THAT(configs_of(near_winners(kProblem, chosen)), ElementsAre());
  EXPECT_THAT(configs_of(near_winners(kProblem, std::vector<Chosen>{{to_string(kProblem), "own"}})),
              ElementsAre());
}

}  // namespace
}  // namespace attnforge
