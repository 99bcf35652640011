// shuffle.cuh - templates/ptx/shuffle.cuh on the host.
#pragma once

#include "base.cuh"

namespace attnforge {

inline int from_lane(int x, int lane) { return __shfl_sync(~0u, x, lane); }
inline int from_lane_0(int x) { return __shfl_sync(~0u, x, 0); }
inline int from_lone_lane_0(int x) { return x; }
template <int kMask>
u32 shuffle_xor(u32 x) {
  return test::words_of_lanes(std::array<unsigned, 1>{x})[threadIdx.x % 32 ^ kMask][0];
}

}  // namespace attnforge
