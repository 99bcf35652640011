// low_bits.cuh - K and V of 8 or 4 bits in fwd_mma_sm80: they lie in shared memory as in global
// memory, and each lane takes what ldmatrix gives it. A word of K is of one key, of columns next to
// one another: Q's columns take that order once. Integers of K are factors of int8 products as they
// are: Q becomes two digits of 8 bits. Other numbers are widened to fp16. A word of V, transposed
// in units of 16 bits, is of two keys, and the first factor of its products, P the second: the
// output has columns as rows until it is stored. Scales of rows multiply scores after the product,
// and probabilities before theirs: groups of columns have sums of their own.
#pragma once

#include "fwd_mma_sm80/block_loader.cuh"
#include "fwd_mma_sm80/config.h"
#include "fwd_mma_sm80/kernel.cuh"
#include "pieces/scaled_keys.cuh"
#include "ptx/convert.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/shuffle.cuh"
#include "tile/swizzle.cuh"
#include "tile/unrolled.cuh"
#include "tile/widen.cuh"

namespace attnforge {

/// Keys of K and of V, each with its scales where rows have some.
template <auto C, class Pieces>
struct LowBitKeys {
  template <int kDtype, int kScales, int kBegin, bool kOfV>
  struct Of {
    using Type = ScaledKeys<typename Pieces::template Keys<kDtype>,
                            typename Pieces::template Keys<kFp32>,
                            ScaleLoader<C.block_n, kScales, C.num_threads()>, kBegin, kOfV>;
  };
  template <int kDtype, int kBegin, bool kOfV>
  struct Of<kDtype, 0, kBegin, kOfV> {
    using Type = typename Pieces::template Keys<kDtype>;
  };
  /// Scales in a tensor of their own.
  ATTNFORGE_CONSTEXPR static int apart(int dtype, int scales) {
    return is_blocks(dtype) ? 0 : scales;
  }
  using K = typename Of<C.dtype_k, apart(C.dtype_k, C.k_row_scales()), C.k_code_bytes(),
                        false>::Type;
  using V = typename Of<C.dtype_v, apart(C.dtype_v, C.v_row_scales()), C.v_code_bytes(),
                        true>::Type;

  template <class Plain, int kDtype, int kColumns, int kPitch, int kScalesBegin>
  struct LoaderOf {
    using Type = Plain;
  };
  template <class Plain, int kDtype, int kColumns, int kPitch, int kScalesBegin>
  requires(is_blocks(kDtype)) struct LoaderOf<Plain, kDtype, kColumns, kPitch, kScalesBegin> {
    using Type = BlockLoader<kDtype, C.block_n, kColumns, kPitch, C.num_threads(), kScalesBegin>;
  };
  template <class Plain>
  using KLoader = typename LoaderOf<Plain, C.dtype_k, C.head_dim, C.k_pitch(),
                                    C.k_code_bytes()>::Type;
  template <class Plain>
  using VLoader = typename LoaderOf<Plain, C.dtype_v, C.head_dim_v, C.v_pitch(),
                                    C.v_code_bytes()>::Type;
};

template <auto C>
struct LowBitState<C, true> {
  float k_factor[C.row_fragments()][2];         // of scores of a lane's rows, before scales of keys
  float v_factor = __int_as_float(0x7f800000);  // of scales of V, before all else
};

template <class Kernel>
struct LowBitProducts {
  static constexpr auto C = Kernel::kConfig;
  static constexpr int kRowFragments = Kernel::kRowFragments;
  static constexpr int kLaneRows = Kernel::kLaneRows;
  static constexpr int kKeyFragments = C.step_n / 8;
  static constexpr int kOfLane = 2 * kLaneRows;  // of a fragment
  using Scores = typename Kernel::Scores;
  using Output = float[Kernel::kOutFragments][4];
  static constexpr bool kOfRows = scales_of_rows(C);
  static constexpr bool kOneScale = C.kv_scale != kNoScale && !kOfRows;
  static constexpr bool kNormalises = C.v_row_scales() > 0;
  static constexpr int kCodeK = code_of(C.dtype_k), kCodeV = code_of(C.dtype_v);
  static constexpr bool kIntegersK = is_integer(C.dtype_k), kIntegersV = is_integer(C.dtype_v);
  /// Q of bf16 becomes fp16 where K does.
  static constexpr bool kConverts = !kIntegersK && C.dtype != kFp16;
  static constexpr bool kFactors = kIntegersK || kConverts || kOneScale;

  /// A group of columns that share a scale: as many as there are chunks in it.
  struct Groups {
    int chunks;    // of a row
    int of_group;  // chunks
    ATTNFORGE_CONSTEXPR int count() const { return ceil_div(chunks, of_group); }
  };
  ATTNFORGE_CONSTEXPR static Groups groups_of(int dtype, int chunks, int dim) {
    const bool one = !kOfRows || row_scales(C, dim) == 1;
    const int of_group = one ? chunks : scale_group(C, dim) / C.columns_of_chunk(dtype);
    return {chunks, of_group < chunks ? of_group : chunks};
  }
  static constexpr Groups kK = groups_of(C.dtype_k, C.k_chunks(), C.head_dim);
  static constexpr Groups kV = groups_of(C.dtype_v, C.v_chunks(), C.head_dim_v);

  /// Scales, kScales a key, of the two keys that a lane has of a fragment, of group `group` of the
  /// columns; `scales` is the address of the step's first one.
  template <int kScales>
  ATTNFORGE_DEVICE static void load_scales(float (&pair)[2], u32 scales, int group, int key) {
    const u32 at = scales + (key + Kernel::lane() % 4 * 2) * (kScales * 4);
    if constexpr (kScales == 1) {
      load_shared(pair, at);
    } else if constexpr (kScales == 2) {
      float of_both[4];
      load_shared(of_both, at);
      pair[0] = of_both[group], pair[1] = of_both[2 + group];
    } else {
      unrolled<2>([&](int i) {
        float one[1];
        load_shared(one, at + (i * kScales + group) * 4);
        pair[i] = one[0];
      });
    }
  }
  /// The scale that all keys of the tile have: of K, or of V.
  ATTNFORGE_DEVICE static float block_scale(const Kernel& kernel, const TensorRef& scales) {
    return static_cast<const float*>(scales.data)[kernel.tile.batch * scales.stride_batch +
                                                  kernel.tile.kv_head() * scales.stride_head];
  }
  ATTNFORGE_DEVICE static float power_of_2(int exponent) {
    return __int_as_float((127 + exponent) << 23);
  }

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
    if constexpr (kOneScale) scale = block_scale(kernel, kernel.params.scales.k);
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

  /// Where chunk `chunk` of the rows from `rows` on lies for a lane.
  template <class Rows>
  ATTNFORGE_DEVICE static u32 at(const typename Rows::Fragment& fragment, u32 rows, int chunk) {
    if (Rows::kSwap == 1 || chunk % 2 == 0) return fragment.at(rows, chunk);
    return rows + (fragment.offsets[chunk % Rows::kSwap / 2] ^ 16) +
           chunk / Rows::kSwap * Rows::kSwap * 16;
  }
  /// A chunk of 32 keys from key fragment j on, or of the last 16.
  ATTNFORGE_DEVICE static void load_keys(u32 (&words)[4], const Kernel& kernel, u32 rows, int j,
                                         int chunk) {
    using Rows = typename Kernel::KRows;
    const u32 from = at<Rows>(kernel.k_fragment, rows + j * 8 * Rows::kRowBytes, chunk);
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
  /// s = part times its factors, or that is added to it.
  ATTNFORGE_DEVICE static void add_scaled(Scores& s, const Scores& part, bool is_first, u32 scales,
                                          int group, const Kernel& kernel) {
#pragma unroll
    for (int j = 0; j < kKeyFragments; ++j) {
      float pair[2] = {1.0f, 1.0f};
      if constexpr (kOfRows) load_scales<C.k_row_scales()>(pair, scales, group, j * 8);
      unrolled<kRowFragments, kOfLane>([&](int f, int c) {
        float factor = pair[c % 2];
        if constexpr (kFactors) factor *= kernel.low_bits.k_factor[f][c / 2];
        s[f][j][c] = is_first ? part[f][j][c] * factor : fmaf(part[f][j][c], factor, s[f][j][c]);
      });
    }
  }

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
          multiply(kernel, (c + i) * (Widened::kPairs / 2) + m,
                   {low[2 * m], low[2 * m + 1], high[2 * m], high[2 * m + 1]}, p);
        });
      }
    }
  }
  ATTNFORGE_DEVICE static void multiply(Kernel& kernel, int fragment, const u32 (&v)[4],
                                        const u32 (&p)[kRowFragments][4]) {
    unrolled<kRowFragments, kLaneRows>([&](int f, int r) {
      mma_m16n8k16<kFp16>(kernel.o[f][fragment * kLaneRows + r], v, p[f][r], p[f][2 + r]);
    });
  }
  /// Where a lane reads 16 keys: of one chunk, or of the next one too.
  ATTNFORGE_DEVICE static u32 rows_of_v(const Kernel& kernel, u32 rows, int chunk) {
    return at<typename Kernel::VRows>(kernel.v_fragment, rows, chunk);
  }

  ATTNFORGE_DEVICE static void outputs(Kernel& kernel, const Scores& s, u32 tile, int step) {
    const u32 rows = tile + step * C.step_n * Kernel::VRows::kRowBytes;
    const u32 scales = tile + C.v_code_bytes() + step * C.step_n * C.v_row_scales() * 4;
    if constexpr (kNormalises) raise_v(kernel, scales);
    const float of_scales = kNormalises ? kernel.low_bits.v_factor : 1.0f;
#pragma unroll
    for (int j = 0; j < kKeyFragments; j += 2) {
#pragma unroll
      for (int g = 0; g < kV.count(); ++g) {
        float of[2][2] = {{1.0f, 1.0f}, {1.0f, 1.0f}};
        if constexpr (kOfRows)
          unrolled<2>([&](int i) {
            load_scales<C.v_row_scales()>(of[i], scales, g, (j + i) * 8);
            of[i][0] *= of_scales, of[i][1] *= of_scales;
          });
        u32 p[kRowFragments][4];
        unrolled<kRowFragments, 2, kLaneRows>([&](int f, int i, int r) {
          const float(&from)[4] = s[f][j + i];
          p[f][2 * i + r] = kOfRows
                                ? pack2<kFp16>(from[2 * r] * of[i][0], from[2 * r + 1] * of[i][1])
                                : pack2<kFp16>(from[2 * r], from[2 * r + 1]);
        });
        const int first = g * kV.of_group, left = kV.chunks - first;
        add(kernel, p, rows + j * 8 * Kernel::VRows::kRowBytes, first,
            kV.of_group < left ? kV.of_group : left);
        if constexpr (kIntegersV) {
          constexpr u32 kOffset = Widen<kCodeV>::kMinusOffset;
          if constexpr (kGroupsAreRows) {
            const u32 own = Kernel::lane() / 4 == g % 8 ? kOffset : 0;
            const u32 upper = g < 8 ? own : 0, lower = g < 8 ? 0 : own;
            multiply(kernel, C.code_fragments(), {upper, lower, upper, lower}, p);
          } else {
            multiply(kernel, C.code_fragments() + g, {kOffset, kOffset, kOffset, kOffset}, p);
          }
        }
      }
    }
  }

  /// Scales times v_factor are at most 2^7, so that P of up to 2^8 times one is some of fp16. The
  /// first tile's largest becomes 1 to 2; where a later one is too large for that, the factor
  /// falls, and the output with it.
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
    const float lower = power_of_2(127 - min(max(largest >> 23, 1), 253));
    const float change = lower / factor;  // 0 at first, as the output is
    unrolled<kRowFragments, Kernel::kOutFragments, 4>(
        [&](int f, int i, int c) { kernel.o[f][i][c] *= change; });
    factor = lower;
  }

  /// Whether the offsets of groups are the rows of one fragment.
  static constexpr bool kGroupsAreRows = C.offset_groups() > C.offset_fragments();
  static_assert(C.offset_groups() <= 16, "a fragment has 16 rows");
  /// What is to be added to the two numbers of a column that a lane has of 8 rows.
  ATTNFORGE_DEVICE static void load_offsets(float (&offsets)[kV.count()][2], const Output& o,
                                            int r) {
    unrolled<kV.count(), 2>([&](int g, int c) {
      if constexpr (kGroupsAreRows)
        offsets[g][c] = from_lane(o[C.code_fragments() * kLaneRows + r][g / 8 * 2 + c],
                                  g % 8 * 4 + Kernel::lane() % 4);
      else
        offsets[g][c] = o[(C.code_fragments() + g) * kLaneRows + r][c];
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
    float of[2], offsets[kV.count()][2];
    of_columns(of, factor);
    if constexpr (kIntegersV) load_offsets(offsets, o, r);
    unrolled<C.code_fragments()>([&](int m) {
      const int chunk = m * 16 / C.columns_of_chunk(C.dtype_v);
      float x[4];
      unrolled<4>([&](int c) {
        x[c] = o[m * kLaneRows + r][c];
        if constexpr (kIntegersV) {
          const float offset = offsets[chunk / kV.of_group][c % 2];
          if (kCodeV == kInt4 && c >= 2)
            x[c] = fmaf(x[c], 0.0625f, offset);
          else
            x[c] += offset;
        }
        x[c] *= of[c % 2];
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
    if constexpr (kOneScale) of_all *= block_scale(kernel, kernel.params.scales.v);
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
