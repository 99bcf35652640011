// proxy.cuh - order between ordinary accesses to shared memory and those of wgmma and TMA, which
// go through a proxy of their own (PTX ISA, "membar/fence", "Async proxy").
#pragma once

#include "base.cuh"

namespace attnforge {

/// What this thread wrote to shared memory before is seen by wgmma and TMA operations that are
/// issued after a barrier which this thread passes, or arrives at, next.
ATTNFORGE_DEVICE void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// What this thread sees of global memory, TMA operations that it issues next see too.
ATTNFORGE_DEVICE void fence_proxy_async_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

}  // namespace attnforge
