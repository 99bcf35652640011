// merge_row.cuh - one softmax over keys that several have attended to in parts: the merge of
// partial results by their lse (Dao, "Flash-Decoding", 2023).
#pragma once

#include "parts/splits/params.h"
#include "ptx/shuffle.cuh"
#include "ptx/special.cuh"
#include "tile/elements.cuh"
#include "tile/unrolled.cuh"

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
/// kWarps warps, MergeShape::of(count).warps for each row. Each warp merges its share as it reads
/// it, then the row's warps their results: the parts are read once, by few instructions, which a
/// short kernel has to wait for as for its data. Sums are in an order that the number of parts and
/// of warps alone decides.
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
    // Each warp has its own.
    float* const sums = reinterpret_cast<float*>(shared_memory);
    float* const tops = sums + MergeShape::kWarps * kColumns;
    float* const totals = tops + MergeShape::kWarps;
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    const int first_warp = warp / warps * warps;
    Share share;
    if (present) share.add(parts, warp - first_warp, warps);
    if (warps == 1) {
      if (present) share.store(finish, store, store_lse);
      return;
    }
    unrolled<kPerLane>([&](int j) {
      if (has_quad(lane, j))
        *reinterpret_cast<float4*>(sums + warp * kColumns + (lane + 32 * j) * 4) = make_float4(
            share.sum[j][0], share.sum[j][1], share.sum[j][2], share.sum[j][3]);
    });
    if (lane == 0) tops[warp] = share.top, totals[warp] = share.total;
    __syncthreads();
    if (!present) return;

    // Lane w has the row's warp w, of the others -inf: all of its warps at once, by shuffles.
    const float its_top = lane < warps ? tops[first_warp + lane] : negative_infinity();
    const float top = warp_max(its_top), its_weight = weight(its_top, top);
    const float total = warp_sum(lane < warps ? its_weight * totals[first_warp + lane] : 0.0f);
    float lse = lse_of(top, total);
    const float inverse = inverse_of(finish(lse), total);
#pragma unroll 1
    for (int first = (warp - first_warp) * 32; first < kQuads; first += warps * 32) {
      const int quad = first + lane;
      float all[4] = {};
#pragma unroll
      for (int w = 0; w < MergeShape::kWarps; ++w) {
        const float of_warp = from_lane(its_weight, w);
        if (w >= warps || quad >= kQuads) continue;
        const float4 more = *reinterpret_cast<const float4*>(sums + (first_warp + w) * kColumns +
                                                             quad * 4);
        all[0] = fmaf(of_warp, more.x, all[0]), all[1] = fmaf(of_warp, more.y, all[1]);
        all[2] = fmaf(of_warp, more.z, all[2]), all[3] = fmaf(of_warp, more.w, all[3]);
      }
      unrolled<4>([&](int c) { all[c] *= inverse; });
      if (quad < kQuads) store(quad * 4, all);
    }
    if (int(threadIdx.x) == first_warp * 32) store_lse(lse);
  }

 private:
  /// The weight of a part. 0 for one that has seen no key, also where no part has.
  ATTNFORGE_DEVICE static float weight(float lse, float top) {
    return lse == negative_infinity() ? 0.0f : exp2_approx((lse - top) * kLog2e);
  }
  ATTNFORGE_DEVICE static float lse_of(float top, float total) {
    return total == 0.0f ? negative_infinity() : top + log2_approx(total) * kLn2;
  }
  ATTNFORGE_DEVICE static float inverse_of(float factor, float total) {
    return total == 0.0f ? 0.0f : factor / total;
  }
  ATTNFORGE_DEVICE static bool has_quad(int lane, int j) { return lane + 32 * j < kQuads; }

  /// Parts that are read together. All are, whether they have keys or not.
  struct Batch {
    static constexpr int kParts = kPerLane > 2 ? 2 : 3;
    float lse[kParts], o[kParts][kPerLane][4];

    template <class Parts>
    ATTNFORGE_DEVICE void load(const Parts& parts, int from, int step) {
      const int lane = int(threadIdx.x) % 32;
#pragma unroll
      for (int a = 0; a < kParts; ++a) {
        const int i = from + a * step;
        lse[a] = negative_infinity();
        if (i >= parts.count) continue;
        lse[a] = parts.lse(i);
        unrolled<kPerLane>([&](int j) {
          if (has_quad(lane, j))
            load_floats<kDtype, kAlignment>(
                parts.o(i) + (lane + 32 * j) * 4 * element_bytes(kDtype), o[a][j]);
        });
      }
    }
  };

  /// What a warp has merged: the highest lse, and sums relative to it.
  struct Share {
    float top = negative_infinity(), total = 0;
    float sum[kPerLane][4] = {};

    /// Every `step`-th part from `from` on.
    template <class Parts>
    ATTNFORGE_DEVICE void add(const Parts& parts, int from, int step) {
      constexpr int kParts = Batch::kParts;
      Batch batch, next;
      batch.load(parts, from, step);
#pragma unroll 1
      for (; from < parts.count; from += kParts * step, batch = next) {
        next.load(parts, from + kParts * step, step);
        float highest = top;
        unrolled<kParts>([&](int a) { highest = fmaxf(highest, batch.lse[a]); });
        scale(weight(top, highest));
        top = highest;
        unrolled<kParts>([&](int a) {
          if (batch.lse[a] != negative_infinity()) add(weight(batch.lse[a], top), batch.o[a]);
        });
      }
    }

    /// Stores a row that is all this warp's.
    template <class Finish, class Store, class StoreLse>
    ATTNFORGE_DEVICE void store(const Finish& finish, const Store& store,
                                const StoreLse& store_lse) {
      const int lane = int(threadIdx.x) % 32;
      float lse = lse_of(top, total);
      scale(inverse_of(finish(lse), total));
      unrolled<kPerLane>([&](int j) {
        if (has_quad(lane, j)) store((lane + 32 * j) * 4, sum[j]);
      });
      if (lane == 0) store_lse(lse);
    }

   private:
    ATTNFORGE_DEVICE void scale(float factor) {
      total *= factor;
      unrolled<kPerLane, 4>([&](int j, int c) { sum[j][c] *= factor; });
    }
    ATTNFORGE_DEVICE void add(float its_weight, const float (&o)[kPerLane][4]) {
      total += its_weight;
      unrolled<kPerLane, 4>(
          [&](int j, int c) { sum[j][c] = fmaf(its_weight, o[j][c], sum[j][c]); });
    }
  };
};

}  // namespace attnforge
