#include "templates/parts/block_mask/host.h"

#include <fmt/format.h>

#include "attnforge/plan.h"
#include "templates/host/part.h"

namespace attnforge {

BlockMaskParams block_mask_params(const Problem& problem) {
  BlockMaskParams params{};
  if (!has_block_mask(problem)) return params;
  params.mask_heads = static_cast<int>(problem.mask_heads);
  params.mask_batch = static_cast<int>(problem.mask_batch);
  params.q_blocks = static_cast<int>(mask_blocks(problem).q);
  return params;
}

void bind_block_mask(BlockMaskParams& mask, const Tensors& tensors, const RunMemory&) {
  mask.row_begin = tensors.block_mask.row_begin;
  mask.columns = tensors.block_mask.columns;
  mask.bits = tensors.block_mask.bits;
  mask.bit_blocks = tensors.block_mask.bit_blocks;
}

const Part& block_mask_part() {
  static constexpr Part kPart{
      .in = [](const Problem& p, bool) { return has_block_mask(p); },
      .type = [](const Problem&,
                 std::string_view params) { return fmt::format("WithBlockMask<{}>", params); },
      .bytes = [](const Problem&) { return sizeof(BlockMaskParams); },
      .add = [](Argument& argument, const Problem& p,
                const TileWork&) { argument.own<bind_block_mask>(block_mask_params(p)); },
      .extend = [](KernelNames&, const Problem&) {}};
  return kPart;
}

}  // namespace attnforge
