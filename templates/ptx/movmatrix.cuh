// movmatrix.cuh - an 8 x 8 matrix of 16-bit elements in a fragment, transposed (PTX ISA,
// "movmatrix").
#pragma once

#include "base.cuh"

namespace attnforge {

ATTNFORGE_DEVICE u32 movmatrix_trans(u32 x) {
  u32 y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

}  // namespace attnforge
