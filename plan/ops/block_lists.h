// block_lists.h - the kernels that make lists of block masks, compiled and loaded once for a GPU.
#pragma once

#include "attnforge/block_mask.h"
#include "plan/device_state.h"
#include "runtime/loaded_launch.h"

namespace attnforge {

/// Those of a text (mask_text_alone()) in blocks of the shape's sizes, and those of all masks. From
/// memory, the database, or the compiler. Throw Error(kNotReady) where one would have to be
/// compiled and may not, Error(kCompile), Error(kNoDriver), Error(kCuda). Thread-safe; what they
/// return lives as long as `state`.
const LoadedKernels& block_text_kernels(const Problem& text, const BlockMaskShape& shape,
                                        bool allow_compile, DeviceState& state);
const LoadedKernels& block_list_kernels(bool allow_compile, DeviceState& state);

}  // namespace attnforge
