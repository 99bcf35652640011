// estimate.h - how long a config of fwd_mma_sm80 takes, without running it.
#pragma once

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "templates/fwd_mma_sm80/config.h"

namespace attnforge {

/// Microseconds. `resident_blocks` is how many blocks an SM holds at once; the keys of a query tile
/// are split among `splits`.
double estimate_fwd_mma_sm80_us(const FwdMmaSm80Config& config, const Problem& problem,
                                const DeviceFacts& device, int resident_blocks, int splits);

}  // namespace attnforge
