// attention.cpp - attention as three operations in low precision, row by row.
#include "tests/support/plain/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "reference/half.h"
#include "reference/mask_rows.h"
#include "reference/parallel.h"
#include "reference/parts/rope.h"
#include "reference/parts/scales.h"
#include "reference/score.h"
#include "reference/sequences.h"
#include "reference/visible.h"
#include "tests/support/plain/product.h"
#include "tests/support/plain/score.h"

namespace attnforge {
namespace {

std::vector<float> load_row(DType dtype, const Tensor& tensor, std::int64_t batch,
                            std::int64_t head, std::int64_t row, int count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  const std::int64_t at = batch * tensor.stride_batch + head * tensor.stride_head +
                          row * tensor.stride_row;
  for (int i = 0; i < count; ++i)
    values[static_cast<std::size_t>(i)] = load_element(dtype, tensor.data, at + i);
  return values;
}

/// A row of k or v: of fewer bits, times its scales, in q's dtype.
std::vector<float> load_key_row(const Problem& problem, DType dtype, KvScale shared,
                                const Tensor& tensor, const ScaleTensor& scales, std::int64_t batch,
                                std::int64_t head, std::int64_t row, int count) {
  if (!is_low_bit(dtype)) return load_row(dtype, tensor, batch, head, row, count);
  std::vector<double> exact(static_cast<std::size_t>(count));
  const std::int64_t at = batch * tensor.stride_batch + head * tensor.stride_head +
                          row * tensor.stride_row;
  attnforge::load_row(problem, dtype, shared, tensor.data, at, scales, batch, row, head, count,
                      exact.data());
  std::vector<float> values;
  // Where q is of 8 bits, they are widened to o's dtype.
  const DType to = is_low_bit(problem.dtype_q) ? problem.dtype_o : problem.dtype_q;
  for (const double x : exact) values.push_back(round_to(to, static_cast<float>(x)));
  return values;
}

/// The keys that a row sees.
std::vector<std::int64_t> keys_of(const Problem& problem, const MaskRows& mask,
                                  const QueryRow& row) {
  const RowKeys visible{visible_keys(problem, row.query), mask.row(0, row.head, row.query)};
  std::vector<std::int64_t> keys;
  for (std::int64_t key = visible.range.first; key <= visible.range.last; ++key) {
    if (visible.mask.contains(key)) keys.push_back(key);
  }
  return keys;
}

/// Changes a row as the problem does, and rounds it to its dtype.
template <class Change>
void change_and_round(const Problem& problem, DType dtype, std::vector<float>& row,
                      const Change& change) {
  if (!changes_rows(problem)) return;
  std::vector<double> exact(row.begin(), row.end());
  change(exact.data());
  for (std::size_t d = 0; d < row.size(); ++d)
    row[d] = round_to(dtype, static_cast<float>(exact[d]));
}

/// Scores of one row, rounded after each operation as tensors of dtype_q would be.
std::vector<float> plain_scores(const Problem& problem, const Tensors& tensors, const QueryRow& row,
                                const std::vector<std::int64_t>& keys) {
  const DType dtype = is_low_bit(problem.dtype_q) ? problem.dtype_o : problem.dtype_q;
  const std::int64_t kv_head = row.head / (problem.num_heads_q / problem.num_heads_kv);
  ScaleTensor q_scale = tensors.q_scale;
  if (q_scale.data != nullptr && problem.kv_scale != KvScale::kToken) {
    q_scale.stride_head = 0;
    q_scale.data += kv_head * tensors.q_scale.stride_head;
  }
  std::vector<float> q = load_key_row(problem, problem.dtype_q, problem.kv_scale, tensors.q,
                                      q_scale, row.batch, row.head, row.query, problem.head_dim);
  change_and_round(problem, dtype, q,
                   [&](double* exact) { change_query(problem, tensors, row.query, exact); });
  const float scale = effective_softmax_scale(problem);
  std::vector<float> scores;
  for (const std::int64_t key : keys) {
    std::vector<float> k = load_key_row(problem, problem.dtype_k, problem.kv_scale, tensors.k,
                                        tensors.k_scale, row.batch, kv_head, key, problem.head_dim);
    change_and_round(problem, problem.dtype_k, k,
                     [&](double* exact) { change_key(problem, tensors, key, exact); });
    float dot = 0;
    for (std::size_t d = 0; d < q.size(); ++d)
      dot += product_input(problem, q[d]) * product_input(problem, k[d]);
    const float s = round_to(dtype, round_to(dtype, dot) * scale);
    scores.push_back(plain_score(problem, dtype, s).value);
  }
  return scores;
}

/// Softmax in fp32, its result rounded; to 8 bits before the division by the sum, of numbers whose
/// largest is no power of two: kernels find it late. `sink` is a score that has no value; -inf:
/// none.
void plain_softmax(std::vector<float>& scores, float sink, DType dtype) {
  float row_max = sink;
  for (const float s : scores) row_max = std::max(row_max, s);
  float sum = std::isinf(row_max) ? 0.0f : std::exp(sink - row_max);
  for (float& s : scores) sum += s = std::exp(s - row_max);
  constexpr float kRaise = 68;
  for (float& s : scores)
    s = is_low_bit(dtype) ? round_to(dtype, s * kRaise) / (kRaise * sum) : round_to(dtype, s / sum);
}

double row_error(const Problem& problem, const Tensors& tensors, const MaskRows& mask,
                 const QueryRow& row, const double* expected) {
  const std::vector<std::int64_t> keys = keys_of(problem, mask, row);
  std::vector<float> p = plain_scores(problem, tensors, row, keys);
  const DType of_weights = is_low_bit(problem.dtype_v) ? problem.dtype_q : problem.dtype_v;
  plain_softmax(p, sink_of(problem, tensors, row.head), of_weights);
  const std::int64_t kv_head = row.head / (problem.num_heads_q / problem.num_heads_kv);
  std::vector<float> o(static_cast<std::size_t>(problem.head_dim_v), 0.0f);
  for (std::size_t i = 0; i < p.size(); ++i) {
    const std::vector<float> v = load_key_row(problem, problem.dtype_v, scale_of_v(problem),
                                              tensors.v, tensors.v_scale, row.batch, kv_head,
                                              keys[i], problem.head_dim_v);
    for (std::size_t d = 0; d < o.size(); ++d)
      o[d] += product_input(problem, p[i]) * product_input(problem, v[d]);
  }
  double largest = 0;
  for (std::size_t d = 0; d < o.size(); ++d) {
    const double error = std::abs(round_to(problem.dtype_o, o[d]) - expected[d]);
    if (std::isfinite(error)) largest = std::max(largest, error);
  }
  return largest;
}

}  // namespace

double plain_low_precision_error(const Problem& problem, const Tensors& tensors,
                                 const Reference& expected, int threads) {
  std::vector<double> errors(expected.rows.size());
  std::map<std::int64_t, Sequence> sequences;
  for (const QueryRow& row : expected.rows) {
    if (sequences.count(row.batch) == 0)
      sequences.emplace(row.batch, sequence_of(problem, tensors, row.batch));
  }
  parallel_for(static_cast<std::int64_t>(errors.size()), threads, [&](std::int64_t index) {
    const auto i = static_cast<std::size_t>(index);
    const QueryRow& row = expected.rows[i];
    const Sequence& one = sequences.at(row.batch);
    errors[i] = row_error(one.problem, one.tensors, one.mask, {0, row.head, row.query},
                          &expected.o[i * static_cast<std::size_t>(expected.head_dim_v)]);
  });
  return errors.empty() ? 0.0 : *std::max_element(errors.begin(), errors.end());
}

}  // namespace attnforge
