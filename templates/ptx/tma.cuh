// tma.cuh - copies by the tensor memory accelerator (PTX ISA, "cp.async.bulk.tensor"): tiles of
// tensors by a map, with zeros for elements outside. One thread issues a copy; how copies are
// ordered with ordinary accesses is here too. From sm_90 on.
#pragma once

#include "base_params.h"

namespace attnforge {

/// What this thread wrote to shared memory before is seen by wgmma and TMA operations that are
/// issued after a barrier which this thread passes, or arrives at, next.
ATTNFORGE_DEVICE void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Policies for L2, as createpolicy.fractional makes them for a whole access.
inline constexpr u64 kEvictFirst = 0x12F0000000000000ull;
inline constexpr u64 kEvictLast = 0x14F0000000000000ull;

/// Copies the box at {column, row, head, batch} to `smem_dst`; its bytes, those outside the tensor
/// included, count towards `barrier`.
ATTNFORGE_DEVICE void tma_load_4d(u32 smem_dst, const TensorMap& map, u32 barrier, u64 l2_policy,
                                  int column, int row, int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(smem_dst),
      "l"(&map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch), "l"(l2_policy)
      : "memory");
}

/// tma_load_4d() with five coordinates: {column, packed head, row, head, batch}.
ATTNFORGE_DEVICE void tma_load_5d(u32 smem_dst, const TensorMap& map, u32 barrier, u64 l2_policy,
                                  int column, int packed_head, int row, int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(smem_dst),
      "l"(&map), "r"(barrier), "r"(column), "r"(packed_head), "r"(row), "r"(head), "r"(batch),
      "l"(l2_policy)
      : "memory");
}

}  // namespace attnforge
