// prefetch.cuh - a cache line asked for before it is read (PTX ISA, "prefetch").
#pragma once

#include "base.cuh"

namespace attnforge {

/// The line of global memory at `address` to L1. A hint: nothing waits for it.
ATTNFORGE_DEVICE void prefetch_l1(const void* address) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(address));
}

}  // namespace attnforge
