// low_bit_scales.cuh - what products of Q and K, and of P and V, of 8 or 4 bits have in common:
// which columns share a scale, and where scales and chunks lie for a lane.
#pragma once

#include "fwd_mma_sm80/config.h"
#include "ptx/shared_memory.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// Of a kernel: FwdMmaSm80.
template <class Kernel>
struct LowBits {
  static constexpr auto C = Kernel::kConfig;
  static constexpr int kRowFragments = Kernel::kRowFragments;
  static constexpr int kLaneRows = Kernel::kLaneRows;
  static constexpr int kKeyFragments = C.step_n / 8;
  static constexpr int kOfLane = 2 * kLaneRows;  // of a fragment
  using Scores = typename Kernel::Scores;
  static constexpr bool kOfRows = scales_of_rows(C);
  static constexpr bool kOneScale = C.kv_scale != kNoScale && !kOfRows;

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
  /// And their zero points, which lie after them: kScales a key together.
  template <int kScales>
  ATTNFORGE_DEVICE static void load_scales(float (&pair)[2], float (&zeros)[2], u32 scales,
                                           int group, int key) {
    const u32 at = scales + (key + Kernel::lane() % 4 * 2) * (kScales * 4);
    float both[2][2];
    if constexpr (kScales == 2) {
      float of_both[4];
      load_shared(of_both, at);
      unrolled<2, 2>([&](int i, int which) { both[i][which] = of_both[2 * i + which]; });
    } else {
      unrolled<2>([&](int i) { load_shared(both[i], at + (i * kScales + 2 * group) * 4); });
    }
    unrolled<2>([&](int i) { pair[i] = both[i][0], zeros[i] = both[i][1]; });
  }
  /// The scale that all keys of the tile have: of K, or of V.
  ATTNFORGE_DEVICE static float block_scale(const Kernel& kernel, const TensorRef& scales) {
    return static_cast<const float*>(scales.data)[kernel.tile.batch * scales.stride_batch +
                                                  kernel.tile.kv_head() * scales.stride_head];
  }
  ATTNFORGE_DEVICE static float power_of_2(int exponent) {
    return __int_as_float((127 + exponent) << 23);
  }
  /// Where chunk `chunk` of the rows from `rows` on lies for a lane.
  template <class Rows>
  ATTNFORGE_DEVICE static u32 at(const typename Rows::Fragment& fragment, u32 rows, int chunk) {
    if (Rows::kSwap == 1 || chunk % 2 == 0) return fragment.at(rows, chunk);
    return rows + (fragment.offsets[chunk % Rows::kSwap / 2] ^ 16) +
           chunk / Rows::kSwap * Rows::kSwap * 16;
  }
};

}  // namespace attnforge
