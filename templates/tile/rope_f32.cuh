// rope_f32.cuh - the rotary embedding (Su et al. 2021) of rows of an fp32 tile in shared memory, in
// place.
#pragma once

#include "base.cuh"
#include "params_fwd.h"
#include "ptx/shared_memory.cuh"
#include "tile/optional.cuh"
#include "tile/rope.cuh"

namespace attnforge {

/// Rows are kRowBytes apart, a multiple of 16. A thread takes four pairs of elements at a time: 32
/// bytes of the tile and 16 of each table; neighbours take neighbours.
template <int kRope, int kRopeDim, int kRowBytes>
struct RopeTileF32 : RopeRows {
  static constexpr int kPairs = kRopeDim / 2;  // of a row; also a row of the tables
  static constexpr int kQuads = kRopeDim / 8;  // of four pairs

  /// Rotates rows 0 to `rows`. By kThreads threads together, each with its own `thread`; the caller
  /// sees to barriers before and after. table_row(row) is the row of the tables that a row takes,
  /// negative for none.
  template <int kThreads, class TableRow>
  ATTNFORGE_DEVICE static void rotate(const RopeParams& p, u32 tile, int rows, int thread,
                                      const TableRow& table_row) {
#pragma unroll 1
    for (int i = thread; i < rows * kQuads; i += kThreads) {
      const int row = i / kQuads, quad = i % kQuads;
      const int at = table_row(row);
      if (at < 0) continue;
      const i64 begin = i64(at) * kPairs + quad * 4;
      const float4 cos = __ldg(reinterpret_cast<const float4*>(p.cos + begin));
      const float4 sin = __ldg(reinterpret_cast<const float4*>(p.sin + begin));
      const u32 first = tile + row * kRowBytes + quad * (kRope == kRopeInterleaved ? 32 : 16);
      rotate_quad(first, first + (kRope == kRopeInterleaved ? 16 : kPairs * 4), cos, sin);
    }
  }

 private:
  /// Four pairs in two chunks of 16 bytes: two pairs each, or the first of each pair, then the
  /// second.
  ATTNFORGE_DEVICE static void rotate_quad(u32 low, u32 high, float4 cos, float4 sin) {
    float a[4], b[4];
    load_shared_floats(a, low);
    load_shared_floats(b, high);
    if constexpr (kRope == kRopeInterleaved) {
      rotate_pair(a[0], a[1], cos.x, sin.x);
      rotate_pair(a[2], a[3], cos.y, sin.y);
      rotate_pair(b[0], b[1], cos.z, sin.z);
      rotate_pair(b[2], b[3], cos.w, sin.w);
    } else {
      rotate_pair(a[0], b[0], cos.x, sin.x);
      rotate_pair(a[1], b[1], cos.y, sin.y);
      rotate_pair(a[2], b[2], cos.z, sin.z);
      rotate_pair(a[3], b[3], cos.w, sin.w);
    }
    store_shared_floats(low, a);
    store_shared_floats(high, b);
  }
};

}  // namespace attnforge
