// step_text_bits.cuh - a step before a backward kernel under a mask's text: for each key tile,
// which query tiles the text lets see some of it, and of which it hides some.
#pragma once

#include "parts/query_bits/bits.cuh"
#include "parts/query_bits/params.h"
#include "parts/user_code/mask_rows.cuh"
#include "parts/user_code/terms.cuh"
#include "ptx/global_memory.cuh"
#include "ptx/grid_dependency.cuh"
#include "ptx/shuffle.cuh"

namespace attnforge {

/// A block has a byte of two words of a list, a warp a query tile. Terms decide where they can;
/// what is left is asked of Rule::of_row(), pair by pair, by all warps. kBits: these pairs get a
/// bit each, else it is done when both kinds are found. Window is the QueryWalk of windows, outside
/// of which nothing is asked.
template <class Lengths, class Rule, class Terms, class Window, class Masks, int kBlockM,
          int kBlockN, bool kBits>
struct TextTiles {
  static constexpr int kThreads = 256, kTiles = kThreads / 32, kBlocksOfWord = 32 / kTiles;
  static constexpr int kVerdicts = Terms::kCount > 0 ? Terms::kCount : 1;
  static_assert(kTiles == 8, "a byte");

  /// Bit t: query tile t of the block.
  struct Found {
    u32 seen, hidden, open;
  };

  template <class Params>
  ATTNFORGE_DEVICE static void run(const Params& params) {
    __shared__ Found found;
    await_previous_grid();
    start_next_grid();
    const QueryTileBits bits = query_tile_bits<kBlockM, kBlockN, Masks>(params);
    const i64 word = i64(blockIdx.x) / kBlocksOfWord, list = word / bits.words;
    const int byte = int(blockIdx.x % kBlocksOfWord);
    if (threadIdx.x == 0) found = {0, 0, 0};
    __syncthreads();
    const TextTiles step(params, bits, list, int(word - list * bits.words) * 32 + byte * kTiles);
    step.decide(params, found);
    __syncthreads();
    step.ask(params, bits, list, found);
    __syncthreads();
    u8* const to = reinterpret_cast<u8*>(query_tile_words(params, bits) + word * 2) + byte;
    if (threadIdx.x == 0) to[0] = u8(found.seen);
    if (threadIdx.x == 1) to[sizeof(u32)] = u8(found.hidden);
  }

 private:
  const int key_tile, head, sequence, first_tile;  // the last: of the block, of queries
  const Lengths lengths;

  template <class Params>
  ATTNFORGE_DEVICE TextTiles(const Params& params, const QueryTileBits& bits, i64 list, int tile)
      : key_tile(int(list % bits.key_tiles)),
        head(int(list / bits.key_tiles % bits.heads)),
        sequence(int(list / bits.key_tiles / bits.heads)),
        first_tile(tile),
        lengths(params, sequence) {}

  template <class Params>
  ATTNFORGE_DEVICE void decide(const Params& params, Found& found) const {
    const int in_block = int(threadIdx.x) / 32, tile = first_tile + in_block;
    const Window walk = Window::of_keys(params.fwd, lengths, kBlockM, key_tile * kBlockN, kBlockN);
    if (tile < walk.begin || tile >= walk.end) return;
    TermVerdicts verdict = TermVerdicts::unknown();
    if constexpr (Terms::kCount > 0) {
      TermVerdicts of_terms[kVerdicts];
      decide<0>(params, tile * kBlockM, of_terms);
      verdict = Terms::value(of_terms);
    }
    if (threadIdx.x % 32 != 0 || (verdict.none & 1) != 0) return;
    atomicOr((verdict.all & 1) != 0 ? &found.seen : &found.open, 1u << in_block);
  }

  /// What the terms from kTerm on say of a query tile, in bit 0. By all lanes, alike.
  template <int kTerm, class Params>
  ATTNFORGE_DEVICE void decide(const Params& params, int first_query,
                               TermVerdicts (&found)[kVerdicts]) const {
    const int lane = int(threadIdx.x) % 32;
    const auto of_key = [&](int i) {
      const int key = key_tile * kBlockN + min(i, kBlockN - 1);
      return Terms::template of_key<kTerm>(params, lengths, sequence, head,
                                           min(key, lengths.kv() - 1));
    };
    const auto of_query = [&](int i) {
      const int query = first_query + min(i, kBlockM - 1);
      return Terms::template of_query<kTerm>(params, lengths, sequence, head,
                                             min(query, lengths.q() - 1));
    };
    auto keys = RangeOfType<decltype(of_key(0))>::Type::of(of_key(lane));
    auto rows = RangeOfType<decltype(of_query(0))>::Type::of(of_query(lane));
#pragma unroll
    for (int i = 32; i < kBlockN; i += 32) keys.add(of_key(lane + i));
#pragma unroll
    for (int i = 32; i < kBlockM; i += 32) rows.add(of_query(lane + i));
    keys.join(~0u);
    rows.join(~0u);
    const TermVerdict verdict = verdict_of(Terms::relation(kTerm), rows, keys);
    found[kTerm] = {u32(verdict.none), u32(verdict.all)};
    if constexpr (kTerm + 1 < Terms::kCount) decide<kTerm + 1>(params, first_query, found);
  }

  /// Pair by pair; warps take turns at 32 queries and 32 keys.
  template <class Params>
  ATTNFORGE_DEVICE void ask(const Params& params, const QueryTileBits& bits, i64 list,
                            Found& found) const {
    constexpr int kRowWords = QueryTileBits::pair_row_words(kBlockM);
    const int warp = int(threadIdx.x) / 32, first_key = key_tile * kBlockN;
    const int keys = min(kBlockN, lengths.kv() - first_key);
    int turn = 0;
#pragma unroll 1
    for (u32 open = found.open; open != 0; open &= open - 1) {
      const int in_block = __ffs(int(open)) - 1, tile = first_tile + in_block;
      const int end = min((tile + 1) * kBlockM, lengths.q());
      u32* const to = pair_words<kBlockM, kBlockN>(params, bits, list, tile);
#pragma unroll 1
      for (int w = 0; tile * kBlockM + w * 32 < end; ++w)
#pragma unroll 1
        for (int key = 0; key < keys; key += 32) {
          if (turn++ % kTiles != warp) continue;
          if (!kBits && (atomicOr(&found.seen, 0) & atomicOr(&found.hidden, 0)) >> in_block & 1)
            continue;
          const int query = tile * kBlockM + w * 32, lane_key = key + int(threadIdx.x) % 32;
          const u32 present = ~0u >> (32 - min(32, end - query));
          u32 word = 0;
          if (!read(params, query, end, first_key + key, first_key + keys, word) && lane_key < keys)
            word = sees(params, query, end, first_key + lane_key) & present;
          if (kBits && lane_key < keys) to[lane_key * kRowWords + w] = word;
          const bool some = any_lane(word != 0),
                     all = !any_lane(lane_key < keys && word != present);
          if (threadIdx.x % 32 != 0) continue;
          if (some) atomicOr(&found.seen, 1u << in_block);
          if (!all) atomicOr(&found.hidden, 1u << in_block);
        }
    }
  }

  /// Whether 32 queries and as many keys could be read by rows; the word of this lane's key.
  template <class Params>
  ATTNFORGE_DEVICE bool read(const Params& params, int query, int end, int key, int end_key,
                             u32& word) const {
    if constexpr (ReadsMaskRows<Rule>) {
      if (query + 32 > end || key + 32 > end_key) return false;
      const bool* const row = Rule::place(params, lengths, sequence, head,
                                          query + int(threadIdx.x) % 32, key);
      if (any_lane(reinterpret_cast<u64>(row) % 16 != 0)) return false;
      u32 bytes[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) load_global(bytes[i], row + 16 * i, true);
      word = transposed_bits(bits_of_bytes(bytes[0]) | bits_of_bytes(bytes[1]) << 16);
      return true;
    }
    return false;
  }
  /// Bit i: whether query + i sees a key, of queries before `end`.
  template <class Params>
  ATTNFORGE_DEVICE u32 sees(const Params& params, int query, int end, int key) const {
    u32 word = 0;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int row = min(query + i, end - 1);  // so that all are asked at once
      word |= u32(Rule::of_row(params, lengths, sequence, head, row, key)(0)) << i;
    }
    return word;
  }
};

}  // namespace attnforge
