// dq_kernel.cuh - dQ by a kernel of its own: a block has some query rows and walks over the keys
// that they see, as forward does. No sums are shared among blocks, so equal runs give equal bits;
// scores and dP are computed a second time. Gradients of arrays that the score's text reads (dargs)
// are made here too, where a lane has dS in fp32 of rows that stay: those are added up by all.
#pragma once

#include "backward/score_slopes.cuh"
#include "backward/scratch.cuh"
#include "backward/store_gradient.cuh"
#include "bwd_mma_sm80/config.h"
#include "ptx/convert.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/grid_dependency.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/special.cuh"
#include "ptx/special_registers.cuh"
#include "tile/fragment_scores.cuh"
#include "tile/key_ring.cuh"
#include "tile/load_tile.cuh"
#include "tile/query_tile.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// What a lane has of the gradients of arrays: nothing without them.
template <class Pieces, bool kAny, int kRows>
struct SumsOfDargs {
  struct Type {};
};
template <class Pieces, int kRows>
struct SumsOfDargs<Pieces, true, kRows> {
  using Type = typename Pieces::Dargs::template Sums<kRows>;
};

/// Config is that of the kernel of dK and dV, whose Pieces and Params these are too.
template <BwdMmaSm80Config Config, class Pieces, class Params = BwdMmaSm80Params>
struct BwdMmaSm80Dq {
  static constexpr BwdMmaSm80DqConfig C = Config.own_dq();

  static constexpr int kRowFragments = C.row_fragments();  // of 16 query rows, a warp
  static constexpr int kKeyFragments = C.block_n() / 8;
  static constexpr int kColumns = C.head_dim / 8;  // fragments of 8

  using QkRows = SwizzledRows<C.qk_chunks()>;
  using VRows = SwizzledRows<C.v_chunks()>;
  template <int kRows, int kDim, int kChunks>
  using Loader = TileLoader<kRows, chunks_of(C.dtype, kDim), kChunks, C.num_threads(), C.alignment>;
  using QLoader = Loader<C.block_m(), C.head_dim, C.qk_chunks()>;
  using DoutLoader = Loader<C.block_m(), C.head_dim_v, C.v_chunks()>;
  using KLoader = Loader<C.block_n(), C.head_dim, C.qk_chunks()>;
  using VLoader = Loader<C.block_n(), C.head_dim_v, C.v_chunks()>;

  using Tile = QueryTile<Params, 1, typename Pieces::Lengths>;
  using Slope = typename Pieces::Slope;
  using Scores = float[kRowFragments][kKeyFragments][4];

  const Params& params;
  const FwdParams& p;
  const u32 smem;
  const Tile tile;
  const Slope slope;
  KeyRing<C, typename Pieces::Walk, typename Pieces::template Keys<C.dtype>, KLoader, VLoader> ring;
  float scale_log2;
  float lse_log2[kRowFragments][2], delta[kRowFragments][2];  // of this lane's rows
  float dq[kRowFragments][kColumns][4];
  typename SumsOfDargs<Pieces, C.dargs != 0, 2 * kRowFragments>::Type dargs;

  ATTNFORGE_DEVICE BwdMmaSm80Dq(const Params& kernel_params, u32 smem_base)
      : params(kernel_params),
        p(kernel_params.fwd),
        smem(smem_base),
        tile(this_tile(kernel_params)),
        slope(kernel_params.fwd),
        ring(kernel_params, tile, C.block_m(), smem) {
    scale_log2 = (Pieces::Score::kScaled ? 1.0f : p.softmax_scale) * 1.4426950408889634f;
  }

  ATTNFORGE_DEVICE static Tile this_tile(const Params& params) {
    const TilePlace place = place_tile(params.order, block_index());
    using Lengths = typename Pieces::Lengths;
    if constexpr (is_packed<Lengths>()) {
      const SequenceTile at = packed_tile(Lengths::q_begins(params), params.fwd.batch, C.block_m(),
                                          place.m_block);
      return Tile(params, {at.tile, at.sequence * params.fwd.num_heads_q + place.head},
                  C.block_m());
    } else {
      return Tile(params, place, C.block_m());
    }
  }
  ATTNFORGE_DEVICE static int lane() { return thread_index() % 32; }
  ATTNFORGE_DEVICE static int warp_row() { return thread_index() / 32 * 16 * kRowFragments; }
  ATTNFORGE_DEVICE static int lane_row() { return warp_row() + MmaFragment::row(lane()); }

  // ---- 1. Loads ----

  template <class QueryLoader>
  ATTNFORGE_DEVICE void load_queries(u32 to, const TensorRef& tensor) const {
    const QueryLoader loader(thread_index());
    const auto source = [&](int pass) {
      const i64 at = tile.offset_of(tensor, tile.first_row + loader.row_of(pass));
      return static_cast<const char*>(tensor.data) + bytes_of(C.dtype, at) + loader.chunk * 16;
    };
    loader.template load<true>(to, source, tile.end_row() - tile.first_row);
    QueryLoader::clear_padding(to, thread_index());
  }

  /// Rows after the last have no probabilities.
  ATTNFORGE_DEVICE void load_rows() {
    const i64 first = scratch_row_of_head(p, params.scratch, tile.lengths, tile.head) +
                      scratch_row_in_head<Config.block_m>(tile.lengths, tile.batch);
    unrolled<kRowFragments, 2>([&](int f, int r) {
      const int row = tile.first_row + lane_row() + f * 16 + r * 8;
      const bool present = row < tile.end_row();
      lse_log2[f][r] = present ? params.scratch.lse_log2[first + row] : -negative_infinity();
      delta[f][r] = present ? params.scratch.delta[first + row] : 0.0f;
    });
  }

  // ---- 2. One tile of keys ----

  /// x = A B^T: this warp's rows of a tile of queries by a tile of keys.
  template <class Rows, int kDepth>
  ATTNFORGE_DEVICE static void multiply(Scores& x, u32 queries, u32 keys) {
    const u32 a_rows = queries + Rows::offset(warp_row() + lane() % 16, lane() / 16);
    const u32 b_rows = keys + Rows::offset(lane() % 8 + lane() / 16 * 8, lane() / 8 % 2);
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      u32 a[kRowFragments][4];
      unrolled<kRowFragments>([&](int f) {
        ldmatrix_x4(a[f], Rows::further(a_rows, 2 * d) + f * 16 * Rows::kRowBytes);
      });
#pragma unroll
      for (int j = 0; j < kKeyFragments; j += 2) {
        u32 b[4];
        ldmatrix_x4(b, Rows::further(b_rows, 2 * d) + j * 8 * Rows::kRowBytes);
#pragma unroll
        for (int f = 0; f < kRowFragments; ++f) {
          if (d == 0) {
            mma_m16n8k16_zero<C.dtype>(x[f][j], a[f], b[0], b[1]);
            mma_m16n8k16_zero<C.dtype>(x[f][j + 1], a[f], b[2], b[3]);
          } else {
            mma_m16n8k16<C.dtype>(x[f][j], a[f], b[0], b[1]);
            mma_m16n8k16<C.dtype>(x[f][j + 1], a[f], b[2], b[3]);
          }
        }
      }
    }
  }

  /// Scores to P times their slope.
  ATTNFORGE_DEVICE void probabilities(Scores& s, const Scores& slopes) const {
    unrolled<kRowFragments, kKeyFragments, 4>([&](int f, int j, int c) {
      float& x = s[f][j][c];
      const float p = probability<Slope>(x, scale_log2, lse_log2[f][c / 2]);
      x = times_slope(p, slope, x, slopes[f][j][c]);
    });
  }

  /// dq += dS K; `s` is P, of which dS is 0 where it is in a masked tile.
  ATTNFORGE_DEVICE void accumulate(const Scores& s, const Scores& dp, bool masked, u32 keys) {
    const u32 columns = keys + QkRows::offset(lane() % 16, lane() / 16);
    const auto difference = [&](int f, int j, int c) {
      const float ds = s[f][j][c] * (dp[f][j][c] - delta[f][c / 2]);
      return masked && s[f][j][c] == 0.0f ? 0.0f : ds;
    };
#pragma unroll
    for (int j = 0; j < kKeyFragments; j += 2) {
      u32 a[kRowFragments][4];
      unrolled<kRowFragments, 4>([&](int f, int w) {
        a[f][w] = pack2<C.dtype>(difference(f, j + w / 2, w % 2 * 2),
                                 difference(f, j + w / 2, w % 2 * 2 + 1));
      });
#pragma unroll
      for (int c = 0; c < kColumns; c += 2) {
        u32 b[4];
        const u32 at = QkRows::further(columns, c) + j * 8 * QkRows::kRowBytes;
        if (c + 1 < kColumns)
          ldmatrix_x4_trans(b, at);
        else
          ldmatrix_x2_trans(b[0], b[1], at);
#pragma unroll
        for (int f = 0; f < kRowFragments; ++f) {
          mma_m16n8k16<C.dtype>(dq[f][c], a[f], b[0], b[1]);
          if (c + 1 < kColumns) mma_m16n8k16<C.dtype>(dq[f][c + 1], a[f], b[2], b[3]);
        }
      }
    }
  }

  ATTNFORGE_DEVICE void attend(int place, int stage, bool masked) {
    if constexpr (C.has_block_mask()) {
      const int first_key = ring.tiles.tile_at(place) * C.block_n();
      if (!Pieces::Mask::any(tile, tile.first_row + warp_row(), 16 * kRowFragments, first_key,
                             C.block_n()))
        return;  // nothing is waited for in here
    }
    Scores s, dp;
    multiply<QkRows, C.qk_chunks() / 2>(s, smem, ring.k_tile(stage));
    const int first_row = tile.first_row + lane_row();
    const int first_key = ring.tiles.tile_at(place) * C.block_n();
    const auto view_of = [&](Scores& x) { return FragmentScores<Scores>{x, first_row, first_key}; };
    if constexpr (C.dargs) return attend_with_dargs(s, dp, first_row, first_key, stage, masked);
    Scores slopes;
    make_slopes<Slope>(s, slopes, view_of, tile);
    Pieces::Score::apply(view_of(s), tile);
    if (masked) Pieces::Mask::apply(view_of(s), tile);
    probabilities(s, slopes);
    multiply<VRows, C.v_chunks() / 2>(dp, smem + C.dout_begin(), ring.v_tile(stage));
    accumulate(s, dp, masked, ring.k_tile(stage));
  }

  /// attend() from the scores on, with gradients of arrays. Scores before Score stay until dS is
  /// known: those gradients are of P (dP - delta), which only then becomes the gradient of the
  /// score before the text.
  ATTNFORGE_DEVICE void attend_with_dargs(Scores& s, Scores& dp, int first_row, int first_key,
                                          int stage, bool masked) {
    const auto view_of = [&](Scores& x) { return FragmentScores<Scores>{x, first_row, first_key}; };
    Scores before;
    copy_scores(s, before);
    Pieces::Score::apply(view_of(s), tile);
    if (masked) Pieces::Mask::apply(view_of(s), tile);
    unrolled<kRowFragments, kKeyFragments, 4>([&](int f, int j, int c) {
      s[f][j][c] = probability<Slope>(s[f][j][c], scale_log2, lse_log2[f][c / 2]);
    });
    multiply<VRows, C.v_chunks() / 2>(dp, smem + C.dout_begin(), ring.v_tile(stage));
    Pieces::Dargs::add(dargs, before, s, dp, delta, view_of, tile, first_row, first_key);
    Slope::apply(view_of(before), tile);
    unrolled<kRowFragments, kKeyFragments, 4>([&](int f, int j, int c) {
      s[f][j][c] = times_slope(s[f][j][c], slope, s[f][j][c], before[f][j][c]);
    });
    accumulate(s, dp, masked, ring.k_tile(stage));
  }

  // ---- 3. The whole query tile ----

  ATTNFORGE_DEVICE void run() {
    load_queries<QLoader>(smem, p.q);
    load_queries<DoutLoader>(smem + C.dout_begin(), params.dout);
    cp_async_commit();
#pragma unroll
    for (int s = 0; s < C.stages; ++s) {
      KLoader::clear_padding(ring.k_tile(s), thread_index());
      VLoader::clear_padding(ring.v_tile(s), thread_index());
    }
    ring.load_first(0, tile.lengths.kv());
    await_previous_grid();
    load_rows();
    fill(dq, 0.0f);
    ring.walk([&](int place, int stage, bool masked) { attend(place, stage, masked); });
    if constexpr (C.dargs) dargs.finish();
    store();
  }

  ATTNFORGE_DEVICE void store() const {
    const Tile stored = this_tile(params);
#pragma unroll
    for (int f = 0; f < kRowFragments; ++f) {
      store_rows<0>(stored, dq[f], stored.first_row + lane_row() + f * 16);
      store_rows<1>(stored, dq[f], stored.first_row + lane_row() + f * 16 + 8);
    }
  }
  template <int kHalf>
  ATTNFORGE_DEVICE void store_rows(const Tile& stored, const float (&x)[kColumns][4],
                                   int row) const {
    constexpr int kDtype = C.gradient_dtype(C.dtype);
    char* const to = static_cast<char*>(params.dq.data) +
                     stored.offset_of(params.dq, row) * element_bytes(kDtype);
    store_gradient_row<kDtype, C.accumulate != 0, kHalf, C.alignment, kColumns>(
        x, p.softmax_scale, to, row < stored.end_row(), lane() % 4);
  }

  ATTNFORGE_DEVICE static void run(const Params& params) {
    extern __shared__ __align__(128) u8 shared_memory[];
    if (this_tile(params).first_row >= this_tile(params).end_row()) {
      await_previous_grid();  // what the end of this one says of it
      return;
    }
    BwdMmaSm80Dq block(params, smem_address(shared_memory));
    block.run();
  }
};

}  // namespace attnforge
