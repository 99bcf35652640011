// groups.cuh - what a warp knows of a gathered key tile: where its groups lie and what its rows
// see of them; and its scores, group by group.
#pragma once

#include "parts/key_lists/params.h"
#include "ptx/mma_fragment.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/special_registers.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// The groups of a tile for a warp with one fragment of rows. Equal in all lanes, but for `own`.
template <int kGroups, int kGroupKeys>
struct KeyGroups {
  static constexpr u32 kAll = kGroups == 32 ? ~0u : (1u << kGroups) - 1;

  u32 own;             // the number of the lane's group
  u32 seen_groups;     // bit g: some key of group g is seen
  u32 partial_groups;  // bit g: the mask's rule decides which
  bool some_edge;      // windows or the last key hide something

  /// From kGroups KeyGroups in shared memory. `warpgroup_sees`: whether any of its four fragments,
  /// of which `fragment` is one, sees anything.
  KeyGroups() = default;
  ATTNFORGE_DEVICE static KeyGroups load(u32 from, int fragment, bool& warpgroup_sees) {
    KeyGroups groups;
    u32 rows;
    const int lane = thread_index() % 32;
    load_shared_8(groups.own, rows, from + min(lane, kGroups - 1) * 8);
    if (lane >= kGroups) rows = 0;
    groups.seen_groups = lanes_where((rows >> fragment & 1) != 0);
    groups.partial_groups = lanes_where((rows >> (KeyGroup::kMostFragments + fragment) & 1) != 0);
    groups.some_edge = any_lane((groups.own & KeyGroup::kEdge) != 0);
    warpgroup_sees = any_lane((rows >> fragment / 4 * 4 & 15) != 0);
    groups.own &= ~KeyGroup::kEdge;
    return groups;
  }

  ATTNFORGE_DEVICE bool sees_all() const { return seen_groups == kAll; }
  ATTNFORGE_DEVICE bool edge() const { return some_edge; }
  ATTNFORGE_DEVICE bool seen(int g) const { return seen_groups >> g & 1; }
  ATTNFORGE_DEVICE bool partial(int g) const { return partial_groups >> g & 1; }
  ATTNFORGE_DEVICE bool needs_mask() const {
    return !sees_all() || partial_groups != 0 || some_edge;
  }
  ATTNFORGE_DEVICE int first_key(int g) const { return from_lane(int(own), g) * kGroupKeys; }
};

/// The same of one group. Every tile is asked what it hides, so that is one word, and few
/// instructions stand between its scores and the answer.
template <int kGroupKeys>
struct KeyGroups<1, kGroupKeys> {
  static constexpr u32 kSeen = 1, kPartial = 1u << KeyGroup::kMostFragments;

  u32 own;   // KeyGroup::number
  u32 what;  // kSeen, kPartial, KeyGroup::kEdge

  KeyGroups() = default;
  ATTNFORGE_DEVICE static KeyGroups load(u32 from, int fragment, bool& warpgroup_sees) {
    KeyGroups group;
    u32 rows;
    load_shared_8(group.own, rows, from);
    group.own = u32(from_lane_0(int(group.own)));
    warpgroup_sees = (from_lane_0(int(rows)) >> fragment / 4 * 4 & 15) != 0;
    group.what = (rows >> fragment & (kPartial | kSeen)) | (group.own & KeyGroup::kEdge);
    return group;
  }

  ATTNFORGE_DEVICE bool sees_all() const { return (what & kSeen) != 0; }
  ATTNFORGE_DEVICE bool edge() const { return (what & KeyGroup::kEdge) != 0; }
  ATTNFORGE_DEVICE bool seen(int) const { return sees_all(); }
  ATTNFORGE_DEVICE bool partial(int) const { return (what & kPartial) != 0; }
  ATTNFORGE_DEVICE bool needs_mask() const { return what != kSeen; }
  ATTNFORGE_DEVICE int first_key(int) const { return int(own & ~KeyGroup::kEdge) * kGroupKeys; }
};

/// Scores of a gathered tile in accumulators of 16 rows, as Score and Mask take them. A part is
/// what a fragment of rows has of a group.
template <class Array, int kGroups, int kGroupKeys>
struct GroupedScores {
  static constexpr bool kCoarse = true;  // probabilities are rounded to 16 bits
  static constexpr int kParts = kGroups;
  static constexpr bool kWholeGroups = true;  // a part has all keys of its group
  using Groups = KeyGroups<kGroups, kGroupKeys>;

  Array& all;
  int row;  // of the accumulators' first row that this lane has
  const Groups& groups;

  ATTNFORGE_DEVICE bool sees_all() const { return groups.sees_all(); }
  ATTNFORGE_DEVICE bool edge() const { return groups.edge(); }
  ATTNFORGE_DEVICE bool seen(int part) const { return groups.seen(part); }
  ATTNFORGE_DEVICE bool partial(int part) const { return groups.partial(part); }
  ATTNFORGE_DEVICE bool needs_mask() const { return groups.needs_mask(); }

  template <class OfRow>
  ATTNFORGE_DEVICE void for_each(const OfRow& of_row) const {
    unrolled<kGroups>([&](int g) { of_part(g, of_row); });
  }
  /// for_each() of one part.
  template <class OfRow>
  ATTNFORGE_DEVICE void of_part(int g, const OfRow& of_row) const {
    const int lane_key = groups.first_key(g) + MmaFragment::column(thread_index() % 32);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const auto f = of_row(row + 8 * r, lane_key);
      unrolled<kGroupKeys / 8, 2>([&](int j, int c) {
        float& s = all[g * (kGroupKeys / 8) + j][2 * r + c];
        s = f(s, j * 8 + c);
      });
    }
  }
};

/// The groups of a step of kStepKeys keys of a tile, which are some of its groups or lie in one, in
/// accumulators of several times 16 rows. Reads the groups from global memory.
template <class Array, int kStepKeys, int kGroupKeys>
struct StepGroupedScores;
template <int kRowFragments, int kFragments, int kStepKeys, int kGroupKeys>
struct StepGroupedScores<float[kRowFragments][kFragments][4], kStepKeys, kGroupKeys> {
  static_assert(kGroupKeys % kStepKeys == 0 || kStepKeys % kGroupKeys == 0,
                "steps and groups divide one another");
  static constexpr bool kCoarse = true;
  static constexpr int kGroups = kStepKeys > kGroupKeys ? kStepKeys / kGroupKeys : 1;
  static constexpr int kPartKeys = kStepKeys / kGroups;
  static constexpr int kParts = kRowFragments * kGroups;
  static constexpr bool kWholeGroups = false;

  float(&all)[kRowFragments][kFragments][4];
  int row;        // of the accumulators' first row that this lane has
  int fragment;   // of the tile, which the accumulators begin with
  int first_key;  // of the step, in its group
  KeyGroup groups[kGroups];

  ATTNFORGE_DEVICE StepGroupedScores(float(&scores)[kRowFragments][kFragments][4], int first_row,
                                     int first_fragment, const KeyGroup* of_tile, int step)
      : all(scores),
        row(first_row),
        fragment(first_fragment),
        first_key(step * kStepKeys % kGroupKeys) {
    unrolled<kGroups>([&](int g) { groups[g] = of_tile[step * kStepKeys / kGroupKeys + g]; });
  }

  ATTNFORGE_DEVICE bool seen(int part) const {
    return groups[part % kGroups].rows >> (fragment + part / kGroups) & 1;
  }
  ATTNFORGE_DEVICE bool partial(int part) const {
    return groups[part % kGroups].rows >> (KeyGroup::kMostFragments + fragment + part / kGroups) &
           1;
  }
  ATTNFORGE_DEVICE bool sees_all() const {
    bool all_seen = true;
    unrolled<kParts>([&](int part) { all_seen &= seen(part); });
    return all_seen;
  }
  ATTNFORGE_DEVICE bool sees_some() const {
    bool some = false;
    unrolled<kParts>([&](int part) { some |= seen(part); });
    return some;
  }
  ATTNFORGE_DEVICE bool edge() const {
    u32 numbers = 0;
    unrolled<kGroups>([&](int g) { numbers |= groups[g].number; });
    return (numbers & KeyGroup::kEdge) != 0;
  }

  template <class OfRow>
  ATTNFORGE_DEVICE void for_each(const OfRow& of_row) const {
    unrolled<kParts>([&](int part) { of_part(part, of_row); });
  }
  template <class OfRow>
  ATTNFORGE_DEVICE void of_part(int part, const OfRow& of_row) const {
    const int f = part / kGroups, g = part % kGroups;
    const int lane_key = int(groups[g].number & ~KeyGroup::kEdge) * kGroupKeys + first_key +
                         MmaFragment::column(thread_index() % 32);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const auto score = of_row(row + 16 * f + 8 * r, lane_key);
      unrolled<kPartKeys / 8, 2>([&](int j, int c) {
        float& s = all[f][g * (kPartKeys / 8) + j][2 * r + c];
        s = score(s, j * 8 + c);
      });
    }
  }
};

/// One part of them.
template <class Scores>
struct PartOfScores {
  static constexpr bool kCoarse = Scores::kCoarse, kWholeGroups = Scores::kWholeGroups;
  const Scores& scores;
  int part;

  template <class OfRow>
  ATTNFORGE_DEVICE void for_each(const OfRow& of_row) const {
    scores.of_part(part, of_row);
  }
};

}  // namespace attnforge
