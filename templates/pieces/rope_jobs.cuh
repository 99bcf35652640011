// rope_jobs.cuh - jobs that rotate tiles of K, and rows of Q, where TMA has put them: for a kernel
// that is to do without a step of its own for the rotary embedding, and without its memory.
#pragma once

#include "base.cuh"
#include "tile/rope.cuh"
#include "tile/swizzle.cuh"

namespace attnforge {

/// C is a family's config. A warp of `warps` rotates every such group of 8 keys of tile n.
template <auto C>
struct RopeKJob {
  static constexpr bool kNone = false;
  using Rope = RopeTile<C.dtype, C.rope, C.rope_dim, TmaRows<C.swizzle, C.kv_chunk_bytes()>,
                        C.warpgroups == 3 ? 2 : 4, true>;
  const RopeParams& rope;
  const KeyTurns turns;
  const int warp, warps;

  template <class Params, class QueryTile>
  ATTNFORGE_DEVICE RopeKJob(const Params& params, const QueryTile& queries, int n, int index,
                            int count)
      : rope(params.rope),
        turns(Rope::keys(queries.lengths.kv(), params.rope, n * C.block_n)),
        warp(index),
        warps(count) {}

  /// Before the tile is there.
  ATTNFORGE_DEVICE void prepare() const { Rope::prefetch(rope, warp * 8, warp * 8 + 8, 8, turns); }
  ATTNFORGE_DEVICE void run(u32 tile) const {
    Rope::rotate(rope, tile, warp * 8, C.block_n, warps * 8, turns);
  }
};

/// A warp rotates 16 rows of a warpgroup's 64, from `row` on; first_row is the first of these 64
/// among its head's.
template <auto C>
struct RopeQJob {
  static constexpr bool kNone = false;
  using Rope = RopeTile<C.dtype, C.rope, C.rope_dim, TmaRows<C.swizzle, C.q_chunk_bytes()>, 4,
                        false>;

  template <class Params, class QueryTile>
  ATTNFORGE_DEVICE static void run(const Params& params, const QueryTile& queries, int first_row,
                                   u32 tile, int row) {
    Rope::rotate(params.rope, tile, row, row + 16, 8,
                 Rope::template queries<C.pack_gqa>(queries.lengths.q(), params.rope, first_row));
  }
};

}  // namespace attnforge
