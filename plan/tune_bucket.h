// tune_bucket.h - a plan that tunes because nothing was measured for its bucket.
#pragma once

#include <optional>

#include "plan/choice.h"
#include "plan/device_state.h"

namespace attnforge {

/// Tunes the bucket within options.time_limit_s. Nothing if no config worked or the tuning could
/// not be done, which is logged: the plan then goes on with an estimate.
std::optional<Choice> first_run(const ChoiceKey& key, const PlanOptions& options,
                                DeviceState& state);

}  // namespace attnforge
