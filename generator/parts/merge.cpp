// merge.cpp - the parts that a merge makes one of: o and lse of each.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "generator/parts/part.h"
#include "generator/problem/fields.h"
#include "generator/tensors/operand_list.h"
#include "generator/tensors/tensor_check.h"
#include "generator/tensors/tensor_elements.h"

namespace attnforge {
namespace {

using Role = Operand::Role;

constexpr std::int64_t kMostRows = std::int64_t{1} << 30;  // of a grid

void validate_merge(const Problem& p) {
  if (p.op != Op::kMerge) return;
  if (p.parts < 1) reject_problem("parts={} must be from 1 to 32 of a merge", p.parts);
  if (p.dtype_k != p.dtype_q || p.dtype_v != p.dtype_q)
    reject_problem("k and v have no dtypes in a merge; give one to all, and another to o");
  const auto check_one = [](std::string_view name, std::int64_t first, std::int64_t second) {
    if (first != second)
      reject_problem("{}={}:{} must be one number of a merge", name, first, second);
  };
  check_one("num_heads", p.num_heads_q, p.num_heads_kv);
  check_one("seqlen", p.seqlen_q, p.seqlen_kv);
  check_one("head_dim", p.head_dim, p.head_dim_v);
}

std::string too_many_merged_rows(const Problem& p) {
  const double rows = elements(p.batch * p.seqlen_q, p.num_heads_q, 1);
  if (rows <= kMostRows) return "";
  return fmt::format("batch={} times seqlen={} times num_heads={} are more than {} rows", p.batch,
                     p.seqlen_q, p.num_heads_q, kMostRows);
}

/// Its kernel takes all sizes when it runs: a bucket is a usual one, for each share of a row's
/// parts that a warp may have.
void round_merge(const Problem& exact, Problem& bucket) {
  bucket.parts = std::max(4, static_cast<int>(std::bit_ceil(static_cast<unsigned>(exact.parts))));
  if (exact.batch == 0 || exact.seqlen_q == 0) return;
  bucket.batch = 1;
  bucket.num_heads_q = bucket.num_heads_kv = 16;
  bucket.seqlen_q = bucket.seqlen_kv = 1024;
}

double rows_of_parts(const Problem& p) {
  return elements(p.batch * p.seqlen_q, p.num_heads_q, p.parts);
}

double bytes_of_parts(const Problem& p) {
  return bytes_of(p.dtype_q, rows_of_parts(p) * p.head_dim) + 4.0 * rows_of_parts(p);
}

void bind_later(const Problem&, void*, Tensors&) {}  // by complete_merge(), all at once

void add_parts(OperandList& list) {
  const Problem& p = list.problem;
  const std::int64_t rows = p.parts * list.tokens.q;
  list.add(operand<&HostTensors::parts_o>("parts_o", Role::kInput, bind_later), p.dtype_q, rows,
           p.num_heads_q * p.head_dim);
  list.add_words(operand<&HostTensors::parts_lse>("parts_lse", Role::kInput, bind_later), rows,
                 p.num_heads_q);
}

/// The parts one after another, described in words that live as long as the run.
void complete_merge(const Problem& p, const BoundOperands& run, Tensors& tensors) {
  static_assert(sizeof(AttentionState) % sizeof(std::uint64_t) == 0);
  const auto parts = static_cast<std::size_t>(p.parts);
  const std::int64_t rows = total_tokens(p).q * p.num_heads_q;
  run.code_words.assign(parts * sizeof(AttentionState) / sizeof(std::uint64_t), 0);
  auto* const states = reinterpret_cast<AttentionState*>(run.code_words.data());
  for (std::int64_t i = 0; i < p.parts; ++i) {
    AttentionState& state = *new (states + i) AttentionState{tensors.o, tensors.lse};
    state.o.data = static_cast<std::byte*>(run.addresses[0]) +
                   bytes_of(p.dtype_q, i * rows * p.head_dim);
    state.lse.data = static_cast<float*>(run.addresses[1]) + i * rows;
  }
  tensors.parts = states;
}

bool merge_good(const Problem& p, std::uint64_t, const Tensors& t) {
  if (t.parts == nullptr) return false;
  GoodTensors tensors;
  bool good = true;
  tensors.add(t.o, p.dtype_o);
  for (int i = 0; i < p.parts; ++i) {
    tensors.add(t.parts[i].o, p.dtype_q);
    good &= words_good(t.parts[i].lse.data);
  }
  return good && tensors.all(p);
}

void explain_merge(const Problem& p, const Tensors& t) {
  if (t.parts == nullptr) refuse_tensors("parts is null; give o and lse of {} parts", p.parts);
  check_tensor("o", t.o, p.dtype_o, p.num_heads_q, p.batch, p.seqlen_q, p);
  for (int i = 0; i < p.parts; ++i) {
    check_tensor(fmt::format("o of part {}", i), t.parts[i].o, p.dtype_q, p.num_heads_q, p.batch,
                 p.seqlen_q, p);
    check_address(fmt::format("lse of part {}", i), t.parts[i].lse.data, alignof(float),
                  "but a merge weighs each part by it; give it device memory");
  }
}

}  // namespace

extern const ProblemPart merge_of_problem;
constinit const ProblemPart merge_of_problem{
    .in = [](const Problem& p) { return p.op == Op::kMerge; },
    .validate = validate_merge,
    .too_large = too_many_merged_rows,
    .round = round_merge,
    .bytes = bytes_of_parts,
    .work = 0.5,  // one product for each part
    .add_inputs = add_parts,
    .complete = complete_merge,
    .good = merge_good,
    .explain = explain_merge};

}  // namespace attnforge
