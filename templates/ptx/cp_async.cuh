// cp_async.cuh - asynchronous copies from global to shared memory (PTX ISA, "cp.async").
#pragma once

#include "base.cuh"

namespace attnforge {

/// Copies kBytes (4, 8 or 16), both sides aligned to it. 16 bytes bypass L1. kWholeLine: L2 reads
/// the 128 bytes around those 16 from memory.
template <int kBytes, bool kWholeLine = false>
ATTNFORGE_DEVICE void cp_async(u32 smem_dst, const void* gmem_src) {
  if constexpr (kBytes == 16 && kWholeLine) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(smem_dst), "l"(gmem_src)
                 : "memory");
  } else if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(smem_dst), "l"(gmem_src)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(smem_dst), "l"(gmem_src),
                 "n"(kBytes)
                 : "memory");
  }
}

/// cp_async() that writes zeros when `in_bounds` is false, and does not read the source then.
template <int kBytes>
ATTNFORGE_DEVICE void cp_async_or_zero(u32 smem_dst, const void* gmem_src, bool in_bounds) {
  const int source_bytes = in_bounds ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_dst), "l"(gmem_src),
                 "r"(source_bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(smem_dst), "l"(gmem_src),
                 "n"(kBytes), "r"(source_bytes)
                 : "memory");
  }
}

/// An arrival at an mbarrier (ptx/mbarrier.cuh) once all of this thread's copies so far have come.
ATTNFORGE_DEVICE void cp_async_arrive(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

ATTNFORGE_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most kPending of this thread's committed groups are unfinished.
template <int kPending>
ATTNFORGE_DEVICE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace attnforge
