// reduction.cuh - adding to global memory without reading it (PTX ISA, "red").
#pragma once

#include "base.cuh"

namespace attnforge {

/// *to += x, in any order with other such additions.
ATTNFORGE_DEVICE void reduce_add(float* to, float x) {
  asm volatile("red.global.add.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}

/// Adds to two neighbours, each by itself; `to` is aligned to 8 bytes. One instruction from sm_90
/// on.
ATTNFORGE_DEVICE void reduce_add_2(float* to, float x, float y) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(x), "f"(y) : "memory");
#else
  reduce_add(to, x);
  reduce_add(to + 1, y);
#endif
}

/// Adds to four neighbours, each by itself; `to` is aligned to 16 bytes. One instruction from sm_90
/// on.
ATTNFORGE_DEVICE void reduce_add_4(float* to, const float (&x)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x[0]), "f"(x[1]),
               "f"(x[2]), "f"(x[3])
               : "memory");
#else
  for (int i = 0; i < 4; ++i) reduce_add(to + i, x[i]);
#endif
}

/// The same where `wanted`, without a branch.
ATTNFORGE_DEVICE void reduce_add_4_if(bool wanted, float* to, const float (&x)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\n"
      "@p red.global.add.v4.f32 [%0], {%1, %2, %3, %4};\n}" ::"l"(to),
      "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "r"(int(wanted))
      : "memory");
#else
  if (wanted) reduce_add_4(to, x);
#endif
}

}  // namespace attnforge
