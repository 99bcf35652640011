// exact_mask.cuh - what a block mask and the user's texts make of a query and a key, for the
// oracles: pair by pair, as they are written.
#pragma once

#include "base_params.h"
#include "parts/block_mask/row.cuh"

namespace attnforge {

/// What blocks say of queries of a sequence and a head of q, and any key.
template <auto C, int kRows>
struct SeenBlocks {
  const BlockMaskParams& mask;
  int begin[kRows], end[kRows];  // entries of each row's blocks
  int in_block[kRows];           // the row's place in them

  template <class Params>
  ATTNFORGE_DEVICE SeenBlocks(const Params& params, int sequence, int head,
                              const int (&queries)[kRows])
      : mask(params.mask) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int query = min(queries[r], params.fwd.seqlen_q - 1);
      const int row = mask.row(sequence, head, params.fwd.num_heads_q, query / C.mask_block_q);
      begin[r] = mask.row_begin[row];
      end[r] = mask.row_begin[row + 1];
      in_block[r] = query % C.mask_block_q;
    }
  }
  ATTNFORGE_DEVICE BlockSight operator()(int r, int key) const {
    const int column = key / C.mask_block_kv;
    int entry = begin[r], last = end[r];
    while (entry < last) {
      const int middle = (entry + last) / 2;
      if (mask.columns[middle] / 2 < column) {
        entry = middle + 1;
      } else {
        last = middle;
      }
    }
    if (entry == end[r] || mask.columns[entry] / 2 != column) return BlockSight::kHidden;
    if (mask.columns[entry] % 2 == 0) return BlockSight::kFull;
    if (!C.mask_bits || mask.bit_blocks[entry] < 0) return BlockSight::kPartial;
    constexpr int kWords = mask_words_per_row(C.mask_block_kv);
    const int bit = key % C.mask_block_kv;
    const i64 row = i64(mask.bit_blocks[entry]) * C.mask_block_q + in_block[r];
    return (mask.bits[row * kWords + bit / 32] >> (bit % 32) & 1) != 0 ? BlockSight::kPartial
                                                                       : BlockSight::kHidden;
  }
  /// Whether one of the rows sees it.
  ATTNFORGE_DEVICE bool any(int key) const {
    bool seen = false;
#pragma unroll
    for (int r = 0; r < kRows; ++r) seen = seen || (*this)(r, key) != BlockSight::kHidden;
    return seen;
  }
};
/// Without blocks the text decides about every pair.
struct AllBlocks {
  template <class Params, int kRows>
  ATTNFORGE_DEVICE AllBlocks(const Params&, int, int, const int (&)[kRows]) {}
  ATTNFORGE_DEVICE BlockSight operator()(int, int) const { return BlockSight::kPartial; }
  ATTNFORGE_DEVICE bool any(int) const { return true; }
};
template <bool kMasked, class Masked>
struct BlocksOf {
  using type = Masked;
};
template <class Masked>
struct BlocksOf<false, Masked> {
  using type = AllBlocks;
};
template <auto C, int kRows>
using ExactBlocks = typename BlocksOf<C.has_block_mask(), SeenBlocks<C, kRows>>::type;

/// Whether a query sees a key of which blocks say `sight`.
template <auto C, class Pieces, class Params, class Lengths>
ATTNFORGE_DEVICE bool exact_mask(BlockSight sight, const Params& params, const Lengths& lengths,
                                 int sequence, int head, int query, int key) {
  if (sight == BlockSight::kHidden) return false;
  if constexpr (C.user_mask) {
    if (sight == BlockSight::kPartial)
      return Pieces::Mask::Rule::of_pair(params, lengths, sequence, head, query, key);
  }
  return true;
}

/// Whether one pair is seen, blocks and all.
template <auto C, class Pieces, class Params, class Lengths>
ATTNFORGE_DEVICE bool exact_mask(const Params& params, const Lengths& lengths, int sequence,
                                 int head, int query, int key) {
  if constexpr (C.has_block_mask()) {
    const MaskRow<C.mask_block_q, C.mask_block_kv, C.mask_bits != 0> row(
        params.mask, sequence, head, params.fwd.num_heads_q, query);
    const BlockSight sight = row(key);
    if (sight != BlockSight::kPartial) return sight == BlockSight::kFull;
  }
  if constexpr (C.user_mask)
    return Pieces::Mask::Rule::of_pair(params, lengths, sequence, head, query, key);
  return true;
}

/// What the text makes of a score.
template <auto C, class Pieces, class Params, class Lengths>
ATTNFORGE_DEVICE float exact_text(const Params& params, const Lengths& lengths, int sequence,
                                  int head, int query, int key, float score) {
  if constexpr (C.user_score)
    return Pieces::Score::of_pair(params, lengths, sequence, head, query, key, score);
  return score;
}

/// And of its slope; `score` is that before the text.
template <auto C, class Pieces, class Params, class Lengths>
ATTNFORGE_DEVICE float exact_text_slope(const Params& params, const Lengths& lengths, int sequence,
                                        int head, int query, int key, float score) {
  if constexpr (C.user_score)
    return Pieces::Slope::of_pair(params, lengths, sequence, head, query, key, score);
  return 1.0f;
}

}  // namespace attnforge
