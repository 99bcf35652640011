// candidate_counts_test.cpp - the pruned search space of fwd_mma_sm80 is worth a search and small
// enough for one.
#include <gtest/gtest.h>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

const char* const kProblems[] = {
    "fwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal",
    "fwd bf16 batch=4 num_heads=16 seqlen=2048 head_dim=64",
    "fwd fp16 batch=1 num_heads=16:1 seqlen=8192 head_dim=256 causal",
    "fwd fp16 batch=8 num_heads=12 seqlen=512 head_dim=40",
    "fwd bf16 batch=2 num_heads=16 seqlen=4096 head_dim=72 causal lse",
    "fwd bf16 batch=1 num_heads=24 seqlen=4608 head_dim=96",
    "fwd bf16 batch=1 num_heads=16 seqlen=4096 head_dim=192:128 causal",
    "fwd fp16 batch=1 num_heads=8 seqlen=16384 head_dim=160 window_left=1024",
    "fwd bf16 batch=2 num_heads=32:4 seqlen=1024 head_dim=112 softcap=30",
    "fwd fp16 batch=1 num_heads=32:8 seqlen=256:4096 head_dim=128 causal",
};

class CandidateCounts : public testing::TestWithParam<const char*> {};

TEST_P(CandidateCounts, FwdMmaSm80HasBetween100And1000) {
  const Family* family = find_family("fwd_mma_sm80");
  ASSERT_NE(family, nullptr);
  for (const char* text : kProblems) {
    const std::size_t count = candidates(*family, parse_problem(text), typical_device(GetParam()))
                                  .size();
    EXPECT_GE(count, 100u) << text;
    EXPECT_LE(count, 1000u) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Archs, CandidateCounts, testing::Values("86", "89", "90a"),
                         [](const auto& info) { return std::string("sm") + info.param; });

}  // namespace
}  // namespace attnforge
