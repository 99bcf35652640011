// low_bits.cuh - K and V of 8 or 4 bits in fwd_mma_sm80: they lie in shared memory as in global
// memory, and each lane widens what ldmatrix gives it. A word of K is of one key, of columns next
// to one another: Q's columns take that order once. One of V, transposed in units of 16 bits, is of
// two keys: the columns of the output come in another order, and take their own when all is done.
// Scales of rows multiply scores after the product, and probabilities before theirs: groups of
// columns have sums of their own.
#pragma once

#include "fwd_mma_sm80/config.h"
#include "fwd_mma_sm80/kernel.cuh"
#include "pieces/scaled_keys.cuh"
#include "ptx/convert.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/shuffle.cuh"
#include "tile/store_rows.cuh"
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
  using K = typename Of<C.dtype_k, C.k_row_scales(), C.k_code_bytes(), false>::Type;
  using V = typename Of<C.dtype_v, C.v_row_scales(), C.v_code_bytes(), true>::Type;
};

template <>
struct LowBitState<true> {
  float q_factor = 1.0f;  // by which scores of Q as it lies in shared memory are multiplied
  float v_factor = __int_as_float(0x7f800000);  // by which scales of V are, before all else
};

template <class Kernel>
struct LowBitProducts {
  static constexpr auto C = Kernel::kConfig;
  static constexpr int kRowFragments = Kernel::kRowFragments;
  static constexpr int kKeyFragments = C.step_n / 8;
  static constexpr int kOfLane = 2 * Kernel::kLaneRows;  // of a fragment
  using Scores = typename Kernel::Scores;
  static constexpr bool kOfRows = C.scales_of_rows();
  static constexpr bool kNormalises = C.v_row_scales() > 0;

  /// A group of a warp's columns that share a scale: as many as there are chunks in it.
  struct Groups {
    int chunks;    // of a warp
    int of_group;  // chunks
    int columns;   // of a chunk
    int scales;    // of a row, of all warps
    ATTNFORGE_CONSTEXPR int count() const { return ceil_div(chunks, of_group); }
  };
  ATTNFORGE_CONSTEXPR static Groups groups_of(int dtype, int chunks, int dim) {
    const int columns = C.columns_of_chunk(dtype), scales = kOfRows ? C.row_scales(dim) : 1;
    const int of_group = scales == 1 ? chunks : C.scale_group(dim) / columns;
    return {chunks, of_group < chunks ? of_group : chunks, columns, scales};
  }
  static constexpr Groups kK = groups_of(C.dtype_k, C.k_chunks() / C.head_dim_warps, C.head_dim);
  static constexpr Groups kV = groups_of(C.dtype_v, C.v_chunks() / C.head_dim_warps, C.head_dim_v);

  /// Scales, of K or V, of the two keys that a lane has of a fragment, of group `group` of its
  /// warp's columns; `scales` is the address of the step's first one.
  template <bool kOfV>
  ATTNFORGE_DEVICE static void load_scales(float (&pair)[2], u32 scales, int group, int key) {
    constexpr Groups kGroups = kOfV ? kV : kK;
    int of_row = group;
    if constexpr (kGroups.scales > 1 && C.head_dim_warps > 1)
      of_row = min(Kernel::depth_slice() * kGroups.count() + group, kGroups.scales - 1);
    load_shared(pair, scales + (of_row * C.block_n + key + Kernel::lane() % 4 * 2) * 4);
  }

  // ---- Q K^T ----

  /// The columns of a chunk of K are, in the order of products: of 8 bits 4 t and 4 t + 2, then
  /// 4 t + 1 and 4 t + 3 for t from 0 to 3; of 4 bits 8 t + i and 8 t + 4 + i, for i from 0 to 3.
  ATTNFORGE_DEVICE static void order_q(Kernel& kernel, int thread) {
    constexpr int kChunks = C.dtype_k == kInt4 ? 4 : 2;  // of Q for one of K
    using Rows = typename Kernel::QkRows;
    const u32 q = kernel.smem;
    float factor = 1.0f;
    if constexpr (kConverts) {
      const int exponent = exponent_of_q(q, thread);
      factor = power_of_2(exponent);
      kernel.low_bits.q_factor = power_of_2(-exponent);
      __syncthreads();  // all have seen Q as it was
    }
    for (int i = thread; i < C.block_m * (C.qk_chunks() / kChunks); i += C.num_threads()) {
      const int row = i / (C.qk_chunks() / kChunks),
                first = i % (C.qk_chunks() / kChunks) * kChunks;
      u32 from[kChunks * 4];
      unrolled<kChunks>([&](int c) {
        u32 words[4];
        load_shared_16(words, q + Rows::offset(row, first + c));
        unrolled<4>(
            [&](int w) { from[c * 4 + w] = kConverts ? as_fp16(words[w], factor) : words[w]; });
      });
      unrolled<kChunks>([&](int c) {
        u32 words[4];
        const u32 halves = c % 2 == 0 ? 0x5410 : 0x7632;
        unrolled<4>([&](int t) {
          const int at = t * kChunks + c / 2;  // a pair of columns, and that with the other half
          words[t] = __byte_perm(from[at], from[at + kChunks / 2], halves);
        });
        store_shared_16(q + Rows::offset(row, first + c), words);
      });
    }
  }

  /// Q of bf16 becomes fp16 where K does, times a power of two that brings the block's largest
  /// finite number to 2^14 and more: what fp16 does not hold then is too small to matter beside it.
  static constexpr bool kConverts = C.dtype != kFp16;
  ATTNFORGE_DEVICE static float power_of_2(int exponent) {
    return __int_as_float((127 + exponent) << 23);
  }
  ATTNFORGE_DEVICE static u32 as_fp16(u32 pair, float factor) {
    float low, high;
    unpack2<kBf16>(pair, low, high);
    return pack2<kFp16>(low * factor, high * factor);
  }
  /// Each warp looks at all of Q.
  ATTNFORGE_DEVICE static int exponent_of_q(u32 q, int thread) {
    constexpr u32 kInfinity = 0x7f80;
    u32 most = 0;
    for (int i = thread % 32; i < C.block_m * C.qk_chunks(); i += 32) {
      u32 words[4];
      load_shared_16(words, q + Kernel::QkRows::offset(i / C.qk_chunks(), i % C.qk_chunks()));
      unrolled<4, 2>([&](int w, int half) {
        const u32 magnitude = words[w] >> 16 * half & 0x7fffu;
        most = magnitude < kInfinity ? max(most, magnitude) : most;
      });
    }
    const int exponent = 127 + 14 - int(u32(__reduce_max_sync(~0u, int(most))) >> 7);
    return min(exponent, 100);
  }

  /// Where chunk `chunk` of the rows from `rows` on lies for a lane.
  template <class Rows>
  ATTNFORGE_DEVICE static u32 at(const typename Rows::Fragment& fragment, u32 rows, int chunk) {
    if (Rows::kSwap == 1 || chunk % 2 == 0) return fragment.at(rows, chunk);
    return rows + (fragment.offsets[chunk % Rows::kSwap / 2] ^ 16) +
           chunk / Rows::kSwap * Rows::kSwap * 16;
  }

  /// Sums of a step over the chunks of K from `first` on.
  ATTNFORGE_DEVICE static void sums(Kernel& kernel, Scores& s, u32 rows, int first, int chunks) {
    constexpr int kSteps = Widen<C.dtype_k>::kPairs / 2;  // of 16 columns in a chunk
#pragma unroll
    for (int c = first; c < first + chunks; ++c) {
      u32 q[kSteps][kRowFragments][4];
      unrolled<kSteps, kRowFragments>([&](int d, int f) {
        const int step = c * kSteps + d;
        if constexpr (C.q_in_regs == 0)
          ldmatrix_x4(q[d][f], kernel.q_fragment.at(
                                   kernel.smem + f * 16 * Kernel::QkRows::kRowBytes, 2 * step));
        else
          unrolled<4>([&](int w) { q[d][f][w] = kernel.q[f][step][w]; });
      });
      // 32 keys at a time, or the last 16.
#pragma unroll
      for (int j = 0; j < kKeyFragments; j += 4) {
        u32 words[4];
        const u32 from = at<typename Kernel::KRows>(kernel.k_fragment,
                                                    rows + j * 8 * Kernel::KRows::kRowBytes, c);
        const bool four = j + 4 <= kKeyFragments;
        if (four)
          ldmatrix_x4(words, from);
        else
          ldmatrix_x2(words[0], words[1], from);
#pragma unroll
        for (int i = 0; i < 4 && j + i < kKeyFragments; ++i) {
          u32 k[2 * kSteps];
          Widen<C.dtype_k>::run(words[i], k);
          unrolled<kSteps, kRowFragments>([&](int d, int f) {
            if (c == first && d == 0)
              mma_m16n8k16_zero<kFp16>(s[f][j + i], q[d][f], k[2 * d], k[2 * d + 1]);
            else
              mma_m16n8k16<kFp16>(s[f][j + i], q[d][f], k[2 * d], k[2 * d + 1]);
          });
        }
      }
    }
  }

  ATTNFORGE_DEVICE static void scores(Kernel& kernel, Scores& s, u32 tile, int step) {
    const u32 rows = tile + step * C.step_n * Kernel::KRows::kRowBytes;
    const u32 scales = tile + C.k_code_bytes() + step * C.step_n * 4;
    if constexpr (kK.count() == 1) {
      sums(kernel, s, rows, 0, kK.chunks);
      scale_scores<true>(s, s, scales, 0, kernel);
    } else {
#pragma unroll
      for (int g = 0; g < kK.count(); ++g) {
        Scores part;
        const int first = g * kK.of_group;
        sums(kernel, part, rows, first,
             kK.of_group < kK.chunks - first ? kK.of_group : kK.chunks - first);
        if (g == 0)
          scale_scores<true>(s, part, scales, g, kernel);
        else
          scale_scores<false>(s, part, scales, g, kernel);
      }
    }
  }
  /// s = part times its scales, or that is added to it.
  template <bool kFirst>
  ATTNFORGE_DEVICE static void scale_scores(Scores& s, const Scores& part, u32 scales, int group,
                                            const Kernel& kernel) {
    if constexpr (C.kv_scale == kNoScale && !kConverts) return;
    float of_all = kConverts ? kernel.low_bits.q_factor : 1.0f;
    if constexpr (C.kv_scale != kNoScale && !kOfRows) of_all *= block_scale<false>(kernel);
#pragma unroll
    for (int j = 0; j < kKeyFragments; ++j) {
      float pair[2] = {of_all, of_all};
      if constexpr (kOfRows) {
        load_scales<false>(pair, scales, group, j * 8);
        if constexpr (kConverts) pair[0] *= of_all, pair[1] *= of_all;
      }
      unrolled<kRowFragments, kOfLane>([&](int f, int c) {
        s[f][j][c] = kFirst ? part[f][j][c] * pair[c % 2]
                            : fmaf(part[f][j][c], pair[c % 2], s[f][j][c]);
      });
    }
  }
  /// The scale that all keys of the tile have: of K, or of V.
  template <bool kOfV>
  ATTNFORGE_DEVICE static float block_scale(const Kernel& kernel) {
    const auto& all = kernel.params.scales;
    const TensorRef& scales = kOfV ? all.v : all.k;
    return static_cast<const float*>(scales.data)[kernel.tile.batch * scales.stride_batch +
                                                  kernel.tile.kv_head() * scales.stride_head];
  }

  // ---- P V ----

  /// o += P V over the chunks of V from `first` on, of 16 keys.
  ATTNFORGE_DEVICE static void add(Kernel& kernel, const u32 (&a)[kRowFragments][4], u32 rows,
                                   int first, int chunks) {
    using Widened = Widen<C.dtype_v>;
#pragma unroll
    for (int c = first; c < first + chunks; c += 2) {
      u32 words[4];
      const bool two = c + 2 <= first + chunks;
      const u32 from = at<typename Kernel::VRows>(kernel.v_fragment, rows, c);
      if (two)
        ldmatrix_x4_trans(words, from);
      else
        ldmatrix_x2_trans(words[0], words[1], from);
#pragma unroll
      for (int i = 0; i < (two ? 2 : 1); ++i) {
        u32 low[Widened::kPairs], high[Widened::kPairs];
        Widened::run(words[2 * i], low);
        Widened::run(words[2 * i + 1], high);
        unrolled<Widened::kPairs, kRowFragments>([&](int n, int f) {
          mma_m16n8k16<kFp16>(kernel.o[f][(c + i) * Widened::kPairs + n], a[f], low[n], high[n]);
        });
      }
    }
  }

  ATTNFORGE_DEVICE static void outputs(Kernel& kernel, const Scores& s, u32 tile, int step) {
    const u32 rows = tile + step * C.step_n * Kernel::VRows::kRowBytes;
    const u32 scales = tile + C.v_code_bytes() + step * C.step_n * 4;
    if constexpr (kNormalises) raise_v(kernel, scales);
    const float of_scales = kNormalises ? kernel.low_bits.v_factor : 1.0f;
#pragma unroll
    for (int j = 0; j < kKeyFragments; j += 2) {
#pragma unroll
      for (int g = 0; g < kV.count(); ++g) {
        float of[2][2] = {{1.0f, 1.0f}, {1.0f, 1.0f}};
        if constexpr (kOfRows)
          unrolled<2>([&](int i) {
            load_scales<true>(of[i], scales, g, (j + i) * 8);
            if constexpr (kNormalises) of[i][0] *= of_scales, of[i][1] *= of_scales;
          });
        u32 a[kRowFragments][4];
        unrolled<kRowFragments, 4>([&](int f, int w) {
          if (w % 2 == 1 && Kernel::kLaneRows == 1) {
            a[f][w] = 0;
            return;
          }
          const auto& from = s[f][j + w / 2];
          const float p = from[w % 2 * 2], next = from[w % 2 * 2 + 1];
          a[f][w] = kOfRows ? pack2<kFp16>(p * of[w / 2][0], next * of[w / 2][1])
                            : pack2<kFp16>(p, next);
        });
        const int first = g * kV.of_group, left = kV.chunks - first;
        add(kernel, a, rows + j * 8 * Kernel::VRows::kRowBytes, first,
            kV.of_group < left ? kV.of_group : left);
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
#pragma unroll
    for (int g = 0; g < kV.scales; ++g)
#pragma unroll
      for (int key = 0; key < C.step_n; key += 32) {
        const int own = key + Kernel::lane();
        float scale[1] = {0.0f};
        if (C.step_n % 32 == 0 || own < C.step_n)
          load_shared(scale, scales + (g * C.block_n + own) * 4);
        most = fmaxf(most, fabsf(scale[0]));
      }
    if (!any_lane(!(most * factor <= kMost))) return;
    const int largest = __reduce_max_sync(~0u, __float_as_int(most));
    const float lower = power_of_2(127 - min(max(largest >> 23, 1), 253));
    const float change = lower / factor;  // 0 at first, as the output is
    unrolled<kRowFragments, Kernel::kOutFragments, kOfLane>(
        [&](int f, int i, int c) { kernel.o[f][i][c] *= change; });
    factor = lower;
  }

  // ---- The columns of the output ----

  /// A quad's lane t has numbers 2 t and 2 t + 1 of eight, and is to have t and 4 + t: two
  /// exchanges, of the number whose place in the lane is not that of the lane in a pair.
  ATTNFORGE_DEVICE static void exchange(float (&pair)[2], int t) {
    const auto swap = [&](bool first, float other) {
      if (first)
        pair[0] = other;
      else
        pair[1] = other;
    };
    const bool odd = t & 1, high = t & 2;
    swap(odd, shuffle_xor<1>(odd ? pair[0] : pair[1]));
    swap(high, shuffle_xor<2>(high ? pair[0] : pair[1]));
  }
  /// A row's half of the fragments of a chunk: lane t has all columns of a quarter of it, and is to
  /// have columns 2 t and 2 t + 1 of each fragment. Even and odd ones go alike.
  ATTNFORGE_DEVICE static void order_chunk(float (*o)[4], int half, int t) {
    constexpr int kFragments = Widen<C.dtype_v>::kPairs;
    const int at = 2 * half;
    if constexpr (kFragments == 2) {
      float even[2] = {o[0][at], o[0][at + 1]}, odd[2] = {o[1][at], o[1][at + 1]};
      exchange(even, t);
      exchange(odd, t);
      unrolled<2>([&](int i) { o[i][at] = even[i], o[i][at + 1] = odd[i]; });
    } else {
      const auto bits = [&](int i, int c) { return __float_as_uint(o[i][at + c]); };
      u32 even[4] = {bits(0, 0), bits(2, 0), bits(0, 1), bits(2, 1)},
          odd[4] = {bits(1, 0), bits(3, 0), bits(1, 1), bits(3, 1)};
      quad_transpose(even, t);
      quad_transpose(odd, t);
      unrolled<4>([&](int i) {
        o[i][at] = __uint_as_float(even[i]), o[i][at + 1] = __uint_as_float(odd[i]);
      });
    }
  }

  ATTNFORGE_DEVICE static void store(Kernel& kernel) {
    constexpr int kFragments = Widen<C.dtype_v>::kPairs, kMost = Kernel::kOutFragments;
    const int t = Kernel::lane() % 4;
    unrolled<kRowFragments, kMost / kFragments>([&](int f, int chunk) {
      unrolled<Kernel::kLaneRows>(
          [&](int half) { order_chunk(&kernel.o[f][chunk * kFragments], half, t); });
    });
    constexpr bool kOfBlock = C.kv_scale != kNoScale && !kOfRows;
    constexpr bool kFactor = kOfBlock || kNormalises;
    float factor = 1.0f;
    if constexpr (kOfBlock) factor = block_scale<true>(kernel);
    if constexpr (kNormalises) factor = 1.0f / kernel.low_bits.v_factor;
    constexpr int kAll = C.head_dim_v / 8, kFirst = kMost < kAll ? kMost : kAll;
    if (C.head_dim_warps == 1 || Kernel::depth_slice() == 0)
      kernel.template store_columns<kFirst, kFactor>(factor);
    else if constexpr (kAll > kMost)
      kernel.template store_columns<kAll - kMost, kFactor>(factor);
  }
};

}  // namespace attnforge
