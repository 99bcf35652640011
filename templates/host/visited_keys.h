// visited_keys.h - how many tiles of keys the query tiles of a head visit: the work that models
// count.
#pragma once

#include "attnforge/problem.h"

namespace attnforge {

struct KeyTiles {
  double all = 0;     // visited, over all query tiles of a head
  double masked = 0;  // of them, those that need a mask for the problem's bounds; about
};

/// For query tiles of block_m rows, in which `pack` heads share each query, and tiles of block_n
/// keys. All at least 1. Cost: about a microsecond, whatever the lengths.
KeyTiles key_tiles(const Problem& problem, int block_m, int pack, int block_n);

}  // namespace attnforge
