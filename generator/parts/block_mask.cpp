// block_mask.cpp - the lists of a block mask in a run.
#include <fmt/format.h>

#include "generator/parts/part.h"
#include "generator/problem/fields.h"
#include "generator/tensors/operand_list.h"
#include "generator/tensors/tensor_check.h"

namespace attnforge {
namespace {

constexpr std::uintptr_t kBitsAlignment = 16;

/// How many blocks are present is the run's, so the lists have no size but a least.
void add_block_mask(OperandList& list) {
  using Role = Operand::Role;
  constexpr auto kMask = &Tensors::block_mask;
  const Problem& p = list.problem;
  const std::int64_t rows = mask_blocks(p).q * p.mask_heads * p.mask_batch;
  list.add_words(operand<&HostTensors::mask_row_begin, kMask, &BlockMaskRef::row_begin>(
                     "mask_row_begin", Role::kTable),
                 rows + 1);
  list.add_longer(operand<&HostTensors::mask_columns, kMask, &BlockMaskRef::columns>("mask_columns",
                                                                                     Role::kTable),
                  1);
  if (!p.mask_bits) return;
  list.add_longer(
      operand<&HostTensors::mask_bits, kMask, &BlockMaskRef::bits>("mask_bits", Role::kTable),
      p.mask_block_q * ((p.mask_block_kv + 31) / 32));
  list.add_longer(operand<&HostTensors::mask_bit_blocks, kMask, &BlockMaskRef::bit_blocks>(
                      "mask_bit_blocks", Role::kTable),
                  1);
}

bool mask_good(const Problem& problem, std::uint64_t, const Tensors& t) {
  const BlockMaskRef& mask = t.block_mask;
  return words_good(mask.row_begin) && words_good(mask.columns) &&
         (!problem.mask_bits ||
          (mask.bits != nullptr && address_bits(mask.bits) % kBitsAlignment == 0 &&
           words_good(mask.bit_blocks)));
}

void explain_mask(const Problem& problem, const Tensors& t) {
  const BlockMaskRef& mask = t.block_mask;
  const struct {
    std::string_view name;
    const void* list;
    std::uintptr_t alignment;
    bool needed;
  } lists[] = {{"row_begin", mask.row_begin, alignof(int), true},
               {"columns", mask.columns, alignof(int), true},
               {"bits", mask.bits, kBitsAlignment, problem.mask_bits},
               {"bit_blocks", mask.bit_blocks, alignof(int), problem.mask_bits}};
  for (const auto& [name, list, alignment, needed] : lists) {
    if (!needed) continue;
    check_address(fmt::format("block_mask.{}", name), list, alignment,
                  fmt::format("but the problem says blocks={}:{}{}; give it device memory "
                              "(attnforge/block_mask.h makes the lists)",
                              problem.mask_block_q, problem.mask_block_kv,
                              problem.mask_bits ? " mask_bits" : ""));
  }
}

constexpr double kUnknownDensity = 0.5;
constexpr double kMostRowsOfBlocks = 1 << 30;  // an index of row_begin is an int

void validate_mask(const Problem& p) {
  if ((p.mask_block_q == 0) != (p.mask_block_kv == 0)) {
    reject_problem("mask_block_q={} and mask_block_kv={} must both be 0 or both not",
                   p.mask_block_q, p.mask_block_kv);
  }
  if (!has_block_mask(p)) {
    if (p.mask_heads != 1 || p.mask_batch != 1 || p.mask_bits || p.density != 0.0f) {
      reject_problem("mask_heads={} mask_batch={}{} density={} need a block mask: blocks=64:64",
                     p.mask_heads, p.mask_batch, p.mask_bits ? " mask_bits" : "", p.density);
    }
    return;
  }
  if (p.mask_heads != 1 && p.mask_heads != p.num_heads_kv && p.mask_heads != p.num_heads_q) {
    reject_problem("mask_heads={} must be 1, num_heads_kv={} or num_heads_q={}", p.mask_heads,
                   p.num_heads_kv, p.num_heads_q);
  }
  if (p.mask_batch != 1 && p.mask_batch != p.batch)
    reject_problem("mask_batch={} must be 1 or batch={}", p.mask_batch, p.batch);
}

/// Rows of blocks of all masks.
double rows_of_blocks(const Problem& p) {
  return static_cast<double>(mask_blocks(p).q) * static_cast<double>(p.mask_heads) *
         static_cast<double>(p.mask_batch);
}

std::string too_many_rows(const Problem& p) {
  if (rows_of_blocks(p) <= kMostRowsOfBlocks) return "";
  return fmt::format(
      "mask_batch={} mask_heads={} and seqlen_q={} in blocks of mask_block_q={} make more than "
      "2^30 "
      "rows of blocks; let heads or sequences share a mask",
      p.mask_batch, p.mask_heads, p.seqlen_q, p.mask_block_q);
}

/// The beginning of each row of blocks, and an entry for each block that is present.
double bytes_of_lists(const Problem& p) {
  return 4.0 * rows_of_blocks(p) *
         (1.0 + static_cast<double>(mask_blocks(p).kv) * effective_density(p));
}

/// A mask for each sequence is one for each of another batch, too.
void follow_batch(const Problem&, Problem& other) {
  if (other.mask_batch != 1) other.mask_batch = other.batch;
}

}  // namespace

double effective_density(const Problem& problem) {
  if (!has_block_mask(problem)) return 1.0;
  return problem.density != 0.0f ? double{problem.density} : kUnknownDensity;
}

MaskBlocks mask_blocks(const Problem& p) {
  if (!has_block_mask(p)) return {0, 0};
  return {.q = (p.seqlen_q + p.mask_block_q - 1) / p.mask_block_q,
          .kv = (p.seqlen_kv + p.mask_block_kv - 1) / p.mask_block_kv};
}

extern const ProblemPart block_mask_of_problem;
constinit const ProblemPart block_mask_of_problem{
    .in = [](const Problem& p) { return has_block_mask(p); },
    .validate = validate_mask,
    .too_large = too_many_rows,
    .round = follow_batch,
    .make_typical = follow_batch,
    .bytes = bytes_of_lists,
    .add_inputs = add_block_mask,
    .good = mask_good,
    .explain = explain_mask};

}  // namespace attnforge
