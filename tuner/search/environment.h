// environment.h - what a tuning run needs to know of the world around it, so that tests can bring
// their own clock.
#pragma once

#include <functional>
#include <string>

#include "attnforge/device.h"

namespace attnforge {

struct TuneEnvironment {
  std::string driver;  // provenance of the measurements, as in Try
  std::string nvrtc;
  std::string stored_as{};     // key of the problem's tries; "": the problem's text
  LogFunction log;             // may be empty
  double spent_s = 0;          // of the time limit, before tune_problem() was called
  bool first_run = false;      // a plan waits for the answer: see tune_problem()
  std::string asked_choice{};  // what the model chooses for the sizes that the call asked for,
                               // where the evaluator times those too; "": it has the bucket's alone
  std::function<double()> now_s;        // empty: a steady clock
  std::function<void(double)> sleep_s;  // empty: the thread sleeps
};

/// Calls environment.log if there is one.
inline void log(const TuneEnvironment& environment, LogLevel level, const std::string& message) {
  if (environment.log) environment.log(level, message);
}

}  // namespace attnforge
