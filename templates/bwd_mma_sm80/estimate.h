// estimate.h - how long bwd_mma_sm80 takes, without running it.
#pragma once

#include "attnforge/problem.h"
#include "generator/arch.h"
#include "templates/bwd_mma_sm80/config.h"

namespace attnforge {

/// The time of all steps, in microseconds. `order` is that of key tiles.
double estimate_bwd_mma_sm80_us(const BwdMmaSm80Config& c, const Problem& problem,
                                const DeviceFacts& device, const TileOrder& order);

}  // namespace attnforge
