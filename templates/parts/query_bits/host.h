// host.h - which query tiles the key tiles of a backward kernel go through: those that windows
// let see them, or of these the ones that a step before the kernel, bwd_tiles, tells by bits
// (templates/parts/query_bits/params.h).
#pragma once

#include "attnforge/problem.h"
#include "generator/shape.h"
#include "templates/parts/query_bits/params.h"

namespace attnforge {

/// The bits of tiles of block_m queries and block_n keys; zeros without the step. `shape` is the
/// problem's.
QueryTileBits query_tile_bits(const Problem& problem, const Shape& shape, int block_m, int block_n);

}  // namespace attnforge
