// fp8.cuh - what fwd_wgmma_sm90a does where q, k and v are e4m3: probabilities of 8 bits, their
// products with V, whose sums have two levels, and the scales of a query tile.
#pragma once

#include "fwd_wgmma_sm90a/fp8_sums.cuh"
#include "fwd_wgmma_sm90a/warpgroup.cuh"
#include "hopper/transpose_v.cuh"
#include "ptx/convert_float8.cuh"
#include "ptx/wgmma.cuh"

namespace attnforge {

/// A scale of scores for each of a lane's rows.
struct RowScales {
  float of[2];
};
ATTNFORGE_DEVICE float scale_of_row(const RowScales& scales, int r) { return scales.of[r]; }

/// Of scores: one, or of kOwn one for each of a lane's rows.
template <bool kOwn>
struct ScoreScale {
  using Type = float;
};
template <>
struct ScoreScale<true> {
  using Type = RowScales;
};

/// Outputs of a warpgroup with 64 rows. Tensor cores add products of 8 bits to about 14 bits of a
/// sum. Where these have two levels, what they added up of a tile goes to `o` in fp32.
template <auto C>
struct Fp8Outputs {
  static constexpr int kColumns = Fp8Sums{C}.columns(), kRounds = C.head_dim_v / kColumns;
  static constexpr int kFragments = C.head_dim_v / 8, kPartFragments = kColumns / 8;
  static constexpr int kSteps = C.block_n / 32;  // of a product
  static_assert(Fp8Sums{C}.exact());
  using Product = Wgmma<C.dtype, kColumns>;
  using Probabilities = u32[kSteps][4];
  using Rows = float[kFragments][4];

  float part[Fp8Sums{C}.two_levels() ? kPartFragments : 1][4] = {};
  typename ScoreScale<C.has_key_scales()>::Type scale_log2{};
  float v_scale = 0.0f;

  // ---- Scales ----

  template <class Tile>
  ATTNFORGE_DEVICE static float scale_of(const TensorRef& scales, const Tile& queries) {
    if constexpr (C.kv_scale == 0) return 1.0f;
    return static_cast<const float*>(
        scales.data)[queries.batch * scales.stride_batch + queries.kv_head() * scales.stride_head];
  }
  template <class Warpgroup, class Tile>
  ATTNFORGE_DEVICE void begin(const Warpgroup& wg, const Tile& queries) {
    const auto& params = wg.params;
    // Hidden scores are -inf before they are scaled, which 0 would make NaN.
    const auto in_log2 = [&](float scale) {
      return wg.scale_log2 * (scale == 0.0f ? 0x1p-100f : scale);
    };
    v_scale = scale_of(params.scales.v, queries);
    if constexpr (C.has_key_scales()) {
      const TensorRef& scales = params.scales.q;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int its_row = queries.first_row + wg.warpgroup * 64 + wg.lane_row() + 8 * r;
        scale_log2.of[r] = in_log2(
            queries.has(its_row)
                ? static_cast<const float*>(scales.data)[queries.offset_of(scales, its_row)]
                : 1.0f);
      }
    } else {
      scale_log2 = in_log2(scale_of(params.scales.q, queries) * scale_of(params.scales.k, queries));
    }
  }

  /// Scores times the scales of their keys, which lie at `from` as hopper/load_key_scales.cuh lays
  /// them: four of a lane's keys in two fragments together.
  ATTNFORGE_DEVICE static void multiply(float (&s)[C.block_n / 8][4], u32 from) {
    const u32 of_lane = from + thread_index() % 4 * 16;
#pragma unroll
    for (int i = 0; i < C.block_n / 16; ++i) {
      float scale[4];
      load_shared(scale, of_lane + i * 64);
#pragma unroll
      for (int c = 0; c < 8; ++c) s[2 * i + c / 4][c % 4] *= scale[c / 4 * 2 + c % 2];
    }
  }

  // ---- Products. Each is in flight until a wait ----

  ATTNFORGE_DEVICE static void round(const float (&s)[C.block_n / 8][4], Probabilities& p) {
#pragma unroll
    for (int j = 0; j < kSteps; ++j)
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const auto& even = s[4 * j + w / 2 * 2];
        const auto& odd = s[4 * j + w / 2 * 2 + 1];
        const int c = w % 2 * 2;
        p[j][w] = pack2_float8<kE4m3>(even[c], even[c + 1]) |
                  pack2_float8<kE4m3>(odd[c], odd[c + 1]) << 16;
      }
  }
  template <class To>
  ATTNFORGE_DEVICE static void issue(To& to, const Probabilities& p, u32 v, int round,
                                     int accumulate) {
    const u64 b = smem_descriptor<C.keys_swizzle(), 16, 8 * C.keys_swizzle()>(v) +
                  round * kColumns * C.keys_swizzle() / 16;
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < kSteps; ++j) {
      const int chunk = j * 32 / C.keys_swizzle(), inside = j * 32 % C.keys_swizzle();
      Product::regs_smem(to, p[j][0], p[j][1], p[j][2], p[j][3],
                         b + (chunk * C.keys_chunk_bytes() + inside) / 16, accumulate | (j > 0));
    }
    wgmma_commit();
  }
  /// o += P V of the tile at `v`, or the first round of that.
  ATTNFORGE_DEVICE void begin_products(Rows& o, Probabilities& p, u32 v) {
    pin(p);
    if constexpr (Fp8Sums{C}.two_levels()) {
      pin(part);
      issue(part, p, v, 0, 0);
    } else {
      pin(o);
      issue(o, p, v, 0, 1);
    }
  }
  /// The rest of it, after a wait.
  ATTNFORGE_DEVICE void end_products(Rows& o, Probabilities& p, u32 v) {
    if constexpr (Fp8Sums{C}.two_levels()) {
      pin(part);
      add_part(o, 0);
#pragma unroll
      for (int r = 1; r < kRounds; ++r) {
        pin(part);
        issue(part, p, v, r, 0);
        wgmma_wait<0>();
        pin(part);
        add_part(o, r);
      }
    }
  }
  ATTNFORGE_DEVICE void add_part(Rows& o, int round) {
#pragma unroll
    for (int j = 0; j < kPartFragments; ++j)
#pragma unroll
      for (int c = 0; c < 4; ++c) o[round * kPartFragments + j][c] += part[j][c];
  }
};

template <auto C>
struct WithFp8Outputs<C, true> {
  Fp8Outputs<C> fp8;

  /// C.has_key_scales(): those of the tile in K's ring have come.
  template <class Warpgroup>
  ATTNFORGE_DEVICE static void await_key_scales(const Warpgroup& wg) {
    mbarrier_wait(wg.smem.k_ready(wg.k_ring.stage), wg.k_ring.parity);
  }
  /// Multiplies that tile's scores by them.
  template <class Warpgroup>
  ATTNFORGE_DEVICE static void scale_keys(Warpgroup& wg) {
    await_key_scales(wg);
    Fp8Outputs<C>::multiply(wg.s, wg.smem.k(wg.k_ring.stage) + C.k_bytes());
  }
};

}  // namespace attnforge
