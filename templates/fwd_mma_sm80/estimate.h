// estimate.h - how long a config of fwd_mma_sm80 takes, without running it.
#pragma once

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "templates/fwd_mma_sm80/config.h"
#include "templates/host/tile_order.h"

namespace attnforge {

/// What work costs beside the rates of the chip.
struct FwdMmaSm80Constants {
  double tensor, shared, shared_query, issue, softmax, l2;  // times the work of a unit
  double wait, query_wait, tile_start;                      // clocks
  double unoverlapped;                                      // of the lesser of two that overlap
  double covered;  // how much of a block's tensor time other blocks cover
  double clock;    // what is left of the maximum, and what else all configs share
  // Of few query rows, where keys come from memory once: clocks, clocks, and of the maximum.
  double memory_latency, block_start, sustained_clock;
};
FwdMmaSm80Constants fwd_mma_sm80_constants(const Arch& arch);

/// Microseconds. `resident_blocks` is how many blocks an SM holds at once; the keys of a query tile
/// are split among `splits`, by the way that its blocks come by their tiles.
double estimate_fwd_mma_sm80_us(const FwdMmaSm80Config& config, const Problem& problem,
                                const DeviceFacts& device, int resident_blocks, int splits,
                                TileSource source, const FwdMmaSm80Constants& constants);

}  // namespace attnforge
