// row_tiles.cuh - Score by a text whose aligned array comes to shared memory in tiles: what copies
// them, and how lanes read the elements of their scores.
#pragma once

#include "parts/user_code/score.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/swizzle.cuh"

namespace attnforge {

/// Elements of kRows queries and kKeys keys, a multiple of 16, in shared memory.
template <class T, int kRows, int kKeys>
struct RowTile {
  static constexpr int kPieceKeys = 16 / int(sizeof(T)), kPieces = kKeys / kPieceKeys;
  static constexpr int kSwizzle = gcd(kKeys * int(sizeof(T)), 128);
  using Rows = TmaRows<kSwizzle, kRows * kSwizzle>;

  u32 at;

  /// Begins to copy those of the queries from first_row and the keys from first_key on. Rows that
  /// are not there stand for the last one; zeros for keys that are not.
  template <class Code, class QueryTile>
  ATTNFORGE_DEVICE void load(const QueryTile& queries, int first_row, int first_key, int thread,
                             int threads) const {
    constexpr int kLanes = Rows::kInRow;  // that share a row, in a column chunk
    const u32 lane = u32(thread) % kLanes;
    const int present = queries.lengths.kv() - first_key - int(lane) * kPieceKeys;
#pragma unroll 2
    for (int row = u32(thread) / kLanes; row < kRows; row += threads / kLanes) {
      const T* const place = UserRow<Code>(queries, first_row + row, first_key).place_in_row() +
                             lane * kPieceKeys;
      const u32 to = at + Rows::offset(row, lane);
      unrolled<kPieces / kLanes>([&](int i) {
        const int key = i * kLanes * kPieceKeys;
        cp_async_or_zero<16>(to + i * kRows * kSwizzle, place + key, key < present);
      });
    }
  }
  /// The address of an element.
  ATTNFORGE_DEVICE u32 of(int row, int key) const {
    return at + Rows::offset(row, key / kPieceKeys) + key % kPieceKeys * int(sizeof(T));
  }
};

/// As RowElements has them, of a tile that has come. Of fragments `row` is the first of the warp's
/// 16 rows; transposed, the tile has the warp's 16 keys.
template <class T, class Tile>
struct TileElements {
  using Reads = ReadBefore;
  using Rows = typename Tile::Rows;

  const Tile tile;
  const int row;

  template <int kFragments, class OfRow>
  ATTNFORGE_DEVICE void for_each(const FragmentScores<float[kFragments][4]>& scores,
                                 const OfRow& of_row) const {
    const int lane = thread_index() % 32, column = MmaFragment::column(lane);
    const auto first = of_row(scores.row, scores.first_key + column),
               second = of_row(scores.row + 8, scores.first_key + column);
    const auto put = [&](int j, int r, int c, float element) {
      float& s = scores.all[j][2 * r + c];
      s = (r == 0 ? first : second)(s, 8 * j + c, ReadBefore{element});
    };
    if constexpr (sizeof(T) == 2) {
      const u32 at = tile.of(row + lane % 16, lane / 16 * 8);
      unrolled<kFragments / 2>([&](int i) {
        u32 words[4];  // of both rows, in two fragments
        ldmatrix_x4(words, Rows::further(at, 2 * i));
        unrolled<2, 2, 2>(
            [&](int j, int r, int c) { put(2 * i + j, r, c, half_of<T>(words[2 * j + r], c)); });
      });
    } else {
      const u32 at = tile.of(row + MmaFragment::row(lane), column);
      unrolled<kFragments, 2>([&](int j, int r) {
        u32 words[2];
        load_shared_8(words[0], words[1], Rows::further(at, 2 * j) + r * 8 * Rows::kRowBytes);
        unrolled<2>([&](int c) { put(j, r, c, __uint_as_float(words[c])); });
      });
    }
  }
  template <int kFragments, class OfRow>
  ATTNFORGE_DEVICE void for_each(const TransposedScores<float[kFragments][4]>& scores,
                                 const OfRow& of_row) const {
    const int lane = thread_index() % 32, column = MmaFragment::column(lane);
    unrolled<kFragments / 2>([&](int i) {
      u32 words[4];  // of 8 and 8 keys, in two fragments
      if constexpr (sizeof(T) == 2)
        ldmatrix_x4_trans(words, tile.of(16 * i + lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8));
      unrolled<2, 2>([&](int j, int c) {
        const int fragment = 2 * i + j, query = 8 * fragment + column + c;
        const auto f = of_row(scores.first_row + query, scores.lane_key);
        unrolled<2>([&](int r) {
          float element;
          if constexpr (sizeof(T) == 2)
            element = half_of<T>(words[2 * j + r], c);
          else
            element = __int_as_float(load_shared(tile.of(query, MmaFragment::row(lane) + 8 * r)));
          float& s = scores.all[fragment][2 * r + c];
          s = f(s, 8 * r, ReadBefore{element});
        });
      });
    });
  }
};

/// Of a kernel whose warps load tiles of kRows queries and kKeys keys, each its own, for transposed
/// scores. Score is a UserScore of Code.
template <int kRows, int kKeys, class Code, class Score>
struct TiledScore : Score {
  using Element = typename Code::RowElement;
  using Tile = RowTile<Element, kRows, kKeys>;

  /// Nothing is read into registers before.
  template <class Scores>
  using Ahead = NothingAhead;

  template <class QueryTile>
  ATTNFORGE_DEVICE static void load_tile(const QueryTile& queries, int first_row, int first_key,
                                         u32 to, int thread, int threads) {
    Tile{to}.template load<Code>(queries, first_row, first_key, thread, threads);
  }
  /// Scores to those of the text, with the elements of a tile that has come.
  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply_tile(const Scores& scores, const QueryTile& queries,
                                          u32 tile) {
    Score::change(scores, queries, TileElements<Element, Tile>{{tile}, 0});
  }
};

}  // namespace attnforge
