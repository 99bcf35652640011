// block_mask.cpp - the lists of a block mask in a run.
#include <fmt/format.h>

#include "generator/operand_list.h"
#include "generator/run_parts.h"
#include "generator/tensor_check.h"

namespace attnforge {
namespace {

constexpr std::uintptr_t kBitsAlignment = 16;

/// How many blocks are present is the run's, so the lists have no size but a least.
void add_block_mask(OperandList& list) {
  using Role = Operand::Role;
  const Problem& p = list.problem;
  const std::int64_t rows = mask_blocks(p).q * p.mask_heads * p.mask_batch;
  list.add_words(
      operand<&HostTensors::mask_row_begin>("mask_row_begin", Role::kTable,
                                            [](const Problem&, void* data, Tensors& t) {
                                              t.block_mask.row_begin = static_cast<int*>(data);
                                            }),
      rows + 1);
  list.add_longer(
      operand<&HostTensors::mask_columns>("mask_columns", Role::kTable,
                                          [](const Problem&, void* data, Tensors& t) {
                                            t.block_mask.columns = static_cast<int*>(data);
                                          }),
      1);
  if (!p.mask_bits) return;
  list.add_longer(
      operand<&HostTensors::mask_bits>("mask_bits", Role::kTable,
                                       [](const Problem&, void* data, Tensors& t) {
                                         t.block_mask.bits = static_cast<std::uint32_t*>(data);
                                       }),
      p.mask_block_q * ((p.mask_block_kv + 31) / 32));
  list.add_longer(
      operand<&HostTensors::mask_bit_blocks>("mask_bit_blocks", Role::kTable,
                                             [](const Problem&, void* data, Tensors& t) {
                                               t.block_mask.bit_blocks = static_cast<int*>(data);
                                             }),
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

}  // namespace

extern const RunPart block_mask_in_run;
constinit const RunPart block_mask_in_run{.in = [](const Problem& p) { return has_block_mask(p); },
                                          .add_inputs = add_block_mask,
                                          .good = mask_good,
                                          .explain = explain_mask};

}  // namespace attnforge
