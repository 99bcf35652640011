// launch.h - a launch as data: what a family asks the driver to do, with no driver types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace attnforge {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

/// One kernel launch.
struct LaunchStep {
  std::string kernel;  // extern "C" symbol in the cubin
  Dim3 grid, block;
  Dim3 cluster;                   // {1, 1, 1}: no cluster attribute
  int smem_bytes = 0;             // dynamic
  std::vector<std::byte> params;  // the kernel's one argument with everything filled in that does
                                  // not come from Tensors
};

/// All steps of a run, in stream order. No steps: nothing to do (seqlen_q or batch is 0).
struct Launch {
  std::vector<LaunchStep> steps;
  std::size_t workspace_bytes = 0;
};

/// Largest params struct that a run copies to its stack. CUDA allows 4096; ours are small.
inline constexpr std::size_t kMaxParamsBytes = 1024;

}  // namespace attnforge
