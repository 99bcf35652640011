// step_text_bits.cuh - a step before a backward kernel under a mask's text: for each key tile,
// which query tiles the text lets see some of it, and of which it hides some.
#pragma once

#include "parts/query_bits/bits.cuh"
#include "parts/query_bits/params.h"
#include "parts/user_code/terms.cuh"
#include "ptx/grid_dependency.cuh"
#include "ptx/shuffle.cuh"

namespace attnforge {

/// A block has two words of a list, a warp some of their query tiles. Terms decide where they can;
/// what is left is asked of Rule::of_row(), pair by pair. kBits: these pairs get a bit each, else
/// it is done when both kinds are found. Window is the QueryWalk of windows, outside of which
/// nothing is asked.
template <class Lengths, class Rule, class Terms, class Window, class Masks, int kBlockM,
          int kBlockN, bool kBits>
struct TextTiles {
  static constexpr int kThreads = 256, kWarps = kThreads / 32, kPerWarp = 32 / kWarps;
  static constexpr int kVerdicts = Terms::kCount > 0 ? Terms::kCount : 1;

  template <class Params>
  ATTNFORGE_DEVICE static void run(const Params& params) {
    __shared__ u32 seen_by, hidden_from;
    await_previous_grid();
    start_next_grid();
    const QueryTileBits bits = query_tile_bits<kBlockM, kBlockN, Masks>(params);
    const i64 list = i64(blockIdx.x) / bits.words;
    if (threadIdx.x == 0) seen_by = hidden_from = 0;
    __syncthreads();
    TextTiles step(params, bits, list, int(blockIdx.x - list * bits.words) * 32);
    step.find(params, bits, list, seen_by, hidden_from);
    __syncthreads();
    u32* const to = query_tile_words(params, bits) + i64(blockIdx.x) * 2;
    if (threadIdx.x == 0) to[0] = seen_by;
    if (threadIdx.x == 1) to[1] = hidden_from;
  }

 private:
  const int key_tile, head, sequence, first_tile;  // the last: of the word, of queries
  const Lengths lengths;

  template <class Params>
  ATTNFORGE_DEVICE TextTiles(const Params& params, const QueryTileBits& bits, i64 list, int tile)
      : key_tile(int(list % bits.key_tiles)),
        head(int(list / bits.key_tiles % bits.heads)),
        sequence(int(list / bits.key_tiles / bits.heads)),
        first_tile(tile),
        lengths(params, sequence) {}

  template <class Params>
  ATTNFORGE_DEVICE void find(const Params& params, const QueryTileBits& bits, i64 list,
                             u32& seen_by, u32& hidden_from) const {
    const int warp = int(threadIdx.x) / 32;
    const Window walk = Window::of_keys(params.fwd, lengths, kBlockM, key_tile * kBlockN, kBlockN);
    if (max(first_tile, walk.begin) >= min(first_tile + 32, walk.end)) return;
    TermVerdicts of_terms[kPerWarp][kVerdicts];
    if constexpr (Terms::kCount > 0) decide<0>(params, of_terms);
#pragma unroll 1
    for (int i = 0; i < kPerWarp; ++i) {
      const int in_word = i * kWarps + warp, tile = first_tile + in_word;
      if (tile < walk.begin || tile >= walk.end) continue;
      TermVerdicts found = TermVerdicts::unknown();
      if constexpr (Terms::kCount > 0) found = Terms::value(of_terms[i]);
      if (!(found.none & 1) && !(found.all & 1))
        found = ask(params, tile * kBlockM, pair_words<kBlockM, kBlockN>(params, bits, list, tile));
      if (threadIdx.x % 32 != 0) continue;
      if (!(found.none & 1)) atomicOr(&seen_by, 1u << in_word);
      if (!(found.all & 1)) atomicOr(&hidden_from, 1u << in_word);
    }
  }

  /// What the terms from kTerm on say of a warp's query tiles, in bit 0. By all lanes, alike.
  template <int kTerm, class Params>
  ATTNFORGE_DEVICE void decide(const Params& params,
                               TermVerdicts (&found)[kPerWarp][kVerdicts]) const {
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    const auto of_key = [&](int i) {
      const int key = key_tile * kBlockN + min(i, kBlockN - 1);
      return Terms::template of_key<kTerm>(params, lengths, sequence, head,
                                           min(key, lengths.kv() - 1));
    };
    const auto of_query = [&](int tile, int i) {
      const int query = (first_tile + tile * kWarps + warp) * kBlockM + min(i, kBlockM - 1);
      return Terms::template of_query<kTerm>(params, lengths, sequence, head,
                                             min(query, lengths.q() - 1));
    };
    using Keys = typename RangeOfType<decltype(of_key(0))>::Type;
    using Rows = typename RangeOfType<decltype(of_query(0, 0))>::Type;
    Keys keys = Keys::of(of_key(lane));
#pragma unroll
    for (int i = 32; i < kBlockN; i += 32) keys.add(of_key(lane + i));
    keys.join(~0u);
#pragma unroll
    for (int tile = 0; tile < kPerWarp; ++tile) {
      Rows rows = Rows::of(of_query(tile, lane));
#pragma unroll
      for (int i = 32; i < kBlockM; i += 32) rows.add(of_query(tile, lane + i));
      rows.join(~0u);
      const TermVerdict verdict = verdict_of(Terms::relation(kTerm), rows, keys);
      found[tile][kTerm] = {u32(verdict.none), u32(verdict.all)};
    }
    if constexpr (kTerm + 1 < Terms::kCount) decide<kTerm + 1>(params, found);
  }

  /// The same of every pair of a query tile that is there. A lane has a key, and of that the bits.
  template <class Params>
  ATTNFORGE_DEVICE TermVerdicts ask(const Params& params, int first_query, u32* to) const {
    constexpr int kRowWords = QueryTileBits::pair_row_words(kBlockM);
    const int lane = int(threadIdx.x) % 32, first_key = key_tile * kBlockN;
    const int end = min(first_query + kBlockM, lengths.q());
    bool some = false, all = true;
#pragma unroll 1
    for (int w = 0; first_query + w * 32 < end; ++w) {
      const int query = first_query + w * 32;
      const u32 present = ~0u >> (32 - min(32, end - query));
#pragma unroll 1
      for (int in_tile = lane; in_tile < min(kBlockN, lengths.kv() - first_key); in_tile += 32) {
        u32 word = 0;
#pragma unroll
        for (int i = 0; i < 32; ++i) {
          const int row = min(query + i, end - 1);  // so that all are asked at once
          const auto sees = Rule::of_row(params, lengths, sequence, head, row, first_key + in_tile);
          word |= u32(sees(0)) << i;
        }
        word &= present;
        some |= word != 0;
        all &= word == present;
        if constexpr (kBits) to[in_tile * kRowWords + w] = word;
      }
      if (!kBits && any_lane(some) && any_lane(!all)) break;
    }
    return {u32(!any_lane(some)), u32(!any_lane(!all))};
  }
};

}  // namespace attnforge
