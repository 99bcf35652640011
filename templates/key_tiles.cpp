// key_tiles.cpp - the host's counterpart of tile/kv_blocks.cuh, summed over a head.
#include "templates/key_tiles.h"

#include <algorithm>
#include <cmath>

namespace attnforge {

KeyTiles key_tiles(const Problem& problem, double queries, int block_n) {
  const Window window = effective_window(problem);
  const double rows = double(problem.seqlen_q), keys = double(problem.seqlen_kv),
               offset = keys - rows;
  const int bounds = (window.right >= 0) + (window.left >= 0);
  KeyTiles result;
  for (double first = 0; first < rows; first += queries) {
    const double last = std::min(first + queries, rows) - 1;
    const double end = window.right < 0 ? keys
                                        : std::min(keys, last + offset + double(window.right) + 1);
    const double begin = window.left < 0 ? 0 : std::max(0.0, first + offset - double(window.left));
    if (end <= begin) continue;
    const double tiles = std::ceil(end / block_n) - std::floor(begin / block_n);
    result.all += tiles;
    result.masked += std::min(tiles, bounds * (queries / block_n + 0.5));
  }
  return result;
}

}  // namespace attnforge
