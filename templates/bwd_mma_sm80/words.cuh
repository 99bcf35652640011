// words.cuh - P, dS and what it is made of on their way from one warp of bwd_mma_sm80 to others,
// through shared memory.
#pragma once

#include "backward/float_parts.cuh"
#include "base.cuh"
#include "bwd_mma_sm80/config.h"
#include "bwd_mma_sm80/share.cuh"
#include "ptx/convert.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/shared_memory.cuh"

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
#pragma unroll
    for (int f = 0; f < kKeyFragments; ++f)
#pragma unroll
      for (int i = 0; i < 4; ++i) store(x[f][j + i / 2][i % 2], f, j + i / 2, i % 2);
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
#pragma unroll
      for (int i = 0; i < 4; ++i) x[f][j + i / 2][i % 2] = words[i];
    }
  }
};

/// What dP - delta is multiplied with, P or its product with the slope of the score, exact beside
/// dS, which is to be rounded once. From a lane that has scores to the same lane of a warp that has
/// dP, as words of the tile in which dS will lie: two numbers of fp16, or the upper halves of two
/// of fp32, of which a fragment's bytes below them, to 2^-16, are a word of another.
template <BwdMmaSm80Config C>
struct BwdMmaSm80Factors {
  using Words = BwdMmaSm80Words<C>;
  using Share = typename Words::Share;
  static constexpr int kKeyFragments = Share::kKeyFragments, kStepFragments = Share::kStepFragments;

  Words words;
  u32 below;

  ATTNFORGE_DEVICE BwdMmaSm80Factors(const Words& of_ds, u32 below_tile, int step)
      : words(of_ds),
        below(below_tile + Share::lane() * 4 +
              ((step * C.halves() + Share::half()) * C.key_warps() + Share::key_warp()) *
                  kKeyFragments * kStepFragments * 128) {}
  ATTNFORGE_DEVICE u32 below_of(int f, int j) const {
    return below + (f * kStepFragments + j) * 128;
  }
  ATTNFORGE_DEVICE static u32 word_of(float low, float high) {
    return C.fp16_factors() ? pack2<kFp16>(low, high) : upper_halves(low, high);
  }
  ATTNFORGE_DEVICE void store(const float (&x)[4], int f, int j) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) words.store(word_of(x[2 * r], x[2 * r + 1]), f, j, r);
    if constexpr (!C.fp16_factors()) store_shared(below_of(f, j), int(bytes_below(x)));
  }
  // Words of the queries of fragments j and j + 1.
  using Below = u32[kKeyFragments][kStepFragments];
  ATTNFORGE_DEVICE void load(typename Words::Rounded& halves, Below& bytes, int j) const {
    words.load(halves, j);
    if constexpr (!C.fp16_factors())
#pragma unroll
      for (int f = 0; f < kKeyFragments; ++f)
#pragma unroll
        for (int i = 0; i < 2; ++i) bytes[f][j + i] = u32(load_shared(below_of(f, j + i)));
  }
  /// x[i] of a fragment, `word` has it and another.
  ATTNFORGE_DEVICE static float factor_of(u32 word, u32 bytes, int i) {
    if constexpr (!C.fp16_factors()) return joined_float(word, bytes, i);
    float pair[2];
    unpack2<kFp16>(word, pair[0], pair[1]);
    return pair[i % 2];
  }
};

}  // namespace attnforge
