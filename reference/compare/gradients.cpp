// gradients.cpp - dq, dk, dv and dsinks against the oracle.
#include "reference/compare/gradients.h"

#include "reference/compare/comparer.h"
#include "reference/compare/gradient_tolerance.h"
#include "reference/half.h"
#include "reference/sequences.h"

namespace attnforge {
namespace {

/// `row_at(i)` is where row i of `expected` lies in the tensor, `named(i)` what it is called.
template <class RowAt, class Named>
Comparison compare_gradient(const Problem& problem, GradientName name, DType dtype,
                            const Tensor& actual, const ReferenceGradient& expected,
                            const RowAt& row_at, const Named& named) {
  Comparer comparer(std::string(to_string(name)), dtype);
  const GradientTolerance tolerance = gradient_tolerance(problem, name);
  for (std::size_t i = 0; i < expected.terms.size(); ++i) {
    const QueryRow row = row_at(i);
    const std::int64_t begin = row.batch * actual.stride_batch + row.head * actual.stride_head +
                               row.query * actual.stride_row;
    for (int d = 0; d < expected.columns; ++d) {
      const double should = expected.values[i * static_cast<std::size_t>(expected.columns) +
                                            static_cast<std::size_t>(d)];
      comparer.add(named(i), d, load_element(dtype, actual.data, begin + d), should,
                   allowed_error(tolerance, should, expected.terms[i]));
    }
  }
  Comparison result = comparer.take();
  result.of_keys = name == GradientName::kDk || name == GradientName::kDv;
  return result;
}

QueryRow as_query(const KeyRow& row) { return {row.batch, row.head, row.key}; }

}  // namespace

GradientVerdict compare_gradients(const Problem& problem, const Tensors& tensors,
                                  const ReferenceGradients& expected) {
  const Sequences sequences = sequences_of(problem, tensors);
  const Gradients& actual = tensors.gradients;
  const auto query_at = [&](std::size_t i) {
    return place_of(sequences, expected.rows.queries[i]);
  };
  const auto query = [&](std::size_t i) { return expected.rows.queries[i]; };
  const auto key_at = [&](std::size_t i) {
    return as_query(place_of_key(sequences, expected.rows.keys[i]));
  };
  const auto key = [&](std::size_t i) { return as_query(expected.rows.keys[i]); };
  const auto head = [](std::size_t i) {
    return QueryRow{.batch = 0, .head = static_cast<std::int64_t>(i), .query = 0};
  };
  const Tensor dsinks{.data = actual.dsinks, .stride_head = 1};
  return {
      .dq = compare_gradient(problem, GradientName::kDq, gradient_dtype(problem, problem.dtype_q),
                             actual.dq, expected.dq, query_at, query),
      .dk = compare_gradient(problem, GradientName::kDk, gradient_dtype(problem, problem.dtype_k),
                             actual.dk, expected.dk, key_at, key),
      .dv = compare_gradient(problem, GradientName::kDv, gradient_dtype(problem, problem.dtype_v),
                             actual.dv, expected.dv, key_at, key),
      .dsinks = compare_gradient(problem, GradientName::kDsinks, DType::kFp32, dsinks,
                                 expected.dsinks, head, head)};
}

Comparison compare_darg(const Problem& problem, const float* actual,
                        const ReferenceGradient& expected) {
  Comparer comparer("darg", DType::kFp32);
  const GradientTolerance tolerance = gradient_tolerance(problem, GradientName::kDarg);
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    const double should = expected.values[i];
    comparer.add({.batch = 0, .head = 0, .query = static_cast<std::int64_t>(i)}, 0, actual[i],
                 should, allowed_error(tolerance, should, expected.terms[i]));
  }
  Comparison result = comparer.take();
  result.of_keys = true;
  return result;
}

std::string to_string(const GradientVerdict& verdict) {
  std::string text = to_string(verdict.dq) + "\n" + to_string(verdict.dk) + "\n" +
                     to_string(verdict.dv);
  if (verdict.dsinks.elements != 0) text += "\n" + to_string(verdict.dsinks);
  for (const Comparison& darg : verdict.dargs) text += "\n" + to_string(darg);
  return text;
}

}  // namespace attnforge
