// turns.cuh - blocks that write to the same memory in an order: a counter says whose turn it is.
#pragma once

#include "base.cuh"

namespace attnforge {

/// Waits until `turn` others have passed theirs. What they wrote before is visible then. Blocks
/// that this one waits for must have started before it.
ATTNFORGE_DEVICE void await_turn(const int* counter, int turn) {
  int passed;
  // NOLINTNEXTLINE(bugprone-infinite-loop): the assembly writes `passed`; on the host there is none
  do {
    asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(passed) : "l"(counter) : "memory");
  } while (passed != turn);
}

/// Waits until a counter is at `count`, which takes long: others need the memory meanwhile. What
/// those wrote that counted is visible then.
ATTNFORGE_DEVICE void await_count(const int* counter, int count) {
  int counted;
  // NOLINTNEXTLINE(bugprone-infinite-loop): as above
  for (;;) {
    asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(counted) : "l"(counter) : "memory");
    if (counted == count) return;
    asm volatile("nanosleep.u32 200;");
  }
}

/// What this thread wrote, what others of its warp wrote before they met (__syncwarp), and what
/// bulk_wait() waited for, is there for the next.
ATTNFORGE_DEVICE void pass_turn(int* counter) {
  asm volatile(
      "fence.proxy.async.global; fence.acq_rel.gpu; red.relaxed.gpu.global.add.s32 [%0], 1;" ::"l"(
          counter)
      : "memory");
}

}  // namespace attnforge
