#include "reference/parts/rope.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "reference/half.h"
#include "reference/parts/scales.h"

namespace attnforge {

void set_rope_tables(const Problem& problem, HostTensors& host, double base, std::int64_t offset) {
  if (problem.rope == Rope::kNone) return;
  if (offset < 0) offset = least_rope_offset(problem);
  check_rope_offset(problem, offset);
  host.rope_offset = offset;
  HostRopeTables tables = rope_tables(effective_rope_dim(problem),
                                      host.rope_offset + problem.seqlen_kv, base);
  host.rope_cos = std::move(tables.cos);
  host.rope_sin = std::move(tables.sin);
}

HostRopeTables rope_tables(int rope_dim, std::int64_t rows, double base) {
  const int pairs = rope_dim / 2;
  HostRopeTables tables;
  tables.cos.reserve(static_cast<std::size_t>(rows * pairs));
  tables.sin.reserve(static_cast<std::size_t>(rows * pairs));
  std::vector<double> frequencies;
  for (int i = 0; i < pairs; ++i) frequencies.push_back(std::pow(base, -2.0 * i / rope_dim));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(row) * frequency;
      tables.cos.push_back(static_cast<float>(std::cos(angle)));
      tables.sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return tables;
}

std::int64_t rope_row_of_key(const Tensors& tensors, std::int64_t key) {
  return tensors.rope.offset + key;
}

std::int64_t rope_row_of_query(const Problem& problem, const Tensors& tensors, std::int64_t query) {
  return tensors.rope.offset + query + problem.seqlen_kv - problem.seqlen_q;
}

void rotate(const Problem& problem, const Tensors& tensors, std::int64_t table_row, double* row) {
  const int pairs = effective_rope_dim(problem) / 2;
  const bool interleaved = problem.rope == Rope::kInterleaved;
  for (int i = 0; i < pairs; ++i) {
    const double cos = tensors.rope.cos[table_row * pairs + i],
                 sin = tensors.rope.sin[table_row * pairs + i];
    double& x = row[interleaved ? 2 * i : i];
    double& y = row[interleaved ? 2 * i + 1 : i + pairs];
    const double rotated_x = x * cos - y * sin, rotated_y = y * cos + x * sin;
    x = rotated_x;
    y = rotated_y;
  }
}

bool changes_rows(const Problem& problem) { return problem.rope != Rope::kNone; }

bool may_round_rows(const Problem& problem) {
  return changes_rows(problem) || (is_low_bit(problem.dtype_k) && !is_low_bit(problem.dtype_q));
}

void set_usual_factor_tables(const Problem& problem, HostTensors& host) {
  set_rope_tables(problem, host);
}

void change_query(const Problem& problem, const Tensors& tensors, std::int64_t query, double* row) {
  rotate(problem, tensors, rope_row_of_query(problem, tensors, query), row);
}
void change_key(const Problem& problem, const Tensors& tensors, std::int64_t key, double* row) {
  rotate(problem, tensors, rope_row_of_key(tensors, key), row);
}

// Rotated elements of q and k are rounded: each product of a score is off by up to 2 roundings,
// independently, 0.8 of one in the root mean square. The score is then off by that times
// product_magnitude; six times the mean is as good as never exceeded. Of numbers times scales only
// those of k are rounded, but those of a few different ones are not independent: 5.7 times a
// rounding was seen in an output, which is allowed twice as much as this.
double row_change_error(const Problem& problem) {
  if (may_be_widened(problem) && is_low_bit(problem.dtype_k))
    return 5 * unit_roundoff(problem.dtype_q);
  if (problem.rope == Rope::kNone) return 0;
  return 5 * std::max(unit_roundoff(problem.dtype_q), unit_roundoff(problem.dtype_k));
}

}  // namespace attnforge
