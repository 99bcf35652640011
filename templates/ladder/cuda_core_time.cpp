#include "templates/ladder/cuda_core_time.h"

#include <algorithm>

#include "generator/arch.h"
#include "templates/host/fwd_params.h"
#include "templates/host/tile_order.h"
#include "templates/host/visited_keys.h"

namespace attnforge {

double cuda_core_us(const CudaCoreKernel& kernel, const Problem& problem, const DeviceFacts& device,
                    double efficiency) {
  constexpr double kWarpsToHide = 8;       // an SM needs this number to hide their latency
  constexpr double kBarrierClocks = 1500;  // a tile's loads, which the block's own warps wait for
  constexpr double kLaunchUs = 3;
  constexpr int kCountedRows = 64;  // at least: smaller tiles are counted together
  if (problem.seqlen_q == 0 || problem.batch == 0) return 0;
  const int registers = std::min(
      255, device.arch.registers_per_sm / (kernel.num_threads * kernel.blocks_per_sm) / 8 * 8);
  const int resident = std::max(
      1, blocks_per_sm(device.arch, registers, kernel.num_threads, kernel.smem_bytes));
  const double blocks = double(query_tiles(problem, kernel.block_m));
  const double busy = std::max(1.0, std::min(double(resident), blocks / device.num_sms));
  const double hidden = std::min(1.0, busy * kernel.num_threads / 32 / kWarpsToHide);
  const double per_tile = kernel.tile_clocks / (efficiency * hidden) + kBarrierClocks / busy;

  const int together = std::max(1, kCountedRows / kernel.block_m);
  const double heads = double(problem.batch) * double(problem.num_heads_q);
  // Tiles that are not there when a head has fewer rows than are counted together.
  const double all = std::min(double(together),
                              double(problem.seqlen_q + kernel.block_m - 1) / kernel.block_m);
  const double tiles = visited_keys(problem, kernel.block_m * together, 1, kernel.block_n).all *
                       all * heads;
  return kLaunchUs + tiles * per_tile * idle_factor(blocks, device.num_sms) / device.num_sms /
                         device.sm_clock_mhz;
}

}  // namespace attnforge
