// host.h - what a problem decides of the block mask in a kernel's argument.
#pragma once

#include "attnforge/problem.h"
#include "generator/launch.h"
#include "templates/parts/block_mask/params.h"

namespace attnforge {

/// How many heads and sequences have a mask, and its rows; the lists are null, for a run to fill
/// in. Zeros without a block mask.
BlockMaskParams block_mask_params(const Problem& problem);
void bind_block_mask(BlockMaskParams& mask, const Tensors& tensors, const RunMemory& memory);

}  // namespace attnforge
