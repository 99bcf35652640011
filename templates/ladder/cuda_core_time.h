// cuda_core_time.h - how long FlashAttention kernels without tensor cores take.
#pragma once

#include "attnforge/device.h"
#include "attnforge/problem.h"

namespace attnforge {

struct CudaCoreKernel {
  int block_m, block_n;
  int num_threads;
  int blocks_per_sm;  // for which registers suffice
  int smem_bytes;
  double tile_clocks;  // of an SM that works on one tile of keys of one block and never waits
};

/// Microseconds. `efficiency`: the part of tile_clocks that a busy SM reaches.
double cuda_core_us(const CudaCoreKernel& kernel, const Problem& problem, const DeviceFacts& device,
                    double efficiency);

}  // namespace attnforge
