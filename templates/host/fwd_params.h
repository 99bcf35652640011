// fwd_params.h - fills the argument of a forward kernel: sizes when a launch is planned, pointers
// and strides when it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "attnforge/plan.h"
#include "attnforge/problem.h"
#include "generator/launch.h"
#include "templates/params_fwd.h"

namespace attnforge {

/// Everything that the problem decides; pointers and strides are null and 0. Windows that are open,
/// or wider than any length, become kOpenWindow.
FwdParams fwd_params(const Problem& problem);

/// Query heads of a K/V head.
int gqa_group(const Problem& problem);

/// "bf16_d128_128x64", "fp16_d192v128_64x80": the part of a kernel's symbol that says what it does.
std::string shape_name(int dtype, int head_dim, int head_dim_v, int block_m, int block_n);

/// The one step of a kernel that gives each query tile of `order` a block; `params` is its
/// argument. None when there is nothing to do.
Launch launch_of_tiles(const TileOrder& order, std::string symbol, int num_threads, int smem_bytes,
                       std::span<const std::byte> params);

/// The same for an argument of type Params, of which a launch decides `fwd` and `order` alone; the
/// rest comes with the tensors.
template <class Params>
Launch launch_of_tiles(const Problem& problem, const TileOrder& order, std::string symbol,
                       int num_threads, int smem_bytes) {
  Params params{};
  params.fwd = fwd_params(problem);
  params.order = order;
  return launch_of_tiles(order, std::move(symbol), num_threads, smem_bytes,
                         std::as_bytes(std::span(&params, 1)));
}

/// The one step of a kernel whose argument is FwdTiledParams: a block a query tile, under a right
/// bound the heaviest first among heads that share L2. None when there is nothing to do.
struct TiledKernel {
  std::string symbol;
  int block_m;
  int num_threads;
  int smem_bytes;
  bool right_bound;
};
Launch tiled_launch(const Problem& problem, const TiledKernel& kernel);

/// Query tiles of all heads: the blocks of a tiled launch.
std::int64_t query_tiles(const Problem& problem, int block_m);

/// "" if a grid can have them all, else the reason why not.
std::string too_many_query_tiles(const Problem& problem, int block_m);

/// Family::bind of a family whose kernel argument is a FwdParams or begins with one. `out` has the
/// size of step.params.
void bind_fwd(const LaunchStep& step, const Tensors& tensors, void* workspace,
              std::span<std::byte> out);

/// The same for an argument that has RopeParams too, `rope_begin` bytes from its start.
void bind_fwd_rope(const LaunchStep& step, const Tensors& tensors, void* workspace,
                   std::span<std::byte> out, std::size_t rope_begin);

}  // namespace attnforge
