// key_ring.cuh - the walk over a query tile's keys, from the last tile to the first: K and V pass
// through a ring in shared memory that cp.async fills ahead of their use.
#pragma once

#include "base.cuh"
#include "params_fwd.h"
#include "ptx/cp_async.cuh"
#include "ptx/special_registers.cuh"

namespace attnforge {

/// C.stages tiles of K and as many of V. With one, K's is loaded while V's is in use, and the other
/// way round. C is a family's config: it has `stages`, and says where the tiles lie in shared
/// memory. Walk and Keys are pieces of the kernel (docs/ARCHITECTURE.md, "Seams"): which tiles come
/// in which order, and where the rows of a key lie. The loaders are TileLoaders, whose rows are the
/// keys of a tile.
template <auto C, class Walk, class Keys, class KLoader, class VLoader>
struct KeyRing {
  // Tiles of K and V that are loaded before the walk, and then ahead of their use.
  static constexpr int kTilesAhead = C.stages > 1 ? C.stages - 1 : 1;

  const u32 smem;
  const Walk tiles;
  const KLoader k_loader;
  const VLoader v_loader;
  const Keys k_keys, v_keys;

  template <class QueryTile>
  ATTNFORGE_DEVICE KeyRing(const QueryTile& queries, const Walk& walk, u32 smem_base)
      : smem(smem_base),
        tiles(walk),
        k_loader(thread_index()),
        v_loader(thread_index()),
        k_keys(queries.p.k, queries, k_loader.row, k_loader.chunk * 16),
        v_keys(queries.p.v, queries, v_loader.row, v_loader.chunk * 16) {}

  ATTNFORGE_DEVICE u32 k_tile(int stage) const { return smem + C.k_begin() + stage * C.k_bytes(); }
  ATTNFORGE_DEVICE u32 v_tile(int stage) const { return smem + C.v_begin() + stage * C.v_bytes(); }

  /// Begins to load the tiles of stage s, of a sequence of seqlen_kv keys; for all s below
  /// kTilesAhead, in this order, before the walk.
  ATTNFORGE_DEVICE void load_first(int s, int seqlen_kv) {
    s == 0 ? load_k<true>(0, 0, seqlen_kv) : load_k<false>(s, s, 0);
    s == 0 ? load_v<true>(0, 0, seqlen_kv) : load_v<false>(s, s, 0);
  }

  /// After it is here what was committed before load_first(), which is Q; and, if there is one
  /// stage, the first tile of K, which walk() counts on.
  ATTNFORGE_DEVICE void await_q() const {
    cp_async_wait<2 * kTilesAhead - (C.stages == 1)>();
    __syncthreads();
  }

  /// Calls attend(i, stage) for all tiles: i is what `tiles` numbers them by. K is in k_tile(stage)
  /// then. V is in v_tile(stage) after await_v(i), which attend() is to call between its products:
  /// with one stage once, else as often as it likes.
  template <class Attend>
  ATTNFORGE_DEVICE void walk(const Attend& attend) {
    int stage = 0;
#pragma unroll 1
    for (int i = 0; i < tiles.count(); ++i) {
      if constexpr (C.stages == 1) {
        attend(i, stage);
        cp_async_wait<0>();
        __syncthreads();
        load_v<false>(i + 1, 0, 0);
      } else {
        // All but the newest stages - 2 tiles are here. The barrier also says that everybody is
        // done with the tile before, whose memory takes the tile that comes stages - 1 later.
        cp_async_wait<2 * (C.stages - 2)>();
        __syncthreads();
        const int free = C.stages == 2 ? stage ^ 1 : stage == 0 ? C.stages - 1 : stage - 1;
        load_k<false>(i + C.stages - 1, free, 0);
        load_v<false>(i + C.stages - 1, free, 0);
        attend(i, stage);
        stage = C.stages == 2 ? free : stage == C.stages - 1 ? 0 : stage + 1;
      }
    }
  }

  /// With one stage the next tile of K takes the memory of this one.
  ATTNFORGE_DEVICE void await_v(int i) {
    if constexpr (C.stages == 1) {
      cp_async_wait<0>();
      __syncthreads();
      load_k<false>(i + 1, 0, 0);
    }
  }

 private:
  template <bool kRagged>
  ATTNFORGE_DEVICE void load_k(int i, int stage, int seqlen_kv) {
    load<kRagged>(k_loader, k_keys, k_tile(stage), i, seqlen_kv);
  }
  template <bool kRagged>
  ATTNFORGE_DEVICE void load_v(int i, int stage, int seqlen_kv) {
    load<kRagged>(v_loader, v_keys, v_tile(stage), i, seqlen_kv);
  }

  /// Loads the tile that comes i-th, if there is one. Only the first can be the last of the
  /// sequence, and ragged.
  template <bool kRagged, class Loader>
  ATTNFORGE_DEVICE void load(const Loader& loader, const Keys& keys, u32 to, int i,
                             int seqlen_kv) const {
    if (i < tiles.count()) {
      const int first_key = tiles.tile(i) * Loader::kTileRows;
      const auto rows = keys.rows(first_key);
      loader.template load<kRagged>(
          to, [&](int pass) { return rows(pass * Loader::kRowsPerPass); }, seqlen_kv - first_key);
    }
    cp_async_commit();
  }
};

}  // namespace attnforge
