// tile_order.cuh - which query tile of which head a block takes: groups of heads, heavy first.
#pragma once

#include "base_params.h"

namespace attnforge {

struct TilePlace {
  int m_block;
  int head;  // batch * heads of a sequence + head
};

ATTNFORGE_DEVICE TilePlace place_tile(const TileOrder& order, int index) {
  const int tiles_per_group = order.heads_per_group * order.m_blocks;
  const int group = quotient(index, tiles_per_group);
  const int first_head = group * order.heads_per_group;
  const int heads = min(order.heads_per_group, order.heads - first_head);
  const int inside = index - group * tiles_per_group;
  const int m = quotient(inside, heads);
  return {order.heavy_last ? order.m_blocks - 1 - m : m, first_head + inside - m * heads};
}

}  // namespace attnforge
