#include "cli/terminal/display.h"

#include <cstdio>

#include "cli/terminal/messages.h"
#include "cli/terminal/terminal.h"

namespace attnforge::cli {
namespace {
using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPlainEvery{1};

void write(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}
}  // namespace

Display::Display(int lanes, bool quiet)
    : quiet_(quiet), terminal_(is_terminal(stderr)), lanes_(lanes), printed_(Clock::now()) {}

Display::~Display() { erase(); }

void Display::begin(int lane, const std::string& label) {
  const std::lock_guard lock(mutex_);
  lanes_[lane] = {};
  lanes_[lane].active = true;
  lanes_[lane].line.label = label;
  lanes_[lane].printed = Clock::now();
}

void Display::relabel(int lane, const std::string& label) {
  const std::lock_guard lock(mutex_);
  lanes_[lane].line.label = label;
}

void Display::update(int lane_number, const Progress& progress) {
  const std::lock_guard lock(mutex_);
  Lane& lane = lanes_[lane_number];
  lane.line.progress = progress;
  lane.line.rate = lane.rate.update(progress);
  lane.seen = true;
  if (quiet_) return;
  if (terminal_) return draw();
  // At most one line a second in all, and every lane gets its turn.
  const auto now = Clock::now();
  if (now - printed_ < kPlainEvery || now - lane.printed < kPlainEvery * lanes_.size()) return;
  printed_ = lane.printed = now;
  write(plain_line(lane.line) + "\n");
}

void Display::end(int lane) {
  const std::lock_guard lock(mutex_);
  lanes_[lane].active = false;
  if (terminal_ && !quiet_) draw();
}

void Display::message(std::string_view text) {
  const std::lock_guard lock(mutex_);
  erase();
  write(message_text(text) + "\n");
  if (terminal_ && !quiet_) draw();
}

void Display::draw() {
  const int columns = terminal_columns(stderr);
  std::vector<std::string> lines;
  for (const Lane& lane : lanes_) {
    if (lane.active && lane.seen) lines.push_back(bar_line(lane.line, columns));
  }
  write(redraw(drawn_, lines));
  drawn_ = static_cast<int>(lines.size());
}

void Display::erase() {
  if (drawn_ > 0) write(redraw(drawn_, {}));
  drawn_ = 0;
}

}  // namespace attnforge::cli
