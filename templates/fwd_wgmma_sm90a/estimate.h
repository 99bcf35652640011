// estimate.h - how long a config of fwd_wgmma_sm90a takes, without running it.
#pragma once

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "templates/fwd_wgmma_sm90a/config.h"

namespace attnforge {

/// Predicted microseconds.
double estimate_fwd_wgmma_sm90a_us(const FwdWgmmaSm90aConfig& config, const Problem& problem,
                                   const DeviceFacts& device);

}  // namespace attnforge
