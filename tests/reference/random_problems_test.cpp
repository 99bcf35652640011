// random_problems_test.cpp - the oracle against attention written down a second time, one number
// after another, over problems that nobody chose. Both are fp64, so that only the order of sums may
// differ; the yardstick of low precision must mean the same problem.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "reference/attention.h"
#include "reference/half.h"
#include "reference/sequences.h"
#include "tests/support/arbitrary_problem.h"
#include "tests/support/host_problem.h"
#include "tests/support/plain/attention.h"

namespace attnforge {
namespace {

/// Small, so that a hundred of them take a second.
constexpr test::MostSizes kMost = {
    .batch_bits = 1, .heads_bits = 1, .seqlen_bits = 5, .gradients = false};

std::vector<double> row_of(DType dtype, const Tensor& tensor, std::int64_t batch, std::int64_t head,
                           std::int64_t row, int columns) {
  std::vector<double> x;
  for (int d = 0; d < columns; ++d)
    x.push_back(load_element(
        dtype, tensor.data,
        batch * tensor.stride_batch + head * tensor.stride_head + row * tensor.stride_row + d));
  return x;
}

void rotate_by_definition(const Problem& p, const Tensors& t, std::int64_t table_row,
                          std::vector<double>& x) {
  if (p.rope == Rope::kNone) return;
  const int dim = p.rope_dim == 0 ? p.head_dim : p.rope_dim;
  for (int i = 0; i < dim / 2; ++i) {
    const double cos = t.rope.cos[table_row * (dim / 2) + i];
    const double sin = t.rope.sin[table_row * (dim / 2) + i];
    double& first = x[p.rope == Rope::kHalf ? i : 2 * i];
    double& second = x[p.rope == Rope::kHalf ? i + dim / 2 : 2 * i + 1];
    const double rotated = first * cos - second * sin;
    second = second * cos + first * sin;
    first = rotated;
  }
}

bool blocks_let_see(const Problem& p, const BlockMaskRef& mask, const QueryRow& at,
                    std::int64_t key) {
  if (p.mask_block_q == 0) return true;
  const std::int64_t q_blocks = (p.seqlen_q + p.mask_block_q - 1) / p.mask_block_q,
                     head = p.mask_heads == 1 ? 0 : at.head / (p.num_heads_q / p.mask_heads),
                     batch = p.mask_batch == 1 ? 0 : at.batch,
                     row = (batch * p.mask_heads + head) * q_blocks + at.query / p.mask_block_q;
  for (int entry = mask.row_begin[row]; entry < mask.row_begin[row + 1]; ++entry) {
    if (mask.columns[entry] / 2 != key / p.mask_block_kv) continue;
    const bool partial = mask.columns[entry] % 2 == 1;
    if (!partial || !p.mask_bits || mask.bit_blocks[entry] == -1) return true;
    const std::int64_t words = p.mask_block_kv == 16 ? 1 : p.mask_block_kv / 32;
    const std::int64_t in_row = key % p.mask_block_kv;
    const std::int64_t word = (std::int64_t{mask.bit_blocks[entry]} * p.mask_block_q +
                               at.query % p.mask_block_q) *
                                  words +
                              in_row / 32;
    return (mask.bits[word] >> (in_row % 32)) % 2 == 1;
  }
  return false;
}

/// Numbers of 8 or 4 bits as values.
void scale_by_definition(const Problem& p, DType dtype, KvScale shared, const ScaleTensor& scales,
                         std::int64_t batch, std::int64_t head, std::int64_t key,
                         std::vector<double>& row) {
  if (!is_low_bit(dtype) || p.kv_scale == KvScale::kNone) return;
  const std::int64_t of_row = shared < KvScale::kToken ? 0 : key * scales.stride_row;
  const float* const first = scales.data + batch * scales.stride_batch + of_row +
                             head * scales.stride_head;
  const auto group = static_cast<std::size_t>(scale_group(p));
  for (std::size_t d = 0; d < row.size(); ++d) {
    const std::size_t at = group == 0 ? 0 : d / group;
    row[d] = p.kv_zero ? row[d] * first[2 * at] + first[2 * at + 1] : row[d] * first[at];
  }
}

/// One row of o, and its lse after it, from the words of attnforge/problem.h.
std::vector<double> by_definition(const Problem& whole, const Tensors& tensors, QueryRow at) {
  const Sequence sequence = sequence_of(whole, tensors, at.batch);
  const Problem& p = sequence.problem;
  const Tensors& t = sequence.tensors;
  const std::int64_t batch = std::exchange(at.batch, 0);
  const std::int64_t position = at.query + p.seqlen_kv - p.seqlen_q;
  const std::int64_t kv_head = at.head / (p.num_heads_q / p.num_heads_kv);
  const double scale = effective_softmax_scale(p);
  std::vector<double> q = row_of(p.dtype_q, t.q, at.batch, at.head, at.query, p.head_dim);
  scale_by_definition(p, p.dtype_q, p.kv_scale, t.q_scale, at.batch,
                      p.kv_scale == KvScale::kToken ? at.head : kv_head, at.query, q);
  rotate_by_definition(p, t, t.rope.offset + position, q);

  std::vector<std::int64_t> keys;
  std::vector<double> scores;
  double most = -std::numeric_limits<double>::infinity();
  for (std::int64_t key = 0; key < p.seqlen_kv; ++key) {
    if (p.causal && key > position) continue;
    if (p.window_left >= 0 && key < position - p.window_left) continue;
    if (p.window_right >= 0 && key > position + p.window_right) continue;
    if (!blocks_let_see(whole, tensors.block_mask, {batch, at.head, at.query}, key)) continue;
    std::vector<double> k = row_of(p.dtype_k, t.k, at.batch, kv_head, key, p.head_dim);
    scale_by_definition(p, p.dtype_k, p.kv_scale, t.k_scale, at.batch, kv_head, key, k);
    rotate_by_definition(p, t, t.rope.offset + key, k);
    double score = 0;
    for (std::size_t d = 0; d < q.size(); ++d) score += q[d] * k[d];
    score *= scale;
    if (p.softcap != 0) score = p.softcap * std::tanh(score / p.softcap);
    keys.push_back(key);
    scores.push_back(score);
    most = std::max(most, score);
  }
  constexpr std::int64_t kNoKey = -1;  // a score without a value
  if (p.sinks && std::isfinite(t.sinks[at.head])) {
    keys.push_back(kNoKey);
    scores.push_back(t.sinks[at.head]);
    most = std::max(most, scores.back());
  }

  std::vector<double> result(static_cast<std::size_t>(p.head_dim_v) + 1, 0.0);
  double sum = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const double weight = std::exp(scores[i] - most);
    sum += weight;
    if (keys[i] == kNoKey) continue;
    std::vector<double> v = row_of(p.dtype_v, t.v, at.batch, kv_head, keys[i], p.head_dim_v);
    scale_by_definition(p, p.dtype_v, scale_of_v(p), t.v_scale, at.batch, kv_head, keys[i], v);
    for (std::size_t d = 0; d < v.size(); ++d) result[d] += weight * v[d];
  }
  for (double& x : result) x = keys.empty() ? 0.0 : x / sum;
  result.back() = keys.empty() ? most : most + std::log(sum);
  return result;
}

RC_GTEST_PROP(RandomProblems, TheOracleIsAttentionByItsDefinition, ()) {
  const Problem problem = *test::arbitrary_problem(kMost);
  test::HostProblem host = test::make_host_problem(problem, 1);
  const Tensors tensors = host.tensors();
  const Reference oracle = reference_attention(problem, tensors, 1);
  RC_ASSERT(oracle.rows == all_rows(sequences_of(problem, tensors)));
  for (std::size_t i = 0; i < oracle.rows.size(); ++i) {
    const std::vector<double> row = by_definition(problem, tensors, oracle.rows[i]);
    // Of sums of products in fp64 in another order.
    const double error = 1e-12 * (1 + oracle.score_magnitude[i]) * (1 + oracle.max_abs_v);
    for (std::size_t d = 0; d + 1 < row.size(); ++d)
      RC_ASSERT(std::abs(oracle.o[i * (row.size() - 1) + d] - row[d]) <= error);
    RC_ASSERT(oracle.lse[i] == row.back() || std::abs(oracle.lse[i] - row.back()) <= error);
  }
}

RC_GTEST_PROP(RandomProblems, TheYardstickIsOffByRoundingsAlone, ()) {
  const Problem problem = *test::arbitrary_problem(kMost);
  test::HostProblem host = test::make_host_problem(problem, 1);
  const Tensors tensors = host.tensors();
  const Reference oracle = reference_attention(problem, tensors, 1);
  double roundoff = problem.tf32 ? std::ldexp(1.0, -11) : 0.0;
  for (const DType dtype : {problem.dtype_q, problem.dtype_k, problem.dtype_v, problem.dtype_o})
    roundoff = std::max(roundoff, unit_roundoff(dtype));
  double scores = 1;
  for (const double magnitude : oracle.score_magnitude) scores = std::max(scores, magnitude);
  // A score is rounded a few times, and a weight is off by as much as its score.
  RC_ASSERT(plain_low_precision_error(problem, tensors, oracle, 1) <=
            16 * roundoff * scores * (1 + oracle.max_abs_v));
}

}  // namespace
}  // namespace attnforge
