#include "templates/parts/block_mask/host.h"

#include <fmt/format.h>

#include "attnforge/plan.h"
#include "templates/host/assembly.h"
#include "templates/host/launch_work.h"

namespace attnforge {

extern const Part block_mask_part;

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

constinit const Part block_mask_part{
    .name = "block_mask",
    .in = [](const Assembly& a) { return has_block_mask(a.problem); },
    .type = [](const Assembly&,
               std::string_view params) { return fmt::format("WithBlockMask<{}>", params); },
    .bytes = [](const Assembly&) { return sizeof(BlockMaskParams); },
    .add =
        [](Argument& argument, const LaunchWork& work) {
          argument.own<bind_block_mask>(block_mask_params(work.problem()));
        },
    .fill =
        [](Entry& entry, const Assembly& a) {
          if (!a.gathers()) return;
          entry.pieces.fill(Slot::kListSource, {fmt::format("BlockSource<kConfig.mask_block_q, "
                                                            "kConfig.mask_block_kv{}>",
                                                            a.lists_by_steps() ? "" : ", true"),
                                                "parts/block_mask/list_source.cuh"});
          if (a.shape.mask_bits)
            entry.pieces.fill(Slot::kListRule,
                              {"BlockBits<kConfig.mask_block_q, kConfig.mask_block_kv>",
                               "parts/block_mask/list_rule.cuh"});
        }};

}  // namespace attnforge
