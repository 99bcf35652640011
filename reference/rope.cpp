#include "reference/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "attnforge/error.h"
#include "attnforge/host_tensors.h"

namespace attnforge {
namespace {

constexpr std::int64_t kMaxRows = std::int64_t{1} << 30;  // a row's number is an int in kernels

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

}  // namespace

void check_rope_offset(const Problem& problem, std::int64_t offset) {
  if (problem.rope == Rope::kNone) return;
  const std::int64_t least = least_rope_offset(problem), most = kMaxRows - problem.seqlen_kv;
  if (offset >= least && offset <= most) return;
  refuse(
      fmt::format("rope_offset={} must be at least {}, so that the first of seqlen_q={} queries "
                  "before {} keys takes row 0 of rope's tables or a later one, and at most {}, so "
                  "that these need no more than 2^30 rows",
                  offset, least, problem.seqlen_q, problem.seqlen_kv, most));
}

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

void check_rope_tables(const Problem& problem, const Tensors& tensors) {
  if (problem.rope == Rope::kNone || problem.batch == 0 || problem.seqlen_q == 0) return;
  if (tensors.rope.cos == nullptr || tensors.rope.sin == nullptr) {
    refuse(
        fmt::format("rope_{} is null, but the problem says rope={}; give a table of [rows, {}] "
                    "fp32, or make the plan without rope",
                    tensors.rope.cos == nullptr ? "cos" : "sin", to_string(problem.rope),
                    effective_rope_dim(problem) / 2));
  }
  check_rope_offset(problem, tensors.rope.offset);  // no sum below overflows
  const std::int64_t first_query = rope_row_of_query(problem, tensors, 0);
  const std::int64_t first = problem.seqlen_kv == 0 ? first_query
                                                    : std::min(first_query, tensors.rope.offset);
  const std::int64_t last = std::max(first_query + problem.seqlen_q,
                                     tensors.rope.offset + problem.seqlen_kv) -
                            1;
  if (last >= tensors.rope.rows || last >= kMaxRows) {
    refuse(
        fmt::format("rope_rows={} is too few: positions with rope_offset={} take rows {} to {} of "
                    "rope's tables, which may have up to 2^30",
                    tensors.rope.rows, tensors.rope.offset, first, last));
  }
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

}  // namespace attnforge
