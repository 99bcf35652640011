// tile_mask.cuh - the mask of the scores of a query tile and a key tile in a backward kernel.
#pragma once

#include "backward/query_walk.cuh"

namespace attnforge {

/// A mask that asks for nothing ahead. View: of the scores.
template <class Mask, class View>
struct TileMask {
  /// While scores are on their way.
  template <class Work>
  ATTNFORGE_DEVICE void begin(const Work&, const QueryPlace&, const View&) {}
  /// Whether it may hide any.
  template <class Work>
  ATTNFORGE_DEVICE bool masked(const Work& work, const QueryPlace& place) const {
    return work.masked(place);
  }
  template <class QueryTile>
  ATTNFORGE_DEVICE void apply(const View& view, const QueryTile& queries) const {
    Mask::apply(view, queries);
  }
};

/// One that has bits of pairs in global memory.
template <class Mask, class View>
requires requires { sizeof(typename Mask::template Pairs<View>); }
struct TileMask<Mask, View> {
  bool hides;
  typename Mask::template Pairs<View> pairs;

  template <class Work>
  ATTNFORGE_DEVICE void begin(const Work& work, const QueryPlace& place, const View& view) {
    pairs.begin(view, work.keys.queries_of(place.head));
    hides = work.masked(place);
  }
  template <class Work>
  ATTNFORGE_DEVICE bool masked(const Work&, const QueryPlace&) const {
    return hides;
  }
  template <class QueryTile>
  ATTNFORGE_DEVICE void apply(const View& view, const QueryTile& queries) const {
    pairs.apply(view, queries);
  }
};

}  // namespace attnforge
