#include "cli/terminal/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cli/terminal/terminal.h"

namespace attnforge::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPlainEvery{1};
constexpr int kMinBar = 12;  // with its brackets
constexpr int kMaxBar = 42;
constexpr std::string_view kGap = "  ";

std::string_view phase_name(Progress::Phase phase) {
  constexpr std::string_view kNames[] = {"compile", "verify", "measure", "final"};
  return kNames[static_cast<std::size_t>(phase)];
}

std::string bar(const Progress& progress, int columns) {
  const int inside = columns - 2;
  const double part = progress.total > 0
                          ? std::clamp(double(progress.done) / progress.total, 0.0, 1.0)
                          : 0.0;
  const int filled = static_cast<int>(part * inside);
  return fmt::format("[{}{}]", std::string(filled, '#'), std::string(inside - filled, '.'));
}

std::string shortened(const std::string& text, std::size_t columns) {
  if (text.size() <= columns) return text;
  return columns <= 3 ? text.substr(0, columns) : text.substr(0, columns - 3) + "...";
}

/// A part of a line. The one with the lowest rank goes first where there is no room.
enum Rank {
  kRankLabel,
  kRankRate,
  kRankFailed,
  kRankSpeedUp,
  kRankEta,
  kRankBest,
  kRankPhase,
  kRankCount
};
struct Part {
  std::string text;
  Rank rank;
};

std::vector<Part> parts_of(const ProgressLine& line) {
  const Progress& p = line.progress;
  std::vector<Part> parts;
  if (!line.label.empty()) parts.push_back({line.label, kRankLabel});
  parts.push_back({std::string(phase_name(p.phase)), kRankPhase});
  parts.push_back({fmt::format("{}/{}", p.done, p.total), kRankCount});
  if (line.rate > 0) parts.push_back({fmt::format("{:.1f}/s", line.rate), kRankRate});
  if (p.failed > 0) parts.push_back({fmt::format("{} failed", p.failed), kRankFailed});
  if (p.best_us > 0) {
    parts.push_back({fmt::format("best {:.1f} us", p.best_us), kRankBest});
    if (p.default_us > 0)
      parts.push_back({fmt::format("{:.2f}x untuned", p.default_us / p.best_us), kRankSpeedUp});
  }
  parts.push_back({"phase ends in " + duration_text(p.remaining_s), kRankEta});
  return parts;
}

std::string joined(const std::vector<Part>& parts, std::string_view gap = kGap) {
  std::string text;
  for (const Part& part : parts) {
    if (!text.empty()) text += gap;
    text += part.text;
  }
  return text;
}

void write(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

double RateMeter::update(const Progress& progress) {
  if (!started_ || progress.phase != phase_ || progress.done < first_done_) {
    started_ = true;
    phase_ = progress.phase;
    first_done_ = progress.done;
    first_s_ = progress.elapsed_s;
  }
  const double seconds = progress.elapsed_s - first_s_;
  return seconds > 0 ? (progress.done - first_done_) / seconds : 0.0;
}

std::string duration_text(double seconds) {
  if (!(seconds > 0) || seconds >= 100 * 3600.0) return "?";
  const long all = std::lround(std::ceil(seconds));
  if (all >= 3600) return fmt::format("{}:{:02}:{:02}", all / 3600, all / 60 % 60, all % 60);
  return fmt::format("{}:{:02}", all / 60, all % 60);
}

std::string bar_line(const ProgressLine& line, int columns) {
  const std::size_t room = static_cast<std::size_t>(std::max(columns - 1, 1));
  std::vector<Part> parts = parts_of(line);

  // The label, a whole problem's text, may take what the others leave, but at least a sixth of the
  // line.
  const auto label = std::ranges::find(parts, kRankLabel, &Part::rank);
  if (label != parts.end()) {
    const std::size_t others = joined(parts).size() - label->text.size() + kMinBar + kGap.size();
    label->text = shortened(label->text, std::max(room > others ? room - others : 0, room / 6));
  }
  while (parts.size() > 1 && joined(parts).size() > room) {
    parts.erase(std::ranges::min_element(parts, {}, &Part::rank));
  }
  const std::size_t used = joined(parts).size() + kGap.size();
  if (room >= used + kMinBar) {
    const int bar_columns = std::min(kMaxBar, static_cast<int>(room - used));
    parts.insert(std::ranges::find(parts, kRankCount, &Part::rank),
                 {bar(line.progress, bar_columns), kRankCount});
  }
  return shortened(joined(parts), room);
}

std::string plain_line(const ProgressLine& line) {
  std::vector<Part> parts = parts_of(line);
  if (line.label.empty()) return joined(parts, ", ");
  parts.erase(parts.begin());
  return line.label + ": " + joined(parts, ", ");
}

std::string redraw(int drawn, const std::vector<std::string>& lines) {
  // Up over what was drawn, then each line over the old one, the rest of it erased; then everything
  // below is erased.
  std::string text = drawn > 0 ? fmt::format("\x1b[{}A", drawn) : "";
  for (const std::string& line : lines) text += "\r" + line + "\x1b[K\n";
  if (drawn > static_cast<int>(lines.size())) text += "\x1b[J";
  return text;
}

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
  say(text);
  if (terminal_ && !quiet_) draw();
}

void Display::result(std::string_view text) {
  const std::lock_guard lock(mutex_);
  erase();
  write_out(text);
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
