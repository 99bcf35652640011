// special_registers.cuh - who this thread is (PTX ISA, "Special registers"). Volatile: read again
// where needed, because a register that lives through a main loop only for its epilogue is one too
// few in the loop. Masked: of a number that may be negative, as assembly gives it, each division by
// 32 would take four instructions, and its remainder five.
#pragma once

#include "base.cuh"

namespace attnforge {

ATTNFORGE_DEVICE int thread_index() {
  int x;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
  return x & 1023;
}

ATTNFORGE_DEVICE int block_index() {
  int x;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(x));
  return x;
}

}  // namespace attnforge
