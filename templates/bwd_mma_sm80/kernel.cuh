// kernel.cuh - attention backward by mma.sync: a block keeps some keys and values, the tiles of Q
// and dO of all query heads that share them pass through a cp.async ring, and dK and dV are summed
// in registers (FlashAttention-2, Dao 2023). Scores are computed transposed, so that P and dS are
// operands of the products for dV and dK as they are; optionally one warp has the one and a second
// the other, which reads each tile of Q and dO fewer times, or two and two, with larger tiles each.
#pragma once

#include "backward/score_slopes.cuh"
#include "backward/store_gradient.cuh"
#include "backward/transposed_scores.cuh"
#include "bwd_mma_sm80/config.h"
#include "bwd_mma_sm80/products.cuh"
#include "bwd_mma_sm80/share.cuh"
#include "bwd_mma_sm80/words.cuh"
#include "bwd_mma_sm80/work.cuh"
#include "ptx/convert.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/grid_dependency.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/special_registers.cuh"
#include "ptx/warpgroup.cuh"
#include "tile/load_tile.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// Pieces: DensePieces<C>, Queries, a Slope, or what an entry makes of them, and of the argument.
template <BwdMmaSm80Config C, class Pieces, class Params = BwdMmaSm80Params>
struct BwdMmaSm80 {
  static_assert(C.valid(), "the generator renders only configs that pass reject()");

  using Shared = BwdMmaSm80Shared<C>;
  using QkRows = typename Shared::QkRows;
  using VRows = typename Shared::VRows;
  using DsRows = typename Shared::DsRows;
  template <int kRows, int kDim, int kChunks>
  using Loader = TileLoader<kRows, chunks_of(C.dtype, kDim), kChunks, C.num_threads(), C.alignment>;
  using KLoader = Loader<C.block_n, C.head_dim, C.qk_chunks()>;
  using VLoader = Loader<C.block_n, C.head_dim_v, C.v_chunks()>;
  using QLoader = Loader<C.block_m, C.head_dim, C.qk_chunks()>;
  using DoutLoader = Loader<C.block_m, C.head_dim_v, C.v_chunks()>;

  using Work = BwdMmaSm80Work<C, Pieces, Params>;
  using Tile = typename Work::Tile;
  using Slope = typename Pieces::Slope;

  using Share = BwdMmaSm80Share<C>;
  using Scores = typename Share::Scores;
  using Rounded = typename Share::Rounded;
  using Sums = typename Share::Sums;
  using Words = BwdMmaSm80Words<C>;
  using Factors = BwdMmaSm80Factors<C>;
  using Products = BwdMmaSm80Products<C>;
  using Dq = BwdMmaSm80DqProduct<C>;
  using Place = QueryPlace;
  static constexpr int kKeyFragments = Share::kKeyFragments, kStepFragments = Share::kStepFragments;
  /// Whether four warps find what dS is made of in the tile of P.
  static constexpr bool kPIsFactor = Slope::kOne && !C.fp32_factors();

  const Params& params;
  const FwdParams& p;
  const Shared smem;
  const Slope slope;
  const Work work;
  float scale_log2;
  typename Share::Own own;
  Sums sums[C.roles == 1 ? 2 : 1];  // dV, dK; with two roles the warp's own

  ATTNFORGE_DEVICE BwdMmaSm80(const Params& kernel_params, const Tile& keys, u32 smem_base)
      : params(kernel_params),
        p(kernel_params.fwd),
        smem{smem_base},
        slope(keys.params.fwd),
        work(kernel_params, keys) {
    scale_log2 = (Pieces::Score::kScaled ? 1.0f : p.softmax_scale) * 1.4426950408889634f;
  }

  // ---- 1. Loads ----

  /// Keys after the last become zeros.
  template <class KeyLoader>
  ATTNFORGE_DEVICE void load_keys(u32 to, const TensorRef& tensor) const {
    const KeyLoader loader(thread_index());
    const auto source = [&](int pass) {
      const i64 at = work.keys.key_offset(tensor, work.keys.first_key + loader.row_of(pass));
      return static_cast<const char*>(tensor.data) + bytes_of(C.dtype, at) + loader.chunk * 16;
    };
    loader.template load<true>(to, source, work.keys.lengths.kv() - work.keys.first_key);
    KeyLoader::clear_padding(to, thread_index());
  }

  /// Rows after the last query become zeros, and have no probabilities.
  template <class QueryLoader>
  ATTNFORGE_DEVICE void load_queries(u32 to, const TensorRef& tensor, const Place& place) const {
    const QueryLoader loader(thread_index());
    const int first_row = place.m * C.block_m;
    const char* first = static_cast<const char*>(tensor.data) +
                        bytes_of(C.dtype, work.keys.query_offset(tensor, place.head,
                                                                 first_row + loader.row)) +
                        loader.chunk * 16;
    const i64 bytes_apart = bytes_of(C.dtype, QueryLoader::kRowsPerPass) * tensor.stride_row;
    loader.template load<true>(
        to, [&](int pass) { return first + pass * bytes_apart; },
        work.keys.lengths.q() - first_row);
  }

  /// A tile of Q and dO, and what is known of its rows; one group of copies in any case.
  ATTNFORGE_DEVICE void load(const Place& place, int stage) const {
    if (work.has(place)) {
      load_queries<QLoader>(smem.q(stage), p.q, place);
      load_queries<DoutLoader>(smem.dout(stage), params.dout, place);
      constexpr int kCopies = C.block_m / 4;  // of four rows
#pragma unroll
      for (int first = 0; first < 2 * kCopies; first += C.num_threads()) {
        const int i = first + thread_index();
        if (i >= 2 * kCopies) break;
        const float* from = i < kCopies ? params.scratch.lse_log2 : params.scratch.delta;
        cp_async<16>(smem.rows(stage) + i * 16,
                     from + work.scratch_row(params.scratch, place) + i % kCopies * 4);
      }
    }
    cp_async_commit();
  }

  // ---- 2. One step of step_m queries ----

  /// s to probabilities in `rounded`. give(x, f, j) gets those of a fragment times their slope,
  /// which is in `slopes` where the score does not tell: what dP - delta is multiplied with.
  template <class Give>
  ATTNFORGE_DEVICE void probabilities(const Scores& s, const Scores& slopes, u32 lse,
                                      Rounded& rounded, const Give& give) const {
    // Before anything is given: loads wait for the stores before them, and these for exponentials.
    float shift[kStepFragments][2];
    unrolled<kStepFragments>([&](int j) {
      load_shared(shift[j], lse + (j * 8 + MmaFragment::column(Share::lane())) * 4);
    });
    unrolled<kStepFragments, kKeyFragments>([&](int j, int f) {
      float x[4], factors[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[i] = probability<Slope>(s[f][j][i], scale_log2, shift[j][i % 2]);
        factors[i] = times_slope(x[i], slope, s[f][j][i], slopes[f][j][i]);
      }
      unrolled<2>([&](int r) { rounded[f][j][r] = pack2<C.dtype>(x[2 * r], x[2 * r + 1]); });
      give(factors, f, j);
    });
  }

  /// dP to dP - delta.
  ATTNFORGE_DEVICE static void subtract(Scores& dp, u32 delta) {
#pragma unroll
    for (int j = 0; j < kStepFragments; ++j) {
      float shift[2];
      load_shared(shift, delta + (j * 8 + MmaFragment::column(Share::lane())) * 4);
      unrolled<kKeyFragments, 4>([&](int f, int i) { dp[f][j][i] -= shift[i % 2]; });
    }
  }

  /// dS = P (dP - delta), and to shared memory where others need it. load(j) brings P of fragments
  /// j and j + 1 while the last two are used: all at once take too many registers. of(f, j, i) is
  /// it. Where P is 0 in a masked tile dS is 0 whatever dP is.
  template <bool kMasked, class Load, class Of>
  ATTNFORGE_DEVICE static void differences(const Scores& dp, const Load& load, const Of& of,
                                           const Words& to, Rounded& ds) {
    load(0);
#pragma unroll
    for (int j = 0; j < kStepFragments; j += 2) {
      if (j + 2 < kStepFragments) load(j + 2);
      const auto difference = [&](int f, int at, int i) {
        const float x = of(f, at, i);
        return kMasked && x == 0.0f ? 0.0f : x * dp[f][at][i];
      };
      unrolled<kKeyFragments, 4>([&](int f, int i) {
        const int at = j + i / 2, first = i % 2 * 2;
        ds[f][at][i % 2] = pack2<C.dtype>(difference(f, at, first), difference(f, at, first + 1));
      });
      if constexpr (C.makes_dq() || C.halves() != 1) to.store(ds, j);
    }
  }
  template <class Load, class Of>
  ATTNFORGE_DEVICE static void to_differences(const Scores& dp, bool masked, const Load& load,
                                              const Of& of, const Words& to, Rounded& ds) {
    if (masked)
      differences<true>(dp, load, of, to, ds);
    else
      differences<false>(dp, load, of, to, ds);
  }
  /// Differences from what another warp sent. Its words take the registers of dS: of a fragment's
  /// first two elements, which are made of both of its words, dS takes the first alone.
  ATTNFORGE_DEVICE static void to_differences(const Scores& dp, bool masked, const Factors& from,
                                              const Words& to, Rounded& ds) {
    typename Factors::Pairs others;
    to_differences(
        dp, masked, [&](int j) { from.load(ds, others, j); },
        [&](int f, int j, int i) { return Factors::of(ds[f][j], others[f][j], i); }, to, ds);
  }

  /// s to P of a step, and to what give() gets.
  template <class Give>
  ATTNFORGE_DEVICE void to_probabilities(Scores& s, const Place& place, int stage, bool masked,
                                         int step, Rounded& rounded, const Give& give) const {
    const int row = Share::first_query(step);
    const auto queries = work.keys.queries_of(place.head);
    const int first_row = place.m * C.block_m + row,
              first_key = work.keys.first_key + Share::lane_key();
    const auto view_of = [&](Scores& x) {
      return TransposedScores<Scores>{x, first_row, first_key};
    };
    Scores slopes;
    make_slopes<Slope>(s, slopes, view_of, queries);
    Pieces::Score::apply(view_of(s), queries);
    if (masked) Pieces::Mask::apply(view_of(s), queries);
    probabilities(s, slopes, smem.rows(stage) + row * 4, rounded, give);
  }

  ATTNFORGE_DEVICE void step_of_scores(Scores& s, int stage, int step) {
    Products::template multiply<QkRows, Share::kKDepth, C.keys_in_regs != 0>(
        s, own, Share::template own_rows<QkRows>(smem.k()),
        Shared::template query_rows<QkRows>(smem.q(stage)) +
            Share::first_query(step) * QkRows::kRowBytes);
  }
  ATTNFORGE_DEVICE void step_of_dp(Scores& dp, int stage, int step) {
    Products::template multiply<VRows, Share::kVDepth, C.keys_in_regs != 0 && C.roles != 1>(
        dp, own, Share::template own_rows<VRows>(smem.v()),
        Shared::template query_rows<VRows>(smem.dout(stage)) +
            Share::first_query(step) * VRows::kRowBytes);
  }

  /// p and ds: of the queries from `row` of the tile on.
  ATTNFORGE_DEVICE void add_to_dv(const Rounded& p, int stage, int row) {
    Products::template accumulate<VRows, Share::kOwnV>(
        sums[0], p, Share::template own_columns<VRows>(smem.dout(stage)) + row * VRows::kRowBytes);
  }
  ATTNFORGE_DEVICE void add_to_dk(const Rounded& ds, int stage, int row) {
    Products::template accumulate<QkRows, Share::kOwnK>(
        sums[C.roles == 1 ? 1 : 0], ds,
        Share::template own_columns<QkRows>(smem.q(stage)) + row * QkRows::kRowBytes);
  }

  ATTNFORGE_DEVICE u32 delta_of(int stage, int step) const {
    return smem.rows(stage) + C.block_m * 4 + Share::first_query(step) * 4;
  }
  /// One warp has both roles.
  ATTNFORGE_DEVICE void attend_alone(const Place& place, int stage, u32 ds, bool masked, int step) {
    Rounded operand;  // P, then dS
    Scores s, dp;
    step_of_scores(s, stage, step);
    to_probabilities(s, place, stage, masked, step, operand, [&](const float(&x)[4], int f, int j) {
      unrolled<4>([&](int i) { s[f][j][i] = x[i]; });
    });
    add_to_dv(operand, stage, Share::first_query(step));
    step_of_dp(dp, stage, step);
    subtract(dp, delta_of(stage, step));
    to_differences(
        dp, masked, [](int) {}, [&](int f, int j, int i) { return s[f][j][i]; }, Words(ds, step),
        operand);
    add_to_dk(operand, stage, Share::first_query(step));
  }

  /// Both roles run the same code where head dims are equal: on K, Q and dO, or on V, dO and Q.
  static constexpr bool kAlike = C.head_dim == C.head_dim_v;

  /// Scores, or dP.
  ATTNFORGE_DEVICE void first_product(Scores& x, bool of_dv, int stage, int step) {
    const int row = Share::first_query(step);
    if constexpr (kAlike)
      Products::template multiply<QkRows, Share::kKDepth, C.keys_in_regs != 0>(
          x, own, Share::template own_rows<QkRows>(of_dv ? smem.k() : smem.v()),
          Shared::template query_rows<QkRows>(of_dv ? smem.q(stage) : smem.dout(stage)) +
              row * QkRows::kRowBytes);
    else if (of_dv)
      step_of_scores(x, stage, step);
    else
      step_of_dp(x, stage, step);
  }
  /// dV += P dO, or dK += dS Q, of the queries from `row` of the tile on.
  ATTNFORGE_DEVICE void second_product(const Rounded& operand, bool of_dv, int stage, int row) {
    if constexpr (kAlike)
      Products::template accumulate<QkRows, Share::kOwnK>(
          sums[0], operand,
          Share::template own_columns<QkRows>(of_dv ? smem.dout(stage) : smem.q(stage)) +
              row * QkRows::kRowBytes);
    else if (of_dv)
      add_to_dv(operand, stage, row);
    else
      add_to_dk(operand, stage, row);
  }

  /// Two warps share the roles: what dS is made of goes from one to the other, from lane to lane.
  ATTNFORGE_DEVICE void attend_in_pairs(const Place& place, int stage, u32 ds, bool masked,
                                        int step) {
    const bool of_dv = Share::has_dv();
    const int hand_over = 1 + Share::key_warp() + C.hand_over(step) * C.key_warps();
    const Factors factors(Words(ds, step), smem.beside_ds(), step);
    Scores x;
    first_product(x, of_dv, stage, step);
    Rounded p;  // or dS
    if (of_dv) {
      to_probabilities(
          x, place, stage, masked, step, p,
          [&](const float(&of_fragment)[4], int f, int j) { factors.store(of_fragment, f, j); });
      if (C.waits_for_other(step))
        named_barrier_wait(hand_over, 64);
      else
        named_barrier_arrive(hand_over, 64);
    } else {
      subtract(x, delta_of(stage, step));  // while the other makes its exponentials
      named_barrier_wait(hand_over, 64);
      to_differences(x, masked, factors, factors.words, p);
    }
    second_product(p, of_dv, stage, Share::first_query(step));
  }

  /// Four warps share the roles: each half of P and of dS goes to the warp with the other columns
  /// of dV and of dK, what dS is made of to that with dP of the same queries. Products of the own
  /// half need not wait for the other.
  ATTNFORGE_DEVICE void attend_in_fours(const Place& place, int stage, u32 ds, bool masked,
                                        int step) {
    const bool of_dv = Share::has_dv();
    const int first_barrier = 1 + Share::key_warp() * C.kBarriersOfFour, other = Share::half() ^ 1;
    const int p_to_dk = first_barrier, p_to_dv = first_barrier + 2, of_ds = first_barrier + 4,
              at_end = first_barrier + 6;
    const Words to_p(smem.p(), step, Share::half()), to_ds(ds, step, Share::half());
    const Factors factors(kPIsFactor ? to_p : to_ds, smem.beside_ds(), step);
    Scores x;
    first_product(x, of_dv, stage, step);
    Rounded operand;  // P, or dS
    if (of_dv) {
      to_probabilities(x, place, stage, masked, step, operand,
                       [&](const float(&of_fragment)[4], int f, int j) {
                         if constexpr (!kPIsFactor) factors.store(of_fragment, f, j);
                       });
      to_p.store(operand);
      named_barrier_arrive(p_to_dk + Share::half(), 64);
      named_barrier_arrive(p_to_dv + Share::half(), 64);
    } else {
      subtract(x, delta_of(stage, step));  // while the others make their exponentials
      named_barrier_wait(p_to_dk + Share::half(), 64);
      to_differences(x, masked, factors, to_ds, operand);
      named_barrier_arrive(of_ds + Share::half(), 64);
    }
    second_product(operand, of_dv, stage, Share::first_query(step));
    named_barrier_wait((of_dv ? p_to_dv : of_ds) + other, 64);
    Words(of_dv ? smem.p() : ds, step, other).load(operand);
    second_product(operand, of_dv, stage, step * C.step_m + other * C.warp_m());
    // A barrier counts arrivals: all have left those of this step before one comes to them again.
    if (C.steps() > 1) named_barrier_wait(at_end, 128);
  }

  // ---- 3. One tile of queries ----

  ATTNFORGE_DEVICE void attend(const Place& place, int stage, int ds_stage) {
    const bool masked = work.masked(place);
#pragma unroll 1
    for (int step = 0; step < C.steps(); ++step) {
      if constexpr (C.roles == 1)
        attend_alone(place, stage, smem.ds(ds_stage), masked, step);
      else if constexpr (C.roles == 2)
        attend_in_pairs(place, stage, smem.ds(ds_stage), masked, step);
      else
        attend_in_fours(place, stage, smem.ds(ds_stage), masked, step);
    }
  }

  // ---- 4. All query tiles of the keys ----

  /// One barrier a tile, which says that the tile has come, and that all warps are done with the
  /// one before; a second where dS has one buffer, or Q and dO have.
  ATTNFORGE_DEVICE void run() {
    constexpr bool kLate = C.ds_stages == 2;  // dQ of a tile comes in the next one's turn
    constexpr int kTilesAhead = C.stages > 1 ? C.stages - 1 : 1;
    load_keys<KLoader>(smem.k(), p.k);
    load_keys<VLoader>(smem.v(), p.v);
#pragma unroll
    for (int s = 0; s < C.stages; ++s) {
      QLoader::clear_padding(smem.q(s), thread_index());
      DoutLoader::clear_padding(smem.dout(s), thread_index());
    }
    Place begin;
    if constexpr (!Work::kListed) begin = work.first();
    await_previous_grid();
    if constexpr (Work::kListed) begin = work.first();
    unrolled<kTilesAhead>([&](int s) { load(work.later(begin, s), s); });
    fill(sums, 0.0f);
    int stage = 0, tile_parity = 0;
    bool is_late = false;  // the dQ of a tile is not made yet
    if constexpr (C.keys_in_regs != 0) {
      cp_async_wait<kTilesAhead - 1>();
      __syncthreads();
      read_own_keys();
    }
#pragma unroll 1
    for (Place place = begin; work.has(place); place = work.after(place)) {
      // With as many tiles of dS as of Q they turn together.
      const int ds_stage = !kLate ? 0 : C.stages == 2 ? stage : tile_parity;
      cp_async_wait<kTilesAhead - 1>();
      __syncthreads();
      if constexpr (C.stages > 1) load(work.later(place, kTilesAhead), stage_before(stage));
      // One role has it before its other products and the other after them: so each multiplies
      // while the other does not.
      if constexpr (kLate)
        if (is_late && (C.roles == 1 || !Share::has_dv()))
          Dq::add(params, work, smem, work.before(place), ds_stage ^ 1);
      attend(place, stage, ds_stage);
      if constexpr (kLate) {
        if (is_late && C.roles != 1 && Share::has_dv())
          Dq::add(params, work, smem, work.before(place), ds_stage ^ 1);
        is_late = true;
      }
      if constexpr (!kLate && (C.makes_dq() || C.stages == 1)) __syncthreads();
      if constexpr (C.stages == 1) load(work.after(place), 0);
      if constexpr (!kLate && C.makes_dq()) Dq::add(params, work, smem, place, 0);
      stage = stage_after(stage);
      if constexpr (kLate) tile_parity ^= 1;
    }
    if constexpr (kLate) {
      __syncthreads();
      if (is_late)
        Dq::add(params, work, smem, work.last(), (C.stages == 2 ? stage : tile_parity) ^ 1);
    }
    start_next_grid();
    cp_async_wait<0>();
    store();
  }

  ATTNFORGE_DEVICE static int stage_after(int stage) {
    return C.stages == 1 ? 0 : C.stages == 2 ? stage ^ 1 : stage == C.stages - 1 ? 0 : stage + 1;
  }
  ATTNFORGE_DEVICE static int stage_before(int stage) {
    return C.stages == 2 ? stage ^ 1 : stage == 0 ? C.stages - 1 : stage - 1;
  }

  /// The rows of K, or of V for the warps that have dK, as operands.
  ATTNFORGE_DEVICE void read_own_keys() {
    const bool of_v = C.roles != 1 && !Share::has_dv();
    unrolled<Share::kOwnDepth, kKeyFragments>([&](int d, int f) {
      if (of_v) {
        if (d < Share::kVDepth)
          ldmatrix_x4(own[d][f], VRows::further(Share::template own_rows<VRows>(smem.v()), 2 * d) +
                                     f * 16 * VRows::kRowBytes);
      } else if (d < Share::kKDepth) {
        ldmatrix_x4(own[d][f], QkRows::further(Share::template own_rows<QkRows>(smem.k()), 2 * d) +
                                   f * 16 * QkRows::kRowBytes);
      }
    });
  }

  // ---- 5. The gradients of the keys ----

  template <int kDtype, int kColumns>
  ATTNFORGE_DEVICE static void store_sums(const Tile& stored, const TensorRef& tensor,
                                          const Sums& sum, float factor) {
    constexpr int kTogether = C.halves() == 1 ? kColumns : 4;  // fragments of neighbours
    constexpr int kBytes = element_bytes(kDtype);
    const int key = stored.first_key + Share::lane_key(), end = stored.lengths.kv();
    const int quad_lane = Share::lane() % 4;
    char* const first = static_cast<char*>(tensor.data) +
                        (stored.key_offset(tensor, key) + Share::half() * 32) * kBytes;
    const i64 eight_keys = 8 * tensor.stride_row * kBytes;
#pragma unroll
    for (int f = 0; f < kKeyFragments; ++f) {
      char* const row = first + 2 * f * eight_keys;
#pragma unroll
      for (int c = 0; c < kColumns; c += kTogether) {
        const auto& of_key = reinterpret_cast<const float(&)[kTogether][4]>(sum[f][c]);
        const int at = Share::column_fragment(c) * 8 * kBytes;
        store_gradient_row<kDtype, C.accumulate != 0, 0, C.alignment, kTogether>(
            of_key, factor, row + at, key + f * 16 < end, quad_lane);
        store_gradient_row<kDtype, C.accumulate != 0, 1, C.alignment, kTogether>(
            of_key, factor, row + eight_keys + at, key + f * 16 + 8 < end, quad_lane);
      }
    }
  }

  ATTNFORGE_DEVICE void store() const {
    const Tile stored = Work::this_tile(params);
    const TensorRef &dk = params.dk, &dv = params.dv;
    if (Share::has_dv())
      store_sums<C.gradient_dtype(C.dtype_v), Share::kOwnV>(stored, dv, sums[0], 1.0f);
    if (C.roles == 1 || !Share::has_dv())
      store_sums<C.gradient_dtype(C.dtype_k), Share::kOwnK>(stored, dk, sums[C.roles == 1 ? 1 : 0],
                                                            p.softmax_scale);
  }

  ATTNFORGE_DEVICE static void run(const Params& params) {
    extern __shared__ __align__(128) u8 shared_memory[];
    const Tile tile = Work::this_tile(params);
    if (tile.first_key >= tile.lengths.kv()) {
      await_previous_grid();  // what the end of this one says of it
      return;
    }
    BwdMmaSm80 block(params, tile, smem_address(shared_memory));
    block.run();
  }
};

}  // namespace attnforge
