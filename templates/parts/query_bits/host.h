// host.h - which query tiles the key tiles of a backward kernel go through: those that windows
// let see them, or of these the ones that a step before the kernel, bwd_tiles, tells by bits
// (templates/parts/query_bits/params.h).
#pragma once

#include <string>

#include "attnforge/problem.h"
#include "templates/host/kernel_source.h"
#include "templates/parts/query_bits/params.h"

namespace attnforge {

/// The Queries piece (backward/query_walk.cuh); the second: where any tile may hide keys from a
/// row.
inline constexpr const char*
    kQueryWalk = "QueryWalk<kConfig.left_bound != 0, kConfig.right_bound != 0>";
inline constexpr const char*
    kMaskedQueryWalk = "QueryWalk<kConfig.left_bound != 0, kConfig.right_bound != 0, true>";

/// Whether there is such a step: a block mask leaves query tiles out.
bool lists_query_tiles(const Problem& problem);

/// Of tiles of block_m queries and block_n keys; zeros without the step.
QueryTileBits query_tile_bits(const Problem& problem, int block_m, int block_n);

/// Puts the pieces that read the bits in the place of Queries, Walk and Mask, and returns the type
/// whose run() is the step. "", and `names` as they were, where there is none.
std::string listed_queries(KernelNames& names, const Problem& problem, int block_m, int block_n);

}  // namespace attnforge
