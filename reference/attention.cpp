// attention.cpp - the oracle: blocks of query rows that share a head go through all their keys
// together.
#include "reference/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "attnforge/error.h"
#include "reference/half.h"
#include "reference/mask_rows.h"
#include "reference/parallel.h"
#include "reference/parts/merge.h"
#include "reference/parts/rope.h"
#include "reference/parts/scales.h"
#include "reference/parts/user_code.h"
#include "reference/score.h"
#include "reference/sequences.h"
#include "reference/visible.h"

namespace attnforge {

namespace {

constexpr int kRows = 16;  // of a block; innermost, so that the compiler makes vector code of it
constexpr int kMaxHeadDim = 512;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Rows [begin, end) of the list, of one batch and head.
struct RowBlock {
  std::size_t begin, end;
};

std::vector<RowBlock> blocks_of(std::span<const QueryRow> rows, std::size_t most) {
  std::vector<RowBlock> blocks;
  for (std::size_t i = 0; i < rows.size();) {
    std::size_t end = i + 1;
    while (end < rows.size() && end - i < most && rows[end].batch == rows[i].batch &&
           rows[end].head == rows[i].head)
      ++end;
    blocks.push_back({i, end});
    i = end;
  }
  return blocks;
}

void check_arguments(const Problem& problem, const Tensors& tensors,
                     std::span<const QueryRow> rows) {
  validate(problem);
  if (rows.empty()) return;
  const bool no_keys = problem.seqlen_kv == 0;
  const auto check_pointer = [](const void* data, const char* name, bool needed) {
    if (needed && data == nullptr) {
      refuse_input("reference attention: {} is null; give a host pointer", name);
    }
  };
  check_pointer(tensors.q.data, "q", true);
  check_pointer(tensors.k.data, "k", !no_keys);
  check_pointer(tensors.v.data, "v", !no_keys);
  check_head_numbers(problem, tensors);
  for (const QueryRow& row : rows) {
    const bool inside = 0 <= row.batch && row.batch < problem.batch && 0 <= row.head &&
                        row.head < problem.num_heads_q && 0 <= row.query &&
                        row.query < problem.seqlen_q;
    if (!inside) {
      refuse_input("reference attention: row batch={} head={} query={} is not in \"{}\"", row.batch,
                   row.head, row.query, to_string(problem));
    }
  }
}

/// One run, or one sequence of it as a problem of its own.
struct Run {
  const Problem& problem;
  const Tensors& tensors;
  const MaskRows& mask;
  const CodeFunctions& code;
  std::int64_t sequence;  // the user's code is told that it is this one; -1: the row's own
  Reference& result;

  CodePair pair(const QueryRow& row, std::int64_t key) const {
    return {sequence < 0 ? row.batch : sequence,
            row.head,
            row.query,
            key,
            problem.seqlen_q,
            problem.seqlen_kv};
  }
  /// Whether a text hides the key from the row. In a block of a mask the text decides only where
  /// that is partial.
  bool hides(const RowKeys& keys, const QueryRow& row, std::int64_t key) const {
    return code.mask && keys.mask.asks_rule(key) && !code.mask(pair(row, key));
  }
};

/// Root of the sum of (q_d k_d)^2, as far as they are finite.
double product_norm(const double (*q)[kRows], int r, const double* k, int count) {
  double sum = 0;
  for (int d = 0; d < count; ++d) {
    const double product = q[d][r] * k[d];
    if (std::isfinite(product)) sum += product * product;
  }
  return std::sqrt(sum);
}

double sum_of_finite_squares(const double* x, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) {
    if (std::isfinite(x[i])) sum += x[i] * x[i];
  }
  return sum;
}

bool seen_by_any(std::span<const RowKeys> rows, std::int64_t key) {
  return std::ranges::any_of(rows, [key](const RowKeys& row) { return row.contains(key); });
}

/// Scores, scaled, changed and after code, -inf where that hides the key, of the block's rows with
/// the keys from range.first on: [keys][kRows]. Fills score_magnitude, and product_magnitude where
/// rows are changed.
std::vector<double> block_scores(const Run& run, RowBlock block, KeyRange range,
                                 std::span<const RowKeys> visible) {
  const auto& [problem, tensors, mask, code, sequence, result] = run;
  const double scale = effective_softmax_scale(problem);
  const QueryRow& first = result.rows[block.begin];
  const std::int64_t kv_head = first.head / (problem.num_heads_q / problem.num_heads_kv);
  const auto count = static_cast<int>(block.end - block.begin);

  double q[kMaxHeadDim][kRows] = {};
  double row[kMaxHeadDim];
  double q_square[kRows] = {}, k_square[kRows] = {};
  double coded[kRows] = {};  // largest score that the code made
  for (int r = 0; r < count; ++r) {
    const QueryRow& query = result.rows[block.begin + r];
    // A scale of a row is of its own head, else of that of its keys.
    load_row(problem, problem.dtype_q, problem.kv_scale, tensors.q.data,
             offset_of(tensors.q, query), tensors.q_scale, query.batch, query.query,
             problem.kv_scale == KvScale::kToken ? query.head : kv_head, problem.head_dim, row);
    change_query(problem, tensors, query.query, row);
    for (int d = 0; d < problem.head_dim; ++d) q[d][r] = row[d];
    q_square[r] = sum_of_finite_squares(row, problem.head_dim);
  }

  const std::int64_t keys = std::max<std::int64_t>(range.last - range.first + 1, 0);
  std::vector<double> scores(static_cast<std::size_t>(keys) * kRows);
  for (std::int64_t key = range.first; key <= range.last; ++key) {
    if (!seen_by_any(visible, key)) continue;
    load_row(problem, problem.dtype_k, problem.kv_scale, tensors.k.data,
             offset_of(tensors.k, {first.batch, kv_head, key}), tensors.k_scale, first.batch, key,
             kv_head, problem.head_dim, row);
    change_key(problem, tensors, key, row);
    double s[kRows] = {};
    for (int d = 0; d < problem.head_dim; ++d) {
      for (int r = 0; r < kRows; ++r) s[r] += q[d][r] * row[d];
    }
    const double square = sum_of_finite_squares(row, problem.head_dim);
    double* to = &scores[static_cast<std::size_t>(key - range.first) * kRows];
    for (int r = 0; r < count; ++r) {
      to[r] = changed_score(problem, s[r] * scale).value;
      const QueryRow& query = result.rows[block.begin + r];
      if (code.score) to[r] = code.score(to[r], run.pair(query, key));
      if (run.hides(visible[r], query, key)) to[r] = -kInfinity;
      if (!visible[r].contains(key)) continue;
      k_square[r] = std::max(k_square[r], square);
      if (code.score && std::isfinite(to[r])) coded[r] = std::max(coded[r], std::abs(to[r]));
      if (!may_round_rows(problem)) continue;
      double& largest = result.product_magnitude[block.begin + r];
      largest = std::max(largest, scale * product_norm(q, r, row, problem.head_dim));
    }
  }
  for (int r = 0; r < count; ++r)
    result.score_magnitude[block.begin + r] = std::max(scale * std::sqrt(q_square[r] * k_square[r]),
                                                       coded[r]);
  return scores;
}

void attend(const Run& run, RowBlock block) {
  const auto& [problem, tensors, mask, code, sequence, result] = run;
  const QueryRow& first = result.rows[block.begin];
  const std::int64_t kv_head = first.head / (problem.num_heads_q / problem.num_heads_kv);
  const auto count = static_cast<int>(block.end - block.begin);
  std::vector<RowKeys> visible;
  KeyRange range{problem.seqlen_kv, -1};  // what any of the rows sees, and what lies between
  for (int r = 0; r < count; ++r) {
    const QueryRow& row = result.rows[block.begin + static_cast<std::size_t>(r)];
    const RowKeys& keys = visible.emplace_back(
        RowKeys{visible_keys(problem, row.query), mask.row(row.batch, row.head, row.query)});
    if (keys.range.first > keys.range.last) continue;
    range.first = std::min(range.first, keys.range.first);
    range.last = std::max(range.last, keys.range.last);
  }
  std::vector<double> p = block_scores(run, block, range, visible);
  const auto for_each_key = [&](int r, const auto& visit) {
    const RowKeys& keys = visible[r];
    for (std::int64_t key = keys.range.first; key <= keys.range.last; ++key) {
      if (keys.mask.contains(key)) visit(key);
    }
  };
  const auto at = [&](std::int64_t key, int r) -> double& {
    return p[static_cast<std::size_t>(key - range.first) * kRows + static_cast<std::size_t>(r)];
  };

  for (int r = 0; r < count; ++r) {
    const double sink = sink_of(problem, tensors, first.head);
    double row_max = sink, sum_of_squares = 0;
    for_each_key(r, [&](std::int64_t key) { row_max = std::max(row_max, at(key, r)); });
    const double shift = row_max == -kInfinity ? 0.0 : row_max;  // -inf - -inf would be NaN
    double sum = std::exp(sink - shift);
    for_each_key(r, [&](std::int64_t key) {
      const double probability = std::exp(at(key, r) - shift);
      at(key, r) = probability;
      sum += probability;
      sum_of_squares += probability * probability;
    });
    const bool none = sum == 0.0;
    result.lse[block.begin + r] = none ? -kInfinity : row_max + std::log(sum);
    result.spread[block.begin + r] = none ? 0.0 : std::sqrt(sum_of_squares) / sum;
    for_each_key(r, [&](std::int64_t key) { at(key, r) = none ? 0.0 : at(key, r) / sum; });
  }

  double v[kMaxHeadDim];
  for (std::int64_t key = range.first; key <= range.last; ++key) {
    if (!seen_by_any(visible, key)) continue;
    load_row(problem, problem.dtype_v, scale_of_v(problem), tensors.v.data,
             offset_of(tensors.v, {first.batch, kv_head, key}), tensors.v_scale, first.batch, key,
             kv_head, problem.head_dim_v, v);
    for (int r = 0; r < count; ++r) {
      const QueryRow& row = result.rows[block.begin + r];
      if (!visible[r].contains(key) || result.lse[block.begin + r] == -kInfinity) continue;
      if (run.hides(visible[r], row, key)) continue;
      double* o = &result.o[(block.begin + r) * static_cast<std::size_t>(problem.head_dim_v)];
      const double probability = at(key, r);
      for (int d = 0; d < problem.head_dim_v; ++d) o[d] += probability * v[d];
    }
  }
}

double max_abs_of_v(const Problem& problem, const Tensors& tensors, int threads) {
  const std::int64_t heads = problem.batch * problem.num_heads_kv;
  std::vector<double> of_head(static_cast<std::size_t>(heads), 0.0);
  parallel_for(heads, threads, [&](std::int64_t i) {
    double v[kMaxHeadDim];
    double largest = 0;
    for (std::int64_t key = 0; key < problem.seqlen_kv; ++key) {
      const QueryRow row{i / problem.num_heads_kv, i % problem.num_heads_kv, key};
      load_row(problem, problem.dtype_v, scale_of_v(problem), tensors.v.data,
               offset_of(tensors.v, row), tensors.v_scale, row.batch, key, row.head,
               problem.head_dim_v, v);
      for (int d = 0; d < problem.head_dim_v; ++d) {
        if (std::isfinite(v[d])) largest = std::max(largest, std::abs(v[d]));
      }
    }
    of_head[i] = largest;
  });
  return heads == 0 ? 0.0 : std::ranges::max(of_head);
}

/// The arrays with a number for each row.
constexpr std::vector<double> Reference::*kOfRows[] = {&Reference::lse, &Reference::spread,
                                                       &Reference::score_magnitude,
                                                       &Reference::product_magnitude};

/// All arrays of their size, all 0.
Reference empty_reference(const Problem& problem, std::span<const QueryRow> rows) {
  Reference result;
  result.rows.assign(rows.begin(), rows.end());
  result.head_dim_v = problem.head_dim_v;
  result.o.assign(rows.size() * static_cast<std::size_t>(problem.head_dim_v), 0.0);
  for (const auto numbers : kOfRows) (result.*numbers).assign(rows.size(), 0.0);
  return result;
}

/// Appends what was computed of one sequence as a problem of its own.
void append(Reference part, std::int64_t sequence, Reference& to) {
  for (QueryRow& row : part.rows) row.batch = sequence;
  const auto join = [](auto& all, const auto& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  join(to.rows, part.rows);
  join(to.o, part.o);
  for (const auto numbers : kOfRows) join(to.*numbers, part.*numbers);
  to.max_abs_v = std::max(to.max_abs_v, part.max_abs_v);
}

/// The reference of sequences that are as long as the problem says; `mask` is the block mask, and
/// `sequence` as in Run.
Reference reference_of_full(const Problem& problem, const Tensors& tensors, const MaskRows& mask,
                            std::span<const QueryRow> rows, const CodeFunctions& code,
                            std::int64_t sequence, int threads) {
  check_arguments(problem, tensors, rows);
  Reference result = empty_reference(problem, rows);
  if (rows.empty()) return result;
  result.max_abs_v = max_abs_of_v(problem, tensors, threads);
  // At most 64 MiB of scores a block, unless a single row takes more.
  const std::int64_t rows_that_fit = (std::int64_t{1} << 20) /
                                     std::max<std::int64_t>(problem.seqlen_kv / 8, 1);
  const std::vector<RowBlock> blocks = blocks_of(
      rows, static_cast<std::size_t>(std::clamp<std::int64_t>(rows_that_fit, 1, kRows)));
  parallel_for(static_cast<std::int64_t>(blocks.size()), threads, [&](std::int64_t i) {
    attend({problem, tensors, mask, code, sequence, result}, blocks[i]);
  });
  return result;
}

/// Sequence by sequence.
Reference reference_of_sequences(const Problem& problem, const Tensors& tensors,
                                 std::span<const QueryRow> rows, const CodeFunctions& code,
                                 int threads) {
  check_sequences(sequences_of(problem, tensors));
  Reference result = empty_reference(problem, {});
  result.rows.reserve(rows.size());
  result.o.reserve(rows.size() * static_cast<std::size_t>(problem.head_dim_v));
  for (std::size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    const std::int64_t batch = rows[begin].batch;
    if (batch < 0 || batch >= problem.batch) {
      refuse_input("reference attention: row batch={} is not in \"{}\"", batch, to_string(problem));
    }
    std::vector<QueryRow> of_sequence;
    for (end = begin; end < rows.size() && rows[end].batch == batch; ++end)
      of_sequence.push_back({0, rows[end].head, rows[end].query});
    const Sequence sequence = sequence_of(problem, tensors, batch);
    append(reference_of_full(sequence.problem, sequence.tensors, sequence.mask, of_sequence, code,
                             batch, threads),
           batch, result);
  }
  return result;
}

}  // namespace

Reference reference_attention(const Problem& problem, const Tensors& tensors,
                              std::span<const QueryRow> rows, int threads) {
  return reference_attention(problem, tensors, rows, CodeFunctions(), threads);
}

Reference reference_attention(const Problem& problem, const Tensors& tensors,
                              std::span<const QueryRow> rows, const CodeFunctions& code,
                              int threads) {
  check_code_functions(problem, code);
  validate(problem);
  if (problem.op == Op::kMerge) return reference_merge(problem, tensors, rows);
  if (!all_full(problem)) return reference_of_sequences(problem, tensors, rows, code, threads);
  return reference_of_full(problem, tensors, mask_rows_of(sequences_of(problem, tensors)), rows,
                           code, -1, threads);
}

Reference reference_attention(const Problem& problem, const Tensors& tensors, int threads) {
  const Sequences sequences = sequences_of(problem, tensors);
  check_sequences(sequences);
  return reference_attention(problem, tensors, all_rows(sequences), threads);
}

Reference reference_from_outputs(const Sequences& sequences, std::span<const QueryRow> rows,
                                 std::span<const float> o, std::span<const float> lse,
                                 double max_abs_v) {
  const Problem& problem = sequences.problem;
  const MaskRows mask = mask_rows_of(sequences);
  Reference result = empty_reference(problem, rows);
  ATTNFORGE_ASSERT(o.size() == result.o.size() && (lse.empty() || lse.size() == rows.size()),
                   "outputs are of the rows");
  std::copy(o.begin(), o.end(), result.o.begin());
  std::copy(lse.begin(), lse.end(), result.lse.begin());
  result.max_abs_v = max_abs_v;
  const double norm = problem.head_dim +
                      4 * std::sqrt(2.0 *
                                    problem.head_dim);  // of |q|^2: mean and 4 standard deviations
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const KeyRange visible = visible_keys(problem_of_sequence(sequences, rows[i].batch),
                                          rows[i].query);
    const auto keys = static_cast<double>(
        mask.row(rows[i].batch, rows[i].head, rows[i].query).count(visible));
    const double scale = effective_softmax_scale(problem);
    result.score_magnitude[i] = scale * norm;
    if (!knows_score_sizes(problem) && !lse.empty() && std::isfinite(lse[i]))
      result.score_magnitude[i] += std::abs(double{lse[i]});
    // A product of two standard normal numbers squared has the mean 1 and the variance 8.
    if (may_round_rows(problem)) {
      const double squares = problem.head_dim + 4 * std::sqrt(8.0 * problem.head_dim);
      result.product_magnitude[i] = scale * std::sqrt(squares);
    }
    // The scores have the standard deviation scale * sqrt(head_dim): E[p^2] / E[p]^2 =
    // exp(variance).
    const double variance = scale * scale * problem.head_dim;
    // Where the weights are unknown, one key may have it all.
    const bool any_spread = !knows_weights(problem);
    result.spread[i] = keys == 0 ? 0.0
                       : any_spread
                           ? 1.0
                           : std::min(1.0,
                                      std::sqrt(std::exp(std::min(variance, 50.0)) / keys) * 1.5);
  }
  return result;
}

}  // namespace attnforge
