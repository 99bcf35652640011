// estimate.h - how long a config of bwd_wgmma_sm90a takes, without running it.
#pragma once

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "templates/base_params.h"
#include "templates/bwd_wgmma_sm90a/config.h"

namespace attnforge {

/// A head with fewer key tiles has all of its blocks done soon.
inline constexpr int kFewKeyTiles = 16;

/// Query tiles of block_m rows that tiles of block_n keys see: of all heads, about; and of one, the
/// most that a key tile sees.
struct SeenTiles {
  double all, most;

  static SeenTiles of(const Problem& problem, int block_m, int block_n);
};

/// Predicted microseconds of the main kernel. `order` is that of its key tiles; alternate: groups
/// of heads are walked from both ends by turns.
double estimate_bwd_wgmma_sm90a_us(const BwdWgmmaSm90aConfig& config, const Problem& problem,
                                   const DeviceFacts& device, const TileOrder& order,
                                   bool alternate);

}  // namespace attnforge
