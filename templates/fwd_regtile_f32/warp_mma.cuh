// warp_mma.cuh - a warp's tile on the tensor cores: fp32 products as one product of TF32 numbers
// (10 bits of mantissa), or as three, of big and small parts, which keeps the accuracy of fp32
// (Ootomo and Yokota 2022, "Recovering single precision accuracy from Tensor Cores").
#pragma once

#include "fwd_regtile_f32/config.h"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/special_registers.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// An operand for which the tensor core's rounding has no bias. It ignores the 13 low bits, which
/// cuts off half a unit on average; the factor adds as much, 1/3 to 2/3 of a unit depending on the
/// mantissa. One instruction instead of the four of cvt.rna.tf32, exact for what TF32 can hold, and
/// infinities and NaN stay what they are.
ATTNFORGE_DEVICE float round_tf32(float x) {
  constexpr float kHalfUnit = 3.3845e-4f;  // ln(2) * 2^-11
  return x * (1.0f + kHalfUnit);
}

/// x = high + low: two operands of the tensor core, `high` exactly and `low` but for its last bit,
/// which the hardware ignores. `high` is nearest to x, half a unit added to the bits and the rest
/// cut off: `low` then has either sign and one bit less than were `high` cut off alone, which would
/// save an instruction and cost a third more error of a whole attention.
///
/// An infinity has a `low` of NaN. A NaN whose bits overflow, as those that GPUs make, has it too,
/// and a zero as `high`.
struct SplitTf32 {
  u32 high, low;

  ATTNFORGE_DEVICE explicit SplitTf32(float x) {
    high = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
    low = __float_as_uint(x - __uint_as_float(high));
  }
};

/// kWords registers of an operand, split in two where three products are made of one.
template <bool kSplit, int kWords>
struct MmaOperand {
  u32 high[kWords], low[kWords];

  ATTNFORGE_DEVICE void set(int i, float x) {
    if constexpr (kSplit) {
      const SplitTf32 split(x);
      high[i] = split.high, low[i] = split.low;
    } else {
      high[i] = __float_as_uint(round_tf32(x));
    }
  }
  ATTNFORGE_DEVICE void set(const u32 (&words)[kWords]) {
    unrolled<kWords>([&](int i) { set(i, __uint_as_float(words[i])); });
  }
};

/// warp_m rows times step_n keys, then times warp_columns columns.
///
/// The order of keys in P V and of columns in the output is free as long as both factors agree, and
/// is chosen so that nothing moves between lanes. A lane's scores are those of keys 2i and 2i + 1
/// of a fragment; as operand A they stand at depth i and i + 4, so that operand B takes row 2i of
/// V, then 2i + 1. Four neighbouring columns, one 16-byte load, are one column each of four
/// fragments, so that a lane ends up with 8 neighbouring columns of a row.
///
/// The hardware cuts sums off instead of rounding them: what it adds up must be short, and is added
/// to the rest by additions that round. Half as short where `precise`, for tiles with a mask: rows
/// with few keys have outputs as large as the inputs, and errors in proportion.
template <FwdRegtileF32Config C>
struct MmaWarp {
  static constexpr bool kSplit = C.math == kMath3xTf32;
  static constexpr int kFragments = C.warp_m / 16;
  static constexpr int kRows = 2 * kFragments;
  static constexpr int kLanes = 4;
  static constexpr int kColumns = C.warp_columns() / 4;  // of each row, in a thread
  static constexpr int kOutFragments = C.warp_columns() / 8;
  // 4 of them are worked on together as long as there are registers for it, then 2, then 1.
  static constexpr int kBy4 = C.columns_by_4() ? kOutFragments / 4 * 4 : 0;
  static constexpr int kBy2 = kOutFragments / 2 * 2;
  static constexpr int kDepthSteps = C.head_dim / 8;
  static constexpr int kQkRowBytes = C.qk_chunks() * 16, kVRowBytes = C.v_chunks() * 16;

  struct Scores {
    static constexpr int kKeys = C.step_n / 4;
    float c[kFragments][C.step_n / 8][4];
    ATTNFORGE_DEVICE auto& all() { return c; }
    ATTNFORGE_DEVICE float& at(int r, int j) { return c[r / 2][j / 2][r % 2 * 2 + j % 2]; }
    ATTNFORGE_DEVICE float at(int r, int j) const { return c[r / 2][j / 2][r % 2 * 2 + j % 2]; }
  };

  u32 q_lane, k_lane, v_lane;  // offsets of this lane in the rows of a tile
  MmaOperand<kSplit, 4> q[kFragments][C.q_in_regs ? kDepthSteps : 1];
  float o[kFragments][kOutFragments][4];

  /// `columns` is the first of this warp's; the shared memory for probabilities is not needed.
  ATTNFORGE_DEVICE MmaWarp(int columns, u32 /*p_buffer*/) {
    const int lane = thread_index() % 32;
    q_lane = (lane % 16) * kQkRowBytes + lane / 16 * 16;
    k_lane = (lane % 8 + lane / 16 * 8) * kQkRowBytes + lane / 8 % 2 * 16;
    v_lane = 2 * (lane % 4) * kVRowBytes + columns * 4;
    fill(o, 0.0f);
  }

  ATTNFORGE_DEVICE static int row_of(int r) {
    return r / 2 * 16 + r % 2 * 8 + MmaFragment::row(thread_index() % 32);
  }
  ATTNFORGE_DEVICE static int key_of(int j) {
    return j / 2 * 8 + j % 2 + MmaFragment::column(thread_index() % 32);
  }
  ATTNFORGE_DEVICE float& output(int r, int i) { return o[r / 2][i / 2][r % 2 * 2 + i % 2]; }

  ATTNFORGE_DEVICE void load_query(MmaOperand<kSplit, 4>& to, u32 q_rows, int f, int d) const {
    u32 words[4];
    ldmatrix_x4(words, q_rows + q_lane + f * 16 * kQkRowBytes + d * 32);
    to.set(words);
  }

  ATTNFORGE_DEVICE void read_q(u32 q_rows) {
    if constexpr (C.q_in_regs != 0) {
      unrolled<kFragments, kDepthSteps>([&](int f, int d) { load_query(q[f][d], q_rows, f, d); });
    }
  }

  /// s += a k for two fragments of keys, from j on.
  ATTNFORGE_DEVICE static void multiply(Scores& s, const u32 (&a)[kFragments][4], const u32 (&k)[4],
                                        int j) {
    unrolled<kFragments, 2>(
        [&](int f, int h) { mma_m16n8k8_tf32(s.c[f][j + h], a[f], k[2 * h], k[2 * h + 1]); });
  }

  /// s = Q K^T. Small parts are summed by themselves, and large ones over 32 elements at a time, or
  /// 16.
  ATTNFORGE_DEVICE void scores(Scores& s, u32 q_rows, u32 k_rows, bool precise) {
    Scores small, large;
    fill(s.c, 0.0f), fill(small.c, 0.0f), fill(large.c, 0.0f);
#pragma unroll(C.q_in_regs || C.head_dim <= 160 ? kDepthSteps : 8)
    for (int d = 0; d < kDepthSteps; ++d) {
      MmaOperand<kSplit, 4> q_step;
      u32 q_high[kFragments][4], q_low[kFragments][4];
#pragma unroll
      for (int f = 0; f < kFragments; ++f) {
        if constexpr (C.q_in_regs == 0) load_query(q_step, q_rows, f, d);
        const auto& from = C.q_in_regs ? q[f][C.q_in_regs ? d : 0] : q_step;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          q_high[f][i] = from.high[i];
          if constexpr (kSplit) q_low[f][i] = from.low[i];
        }
      }
#pragma unroll
      for (int j = 0; j < C.step_n / 8; j += 2) {
        u32 words[4];
        ldmatrix_x4(words, k_rows + k_lane + j * 8 * kQkRowBytes + d * 32);
        MmaOperand<kSplit, 4> k;
        k.set(words);
        if constexpr (kSplit) multiply(small, q_low, k.high, j);
        if constexpr (kSplit) multiply(small, q_high, k.low, j);
        multiply(kSplit ? large : s, q_high, k.high, j);
      }
      if (kSplit && (d % 4 == 3 || d == kDepthSteps - 1 || (d % 4 == 1 && precise)))
        unrolled<kFragments, C.step_n / 8, 4>([&](int f, int j, int c) {
          s.c[f][j][c] += large.c[f][j][c];
          large.c[f][j][c] = 0.0f;
        });
    }
    if constexpr (kSplit) {
      // On average a score lost 1e-7 of itself with the sums.
      constexpr float kMakeUp = 1.0f + 0x1p-23f;
      unrolled<kFragments, C.step_n / 8, 4>([&](int f, int j, int c) {
        const float sum = fmaf(s.c[f][j][c], kMakeUp, small.c[f][j][c]);
        // The small part of an infinity is NaN; that of a NaN is what tells.
        s.c[f][j][c] = fabsf(s.c[f][j][c]) < -negative_infinity() ? sum : s.c[f][j][c];
      });
    }
  }

  /// o = o * rescale + P V.
  ATTNFORGE_DEVICE void outputs(const Scores& p, u32 v_rows, const float (&rescale)[kRows],
                                bool grew, bool precise) {
    if constexpr (!kSplit) {
      if (grew) {
        unrolled<kRows, kColumns>([&](int r, int i) { output(r, i) *= rescale[r]; });
      }
    }
    MmaOperand<kSplit, 4> a[C.step_n / 8][kFragments];
    unrolled<C.step_n / 8, kFragments>([&](int j, int f) {
      const auto& c = p.c[f][j];
      a[j][f].set(0, c[0]), a[j][f].set(1, c[2]), a[j][f].set(2, c[1]), a[j][f].set(3, c[3]);
    });
#pragma unroll
    for (int j = 0; j < kBy4; j += 4) columns<4>(j, a, v_rows, rescale, precise);
#pragma unroll
    for (int j = kBy4; j < kBy2; j += 2) columns<2>(j, a, v_rows, rescale, precise);
    if constexpr (kOutFragments > kBy2) columns<1>(kBy2, a, v_rows, rescale, precise);
  }

  /// kWide output fragments from `first` on.
  template <int kWide>
  ATTNFORGE_DEVICE void columns(int first,
                                const MmaOperand<kSplit, 4> (&a)[C.step_n / 8][kFragments],
                                u32 v_rows, const float (&rescale)[kRows], bool precise) {
    const u32 lane_rows = v_rows + v_lane + thread_index() % 32 / 4 * (kWide * 4) + first * 32;
    // Over 32 keys at a time, or 16.
    float sum[kFragments][kWide][4] = {};
#pragma unroll
    for (int j = 0; j < C.step_n / 8; ++j) {
      float even[kWide], odd[kWide];
      load_shared(even, lane_rows + j * 8 * kVRowBytes);
      load_shared(odd, lane_rows + (j * 8 + 1) * kVRowBytes);
      MmaOperand<kSplit, 2> v[kWide];
      unrolled<kWide>([&](int w) { v[w].set(0, even[w]), v[w].set(1, odd[w]); });
      if constexpr (kSplit) {
        unrolled<kFragments, kWide>([&](int f, int w) {
          mma_m16n8k8_tf32(sum[f][w], a[j][f].low, v[w].high[0], v[w].high[1]);
        });
        unrolled<kFragments, kWide>([&](int f, int w) {
          mma_m16n8k8_tf32(sum[f][w], a[j][f].high, v[w].low[0], v[w].low[1]);
        });
        unrolled<kFragments, kWide>([&](int f, int w) {
          mma_m16n8k8_tf32(sum[f][w], a[j][f].high, v[w].high[0], v[w].high[1]);
        });
      } else {
        unrolled<kFragments, kWide>([&](int f, int w) {
          mma_m16n8k8_tf32(o[f][first + w], a[j][f].high, v[w].high[0], v[w].high[1]);
        });
      }
      if (kSplit && (j % 4 == 3 || j == C.step_n / 8 - 1 || (j % 4 == 1 && precise))) {
        const bool is_first = j < 2 || (j < 4 && !precise);
        unrolled<kFragments, kWide, 4>([&](int f, int w, int c) {
          o[f][first + w][c] = fmaf(o[f][first + w][c], is_first ? rescale[2 * f + c / 2] : 1.0f,
                                    sum[f][w][c]);
          sum[f][w][c] = 0.0f;
        });
      }
    }
  }

  /// put(column of this warp, values) for all that this lane has of row r: 4 or 2 neighbours each.
  template <class Put>
  ATTNFORGE_DEVICE void for_each_piece(int r, const Put& put) const {
    const int quad_lane = thread_index() % 4, c = r % 2 * 2;
    const auto& row = o[r / 2];
#pragma unroll
    for (int j = 0; j < kBy4; j += 4)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float x[4] = {row[j][c + h], row[j + 1][c + h], row[j + 2][c + h], row[j + 3][c + h]};
        put(j * 8 + quad_lane * 8 + h * 4, x);
      }
#pragma unroll
    for (int j = kBy4; j < kBy2; j += 2) {
      const float x[4] = {row[j][c], row[j + 1][c], row[j][c + 1], row[j + 1][c + 1]};
      put(j * 8 + quad_lane * 4, x);
    }
    if constexpr (kOutFragments > kBy2) {
      const float x[2] = {row[kBy2][c], row[kBy2][c + 1]};
      put(kBy2 * 8 + quad_lane * 2, x);
    }
  }
};

}  // namespace attnforge
