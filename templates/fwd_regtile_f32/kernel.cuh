// kernel.cuh - attention forward of fp32 tensors: warps with tiles of queries and keys in
// registers, K and V through a cp.async ring; warps may share the keys of a block's few queries,
// and their outputs are then added (FlashAttention-2, Dao 2023, inside a block).
#pragma once

#include "fwd_regtile_f32/config.h"
#include "fwd_regtile_f32/row_softmax.cuh"
#include "fwd_regtile_f32/warp_fma.cuh"
#include "fwd_regtile_f32/warp_mma.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/special_registers.cuh"
#include "tile/key_ring.cuh"
#include "tile/load_tile.cuh"
#include "tile/query_tile.cuh"

namespace attnforge {

template <FwdRegtileF32Config C, bool kFma>
struct WarpOf {
  using Type = MmaWarp<C>;
};
template <FwdRegtileF32Config C>
struct WarpOf<C, true> {
  using Type = FmaWarp<C>;
};

/// Pieces: DensePieces<C>, or what an entry makes of it; so is the kernel's argument, Params.
template <FwdRegtileF32Config C, class Pieces, class Params = FwdTiledParams>
struct FwdRegtileF32 {
  static_assert(C.valid(), "the generator renders only configs that pass reject()");

  using Warp = typename WarpOf<C, C.math == kMathFma>::Type;
  using Scores = typename Warp::Scores;
  template <int kRows, int kHeadDim>
  using Loader = TileLoader<kRows, kHeadDim / 4, kHeadDim / 4 + 1, C.num_threads(), C.alignment>;
  using QLoader = Loader<C.block_m(), C.head_dim>;
  using KLoader = Loader<C.block_n(), C.head_dim>;
  using VLoader = Loader<C.block_n(), C.head_dim_v>;

  using Tile = QueryTile<Params, C.pack_gqa, typename Pieces::Lengths>;
  using Walk = typename Pieces::Walk;
  using Output = typename Pieces::template Output<kFp32, C.alignment, C.lse != 0>;

  /// The query tile of this block. Computed again for the stores: see special_registers.cuh.
  ATTNFORGE_DEVICE static Tile this_tile(const Params& params) {
    return Tile(params, Pieces::Order::place(params, block_index()), C.block_m());
  }

  /// Which part of the tile is this warp's. Computed again too.
  struct Part {
    int first_row, first_key, first_column;
    int keys_index, others_index;  // among the parts of the keys, and among rows and columns

    ATTNFORGE_DEVICE Part() {
      const int warp = from_lane_0(thread_index() / 32);
      const int d = warp % C.warps_d, m = warp / C.warps_d % C.warps_m;
      keys_index = warp / (C.warps_d * C.warps_m);
      others_index = warp % (C.warps_d * C.warps_m);
      first_row = m * C.warp_m;
      first_key = keys_index * C.warp_keys();
      first_column = d * C.warp_columns();
    }
  };

  /// Scores as the pieces take them. `row` is the warp's first.
  struct WarpScores {
    static constexpr bool kCoarse = false;
    decltype(Scores().all())& all;
    Scores& s;
    int row;
    int first_key;

    template <class OfRow>
    ATTNFORGE_DEVICE void for_each(const OfRow& of_row) const {
#pragma unroll
      for (int r = 0; r < Warp::kRows; ++r) {
        const auto f = of_row(row + Warp::row_of(r), 0);
#pragma unroll
        for (int j = 0; j < Scores::kKeys; ++j)
          s.at(r, j) = f(s.at(r, j), first_key + Warp::key_of(j));
      }
    }
  };

  const Params& params;
  const FwdParams& p;
  const u32 smem;
  const Tile tile;
  int first_row;       // of this warp, among a head's rows
  int tile_first_row;  // of this warp in the tile
  int tile_first_key;
  Warp warp;
  KeyRing<C, Walk, typename Pieces::template Keys<C.dtype>, KLoader, VLoader> ring;
  float scale_log2;
  RowSoftmax<Warp::kRows, Warp::kLanes> softmax;

  ATTNFORGE_DEVICE FwdRegtileF32(const Params& kernel_params, u32 smem_base, const Part& part)
      : params(kernel_params),
        p(kernel_params.fwd),
        smem(smem_base),
        tile(this_tile(kernel_params)),
        first_row(tile.first_row + part.first_row),
        tile_first_row(part.first_row),
        tile_first_key(part.first_key),
        warp(part.first_column, smem_base + C.p_begin() + thread_index() / 32 * C.p_bytes()),
        ring(kernel_params, tile, C.block_m(), smem) {
    scale_log2 = (Pieces::Score::kScaled ? 1.0f : p.softmax_scale) * 1.4426950408889634f;
  }

  // ---- 1. Loads ----

  ATTNFORGE_DEVICE void load_q() const {
    const QLoader loader(thread_index());
    const auto source = [&](int pass) {
      const i64 at = tile.offset_of(p.q, tile.first_row + loader.row_of(pass)) + loader.chunk * 4;
      return static_cast<const char*>(p.q.data) + at * 4;
    };
    loader.template load<true>(smem, source, tile.end_row() - tile.first_row);
    cp_async_commit();
  }

  // ---- 2. One step of step_n keys: scores, softmax, output ----

  ATTNFORGE_DEVICE u32 q_rows() const { return smem + tile_first_row * C.qk_chunks() * 16; }

  /// The tile at a place of the walk. masked: some row does not see all keys of it.
  ATTNFORGE_DEVICE void attend(int place, int stage, bool masked) {
    const int n = ring.tiles.tile_at(place);
#pragma unroll 1
    for (int step = 0; step < C.steps; ++step) {
      const int in_tile = tile_first_key + step * C.step_n;
      // At the edge of a mask a block visits tiles for the sake of its other warps.
      if (masked && !Pieces::Mask::sees(tile, first_row, first_row + C.warp_m - 1,
                                        n * C.block_n() + in_tile, C.step_n)) {
        ring.await_v(place);
        continue;
      }
      Scores s;
      warp.scores(s, q_rows(), ring.k_tile(stage) + in_tile * C.qk_chunks() * 16, masked);
      // A sum of its own: kept over the products, it would be one register too many.
      const WarpScores view{s.all(), s, first_row,
                            n * C.block_n() + tile_first_key + step * C.step_n};
      Pieces::Score::apply(view, tile);
      if (masked) Pieces::Mask::apply(view, tile);
      float rescale[Warp::kRows];
      const bool grew = softmax.probabilities(s, scale_log2, rescale);
      ring.await_v(place);  // with one stage there is one step
      warp.outputs(s, ring.v_tile(stage) + in_tile * C.v_chunks() * 16, rescale, grew, masked);
    }
  }

  // ---- 3. The tiles of keys ----

  ATTNFORGE_DEVICE void attend_all() {
#pragma unroll
    for (int s = 0; s < ring.kTilesAhead; ++s) ring.load_first(s, tile.lengths.kv());
    if constexpr (C.stages == 1 || C.q_in_regs != 0) {
      ring.await_q();
      warp.read_q(q_rows());
    }
    ring.walk([&](int place, int stage, bool masked) { attend(place, stage, masked); });
  }

  // ---- 4. Outputs over all keys ----

  /// The slot where a warp sends its partial outputs, in shared memory that the tiles no longer
  /// need.
  ATTNFORGE_DEVICE u32 lane_slot(int slot) const {
    return smem + slot * C.partial_bytes() + thread_index() % 32 * 4;
  }

  /// Adds the outputs of the warps with the same queries and columns, halving their number with
  /// each round.
  ATTNFORGE_DEVICE void add_warps(const Part& part) {
#pragma unroll
    for (int half = C.warps_n / 2; half >= 1; half /= 2) {
      const u32 slot = lane_slot(part.keys_index % half * (C.warps_m * C.warps_d) +
                                 part.others_index);
      if (part.keys_index >= half && part.keys_index < 2 * half) give(slot);
      __syncthreads();
      if (part.keys_index < half) take(slot);
      if (half > 1) __syncthreads();
    }
  }

  ATTNFORGE_DEVICE void give(u32 to) {
#pragma unroll
    for (int r = 0; r < Warp::kRows; ++r) {
      const u32 row = to + r * (Warp::kColumns + 2) * 128;
      store_shared<1>(row, {softmax.row_max[r]});
      store_shared<1>(row + 128, {softmax.row_sum[r]});
#pragma unroll
      for (int i = 0; i < Warp::kColumns; ++i)
        store_shared<1>(row + (i + 2) * 128, {warp.output(r, i)});
    }
  }

  ATTNFORGE_DEVICE static float load_given(u32 from) {
    float x[1];
    load_shared(x, from);
    return x[0];
  }

  ATTNFORGE_DEVICE void take(u32 from) {
#pragma unroll
    for (int r = 0; r < Warp::kRows; ++r) {
      const u32 row = from + r * (Warp::kColumns + 2) * 128;
      const float other_max = load_given(row);
      const float other_sum = load_given(row + 128);
      float own, other;
      softmax.merge(r, other_max, other_sum, own, other);
#pragma unroll
      for (int i = 0; i < Warp::kColumns; ++i) {
        const float x = load_given(row + (i + 2) * 128);
        warp.output(r, i) = fmaf(warp.output(r, i), own, x * other);
      }
    }
  }

  /// Stores neighbouring elements of a row of o, times `factor`, as wide as its alignment allows.
  struct StorePiece {
    float* row;
    float factor;

    template <int kCount>
    ATTNFORGE_DEVICE void operator()(int column, const float (&x)[kCount]) const {
      constexpr int kWide = kCount * 4 < C.alignment ? kCount : C.alignment / 4;
      float* to = row + column;
#pragma unroll
      for (int i = 0; i < kCount; i += kWide, to += kWide) {
        if constexpr (kWide == 4) {
          *reinterpret_cast<float4*>(to) = make_float4(x[0] * factor, x[1] * factor, x[2] * factor,
                                                       x[3] * factor);
        } else if constexpr (kWide == 2) {
          *reinterpret_cast<float2*>(to) = make_float2(x[i] * factor, x[i + 1] * factor);
        } else {
          *to = x[i] * factor;
        }
      }
    }
  };

  ATTNFORGE_DEVICE void store(const Part& part) const {
    const Tile stored = this_tile(params);
#pragma unroll
    for (int r = 0; r < Warp::kRows; ++r) {
      float inverse, lse;
      softmax.finish(r, inverse, lse);
      const int row = stored.first_row + part.first_row + Warp::row_of(r);
      if (stored.query_of(row) >= stored.lengths.q()) continue;
      Output::finish(stored, row, inverse, lse);
      float* to = static_cast<float*>(p.o.data) + stored.offset_of(p.o, row) + part.first_column;
      warp.for_each_piece(r, StorePiece{to, inverse});
      if constexpr (C.lse) {
        if (part.first_column == 0 && thread_index() % Warp::kLanes == 0)
          p.lse[stored.lse_offset_of(row)] = lse;
      }
    }
  }

  ATTNFORGE_DEVICE static void run(const Params& params) {
    extern __shared__ __align__(128) u8 shared_memory[];
    Pieces::Order::begin();
    if constexpr (Pieces::Order::kMayRunOut)
      if (block_index() >= Pieces::Order::tiles(params)) return;
    FwdRegtileF32 block(params, smem_address(shared_memory), Part());
    if constexpr (Pieces::Order::kMayBeEmpty)
      if (block.tile.first_row >= block.tile.end_row()) return;
    block.load_q();
    block.attend_all();
    const Part part;
    if constexpr (C.warps_n > 1) {
      cp_async_wait<0>();
      __syncthreads();  // all are done with the tiles
      block.add_warps(part);
      if (part.keys_index != 0) return;
    }
    block.store(part);
  }
};

}  // namespace attnforge
