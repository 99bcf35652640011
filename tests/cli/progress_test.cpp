#include "cli/terminal/progress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace attnforge::cli {
namespace {

ProgressLine example() {
  ProgressLine line;
  line.label =
      "fwd bf16 batch=1 num_heads_q=32 num_heads_kv=8 seqlen_q=4096 seqlen_kv=4096 head_dim=128";
  line.progress.phase = Progress::Phase::kMeasure;
  line.progress.done = 123;
  line.progress.total = 400;
  line.progress.failed = 3;
  line.progress.best_us = 812.34;
  line.progress.default_us = 1015.4;
  line.progress.remaining_s = 41.2;
  line.rate = 45.25;
  return line;
}

TEST(ProgressBar, ShowsEverythingWhereThereIsRoom) {
  const std::string text = bar_line(example(), 240);
  for (const char* part : {"head_dim=128", "measure", "123/400", "45.2/s", "3 failed",
                           "best 812.3 us", "1.25x untuned", "phase ends in 0:42", "[#"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is missing in: " << text;
  }
}

TEST(ProgressBar, IsNeverWiderThanTheTerminalLessOne) {
  for (int columns = 1; columns <= 300; ++columns) {
    EXPECT_LE(static_cast<int>(bar_line(example(), columns).size()), std::max(1, columns - 1))
        << columns;
  }
}

TEST(ProgressBar, KeepsCountAndPhaseLongest) {
  const std::string text = bar_line(example(), 20);
  EXPECT_EQ(text, "measure  123/400");
  EXPECT_NE(bar_line(example(), 60).find("best 812.3 us"), std::string::npos);
}

TEST(ProgressBar, FillsInProportion) {
  ProgressLine line;
  line.progress.total = 10;
  const auto hashes = [&](int done) {
    line.progress.done = done;
    const std::string text = bar_line(line, 100);
    return std::count(text.begin(), text.end(), '#');
  };
  EXPECT_EQ(hashes(0), 0);
  EXPECT_EQ(hashes(5), 20);
  EXPECT_EQ(hashes(10), 40);
  EXPECT_EQ(hashes(11), 40) << "more done than there was to do must not overflow the bar";
}

TEST(ProgressBar, NothingToDoIsNoDivisionByZero) {
  EXPECT_NE(bar_line({}, 80).find("0/0"), std::string::npos);
}

TEST(ProgressBar, LeavesOutWhatIsNotKnownYet) {
  const std::string text = bar_line({}, 80);
  EXPECT_EQ(text.find("best"), std::string::npos);
  EXPECT_EQ(text.find("failed"), std::string::npos);
  EXPECT_EQ(text.find("/s"), std::string::npos);
  EXPECT_NE(text.find("phase ends in ?"), std::string::npos);
}

TEST(PlainLine, HasTheWholeLabelAndNoBar) {
  const std::string text = plain_line(example());
  EXPECT_EQ(
      text,
      example().label +
          ": measure, 123/400, 45.2/s, 3 failed, best 812.3 us, 1.25x untuned, phase ends in 0:42");
}

TEST(DurationText, CountsInMinutesAndHours) {
  EXPECT_EQ(duration_text(0.2), "0:01");
  EXPECT_EQ(duration_text(59.0), "0:59");
  EXPECT_EQ(duration_text(754), "12:34");
  EXPECT_EQ(duration_text(3723), "1:02:03");
}

TEST(DurationText, UnknownIsAQuestionMark) {
  EXPECT_EQ(duration_text(0), "?");
  EXPECT_EQ(duration_text(-1), "?");
  EXPECT_EQ(duration_text(std::nan("")), "?");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::infinity()), "?");
}

Progress step(Progress::Phase phase, int done, double elapsed_s) {
  Progress progress;
  progress.phase = phase;
  progress.done = done;
  progress.elapsed_s = elapsed_s;
  return progress;
}

TEST(RateMeter, CountsStepsOfThePhaseOnly) {
  RateMeter meter;
  EXPECT_EQ(meter.update(step(Progress::Phase::kCompile, 0, 1.0)), 0.0);
  EXPECT_DOUBLE_EQ(meter.update(step(Progress::Phase::kCompile, 10, 3.0)), 5.0);
  EXPECT_EQ(meter.update(step(Progress::Phase::kMeasure, 0, 3.5)), 0.0);
  EXPECT_DOUBLE_EQ(meter.update(step(Progress::Phase::kMeasure, 2, 4.0)), 4.0);
}

TEST(RateMeter, TheSamePhaseAgainBeginsAnew) {
  RateMeter meter;
  meter.update(step(Progress::Phase::kCompile, 0, 0.0));
  meter.update(step(Progress::Phase::kCompile, 10, 1.0));
  meter.update(step(Progress::Phase::kMeasure, 0, 1.0));
  EXPECT_EQ(meter.update(step(Progress::Phase::kCompile, 3, 9.0)), 0.0);
}

TEST(Redraw, GoesUpOverWhatWasDrawn) {
  EXPECT_EQ(redraw(0, {"a"}), "\ra\x1b[K\n");
  EXPECT_EQ(redraw(1, {"b"}), "\x1b[1A\rb\x1b[K\n");
  EXPECT_EQ(redraw(2, {"a", "b"}), "\x1b[2A\ra\x1b[K\n\rb\x1b[K\n");
}

TEST(Redraw, ErasesLinesThatAreGone) {
  EXPECT_EQ(redraw(2, {"a"}), "\x1b[2A\ra\x1b[K\n\x1b[J");
  EXPECT_EQ(redraw(1, {}), "\x1b[1A\x1b[J");
  EXPECT_EQ(redraw(0, {}), "");
}

}  // namespace
}  // namespace attnforge::cli
