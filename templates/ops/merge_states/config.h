// config.h - what is searched of merge_states. Compiled by g++ (search, launch) and by NVRTC
// (kernel).
#pragma once

#include "base.cuh"
#include "parts/splits/params.h"
#include "shape.h"

namespace attnforge {

struct MergeStatesConfig : Shape {
  int row_warps;  // that share the parts of a row, 1, 2, 4 or 8; the launch says it

  ATTNFORGE_HOST_DEVICE static constexpr int num_threads() { return MergeShape::kThreads; }
  ATTNFORGE_HOST_DEVICE static constexpr int blocks_per_sm() { return 1; }
  ATTNFORGE_HOST_DEVICE constexpr int smem_bytes() const {
    return MergeShape::smem_bytes(head_dim);
  }
};

}  // namespace attnforge
