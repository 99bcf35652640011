// progress.h - a step of a tuning run as a line of text, and drawn on standard error: bars redrawn
// in place on a terminal, else a line a second.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <string_view>
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

/// A lane for each search at a time. Thread-safe: a lane is updated by its own thread. Nothing else
/// may write to standard error meanwhile.
class Display {
 public:
  /// `quiet`: messages only, no progress.
  Display(int lanes, bool quiet);
  ~Display();
  Display(const Display&) = delete;
  Display& operator=(const Display&) = delete;

  /// A new tuning run on this lane.
  void begin(int lane, const std::string& label);
  void update(int lane, const Progress& progress);
  /// What the run on this lane is at now.
  void relabel(int lane, const std::string& label);
  /// The lane has nothing to show any more.
  void end(int lane);
  /// A line that stays, above the bars.
  void message(std::string_view text);
  /// Text for standard output, above the bars.
  void result(std::string_view text);

 private:
  struct Lane {
    bool active = false;
    bool seen = false;  // any progress yet
    ProgressLine line;
    RateMeter rate;
    std::chrono::steady_clock::time_point printed;
  };

  void draw();
  void erase();

  std::mutex mutex_;
  const bool quiet_;
  const bool terminal_;
  std::vector<Lane> lanes_;
  int drawn_ = 0;  // lines on the terminal
  std::chrono::steady_clock::time_point printed_;
};

}  // namespace attnforge::cli
