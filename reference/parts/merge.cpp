#include "reference/parts/merge.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/half.h"

namespace attnforge {

Reference reference_merge(const Problem& problem, const Tensors& tensors,
                          std::span<const QueryRow> rows) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto columns = static_cast<std::size_t>(problem.head_dim_v);
  const std::span parts(tensors.parts, static_cast<std::size_t>(problem.parts));
  Reference result{.rows = {rows.begin(), rows.end()}, .head_dim_v = problem.head_dim_v};
  result.o.assign(rows.size() * columns, 0.0);
  result.product_magnitude.assign(rows.size(), 0.0);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto lse_of = [&](const Rows& lse) { return double{number_at(lse, rows[i])}; };
    double top = -kInfinity, total = 0, squares = 0, magnitude = 0;
    for (const AttentionState& part : parts) top = std::max(top, lse_of(part.lse));
    for (const auto& [o, lse] : parts) {
      if (lse_of(lse) == -kInfinity) continue;
      const double weight = std::exp(lse_of(lse) - top);
      total += weight;
      squares += weight * weight;
      magnitude = std::max(magnitude, std::abs(lse_of(lse)));
      const std::int64_t begin = offset_of(o, rows[i]);
      for (std::size_t d = 0; d < columns; ++d) {
        const double value = load_element(problem.dtype_q, o.data,
                                          begin + static_cast<std::int64_t>(d));
        result.o[i * columns + d] += weight * value;
        result.max_abs_v = std::max(result.max_abs_v, std::abs(value));
      }
    }
    for (std::size_t d = 0; d < columns && total > 0; ++d) result.o[i * columns + d] /= total;
    result.lse.push_back(total == 0 ? -kInfinity : top + std::log(total));
    result.spread.push_back(total == 0 ? 0 : std::sqrt(squares) / total);
    result.score_magnitude.push_back(magnitude);
  }
  return result;
}

}  // namespace attnforge
