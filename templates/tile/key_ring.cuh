// key_ring.cuh - the walk over a query tile's keys, from the last tile to the first: K and V pass
// through a ring in shared memory that cp.async fills ahead of their use.
#pragma once

#include "base_params.h"
#include "ptx/cp_async.cuh"
#include "ptx/special_registers.cuh"

namespace attnforge {

/// C.stages tiles of K and as many of V. With one, K's is loaded while V's is in use, and the other
/// way round. C is a family's config: it has `stages`, and says where the tiles lie in shared
/// memory. Walk and Keys are pieces of the kernel (templates/pieces/README.md): which tiles come
/// in which order, and where their keys lie. The loaders are TileLoaders, whose rows are the keys
/// of a tile. VKeys: the Keys of V, where they are others than those of K.
template <auto C, class Walk, class Keys, class KLoader, class VLoader, class VKeys = Keys>
struct KeyRing {
  // Tiles of K and V that are loaded before the walk, and then ahead of their use.
  static constexpr int kTilesAhead = C.stages > 1 ? C.stages - 1 : 1;

  const u32 smem;
  const int kv_head;
  const Walk tiles;
  const KLoader k_loader;
  const VLoader v_loader;
  Keys k_keys;
  VKeys v_keys;

  /// For the block_m rows of a query tile. Its head is divided once for K and V: with two divisions
  /// the compiler keeps the walk's numbers, the same in all lanes, in a register of each.
  template <class Params, class QueryTile>
  ATTNFORGE_DEVICE KeyRing(const Params& params, const QueryTile& queries, int block_m,
                           u32 smem_base)
      : smem(smem_base),
        kv_head(queries.kv_head()),
        tiles(Walk::of_rows(params, queries, KLoader::kTileRows, queries.first_row, block_m)),
        k_loader(thread_index()),
        v_loader(thread_index()),
        k_keys(queries.params.fwd.k, queries, kv_head, tiles, k_loader),
        v_keys(queries.params.fwd.v, queries, kv_head, tiles, v_loader) {}

  ATTNFORGE_DEVICE u32 k_tile(int stage) const { return smem + C.k_begin() + stage * C.k_bytes(); }
  ATTNFORGE_DEVICE u32 v_tile(int stage) const { return smem + C.v_begin() + stage * C.v_bytes(); }

  /// Begins to load the tiles of stage s, of a sequence of seqlen_kv keys; for all s below
  /// kTilesAhead, in this order, before the walk.
  ATTNFORGE_DEVICE void load_first(int s, int seqlen_kv) {
    const int first = tiles.first();
    s == 0 ? load_k<true>(first, 0, seqlen_kv) : load_k<false>(tiles.later(first, s), s, 0);
    s == 0 ? load_v<true>(first, 0, seqlen_kv) : load_v<false>(tiles.later(first, s), s, 0);
  }

  /// After it is here what was committed before load_first(), which is Q; and, if there is one
  /// stage, the first tile of K, which walk() counts on.
  ATTNFORGE_DEVICE void await_q() const {
    cp_async_wait<2 * kTilesAhead - (C.stages == 1)>();
    __syncthreads();
  }

  /// Calls attend(place, stage, masked) for all tiles; masked: some row does not see all keys of
  /// it. K is in k_tile(stage) then. V is in v_tile(stage) after await_v(place), which attend() is
  /// to call between its products: with one stage once, else as often as it likes.
  template <class Attend>
  ATTNFORGE_DEVICE void walk(const Attend& attend) {
    int stage = 0;
    tiles.for_each([&](int place, bool masked) {
      if constexpr (C.stages == 1) {
        attend(place, stage, masked);
        cp_async_wait<0>();
        __syncthreads();
        load_v<false>(tiles.later(place, 1), 0, 0);
      } else {
        // All but the newest stages - 2 tiles are here. The barrier also says that all warps are
        // done with the tile before, whose memory takes the tile that comes stages - 1 later.
        cp_async_wait<2 * (C.stages - 2)>();
        __syncthreads();
        const int free = C.stages == 2 ? stage ^ 1 : stage == 0 ? C.stages - 1 : stage - 1;
        load_k<false>(tiles.later(place, C.stages - 1), free, 0);
        load_v<false>(tiles.later(place, C.stages - 1), free, 0);
        attend(place, stage, masked);
        stage = C.stages == 2 ? free : stage == C.stages - 1 ? 0 : stage + 1;
      }
    });
  }

  /// With one stage the next tile of K takes the memory of this one.
  ATTNFORGE_DEVICE void await_v(int place) {
    if constexpr (C.stages == 1) {
      cp_async_wait<0>();
      __syncthreads();
      load_k<false>(tiles.later(place, 1), 0, 0);
    }
  }

 private:
  /// Begins to load the tile of K at a place of the walk, if there is one. kFirst: it is the walk's
  /// first, which alone can be the last of the sequence.
  template <bool kFirst>
  ATTNFORGE_DEVICE void load_k(int place, int stage, int seqlen_kv) {
    const u32 to = k_tile(stage);
    if (tiles.has(place)) {
      k_keys.template seek<kFirst>(tiles, place, k_loader);
      k_keys.template load<kFirst>(tiles, place, k_loader, to, seqlen_kv);
    }
    cp_async_commit();
  }
  /// Begins to load the tile of V: after load_k() of the same tile, and before that of the next.
  template <bool kFirst>
  ATTNFORGE_DEVICE void load_v(int place, int stage, int seqlen_kv) {
    const u32 to = v_tile(stage);
    v_keys.share(k_keys);
    if (tiles.has(place)) v_keys.template load<kFirst>(tiles, place, v_loader, to, seqlen_kv);
    cp_async_commit();
  }
};

}  // namespace attnforge
