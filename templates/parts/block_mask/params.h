// params.h - what a kernel needs to know of a block mask.
#pragma once

#include "base.cuh"

namespace attnforge {

/// In the argument of a kernel, after the family's own. The lists as BlockMaskRef
/// (attnforge/plan.h) has them; the numbers are the launch's.
struct alignas(16) BlockMaskParams {
  const int* row_begin;  // [mask_batch * mask_heads * q_blocks + 1]: where a row's entries begin
  const int* columns;    // of an entry: block column * 2 + (1: partial), ascending in a row
  const unsigned*
      bits;  // of a block: rows of mask_words_per_row() words, bit k % 32 of word k / 32
  const int* bit_blocks;  // of an entry: which block of `bits`; -1: it has none
  int mask_heads;         // 1, num_heads_kv or num_heads_q
  int mask_batch;         // 1 or batch
  int q_blocks;           // rows of a head
  int unused;

  /// The row of block row `block_row` in row_begin, of a query head of a sequence.
  ATTNFORGE_CONSTEXPR int row(int sequence, int head, int num_heads_q, int block_row) const {
    // Heads are at most 65535, so their product fits 32 bits without a sign.
    const unsigned mask_head = unsigned(head) * unsigned(mask_heads) / unsigned(num_heads_q);
    return ((mask_batch == 1 ? 0 : sequence) * mask_heads + int(mask_head)) * q_blocks + block_row;
  }
};

/// The argument of a kernel whose own is a Params.
template <class Params>
struct WithBlockMask : Params {
  BlockMaskParams mask;
};

/// 32-bit words of a row of a block of bits.
ATTNFORGE_CONSTEXPR int mask_words_per_row(int mask_block_kv) {
  return ceil_div(mask_block_kv, 32);
}

}  // namespace attnforge
