// bwd_choice_test.cpp - the model of bwd_wgmma_sm90a beside what an H200 measured: of two configs
// of a problem it prefers the faster one, and its first is what searches of such problems found.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/problem/bucket.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

struct Choice {
  int block_m, dq, zeros_ahead, grid, group_splits, head_group_mb;
};

std::string text_of(const Choice& c) {
  return fmt::format(
      "bwd_wgmma_sm90a split_columns=0 block_m={} do_stages=2 ds_stages=2 late_dq=1 dq_rounds=1 "
      "dq_stages=1 dq={} zeros_ahead={} grid={} group_splits={} alternate=0 head_group_mb={}",
      c.block_m, c.dq, c.zeros_ahead, c.grid, c.group_splits, c.head_group_mb);
}

/// As a plan sees them: those of the problem's bucket, best first.
std::vector<Candidate> candidates_of(const std::string& words) {
  const Problem problem = bucket(parse_problem("bwd bf16 " + words));
  return candidates(*find_family("bwd_wgmma_sm90a"), problem, typical_device("90a"));
}

double estimate_of(const std::vector<Candidate>& all, const Choice& choice) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Candidate& each) {
    return to_string(each.config) == text_of(choice);
  });
  EXPECT_NE(found, all.end()) << text_of(choice);
  return found == all.end() ? 0 : found->estimate_us;
}

struct MeasuredPair {
  const char* words;
  Choice faster, slower;
};
constexpr MeasuredPair kPairs[] = {
    // A mask with a column that all rows see: the longest block of a head is not to come last.
    {"num_heads=16 head_dim=64 batch=2 seqlen=4096 mask=\"q / 16 == k / 16 || k < 4\"",  // 177, 235
     {128, 2, 0, 0, 1, 64},
     {128, 2, 0, 0, 1, 0}},
    // Adds from the diagonal on begin with light blocks: where each SM has few, a heavy one is
    // last.
    {"num_heads=64:8 head_dim=128 batch=5 seqlen=735 causal",  // 426, 527 us
     {64, 2, 0, 0, 1, 64},
     {64, 3, 0, 2, 1, 64}},
    {"num_heads=64:4 head_dim=128 batch=17 seqlen=503 causal",  // 754, 875
     {64, 2, 0, 0, 1, 32},
     {64, 3, 0, 2, 1, 0}},
    {"num_heads=32:8 head_dim=128 batch=2 seqlen=553 causal",  // 87, 99
     {64, 2, 0, 0, 2, 32},
     {64, 3, 0, 2, 2, 32}},
    {"num_heads=32 head_dim=96 batch=2 seqlen=545 causal",  // 65, 69
     {64, 2, 0, 0, 1, 16},
     {64, 3, 0, 2, 1, 32}},
    // Not where each SM has many.
    {"num_heads=16 head_dim=128 batch=32 seqlen=512 causal",  // 374, 394
     {64, 3, 0, 2, 1, 0},
     {64, 2, 1, 0, 1, 32}},
    // Shares add to one part of dK and dV: even blocks of one head are worth it where SMs have few.
    {"num_heads=32:4 head_dim=128 seqlen=1108 causal",  // 96, 105
     {64, 2, 0, 0, 8, 32},
     {64, 2, 0, 0, 4, 16}},
    {"num_heads=28:4 head_dim=128 batch=8 seqlen=2048 causal lengths=packed tokens=8192",
     {64, 2, 0, 0, 4, 1 << 16},  // 572, 627
     {64, 2, 0, 0, 7, 1 << 16}},
    {"num_heads=28:4 head_dim=128 batch=8 seqlen=2048 causal lengths=packed tokens=8192",
     {64, 2, 0, 0, 4, 1 << 16},  // 572, 695
     {64, 2, 0, 0, 1, 1 << 16}},
    // More blocks than half of what an SM has to do fill the GPU to the end.
    {"num_heads=32:2 head_dim=128 seqlen=8765 causal",  // 2.69, 2.99 ms
     {64, 2, 0, 0, 8, 64},
     {64, 2, 0, 0, 4, 0}},
    // Where the L2 does not hold the rows of so many heads, DRAM brings them to each block.
    {"num_heads=128 head_dim=192:128 batch=17 seqlen=3186 causal lengths=packed tokens=21311",
     {32, 2, 0, 0, 1, 64},  // 12.3, 17.0 ms
     {32, 2, 0, 0, 1, 1 << 16}},
    {"num_heads=128 head_dim=192:128 batch=19 seqlen=2705 causal lengths=packed tokens=20194",
     {32, 2, 0, 0, 1, 64},  // 10.1, 13.5 ms
     {32, 2, 0, 0, 1, 1 << 16}},
    // Few heads are under way together: the longest sequence's blocks come early.
    {"num_heads=48:1 head_dim=128 batch=32 seqlen=8192 causal lengths=packed tokens=41196",
     {64, 2, 0, 0, 4, 1 << 16},  // 7.4, 9.0 ms
     {64, 2, 0, 0, 4, 0}},
    // Heavy blocks of all heads come first.
    {"num_heads=32:8 head_dim=128 seqlen=4096 causal",  // 649, 908
     {64, 2, 0, 0, 1, 64},
     {64, 2, 0, 0, 1, 0}},
    // Blocks that are alone on their SM load nothing ahead, and wait for each other's turns.
    {"num_heads=16 head_dim=80 batch=3 seqlen=196",  // 27, 31
     {48, 2, 0, 0, 1, 0},
     {80, 1, 0, 2, 1, 16}},
    {"num_heads=16 head_dim=80 batch=9 seqlen=257",  // 74, 79
     {64, 2, 1, 0, 1, 0},
     {80, 1, 0, 2, 1, 16}},
    // What blocks of many do ahead is worth more than what the producer spills.
    {"num_heads=16 head_dim=128 batch=16 seqlen=1024",  // 742, 768
     {64, 2, 1, 2, 1, 16},
     {64, 2, 1, 0, 1, 0}},
};

TEST(BwdChoice, OfTwoMeasuredConfigsTheModelPrefersTheFaster) {
  for (const MeasuredPair& pair : kPairs) {
    const std::vector<Candidate> all = candidates_of(pair.words);
    EXPECT_LT(estimate_of(all, pair.faster), estimate_of(all, pair.slower)) << pair.words;
  }
}

struct Shared {
  const char* words;
  int group_splits;
};
constexpr Shared kShared[] = {
    {"num_heads=71:1 head_dim=64 seqlen=345 causal", 36},
    {"num_heads=48:1 head_dim=128 seqlen=1238 causal", 24},
    {"num_heads=28:4 head_dim=128 batch=2 seqlen=1160 causal", 4},
    {"num_heads=32:8 head_dim=128 batch=2 seqlen=553 causal", 2},
    {"num_heads=32:2 head_dim=128 seqlen=8692 causal", 8},
    {"num_heads=64:4 head_dim=128 batch=2 seqlen=8976 causal", 4},
    {"num_heads=71:1 head_dim=64 batch=7 seqlen=6675 causal", 4},
    {"num_heads=32:8 head_dim=128 batch=16 seqlen=3205 causal", 1},
    {"num_heads=32:2 head_dim=128 batch=8 seqlen=6144 causal lengths=packed tokens=16384", 4},
    {"num_heads=24:8 head_dim=128 batch=13 seqlen=6144 causal lengths=packed tokens=20480", 1},
};

TEST(BwdChoice, AGroupsHeadsAreSharedByAsManyBlocksAsSearchesFound) {
  for (const Shared& each : kShared) {
    const std::string first = to_string(candidates_of(each.words).front().config);
    EXPECT_NE(first.find(fmt::format(" group_splits={} ", each.group_splits)), std::string::npos)
        << each.words << ": " << first;
  }
}

/// A long block would set its zeros at its end, and others wait: 775 us for 235.
TEST(BwdChoice, SetsNoZerosAheadWhereAMaskHasLists) {
  for (const char* mask : {"mask=\"q / 16 == k / 16 || k < 4\"", "blocks=64"}) {
    const auto all = candidates_of(std::string("num_heads=16 head_dim=64 batch=2 seqlen=4096 ") +
                                   mask);
    ASSERT_FALSE(all.empty());
    for (const Candidate& each : all)
      EXPECT_EQ(each.config.get("zeros_ahead"), 0) << to_string(each.config);
  }
}

}  // namespace
}  // namespace attnforge
