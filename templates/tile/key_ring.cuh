// key_ring.cuh - the walk over a query tile's keys, from the last tile to the first: K and V pass
// through a ring in shared memory that cp.async fills ahead of their use.
#pragma once

#include "base.cuh"
#include "params_fwd.h"
#include "ptx/cp_async.cuh"
#include "ptx/special_registers.cuh"
#include "tile/kv_blocks.cuh"

namespace attnforge {

/// C.stages tiles of K and as many of V. With one, K's is loaded while V's is in use, and the other
/// way round. C is a family's config: it has `stages` and `left_bound`, and says where the tiles
/// lie in shared memory. K and V have kElementBytes an element; the loaders are TileLoaders, whose
/// rows are the keys of a tile.
template <auto C, int kElementBytes, class KLoader, class VLoader>
struct KeyRing {
  // Tiles of K and V that are loaded before the walk, and then ahead of their use.
  static constexpr int kTilesAhead = C.stages > 1 ? C.stages - 1 : 1;

  const FwdParams& p;
  const u32 smem;
  KvBlocks blocks;
  const KLoader k_loader;
  const VLoader v_loader;
  const char *k_next, *v_next;  // this thread's part of the next tile to load

  ATTNFORGE_DEVICE KeyRing(const FwdParams& params, u32 smem_base)
      : p(params), smem(smem_base), k_loader(thread_index()), v_loader(thread_index()) {}

  /// The tiles that will be walked.
  ATTNFORGE_DEVICE void set_tiles(const KvBlocks& key_blocks, int batch, int kv_head) {
    blocks = key_blocks;
    k_next = first_source(k_loader, p.k, batch, kv_head);
    v_next = first_source(v_loader, p.v, batch, kv_head);
  }

  ATTNFORGE_DEVICE u32 k_tile(int stage) const { return smem + C.k_begin() + stage * C.k_bytes(); }
  ATTNFORGE_DEVICE u32 v_tile(int stage) const { return smem + C.v_begin() + stage * C.v_bytes(); }

  /// Begins to load the tiles of stage s; for all s below kTilesAhead, in this order, before the
  /// walk.
  ATTNFORGE_DEVICE void load_first(int s) {
    const int n = blocks.end - 1;
    s == 0 ? load_k<true>(n, 0) : load_k<false>(n - s, s);
    s == 0 ? load_v<true>(n, 0) : load_v<false>(n - s, s);
  }

  /// After it is here what was committed before load_first(), which is Q; and, if there is one
  /// stage, the first tile of K, which walk() counts on.
  ATTNFORGE_DEVICE void await_q() const {
    cp_async_wait<2 * kTilesAhead - (C.stages == 1)>();
    __syncthreads();
  }

  /// Calls attend(n, stage, masked) for all tiles n; masked: not all rows see all keys of it. K is
  /// in k_tile(stage) then. V is in v_tile(stage) after await_v(n), which attend() is to call
  /// between its products: with one stage once, else as often as it likes.
  template <class Attend>
  ATTNFORGE_DEVICE void walk(const Attend& attend) {
    int stage = 0, n = blocks.end - 1;
    // Keys that some rows do not see, for being right of them; keys that all rows see; keys that
    // some do not see, for being left of them. Rolled: one copy of the code serves all ranges, and
    // compiles in two thirds of the time.
#pragma unroll 1
    for (int range = 0; range < (C.left_bound ? 3 : 2); ++range) {
      const int end = range == 0   ? blocks.clear_end
                      : range == 1 ? blocks.clear_begin
                                   : blocks.begin;
#pragma unroll 1
      for (; n >= end; --n) {
        if constexpr (C.stages == 1) {
          attend(n, stage, range != 1);
          cp_async_wait<0>();
          __syncthreads();
          load_v<false>(n - 1, 0);
        } else {
          // All but the newest stages - 2 tiles are here. The barrier also says that everybody is
          // done with the tile before, whose memory takes the tile that comes stages - 1 later.
          cp_async_wait<2 * (C.stages - 2)>();
          __syncthreads();
          const int free = C.stages == 2 ? stage ^ 1 : stage == 0 ? C.stages - 1 : stage - 1;
          load_k<false>(n - (C.stages - 1), free);
          load_v<false>(n - (C.stages - 1), free);
          attend(n, stage, range != 1);
          stage = C.stages == 2 ? free : stage == C.stages - 1 ? 0 : stage + 1;
        }
      }
    }
  }

  /// With one stage the next tile of K takes the memory of tile n.
  ATTNFORGE_DEVICE void await_v(int n) {
    if constexpr (C.stages == 1) {
      cp_async_wait<0>();
      __syncthreads();
      load_k<false>(n - 1, 0);
    }
  }

 private:
  template <class Loader>
  ATTNFORGE_DEVICE const char* first_source(const Loader& loader, const TensorRef& tensor,
                                            int batch, int kv_head) const {
    const i64 row = i64(blocks.end - 1) * Loader::kTileRows + loader.row;
    const i64 at = batch * tensor.stride_batch + kv_head * tensor.stride_head +
                   row * tensor.stride_row + loader.chunk * (16 / kElementBytes);
    return static_cast<const char*>(tensor.data) + at * kElementBytes;
  }

  template <bool kRagged>
  ATTNFORGE_DEVICE void load_k(int n, int stage) {
    load<kRagged>(k_loader, k_next, p.k.stride_row, k_tile(stage), n);
  }
  template <bool kRagged>
  ATTNFORGE_DEVICE void load_v(int n, int stage) {
    load<kRagged>(v_loader, v_next, p.v.stride_row, v_tile(stage), n);
  }

  /// Loads tile n, where `next` points for this thread, and moves `next` to tile n - 1. Only the
  /// first tile that is loaded can be the last of the sequence, and ragged.
  template <bool kRagged, class Loader>
  ATTNFORGE_DEVICE void load(const Loader& loader, const char*& next, i64 stride_row, u32 tile,
                             int n) const {
    if (n >= blocks.begin) {
      const i64 pass_bytes = Loader::kRowsPerPass * kElementBytes * stride_row;
      loader.template load<kRagged>(
          tile, [&](int pass) { return next + pass * pass_bytes; },
          p.seqlen_kv - n * Loader::kTileRows);
      next -= Loader::kTileRows * kElementBytes * stride_row;
    }
    cp_async_commit();
  }
};

}  // namespace attnforge
