// by_length.cuh - Splits and Order of kernels with one query tile a head, for sequences as long as
// the device says: long ones have more splits, so that all blocks end at about the same time.
#pragma once

#include "parts/splits/items.cuh"
#include "parts/splits/params.h"
#include "parts/splits/walk.cuh"
#include "ptx/grid_dependency.cuh"
#include "ptx/special_registers.cuh"
#include "tile/tile_order.cuh"

namespace attnforge {

/// Lengths and Walk are the pieces of the kernel, whose tiles have kBlockN keys and all rows of
/// kPackGqa heads. The argument has a PartialParams `partials`; the grid has partials.splits blocks
/// for each head and sequence, whichever block uses them. Partial results are those of [heads,
/// rows_of_head, items].
template <class Lengths, class Walk, int kBlockN, int kPackGqa>
struct LengthSplits {
  /// Key tiles of a sequence, once count_all() has been called.
  struct TilesOf {
    ATTNFORGE_DEVICE static int* all() {
      __shared__ int of_sequence[kMostSharingSequences];
      return of_sequence;
    }
    ATTNFORGE_DEVICE int operator()(int sequence) const { return all()[sequence]; }
  };
  /// All threads of a block call this: each has a sequence, as loads that wait for one another
  /// would take most of the time here.
  template <class Params>
  ATTNFORGE_DEVICE static void count_all(const Params& params) {
#pragma unroll 1
    for (int i = thread_index(); i < params.fwd.batch; i += int(blockDim.x)) {
      const Lengths lengths(params, i);
      const int last = lengths.q() - 1;
      TilesOf::all()[i] = last < 0
                              ? 0
                              : max(Walk::count_of(params, lengths, kBlockN, i, 0, 0, last), 0);
    }
    __syncthreads();
  }
  template <class Params>
  ATTNFORGE_DEVICE static SplitItems<TilesOf> items(const Params& params) {
    return {TilesOf(), params.fwd.batch, most(params), params.partials.at_once};
  }

  /// Most items of all sequences.
  template <class Params>
  ATTNFORGE_DEVICE static int most(const Params& params) {
    return params.fwd.batch * params.partials.splits;
  }

  /// The item of this block, once it has been found.
  ATTNFORGE_DEVICE static SplitItem& own() {
    __shared__ SplitItem item;
    return item;
  }
  /// All threads of a block call this, before a barrier.
  template <class Params>
  ATTNFORGE_DEVICE static void find(const Params& params) {
    count_all(params);
    if (thread_index() < 32) own() = items(params).item(block_number() / heads(params));
  }

  template <class Params>
  ATTNFORGE_DEVICE static TileSlice slice(const Params&, int tiles) {
    return TileSlice::of(tiles, own().split, own().splits);
  }
  /// All lanes of a warp call this, after count_all().
  template <class Params>
  ATTNFORGE_DEVICE static SplitsOfRow of_row(const Params& params, int sequence, int head,
                                             int row) {
    const SplitItems<TilesOf> all = items(params);
    const SplitItem item = all.first_of(sequence);
    return {first_of_row(params, head, row) + item.number, 1,
            min(item.splits, all.most - item.number)};
  }
  template <class Params>
  ATTNFORGE_DEVICE static i64 place(const Params& params, int, int head, int row) {
    return first_of_row(params, head, row) + own().number;
  }

  /// Where what all items have of a row begins.
  template <class Params>
  ATTNFORGE_DEVICE static i64 first_of_row(const Params& params, int head, int row) {
    return (i64(head) * params.partials.rows_of_head + row) * most(params);
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
