// features_test.cpp - each optional part of a problem asks for its feature, and for no other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "generator/family.h"

namespace attnforge {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string_view> needs(const Problem& problem) {
  return feature_names(required_features(problem));
}

TEST(Features, APlainProblemNeedsNone) { EXPECT_THAT(needs({.seqlen_q = 9}), IsEmpty()); }

TEST(Features, EachPartNeedsItsOwn) {
  EXPECT_THAT(needs({.causal = true}), ElementsAre("causal"));
  EXPECT_THAT(needs({.window_left = 0}), ElementsAre("window"));
  EXPECT_THAT(needs({.window_right = 4}), ElementsAre("window"));
  EXPECT_THAT(needs({.softcap = 30.0f}), ElementsAre("softcap"));
  EXPECT_THAT(needs({.lse = true}), ElementsAre("lse"));
  EXPECT_THAT(needs({.lengths = Lengths::kUsed, .page_size = 16}), ElementsAre("lengths", "pages"));
  EXPECT_THAT(needs({.sinks = true}), ElementsAre("sinks"));
  EXPECT_THAT(needs({.num_heads_q = 8, .num_heads_kv = 2}), ElementsAre("gqa"));
  EXPECT_THAT(needs({.head_dim = 192, .head_dim_v = 128}), ElementsAre("unequal_head_dims"));
  EXPECT_THAT(needs({.alignment_bytes = 8}), ElementsAre("unaligned"));
  EXPECT_THAT(needs({.dtype_k = DType::kFp16}), ElementsAre("mixed_dtypes"));
  EXPECT_THAT(needs({.dtype_o = DType::kFp32}), ElementsAre("mixed_dtypes"));
  EXPECT_THAT(needs({.rope = Rope::kHalf}), ElementsAre("rope"));
  EXPECT_THAT(needs({.rope = Rope::kInterleaved, .rope_dim = 16}), ElementsAre("rope"));
  EXPECT_THAT(needs({.op = Op::kBackward}), IsEmpty()) << "a family says its op";
  EXPECT_THAT(needs({.op = Op::kBackward, .deterministic = true}), ElementsAre("deterministic"));
  EXPECT_THAT(needs({.op = Op::kBackward, .accumulate = true}), ElementsAre("accumulate"));
  EXPECT_THAT(needs({.op = Op::kBackward, .dlse = true}), ElementsAre("dlse"));
  EXPECT_THAT(needs({.op = Op::kBackward, .fp32_gradients = true}), ElementsAre("fp32_gradients"));
}

TEST(Features, AWindowThatOnlyRepeatsCausalIsNotAWindow) {
  EXPECT_THAT(needs({.causal = true, .window_right = 0}), ElementsAre("causal"));
  EXPECT_THAT(needs({.causal = true, .window_left = 7}), ElementsAre("causal", "window"));
  EXPECT_THAT(needs({.window_right = 0}), ElementsAre("window"));
}

}  // namespace
}  // namespace attnforge
