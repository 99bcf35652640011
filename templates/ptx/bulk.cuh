// bulk.cuh - copies by the tensor memory accelerator without a map (PTX ISA, "cp.async.bulk",
// "cp.reduce.async.bulk"): runs of bytes, whose addresses and sizes are multiples of 16. From sm_90
// on.
#pragma once

#include "base.cuh"

namespace attnforge {

/// What this thread sees of global memory, TMA operations that it issues next see too.
ATTNFORGE_DEVICE void fence_proxy_async_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

/// Copies `bytes` from global memory to `smem_dst`; they count towards `barrier`.
ATTNFORGE_DEVICE void bulk_load(u32 smem_dst, const void* from, int bytes, u32 barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(smem_dst),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

/// Copies `bytes` to global memory.
ATTNFORGE_DEVICE void bulk_store(void* to, u32 smem_from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(smem_from), "r"(bytes)
               : "memory");
}

/// Adds the fp32 numbers in shared memory to those in global memory, in any order with the adds of
/// others.
ATTNFORGE_DEVICE void bulk_add(float* to, u32 smem_from, int bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
      "r"(smem_from), "r"(bytes)
      : "memory");
}

/// Ends a group of this thread's stores and adds.
ATTNFORGE_DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until at most kPending groups have yet to read their shared memory.
template <int kPending>
ATTNFORGE_DEVICE void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
/// Waits until at most kPending groups are not complete: what the others wrote is visible to this
/// thread.
template <int kPending>
ATTNFORGE_DEVICE void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace attnforge
