// quantise.cuh - rows of 16 bits as numbers of 8 or 4 bits: the largest magnitude of a row or of
// groups of its columns, or the least and the largest number, which lanes next to one another find
// together, and numbers multiplied by the inverse of the scale that follows.
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

/// A scale, that, and a zero point.
struct Scale {
  float scale = 1.0f, inverse = 1.0f, zero = 0.0f;

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

  /// Of floats of 16 bits from `least` to `most`, which become -8 and 7: as append_kv() says, where
  /// halves are exact.
  ATTNFORGE_DEVICE static Scale of_range(float least, float most) {
    const float infinity = __uint_as_float(0x7f800000u);
    const float exact = __fmul_rn(0.5f * most - 0.5f * least, 2.0f / 15);
    const bool finite = fabsf(least) < infinity && fabsf(most) < infinity;
    Scale of(finite ? (exact < 0x1p-126f ? 0.0f : exact) : __uint_as_float(0x7fffffffu));
    of.zero = 2.0f * fmaf(4.0f, of.scale, 0.5f * least);  // 8 times a scale may be too large
    return of;
  }
};

/// Of the lower and of the upper halves of words, 16-bit floats, the largest magnitudes; with zero
/// points the largest numbers, and after these the largest of their negatives. A NaN is larger than
/// all others.
template <int kDtype, bool kZeros>
struct LargestHalves {
  enum : int { kWords = kZeros ? 2 : 1 };
  enum : u32 { kOfNone = !kZeros ? 0u : kDtype == kBf16 ? 0xff80ff80u : 0xfc00fc00u };
  u32 words[kWords];

  ATTNFORGE_DEVICE LargestHalves() {
    unrolled<kWords>([&](int w) { words[w] = kOfNone; });
  }
  template <int kVectorWords>
  ATTNFORGE_DEVICE void add(const u32 (&vector)[kVectorWords]) {
    unrolled<kVectorWords, kWords>([&](int i, int w) {
      const u32 pair = kZeros ? vector[i] ^ (w == 0 ? 0u : 0x80008000u) : vector[i] & 0x7fff7fffu;
      words[w] = largest2<kDtype>(words[w], pair);
    });
  }
  ATTNFORGE_DEVICE void add(const LargestHalves& other) {
    unrolled<kWords>([&](int w) { words[w] = largest2<kDtype>(words[w], other.words[w]); });
  }

  /// Those of kLanes lanes, a power of two, from a multiple of as many on.
  template <int kLanes>
  ATTNFORGE_DEVICE void join_lanes() {
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2)
      unrolled<kWords>([&](int w) {
        words[w] = largest2<kDtype>(words[w], __shfl_xor_sync(~0u, words[w], distance));
      });
  }
  /// The largest of both halves of x in the lower half, and those of y in the upper one.
  ATTNFORGE_DEVICE static LargestHalves of(const LargestHalves& x, const LargestHalves& y) {
    LargestHalves both;
    unrolled<kWords>([&](int w) {
      both.words[w] = largest2<kDtype>(__byte_perm(x.words[w], y.words[w], 0x5410),
                                       __byte_perm(x.words[w], y.words[w], 0x7632));
    });
    return both;
  }
};

/// Rows of K or of V, kMoved, that lie in S.lanes() lanes.
template <AppendShape S, int kMoved>
struct Quantised {
  static constexpr int kCode = kMoved == kMovedV ? S.dtype_v : S.dtype_k;
  static constexpr int kColumns = kMoved == kMovedV ? S.head_dim_v : S.head_dim;
  static constexpr int kLanes = S.lanes(kMoved), kVector = S.vector();
  static constexpr int kGroup = scale_group(S, kColumns), kGroups = row_scales(S, kColumns);
  static constexpr bool kComputed = S.kv_scale >= kScaleToken;
  using Largest = LargestHalves<S.dtype, S.kv_zero != 0>;
  /// Whether slices cover a row in order: a group is in lanes next to one another then.
  static constexpr bool kInOrder = kMoved == kMovedV || S.rope != kRopeHalf;
  static constexpr int kOfSlice = S.in_pairs(kMoved) ? 2 * kVector : kVector;  // columns
  static constexpr int kGroupLanes = kGroups == 1 ? kLanes : kGroup / kOfSlice;

  /// Whether first vectors are the first half of a row in order, and second ones the other half: a
  /// group is then of one of them, in lanes next to one another.
  static constexpr bool kInHalves = !kInOrder && kGroups > 1 &&
                                    S.rope_dim == kColumns&& S.pairs() % kGroup == 0;
  /// The scales of what is largest in the halves of a word.
  ATTNFORGE_DEVICE static void set(Scale& lower, Scale& upper, const Largest& largest) {
    float of_lower, of_upper;
    unpack2<S.dtype>(largest.words[0], of_lower, of_upper);
    if constexpr (S.kv_zero) {
      float minus_lower, minus_upper;
      unpack2<S.dtype>(largest.words[1], minus_lower, minus_upper);
      lower = Scale::of_range(-minus_lower, of_lower);
      upper = Scale::of_range(-minus_upper, of_upper);
    } else {
      lower = Scale::of_largest<kCode>(of_lower), upper = Scale::of_largest<kCode>(of_upper);
    }
  }
  ATTNFORGE_DEVICE static void store_scale(float* of_row, int group, const Scale& found) {
    if constexpr (S.kv_zero)
      of_row[2 * group] = found.scale, of_row[2 * group + 1] = found.zero;
    else
      of_row[group] = found.scale;
  }

  /// Scales of a lane's vectors of the rows of two heads, of what is largest in these;
  /// `store(row, group, scale)` is called in one lane for each. All lanes of a warp call this;
  /// those without a part of a row bring zeros, and store nothing.
  template <class Store>
  ATTNFORGE_DEVICE static void find_scales(const RowSlice& slice, const Largest (&largest)[2][2],
                                           Scale (&scales)[2][2], const Store& store) {
    const int of_row = int(threadIdx.x) % kLanes;
    if constexpr (kInOrder || kGroups == 1) {
      Largest of[2] = {largest[0][0], largest[1][0]};
      unrolled<2>([&](int i) { of[i].add(largest[i][1]); });
      Largest all = Largest::of(of[0], of[1]);
      all.template join_lanes<kGroupLanes>();
      set(scales[0][0], scales[1][0], all);
      unrolled<2>([&](int i) {
        scales[i][1] = scales[i][0];
        if (of_row % kGroupLanes == 0) store(i, of_row / kGroupLanes, scales[i][0]);
      });
    } else if constexpr (kInHalves) {
      constexpr int kOfGroup = kGroup / kVector;  // lanes
      unrolled<2>([&](int i) {
        Largest both = Largest::of(largest[i][0], largest[i][1]);
        both.template join_lanes<kOfGroup>();
        set(scales[i][0], scales[i][1], both);
        if (of_row % kOfGroup != 0) return;
        store(i, of_row / kOfGroup, scales[i][0]);
        store(i, of_row / kOfGroup + kGroups / 2, scales[i][1]);
      });
    } else {
      unrolled<kGroups>([&](int group) {
        const bool has[2] = {slice.first / kGroup == group, slice.second / kGroup == group};
        Largest of[2];
        unrolled<2>([&](int i) {
          of[i] = has[0] ? largest[i][0] : Largest();
          of[i].add(has[1] ? largest[i][1] : Largest());
        });
        Largest all = Largest::of(of[0], of[1]);
        all.template join_lanes<kLanes>();
        Scale found[2];
        set(found[0], found[1], all);
        unrolled<2>([&](int i) {
          unrolled<2>([&](int part) { scales[i][part] = has[part] ? found[i] : scales[i][part]; });
          if (of_row == group) store(i, group, found[i]);
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
    if constexpr (S.kv_zero)
      unrolled<kVector>(
          [&](int i) { x[i] = fminf(fmaxf((x[i] - scale.zero) * scale.inverse, -8.0f), 7.0f); });
    else if constexpr (S.kv_scale != kNoScale)
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
