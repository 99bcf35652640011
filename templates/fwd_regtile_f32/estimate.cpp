// estimate.cpp - the model behind the order of candidates. Its constants are fitted to measurements
// (docs/MEASURING.md says how); what it must get right is the order, not the microseconds.
#include "templates/fwd_regtile_f32/estimate.h"

#include <algorithm>
#include <cmath>

#include "generator/shape.h"
#include "templates/host/fwd_params.h"
#include "templates/host/tile_order.h"
#include "templates/host/visited_keys.h"

namespace attnforge {
namespace {

// Fitted on an H200 to 80 configs over 16 problems, of head dims 64 and 128. There an mma.sync of
// TF32 keeps its scheduler from issuing anything else: times add up.
constexpr double kMma = 0.948, kFma = 0.7, kFmaLoad = 12.0, kIssue = 0.84, kL2ClocksPerByte = 0.047;
constexpr double kStepWait = 270, kTileWait = 145, kAlone = 1.125, kUnoverlapped = 0.26,
                 kStart = 9440, kAddParts = 800, kHeaviestTile = 1.6, kCopy = 1.97;

/// Clocks of a warp scheduler for a warp's softmax step.
double step_clocks(const FwdRegtileF32Config& c, const Arch& arch) {
  constexpr int kSchedulers = 4, kFmaOfMma = 1024;
  const double macs_qk = double(c.warp_m) * c.step_n * c.head_dim,
               macs_pv = double(c.warp_m) * c.step_n * c.warp_columns();
  const double scores = double(c.warp_m) * c.step_n / 32;  // of a thread
  const double rest = 40 + 6 * c.thread_rows();
  if (c.math == kMathFma) {
    const double padded = double(c.warp_m) * c.step_n * c.thread_columns() * 8;
    const double loads = c.head_dim / 4.0 * (c.thread_rows() + c.step_n / 8.0) +
                         c.step_n * (c.thread_rows() + c.thread_columns()) / 4.0;
    return (macs_qk + padded) * kSchedulers / arch.fp32_fma_per_clock_per_sm * kFma +
           kIssue * (kFmaLoad * loads + 10 * scores + rest);
  }
  const int products = c.math == kMath3xTf32 ? 3 : 1;
  const double mma = products * (macs_qk + macs_pv) / kFmaOfMma;
  const double mma_clocks = kFmaOfMma * kSchedulers / (arch.mma_fma_per_clock_per_sm / 2.0) * kMma;
  const double k_loads = c.head_dim / 8.0 * c.step_n / 16,
               q_loads = c.q_in_regs ? 0 : c.head_dim / 8.0 * c.warp_m / 16,
               v_loads = c.step_n / 8 * std::ceil(c.warp_columns() / 32.0) * 2;
  // Each of the four words of a load is split in two (cut: Q and K; rounded: V), or rounded.
  const double other = products == 3 ? 9 * (k_loads + q_loads) + 13 * v_loads + 14 * scores +
                                           c.thread_rows() * c.thread_columns()
                                     : 5 * (k_loads + q_loads + v_loads) + 9 * scores;
  return mma * mma_clocks + kIssue * (other + rest);
}

}  // namespace

double estimate_fwd_regtile_f32_us(const FwdRegtileF32Config& c, const Problem& problem,
                                   const DeviceFacts& device, int resident_blocks) {
  const double step = step_clocks(c, device.arch);
  const double tile_bytes = double(c.block_n()) * (c.head_dim + c.head_dim_v) * 4;
  const double issue = c.num_warps() / 4.0 *
                       (c.steps * step + kCopy * tile_bytes / c.alignment / c.num_threads());
  const double l2 = tile_bytes * kL2ClocksPerByte;
  const double busy = std::max(issue, l2) + 0.25 * std::min(issue, l2);
  // What a block takes by itself: with one warp a scheduler nothing hides its waits.
  const double serial = c.steps * (step * kAlone + kStepWait) + kTileWait * (c.stages == 1 ? 3 : 1);

  const double heads = double(problem.batch) *
                       double(c.pack_gqa > 1 ? problem.num_heads_kv : problem.num_heads_q);
  const double blocks = double(query_tiles(problem, c.block_m(), c.pack_gqa));
  if (blocks == 0) return 0;
  const double tiles = visited_keys(problem, c.block_m(), c.pack_gqa, c.block_n()).all * heads;
  // Blocks that an SM really gets at once: few, where there are few queries.
  const double per_sm = blocks / device.num_sms;
  const double resident = std::clamp(std::ceil(per_sm), 1.0, double(resident_blocks));
  const double alone = serial / resident;
  const double clocks_per_tile = std::max(busy, alone) + kUnoverlapped * std::min(busy, alone);
  double idle = std::max(std::ceil(per_sm / resident) * resident, per_sm) / per_sm;
  if (later_see_more(c)) {
    const TileOrder order = tile_order(problem, c.block_m(), c.pack_gqa, c.head_group_mb, true);
    idle = per_sm > resident ? idle_factor(order, device.num_sms * resident) : idle * kHeaviestTile;
  } else if (c.head_group_mb != 0) {
    idle *= 1.02;  // groups only spread the reads of L2
  }
  const double start = (kStart + kAddParts * std::log2(c.warps_n)) *
                       std::ceil(per_sm / resident_blocks);
  return (tiles / device.num_sms * clocks_per_tile * idle + start) / device.sm_clock_mhz;
}

}  // namespace attnforge
