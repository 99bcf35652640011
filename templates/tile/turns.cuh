// turns.cuh - blocks that write to the same memory in an order: a counter says whose turn it is.
#pragma once

#include "base.cuh"

namespace attnforge {

/// Whether `turn` others have passed theirs. What they wrote before is visible then.
ATTNFORGE_DEVICE bool turn_has_come(const int* counter, int turn) {
  int passed;
  asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(passed) : "l"(counter) : "memory");
  return passed == turn;
}
/// Waits until they have. Blocks that this one waits for must have started before it.
ATTNFORGE_DEVICE void await_turn(const int* counter, int turn) {
  while (!turn_has_come(counter, turn)) continue;
}

/// What this thread wrote, and what bulk_wait() waited for, is there for the next.
ATTNFORGE_DEVICE void pass_turn(int* counter) {
  asm volatile(
      "fence.proxy.async.global; fence.acq_rel.gpu; red.relaxed.gpu.global.add.s32 [%0], 1;" ::"l"(
          counter)
      : "memory");
}

}  // namespace attnforge
