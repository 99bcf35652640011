// lists.cuh - what a mask's text lets the rows of a query tile see, as parts/user_code/step_states
// has found: groups of keys, and of those whose pairs it has asked the text of the bits that it
// wrote, once for all heads that share the mask.
#pragma once

#include "parts/key_lists/params.h"
#include "parts/key_lists/place.cuh"
#include "parts/key_lists/walk.cuh"
#include "ptx/bulk.cuh"
#include "ptx/grid_dependency.cuh"
#include "ptx/mma_fragment.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/special.cuh"
#include "ptx/special_registers.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

struct TextSource {
  ATTNFORGE_DEVICE static void await() { await_previous_grid(); }

  template <int kBlockM, int kGroupKeys, int kThreads, class Params>
  ATTNFORGE_DEVICE static void add(const Params& params, const ListPlace&, u32* states,
                                   int first_group, int count) {
    const int groups = ceil_div(params.fwd.seqlen_kv, kGroupKeys);
    const u32* const from = params.lists.states + i64(blockIdx.x) * groups + first_group;
    for (int i = int(threadIdx.x); i < min(count, groups - first_group); i += kThreads)
      states[i] = from[i];
  }
};

/// Query tiles of kBlockM rows, groups of kGroupKeys keys. The argument has a KeyListParams
/// `lists`.
template <int kBlockM, int kGroupKeys>
struct TextBits {
  static constexpr bool kNone = false;
  static constexpr int kRowWords = kTextBitsRowWords<kGroupKeys>;

  /// Begins to copy the bits of a group, of a query tile's rows, to where they lie beside its K, if
  /// it has some: so many bytes. One thread does, all that load may call. `words`: words_of() the
  /// tile's first row, in group 0.
  template <auto C, class Shared>
  ATTNFORGE_DEVICE static int load(const Shared& smem, int stage, const u32* words,
                                   const KeyGroup& group) {
    static_assert(C.bits_bytes() == 4 * kBlockM * kRowWords, "a group is a key tile");
    if (group.rows >> KeyGroup::kMostFragments == 0) return 0;
    if (thread_index() % 128 == 0)
      bulk_load(smem.k(stage) + C.k_bytes(),
                words + i64(group.number & ~KeyGroup::kEdge) * (kBlockM * kRowWords),
                C.bits_bytes(), smem.k_full(stage));
    return C.bits_bytes();
  }
  /// `bits`: where shared memory has those of the lane's first row.
  ATTNFORGE_DEVICE static void hide(float (&s)[kGroupKeys / 8][4], u32 bits) {
    constexpr int kAtOnce = kRowWords % 4 == 0 ? 4 : kRowWords % 2 == 0 ? 2 : 1;
    const int column = MmaFragment::column(thread_index() % 32);
    unrolled<2, kRowWords / kAtOnce>([&](int r, int part) {
      u32 words[kAtOnce];
      const u32 at = bits + 4 * (r * 8 * kRowWords + part * kAtOnce);
      if constexpr (kAtOnce == 4)
        load_shared_16(words, at);
      else if constexpr (kAtOnce == 2)
        load_shared_8(words[0], words[1], at);
      else
        words[0] = u32(load_shared(at));
      unrolled<kAtOnce>([&](int w) {
        const u32 word = words[w] >> column;
        unrolled<4, 2>([&](int i, int c) {
          const int j = (part * kAtOnce + w) * 4 + i;
          if (j >= kGroupKeys / 8) return;
          float& x = s[j][2 * r + c];
          x = word >> (i * 8 + c) & 1 ? x : negative_infinity();
        });
      });
    });
  }

  /// Scores of keys of one group.
  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const Scores& scores, const QueryTile& tile) {
    if constexpr (requires { scores.scores.bits; }) {
      const int row = scores.scores.row - tile.first_row;
      hide(scores.scores.all, scores.scores.bits + 4 * kRowWords * row);
      return;
    }
    scores.for_each([&](int row, int lane_key) {
      const u32* const words = words_of(tile, row, lane_key / kGroupKeys);
      // A word holds all of the lane's keys that follow one multiple of 8, as in
      // block_mask/list_rule.cuh.
      const int eights = Scores::kWholeGroups ? 0 : lane_key % kGroupKeys / 8 * 8;
      const int rest = lane_key % 8;
      return [words, eights, rest](float s, int offset) {
        const int bit = eights + offset / 8 * 8;
        const bool seen = __ldg(words + bit / 32) >> rest >> (bit % 32 + offset % 8) & 1;
        return seen ? s : negative_infinity();
      };
    });
  }

  template <class QueryTile>
  ATTNFORGE_DEVICE static const u32* words_of(const QueryTile& tile, int row, int group) {
    const KeyListParams& lists = tile.params.lists;
    const int query = tile.query_of(row);
    const i64 list = list_index(tile.params.fwd, lists, tile.batch, tile.query_head_of(row),
                                query / kBlockM);
    const int groups = ceil_div(tile.params.fwd.seqlen_kv, kGroupKeys);
    const i64 fragment = (list * groups + group) * (kBlockM / 16) + query % kBlockM / 16;
    return lists.bits + (fragment * 16 + query % 16) * kRowWords;
  }
};

}  // namespace attnforge
