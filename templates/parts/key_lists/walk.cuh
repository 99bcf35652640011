// walk.cuh - Walk over a list of key tiles that a step before the kernel has written.
#pragma once

#include "base_params.h"
#include "parts/key_lists/groups.cuh"
#include "parts/key_lists/params.h"
#include "parts/key_lists/walk_part.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/special_registers.cuh"

namespace attnforge {

/// Which list is that of a query tile.
ATTNFORGE_DEVICE int list_index(const FwdParams& p, const KeyListParams& lists, int sequence,
                                int head, int m_block) {
  const int mask_head = lists.heads == p.num_heads_q ? head : head * lists.heads / p.num_heads_q;
  return ((lists.batch > 1 ? sequence : 0) * lists.heads + mask_head) * lists.m_blocks + m_block;
}

/// Blocks read lists that a step has written.
struct NoOwnList {
  static constexpr bool kNone = true;
};

/// A key tile is kGroups groups of neighbouring keys, gathered. The argument has a KeyListParams
/// `lists`. The last keys come first. Own: a list that the block has made
/// (parts/key_lists/own_list.cuh).
template <int kGroups, class Own = NoOwnList>
struct ListWalk {
  static constexpr bool kListed = true;
  static constexpr bool kInParts = false;  // it is known which tiles each warpgroup sees

  // For consumers of key tiles of kTileKeys: what a warp knows of one, its scores, and those of a
  // step of kStepKeys.
  template <int kTileKeys>
  using Groups = KeyGroups<kGroups, kTileKeys / kGroups>;
  template <class Array, int kTileKeys>
  using Scores = GroupedScores<Array, kGroups, kTileKeys / kGroups>;
  template <class Array, int kStepKeys, int kTileKeys>
  using StepScores = StepGroupedScores<Array, kStepKeys, kTileKeys / kGroups>;

  const KeyGroup* groups;
  int tiles;

  /// The walk of the query tile that begins at `row`; all have `rows` rows.
  template <class Params, class QueryTile>
  ATTNFORGE_DEVICE static ListWalk of_rows(const Params& params, const QueryTile& tile, int,
                                           int row, int rows) {
    if constexpr (Own::kNone) {
      return of_tile(params.fwd, params.lists, tile.batch, tile.head, row / rows);
    } else {
      const auto& list = Own::memory();
      return {list.groups, list.tiles};
    }
  }
  ATTNFORGE_DEVICE static ListWalk of_tile(const FwdParams& p, const KeyListParams& lists,
                                           int sequence, int head, int m_block) {
    const int list = list_index(p, lists, sequence, head, m_block);
    return {lists.groups + list * lists.capacity, lists.counts[list]};
  }

  /// How many key tiles query tile m_block of a sequence has, for its first head.
  template <class Params, class Lengths>
  ATTNFORGE_DEVICE static int count_of(const Params& params, const Lengths&, int, int sequence,
                                       int m_block, int, int) {
    return of_tile(params.fwd, params.lists, sequence, 0, m_block).tiles;
  }

  /// All tiles: what of them some rows see is in the groups.
  template <class QueryTile>
  ATTNFORGE_DEVICE ListWalk of_part(const QueryTile&, int, int, int) const {
    return *this;
  }

  ATTNFORGE_DEVICE int count() const { return tiles; }
  /// The group that this lane of a warp has in the tile that comes i-th.
  ATTNFORGE_DEVICE KeyGroup tile(int i) const {
    const int lane = thread_index() % 32;
    if (lane >= kGroups || i >= tiles) return {0, 0};
    const u64 both = *reinterpret_cast<const u64*>(groups_at(i) + lane);
    return {u32(both), u32(both >> 32)};
  }

  // Walking by place, which is the index.

  ATTNFORGE_DEVICE static constexpr int first() { return 0; }
  ATTNFORGE_DEVICE static int later(int place, int tiles) { return place + tiles; }
  ATTNFORGE_DEVICE bool has(int place) const { return place < tiles; }
  /// The groups of the tile there.
  ATTNFORGE_DEVICE const KeyGroup* groups_at(int place) const {
    return groups + (tiles - 1 - place) * kGroups;
  }
  /// The number of its first group; with one group, of the tile.
  ATTNFORGE_DEVICE int tile_at(int place) const {
    return int(groups_at(place)->number & ~KeyGroup::kEdge);
  }
  /// Calls attend(place, true) for all tiles: who attends looks at the groups.
  template <class Attend>
  ATTNFORGE_DEVICE void for_each(const Attend& attend) const {
#pragma unroll 1
    for (int place = 0; place < tiles; ++place) attend(place, true);
  }

  // Beside a query tile in shared memory.
  static constexpr int kWords = 1;
  ATTNFORGE_DEVICE void store(u32 to) const { store_shared(to, tiles); }
  ATTNFORGE_DEVICE static ListWalk load(u32 from) {
    return {nullptr, from_lane_0(load_shared(from))};
  }
};

/// A list whose step also says which of its tiles each of kWarpgroups warpgroups sees, from the
/// first to the last: a mask's text is known for all 64 rows before the kernel.
template <int kWarpgroups>
struct PartedListWalk : ListWalk<1> {
  static constexpr bool kInParts = true;

  u32 of_parts[kWarpgroups];  // of who reads the list
  u32 told;                   // where shared memory has these, of who is told of it
  int left_out;               // tiles before these, of a part

  template <class Params, class QueryTile>
  ATTNFORGE_DEVICE static PartedListWalk of_rows(const Params& params, const QueryTile& tile, int,
                                                 int row, int rows) {
    const KeyListParams& lists = params.lists;
    const int list = list_index(params.fwd, lists, tile.batch, tile.head, row / rows);
    PartedListWalk walk{{lists.groups + list * lists.capacity, lists.counts[list]}, {}, 0, 0};
#pragma unroll
    for (int w = 0; w < kWarpgroups; ++w) walk.of_parts[w] = lists.parts[list * kWarpgroups + w];
    return walk;
  }

  template <class QueryTile>
  ATTNFORGE_DEVICE PartedListWalk of_part(const QueryTile&, int, int, int) const {
    return *this;
  }
  /// The tiles of this walk that some of the rows see anything of, and those between them.
  template <class QueryTile>
  ATTNFORGE_DEVICE PartedListWalk seen_by(const QueryTile& tile, int, int row, int rows) const {
    const u32 at = told + 4 * ((row - tile.first_row) / rows);
    const WalkPart its = WalkPart::of(u32(from_lane_0(load_shared(at))), tiles);
    return {{nullptr, its.count}, {}, told, its.before};
  }
  /// How many of these tiles come before those of `part`, and how many after.
  ATTNFORGE_DEVICE int before(const PartedListWalk& part) const { return part.left_out; }
  ATTNFORGE_DEVICE int after(const PartedListWalk& part) const {
    return tiles - part.left_out - part.tiles;
  }

  // Beside a query tile in shared memory.
  static constexpr int kWords = 1 + kWarpgroups;
  ATTNFORGE_DEVICE void store(u32 to) const {
    store_shared(to, tiles);
#pragma unroll
    for (int w = 0; w < kWarpgroups; ++w) store_shared(to + 4 + 4 * w, int(of_parts[w]));
  }
  ATTNFORGE_DEVICE static PartedListWalk load(u32 from) {
    return {{nullptr, from_lane_0(load_shared(from))}, {}, from + 4, 0};
  }
};

}  // namespace attnforge
