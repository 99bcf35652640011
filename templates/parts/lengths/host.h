// host.h - lengths that only the device knows, in a kernel's argument.
#pragma once

#include <string>

#include "generator/launch.h"
#include "templates/host/part.h"
#include "templates/host/tile_order.h"
#include "templates/parts/lengths/params.h"

namespace attnforge {

/// Arrays of lengths by each run, a list at the beginning of the workspace.
LengthsParams lengths_params(const TileSchedule& tiles);
void bind_lengths(LengthsParams& lengths, const Tensors& tensors, const RunMemory& memory);

/// The device type whose run() orders query tiles, by one block of so many threads.
std::string tile_queue_type(Entry& entry, const Assembly& assembly, int threads);

}  // namespace attnforge
