// environment.h - what a tuning run needs to know of the world around it, so that tests can bring
// their own clock.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "attnforge/device.h"

namespace attnforge {

struct TuneEnvironment {
  std::string driver;  // provenance of the measurements, as in Try
  std::string nvrtc;
  std::string stored_as{};                // key of the problem's tries; "": the problem's text
  LogFunction log;                        // may be empty
  double spent_s = 0;                     // of the time limit, before tune_problem() was called
  bool first_run = false;                 // a plan waits for the answer: see tune_problem()
  std::vector<std::string> unsearched{};  // configs that the call might have had without a search
  bool times_asked = false;               // the evaluator has Sizes::kAsked too
  std::function<double()> now_s;          // empty: a steady clock
  std::function<void(double)> sleep_s;    // empty: the thread sleeps
};

/// Calls environment.log if there is one.
inline void log(const TuneEnvironment& environment, LogLevel level, const std::string& message) {
  if (environment.log) environment.log(level, message);
}

}  // namespace attnforge
