// items.cuh - how the key tiles of a batch are shared out among splits: evenly inside a
// sequence, or evenly over all sequences, whose lengths only the device knows.
#pragma once

#include "ptx/shuffle.cuh"
#include "ptx/special_registers.cuh"

namespace attnforge {

/// ceil_div() where neither is negative: see quotient().
ATTNFORGE_DEVICE int ceil_quotient(int a, int b) { return quotient(a + b - 1, b); }

/// Key tiles of a split among those of a query tile, by index: first to last - 1. There may be
/// none.
struct TileSlice {
  int first, last;

  ATTNFORGE_DEVICE static TileSlice of(int tiles, int split, int splits) {
    return of(tiles, tiles / splits, split, splits);
  }
  /// each: tiles / splits.
  ATTNFORGE_DEVICE static TileSlice of(int tiles, int each, int split, int splits) {
    const int more = tiles - each * splits;
    const int first = split * each + min(split, more);
    return {first, first + each + (split < more ? 1 : 0)};
  }
};

/// A split of a sequence, among those of all sequences, which are numbered one sequence after
/// another.
struct SplitItem {
  int sequence;  // -1: there is no split with this number
  int split;     // of the sequence's
  int splits;    // that the sequence has
  int number;    // of the item
};

/// Of the lanes of a warp before this one.
ATTNFORGE_DEVICE int sum_of_lanes_before(int x) {
  int sum = x;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int before = __shfl_up_sync(~0u, sum, distance);
    if (thread_index() % 32 >= distance) sum += before;
  }
  return sum - x;
}

/// Splits of all sequences of a batch, at most `most` together, which are at least twice the
/// sequences: each sequence has as many as its key tiles need for none to be longer than
/// item_tiles. So all splits take about as long, however the lengths differ. `at_once` of them are
/// under way together, as the host counts (PartialParams): more take turns, which is worth it only
/// where sequences themselves are more than that, and unequal. TilesOf gives the key tiles of a
/// sequence. Nothing but these decides, so every warp that asks finds the same. All lanes of a warp
/// must call each function, with the same arguments.
template <class TilesOf>
struct SplitItems {
  TilesOf tiles_of;
  int batch, most;
  int item_tiles;

  ATTNFORGE_DEVICE SplitItems(const TilesOf& key_tiles, int sequences, int most_items, int at_once)
      : tiles_of(key_tiles), batch(sequences), most(most_items) {
    if (batch == 1) {
      item_tiles = max(ceil_quotient(tiles_of(0), most), 1);
      return;
    }
    const int all = total(tiles_of), longest = longest_sequence();
    const bool take_turns = at_once < 2 * batch;
    const bool about_equal = 4 * i64(longest) * batch <= 5 * i64(all);
    item_tiles = take_turns && about_equal
                     ? max(longest, 1)
                     : fewest_tiles(all, take_turns ? most : min(most, at_once));
  }

  /// That with this number.
  ATTNFORGE_DEVICE SplitItem item(int number) const {
    if (batch == 1) {
      const int splits = splits_of(0);
      return {number < splits ? 0 : -1, number, splits, number};
    }
    return find([number](int, int first, int splits) { return u32(number - first) < u32(splits); },
                number);
  }
  /// The first of a sequence, which may have none: splits is 0 then.
  ATTNFORGE_DEVICE SplitItem first_of(int sequence) const {
    if (batch == 1) return {sequence, 0, splits_of(0), 0};
    const SplitItem item = find([sequence](int i, int, int) { return i == sequence; }, 0);
    return {item.sequence, 0, item.splits, -item.split};  // as far as number 0 lies before it
  }

 private:
  ATTNFORGE_DEVICE static int lane() { return thread_index() % 32; }
  ATTNFORGE_DEVICE int splits_of(int sequence) const {
    return ceil_quotient(tiles_of(sequence), item_tiles);
  }

  template <class OfSequence>
  ATTNFORGE_DEVICE int total(const OfSequence& of_sequence) const {
    int sum = 0;
#pragma unroll 1
    for (int i = lane(); i < batch; i += 32) sum += of_sequence(i);
    return int(__reduce_add_sync(~0u, u32(sum)));
  }
  ATTNFORGE_DEVICE int longest_sequence() const {
    int longest = 0;
#pragma unroll 1
    for (int i = lane(); i < batch; i += 32) longest = max(longest, tiles_of(i));
    return __reduce_max_sync(~0u, longest);
  }
  /// Items if none is longer than `tiles`.
  ATTNFORGE_DEVICE int items(int tiles) const {
    return total([&](int i) { return ceil_quotient(tiles_of(i), tiles); });
  }

  /// The tiles of an item, for no more than `all_items` of them; there are `all` tiles. Equal
  /// lengths have their answer at once. Else it lies between that and what is enough whatever the
  /// lengths are, since rounding adds less than one item a sequence; a few halvings come near.
  ATTNFORGE_DEVICE int fewest_tiles(int all, int all_items) const {
    constexpr int kTries = 6;
    int tried = max(ceil_quotient(all, all_items), 1), too_few = tried - 1;
    int enough = max(ceil_quotient(all, all_items - batch), tried);
#pragma unroll 1
    for (int i = 0; i < kTries && enough - too_few > 1; ++i) {
      if (items(tried) <= all_items)
        enough = tried;
      else
        too_few = tried;
      tried = (too_few + enough) / 2;
    }
    return enough;
  }

  /// The item of the first sequence for which is_it(sequence, number of its first item, its items).
  template <class IsIt>
  ATTNFORGE_DEVICE SplitItem find(const IsIt& is_it, int number) const {
    int before = 0;
#pragma unroll 1
    for (int begin = 0; begin < batch; begin += 32) {
      const int sequence = begin + lane();
      const int splits = sequence < batch ? splits_of(sequence) : 0;
      const int first = before + sum_of_lanes_before(splits);
      const u32 found = lanes_where(sequence < batch && is_it(sequence, first, splits));
      if (found != 0) {
        const int its_lane = __ffs(int(found)) - 1;
        const int its_first = from_lane(first, its_lane);
        return {begin + its_lane, number - its_first, from_lane(splits, its_lane), number};
      }
      before = from_lane(first + splits, 31);
    }
    return {-1, 0, 0, number};
  }
};

}  // namespace attnforge
