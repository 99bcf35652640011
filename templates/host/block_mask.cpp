#include "templates/host/block_mask.h"

#include <fmt/format.h>

#include "templates/host/parts.h"

namespace attnforge {

BlockMaskParams block_mask_params(const Problem& problem) {
  BlockMaskParams params{};
  if (!has_block_mask(problem)) return params;
  params.mask_heads = static_cast<int>(problem.mask_heads);
  params.mask_batch = static_cast<int>(problem.mask_batch);
  params.q_blocks = static_cast<int>(mask_blocks(problem).q);
  return params;
}

const Part& block_mask_part() {
  static constexpr Part kPart{
      .in = [](const Problem& p, bool) { return has_block_mask(p); },
      .type = [](const Problem&,
                 std::string_view params) { return fmt::format("WithBlockMask<{}>", params); },
      .bytes = [](const Problem&) { return sizeof(BlockMaskParams); },
      .add = [](Argument& argument, const Problem& p,
                const TileWork&) { argument.part(block_mask_params(p), BlockMaskArgument{}); },
      .extend = [](KernelNames&, const Problem&) {}};
  return kPart;
}

}  // namespace attnforge
