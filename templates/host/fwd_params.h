// fwd_params.h - what a problem decides of a forward kernel's argument and launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "attnforge/problem.h"
#include "generator/launch.h"
#include "generator/shape.h"
#include "templates/base_params.h"
#include "templates/host/argument.h"

namespace attnforge {

/// Everything that the problem decides; pointers and strides are null and 0. Windows that are open,
/// or wider than any length, become kOpenWindow.
FwdParams fwd_params(const Problem& problem);

/// Query heads of a K/V head.
int gqa_group(const Problem& problem);

/// "fwd_wmma_bf16_d128_128x64", "bwd_mma_sm80_fp16_d192v128_64x80": what a kernel's symbol begins
/// with.
std::string shape_name(std::string_view family, const Shape& shape, int block_m, int block_n);

/// Bytes up to where the next part of a workspace may begin.
inline std::size_t scratch_aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

/// A step of a kernel with one argument.
LaunchStep step_of(std::string symbol, int num_threads, int smem_bytes, std::int64_t blocks = 1);

/// `step`, whose argument is a FwdTiledParams, with one thread block per query tile of `order`; no
/// step if there are no tiles.
Launch launch_of_tiles(const Problem& problem, const TileOrder& order, LaunchStep step);

/// Query tiles of all heads, pack_gqa of them in a tile: the blocks of a tiled launch.
std::int64_t query_tiles(const Problem& problem, int block_m, int pack_gqa = 1);

}  // namespace attnforge
