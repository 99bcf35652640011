#pragma once
#include "base.cuh"
namespace attnforge {
struct alignas(16) BlockMaskParams {
  const int* row_begin;
  const int* columns;
  const u32* bits;
  const int* bit_blocks;
  int mask_heads, mask_batch, q_blocks;
};
}
