#include "cache/near_problems.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>

#include "attnforge/error.h"
#include "generator/problem/fields.h"
#include "generator/shape.h"

namespace attnforge {
namespace {

double powers_of_two(std::int64_t a, std::int64_t b) {
  return std::abs(std::log2(double(a + 1) / double(b + 1)));
}

/// What must be equal: all that is compiled in, but with the dtypes' sizes for the dtypes, and
/// whatever fields have an `apart`.
auto kind(const Problem& p) {
  const Problem usual;
  Problem alike = p;
  for (const ProblemField& field : problem_fields()) {
    if (field.apart >= 0) field.value.set(alike, field.value.get(usual));
  }
  const auto bits = [](DType dtype) { return format_of(dtype).bits; };
  const auto dtype_bits = std::tuple(bits(p.dtype_q), bits(p.dtype_k), bits(p.dtype_v),
                                     bits(p.dtype_o));
  return std::tuple(shape_of(alike), dtype_bits, p.op, p.deterministic, p.tf32, p.seqlen_q <= 1);
}

}  // namespace

std::optional<std::pair<int, double>> distance(const Problem& a, const Problem& b) {
  if (kind(a) != kind(b)) return std::nullopt;
  int other = 0;
  for (const ProblemField& field : problem_fields()) {
    if (field.apart > 0 && field.value.get(a) != field.value.get(b)) other |= field.apart;
  }
  const double sizes = powers_of_two(a.batch, b.batch) +
                       powers_of_two(a.num_heads_q, b.num_heads_q) +
                       powers_of_two(a.num_heads_kv, b.num_heads_kv) +
                       powers_of_two(a.seqlen_q, b.seqlen_q) +
                       powers_of_two(a.seqlen_kv, b.seqlen_kv);
  const double dims = powers_of_two(a.head_dim, b.head_dim) +
                      powers_of_two(a.head_dim_v, b.head_dim_v);
  return std::pair(other, sizes + 8 * dims);
}

std::vector<Chosen> near_winners(const Problem& problem, std::span<const Chosen> chosen) {
  struct Near {
    std::pair<int, double> distance;
    const Chosen* chosen;
  };
  std::vector<Near> found;
  for (const Chosen& each : chosen) {
    try {
      const Problem other = parse_problem(each.problem);
      if (other == problem) continue;
      if (const auto apart = distance(problem, other)) found.push_back({*apart, &each});
    } catch (const Error&) {
      // Tuned under force, or by another version: its text is no problem.
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Near& a, const Near& b) { return a.distance < b.distance; });
  std::vector<Chosen> winners;
  for (const Near& each : found) {
    const auto has_config = [&](const Chosen& known) {
      return known.config == each.chosen->config;
    };
    if (std::none_of(winners.begin(), winners.end(), has_config)) winners.push_back(*each.chosen);
  }
  return winners;
}

}  // namespace attnforge
