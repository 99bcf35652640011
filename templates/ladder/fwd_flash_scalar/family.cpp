// family.cpp - fwd_flash_scalar as a Family: what it serves, its search space, source and launch.
#include <algorithm>
#include <cmath>

#include "generator/family.h"
#include "generator/typed_family.h"
#include "templates/host/common_fields.h"
#include "templates/host/common_rejects.h"
#include "templates/host/fwd_params.h"
#include "templates/host/kernel_source.h"
#include "templates/host/tile_order.h"
#include "templates/ladder/cuda_core_time.h"
#include "templates/ladder/fwd_flash_scalar/config.h"

namespace attnforge {
namespace {

using Typed = FwdFlashScalarConfig;
constexpr std::string_view kName = "fwd_flash_scalar";

constexpr Field<Typed> kFields[] = {
    {"lanes_per_row", &Typed::lanes_per_row, doubled(2, 16)},
    {"num_warps", &Typed::num_warps, doubled(2, 8)},
    {"block_n", &Typed::block_n, from_to(4, 256, 4)},
    {"step_n", &Typed::step_n, doubled(1, 32)},
};

constexpr int kSmallestBlockM = 4;  // 64 threads, 16 lanes a row
constexpr int kLongestStep = 512;   // multiply-adds, all unrolled: 16 KB of code with their loads

std::string supports(const Problem& problem, const Arch& arch) {
  if (Reason no = below_sm80(arch)) return no.text();
  return too_many_query_tiles(problem, kSmallestBlockM).text();
}

std::vector<Axis> axes(const Problem&, const DeviceFacts&) {
  return {
      {"lanes_per_row", {4, 2, 8, 16}},
      {"num_warps", {4, 8, 2}},
      {"block_n", {32, 64, 16}},
      {"step_n", {8, 16, 4}},
  };
}

Reason illegal(const Typed& c, const Problem&, const DeviceFacts& device) {
  if (c.head_dim % c.lanes_per_row != 0 || c.head_dim_v % c.lanes_per_row != 0)
    return "the lanes of a row do not share a head dim evenly";
  if (Reason wrong = invalid(c)) return wrong;
  return too_much_smem(c.smem_bytes(), device.arch);
}

Reason needless(const Typed& c, const Problem& problem, const DeviceFacts&) {
  if (c.planned_registers() > 255)
    return Reason("a lane would hold {} elements of q and o; more lanes have room",
                  c.qk_elements() + c.v_elements());
  if (c.step_n * (c.qk_elements() + c.v_elements()) > kLongestStep)
    return "a step of so many multiply-adds and loads does not stay in the instruction cache";
  return half_empty_keys(c.block_n, 16, problem);
}

/// Every key costs a warp a load from shared memory for each multiply-add, one a clock, or its
/// instructions, four a clock, whichever takes longer.
double estimate_us(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  constexpr double kEfficiency = 0.92;
  const double elements = c.qk_elements() + c.v_elements();
  const double shuffles = std::log2(c.lanes_per_row);
  const double loads = elements + 2 * shuffles;
  const double issued = 2 * elements + 2 * shuffles + 8 + double(c.v_elements() + 12) / c.step_n;
  const double key_clocks = std::max(loads, issued / 4);
  const double tile_loads = 2.0 * c.block_n * (c.head_dim + c.head_dim_v) / 32;  // and stores
  return cuda_core_us({.block_m = c.block_m(),
                       .block_n = c.block_n,
                       .num_threads = c.num_threads(),
                       .blocks_per_sm = c.blocks_per_sm(),
                       .smem_bytes = c.smem_bytes(),
                       .tile_clocks = c.num_warps * c.block_n * key_clocks + 2 * tile_loads},
                      problem, device, kEfficiency);
}

std::string symbol(const Typed& c) { return shape_name(kName, c, c.block_m(), c.block_n); }

Source render(const Typed& c, const Problem& problem) {
  return kernel_source(untyped(kName, c, kFields), c, problem,
                       {.symbol = symbol(c),
                        .folder = "ladder/fwd_flash_scalar",
                        .type = "FwdFlashScalar",
                        .params = OwnParams::of<FwdTiledParams>("FwdTiledParams"),
                        .blocks_per_sm = "blocks_per_sm()"});
}

Launch launch(const Typed& c, const Problem& problem, const DeviceFacts&) {
  const TileOrder order = cuda_core_order(problem, c.block_m(), later_see_more(c));
  return launch_of_tiles(problem, order, step_of(symbol(c), c.num_threads(), c.smem_bytes()));
}

}  // namespace

extern const Family fwd_flash_scalar;
constinit const Family
    fwd_flash_scalar = typed_family<kFields, illegal, needless, estimate_us, render, launch>({
        .name = kName,
        .summary =
            "the textbook's FlashAttention on CUDA cores, one element a load: fp32, fp16 and bf16",
        .tier = Tier::kLadder,
        .features = kFeaturesOfWindows | kFeaturesOfScores | kFeatureLse | kFeatureGqa |
                    kFeatureUnequalHeadDims | kFeatureUnaligned,
        .supports = supports,
        .axes = axes,
    });

}  // namespace attnforge
