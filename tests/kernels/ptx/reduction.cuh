// reduction.cuh - templates/ptx/reduction.cuh on the host.
#pragma once

#include "base.cuh"

namespace attnforge {

inline void reduce_add(float* to, float x) { *to += x; }
inline void reduce_add_4(float* to, const float (&x)[4]) {
  for (int i = 0; i < 4; ++i) to[i] += x[i];
}

}  // namespace attnforge
