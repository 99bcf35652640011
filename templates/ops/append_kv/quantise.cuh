// quantise.cuh - rows of 16 bits as numbers of 8 or 4 bits: the largest magnitude of a row or of
// groups of its columns, which lanes next to one another find together, and numbers multiplied by
// the inverse of the scale that follows from it.
#pragma once

#include "low_bits.h"
#include "ops/append_kv/params.h"
#include "ptx/convert.cuh"
#include "ptx/largest.cuh"
#include "ptx/reciprocal.cuh"
#include "tile/elements.cuh"
#include "tile/narrow.cuh"

namespace attnforge {

/// By what numbers are multiplied: fp32 of 1 / scale, and 1 where a scale is no normal number, as 0
/// is none.
ATTNFORGE_DEVICE float inverse_of(float scale) {
  return fabsf(scale) < 0x1p-126f ? 1.0f : 1.0f / scale;
}

/// A scale, and that.
struct Scale {
  float scale = 1.0f, inverse = 1.0f;

  Scale() = default;
  ATTNFORGE_DEVICE explicit Scale(float given) : scale(given), inverse(inverse_of(given)) {}

  /// Of numbers of kCode whose largest magnitude is `magnitude`, a float of 16 bits: fp32 of the
  /// quotient, NaN of infinity too, 0 below the least normal number. Each of both is corrected
  /// once, which makes them exact for all of these floats: a test tries them.
  template <int kCode>
  ATTNFORGE_DEVICE static Scale of_largest(float magnitude) {
    constexpr float kMost = kLargestNumber<kCode>, kPart = 1.0f / kMost;
    const float quotient = magnitude * kPart;
    const float exact = fmaf(fmaf(-quotient, kMost, magnitude), kPart, quotient);
    const float near = reciprocal_approx(exact);
    const bool is_zero = exact < 0x1p-126f;
    Scale of;
    of.scale = is_zero ? 0.0f : exact;
    of.inverse = is_zero ? 1.0f : fmaf(fmaf(-exact, near, 1.0f), near, near);
    return of;
  }
};

/// The largest magnitudes among the lower and among the upper halves of words, 16-bit floats. A NaN
/// is larger than all others.
template <int kDtype, int kWords>
ATTNFORGE_DEVICE u32 largest_magnitudes(const u32 (&words)[kWords]) {
  u32 largest = 0;
  unrolled<kWords>([&](int w) { largest = largest2<kDtype>(largest, words[w] & 0x7fff7fffu); });
  return largest;
}

/// Those of kLanes lanes, a power of two, from a multiple of as many on.
template <int kDtype, int kLanes>
ATTNFORGE_DEVICE u32 largest_of_lanes(u32 x) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    x = largest2<kDtype>(x, __shfl_xor_sync(~0u, x, distance));
  return x;
}

/// The largest of both halves of x in the lower half of a word, and those of y in the upper one.
template <int kDtype>
ATTNFORGE_DEVICE u32 largest_of_halves(u32 x, u32 y) {
  return largest2<kDtype>(__byte_perm(x, y, 0x5410), __byte_perm(x, y, 0x7632));
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

  /// Whether first vectors are the first half of a row in order, and second ones the other half: a
  /// group is then of one of them, in lanes next to one another.
  static constexpr bool kInHalves = !kInOrder && kGroups > 1 &&
                                    S.rope_dim == kColumns&& S.pairs() % kGroup == 0;
  /// The scales of largest magnitudes in the halves of a word.
  ATTNFORGE_DEVICE static void set(Scale& lower, Scale& upper, u32 largest) {
    float of_lower, of_upper;
    unpack2<S.dtype>(largest, of_lower, of_upper);
    lower = Scale::of_largest<kCode>(of_lower), upper = Scale::of_largest<kCode>(of_upper);
  }

  /// Scales of a lane's vectors of the rows of two heads, of these largest magnitudes;
  /// `store(row, group, scale)` is called in one lane for each. All lanes of a warp call this;
  /// those without a part of a row bring zeros, and store nothing.
  template <class Store>
  ATTNFORGE_DEVICE static void find_scales(const RowSlice& slice, const u32 (&largest)[2][2],
                                           Scale (&scales)[2][2], const Store& store) {
    constexpr int kDtype = S.dtype;
    const int of_row = int(threadIdx.x) % kLanes;
    if constexpr (kInOrder || kGroups == 1) {
      u32 of[2];
      unrolled<2>([&](int i) { of[i] = largest2<kDtype>(largest[i][0], largest[i][1]); });
      set(scales[0][0], scales[1][0],
          largest_of_lanes<kDtype, kGroupLanes>(largest_of_halves<kDtype>(of[0], of[1])));
      unrolled<2>([&](int i) {
        scales[i][1] = scales[i][0];
        if (of_row % kGroupLanes == 0) store(i, of_row / kGroupLanes, scales[i][0].scale);
      });
    } else if constexpr (kInHalves) {
      constexpr int kOfGroup = kGroup / kVector;  // lanes
      unrolled<2>([&](int i) {
        const u32 both = largest_of_halves<kDtype>(largest[i][0], largest[i][1]);
        set(scales[i][0], scales[i][1], largest_of_lanes<kDtype, kOfGroup>(both));
        if (of_row % kOfGroup != 0) return;
        store(i, of_row / kOfGroup, scales[i][0].scale);
        store(i, of_row / kOfGroup + kGroups / 2, scales[i][1].scale);
      });
    } else {
      unrolled<kGroups>([&](int group) {
        const bool has[2] = {slice.first / kGroup == group, slice.second / kGroup == group};
        u32 of[2];
        unrolled<2>([&](int i) {
          of[i] = largest2<kDtype>(has[0] ? largest[i][0] : 0u, has[1] ? largest[i][1] : 0u);
        });
        Scale found[2];
        set(found[0], found[1],
            largest_of_lanes<kDtype, kLanes>(largest_of_halves<kDtype>(of[0], of[1])));
        unrolled<2>([&](int i) {
          unrolled<2>([&](int part) { scales[i][part] = has[part] ? found[i] : scales[i][part]; });
          if (of_row == group) store(i, group, found[i].scale);
        });
      });
    }
  }

  /// A vector's numbers to where they belong in a row, which is aligned to kAlignment bytes. What
  /// the largest of them has made a scale of is no larger than numbers can be.
  template <int kAlignment>
  ATTNFORGE_DEVICE static void store(char* row, int first, const u32 (&vector)[kVector / 2],
                                     const Scale& scale) {
    float x[kVector];
    unrolled<kVector / 2>([&](int w) { unpack2<S.dtype>(vector[w], x[2 * w], x[2 * w + 1]); });
    if constexpr (S.kv_scale != kNoScale)
      unrolled<kVector>([&](int i) { x[i] = __fmul_rn(x[i], scale.inverse); });
    u32 words[kVector / 4];
    unrolled<kVector / 4>([&](int w) {
      words[w] = narrow4<kCode, kComputed>(x[4 * w], x[4 * w + 1], x[4 * w + 2], x[4 * w + 3]);
    });
    char* const to = row + bytes_of(kCode, first);
    if constexpr (kCode != kInt4) {
      keep_numbers(words, scale);
      store_words<kAlignment>(to, words);
    } else if constexpr (kVector == 8) {
      u32 word[1] = {__byte_perm(words[0], words[1], 0x5410)};
      keep_numbers(word, scale);
      store_words<kAlignment>(to, word);
    } else {
      keep_numbers(words, scale);
      *reinterpret_cast<u16*>(to) = u16(words[0]);
    }
  }
  /// Integers are 0 where the scale is NaN: one of them may be.
  template <int kWords>
  ATTNFORGE_DEVICE static void keep_numbers(u32 (&words)[kWords], const Scale& scale) {
    if constexpr (kComputed && is_integer(kCode))
      unrolled<kWords>([&](int w) { words[w] = scale.scale == scale.scale ? words[w] : 0u; });
  }
};

}  // namespace attnforge
