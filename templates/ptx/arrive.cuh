// arrive.cuh - counting blocks in global memory (PTX ISA, "atom"; "Memory Consistency Model").
#pragma once

#include "base.cuh"

namespace attnforge {

/// Counts *counter from 0 to `last`, and then from 0 again; returns what it was. What this thread
/// has seen written before is seen by those that come after it.
ATTNFORGE_DEVICE u32 arrive_and_share(u32* counter, u32 last) {
  u32 before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(last)
               : "memory");
  return before;
}

/// The same without a word about other memory.
ATTNFORGE_DEVICE u32 arrive(u32* counter, u32 last) {
  u32 before;
  asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(last)
               : "memory");
  return before;
}

}  // namespace attnforge
