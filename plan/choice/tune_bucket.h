// tune_bucket.h - a plan that tunes because nothing was measured for its bucket.
#pragma once

#include <chrono>
#include <optional>

#include "plan/choice/choice.h"
#include "plan/device_state.h"

namespace attnforge {

struct FirstRun {
  std::optional<Choice> choice{};  // nothing: no config worked, or none was tried; it is logged
  bool provisional = false;        // another process was still tuning when the time was over
};

/// The winner of the one process that tunes the bucket, be it this one or another that is waited
/// for, within options.time_limit_s of `called`. In vain: the best of what the other has stored so
/// far, or nothing. All that find a winner find the same, since they take it from the database.
FirstRun first_run(const ChoiceKey& key, const PlanOptions& options, DeviceState& state,
                   std::chrono::steady_clock::time_point called);

}  // namespace attnforge
