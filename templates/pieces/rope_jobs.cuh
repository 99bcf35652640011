// rope_jobs.cuh - jobs that rotate tiles of K, and rows of Q, where TMA has put them (Su et al.
// 2021): in place, in fp32, rounded to the tile's dtype. For a kernel that is to do without a step
// of its own for the rotary embedding, and without its memory.
#pragma once

#include "base.cuh"
#include "parts/rope/params.h"
#include "parts/rope/rotate_pair.cuh"
#include "ptx/convert.cuh"
#include "ptx/prefetch.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/special_registers.cuh"
#include "shape.h"
#include "tile/swizzle.cuh"

namespace attnforge {

/// Which row of the tables a row of a tile takes; -1 after the sequence's end. The tile begins
/// with key first_key.
struct KeyTurns {
  int first_key, seqlen_kv, offset;

  ATTNFORGE_DEVICE KeyTurns(int seqlen, const RopeParams& rope, int first)
      : first_key(first), seqlen_kv(seqlen), offset(rope.k_offset) {}
  ATTNFORGE_DEVICE int operator()(int row) const {
    return first_key + row < seqlen_kv ? offset + first_key + row : -1;
  }
};

/// The same for queries. The tile begins with row first_row of a head's, of which kPackGqa are one
/// query.
template <int kPackGqa>
struct QueryTurns {
  int first_row, seqlen_q, offset;

  ATTNFORGE_DEVICE QueryTurns(int seqlen, const RopeParams& rope, int first)
      : first_row(first), seqlen_q(seqlen), offset(rope.q_offset) {}
  ATTNFORGE_DEVICE int operator()(int row) const {
    const int query = (first_row + row) / kPackGqa;
    return query < seqlen_q ? offset + query : -1;
  }
};

/// The rows of the tables that a tile of K takes, which begins with key `first` of a sequence of
/// `seqlen`, and one of Q, which begins with row `first` of a head's.
struct RopeRows {
  ATTNFORGE_DEVICE static KeyTurns keys(int seqlen, const RopeParams& rope, int first) {
    return KeyTurns(seqlen, rope, first);
  }
  template <int kPackGqa>
  ATTNFORGE_DEVICE static QueryTurns<kPackGqa> queries(int seqlen, const RopeParams& rope,
                                                       int first) {
    return QueryTurns<kPackGqa>(seqlen, rope, first);
  }
};

/// Layout says where a 16-byte chunk of a row lies, and that rows 8 apart are 8 * kRowBytes apart
/// (tile/swizzle.cuh). A warp takes 8 rows at a time, four lanes a row, and a lane four pairs of
/// elements at a time: 16 bytes of the tile, and 16 of each table. It reads kInFlight of them from
/// the tables at a time, and with kAhead asks for those of its next rows meanwhile.
template <int kDtype, int kRope, int kRopeDim, class Layout, int kInFlight, bool kAhead>
struct RopeTile : RopeRows {
  static constexpr int kPairs = kRopeDim / 2;  // of a row; also a row of the tables
  static constexpr int kQuads = kRopeDim / 8;  // of four pairs
  static constexpr int kSteps = ceil_div(kQuads, 4);
  static constexpr int kBatch = kSteps < kInFlight ? kSteps : kInFlight;
  static constexpr int kLanesPerChunk = kRope == kRopeInterleaved ? 1 : 2;

  /// The row of a group of 8 that a lane works on. Where rows lie a multiple of 128 bytes apart,
  /// the lanes that access memory together take rows whose swizzled chunks are in different banks.
  ATTNFORGE_DEVICE static int lane_row() {
    const int i = thread_index() % 32 / 4;
    return Layout::kRowBytes % 128 == 0 ? i % 2 * 4 + i / 2 % 2 * 2 + i / 4 : i;
  }

  /// The rows of the tables that rotate() will read, to L1: it does not wait long for them then.
  template <class TableRow>
  ATTNFORGE_DEVICE static void prefetch(const RopeParams& p, int first_row, int end_row,
                                        int row_step, const TableRow& table_row) {
#pragma unroll 1
    for (int r = first_row; r < end_row; r += row_step) prefetch_rows(p, table_row(r + lane_row()));
  }

  /// Rotates rows `first_row` + i * `row_step`, i = 0, 1, ..., up to `end_row`, and the 7 after
  /// each; all three are multiples of 8. By one warp; the caller sees to barriers before and after.
  /// table_row(row) is the row of the tables that a row takes, negative for none.
  template <class TableRow>
  ATTNFORGE_DEVICE static void rotate(const RopeParams& p, u32 tile, int first_row, int end_row,
                                      int row_step, const TableRow& table_row) {
    const int quad = thread_index() % 4;
#pragma unroll 1
    for (int r = first_row; r < end_row; r += row_step) {
      const int row = lane_row();
      const int at = table_row(r + row);
      if (kAhead && r + row_step < end_row) prefetch_rows(p, table_row(r + row_step + row));
      if (at < 0) continue;
      const i64 begin = i64(at) * kPairs + quad * 4;
      const u32 rows = tile + r * Layout::kRowBytes;
      const Place place{rows + Layout::offset(row, quad / kLanesPerChunk), rows, row, quad};
#pragma unroll
      for (int step = 0; step < kSteps; step += kBatch)
        rotate_batch(p.cos + begin, p.sin + begin, place, step);
    }
  }

 private:
  /// This lane's share of a row of both tables: 128 bytes of one.
  ATTNFORGE_DEVICE static void prefetch_rows(const RopeParams& p, int at) {
    const int quad = thread_index() % 4;
    const float* table = quad < 2 ? p.cos : p.sin;
#pragma unroll
    for (int i = 0; i < kPairs; i += 64) {
      const int column = i + quad % 2 * 32;
      if (at >= 0 && column < kPairs) prefetch_l1(table + i64(at) * kPairs + column);
    }
  }

  /// A lane's part of a row: four pairs at a time, every fourth time.
  struct Place {
    u32 first;  // address of its first chunk
    u32 rows;   // of the group of 8 rows
    int row;    // in the group
    int quad;   // of its first four pairs

    ATTNFORGE_DEVICE bool has(int step) const {
      return step < kSteps && (kQuads % 4 == 0 || step * 4 + quad < kQuads);
    }
    /// kRopeInterleaved: of the 8 elements of a step.
    ATTNFORGE_DEVICE u32 pairs(int step) const { return Layout::further(first, step * 4); }
    /// kRopeHalf: of the first four elements of a step's pairs.
    ATTNFORGE_DEVICE u32 x(int step) const {
      return Layout::further(first, step * 2) + quad % 2 * 8;
    }
    /// And of the second four.
    ATTNFORGE_DEVICE u32 y(int step) const {
      if constexpr (kQuads % 4 == 0) {
        return Layout::further(first, step * 2 + kQuads / 2) + quad % 2 * 8;
      } else {
        const int index = step * 4 + quad + kQuads;
        return rows + Layout::offset(row, index / 2) + index % 2 * 8;
      }
    }
  };

  /// Steps first_step to first_step + kBatch - 1. All is read before anything is written, so that
  /// the reads are under way together.
  ATTNFORGE_DEVICE static void rotate_batch(const float* cos_row, const float* sin_row,
                                            const Place& place, int first_step) {
    float4 cos[kBatch], sin[kBatch];
    u32 words[kBatch][4];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (!place.has(first_step + i)) continue;
      cos[i] = __ldg(reinterpret_cast<const float4*>(cos_row + (first_step + i) * 16));
      sin[i] = __ldg(reinterpret_cast<const float4*>(sin_row + (first_step + i) * 16));
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      if (place.has(first_step + i)) read(words[i], place, first_step + i);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (!place.has(first_step + i)) continue;
      turn(words[i], cos[i], sin[i]);
      write(words[i], place, first_step + i);
    }
  }

  /// The elements of four pairs: with kRopeHalf the first of each pair, then the second.
  ATTNFORGE_DEVICE static void read(u32 (&w)[4], const Place& place, int step) {
    if constexpr (kRope == kRopeInterleaved) {
      load_shared_16(w, place.pairs(step));
    } else {
      load_shared_8(w[0], w[1], place.x(step));
      load_shared_8(w[2], w[3], place.y(step));
    }
  }
  ATTNFORGE_DEVICE static void write(const u32 (&w)[4], const Place& place, int step) {
    if constexpr (kRope == kRopeInterleaved) {
      store_shared_16(place.pairs(step), w);
    } else {
      store_shared_8(place.x(step), w[0], w[1]);
      store_shared_8(place.y(step), w[2], w[3]);
    }
  }

  ATTNFORGE_DEVICE static void turn(u32 (&w)[4], float4 cos, float4 sin) {
    if constexpr (kRope == kRopeInterleaved) {
      w[0] = rotated_together(w[0], cos.x, sin.x);
      w[1] = rotated_together(w[1], cos.y, sin.y);
      w[2] = rotated_together(w[2], cos.z, sin.z);
      w[3] = rotated_together(w[3], cos.w, sin.w);
    } else {
      rotate_apart(w[0], w[2], cos.x, sin.x, cos.y, sin.y);
      rotate_apart(w[1], w[3], cos.z, sin.z, cos.w, sin.w);
    }
  }

  /// The two elements of a word with each other.
  ATTNFORGE_DEVICE static u32 rotated_together(u32 word, float cos, float sin) {
    float x, y;
    unpack2<kDtype>(word, x, y);
    rotate_pair(x, y, cos, sin);
    return pack2<kDtype>(x, y);
  }

  /// The two elements of `x` with those of `y`.
  ATTNFORGE_DEVICE static void rotate_apart(u32& x, u32& y, float cos_low, float sin_low,
                                            float cos_high, float sin_high) {
    float x_low, x_high, y_low, y_high;
    unpack2<kDtype>(x, x_low, x_high);
    unpack2<kDtype>(y, y_low, y_high);
    rotate_pair(x_low, y_low, cos_low, sin_low);
    rotate_pair(x_high, y_high, cos_high, sin_high);
    x = pack2<kDtype>(x_low, x_high);
    y = pack2<kDtype>(y_low, y_high);
  }
};

/// C is a family's config. A warp of `warps` rotates every such group of 8 keys of tile n.
template <auto C>
struct RopeKJob {
  static constexpr bool kNone = false;
  using Rope = RopeTile<C.dtype, C.rope, C.rope_dim, TmaRows<C.swizzle, C.kv_chunk_bytes()>,
                        C.warpgroups == 3 ? 2 : 4, true>;
  const RopeParams& rope;
  const KeyTurns turns;
  const int warp, warps;

  template <class Params, class QueryTile>
  ATTNFORGE_DEVICE RopeKJob(const Params& params, const QueryTile& queries, int n, int index,
                            int count)
      : rope(params.rope),
        turns(Rope::keys(queries.lengths.kv(), params.rope, n * C.block_n)),
        warp(index),
        warps(count) {}

  /// Before the tile is there.
  ATTNFORGE_DEVICE void prepare() const { Rope::prefetch(rope, warp * 8, warp * 8 + 8, 8, turns); }
  ATTNFORGE_DEVICE void run(u32 tile) const {
    Rope::rotate(rope, tile, warp * 8, C.block_n, warps * 8, turns);
  }
};

/// A warp rotates 16 rows of a warpgroup's 64, from `row` on; first_row is the first of these 64
/// among its head's.
template <auto C>
struct RopeQJob {
  static constexpr bool kNone = false;
  using Rope = RopeTile<C.dtype, C.rope, C.rope_dim, TmaRows<C.swizzle, C.q_chunk_bytes()>, 4,
                        false>;

  template <class Params, class QueryTile>
  ATTNFORGE_DEVICE static void run(const Params& params, const QueryTile& queries, int first_row,
                                   u32 tile, int row) {
    Rope::rotate(params.rope, tile, row, row + 16, 8,
                 Rope::template queries<C.pack_gqa>(queries.lengths.q(), params.rope, first_row));
  }
};

}  // namespace attnforge
