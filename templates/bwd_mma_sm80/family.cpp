// family.cpp - bwd_mma_sm80 as a Family: what it serves, its search space, source and launch.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "generator/arch.h"
#include "generator/family.h"
#include "generator/tensors/stored_rows.h"
#include "generator/typed_family.h"
#include "templates/backward/host.h"
#include "templates/bwd_mma_sm80/config.h"
#include "templates/host/common_fields.h"
#include "templates/host/common_rejects.h"
#include "templates/host/fitted_model.h"
#include "templates/host/fwd_params.h"
#include "templates/host/kernel_source.h"
#include "templates/host/launch_work.h"
#include "templates/host/tile_order.h"
#include "templates/host/visited_keys.h"

namespace attnforge {

extern const Family bwd_mma_sm80;

namespace {

/// What is compiled in, and what the launch alone decides.
struct Typed : BwdMmaSm80Config {
  int head_group_mb;  // K/V heads are walked in groups of this many MB of what their blocks share:
                      // Q, dO and the sums of dQ; 0: one head after another
};
constexpr std::string_view kName = "bwd_mma_sm80";

constexpr Field<Typed> kFields[] = {
    {"block_m", &Typed::block_m, doubled(32, 256)},
    {"block_n", &Typed::block_n, from_to(32, 256, 32)},
    {"num_warps", &Typed::num_warps, doubled(2, 16)},
    {"roles", &Typed::roles, doubled(1, 4)},
    {"step_m", &Typed::step_m, doubled(16, 128)},
    {"stages", &Typed::stages, from_to(1, 3)},
    {"ds_stages", &Typed::ds_stages, from_to(1, 2)},
    {"keys_in_regs", &Typed::keys_in_regs, kFlag},
    {"dq", &Typed::dq, from_to(kDqAdded, kDqOwnKernel, kDqOwnKernel)},
    {"dq_vector", &Typed::dq_vector, from_to(1, 4, 3)},
    {"blocks_per_sm", &Typed::blocks_per_sm, from_to(1, 8)},
    {"head_group_mb", &Typed::head_group_mb, kHeadGroupsMb},
};

/// Registers in addition to the planned ones that ptxas needs for addresses and operands. With
/// fewer it spills.
constexpr int kRegisterSlack = 28;
int register_slack(const Typed& c, const Problem& problem) {
  return kRegisterSlack + slope_registers(problem, c.key_fragments() * c.warp_m() / 2);
}
constexpr int kSmallestBlock = 32;

std::string supports(const Problem& problem, const Arch& arch) {
  if (Reason no = without_cp_async(arch)) return no.text();
  if (Reason no = not_16_bits(problem)) return no.text();
  if (Reason no = below_alignment(problem, 4)) return no.text();
  if (Reason no = head_dim_above(problem, 256)) return no.text();
  return too_many_bwd_blocks(problem).text();
}

std::vector<Axis> axes(const Problem& problem, const DeviceFacts& device) {
  const int half_of_l2 = std::max(1, static_cast<int>(device.l2_bytes >> 21));
  const bool causal = later_see_more(shape_of(problem));
  Axis groups{"head_group_mb", {0}};
  if (causal) groups = {"head_group_mb", {half_of_l2, 0}};
  Axis dq{"dq", {kDqAdded}};
  if (problem.deterministic || !problem.dargs.empty()) dq = {"dq", {kDqOwnKernel}};
  const int vector = device.arch.sm < 90 ? 1 : 4;
  return {
      {"block_m", {64, 128, 32}},
      {"block_n", {128, 64, 96, 32, 192}},
      {"num_warps", {8, 4}},
      {"roles", {2, 4, 1}},
      {"step_m", {64, 32}},
      {"stages", {2, 1, 3}},
      {"ds_stages", {2, 1}},
      {"keys_in_regs", {0, 1}},
      dq,
      {"dq_vector", {vector}},
      {"blocks_per_sm", {1, 2, 3}},
      groups,
  };
}

Reason illegal(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  const Arch& arch = device.arch;
  if (problem.deterministic && c.dq == kDqAdded)
    return "sums of dQ that are added up in any order differ from run to run";
  if (c.dargs && c.dq == kDqAdded)
    return "gradients of arrays that the score reads are made by the kernel of dQ alone";
  if (c.roles == 4) {
    if (!c.in_halves()) return "four warps share columns 64 at a time and queries 32 at a time";
    if (c.num_warps < c.roles) return "roles=4 needs at least 4 warps";
    if (c.named_barriers() > 15) return "groups of four warps need more barriers than there are";
  }
  if (c.block_n % (16 * c.key_warps()) != 0) return "block_n is not a multiple of 16 keys per warp";
  if (c.block_m % c.step_m != 0) return "step_m does not divide block_m";
  if (c.ds_stages == 2 && !c.makes_dq()) return "ds_stages=2 needs a kernel that makes dQ";
  if (c.ds_stages == 2 && c.stages == 1)
    return "with one stage the barrier that a second tile of dS saves is needed anyway";
  if (Reason wrong = invalid(c)) return wrong;
  if (Reason wrong = too_much_smem(c.smem_bytes(), arch)) return wrong;
  if (!c.makes_dq())
    if (Reason wrong = too_much_smem(c.own_dq().smem_bytes(), arch)) return wrong;
  return no_room(c, arch);
}

Reason needless(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  const Arch& arch = device.arch;
  constexpr int kNarrow = 128;  // 2% slower there, 24% at 64
  if (c.roles == 4 && c.head_dim <= kNarrow && c.head_dim_v <= kNarrow)
    return "pairs of warps already reuse each operand as often";
  if (Reason waste = few_registers(c, arch, register_slack(c, problem))) return waste;
  if (c.key_fragments() > 4) return "more than 64 keys per warp leave no registers for scores";
  if (Reason waste = half_empty_queries(c.block_m, kSmallestBlock, problem.seqlen_q)) return waste;
  if (Reason waste = half_empty_keys(c.block_n, kSmallestBlock, problem)) return waste;
  if (Reason waste = room_for_more_blocks(c, arch, register_slack(c, problem))) return waste;
  if (Reason waste = few_warps(c.blocks_per_sm, c.num_warps)) return waste;
  // A step of scores is as large as registers allow: operands are read once a step.
  Typed larger = c;
  larger.step_m *= 2;
  if (larger.step_m <= std::min(c.block_m, 64) && c.step_m < 32 &&
      sm_has_room(larger, arch, register_slack(larger, problem)))
    return "there are registers for larger steps";
  return "";
}

// The model behind the order of candidates: what a block does for one tile of queries, by unit of
// an SM. What it must get right is the order, not the microseconds.

struct Constants {
  double tensor, shared, issue;  // times the work of a unit
  double l2;                     // clocks a byte
  double unoverlapped;           // of the lesser of two that overlap
  double own_chain, reduction;   // times what a warp alone takes, and the bytes of the sums of dQ
  double barrier, hand_over, tile_start;  // clocks
};
constexpr std::string_view kConstantNames[] = {"tensor",       "shared",    "issue",     "l2",
                                               "unoverlapped", "own_chain", "reduction", "barrier",
                                               "hand_over",    "tile_start"};
static_assert(sizeof(Constants) == std::size(kConstantNames) * sizeof(double));
constexpr ConstantsOfArch<Constants> kMeasured[] = {
#include "templates/bwd_mma_sm80/estimate_constants.inc"
};

Constants constants_of(const Arch& arch) {
  const Constants* const measured = constants_of_arch(kMeasured, arch.name);
  return measured != nullptr ? *measured : constants_of_hopper(kMeasured);
}

/// Work of one block on one tile of queries, in clocks of an SM that does nothing else.
struct TileCost {
  double tensor, shared, issue, exponentials, l2;
  double waits;  // of a block for itself
};

TileCost tile_cost(const Typed& c, const Arch& arch, const Constants& k) {
  const double pairs = double(c.block_m) * c.block_n;
  const int qk = c.qk_chunks() * 8, v = c.v_chunks() * 8, steps = c.block_m / c.step_m;
  // ldmatrix of the warps that share the keys' work, once with several roles: 512 bytes each.
  const int fragments = c.key_fragments(), own = c.keys_in_regs ? 0 : fragments;
  const double scores = steps * (qk / 16.0) * (own + c.warp_m() / 16.0);
  const double dp = steps * (v / 16.0) * ((c.roles != 1 ? own : fragments) + c.warp_m() / 16.0);
  const double keys = c.block_m / 16.0 * (qk + v) / 16.0 / c.halves();
  const double queries = c.makes_dq() ? c.block_n / 16.0 * (c.dq_rows() + c.dq_columns()) : 0;
  const double reads = c.key_warps() * c.halves() * (scores + dp + keys) + c.num_warps * queries;
  const double tile_bytes = c.q_bytes() + c.dout_bytes();
  // Bytes of dS, of what it is made of and of P, written and, but for dQ, read.
  const bool in_p = c.roles == 4 && !c.fp32_factors() && !c.changes_scores();
  const double bytes = element_bytes(c.dtype);
  const double factors = c.roles == 1 ? 0 : in_p ? bytes : 2 * (c.fp32_factors() ? 4 : bytes);
  const double words = c.has_ds() ? pairs * (bytes + factors + (c.roles == 4 ? 3 * bytes : 0)) : 0;
  const double sums_bytes = c.makes_dq() ? double(c.block_m) * qk * 4 : 0;
  const double products = pairs * (2.0 * qk + 2.0 * v + (c.makes_dq() ? qk : 0)) / 2048;

  TileCost cost;
  cost.tensor = products * 2048 / arch.mma_fma_per_clock_per_sm;
  cost.shared = 4.0 * reads + (tile_bytes + words) / 128.0;
  cost.issue = (products + reads + 7.0 * pairs / 32 + words / 128 + sums_bytes / 128 / c.dq_vector +
                1.5 * tile_bytes / c.alignment / 32 + 100.0 * c.num_warps) /
               4.0;
  cost.exponentials = pairs / 16.0;
  cost.l2 = (tile_bytes + k.reduction * sums_bytes) * k.l2;
  const bool late = c.ds_stages == 2;
  cost.waits = k.barrier * (late ? 1 : 2) + (c.stages == 1 ? 2 * k.barrier : 0) +
               k.hand_over * steps * (c.roles / 2);
  return cost;
}

/// The kernel that makes dQ alone: three products in place of one, and forward's other work.
double own_dq_us(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  constexpr double kEfficiency = 0.5;
  const BwdMmaSm80DqConfig own = c.own_dq();
  const double tiles = visited_keys(problem, own.block_m(), 1, own.block_n()).all *
                       double(problem.batch) * double(problem.num_heads_q);
  const double fma = tiles * own.block_m() * own.block_n() *
                     (2.0 * round_up(c.head_dim, 16) + round_up(c.head_dim_v, 16));
  return fma / device.arch.mma_fma_per_clock_per_sm / kEfficiency / device.num_sms /
         device.sm_clock_mhz;
}

double chain_us(const Typed& c, const Problem& problem, const DeviceFacts& device,
                const Constants& k) {
  const TileCost cost = tile_cost(c, device.arch, k);
  const double busy = std::pow(
      std::pow(cost.tensor * k.tensor, 4) + std::pow(cost.shared * k.shared, 4) +
          std::pow(cost.issue * k.issue, 4) + std::pow(cost.exponentials, 4) + std::pow(cost.l2, 4),
      0.25);
  // A warp alone on its quarter of the SM waits for each of its instructions.
  const double own_chain = (cost.tensor + cost.issue + cost.shared) * 4 / c.num_warps * k.own_chain;
  const double serial = (own_chain + cost.waits) / c.blocks_per_sm;
  const double clocks_per_tile = std::max(busy, serial) + k.unoverlapped * std::min(busy, serial);
  const double heads = double(problem.batch) * double(problem.num_heads_q);
  TileOrder order = key_tile_order(problem, c.block_n, c.head_group_mb);
  const double blocks = double(order.m_blocks) * order.heads;
  const double clocks = visited_keys(problem, c.block_m, 1, c.block_n).all * heads *
                            clocks_per_tile +
                        blocks * k.tile_start / c.blocks_per_sm;
  order.heavy_last = later_see_more(c);  // in name: under such masks the light tiles end
  const double idle = idle_factor(order, double(device.num_sms) * c.blocks_per_sm);
  const BwdSteps steps{.block_m = c.block_m, .dq_columns = c.makes_dq() ? c.qk_chunks() * 8 : 0};
  return clocks * idle / device.num_sms / device.sm_clock_mhz +
         (c.makes_dq() ? 0 : own_dq_us(c, problem, device)) + bwd_steps_us(problem, steps, device);
}

double model_us(const Typed& c, const Problem& problem, const DeviceFacts& device,
                const Constants& k) {
  // Near the limit ptxas may spill, which costs time, or may not: measure it, but do not start with
  // it.
  constexpr int kSafeSlack = 42, kKeysSlack = 32;
  constexpr int kWithoutUniform = 12;  // sm_90 has uniform registers for more
  constexpr double kSpillRisk = 1.5;
  constexpr int kBothRoles = 8, kOneStage = 12, kDqAlone = 16;
  int slack = kSafeSlack + c.keys_in_regs * kKeysSlack + (c.roles == 1 ? kBothRoles : 0) +
              (device.arch.sm < 90 ? kWithoutUniform : 0);
  if (c.stages == 1 && c.blocks_per_sm == 1 && c.steps() == 1) slack -= kOneStage;
  // ptxas lets some of what takes turns begin before the other has ended.
  if (c.dq_registers() >= 2 * c.step_registers()) slack -= kDqAlone;
  const bool tight = c.planned_registers() + slack > registers_available(c, device.arch);
  return chain_us(c, problem, device, k) * (tight ? kSpillRisk : 1.0);
}

double estimate_us(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  return model_us(c, problem, device, constants_of(device.arch));
}

std::string describe(const Typed& c) {
  return phrases({fmt::format("{} x {} keys{}", c.block_m, c.block_n,
                              c.step_m == c.block_m ? "" : fmt::format(" by {}", c.step_m)),
                  fmt::format("{} warps{}", c.num_warps,
                              c.roles == 4   ? " in fours"
                              : c.roles == 2 ? " in pairs"
                                             : ""),
                  fmt::format("stages {}", c.stages), if_so(c.ds_stages == 2, "dQ a tile later"),
                  if_so(c.keys_in_regs != 0, "K in registers"),
                  if_so(c.dq == kDqOwnKernel, "dQ by its own kernel"),
                  if_so(c.dq_vector == 1, "dQ added one by one"), blocks_words(c.blocks_per_sm),
                  head_group_words(c.head_group_mb)});
}

BwdSteps steps_of(const Typed& c) {
  if (!c.makes_dq()) return {.block_m = c.block_m, .block_n = c.block_n};
  return {.block_m = c.block_m,
          .block_n = c.block_n,
          .dq_columns = c.qk_chunks() * 8,
          .dq_tile = "BwdMmaSm80DqTile<kConfig>"};
}

constexpr std::string_view kDqEnd = "_dq";  // of the symbol of dQ's own kernel

KernelTraits kernel_of(const Typed& c, const BwdSteps& steps) {
  KernelTraits kernel{.symbol = shape_name(kName, c, c.block_m, c.block_n),
                      .folder = kName,
                      .type = "BwdMmaSm80",
                      .params = OwnParams::of<BwdMmaSm80Params>("BwdMmaSm80Params"),
                      .launch_fields = 1,
                      .pieces = &kBackwardPieces,
                      .coarse = true,
                      .slopes = true,
                      .gradients = &steps,
                      .step_argument = &kBwdStepArgument};
  if (!c.makes_dq())
    kernel.beside = {{.end_of_symbol = kDqEnd,
                      .header = "bwd_mma_sm80/dq_kernel.cuh",
                      .bounds = "kConfig.own_dq().num_threads(), kConfig.own_dq().blocks_per_sm",
                      .type = "BwdMmaSm80Dq<kConfig, Pieces, {}>"}};
  return kernel;
}

Source render(const Typed& c, const Problem& problem) {
  const BwdSteps steps = steps_of(c);
  return kernel_source(untyped(kName, c, kFields), c, problem, kernel_of(c, steps));
}

Launch launch(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  const BwdSteps steps = steps_of(c);
  const KernelTraits kernel = kernel_of(c, steps);
  const Assembly assembly = assemble(problem, c, kernel);
  const LaunchWork of_launch = launch_work(assembly, device);
  const BwdWork work = bwd_work(of_launch);
  std::vector<LaunchStep> own_steps;
  // A block for each tile of an order.
  const auto add = [&](LaunchStep step, const TileOrder& order) {
    if (order.m_blocks == 0 || order.heads == 0) return;
    step.grid.x = static_cast<unsigned>(order.m_blocks) * static_cast<unsigned>(order.heads);
    fill_argument(step, of_launch, [&](Argument& argument) {
      add_bwd(argument, problem).end_of_base<BwdParams>();
      add_scratch(argument, work);
      argument.value(order);
    });
    own_steps.push_back(std::move(step));
  };
  add(step_of(symbol_of(assembly), c.num_threads(), c.smem_bytes()),
      key_tile_order(problem, c.block_n, c.head_group_mb));
  if (!c.makes_dq()) {
    const BwdMmaSm80DqConfig own = c.own_dq();
    TileOrder order = tile_order(problem, own.block_m(), 1, 0, later_see_more(c));
    const StoredRows stored = stored_rows(problem);
    order.m_blocks = static_cast<int>(tiles_of_stored(problem, stored.q, own.block_m()));
    order.heads = static_cast<int>(stored.batch * problem.num_heads_q);
    add(step_of(symbol_of(assembly, kDqEnd), own.num_threads(), own.smem_bytes()), order);
  }
  return launch_of(of_launch, own_steps);
}

}  // namespace

constinit const Family
    bwd_mma_sm80 = typed_family<kFields, illegal, needless, estimate_us, render, launch, describe>({
        .name = kName,
        .summary = "mma.sync and a cp.async ring: gradients of fp16 and bf16 on sm_80 and later",
        .op = Op::kBackward,
        .tier = Tier::kProduct,
        .features = kFeaturesOfWindows | kFeaturesOfScores | kFeatureGqa | kFeatureUnequalHeadDims |
                    kFeatureUnaligned | kFeaturesOfGradientPieces | kFeatureDeterministic |
                    kFeaturesOfGradients | kFeatureDargs,
        .supports = supports,
        .axes = axes,
    });

constinit const FittedModel fitted_bwd_mma_sm80 = fitted_model<kFields, constants_of, model_us>(
    kName, kConstantNames);

}  // namespace attnforge
