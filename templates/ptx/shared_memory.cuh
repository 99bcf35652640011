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

ATTNFORGE_DEVICE int load_shared(u32 address) {
  int value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

}  // namespace attnforge
