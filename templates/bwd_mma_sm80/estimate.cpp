// estimate.cpp - the model behind the order of candidates: what a block does for one tile of
// queries, by unit of an SM. What it must get right is the order, not the microseconds.
#include "templates/bwd_mma_sm80/estimate.h"

#include <algorithm>
#include <cmath>

#include "generator/shape.h"
#include "templates/backward/host.h"
#include "templates/host/fwd_params.h"
#include "templates/host/tile_order.h"
#include "templates/host/visited_keys.h"

namespace attnforge {
namespace {

// Not fitted yet: those of fwd_mma_sm80, whose instructions these are.
constexpr double kTensor = 1.4, kShared = 1.16, kIssue = 1.375, kL2ClocksPerByte = 0.037;
constexpr double kUnoverlapped = 0.3, kOwnChain = 1.3, kReduction = 3, kBarrier = 170,
                 kHandOver = 100, kTileStart = 7000;

/// Work of one block on one tile of queries, in clocks of an SM that does nothing else.
struct TileCost {
  double tensor, shared, issue, exponentials, l2;
  double waits;  // of a block for itself
};

TileCost tile_cost(const BwdMmaSm80Config& c, const Arch& arch) {
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
  cost.l2 = (tile_bytes + kReduction * sums_bytes) * kL2ClocksPerByte;
  const bool late = c.ds_stages == 2;
  cost.waits = kBarrier * (late ? 1 : 2) + (c.stages == 1 ? 2 * kBarrier : 0) +
               kHandOver * steps * (c.roles / 2);
  return cost;
}

/// The kernel that makes dQ alone: three products in place of one, and forward's other work.
double own_dq_us(const BwdMmaSm80Config& c, const Problem& problem, const DeviceFacts& device) {
  constexpr double kEfficiency = 0.5;
  const BwdMmaSm80DqConfig own = c.own_dq();
  const double tiles = visited_keys(problem, own.block_m(), 1, own.block_n()).all *
                       double(problem.batch) * double(problem.num_heads_q);
  const double fma = tiles * own.block_m() * own.block_n() *
                     (2.0 * round_up(c.head_dim, 16) + round_up(c.head_dim_v, 16));
  return fma / device.arch.mma_fma_per_clock_per_sm / kEfficiency / device.num_sms /
         device.sm_clock_mhz;
}

}  // namespace

double estimate_bwd_mma_sm80_us(const BwdMmaSm80Config& c, const Problem& problem,
                                const DeviceFacts& device, const TileOrder& order) {
  const TileCost cost = tile_cost(c, device.arch);
  const double busy = std::pow(
      std::pow(cost.tensor * kTensor, 4) + std::pow(cost.shared * kShared, 4) +
          std::pow(cost.issue * kIssue, 4) + std::pow(cost.exponentials, 4) + std::pow(cost.l2, 4),
      0.25);
  // A warp alone on its quarter of the SM waits for each of its instructions.
  const double own_chain = (cost.tensor + cost.issue + cost.shared) * 4 / c.num_warps * kOwnChain;
  const double serial = (own_chain + cost.waits) / c.blocks_per_sm;
  const double clocks_per_tile = std::max(busy, serial) + kUnoverlapped * std::min(busy, serial);
  const double heads = double(problem.batch) * double(problem.num_heads_q);
  const double blocks = double(order.m_blocks) * order.heads;
  const double clocks = visited_keys(problem, c.block_m, 1, c.block_n).all * heads *
                            clocks_per_tile +
                        blocks * kTileStart / c.blocks_per_sm;
  TileOrder heaviest_first = order;
  heaviest_first.heavy_last = later_see_more(c);  // in name: under such masks the light tiles end
  const double idle = idle_factor(heaviest_first, double(device.num_sms) * c.blocks_per_sm);
  const BwdSteps steps{.block_m = c.block_m, .dq_columns = c.makes_dq() ? c.qk_chunks() * 8 : 0};
  return clocks * idle / device.num_sms / device.sm_clock_mhz +
         (c.makes_dq() ? 0 : own_dq_us(c, problem, device)) + bwd_steps_us(problem, steps, device);
}

}  // namespace attnforge
