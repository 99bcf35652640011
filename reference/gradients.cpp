// gradients.cpp - the oracle of backward: each row of dq goes through all keys, each row of dk and
// dv through all queries of its group, so that any rows can be computed alone.
#include "reference/gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "attnforge/error.h"
#include "reference/dot.h"
#include "reference/half.h"
#include "reference/mask_rows.h"
#include "reference/parallel.h"
#include "reference/parts/sinks.h"
#include "reference/parts/user_code.h"
#include "reference/score.h"
#include "reference/sequences.h"
#include "reference/visible.h"

namespace attnforge {
namespace {

constexpr double kNoLse = -std::numeric_limits<double>::infinity();

double finite_or_0(double x) { return std::isfinite(x) ? std::abs(x) : 0.0; }

/// A tensor's rows of one sequence in fp64, and how large they are as far as they are finite.
struct Matrix {
  std::int64_t rows = 0;
  int columns = 0;
  std::vector<double> values;   // [heads][rows][columns]
  std::vector<double> norm;     // [heads][rows]
  std::vector<double> largest;  // [heads][rows]

  const double* row(std::size_t at) const {
    return &values[at * static_cast<std::size_t>(columns)];
  }
};

Matrix load_matrix(DType dtype, const Tensor& tensor, std::int64_t heads, std::int64_t rows,
                   int columns) {
  const auto count = static_cast<std::size_t>(heads * rows);
  Matrix m{rows, columns, std::vector<double>(count * static_cast<std::size_t>(columns)),
           std::vector<double>(count), std::vector<double>(count)};
  for (std::size_t i = 0; i < count; ++i) {
    const auto head = static_cast<std::int64_t>(i) / rows,
               row = static_cast<std::int64_t>(i) % rows;
    double* to = &m.values[i * static_cast<std::size_t>(columns)];
    load_elements(dtype, tensor.data, offset_of(tensor, {0, head, row}), columns, to);
    double squares = 0;
    for (int d = 0; d < columns; ++d) {
      const double size = finite_or_0(to[d]);
      squares += size * size;
      m.largest[i] = std::max(m.largest[i], size);
    }
    m.norm[i] = std::sqrt(squares);
  }
  return m;
}

/// What a query and a key that it sees add to the gradients.
struct PairTerms {
  double p, ds;       // ds is that of the scaled score, before cap and code
  double value_size;  // what ds is a difference of
  double score_size;
  double s;             // what the score's text takes,
  double of_text;       // the gradient of what it makes of that,
  double of_text_size;  // and what that is a difference of
};

/// One sequence, with all that does not depend on pairs.
class LoadedSequence {
 public:
  LoadedSequence(const Problem& problem, const Tensors& tensors, std::int64_t batch,
                 const CodeFunctions& code)
      : sequence_(sequence_of(problem, tensors, batch)), code_(code), batch_(batch) {
    const Problem& p = sequence_.problem;
    const Tensors& t = sequence_.tensors;
    q = load_matrix(p.dtype_q, t.q, p.num_heads_q, p.seqlen_q, p.head_dim);
    k = load_matrix(p.dtype_k, t.k, p.num_heads_kv, p.seqlen_kv, p.head_dim);
    v = load_matrix(p.dtype_v, t.v, p.num_heads_kv, p.seqlen_kv, p.head_dim_v);
    dout = load_matrix(p.dtype_o, t.gradients.dout, p.num_heads_q, p.seqlen_q, p.head_dim_v);
    const Matrix o = load_matrix(p.dtype_o, t.o, p.num_heads_q, p.seqlen_q, p.head_dim_v);
    for (std::int64_t head = 0; head < p.num_heads_q; ++head) {
      for (std::int64_t query = 0; query < p.seqlen_q; ++query) {
        const std::size_t at = at_query(head, query);
        const double of_lse = p.dlse ? number_at(t.gradients.dlse, {0, head, query}) : 0.0;
        lse_.push_back(number_at(t.lse, {0, head, query}));
        delta_.push_back(dot(dout.row(at), o.row(at), p.head_dim_v) - of_lse);
        delta_size_.push_back(dout.norm[at] * o.norm[at] + finite_or_0(of_lse));
      }
    }
  }

  const Problem& problem() const { return sequence_.problem; }
  const Tensors& tensors() const { return sequence_.tensors; }
  const CodeFunctions& code() const { return code_; }
  CodePair place(std::int64_t head, std::int64_t query, std::int64_t key) const {
    return {batch_, head, query, key, problem().seqlen_q, problem().seqlen_kv};
  }
  std::int64_t group() const { return problem().num_heads_q / problem().num_heads_kv; }
  std::size_t at_query(std::int64_t head, std::int64_t query) const {
    return static_cast<std::size_t>(head * problem().seqlen_q + query);
  }
  std::size_t at_key(std::int64_t kv_head, std::int64_t key) const {
    return static_cast<std::size_t>(kv_head * problem().seqlen_kv + key);
  }
  RowKeys keys_of(std::int64_t head, std::int64_t query) const {
    if (lse_[at_query(head, query)] == kNoLse) return {};
    return {visible_keys(problem(), query), sequence_.mask.row(0, head, query)};
  }

  /// False if the query, whose keys are `keys`, does not see the key.
  bool pair(const RowKeys& keys, std::int64_t head, std::int64_t query, std::int64_t key,
            PairTerms& terms) const {
    if (!keys.contains(key)) return false;
    const Problem& p = problem();
    const CodePair at = place(head, query, key);
    if (code_.mask && keys.mask.asks_rule(key) && !code_.mask(at)) return false;
    const std::size_t of_q = at_query(head, query), of_k = at_key(head / group(), key);
    const double scale = effective_softmax_scale(p);
    auto [s, slope, errors] = changed_score(p, scale * dot(q.row(of_q), k.row(of_k), p.head_dim));
    double slope_size = 1;  // of a slope without code, whatever is left of it
    terms.s = s;
    if (code_.score) {
      const double derivative = code_.score_derivative(s, at);
      slope *= derivative;
      slope_size = finite_or_0(derivative);
      s = code_.score(s, at);
    }
    const double dp = dot(dout.row(of_q), v.row(of_k), p.head_dim_v);
    terms.p = std::exp(s - lse_[of_q]);
    terms.of_text = terms.p * (dp - delta_[of_q]);
    terms.of_text_size = finite_or_0(terms.p) *
                         (dout.norm[of_q] * v.norm[of_k] + delta_size_[of_q]);
    terms.ds = terms.of_text * slope;
    terms.value_size = slope_size * terms.of_text_size;
    terms.score_size = errors * (1 + std::abs(scale) * q.norm[of_q] * k.norm[of_k] +
                                 finite_or_0(s) + finite_or_0(lse_[of_q]));
    return true;
  }

  Matrix q, k, v, dout;

 private:
  Sequence sequence_;
  const CodeFunctions& code_;
  std::int64_t batch_;
  std::vector<double> lse_, delta_, delta_size_;  // [heads][rows]
};

void check_gradient_arguments(const Problem& problem, const Tensors& tensors,
                              const BackwardRows& rows, const CodeFunctions& code) {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorCode::kInvalidArgument, "reference gradients: " + what);
  };
  validate(problem);
  if (!is_backward(problem)) refuse("\"" + to_string(problem) + "\" is no backward problem");
  check_code_functions(problem, code);
  if (code.score && !code.score_derivative) refuse("the score's function has no derivative");
  if (problem.dargs.empty() != code.dargs.empty() || code.dargs.empty() == bool(code.score_reads))
    refuse(fmt::format("dargs=\"{}\" and the code's dargs and score_reads do not go together",
                       problem.dargs));
  const bool no_queries = problem.seqlen_q == 0 || problem.batch == 0;
  const bool no_keys = problem.seqlen_kv == 0 || problem.batch == 0;
  const Gradients& g = tensors.gradients;
  const struct {
    const char* name;
    const void* data;
    bool needed;
  } pointers[] = {
      {"q", tensors.q.data, !no_queries},
      {"k", tensors.k.data, !no_keys},
      {"v", tensors.v.data, !no_keys},
      {"o", tensors.o.data, !no_queries},
      {"lse", tensors.lse.data, !no_queries},
      {"dout", g.dout.data, !no_queries},
      {"dlse", g.dlse.data, problem.dlse && !no_queries},
      {"dq", g.dq.data, problem.accumulate && !no_queries},
      {"dk", g.dk.data, problem.accumulate && !no_keys},
      {"dv", g.dv.data, problem.accumulate && !no_keys},
  };
  for (const auto& [name, data, needed] : pointers) {
    if (needed && data == nullptr) refuse(fmt::format("{} is null; give a host pointer", name));
  }
  check_head_numbers(problem, tensors);
  const Sequences sequences = sequences_of(problem, tensors);
  check_sequences(sequences);
  mask_rows_of(sequences);  // throws if it lacks its lists
  const auto check_row = [&](const char* what, std::int64_t batch, std::int64_t head,
                             std::int64_t heads) {
    if (batch < 0 || batch >= problem.batch || head < 0 || head >= heads) {
      refuse(fmt::format("row of {} batch={} head={} is not in \"{}\"", what, batch, head,
                         to_string(problem)));
    }
  };
  for (const QueryRow& row : rows.queries)
    check_row("dq", row.batch, row.head, problem.num_heads_q);
  for (const QueryRow& row : rows.keys) check_row("dk", row.batch, row.head, problem.num_heads_kv);
}

ReferenceGradient empty_gradient(std::size_t rows, int columns) {
  return {columns, std::vector<double>(rows * static_cast<std::size_t>(columns), 0.0),
          std::vector<TermSizes>(rows)};
}

double* row_of(ReferenceGradient& gradient, std::size_t row) {
  return &gradient.values[row * static_cast<std::size_t>(gradient.columns)];
}

/// Takes the terms of a row of a gradient.
struct RowSum {
  double* values;
  int columns;
  double scale;  // of all terms
  TermSizes sizes{};

  RowSum(ReferenceGradient& gradient, std::size_t row, double of_all)
      : values(row_of(gradient, row)), columns(gradient.columns), scale(of_all) {}

  /// `weight` times a row of an input, whose largest element is `largest`; the weight is a
  /// difference of numbers as large as `size`.
  void add(double weight, double size, double score_size, const double* row, double largest) {
    add_multiple(weight, row, columns, values);
    const double term = finite_or_0(weight) * largest;
    sizes.sum += size * largest;
    sizes.root += term * term;
    sizes.by_score += term * score_size;
    sizes.factors += largest;
  }
  TermSizes finish() {
    for (int d = 0; d < columns; ++d) values[d] *= scale;
    const double size = std::abs(scale);
    return {sizes.sum * size, std::sqrt(sizes.root) * size, sizes.by_score * size,
            sizes.factors * size};
  }
};

void add_before(DType dtype, const Tensor& tensor, std::int64_t head, std::int64_t row, int columns,
                double* values) {
  const std::int64_t at = offset_of(tensor, {0, head, row});
  for (int d = 0; d < columns; ++d) values[d] += load_element(dtype, tensor.data, at + d);
}

void check_position(const char* what, std::int64_t position, std::int64_t seqlen) {
  if (position >= 0 && position < seqlen) return;
  refuse_input("reference gradients: row {} of {} is not among the {} of its sequence", position,
               what, seqlen);
}

void query_row(const LoadedSequence& one, const QueryRow& row, std::size_t index,
               ReferenceGradients& result) {
  const Problem& p = one.problem();
  RowSum dq(result.dq, index, effective_softmax_scale(p));
  const RowKeys keys = one.keys_of(row.head, row.query);
  for (std::int64_t key = keys.range.first; key <= keys.range.last; ++key) {
    PairTerms terms;
    if (!one.pair(keys, row.head, row.query, key, terms)) continue;
    const std::size_t at = one.at_key(row.head / one.group(), key);
    dq.add(terms.ds, terms.value_size, terms.score_size, one.k.row(at), one.k.largest[at]);
  }
  result.dq.terms[index] = dq.finish();
  if (p.accumulate)
    add_before(gradient_dtype(p, p.dtype_q), one.tensors().gradients.dq, row.head, row.query,
               p.head_dim, dq.values);
}

void key_row(const LoadedSequence& one, const QueryRow& row, std::size_t index,
             ReferenceGradients& result) {
  const Problem& p = one.problem();
  RowSum dk(result.dk, index, effective_softmax_scale(p)), dv(result.dv, index, 1);
  for (std::int64_t head = row.head * one.group(); head < (row.head + 1) * one.group(); ++head) {
    for (std::int64_t query = 0; query < p.seqlen_q; ++query) {
      PairTerms terms;
      if (!one.pair(one.keys_of(head, query), head, query, row.query, terms)) continue;
      const std::size_t at = one.at_query(head, query);
      dk.add(terms.ds, terms.value_size, terms.score_size, one.q.row(at), one.q.largest[at]);
      dv.add(terms.p, finite_or_0(terms.p), terms.score_size, one.dout.row(at),
             one.dout.largest[at]);
    }
  }
  result.dk.terms[index] = dk.finish();
  result.dv.terms[index] = dv.finish();
  if (!p.accumulate) return;
  const Gradients& before = one.tensors().gradients;
  add_before(gradient_dtype(p, p.dtype_k), before.dk, row.head, row.query, p.head_dim, dk.values);
  add_before(gradient_dtype(p, p.dtype_v), before.dv, row.head, row.query, p.head_dim_v, dv.values);
}

/// What all pairs of a sequence add to the gradients of arrays that the score's text reads.
void add_to_dargs(const LoadedSequence& one, std::vector<ReferenceGradient>& dargs) {
  const Problem& p = one.problem();
  for (std::int64_t head = 0; head < p.num_heads_q; ++head) {
    for (std::int64_t query = 0; query < p.seqlen_q; ++query) {
      const RowKeys keys = one.keys_of(head, query);
      for (std::int64_t key = keys.range.first; key <= keys.range.last; ++key) {
        PairTerms terms;
        if (!one.pair(keys, head, query, key, terms)) continue;
        const auto add = [&](std::size_t array, std::int64_t element, double derivative) {
          const auto at = static_cast<std::size_t>(element);
          const double term = terms.of_text * derivative;
          dargs.at(array).values.at(at) += term;
          TermSizes& sizes = dargs[array].terms[at];
          sizes.sum += terms.of_text_size * finite_or_0(derivative);
          sizes.root = std::hypot(sizes.root, finite_or_0(term));
          sizes.by_score += finite_or_0(term) * terms.score_size;
        };
        one.code().score_reads(terms.s, one.place(head, query, key), add);
      }
    }
  }
}

/// Which of the rows are of a sequence, by their places in the list.
struct OfSequence {
  std::vector<std::size_t> queries, keys;
};

}  // namespace

BackwardRows all_backward_rows(const Sequences& sequences) {
  return {all_rows(sequences), all_rows(transposed(sequences))};
}

ReferenceGradients reference_gradients(const Problem& problem, const Tensors& tensors,
                                       const BackwardRows& rows, const CodeFunctions& code,
                                       int threads) {
  check_gradient_arguments(problem, tensors, rows, code);
  ReferenceGradients result{.rows = rows,
                            .dq = empty_gradient(rows.queries.size(), problem.head_dim),
                            .dk = empty_gradient(rows.keys.size(), problem.head_dim),
                            .dv = empty_gradient(rows.keys.size(), problem.head_dim_v),
                            .dsinks = {},
                            .dargs = {}};
  result.dsinks = sink_gradients(problem, tensors);
  for (const CodeFunctions::Darg& darg : code.dargs) {
    ReferenceGradient& to = result.dargs.emplace_back(
        empty_gradient(static_cast<std::size_t>(darg.elements), 1));
    if (darg.before != nullptr) std::copy_n(darg.before, darg.elements, to.values.begin());
  }
  std::map<std::int64_t, OfSequence> sequences;
  for (std::size_t i = 0; i < rows.queries.size(); ++i)
    sequences[rows.queries[i].batch].queries.push_back(i);
  for (std::size_t i = 0; i < rows.keys.size(); ++i)
    sequences[rows.keys[i].batch].keys.push_back(i);
  for (const auto& [batch, of_sequence] : sequences) {
    const LoadedSequence one(problem, tensors, batch, code);
    for (const std::size_t i : of_sequence.queries)
      check_position("dq", rows.queries[i].query, one.problem().seqlen_q);
    for (const std::size_t i : of_sequence.keys)
      check_position("dk", rows.keys[i].query, one.problem().seqlen_kv);
    const std::size_t queries = of_sequence.queries.size();
    const auto count = static_cast<std::int64_t>(queries + of_sequence.keys.size());
    parallel_for(count, threads, [&, &of = of_sequence](std::int64_t piece) {
      const auto at = static_cast<std::size_t>(piece);
      if (at < queries) {
        query_row(one, rows.queries[of.queries[at]], of.queries[at], result);
      } else {
        const std::size_t i = of.keys[at - queries];
        key_row(one, rows.keys[i], i, result);
      }
    });
  }
  for (std::int64_t batch = 0; !code.dargs.empty() && batch < problem.batch; ++batch)
    add_to_dargs(LoadedSequence(problem, tensors, batch, code), result.dargs);
  return result;
}

ReferenceGradients reference_gradients(const Problem& problem, const Tensors& tensors,
                                       const BackwardRows& rows, int threads) {
  return reference_gradients(problem, tensors, rows, CodeFunctions(), threads);
}

ReferenceGradients reference_gradients(const Problem& problem, const Tensors& tensors,
                                       int threads) {
  const Sequences sequences = sequences_of(problem, tensors);
  check_sequences(sequences);
  return reference_gradients(problem, tensors, all_backward_rows(sequences), threads);
}

}  // namespace attnforge
