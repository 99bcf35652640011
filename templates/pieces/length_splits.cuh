// length_splits.cuh - Splits and Order of a kernel with one query tile a head, whose sequences are
// as long as the device says: long ones have more splits, so that all blocks end at about the same
// time.
#pragma once

#include "base.cuh"
#include "params_fwd.h"
#include "params_partials.h"
#include "pieces/split_walk.cuh"
#include "ptx/grid_dependency.cuh"
#include "tile/split_items.cuh"
#include "tile/tile_order.cuh"

namespace attnforge {

/// Lengths and Walk are the pieces of the kernel, whose tiles have kBlockN keys and all rows of
/// kPackGqa heads. The argument has a PartialParams `partials`; the grid has partials.splits blocks
/// for each head and sequence, whoever uses them. Partial results are those of [items, heads,
/// rows_of_head].
template <class Lengths, class Walk, int kBlockN, int kPackGqa>
struct LengthSplits {
  template <class Params>
  struct TilesOf {
    const Params& params;
    ATTNFORGE_DEVICE int operator()(int sequence) const {
      const Lengths lengths(params, sequence);
      if (lengths.q() <= 0) return 0;
      return max(Walk::count_of(params, lengths, kBlockN, sequence, 0, 0, lengths.q() - 1), 0);
    }
  };
  template <class Params>
  ATTNFORGE_DEVICE static SplitItems<TilesOf<Params>> items(const TilesOf<Params>& tiles_of) {
    const int batch = tiles_of.params.fwd.batch;
    const PartialParams& partials = tiles_of.params.partials;
    return {tiles_of, batch, batch * partials.splits, partials.at_once};
  }

  /// Of this block, once it has been found.
  ATTNFORGE_DEVICE static SplitItem& own() {
    __shared__ SplitItem item;
    return item;
  }
  /// By a warp, before a barrier of the block.
  template <class Params>
  ATTNFORGE_DEVICE static void find(const Params& params) {
    const TilesOf<Params> tiles_of{params};
    own() = items(tiles_of).item(block_number() / heads(params));
  }

  template <class Params>
  ATTNFORGE_DEVICE static TileSlice slice(const Params&, int tiles) {
    return TileSlice::of(tiles, own().split, own().splits);
  }
  /// By all lanes of a warp.
  template <class Params>
  ATTNFORGE_DEVICE static PartsOfRow of_row(const Params& params, int sequence, int head, int row) {
    const TilesOf<Params> tiles_of{params};
    const SplitItems<TilesOf<Params>> all = items(tiles_of);
    const SplitItem item = all.first_of(sequence);
    const int rows = params.partials.rows_of_head;
    return {(i64(item.number) * params.fwd.num_heads_q + head) * rows + row,
            i64(params.fwd.num_heads_q) * rows, min(item.splits, all.most - item.number)};
  }
  template <class Params>
  ATTNFORGE_DEVICE static i64 place(const Params& params, int, int head, int row) {
    return (i64(own().number) * params.fwd.num_heads_q + head) * params.partials.rows_of_head + row;
  }

  /// Blocks of an item lie next to each other.
  ATTNFORGE_DEVICE static int block_number() {
    return split_index() * int(gridDim.x) + block_index();
  }
  template <class Params>
  ATTNFORGE_DEVICE static int heads(const Params& params) {
    return kPackGqa > 1 ? params.fwd.num_heads_kv : params.fwd.num_heads_q;
  }
};

/// The order of items, and of the heads of each.
template <class Splits>
struct LengthSplitOrder {
  static constexpr bool kMayRunOut = true, kMayBeEmpty = false, kFinds = true;

  ATTNFORGE_DEVICE static void begin() { start_next_grid(); }
  template <class Params>
  ATTNFORGE_DEVICE static void find(const Params& params) {
    Splits::find(params);
  }
  template <class Params>
  ATTNFORGE_DEVICE static TilePlace place(const Params& params, int) {
    const int heads = Splits::heads(params), block = Splits::block_number();
    const SplitItem& item = Splits::own();
    return {0, (item.sequence - item.number) * heads + block};
  }
  /// More than there are, or none for this block.
  template <class Params>
  ATTNFORGE_DEVICE static int tiles(const Params&) {
    return Splits::own().sequence < 0 ? 0 : 0x7fffffff;
  }
};

}  // namespace attnforge
