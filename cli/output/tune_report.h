// tune_report.h - what a tuning found, for people and for programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attnforge/error.h"
#include "attnforge/tune.h"
#include "cli/output/json.h"

namespace attnforge::cli {

/// One problem of a tuning run.
struct TuneJob {
  Problem problem;
  DeviceFacts device;  // that did it
  std::optional<TuneResult> result;
  std::string error;  // why there is no result; "" and no result: not begun
  ErrorCode code = ErrorCode::kInternal;
};

/// A few lines on one problem, with its best `top` tries. `full`: configs as their whole text.
std::string report(const TuneJob& job, int top, bool full);

/// A row a problem.
std::string summary(const std::vector<TuneJob>& jobs);

Json to_json(const std::vector<TuneJob>& jobs, int top, bool interrupted);

}  // namespace attnforge::cli
