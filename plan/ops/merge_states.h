// merge_states.h - the kernels of merge_states() that a Device has loaded.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "generator/launch.h"
#include "runtime/loaded_launch.h"
#include "templates/ops/merge_states/host.h"

namespace attnforge {

struct MergeKernel {
  std::unique_ptr<LoadedKernels> kernels;  // one
  LaunchStep step;                         // without a grid
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
