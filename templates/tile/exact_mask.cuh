// exact_mask.cuh - what a block mask and the user's texts make of a query and a key, for the
// oracles: pair by pair, as they are written.
#pragma once

#include "base.cuh"
#include "params_fwd.h"
#include "tile/mask_row.cuh"

namespace attnforge {

template <int... kIndices>
struct RowIndices {};
template <int kCount, int... kIndices>
struct CountedRows : CountedRows<kCount - 1, kCount - 1, kIndices...> {};
template <int... kIndices>
struct CountedRows<0, kIndices...> {
  using type = RowIndices<kIndices...>;
};

/// What blocks say of queries of a sequence and a head of q, and any key. Without blocks the text
/// decides about every pair.
template <bool kMasked, class Row, int kRows>
struct SeenBlocks {
  template <class Params>
  ATTNFORGE_DEVICE SeenBlocks(const Params&, int, int, const int (&)[kRows]) {}
  ATTNFORGE_DEVICE BlockSight operator()(int, int) const { return BlockSight::kPartial; }
  ATTNFORGE_DEVICE bool any(int) const { return true; }
};
template <class Row, int kRows>
struct SeenBlocks<true, Row, kRows> {
  Row rows[kRows];

  template <class Params>
  ATTNFORGE_DEVICE SeenBlocks(const Params& params, int sequence, int head,
                              const int (&queries)[kRows])
      : SeenBlocks(params, sequence, head, queries, typename CountedRows<kRows>::type()) {}
  ATTNFORGE_DEVICE BlockSight operator()(int r, int key) const { return rows[r](key); }
  /// Whether one of the queries sees it.
  ATTNFORGE_DEVICE bool any(int key) const {
    bool seen = false;
#pragma unroll
    for (int r = 0; r < kRows; ++r) seen = seen || (*this)(r, key) != BlockSight::kHidden;
    return seen;
  }

 private:
  template <class Params, int... kIndices>
  ATTNFORGE_DEVICE SeenBlocks(const Params& params, int sequence, int head,
                              const int (&queries)[kRows], RowIndices<kIndices...>)
      : rows{Row(params.mask, sequence, head, params.fwd.num_heads_q,
                 min(queries[kIndices], params.fwd.seqlen_q - 1))...} {}  // or past the end
};
template <auto C, int kRows>
using ExactBlocks = SeenBlocks<C.has_block_mask(),
                               MaskRow<C.mask_block_q, C.mask_block_kv, C.mask_bits != 0>, kRows>;

/// The same of one query and one key.
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

/// Whether a query sees a key of which blocks say `sight`.
template <auto C, class Pieces, class Lengths>
ATTNFORGE_DEVICE bool exact_mask(BlockSight sight, const FwdParams& p, const Lengths& lengths,
                                 int sequence, int head, int query, int key) {
  if (sight == BlockSight::kHidden) return false;
  if constexpr (C.user_mask) {
    if (sight == BlockSight::kPartial)
      return Pieces::Mask::Rule::of_pair(p, lengths, sequence, head, query, key);
  }
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
