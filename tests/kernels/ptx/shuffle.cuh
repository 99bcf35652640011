// shuffle.cuh - templates/ptx/shuffle.cuh on the host.
#pragma once

#include "base.cuh"

namespace attnforge {

inline int from_lane(int x, int lane) { return __shfl_sync(~0u, x, lane); }
inline float from_lane(float x, int lane) {
  return __int_as_float(from_lane(__float_as_int(x), lane));
}
inline int from_lane_0(int x) { return __shfl_sync(~0u, x, 0); }
inline int from_lone_lane_0(int x) { return x; }
template <int kMask>
u32 shuffle_xor(u32 x) {
  return test::words_of_lanes(std::array<unsigned, 1>{x})[threadIdx.x % 32 ^ kMask][0];
}
template <int kMask>
float shuffle_xor(float x) {
  return __uint_as_float(shuffle_xor<kMask>(__float_as_uint(x)));
}
inline u32 lanes_where(bool predicate) { return __ballot_sync(~0u, predicate); }
inline bool any_lane(bool predicate) { return __any_sync(~0u, predicate); }

}  // namespace attnforge
