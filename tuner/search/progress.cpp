#include "tuner/search/progress.h"

#include <algorithm>

namespace attnforge {
namespace {
constexpr double kEverySeconds = 0.1;
}

ProgressReporter::ProgressReporter(const ProgressFunction& report,
                                   const TuneEnvironment& environment, double start_s,
                                   double limit_s)
    : report_(report),
      environment_(environment),
      start_s_(start_s),
      limit_s_(limit_s),
      phase_start_s_(start_s),
      last_s_(start_s - kEverySeconds) {}

void ProgressReporter::enter(Progress::Phase phase, int total) {
  state.phase = phase;
  state.done = 0;
  state.total = total;
  phase_start_s_ = environment_.now_s();
  tick();
}

void ProgressReporter::tick() {
  if (!report_) return;
  const double now_s = environment_.now_s();
  if (now_s - last_s_ >= kEverySeconds) report(now_s);
}

void ProgressReporter::end() {
  if (report_) report(environment_.now_s());
}

void ProgressReporter::report(double now_s) {
  state.elapsed_s = now_s - start_s_;
  // What is left of this phase at its pace so far; the limit is the better guess when it comes
  // first.
  const int left = std::max(0, state.total - state.done);
  state.remaining_s = state.done > 0 ? (now_s - phase_start_s_) / state.done * left : 0;
  if (limit_s_ > 0) {
    const double until_limit_s = std::max(0.0, limit_s_ - state.elapsed_s);
    state.remaining_s = state.remaining_s > 0 ? std::min(state.remaining_s, until_limit_s)
                                              : until_limit_s;
  }
  last_s_ = now_s;
  report_(state);
}

}  // namespace attnforge
