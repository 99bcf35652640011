// part_rules.h - what parts say of a config before a kernel is put together: what would fail, what
// a search skips, and what their steps take.
#pragma once

#include "attnforge/problem.h"
#include "generator/arch.h"
#include "generator/reason.h"
#include "generator/shape.h"
#include "templates/host/tile_source.h"

namespace attnforge {

/// "" or the first reason of a part. A search asks about each point: nanoseconds where no part has
/// any.
Reason illegal_by_parts(const Shape& shape, const Problem& problem, const QueryTiling& tiling,
                        const DeviceFacts& device);
Reason needless_by_parts(const Shape& shape, const Problem& problem, const QueryTiling& tiling,
                         const DeviceFacts& device);
/// About what the steps of configs cost where they differ.
double part_steps_us(const Shape& shape, const Problem& problem, const QueryTiling& tiling,
                     const DeviceFacts& device);

}  // namespace attnforge
