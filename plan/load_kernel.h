// load_kernel.h - from a bucket's problem to a kernel that is loaded: choose, fetch or compile,
// load; fall back if one fails.
#pragma once

#include <chrono>
#include <memory>

#include "plan/device_state.h"

namespace attnforge {

/// Whether a kernel that is loaded answers a caller with these options, or the database or the
/// tuner must be asked.
bool good_enough(const LoadedKernel& kernel, const PlanOptions& options);

/// For callers who may tune: whether a provisional kernel's second is over. Cheap.
bool time_to_look_again(const LoadedKernel& kernel, const PlanOptions& options);

/// Marks the provisional kernel of `key` as superseded if no process tunes it any more. Does not
/// wait.
void look_again(const ChoiceKey& key, DeviceState& state);

/// The whole way for a bucket that is not loaded yet, or not well enough. Slow. `called` is when
/// make_plan was: the time limit is counted from there. Throws as make_plan.
std::unique_ptr<LoadedKernel> choose_and_load(const ChoiceKey& key, const PlanOptions& options,
                                              DeviceState& state,
                                              std::chrono::steady_clock::time_point called);

}  // namespace attnforge
