// warpgroup.cuh - what a consumer of fwd_wgmma_sm90a has in registers, and what it does with one
// tile of keys: scores, their softmax with lazy rescaling, outputs (FlashAttention-3, Shah et al.
// 2024). Which tiles, and what is in flight together, is in consumer.cuh.
#pragma once

#include "fwd_wgmma_sm90a/config.h"
#include "fwd_wgmma_sm90a/shared.cuh"
#include "fwd_wgmma_sm90a/work.cuh"
#include "hopper/ring.cuh"
#include "ptx/convert.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mma_fragment.cuh"
#include "ptx/special_registers.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"
#include "tile/fragment_scores.cuh"
#include "tile/softmax.cuh"

namespace attnforge {

/// Of e4m3 a member `fp8`: fp8.cuh, which its entries include.
template <auto C, bool kFp8 = C.dtype == kE4m3>
struct WithFp8Outputs {};

/// A warpgroup with 64 rows of the query tile.
template <FwdWgmmaSm90aConfig C, class Pieces, class Params>
struct FwdWgmmaSm90aWarpgroup : WithFp8Outputs<C> {
  using Shared = FwdWgmmaSm90aShared<C>;
  using Work = FwdWgmmaSm90aWork<C, Pieces, Params>;
  using Tile = typename Work::Tile;
  using Scores = Wgmma<C.dtype, C.block_n>;
  using Outputs = Wgmma<C.dtype, C.head_dim_v>;

  static constexpr bool kFp8 = C.dtype == kE4m3;
  static constexpr int kScoreFragments = C.block_n / 8;  // of 8 keys
  static constexpr int kOutFragments = C.head_dim_v / 8;
  static constexpr int kStepBytes = 32;  // along k, of a product
  static constexpr int kElementBytes = element_bytes(C.dtype);
  static constexpr int kDepthSteps = ceil_div(C.head_dim * kElementBytes, kStepBytes);
  using ScoreArray = float[kScoreFragments][4];
  /// With two warpgroups one waits for the other's softmax: what counts is how soon it ends. With
  /// more of them, or more blocks, one always computes: what counts is how many instructions.
  static constexpr bool kByRows = C.warpgroups == 2;

  const Params& params;
  const FwdParams& p;
  const Shared smem;
  const int warpgroup;
  const float scale_log2;
  const bool leads;  // its warp, where one lane acts
  Ring<C.k_stages> k_ring;
  Ring<C.v_stages> v_ring;
  Ring<C.q_stages> q_ring;
  float o[kOutFragments][4];
  ScoreArray s;
  u32 probs[C.block_n * kElementBytes / kStepBytes][4];
  u32 q[C.q_in_regs ? kDepthSteps : 1][4];
  using Softmax = SoftmaxRows<!kByRows, 2, kFp8 ? 6 : 0>;
  Softmax softmax;
  using View = FragmentScores<ScoreArray>;  // of keys that are neighbours
  using Ahead = typename Pieces::Score::template Ahead<View>;
  Ahead ahead;

  ATTNFORGE_DEVICE FwdWgmmaSm90aWarpgroup(const Params& kernel_params, Shared shared, int index)
      : params(kernel_params),
        p(kernel_params.fwd),
        smem(shared),
        warpgroup(index),
        scale_log2((Pieces::Score::kScaled ? 1.0f : p.softmax_scale) * 1.4426950408889634f),
        leads(lane() == 0) {}

  ATTNFORGE_DEVICE static int lane() { return thread_index() % 32; }
  ATTNFORGE_DEVICE static int warp() { return thread_index() / 32 % 4; }
  ATTNFORGE_DEVICE static int lane_row() { return warp() * 16 + MmaFragment::row(lane()); }

  // ---- Turns and buffers ----

  // Ping-pong: a warpgroup issues products while the others compute their softmax.
  ATTNFORGE_DEVICE void await_turn() const {
    if constexpr (C.pingpong) named_barrier_wait(1 + warpgroup, 256);
  }
  ATTNFORGE_DEVICE void pass_turn() const {
    if constexpr (C.pingpong)
      named_barrier_arrive(1 + (warpgroup + 1 == C.warpgroups ? 0 : warpgroup + 1), 256);
  }

  ATTNFORGE_DEVICE void await_k() const {
    const int stage = k_ring.stage;
    mbarrier_wait(C.has_key_scales() ? smem.k_full(stage) : smem.k_ready(stage), k_ring.parity);
  }
  ATTNFORGE_DEVICE void await_v() const {
    mbarrier_wait(smem.v_ready(v_ring.stage), v_ring.parity);
  }
  ATTNFORGE_DEVICE void release(u32 empty) const {
    if (leads) mbarrier_arrive(empty);
  }
  /// After products of it. An arrival does not wait for an ldmatrix before it, which may queue
  /// behind stores for longer than TMA takes to bring the next Q; a product of its registers does.
  ATTNFORGE_DEVICE void release_q() const { release(smem.q_empty(q_ring.stage)); }
  ATTNFORGE_DEVICE void release_k() {
    release(smem.k_empty(k_ring.stage));
    k_ring.advance();
  }
  /// After the scores of its tile. Masks that read what came with K give its buffer back.
  ATTNFORGE_DEVICE void end_k() {
    if constexpr (!C.brings_bits()) release(smem.k_empty(k_ring.stage));
    k_ring.advance();
  }
  ATTNFORGE_DEVICE void release_v() {
    release(smem.v_empty(v_ring.stage));
    v_ring.advance();
  }

  // ---- Rows: Q, and what a walk adds up ----

  ATTNFORGE_DEVICE void read_q(const Tile& queries) {
    if constexpr (C.q_in_regs != 0) {
#pragma unroll
      for (int d = 0; d < kDepthSteps; ++d) {
        const u32 chunk = smem.q(q_ring.stage, warpgroup) +
                          d * kStepBytes / C.swizzle * C.q_chunk_bytes();
        u32 at = (warp() * 16 + lane() % 16) * C.swizzle + d * kStepBytes % C.swizzle +
                 lane() / 16 * 16;
        // The box begins with the query that the tile begins in.
        if constexpr (C.cuts_queries()) at += queries.first_row % C.pack_gqa * C.swizzle;
        ldmatrix_x4(q[d], chunk + (at ^ ((at >> 7 << 4) & (C.swizzle - 16))));
      }
    }
  }
  ATTNFORGE_DEVICE void begin_rows(const Tile& queries) {
    softmax = Softmax();
    if constexpr (kFp8) this->fp8.begin(*this, queries);
#pragma unroll
    for (int j = 0; j < kOutFragments; ++j)
#pragma unroll
      for (int c = 0; c < 4; ++c) o[j][c] = 0.0f;
  }
  ATTNFORGE_DEVICE void store_rows(const Tile& queries, int row) {
    using Output = typename Pieces::template Output<C.dtype_o, 16, C.lse != 0>;
    float inverse[2], lse[2];
    softmax.finish(inverse, lse);
    if constexpr (kFp8) inverse[0] *= this->fp8.v_scale, inverse[1] *= this->fp8.v_scale;
    Output::template store<0, kOutFragments>(queries, row, 0, o, inverse[0], lse[0]);
    Output::template store<1, kOutFragments>(queries, row + 8, 0, o, inverse[1], lse[1]);
  }

  // ---- Products. Each is in flight until a wait ----

  /// s = Q K^T of the tile in K's ring.
  ATTNFORGE_DEVICE void issue_scores() {
    const u64 a = smem_descriptor<C.swizzle, 16, 8 * C.swizzle>(smem.q(q_ring.stage, warpgroup));
    const u64 b = smem_descriptor<C.swizzle, 16, 8 * C.swizzle>(smem.k(k_ring.stage));
    pin(s);
    wgmma_fence();
#pragma unroll
    for (int d = 0; d < kDepthSteps; ++d) {
      const int chunk = d * kStepBytes / C.swizzle, inside = d * kStepBytes % C.swizzle;
      const u64 b_at = b + (chunk * C.kv_chunk_bytes() + inside) / 16;
      if constexpr (C.q_in_regs)
        Scores::regs_smem(s, q[d][0], q[d][1], q[d][2], q[d][3], b_at, d > 0);
      else
        Scores::smem_smem(s, a + (chunk * C.q_chunk_bytes() + inside) / 16, b_at, d > 0);
    }
    wgmma_commit();
  }
  /// Waits for the scores of the tile in K's ring, with kPending products after them in flight.
  template <int kPending>
  ATTNFORGE_DEVICE void end_scores() {
    wgmma_wait<kPending>();
    pin(s);
    if constexpr (C.has_key_scales()) this->scale_keys(*this);
    end_k();
  }
  /// o += P V of the tile in V's ring.
  ATTNFORGE_DEVICE void issue_outputs() {
    if constexpr (kFp8) {
      this->fp8.begin_products(o, probs, smem.v(v_ring.stage));
    } else {
      const u64 b = smem_descriptor<C.swizzle, C.kv_chunk_bytes(), 8 * C.swizzle>(
          smem.v(v_ring.stage));
      pin(o);
      pin(probs);
      wgmma_fence();
#pragma unroll
      for (int j = 0; j < C.block_n / 16; ++j)
        Outputs::regs_smem_mn(o, probs[j][0], probs[j][1], probs[j][2], probs[j][3],
                              b + j * 16 * C.swizzle / 16);
      wgmma_commit();
    }
  }
  /// Waits for the outputs of the tile in V's ring, with kPending products after them in flight.
  template <int kPending>
  ATTNFORGE_DEVICE void end_outputs() {
    wgmma_wait<kPending>();
    pin(o);
    if constexpr (kFp8) this->fp8.end_products(o, probs, smem.v(v_ring.stage));
    release_v();
  }
  ATTNFORGE_DEVICE void clear_tail(int present) const {
    if constexpr (Tile::Lengths::kAnythingAfter && !C.transposes_v())
      clear_rows_of_v<C>(*this, present);  // of parts/lengths
  }

  // ---- Softmax ----

  /// Scores to probabilities, still in fp32. `view` is of `s`. settle(raised, rescale) is called
  /// when there is time for it; raised: older outputs are to be multiplied by `rescale`.
  template <class View, class Settle>
  ATTNFORGE_DEVICE void probabilities(const Tile& queries, const View& view, bool needs_mask,
                                      const Settle& settle) {
    const auto replace = [&] {
      if constexpr (C.may_tile_rows())
        ahead.apply(view, queries, smem.base);
      else
        Pieces::Score::apply(view, queries);
      if (needs_mask) Pieces::Mask::apply(view, queries);
    };
    float rescale[2];
    const auto scale_log2 = scale_of_scores();
    if constexpr (Pieces::Score::kSeries) {
      const typename Pieces::Score::Series series{typename Pieces::Score(p), scale_log2};
      const bool raised = series.probabilities(softmax, s, scale_log2, needs_mask, replace,
                                               rescale);
      settle(raised, rescale);
    } else if constexpr (kByRows) {
      replace();
      softmax.probabilities_by_rows(s, scale_log2, settle);
    } else {
      replace();
      const bool raised = softmax.probabilities(s, scale_log2, rescale);
      settle(raised, rescale);
    }
  }
  ATTNFORGE_DEVICE auto scale_of_scores() const {
    if constexpr (kFp8)
      return this->fp8.scale_log2;
    else
      return scale_log2;
  }
  ATTNFORGE_DEVICE void rescale_outputs(const float (&rescale)[2]) {
#pragma unroll
    for (int j = 0; j < kOutFragments; ++j) {
      o[j][0] *= rescale[0], o[j][1] *= rescale[0];
      o[j][2] *= rescale[1], o[j][3] *= rescale[1];
    }
  }
  ATTNFORGE_DEVICE void round_probabilities() {
    if constexpr (kFp8) {
      this->fp8.round(s, probs);
    } else {
#pragma unroll
      for (int j = 0; j < kScoreFragments / 2; ++j)
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const auto& from = s[2 * j + w / 2];
          probs[j][w] = pack2<C.dtype>(from[w % 2 * 2], from[w % 2 * 2 + 1]);
        }
    }
  }
  /// The scores of a tile to probabilities that the next outputs take. in_flight: with them are
  /// the outputs of the tile before. begun: there are outputs of tiles before.
  template <class View>
  ATTNFORGE_DEVICE void attend(const Tile& queries, const View& view, bool in_flight, bool begun,
                               bool needs_mask) {
    probabilities(queries, view, needs_mask, [&](bool raised, const float(&rescale)[2]) {
      wgmma_wait<0>();
      pin(o);
      pin(probs);
      if constexpr (kFp8)
        if (in_flight) this->fp8.end_products(o, probs, smem.v(v_ring.stage));
      if (in_flight) release_v();
      if (raised && begun) rescale_outputs(rescale);
    });
    if constexpr (C.may_tile_rows()) ahead.release(smem.base);
    round_probabilities();
  }
};

}  // namespace attnforge
