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

/// As RowElements has them, of a tile that has come. `row` is the first of the warp's 16 rows.
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
};

}  // namespace attnforge
