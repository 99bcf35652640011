// shared_memory.cuh - shared memory by 32-bit address, which is cheaper than a generic pointer.
#pragma once

#include "base.cuh"

namespace attnforge {

/// An address in shared memory as the 32 bits that instructions take.
ATTNFORGE_DEVICE u32 smem_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

ATTNFORGE_DEVICE void store_shared(u32 address, int value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

ATTNFORGE_DEVICE void store_shared_16(u32 address, u16 value) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(address), "h"(value) : "memory");
}

ATTNFORGE_DEVICE int load_shared(u32 address) {
  int value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

/// 8 and 16 bytes, at an address aligned to as many.
ATTNFORGE_DEVICE void load_shared_8(u32& low, u32& high, u32 address) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
               : "=r"(low), "=r"(high)
               : "r"(address)
               : "memory");
}
ATTNFORGE_DEVICE void store_shared_8(u32 address, u32 low, u32 high) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(low), "r"(high) : "memory");
}
ATTNFORGE_DEVICE void load_shared_16(u32 (&words)[4], u32 address) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}
ATTNFORGE_DEVICE void store_shared_16(u32 address, const u32 (&words)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(words[0]),
               "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

/// 1, 2 or 4 floats, from an address aligned to all of them.
template <int kFloats>
ATTNFORGE_DEVICE void load_shared(float (&x)[kFloats], u32 address) {
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
ATTNFORGE_DEVICE void store_shared(u32 address, const float (&x)[kFloats]) {
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
