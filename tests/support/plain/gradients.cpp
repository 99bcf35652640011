// gradients.cpp - backward as operations on tensors in low precision, head by head.
#include "tests/support/plain/gradients.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "reference/dot.h"
#include "reference/half.h"
#include "reference/mask_rows.h"
#include "reference/parallel.h"
#include "reference/score.h"
#include "reference/sequences.h"
#include "reference/visible.h"
#include "tests/support/plain/product.h"
#include "tests/support/plain/score.h"

namespace attnforge {
namespace {

/// Rows of one head.
struct PlainRows {
  int columns = 0;
  std::vector<float> values{};  // [rows][columns]
  const float* row(std::int64_t at) const {
    return &values[static_cast<std::size_t>(at) * static_cast<std::size_t>(columns)];
  }
};

/// The rows of a tensor, as inputs of a product.
PlainRows plain_rows(const Problem& problem, DType dtype, const Tensor& tensor, std::int64_t head,
                     std::int64_t rows, int columns) {
  PlainRows loaded{columns};
  loaded.values.reserve(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns));
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t at = head * tensor.stride_head + row * tensor.stride_row;
    for (int d = 0; d < columns; ++d)
      loaded.values.push_back(product_input(problem, load_element(dtype, tensor.data, at + d)));
  }
  return loaded;
}

/// That of tensors between inputs and gradients: the least precise of the inputs'.
DType dtype_between(const Problem& problem) {
  DType coarsest = problem.dtype_q;
  for (const DType dtype : {problem.dtype_k, problem.dtype_v, problem.dtype_o})
    if (unit_roundoff(dtype) > unit_roundoff(coarsest)) coarsest = dtype;
  return coarsest;
}

/// One query head of one sequence: p and ds of all pairs, as tensors would hold them.
class PlainHead {
 public:
  PlainHead(const Sequence& sequence, const CodeFunctions& code, std::int64_t batch,
            std::int64_t head, int threads)
      : sequence_(sequence), p_(sequence.problem), code_(code), batch_(batch), head_(head) {
    const Tensors& t = sequence.tensors;
    const std::int64_t kv_head = head / (p_.num_heads_q / p_.num_heads_kv);
    q_ = plain_rows(p_, p_.dtype_q, t.q, head, p_.seqlen_q, p_.head_dim);
    k_ = plain_rows(p_, p_.dtype_k, t.k, kv_head, p_.seqlen_kv, p_.head_dim);
    v_ = plain_rows(p_, p_.dtype_v, t.v, kv_head, p_.seqlen_kv, p_.head_dim_v);
    dout_ = plain_rows(p_, p_.dtype_o, t.gradients.dout, head, p_.seqlen_q, p_.head_dim_v);
    const auto pairs = static_cast<std::size_t>(p_.seqlen_q * p_.seqlen_kv);
    probabilities_.assign(pairs, 0.0f), ds_.assign(pairs, 0.0f), seen_.assign(pairs, 0);
    parallel_for(p_.seqlen_q, threads, [&](std::int64_t query) { fill_row(query); });
  }

  std::vector<float> dq(std::int64_t query) const {
    std::vector<float> sum(static_cast<std::size_t>(p_.head_dim), 0.0f);
    for (std::int64_t key = 0; key < p_.seqlen_kv; ++key) {
      if (seen_[at(query, key)] == 0) continue;
      add_multiple(product_input(p_, ds_[at(query, key)]), k_.row(key), p_.head_dim, sum.data());
    }
    return sum;
  }
  std::vector<float> dk(std::int64_t key) const { return of_key(key, ds_, q_, p_.dtype_k); }
  std::vector<float> dv(std::int64_t key) const {
    return of_key(key, probabilities_, dout_, p_.dtype_v);
  }

 private:
  std::size_t at(std::int64_t query, std::int64_t key) const {
    return static_cast<std::size_t>(query * p_.seqlen_kv + key);
  }

  /// Rounded, as the tensor of one query head.
  std::vector<float> of_key(std::int64_t key, const std::vector<float>& weights,
                            const PlainRows& rows, DType dtype) const {
    std::vector<float> sum(static_cast<std::size_t>(rows.columns), 0.0f);
    for (std::int64_t query = 0; query < p_.seqlen_q; ++query) {
      if (seen_[at(query, key)] == 0) continue;
      add_multiple(product_input(p_, weights[at(query, key)]), rows.row(query), rows.columns,
                   sum.data());
    }
    for (float& x : sum) x = round_to(dtype, x);
    return sum;
  }

  /// A score and its slope: of the score by what q and k make, times the scale.
  struct Score {
    std::int64_t key;
    float s, slope;
  };

  Score score(std::int64_t query, std::int64_t key, const CodePair& pair) const {
    const DType dtype = dtype_between(p_);
    float s = round_to(dtype, dot(q_.row(query), k_.row(key), p_.head_dim));
    const PlainScore changed = plain_score(p_, dtype,
                                           round_to(dtype, s * effective_softmax_scale(p_)));
    float slope = changed.slope;
    s = changed.value;
    if (code_.score) {
      slope *= round_to(dtype, static_cast<float>(code_.score_derivative(s, pair)));
      s = round_to(dtype, static_cast<float>(code_.score(s, pair)));
    }
    return {key, s, slope};
  }

  void fill_row(std::int64_t query) {
    const RowKeys keys{visible_keys(p_, query), sequence_.mask.row(0, head_, query)};
    std::vector<Score> scores;
    const float sink = sink_of(p_, sequence_.tensors, head_);
    float row_max = sink;
    for (std::int64_t key = keys.range.first; key <= keys.range.last; ++key) {
      if (!keys.mask.contains(key)) continue;
      const CodePair pair{batch_, head_, query, key, p_.seqlen_q, p_.seqlen_kv};
      if (code_.mask && keys.mask.asks_rule(key) && !code_.mask(pair)) continue;
      scores.push_back(score(query, key, pair));
      row_max = std::max(row_max, scores.back().s);
    }
    if (std::isinf(row_max)) return;
    float sum = std::exp(sink - row_max);
    for (const Score& each : scores) sum += std::exp(each.s - row_max);
    const DType dtype = dtype_between(p_);
    std::vector<float> dp;
    float delta = 0;
    for (const Score& each : scores) {
      const float p = round_to(dtype, std::exp(each.s - row_max) / sum);
      probabilities_[at(query, each.key)] = p;
      seen_[at(query, each.key)] = 1;
      dp.push_back(round_to(dtype, dot(dout_.row(query), v_.row(each.key), p_.head_dim_v)));
      delta += p * dp.back();
    }
    const Rows& dlse = sequence_.tensors.gradients.dlse;
    if (p_.dlse) delta -= dlse.data[head_ * dlse.stride_head + query];
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const std::size_t pair = at(query, scores[i].key);
      float ds = round_to(dtype, probabilities_[pair] * (dp[i] - delta));
      ds = round_to(dtype, ds * scores[i].slope);
      ds_[pair] = round_to(dtype, ds * effective_softmax_scale(p_));
    }
  }

  const Sequence& sequence_;
  const Problem& p_;
  const CodeFunctions& code_;
  std::int64_t batch_, head_;
  PlainRows q_, k_, v_, dout_;
  std::vector<float> probabilities_, ds_;  // [seqlen_q][seqlen_kv]
  std::vector<char> seen_;
};

/// The largest error of a row, stored over what was there if that is added.
double error_of_row(const Problem& problem, const std::vector<float>& sum, DType dtype,
                    const Tensor& before, std::int64_t begin, const ReferenceGradient& expected,
                    std::size_t row) {
  double largest = 0;
  for (std::size_t d = 0; d < sum.size(); ++d) {
    float x = sum[d];
    if (problem.accumulate)
      x += load_element(dtype, before.data, begin + static_cast<std::int64_t>(d));
    const double error = std::abs(round_to(dtype, x) - expected.values[row * sum.size() + d]);
    if (std::isfinite(error)) largest = std::max(largest, error);
  }
  return largest;
}

/// The wanted rows of a key/value head and of the query heads that read it, by their places in the
/// lists.
struct WantedRows {
  std::vector<std::size_t> queries, keys;
};

PlainGradientErrors errors_of_group(const Sequence& one, const CodeFunctions& code,
                                    std::int64_t batch, std::int64_t kv_head,
                                    const WantedRows& wanted, const ReferenceGradients& expected,
                                    int threads) {
  const Problem& p = one.problem;
  const Gradients& before = one.tensors.gradients;
  const std::int64_t group = p.num_heads_q / p.num_heads_kv;
  PlainGradientErrors errors;
  std::vector<std::vector<float>> dk(wanted.keys.size()), dv(wanted.keys.size());
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const PlainHead plain(one, code, batch, head, threads);
    for (const std::size_t i : wanted.queries) {
      const QueryRow& row = expected.rows.queries[i];
      if (row.head != head) continue;
      const std::int64_t begin = head * before.dq.stride_head + row.query * before.dq.stride_row;
      errors.dq = std::max(
          errors.dq, error_of_row(p, plain.dq(row.query), gradient_dtype(p, p.dtype_q), before.dq,
                                  begin, expected.dq, i));
    }
    parallel_for(static_cast<std::int64_t>(wanted.keys.size()), threads, [&](std::int64_t index) {
      const auto i = static_cast<std::size_t>(index);
      const std::int64_t key = expected.rows.keys[wanted.keys[i]].query;
      const auto add = [](const std::vector<float>& more, std::vector<float>& sum) {
        sum.resize(more.size(), 0.0f);
        for (std::size_t d = 0; d < more.size(); ++d) sum[d] += more[d];
      };
      add(plain.dk(key), dk[i]), add(plain.dv(key), dv[i]);
    });
  }
  for (std::size_t i = 0; i < wanted.keys.size(); ++i) {
    const std::int64_t key = expected.rows.keys[wanted.keys[i]].query;
    const auto error = [&](const std::vector<float>& sum, DType input, const Tensor& tensor,
                           const ReferenceGradient& gradient) {
      return error_of_row(p, sum, gradient_dtype(p, input), tensor,
                          kv_head * tensor.stride_head + key * tensor.stride_row, gradient,
                          wanted.keys[i]);
    };
    errors.dk = std::max(errors.dk, error(dk[i], p.dtype_k, before.dk, expected.dk));
    errors.dv = std::max(errors.dv, error(dv[i], p.dtype_v, before.dv, expected.dv));
  }
  return errors;
}

}  // namespace

PlainGradientErrors plain_gradient_errors(const Problem& problem, const Tensors& tensors,
                                          const ReferenceGradients& expected,
                                          const CodeFunctions& code, int threads) {
  const std::int64_t group = problem.num_heads_q / problem.num_heads_kv;
  std::map<std::pair<std::int64_t, std::int64_t>, WantedRows> wanted;  // by batch and head of k
  for (std::size_t i = 0; i < expected.rows.queries.size(); ++i) {
    const QueryRow& row = expected.rows.queries[i];
    wanted[{row.batch, row.head / group}].queries.push_back(i);
  }
  for (std::size_t i = 0; i < expected.rows.keys.size(); ++i) {
    const QueryRow& row = expected.rows.keys[i];
    wanted[{row.batch, row.head}].keys.push_back(i);
  }
  PlainGradientErrors errors;
  std::map<std::int64_t, Sequence> sequences;
  for (const auto& [batch_and_head, rows] : wanted) {
    const auto& [batch, kv_head] = batch_and_head;
    if (sequences.count(batch) == 0) sequences.emplace(batch, sequence_of(problem, tensors, batch));
    const PlainGradientErrors of_group = errors_of_group(sequences.at(batch), code, batch, kv_head,
                                                         rows, expected, threads);
    errors.dq = std::max(errors.dq, of_group.dq);
    errors.dk = std::max(errors.dk, of_group.dk);
    errors.dv = std::max(errors.dv, of_group.dv);
  }
  return errors;
}

}  // namespace attnforge
