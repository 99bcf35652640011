// shuffle.cuh - registers across the lanes of a warp (PTX ISA, "shfl.sync"). All lanes take part.
// Volatile: the compiler moves others into the branch that uses them, where lanes are missing.
#pragma once

#include "base.cuh"

namespace attnforge {

/// The value of lane (lane ^ kMask).
template <int kMask>
ATTNFORGE_DEVICE u32 shuffle_xor(u32 x) {
  u32 y;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, -1;" : "=r"(y) : "r"(x), "n"(kMask));
  return y;
}

template <int kMask>
ATTNFORGE_DEVICE float shuffle_xor(float x) {
  float y;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, -1;" : "=f"(y) : "f"(x), "n"(kMask));
  return y;
}

/// The value of lane 0, which the compiler then knows to be the same in all lanes.
ATTNFORGE_DEVICE int from_lane_0(int x) { return __shfl_sync(~0u, x, 0); }

/// x of lane 0 where lane 0 is alone: what follows from it takes uniform registers.
ATTNFORGE_DEVICE int from_lone_lane_0(int x) { return __shfl_sync(1u, x, 0); }

/// That of lane `lane`.
ATTNFORGE_DEVICE int from_lane(int x, int lane) { return __shfl_sync(~0u, x, lane); }
ATTNFORGE_DEVICE float from_lane(float x, int lane) { return __shfl_sync(~0u, x, lane); }

/// Bit i: `predicate` holds in lane i (PTX ISA, "vote.sync").
ATTNFORGE_DEVICE u32 lanes_where(bool predicate) { return __ballot_sync(~0u, predicate); }

/// Whether `predicate` holds in any lane (PTX ISA, "vote.sync").
ATTNFORGE_DEVICE bool any_lane(bool predicate) { return __any_sync(~0u, predicate); }

}  // namespace attnforge
