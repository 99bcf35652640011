// estimate.h - how long a config of bwd_wgmma_sm90a takes, without running it.
#pragma once

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "templates/base_params.h"
#include "templates/bwd_wgmma_sm90a/config.h"

namespace attnforge {

/// A head with fewer key tiles has all of its blocks done soon.
inline constexpr int kFewKeyTiles = 16;

/// Predicted microseconds of the main kernel. `order` is that of its key tiles; alternate: groups
/// of heads are walked from both ends by turns.
double estimate_bwd_wgmma_sm90a_us(const BwdWgmmaSm90aConfig& config, const Problem& problem,
                                   const DeviceFacts& device, const TileOrder& order,
                                   bool alternate);

}  // namespace attnforge
