#include "tuner/patch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "generator/arch.h"
#include "reference/attention.h"
#include "reference/rope.h"

namespace attnforge {
namespace {

/// fp32 tensors in host memory, [batch, seqlen, heads, head_dim].
struct HostTensors {
  HostTensors(const Problem& p, unsigned seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    const auto make = [&](Tensor& tensor, std::vector<float>& values, std::int64_t seqlen,
                          std::int64_t heads, int width) {
      values.resize(static_cast<std::size_t>(p.batch * seqlen * heads * width));
      for (float& value : values) value = normal(random);
      tensor = {.data = values.data(),
                .stride_batch = seqlen * heads * width,
                .stride_row = heads * width,
                .stride_head = width};
    };
    make(tensors.q, q, p.seqlen_q, p.num_heads_q, p.head_dim);
    make(tensors.k, k, p.seqlen_kv, p.num_heads_kv, p.head_dim);
    make(tensors.v, v, p.seqlen_kv, p.num_heads_kv, p.head_dim_v);
    if (p.rope == Rope::kNone) return;
    tensors.rope_offset = least_rope_offset(p) + 3;
    tensors.rope_rows = tensors.rope_offset + p.seqlen_kv;
    tables = rope_tables(effective_rope_dim(p), tensors.rope_rows);
    tensors.rope_cos = tables.cos.data();
    tensors.rope_sin = tables.sin.data();
  }
  Tensors tensors;
  std::vector<float> q, k, v;
  RopeTables tables;
};

/// The patch's rows, computed in place and as a problem of their own.
void expect_same_rows(const Problem& problem, const Patch& patch, unsigned seed) {
  SCOPED_TRACE(to_string(problem));
  SCOPED_TRACE(::testing::Message() << "rows " << patch.row_begin << " to " << patch.row_end);
  const HostTensors host(problem, seed);
  std::vector<QueryRow> rows;
  for (std::int64_t b = patch.batch_begin; b < patch.batch_end; ++b) {
    for (std::int64_t h = 0; h < problem.num_heads_q; ++h) {
      for (std::int64_t r = patch.row_begin; r < patch.row_end; ++r) rows.push_back({b, h, r});
    }
  }
  const Reference expected = reference_attention(problem, host.tensors, rows, 1);
  const PatchProblem small = patch_problem(problem, patch);
  validate(small.problem);
  const Reference actual = reference_attention(
      small.problem, patch_tensors(problem, host.tensors, patch, small), 1);
  ASSERT_EQ(actual.o.size(), expected.o.size());
  for (std::size_t i = 0; i < expected.o.size(); ++i)
    ASSERT_NEAR(actual.o[i], expected.o[i], 1e-12);
  for (std::size_t i = 0; i < expected.lse.size(); ++i) {
    if (std::isinf(expected.lse[i])) {
      ASSERT_EQ(actual.lse[i], expected.lse[i]);
    } else {
      ASSERT_NEAR(actual.lse[i], expected.lse[i], 1e-12);
    }
  }
  ASSERT_EQ(visible_pairs(small.problem) * small.problem.num_heads_q * small.problem.batch > 0,
            std::any_of(expected.lse.begin(), expected.lse.end(),
                        [](double lse) { return std::isfinite(lse); }));
}

Problem random_problem(std::mt19937_64& random) {
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  Problem p;
  p.dtype_q = p.dtype_k = p.dtype_v = p.dtype_o = DType::kFp32;
  p.batch = draw(1, 3);
  p.num_heads_kv = draw(1, 2);
  p.num_heads_q = p.num_heads_kv * draw(1, 2);
  p.seqlen_q = draw(1, 40);
  p.seqlen_kv = draw(0, 40);
  p.head_dim = 8;
  p.head_dim_v = 16;
  p.lse = true;
  if (draw(0, 1)) p.window_left = draw(0, 20);
  if (draw(0, 1)) p.window_right = draw(0, 20);
  p.causal = p.window_right <= 0 && draw(0, 1);
  if (draw(0, 1)) p.rope = draw(0, 1) ? Rope::kHalf : Rope::kInterleaved;
  return p;
}

TEST(PatchProblem, HasTheSameRowsWhateverTheMask) {
  for (unsigned seed = 1; seed <= 400 && !::testing::Test::HasFatalFailure(); ++seed) {
    std::mt19937_64 random(seed);
    const Problem problem = random_problem(random);
    Patch patch;
    patch.batch_begin = static_cast<std::int64_t>(random() %
                                                  static_cast<std::uint64_t>(problem.batch));
    patch.batch_end = patch.batch_begin + 1;
    patch.row_begin = static_cast<std::int64_t>(random() %
                                                static_cast<std::uint64_t>(problem.seqlen_q));
    patch.row_end = patch.row_begin + 1 +
                    static_cast<std::int64_t>(
                        random() % static_cast<std::uint64_t>(problem.seqlen_q - patch.row_begin));
    expect_same_rows(problem, patch, seed);
  }
}

TEST(PatchProblem, WholeOutputKeepsAllSequences) {
  const Problem problem = parse_problem(
      "fwd fp32 batch=3 num_heads=2 seqlen=20:33 head_dim=8 causal lse");
  expect_same_rows(problem, {0, 3, 0, 20}, 1);
}

TEST(PatchProblem, KeysOutsideOfTheWindowAreLeftOff) {
  const Problem problem = parse_problem(
      "fwd fp32 num_heads=1 seqlen=100000 head_dim=8 causal window_left=128");
  const PatchProblem small = patch_problem(problem, {0, 1, 50000, 50008});
  EXPECT_EQ(small.kv_begin, 50000 - 128);
  EXPECT_EQ(small.problem.seqlen_kv, 128 + 8);
}

TEST(Patches, SmallProblemsAreComparedWhole) {
  const Problem problem = parse_problem(
      "fwd bf16 batch=2 num_heads=4 seqlen=333 head_dim=64 causal");
  EXPECT_EQ(patches(problem, typical_device("90a"), 1), (std::vector<Patch>{{0, 2, 0, 333}}));
}

TEST(Patches, LargeProblemsBySamplesWithinTheBudget) {
  const Problem problem = parse_problem(
      "fwd bf16 batch=4 num_heads=32:8 seqlen=8192 head_dim=128 causal");
  const std::vector<Patch> sampled = patches(problem, typical_device("90a"), 1);
  ASSERT_GE(sampled.size(), 8u);
  EXPECT_EQ(sampled[0], (Patch{0, 1, 0, 8}));
  EXPECT_EQ(sampled[1], (Patch{3, 4, 8184, 8192}));
  double work = 0;
  int edges = 0;
  for (const Patch& patch : sampled) {
    EXPECT_GE(patch.row_begin, 0);
    EXPECT_LE(patch.row_end, 8192);
    EXPECT_EQ(patch.row_end - patch.row_begin, 8);
    work += flops(patch_problem(problem, patch).problem);
    edges += patch.row_begin % 64 == 60;
  }
  EXPECT_LE(work, 60e9);
  EXPECT_GE(edges, 1);
  EXPECT_EQ(patches(problem, typical_device("90a"), 1), sampled) << "same seed, same patches";
  EXPECT_NE(patches(problem, typical_device("90a"), 2), sampled);
}

TEST(Patches, ManySequencesOfOneQuery) {
  const Problem problem = parse_problem(
      "fwd bf16 batch=1024 num_heads=32:8 seqlen=1:4096 head_dim=128");
  const std::vector<Patch> sampled = patches(problem, typical_device("90a"), 1);
  std::set<std::int64_t> sequences;
  for (const Patch& patch : sampled) sequences.insert(patch.batch_begin);
  EXPECT_GE(sequences.size(), 8u);
  EXPECT_EQ(sequences.count(0), 1u);
  EXPECT_EQ(sequences.count(1023), 1u);
}

TEST(Patches, HugeProblemsStillGetFour) {
  const Problem problem = parse_problem("fwd bf16 num_heads=128 seqlen=1048576 head_dim=256");
  EXPECT_EQ(patches(problem, typical_device("90a"), 1).size(), 4u);
}

TEST(Patches, EmptyOutputHasNone) {
  const Problem problem = parse_problem("fwd bf16 num_heads=2 seqlen=0:64 head_dim=64");
  EXPECT_TRUE(patches(problem, typical_device("90a"), 1).empty());
}

}  // namespace
}  // namespace attnforge
