// family.cpp - fwd_wmma as a Family: what it serves, its search space, its source and its launch.
#include <algorithm>
#include <cmath>

#include "generator/family.h"
#include "generator/typed_family.h"
#include "templates/host/common_fields.h"
#include "templates/host/common_rejects.h"
#include "templates/host/fwd_params.h"
#include "templates/host/kernel_source.h"
#include "templates/host/tile_order.h"
#include "templates/host/visited_keys.h"
#include "templates/ladder/fwd_wmma/config.h"

namespace attnforge {
namespace {

using Typed = FwdWmmaConfig;
constexpr std::string_view kName = "fwd_wmma";

constexpr Field<Typed> kFields[] = {
    {"block_m", &Typed::block_m, doubled(32, 256)},
    {"num_warps", &Typed::num_warps, doubled(2, 8)},
    {"block_n", &Typed::block_n, from_to(16, 256, 16)},
    {"step_n", &Typed::step_n, from_to(16, 256, 16)},
    {"stages", &Typed::stages, from_to(1, 4)},
    {"q_in_regs", &Typed::q_in_regs, kFlag},
    {"blocks_per_sm", &Typed::blocks_per_sm, from_to(1, 16)},
    {"head_group_mb", &Typed::head_group_mb, kHeadGroupsMb},
};

/// Registers in addition to the planned ones that ptxas needs for addresses and operands.
constexpr int kRegisterSlack = 40;
constexpr int kSmallestBlockM = 32;
constexpr int kLargestHeadDim = 256;  // its output just fits the registers of the warps that own it

std::string supports(const Problem& problem, const Arch& arch) {
  if (Reason no = without_cp_async(arch)) return no.text();
  if (Reason no = not_16_bits(problem)) return no.text();
  if (Reason no = below_alignment(problem, 4)) return no.text();
  if (Reason no = head_dim_above(problem, kLargestHeadDim)) return no.text();
  return too_many_query_tiles(problem, kSmallestBlockM).text();
}

std::vector<Axis> axes(const Problem& problem, const DeviceFacts& device) {
  return {
      {"block_m", {64, 128, 32}},
      {"num_warps", {4, 8, 2}},
      {"block_n", {64, 32, 128, 16}},
      {"step_n", {64, 32, 16}},
      {"stages", {2, 1}},
      {"q_in_regs", {0, 1}},
      {"blocks_per_sm", {2, 3, 4, 1}},
      {"head_group_mb", head_groups_mb(problem, device)},
  };
}

Reason illegal(const Typed& c, const Problem&, const DeviceFacts& device) {
  const Arch& arch = device.arch;
  if (Reason wrong = uneven_rows(c.block_m, c.num_warps)) return wrong;
  if (Reason wrong = wrong_steps(c)) return wrong;
  if (Reason wrong = one_stage_of_steps(c.stages, c.block_n / c.step_n)) return wrong;
  if (Reason wrong = invalid(c)) return wrong;
  if (Reason wrong = too_much_smem(c.smem_bytes(), arch)) return wrong;
  return no_room(c, arch);
}

Reason needless(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  const Arch& arch = device.arch;
  if (Reason waste = many_rows(c)) return waste;
  if (Reason waste = half_empty_queries(c.block_m, kSmallestBlockM, problem.seqlen_q)) return waste;
  if (Reason waste = half_empty_keys(c.block_n, 32, problem)) return waste;
  if (Reason waste = few_registers(c, arch, kRegisterSlack)) return waste;
  return room_for_more_blocks(c, arch, kRegisterSlack);
}

/// The work of an SM's units on all tiles, in clocks; blocks that are alone on an SM also wait for
/// themselves. Crude: it need only put a good config first.
double estimate_us(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  constexpr double kTensor = 1.7, kTileStart = 6000, kWait = 400, kSpillRisk = 1.6;
  constexpr int kSafeSlack = 72;
  const double warps = c.num_warps, rows = c.row_fragments(), keys = c.block_n / 16.0;
  const double depth = c.depth_steps(), columns = c.out_fragments(), steps = c.block_n / c.step_n;
  // Fragments that a warp reads: of K and V, of Q; 4 wavefronts each.
  const double fragments = keys * (depth + columns) + (c.q_in_regs ? 0 : steps * rows * depth);
  const double tensor = kTensor * warps * rows * keys * (depth + columns) * 4096 /
                        device.arch.mma_fma_per_clock_per_sm;
  const double shared = 4 * warps * fragments + (c.k_bytes() + c.v_bytes()) / 128.0;
  const double softmax = warps / 4 * rows * keys * 8 * 6;  // issue slots
  const double issue = warps / 4 * (fragments + 2 * rows * keys * (depth + columns)) + softmax;
  const double busy = std::max({tensor, shared, issue}) + 0.3 * std::min({tensor, shared, issue});
  const double serial = (tensor + softmax + steps * 100 + kWait * (c.stages == 1 ? 2 : 1)) /
                        c.blocks_per_sm;
  const double clocks_per_tile = std::max(busy, serial) + 0.4 * std::min(busy, serial);

  const double heads = double(problem.batch) * double(problem.num_heads_q);
  const double blocks = double(query_tiles(problem, c.block_m));
  const double clocks = visited_keys(problem, c.block_m, 1, c.block_n).all * heads *
                            clocks_per_tile +
                        blocks * kTileStart / c.blocks_per_sm;
  const double rounds = std::max(blocks / (double(device.num_sms) * c.blocks_per_sm), 1e-9);
  const double idle = later_see_more(c) && rounds > 1 ? 1 + 0.7 / rounds
                                                      : std::ceil(rounds) / rounds;
  const bool tight = c.planned_registers() + kSafeSlack > registers_available(c, device.arch);
  return clocks * idle * (tight ? kSpillRisk : 1.0) / device.num_sms / device.sm_clock_mhz;
}

std::string symbol(const Typed& c) { return shape_name(kName, c, c.block_m, c.block_n); }

Source render(const Typed& c, const Problem& problem) {
  return kernel_source(untyped(kName, c, kFields), c, problem,
                       {.symbol = symbol(c),
                        .folder = "ladder/fwd_wmma",
                        .type = "FwdWmma",
                        .params = OwnParams::of<FwdTiledParams>("FwdTiledParams")});
}

Launch launch(const Typed& c, const Problem& problem, const DeviceFacts&) {
  const TileOrder order = tile_order(problem, c.block_m, 1, c.head_group_mb, later_see_more(c));
  return launch_of_tiles(problem, order, step_of(symbol(c), c.num_threads(), c.smem_bytes()));
}

}  // namespace

extern const Family fwd_wmma;
constinit const Family fwd_wmma = typed_family<kFields, illegal, needless, estimate_us, render,
                                               launch>({
    .name = kName,
    .summary = "wmma with opaque fragments and a cp.async ring: fp16 and bf16 on sm_80 and later",
    .tier = Tier::kLadder,
    .features = kFeaturesOfWindows | kFeaturesOfScores | kFeatureLse | kFeatureGqa |
                kFeatureUnequalHeadDims | kFeatureUnaligned,
    .supports = supports,
    .axes = axes,
});

}  // namespace attnforge
