// visited_keys.h - how many tiles of keys the query tiles of a head visit, by windows and by the
// density of a block mask: the work that models count.
#pragma once

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "generator/shape.h"

namespace attnforge {

struct VisitedKeys {
  double all = 0;     // visited, over all query tiles of a head
  double masked = 0;  // of them, those that need a mask for the problem's bounds; about
};

/// For query tiles of block_m rows, in which `pack` heads share each query, and tiles of block_n
/// keys. All at least 1. begins_early: the first begins early_rows() before row 0. Cost: about a
/// microsecond, whatever the lengths.
VisitedKeys visited_keys(const Problem& problem, int block_m, int pack, int block_n,
                         bool begins_early = false);

/// The share of all keys that a query tile walks over: more than the mask's density where it has
/// rows of several blocks. 1 without a block mask.
double listed_share(const Problem& problem, int block_m);

/// Leaves of a query tile's key tiles those that lists have for it, on the average.
void keep_listed(VisitedKeys& tiles, const Problem& problem, int block_m);

/// Whether query tiles of a problem take about as long as each other: no mask, or a causal one of
/// many more keys than queries.
bool tiles_are_equal(const Problem& problem);

/// Whether a block mask has blocks no higher than a query tile of block_m rows.
bool rows_see_alike(const Problem& problem, int block_m);

/// Whether kernels whose blocks make the lists of a block mask themselves may be worth a try: the
/// GPU holds all query tiles at once, unless they are small.
bool may_have_own_lists(const Shape& shape, const Problem& problem, const DeviceFacts& device);
}  // namespace attnforge
