// mask.cuh - Mask of a backward kernel by the bits that a step has written of a text's pairs.
#pragma once

#include "backward/transposed_scores.cuh"
#include "parts/query_bits/bits.cuh"
#include "ptx/special.cuh"

namespace attnforge {

/// Window is the mask of windows and of the last key. Asked has it too and asks the text: that is
/// for scores that are not transposed, of a kernel beside.
template <class Window, class Asked, class Masks, int kBlockM, int kBlockN>
struct PairBitsMask : Window {
  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const Scores& scores, const QueryTile& tile) {
    Asked::apply(scores, tile);
  }
  /// Scores of one query tile and one key tile.
  template <class Array, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const TransposedScores<Array>& scores, const QueryTile& tile) {
    Window::apply(scores, tile);
    const QueryTileBits bits = query_tile_bits<kBlockM, kBlockN, Masks>(tile.params);
    const int m = scores.first_row / kBlockM;
    const i64 mask = (bits.batch == 1 ? 0 : tile.batch) * i64(bits.heads) +
                     (bits.heads == 1 ? 0 : tile.query_head_of(scores.first_row));
    const i64 list = mask * bits.key_tiles + scores.lane_key / kBlockN;
    // A tile of which windows alone hide some has no bits of pairs.
    const u32* const of_list = query_tile_words(tile.params, bits) + list * bits.words * 2;
    if ((__ldg(of_list + m / 32 * 2 + 1) >> (m % 32) & 1) == 0) return;
    const u32* const of_key = pair_words<kBlockM, kBlockN>(tile.params, bits, list, m) +
                              scores.lane_key % kBlockN * kRowWords;
    hide(scores.all, of_key, scores.first_row % kBlockM);
  }

 private:
  static constexpr int kRowWords = QueryTileBits::pair_row_words(kBlockM);

  /// words: of the lane's first key. first: query of the scores, in the tile.
  template <int kKeyFragments, int kFragments>
  ATTNFORGE_DEVICE static void hide(float (&s)[kKeyFragments][kFragments][4], const u32* words,
                                    int first) {
    // Scores that begin with a word share it among four fragments; those of warps that have a half
    // of some rows each may begin inside one.
    constexpr bool kWhole = kFragments % 4 == 0 || kFragments * 8 == kBlockM;
    constexpr int kRun = kWhole ? 4 : 1;
    const int column = MmaFragment::column(thread_index() % 32);
    unrolled<kKeyFragments, 2, ceil_div(kFragments, kRun)>([&](int i, int r, int run) {
      const int at = kWhole ? 0 : first + run * 8;
      const int number = kWhole ? first / 32 + run : at / 32;
      const u32 word = __ldg(words + (i * 16 + r * 8) * kRowWords + number) >> (at % 32 + column);
      unrolled<kRun, 2>([&](int j, int c) {
        if (run * kRun + j >= kFragments) return;
        float& x = s[i][run * kRun + j][2 * r + c];
        x = word >> (j * 8 + c) & 1 ? x : negative_infinity();
      });
    });
  }
  template <int kFragments>
  ATTNFORGE_DEVICE static void hide(float (&s)[kFragments][4], const u32* words, int first) {
    hide(reinterpret_cast<float(&)[1][kFragments][4]>(s), words, first);
  }
};

}  // namespace attnforge
