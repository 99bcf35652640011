// list_rule.cuh - the rule of groups of keys whose pairs parts/user_code/step_states has asked a
// text of: the bits that it wrote, once for all heads that share the mask.
#pragma once

#include "base.cuh"
#include "base_params.h"
#include "parts/key_lists/params.h"
#include "parts/key_lists/walk.cuh"
#include "ptx/special.cuh"

namespace attnforge {

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
