// display.h - draws progress on standard error: bars redrawn in place on a terminal, else a line a
// second.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/plan.h"
#include "cli/terminal/progress.h"

namespace attnforge::cli {

/// One lane a GPU. Thread-safe: each lane is updated by its own thread. Nothing else may write to
/// standard error meanwhile.
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
