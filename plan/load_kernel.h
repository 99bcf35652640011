// load_kernel.h - from a bucket's problem to a kernel that is loaded: choose, fetch or compile,
// load; fall back if one fails.
#pragma once

#include <memory>

#include "plan/device_state.h"

namespace attnforge {

/// Whether a kernel that is loaded answers a caller with these options, or the database or the
/// tuner must be asked.
bool good_enough(const LoadedKernel& kernel, const PlanOptions& options);

/// The whole way for a bucket that is not loaded yet, or not well enough. Slow. Throws as
/// make_plan.
std::unique_ptr<LoadedKernel> choose_and_load(const ChoiceKey& key, const PlanOptions& options,
                                              DeviceState& state);

}  // namespace attnforge
