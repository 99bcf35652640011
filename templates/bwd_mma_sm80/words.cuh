// words.cuh - P, dS and what it is made of on their way between warps through shared memory.
#pragma once

#include "bwd_mma_sm80/config.h"
#include "bwd_mma_sm80/share.cuh"
#include "ptx/convert.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// This warp's keys and a step's queries, or half of them, in a tile of dS or P: two queries a
/// word.
template <BwdMmaSm80Config C>
struct BwdMmaSm80Words {
  using Share = BwdMmaSm80Share<C>;
  using Rounded = typename Share::Rounded;
  using DsRows = typename Share::Shared::DsRows;
  static constexpr int kKeyFragments = Share::kKeyFragments, kStepFragments = Share::kStepFragments;

  u32 own;   // the first of this lane
  u32 rows;  // what this lane says to ldmatrix

  ATTNFORGE_DEVICE BwdMmaSm80Words(u32 tile, int step, int half = 0)
      : own(DsRows::further(tile + DsRows::offset(Share::lane_key(), 0), fragment(step, half)) +
            Share::lane() % 4 * 4),
        rows(DsRows::further(Share::template own_rows<DsRows>(tile), fragment(step, half))) {}
  ATTNFORGE_DEVICE static int fragment(int step, int half) {
    return (step * C.halves() + half) * kStepFragments;
  }
  /// Of the queries of fragments j and j + 1.
  ATTNFORGE_DEVICE void store(const Rounded& x, int j) const {
    unrolled<kKeyFragments, 4>(
        [&](int f, int i) { store(x[f][j + i / 2][i % 2], f, j + i / 2, i % 2); });
  }
  ATTNFORGE_DEVICE void store(u32 word, int f, int j, int r) const {
    store_shared(DsRows::further(own, j) + (f * 16 + r * 8) * DsRows::kRowBytes, int(word));
  }
  ATTNFORGE_DEVICE void store(const Rounded& x) const {
#pragma unroll
    for (int j = 0; j < kStepFragments; j += 2) store(x, j);
  }
  ATTNFORGE_DEVICE void load(Rounded& x) const {
#pragma unroll
    for (int j = 0; j < kStepFragments; j += 2) load(x, j);
  }
  ATTNFORGE_DEVICE void load(Rounded& x, int j) const {
#pragma unroll
    for (int f = 0; f < kKeyFragments; ++f) {
      u32 words[4];
      ldmatrix_x4(words, DsRows::further(rows, j) + f * 16 * DsRows::kRowBytes);
      unrolled<4>([&](int i) { x[f][j + i / 2][i % 2] = words[i]; });
    }
  }
};

/// What dP - delta is multiplied with, P or its product with the slope of the score, from a lane
/// that has scores to the same lane of a warp that has dP: in 16 bits in words of a tile, or in
/// fp32, the upper key of a fragment there and the other next to it.
template <BwdMmaSm80Config C>
struct BwdMmaSm80Factors {
  using Words = BwdMmaSm80Words<C>;
  using Share = typename Words::Share;
  static constexpr int kKeyFragments = Share::kKeyFragments, kStepFragments = Share::kStepFragments;

  Words words;
  u32 beside;

  ATTNFORGE_DEVICE BwdMmaSm80Factors(const Words& of_tile, u32 beside_tile, int step)
      : words(of_tile),
        beside(beside_tile + Share::lane() * 8 +
               ((step * C.halves() + Share::half()) * C.key_warps() + Share::key_warp()) *
                   kKeyFragments * kStepFragments * 256) {}
  ATTNFORGE_DEVICE u32 beside_of(int f, int j) const {
    return beside + (f * kStepFragments + j) * 256;
  }
  /// A fragment's words of both kinds; of() makes x[i] of them.
  ATTNFORGE_DEVICE static void split(const float (&x)[4], u32 (&of_words)[2], u32 (&others)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      of_words[i] = C.fp32_factors() ? __float_as_uint(x[i])
                                     : pack2<C.dtype>(x[2 * i], x[2 * i + 1]);
      others[i] = __float_as_uint(x[2 + i]);
    }
  }
  ATTNFORGE_DEVICE static float of(const u32 (&of_words)[2], const u32 (&others)[2], int i) {
    if constexpr (C.fp32_factors()) return __uint_as_float(i < 2 ? of_words[i] : others[i - 2]);
    float pair[2];
    unpack2<C.dtype>(of_words[i / 2], pair[0], pair[1]);
    return pair[i % 2];
  }
  ATTNFORGE_DEVICE void store(const float (&x)[4], int f, int j) const {
    u32 of_words[2], others[2];
    split(x, of_words, others);
    unrolled<2>([&](int r) { words.store(of_words[r], f, j, r); });
    if constexpr (C.fp32_factors()) store_shared_8(beside_of(f, j), others[0], others[1]);
  }
  /// Of the queries of fragments j and j + 1.
  using Pairs = u32[kKeyFragments][kStepFragments][2];
  ATTNFORGE_DEVICE void load(typename Words::Rounded& of_words, Pairs& others, int j) const {
    words.load(of_words, j);
    if constexpr (C.fp32_factors())
      unrolled<kKeyFragments, 2>([&](int f, int i) {
        load_shared_8(others[f][j + i][0], others[f][j + i][1], beside_of(f, j + i));
      });
  }
};

}  // namespace attnforge
