// exact_mask.cuh - what a block mask and the user's texts make of a query and a key, for the
// oracles: pair by pair, as they are written.
#pragma once

#include "base.cuh"
#include "tile/mask_row.cuh"

namespace attnforge {

/// Of a query and a key of a sequence and a head of q. Without blocks the text decides about every
/// pair.
template <auto C, class Params>
ATTNFORGE_DEVICE BlockSight exact_sight(const Params& params, int sequence, int head, int query,
                                        int key) {
  if constexpr (C.has_block_mask()) {
    const MaskRow<C.mask_block_q, C.mask_block_kv, C.mask_bits != 0> row(
        params.mask, sequence, head, params.fwd.num_heads_q, query);
    return row(key);
  }
  return BlockSight::kPartial;
}

/// Whether blocks hide the key, whatever the text says.
template <auto C, class Params>
ATTNFORGE_DEVICE bool exact_hidden(const Params& params, int sequence, int head, int query,
                                   int key) {
  return exact_sight<C>(params, sequence, head, query, key) == BlockSight::kHidden;
}

/// Whether blocks and text let the query see the key.
template <auto C, class Pieces, class Params, class Lengths>
ATTNFORGE_DEVICE bool exact_mask(const Params& params, const Lengths& lengths, int sequence,
                                 int head, int query, int key) {
  const BlockSight sight = exact_sight<C>(params, sequence, head, query, key);
  if (sight != BlockSight::kPartial) return sight == BlockSight::kFull;
  if constexpr (C.user_mask)
    return Pieces::Mask::Rule::of_pair(params.fwd, lengths, sequence, head, query, key);
  return true;
}

/// What the text makes of a score.
template <auto C, class Pieces, class Params, class Lengths>
ATTNFORGE_DEVICE float exact_text(const Params& params, const Lengths& lengths, int sequence,
                                  int head, int query, int key, float score) {
  if constexpr (C.user_score)
    return Pieces::Score::of_pair(params.fwd, lengths, sequence, head, query, key, score);
  return score;
}

/// And of its slope; `score` is that before the text.
template <auto C, class Pieces, class Params, class Lengths>
ATTNFORGE_DEVICE float exact_text_slope(const Params& params, const Lengths& lengths, int sequence,
                                        int head, int query, int key, float score) {
  if constexpr (C.user_score)
    return Pieces::Slope::of_pair(params.fwd, lengths, sequence, head, query, key, score);
  return 1.0f;
}

}  // namespace attnforge
