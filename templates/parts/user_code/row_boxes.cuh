// row_boxes.cuh - Score by a text whose aligned array a warp of its own brings to shared memory,
// for transposed scores.
#pragma once

#include "backward/query_walk.cuh"
#include "backward/transposed_scores.cuh"
#include "parts/user_code/row_cursor.cuh"
#include "parts/user_code/score.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// Elements of kRows queries and kKeys keys in shared memory, 16 bytes between rows: ldmatrix meets
/// no conflict.
template <class T, int kRows, int kKeys>
struct RowBox {
  static constexpr int kOfPiece = 16 / int(sizeof(T)), kPieces = kKeys / kOfPiece;
  static constexpr int kRowBytes = kPieces * 16 + 16;

  u32 at;

  ATTNFORGE_DEVICE u32 of(int row, int key) const {
    return at + row * kRowBytes + key * int(sizeof(T));
  }
  /// By a warp, each of whose lanes arrives at `full`: begins to copy those of the queries from
  /// first_row and the keys from first_key on. Zeros for queries and keys that are not there.
  template <class Code, class QueryTile>
  ATTNFORGE_DEVICE void load(const QueryTile& queries, int first_row, int first_key,
                             u32 full) const {
    constexpr int kRowsAtOnce = 32 / kPieces;
    const int lane = thread_index() % 32, piece = lane % kPieces;
    const int key = first_key + piece * kOfPiece, begin = lane / kPieces;
    const int rows = key < queries.lengths.kv() ? queries.lengths.q() - first_row : 0;
    RowCursor<Code, kRowsAtOnce> from(queries, first_row + begin, key);
    u32 to = at + begin * kRowBytes + piece * 16;
#pragma unroll 4
    for (int row = begin; row < kRows; row += kRowsAtOnce) {
      cp_async_or_zero<16>(to, from.at, row < rows);
      to += kRowsAtOnce * kRowBytes;
      from.advance(queries, first_row + row, key);
    }
    cp_async_arrive(full);
  }
};

/// As RowElements has them, of a box and a warp's 16 keys. Those of 16 bits are read at once, while
/// the scores are not there yet: two fragments take 4 registers. Others when they are used.
template <class T, class Box, class Scores>
struct BoxElements;
template <class T, class Box, int kFragments>
struct BoxElements<T, Box, TransposedScores<float[kFragments][4]>> : NothingAhead {
  using Reads = ReadBefore;
  using Scores = TransposedScores<float[kFragments][4]>;
  static constexpr bool kHalves = sizeof(T) == 2;

  u32 words[kHalves ? kFragments / 2 : 1][4];  // of 8 and 8 keys, in two fragments; or the address

  /// Of a box that has come; `key` is the warp's first in it.
  ATTNFORGE_DEVICE void read(u32 at, int key) {
    const Box box{at};
    const int lane = thread_index() % 32;
    if constexpr (kHalves) {
      const u32 from = box.of(lane / 16 * 8 + lane % 8, key + lane / 8 % 2 * 8);
      unrolled<kFragments / 2>(
          [&](int i) { ldmatrix_x4_trans(words[i], from + 16 * i * Box::kRowBytes); });
    } else {
      words[0][0] = box.of(MmaFragment::column(lane), key + MmaFragment::row(lane));
    }
  }
  template <class OfRow>
  ATTNFORGE_DEVICE void for_each(const Scores& scores, const OfRow& of_row) const {
    const int column = MmaFragment::column(thread_index() % 32);
    unrolled<kFragments, 2>([&](int j, int c) {
      const auto f = of_row(scores.first_row + 8 * j + column + c, scores.lane_key);
      unrolled<2>([&](int r) {
        float element;
        if constexpr (kHalves)
          element = half_of<T>(words[j / 2][j % 2 * 2 + r], c);
        else
          element = __int_as_float(
              load_shared(words[0][0] + (8 * j + c) * Box::kRowBytes + 8 * r * int(sizeof(T))));
        float& s = scores.all[j][2 * r + c];
        s = f(s, 8 * r, ReadBefore{element});
      });
    });
  }
  template <class Score, class QueryTile>
  ATTNFORGE_DEVICE void apply(const Scores& scores, const QueryTile& queries) const {
    Score::change(scores, queries, *this);
  }
};

/// C is the config of such a kernel, with tiles of block_m by block_n().
template <auto C, class Code, class Score>
struct BoxedScore : Score {
  using Element = typename Code::RowElement;
  using Box = RowBox<Element, C.block_m, C.block_n()>;

  template <class Scores>
  using Ahead = BoxElements<Element, Box, Scores>;

  /// By a warp: the elements of all tiles.
  template <class Shared, class KeyTiles>
  ATTNFORGE_DEVICE static void load_all(const Shared& smem, const KeyTiles& key_tiles) {
    u32 count = 0;
    key_tiles.template for_each<true>([&](const typename KeyTiles::Work& work) {
      if constexpr (C.persistent())
        if (thread_index() % 32 == 0) mbarrier_arrive(smem.kv_empty());  // the number is known
      work.for_each([&](const QueryPlace& place) {
        const u32 stage = count % C.row_stages();
        mbarrier_wait(smem.rows_empty(stage), count / C.row_stages() % 2 ^ 1);
        Box{smem.rows(stage)}.template load<Code>(work.keys.queries_of(place.head),
                                                  place.m * C.block_m, work.keys.first_key,
                                                  smem.rows_full(stage));
        ++count;
      });
    });
  }
};

}  // namespace attnforge
