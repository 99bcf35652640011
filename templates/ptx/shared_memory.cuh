// shared_memory.cuh - shared memory by 32-bit address (PTX ISA, "State spaces", "ld", "st"):
// cheaper to compute with than a generic pointer.
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

/// 16 bytes, aligned to 16.
ATTNFORGE_DEVICE void store_shared(u32 address, const float (&x)[4]) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(x[0]), "f"(x[1]),
               "f"(x[2]), "f"(x[3])
               : "memory");
}

ATTNFORGE_DEVICE void load_shared(float (&x)[4], u32 address) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
               : "r"(address)
               : "memory");
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

}  // namespace attnforge
