// low_bit_scores.cuh - Q K^T where K has 8 or 4 bits. A word of K is of one key, of columns next to
// one another: Q's columns take that order once. Integers of K are factors of int8 products as they
// are: Q becomes two digits of 8 bits. Other numbers are widened to fp16. Scales of rows multiply
// scores after the product: groups of columns have sums of their own. Zero points come after it
// too, times the sum of a row of Q.
#pragma once

#include "fwd_mma_sm80/low_bit_scales.cuh"
#include "ptx/convert.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/shuffle.cuh"
#include "tile/unrolled.cuh"
#include "tile/widen.cuh"

namespace attnforge {

template <class Kernel>
struct LowBitScores : LowBits<Kernel> {
  using Own = LowBits<Kernel>;
  using Own::C, Own::kRowFragments, Own::kLaneRows, Own::kKeyFragments, Own::kOfLane;
  using Own::kOfRows, Own::kOneScale, Own::power_of_2;
  using Scores = typename Own::Scores;
  static constexpr auto kK = Own::groups_of(C.dtype_k, C.k_chunks(), C.head_dim);
  static constexpr int kCodeK = code_of(C.dtype_k);
  static constexpr bool kIntegersK = is_integer(C.dtype_k);
  /// Q of bf16 becomes fp16 where K does.
  static constexpr bool kConverts = !kIntegersK && C.dtype != kFp16;
  static constexpr bool kFactors = kIntegersK || kConverts || kOneScale;

  // ---- Q ----

  /// What a row of Q is multiplied by, and its scores then. `largest`: the bits of the largest
  /// magnitude in it. For two digits it becomes 127 * 256, and NaN where there is no number for it.
  /// In fp16 it becomes 2^14 and more: what fp16 does not hold then is too small to matter beside
  /// it.
  struct RowFactors {
    float q, scores;
    ATTNFORGE_DEVICE explicit RowFactors(int largest) : q(1.0f), scores(1.0f) {
      constexpr float kMost = 127 * 256, kLeast = 0x1p-100f;
      constexpr float kOfCodes = kCodeK == kInt4 ? 16.0f : 1.0f;
      if constexpr (kIntegersK) {
        const float most = __int_as_float(largest);
        q = most > kLeast ? kMost / most : 0.0f;
        scores = __int_as_float(largest < 0x7f800000 ? __float_as_int(most / (kMost * kOfCodes))
                                                     : 0x7fffffff);
      } else if constexpr (kConverts) {
        const int exponent = min(127 + 14 - (largest >> 23), 100);
        q = power_of_2(exponent), scores = power_of_2(-exponent);
      }
    }
  };

  /// Q in the order, and of the format, of products with K; each warp has some rows.
  ATTNFORGE_DEVICE static void order_q(Kernel& kernel, int thread) {
    using Rows = typename Kernel::QkRows;
    constexpr int kOfLane = ceil_div(C.qk_chunks(), 32);
    const int lane = thread % 32;
    float scale = 1.0f;
    if constexpr (kOneScale) scale = Own::block_scale(kernel, kernel.params.scales.k);
    for (int row = thread / 32; row < C.block_m; row += C.num_warps) {
      float x[kOfLane][8];
      int largest = 0;
      unrolled<kOfLane>([&](int i) {
        u32 words[4] = {0, 0, 0, 0};
        if (i * 32 + lane < C.qk_chunks())
          load_shared_16(words, kernel.smem + Rows::offset(row, i * 32 + lane));
        unrolled<4>([&](int w) { unpack2<C.dtype>(words[w], x[i][2 * w], x[i][2 * w + 1]); });
        unrolled<8>([&](int e) {
          const int bits = __float_as_int(x[i][e]) & 0x7fffffff;
          largest = kIntegersK || bits < 0x7f800000 ? max(largest, bits) : largest;
        });
      });
      const RowFactors factors(__reduce_max_sync(~0u, largest));  // after all have read the row
      if (lane == 0)
        store_shared(kernel.smem + C.factors_begin() + row * 4,
                     __float_as_int(factors.scores * scale));
      if constexpr (C.kv_zero) store_sums(kernel, x, row, lane);
      unrolled<kOfLane>([&](int i) {
        const int chunk = i * 32 + lane;
        if (chunk >= C.qk_chunks()) return;
        const auto to = [&](int at) { return kernel.smem + Rows::offset(row, at); };
        if constexpr (kIntegersK)
          store_digits(to, chunk, x[i], factors.q);
        else
          store_halves(to, chunk, x[i], factors.q);
      });
    }
    __syncthreads();
    unrolled<kRowFragments, kLaneRows>([&](int f, int r) {
      kernel.low_bits.k_factor[f][r] = __int_as_float(
          load_shared(kernel.smem + C.factors_begin() + (Kernel::lane_row() + f * 16 + r * 8) * 4));
    });
  }

  // ---- Sums of Q that zero points of K are multiplied by ----

  ATTNFORGE_DEVICE static u32 sums_of_q(const Kernel& kernel, int group, int row) {
    return kernel.smem + C.factors_begin() + ((1 + group) * C.block_m + row) * 4;
  }
  template <int kLanes>
  ATTNFORGE_DEVICE static float sum_of_lanes(float x) {
    if constexpr (kLanes > 1) return sum_of_lanes<kLanes / 2>(x + shuffle_xor<kLanes / 2>(x));
    return x;
  }
  /// Of a row's groups of columns: a lane has 8 columns of each 256.
  template <int kOfLane>
  ATTNFORGE_DEVICE static void store_sums(const Kernel& kernel, const float (&x)[kOfLane][8],
                                          int row, int lane) {
    constexpr bool kOne = kK.count() == 1;
    constexpr int kLanes = kOne ? 32 : scale_group(C, C.head_dim) / 8;
    float sum[kOfLane] = {};
    unrolled<kOfLane, 8>([&](int i, int e) { sum[kOne ? 0 : i] += x[i][e]; });
    unrolled<kOne ? 1 : kOfLane>([&](int i) {
      const float of_group = sum_of_lanes<kLanes>(sum[i]);
      const int group = (i * 32 + lane) / kLanes;
      if (lane % kLanes == 0 && group < kK.count())
        store_shared(sums_of_q(kernel, group, row), __float_as_int(of_group));
    });
  }

  /// The columns of a chunk of 16 numbers of K are, in the order of products, 4 t and 4 t + 2, then
  /// 4 t + 1 and 4 t + 3 for t from 0 to 3; or 4 t and 4 t + 1, then 4 t + 2 and 4 t + 3.
  template <class To>
  ATTNFORGE_DEVICE static void store_halves(const To& to, int chunk, const float (&x)[8], float q) {
    constexpr bool kInOrder = Widen<kCodeK>::kInOrder;
    unrolled<2>([&](int i) {
      const int first = kInOrder ? 2 * i : i, other = kInOrder ? first + 1 : first + 2;
      store_shared_8(to(chunk / 2 * 2 + i) + chunk % 2 * 8,
                     pack2<kFp16>(x[first] * q, x[other] * q),
                     pack2<kFp16>(x[first + 4] * q, x[other + 4] * q));
    });
  }
  /// 32 columns are in two chunks of upper digits and two of lower ones. Of int4 even columns are
  /// in the first of two, odd ones in the second.
  template <class To>
  ATTNFORGE_DEVICE static void store_digits(const To& to, int chunk, const float (&x)[8], float q) {
    constexpr bool kPairs = kCodeK == kInt4;
    u32 digits[2][2] = {{0, 0}, {0, 0}};  // upper ones, lower ones
    unrolled<8>([&](int e) {
      const int number = __float2int_rn(x[e] * q);
      const int word = kPairs ? e % 2 : e / 4, shift = 8 * (kPairs ? e / 2 : e % 4);
      digits[0][word] |= u32((number + 128) >> 8 & 255) << shift;
      digits[1][word] |= u32(number & 255) << shift;
    });
    const int unit = chunk / 4 * 4, of_unit = chunk % 4;
    unrolled<2>([&](int d) {
      if constexpr (kPairs)
        unrolled<2>([&](int odd) {
          store_shared(to(unit + 2 * d + odd) + of_unit * 4, int(digits[d][odd]));
        });
      else
        store_shared_8(to(unit + 2 * d + of_unit / 2) + of_unit % 2 * 8, digits[d][0],
                       digits[d][1]);
    });
  }

  // ---- Q K^T ----

  /// A chunk of 32 keys from key fragment j on, or of the last 16.
  ATTNFORGE_DEVICE static void load_keys(u32 (&words)[4], const Kernel& kernel, u32 rows, int j,
                                         int chunk) {
    using Rows = typename Kernel::KRows;
    const u32 from = Own::template at<Rows>(kernel.k_fragment, rows + j * 8 * Rows::kRowBytes,
                                            chunk);
    const bool has_32 = j + 4 <= kKeyFragments || Kernel::lane() < 16;
    ldmatrix_x4(words, has_32 ? from : from - 16 * Rows::kRowBytes);
  }
  ATTNFORGE_DEVICE static void load_query(u32 (&q)[4], const Kernel& kernel, int f, int step) {
    if constexpr (C.q_in_regs == 0)
      ldmatrix_x4(q, kernel.q_fragment.at(kernel.smem + f * 16 * Kernel::QkRows::kRowBytes,
                                          Kernel::kQueryChunks * step));
    else
      unrolled<4>([&](int w) { q[w] = kernel.q[f][step][w]; });
  }

  /// Sums of a step over the chunks of K from `first` on.
  ATTNFORGE_DEVICE static void sums(Kernel& kernel, Scores& s, u32 rows, int first, int chunks) {
#pragma unroll
    for (int c = first; c < first + chunks; ++c) {
      u32 q[kRowFragments][4];
      unrolled<kRowFragments>([&](int f) { load_query(q[f], kernel, f, c); });
#pragma unroll
      for (int j = 0; j < kKeyFragments; j += 4) {
        u32 words[4];
        load_keys(words, kernel, rows, j, c);
#pragma unroll
        for (int i = 0; i < 4 && j + i < kKeyFragments; ++i) {
          u32 k[2];
          Widen<kCodeK>::run_in_order(words[i], k);
          unrolled<kRowFragments>([&](int f) {
            if (c == first)
              mma_m16n8k16_zero<kFp16>(s[f][j + i], q[f], k[0], k[1]);
            else
              mma_m16n8k16<kFp16>(s[f][j + i], q[f], k[0], k[1]);
          });
        }
      }
    }
  }
  /// The same of integers: sums of 32 bits are exact. Those of the lower digits of Q are beside
  /// those of the upper ones if these leave half of a fragment's rows, else in one more.
  ATTNFORGE_DEVICE static void integer_sums(Kernel& kernel, Scores& s, u32 rows, int first,
                                            int chunks) {
    constexpr int kOfStep = kCodeK == kInt4 ? 1 : 2;  // chunks
    constexpr int kBlock = kCodeK == kInt4 ? 4 : 2;   // key fragments of an ldmatrix
#pragma unroll
    for (int j = 0; j < kKeyFragments; j += kBlock) {
      int sum[kRowFragments][kLaneRows][kBlock][4];
#pragma unroll
      for (int c = first; c < first + chunks; c += kOfStep) {
        u32 q[kRowFragments][kLaneRows][4], words[4];
        unrolled<kRowFragments, kLaneRows>([&](int f, int digit) {
          load_query(q[f][digit], kernel, f, c / kOfStep * kLaneRows + digit);
        });
        if constexpr (kCodeK == kInt4)
          load_keys(words, kernel, rows, j, c);
        else
          ldmatrix_x4(words, kernel.k_fragment.at(rows + j * 8 * Kernel::KRows::kRowBytes, c));
#pragma unroll
        for (int i = 0; i < kBlock && j + i < kKeyFragments; ++i) {
          u32 k[2];
          if constexpr (kCodeK == kInt4)  // 16 times the number
            k[0] = words[i] << 4 & 0xf0f0f0f0u, k[1] = words[i] & 0xf0f0f0f0u;
          else
            k[0] = words[2 * i], k[1] = words[2 * i + 1];
          unrolled<kRowFragments, kLaneRows>([&](int f, int digit) {
            if (c == first)
              mma_m16n8k32_int8<true>(sum[f][digit][i], q[f][digit], k[0], k[1]);
            else
              mma_m16n8k32_int8<false>(sum[f][digit][i], q[f][digit], k[0], k[1]);
          });
        }
      }
#pragma unroll
      for (int i = 0; i < kBlock && j + i < kKeyFragments; ++i)
        unrolled<kRowFragments, kOfLane>([&](int f, int c) {
          const int lower = kLaneRows == 1 ? sum[f][0][i][2 + c] : sum[f][kLaneRows - 1][i][c];
          s[f][j + i][c] = float(sum[f][0][i][c] * 256 + lower);
        });
    }
  }

  ATTNFORGE_DEVICE static void scores(Kernel& kernel, Scores& s, u32 tile, int step) {
    const u32 rows = tile + step * C.step_n * Kernel::KRows::kRowBytes;
    const u32 scales = tile + C.k_code_bytes() + step * C.step_n * C.k_row_scales() * 4;
#pragma unroll
    for (int g = 0; g < kK.count(); ++g) {
      Scores part;
      const int first = g * kK.of_group, left = kK.chunks - first;
      const int chunks = kK.of_group < left ? kK.of_group : left;
      if constexpr (kIntegersK)
        integer_sums(kernel, part, rows, first, chunks);
      else
        sums(kernel, part, rows, first, chunks);
      add_scaled(s, part, g == 0, scales, g, kernel);
    }
  }
  /// s = part times its factors, or that is added to it; and what zero points make of it.
  ATTNFORGE_DEVICE static void add_scaled(Scores& s, const Scores& part, bool is_first, u32 scales,
                                          int group, const Kernel& kernel) {
    float of_q[kRowFragments][kLaneRows];
    if constexpr (C.kv_zero)
      unrolled<kRowFragments, kLaneRows>([&](int f, int r) {
        of_q[f][r] = __int_as_float(
            load_shared(sums_of_q(kernel, group, Kernel::lane_row() + f * 16 + r * 8)));
      });
#pragma unroll
    for (int j = 0; j < kKeyFragments; ++j) {
      float pair[2] = {1.0f, 1.0f}, zeros[2];
      if constexpr (C.kv_zero)
        Own::template load_scales<C.k_row_scales()>(pair, zeros, scales, group, j * 8);
      else if constexpr (kOfRows)
        Own::template load_scales<C.k_row_scales()>(pair, scales, group, j * 8);
      unrolled<kRowFragments, kOfLane>([&](int f, int c) {
        float factor = pair[c % 2];
        if constexpr (kFactors) factor *= kernel.low_bits.k_factor[f][c / 2];
        s[f][j][c] = is_first ? part[f][j][c] * factor : fmaf(part[f][j][c], factor, s[f][j][c]);
        if constexpr (C.kv_zero) s[f][j][c] = fmaf(zeros[c % 2], of_q[f][c / 2], s[f][j][c]);
      });
    }
  }
};

}  // namespace attnforge
