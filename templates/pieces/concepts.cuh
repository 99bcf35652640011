// concepts.cuh - what the pieces of a kernel must have, slot by slot. The generated entry checks
// those that it puts in the place of dense ones, so that a wrong one is one error that names it.
#pragma once

#include "tile/query_tile.cuh"
#include "tile/tile_order.cuh"

/// Params is the kernel's argument, Tile its QueryTile: of one head, for any number will do.
namespace attnforge::seams {

template <class T, class Wanted>
inline constexpr bool kIs = false;
template <class T>
inline constexpr bool kIs<T, T> = true;
template <class T, class Wanted>
concept Is = kIs<T, Wanted>;
template <class T>
concept Int = Is<T, int>;
template <class T>
concept Bool = Is<T, bool>;

/// Which query tile a block has: by number, or a share of all, or all of it where there is no
/// number to divide.
template <class T, class Params, class Tile>
concept Order = requires(const Params& params) {
  T::begin();
  requires Is<decltype(T::kMayRunOut), const bool> && Is<decltype(T::kMayBeEmpty), const bool>;
  requires !T::kFinds || requires { T::find(params); };
  requires requires {
    { T::place(params, 0) } -> Is<TilePlace>;
    { T::tiles(params) } -> Int;
  } || requires {
    { T::share().place(params) } -> Is<TilePlace>;
    T::share().slice().first;
  } || requires {
    { T::template tile<Tile>(params) } -> Is<Tile>;
    requires(T::kMostRows > 0);
  };
};

/// Lengths of a sequence, and where it lies in its tensors.
template <class T, class Params>
concept Lengths = requires(const Params& params, const T& lengths, u32 words) {
  T(params, 0);
  { lengths.q() } -> Int;
  { lengths.kv() } -> Int;
  { lengths.batch() } -> Int;
  { lengths.q_begin() } -> Int;
  { lengths.kv_begin() } -> Int;
  requires Is<decltype(T::kAnythingAfter), const bool>;
  requires(T::kWords >= 0);
  lengths.store(words);
  { T::load(params, 0, words) } -> Is<T>;
};

/// The function that walks call: it takes a place, and whether the tile there is masked.
struct Attend {
  ATTNFORGE_DEVICE void operator()(int, bool) const;
};
/// Key tiles by index: the loader and the consumers count alone (TMA).
template <class T, class Tile>
concept WalkByIndex = requires(const T& walk, const Tile& tile) {
  { walk.count() } -> Int;
  walk.tile(0);
  { walk.of_part(tile, 64, 0, 64) } -> Is<T>;
  requires T::kListed || requires {
    { walk.tile(0) } -> Int;
    { walk.masked(0) } -> Bool;
  };
};
/// Key tiles by place: one loop loads and attends (cp.async).
template <class T>
concept WalkByPlace = requires(const T& walk) {
  { walk.first() } -> Int;
  { walk.later(0, 1) } -> Int;
  { walk.has(0) } -> Bool;
  { walk.tile_at(0) } -> Int;
  walk.for_each(Attend());
  requires T::kListed || requires {
    { walk.step(0) } -> Int;
  };
};
/// The key tiles of a query tile, in both ways.
template <class T, class Params, class Tile>
concept Walk = WalkByIndex<T, Tile> && WalkByPlace<T> &&
    requires(const Params& params, const Tile& tile) {
  { T::of_rows(params, tile, 64, 0, 64) } -> Is<T>;
};

/// A loader of cp.async, as keys ask it.
struct Loader {
  static constexpr int kTileRows = 64, kRowsPerPass = 16;
  int row, chunk;
  template <bool kBounded, class Source>
  ATTNFORGE_DEVICE void load(u32, const Source&, int) const;
};
/// Where the rows of a key tile lie, for cp.async.
template <class T, class Tile, class Walk>
concept Keys = requires(T& keys, const TensorRef& tensor, const Tile& tile, const Walk& walk,
                        const Loader& loader, u32 to) {
  T(tensor, tile, 0, walk, loader);
  keys.template seek<true>(walk, 0, loader);
  keys.share(keys);
  keys.template load<true>(walk, 0, loader, to, 0);
};
/// Where they lie, for TMA. kAhead: a tile is what of_tile() makes of its index, not its number.
template <class T, class Tile, class Walk>
concept TmaKeys = requires(const T& keys, const Tile& tile, const Walk& walk, const TensorMap& map,
                           u32 to, u32 full) {
  T(tile);
  requires(T::kThreads > 0);
  requires T::kAhead || requires { keys.template load<1>(map, to, full, 0); };
  requires !T::kAhead || requires { keys.template load<1>(map, to, full, keys.of_tile(walk, 0)); };
};

/// A lane's scores, as Score and Mask take them.
struct Scores {
  static constexpr bool kCoarse = true;
  float (&all)[1][4];
  template <class OfRow>
  ATTNFORGE_DEVICE void for_each(const OfRow&) const;
};
/// What becomes of scores before the mask.
template <class T, class Tile>
concept Score = requires(const Scores& scores, const Tile& tile) {
  requires Is<decltype(T::kScaled), const bool>;
  requires !T::kSeries || requires { typename T::Series; };
  T::apply(scores, tile);
};
/// Its derivative.
template <class T, class Tile>
concept Slope = requires(const T& slope, const FwdParams& p, const Scores& scores,
                         const Tile& tile) {
  T(p);
  requires T::kOfPair || requires { slope(0.0f); };
  requires !T::kOfPair || requires { T::apply(scores, tile); };
};
/// -inf to the scores of keys that a row does not see.
template <class T, class Tile>
concept Mask = requires(const Scores& scores, const Tile& tile) {
  T::apply(scores, tile);
};

/// Where rows go that have seen all their keys, or all of their split.
template <class T, class Tile>
concept Output = requires(const Tile& tile, const float (&o)[1][4]) {
  T::template store<0, 1>(tile, 0, 0, o, 1.0f, 0.0f);
};

/// Which part of a query tile's keys a block has, and where its rows' results lie.
template <class T, class Params>
concept Splits = requires(const Params& params) {
  T::count_all(params);
  T::slice(params, 1).first;
  T::of_row(params, 0, 0, 0).count;
  { T::place(params, 0, 0, 0) } -> Is<i64>;
};

/// What is done with a tile of K or V in shared memory between its arrival and its use. JobTile:
/// hopper/workers.cuh.
template <class T, class JobTile>
concept Job = requires(T& job, const JobTile& tile, u32 from, u32 to) {
  T(tile, 0, 1);
  job.run(from, to);
};

}  // namespace attnforge::seams
