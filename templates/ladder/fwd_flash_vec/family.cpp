// family.cpp - fwd_flash_vec as a Family: what it serves, its search space, source and launch.
#include <algorithm>

#include "generator/family.h"
#include "generator/typed_family.h"
#include "templates/host/common_fields.h"
#include "templates/host/common_rejects.h"
#include "templates/host/fwd_params.h"
#include "templates/host/kernel_source.h"
#include "templates/host/tile_order.h"
#include "templates/ladder/cuda_core_time.h"
#include "templates/ladder/fwd_flash_vec/config.h"

namespace attnforge {
namespace {

using Typed = FwdFlashVecConfig;
constexpr std::string_view kName = "fwd_flash_vec";

constexpr Field<Typed> kFields[] = {
    {"lanes_per_row", &Typed::lanes_per_row, doubled(2, 32)},
    {"rows_per_thread", &Typed::rows_per_thread, doubled(1, 8)},
    {"num_warps", &Typed::num_warps, doubled(2, 8)},
    {"block_n", &Typed::block_n, from_to(4, 256, 4)},
    {"keys_per_lane", &Typed::keys_per_lane, doubled(1, 4)},
};

constexpr int kSmallestBlockM = 2;  // 64 threads, 32 lanes a row
constexpr int kMostScores = 64;     // of a step, a thread: more leave no registers for q and o

std::string supports(const Problem& problem, const Arch& arch) {
  if (Reason no = below_sm80(arch)) return no.text();
  return too_many_query_tiles(problem, kSmallestBlockM).text();
}

std::vector<Axis> axes(const Problem&, const DeviceFacts&) {
  return {
      {"lanes_per_row", {8, 4, 16, 2, 32}},
      {"rows_per_thread", {4, 2, 8, 1}},
      {"num_warps", {4, 8, 2}},
      {"block_n", {32, 64, 16}},
      {"keys_per_lane", {1, 2, 4}},
  };
}

Reason illegal(const Typed& c, const Problem&, const DeviceFacts& device) {
  if (c.block_n % c.step_n() != 0)
    return "the keys of a step, lanes_per_row * keys_per_lane, do not divide block_n";
  if (Reason wrong = invalid(c)) return wrong;
  return too_much_smem(c.smem_bytes(), device.arch);
}

Reason needless(const Typed& c, const Problem& problem, const DeviceFacts&) {
  if (c.rows_per_thread * c.step_n() > kMostScores)
    return Reason("{} scores per step leave no registers for q and o",
                  c.rows_per_thread * c.step_n());
  if (c.planned_registers() > 255)
    return Reason("about {} registers, more than a thread has", c.planned_registers());
  if (c.lanes_per_row > c.head_dim / 4 || c.lanes_per_row > c.head_dim_v / 4)
    return "some lanes would have no element of a row";
  if (c.rows_per_thread > 1 && c.rows_per_thread / 2 >= problem.seqlen_q)
    return "half the rows of a thread would be empty";
  return half_empty_keys(c.block_n, 16, problem);
}

/// What a step costs a warp: instructions, four per clock and SM, or the clocks of shared memory.
double step_clocks(const Typed& c) {
  const double chunks = c.qk_chunks() + c.v_chunks(), rows = c.rows_per_thread, keys = c.step_n();
  const double products = 4 * rows * keys * chunks;
  const double exchanged = rows * (keys - c.keys_per_lane);  // shuffles of sum_to_owners
  const double own = rows * c.keys_per_lane;
  const double wide_loads = keys * (chunks + (rows + 3) / 4);
  const double issued = products + wide_loads + 4 * exchanged + 14 * own + 6 * rows + 20;
  const double load_clocks = c.lanes_per_row == 32 ? 4 : 2;
  const double shared = keys * chunks * load_clocks + keys * (rows + 3) / 4 + exchanged + own;
  // Longer steps gain nothing and cost registers.
  const double long_step = keys <= 8 ? 1.0 : keys <= 16 ? 1.2 : 1.5;
  return long_step * std::max(issued / 4, shared);
}

double estimate_us(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  constexpr double kEfficiency = 0.7, kSpillRisk = 1.15, kLargeTiles = 1.1;
  constexpr int kSafeRegisters = 232, kSmallTilesBytes = 48 * 1024;
  const double steps = double(c.num_warps) * c.block_n / c.step_n();
  const double copies = c.block_n * (c.head_dim + c.head_dim_v) / 8.0 / 32;  // of a warp, a tile
  // Near the limit ptxas may spill, which costs time, or may not: measure it, but do not start with
  // it.
  const double risk = c.planned_registers() > kSafeRegisters ? kSpillRisk : 1.0;
  // On an H200 tiles of 32 keys beat those of 64 at head_dim 128.
  const double large = c.smem_bytes() > kSmallTilesBytes ? kLargeTiles : 1.0;
  return risk * large *
         cuda_core_us({.block_m = c.block_m(),
                       .block_n = c.block_n,
                       .num_threads = c.num_threads(),
                       .blocks_per_sm = c.blocks_per_sm(),
                       .smem_bytes = c.smem_bytes(),
                       .tile_clocks = steps * step_clocks(c) + 20 * copies},
                      problem, device, kEfficiency);
}

std::string symbol(const Typed& c) { return shape_name(kName, c, c.block_m(), c.block_n); }

Source render(const Typed& c, const Problem& problem) {
  return kernel_source(untyped(kName, c, kFields), c, problem,
                       {.symbol = symbol(c),
                        .folder = "ladder/fwd_flash_vec",
                        .type = "FwdFlashVec",
                        .params = OwnParams::of<FwdTiledParams>("FwdTiledParams"),
                        .blocks_per_sm = "blocks_per_sm()"});
}

Launch launch(const Typed& c, const Problem& problem, const DeviceFacts&) {
  const TileOrder order = cuda_core_order(problem, c.block_m(), later_see_more(c));
  return launch_of_tiles(problem, order, step_of(symbol(c), c.num_threads(), c.smem_bytes()));
}

}  // namespace

extern const Family fwd_flash_vec;
constinit const Family fwd_flash_vec = typed_family<kFields, illegal, needless, estimate_us, render,
                                                    launch>({
    .name = kName,
    .summary = "FlashAttention on CUDA cores, four elements per load and several rows per thread: "
               "fp32, fp16 "
               "and bf16",
    .tier = Tier::kLadder,
    .features = kFeaturesOfWindows | kFeaturesOfScores | kFeatureLse | kFeatureGqa |
                kFeatureUnequalHeadDims | kFeatureUnaligned,
    .supports = supports,
    .axes = axes,
});

}  // namespace attnforge
