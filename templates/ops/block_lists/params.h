// params.h - the arguments of the kernels that make the lists of block masks on the
// GPU. Compiled by g++ (launch) and NVRTC (kernels).
#pragma once

#include "base_params.h"

namespace attnforge {

/// What of a block's pairs is seen: none, all, some.
inline constexpr u8 kAbsentBlock = 0, kFullBlock = 1, kPartialBlock = 2;

/// A text is asked what it lets be seen. Rows of blocks are in the order [batch, heads, q_blocks].
/// The text's arguments come after it.
struct BlockTextParams {
  FwdParams fwd;  // sizes
  u8* states;     // [rows, kv_blocks]
  // The entries of the lists that the kernel of bits reads.
  const int* row_begin;
  const int* columns;
  const int* bit_blocks;
  u32* bits;
  int heads;
  int q_blocks;
  int kv_blocks;
  int rows;
};

/// Lists as BlockMaskRef (attnforge/plan.h) has them, of states [rows, kv_blocks].
struct BlockListsParams {
  const u8* states;
  int* row_begin;      // [rows + 1]
  int* partial_begin;  // [rows + 1]: partial entries before a row
  int* columns;
  int* bit_blocks;  // null: none has bits; else partial entries have blocks of bits in their order
  int kv_blocks;
  int rows;
};

/// Lists by columns of lists by rows: queries and keys change places.
struct TransposedListsParams {
  const int* row_begin;  // [masks * q_blocks + 1]
  const int* columns;
  const int* bit_blocks;
  const u32* bits;
  u8* states;  // [masks * kv_blocks, q_blocks], absent before
  // What is made of the states, and its bits.
  const int* column_begin;
  const int* rows;
  int* bit_blocks_of_columns;
  u32* bits_of_columns;
  int masks;
  int q_blocks;
  int kv_blocks;
  int block_q;
  int block_kv;
  int blocks_of_bits;
};

}  // namespace attnforge
