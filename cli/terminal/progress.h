// progress.h - a step of a tuning run as a line of text. Pure functions; display.h draws them.
#pragma once

#include <string>
#include <vector>

#include "attnforge/plan.h"

namespace attnforge::cli {

/// Steps a second since the phase began. Feed it every Progress of one tuning run in order.
class RateMeter {
 public:
  double update(const Progress& progress);

 private:
  bool started_ = false;
  Progress::Phase phase_ = Progress::Phase::kCompile;
  int first_done_ = 0;
  double first_s_ = 0;
};

struct ProgressLine {
  std::string label;  // which problem, on which GPU; may be ""
  Progress progress;
  double rate = 0;  // steps a second; 0: not known yet
};

/// For a terminal of `columns`: never longer than columns - 1, since a full line wraps on some
/// terminals. The bar takes what is left; where there is little room, the less important parts go
/// first.
std::string bar_line(const ProgressLine& line, int columns);

/// For logs: everything, no bar.
std::string plain_line(const ProgressLine& line);

/// "0:07", "12:34", "1:02:03"; "?" for what is not known (0 or less, not finite, or days).
std::string duration_text(double seconds);

/// What to write to a terminal to replace `drawn` lines, the last ones on it, by `lines`. The
/// cursor stays below them.
std::string redraw(int drawn, const std::vector<std::string>& lines);

}  // namespace attnforge::cli
