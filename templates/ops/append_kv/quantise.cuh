// quantise.cuh - rows of 16 bits as numbers of 8 or 4 bits: the largest magnitude of a row or of
// groups of its columns, which lanes next to one another find together, and numbers divided by what
// follows from it.
#pragma once

#include "low_bits.h"
#include "ops/append_kv/params.h"
#include "ptx/convert.cuh"
#include "tile/elements.cuh"
#include "tile/narrow.cuh"

namespace attnforge {

/// The quotient of fp32 as IEEE 754 rounds it, in products: numbers and divisor are far from where
/// fp32 ends, or too small or too large for it to matter. The second correction is what makes it
/// exact (Markstein, "Computation of elementary functions on the IBM RISC System/6000", 1990).
struct Divisor {
  float shift, divisor, reciprocal;

  /// A scale of 0 divides as 1 does.
  ATTNFORGE_DEVICE explicit Divisor(float scale) {
    const float size = fabsf(scale);
    shift = size < 0x1p-60f ? 0x1p100f : size > 0x1p60f ? 0x1p-100f : 1.0f;
    divisor = (size == 0.0f ? 1.0f : scale) * shift;
    reciprocal = 1.0f / divisor;
  }
  ATTNFORGE_DEVICE float operator()(float x) const {
    const float y = x * shift, quotient = y * reciprocal;
    const float left = fmaf(-quotient, divisor, y);
    const float nearer = fmaf(left, reciprocal, quotient);
    const float exact = fmaf(fmaf(-nearer, divisor, y), reciprocal, nearer);
    // Nothing is left of a zero, which keeps its sign so, and no number of what is infinite.
    const bool corrects = left != 0.0f && fabsf(left) < __uint_as_float(0x7f800000u);
    return corrects ? exact : quotient;
  }
};

/// The largest magnitude among 16-bit floats, in the upper half of a word whose lower one means
/// nothing. As bits they are in order, with infinity and then NaN at the end.
template <int kWords>
ATTNFORGE_DEVICE u32 largest_magnitude(const u32 (&words)[kWords]) {
  u32 largest = 0;
  unrolled<kWords>([&](int w) {
    largest = max(max(largest, words[w] & 0x7fffffffu), words[w] << 16 & 0x7fff0000u);
  });
  return largest;
}

/// That of kLanes lanes, a power of two, from a multiple of as many on.
template <int kLanes>
ATTNFORGE_DEVICE u32 largest_of_lanes(u32 x) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    x = max(x, __shfl_xor_sync(~0u, x, distance));
  return x;
}

/// Rows of K or of V, kMoved, that lie in S.lanes() lanes.
template <AppendShape S, int kMoved>
struct Quantised {
  static constexpr int kCode = kMoved == kMovedV ? S.dtype_v : S.dtype_k;
  static constexpr int kColumns = kMoved == kMovedV ? S.head_dim_v : S.head_dim;
  static constexpr int kLanes = S.lanes(kMoved), kVector = S.vector();
  static constexpr int kGroup = scale_group(S, kColumns), kGroups = row_scales(S, kColumns);
  static constexpr bool kComputed = S.kv_scale >= kScaleToken;
  /// Whether slices cover a row in order: a group is in lanes next to one another then.
  static constexpr bool kInOrder = kMoved == kMovedV || S.rope != kRopeHalf;
  static constexpr int kOfSlice = S.in_pairs(kMoved) ? 2 * kVector : kVector;  // columns
  static constexpr int kGroupLanes = kGroups == 1 ? kLanes : kGroup / kOfSlice;

  ATTNFORGE_DEVICE static float scale_of(u32 largest) {
    constexpr u32 kInfinity = S.dtype == kFp16 ? 0x7c000000u : 0x7f800000u;
    if (largest >= kInfinity) return __uint_as_float(0x7fffffffu);
    float unused, magnitude;
    unpack2<S.dtype>(largest, unused, magnitude);
    return magnitude / kLargestNumber<kCode>;
  }

  /// Scales of a lane's vectors, of these largest magnitudes; `store(group, scale)` is called in
  /// one lane for each group. All lanes of a warp call this; those without a part of a row bring
  /// zeros, and store nothing.
  template <class Store>
  ATTNFORGE_DEVICE static void find_scales(const RowSlice& slice, const u32 (&largest)[2],
                                           float (&scales)[2], const Store& store) {
    const int of_row = int(threadIdx.x) % kLanes;
    if constexpr (kInOrder) {
      scales[0] = scales[1] = scale_of(largest_of_lanes<kGroupLanes>(max(largest[0], largest[1])));
      if (of_row % kGroupLanes == 0) store(of_row / kGroupLanes, scales[0]);
    } else {
      unrolled<kGroups>([&](int group) {
        const bool has[2] = {slice.first / kGroup == group, slice.second / kGroup == group};
        const float scale = scale_of(
            largest_of_lanes<kLanes>(max(has[0] ? largest[0] : 0u, has[1] ? largest[1] : 0u)));
        unrolled<2>([&](int i) { scales[i] = has[i] ? scale : scales[i]; });
        if (of_row == group) store(group, scale);
      });
    }
  }

  /// A vector's numbers to where they belong in a row, which is aligned to kAlignment bytes.
  template <int kAlignment>
  ATTNFORGE_DEVICE static void store(char* row, int first, const u32 (&vector)[kVector / 2],
                                     float scale) {
    float x[kVector];
    unrolled<kVector / 2>([&](int w) { unpack2<S.dtype>(vector[w], x[2 * w], x[2 * w + 1]); });
    if constexpr (S.kv_scale != kNoScale) {
      const Divisor divisor(scale);
      unrolled<kVector>([&](int i) { x[i] = divisor(x[i]); });
    }
    u32 words[kVector / 4];
    unrolled<kVector / 4>([&](int w) {
      words[w] = narrow4<kCode>(x[4 * w], x[4 * w + 1], x[4 * w + 2], x[4 * w + 3]);
    });
    char* const to = row + bytes_of(kCode, first);
    if constexpr (kCode != kInt4) {
      store_words<kAlignment>(to, words);
    } else if constexpr (kVector == 8) {
      const u32 word[1] = {words[0] | words[1] << 16};
      store_words<kAlignment>(to, word);
    } else {
      *reinterpret_cast<u16*>(to) = u16(words[0]);
    }
  }
};

}  // namespace attnforge
