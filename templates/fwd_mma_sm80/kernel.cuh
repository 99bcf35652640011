// kernel.cuh - attention forward by mma.sync: warps share a query tile along its rows, K and V pass
// through a cp.async ring (FlashAttention-2, Dao 2023, with lazy rescaling, and several softmax
// steps a tile and Q in registers as options).
#pragma once

#include "fwd_mma_sm80/config.h"
#include "ptx/convert.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/special_registers.cuh"
#include "ptx/warpgroup.cuh"
#include "tile/fragment_scores.cuh"
#include "tile/key_ring.cuh"
#include "tile/load_tile.cuh"
#include "tile/query_tile.cuh"
#include "tile/softmax.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// What compilers do not know of a thread's number, which costs each division of it three
/// instructions.
template <int kThreads>
ATTNFORGE_DEVICE void assume_thread(int thread) {
  __builtin_assume(thread >= 0 && thread < kThreads);
}

/// A Loader that knows it, if kKnown.
template <class Loader, bool kKnown, int kThreads>
struct LoaderOf {
  using Type = Loader;
};
template <class Loader, int kThreads>
struct LoaderOf<Loader, true, kThreads> {
  struct Type : Loader {
    ATTNFORGE_DEVICE explicit Type(int thread) : Loader(known(thread)) {}
    ATTNFORGE_DEVICE static int known(int thread) {
      assume_thread<kThreads>(thread);
      return thread;
    }
  };
};

/// How K and V of 8 or 4 bits are loaded, scaled and widened: fwd_mma_sm80/low_bits.cuh, which the
/// entry includes.
template <auto C, class Pieces>
struct LowBitKeys;
template <class Kernel>
struct LowBitProducts;
/// What a thread knows of them over all keys; nothing where there are none.
template <auto C, bool kLowBits = C.low_bits()>
struct LowBitState {};

/// The Keys of K and of V, and their loaders, where the plain ones are Loader.
template <auto C, class Pieces, bool kLowBits = C.low_bits()>
struct KeysOf {
  using K = typename Pieces::template Keys<C.dtype>;
  using V = K;
  template <class Loader>
  using KLoader = Loader;
  template <class Loader>
  using VLoader = Loader;
};
template <auto C, class Pieces>
struct KeysOf<C, Pieces, true> : LowBitKeys<C, Pieces> {};

/// The most bytes that a copy takes: what alignment allows, and rows consist of.
ATTNFORGE_CONSTEXPR int copy_bytes(int row_bytes, int alignment) {
  const int whole = gcd(row_bytes, 16);
  return whole < alignment ? whole : alignment;
}

/// Pieces: DensePieces<C>, or what an entry makes of it; so is the kernel's argument, Params.
template <FwdMmaSm80Config C, class Pieces, class Params = FwdMmaSm80Params>
struct FwdMmaSm80 {
  static_assert(C.valid(), "the generator renders only configs that pass reject()");

  static constexpr int kRowFragments = C.row_fragments();  // of 16 query rows, a warp
  static constexpr int kOutFragments = C.out_fragments();  // of 8 output columns, or as codes have
  static constexpr int kDepthSteps = C.depth_steps();      // of 16 elements of the head dim
  static constexpr int kLaneRows = C.lane_rows();          // of a fragment
  static constexpr int kQueryChunks = C.query_chunks();    // of an operand of Q

  static constexpr auto kConfig = C;
  using QkRows = SwizzledRows<C.qk_pitch()>;
  using KRows = SwizzledRows<C.k_pitch()>;
  using VRows = SwizzledRows<C.v_pitch()>;
  /// Tiles of few rows whose blocks are short: what comes before the first loads counts
  /// (parts/splits/walk.cuh).
  static constexpr bool kShort = requires { Pieces::Order::kMostRows; };

  template <class Loader>
  using OfThread = typename LoaderOf<Loader, kShort, C.num_threads()>::Type;
  using QLoader = OfThread<TileLoader<C.block_m, chunks_of(C.dtype, C.head_dim), C.qk_pitch(),
                                      C.num_threads(), C.alignment>>;
  template <int kDtype, int kColumns, int kPitch>
  using RowLoader = TileLoader<C.block_n, chunks_of(kDtype, kColumns), kPitch, C.num_threads(),
                               copy_bytes(bytes_of(kDtype, kColumns), C.alignment),
                               bytes_of(kDtype, kColumns),
                               is_low_bit(kDtype) && bytes_of(kDtype, kColumns) < 128>;
  using KLoader = OfThread<
      typename KeysOf<C, Pieces>::template KLoader<RowLoader<C.dtype_k, C.head_dim, C.k_pitch()>>>;
  using VLoader = OfThread<typename KeysOf<C, Pieces>::template VLoader<
      RowLoader<C.dtype_v, C.head_dim_v, C.v_pitch()>>>;

  using Tile = QueryTile<Params, C.pack_gqa, typename Pieces::Lengths>;
  using Walk = typename Pieces::Walk;
  using Output = typename Pieces::template Output<C.dtype, C.alignment, C.lse != 0>;

  using Scores = float[kRowFragments][C.step_n / 8][4];  // of one step, in fragments of 8 keys

  /// Scores as the pieces take them. A lane's row is computed again for each, and only where they
  /// are needed: kept over the products, it would be one register too many.
  struct StepScores {
    static constexpr bool kCoarse = true;  // probabilities are rounded to 16 bits
    Scores& all;
    int first_row;  // of the block's
    int first_key;  // of the step's

    ATTNFORGE_DEVICE FragmentScores<Scores> fragments() const {
      return {all, first_row + lane_row(), first_key};
    }
    template <class OfRow>
    ATTNFORGE_DEVICE void for_each(const OfRow& of_row) const {
      const int lane_key = first_key + MmaFragment::column(lane());
      unrolled<kRowFragments, kLaneRows>([&](int f, int r) {
        const auto score = of_row(first_row + lane_row() + f * 16 + 8 * r, lane_key);
        unrolled<C.step_n / 8, 2>([&](int j, int c) {
          float& s = all[f][j][2 * r + c];
          s = score(s, j * 8 + c);
        });
      });
    }
  };

  const Params& params;
  const FwdParams& p;
  const u32 smem;
  const Tile tile;
  KeyRing<C, Walk, typename KeysOf<C, Pieces>::K, KLoader, VLoader, typename KeysOf<C, Pieces>::V>
      ring;
  typename QkRows::Fragment q_fragment;  // for ldmatrix, of this lane
  typename KRows::Fragment k_fragment;
  typename VRows::Fragment v_fragment;
  float scale_log2;
  u32 q[kRowFragments][C.q_in_regs ? kDepthSteps : 1][4];
  float o[kRowFragments][kOutFragments][4];
  SoftmaxRows<false, kLaneRows> softmax[kRowFragments];
  LowBitState<C> low_bits;

  ATTNFORGE_DEVICE FwdMmaSm80(const Params& kernel_params, u32 smem_base)
      : params(kernel_params),
        p(kernel_params.fwd),
        smem(smem_base),
        tile(this_tile(kernel_params)),
        ring(kernel_params, tile, C.block_m, smem),
        q_fragment(warp_row() + lane() % (8 * kLaneRows), first_q_chunk()),
        k_fragment(kKeysByChunk ? lane() : lane() % 8 + lane() / 16 * 8, first_k_chunk()),
        v_fragment(lane() % 16, lane() / 16 + (C.low_bit_v() ? 0 : first_out_fragment())) {
    scale_log2 = (Pieces::Score::kScaled ? 1.0f : p.softmax_scale) * 1.4426950408889634f;
  }

  /// The query tile of this block. Computed again for the stores: see special_registers.cuh.
  ATTNFORGE_DEVICE static Tile this_tile(const Params& params) {
    if constexpr (requires { Pieces::Order::template tile<Tile>(params); })
      return Pieces::Order::template tile<Tile>(params);
    else
      return Tile(params, Pieces::Order::place(params, block_index()), C.block_m);
  }

  ATTNFORGE_DEVICE static int this_thread() {
    const int thread = thread_index();
    if constexpr (kShort) assume_thread<C.num_threads()>(thread);
    return thread;
  }
  ATTNFORGE_DEVICE static int lane() { return this_thread() % 32; }
  /// Which slice of the head dims is this warp's; warps row_warps() apart have the same rows.
  ATTNFORGE_DEVICE static int depth_slice() {
    return C.head_dim_warps > 1 ? this_thread() / (32 * C.row_warps()) : 0;
  }
  ATTNFORGE_DEVICE static int first_out_fragment() {
    return depth_slice() * (C.v_chunks() - kOutFragments);
  }
  /// Whether lanes read 32 keys of a chunk, in place of 16 at two.
  static constexpr bool kKeysByChunk = C.low_bit_k() && code_of(C.dtype_k) != kInt8;
  ATTNFORGE_DEVICE static int first_k_chunk() {
    return kKeysByChunk ? 0 : lane() / 8 % 2 + depth_slice() * kDepthSteps * 2;
  }
  /// Rows of Q at two chunks; at four, of which the second half of the rows has two.
  ATTNFORGE_DEVICE static int first_q_chunk() {
    return kQueryChunks == 4 ? lane() / 16 + lane() / 8 % 2 * 2
                             : lane() / 16 + depth_slice() * kDepthSteps * 2;
  }
  /// Which part of a tile's keys is this warp's.
  ATTNFORGE_DEVICE static int key_part() {
    return C.key_warps() > 1 ? this_thread() / (32 * C.row_warps()) : 0;
  }
  /// First row of this warp in the tile, and the row of this lane's accumulator c[0] in it.
  ATTNFORGE_DEVICE static int warp_row() {
    const int warp = this_thread() / 32;
    return (C.row_warps() != C.num_warps ? warp % C.row_warps() : warp) * C.warp_m();
  }
  ATTNFORGE_DEVICE static int lane_row() { return warp_row() + MmaFragment::row(lane()); }

  // ---- 1. Loads ----

  ATTNFORGE_DEVICE void load_q() {
    const QLoader loader(thread_index());
    const auto source = [&](int pass) {
      if constexpr (kShort)  // no row of the pass is there
        if (pass * QLoader::kRowsPerPass >= Pieces::Order::kMostRows)
          return static_cast<const char*>(p.q.data);
      const i64 at = tile.offset_of(p.q, tile.first_row + loader.row_of(pass));
      return static_cast<const char*>(p.q.data) + bytes_of(C.dtype, at) + loader.chunk * 16;
    };
    loader.template load<true>(smem, source, tile.end_row() - tile.first_row);
    QLoader::clear_padding(smem, thread_index());
    cp_async_commit();
  }

  /// Q's columns as those of K come out of codes, once Q is here.
  ATTNFORGE_DEVICE void order_q() {
    if constexpr (C.low_bit_k()) LowBitProducts<FwdMmaSm80>::order_q(*this, thread_index());
  }

  ATTNFORGE_DEVICE void read_q() {
    if constexpr (C.q_in_regs != 0) {
      unrolled<kRowFragments, kDepthSteps * 2 / kQueryChunks>([&](int f, int d) {
        ldmatrix_x4(q[f][d], q_fragment.at(smem + f * 16 * QkRows::kRowBytes, kQueryChunks * d));
      });
    }
  }

  // ---- 2. One step of step_n keys: scores, softmax, output ----

  /// s = Q K^T over a step's keys; `tile` is the address of the tile's, `step` the number of the
  /// step.
  ATTNFORGE_DEVICE void scores(Scores& s, u32 tile, int step) {
    if constexpr (C.low_bit_k())
      LowBitProducts<FwdMmaSm80>::scores(*this, s, tile, step);
    else
      plain_scores(s, tile + step * C.step_n * KRows::kRowBytes);
    if constexpr (C.head_dim_warps > 1) add_parts(s);
  }
  /// `tile` is the address of the step's first key.
  ATTNFORGE_DEVICE void plain_scores(Scores& s, u32 tile) {
#pragma unroll
    for (int d = 0; d < kDepthSteps; ++d) {
      u32 from_smem[kRowFragments][4];
      if constexpr (C.q_in_regs == 0) {
        unrolled<kRowFragments>([&](int f) {
          ldmatrix_x4(from_smem[f], q_fragment.at(smem + f * 16 * QkRows::kRowBytes, 2 * d));
        });
      }
#pragma unroll
      for (int j = 0; j < C.step_n / 8; j += 2) {
        u32 k[4];
        ldmatrix_x4(k, k_fragment.at(tile + j * 8 * KRows::kRowBytes, 2 * d));
#pragma unroll
        for (int f = 0; f < kRowFragments; ++f) {
          const auto& a = C.q_in_regs ? q[f][C.q_in_regs ? d : 0] : from_smem[f];
          if (d == 0) {
            mma_m16n8k16_zero<C.dtype>(s[f][j], a, k[0], k[1]);
            mma_m16n8k16_zero<C.dtype>(s[f][j + 1], a, k[2], k[3]);
          } else {
            mma_m16n8k16<C.dtype>(s[f][j], a, k[0], k[1]);
            mma_m16n8k16<C.dtype>(s[f][j + 1], a, k[2], k[3]);
          }
        }
      }
    }
  }

  /// The other part of the sums, from the warp that has it. Adding commutes, so both warps go on
  /// with the same bits. A block barrier lies between two calls: the other's last reads are over.
  ATTNFORGE_DEVICE void add_parts(Scores& s) const {
    constexpr int kFragmentBytes = 32 * 16;  // of 8 keys
    const int warp = thread_index() / 32, row_warp = warp % C.row_warps();
    const int other = warp < C.row_warps() ? warp + C.row_warps() : row_warp;
    const u32 parts = smem + C.parts_begin() + lane() * 16;
    const u32 to = parts + warp * C.parts_bytes(), from = parts + other * C.parts_bytes();
    unrolled<kRowFragments, C.step_n / 8>([&](int f, int j) {
      store_shared(to + (f * (C.step_n / 8) + j) * kFragmentBytes, s[f][j]);
    });
    named_barrier_wait(1 + row_warp, 64);
    unrolled<kRowFragments, C.step_n / 8>([&](int f, int j) {
      float more[4];
      load_shared(more, from + (f * (C.step_n / 8) + j) * kFragmentBytes);
      unrolled<4>([&](int c) { s[f][j][c] += more[c]; });
    });
  }

  /// Scores to probabilities; the output is rescaled to the new maxima.
  ATTNFORGE_DEVICE void probabilities(Scores& s) {
#pragma unroll
    for (int f = 0; f < kRowFragments; ++f) {
      float rescale[2];
      if (!softmax[f].probabilities(s[f], scale_log2, rescale)) continue;
      if constexpr (C.low_bit_v()) {
        LowBitProducts<FwdMmaSm80>::rescale(o[f], rescale);
      } else {
#pragma unroll
        for (int j = 0; j < kOutFragments; ++j) {
          o[f][j][0] *= rescale[0], o[f][j][1] *= rescale[0];
          o[f][j][2] *= rescale[1], o[f][j][3] *= rescale[1];
        }
      }
    }
  }

  /// o += P V over a step's keys, told as for scores().
  ATTNFORGE_DEVICE void outputs(const Scores& s, u32 tile, int step) {
    if constexpr (C.low_bit_v())
      LowBitProducts<FwdMmaSm80>::outputs(*this, s, tile, step);
    else
      plain_outputs(s, tile + step * C.step_n * VRows::kRowBytes);
  }
  ATTNFORGE_DEVICE void plain_outputs(const Scores& s, u32 tile) {
#pragma unroll
    for (int j = 0; j < C.step_n / 8; j += 2) {
      u32 a[kRowFragments][4];
      unrolled<kRowFragments, 4>([&](int f, int w) {
        const auto& from = s[f][j + w / 2];
        a[f][w] = pack2<C.dtype>(from[w % 2 * 2], from[w % 2 * 2 + 1]);
      });
      const u32 rows = tile + j * 8 * VRows::kRowBytes;
#pragma unroll
      for (int c = 0; c + 2 <= kOutFragments; c += 2) {
        u32 v[4];
        ldmatrix_x4_trans(v, v_fragment.at(rows, c));
#pragma unroll
        for (int f = 0; f < kRowFragments; ++f) {
          mma_m16n8k16<C.dtype>(o[f][c], a[f], v[0], v[1]);
          mma_m16n8k16<C.dtype>(o[f][c + 1], a[f], v[2], v[3]);
        }
      }
      if constexpr (kOutFragments % 2 != 0) {
        u32 v0, v1;
        ldmatrix_x2_trans(v0, v1, v_fragment.at(rows, kOutFragments - 1));
        unrolled<kRowFragments>(
            [&](int f) { mma_m16n8k16<C.dtype>(o[f][kOutFragments - 1], a[f], v0, v1); });
      }
    }
  }

  // ---- 3. One tile of keys ----

  /// The tile at a place of the walk. masked: some row does not see all keys of it.
  ATTNFORGE_DEVICE void attend(int place, int stage, bool masked) {
#pragma unroll 1  // unrolled it is no faster, spills, and takes twice as long to compile
    for (int step = key_part(); step < C.block_n / C.step_n; step += C.key_warps()) {
      Scores s;
      if constexpr (Walk::kListed) {
        const typename Walk::template StepScores<Scores, C.step_n, C.block_n> view(
            s, tile.first_row + lane_row(), warp_row() / 16, ring.tiles.groups_at(place), step);
        if (!view.sees_some()) {
          ring.await_v(place);
          continue;
        }
        scores(s, ring.k_tile(stage), step);
        Pieces::Score::apply(view, tile);
        Pieces::Mask::apply(view, tile);
      } else {
        const StepScores view{s, tile.first_row,
                              ring.tiles.tile_at(place) * C.block_n + step * C.step_n};
        typename Pieces::Score::template Ahead<FragmentScores<Scores>> ahead;
        if constexpr (ahead.kReads) ahead.begin(view.fragments(), tile);
        scores(s, ring.k_tile(stage), step);
        if constexpr (ahead.kReads)
          ahead.template apply<typename Pieces::Score>(view.fragments(), tile);
        else
          Pieces::Score::apply(view, tile);
        if (masked) Pieces::Mask::apply(view, tile);
      }
      probabilities(s);
      ring.await_v(place);  // with one stage there is one step
      outputs(s, ring.v_tile(stage), step);
    }
  }

  // ---- 4. The whole query tile ----

  ATTNFORGE_DEVICE void run() {
    load_q();
    if constexpr (C.q_in_regs == 2) {
      cp_async_wait<0>();
      __syncthreads();
      order_q();
      read_q();
      __syncthreads();
    }
#pragma unroll
    for (int s = 0; s < C.stages; ++s) {
      KLoader::clear_padding(ring.k_tile(s), thread_index());
      if constexpr (C.pad_head_dim) VLoader::clear_padding(ring.v_tile(s), thread_index());
      if (s == ring.kTilesAhead) break;
      ring.load_first(s, tile.lengths.kv());
    }
    fill(o, 0.0f);
    if constexpr (C.stages == 1 || C.q_in_regs == 1 || (C.low_bit_k() && C.q_in_regs == 0))
      ring.await_q();
    if constexpr (C.q_in_regs != 2) order_q();
    if constexpr (C.q_in_regs == 1) read_q();
    ring.walk([&](int place, int stage, bool masked) { attend(place, stage, masked); });
    store();
  }

  ATTNFORGE_DEVICE void store() {
    if constexpr (C.low_bit_v())
      LowBitProducts<FwdMmaSm80>::store(*this);
    else
      store_columns();
  }
  ATTNFORGE_DEVICE void store_columns() {
    constexpr int kStored = C.pad_head_dim ? C.head_dim_v / 8 : kOutFragments;
    const Tile stored = this_tile(params);
    const int column = first_out_fragment() * 8;
#pragma unroll
    for (int f = 0; f < kRowFragments; ++f) {
      const int row = stored.first_row + lane_row() + f * 16;
      float inverse[2], lse[2];
      softmax[f].finish(inverse, lse);
      Output::template store<0, kStored>(stored, row, column, o[f], inverse[0], lse[0]);
      Output::template store<1, kStored>(stored, row + 8, column, o[f], inverse[1], lse[1]);
    }
  }

  ATTNFORGE_DEVICE static void run(const Params& params) {
    extern __shared__ __align__(128) u8 shared_memory[];
    Pieces::Order::begin();
    if constexpr (Pieces::Order::kFinds) {
      Pieces::Order::find(params);
      __syncthreads();
    }
    if constexpr (Pieces::Order::kMayRunOut)
      if (block_index() >= Pieces::Order::tiles(params)) return;
    FwdMmaSm80 block(params, smem_address(shared_memory));
    if constexpr (Pieces::Order::kMayBeEmpty)
      if (block.tile.first_row >= block.tile.end_row()) return;
    block.run();
  }
};

}  // namespace attnforge
