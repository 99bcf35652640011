// legality_test.cpp - what can be said of a config without trying it: where a problem is supported
// a plan has a legal config, whatever a search may have chosen, and rules of thumb forbid nothing.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attnforge/plan.h"
#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/problem/bucket.h"
#include "plan/choice/choice.h"
#include "templates/registry.h"
#include "tests/support/any_problem.h"
#include "tests/support/random_choices.h"

namespace attnforge {
namespace {

using test::RandomChoices;

constexpr unsigned kSeed = 41;

/// `chosen` for the bucket, and a few of what a search of it could have found.
std::vector<Config> what_may_be_chosen(const Choice& chosen, const Problem& tuned,
                                       const DeviceFacts& device, RandomChoices& choices) {
  constexpr int kOthers = 4;
  std::vector<Config> configs = {chosen.config};
  const std::vector<Candidate> all = candidates(*chosen.family, tuned, device);
  for (int i = 0; i < kOthers; ++i) configs.push_back(choices.among(all).config);
  return configs;
}

TEST(CandidateOf, SaysOfAConfigWhatASearchSaysOfIt) {
  const DeviceFacts& device = typical_device("86");
  const Problem tuned = bucket(parse_problem("fwd fp16 batch=40 num_heads=8 seqlen=1:3000"));
  const std::vector<Candidate> all = candidates(registry(), tuned, device);
  for (const Candidate& each : all) {
    const Candidate same = candidate_of(*each.family, each.config, tuned, device);
    EXPECT_EQ(same.estimate_us, each.estimate_us) << to_string(each.config);
    EXPECT_EQ(same.spread, each.spread) << to_string(each.config);
  }
  EXPECT_TRUE(std::ranges::any_of(all, [](const Candidate& each) { return each.spread > 1; }));
}

TEST(Supported, ProblemsHaveALegalConfigWhateverASearchOfTheirBucketChose) {
  constexpr int kProblems = 500;
  RandomChoices choices(kSeed);
  int invariant = 0;
  for (int i = 0; i < kProblems; ++i) {
    Problem p = test::any_problem(choices, {.batch_bits = 9, .heads_bits = 4, .seqlen_bits = 13});
    p.batch_invariant = p.op == Op::kForward && !has_block_mask(p) && !choices.one_in(3);
    ASSERT_NO_THROW(validate(p)) << to_string(p);
    const Arch& arch = archs()[static_cast<std::size_t>(i) % archs().size()];
    const DeviceFacts& device = typical_device(arch.name);
    SCOPED_TRACE(
        fmt::format("seed {}, problem {}: {} on sm_{}", kSeed, i, to_string(p), arch.name));
    if (!supported(p, device).supported) continue;
    invariant += p.batch_invariant && p.batch > 4;
    const Problem tuned = bucket(p);
    const Choice chosen = untuned_choice({tuned, "", ""}, device, {});
    for (const Config& config : what_may_be_chosen(chosen, tuned, device, choices)) {
      EXPECT_EQ(illegal(config, tuned, device), "") << to_string(config);
      EXPECT_EQ(illegal(config, p, device), "") << to_string(config);
    }
  }
  EXPECT_GT(invariant, kProblems / 3);
}

TEST(Supported, BatchInvariantProblemsOfOrdinarySizesAreNotRefusedForIdleSms) {
  const Problem p = parse_problem(
      "fwd bf16 batch=64 num_heads=8 seqlen=128 head_dim=128 batch_invariant");
  const DeviceFacts& device = typical_device("90a");
  const Choice chosen = untuned_choice({bucket(p), "", ""}, device, {});
  EXPECT_EQ(illegal(chosen.config, p, device), "");
  EXPECT_EQ(chosen.family->needless(chosen.config, bucket(p), device), "");
  EXPECT_EQ(chosen.family->needless(chosen.config, p, device), "one warpgroup leaves the SM idle")
      << "of 64 sequences a search would leave it out";
}

/// A sentence that a search says of a config, and the problem that it is said of.
struct Skipped {
  const char* family;
  const char* problem;
  const char* sentence;
};
constexpr Skipped kSkipped[] = {
    {"fwd_wgmma_sm90a", "fwd bf16 num_heads=8 seqlen=4096 head_dim=128", "about {} registers for"},
    {"fwd_wgmma_sm90a", "fwd bf16 num_heads=8 seqlen=1:4096 head_dim=128", "fewer splits fill"},
    {"fwd_mma_sm80", "fwd bf16 num_heads=8 seqlen=4096 head_dim=128", "about {} registers for"},
    {"fwd_mma_sm80", "fwd bf16 num_heads=8 seqlen=4096 head_dim=64", "another block would fit"},
    {"fwd_mma_sm80", "fwd bf16 num_heads=8 seqlen=4096 head_dim=64", "more than # query rows"},
    {"fwd_regtile_f32", "fwd fp32 num_heads=8 seqlen=4096 head_dim=64", "one stage: there is"},
    {"fwd_wmma", "fwd bf16 num_heads=8 seqlen=4096 head_dim=64", "another block would fit"},
    {"fwd_flash_vec", "fwd bf16 num_heads=8 seqlen=4096 head_dim=64", "{} scores per step"},
    {"bwd_mma_sm80", "bwd bf16 num_heads=8 seqlen=4096 head_dim=64",
     "pairs of warps already reuse"},
    {"bwd_wgmma_sm90a", "bwd bf16 num_heads=8 seqlen=4096 head_dim=128",
     "about {} of {} registers"},
    {"bwd_wgmma_sm90a", "bwd bf16 num_heads=8 seqlen=4096 head_dim=256", "rows of dK and dV have"},
    {"bwd_wgmma_sm90a", "bwd bf16 num_heads=8 seqlen=4096 head_dim=128",
     "another buffer would fit"},
};

TEST(Needless, SentencesOfASearchForbidNothing) {
  const DeviceFacts& device = typical_device("90a");
  for (const Skipped& skipped : kSkipped) {
    const Problem p = parse_problem(skipped.problem);
    Cuts cuts;
    cuts.most = 0;
    candidates(*find_family(skipped.family), p, device, &cuts);
    int said = 0;
    for (const auto& [words, kind] : cuts.kinds) {
      if (!words.starts_with(skipped.sentence)) continue;
      ++said;
      EXPECT_EQ(illegal(kind.first.config, p, device), "") << to_string(kind.first.config);
    }
    EXPECT_EQ(said, 1) << skipped.family << ": " << skipped.sentence;
  }
}

TEST(Needless, IsWhatAnAxisLeavesOut) {
  // No search has this value: the axis has one value there.
  const Problem p = parse_problem("fwd bf16 num_heads=8 seqlen=4096 head_dim=128");
  const DeviceFacts& device = typical_device("90a");
  const Family& family = *find_family("fwd_wgmma_sm90a");
  Config config = candidates(family, p, device).front().config;
  std::ranges::find(config.fields, "swizzle", &std::pair<std::string, int>::first)->second = 64;
  EXPECT_EQ(family.needless(config, p, device), "a wider swizzle pads no more");
  EXPECT_EQ(illegal(config, p, device), "");
}

TEST(Needless, IsWhyALegalConfigIsCutAndNoOtherReasonIs) {
  int legal = 0, wrong = 0;
  for (const Family* family : registry()) {
    if (family->op != Op::kForward && family->op != Op::kBackward) continue;
    for (const char* rest : {"fp16 batch=2 num_heads=4:2 seqlen=300 head_dim=64",
                             "fp32 batch=2 num_heads=4:2 seqlen=7:3000 head_dim=128"}) {
      const Problem p = parse_problem(std::string(to_string(family->op)) + " " + rest);
      const DeviceFacts& device = typical_device("90a");
      Cuts cuts;
      cuts.most = 0;
      candidates(*family, p, device, &cuts);
      for (const auto& [words, kind] : cuts.kinds) {
        const std::string why = illegal(kind.first.config, p, device);
        ++(why.empty() ? legal : wrong);
        EXPECT_EQ(why.empty() ? family->needless(kind.first.config, p, device) : why,
                  kind.first.reason);
      }
    }
  }
  EXPECT_GT(legal, 40);
  EXPECT_GT(wrong, 20);
}

}  // namespace
}  // namespace attnforge
