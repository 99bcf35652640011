// low_bit_choice_test.cpp - the model of fwd_mma_sm80 over caches of 8 and 4 bits beside what an
// H200 measured: of two configs of a decode step it prefers the faster one.
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
  int num_warps, block_n, step_n, stages, q_in_regs, blocks_per_sm, num_splits;
};

std::string text_of(const Choice& c) {
  return fmt::format(
      "fwd_mma_sm80 block_m=8 num_warps={} block_n={} step_n={} stages={} q_in_regs={} "
      "blocks_per_sm={} pack_gqa=4 head_group_mb=0 head_dim_warps=1 pad_head_dim=0 num_splits={}",
      c.num_warps, c.block_n, c.step_n, c.stages, c.q_in_regs, c.blocks_per_sm, c.num_splits);
}

struct MeasuredPair {
  const char* words;
  Choice faster, slower;
};
constexpr MeasuredPair kPairs[] = {
    // 1024 blocks: 8 an SM are one round, of 6 a second one that is nearly empty.
    {"k=int8 v=int8 kv_scale=token batch=128 seqlen_kv=4096",  // 261, 285 us
     {2, 32, 16, 2, 0, 4, 1},
     {2, 64, 32, 2, 0, 4, 1}},
    {"k=e4m3 v=e4m3 kv_scale=tensor batch=128 seqlen_kv=4096",  // 254, 275
     {2, 32, 16, 2, 0, 4, 1},
     {2, 64, 32, 2, 0, 4, 1}},
    // A tile of 32 keys ahead is too little on its way where an SM has four blocks.
    {"k=int8 v=int8 kv_scale=token batch=64 seqlen_kv=8192 lengths=used page_size=16",  // 271, 306
     {2, 64, 32, 2, 1, 4, 1},
     {2, 32, 16, 2, 0, 4, 1}},
    // Two tiles of 32 keys ahead crowd memory more than one of 64.
    {"k=int4 v=int4 kv_scale=token batch=128 seqlen_kv=4096",  // 153, 181
     {2, 64, 32, 2, 1, 4, 1},
     {2, 32, 16, 3, 1, 4, 1}},
    // What a warp does of 64 keys takes longer than they come: more blocks do more at once.
    {"k=int8 v=int8 kv_scale=token batch=8 seqlen_kv=8192",  // 49, 53
     {2, 64, 32, 2, 0, 4, 8},
     {2, 128, 64, 2, 0, 3, 2}},
    {"k=int4 v=int4 kv_scale=group64 batch=8 seqlen_kv=8192",  // 38, 43
     {2, 64, 32, 3, 1, 4, 8},
     {4, 256, 64, 2, 1, 2, 2}},
    {"k=int4 v=int4 kv_scale=group64 seqlen_kv=65536",  // 38, 43
     {2, 64, 32, 2, 1, 4, 64},
     {4, 256, 64, 2, 1, 2, 16}},
    // Of sequences that say their lengths, equal ones: where 1024 blocks are one round of 8 an SM
    // they have no splits; of 6 two are not enough for a last round that is full.
    {"k=int8 v=int8 kv_scale=token batch=128 seqlen_kv=4096 lengths=used page_size=16",
     {2, 32, 16, 2, 1, 4, 4},  // 271, 289
     {2, 64, 32, 2, 1, 4, 2}},
    {"k=e4m3 v=e4m3 kv_scale=tensor batch=128 seqlen_kv=4096 lengths=used page_size=16",
     {2, 32, 16, 3, 0, 4, 4},  // 270, 307
     {2, 64, 32, 2, 1, 4, 2}},
    // ptxas is held to the registers of 8 blocks: left alone it took one more, and 206 us.
    {"k=int4 v=int4 kv_scale=group64 batch=128 seqlen_kv=4096 lengths=used page_size=16",
     {2, 64, 32, 2, 0, 4, 4},  // 172, 206
     {2, 128, 64, 2, 1, 4, 4}},
    // Blocks of a grid that could have more find SMs unevenly.
    {"k=int4 v=int4 kv_scale=group64 batch=64 seqlen_kv=8192 lengths=used page_size=16",
     {2, 128, 64, 2, 1, 4, 1},  // 169, 219
     {2, 128, 64, 2, 1, 4, 4}},
};

/// Whatever the order of heads, which does not matter here.
std::string text_without_order(Config config) {
  for (auto& [name, value] : config.fields)
    if (name == "head_group_mb") value = 0;
  return to_string(config);
}

TEST(LowBitChoice, OfTwoMeasuredConfigsTheModelPrefersTheFaster) {
  for (const MeasuredPair& pair : kPairs) {
    const Problem problem = bucket(parse_problem(
        fmt::format("fwd bf16 num_heads=32:8 seqlen_q=1 head_dim=128 {}", pair.words)));
    const std::vector<Candidate> all = candidates(*find_family("fwd_mma_sm80"), problem,
                                                  typical_device("90a"));
    const auto estimate_of = [&](const Choice& choice) {
      const auto found = std::find_if(all.begin(), all.end(), [&](const Candidate& each) {
        return text_without_order(each.config) == text_of(choice);
      });
      EXPECT_NE(found, all.end()) << text_of(choice);
      return found == all.end() ? 0 : found->estimate_us;
    };
    EXPECT_LT(estimate_of(pair.faster), estimate_of(pair.slower)) << pair.words;
  }
}

}  // namespace
}  // namespace attnforge
