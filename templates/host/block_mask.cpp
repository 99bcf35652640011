#include "templates/host/block_mask.h"

namespace attnforge {

BlockMaskParams block_mask_params(const Problem& problem) {
  BlockMaskParams params{};
  if (!has_block_mask(problem)) return params;
  params.mask_heads = static_cast<int>(problem.mask_heads);
  params.mask_batch = static_cast<int>(problem.mask_batch);
  params.q_blocks = static_cast<int>(mask_blocks(problem).q);
  return params;
}

}  // namespace attnforge
