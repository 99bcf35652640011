// rope.cpp - the tables of a rope in a run, and the rows of them that it takes.
#include <algorithm>

#include "generator/parts/part.h"
#include "generator/problem/fields.h"
#include "generator/tensors/operand_list.h"
#include "generator/tensors/tensor_check.h"

namespace attnforge {
namespace {

// A row's number is an int in kernels.
constexpr std::int64_t kMostRowsOfTables = std::int64_t{1} << 30;
constexpr std::uintptr_t kTableAlignment = 16;

void add_rope(OperandList& list) {
  const Problem& p = list.problem;
  const std::int64_t pairs = effective_rope_dim(p) / 2, rows = least_rope_offset(p) + p.seqlen_kv;
  for (const Operand& table : {operand<&HostTensors::rope_cos, &Tensors::rope, &RopeTables::cos>(
                                   "rope_cos", Operand::Role::kTable),
                               operand<&HostTensors::rope_sin, &Tensors::rope, &RopeTables::sin>(
                                   "rope_sin", Operand::Role::kTable)})
    list.add_words(table, rows, pairs).may_be_longer = true;
}

RopeTables with_rows_of(RopeTables tables, const Problem& problem, const HostTensors& host) {
  const auto pairs = static_cast<std::size_t>(effective_rope_dim(problem) / 2);
  tables.rows = static_cast<std::int64_t>(host.rope_cos.size() / pairs);
  tables.offset = host.rope_offset;
  return tables;
}

void complete_rope(const Problem& problem, const BoundOperands& run, Tensors& tensors) {
  tensors.rope = with_rows_of(tensors.rope, problem, run.host);
}

/// Tables that no plan could mind; explain_rope() looks closer.
bool rope_good(const Problem& problem, std::uint64_t, const Tensors& t) {
  const RopeTables& rope = t.rope;
  return rope.cos != nullptr && rope.sin != nullptr &&
         (address_bits(rope.cos) | address_bits(rope.sin)) % kTableAlignment == 0 &&
         rope.offset >= least_rope_offset(problem) && rope.rows >= 0 &&
         rope.rows <= kMostRowsOfTables && rope.offset <= rope.rows - problem.seqlen_kv;
}

void check_table_rows(const Problem& problem, const RopeTables& rope) {
  if (problem.batch == 0 || problem.seqlen_q == 0) return;
  for (const auto& [name, table] : {std::pair("rope_cos", rope.cos), {"rope_sin", rope.sin}}) {
    if (table != nullptr) continue;
    refuse_tensors(
        "{} is null, but the problem says rope={}; give a table of [rows, {}] fp32, or make the "
        "plan without rope",
        name, to_string(problem.rope), effective_rope_dim(problem) / 2);
  }
  check_rope_offset(problem, rope.offset);  // no sum below overflows
  const std::int64_t first_query = rope.offset + problem.seqlen_kv - problem.seqlen_q;
  const std::int64_t first = problem.seqlen_kv == 0 ? first_query
                                                    : std::min(first_query, rope.offset);
  const std::int64_t last = std::max(first_query + problem.seqlen_q,
                                     rope.offset + problem.seqlen_kv) -
                            1;
  if (last >= rope.rows || last >= kMostRowsOfTables) {
    refuse_tensors(
        "rope_rows={} is too few: positions with rope_offset={} take rows {} to {} of rope's "
        "tables, which may have up to 2^30",
        rope.rows, rope.offset, first, last);
  }
}

void explain_rope(const Problem& problem, const Tensors& t) {
  check_table_rows(problem, t.rope);
  check_alignment("rope_cos", t.rope.cos, kTableAlignment);
  check_alignment("rope_sin", t.rope.sin, kTableAlignment);
}

void check_host_tables(const Problem& problem, std::span<const Operand>, const HostTensors& host) {
  if (host.rope_cos.size() != host.rope_sin.size()) {
    refuse_tensors(
        "host tensors rope_cos and rope_sin have {} and {} elements; they must be of one size",
        host.rope_cos.size(), host.rope_sin.size());
  }
  const RopeTables tables{.cos = host.rope_cos.data(), .sin = host.rope_sin.data()};
  check_table_rows(problem, with_rows_of(tables, problem, host));
}

void validate_rope(const Problem& p) {
  if (p.rope == Rope::kNone && p.rope_dim != 0) {
    reject_problem("rope_dim={} needs rope=interleaved or rope=half", p.rope_dim);
  }
  if (p.rope_dim > p.head_dim) {
    reject_problem("rope_dim={} must be at most head_dim={}", p.rope_dim, p.head_dim);
  }
}

double bytes_of_tables(const Problem& p) {
  if (!is_attention(p)) return 0;  // an append takes rows of them
  return 4.0 * effective_rope_dim(p) * static_cast<double>(std::max(p.seqlen_q, p.seqlen_kv));
}

}  // namespace

void check_rope_offset(const Problem& problem, std::int64_t offset) {
  if (problem.rope == Rope::kNone) return;
  const std::int64_t least = least_rope_offset(problem),
                     most = kMostRowsOfTables - problem.seqlen_kv;
  if (offset >= least && offset <= most) return;
  refuse_tensors(
      "rope_offset={} must be at least {}, so that the first of seqlen_q={} queries before {} keys "
      "takes row 0 of rope's tables or a later one, and at most {}, so that these need no more "
      "than 2^30 rows",
      offset, least, problem.seqlen_q, problem.seqlen_kv, most);
}

int effective_rope_dim(const Problem& problem) {
  if (problem.rope == Rope::kNone) return 0;
  return problem.rope_dim != 0 ? problem.rope_dim : problem.head_dim;
}

std::int64_t least_rope_offset(const Problem& problem) {
  if (!is_attention(problem)) return 0;
  return std::max<std::int64_t>(0, problem.seqlen_q - problem.seqlen_kv);
}

extern const ProblemPart rope_of_problem;
constinit const ProblemPart rope_of_problem{
    .in = [](const Problem& p) { return p.rope != Rope::kNone; },
    .validate = validate_rope,
    .bytes = bytes_of_tables,
    .add_inputs = add_rope,
    .complete = complete_rope,
    .check_host = check_host_tables,
    .good = rope_good,
    .explain = explain_rope};

}  // namespace attnforge
