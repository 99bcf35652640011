// near_problems_test.cpp - whose winners are worth a look for a problem, in which order, and whose
// not.
#include "cache/near_problems.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
