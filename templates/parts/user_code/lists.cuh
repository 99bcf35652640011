// lists.cuh - what a mask's text lets the rows of a query tile see, as parts/user_code/step_states
// has found: groups of keys, and of those whose pairs it has asked the text of the bits that it
// wrote, once for all heads that share the mask.
#pragma once

#include "parts/key_lists/params.h"
#include "parts/key_lists/place.cuh"
#include "parts/key_lists/walk.cuh"
#include "ptx/global_memory.cuh"
#include "ptx/grid_dependency.cuh"
#include "ptx/mma_fragment.cuh"
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

  /// The words of a lane's two rows of a key tile that is one group, asked for while its scores are
  /// on their way: where they are takes divisions, once for a query tile, and they are far away.
  struct Ahead {
    static constexpr bool kNone = false;
    const u32* first;  // of the first row, in group 0
    u32 words[2][kRowWords];

    /// `row`: of the lane's first row, which is among the first 8 of its fragment.
    template <class QueryTile>
    ATTNFORGE_DEVICE void begin(const QueryTile& tile, int row) {
      first = words_of(tile, row, 0);
    }
    template <class Groups>
    ATTNFORGE_DEVICE void load(const Groups& groups) {
      const u32* const from = first + i64(groups.own) * (kBlockM * kRowWords);
      unrolled<2, kRowWords>([&](int r, int w) {
        load_global(words[r][w], from + r * 8 * kRowWords + w, groups.partial != 0);
      });
    }
    ATTNFORGE_DEVICE void hide(float (&s)[kGroupKeys / 8][4]) const {
      const int column = MmaFragment::column(thread_index() % 32);
      unrolled<2, kRowWords>([&](int r, int w) {
        const u32 word = words[r][w] >> column;
        unrolled<4, 2>([&](int j, int c) {
          if (w * 4 + j >= kGroupKeys / 8) return;
          float& x = s[w * 4 + j][2 * r + c];
          x = word >> (j * 8 + c) & 1 ? x : negative_infinity();
        });
      });
    }
    /// Scores with the words of their rows.
    template <class Of>
    struct Scores : Of {
      const Ahead& ahead;
    };
  };

  /// Scores of keys of one group.
  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const Scores& scores, const QueryTile& tile) {
    if constexpr (requires { scores.scores.ahead; }) {
      scores.scores.ahead.hide(scores.scores.all);
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
