// row.cuh - what the blocks of a block mask let one query see.
#pragma once

#include "parts/block_mask/params.h"

namespace attnforge {

/// The blocks that are present in a row of them.
struct BlockColumns {
  const BlockMaskParams* mask;
  int begin, end;  // entries

  /// row: as BlockMaskParams::row() says.
  ATTNFORGE_DEVICE BlockColumns(const BlockMaskParams& params, int row)
      : BlockColumns(params, params.row_begin[row], params.row_begin[row + 1]) {}
  ATTNFORGE_DEVICE BlockColumns(const BlockMaskParams& params, int first, int after)
      : mask(&params), begin(first), end(after) {}

  /// The first entry of a block column or of one after it.
  ATTNFORGE_DEVICE int entry_from(int column) const {
    int first = begin, last = end;
    while (first < last) {
      const int middle = (first + last) / 2;
      if (mask->columns[middle] / 2 < column)
        first = middle + 1;
      else
        last = middle;
    }
    return first;
  }
  /// That of a block column; -1: the block is not present.
  ATTNFORGE_DEVICE int entry_of(int column) const {
    const int entry = entry_from(column);
    return entry < end && mask->columns[entry] / 2 == column ? entry : -1;
  }
};

/// What blocks say of a key: hidden by them or their bits; seen; the text's to decide, if there is
/// one.
enum class BlockSight { kHidden, kFull, kPartial };

/// A query's blocks, and its place in them. kBits: partial blocks have bits.
template <int kBlockQ, int kBlockKv, bool kBits>
struct MaskRow : BlockColumns {
  int in_block;

  ATTNFORGE_DEVICE MaskRow(const BlockMaskParams& params, int sequence, int head, int num_heads_q,
                           int query)
      : BlockColumns(params, params.row(sequence, head, num_heads_q, query / kBlockQ)),
        in_block(query % kBlockQ) {}
  ATTNFORGE_DEVICE MaskRow(const BlockMaskParams& params, int first, int after, int at)
      : BlockColumns(params, first, after), in_block(at) {}

  /// The sight of a key in the block of an entry.
  ATTNFORGE_DEVICE BlockSight sight(int entry, int key) const {
    if (entry < 0) return BlockSight::kHidden;
    if (mask->columns[entry] % 2 == 0) return BlockSight::kFull;
    if (!kBits || mask->bit_blocks[entry] < 0) return BlockSight::kPartial;
    constexpr int kWords = mask_words_per_row(kBlockKv);
    const int bit = key % kBlockKv;
    const i64 row = i64(mask->bit_blocks[entry]) * kBlockQ + in_block;
    return (mask->bits[row * kWords + bit / 32] >> (bit % 32) & 1) != 0 ? BlockSight::kPartial
                                                                        : BlockSight::kHidden;
  }
  ATTNFORGE_DEVICE BlockSight operator()(int key) const {
    return sight(entry_of(key / kBlockKv), key);
  }
};

}  // namespace attnforge
