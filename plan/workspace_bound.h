// workspace_bound.h - how much workspace suffices for all sizes up to some.
#pragma once

#include <cstddef>
#include <string>

#include "attnforge/device.h"
#include "attnforge/problem.h"

namespace attnforge {

/// Bytes that suffice for a plan's config at every batch and lengths up to those of `largest`,
/// which is the plan's problem but for these. Never shrinks when one of them grows. Throws
/// Error(kInvalidProblem) for sizes out of range.
std::size_t workspace_bound(Problem largest, const std::string& config, const DeviceFacts& device);

}  // namespace attnforge
