// estimate.h - how long a config of fwd_wgmma_sm90a takes, without running it.
#pragma once

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "templates/fwd_wgmma_sm90a/config.h"
#include "templates/host/tile_order.h"

namespace attnforge {

/// What is compiled in, and what the launch alone decides.
struct FwdWgmmaSm90aTyped : FwdWgmmaSm90aConfig {
  int num_splits;  // blocks of a query tile, each with a part of its keys

  /// Whether several blocks share the keys of a query tile.
  bool has_parts() const { return num_splits > 1 || grid == kGridShares; }
};

QueryTiling tiling_of(const FwdWgmmaSm90aTyped& config);
/// Query tiles, times the splits of their keys.
double blocks_of(const FwdWgmmaSm90aTyped& config, const Problem& problem);

/// Predicted microseconds.
double estimate_fwd_wgmma_sm90a_us(const FwdWgmmaSm90aTyped& config, const Problem& problem,
                                   const DeviceFacts& device);
/// Family::spread.
double spread_of_fwd_wgmma_sm90a(const FwdWgmmaSm90aTyped& config, const Problem& problem,
                                 const DeviceFacts& device);

}  // namespace attnforge
