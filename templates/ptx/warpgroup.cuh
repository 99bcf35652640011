// warpgroup.cuh - what warpgroups need besides matrix products: registers moved between them (PTX
// ISA, "setmaxnreg") and barriers for some of a block's warps ("bar").
#pragma once

#include "base.cuh"

namespace attnforge {

/// Takes registers up to kRegisters a thread, waiting until others have given theirs away. All that
/// can be handed out is registers at launch times threads: asking for more waits for ever.
template <int kRegisters>
ATTNFORGE_DEVICE void registers_grow() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
ATTNFORGE_DEVICE void registers_shrink() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// Barrier `id` (1 to 15) is passed when `threads` threads have come to it, by waiting or not.
ATTNFORGE_DEVICE void named_barrier_wait(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
/// named_barrier_wait() that says whether `what` is true in all threads.
ATTNFORGE_DEVICE bool named_barrier_all(int id, int threads, bool what) {
  u32 all;
  asm volatile(
      "{ .reg .pred p, q; setp.ne.u32 p, %3, 0; bar.red.and.pred q, %1, %2, p; "
      "selp.u32 %0, 1, 0, q; }"
      : "=r"(all)
      : "r"(id), "r"(threads), "r"(static_cast<u32>(what))
      : "memory");
  return all != 0;
}
ATTNFORGE_DEVICE void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace attnforge
