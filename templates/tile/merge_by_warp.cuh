// merge_by_warp.cuh - the parts of a row merged by one warp, with the same bits as several warps
// make of them in tile/merge_row.cuh.
#pragma once

#include "base.cuh"
#include "params_partials.h"
#include "ptx/special.cuh"
#include "tile/elements.cuh"
#include "tile/merge_row.cuh"

namespace attnforge {

/// Of a part that has seen no key: 0, also where no part has.
ATTNFORGE_DEVICE float weight_of_part(float lse, float top) {
  constexpr float kLog2e = 1.4426950408889634f;
  return lse == negative_infinity() ? 0.0f : exp2_approx((lse - top) * kLog2e);
}

/// Of all parts together.
ATTNFORGE_DEVICE float lse_of_parts(float top, float total) {
  constexpr float kLn2 = 0.6931471805599453f;
  return total == 0.0f ? negative_infinity() : top + log2_approx(total) * kLn2;
}

/// Merges rows of kColumns columns in fp32, whose parts have `count`, o(i) and lse(i) as
/// StridedParts has them. Sums are in the order of MergeRow: part i belongs to chain i % chains, of
/// as many as MergeShape gives the row warps, and chains are added in their order.
template <int kColumns>
struct MergeByWarp {
  static constexpr int kQuads = kColumns / 4;    // of columns, which a lane has
  static constexpr int kChains = 4, kParts = 4;  // of a chain: so many are on their way together

  /// As MergeRow::run() of one row, by the lanes of a warp. weights: parts.count floats of this
  /// warp in shared memory.
  template <class Parts, class Finish, class Store, class StoreLse>
  ATTNFORGE_DEVICE static void run(const Parts& parts, float* weights, int lane,
                                   const Finish& finish, const Store& store,
                                   const StoreLse& store_lse) {
    const int count = parts.count, chains = MergeShape::of(count).warps;
    float inverse = 0.0f;
    bool weighed = false;
#pragma unroll 1
    for (int quad = lane; quad - lane < kQuads; quad += 32) {
      float all[4] = {};
#pragma unroll 1
      for (int first = 0; first < chains; first += kChains) {
        float sum[kChains][4] = {};
#pragma unroll 1
        for (int begin = first; begin < count; begin += kParts * chains) {
          float o[kChains][kParts][4];
          load(o, parts, begin, chains, quad);
          if (!weighed) {  // once, while the first parts are on their way
            inverse = weigh(parts, weights, lane, finish, store_lse);
            weighed = true;
          }
          add(sum, o, weights, begin, chains, count);
        }
#pragma unroll
        for (int chain = 0; chain < kChains; ++chain)
#pragma unroll
          for (int c = 0; c < 4; ++c) all[c] += sum[chain][c];
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) all[c] *= inverse;
      if (quad < kQuads) store(quad * 4, all);
    }
  }

 private:
  using Loaded = float[kChains][kParts][4];

  /// Parts of kChains chains from part `begin` on, which is in the first of these. Chains that the
  /// row does not have are those whose parts are none.
  template <class Parts>
  ATTNFORGE_DEVICE static void load(Loaded& o, const Parts& parts, int begin, int chains,
                                    int quad) {
#pragma unroll
    for (int a = 0; a < kParts; ++a)
#pragma unroll
      for (int chain = 0; chain < kChains; ++chain) {
        const int i = begin + chain + a * chains;
#pragma unroll
        for (int c = 0; c < 4; ++c) o[chain][a][c] = 0.0f;
        if (chain < chains && i < parts.count && quad < kQuads)
          load_floats<kFp32, 16>(parts.o(i) + quad * 16, o[chain][a]);
      }
  }

  ATTNFORGE_DEVICE static void add(float (&sum)[kChains][4], const Loaded& o, const float* weights,
                                   int begin, int chains, int count) {
#pragma unroll
    for (int a = 0; a < kParts; ++a)
#pragma unroll
      for (int chain = 0; chain < kChains; ++chain) {
        const int i = begin + chain + a * chains;
        const float weight = chain < chains && i < count ? weights[i] : 0.0f;
#pragma unroll
        for (int c = 0; c < 4; ++c)
          sum[chain][c] = fmaf(weight, weight == 0.0f ? 0.0f : o[chain][a][c], sum[chain][c]);
      }
  }

  /// Finds all weights; returns what sums are to be multiplied with.
  template <class Parts, class Finish, class StoreLse>
  ATTNFORGE_DEVICE static float weigh(const Parts& parts, float* weights, int lane,
                                      const Finish& finish, const StoreLse& store_lse) {
    float top = negative_infinity(), total = 0;
    __syncwarp();  // the row before has been read
#pragma unroll 1
    for (int i = lane; i < parts.count; i += 32) {
      weights[i] = parts.lse(i);
      top = fmaxf(top, weights[i]);
    }
    top = warp_max(top);
#pragma unroll 1
    for (int i = lane; i < parts.count; i += 32) {
      weights[i] = weight_of_part(weights[i], top);
      total += weights[i];
    }
    total = warp_sum(total);
    __syncwarp();
    float lse = lse_of_parts(top, total);
    const float factor = finish(lse);
    if (lane == 0) store_lse(lse);
    return total == 0.0f ? 0.0f : factor / total;
  }
};

}  // namespace attnforge
