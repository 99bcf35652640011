#include "reference/compare/outputs.h"

#include <fmt/format.h>

#include "reference/compare/comparer.h"
#include "reference/half.h"
#include "reference/sequences.h"

namespace attnforge {
namespace {

double allowed_in_row(const Tolerance& tolerance, const Reference& reference, std::size_t row,
                      double expected) {
  return allowed_error(tolerance, expected, reference.spread[row], reference.score_magnitude[row],
                       reference.product_magnitude[row]);
}

/// `at(i)` is where row i of `expected` begins in `o`, in elements.
template <class At>
Comparison compare_output_at(const Problem& problem, const void* o, const Reference& expected,
                             const Tolerance& tolerance, At at) {
  Comparer comparer("o", problem.dtype_o);
  const auto columns = static_cast<std::size_t>(expected.head_dim_v);
  for (std::size_t i = 0; i < expected.rows.size(); ++i) {
    const std::int64_t begin = at(i);
    for (int d = 0; d < expected.head_dim_v; ++d) {
      const double of_o = expected.o[i * columns + static_cast<std::size_t>(d)];
      comparer.add(expected.rows[i], d, load_element(problem.dtype_o, o, begin + d), of_o,
                   allowed_in_row(tolerance, expected, i, of_o));
    }
  }
  return comparer.take();
}

/// `lse(i)` is that of row i of `expected`.
template <class Lse>
Comparison compare_lse_at(Lse lse, const Reference& expected, const Tolerance& tolerance) {
  Comparer comparer("lse", DType::kFp32);
  for (std::size_t i = 0; i < expected.rows.size(); ++i)
    comparer.add(expected.rows[i], 0, lse(i), expected.lse[i],
                 allowed_in_row(tolerance, expected, i, expected.lse[i]));
  return comparer.take();
}

}  // namespace

Comparison compare_output(const Problem& problem, const Tensors& tensors, const Reference& expected,
                          const Tolerance& tolerance) {
  return compare_output_at(problem, tensors.o.data, expected, tolerance, [&](std::size_t i) {
    return offset_of(tensors.o, place_of(sequences_of(problem, tensors), expected.rows[i]));
  });
}

Comparison compare_lse(const Problem& problem, const Tensors& tensors, const Reference& expected,
                       const Tolerance& tolerance) {
  const auto lse = [&](std::size_t i) {
    return number_at(tensors.lse, place_of(sequences_of(problem, tensors), expected.rows[i]));
  };
  return compare_lse_at(lse, expected, tolerance);
}

std::string to_string(const Comparison& c) {
  if (c.elements == 0) return fmt::format("{}: nothing to compare", c.tensor);
  std::string text = fmt::format("{}: {}, max error {:.3g}, cosine {:.9f}", c.tensor,
                                 c.passed() ? "ok" : "WRONG", c.max_error, c.cosine);
  if (!c.passed()) {
    text += fmt::format(", {} of {} elements outside tolerance", c.wrong, c.elements);
    if (c.nonfinite_wrong > 0)
      text += fmt::format(" ({} NaN or infinite on one side)", c.nonfinite_wrong);
  }
  text += fmt::format("; worst at batch={} head={} {}={} column={}: {:.9g}, expected {:.9g}",
                      c.worst_row.batch, c.worst_row.head, c.of_keys ? "key" : "query",
                      c.worst_row.query, c.worst_column, c.worst_actual, c.worst_expected);
  if (std::isfinite(c.worst_expected)) text += fmt::format(" +- {:.3g}", c.worst_allowed);
  return text;
}

Verdict compare(const Problem& problem, const Tensors& tensors, const Reference& expected) {
  Verdict verdict;
  verdict.o = compare_output(problem, tensors, expected,
                             output_tolerance(problem, expected.max_abs_v));
  verdict.lse.tensor = "lse";
  if (problem.lse) verdict.lse = compare_lse(problem, tensors, expected, lse_tolerance(problem));
  return verdict;
}

Verdict compare_rows(const Problem& problem, const void* o, const float* lse,
                     const Reference& expected) {
  Verdict verdict;
  verdict.o = compare_output_at(
      problem, o, expected, output_tolerance(problem, expected.max_abs_v),
      [&](std::size_t i) { return static_cast<std::int64_t>(i) * expected.head_dim_v; });
  verdict.lse.tensor = "lse";
  if (problem.lse)
    verdict.lse = compare_lse_at([&](std::size_t i) { return lse[i]; }, expected,
                                 lse_tolerance(problem));
  return verdict;
}

std::string to_string(const Verdict& verdict) {
  if (verdict.lse.elements == 0) return to_string(verdict.o);
  return to_string(verdict.o) + "\n" + to_string(verdict.lse);
}

}  // namespace attnforge
