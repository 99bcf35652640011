// progress.h - tells the caller how a tuning run goes, at most ten times a second.
#pragma once

#include "attnforge/plan.h"
#include "tuner/search/environment.h"

namespace attnforge {

class ProgressReporter {
 public:
  /// Borrows both. `limit_s` 0: none.
  ProgressReporter(const ProgressFunction& report, const TuneEnvironment& environment,
                   double start_s, double limit_s);

  /// The state that tick() and end() report; fields of time are filled in by them.
  Progress state;
  /// Enters a phase of `total` steps and reports it.
  void enter(Progress::Phase phase, int total);
  /// Reports if the last report is 0.1 s old.
  void tick();
  /// Reports whatever the time.
  void end();

 private:
  void report(double now_s);

  const ProgressFunction& report_;
  const TuneEnvironment& environment_;
  double start_s_, limit_s_;
  double phase_start_s_;
  double last_s_;
};

}  // namespace attnforge
