// estimate.cpp - the model behind the order of candidates; what it must get right is the order, not
// the microseconds.
#include "templates/fwd_wgmma_sm90a/estimate.h"

#include <algorithm>
#include <cmath>

namespace attnforge {
namespace {

/// Clocks of an SM on one query tile: what all of its tiles of keys take together, and what comes
/// once.
struct TileClocks {
  double keys;    // a tile of keys
  double masked;  // more for one that needs a mask
  double once;    // first scores, last outputs, epilogue
};

TileClocks tile_clocks(const FwdWgmmaSm90aConfig& c) {
  constexpr double kTensorFmaPerClock = 2048, kExponentialsPerClock = 16, kLanesPerClock = 128;
  const double scores = double(c.block_m()) * c.block_n;
  const double qk = scores * round_up(c.head_dim, 16) / kTensorFmaPerClock;
  const double pv = scores * c.head_dim_v / kTensorFmaPerClock;
  const double softmax = scores * std::max(1.0 / kExponentialsPerClock, 4.6 / kLanesPerClock) +
                         60.0 * c.warpgroups;
  const double tensor = qk + pv;
  // One warpgroup's softmax runs under the products of the others, and under its own output.
  const double hidden = c.warpgroups == 1 && c.blocks_per_sm == 1 ? pv : tensor;
  TileClocks clocks;
  clocks.keys = std::max(tensor, softmax) + 0.28 * std::min(hidden, softmax) +
                std::max(0.0, softmax - hidden) + 90.0;
  clocks.masked = scores * 3.0 / kLanesPerClock;
  clocks.once = 1500.0 + qk + pv + softmax + 6.0 * c.head_dim_v;
  if (c.grid == kGridPlain) clocks.once += 1500.0;
  if (c.q_stages == 1 && !c.q_in_regs) clocks.once += 400.0;
  return clocks;
}

}  // namespace

double estimate_fwd_wgmma_sm90a_us(const FwdWgmmaSm90aConfig& c, const Problem& problem,
                                   const DeviceFacts& device) {
  const Window window = effective_window(problem);
  const double rows = double(problem.seqlen_q), keys = double(problem.seqlen_kv),
               offset = keys - rows, queries = double(c.block_m()) / c.pack_gqa;
  const TileClocks clocks = tile_clocks(c);
  double head_clocks = 0, most_clocks = 0, m_blocks = 0;
  for (double first = 0; first < rows; first += queries, ++m_blocks) {
    const double last = std::min(first + queries, rows) - 1;
    const double end = window.right < 0 ? keys
                                        : std::min(keys, last + offset + double(window.right) + 1);
    const double begin = window.left < 0 ? 0 : std::max(0.0, first + offset - double(window.left));
    const double tiles = end > begin ? std::ceil(end / c.block_n) - std::floor(begin / c.block_n)
                                     : 0;
    const double edges = (c.right_bound + c.left_bound) * (queries / c.block_n + 0.5);
    const double all = clocks.once + tiles * clocks.keys + std::min(tiles, edges) * clocks.masked;
    head_clocks += all;
    most_clocks = std::max(most_clocks, all);
  }
  const double heads = double(problem.batch) *
                       double(c.pack_gqa > 1 ? problem.num_heads_kv : problem.num_heads_q);
  const double slots = double(device.num_sms) * c.blocks_per_sm;
  const double tiles = m_blocks * heads;
  // Equal tiles come in whole rounds; unequal ones end within about a light tile of each other.
  const bool equal = !c.right_bound && !c.left_bound;
  const double average = head_clocks / std::max(m_blocks, 1.0);
  const double rounds = equal ? std::ceil(tiles / slots)
                              : std::max(tiles / slots + 0.3, most_clocks / std::max(average, 1.0));
  double total = rounds * average;
  if (c.head_group_mb == 16 && keys > 1024) total *= 1.01;
  return total / device.sm_clock_mhz;
}

}  // namespace attnforge
