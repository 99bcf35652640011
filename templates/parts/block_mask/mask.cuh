// mask.cuh - Mask for kernels whose tiles are not lists of blocks: a score asks the block it is in.
#pragma once

#include "base_params.h"
#include "parts/block_mask/params.h"
#include "parts/block_mask/row.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/special.cuh"

namespace attnforge {

/// The text of a mask that has none: what is partial has bits, or is seen.
struct NoBlockText {
  template <class QueryTile>
  ATTNFORGE_DEVICE static auto of_row(const QueryTile&, int, int) {
    return [](int) { return true; };
  }
};

/// Window is the mask of windows and of the last key; Text is asked in partial blocks. The argument
/// has a BlockMaskParams `mask`.
template <int kBlockQ, int kBlockKv, bool kBits, class Window, class Text>
struct BlockMask : Window {
  using Row = MaskRow<kBlockQ, kBlockKv, kBits>;

  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const Scores& scores, const QueryTile& tile) {
    Window::apply(scores, tile);
    LastBlock last;
    scores.for_each([&](int row, int lane_key) {
      const RowOfLane blocks = last.of(tile, row, lane_key);
      const auto text = Text::of_row(tile, row, lane_key);
      return [blocks, text, lane_key](float s, int offset) {
        const BlockSight sight = blocks(lane_key + offset);
        const bool seen = sight == BlockSight::kFull ||
                          (sight == BlockSight::kPartial && text(offset));
        return seen ? s : negative_infinity();
      };
    });
  }

  /// Whether the blocks let any of up to 32 rows see any of `keys` keys. By all lanes of a warp,
  /// alike.
  template <class QueryTile>
  ATTNFORGE_DEVICE static bool any(const QueryTile& tile, int first_row, int rows, int first_key,
                                   int keys) {
    const int lane = int(threadIdx.x) % 32;
    const int last_row = min(first_row + rows, tile.end_row()) - 1;
    bool seen = false;
    if (first_row + lane <= last_row) {
      const Row row = row_of(tile, first_row + lane);
      const int entry = row.entry_from(first_key / kBlockKv);
      seen = entry < row.end && row.mask->columns[entry] / 2 <= (first_key + keys - 1) / kBlockKv;
    }
    return any_lane(seen);
  }

 private:
  /// Looks a block up once for neighbouring keys.
  struct RowOfLane {
    Row row;
    mutable int column, entry;

    ATTNFORGE_DEVICE BlockSight operator()(int key) const {
      if (key / kBlockKv != column) {
        column = key / kBlockKv;
        entry = row.entry_of(column);
      }
      return row.sight(entry, key);
    }
  };
  /// And once for neighbouring rows of a head, of which those of a tile lie in few blocks.
  struct LastBlock {
    int block_row = -1, column = -1;
    int begin = 0, end = 0, entry = -1;

    template <class QueryTile>
    ATTNFORGE_DEVICE RowOfLane of(const QueryTile& tile, int row, int lane_key) {
      const int query = min(tile.query_of(row), tile.lengths.q() - 1);
      if (query / kBlockQ != block_row || lane_key / kBlockKv != column) {
        block_row = query / kBlockQ, column = lane_key / kBlockKv;
        const Row found = row_of(tile, row);
        begin = found.begin, end = found.end, entry = found.entry_of(column);
      }
      return {Row(tile.params.mask, begin, end, query % kBlockQ), column, entry};
    }
  };

  template <class QueryTile>
  ATTNFORGE_DEVICE static Row row_of(const QueryTile& tile, int row) {
    const BlockMaskParams& mask = tile.params.mask;
    const int query = min(tile.query_of(row), tile.lengths.q() - 1);
    return {mask, tile.batch, tile.query_head_of(row), tile.params.fwd.num_heads_q, query};
  }
};

}  // namespace attnforge
