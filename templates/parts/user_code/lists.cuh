// lists.cuh - what a mask's text lets the rows of a query tile see, as parts/user_code/step_states
// has found: groups of keys, and of those whose pairs it has asked the text of the bits that it
// wrote, once for all heads that share the mask.
#pragma once

#include "parts/key_lists/params.h"
#include "parts/key_lists/place.cuh"
#include "parts/key_lists/walk.cuh"
#include "ptx/grid_dependency.cuh"
#include "ptx/special.cuh"

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

  /// Scores of keys of one group.
  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const Scores& scores, const QueryTile& tile) {
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
