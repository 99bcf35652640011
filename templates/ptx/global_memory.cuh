// global_memory.cuh - loads of global memory that no run writes (PTX ISA, "ld.global.nc").
// Volatile: they begin where they stand, long before they are used.
#pragma once

#include "base.cuh"

namespace attnforge {

/// 16 bytes, 8 or 4, at an address that is a multiple of that; zeros where `there` is false, and
/// the address is then not read.
ATTNFORGE_DEVICE void load_global(u32 (&r)[4], const void* from, bool there) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; "
      "mov.b32 %3, 0; @p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4]; }"
      : "=&r"(r[0]), "=&r"(r[1]), "=&r"(r[2]), "=&r"(r[3])
      : "l"(from), "r"(int(there)));
}
ATTNFORGE_DEVICE void load_global(u32 (&r)[2], const void* from, bool there) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %3, 0; mov.b32 %0, 0; mov.b32 %1, 0; "
      "@p ld.global.nc.v2.b32 {%0, %1}, [%2]; }"
      : "=&r"(r[0]), "=&r"(r[1])
      : "l"(from), "r"(int(there)));
}
ATTNFORGE_DEVICE void load_global(u32& r, const void* from, bool there) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %2, 0; mov.b32 %0, 0; @p ld.global.nc.b32 %0, [%1]; }"
      : "=&r"(r)
      : "l"(from), "r"(int(there)));
}

}  // namespace attnforge
