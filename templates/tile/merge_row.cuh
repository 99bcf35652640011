// merge_row.cuh - one softmax over keys that several have attended to in parts: the merge of
// partial results by their lse (Dao, "Flash-Decoding", 2023).
#pragma once

#include "base.cuh"
#include "params_partials.h"
#include "ptx/shuffle.cuh"
#include "ptx/special.cuh"
#include "tile/elements.cuh"

namespace attnforge {

ATTNFORGE_DEVICE float warp_max(float x) {
  x = fmaxf(x, shuffle_xor<16>(x));
  x = fmaxf(x, shuffle_xor<8>(x));
  x = fmaxf(x, shuffle_xor<4>(x));
  x = fmaxf(x, shuffle_xor<2>(x));
  return fmaxf(x, shuffle_xor<1>(x));
}

ATTNFORGE_DEVICE float warp_sum(float x) {
  x += shuffle_xor<16>(x);
  x += shuffle_xor<8>(x);
  x += shuffle_xor<4>(x);
  x += shuffle_xor<2>(x);
  return x + shuffle_xor<1>(x);
}

/// Parts of a row that lie `o_apart` and `lse_apart` elements apart.
template <int kDtype>
struct StridedParts {
  const void* first_o;
  const float* first_lse;
  i64 o_apart, lse_apart;
  int count;

  ATTNFORGE_DEVICE const char* o(int i) const {
    return static_cast<const char*>(first_o) + i * o_apart * element_bytes(kDtype);
  }
  ATTNFORGE_DEVICE float lse(int i) const { return first_lse[i * lse_apart]; }
};

/// Merges rows of kColumns columns, a multiple of 4, of parts that have `count`, o(i) and lse(i) as
/// StridedParts has them; their o is of kDtype, aligned to
/// kAlignment bytes. A block has MergeShape::smem_bytes(kColumns) of dynamic shared memory and
/// kWarps warps, MergeShape::of(count).warps for each row. Sums are in an order that the number of
/// parts alone decides.
template <int kDtype, int kAlignment, int kColumns>
struct MergeRow {
  static constexpr int kQuads = kColumns / 4;  // of columns, which a lane has
  static constexpr int kPerLane = ceil_div(kQuads, 32);
  static constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

  /// Calls store(column, four) for each four columns of the row, and store_lse(lse) once; not if
  /// the row is not `present`. finish(lse) changes the lse of all parts and returns what the row is
  /// to be multiplied with. All threads of the block must call it; `warps` have one row.
  template <class Parts, class Finish, class Store, class StoreLse>
  ATTNFORGE_DEVICE static void run(const Parts& parts, bool present, int warps,
                                   const Finish& finish, const Store& store,
                                   const StoreLse& store_lse) {
    extern __shared__ __align__(128) u8 shared_memory[];
    float* const sums = reinterpret_cast<float*>(shared_memory);  // of each warp
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    const int first_warp = warp / warps * warps;
    float top = negative_infinity(), total = 0;
    if (present) {
      Batch batch(parts, warp - first_warp, warps);  // on its way while weights are found
      for (int i = lane; i < parts.count; i += 32) top = fmaxf(top, parts.lse(i));
      top = warp_max(top);
      for (int i = lane; i < parts.count; i += 32) total += weight(parts.lse(i), top);
      total = warp_sum(total);
      float sum[kPerLane][4];
      add_parts(parts, top, batch, warp - first_warp, warps, sum);
#pragma unroll
      for (int j = 0; j < kPerLane; ++j)
        if (has_quad(lane, j))
          *reinterpret_cast<float4*>(sums + warp * kColumns + (lane + 32 * j) * 4) = make_float4(
              sum[j][0], sum[j][1], sum[j][2], sum[j][3]);
    }
    __syncthreads();
    if (!present) return;
    float lse = total == 0.0f ? negative_infinity() : top + log2_approx(total) * kLn2;
    const float factor = finish(lse), inverse = total == 0.0f ? 0.0f : factor / total;
    for (int quad = int(threadIdx.x) - first_warp * 32; quad < kQuads; quad += warps * 32) {
      float all[4] = {};
      for (int w = first_warp; w < first_warp + warps; ++w) {
        const float4 more = *reinterpret_cast<const float4*>(sums + w * kColumns + quad * 4);
        all[0] += more.x, all[1] += more.y, all[2] += more.z, all[3] += more.w;
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) all[c] *= inverse;
      store(quad * 4, all);
    }
    if (int(threadIdx.x) == first_warp * 32) store_lse(lse);
  }

 private:
  /// Of a part that has seen no key: 0, also where no part has.
  ATTNFORGE_DEVICE static float weight(float lse, float top) {
    return lse == negative_infinity() ? 0.0f : exp2_approx((lse - top) * kLog2e);
  }
  ATTNFORGE_DEVICE static bool has_quad(int lane, int j) { return lane + 32 * j < kQuads; }

  /// Every `step`-th part from `from` on. All are read: what a part without keys has may be
  /// anything, and goes when its lse is known.
  struct Batch {
    static constexpr int kParts = kPerLane > 2 ? 2 : 4;
    float lse[kParts], o[kParts][kPerLane][4];

    template <class Parts>
    ATTNFORGE_DEVICE Batch(const Parts& parts, int from, int step) {
      const int lane = int(threadIdx.x) % 32;
#pragma unroll
      for (int a = 0; a < kParts; ++a) {
        const int i = from + a * step;
        lse[a] = i < parts.count ? parts.lse(i) : negative_infinity();
#pragma unroll
        for (int j = 0; j < kPerLane; ++j) {
#pragma unroll
          for (int c = 0; c < 4; ++c) o[a][j][c] = 0.0f;
          if (i < parts.count && has_quad(lane, j))
            load_floats<kDtype, kAlignment>(
                parts.o(i) + (lane + 32 * j) * 4 * element_bytes(kDtype), o[a][j]);
        }
      }
    }

    ATTNFORGE_DEVICE void add_to(float (&sum)[kPerLane][4], float top) const {
#pragma unroll
      for (int a = 0; a < kParts; ++a) {
        const float its_weight = weight(lse[a], top);
        const bool has_keys = lse[a] != negative_infinity();
#pragma unroll
        for (int j = 0; j < kPerLane; ++j)
#pragma unroll
          for (int c = 0; c < 4; ++c)
            sum[j][c] = fmaf(its_weight, has_keys ? o[a][j][c] : 0.0f, sum[j][c]);
      }
    }
  };

  /// Those of `batch`, which are the first, and all that follow.
  template <class Parts>
  ATTNFORGE_DEVICE static void add_parts(const Parts& parts, float top, const Batch& batch,
                                         int first, int step, float (&sum)[kPerLane][4]) {
#pragma unroll
    for (int j = 0; j < kPerLane; ++j)
#pragma unroll
      for (int c = 0; c < 4; ++c) sum[j][c] = 0.0f;
    batch.add_to(sum, top);
    for (int from = first + Batch::kParts * step; from < parts.count; from += Batch::kParts * step)
      Batch(parts, from, step).add_to(sum, top);
  }
};

}  // namespace attnforge
