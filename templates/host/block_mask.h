// block_mask.h - what a problem decides of the block mask in a kernel's argument.
#pragma once

#include "attnforge/problem.h"
#include "templates/params_block_mask.h"

namespace attnforge {

/// How many heads and sequences have a mask, and its rows; the lists are null, for a
/// BlockMaskArgument to fill in. Zeros without a block mask.
BlockMaskParams block_mask_params(const Problem& problem);

}  // namespace attnforge
