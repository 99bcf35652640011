// turns.cuh - blocks that write to the same memory: in an order, where a counter says whose turn it
// is, or in any order after the first, which need not add to zeros.
#pragma once

#include "base.cuh"

namespace attnforge {

/// Waits until `turn` others have passed theirs. What they wrote before is visible then. Blocks
/// that this one waits for must have started before it.
ATTNFORGE_DEVICE void await_turn(const int* counter, int turn) {
  int passed;
  do {
    asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(passed) : "l"(counter) : "memory");
  } while (passed != turn);
}

/// What this thread wrote, and what bulk_wait() waited for, is there for the next.
ATTNFORGE_DEVICE void pass_turn(int* counter) {
  asm volatile(
      "fence.proxy.async.global; fence.acq_rel.gpu; red.release.gpu.global.add.s32 [%0], 1;" ::"l"(
          counter)
      : "memory");
}

/// Whether this thread is the first to come to `state`, which was 0: then it calls pass_first()
/// when it has stored. Others wait until the first has; what it stored is visible then. A state
/// that was come to is not 0 again.
ATTNFORGE_DEVICE bool come_first(int* state) {
  constexpr int kStored = 2;
  int seen;
  asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(seen) : "l"(state) : "memory");
  if (seen == kStored) return false;
  asm volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], 0, 1;"
               : "=r"(seen)
               : "l"(state)
               : "memory");
  if (seen == 0) return true;
  await_turn(state, kStored);
  return false;
}

/// What this thread stored, and what bulk_wait() waited for, is there for the others.
ATTNFORGE_DEVICE void pass_first(int* state) { pass_turn(state); }  // 1 to 2

}  // namespace attnforge
