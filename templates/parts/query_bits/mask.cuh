// mask.cuh - Mask of a backward kernel by the bits that a step has written of a text's pairs.
#pragma once

#include "backward/transposed_scores.cuh"
#include "parts/query_bits/bits.cuh"
#include "ptx/global_memory.cuh"
#include "ptx/special.cuh"

namespace attnforge {

/// Window is the mask of windows and of the last key. Asked has it too and asks the text: that is
/// for scores that are not transposed, of a kernel beside.
template <class Window, class Asked, class Masks, int kBlockM, int kBlockN>
struct PairBitsMask : Window {
  static constexpr int kRowWords = QueryTileBits::pair_row_words(kBlockM);
  /// Scores that begin with a word share it among four fragments; those of warps that have a half
  /// of some rows each may begin inside one.
  ATTNFORGE_CONSTEXPR static bool begins_with_word(int fragments) {
    return fragments % 4 == 0 || fragments * 8 == kBlockM;
  }

  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const Scores& scores, const QueryTile& tile) {
    Asked::apply(scores, tile);
  }
  /// Scores of one query tile and one key tile.
  template <class Array, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const TransposedScores<Array>& scores, const QueryTile& tile) {
    Window::apply(scores, tile);
    const Words words = words_of(scores, tile);
    if (words.there) hide(scores.all, words.of_lane, scores.first_row % kBlockM);
  }

  /// The same, asked for ahead: a lane's bits of scores that begin with a word.
  template <class Scores>
  struct Pairs;
  template <int kFragments>
  requires(begins_with_word(kFragments)) struct Pairs<TransposedScores<float[kFragments][4]>> {
    using Scores = TransposedScores<float[kFragments][4]>;
    static constexpr int kWords = ceil_div(kFragments, 4);
    bool some;
    u32 words[2][kWords];

    /// Reads the words of every tile, lest they wait for what says whether they were written.
    template <class QueryTile>
    ATTNFORGE_DEVICE void begin(const Scores& scores, const QueryTile& tile) {
      const Words from = words_of(scores, tile);
      const int first = scores.first_row % kBlockM / 32;
      unrolled<2, kWords>([&](int r, int i) {
        load_global(words[r][i], from.of_lane + r * 8 * kRowWords + first + i, true);
      });
      some = from.there;
    }
    template <class QueryTile>
    ATTNFORGE_DEVICE void apply(const Scores& scores, const QueryTile& tile) const {
      Window::apply(scores, tile);
      if (!some) return;
      const int column = MmaFragment::column(thread_index() % 32);
      unrolled<2, kFragments, 2>([&](int r, int j, int c) {
        float& x = scores.all[j][2 * r + c];
        x = words[r][j / 4] >> column >> (j % 4 * 8 + c) & 1 ? x : negative_infinity();
      });
    }
  };

 private:
  /// Of a lane's first key; they are not there of a tile of which windows alone hide some.
  struct Words {
    const u32* of_lane;
    bool there;
  };
  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static Words words_of(const Scores& scores, const QueryTile& tile) {
    const QueryTileBits bits = query_tile_bits<kBlockM, kBlockN, Masks>(tile.params);
    const int m = scores.first_row / kBlockM;
    const i64 mask = (bits.batch == 1 ? 0 : tile.batch) * i64(bits.heads) +
                     (bits.heads == 1 ? 0 : tile.query_head_of(scores.first_row));
    const i64 list = mask * bits.key_tiles + scores.lane_key / kBlockN;
    const u32* const of_list = query_tile_words(tile.params, bits) + list * bits.words * 2;
    return {pair_words<kBlockM, kBlockN>(tile.params, bits, list, m) +
                scores.lane_key % kBlockN * kRowWords,
            (__ldg(of_list + m / 32 * 2 + 1) >> (m % 32) & 1) != 0};
  }

  /// words: of the lane's first key. first: query of the scores, in the tile.
  template <int kKeyFragments, int kFragments>
  ATTNFORGE_DEVICE static void hide(float (&s)[kKeyFragments][kFragments][4], const u32* words,
                                    int first) {
    constexpr bool kWhole = begins_with_word(kFragments);
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
