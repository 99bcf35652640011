// clear_rows_of_v.cuh - what keeps another sequence's keys out of the products of fwd_wgmma_sm90a.
#pragma once

#include "ptx/shared_memory.cuh"
#include "ptx/special_registers.cuh"
#include "ptx/tma.cuh"
#include "ptx/warpgroup.cuh"

namespace attnforge {

/// Zeros in V's rows from `present` on, those after the last key: their probabilities are 0, which
/// is not enough where they are another sequence's NaN. Every warpgroup writes them.
template <auto C, class Warpgroup>
ATTNFORGE_DEVICE void clear_rows_of_v(const Warpgroup& wg, int present) {
  if (present >= C.block_n) return;
  constexpr int kRowPieces = C.swizzle / 16;  // of 16 bytes
  constexpr float kZeros[4] = {};
  const int thread = thread_index() % 128;
#pragma unroll 1
  for (int c = 0; c < C.v_chunks(); ++c) {
    const u32 chunk = wg.smem.v(wg.v_ring.stage) + c * C.kv_chunk_bytes();
#pragma unroll 1
    for (int i = present * kRowPieces + thread; i < C.block_n * kRowPieces; i += 128)
      store_shared(chunk + i * 16, kZeros);
  }
  fence_proxy_async();
  named_barrier_wait(4 + wg.warpgroup, 128);
}

}  // namespace attnforge
