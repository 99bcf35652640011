// describe_test.cpp - configs in words: short, and different for different configs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

TEST(Describe, SaysWhatWasSearched) {
  const auto words = [](const char* text) { return describe(parse_config(text)); };
  EXPECT_EQ(words("fwd_wgmma_sm90a warpgroups=2 block_n=128 k_stages=2 v_stages=2 q_in_regs=0 "
                  "q_stages=1 pingpong=1 grid=2 blocks_per_sm=1 swizzle=128 pack_gqa=1 "
                  "head_group_mb=0 own_lists=0 num_splits=1"),
            "fwd_wgmma_sm90a 2x64 x 128 keys, stages 2+2, ping-pong, dynamic");
  EXPECT_EQ(words("fwd_mma_sm80 block_m=128 num_warps=4 block_n=64 step_n=32 stages=2 q_in_regs=1 "
                  "blocks_per_sm=2 pack_gqa=4 head_group_mb=32 head_dim_warps=1 pad_head_dim=0 "
                  "num_splits=1"),
            "fwd_mma_sm80 128 x 64 keys by 32, 4 warps, stages 2, Q in registers, 2 blocks per SM, "
            "4 heads packed, heads by 32 MB");
  EXPECT_EQ(words("fwd_mma_sm80 block_m=128 num_warps=4 block_n=64 step_n=64 stages=2 q_in_regs=0 "
                  "blocks_per_sm=1 pack_gqa=1 head_group_mb=0 head_dim_warps=1 pad_head_dim=1 "
                  "num_splits=1"),
            "fwd_mma_sm80 128 x 64 keys, 4 warps, stages 2, 1 block per SM, head "
            "dims padded to 16");
}

TEST(Describe, FallsBackToTheText) {
  for (const char* text : {"fwd_naive block_m=8 num_threads=128", "fwd_nothing a=1 b=2",
                           "fwd_mma_sm80 block_m=128", "fwd_wgmma_sm90a grid=7"}) {
    EXPECT_EQ(describe(parse_config(text)), text);
  }
}

TEST(Describe, ProductsHaveWordsOfTheirOwn) {
  for (const Family* family : registry()) {
    if (family->tier == Tier::kProduct) EXPECT_NE(family->describe, nullptr) << family->name;
  }
}

TEST(Describe, DifferentConfigsHaveDifferentWords) {
  struct Case {
    const char *problem, *arch;
  };
  for (const Case& c : {Case{"fwd bf16 num_heads=32:8 seqlen=4096 head_dim=128 causal", "90a"},
                        Case{"fwd bf16 num_heads=32:8 seqlen=1:4096 head_dim=72", "90a"},
                        Case{"fwd fp16 num_heads=8 seqlen=2048 head_dim=512", "86"},
                        Case{"fwd fp32 num_heads=8:2 seqlen=64:2048 head_dim=64 tf32", "86"}}) {
    std::unordered_set<std::size_t> seen;  // hundreds of thousands, which as texts take longer
    Cuts cuts;
    const auto add = [&](const Config& config) {
      const std::string words = describe(config);
      const bool is_new = seen.insert(std::hash<std::string>{}(words)).second;
      if (is_new && words.find('=') == words.npos) return;
      ADD_FAILURE() << (is_new ? "not in words: " : "another config has these words: ") << words
                    << "\n"
                    << to_string(config);
    };
    for (const Family* family : registry()) {
      if (family->describe == nullptr) continue;
      const Problem problem = parse_problem(c.problem);
      const DeviceFacts& device = typical_device(c.arch);
      if (!rejection(*family, problem, device.arch).empty()) continue;
      for (const Candidate& each : candidates(*family, problem, device, &cuts)) add(each.config);
    }
    for (const CutCandidate& each : cuts.configs) add(each.config);
    EXPECT_GT(seen.size(), 10000u) << "of all that was looked at";
  }
}

}  // namespace
}  // namespace attnforge
