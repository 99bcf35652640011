// turns.cuh - blocks that write to the same memory in an order: a counter says whose turn it is.
#pragma once

#include "base.cuh"

namespace attnforge {

/// What a counter is at. What those wrote that counted is visible then.
ATTNFORGE_DEVICE int counted(const int* counter) {
  int count = 0;
  asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
  return count;
}

/// Waits until `turn` others have passed theirs. What they wrote before is visible then. Blocks
/// that this one waits for must have started before it.
ATTNFORGE_DEVICE void await_turn(const int* counter, int turn) {
  while (counted(counter) != turn) {
  }
}

/// Waits for a count that takes long to come: others need the memory meanwhile.
ATTNFORGE_DEVICE void await_count(const int* counter, int count) {
  while (counted(counter) != count) asm volatile("nanosleep.u32 200;");
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
