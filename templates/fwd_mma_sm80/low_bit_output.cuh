// low_bit_output.cuh - P V where V has 8 or 4 bits. A word of V, transposed in units of 16 bits, is
// of two keys, and the first factor of its products, P the second: the output has columns as rows
// until it is stored. Scales of rows multiply probabilities before the product, and so do their
// zero points, for a product with ones: groups of columns have sums of their own. Integers come
// with an offset, which each step takes off again: the sums of all keys would be so much larger
// than the output that fp32 has no bits left for it.
#pragma once

#include "fwd_mma_sm80/low_bit_scales.cuh"
#include "ptx/convert.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/shuffle.cuh"
#include "tile/softmax.cuh"
#include "tile/unrolled.cuh"
#include "tile/widen.cuh"

namespace attnforge {

template <class Kernel>
struct LowBitOutput : LowBits<Kernel> {
  using Own = LowBits<Kernel>;
  using Own::C, Own::kRowFragments, Own::kLaneRows, Own::kKeyFragments, Own::kOfLane;
  using Own::kOfRows, Own::kOneScale, Own::power_of_2;
  using Scores = typename Own::Scores;
  using Output = float[Kernel::kOutFragments][4];
  /// What a step adds to all columns of a group.
  static constexpr int kOffsetFragments = (C.offset_fragments() > 0 ? C.offset_fragments() : 1) *
                                          kLaneRows;
  using Offsets = float[kRowFragments][kOffsetFragments][4];
  static constexpr auto kV = Own::groups_of(C.dtype_v, C.v_chunks(), C.head_dim_v);
  static constexpr int kCodeV = code_of(C.dtype_v);
  static constexpr bool kIntegersV = is_integer(C.dtype_v);
  static constexpr bool kNormalises = C.v_row_scales() > 0;

  // ---- P V ----

  /// o += P V over the chunks of V from `first` on, of 16 keys; p has the lane's two pairs of keys
  /// of each row half.
  ATTNFORGE_DEVICE static void add(Kernel& kernel, const u32 (&p)[kRowFragments][4], u32 rows,
                                   int first, int chunks) {
    using Widened = Widen<kCodeV>;
#pragma unroll
    for (int c = first; c < first + chunks; c += 2) {
      u32 words[4];
      const bool two = c + 2 <= first + chunks;
      const u32 from = rows_of_v(kernel, rows, c);
      if (two)
        ldmatrix_x4_trans(words, from);
      else
        ldmatrix_x2_trans(words[0], words[1], from);
#pragma unroll
      for (int i = 0; i < (two ? 2 : 1); ++i) {
        u32 low[Widened::kPairs], high[Widened::kPairs];
        Widened::run(words[2 * i], low);
        Widened::run(words[2 * i + 1], high);
        unrolled<Widened::kPairs / 2>([&](int m) {
          multiply(kernel.o, (c + i) * (Widened::kPairs / 2) + m,
                   {low[2 * m], low[2 * m + 1], high[2 * m], high[2 * m + 1]}, p);
        });
      }
    }
  }
  template <int kFragments>
  ATTNFORGE_DEVICE static void multiply(float (&o)[kRowFragments][kFragments][4], int fragment,
                                        const u32 (&v)[4], const u32 (&p)[kRowFragments][4]) {
    unrolled<kRowFragments, kLaneRows>([&](int f, int r) {
      mma_m16n8k16<kFp16>(o[f][fragment * kLaneRows + r], v, p[f][r], p[f][2 + r]);
    });
  }
  /// Where a lane reads 16 keys: of one chunk, or of the next one too.
  ATTNFORGE_DEVICE static u32 rows_of_v(const Kernel& kernel, u32 rows, int chunk) {
    return Own::template at<typename Kernel::VRows>(kernel.v_fragment, rows, chunk);
  }

  ATTNFORGE_DEVICE static void outputs(Kernel& kernel, const Scores& s, u32 tile, int step) {
    const u32 rows = tile + step * C.step_n * Kernel::VRows::kRowBytes;
    const u32 scales = tile + C.v_code_bytes() + step * C.step_n * C.v_row_scales() * 4;
    if constexpr (kNormalises) raise_v(kernel, scales);
    const float of_scales = kNormalises ? kernel.low_bits.v_factor : 1.0f;
    Offsets offsets = {};
#pragma unroll
    for (int j = 0; j < kKeyFragments; j += 2) {
      float of_keys[kRowFragments][2][kOfLane];
      unrolled<kRowFragments, 2, kOfLane>(
          [&](int f, int i, int c) { of_keys[f][i][c] = s[f][j + i][c] * of_scales; });
#pragma unroll
      for (int g = 0; g < kV.count(); ++g) {
        float of[2][2] = {{1.0f, 1.0f}, {1.0f, 1.0f}}, zeros[2][2];
        if constexpr (kOfRows)
          unrolled<2>([&](int i) {
            if constexpr (C.kv_zero)
              Own::template load_scales<C.v_row_scales()>(of[i], zeros[i], scales, g, (j + i) * 8);
            else
              Own::template load_scales<C.v_row_scales()>(of[i], scales, g, (j + i) * 8);
          });
        u32 p[kRowFragments][4];
        unrolled<kRowFragments, 2, kLaneRows>([&](int f, int i, int r) {
          const auto& from = of_keys[f][i];
          p[f][2 * i + r] = kOfRows
                                ? pack2<kFp16>(from[2 * r] * of[i][0], from[2 * r + 1] * of[i][1])
                                : pack2<kFp16>(from[2 * r], from[2 * r + 1]);
        });
        const int first = g * kV.of_group, left = kV.chunks - first;
        add(kernel, p, rows + j * 8 * Kernel::VRows::kRowBytes, first,
            kV.of_group < left ? kV.of_group : left);
        if constexpr (kIntegersV) add_to_offset(offsets, g, Widen<kCodeV>::kMinusOffset, p);
        if constexpr (C.kv_zero) {
          unrolled<kRowFragments, 2, kLaneRows>([&](int f, int i, int r) {
            const auto& from = of_keys[f][i];
            p[f][2 * i + r] = pack2<kFp16>(from[2 * r] * zeros[i][0],
                                           from[2 * r + 1] * zeros[i][1]);
          });
          add_to_offset(offsets, g, 0x00010001u, p);  // ones, times 2^-24 as numbers are
        }
      }
    }
    if constexpr (kIntegersV)
      unrolled<kRowFragments, kLaneRows>(
          [&](int f, int r) { add_offsets(kernel.o[f], offsets[f], r); });
  }
  /// That of group g += a pair of keys, `number` of all keys, times P.
  ATTNFORGE_DEVICE static void add_to_offset(Offsets& offsets, int g, u32 number,
                                             const u32 (&p)[kRowFragments][4]) {
    if constexpr (kGroupsAreRows) {
      const u32 own = Kernel::lane() / 4 == g % 8 ? number : 0;
      const u32 upper = g < 8 ? own : 0, lower = g < 8 ? 0 : own;
      multiply(offsets, 0, {upper, lower, upper, lower}, p);
    } else {
      multiply(offsets, g, {number, number, number, number}, p);
    }
  }
  /// The columns that a lane has of 8 rows. Every second number of int4 is 16 times larger there.
  ATTNFORGE_DEVICE static void add_offsets(Output& o, const float (&offsets)[kOffsetFragments][4],
                                           int r) {
    float of_groups[kV.count()][2];
    load_offsets(of_groups, offsets, r);
    unrolled<C.code_fragments(), 4>([&](int m, int c) {
      const int chunk = m * 16 / C.columns_of_chunk(C.dtype_v);
      const float offset = of_groups[chunk / kV.of_group][c % 2];
      float& x = o[m * kLaneRows + r][c];
      x = kCodeV == kInt4 && c >= 2 ? fmaf(offset, 16.0f, x) : x + offset;
    });
  }

  /// Scales times v_factor are at most 2^7, so that P of up to 2^8 times one is some of fp16. The
  /// first tile's largest becomes 1 to 2; where a later one is too large for that, the factor
  /// falls, and the output with it. Beside zero points, which are some scales, it becomes 8 to 16.
  ATTNFORGE_DEVICE static void raise_v(Kernel& kernel, u32 scales) {
    constexpr float kMost = 128.0f;
    float& factor = kernel.low_bits.v_factor;
    float most = 0.0f;
    constexpr int kAll = C.step_n * C.v_row_scales();
#pragma unroll
    for (int i = 0; i < kAll; i += 32) {
      const int own = i + Kernel::lane();
      float scale[1] = {0.0f};
      if (kAll % 32 == 0 || own < kAll) load_shared(scale, scales + own * 4);
      most = fmaxf(most, fabsf(scale[0]));
    }
    if (!any_lane(!(most * factor <= kMost))) return;
    const int largest = __reduce_max_sync(~0u, __float_as_int(most));
    constexpr int kRaised = C.kv_zero ? 3 : 0;
    // At most 2^118: times P it is a number.
    const float lower = power_of_2(127 + kRaised - min(max(largest >> 23, 9 + kRaised), 253));
    const float change = lower / factor;  // 0 at first, as the output is
    unrolled<kRowFragments, Kernel::kOutFragments, 4>(
        [&](int f, int i, int c) { kernel.o[f][i][c] *= change; });
    factor = lower;
  }

  /// Whether the offsets of groups are the rows of one fragment.
  static constexpr bool kGroupsAreRows = C.offset_groups() > C.offset_fragments();
  static_assert(C.offset_groups() <= 16, "a fragment has 16 rows");
  /// What is to be added to the two numbers of a column that a lane has of 8 rows.
  ATTNFORGE_DEVICE static void load_offsets(float (&of_groups)[kV.count()][2],
                                            const float (&offsets)[kOffsetFragments][4], int r) {
    unrolled<kV.count(), 2>([&](int g, int c) {
      if constexpr (kGroupsAreRows)
        of_groups[g][c] = from_lane(offsets[r][g / 8 * 2 + c], g % 8 * 4 + Kernel::lane() % 4);
      else
        of_groups[g][c] = offsets[g * kLaneRows + r][c];
    });
  }

  /// A factor of the row that a lane has of scores becomes those of the two whose output it has.
  ATTNFORGE_DEVICE static void of_columns(float (&of)[2], float of_row) {
    unrolled<2>([&](int i) { of[i] = from_lane(of_row, Kernel::lane() % 4 * 8 + i * 4); });
  }
  ATTNFORGE_DEVICE static void rescale(Output& o, const float (&of_rows)[2]) {
    unrolled<kLaneRows>([&](int r) {
      float of[2];
      of_columns(of, of_rows[r]);
      unrolled<Kernel::kOutFragments / kLaneRows, 4>(
          [&](int m, int c) { o[m * kLaneRows + r][c] *= of[c % 2]; });
    });
  }

  // ---- The output, through shared memory ----

  static constexpr int kPitch = C.out_pitch();
  static constexpr int kRegionBytes = 8 * kPitch * 4;  // of a warp
  ATTNFORGE_DEVICE static int warp() { return Kernel::this_thread() / 32; }

  /// Warps that share rows agree on their maxima and sums. `factor` is what a row of this warp's
  /// output is multiplied by then.
  ATTNFORGE_DEVICE static void join(Kernel& kernel, float (&factor)[kRowFragments][2]) {
    const u32 known = kernel.smem + C.num_warps * kRegionBytes;
    const auto of_warp = [&](int part, int f, int r) {
      return known + (part * C.block_m + Kernel::lane_row() + f * 16 + r * 8) * 8;
    };
    unrolled<kRowFragments, kLaneRows>([&](int f, int r) {
      const float own[2] = {kernel.softmax[f].row_max[r], quad_sum(kernel.softmax[f].row_sum[r])};
      if (Kernel::lane() % 4 == 0) store_shared(of_warp(Kernel::key_part(), f, r), own);
    });
    __syncthreads();
    unrolled<kRowFragments, kLaneRows>([&](int f, int r) {
      float all[C.key_warps()][2];
      float most = kLowestFloat, sum = 0.0f;
      unrolled<C.key_warps()>([&](int part) {
        load_shared(all[part], of_warp(part, f, r));
        most = fmaxf(most, all[part][0]);
      });
      unrolled<C.key_warps()>(
          [&](int part) { sum = fmaf(all[part][1], exp2_approx(all[part][0] - most), sum); });
      factor[f][r] = exp2_approx(kernel.softmax[f].row_max[r] - most);
      kernel.softmax[f].row_max[r] = most;
      kernel.softmax[f].row_sum[r] = sum * 0.25f;  // of each lane of a quad
    });
  }

  /// 8 rows of this warp's output to its region.
  ATTNFORGE_DEVICE static void write_rows(const Output& o, int r, float factor, u32 region) {
    const int g = Kernel::lane() / 4, t = Kernel::lane() % 4;
    float of[2];
    of_columns(of, factor);
    unrolled<C.code_fragments()>([&](int m) {
      const int chunk = m * 16 / C.columns_of_chunk(C.dtype_v);
      float x[4];
      unrolled<4>([&](int c) {
        const float raised = kCodeV == kInt4 && c >= 2 ? 0.0625f : 1.0f;
        x[c] = o[m * kLaneRows + r][c] * raised * of[c % 2];
      });
      const int column = kCodeV == kInt4 ? chunk * 32 + g * 4 + m % 2 * 2 : m * 16 + g * 2;
      unrolled<2>([&](int i) {
        const float pair[2] = {x[i], x[2 + i]};
        store_shared(region + ((2 * t + i) * kPitch + column) * 4, pair);
      });
    });
  }
  /// Sums of what the warps have of 8 rows, kStored fragments from `column` on, to memory.
  template <int kStored, class Tile>
  ATTNFORGE_DEVICE static void store_rows(const Kernel& kernel, const Tile& stored, int row,
                                          int column, float inverse, float lse) {
    const int g = Kernel::lane() / 4, t = Kernel::lane() % 4;
    float out[kStored][4] = {};
    unrolled<kStored>([&](int j) {
      unrolled<C.key_warps()>([&](int part) {
        float pair[2];
        load_shared(pair, kernel.smem +
                              (warp() % C.row_warps() + part * C.row_warps()) * kRegionBytes +
                              (g * kPitch + column + j * 8 + t * 2) * 4);
        unrolled<2>([&](int c) { out[j][c] = part == 0 ? pair[c] : out[j][c] + pair[c]; });
      });
    });
    Kernel::Output::template store<0, kStored>(stored, row, column, out, inverse, lse);
  }

  ATTNFORGE_DEVICE static void store(Kernel& kernel) {
    constexpr int kAll = C.head_dim_v / 8;
    constexpr bool kShares = kAll % C.key_warps() == 0;  // else the first warp stores all
    constexpr int kStored = kShares ? kAll / C.key_warps() : kAll;
    const auto meet = [] {
      if constexpr (C.key_warps() > 1)
        __syncthreads();
      else
        __syncwarp();
    };
    const auto stored = Kernel::this_tile(kernel.params);
    float of_all = kIntegersV ? 0x1p24f : 1.0f;
    if constexpr (kNormalises) of_all *= 1.0f / kernel.low_bits.v_factor;
    if constexpr (kOneScale) of_all *= Own::block_scale(kernel, kernel.params.scales.v);
    __syncthreads();  // no warp reads keys any more
    float factor[kRowFragments][2];
    unrolled<kRowFragments, 2>([&](int f, int r) { factor[f][r] = 1.0f; });
    if constexpr (C.key_warps() > 1) join(kernel, factor);
    unrolled<kRowFragments>([&](int f) {
      float inverse[2], lse[2];
      kernel.softmax[f].finish(inverse, lse);
      unrolled<kLaneRows>([&](int r) {
        write_rows(kernel.o[f], r, factor[f][r] * of_all, kernel.smem + warp() * kRegionBytes);
        meet();
        const int row = stored.first_row + Kernel::lane_row() + f * 16 + r * 8;
        if (kShares || Kernel::key_part() == 0)
          store_rows<kStored>(kernel, stored, row, kShares ? Kernel::key_part() * kStored * 8 : 0,
                              inverse[r], lse[r]);
        meet();
      });
    });
  }
};

}  // namespace attnforge
