// problem_test.cpp - validation, windows, and counts of work against counting one by one.
#include "attnforge/problem.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/generator/expect_error.h"
#include "tests/support/arbitrary_problem.h"

namespace attnforge {
namespace {

using testing::HasSubstr;

struct Invalid {
  Problem problem;
  std::vector<std::string> said;
};

TEST(Problem, ValidationNamesTheFieldItsValueAndWhatIsAllowed) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<Invalid> table = {
      {{.op = static_cast<Op>(7)}, {"op=7", "fwd, bwd, merge or append"}},
      {{.deterministic = true}, {"deterministic is of bwd alone"}},
      {{.accumulate = true}, {"accumulate is of bwd alone"}},
      {{.dlse = true}, {"dlse is of bwd alone"}},
      {{.fp32_gradients = true}, {"gradients=fp32 is of bwd alone"}},
      {{.op = Op::kBackward, .lse = true}, {"lse does not go with bwd", "leave it out"}},
      {{.op = Op::kBackward, .rope = Rope::kHalf}, {"rope does not go with bwd", "rotate q and k"}},
      {{.op = Op::kBackward, .lengths = Lengths::kUsed, .page_size = 16},
       {"page_size does not go with bwd"}},
      {{.op = Op::kBackward, .batch_invariant = true}, {"batch_invariant does not go with bwd"}},
      {{.op = Op::kBackward, .alignment_bytes = 2, .fp32_gradients = true},
       {"gradients=fp32 needs alignment=2 to be 4 or more"}},
      {{.dtype_q = static_cast<DType>(9)}, {"q=9", "fp32, fp16, bf16 or e4m3"}},
      {{.dtype_k = static_cast<DType>(9)}, {"k=9"}},
      {{.dtype_v = static_cast<DType>(9)}, {"v=9"}},
      {{.dtype_o = static_cast<DType>(9)}, {"o=9"}},
      {{.layout = static_cast<Layout>(5)}, {"layout=5", "bshd, bhsd or packed_qkv"}},
      {{.batch = -1}, {"batch=-1", "from 0 to 1048576"}},
      {{.batch = (1 << 20) + 1}, {"batch=1048577"}},
      {{.num_heads_q = 0}, {"num_heads_q=0", "from 1 to 65535"}},
      {{.num_heads_q = 65536}, {"num_heads_q=65536"}},
      {{.num_heads_kv = 0}, {"num_heads_kv=0", "from 1 to 65535"}},
      {{.num_heads_q = 6, .num_heads_kv = 4}, {"num_heads_q=6", "multiple of num_heads_kv=4"}},
      {{.num_heads_q = 2, .num_heads_kv = 4}, {"num_heads_q=2", "num_heads_kv=4"}},
      {{.seqlen_q = -1}, {"seqlen_q=-1", "from 0 to 134217728"}},
      {{.seqlen_kv = (1 << 27) + 1}, {"seqlen_kv=134217729"}},
      {{.head_dim = 0}, {"head_dim=0", "multiple of 8 from 8 to 512"}},
      {{.head_dim = 100}, {"head_dim=100"}},
      {{.head_dim = 520}, {"head_dim=520"}},
      {{.head_dim_v = 4}, {"head_dim_v=4", "multiple of 8 from 8 to 512"}},
      {{.window_left = -2}, {"window_left=-2", "-1 (open)"}},
      {{.window_right = (std::int64_t{1} << 30) + 1}, {"window_right=1073741825", "2^30"}},
      {{.causal = true, .window_right = 1}, {"window_right=1", "causal"}},
      {{.tf32 = true}, {"tf32 needs fp32", "q=bf16"}},
      {{.dtype_q = DType::kFp32, .dtype_k = DType::kFp32, .dtype_v = DType::kBf16, .tf32 = true},
       {"tf32 needs fp32", "v=bf16"}},
      {{.alignment_bytes = 3}, {"alignment=3", "2, 4, 8 or 16"}},
      {{.alignment_bytes = 32}, {"alignment=32"}},
      {{.dtype_o = DType::kFp32, .alignment_bytes = 2}, {"alignment=2", "4 bytes", "o=fp32"}},
      {{.softcap = -1.0f}, {"softcap=-1", "1e-20"}},
      {{.softcap = nan}, {"softcap=nan"}},
      {{.softcap = 1e-30f}, {"softcap=1e-30"}},
      {{.softcap = 1e20f, .softmax_scale = 1e-20f},
       {"softcap=1e+20", "softmax_scale=1e-20", "1e+30"}},
      {{.softcap = 1e-20f, .softmax_scale = 1e20f}, {"softcap=1e-20", "1e-30"}},
      {{.softmax_scale = -0.5f}, {"softmax_scale=-0.5"}},
      {{.softmax_scale = infinity}, {"softmax_scale=inf"}},
      {{.rope = static_cast<Rope>(3)}, {"rope=3", "none, interleaved or half"}},
      {{.rope = Rope::kHalf, .rope_dim = 12}, {"rope_dim=12", "multiple of 8 up to head_dim"}},
      {{.head_dim = 64, .rope = Rope::kHalf, .rope_dim = 72}, {"rope_dim=72", "head_dim=64"}},
      {{.rope_dim = 16}, {"rope_dim=16", "rope=interleaved or rope=half"}},
      {{.layout = Layout::kPackedQkv, .seqlen_q = 4, .seqlen_kv = 5},
       {"packed_qkv", "seqlen_q=4", "seqlen_kv=5"}},
      {{.layout = Layout::kPackedQkv, .head_dim = 64, .head_dim_v = 32},
       {"packed_qkv", "head_dim=64", "head_dim_v=32"}},
      {{.dtype_k = DType::kFp16, .layout = Layout::kPackedQkv}, {"packed_qkv", "k=fp16"}},
      {{.batch = 1 << 20, .num_heads_q = 4096},
       {"batch=1048576", "num_heads_q=4096", "2147483647"}},
      {{.batch = 1 << 15, .num_heads_q = 1 << 15, .seqlen_q = 1 << 20},
       {"2^48", "seqlen_q=1048576"}},
  };
  for (const Invalid& row : table) {
    SCOPED_TRACE(row.said.front());
    const std::string message = error_message(ErrorCode::kInvalidProblem,
                                              [&] { validate(row.problem); });
    for (const std::string& said : row.said) EXPECT_THAT(message, HasSubstr(said));
  }
}

TEST(Problem, LimitsThemselvesAreAllowed) {
  EXPECT_NO_THROW(validate({.batch = 0, .seqlen_q = 0, .seqlen_kv = 0}));
  EXPECT_NO_THROW(validate({.batch = 1 << 20, .head_dim = 8, .head_dim_v = 512}));
  EXPECT_NO_THROW(validate({.num_heads_q = 65535, .num_heads_kv = 65535}));
  EXPECT_NO_THROW(validate({.seqlen_q = 1 << 27, .seqlen_kv = 1 << 27}));
  EXPECT_NO_THROW(validate({.causal = true, .window_left = 0, .window_right = 0}));
  EXPECT_NO_THROW(validate({.alignment_bytes = 2, .softcap = 1e15f, .softmax_scale = 1e-15f}));
}

TEST(Problem, RopeRotatesAllElementsUnlessToldHowMany) {
  EXPECT_EQ(effective_rope_dim({.head_dim = 96}), 0);
  EXPECT_EQ(effective_rope_dim({.head_dim = 96, .rope = Rope::kHalf}), 96);
  EXPECT_EQ(effective_rope_dim({.head_dim = 96, .rope = Rope::kHalf, .rope_dim = 32}), 32);
}

TEST(Problem, MoreQueriesThanKeysNeedAnOffsetOfTheRope) {
  EXPECT_EQ(least_rope_offset({.seqlen_q = 3, .seqlen_kv = 10}), 0);
  EXPECT_EQ(least_rope_offset({.seqlen_q = 10, .seqlen_kv = 3}), 7);
}

RC_GTEST_PROP(Problem, ArbitraryProblemsAreValid, ()) { validate(*test::arbitrary_problem()); }

/// The definition in problem.h, word for word.
std::int64_t count_visible(const Problem& p) {
  std::int64_t pairs = 0;
  for (std::int64_t row = 0; row < p.seqlen_q; ++row) {
    const std::int64_t position = row + p.seqlen_kv - p.seqlen_q;
    for (std::int64_t key = 0; key < p.seqlen_kv; ++key) {
      const bool left = p.window_left < 0 || key >= position - p.window_left;
      const std::int64_t right_window = p.causal ? 0 : p.window_right;
      const bool right = right_window < 0 || key <= position + right_window;
      pairs += left && right ? 1 : 0;
    }
  }
  return pairs;
}

RC_GTEST_PROP(VisiblePairs, EqualCountingOneByOne, ()) {
  Problem p;
  p.seqlen_q = *rc::gen::inRange(0, 24);
  p.seqlen_kv = *rc::gen::inRange(0, 24);
  p.window_left = *rc::gen::inRange(-1, 30);
  p.causal = *rc::gen::arbitrary<bool>();
  p.window_right = p.causal ? -1 : *rc::gen::inRange(-1, 30);
  RC_ASSERT(visible_pairs(p) == count_visible(p));
}

TEST(VisiblePairs, EqualCountingForEverySmallCase) {
  Problem p;
  for (p.seqlen_q = 0; p.seqlen_q <= 6; ++p.seqlen_q) {
    for (p.seqlen_kv = 0; p.seqlen_kv <= 6; ++p.seqlen_kv) {
      for (p.window_left = -1; p.window_left <= 8; ++p.window_left) {
        for (p.window_right = -1; p.window_right <= 8; ++p.window_right) {
          ASSERT_EQ(visible_pairs(p), count_visible(p)) << to_string(p);
        }
      }
    }
  }
}

TEST(VisiblePairs, OfATextsWindowsMayMissTheQueryItself) {
  for (int left = -9; left <= 9; ++left) {
    for (int right = -9; right <= 9; ++right) {
      const Problem p = parse_problem(
          "fwd seqlen=6:8 mask=\"k - q <= " + std::to_string(right + 2) +
          " && q - k <= " + std::to_string(left - 2) + "\"");
      std::int64_t pairs = 0;
      for (int q = 0; q < 6; ++q)
        for (int k = 0; k < 8; ++k) pairs += k - q - 2 <= right && q + 2 - k <= left ? 1 : 0;
      EXPECT_EQ(visible_pairs(p), pairs) << to_string(p);
    }
  }
}

TEST(VisiblePairs, KnownCounts) {
  EXPECT_EQ(visible_pairs({.seqlen_q = 3, .seqlen_kv = 5}), 15);
  EXPECT_EQ(visible_pairs({.causal = true, .seqlen_q = 4096, .seqlen_kv = 4096}), 4096 * 4097 / 2);
  EXPECT_EQ(visible_pairs({.causal = true, .seqlen_q = 1, .seqlen_kv = 100}), 100);
  EXPECT_EQ(visible_pairs({.causal = true, .seqlen_q = 100, .seqlen_kv = 1}), 1);
  const std::int64_t most = std::int64_t{1} << 27;
  EXPECT_EQ(visible_pairs({.causal = true, .seqlen_q = most, .seqlen_kv = most}),
            most * (most + 1) / 2);
}

TEST(Problem, CausalIsAWindowThatEndsAtTheQuery) {
  const Window causal = effective_window({.causal = true, .window_left = 5});
  EXPECT_EQ(causal.left, 5);
  EXPECT_EQ(causal.right, 0);
  const Window open = effective_window({.window_right = 3});
  EXPECT_EQ(open.left, -1);
  EXPECT_EQ(open.right, 3);
}

TEST(Problem, SoftmaxScaleDefaultsToOneOverRootOfHeadDim) {
  EXPECT_EQ(effective_softmax_scale({.head_dim = 64}), 0.125f);
  EXPECT_EQ(effective_softmax_scale({.head_dim = 128}), static_cast<float>(1 / std::sqrt(128.0)));
  EXPECT_EQ(effective_softmax_scale({.head_dim = 64, .softmax_scale = 2.0f}), 2.0f);
}

TEST(Problem, WorkIsCountedOverHeadsOfQueries) {
  const Problem p{.lse = true,
                  .batch = 2,
                  .num_heads_q = 6,
                  .num_heads_kv = 3,
                  .seqlen_q = 5,
                  .seqlen_kv = 7,
                  .head_dim = 16,
                  .head_dim_v = 8};
  EXPECT_EQ(flops(p), 2.0 * 35 * (16 + 8) * 12);
  const double q = 2 * 6 * 5 * 16, k = 2 * 3 * 7 * 16, v = 2 * 3 * 7 * 8, o = 2 * 6 * 5 * 8;
  EXPECT_EQ(minimum_bytes(p), 2 * (q + k + v + o) + 4 * 2 * 6 * 5);
  Problem without = p;
  without.lse = false;
  without.dtype_o = DType::kFp32;
  EXPECT_EQ(minimum_bytes(without), 2 * (q + k + v) + 4 * o);
  without.rope = Rope::kHalf;
  EXPECT_EQ(minimum_bytes(without), 2 * (q + k + v) + 4 * o + 2 * 4 * 7 * 8)
      << "rows of the tables";
}

TEST(Problem, WorkOfABlockMaskIsWhatItsDensitySays) {
  Problem p = parse_problem("fwd bf16 batch=2 num_heads=4 seqlen=1000:2000 head_dim=64 causal");
  const double dense = flops(p), bytes = minimum_bytes(p);
  EXPECT_EQ(effective_density(p), 1.0);
  EXPECT_EQ(mask_blocks(p).q, 0);
  p.mask_block_q = 128;
  p.mask_block_kv = 64;
  EXPECT_EQ(effective_density(p), 0.5) << "unknown";
  EXPECT_NEAR(flops(p), dense / 2, dense * 1e-6);
  p.density = 0.25f;
  EXPECT_NEAR(flops(p), dense / 4, dense * 1e-6);
  EXPECT_EQ(mask_blocks(p).q, 8);
  EXPECT_EQ(mask_blocks(p).kv, 32);
  EXPECT_EQ(minimum_bytes(p), bytes + 4 * 8 * (1 + 32 * 0.25));
  p.mask_heads = 4;
  p.mask_batch = 2;
  EXPECT_EQ(minimum_bytes(p), bytes + 8 * 4 * 8 * (1 + 32 * 0.25));
}

TEST(Problem, DtypesAndLayoutsHaveNamesAndSizes) {
  EXPECT_EQ(to_string(DType::kFp32), "fp32");
  EXPECT_EQ(to_string(DType::kFp16), "fp16");
  EXPECT_EQ(to_string(DType::kBf16), "bf16");
  EXPECT_EQ(to_string(Layout::kBshd), "bshd");
  EXPECT_EQ(to_string(Layout::kBhsd), "bhsd");
  EXPECT_EQ(to_string(Layout::kPackedQkv), "packed_qkv");
}

TEST(Problem, BackwardHasFiveProductsAndMovesGradientsToo) {
  const Problem p = parse_problem(
      "bwd bf16 batch=2 num_heads=6:3 seqlen=5:7 head_dim=16:8 accumulate dlse");
  const Problem forward = forward_of(p);
  EXPECT_EQ(to_string(forward),
            "fwd bf16 batch=2 num_heads_q=6 num_heads_kv=3 seqlen_q=5 seqlen_kv=7 head_dim=16 "
            "head_dim_v=8 lse");
  EXPECT_EQ(flops(p), 2.5 * flops(forward));
  const double q = 2 * 6 * 5 * 16, k = 2 * 3 * 7 * 16, v = 2 * 3 * 7 * 8, o = 2 * 6 * 5 * 8;
  const double rows = 2 * 6 * 5;
  EXPECT_EQ(minimum_bytes(p), 2 * (q + k + v + 2 * o) + 8 * rows + 2 * 2 * (q + k + v));
  Problem wide = p;
  wide.fp32_gradients = true;
  wide.accumulate = wide.dlse = false;
  EXPECT_EQ(minimum_bytes(wide), 2 * (q + k + v + 2 * o) + 4 * rows + 4 * (q + k + v));
}

}  // namespace
}  // namespace attnforge
