// shared_floats.cuh - some floats of shared memory at a time (PTX ISA, "ld", "st").
#pragma once

#include "base.cuh"

namespace attnforge {

/// 1, 2 or 4 floats, from an address aligned to all of them.
template <int kFloats>
ATTNFORGE_DEVICE void load_shared_floats(float (&x)[kFloats], u32 address) {
  static_assert(kFloats == 1 || kFloats == 2 || kFloats == 4, "loads have 4, 8 or 16 bytes");
  if constexpr (kFloats == 4) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
                 : "r"(address)
                 : "memory");
  } else if constexpr (kFloats == 2) {
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(x[0]), "=f"(x[1])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x[0]) : "r"(address) : "memory");
  }
}

/// Stores kFloats floats to such an address.
template <int kFloats>
ATTNFORGE_DEVICE void store_shared_floats(u32 address, const float (&x)[kFloats]) {
  static_assert(kFloats == 1 || kFloats == 2 || kFloats == 4, "stores have 4, 8 or 16 bytes");
  if constexpr (kFloats == 4) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(x[0]), "f"(x[1]),
                 "f"(x[2]), "f"(x[3])
                 : "memory");
  } else if constexpr (kFloats == 2) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x[0]), "f"(x[1])
                 : "memory");
  } else {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(x[0]) : "memory");
  }
}

}  // namespace attnforge
