// sinks.cpp - a sink is a key without a value: its score, and its gradient, which is its
// probability in each row times what the sums of that row leave for it.
#include "reference/parts/sinks.h"

#include <cmath>
#include <limits>
#include <vector>

#include "attnforge/error.h"
#include "reference/dot.h"
#include "reference/half.h"
#include "reference/score.h"
#include "reference/sequences.h"

namespace attnforge {
namespace {

/// |x| where it is finite.
double size_of(double x) { return std::isfinite(x) ? std::abs(x) : 0.0; }

/// Adds a row of o to the sum of its head.
void add_row(const Problem& p, const Tensors& t, const QueryRow& row, ReferenceGradient& dsinks) {
  const auto head = static_cast<std::size_t>(row.head);
  const double lse = number_at(t.lse, row);
  if (lse == -std::numeric_limits<double>::infinity()) return;
  std::vector<double> o(static_cast<std::size_t>(p.head_dim_v)), dout(o.size());
  const auto load = [&](const Tensor& tensor, std::vector<double>& to) {
    load_elements(p.dtype_o, tensor.data, offset_of(tensor, row), p.head_dim_v, to.data());
  };
  load(t.o, o), load(t.gradients.dout, dout);
  const double of_lse = p.dlse ? number_at(t.gradients.dlse, row) : 0.0;
  const double probability = std::exp(double{t.sinks[head]} - lse);
  dsinks.values[head] -= probability * (dot(dout.data(), o.data(), p.head_dim_v) - of_lse);

  double difference = size_of(of_lse);
  for (std::size_t d = 0; d < o.size(); ++d) difference += size_of(dout[d] * o[d]);
  const double size = size_of(probability) * difference;
  dsinks.terms[head].sum += size;
  dsinks.terms[head].by_score += size * (1 + size_of(lse) + size_of(t.sinks[head]));
}

}  // namespace

float sink_of(const Problem& problem, const Tensors& tensors, std::int64_t head) {
  return problem.sinks ? tensors.sinks[head] : -std::numeric_limits<float>::infinity();
}

ReferenceGradient sink_gradients(const Problem& problem, const Tensors& tensors) {
  if (!problem.sinks) return {};
  if (problem.accumulate && tensors.gradients.dsinks == nullptr)
    throw Error(ErrorCode::kInvalidArgument, "reference: dsinks is null; give a host pointer");
  const auto heads = static_cast<std::size_t>(problem.num_heads_q);
  ReferenceGradient dsinks{1, std::vector<double>(heads, 0.0), std::vector<TermSizes>(heads)};
  const Sequences sequences = sequences_of(problem, tensors);
  for (const QueryRow& row : all_rows(sequences))
    add_row(problem, tensors, place_of(sequences, row), dsinks);
  for (std::size_t head = 0; problem.accumulate && head < heads; ++head)
    dsinks.values[head] += tensors.gradients.dsinks[head];
  return dsinks;
}

}  // namespace attnforge
