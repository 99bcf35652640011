// code.cuh - what the user's score and mask texts see: positions, arrays, and for which rows.
#pragma once

#include "base_params.h"
#include "parts/user_code/params.h"
#include "ptx/special.cuh"
#include "tile/tanh.cuh"

namespace attnforge {

template <class A, class B>
inline constexpr bool kSame = false;
template <class A>
inline constexpr bool kSame<A, A> = true;

/// A scaled score, s in a score's text: a float wherever one is wanted. A text that gives it back
/// as it is leaves scores to be scaled where they are anyway.
struct ScaledScore {
  float raw, scale;

  ATTNFORGE_DEVICE operator float() const { return raw * scale; }
};
template <class T>
inline constexpr bool kReal = kSame<T, float> || kSame<T, ScaledScore>;

/// A key's position, or its distance from another: base + kSign * offset, where the compiler knows
/// the offset. It is an int wherever one is wanted. Its product with a float and its sum with one
/// are made of the base's, which all keys of a row share: one multiply-add or one addition in place
/// of a conversion, which takes as long as an exponential. Exact as far as floats hold positions,
/// to 2^24.
template <int kSign>
struct Position {
  int base;
  int offset;

  ATTNFORGE_DEVICE operator int() const { return base + kSign * offset; }
  ATTNFORGE_DEVICE explicit operator float() const { return float(base) + float(kSign * offset); }
  ATTNFORGE_DEVICE float times(float x) const {
    return fmaf(x, float(kSign * offset), x * float(base));
  }
};
using KeyPosition = Position<1>;

// Templates of exact types: with other numbers it is an int.
template <int kSign, class T>
requires kSame<T, int> ATTNFORGE_DEVICE Position<kSign>
operator+(Position<kSign> a, T b) { return {a.base + b, a.offset}; }
template <int kSign, class T>
requires kSame<T, int> ATTNFORGE_DEVICE Position<kSign>
operator+(T a, Position<kSign> b) { return {a + b.base, b.offset}; }
template <int kSign, class T>
requires kSame<T, int> ATTNFORGE_DEVICE Position<kSign>
operator-(Position<kSign> a, T b) { return {a.base - b, a.offset}; }
template <int kSign, class T>
requires kSame<T, int> ATTNFORGE_DEVICE Position<-kSign>
operator-(T a, Position<kSign> b) { return {a - b.base, b.offset}; }
template <int kSign, class T>
requires kReal<T> ATTNFORGE_DEVICE float operator*(T a, Position<kSign> b) { return b.times(a); }
template <int kSign, class T>
requires kReal<T> ATTNFORGE_DEVICE float operator*(Position<kSign> a, T b) { return a.times(b); }
template <int kSign, class T>
requires kReal<T> ATTNFORGE_DEVICE float operator/(Position<kSign> a, T b) { return float(a) / b; }
template <int kSign, class T>
requires kReal<T> ATTNFORGE_DEVICE float operator+(T a, Position<kSign> b) { return a + float(b); }
template <int kSign, class T>
requires kReal<T> ATTNFORGE_DEVICE float operator+(Position<kSign> a, T b) { return float(a) + b; }
template <int kSign, class T>
requires kReal<T> ATTNFORGE_DEVICE float operator-(T a, Position<kSign> b) { return a - float(b); }
template <int kSign, class T>
requires kReal<T> ATTNFORGE_DEVICE float operator-(Position<kSign> a, T b) { return float(a) - b; }

/// What a number is compared with once a position's base is taken off both sides: the same for all
/// keys of a row, so that a comparison is one instruction a key. No position is beyond 2^30, and no
/// difference of what is left overflows.
ATTNFORGE_DEVICE int apart_from(int x, int base) {
  constexpr int kBeyond = 1 << 30;
  return min(max(x, -kBeyond), kBeyond) - base;
}
#define ATTNFORGE_COMPARISON(op)                                                     \
  template <int kSign, class T>                                                      \
  requires kSame<T, int> ATTNFORGE_DEVICE bool operator op(Position<kSign> a, T b) { \
    return kSign * a.offset op apart_from(b, a.base);                                \
  }                                                                                  \
  template <int kSign, class T>                                                      \
  requires kSame<T, int> ATTNFORGE_DEVICE bool operator op(T a, Position<kSign> b) { \
    return apart_from(a, b.base) op kSign * b.offset;                                \
  }
ATTNFORGE_COMPARISON(<)
ATTNFORGE_COMPARISON(<=)
ATTNFORGE_COMPARISON(>)
ATTNFORGE_COMPARISON(>=)
#undef ATTNFORGE_COMPARISON

/// What the texts' values may be. Here, and not where they are used, so that the compiler names the
/// text.
template <class T>
requires requires(T x) { static_cast<float>(x); }
ATTNFORGE_DEVICE T value_of_score(T x) { return x; }
template <class T>
requires requires(T x) { static_cast<bool>(x); }
ATTNFORGE_DEVICE bool value_of_mask(T x) { return static_cast<bool>(x); }

/// Elements of 16 bits, as floats.
struct Fp16 {
  u16 bits;
  ATTNFORGE_DEVICE operator float() const {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
  }
};
struct Bf16 {
  u16 bits;
  ATTNFORGE_DEVICE operator float() const { return __uint_as_float(u32(bits) << 16); }
};

/// An array of the user's. No run writes it: elements that depend on the row alone are read once.
template <class T>
struct UserArray {
  const T* data;

  ATTNFORGE_DEVICE explicit UserArray(u64 word) : data(reinterpret_cast<const T*>(word)) {}
  ATTNFORGE_DEVICE operator const T*() const { return data; }
  template <class Index>
  ATTNFORGE_DEVICE auto operator[](Index i) const {
    return at(data + i);
  }
  /// One address for all keys of a row: what the compiler knows is part of the instruction.
  template <int kSign>
  ATTNFORGE_DEVICE auto operator[](Position<kSign> i) const {
    return at(data + i.base + kSign * i.offset);
  }

 private:
  ATTNFORGE_DEVICE static auto at(const T* element) {
    if constexpr (kSame<T, Fp16> || kSame<T, Bf16>)
      return float(T{__ldg(reinterpret_cast<const u16*>(element))});
    else if constexpr (kSame<T, bool>)
      return __ldg(reinterpret_cast<const u8*>(element)) != 0;
    else
      return __ldg(element);
  }
};

// What tanhf() is in a text. The function of CUDA's library is exact to an ulp and takes 20
// instructions and a branch; where probabilities are rounded to 16 bits, a series does while all
// arguments of a warp are small, as under a soft cap they usually are.
struct ExactTanh {
  ATTNFORGE_DEVICE float operator()(float x) const { return ::tanhf(x); }
};
/// For |x| up to kTanhNear, to 2e-7.
struct SeriesTanh {
  ATTNFORGE_DEVICE float operator()(float x) const {
    const float x2 = x * x;
    return fmaf(x * x2, tanh_series(x2), x);
  }
};
/// For all, to 4e-7.
struct QuotientTanh {
  ATTNFORGE_DEVICE float operator()(float x) const {
    const float within = clamp_magnitude(x, kTanhEnd);
    return within * tanh_over_x(within * within);
  }
};
/// A series that notes the largest magnitude of its arguments.
struct NotingTanh {
  float& top;
  ATTNFORGE_DEVICE float operator()(float x) const {
    top = fmaxf(top, fabsf(x));
    return SeriesTanh()(x);
  }
};

/// How a score's text comes by elements of its aligned array: from memory, as by those of others;
/// what was read before; or, of NotingPlace, not at all: where they are.
struct FromMemory {
  template <class Array, class Index>
  ATTNFORGE_DEVICE auto operator()(const Array& array, Index i) const {
    return array[i];
  }
};
struct ReadBefore {
  float element;
  template <class Array, class Index>
  ATTNFORGE_DEVICE float operator()(const Array&, Index) const {
    return element;
  }
};
template <class T>
struct NotingPlace {
  const T*& place;
  template <class Index>
  ATTNFORGE_DEVICE float operator()(const UserArray<T>& array, Index i) const {
    place = array.data + i64(i);
    return 0.0f;
  }
};
template <class T, class Reads>
struct AlignedArray {
  const UserArray<T> array;
  const Reads& reads;

  ATTNFORGE_DEVICE AlignedArray(u64 word, const Reads& how) : array(word), reads(how) {}
  template <class Index>
  ATTNFORGE_DEVICE auto operator[](Index i) const {
    return reads(array, i);
  }
};
/// Whether a score's text has one.
template <class Code>
concept ReadsRows = requires {
  typename Code::RowElement;
};

/// A row of scores as the texts see it. Code is the entry's UserCode. Rows and keys outside of the
/// tensors stand for the last ones, so that what is read for them is there; their results are not
/// used.
template <class Code>
struct UserRow {
  const typename Code::Words& words;
  int lane_key;
  int batch, head, q, seqlen_q, seqlen_kv;

  template <class QueryTile>
  ATTNFORGE_DEVICE UserRow(const QueryTile& tile, int row, int first_key)
      : UserRow(tile, unknown(row), unknown(first_key), true) {}
  /// A number that the compiler knows nothing of. It must not know that rows share their keys, nor
  /// that the next tile has the same rows: it would keep what it has computed of them, a register
  /// for each.
  ATTNFORGE_DEVICE static int unknown(int x) {
    asm volatile("" : "+r"(x));
    return x;
  }
  template <class QueryTile>
  ATTNFORGE_DEVICE UserRow(const QueryTile& tile, int row, int first_key, bool)
      : words(tile.params.code),
        lane_key(first_key),
        batch(tile.batch),
        head(tile.query_head_of(row)),
        q(min(tile.query_of(row), tile.lengths.q() - 1)),
        seqlen_q(tile.lengths.q()),
        seqlen_kv(tile.lengths.kv()) {}
  /// What texts see of a row and a key that are there.
  template <class Params, class Lengths>
  ATTNFORGE_DEVICE UserRow(const Params& params, const Lengths& lengths, int sequence, int its_head,
                           int query, int key)
      : words(params.code),
        lane_key(key),
        batch(sequence),
        head(its_head),
        q(query),
        seqlen_q(lengths.q()),
        seqlen_kv(lengths.kv()) {}

  template <bool kClamp>
  ATTNFORGE_DEVICE KeyPosition key(int offset) const {
    if constexpr (kClamp) return {min(lane_key + offset, seqlen_kv - 1), 0};
    return {lane_key, offset};
  }
  template <class S, class Tanh>
  ATTNFORGE_DEVICE auto score(const Tanh& tanh, S s, int offset) const {
    return Code::score(words, tanh, s, batch, head, q, key<Code::kScoreReadsByKey>(offset),
                       seqlen_q, seqlen_kv);
  }
  template <class S, class Tanh, class Reads>
  ATTNFORGE_DEVICE auto score(const Tanh& tanh, S s, int offset, const Reads& reads) const {
    if constexpr (ReadsRows<Code>)
      return Code::score(words, tanh, s, batch, head, q, key<Code::kScoreReadsByKey>(offset),
                         seqlen_q, seqlen_kv, reads);
    else
      return score(tanh, s, offset);
  }
  /// Where the element of this row's first key is in the aligned array of the score's text.
  ATTNFORGE_DEVICE auto place_in_row() const {
    const typename Code::RowElement* place;
    Code::score(words, ExactTanh(), 0.0f, batch, head, q, KeyPosition{lane_key, 0}, seqlen_q,
                seqlen_kv, NotingPlace<typename Code::RowElement>{place});
    return place;
  }
  /// Whether the mask lets a key that is there be seen.
  ATTNFORGE_DEVICE bool mask_of_present(int offset) const {
    return Code::mask(words, batch, head, q, KeyPosition{lane_key, offset}, seqlen_q, seqlen_kv);
  }
  /// A text that reads arrays by key is not asked about keys that are not there. An index that was
  /// clamped would take an address of its own for each key.
  ATTNFORGE_DEVICE bool mask(int offset) const {
    if constexpr (Code::kMaskReadsByKey)
      if (lane_key + offset >= seqlen_kv) return false;
    return mask_of_present(offset);
  }
};

}  // namespace attnforge
