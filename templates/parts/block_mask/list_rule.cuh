// list_rule.cuh - the rule of partial blocks that have a bit for each pair of a query and a key.
#pragma once

#include "base_params.h"
#include "parts/block_mask/params.h"
#include "ptx/special.cuh"

namespace attnforge {

/// Blocks of kBlockQ queries and kBlockKv keys. The argument has a BlockMaskParams `mask`.
template <int kBlockQ, int kBlockKv>
struct BlockBits {
  static constexpr bool kNone = false;
  static constexpr int kWords = mask_words_per_row(kBlockKv);

  /// Scores of keys of one block. Blocks without bits are full.
  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const Scores& scores, const QueryTile& tile) {
    const BlockMaskParams& mask = tile.params.mask;
    scores.for_each([&](int row, int lane_key) {
      const u32* const words = words_of(mask, tile, row, lane_key / kBlockKv);
      // The lane's first key is at most 7 keys after a multiple of 8, and its others are as far
      // after the next ones: a word holds all of one multiple.
      const int eights = lane_key % kBlockKv / 8 * 8, rest = lane_key % 8;
      return [words, eights, rest](float s, int offset) {
        if (words == nullptr) return s;
        const int bit = eights + offset / 8 * 8;
        const bool seen = __ldg(words + bit / 32) >> (bit % 32 + rest + offset % 8) & 1;
        return seen ? s : negative_infinity();
      };
    });
  }

  /// The bits of a row's keys in block `column`; null: it has none.
  template <class QueryTile>
  ATTNFORGE_DEVICE static const u32* words_of(const BlockMaskParams& mask, const QueryTile& tile,
                                              int row, int column) {
    const int query = min(tile.query_of(row), tile.lengths.q() - 1);
    const int* const ends = mask.row_begin + mask.row(tile.batch, tile.query_head_of(row),
                                                      tile.params.fwd.num_heads_q, query / kBlockQ);
    int first = __ldg(ends), last = __ldg(ends + 1) - 1;
    while (first < last) {
      const int middle = (first + last) / 2;
      if (__ldg(mask.columns + middle) / 2 < column)
        first = middle + 1;
      else
        last = middle;
    }
    if (first > last || __ldg(mask.columns + first) / 2 != column) return nullptr;
    const int block = __ldg(mask.bit_blocks + first);
    return block < 0 ? nullptr : mask.bits + (i64(block) * kBlockQ + query % kBlockQ) * kWords;
  }
};

/// Both hide keys.
template <class First, class Second>
struct BothRules {
  static constexpr bool kNone = false;

  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const Scores& scores, const QueryTile& tile) {
    First::apply(scores, tile);
    Second::apply(scores, tile);
  }
};

}  // namespace attnforge
