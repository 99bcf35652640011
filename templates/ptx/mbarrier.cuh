// mbarrier.cuh - barriers in shared memory that count arrivals and bytes (PTX ISA, "mbarrier").
// A barrier goes through phases; a wait names the parity of the phase that is to be over.
#pragma once

#include "base.cuh"

namespace attnforge {

/// A phase is over after `arrivals` arrivals (and all bytes that they announced).
ATTNFORGE_DEVICE void mbarrier_init(u32 barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// Makes initialised barriers visible to TMA; a block barrier must follow.
ATTNFORGE_DEVICE void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

ATTNFORGE_DEVICE void mbarrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Arrives, and lets the phase wait for `bytes` that TMA will write.
ATTNFORGE_DEVICE void mbarrier_arrive_expect(u32 barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

/// Whether the phase with this parity is over, without waiting.
ATTNFORGE_DEVICE bool mbarrier_test(u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, "
      "p; "
      "}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

/// Returns once the phase with this parity is over. The phase before the first counts as over with
/// parity 1.
ATTNFORGE_DEVICE void mbarrier_wait(u32 barrier, u32 parity) {
  u32 done;
  do {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, "
        "p; }"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (!done);
}

}  // namespace attnforge
