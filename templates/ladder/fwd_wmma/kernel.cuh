// kernel.cuh - attention forward by the wmma instructions, knowing nothing of how their fragments
// lie in registers: softmax is elementwise on fragments, and shared memory is where rows are seen.
// Online softmax after Milakov and Gimelshein 2018; the loop is that of FlashAttention-2, Dao 2023.
#pragma once

#include "ladder/fwd_wmma/config.h"
#include "ladder/of_shape.cuh"
#include "pieces/fixed_lengths.cuh"
#include "pieces/strided_keys.cuh"
#include "ptx/convert.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/special.cuh"
#include "ptx/special_registers.cuh"
#include "ptx/wmma.cuh"
#include "tile/key_ring.cuh"
#include "tile/load_tile.cuh"
#include "tile/maximum.cuh"
#include "tile/query_tile.cuh"
#include "tile/tile_order.cuh"
#include "tile/unrolled.cuh"
#include "tile/visible_keys.cuh"

namespace attnforge {

template <FwdWmmaConfig C>
struct FwdWmma {
  static_assert(C.valid(), "the generator renders only configs that pass reject()");

  static constexpr int kRowFragments = C.row_fragments();
  static constexpr int kKeyFragments = C.step_n / 16;
  static constexpr int kOutFragments = C.out_fragments();
  static constexpr int kDepthSteps = C.depth_steps();
  static constexpr int kScratchPitch = C.scratch_pitch();

  using Operand = WmmaOperand<C.dtype>;
  using QLoader = TileLoader<C.block_m, chunks_of(C.dtype, C.head_dim), C.qk_pitch(),
                             C.num_threads(), C.alignment>;
  using KLoader = TileLoader<C.block_n, chunks_of(C.dtype, C.head_dim), C.qk_pitch(),
                             C.num_threads(), C.alignment>;
  using VLoader = TileLoader<C.block_n, chunks_of(C.dtype, C.head_dim_v), C.v_pitch(),
                             C.num_threads(), C.alignment>;
  using Scores = WmmaAccumulator[kRowFragments][kKeyFragments];

  using Tile = QueryTile<FwdTiledParams, 1, FixedLengths>;
  using Walk = WalkOf<C>;

  const FwdTiledParams& params;
  const FwdParams& p;
  const u32 smem;
  const Tile tile;
  KeyRing<C, Walk, StridedKeys<C.dtype>, KLoader, VLoader> ring;
  float scale_log2;
  bool p_pairs;   // elements 2i and 2i + 1 lie side by side, in all lanes
  bool p_agrees;  // the accumulator's elements are those of matrix A, in all lanes
  Operand q[C.q_in_regs ? kRowFragments : 1][C.q_in_regs ? kDepthSteps : 1];
  WmmaAccumulator o[kRowFragments][kOutFragments];
  WmmaAccumulator row_max[kRowFragments];  // an element's row's, in log2 units
  WmmaAccumulator row_sum[kRowFragments];  // of the elements at this place of all fragments

  ATTNFORGE_DEVICE FwdWmma(const FwdTiledParams& kernel_params, u32 smem_base)
      : params(kernel_params),
        p(kernel_params.fwd),
        smem(smem_base),
        tile(this_tile(kernel_params)),
        ring(kernel_params, tile, C.block_m, smem) {
    scale_log2 = p.softmax_scale * 1.4426950408889634f;
  }

  ATTNFORGE_DEVICE static Tile this_tile(const FwdTiledParams& params) {
    return Tile(params, place_tile(params.order, block_index()), C.block_m);
  }

  ATTNFORGE_DEVICE static int warp() { return thread_index() / 32; }
  ATTNFORGE_DEVICE static int lane() { return thread_index() % 32; }
  ATTNFORGE_DEVICE u32 warp_q() const { return smem + warp() * C.warp_m() * C.qk_pitch() * 16; }
  /// P of this warp's rows, and a fragment in fp32 when P is not in use.
  ATTNFORGE_DEVICE u32 warp_memory() const {
    return smem + C.warp_begin() + warp() * C.warp_bytes();
  }
  ATTNFORGE_DEVICE u32 table() const { return smem + C.table_begin(); }

  // ---- 1. What the fragments are ----

  /// The number row * 16 + column of every element of a 16 x 16 matrix, for wmma_load to deal out.
  ATTNFORGE_DEVICE void write_table() const {
    for (int i = thread_index(); i < 256; i += C.num_threads()) store_shared(table() + i * 4, i);
  }

  /// From a fragment of element numbers: this lane's places in P.
  ATTNFORGE_DEVICE void find_places(u32 (&places)[8]) const {
    WmmaAccumulator number;
    wmma_load(number, table(), 16);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int n = __float_as_int(number.x[i]);
      places[i] = warp_memory() + n / 16 * C.p_pitch() * 16 + n % 16 * 2;
    }
  }

  /// What the fragments of all lanes have in common.
  ATTNFORGE_DEVICE void learn() {
    u32 places[8];
    find_places(places);
    bool pairs = true;
#pragma unroll
    for (int i = 0; i < 8; i += 2) pairs &= places[i + 1] == places[i] + 2 && places[i] % 4 == 0;
    p_pairs = !any_lane(!pairs);
    // These numbers as elements of matrix A, in this warp's memory.
    for (int i = lane(); i < 128; i += 32) {
      store_shared(warp_memory() + i / 8 * C.p_pitch() * 16 + i % 8 * 4,
                   static_cast<int>(pack2<C.dtype>(2 * i, 2 * i + 1)));
    }
    __syncwarp();
    Operand a;
    wmma_load<WmmaOperandKind::kARows>(a, warp_memory(), C.p_pitch() * 8);
    WmmaAccumulator number;
    wmma_load(number, table(), 16);
    unrolled<8>([&](int i) { number.x[i] = __float_as_int(number.x[i]); });
    const Operand packed = as_operand(number);
    bool agrees = true;
    unrolled<Operand::kRegisters>([&](int i) { agrees &= a.r[i] == packed.r[i]; });
    p_agrees = !any_lane(!agrees);
    __syncwarp();
  }

  /// The elements of an accumulator as a matrix A with the same places.
  ATTNFORGE_DEVICE static Operand as_operand(const WmmaAccumulator& c) {
    Operand a;
    unrolled<Operand::kRegisters>(
        [&](int i) { a.r[i] = pack2<C.dtype>(c.x[i % 4 * 2], c.x[i % 4 * 2 + 1]); });
    return a;
  }

  // ---- 2. Loads ----

  ATTNFORGE_DEVICE void load_q() {
    const QLoader loader(thread_index());
    const auto source = [&](int pass) {
      const i64 at = tile.offset_of(p.q, tile.first_row + loader.row_of(pass));
      return static_cast<const char*>(p.q.data) + bytes_of(C.dtype, at) + loader.chunk * 16;
    };
    loader.template load<true>(smem, source, tile.end_row() - tile.first_row);
    clear_depth_padding<QLoader>(smem);
    cp_async_commit();
  }

  /// Zeros after a head dim that is not a multiple of 16.
  template <class Loader>
  ATTNFORGE_DEVICE static void clear_depth_padding(u32 tile) {
    if constexpr (C.head_dim % 16 != 0) Loader::clear_padding(tile, thread_index());
  }

  ATTNFORGE_DEVICE void read_q(Operand& a, int f, int d) const {
    wmma_load<WmmaOperandKind::kARows>(a, warp_q() + f * 16 * C.qk_pitch() * 16 + d * 32,
                                       C.qk_pitch() * 8);
  }

  // ---- 3. One step of step_n keys: scores, softmax, output ----

  /// s = Q K^T; `tile` is the address of the step's first key. K's rows are the columns of K^T.
  ATTNFORGE_DEVICE void scores(Scores& s, u32 tile) const {
    unrolled<kRowFragments, kKeyFragments>([&](int f, int j) { s[f][j] = WmmaAccumulator{}; });
#pragma unroll
    for (int d = 0; d < kDepthSteps; ++d) {
      Operand a[kRowFragments];
#pragma unroll
      for (int f = 0; f < kRowFragments; ++f) {
        if constexpr (C.q_in_regs) {
          a[f] = q[f][d];
        } else {
          read_q(a[f], f, d);
        }
      }
#pragma unroll
      for (int j = 0; j < kKeyFragments; ++j) {
        Operand b;
        wmma_load<WmmaOperandKind::kBColumns>(b, tile + j * 16 * C.qk_pitch() * 16 + d * 32,
                                              C.qk_pitch() * 8);
        unrolled<kRowFragments>(
            [&](int f) { wmma_mma<WmmaOperandKind::kBColumns>(s[f][j], a[f], b); });
      }
    }
  }

  ATTNFORGE_DEVICE void change(Scores& s) const {
    const ScoreOf<C> score(p);
    unrolled<kRowFragments, kKeyFragments>([&](int f, int j) { score.apply_coarse(s[f][j].x); });
  }

  /// -inf to the scores of keys, from first_key on, that a row does not see.
  ATTNFORGE_DEVICE void hide(Scores& s, int first_key) const {
    WmmaAccumulator number;
    wmma_load(number, table(), 16);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int n = __float_as_int(number.x[i]);
#pragma unroll
      for (int f = 0; f < kRowFragments; ++f) {
        VisibleKeys visible = VisibleKeys::of_row(
            p, tile.lengths, tile.first_row + warp() * C.warp_m() + f * 16 + n / 16);
        visible.first -= first_key + n % 16;
        visible.last -= first_key + n % 16;
        unrolled<kKeyFragments>(
            [&](int j) { s[f][j].x[i] = masked_score<C>(s[f][j].x[i], j * 16, visible); });
      }
    }
  }

  /// Every element becomes the maximum of its row. Through shared memory, where a lane has half a
  /// row.
  ATTNFORGE_DEVICE void reduce_to_row_max(WmmaAccumulator& c) const {
    const u32 half_row = scratch_half_row();
    __syncwarp();
    wmma_store(warp_memory(), c, kScratchPitch);
    __syncwarp();
    HalfRow x;
    load_half_row(x, half_row);
    float top = x[0][0];
#pragma unroll
    for (int i = 1; i < 8; ++i) top = fmaxf(top, x[i / 4][i % 4]);
    top = fmaxf(top, shuffle_xor<1>(top));
    const float four[4] = {top, top, top, top};
    store_shared(half_row, four);
    store_shared(half_row + 16, four);
    __syncwarp();
    wmma_load(c, warp_memory(), kScratchPitch);
    __syncwarp();
  }

  /// This lane's half of a row of the fragment in this warp's memory: lanes 2r and 2r + 1 have row
  /// r.
  ATTNFORGE_DEVICE u32 scratch_half_row() const {
    return warp_memory() + lane() / 2 * kScratchPitch * 4 + lane() % 2 * 32;
  }

  using HalfRow = float[2][4];
  ATTNFORGE_DEVICE static void load_half_row(HalfRow& x, u32 address) {
    load_shared(x[0], address);
    load_shared(x[1], address + 16);
  }

  /// Raises the maxima where some row of the warp grew by more than 2^8, as SoftmaxRows does: until
  /// then the old ones serve, and no row needs to be seen as a whole.
  ATTNFORGE_DEVICE void raise_max(const Scores& s) {
    WmmaAccumulator top[kRowFragments];
    bool grew = false;
    unrolled<kRowFragments, 8>([&](int f, int i) {
      top[f].x[i] = s[f][0].x[i];
#pragma unroll
      for (int j = 1; j < kKeyFragments; ++j) top[f].x[i] = fmaxf(top[f].x[i], s[f][j].x[i]);
      grew |= fmaf(top[f].x[i], scale_log2, -row_max[f].x[i]) > 8.0f || is_far(row_max[f].x[i]);
    });
    if (!any_lane(grew)) return;
#pragma unroll
    for (int f = 0; f < kRowFragments; ++f) {
      reduce_to_row_max(top[f]);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float old = row_max[f].x[i];
        row_max[f].x[i] = fmaxf(old, top[f].x[i] * scale_log2);
        const float rescale = exp2_approx(old - row_max[f].x[i]);
        row_sum[f].x[i] *= rescale;
        unrolled<kOutFragments>([&](int c) { o[f][c].x[i] *= rescale; });
      }
    }
  }

  /// Scores to probabilities relative to the current maxima, and their sums.
  ATTNFORGE_DEVICE void exponentiate(Scores& s) {
    unrolled<kRowFragments, 8, kKeyFragments>([&](int f, int i, int j) {
      const float x = s[f][j].x[i], top = row_max[f].x[i];
      s[f][j].x[i] = exp2_approx(is_far(top) ? __fsub_rn(__fmul_rn(x, scale_log2), top)
                                             : fmaf(x, scale_log2, -top));
      row_sum[f].x[i] += s[f][j].x[i];
    });
  }

  /// P to this warp's memory, rounded to 16 bits.
  ATTNFORGE_DEVICE void write_p(const Scores& s) const {
    u32 places[8];
    find_places(places);
    __syncwarp();  // reads of the step before are done
    unrolled<kRowFragments, kKeyFragments>([&](int f, int j) {
#pragma unroll
      for (int i = 0; i < 8; i += 2) {
        const u32 two = pack2<C.dtype>(s[f][j].x[i], s[f][j].x[i + 1]);
        const u32 offset = f * 16 * C.p_pitch() * 16 + j * 32;
        if (p_pairs) {
          store_shared(places[i] + offset, static_cast<int>(two));
        } else {
          store_shared_16(places[i] + offset, static_cast<u16>(two));
          store_shared_16(places[i + 1] + offset, static_cast<u16>(two >> 16));
        }
      }
    });
    __syncwarp();
  }

  /// o += P V over a step's keys; p_of(f, j) is fragment j of P's rows f.
  template <class FragmentOfP>
  ATTNFORGE_DEVICE void outputs(u32 tile, const FragmentOfP& p_of) {
#pragma unroll
    for (int j = 0; j < kKeyFragments; ++j) {
      Operand a[kRowFragments];
      unrolled<kRowFragments>([&](int f) { a[f] = p_of(f, j); });
#pragma unroll
      for (int c = 0; c < kOutFragments; ++c) {
        Operand b;
        wmma_load<WmmaOperandKind::kBRows>(b, tile + j * 16 * C.v_pitch() * 16 + c * 32,
                                           C.v_pitch() * 8);
        unrolled<kRowFragments>(
            [&](int f) { wmma_mma<WmmaOperandKind::kBRows>(o[f][c], a[f], b); });
      }
    }
  }

  /// P stays in registers where the fragments agree, else it goes through shared memory.
  ATTNFORGE_DEVICE void outputs(const Scores& s, u32 tile) {
    if (p_agrees) {
      outputs(tile, [&](int f, int j) { return as_operand(s[f][j]); });
      return;
    }
    write_p(s);
    outputs(tile, [&](int f, int j) {
      Operand a;
      wmma_load<WmmaOperandKind::kARows>(a, warp_memory() + f * 16 * C.p_pitch() * 16 + j * 32,
                                         C.p_pitch() * 8);
      return a;
    });
  }

  // ---- 4. One tile of keys ----

  /// The tile at a place of the walk. masked: some row does not see all keys of it.
  ATTNFORGE_DEVICE void attend(int place, int stage, bool masked) {
    const int n = ring.tiles.tile_at(place);
#pragma unroll 1
    for (int step = 0; step < C.block_n / C.step_n; ++step) {
      Scores s;
      scores(s, ring.k_tile(stage) + step * C.step_n * C.qk_pitch() * 16);
      change(s);
      if (masked) hide(s, n * C.block_n + step * C.step_n);
      raise_max(s);
      exponentiate(s);
      ring.await_v(place);  // with one stage there is one step
      outputs(s, ring.v_tile(stage) + step * C.step_n * C.v_pitch() * 16);
    }
  }

  // ---- 5. The whole query tile ----

  ATTNFORGE_DEVICE void run() {
    load_q();
    write_table();
#pragma unroll
    for (int s = 0; s < C.stages; ++s) {
      clear_depth_padding<KLoader>(ring.k_tile(s));
      if (s < ring.kTilesAhead) ring.load_first(s, p.seqlen_kv);
    }
#pragma unroll
    for (int f = 0; f < kRowFragments; ++f) {
      unrolled<8>([&](int i) { row_max[f].x[i] = kLowestFloat; });
      row_sum[f] = WmmaAccumulator{};
#pragma unroll
      for (int c = 0; c < kOutFragments; ++c) o[f][c] = WmmaAccumulator{};
    }
    ring.await_q();
    learn();
    if constexpr (C.q_in_regs) {
      unrolled<kRowFragments, kDepthSteps>([&](int f, int d) { read_q(q[f][d], f, d); });
    }
    ring.walk([&](int place, int stage, bool masked) { attend(place, stage, masked); });
    store();
  }

  /// Fragment after fragment through the warp's memory, where a lane has half a row of 16 columns.
  ATTNFORGE_DEVICE void store() const {
    constexpr float kLn2 = 0.6931471805599453f;
    const Tile stored = this_tile(params);
    const int half = lane() % 2;
    const u32 half_row = scratch_half_row();
    const auto half_of = [&](const WmmaAccumulator& c, HalfRow& x) {
      __syncwarp();
      wmma_store(warp_memory(), c, kScratchPitch);
      __syncwarp();
      load_half_row(x, half_row);
    };
#pragma unroll
    for (int f = 0; f < kRowFragments; ++f) {
      HalfRow x;
      half_of(row_max[f], x);
      const float top = x[0][0];
      half_of(row_sum[f], x);
      float sum = 0.0f;
      unrolled<8>([&](int i) { sum += x[i / 4][i % 4]; });
      sum += shuffle_xor<1>(sum);
      const bool empty = sum == 0.0f;
      const float inverse = empty ? 0.0f : reciprocal_approx(sum);

      const int query = stored.first_row + warp() * C.warp_m() + f * 16 + lane() / 2;
      const bool present = query < p.seqlen_q;
      if constexpr (C.lse) {
        if (present && half == 0)
          p.lse[stored.lse_offset_of(query)] = empty ? negative_infinity()
                                                     : (top + log2_approx(sum)) * kLn2;
      }
      u16* const row = static_cast<u16*>(p.o.data) + stored.offset_of(p.o, query);
#pragma unroll
      for (int c = 0; c < kOutFragments; ++c) {
        half_of(o[f][c], x);
        const bool column_present = C.head_dim_v % 16 == 0 || c + 1 < kOutFragments || half == 0;
        u32 w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* const two = &x[i / 2][i % 2 * 2];
          w[i] = pack2<C.dtype>(two[0] * inverse, two[1] * inverse);
        }
        if (present && column_present) store_16_bytes(row + c * 16 + half * 8, w);
      }
    }
  }

  ATTNFORGE_DEVICE static void store_16_bytes(u16* to, const u32 (&w)[4]) {
    if constexpr (C.alignment >= 16) {
      *reinterpret_cast<uint4*>(to) = make_uint4(w[0], w[1], w[2], w[3]);
    } else {
      unrolled<4>([&](int i) { reinterpret_cast<u32*>(to)[i] = w[i]; });
    }
  }

  ATTNFORGE_DEVICE static void run(const FwdTiledParams& params) {
    extern __shared__ __align__(128) u8 shared_memory[];
    FwdWmma block(params, smem_address(shared_memory));
    block.run();
  }
};

}  // namespace attnforge
