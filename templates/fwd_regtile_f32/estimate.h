// estimate.h - how long a config of fwd_regtile_f32 takes, from what its tile costs each unit of an
// SM.
#pragma once

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "templates/fwd_regtile_f32/config.h"

namespace attnforge {

/// Microseconds. `resident_blocks` is how many blocks an SM holds at once.
double estimate_fwd_regtile_f32_us(const FwdRegtileF32Config& config, const Problem& problem,
                                   const DeviceFacts& device, int resident_blocks);

}  // namespace attnforge
