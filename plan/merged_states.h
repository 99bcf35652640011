// merged_states.h - the kernels of merge_states() that a Device has loaded.
#pragma once

#include <cstddef>
#include <functional>

#include "generator/launch.h"
#include "runtime/kernel.h"
#include "templates/host/merge_states.h"

namespace attnforge {

struct MergeKernel {
  Kernel kernel;
  LaunchStep step;  // without a grid
};

struct MergeCodeHash {
  std::size_t operator()(const MergeCode& code) const noexcept {
    const int bits = ((static_cast<int>(code.dtype) * 8 + static_cast<int>(code.dtype_o)) * 1024 +
                      code.head_dim) *
                         32 +
                     code.alignment;
    return std::hash<int>{}(bits);
  }
};

}  // namespace attnforge
