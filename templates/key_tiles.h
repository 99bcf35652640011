// key_tiles.h - how many tiles of keys the query tiles of a head visit: the work that models count.
#pragma once

#include "attnforge/problem.h"

namespace attnforge {

struct KeyTiles {
  double all = 0;     // visited, over all query tiles of a head
  double masked = 0;  // of them, those that need a mask for the problem's bounds; about
};

/// For query tiles of `queries` queries (a fraction where packed heads share the rows) and tiles of
/// block_n keys.
KeyTiles key_tiles(const Problem& problem, double queries, int block_n);

}  // namespace attnforge
