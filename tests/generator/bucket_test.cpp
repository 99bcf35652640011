// bucket_test.cpp - laws of the grid of buckets, and of the hash of problems.
#include "generator/problem/bucket.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "tests/support/arbitrary_problem.h"

namespace attnforge {
namespace {

std::int64_t rounded_seqlen(std::int64_t seqlen) {
  return bucket({.seqlen_q = seqlen, .seqlen_kv = seqlen}).seqlen_q;
}

TEST(Bucket, TheGridOfLengths) {
  std::vector<std::int64_t> grid;
  for (std::int64_t seqlen = 0; seqlen <= 4096; ++seqlen) {
    const std::int64_t rounded = rounded_seqlen(seqlen);
    ASSERT_GE(rounded, seqlen);
    if (grid.empty() || grid.back() != rounded) grid.push_back(rounded);
  }
  EXPECT_EQ(grid,
            (std::vector<std::int64_t>{0,    1,    2,    4,    8,    16,   64,   128, 160, 192,
                                       224,  256,  320,  384,  448,  512,  640,  768, 896, 1024,
                                       1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096}));
}

TEST(Bucket, DecodingGoesThroughFewBuckets) {
  const auto keys = [](std::int64_t seqlen_q, std::int64_t seqlen_kv) {
    return bucket({.seqlen_q = seqlen_q, .seqlen_kv = seqlen_kv}).seqlen_kv;
  };
  for (const std::int64_t tokens : {1, 16}) {
    EXPECT_EQ(keys(tokens, 129), 256);
    EXPECT_EQ(keys(tokens, 600), 1024);
    EXPECT_EQ(keys(tokens, 1025), 1280);
  }
  EXPECT_EQ(keys(17, 129), 160);
}

TEST(Bucket, TheLongestLengthIsOnTheGrid) {
  EXPECT_EQ(rounded_seqlen(std::int64_t{1} << 27), std::int64_t{1} << 27);
}

TEST(Bucket, TokensAreRoundedByHowFullTheyMakeTheSequences) {
  const auto rounded = [](std::int64_t batch, std::int64_t seqlen, std::int64_t tokens) {
    return bucket({.batch = batch,
                   .seqlen_q = seqlen,
                   .seqlen_kv = seqlen,
                   .lengths = Lengths::kPacked,
                   .tokens_q = tokens,
                   .tokens_kv = tokens})
        .tokens_q;
  };
  EXPECT_EQ(rounded(16, 8192, 16384), 16384) << "one in eight";
  EXPECT_EQ(rounded(16, 8192, 12000), 16384);
  EXPECT_EQ(rounded(16, 8192, 16385), 32768);
  EXPECT_EQ(rounded(16, 8192, 16 * 8192), 0) << "full";
  EXPECT_EQ(rounded(13, 8000, 0), 0);
  EXPECT_EQ(rounded(13, 8000, 13 * 1000), 16384);
}

TEST(Bucket, BatchIsAPowerOfTwoOrOneAndAHalfOfIt) {
  const auto batch = [](std::int64_t n) { return bucket({.batch = n}).batch; };
  EXPECT_EQ(batch(0), 0);
  EXPECT_EQ(batch(1), 1);
  EXPECT_EQ(batch(2), 2);
  EXPECT_EQ(batch(3), 3);
  EXPECT_EQ(batch(4), 4);
  EXPECT_EQ(batch(5), 6);
  EXPECT_EQ(batch(7), 8);
  EXPECT_EQ(batch(64), 64);
  EXPECT_EQ(batch(65), 96);
  EXPECT_EQ(batch(97), 128);
}

TEST(Bucket, RunTimeValuesAreFixedAndTheRestIsKept) {
  const Problem p = parse_problem(
      "fwd fp16 batch=5 num_heads=12:4 seqlen=100:5000 head_dim=80:96 layout=bhsd window_left=77 "
      "window_right=5 softcap=12.5 lse softmax_scale=3 alignment=4");
  EXPECT_EQ(to_string(bucket(p)),
            "fwd fp16 batch=6 num_heads_q=12 num_heads_kv=4 seqlen_q=128 seqlen_kv=5120 "
            "head_dim=80 head_dim_v=96 window_left=77 window_right=5 softcap=30 lse "
            "alignment=4");
}

TEST(Bucket, EveryLayoutSharesAWinner) {
  const std::string text = "fwd bf16 batch=2 num_heads=8 seqlen=1024 head_dim=64";
  for (const char* layout : {" layout=bhsd", " layout=packed_qkv"})
    EXPECT_EQ(bucket(parse_problem(text + layout)), bucket(parse_problem(text))) << layout;
}

TEST(Bucket, DensityIsAPowerOfTwo) {
  const auto density = [](float x) {
    return bucket({.mask_block_q = 64, .mask_block_kv = 64, .density = x}).density;
  };
  EXPECT_EQ(density(0.41f), 0.5f);
  EXPECT_EQ(density(0.5f), 0.5f);
  EXPECT_EQ(density(0.2529f), 0.25f) << "a diagonal more is no other mask";
  EXPECT_EQ(density(0.7f), 0.5f);
  EXPECT_EQ(density(0.72f), 1.0f);
  EXPECT_EQ(density(1e-6f), 0x1p-19f) << "the least that is a density";
  EXPECT_EQ(density(1.0f), 1.0f);
  EXPECT_EQ(density(0.01f), 1.0f / 128);
  EXPECT_EQ(density(0.0f), 0.5f) << "unknown";
  EXPECT_EQ(bucket({}).density, 0.0f) << "without a mask";
}

TEST(Bucket, MasksOfAllSequencesAreThoseOfTheBucket) {
  const std::string text = "fwd batch=5 num_heads=4:2 seqlen=100 blocks=64 mask_heads=2 mask_bits ";
  EXPECT_EQ(bucket(parse_problem(text + "mask_batch=5")).mask_batch, 6);
  EXPECT_EQ(bucket(parse_problem(text)).mask_batch, 1);
}

TEST(Bucket, PartsOfAMergeAreAPowerOfTwo) {
  const auto parts = [](int n) {
    return bucket(parse_problem(fmt::format("merge bf16 parts={} num_heads=8 seqlen=4", n))).parts;
  };
  EXPECT_EQ(parts(1), 4) << "each number of parts that a warp takes alike";
  EXPECT_EQ(parts(5), 8);
  EXPECT_EQ(parts(9), 16);
  EXPECT_EQ(parts(32), 32);
}

TEST(Bucket, GiantsThatRoundingWouldMakeInvalidKeepTheirSizes) {
  const Problem p{.batch = 40000, .num_heads_q = 50000, .seqlen_q = 3, .softmax_scale = 2.0f};
  validate(p);
  const Problem b = bucket(p);
  EXPECT_NO_THROW(validate(b));
  EXPECT_EQ(b.batch, 40000);
  EXPECT_EQ(b.softmax_scale, 0.0f);
}

TEST(Bucket, OfABatchInvariantProblemIsThatOfEveryBatch) {
  const std::string
      text = "fwd num_heads=32:8 seqlen=1:8192 head_dim=128 lengths=used batch_invariant batch=";
  const Problem one = bucket(parse_problem(text + "1"));
  for (const char* batch : {"2", "5", "64", "4096"})
    EXPECT_EQ(bucket(parse_problem(text + batch)), one);
  EXPECT_EQ(bucket(parse_problem(text + "0")).batch, 0);
  const std::string packed = "fwd seqlen=100 head_dim=64 lengths=packed batch_invariant batch=";
  EXPECT_EQ(bucket(parse_problem(packed + "2 tokens=30")), bucket(parse_problem(packed + "64")));
}

RC_GTEST_PROP(Bucket, OfABucketIsItself, ()) {
  const Problem b = bucket(*test::arbitrary_problem());
  RC_ASSERT(bucket(b) == b);
}

RC_GTEST_PROP(Bucket, IsValidAndNotSmaller, ()) {
  const Problem p = *test::arbitrary_problem();
  const Problem b = bucket(p);
  validate(b);
  RC_ASSERT(p.batch_invariant || (b.batch >= p.batch && b.batch <= 2 * p.batch));
  RC_ASSERT(b.seqlen_q >= p.seqlen_q && b.seqlen_q <= std::max<std::int64_t>(16, 4 * p.seqlen_q));
  RC_ASSERT(b.seqlen_kv >= p.seqlen_kv);
}

RC_GTEST_PROP(Bucket, KeepsWhichSideIsLonger, ()) {
  const Problem p = *test::arbitrary_problem();
  const Problem b = bucket(p);
  if (p.seqlen_q == p.seqlen_kv) RC_ASSERT(b.seqlen_q == b.seqlen_kv);
  if (p.seqlen_q <= p.seqlen_kv) RC_ASSERT(b.seqlen_q <= b.seqlen_kv);
  if (p.seqlen_q >= p.seqlen_kv) RC_ASSERT(b.seqlen_q >= b.seqlen_kv);
}

RC_GTEST_PROP(Bucket, AsksForTheSameKernelText, ()) {
  const Problem p = *test::arbitrary_problem();
  const Problem b = bucket(p);
  Problem expected = p;  // all but what is a run-time argument
  expected.layout = Layout::kBshd;
  expected.batch = b.batch;
  expected.seqlen_q = b.seqlen_q;
  expected.seqlen_kv = b.seqlen_kv;
  expected.fp32_gradients = b.fp32_gradients;
  expected.tokens_q = b.tokens_q;
  expected.tokens_kv = b.tokens_kv;
  expected.softmax_scale = 0.0f;
  expected.softcap = p.softcap > 0 ? 30.0f : 0.0f;
  if (p.rope_dim == p.head_dim) expected.rope_dim = 0;  // as when it is not given
  expected.mask_batch = b.mask_batch;
  expected.density = b.density;
  RC_ASSERT((p.mask_batch == 1) == (b.mask_batch == 1));
  RC_ASSERT(b == expected);
}

TEST(ProblemHash, SeesEveryField) {
  const Problem base;
  std::vector<Problem> variants(1, base);
  const auto vary = [&](auto member, auto value) {
    variants.push_back(base);
    variants.back().*member = value;
  };
  vary(&Problem::dtype_q, DType::kFp16);
  vary(&Problem::dtype_k, DType::kFp16);
  vary(&Problem::dtype_v, DType::kFp16);
  vary(&Problem::dtype_o, DType::kFp16);
  vary(&Problem::op, static_cast<Op>(1));
  vary(&Problem::layout, Layout::kBhsd);
  vary(&Problem::causal, true);
  vary(&Problem::lse, true);
  vary(&Problem::tf32, true);
  vary(&Problem::alignment_bytes, 8);
  vary(&Problem::batch, 2);
  vary(&Problem::num_heads_q, 2);
  vary(&Problem::num_heads_kv, 2);
  vary(&Problem::seqlen_q, 2);
  vary(&Problem::seqlen_kv, 2);
  vary(&Problem::head_dim, 128);
  vary(&Problem::head_dim_v, 128);
  vary(&Problem::window_left, 2);
  vary(&Problem::window_right, 2);
  vary(&Problem::softcap, 2.0f);
  vary(&Problem::softmax_scale, 2.0f);
  vary(&Problem::rope, Rope::kHalf);
  vary(&Problem::rope_dim, 16);
  vary(&Problem::mask_block_q, 16);
  vary(&Problem::mask_block_kv, 16);
  vary(&Problem::mask_heads, 2);
  vary(&Problem::mask_batch, 2);
  vary(&Problem::mask_bits, true);
  vary(&Problem::sinks, true);
  vary(&Problem::page_size, 16);
  vary(&Problem::batch_invariant, true);
  vary(&Problem::density, 0.5f);
  std::unordered_set<std::size_t> hashes;
  for (const Problem& problem : variants) hashes.insert(ProblemHash{}(problem));
  EXPECT_EQ(hashes.size(), variants.size());
}

TEST(ProblemHash, EqualProblemsHashAlike) {
  const Problem zero{.softcap = 0.0f}, minus_zero{.softcap = -0.0f};
  ASSERT_EQ(zero, minus_zero);
  EXPECT_EQ(ProblemHash{}(zero), ProblemHash{}(minus_zero));
}

}  // namespace
}  // namespace attnforge
