// host.h - lengths that only the device knows, in a kernel's argument.
#pragma once

#include "generator/launch.h"
#include "templates/host/tile_order.h"
#include "templates/parts/lengths/params.h"

namespace attnforge {

/// Arrays of lengths by each run, a list at the beginning of the workspace.
LengthsParams lengths_params(const TileSchedule& tiles);
void bind_lengths(LengthsParams& lengths, const Tensors& tensors, const RunMemory& memory);

}  // namespace attnforge
