// reduction.cuh - templates/ptx/reduction.cuh on the host.
#pragma once

#include "base.cuh"

namespace attnforge {

inline void reduce_add(float* to, float x) { *to += x; }
inline void reduce_add_2(float* to, float x, float y) {
  reduce_add(to, x);
  reduce_add(to + 1, y);
}
inline void reduce_add_4(float* to, const float (&x)[4]) {
  for (int i = 0; i < 4; ++i) to[i] += x[i];
}
inline void reduce_add_4_if(bool wanted, float* to, const float (&x)[4]) {
  if (wanted) reduce_add_4(to, x);
}

}  // namespace attnforge
