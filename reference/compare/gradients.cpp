#include "reference/compare/gradients.h"

#include <functional>
#include <span>

#include "reference/compare/comparer.h"
#include "reference/compare/gradient_tolerance.h"
#include "reference/half.h"
#include "reference/sequences.h"

namespace attnforge {
namespace {

/// `place(row)` is where a row of `expected` lies in the tensor.
template <class Place>
Comparison compare_gradient(const Problem& problem, GradientName name, const Tensor& actual,
                            const ReferenceGradient& expected, std::span<const QueryRow> rows,
                            const Place& place) {
  const DType dtype = dtype_of(problem, name);
  Comparer comparer(std::string(to_string(name)), dtype);
  const GradientTolerance tolerance = gradient_tolerance(problem, name);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t begin = offset_of(actual, place(rows[i]));
    for (int d = 0; d < expected.columns; ++d) {
      const double should = expected.values[i * static_cast<std::size_t>(expected.columns) + d];
      comparer.add(rows[i], d, load_element(dtype, actual.data, begin + d), should,
                   allowed_error(tolerance, should, expected.terms[i]));
    }
  }
  Comparison result = comparer.take();
  result.of_keys = name == GradientName::kDk || name == GradientName::kDv;
  return result;
}

}  // namespace

GradientVerdict compare_gradients(const Problem& problem, const Tensors& tensors,
                                  const ReferenceGradients& expected) {
  const Sequences sequences = sequences_of(problem, tensors), by_keys = transposed(sequences);
  const auto query = [&](const QueryRow& row) { return place_of(sequences, row); };
  const auto key = [&](const QueryRow& row) { return place_of(by_keys, row); };
  const Gradients& actual = tensors.gradients;
  const auto& [queries, keys] = expected.rows;
  std::vector<QueryRow> heads;
  for (std::size_t head = 0; head < expected.dsinks.terms.size(); ++head)
    heads.push_back({.batch = 0, .head = static_cast<std::int64_t>(head), .query = 0});
  return {
      .dq = compare_gradient(problem, GradientName::kDq, actual.dq, expected.dq, queries, query),
      .dk = compare_gradient(problem, GradientName::kDk, actual.dk, expected.dk, keys, key),
      .dv = compare_gradient(problem, GradientName::kDv, actual.dv, expected.dv, keys, key),
      .dsinks = compare_gradient(problem, GradientName::kDsinks,
                                 {.data = actual.dsinks, .stride_head = 1}, expected.dsinks, heads,
                                 std::identity())};
}

Comparison compare_darg(const Problem& problem, const float* actual,
                        const ReferenceGradient& expected, DType stored) {
  Comparer comparer("darg", DType::kFp32);
  const ElementFormat& format = format_of(stored);
  const double rounding = stored == DType::kFp32 ? 0 : format.roundoff;
  const GradientTolerance tolerance = gradient_tolerance(problem, GradientName::kDarg);
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    const double should = expected.values[i];
    comparer.add({.batch = 0, .head = 0, .query = static_cast<std::int64_t>(i)}, 0, actual[i],
                 should,
                 allowed_error(tolerance, should, expected.terms[i]) + rounding * std::abs(should) +
                     (rounding > 0 ? format.step : 0));
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
